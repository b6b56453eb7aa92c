//! Power cuts: after every legal survivor, the volume opens.

use xtent_store::testing::{RecordingStore, Sampling, Survivor};

use super::*;
use crate::{ChangeOptions, Changes, ErrorKind, Priority};

/// Runs `operation` on `image` and hands every survivor to `check`, with
/// whether the operation had returned by then.
fn cut(image: Vec<u8>, operation: impl FnOnce(&Device), mut check: impl FnMut(&Survivor, bool)) {
    let store = Arc::new(RecordingStore::new(image));
    operation(&on(&store));
    let end = store.position();
    let sampling = Sampling {
        exhaustive: 32,
        random: 6,
        single_sectors: 8,
        seed: 5,
    };
    let mut survivors = 0;
    for survivor in store.survivors(sampling) {
        check(&survivor, survivor.cut >= end);
        survivors += 1;
    }
    assert!(survivors > end, "{survivors} survivors of {end} events");
}

fn opens(survivor: &Survivor, passphrase: &str) -> bool {
    match key(&survivor.image, passphrase) {
        Ok(_) => true,
        Err(error) if error.kind == ErrorKind::WrongPassphrase => false,
        Err(error) => panic!("{survivor}: {error}"),
    }
}

/// Whether any sector is still as it was.
fn any_left(now: &[u8], before: &[u8]) -> bool {
    now.chunks(512).zip(before.chunks(512)).any(|(a, b)| a == b)
}

/// The volume as it is, with either copy bad or stale, and with the last sequence number.
fn starts() -> Vec<Vec<u8>> {
    starts_from(&volume())
}

fn starts_from(good: &[u8]) -> Vec<Vec<u8>> {
    let newer = changed(good.to_vec(), |device| {
        let unlocked = device.unlock(&word("old"), None, &LIMITS).unwrap();
        device
            .add_key(&unlocked, &word("other"), None, &fast())
            .unwrap();
    });
    let mut starts = vec![newer.clone(), with_seqid(&newer, u64::MAX)];
    for start in [0, COPY] {
        let mut bad = newer.clone();
        bad[start + 5000] ^= 1;
        starts.push(bad);
        let mut stale = newer.clone();
        stale[start..start + COPY].copy_from_slice(&good[start..start + COPY]);
        starts.push(stale);
    }
    starts
}

#[test]
fn adding_a_key() {
    for image in starts() {
        let mut seen = [false; 2];
        cut(
            image,
            |device| {
                let unlocked = device.unlock(&word("old"), None, &LIMITS).unwrap();
                device
                    .add_key(&unlocked, &word("new"), None, &fast())
                    .unwrap();
            },
            |survivor, done| {
                assert!(opens(survivor, "old"), "{survivor}");
                let added = read(&survivor.image).unwrap().keyslots().len() == 3;
                assert_eq!(added, opens(survivor, "new"), "{survivor}");
                assert!(added || !done, "{survivor}");
                seen[usize::from(added)] = true;
            },
        );
        assert_eq!(seen, [true; 2]);
    }
}

#[test]
fn changing_a_key() {
    for image in starts() {
        let mut seen = [false; 2];
        let mut spare = 0;
        let material = AREAS..AREAS + AREA;
        let before = image[material.clone()].to_vec();
        cut(
            image,
            |device| {
                let slot = device.change_key(
                    &word("old"),
                    None,
                    &word("new"),
                    &fast(),
                    ChangeOptions::default(),
                    &LIMITS,
                );
                assert_eq!(slot.unwrap(), 0);
            },
            |survivor, done| {
                let is_new = opens(survivor, "new");
                assert_ne!(is_new, opens(survivor, "old"), "{survivor}");
                assert!(is_new || !done, "{survivor}");
                assert!(opens(survivor, "other"), "{survivor}");
                seen[usize::from(is_new)] = true;
                // What the old one left is named as long as any of it is there.
                let is_left = any_left(&survivor.image[material.clone()], &before);
                let named = read(&survivor.image).unwrap().keyslots();
                assert!(
                    !(is_left && is_new) || named == [0, 1, 2],
                    "{survivor} {named:?}"
                );
                assert!(!done || named == [0, 1], "{survivor}: {named:?}");
                if is_new && named.len() == 3 {
                    spare += 1;
                    let killed = changed(survivor.image.clone(), |device| {
                        let unlocked = device.unlock(&word("new"), None, &LIMITS).unwrap();
                        assert_eq!(unlocked.of_keyslot().unwrap(), 0);
                        device.kill_slot(2, false).unwrap();
                    });
                    assert!(!any_left(&killed[material.clone()], &before));
                }
            },
        );
        assert_eq!(seen, [true; 2]);
        assert!(spare > 0);
    }
}

