//! Damage to what no key depends on: the volume opens, nothing but a repair
//! writes, and the repair loses no key.

use super::*;
use xtent_store::testing::{RecordingStore, Sampling};

/// Entries of keyslots, and a keyslot's fields.
const ENTRY: usize = 208;
const NEXT: usize = 48;
const ITERATIONS: usize = 4;
const OFFSET: usize = 40;
const STRIPES: usize = 44;

/// "zero" in keyslot 0 and "six" in keyslot 6.
fn good() -> Vec<u8> {
    let (store, device) = formatted();
    add_key(&device, &zero(&device), &pass("six"), Some(6), &cheap()).unwrap();
    store.contents()
}

/// What to put where.
type Changes = Vec<(usize, Vec<u8>)>;

/// Damage, and what it is called.
fn cases() -> Vec<(Changes, &'static str)> {
    let slot = |number: usize, field: usize| ENTRY + NEXT * number + field;
    let at = |at: usize, value: u32| vec![(at, value.to_be_bytes().to_vec())];
    vec![
        (vec![(168, vec![b'x'; 40])], "the UUID"),
        (vec![(168, vec![0xff, 0, 0])], "the UUID"),
        (vec![(168, vec![0; 40])], "the UUID"),
        (at(slot(1, 0), 0), "keyslot 1 is neither"),
        (at(slot(7, 0), 0xac71f2), "keyslot 7 is neither"),
        (at(slot(2, 0), 0xac71f3), "keyslot 2 is enabled, but empty"),
        (
            at(slot(3, STRIPES), 3999),
            "keyslot 3, not in use, has 3999",
        ),
        (at(slot(3, STRIPES), u32::MAX), "keyslot 3, not in use, has"),
        (
            at(slot(4, OFFSET), 0),
            "keyslot 4, not in use, has its area",
        ),
        (
            at(slot(4, OFFSET), 8),
            "keyslot 4, not in use, has its area",
        ),
        (
            at(slot(4, OFFSET), u32::MAX),
            "keyslot 4, not in use, has its area",
        ),
        // In use by "zero" and "six", whose flags are damaged.
        (at(slot(0, 0), 1), "keyslot 0 is neither"),
        (at(slot(6, 0), 0xdeae), "keyslot 6 is neither"),
        (
            vec![(slot(0, 0), vec![0; 4]), (slot(0, STRIPES), vec![0xff; 4])],
            "keyslot 0 is neither enabled nor disabled (0x00000000), with 4294967295 stripes; it \
             counts as in use",
        ),
        // All of an unused entry, and of two.
        (vec![(slot(5, 0), vec![0; NEXT])], "keyslot 5"),
        (vec![(slot(5, 0), vec![0x5a; NEXT])], "keyslot 5"),
        (vec![(slot(1, 0), vec![0; 2 * NEXT])], "keyslot 2"),
    ]
}

fn damaged(changes: &[(usize, Vec<u8>)]) -> Vec<u8> {
    let mut image = good();
    for (at, bytes) in changes {
        image[*at..*at + bytes.len()].copy_from_slice(bytes);
    }
    image
}

#[test]
fn a_damaged_header_opens_and_is_not_written_to() {
    for (changes, what) in cases() {
        let store = Arc::new(MemStore::from(damaged(&changes)));
        let device = device_on(store.clone());
        let header = device.read().unwrap();
        assert!(
            header.damage().join("; ").contains(what),
            "{:?}",
            header.damage()
        );
        assert_eq!(opens(&device, "zero").unwrap().0, 0, "{what}");
        assert_eq!(opens(&device, "six").unwrap().0, 6, "{what}");
        let _ = header.dump().to_string();
        let unlocked = zero(&device);
        let refusals = [
            add_key(&device, &unlocked, &pass("new"), None, &cheap()).map(drop),
            change_key(
                &device,
                &pass("zero"),
                None,
                &pass("new"),
                &cheap(),
                ChangeOptions::default(),
                &NO_LIMIT,
            )
            .map(drop),
            kill_slot(&device, 6, false),
            remove_key(&device, &unlocked, false),
            erase(&device),
        ];
        for refusal in refusals {
            let error = refusal.unwrap_err();
            assert!(error.message.contains("xtent header repair"), "{error}");
        }
        assert_eq!(store.writes(), 0, "{what}");
    }
}

