//! What goes wrong in daily life gets a clear error with the right exit code,
//! and nothing is lost.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use serde_json::json;
use xtent_tests::header::edit_json;
use xtent_tests::luks::{Container, Maker, Pbkdf, Shape, assert_opens, cheap};
use xtent_tests::scratch::{Unchanged, assert_same, write_range};
use xtent_tests::xtent::{Server, xtent};
use xtent_tests::{Cmd, Scratch, pattern};

/// Commands that open a device, each with the arguments before it.
fn openers(key: &Path) -> Vec<Cmd> {
    let key = key.to_str().unwrap();
    [
        vec!["key", "test", "--key-file", key],
        vec!["key", "list"],
        vec!["header", "dump"],
        vec![
            "serve",
            "--nbd",
            "unix:/nonexistent/socket",
            "--key-file",
            key,
        ],
        vec!["key", "add", "--key-file", key, "--new-key-file", key],
        vec!["key", "remove", "--key-file", key],
    ]
    .into_iter()
    .map(|arguments| xtent().args(arguments))
    .collect()
}

#[test]
fn what_is_not_luks() {
    let scratch = Scratch::new();
    let key = scratch.file("key", b"key");
    let image = |name: &str, bytes: &[u8]| scratch.file(name, bytes);
    let ext4 = scratch.image("ext4", 8 << 20);
    Cmd::peer("mke2fs")
        .args(["-q", "-F", "-t", "ext4"])
        .arg(&ext4)
        .ok();
    for device in [
        image("empty", b""),
        image("short", b"LUK"),
        image("text", b"LUKS is what this is not\n"),
        image("zeros", &[0; 1 << 20]),
        image("noise", &pattern(1 << 20, 41)),
        ext4,
    ] {
        let unchanged = Unchanged::new(&device);
        for command in openers(&key) {
            let done = command.arg(&device).fails(4);
            done.says(&["LUKS"]);
            done.assert_no_crash();
        }
        unchanged.assert("not LUKS");
    }
}

#[test]
fn what_is_no_device() {
    let scratch = Scratch::new();
    let key = scratch.file("key", b"key");
    let fifo = scratch.join("fifo");
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
    )
    .unwrap();
    for device in [
        scratch.join("missing"),
        scratch.folder("folder"),
        fifo,
        "/dev/null".into(),
    ] {
        for command in openers(&key) {
            // A FIFO must not be waited for.
            let done = command.arg(&device).fails(4);
            done.says(&[device.to_str().unwrap()]);
        }
    }
}

#[test]
fn a_wrong_passphrase() {
    let scratch = Scratch::new();
    let wrong = scratch.file("wrong", b"wrong");
    for shape in [Shape::LUKS1, Shape::LUKS2] {
        let made = shape.image(Maker::Cryptsetup, &scratch, 1 << 20);
        let unchanged = Unchanged::new(&made.image);
        let container = Container {
            image: made.image.clone(),
            key: wrong.clone(),
        };
        let socket = scratch.join("socket");
        let source = scratch.file(&format!("{shape}.source"), &[1; 512]);
        let target = scratch.join("target");
        let with_key = |command: Cmd| command.arg("--key-file").arg(&wrong);
        for command in [
            Server::command(&container, &socket, &[]),
            with_key(xtent().args(["key", "test"])).arg(&made.image),
            with_key(
                xtent()
                    .args(["key", "add", "--new-key-file"])
                    .arg(&made.key),
            )
            .arg(&made.image),
            with_key(
                xtent()
                    .args(["key", "change", "--new-key-file"])
                    .arg(&made.key),
            )
            .arg(&made.image),
            with_key(xtent().args(["key", "remove", "--batch-mode"])).arg(&made.image),
            with_key(xtent().arg("encrypt")).args([&source, &made.image]),
            with_key(xtent().arg("decrypt")).args([&made.image, &target]),
        ] {
            command.fails(2).says(&["passphrase"]);
        }
        assert!(!socket.exists());
        assert!(!target.exists(), "a target for nothing");
        unchanged.assert("a wrong passphrase");
    }
}