#[test]
fn killing_a_slot() {
    for image in starts() {
        let mut seen = [false; 2];
        let material = AREAS + AREA..AREAS + 2 * AREA;
        let before = image[material.clone()].to_vec();
        cut(
            image,
            |device| device.kill_slot(1, false).unwrap(),
            |survivor, done| {
                assert!(opens(survivor, "old"), "{survivor}");
                let is_there = read(&survivor.image).unwrap().keyslots() == [0, 1];
                // A slot that is gone has left nothing, for whoever has the old header.
                let is_left = any_left(&survivor.image[material.clone()], &before);
                assert!(is_there || !is_left, "{survivor}");
                assert!(!(is_there && done), "{survivor}");
                seen[usize::from(is_there)] = true;
            },
        );
        assert_eq!(seen, [true; 2]);
    }
}

#[test]
fn storing_a_token() {
    const TOKEN: &str = r#"{"type":"t","keyslots":["0","1"]}"#;
    for image in starts() {
        let mut seen = [false; 2];
        cut(
            image,
            |device| assert_eq!(device.import_token(TOKEN, None, false).unwrap(), 0),
            |survivor, done| {
                assert!(opens(survivor, "old"), "{survivor}");
                let tokens = read(&survivor.image).unwrap().tokens().unwrap();
                let is_there = match &tokens[..] {
                    [] => false,
                    [token] => token.json == TOKEN,
                    _ => panic!("{survivor}"),
                };
                assert!(is_there || !done, "{survivor}");
                seen[usize::from(is_there)] = true;
            },
        );
        assert_eq!(seen, [true; 2]);
    }
}

#[test]
fn configuring() {
    let uuid = "22b51bd9-f269-4cc7-94f2-dd5abdc517e9";
    let changes = Changes {
        uuid: Some(uuid.into()),
        label: Some("new".into()),
        priority: Some((1, Priority::Ignore)),
        set_flags: vec!["allow-discards".into()],
        ..Changes::default()
    };
    for image in starts() {
        let mut seen = [false; 2];
        cut(
            image,
            |device| device.configure(&changes).unwrap(),
            |survivor, done| {
                assert!(opens(survivor, "old"), "{survivor}");
                let header = read(&survivor.image).unwrap();
                let is_new = header.uuid() == uuid;
                assert_eq!(is_new, header.label().unwrap() == "new", "{survivor}");
                assert_eq!(is_new, header.allows_discards(), "{survivor}");
                assert!(is_new || !done, "{survivor}");
                seen[usize::from(is_new)] = true;
            },
        );
        assert_eq!(seen, [true; 2]);
    }
}

#[test]
fn resizing() {
    let dynamic = volume();
    let text = text(&dynamic).replace("\"dynamic\"", "\"4096\"");
    for image in starts_from(&sealed(&dynamic, &text)) {
        assert_eq!(read(&image).unwrap().fixed_size(), Some(4096));
        let mut seen = [false; 2];
        cut(
            image,
            |device| assert_eq!(device.resize(8192, SIZE as u64, false).unwrap(), 4096),
            |survivor, done| {
                assert!(opens(survivor, "old"), "{survivor}");
                let size = read(&survivor.image).unwrap().fixed_size().unwrap();
                assert!([4096, 8192].contains(&size), "{survivor}: {size}");
                assert!(size == 8192 || !done, "{survivor}");
                seen[usize::from(size == 8192)] = true;
            },
        );
        assert_eq!(seen, [true; 2]);
    }
}

