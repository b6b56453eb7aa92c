//! Several gateways of one volume: one serves, the next waits for it.
#![allow(clippy::unwrap_used, reason = "tests")]

mod clients;
mod gateway;
mod load;
mod stopped;

use std::path::PathBuf;

use rustix::process::Signal;
use xtent_tests::ceph::Bed;
use xtent_tests::luks::{Container, KEY, Maker, OTHER_KEY, Shape, add_key};
use xtent_tests::nbd::nbdsh;
use xtent_tests::scratch::Unchanged;
use xtent_tests::xtent::{Server, xtent};
use xtent_tests::{Cmd, Scratch};

use gateway::Standby;

/// A container in a file, of `size` bytes of data.
fn container(scratch: &Scratch, size: u64) -> Container {
    Shape::LUKS2.image(Maker::Xtent, scratch, size)
}

/// The same in an image of the cluster.
fn image(bed: &Bed, scratch: &Scratch, name: &str, size: u64) -> Container {
    let key = scratch.file("key", KEY);
    let shape = Shape::LUKS2_4096;
    let container = bed.container(name, shape.data_offset() + size, &key);
    shape.format(Maker::Xtent, &container.image, &key);
    container
}

#[test]
fn a_standby_asks_first_and_serves_when_the_first_is_gone() {
    let scratch = Scratch::new();
    let container = container(&scratch, 1 << 20);
    let server = Server::start(&container);
    let mut standby = Standby::start(&container, &scratch, "standby");
    standby
        .take_over()
        .fails(1)
        .says(&["cannot be taken over by force", "End the other server"]);
    let who = format!("process {}", server.id());
    assert!(standby.said().contains(&who), "{}", standby.said());
    assert!(!standby.socket.exists(), "it listens already");
    let listed = || {
        let status = xtent()
            .args(["status", "--json"])
            .arg(&container.image)
            .run();
        let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
        let volumes = status["volumes"].as_array().unwrap().iter();
        let kind = |volume: &serde_json::Value| volume["kind"].as_str().unwrap().to_owned();
        let mut kinds: Vec<String> = volumes.map(kind).collect();
        kinds.sort();
        kinds
    };
    assert_eq!(listed(), ["server", "standby"]);
    // It has the key already, and knows the volume by that when all passphrases are others.
    let other = scratch.file("other", OTHER_KEY);
    add_key(2, &container.image, &container.key, &other).ok();
    Cmd::peer("cryptsetup")
        .args(["luksRemoveKey", "--batch-mode"])
        .args([&container.image, &container.key])
        .ok();
    nbdsh(&server.uri, "h.pwrite(b'kept' * 1024, 4096)\nh.flush()");
    server.terminate(Signal::KILL);
    let uri = standby.serves();
    nbdsh(
        &uri,
        "assert h.pread(4096, 4096) == b'kept' * 1024\nh.pwrite(b'next' * 1024, 0)",
    );
    standby.end();
    let container = Container {
        key: other,
        ..container
    };
    assert_eq!(&container.decrypt()[..4], b"next");
}

#[test]
fn a_standby_serves_no_other_volume_than_the_one_it_was_told_of() {
    let scratch = Scratch::new();
    let container = container(&scratch, 1 << 20);
    let server = Server::start(&container);
    let mut standby = Standby::start(&container, &scratch, "standby");
    // Whoever formats it anew has to overlook that it is served: here it is put in its place.
    let other = Scratch::new();
    let new = self::container(&other, 1 << 20);
    std::fs::copy(&new.image, scratch.join("new")).unwrap();
    std::fs::rename(scratch.join("new"), &container.image).unwrap();
    let unchanged = Unchanged::new(&container.image);
    standby.wait_to_hear("its key or layout is another");
    assert_eq!(standby.process.finish().code(), Some(4));
    unchanged.assert("another volume");
    server.stop();
}

#[test]
fn a_standby_ends_at_once_and_is_refused_where_nothing_is_locked() {
    let scratch = Scratch::new();
    let container = container(&scratch, 1 << 20);
    let server = Server::start(&container);
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let standby = Standby::start(&container, &scratch, "standby");
        standby.process.signal(signal);
        assert_eq!(standby.process.finish().code(), Some(code));
    }
    // A wrong passphrase is told at once, not after years.
    let wrong = Container {
        key: scratch.file("wrong", OTHER_KEY),
        image: container.image.clone(),
    };
    Server::command(&wrong, &scratch.join("s"), &["--standby"]).fails(2);
    let far = Container {
        key: container.key.clone(),
        image: PathBuf::from(server.uri.clone()),
    };
    Server::command(&far, &scratch.join("s"), &["--standby"])
        .fails(1)
        .says(&["NBD server", "--standby"]);
    server.stop();
}
