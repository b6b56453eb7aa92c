//! Hostile partition tables: whatever they say, what is found can be counted, nothing is
//! written, and the search ends.
//!
//! The first byte chooses whether the rest is the disk's bytes or pieces of it, and the
//! size of sectors in whose GPT the checksums are put right (no input would get past them).
#![no_main]

use std::collections::BTreeSet;

use libfuzzer_sys::fuzz_target;
use xtent_partition::{Partition, find};
use xtent_store::testing::MemStore;

/// Room for both copies of a GPT with sectors of 4096 bytes.
const SIZE: usize = 128 << 10;

fuzz_target!(|data: &[u8]| {
    let Some((mode, data)) = data.split_first() else {
        return;
    };
    let mut disk = match mode >> 1 & 1 {
        0 => data.to_vec(),
        _ => patched(data),
    };
    match mode >> 2 & 3 {
        0 => {}
        // One sector more or less is no multiple of the larger ones.
        1 => disk.resize(SIZE + 512, 0),
        _ => disk.resize(SIZE, 0),
    }
    let sector = [512, 4096][usize::from(mode & 1)];
    if mode >> 4 & 1 == 0 {
        put_right(&mut disk, sector);
    }
    let disk = MemStore::from(disk);
    // Where two readings are possible, either may be taken.
    for wanted in [0, 4096] {
        let found = find(&disk, |p| p.start % 8192 == wanted);
        let numbers: BTreeSet<u32> = found.iter().map(|p| p.number).collect();
        assert_eq!(numbers.len(), found.len(), "a number twice: {found:?}");
        for Partition { number, start, len } in &found {
            assert!((1..=1024).contains(number));
            assert!(*len > 0 && len % 512 == 0 && start % 512 == 0);
            assert!(start.checked_add(*len).is_some());
        }
    }
    assert_eq!(disk.writes(), 0);
});

/// Pieces: which eighth of which sector of 512 bytes, how many bytes, and those.
fn patched(mut data: &[u8]) -> Vec<u8> {
    let mut disk = vec![0; SIZE];
    while let [sector, eighth, len, rest @ ..] = data {
        let at = usize::from(*sector) * 512 + usize::from(eighth % 8) * 64;
        let (new, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        let end = (at + new.len()).min(disk.len());
        disk[at..end].copy_from_slice(&new[..end - at]);
        data = rest;
    }
    disk
}

/// Gives both headers a mark, as many entries as they can have, and right checksums.
fn put_right(disk: &mut [u8], sector: usize) {
    let last = (disk.len() / sector).saturating_sub(1);
    for at in [1, last] {
        let Some(header) = disk.get(at * sector..at * sector + 92) else {
            continue;
        };
        let number = |at: usize| {
            let bytes = header[at..at + 8].try_into().expect("eight bytes");
            usize::try_from(u64::from_le_bytes(bytes)).unwrap_or(usize::MAX)
        };
        let (entries, count) = (number(72).saturating_mul(sector), number(80) & 0xffff_ffff);
        let end = entries.saturating_add(count.saturating_mul(128));
        let sum = disk.get(entries..end).map(crc32);
        let header = &mut disk[at * sector..][..92];
        header[..8].copy_from_slice(b"EFI PART");
        if let Some(sum) = sum {
            header[84..88].copy_from_slice(&128u32.to_le_bytes());
            header[88..].copy_from_slice(&sum.to_le_bytes());
        }
        header[16..20].fill(0);
        let sum = crc32(header);
        header[16..20].copy_from_slice(&sum.to_le_bytes());
    }
}

/// CRC-32 as in Ethernet, which the UEFI specification wants.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc: u32, _| {
            crc >> 1 ^ (0xedb8_8320 * (crc & 1))
        })
    })
}
