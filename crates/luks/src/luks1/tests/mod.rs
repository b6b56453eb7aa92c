//! LUKS1 in memory: every operation, every refusal.

use std::sync::Arc;
use std::time::Duration;

use xtent_secret::SecretBytes;
use xtent_store::Store;
use xtent_store::testing::{Fault, FaultStore, MemStore, Operation};

use super::*;
use crate::kdf::KdfKind;
use crate::{ChangeOptions, FormatOptions, KdfChoice, Version};

mod corruption;
mod damaged;
mod formats;
mod power;

const NO_LIMIT: KdfLimits = KdfLimits { longest: None };

fn device_on(store: Arc<dyn Store>) -> Device {
    Device::without_locks(store)
}

fn pass(text: &str) -> SecretBytes {
    SecretBytes::copy_of(text.as_bytes()).unwrap()
}

/// A new volume with a random key.
fn format(device: &Device, options: &FormatOptions, passphrase: &SecretBytes) -> Result<(), Error> {
    super::format(device, options, passphrase, None)
}

/// The cheapest keyslots there are.
fn cheap() -> KdfChoice {
    KdfChoice {
        kind: None,
        hash: None,
        target: Duration::from_secs(2),
        force_iterations: Some(1000),
        memory: None,
        parallel: None,
    }
}

/// A small volume: 128-bit keys have the smallest keyslot areas.
fn options() -> FormatOptions {
    FormatOptions {
        version: Version::Luks1,
        encryption: "aes-cbc-essiv:sha256".into(),
        key_length: 16,
        sector_size: 512,
        kdf: cheap(),
        hash: "sha1".into(),
        uuid: None,
        label: None,
        subsystem: None,
        data_offset: None,
        detached: true,
        metadata_size: None,
        keyslots_size: None,
    }
}

/// Bytes that a detached header with [`options`] takes.
const DETACHED: usize = 4096 + 8 * 65536;

/// A store with a new header whose keyslot 0 opens with "zero".
fn formatted() -> (Arc<MemStore>, Device) {
    let store = Arc::new(MemStore::new(DETACHED));
    let device = device_on(store.clone());
    format(&device, &options(), &pass("zero")).unwrap();
    (store, device)
}

/// What is in a keyslot's area.
fn contents_of(store: &MemStore, header: &Header, number: usize) -> Vec<u8> {
    let area = header.area(number);
    let mut bytes = vec![0; usize::try_from(area.end - area.start).unwrap()];
    store.read_at(&mut bytes, area.start).unwrap();
    bytes
}

fn opens(device: &Device, text: &str) -> Option<(u32, Vec<u8>)> {
    match unlock(device, &pass(text), None, &NO_LIMIT) {
        Ok(unlocked) => Some((unlocked.keyslot.unwrap(), unlocked.key.to_vec())),
        Err(error) => {
            assert_eq!(error.kind, ErrorKind::WrongPassphrase, "{error}");
            None
        }
    }
}

fn zero(device: &Device) -> Unlocked {
    unlock(device, &pass("zero"), None, &NO_LIMIT).unwrap()
}

/// Fills all eight keyslots: "zero", "1", …, "7".
fn fill(device: &Device) {
    let unlocked = zero(device);
    for number in 1..8 {
        let new = pass(&number.to_string());
        assert_eq!(
            add_key(device, &unlocked, &new, None, &cheap()).unwrap(),
            number
        );
    }
}

#[test]
fn a_keyslot_with_another_key_by_now_is_not_removed() {
    let (store, device) = formatted();
    let seen = zero(&device);
    add_key(&device, &seen, &pass("one"), Some(1), &cheap()).unwrap();
    kill_slot(&device, 0, false).unwrap();
    add_key(&device, &seen, &pass("new"), Some(0), &cheap()).unwrap();
    let writes = store.writes();
    let error = remove_key(&device, &seen, false).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Changed, "{error}");
    assert_eq!(store.writes(), writes);
    let seen = unlock(&device, &pass("new"), None, &NO_LIMIT).unwrap();
    remove_key(&device, &seen, false).unwrap();
    assert_eq!(opens(&device, "new"), None);
    // Nor is one that is gone, or the last one.
    let error = remove_key(&device, &seen, false).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Keyslot, "{error}");
    let last = unlock(&device, &pass("one"), None, &NO_LIMIT).unwrap();
    let error = remove_key(&device, &last, false).unwrap_err();
    assert_eq!(error.kind, ErrorKind::LastKeyslot, "{error}");
}