#[test]
fn a_repair_is_whole_whenever_it_is_cut() {
    for (changes, what) in cases() {
        let store = Arc::new(RecordingStore::new(damaged(&changes)));
        let device = device_on(store.clone());
        assert!(device.repair().unwrap(), "{what}");
        let end = store.position();
        assert!(!device.repair().unwrap(), "{what}");
        assert_eq!(store.position(), end, "{what}");
        let sampling = Sampling {
            exhaustive: 16,
            random: 4,
            single_sectors: 2,
            seed: 3,
        };
        for survivor in store.survivors(sampling) {
            let is_done = survivor.cut >= end;
            let told = survivor.to_string();
            let device = device_on(Arc::new(MemStore::from(survivor)));
            assert!(opens(&device, "zero").is_some(), "{what}: {told}");
            assert!(opens(&device, "six").is_some(), "{what}: {told}");
            let header = device.read().unwrap();
            assert!(header.damage().is_empty() || !is_done, "{what}: {told}");
            if is_done {
                assert_eq!(header.keyslots(), [0, 6]);
                let added = add_key(&device, &zero(&device), &pass("new"), None, &cheap());
                assert_eq!(added.unwrap(), 1);
            }
        }
    }
}

#[test]
fn the_uuid_stays_where_it_can_be_read() {
    let image = damaged(&[(ENTRY + NEXT, vec![0; 4])]);
    let store = Arc::new(MemStore::from(image));
    let device = device_on(store);
    let before = device.read().unwrap().uuid().to_owned();
    device.repair().unwrap();
    assert_eq!(device.read().unwrap().uuid(), before);
}

#[test]
fn what_is_too_damaged_is_refused() {
    let slot = |number: usize, field: usize| ENTRY + NEXT * number + field;
    let word = |value: u32| value.to_be_bytes().to_vec();
    // Two unused keyslots where they cannot be: rather the key size is wrong.
    let image = damaged(&[(slot(3, OFFSET), word(8)), (slot(4, OFFSET), word(8))]);
    let error = read_of(image).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Corrupt);
    // One in use, and its area or stripes.
    for (at, value) in [
        (slot(0, OFFSET), 0),
        (slot(6, OFFSET), 8),
        (slot(0, STRIPES), 1),
    ] {
        let error = read_of(damaged(&[(at, word(value))])).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Corrupt);
    }
    // Without its cost nothing is in it, whatever its flag says.
    let image = damaged(&[(slot(0, ITERATIONS), word(0))]);
    let device = device_on(Arc::new(MemStore::from(image)));
    assert_eq!(opens(&device, "zero"), None);
    assert!(opens(&device, "six").is_some());
    // An area in an impossible place, and others that are not in the usual ones.
    let mut image = damaged(&[(slot(4, OFFSET), word(0))]);
    for number in [1, 2, 3, 5, 7] {
        let at = slot(number, OFFSET);
        let old = u32::from_be_bytes(*image[at..].first_chunk().unwrap());
        image[at..at + 4].copy_from_slice(&(old + 1).to_be_bytes());
    }
    if let Ok(header) = read_of(image.clone()) {
        assert!(!header.damage().is_empty());
        let device = device_on(Arc::new(MemStore::from(image)));
        assert!(device.repair().unwrap_err().message.contains("backup"));
    }
}

fn read_of(image: Vec<u8>) -> Result<crate::Header, Error> {
    device_on(Arc::new(MemStore::from(image))).read()
}

#[test]
fn a_name_in_capitals_is_the_same_cipher() {
    let image = damaged(&[(8, b"AES\0".to_vec())]);
    let device = device_on(Arc::new(MemStore::from(image)));
    assert!(opens(&device, "zero").is_some());
    let segment = device.read().unwrap().segment(1 << 30).unwrap();
    assert!(segment.encryption.starts_with("aes-"));
}

#[test]
fn a_keyslot_that_cannot_be_read_keeps_no_other_from_opening() {
    let store = Arc::new(FaultStore::new(MemStore::from(good())));
    let area = read(&device_on(store.clone())).unwrap().area(0);
    store.inject(Fault::on(Operation::Read).within(area));
    let device = device_on(store);
    assert_eq!(opens(&device, "six").unwrap().0, 6);
    for (passphrase, keyslot) in [("zero", None), ("zero", Some(0)), ("other", None)] {
        let error = device
            .unlock(&pass(passphrase), keyslot, &NO_LIMIT)
            .unwrap_err();
        assert!(matches!(error.kind, ErrorKind::Store(_)), "{error}");
        assert!(error.message.contains("keyslot 0: "), "{error}");
    }
    let error = device.unlock(&pass("zero"), Some(6), &NO_LIMIT);
    assert_eq!(error.unwrap_err().kind, ErrorKind::WrongPassphrase);
    // A key that cannot be tried can be removed: its area can be written.
    kill_slot(&device, 0, false).unwrap();
    assert_eq!(opens(&device, "six").unwrap().0, 6);
}
