//! Headers of other sizes than the usual one.
#![allow(clippy::unwrap_used, reason = "tests")]

use xtent_tests::luks::{Container, KEY, Pbkdf, add_key, assert_opens, cheap};
use xtent_tests::scratch::assert_same;
use xtent_tests::xtent::xtent;
use xtent_tests::{Cmd, Scratch, pattern};

/// The header ends where the data begin, and has room for so many keys; in both
/// programs.
#[test]
fn the_offset_sets_the_size_of_the_header() {
    for (bits, offset, keys) in [("512", 2048_u64, 3), ("256", 2048, 7), ("512", 1024, 1)] {
        let scratch = Scratch::new();
        let container = Container {
            image: scratch.join("image"),
            key: scratch.file("key", KEY),
        };
        let size: u64 = 1 << 20;
        xtent()
            .args(["format", "-q", "--key-size", bits])
            .args(["--offset", &offset.to_string()])
            .args(["--size", &size.to_string()])
            .args(cheap(Pbkdf::Pbkdf2, 2))
            .arg("--key-file")
            .args([&container.key, &container.image])
            .ok();
        let length = std::fs::metadata(&container.image).unwrap().len();
        assert_eq!(length, offset * 512 + size);
        let data = pattern(1 << 20, 51);
        container.encrypt(&data);
        for number in 1..=keys {
            let new = scratch.file(&format!("key{number}"), format!("{number}").as_bytes());
            let done = add_key(2, &container.image, &container.key, &new).run();
            if number < keys {
                assert_eq!(done.code(), Some(0), "{}", done.text());
                assert_opens(&container.image, &new, true, "a new key");
            } else {
                assert_eq!(done.code(), Some(1), "{}", done.text());
                done.says(&["no gap"]);
            }
        }
        assert_opens(&container.image, &container.key, true, "the first key");
        assert_same(&container.decrypt(), &data, "the data");
    }
}

/// cryptsetup's larger and smaller metadata and keyslots areas.
#[test]
fn headers_of_any_size_open() {
    for (metadata, keyslots, is_luks1_possible) in [
        ("64k", "512k", false),
        ("4m", "1m", true),
        ("16k", "20m", true),
    ] {
        let scratch = Scratch::new();
        let container = Container {
            image: scratch.image("image", 40 << 20),
            key: scratch.file("key", KEY),
        };
        Cmd::peer("cryptsetup")
            .args(["luksFormat", "--batch-mode", "--type", "luks2"])
            .args(["--sector-size", "512", "--luks2-metadata-size", metadata])
            .args(["--luks2-keyslots-size", keyslots])
            .args(cheap(Pbkdf::Pbkdf2, 2))
            .arg("--key-file")
            .args([&container.key, &container.image])
            .ok();
        let data = pattern(1 << 20, 52);
        container.encrypt(&data);
        let new = scratch.file("new", b"new");
        add_key(2, &container.image, &container.key, &new).ok();
        assert_opens(&container.image, &new, true, metadata);
        // LUKS1 takes eight areas, in use or not.
        let converted = xtent()
            .args(["convert", "-q", "--no-backup", "--type", "luks1"])
            .arg(&container.image)
            .run();
        if is_luks1_possible {
            assert_eq!(converted.code(), Some(0), "{}", converted.text());
        } else {
            assert_eq!(converted.code(), Some(1), "{}", converted.text());
            converted.says(&["no room for LUKS1's eight keyslots"]);
        }
        assert_opens(&container.image, &container.key, true, "converted");
        assert_opens(&container.image, &new, true, metadata);
        assert_same(&container.decrypt()[..1 << 20], &data, metadata);
    }
}