#[test]
fn keys_are_added_to_the_first_free_keyslot_or_the_one_named() {
    let (_, device) = formatted();
    let unlocked = zero(&device);
    assert_eq!(
        add_key(&device, &unlocked, &pass("five"), Some(5), &cheap()).unwrap(),
        5
    );
    assert_eq!(
        add_key(&device, &unlocked, &pass("one"), None, &cheap()).unwrap(),
        1
    );
    assert_eq!(
        add_key(&device, &unlocked, &pass("six"), Some(6), &cheap()).unwrap(),
        6
    );
    let key = unlocked.key.to_vec();
    for (text, keyslot) in [("zero", 0), ("one", 1), ("five", 5), ("six", 6)] {
        assert_eq!(opens(&device, text), Some((keyslot, key.clone())));
    }
    let only_five = unlock(&device, &pass("five"), Some(5), &NO_LIMIT).unwrap();
    assert_eq!(only_five.keyslot, Some(5));
    for (keyslot, kind) in [
        (1, ErrorKind::WrongPassphrase),
        (2, ErrorKind::Keyslot),
        (8, ErrorKind::Keyslot),
        (u32::MAX, ErrorKind::Keyslot),
    ] {
        let error = unlock(&device, &pass("five"), Some(keyslot), &NO_LIMIT)
            .err()
            .unwrap();
        assert_eq!(error.kind, kind, "{error}");
    }
    for keyslot in [0, 8] {
        let error = add_key(&device, &unlocked, &pass("x"), Some(keyslot), &cheap()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Keyslot);
    }
}

#[test]
fn eight_keys_and_no_more() {
    let (_, device) = formatted();
    fill(&device);
    assert_eq!(read(&device).unwrap().keyslots(), [0, 1, 2, 3, 4, 5, 6, 7]);
    let error = add_key(&device, &zero(&device), &pass("8"), None, &cheap()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Full);
    assert_eq!(opens(&device, "7").unwrap().0, 7);
}

fn change(device: &Device, old: &str, new: &str, unsafe_in_place: bool) -> Result<u32, Error> {
    let options = ChangeOptions {
        allow_unsafe_in_place: unsafe_in_place,
    };
    change_key(
        device,
        &pass(old),
        None,
        &pass(new),
        &cheap(),
        options,
        &NO_LIMIT,
    )
}

#[test]
fn a_changed_key_moves_to_a_free_keyslot_and_the_old_one_is_wiped() {
    let (store, device) = formatted();
    let header = read(&device).unwrap();
    let before = contents_of(&store, &header, 0);
    assert_eq!(change(&device, "zero", "new", false).unwrap(), 1);
    assert_eq!(opens(&device, "zero"), None);
    assert_eq!(opens(&device, "new").unwrap().0, 1);
    let after = contents_of(&store, &header, 0);
    for (before, after) in before.chunks(512).zip(after.chunks(512)) {
        assert_ne!(before, after);
    }
    let header = read(&device).unwrap();
    assert_eq!(header.slot(0).salt, [0; 32]);
    assert_eq!(header.slot(0).iterations, 0);
    let error = change(&device, "zero", "other", false).unwrap_err();
    assert_eq!(error.kind, ErrorKind::WrongPassphrase);
}

#[test]
fn with_every_keyslot_in_use_a_change_needs_a_switch() {
    let (store, device) = formatted();
    fill(&device);
    let before = store.contents();
    let error = change(&device, "6", "new", false).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Full);
    assert!(error.message.contains("--unsafe-in-place"));
    assert!(store.contents() == before);
    let key = opens(&device, "6").unwrap().1;
    assert_eq!(change(&device, "6", "new", true).unwrap(), 6);
    assert_eq!(opens(&device, "6"), None);
    assert_eq!(opens(&device, "new"), Some((6, key)));
    assert_eq!(read(&device).unwrap().keyslots().len(), 8);
}

#[test]
fn the_last_keyslot_is_killed_only_on_purpose() {
    let (_, device) = formatted();
    add_key(&device, &zero(&device), &pass("six"), Some(6), &cheap()).unwrap();
    kill_slot(&device, 0, false).unwrap();
    assert_eq!(opens(&device, "zero"), None);
    for (keyslot, kind) in [
        (6, ErrorKind::LastKeyslot),
        (0, ErrorKind::Keyslot),
        (8, ErrorKind::Keyslot),
    ] {
        assert_eq!(kill_slot(&device, keyslot, false).unwrap_err().kind, kind);
    }
    assert_eq!(opens(&device, "six").unwrap().0, 6);
    kill_slot(&device, 6, true).unwrap();
    assert_eq!(opens(&device, "six"), None);
    let error = unlock(&device, &pass("six"), None, &NO_LIMIT)
        .err()
        .unwrap();
    assert!(error.message.contains("erased"), "{error}");
}

#[test]
fn erase_leaves_a_header_without_keys() {
    let (store, device) = formatted();
    fill(&device);
    let header = read(&device).unwrap();
    let areas =
        |header: &Header| std::array::from_fn::<_, 8, _>(|n| contents_of(&store, header, n));
    let before = areas(&header);
    erase(&device).unwrap();
    assert!(read(&device).unwrap().keyslots().is_empty());
    assert_eq!(opens(&device, "zero"), None);
    for (before, after) in before.iter().zip(&areas(&header)) {
        for (before, after) in before.chunks(512).zip(after.chunks(512)) {
            assert_ne!(before, after);
        }
    }
}

