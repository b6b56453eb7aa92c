//! Power cuts: whatever the disk keeps of what was not flushed, sector by
//! sector, the old or the new key opens, and the other keys still do.

use super::*;
use xtent_store::testing::{RecordingStore, Sampling, Survivor};

const SAMPLING: Sampling = Sampling {
    exhaustive: 16,
    random: 4,
    single_sectors: 2,
    seed: 7,
};

fn recorded(prepare: impl FnOnce(&Device)) -> (Arc<RecordingStore>, Device) {
    let (memory, formatted) = formatted();
    prepare(&formatted);
    let store = Arc::new(RecordingStore::new(memory.contents()));
    let device = device_on(store.clone());
    (store, device)
}

/// What the disk may hold, with the position of the cut.
fn survivors(store: &RecordingStore) -> impl Iterator<Item = (String, usize, Device)> {
    store.survivors(SAMPLING).map(|survivor: Survivor| {
        let description = survivor.to_string();
        let cut = survivor.cut;
        (
            description,
            cut,
            device_on(Arc::new(MemStore::from(survivor))),
        )
    })
}

fn key_of(device: &Device, text: &str) -> Vec<u8> {
    opens(device, text).unwrap().1
}

#[test]
fn an_added_key_is_there_or_not_and_the_others_are() {
    for keyslot in [1, 6] {
        let (store, live) = recorded(|_| {});
        let key = key_of(&live, "zero");
        let new = add_key(&live, &zero(&live), &pass("new"), Some(keyslot), &cheap()).unwrap();
        let acknowledged = store.position();
        for (survivor, cut, device) in survivors(&store) {
            assert_eq!(opens(&device, "zero"), Some((0, key.clone())), "{survivor}");
            match opens(&device, "new") {
                Some(found) => assert_eq!(found, (new, key.clone())),
                None => assert!(cut < acknowledged, "{survivor}"),
            }
            // Active means usable.
            let header = read(&device).unwrap();
            if header.keyslots().contains(&new) {
                assert!(
                    unlock(&device, &pass("new"), Some(new), &NO_LIMIT).is_ok(),
                    "{survivor}"
                );
            }
        }
    }
}

#[test]
fn a_changed_key_opens_old_or_new() {
    for (old, occupied) in [("zero", 0), ("zero", 5), ("6", 6)] {
        let (store, live) = recorded(|device| {
            let unlocked = zero(device);
            for number in 1..=occupied {
                add_key(
                    device,
                    &unlocked,
                    &pass(&number.to_string()),
                    Some(number),
                    &cheap(),
                )
                .unwrap();
            }
        });
        let key = key_of(&live, old);
        change(&live, old, "new", false).unwrap();
        let acknowledged = store.position();
        let (mut with_old, mut with_new) = (0, 0);
        for (survivor, cut, device) in survivors(&store) {
            let (by_old, by_new) = (opens(&device, old), opens(&device, "new"));
            for found in by_old.iter().chain(&by_new) {
                assert_eq!(found.1, key, "{survivor}");
            }
            assert!(by_old.is_some() || by_new.is_some(), "{survivor}");
            if cut >= acknowledged {
                assert!(by_new.is_some() && by_old.is_none(), "{survivor}");
            }
            with_old += u32::from(by_old.is_some());
            with_new += u32::from(by_new.is_some());
        }
        // Both kinds were seen, or the test proves nothing.
        assert!(with_old > 10 && with_new > 10, "{with_old} {with_new}");
    }
}

#[test]
fn a_killed_keyslot_is_dead_once_it_shows_as_disabled() {
    for killed in [1, 6] {
        let (store, live) = recorded(|device| {
            add_key(
                device,
                &zero(device),
                &pass("other"),
                Some(killed),
                &cheap(),
            )
            .unwrap();
        });
        let key = key_of(&live, "zero");
        let before = read(&live).unwrap();
        let slot = *before.slot(killed as usize);
        kill_slot(&live, killed, false).unwrap();
        let acknowledged = store.position();
        for (survivor, cut, device) in survivors(&store) {
            assert_eq!(opens(&device, "zero"), Some((0, key.clone())), "{survivor}");
            let mut header = read(&device).unwrap();
            if cut >= acknowledged {
                assert!(!header.keyslots().contains(&killed), "{survivor}");
            }
            if !header.keyslots().contains(&killed) {
                // With all of its entry put back it stays dead: what that names is gone.
                header.set_slot(killed as usize, slot);
                device.store.write_at(header.sectors(), 0).unwrap();
                assert_eq!(opens(&device, "other"), None, "{survivor}");
            }
        }
    }
}

#[test]
fn an_interrupted_erase_leaves_a_valid_header() {
    let (store, live) = recorded(fill);
    erase(&live).unwrap();
    let acknowledged = store.position();
    for (survivor, cut, device) in survivors(&store) {
        let header = read(&device).unwrap_or_else(|error| panic!("{survivor}: {error}"));
        if cut >= acknowledged {
            assert!(header.keyslots().is_empty(), "{survivor}");
        }
    }
}

#[test]
fn an_interrupted_format_is_no_luks_device_or_a_whole_one() {
    let (memory, _) = formatted();
    let store = Arc::new(RecordingStore::new(memory.contents()));
    let live = device_on(store.clone());
    format(&live, &options(), &pass("new")).unwrap();
    let acknowledged = store.position();
    let (mut old, mut neither, mut new) = (0, 0, 0);
    for (survivor, cut, device) in survivors(&store) {
        if read(&device).is_err() {
            neither += 1;
            assert!(cut < acknowledged, "{survivor}");
        } else if opens(&device, "zero").is_some() {
            // The first flush is still to come.
            old += 1;
            assert!(cut < acknowledged, "{survivor}");
        } else {
            new += 1;
            assert!(opens(&device, "new").is_some(), "{survivor}");
        }
    }
    assert!(old > 0 && neither > 0 && new > 0, "{old} {neither} {new}");
}

#[test]
fn an_interrupted_restore_can_be_done_again() {
    let (memory, origin) = formatted();
    let mut image = memory.contents();
    image.truncate(usize::try_from(read(&origin).unwrap().header_size()).unwrap());
    let key = key_of(&origin, "zero");
    // Onto another header, and onto a device without any.
    let (other, _) = formatted();
    for before in [other.contents(), vec![0x5a; DETACHED]] {
        let store = Arc::new(RecordingStore::new(before));
        restore(&device_on(store.clone()), &image).unwrap();
        let acknowledged = store.position();
        for (survivor, cut, device) in survivors(&store) {
            if cut >= acknowledged {
                assert_eq!(opens(&device, "zero"), Some((0, key.clone())), "{survivor}");
            } else {
                let _ = read(&device);
            }
            restore(&device, &image).unwrap();
            assert_eq!(key_of(&device, "zero"), key, "{survivor}");
        }
    }
}
