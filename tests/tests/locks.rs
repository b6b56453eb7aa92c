//! Xtent and cryptsetup on the same container at the same time.
#![allow(clippy::unwrap_used, reason = "tests")]

use rustix::process::Signal;
use xtent_tests::luks::{Maker, OTHER_KEY, Pbkdf, Shape, add_key, assert_opens, cheap};
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
