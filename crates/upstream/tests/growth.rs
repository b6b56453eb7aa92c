//! An export that becomes larger while it is in use.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{Action, SHORT, SIZE, Server};
use xtent_nbd::constants::*;
use xtent_store::{Access, AlignedBuffer, Operation, Store, Submitted, block_on, chain};
use xtent_upstream::{Identity, Options, Upstream};

/// Only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

fn open(server: &Server, connections: usize) -> Upstream {
    let options = Options {
        reconnect: PATIENCE,
        look: PATIENCE,
        connections,
        ..Options::default()
    };
    Upstream::open(&server.uri(), Access::ReadWrite, options).unwrap()
}

fn write(upstream: &Upstream, offset: usize, value: u8) -> Submitted {
    let mut buffer = AlignedBuffer::zeroed(512).unwrap();
    buffer.fill(value);
    upstream.submit(Operation::Write {
        buffer: buffer.into(),
        offset: offset as u64,
        durably: false,
    })
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::yield_now();
    }
}

fn look_fails(upstream: &Upstream, words: &[&str]) {
    let size = upstream.size();
    let error = chain(&upstream.look_at_size().unwrap_err()).to_string();
    for word in words {
        assert!(error.contains(word), "{error}");
    }
    assert_eq!(upstream.size(), size);
}

#[test]
fn it_is_noticed_while_it_is_in_use() {
    for connections in [1, 4] {
        let server = Server::new(41, 512, Box::new(|_| Action::Serve));
        let upstream = open(&server, connections);
        assert_eq!(upstream.look_at_size().unwrap(), SIZE as u64);
        for round in 2..6_u8 {
            let size = usize::from(round) * SIZE;
            // Not flushed by anybody.
            upstream.write_at(&[round; 4096], 4096).unwrap();
            let writes: Vec<_> = (0..64)
                .map(|n| write(&upstream, 512 * n + 16384, round))
                .collect();
            server.grow(size);
            assert_eq!(upstream.look_at_size().unwrap(), size as u64);
            // The old connections had nothing to lose.
            assert!(server.disk.lock().unwrap().durable[4096..8192] == [round; 4096]);
            for write in writes {
                block_on(write).result.unwrap();
            }
            upstream
                .write_at_durably(&[round; 4096], (size - 4096) as u64)
                .unwrap();
            let disk = server.disk.lock().unwrap();
            assert!(disk.durable[size - 4096..] == [round; 4096]);
            assert!(disk.durable[4096..8192] == [round; 4096]);
        }
        upstream.flush().unwrap();
        server.disk.lock().unwrap().crash();
        assert!(server.disk.lock().unwrap().durable[16384..][..64 * 512] == [5; 64 * 512]);
        // One for each look, which becomes the first of the others.
        let made = server.connections.load(Ordering::SeqCst);
        assert!(made >= 6, "{made}");
        assert!(connections > 1 || made == 6, "{made}");
    }
}

/// It would let the store have a size that the others do not have.
#[test]
fn a_later_connection_of_another_size_does_not_join() {
    let server = Server::new(42, 512, Box::new(|_| Action::Serve));
    server.grow_after_next(2 * SIZE);
    let upstream = open(&server, 2);
    until("the second connection is given up", || {
        server.ended.load(Ordering::SeqCst) == 1
    });
    assert_eq!(upstream.size(), SIZE as u64);
    assert!(write_fails(&upstream, SIZE));
    // All of the size that the first one has.
    for _ in 0..16 {
        let writes: Vec<_> = (0..64).map(|n| write(&upstream, 512 * n, 7)).collect();
        for write in writes {
            block_on(write).result.unwrap();
        }
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), 2);
    // And once it is looked at, both are there.
    assert_eq!(upstream.look_at_size().unwrap(), 2 * SIZE as u64);
    until("both are made anew", || {
        server.connections.load(Ordering::SeqCst) == 4 && server.ended.load(Ordering::SeqCst) == 2
    });
    block_on(write(&upstream, SIZE, 7)).result.unwrap();
}

