//! Another disk behind the same address after a lost connection.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod common;

use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Action, SHORT, SIZE, Server};
use xtent_nbd::NbdError;
use xtent_nbd::constants::*;
use xtent_store::{Access, AlignedBuffer, Operation, Store, Submitted, block_on, chain};
use xtent_upstream::{Identity, Options, Upstream};

/// Only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(60);
/// In no block of its own, so that parts of blocks are compared.
const AT: u64 = 8 * 512 + 168;
const NAME: &[u8] = b"the disk with this name";

fn named(server: &Server, name: &[u8]) {
    let mut disk = server.disk.lock().unwrap();
    let at = usize::try_from(AT).unwrap();
    disk.durable[at..at + name.len()].copy_from_slice(name);
}

fn open(server: &Server, options: Options) -> Upstream {
    let upstream = Upstream::open(&server.uri(), Access::ReadWrite, options).unwrap();
    upstream.identify(Identity {
        offset: AT,
        len: NAME.len(),
        check: Box::new(|found| match found == NAME {
            true => Ok(()),
            false => Err(format!("there is {:?}", String::from_utf8_lossy(found))),
        }),
    });
    upstream
}

fn patient() -> Options {
    Options {
        reconnect: PATIENCE,
        ..Options::default()
    }
}

fn write(upstream: &Upstream, offset: u64, durably: bool) -> Submitted {
    upstream.submit(Operation::Write {
        buffer: AlignedBuffer::zeroed(512).unwrap().into(),
        offset,
        durably,
    })
}

/// `server`, which was stopped, is replaced by `other` at its address.
fn replace(server: &Server, other: &Server) {
    let socket = |server: &Server| server.directory.path().join("s");
    symlink(socket(other), socket(server)).unwrap();
}

#[test]
fn nothing_is_written_to_another_disk() {
    for connections in [1, 4] {
        let server = Server::new(21, 512, Box::new(|_| Action::Serve));
        named(&server, NAME);
        let changes = std::sync::Arc::new(AtomicU64::new(0));
        let seen = std::sync::Arc::clone(&changes);
        let other = Server::new(
            22,
            512,
            Box::new(move |request| {
                if request.kind != CMD_READ {
                    seen.fetch_add(1, Ordering::SeqCst);
                }
                Action::Serve
            }),
        );
        named(&other, b"the disk with that name");
        let before = other.disk.lock().unwrap().durable.clone();
        let upstream = open(
            &server,
            Options {
                connections,
                ..patient()
            },
        );
        // Acknowledged and not flushed, so to be written again.
        upstream.write_at(&[1; 512], 0).unwrap();
        server.stop();
        let waiting: Vec<_> = (0..20_u64)
            .map(|n| write(&upstream, 512 * n, n % 2 == 0))
            .collect();
        replace(&server, &other);
        for submitted in waiting {
            let error = chain(&block_on(submitted).result.unwrap_err()).to_string();
            for words in [
                "another disk",
                "there is \"the disk with that name\"",
                "the right one",
            ] {
                assert!(error.contains(words), "{error}");
            }
        }
        // The right one is back too late: it does not know what was acknowledged.
        std::fs::remove_file(server.directory.path().join("s")).unwrap();
        server.start();
        for _ in 0..2 {
            let error = chain(&upstream.flush().unwrap_err()).to_string();
            assert!(error.contains("another disk"), "{error}");
            assert!(upstream.read_at(&mut [0; 512], 0).is_err());
        }
        other.crash();
        assert_eq!(changes.load(Ordering::SeqCst), 0);
        assert!(other.disk.lock().unwrap().durable == before);
    }
}

#[test]
fn the_same_disk_is_known_again() {
    let server = Server::new(23, 4096, Box::new(|_| Action::Serve));
    named(&server, NAME);
    let upstream = open(&server, patient());
    for round in 1..4 {
        upstream.write_at(&[round; 1 << 15], 1 << 16).unwrap();
        server.crash();
        upstream.flush().unwrap();
        assert!(server.disk.lock().unwrap().durable[1 << 16..][..1 << 15] == [round; 1 << 15]);
    }
}

/// Two servers at one address: each new connection may lead to either.
#[test]
fn every_connection_is_held_against_it() {
    let server = Server::new(24, 512, Box::new(|_| Action::Serve));
    named(&server, NAME);
    let other = Server::new(25, 512, Box::new(|_| Action::Serve));
    let upstream = open(
        &server,
        Options {
            connections: 2,
            ..patient()
        },
    );
    // Both are connected, then both are lost.
    while server.connections.load(Ordering::SeqCst) < 2 {
        std::thread::yield_now();
    }
    upstream.flush().unwrap();
    // The next connection is the right one; those after it are not.
    server.swap_after_next(&other);
    server.crash();
    upstream.write_at(&[3; 1 << 16], 0).unwrap();
    // Asked, and its answer used by the time that the last of many at once have been answered.
    let start = Instant::now();
    while other.requests.load(Ordering::SeqCst) < 1 {
        assert!(start.elapsed() < PATIENCE, "it was not asked");
        std::thread::yield_now();
    }
    for _ in 0..16 {
        let submitted: Vec<_> = (0..64_u64)
            .map(|n| write(&upstream, 512 * n, false))
            .collect();
        for submitted in submitted {
            block_on(submitted).result.unwrap();
        }
    }
    upstream.flush().unwrap();
    assert!(server.disk.lock().unwrap().durable[..1 << 15] == [0; 1 << 15]);
    assert_eq!(other.requests.load(Ordering::SeqCst), 1);
    other.crash();
    assert!(other.disk.lock().unwrap().durable == [0; SIZE]);
}

/// It may be the right one: it counts as gone, and as there once it can be asked.
#[test]
fn a_disk_that_cannot_be_asked_is_not_used() {
    let mute = std::sync::Arc::new(AtomicBool::new(true));
    let is_mute = std::sync::Arc::clone(&mute);
    let server = Server::new(
        26,
        512,
        Box::new(move |request| match request.kind {
            CMD_READ if is_mute.load(Ordering::SeqCst) => Action::Fail(NbdError::Io),
            _ => Action::Serve,
        }),
    );
    named(&server, NAME);
    let upstream = open(
        &server,
        Options {
            reconnect: SHORT,
            ..patient()
        },
    );
    upstream.write_at(&[1; 512], 0).unwrap();
    server.crash();
    let error = chain(&upstream.flush().unwrap_err()).to_string();
    assert!(error.contains("EIO: as ordered"), "{error}");
    mute.store(false, Ordering::SeqCst);
    while upstream.flush().is_err() {
        std::thread::yield_now();
    }
    assert!(server.disk.lock().unwrap().durable[..512] == [1; 512]);
}

/// Whoever comes while it is asked again and again is told in the end.
#[test]
fn requests_end_though_each_connection_is_lost_at_once() {
    let fault = |request: &xtent_nbd::Request| match request.kind {
        CMD_READ => Action::Fail(NbdError::Io),
        _ => Action::Serve,
    };
    let server = Server::new(27, 512, Box::new(fault));
    named(&server, NAME);
    let options = Options {
        reconnect: SHORT,
        ..patient()
    };
    let upstream = open(&server, options);
    let before = server.connections.load(Ordering::SeqCst);
    server.crash();
    // It is noticed before anything is wanted.
    while server.connections.load(Ordering::SeqCst) == before {
        std::thread::yield_now();
    }
    for _ in 0..2 {
        let error = chain(&upstream.flush().unwrap_err()).to_string();
        assert!(error.contains("EIO: as ordered"), "{error}");
    }
}