#[test]
fn erasing() {
    for image in starts() {
        let before = image[AREAS..DATA].to_vec();
        cut(
            image,
            |device| device.erase().unwrap(),
            |survivor, done| {
                let header = read(&survivor.image).unwrap();
                if !header.keyslots().is_empty() {
                    assert!(!done, "{survivor}");
                    return;
                }
                let error = key(&survivor.image, "old").unwrap_err();
                assert_eq!(error.kind, ErrorKind::Keyslot);
                // For whoever has the old header.
                let is_left = any_left(&survivor.image[AREAS..DATA], &before);
                assert!(!is_left, "{survivor}");
            },
        );
    }
}

#[test]
fn repairing() {
    for image in starts() {
        let damaged = read(&image).unwrap().is_recovered();
        if !damaged {
            continue;
        }
        cut(
            image,
            |device| assert!(device.repair().unwrap()),
            |survivor, done| {
                assert!(
                    opens(survivor, "old") && opens(survivor, "other"),
                    "{survivor}"
                );
                assert!(!done || !read(&survivor.image).unwrap().is_recovered());
            },
        );
    }
}

#[test]
fn formatting_over_an_old_volume() {
    for image in starts() {
        let old = read(&image).unwrap().uuid().to_owned();
        let mut seen = [false; 3];
        cut(
            image,
            |device| {
                device.format(&options(), &word("new")).unwrap();
            },
            |survivor, done| match read(&survivor.image) {
                // What opens is whole: the old volume with its keys, or the new one.
                Ok(header) if header.uuid() == old => {
                    assert!(!done && opens(survivor, "old"), "{survivor}");
                    // A stale copy may be all that is left, without the newer key.
                    let listed = header.keyslots().len() == 2;
                    assert_eq!(listed, opens(survivor, "other"), "{survivor}");
                    seen[0] = true;
                }
                Ok(_) => {
                    assert!(
                        opens(survivor, "new") && !opens(survivor, "old"),
                        "{survivor}"
                    );
                    seen[1] = true;
                }
                Err(error) => {
                    assert!(!done, "{survivor}: {error}");
                    seen[2] = true;
                }
            },
        );
        assert_eq!(seen, [true; 3]);
    }
}

#[test]
fn formatting_over_luks1() {
    // Room for the eight keyslots of LUKS1.
    let image = vec![0; 3 << 20];
    let options = FormatOptions {
        data_offset: Some(2 << 20),
        ..options()
    };
    let image = changed(image, |device| {
        let luks1 = FormatOptions {
            version: Version::Luks1,
            label: None,
            ..options.clone()
        };
        device.format(&luks1, &word("old")).unwrap();
    });
    let mut seen = [false; 3];
    cut(
        image,
        |device| {
            device.format(&options, &word("new")).unwrap();
        },
        |survivor, done| match read(&survivor.image) {
            Ok(header) if header.version() == Version::Luks1 => {
                assert!(!done && opens(survivor, "old"), "{survivor}");
                seen[0] = true;
            }
            Ok(_) => {
                assert!(opens(survivor, "new"), "{survivor}");
                seen[1] = true;
            }
            Err(error) => {
                assert!(!done, "{survivor}: {error}");
                seen[2] = true;
            }
        },
    );
    assert_eq!(seen, [true; 3]);
}

/// Plans and carries out a restore of `backup` on `image`.
fn cut_restore(image: Vec<u8>, backup: &[u8], check: impl FnMut(&Survivor, bool)) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("backup");
    std::fs::write(&path, &backup[..DATA]).unwrap();
    let end_state = backup[..DATA].to_vec();
    let store = Arc::new(RecordingStore::new(image.clone()));
    let device = on(&store);
    let plan = device.plan_restore(&path).unwrap();
    device.restore(plan).unwrap();
    assert!(
        store.contents()[..DATA] == end_state,
        "not the backup's bytes"
    );
    assert!(
        store.contents()[DATA..] == image[DATA..],
        "data was touched"
    );
    cut(
        image,
        |device| {
            let plan = device.plan_restore(&path).unwrap();
            device.restore(plan).unwrap();
        },
        check,
    );
}