#[test]
fn a_restored_backup_brings_its_keys_back() {
    let (store, device) = formatted();
    fill(&device);
    let header = read(&device).unwrap();
    let mut image = store.contents();
    image.truncate(usize::try_from(header.header_size()).unwrap());
    image[2000] = 0x77;
    header.clean_backup(&mut image);
    assert_eq!(image[2000], 0);
    erase(&device).unwrap();
    restore(&device, &image).unwrap();
    assert_eq!(opens(&device, "7").unwrap().0, 7);
    assert_eq!(opens(&device, "zero").unwrap().0, 0);

    for length in [0, 1023, 1024, 4096, image.len() - 1] {
        let writes = store.writes();
        let error = restore(&device, &image[..length]).unwrap_err();
        assert!(matches!(
            error.kind,
            ErrorKind::NotLuks | ErrorKind::TooShort
        ));
        assert_eq!(store.writes(), writes);
    }
    let small = device_on(Arc::new(MemStore::new(image.len() - 1)));
    assert_eq!(
        restore(&small, &image).unwrap_err().kind,
        ErrorKind::TooShort
    );
}

#[test]
fn a_costly_keyslot_does_not_bar_the_others() {
    let (_, device) = formatted();
    add_key(&device, &zero(&device), &pass("one"), None, &cheap()).unwrap();
    let mut header = read(&device).unwrap();
    header.set_slot(
        0,
        header::Slot {
            iterations: u32::MAX,
            ..*header.slot(0)
        },
    );
    device.store.write_at(header.sectors(), 0).unwrap();
    let limits = KdfLimits {
        longest: Some(Duration::from_secs(60)),
    };
    assert_eq!(
        unlock(&device, &pass("one"), None, &limits)
            .unwrap()
            .keyslot,
        Some(1)
    );
    let error = unlock(&device, &pass("zero"), None, &limits).err().unwrap();
    assert_eq!(error.kind, ErrorKind::TooCostly);
    assert!(
        error.message.contains("passphrase; keyslot 0: pbkdf2-sha1"),
        "{error}"
    );
}

#[test]
fn an_edit_of_another_header_is_refused() {
    let (store, first) = formatted();
    let stale = zero(&first);
    format(&first, &options(), &pass("zero")).unwrap();
    let before = store.contents();
    let error = add_key(&first, &stale, &pass("x"), None, &cheap()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Changed);
    assert!(store.contents() == before);
}

#[test]
fn a_failing_store_is_an_error_and_the_old_key_stays() {
    for operation in [Operation::Read, Operation::Write, Operation::Flush] {
        for after in 0.. {
            let memory = MemStore::new(DETACHED);
            let faulty = Arc::new(FaultStore::new(memory));
            let device = device_on(faulty.clone());
            format(&device, &options(), &pass("zero")).unwrap();
            faulty.inject(Fault::on(operation).after(after).times(1).torn());
            let result = change(&device, "zero", "new", false);
            let done = result.is_ok();
            if let Err(error) = result {
                assert!(matches!(error.kind, ErrorKind::Store(_)), "{error}");
            }
            faulty.heal();
            let old = opens(&device, "zero").is_some();
            let new = opens(&device, "new").is_some();
            assert!(old || new, "{operation:?} {after}");
            if done {
                assert!(new && !old);
                break;
            }
        }
    }
}

#[test]
fn a_read_only_store_is_never_written() {
    let (store, _) = formatted();
    let read_only = Arc::new(MemStore::from(store.contents()).read_only());
    let device = device_on(read_only);
    assert!(opens(&device, "zero").is_some());
    let kind = ErrorKind::Store(xtent_store::ErrorKind::ReadOnly);
    assert_eq!(erase(&device).unwrap_err().kind, kind);
    assert_eq!(kill_slot(&device, 0, true).unwrap_err().kind, kind);
    assert_eq!(change(&device, "zero", "x", false).unwrap_err().kind, kind);
    assert!(opens(&device, "zero").is_some());
}

#[test]
fn a_dump_shows_what_luksdump_shows() {
    let (_, device) = formatted();
    add_key(&device, &zero(&device), &pass("six"), Some(6), &cheap()).unwrap();
    let header = read(&device).unwrap();
    let dump = header.dump();
    assert_eq!(dump.keyslots.len(), 2);
    let text = dump.to_string();
    assert!(text.contains("Cipher mode:   \tcbc-essiv:sha256\n"));
    assert!(text.contains("MK bits:       \t128\n"));
    assert!(text.contains("Key Slot 0: ENABLED\n"));
    assert!(text.contains("Key Slot 5: DISABLED\n"));
    assert!(text.contains("Key Slot 6: ENABLED\n\tIterations:         \t1000\n"));
    assert!(text.contains(header.uuid()));
    let json = serde_json::to_value(&dump).unwrap();
    assert_eq!(json["keyslots"][1]["number"], 6);
    assert_eq!(json["digest"].as_str().unwrap().len(), 40);
}