#[test]
fn an_image_shorter_than_its_segment() {
    let scratch = Scratch::new();
    let made = Shape::LUKS2.image(Maker::Cryptsetup, &scratch, 1 << 20);
    // A segment of fixed size, and an image that lost its end.
    edit_json(&made.image, |j| {
        j["segments"]["0"]["size"] = json!("1048576");
    });
    let file = std::fs::File::options()
        .write(true)
        .open(&made.image)
        .unwrap();
    file.set_len(Shape::LUKS2.data_offset() + (1 << 19))
        .unwrap();
    let unchanged = Unchanged::new(&made.image);
    Server::command(&made, &scratch.join("socket"), &[])
        .fails(4)
        .says(&["cut off"]);
    let target = scratch.join("target");
    xtent()
        .args(["decrypt", "--key-file"])
        .args([&made.key, &made.image, &target])
        .fails(4);
    assert!(!target.exists());
    unchanged.assert("a short image");
    // Nothing at all behind the header.
    for shape in [Shape::LUKS1, Shape::LUKS2] {
        let folder = Scratch::new();
        let made = shape.image(Maker::Cryptsetup, &folder, 512);
        let file = std::fs::File::options()
            .write(true)
            .open(&made.image)
            .unwrap();
        file.set_len(shape.data_offset()).unwrap();
        Server::command(&made, &scratch.join("socket"), &[]).fails(4);
        // The keys are not lost with the data.
        assert_opens(&made.image, &made.key, true, "the header is whole");
    }
}

#[test]
fn odd_sector_sizes() {
    let scratch = Scratch::new();
    let key = scratch.file("key", b"key");
    let image = scratch.image("image", 20 << 20);
    let unchanged = Unchanged::new(&image);
    for sector in [
        "0", "1", "256", "513", "520", "4095", "4097", "8192", "65536", "-512", "4k", "x",
    ] {
        xtent()
            .args(["format", "--batch-mode", "--key-file"])
            .arg(&key)
            .args(cheap(Pbkdf::Pbkdf2, 2))
            .arg(format!("--sector-size={sector}"))
            .arg(&image)
            .fails(1)
            .says(&["sector"]);
    }
    xtent()
        .args([
            "format",
            "--batch-mode",
            "--type",
            "luks1",
            "--sector-size",
            "4096",
        ])
        .args(cheap(Pbkdf::Pbkdf2, 1))
        .arg("--key-file")
        .args([&key, &image])
        .fails(1)
        .says(&["sector", "luks1"]);
    unchanged.assert("a refused format");

    // Data that ends within a sector: the whole sectors, or a clear refusal,
    // but never a crash or half a sector.
    let made = Shape::LUKS2_4096.image(Maker::Cryptsetup, &scratch, 8192);
    let file = std::fs::File::options()
        .write(true)
        .open(&made.image)
        .unwrap();
    file.set_len(Shape::LUKS2.data_offset() + 8192 + 700)
        .unwrap();
    let target = scratch.join("target");
    let done = xtent()
        .args(["decrypt", "--key-file"])
        .args([&made.key, &made.image, &target])
        .run();
    done.assert_no_crash();
    match done.code() {
        Some(0) => assert_eq!(std::fs::metadata(&target).unwrap().len(), 8192),
        _ => assert_eq!(done.code(), Some(4), "{}", done.text()),
    }
}