#[test]
fn restoring_over_changed_keys() {
    let backup = volume();
    // The backup's keyslot area is in use by another key now.
    let twice = |device: &Device| {
        for (old, new) in [("old", "x"), ("x", "now")] {
            device
                .change_key(
                    &word(old),
                    None,
                    &word(new),
                    &fast(),
                    ChangeOptions::default(),
                    &LIMITS,
                )
                .unwrap();
        }
    };
    let image = changed(backup.clone(), twice);
    assert!(text(&image).contains(&format!("\"offset\":\"{AREAS}\"")));
    let mut damaged = vec![image.clone()];
    for start in [0, COPY] {
        let mut bad = image.clone();
        bad[start + 5000] ^= 1;
        damaged.push(bad);
    }
    for image in damaged {
        let mut seen = [false; 2];
        cut_restore(image, &backup, |survivor, done| {
            let is_back = opens(survivor, "old");
            assert_ne!(is_back, opens(survivor, "now"), "{survivor}");
            assert!(is_back || !done, "{survivor}");
            seen[usize::from(is_back)] = true;
        });
        assert_eq!(seen, [true; 2]);
    }
}

#[test]
fn restoring_after_a_kill_or_an_erase() {
    let backup = changed(volume(), |device| {
        let unlocked = device.unlock(&word("old"), None, &LIMITS).unwrap();
        device
            .add_key(&unlocked, &word("other"), None, &fast())
            .unwrap();
    });
    let killed = changed(backup.clone(), |device| device.kill_slot(0, false).unwrap());
    cut_restore(killed, &backup, |survivor, done| {
        assert!(opens(survivor, "other"), "{survivor}");
        assert!(opens(survivor, "old") || !done, "{survivor}");
    });
    let erased = changed(backup.clone(), |device| device.erase().unwrap());
    cut_restore(erased, &backup, |survivor, done| {
        let header = read(&survivor.image).unwrap();
        assert_eq!(
            header.keyslots().is_empty(),
            key(&survivor.image, "old").is_err()
        );
        assert!(!header.keyslots().is_empty() || !done, "{survivor}");
    });
}

#[test]
fn restoring_where_there_is_no_header() {
    let backup = volume();
    cut_restore(vec![0; SIZE], &backup, |survivor, done| {
        match read(&survivor.image) {
            Ok(_) => assert!(opens(survivor, "old"), "{survivor}"),
            Err(error) => {
                // Nothing, or the torn beginnings of something.
                let kinds = [ErrorKind::NotLuks, ErrorKind::Corrupt];
                assert!(kinds.contains(&error.kind), "{survivor}: {error}");
                assert!(!done);
            }
        }
    });
}

#[test]
fn restoring_without_room_can_be_done_again() {
    // Every area is in use, and differs from the backup's.
    let fill = |words: [&'static str; 3]| {
        move |device: &Device| {
            let unlocked = device.unlock(&word("old"), None, &LIMITS).unwrap();
            for word in words {
                device
                    .add_key(&unlocked, &super::word(word), None, &fast())
                    .unwrap();
                if word == "c" || word == "f" {
                    break;
                }
                if device.read().unwrap().keyslots().len() == 3 {
                    device.kill_slot(0, false).unwrap();
                }
            }
        }
    };
    let first = volume();
    let backup = changed(first.clone(), fill(["a", "b", "c"]));
    let image = changed(first, fill(["d", "e", "f"]));
    assert_eq!(read(&image).unwrap().keyslots(), [0, 1, 2]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("backup");
    std::fs::write(&path, &backup[..DATA]).unwrap();
    let mut again = 0;
    cut_restore(image, &backup, |survivor, done| {
        // The header is one of the two, and the restore can be run again.
        assert!(read(&survivor.image).is_ok(), "{survivor}");
        if ["a", "b", "c"].iter().all(|word| opens(survivor, word)) {
            return;
        }
        assert!(!done);
        again += 1;
        if again % 16 == 0 {
            let restored = changed(survivor.image.clone(), |device| {
                let plan = device.plan_restore(&path).unwrap();
                device.restore(plan).unwrap();
            });
            assert!(restored[..DATA] == backup[..DATA]);
        }
    });
    assert!(again > 0);
}