fn write_fails(upstream: &Upstream, offset: usize) -> bool {
    block_on(write(upstream, offset, 1)).result.is_err()
}

#[test]
fn what_is_no_growth_is_not_taken() {
    const AT: usize = 8192;
    let server = Server::new(43, 512, Box::new(|_| Action::Serve));
    server.disk.lock().unwrap().durable[AT..AT + 4].copy_from_slice(b"this");
    let upstream = open(&server, 4);
    upstream.identify(Identity {
        offset: AT as u64,
        len: 4,
        check: Box::new(|found| match found == b"this" {
            true => Ok(()),
            false => Err(format!("there is {:?}", String::from_utf8_lossy(found))),
        }),
    });
    upstream.write_at(&[1; 512], 0).unwrap();
    server.say(SIZE / 2);
    look_fails(
        &upstream,
        &["look at the size", "had 1048576 bytes and has 524288"],
    );
    // Larger, and another.
    server.disk.lock().unwrap().durable[AT..AT + 4].copy_from_slice(b"that");
    server.grow(2 * SIZE);
    look_fails(&upstream, &["another disk", "there is \"that\""]);
    // The connections that there are go on, and know nothing of it.
    upstream.write_at(&[2; 512], 512).unwrap();
    upstream.flush().unwrap();
    server.disk.lock().unwrap().durable[AT..AT + 4].copy_from_slice(b"this");
    assert_eq!(upstream.look_at_size().unwrap(), 2 * SIZE as u64);
    // Nobody is there to ask.
    server.stop();
    look_fails(&upstream, &["no further connection"]);
    server.start();
    assert_eq!(upstream.look_at_size().unwrap(), 2 * SIZE as u64);
    upstream.flush().unwrap();
}

/// What was asked before has no answer: then what came meanwhile goes on without the new size.
#[test]
fn requests_do_not_wait_for_it_without_end() {
    let mute = Arc::new(AtomicBool::new(true));
    let is_mute = Arc::clone(&mute);
    let server = Server::new(
        44,
        512,
        Box::new(move |request| match request.kind {
            CMD_READ if is_mute.load(Ordering::SeqCst) => Action::Silent,
            _ => Action::Serve,
        }),
    );
    let options = Options {
        look: SHORT,
        ..Options::default()
    };
    let upstream = Upstream::open(&server.uri(), Access::ReadWrite, options).unwrap();
    let unanswered = upstream.submit(Operation::Read {
        buffer: AlignedBuffer::zeroed(512).unwrap().into(),
        offset: 0,
    });
    server.grow(2 * SIZE);
    std::thread::scope(|scope| {
        let look = scope.spawn(|| look_fails(&upstream, &["0.3 seconds"]));
        // Before the look or in it.
        while !look.is_finished() {
            upstream.write_at(&[3; 512], 512).unwrap();
        }
        look.join().unwrap();
    });
    upstream.write_at(&[3; 512], 512).unwrap();
    upstream.flush().unwrap();
    mute.store(false, Ordering::SeqCst);
    server.crash();
    block_on(unanswered).result.unwrap();
    assert_eq!(upstream.size(), 2 * SIZE as u64);
}

/// Connections are given up while all is well: that takes none of the patience with lost ones.
#[test]
fn it_fails_nothing_without_patience_for_lost_connections() {
    for (seed, is_shared) in [(45, true), (46, false)] {
        let server = Server::new(seed, 512, Box::new(|_| Action::Serve));
        if !is_shared {
            server.shares_nothing();
        }
        let upstream = impatient(&server);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    upstream.write_at(&[4; 512], 512).unwrap();
                }
            });
            for round in 2..6 {
                server.grow(round * SIZE);
                assert_eq!(upstream.look_at_size().unwrap(), (round * SIZE) as u64);
            }
            is_over.store(true, Ordering::SeqCst);
            writer.join().unwrap();
        });
        upstream.flush().unwrap();
        // Where they share nothing, the connection of a look is none to go on with.
        let made = 1 + 4 * if is_shared { 1 } else { 2 };
        assert_eq!(server.connections.load(Ordering::SeqCst), made);
    }
}

