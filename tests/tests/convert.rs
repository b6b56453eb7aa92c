//! LUKS1 to LUKS2 and back, by Xtent and by cryptsetup in turn.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};

use xtent_tests::luks::{
    Container, Maker, Pbkdf, Shape, add_key, cheap, cryptsetup_opens, xtent_opens,
};
use xtent_tests::scratch::{Unchanged, assert_same};
use xtent_tests::xtent::{Server, xtent};
use xtent_tests::{Cmd, Scratch, bed, pattern};

/// A volume and the passphrase of each keyslot.
struct Volume {
    container: Container,
    keys: Vec<PathBuf>,
    data: Vec<u8>,
    scratch: Scratch,
}

fn key_of(scratch: &Scratch, keyslot: u32) -> PathBuf {
    scratch.file(
        &format!("key{keyslot}"),
        format!("passphrase {keyslot}").as_bytes(),
    )
}

impl Volume {
    /// With a key in each keyslot up to `last`, less those that were killed.
    fn new(shape: Shape, maker: Maker, last: u32, killed: &[u32], room: u64) -> Self {
        let scratch = Scratch::new();
        let data = pattern(1 << 20, 71);
        let image = scratch.image("image", shape.data_offset() + room + (1 << 20));
        let keys: Vec<_> = (0..=last).map(|slot| key_of(&scratch, slot)).collect();
        shape.format(maker, &image, &keys[0]);
        for key in &keys[1..] {
            Cmd::peer("cryptsetup")
                .args(["luksAddKey", "--batch-mode"])
                .args(cheap(Pbkdf::Pbkdf2, shape.version))
                .arg("--key-file")
                .args([&keys[0], &image, key])
                .ok();
        }
        for slot in killed {
            Cmd::peer("cryptsetup")
                .args(["luksKillSlot", "--batch-mode"])
                .arg(&image)
                .arg(slot.to_string())
                .ok();
        }
        let alive = (0..=last).find(|slot| !killed.contains(slot)).unwrap();
        let container = Container {
            image,
            key: keys[alive as usize].clone(),
        };
        container.encrypt(&data);
        Self {
            container,
            keys,
            data,
            scratch,
        }
    }

    fn image(&self) -> &Path {
        &self.container.image
    }

    fn convert(&self, by: Maker, version: u32) {
        let kind = format!("luks{version}");
        let done = match by {
            Maker::Cryptsetup => Cmd::peer("cryptsetup")
                .args(["convert", "--batch-mode", "--type", &kind])
                .arg(self.image())
                .run(),
            Maker::Xtent => xtent()
                .args(["convert", "--batch-mode", "--no-backup", "--type", &kind])
                .arg(self.image())
                .run(),
        };
        assert_eq!(done.code(), Some(0), "{by:?}: {}", done.text());
    }

    /// Everything opens as before, in both programs.
    fn check(&self, version: u32, killed: &[u32], what: &str) {
        Cmd::peer("cryptsetup")
            .args(["isLuks", "--type", &format!("luks{version}")])
            .arg(self.image())
            .ok();
        for (slot, key) in (0_u32..).zip(&self.keys) {
            let expected = !killed.contains(&slot);
            assert_eq!(
                cryptsetup_opens(self.image(), key),
                expected,
                "{what}: {slot}"
            );
            assert_eq!(xtent_opens(self.image(), key), expected, "{what}: {slot}");
        }
        assert_same(
            &self.container.decrypt()[..self.data.len()],
            &self.data,
            what,
        );
    }
}

fn luks1(key_bits: u32) -> Shape {
    Shape {
        key_bits,
        ..Shape::LUKS1
    }
}

#[test]
fn volumes_of_cryptsetup_there_and_back_by_turns() {
    for (shape, last, killed) in [
        (luks1(512), 0, &[][..]),
        (luks1(512), 4, &[1, 3]),
        (luks1(256), 7, &[0]),
        (luks1(256), 7, &[]),
    ] {
        let volume = Volume::new(shape, Maker::Cryptsetup, last, killed, 0);
        for (turn, (by, version)) in [
            (Maker::Xtent, 2),
            (Maker::Cryptsetup, 1),
            (Maker::Xtent, 2),
            (Maker::Xtent, 1),
            (Maker::Cryptsetup, 2),
            (Maker::Xtent, 1),
        ]
        .into_iter()
        .enumerate()
        {
            volume.convert(by, version);
            let what = format!("{shape}, up to {last}, turn {turn}, by {by:?}");
            volume.check(version, killed, &what);
        }
        // A converted volume takes keys as any other.
        volume.convert(Maker::Xtent, 2);
        let new = volume.scratch.file("new", b"new");
        if last > 0 {
            Cmd::peer("cryptsetup")
                .args(["luksKillSlot", "--batch-mode"])
                .arg(volume.image())
                .arg(last.to_string())
                .ok();
        }
        add_key(2, &volume.container.image, &volume.container.key, &new).ok();
        assert!(cryptsetup_opens(volume.image(), &new));
    }
}

