//! Servers that are gone for longer, or come back as something else.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod common;

use std::time::{Duration, Instant};

use common::{Action, SHORT, SIZE, Server};
use xtent_nbd::constants::*;
use xtent_store::{Access, AlignedBuffer, ErrorKind, Operation, Store, Submitted, block_on, chain};
use xtent_upstream::{Options, Upstream};

/// Only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

fn open(server: &Server, options: Options) -> Upstream {
    Upstream::open(&server.uri(), Access::ReadWrite, options).unwrap()
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

#[test]
fn requests_fail_when_the_connection_stays_lost_and_work_when_it_is_back() {
    let server = Server::new(7, 512, Box::new(|_| Action::Serve));
    let upstream = open(
        &server,
        Options {
            reconnect: SHORT,
            ..patient()
        },
    );
    upstream.write_at(&[9; 512], 0).unwrap();
    server.stop();
    server.disk.lock().unwrap().crash();
    let waiting: Vec<_> = (0..20_u64)
        .map(|n| write(&upstream, 512 * (8 + n), false))
        .collect();
    for submitted in waiting {
        let error = block_on(submitted).result.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Io);
        assert!(
            chain(&error)
                .to_string()
                .contains("no connection for 0.3 seconds: "),
            "{}",
            chain(&error)
        );
    }
    assert!(upstream.flush().is_err());
    server.start();
    // The first ones fail at once, and make it try.
    let start = Instant::now();
    while upstream.read_at(&mut [0; 512], 0).is_err() {
        assert!(start.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
    upstream.flush().unwrap();
    assert!(server.disk.lock().unwrap().durable[..512] == [9; 512]);
}

#[test]
fn another_export_in_its_place_is_not_used() {
    let server = Server::new(8, 512, Box::new(|_| Action::Serve));
    let other = Server::new(8, 4096, Box::new(|_| Action::Serve));
    let upstream = open(&server, patient());
    upstream.write_at(&[1; 512], 0).unwrap();
    server.stop();
    std::os::unix::fs::symlink(
        other.directory.path().join("s"),
        server.directory.path().join("s"),
    )
    .unwrap();
    for _ in 0..2 {
        let error = upstream.flush().unwrap_err();
        assert!(
            chain(&error).to_string().contains("not the same any more"),
            "{}",
            chain(&error)
        );
    }
    assert!(
        other.disk.lock().unwrap().durable[..SIZE]
            .iter()
            .all(|byte| *byte == 0)
    );
}

/// What is under way when the store is dropped ends, by failing.
#[test]
fn dropped_with_requests_under_way_it_ends() {
    let server = Server::new(9, 512, Box::new(|_| Action::Serve));
    let upstream = open(&server, patient());
    server.stop();
    let submitted: Vec<_> = (0..50_u64)
        .map(|n| write(&upstream, 512 * n, n % 2 == 0))
        .collect();
    drop(upstream);
    for submitted in submitted {
        assert!(block_on(submitted).result.is_err());
    }
}

/// It takes every request, and connections too, and answers none.
#[test]
fn a_server_that_is_silent_is_lost_and_its_requests_fail() {
    for silent in [CMD_WRITE, CMD_FLUSH, CMD_READ] {
        let fault = move |request: &xtent_nbd::Request| match request.kind == silent {
            true => Action::Silent,
            false => Action::Serve,
        };
        let server = Server::new(11, 512, Box::new(fault));
        let upstream = open(
            &server,
            Options {
                connections: 1,
                silence: SHORT,
                reconnect: SHORT / 4,
                ..patient()
            },
        );
        let submitted = match silent {
            CMD_READ => upstream.submit(Operation::Read {
                buffer: AlignedBuffer::zeroed(512).unwrap().into(),
                offset: 0,
            }),
            CMD_WRITE => write(&upstream, 0, false),
            _ => upstream.submit(Operation::Flush),
        };
        let error = chain(&block_on(submitted).result.unwrap_err()).to_string();
        assert!(error.contains("not answered for 0.3 seconds"), "{error}");
        assert!(server.connections.load(std::sync::atomic::Ordering::SeqCst) > 1);
        while upstream.waiting().is_some() {
            std::thread::yield_now();
        }
    }
}

/// Whoever is asked to end can say what it waits for.
#[test]
fn what_is_waited_for_is_told() {
    let server = Server::new(12, 512, Box::new(|_| Action::Serve));
    let upstream = open(&server, patient());
    upstream.write_at(&[1; 512], 0).unwrap();
    assert_eq!(upstream.waiting(), None);
    server.stop();
    let flush = upstream.submit(Operation::Flush);
    let lost = loop {
        match upstream.waiting() {
            Some(waiting) if waiting.why.contains("was lost: ") => break waiting,
            _ => std::thread::yield_now(),
        }
    };
    assert!(lost.at_most <= PATIENCE);
    server.start();
    block_on(flush).result.unwrap();
    assert_eq!(upstream.waiting(), None);
}