#[test]
fn other_bad_parameters() {
    let scratch = Scratch::new();
    let key = scratch.file("key", b"key");
    let empty_key = scratch.file("empty-key", b"");
    let image = scratch.image("image", 20 << 20);
    let tiny = scratch.image("tiny", 1 << 20);
    let unchanged = Unchanged::new(&image);
    let format = || {
        xtent()
            .args(["format", "--batch-mode"])
            .args(cheap(Pbkdf::Pbkdf2, 2))
    };
    for options in [
        ["--cipher", "aes"],
        ["--cipher", "aes-xts"],
        ["--cipher", "rot13-xts-plain64"],
        ["--cipher", "aes-ecb"],
        ["--cipher", "cipher_null-ecb"],
        ["--cipher", ""],
        ["--key-size", "0"],
        ["--key-size", "100"],
        ["--key-size", "128"],
        ["--key-size", "384"],
        ["--key-size", "100000"],
        ["--type", "luks3"],
        ["--size", "12 potatoes"],
        ["--pbkdf-parallel", "0"],
        ["--uuid", "not-a-uuid"],
    ] {
        let done = format()
            .args(options)
            .arg("--key-file")
            .args([&key, &image])
            .run();
        done.assert_no_crash();
        assert_eq!(done.code(), Some(1), "{}", done.text());
        assert!(!done.stderr.is_empty());
    }
    // No keys where there should be some.
    for missing in [scratch.join("no-such-key"), scratch.folder("key-folder")] {
        let done = format().arg("--key-file").args([&missing, &image]).run();
        assert!(matches!(done.code(), Some(1 | 4)), "{}", done.text());
        done.says(&[missing.to_str().unwrap()]);
    }
    format()
        .arg("--key-file")
        .args([&empty_key, &image])
        .run()
        .assert_no_crash();
    unchanged_unless_formatted(&unchanged, &image);
    // No room for the header.
    let unchanged = Unchanged::new(&tiny);
    let done = format().arg("--key-file").args([&key, &tiny]).run();
    assert!(matches!(done.code(), Some(1 | 4)), "{}", done.text());
    unchanged.assert("too small for a header");
}

/// An empty key file is a legal, if foolish, passphrase in cryptsetup; either
/// answer will do, but not half of one.
fn unchanged_unless_formatted(unchanged: &Unchanged, image: &Path) {
    let is_luks = Cmd::peer("cryptsetup")
        .arg("isLuks")
        .arg(image)
        .run()
        .status
        .success();
    if !is_luks {
        unchanged.assert("refused formats");
    }
}

/// Without a terminal to ask on, nothing that holds data is overwritten
/// unasked.
#[test]
fn nothing_is_overwritten_without_being_told() {
    let scratch = Scratch::new();
    let made = Shape::LUKS2.image(Maker::Cryptsetup, &scratch, 1 << 20);
    let ext4 = scratch.image("ext4", 24 << 20);
    Cmd::peer("mke2fs")
        .args(["-q", "-F", "-t", "ext4"])
        .arg(&ext4)
        .ok();
    for image in [&made.image, &ext4] {
        let unchanged = Unchanged::new(image);
        let done = xtent()
            .args(["format", "--key-file"])
            .arg(&made.key)
            .args(cheap(Pbkdf::Pbkdf2, 2))
            .arg(image)
            .run();
        assert_ne!(done.code(), Some(0), "{}", done.text());
        done.says(&["--batch-mode"]);
        unchanged.assert("format without --batch-mode");
    }
    let target = scratch.file("target", b"precious");
    xtent()
        .args(["decrypt", "--key-file"])
        .args([&made.key, &made.image, &target])
        .fails(5)
        .says(&["exists"]);
    assert_eq!(std::fs::read(&target).unwrap(), b"precious");
    let backup = scratch.file("backup", b"precious");
    xtent()
        .args(["header", "backup"])
        .args([&made.image, &backup])
        .fails(5)
        .says(&["exists"]);
    assert_eq!(std::fs::read(&backup).unwrap(), b"precious");
}

#[test]
fn a_source_larger_than_the_volume() {
    let scratch = Scratch::new();
    let made = Shape::LUKS2.image(Maker::Xtent, &scratch, 1 << 20);
    let data = pattern(1 << 20, 42);
    made.encrypt(&data);
    let unchanged = Unchanged::new(&made.image);
    let source = scratch.file("source", &pattern((1 << 20) + 1, 43));
    xtent()
        .args(["encrypt", "--key-file"])
        .args([&made.key, &source, &made.image])
        .fails(4);
    unchanged.assert("a source that does not fit");
    xtent()
        .args(["encrypt", "--key-file"])
        .args([&made.key, &made.image, &made.image])
        .run()
        .assert_no_crash();
    unchanged.assert("an image into itself");
    assert_same(&made.decrypt(), &data, "untouched");
}