#[test]
fn luks2_volumes_of_both_become_luks1() {
    for maker in [Maker::Cryptsetup, Maker::Xtent] {
        let volume = Volume::new(Shape::LUKS2, maker, 2, &[1], 0);
        volume.convert(Maker::Xtent, 1);
        volume.check(1, &[1], &format!("{maker:?}"));
        volume.convert(Maker::Cryptsetup, 2);
        volume.check(2, &[1], &format!("{maker:?}, back"));
    }
}

/// Where eight keyslots leave no room, with the backup, which puts it back.
#[test]
fn eight_keys_without_room_take_a_backup() {
    let volume = Volume::new(luks1(512), Maker::Cryptsetup, 7, &[], 0);
    let before = Unchanged::new(volume.image());
    xtent()
        .args(["convert", "-q", "--no-backup", "--type", "luks2"])
        .arg(volume.image())
        .fails(1)
        .says(&["no room", "backup"]);
    before.assert("refused");
    let done = xtent()
        .args(["convert", "-q", "--json", "--type", "luks2"])
        .arg(volume.image())
        .ok();
    let backup = PathBuf::from(done.json()["backup"].as_str().unwrap());
    assert_eq!(backup, volume.scratch.join("image.luks1-header"));
    volume.check(2, &[], "converted");
    volume.convert(Maker::Xtent, 1);
    volume.check(1, &[], "and back");
    xtent()
        .args(["convert", "-q", "--type", "luks2"])
        .arg(volume.image())
        .fails(5)
        .says(&["exists already", "--backup"]);
    // Its keyslots are where LUKS2 has them, so that nothing has to move now.
    volume.convert(Maker::Xtent, 2);
    volume.check(2, &[], "and once more");
    xtent()
        .args(["header", "restore", "-q"])
        .args([&volume.container.image, &backup])
        .ok();
    volume.check(1, &[], "restored");
}

#[test]
fn what_is_in_use_or_does_not_fit_stays_as_it_is() {
    let scratch = Scratch::new();
    let argon2 = Shape {
        pbkdf: Pbkdf::Argon2id,
        ..Shape::LUKS2
    };
    for (shape, to, words) in [
        (argon2, "luks1", &["keyslot 0", "pbkdf2"][..]),
        (Shape::LUKS2_4096, "luks1", &["sectors", "4096"]),
        (Shape::LUKS2, "luks2", &["LUKS2 already"]),
        (Shape::LUKS1, "luks1", &["LUKS1 already"]),
    ] {
        let folder = Scratch::new();
        let container = shape.image(Maker::Cryptsetup, &folder, 4096);
        let before = Unchanged::new(&container.image);
        let done = xtent()
            .args(["convert", "-q", "--type", to])
            .arg(&container.image)
            .run();
        assert!(matches!(done.code(), Some(1 | 4)), "{}", done.text());
        done.says(words);
        before.assert("refused");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    let container = Shape::LUKS1.image(Maker::Xtent, &scratch, 1 << 20);
    let convert = || {
        xtent()
            .args(["convert", "-q", "--type", "luks2"])
            .arg(&container.image)
    };
    let server = Server::start(&container);
    convert().fails(5).says(&["in use"]);
    server.stop();
    if bed::is_root("what_is_in_use_or_does_not_fit_stays_as_it_is") {
        let device = Cmd::peer("losetup")
            .args(["--find", "--show"])
            .arg(&container.image)
            .ok()
            .out();
        let refused = convert().run();
        Cmd::peer("losetup").args(["-d", device.trim()]).ok();
        assert_eq!(refused.code(), Some(5), "{}", refused.text());
        refused.says(&["attached to"]);
    }
    convert().ok();
    assert!(cryptsetup_opens(&container.image, &container.key));
}
