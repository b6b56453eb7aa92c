//! Every shape of container, by either maker, under either command's key
//! management.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use xtent_tests::luks::{Maker, OTHER_KEY, Shape, assert_opens, cheap, xtent_opens};
use xtent_tests::scratch::{Unchanged, assert_same};
use xtent_tests::xtent::xtent;
use xtent_tests::{Cmd, Scratch, pattern};

const DATA: u64 = 64 << 10;
const MAKERS: [Maker; 2] = [Maker::Cryptsetup, Maker::Xtent];

fn cryptsetup() -> Cmd {
    Cmd::peer("cryptsetup")
}

fn add_key(by: Maker, shape: &Shape, image: &Path, old: &Path, new: &Path) -> Cmd {
    let cost = cheap(shape.pbkdf, shape.version);
    match by {
        Maker::Cryptsetup => cryptsetup()
            .args(["luksAddKey", "--batch-mode"])
            .args(cost)
            .arg("--key-file")
            .args([old, image, new]),
        Maker::Xtent => xtent()
            .args(["key", "add"])
            .args(cost)
            .arg("--key-file")
            .arg(old)
            .arg("--new-key-file")
            .args([new, image]),
    }
}

fn change_key(by: Maker, shape: &Shape, image: &Path, old: &Path, new: &Path) -> Cmd {
    let cost = cheap(shape.pbkdf, shape.version);
    match by {
        Maker::Cryptsetup => cryptsetup()
            .args(["luksChangeKey", "--batch-mode"])
            .args(cost)
            .arg("--key-file")
            .args([old, image, new]),
        Maker::Xtent => xtent()
            .args(["key", "change"])
            .args(cost)
            .arg("--key-file")
            .arg(old)
            .arg("--new-key-file")
            .args([new, image]),
    }
}

fn remove_key(by: Maker, image: &Path, key: &Path) -> Cmd {
    match by {
        Maker::Cryptsetup => cryptsetup()
            .args(["luksRemoveKey", "--batch-mode"])
            .args([image, key]),
        Maker::Xtent => xtent()
            .args(["key", "remove", "--batch-mode", "--key-file"])
            .args([key, image]),
    }
}

/// `remaining` is a key that stays.
fn kill_slot(by: Maker, image: &Path, remaining: &Path, slot: u32) -> Cmd {
    match by {
        Maker::Cryptsetup => cryptsetup()
            .args(["luksKillSlot", "--batch-mode", "--key-file"])
            .args([remaining, image])
            .arg(slot.to_string()),
        Maker::Xtent => xtent()
            .args(["key", "kill", "--key-file"])
            .args([remaining, image])
            .arg(slot.to_string()),
    }
}

/// Keyslots in use, by cryptsetup's dump.
fn keyslots(image: &Path) -> Vec<u32> {
    let dump = cryptsetup().arg("luksDump").arg(image).ok().out();
    let mut slots: Vec<u32> = dump
        .lines()
        .filter_map(|line| {
            // LUKS1: "Key Slot 0: ENABLED"; LUKS2: "  0: luks2".
            if let Some(rest) = line.strip_prefix("Key Slot ") {
                return rest.strip_suffix(": ENABLED")?.parse().ok();
            }
            line.trim().strip_suffix(": luks2")?.parse().ok()
        })
        .collect();
    slots.sort_unstable();
    slots
}

#[test]
fn either_opens_what_either_made() {
    let scratch = Scratch::new();
    let wrong = scratch.file("wrong", b"correct horse battery staple");
    for maker in MAKERS {
        for shape in Shape::all() {
            let made = shape.image(maker, &scratch, DATA);
            let what = format!("{shape} by {maker:?}");
            assert_opens(&made.image, &made.key, true, &what);
            assert_opens(&made.image, &wrong, false, &what);

            let data = pattern(usize::try_from(DATA).unwrap(), 3);
            made.encrypt(&data);
            assert_same(&made.decrypt(), &data, &what);
            assert_opens(&made.image, &made.key, true, &what);
        }
    }
}

#[test]
fn keys_of_one_work_in_the_other() {
    let scratch = Scratch::new();
    let second = scratch.file("second", OTHER_KEY);
    let third = scratch.file("third", b"third");
    for (maker, editor) in [
        (Maker::Cryptsetup, Maker::Xtent),
        (Maker::Xtent, Maker::Cryptsetup),
        (Maker::Xtent, Maker::Xtent),
    ] {
        let folder = Scratch::new();
        for shape in Shape::all() {
            let made = shape.image(maker, &folder, DATA);
            let (image, first) = (&made.image, &made.key);
            let what = |step: &str| format!("{shape} by {maker:?}, {step} by {editor:?}");

            add_key(editor, &shape, image, first, &second).ok();
            assert_opens(image, first, true, &what("add"));
            assert_opens(image, &second, true, &what("add"));
            assert_eq!(keyslots(image), [0, 1], "{}", what("add"));

            change_key(editor, &shape, image, &second, &third).ok();
            assert_opens(image, first, true, &what("change"));
            assert_opens(image, &second, false, &what("change"));
            assert_opens(image, &third, true, &what("change"));
            assert_eq!(keyslots(image).len(), 2, "{}", what("change"));

            kill_slot(editor, image, &third, 0).ok();
            assert_opens(image, first, false, &what("kill"));
            assert_opens(image, &third, true, &what("kill"));

            add_key(editor, &shape, image, &third, first).ok();
            remove_key(editor, image, &third).ok();
            assert_opens(image, &third, false, &what("remove"));
            assert_opens(image, first, true, &what("remove"));
            assert_eq!(keyslots(image).len(), 1, "{}", what("remove"));
        }
    }
}