#[test]
fn a_server_that_takes_the_look_and_no_other_loses_nothing() {
    let server = Server::new(47, 512, Box::new(|_| Action::Serve));
    let upstream = impatient(&server);
    upstream.write_at(&[5; 512], 512).unwrap();
    server.grow(2 * SIZE);
    // It is gone once this has been said.
    server.swap_after_next(&Server::new(48, 512, Box::new(|_| Action::Serve)));
    assert_eq!(upstream.look_at_size().unwrap(), 2 * SIZE as u64);
    upstream.write_at(&[5; 512], SIZE as u64).unwrap();
    upstream.flush().unwrap();
    assert!(server.disk.lock().unwrap().durable[512..1024] == [5; 512]);
    assert_eq!(server.connections.load(Ordering::SeqCst), 2);
}

/// Whoever asks second is told as soon as whoever asks first.
#[test]
fn a_look_waits_for_another_no_longer_than_for_the_server() {
    let server = Server::new(49, 512, Box::new(|_| Action::Serve));
    let options = Options {
        look: SHORT,
        ..Options::default()
    };
    let upstream = Upstream::open(&server.uri(), Access::ReadWrite, options).unwrap();
    server.hold_off();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..100 {
            scope.spawn(|| {
                let begun = Instant::now();
                look_fails(&upstream, &[]);
                assert!(begun.elapsed() >= SHORT);
            });
        }
    });
    // One after the other they would take 100 times as long.
    assert!(begun.elapsed() < 50 * SHORT);
    look_fails(
        &upstream,
        &["no further connection", "no more clients than it has"],
    );
}

/// Whoever closes the store waits neither for the server nor for its answers.
#[test]
fn a_look_ends_with_the_store() {
    let server = Server::new(50, 512, Box::new(|_| Action::Serve));
    let upstream = open(&server, 1);
    server.grow(2 * SIZE);
    server.hold_off();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| look_fails(&upstream, &["it is being closed"]));
        }
        until("somebody asks", || {
            server.connections.load(Ordering::SeqCst) == 2
        });
        upstream.stop_looking();
    });
    // What is there goes on to the end.
    upstream.write_at(&[6; 512], 512).unwrap();
    upstream.flush().unwrap();
    look_fails(&upstream, &["it is being closed"]);
    assert_eq!(server.connections.load(Ordering::SeqCst), 2);
}

#[test]
fn connections_are_not_made_anew_for_a_store_that_is_closed() {
    let server = Server::new(
        51,
        512,
        Box::new(|request| match request.kind {
            CMD_READ => Action::Silent,
            _ => Action::Serve,
        }),
    );
    let upstream = open(&server, 1);
    let unanswered = upstream.submit(Operation::Read {
        buffer: AlignedBuffer::zeroed(512).unwrap().into(),
        offset: 0,
    });
    server.grow(2 * SIZE);
    std::thread::scope(|scope| {
        let look = scope.spawn(|| look_fails(&upstream, &["it is being closed"]));
        until("it is asked for", || {
            server.connections.load(Ordering::SeqCst) == 2
        });
        upstream.stop_looking();
        look.join().unwrap();
        upstream.write_at(&[6; 512], 512).unwrap();
        upstream.flush().unwrap();
    });
    drop(upstream);
    assert!(block_on(unanswered).result.is_err());
    until("both have ended", || {
        server.ended.load(Ordering::SeqCst) == 2
    });
    assert_eq!(server.connections.load(Ordering::SeqCst), 2);
}

/// Requests fail with the first connection that is lost.
fn impatient(server: &Server) -> Upstream {
    let options = Options {
        reconnect: Duration::ZERO,
        look: PATIENCE,
        connections: 1,
        ..Options::default()
    };
    Upstream::open(&server.uri(), Access::ReadWrite, options).unwrap()
}
