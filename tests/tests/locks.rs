//! Xtent and cryptsetup on the same container at the same time.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};

use rustix::process::Signal;
use xtent_tests::bed;
use xtent_tests::luks::{Maker, OTHER_KEY, Pbkdf, Shape, add_key, assert_opens, cheap};
use xtent_tests::mount::Cleaner;
use xtent_tests::nbd::{nbdsh, read_all, write_all};
use xtent_tests::scratch::{Unchanged, assert_same};
use xtent_tests::xtent::{Server, xtent};
use xtent_tests::{Cmd, Scratch, pattern};

/// Keys are managed, by either command, while the volume is served.
#[test]
fn metadata_stays_free_while_served() {
    let scratch = Scratch::new();
    let second = scratch.file("second", OTHER_KEY);
    let third = scratch.file("third", b"third");
    for shape in [Shape::LUKS1, Shape::LUKS2] {
        let container = shape.image(Maker::Xtent, &scratch, 1 << 20);
        let (image, key) = (&container.image, &container.key);
        let server = Server::start(&container);
        let data = pattern(1 << 20, 51);
        write_all(&server.uri, &data);
        // These hang if a lock is held.
        Cmd::peer("cryptsetup").arg("luksDump").arg(image).ok();
        Cmd::peer("cryptsetup")
            .args(["luksAddKey", "--batch-mode"])
            .args(cheap(Pbkdf::Pbkdf2, shape.version))
            .arg("--key-file")
            .args([key, image, &second])
            .ok();
        add_key(shape.version, image, key, &third).ok();
        for key in [key, &second, &third] {
            assert_opens(image, key, true, "while served");
        }
        assert_same(&read_all(&server.uri), &data, "while keys change");
        server.stop();
    }
}

/// A loop device over the image, which a [`Cleaner`] takes away.
fn loop_over(image: &Path) -> PathBuf {
    let losetup = Cmd::peer("losetup").args(["--find", "--show"]);
    PathBuf::from(losetup.arg(image).ok().out().trim())
}

/// A loop device's page cache does not see what is written into its file, and stays while anybody has
/// the device open.
#[test]
fn keys_that_came_by_another_way_are_seen() {
    let test = "keys_that_came_by_another_way_are_seen";
    if !bed::has_loop(test) {
        return;
    }
    let scratch = Scratch::new();
    let container = Shape::LUKS2.image(Maker::Xtent, &scratch, 1 << 20);
    let (image, key) = (&container.image, &container.key);
    let keys = [
        scratch.file("second", b"second"),
        scratch.file("third", b"third"),
    ];
    let _cleaner = Cleaner::new(scratch.path());
    let device = loop_over(image);
    let _open = std::fs::File::open(&device).unwrap();
    xtent()
        .args(["key", "test", "--key-file"])
        .args([key, &device])
        .ok();
    add_key(Shape::LUKS2.version, image, key, &keys[0]).ok();
    add_key(Shape::LUKS2.version, &device, key, &keys[1]).ok();
    for key in [key, &keys[0], &keys[1]] {
        for path in [image, &device] {
            assert_opens(path, key, true, "after keys were added by both");
        }
    }
}