#[test]
fn the_last_key_is_not_lost_by_accident() {
    let scratch = Scratch::new();
    for shape in [Shape::LUKS1, Shape::LUKS2] {
        let made = shape.image(Maker::Cryptsetup, &scratch, DATA);
        let unchanged = Unchanged::new(&made.image);
        kill_slot(Maker::Xtent, &made.image, &made.key, 0)
            .fails(1)
            .says(&["last"]);
        remove_key(Maker::Xtent, &made.image, &made.key)
            .fails(1)
            .says(&["last"]);
        unchanged.assert("a refused removal");
    }
}

/// All keyslots that the formats have, filled by Xtent, counted by cryptsetup.
#[test]
fn all_keyslots_can_be_filled() {
    let scratch = Scratch::new();
    for (shape, slots) in [(Shape::LUKS1, 8), (Shape::LUKS2, 32)] {
        // The default keyslot area has room for all 32.
        let shape = Shape {
            key_bits: 256,
            ..shape
        };
        let made = shape.image(Maker::Cryptsetup, &scratch, DATA);
        for slot in 1..slots {
            let key = scratch.file(&format!("{shape}-{slot}"), format!("key {slot}").as_bytes());
            add_key(Maker::Xtent, &shape, &made.image, &made.key, &key).ok();
        }
        assert_eq!(keyslots(&made.image), (0..slots).collect::<Vec<_>>());
        let one_more = scratch.file(&format!("{shape}-more"), b"one more");
        let unchanged = Unchanged::new(&made.image);
        add_key(Maker::Xtent, &shape, &made.image, &made.key, &one_more).fails(1);
        unchanged.assert("no free keyslot");
        let last = scratch.join(&format!("{shape}-{}", slots - 1));
        assert_opens(&made.image, &last, true, "the last keyslot");
    }
}

#[test]
fn backups_of_one_are_restored_by_the_other() {
    let scratch = Scratch::new();
    let second = scratch.file("second", OTHER_KEY);
    for (saver, restorer) in [
        (Maker::Cryptsetup, Maker::Xtent),
        (Maker::Xtent, Maker::Cryptsetup),
        (Maker::Xtent, Maker::Xtent),
    ] {
        let folder = Scratch::new();
        for shape in Shape::all() {
            let what = format!("{shape}, saved by {saver:?}, restored by {restorer:?}");
            let made = shape.image(restorer, &folder, DATA);
            let (image, key) = (&made.image, &made.key);
            let data = pattern(usize::try_from(DATA).unwrap(), 5);
            made.encrypt(&data);

            let backup = folder.join(&format!("{shape}.header"));
            match saver {
                Maker::Cryptsetup => cryptsetup()
                    .args(["luksHeaderBackup", "--header-backup-file"])
                    .args([&backup, image]),
                Maker::Xtent => xtent().args(["header", "backup"]).args([image, &backup]),
            }
            .ok();
            // The keys change after the backup, and come back with it.
            change_key(Maker::Cryptsetup, &shape, image, key, &second).ok();
            assert_opens(image, key, false, &what);
            match restorer {
                Maker::Cryptsetup => cryptsetup()
                    .args(["luksHeaderRestore", "--batch-mode", "--header-backup-file"])
                    .args([&backup, image]),
                Maker::Xtent => xtent()
                    .args(["header", "restore", "--batch-mode"])
                    .args([image, &backup]),
            }
            .ok();
            assert_opens(image, key, true, &what);
            assert_opens(image, &second, false, &what);
            assert_same(&made.decrypt(), &data, &what);
        }
    }
}

/// The dump names what cryptsetup's names.
#[test]
fn dumps_agree() {
    let scratch = Scratch::new();
    for shape in Shape::all() {
        let made = shape.image(Maker::Xtent, &scratch, DATA);
        let uuid = cryptsetup().arg("luksUUID").arg(&made.image).ok().out();
        let ours = xtent().args(["header", "dump"]).arg(&made.image).ok().out();
        assert!(ours.contains(uuid.trim()), "{ours}");
        assert!(ours.contains("plain64"), "{ours}");
        let json = xtent()
            .args(["header", "dump", "--json"])
            .arg(&made.image)
            .ok()
            .json();
        assert_eq!(json["version"], shape.version);
        assert_eq!(json["uuid"], uuid.trim());
    }
}

/// Offline reencryption is a second, independent writer of data: what it
/// leaves is readable, with the sectors and the key that it chose.
#[test]
fn data_reencrypted_by_cryptsetup_is_read() {
    let scratch = Scratch::new();
    let made = Shape::LUKS2.image(Maker::Xtent, &scratch, 1 << 20);
    let data = pattern(1 << 20, 11);
    made.encrypt(&data);
    cryptsetup()
        .args(["reencrypt", "--batch-mode", "--force-offline-reencrypt"])
        .args(["--key-slot", "0", "--pbkdf", "pbkdf2"])
        .args(["--pbkdf-force-iterations", "1000", "--key-file"])
        .args([&made.key, &made.image])
        .ok();
    assert!(xtent_opens(&made.image, &made.key));
    assert_same(&made.decrypt(), &data, "after reencryption");
}
