//! GUID partition tables (UEFI specification, chapter 5).

use gpt::GptConfig;
use gpt::disk::LogicalBlockSize;
use xtent_store::Store;

use crate::Partition;
use crate::reader::Reader;

/// Entries of 128 bytes that a GPT may have; all programs make tables of 128.
const MOST_ENTRIES: u32 = 1024;

pub(crate) fn partitions(disk: &dyn Store, sector: u64) -> Vec<Partition> {
    if !is_ordinary(disk, sector) {
        return Vec::new();
    }
    let read = || {
        // Either copy will do: a cut off image has lost the second.
        GptConfig::new()
            .writable(false)
            .logical_block_size(LogicalBlockSize::try_from(sector).ok()?)
            .only_valid_headers(false)
            .open_from_device(Reader::new(disk))
            .ok()
    };
    let Some(table) = read() else {
        return Vec::new();
    };
    table
        .partitions()
        .iter()
        .filter(|(_, entry)| entry.is_used() && entry.last_lba >= entry.first_lba)
        .filter_map(|(number, entry)| {
            let sectors = (entry.last_lba - entry.first_lba).checked_add(1)?;
            Partition::of_sectors(*number, entry.first_lba, sectors, sector)
        })
        .collect()
}

/// Whether both copies of a GPT's header, where there are any, are of the one shape that
/// the library reads: it panics on other sizes of entries, and takes memory for as many as
/// the header claims (UEFI specification, table 5-5: bytes 80 and 84).
fn is_ordinary(disk: &dyn Store, sector: u64) -> bool {
    let last = (disk.size() / sector).saturating_sub(1);
    [1, last].into_iter().all(|at| {
        let mut header = [0; 92];
        if disk.read_at(&mut header, at * sector).is_err() || !header.starts_with(b"EFI PART") {
            return true;
        }
        let word = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        word(80) <= MOST_ENTRIES && word(84) == 128
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use xtent_store::testing::MemStore;

    /// CRC-32 as in Ethernet, which the UEFI specification wants.
    fn crc32(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!0, |crc, &byte| {
            (0..8).fold(crc ^ u32::from(byte), |crc: u32, _| {
                crc >> 1 ^ (0xedb8_8320 * (crc & 1))
            })
        })
    }

    /// An image of 1 MiB whose one header of a GPT, in sector `at`, is valid and claims so
    /// many entries, of which all but the first, in sector 2, are zeros.
    fn image(at: usize, entries: u32, entry_size: u32, first: &[u8]) -> MemStore {
        let mut image = vec![0; 1 << 20];
        let mut table = [0; 128 * 128];
        table[..first.len()].copy_from_slice(first);
        let mut header = [0; 92];
        header[..8].copy_from_slice(b"EFI PART");
        header[8..16].copy_from_slice(&[0, 0, 1, 0, 92, 0, 0, 0]);
        header[72] = 2;
        header[80..84].copy_from_slice(&entries.to_le_bytes());
        header[84..88].copy_from_slice(&entry_size.to_le_bytes());
        header[88..].copy_from_slice(&crc32(&table).to_le_bytes());
        let sum = crc32(&header);
        header[16..20].copy_from_slice(&sum.to_le_bytes());
        image[at * 512..][..92].copy_from_slice(&header);
        image[1024..][..table.len()].copy_from_slice(&table);
        image.into()
    }

    /// An entry of some type with these first and last sectors.
    fn entry(first: u64, last: u64) -> Vec<u8> {
        let mut entry = vec![7; 32];
        entry.extend(first.to_le_bytes());
        entry.extend(last.to_le_bytes());
        entry
    }

    #[test]
    fn a_hostile_table_is_no_table() {
        for at in [1, 2047] {
            // This shape the library reads.
            let disk = image(at, 128, 128, &[]);
            let config = GptConfig::new().only_valid_headers(false);
            let table = config.open_from_device(Reader::new(&disk)).unwrap();
            assert_eq!(table.partitions().len(), 0);
            // These would be a panic, or more memory than there is.
            for (entries, size) in [(128, 4096), (128, 0), (u32::MAX, 128)] {
                let disk = image(at, entries, size, &[]);
                assert_eq!(partitions(&disk, 512), [], "{entries} of {size}");
            }
        }
    }

    #[test]
    fn what_cannot_be_counted_is_no_partition() {
        let of = |first, last| partitions(&image(1, 128, 128, &entry(first, last)), 512);
        let [found] = &of(8, 9)[..] else {
            panic!("one partition")
        };
        assert_eq!((found.number, found.start, found.len), (1, 4096, 1024));
        let largest = u64::MAX / 512;
        for (first, last) in [
            (0, u64::MAX),
            (9, 8),
            (largest + 1, largest + 1),
            // Each of start and length can be counted, the end cannot.
            (largest - 1, 2 * largest - 2),
            (largest, largest),
        ] {
            assert_eq!(of(first, last), [], "{first} to {last}");
        }
    }
}