/// Argon2 wants more memory than there is: the message says how much.
#[test]
fn no_memory_for_argon2() {
    let scratch = Scratch::new();
    let image = scratch.image("image", 17 << 20);
    let key = scratch.file("key", b"key");
    Cmd::peer("cryptsetup")
        .args(["luksFormat", "--batch-mode", "--type", "luks2"])
        .args(["--pbkdf", "argon2id", "--pbkdf-memory", "65536"])
        .args(["--pbkdf-force-iterations", "4", "--pbkdf-parallel", "1"])
        .arg("--key-file")
        .args([&key, &image])
        .ok();
    // Not asked of cryptsetup: it takes less where little memory is free.
    edit_json(&image, |json| {
        json["keyslots"]["0"]["kdf"]["memory"] = 524_288.into();
    });
    let unchanged = Unchanged::new(&image);
    let test = xtent()
        .args(["key", "test", "--key-file"])
        .args([&key, &image]);
    Cmd::peer("prlimit")
        .arg("--as=400000000")
        .wrapping(test)
        .fails(3)
        .says(&["512", "MiB"]);
    unchanged.assert("no memory");
}

/// A stored cost that would take hours is estimated first and refused.
#[test]
fn a_derivation_that_would_run_for_hours() {
    let scratch = Scratch::new();
    let mut containers = Vec::new();
    let luks1 = Shape::LUKS1.image(Maker::Cryptsetup, &scratch, 512);
    write_range(&luks1.image, 212, &u32::MAX.to_be_bytes());
    // A slow hash, so that the fastest machine takes an hour.
    write_range(&luks1.image, 72, b"whirlpool\0");
    containers.push(luks1);
    for (pbkdf, field) in [(Pbkdf::Pbkdf2, "iterations"), (Pbkdf::Argon2id, "time")] {
        let shape = Shape {
            pbkdf,
            ..Shape::LUKS2
        };
        let container = shape.image(Maker::Cryptsetup, &scratch, 512);
        edit_json(&container.image, |j| {
            j["keyslots"]["0"]["kdf"][field] = json!(u32::MAX);
            if pbkdf == Pbkdf::Pbkdf2 {
                j["keyslots"]["0"]["kdf"]["hash"] = json!("whirlpool");
            }
        });
        containers.push(container);
    }
    // Argon2 of 64 KiB is quick even then: make it costly.
    edit_json(&containers[2].image, |j| {
        j["keyslots"]["0"]["kdf"]["memory"] = json!(65536);
    });
    for container in &containers {
        let unchanged = Unchanged::new(&container.image);
        xtent()
            .args(["key", "test", "--key-file"])
            .args([&container.key, &container.image])
            .fails(1)
            .says(&["--allow-expensive-kdf"]);
        unchanged.assert("a costly derivation");
    }
}

#[test]
fn nonsense_on_the_command_line() {
    for arguments in [
        vec![],
        vec!["frobnicate"],
        vec!["serve"],
        vec!["serve", "--nbd", "carrier-pigeon:3", "x"],
        vec!["key"],
        vec!["key", "kill", "x"],
        vec!["header", "backup"],
        vec!["serve", "--passphrase", "secret", "x"],
    ] {
        let done = xtent().args(&arguments).run();
        done.assert_no_crash();
        assert_eq!(done.code(), Some(1), "{}", done.text());
        assert!(!done.stderr.is_empty());
    }
    // With --json the error is JSON as well.
    let done = xtent()
        .args(["--json", "header", "dump", "/nonexistent"])
        .fails(4);
    let error: serde_json::Value = serde_json::from_str(&done.stderr).unwrap();
    assert_eq!(error["error"]["exit"], 4);
}
