//! Headers of other sizes than the usual one.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

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

/// What cryptsetup says of the header: bytes of each copy, of the keyslots area, and before
/// the data.
fn sizes_of(header: &Path) -> [u64; 3] {
    let dump = Cmd::peer("cryptsetup")
        .arg("luksDump")
        .arg(header)
        .ok()
        .out();
    ["Metadata area:", "Keyslots area:", "offset:"].map(|name| {
        let line = dump.lines().find(|line| line.trim().starts_with(name));
        let number = line.and_then(|line| line.split_whitespace().rev().nth(1));
        number
            .and_then(|number| number.parse().ok())
            .unwrap_or_else(|| panic!("no {name} in {dump}"))
    })
}

/// Every size of the metadata, with and without a size of the keyslots area: the same
/// header as by cryptsetup, and everything that changes headers goes on working.
#[test]
fn sizes_are_those_of_cryptsetup() {
    const KIB: u64 = 1 << 10;
    let sizes = (4..=12).map(|power| KIB << power);
    for (metadata, keyslots) in sizes.zip([None, Some("2m"), Some("17m")].into_iter().cycle()) {
        let metadata_text = format!("{}k", metadata / KIB);
        let what = format!("{metadata_text}, {keyslots:?}");
        let scratch = Scratch::new();
        let [ours, theirs] = ["ours", "theirs"].map(|name| scratch.image(name, 40 << 20));
        let key = scratch.file("key", KEY);
        let mut options = vec!["--luks2-metadata-size", &metadata_text];
        options.extend(
            keyslots
                .iter()
                .flat_map(|size| ["--luks2-keyslots-size", size]),
        );
        let cheap = cheap(Pbkdf::Pbkdf2, 2);
        Cmd::peer("cryptsetup")
            .args(["luksFormat", "--batch-mode", "--type", "luks2"])
            .args(["--sector-size", "512"])
            .args(&options)
            .args(&cheap)
            .arg("--key-file")
            .args([&key, &theirs])
            .ok();
        xtent()
            .args(["format", "-q", "--sector-size", "512"])
            .args(&options)
            .args(&cheap)
            .arg("--key-file")
            .args([&key, &ours])
            .ok();
        assert_eq!(sizes_of(&ours), sizes_of(&theirs), "{what}");
        assert_eq!(sizes_of(&ours)[0], metadata);
        let container = Container { image: ours, key };
        let data = pattern(1 << 20, 53);
        container.encrypt(&data);
        let (image, key) = (&container.image, &container.key);
        let backup = scratch.join("backup");
        xtent()
            .args(["header", "backup"])
            .args([image, &backup])
            .ok();
        let new = scratch.file("new", b"new");
        xtent()
            .args(["key", "add"])
            .args(&cheap)
            .arg("--key-file")
            .arg(key)
            .arg("--new-key-file")
            .args([&new, image])
            .ok();
        xtent()
            .args(["config", "--label", "of another size"])
            .arg(image)
            .ok();
        assert_opens(image, &new, true, &what);
        Cmd::peer("cryptsetup")
            .args(["luksRemoveKey", "--batch-mode"])
            .args([image, &new])
            .ok();
        xtent()
            .args(["header", "restore", "-q"])
            .args([image, &backup])
            .ok();
        // There and back, where LUKS1's eight keyslots have room.
        for kind in ["luks1", "luks2"] {
            xtent()
                .args(["convert", "-q", "--no-backup", "--type", kind])
                .arg(image)
                .ok();
            assert_opens(image, key, true, &what);
        }
        assert_same(&container.decrypt()[..1 << 20], &data, &what);
    }
}

#[test]
fn an_offset_or_a_detached_header_counts() {
    for (options, warns) in [
        ("--luks2-keyslots-size 1m --align-payload 8", false),
        ("--luks2-keyslots-size 20m --align-payload 3", false),
        ("--luks2-keyslots-size 1m --offset 32768", false),
        ("--luks2-keyslots-size 1m --offset 2048", true),
        ("--luks2-metadata-size 64k --offset 2048", false),
        ("--luks2-metadata-size 4m --luks2-keyslots-size 1m", false),
        ("--luks2-keyslots-size 1m --header HEADER", false),
        (
            "--luks2-metadata-size 4m --luks2-keyslots-size 20m --header HEADER",
            false,
        ),
        (
            "--luks2-keyslots-size 1m --offset 65536 --header HEADER",
            false,
        ),
    ] {
        let mut seen = Vec::new();
        for is_ours in [true, false] {
            let scratch = Scratch::new();
            let key = scratch.file("key", KEY);
            let (image, header) = (scratch.join("image"), scratch.join("header"));
            std::fs::File::create(&image)
                .unwrap()
                .set_len(48 << 20)
                .unwrap();
            let options = options.replace("HEADER", &header.display().to_string());
            let command = if is_ours {
                xtent().arg("format")
            } else {
                Cmd::peer("cryptsetup").args(["luksFormat", "--type", "luks2"])
            };
            let done = command
                .args(["--batch-mode", "--sector-size", "512"])
                .args(options.split(' '))
                .args(cheap(Pbkdf::Pbkdf2, 2))
                .arg("--key-file")
                .args([&key, &image])
                .ok();
            if is_ours {
                assert_eq!(
                    done.stderr.contains("before --offset"),
                    warns,
                    "{}",
                    done.text()
                );
            }
            let place = if header.exists() { &header } else { &image };
            seen.push((sizes_of(place), std::fs::metadata(place).unwrap().len()));
        }
        assert_eq!(seen[0], seen[1], "{options}");
    }
}

#[test]
fn sizes_that_no_header_has_are_refused() {
    let scratch = Scratch::new();
    let key = scratch.file("key", KEY);
    let image = scratch.image("image", 40 << 20);
    for (options, says) in [
        ("--luks2-metadata-size 8k", "16, 32, 64, 128"),
        ("--luks2-metadata-size 8m", "1024, 2048, 4096"),
        ("--luks2-metadata-size 24k", "is not possible"),
        ("--luks2-keyslots-size 1000000", "multiple of 4096"),
        ("--luks2-keyslots-size 129m", "128 MiB"),
        ("--luks2-keyslots-size 128k", "takes 258048"),
        ("--luks2-keyslots-size 39m", "too small"),
        (
            "--luks2-metadata-size 4m --offset 16384",
            "before the data offset",
        ),
        (
            "--luks2-keyslots-size 1m --offset 64",
            "before the data offset",
        ),
        (
            "--luks2-keyslots-size 1m --offset 128",
            "no room for a keyslot",
        ),
        ("--luks2-keyslots-size 1m --type luks1", "needs LUKS2"),
        ("--luks2-metadata-size 64k --type luks1", "needs LUKS2"),
    ] {
        xtent()
            .args(["format", "-q"])
            .args(options.split(' '))
            .args(cheap(Pbkdf::Pbkdf2, 2))
            .arg("--key-file")
            .args([&key, &image])
            .run()
            .says(&[says]);
        let bytes = std::fs::read(&image).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 0), "{options}: written to");
    }
}
