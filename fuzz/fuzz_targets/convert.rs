//! LUKS1 to LUKS2 and back, of headers with bytes replaced: what a plan refuses is left as
//! it is; what it allows succeeds, in the other format opens with the same keyslots, and
//! not a byte of the data is written.
//!
//! An input: which of the eight keyslots are in use, key length and room before the data,
//! the format, and edits of its header.
#![no_main]

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use xtent_fuzz::{edited, put_right};
use xtent_luks::{Device, Dump, Header, Kdf, Version};
use xtent_store::Store;
use xtent_store::testing::MemStore;

/// Bytes of one copy of a LUKS2 header.
const COPY: usize = 0x4000;
/// Bytes of a LUKS1 header.
const LUKS1: usize = 1024;
/// Bytes of data behind the header.
const DATA: usize = 8192;

fuzz_target!(|data: &[u8]| {
    let [used, layout, format, edits @ ..] = data else {
        return;
    };
    let mut image = luks1(*used, *layout);
    if format % 2 == 0 {
        for edit in edits.chunks_exact(3) {
            let at = usize::from(u16::from_be_bytes([edit[0], edit[1]])) % LUKS1;
            image[at] = edit[2];
        }
    } else {
        // The template's own conversion, which keeps no secret between the copies: nothing
        // that the edits do not say is random.
        let store = Arc::new(MemStore::from(image));
        let Some(_) = convert(&store) else {
            return;
        };
        image = store.contents();
        let end = image[4096..COPY].iter().position(|byte| *byte == 0);
        let mut text = edited(&image[4096..4096 + end.unwrap_or(0)], edits);
        text.resize(COPY - 4096, 0);
        for start in [0, COPY] {
            image[start + 4096..start + COPY].copy_from_slice(&text);
            put_right(&mut image[start..start + COPY]);
        }
    }
    let store = Arc::new(MemStore::from(image));
    // There, and back where that is allowed.
    if convert(&store).is_some() {
        convert(&store);
    }
});

/// A volume with these keyslots in use. Nobody has its keys: what is where is all that counts.
fn luks1(used: u8, layout: u8) -> Vec<u8> {
    let key = [16, 32, 64][usize::from(layout) % 3];
    let step = (key * 4000usize).next_multiple_of(4096);
    let payload = match layout / 3 % 4 {
        0 => (4096 + 8 * step).next_multiple_of(4096),
        1 => 2 * COPY + 8 * step,
        2 => 2 * COPY + 10 * step,
        // As cryptsetup does it.
        _ => (4096 + 8 * step).next_multiple_of(1 << 20),
    };
    let mut image: Vec<u8> = (0..payload + DATA)
        .map(|at: usize| (at.wrapping_mul(0x9e37_79b9) >> 11) as u8)
        .collect();
    image[..4096].fill(0);
    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    let number = |n: usize| u32::try_from(n).expect("a small number").to_be_bytes();
    put(0, b"LUKS\xba\xbe\0\x01aes");
    put(40, b"xts-plain64");
    put(72, b"sha256");
    put(104, &number(payload / 512));
    put(108, &number(if key == 16 { 32 } else { key }));
    if key == 16 {
        put(40, b"cbc-essiv:sha256");
        put(108, &number(16));
    }
    put(112, &[7; 20 + 32]);
    put(164, &number(1000));
    put(168, b"22b51bd9-f269-4cc7-94f2-dd5abdc517e9");
    for slot in 0..8 {
        let at = 208 + 48 * slot;
        let active = used >> slot & 1 == 1;
        put(at, &number(if active { 0x00ac_71f3 } else { 0xdead }));
        put(at + 4, &number(1000 + slot));
        put(at + 8, &[slot as u8 + 1; 32]);
        put(at + 40, &number((4096 + slot * step) / 512));
        put(at + 44, &number(4000));
    }
    image
}

/// A keyslot: where its material is, bytes of key, derivation and salt.
type Keyslot = (Range<usize>, u32, Option<Kdf>, Option<String>);

fn keyslots(header: &Header) -> BTreeMap<u32, Keyslot> {
    let places: Vec<(u64, Option<String>)> = match header.dump() {
        Dump::Luks1(dump) => dump
            .keyslots
            .iter()
            .map(|slot| (u64::from(slot.offset) * 512, Some(slot.salt.clone())))
            .collect(),
        Dump::Luks2(dump) => dump
            .keyslots
            .values()
            .map(|slot| {
                let more = slot.luks2.as_ref().expect("of a type that is converted");
                (slot.area_offset, more.salt.clone())
            })
            .collect(),
    };
    let keyslots = header.keyslot_info();
    assert_eq!(keyslots.len(), places.len());
    keyslots
        .into_iter()
        .zip(places)
        .map(|(slot, (start, salt))| {
            let start = usize::try_from(start).expect("in memory");
            let area = start..start + slot.key_length as usize * 4000;
            (slot.keyslot, (area, slot.key_length, slot.kdf, salt))
        })
        .collect()
}

/// Converts to the other format what can be.
fn convert(store: &Arc<MemStore>) -> Option<()> {
    let device = Device::without_locks(store.clone());
    let header = device.read().ok()?;
    let (before, writes) = (store.contents(), store.writes());
    let to = match header.version() {
        Version::Luks1 => Version::Luks2,
        Version::Luks2 => Version::Luks1,
    };
    let plan = device.plan_conversion(to);
    assert_eq!(store.writes(), writes, "planning has written");
    let plan = plan.ok()?;
    let backup = plan.needs_backup.then(backup);
    let done = device.convert(plan, backup.as_deref());
    if let Some(path) = backup {
        let _ = std::fs::remove_file(path);
    }
    let now = done.unwrap_or_else(|e| panic!("planned, begun, and then: {e}"));

    let after = store.contents();
    assert_eq!(now.version(), to);
    assert!(!now.is_recovered());
    assert_eq!(now.uuid(), header.uuid());
    assert_eq!(now.data_offset(), header.data_offset());
    let size = store.size();
    assert_eq!(now.segment(size).ok(), header.segment(size).ok());
    let data = usize::try_from(header.data_offset()).unwrap_or(usize::MAX);
    let data = data.min(after.len());
    assert!(after[data..] == before[data..], "data was written");
    let (old, new) = (keyslots(&header), keyslots(&now));
    assert!(old.keys().eq(new.keys()), "{old:?} became {new:?}");
    for (id, (area, key, kdf, salt)) in old {
        let (now, now_key, now_kdf, now_salt) = &new[&id];
        assert_eq!((&key, &kdf, &salt), (now_key, now_kdf, now_salt));
        assert!(before[area] == after[now.clone()], "keyslot {id} was lost");
    }
    Some(())
}

/// A file for the backup, which must not be there.
fn backup() -> PathBuf {
    let folder = PathBuf::from("/dev/shm");
    let folder = if folder.is_dir() {
        folder
    } else {
        std::env::temp_dir()
    };
    let path = folder.join(format!("xtent-fuzz-backup-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}