/// Whatever uses the loop device would not know of another writer.
#[test]
fn an_image_under_a_loop_device_is_not_written_to() {
    let test = "an_image_under_a_loop_device_is_not_written_to";
    if !bed::has_loop(test) {
        return;
    }
    let scratch = Scratch::new();
    let container = Shape::LUKS2.image(Maker::Xtent, &scratch, 1 << 20);
    let (key, link) = (&container.key, scratch.join("link"));
    std::fs::hard_link(&container.image, &link).unwrap();
    let source = scratch.file("source", &[7; 512]);
    let other = Shape::LUKS1.image(Maker::Xtent, &scratch, 1 << 20);
    let _cleaner = Cleaner::new(scratch.path());
    let device = loop_over(&container.image);
    let unchanged = Unchanged::new(&container.image);
    for image in [&container.image, &link] {
        let refused = |cmd: Cmd| {
            cmd.fails(5)
                .says(&["is attached to", &device.to_string_lossy()]);
        };
        let encrypt = xtent().args(["encrypt", "--key-file"]);
        refused(encrypt.args([key, &source, image]));
        let decrypt = xtent().args(["decrypt", "--force", "--key-file"]);
        refused(decrypt.args([&other.key, &other.image, image]));
        let serve = xtent().args(["serve", "--run", "true", "--key-file"]);
        refused(serve.args([key, image]));
        let format = xtent().args(["format", "-q", "--overwrite-luks", "--key-file"]);
        refused(format.args([key, image]));
        // Reading disturbs nobody.
        let serve = xtent().args(["serve", "--read-only", "--run", "true", "--key-file"]);
        serve.args([key, image]).ok();
    }
    unchanged.assert("while a loop device has it");
    // Under its other name, once that is gone by which the kernel knows it.
    std::fs::remove_file(&container.image).unwrap();
    let serve = xtent().args(["serve", "--run", "true", "--key-file"]);
    serve.args([key, &link]).fails(5).says(&["is attached to"]);
}

#[test]
fn one_writer_or_many_readers() {
    let scratch = Scratch::new();
    let container = Shape::LUKS2.image(Maker::Xtent, &scratch, 1 << 20);
    let socket = scratch.join("second.sock");

    let server = Server::start(&container);
    let unchanged = Unchanged::new(&container.image);
    for options in [&[][..], &["--read-only"]] {
        Server::command(&container, &socket, options)
            .fails(5)
            .says(&["in use by `xtent serve`", "process"]);
    }
    let source = scratch.file("source", &[7; 512]);
    let target = scratch.join("target");
    xtent()
        .args(["encrypt", "--key-file"])
        .args([&container.key, &source, &container.image])
        .fails(5);
    xtent()
        .args(["decrypt", "--key-file"])
        .args([&container.key, &container.image, &target])
        .fails(5);
    xtent()
        .args(["format", "--batch-mode", "--key-file"])
        .arg(&container.key)
        .args(cheap(Pbkdf::Pbkdf2, 2))
        .arg(&container.image)
        .fails(5);
    assert!(!target.exists() && !socket.exists());
    unchanged.assert("refused while served");
    nbdsh(&server.uri, "h.pwrite(b'still there', 0)");
    server.stop();

    let readers = [
        Server::start_with(&container, &["--read-only"]),
        Server::start_with(&container, &["--read-only"]),
    ];
    for reader in &readers {
        assert_eq!(&read_all(&reader.uri)[..11], b"still there");
    }
    Server::command(&container, &socket, &[]).fails(5);
    for reader in readers {
        reader.stop();
    }
    // The lock dies with its holder, however that dies.
    let server = Server::start(&container);
    server.terminate(Signal::KILL);
    Server::start(&container).stop();
}

/// Many key changes by both commands at once: none is lost, the header stays
/// whole.
#[test]
fn concurrent_changes_are_serialised() {
    let scratch = Scratch::new();
    let container = Shape::LUKS2.image(Maker::Cryptsetup, &scratch, 4096);
    let keys: Vec<_> = (0..6)
        .map(|n| scratch.file(&format!("key{n}"), format!("key {n}").as_bytes()))
        .collect();
    std::thread::scope(|scope| {
        for (n, key) in keys.iter().enumerate() {
            let container = &container;
            scope.spawn(move || {
                let cost = cheap(Pbkdf::Pbkdf2, 2);
                if n % 2 == 0 {
                    add_key(2, &container.image, &container.key, key).ok();
                } else {
                    // It gives up when somebody else was quicker.
                    let done = Cmd::peer("cryptsetup")
                        .args(["luksAddKey", "--batch-mode"])
                        .args(["--key-slot", &(20 + n).to_string()])
                        .args(cost)
                        .arg("--key-file")
                        .args([&container.key, &container.image, key])
                        .run();
                    assert!(
                        done.status.success() || done.stderr.contains("concurrent"),
                        "{}",
                        done.text()
                    );
                }
            });
        }
    });
    for key in keys.iter().step_by(2) {
        assert_opens(&container.image, key, true, "added by xtent");
    }
    assert_opens(&container.image, &container.key, true, "the first");
}
