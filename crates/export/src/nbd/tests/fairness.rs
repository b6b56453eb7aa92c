//! What one client asks for and another one waits for, counted in what the store
//! is asked to do.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;

use super::client::{Rig, SIZE, SlowStore, export, handshake, header, volume};
use super::{Options, PATIENT, QUICK};
use crate::Shutdown;
use crate::nbd::Exports;
use crate::nbd::connection::{self, MAX_IN_FLIGHT, Shared};
use crate::nbd::link::Link;
use crate::nbd::proto::constants::*;

/// Writes of the store in a piece of zeros.
const WRITES: u64 = (4 << 20) / (256 << 10);

/// Thousands of requests for zeros fit into one message. Another client's
/// flush, and what its FUA write waits for, come after two pieces at most: the
/// one under way, and the other connection's turn.
#[test]
fn a_burst_of_zeros_does_not_hold_up_others() {
    let options = Options {
        workers: 1,
        ..Options::default()
    };
    for fua in [false, true] {
        let rig = Rig::with(options.clone(), QUICK);
        let (mut greedy, mut client) = (rig.connect("", true), rig.connect("", true));
        rig.store.stop_writes(true);
        let burst: Vec<u8> = (0..600)
            .flat_map(|cookie| header(CMD_WRITE_ZEROES, 0, cookie, 0, SIZE - 8192))
            .collect();
        greedy.send(&burst);
        rig.store.await_waiting(1);
        if fua {
            client.send(&header(CMD_WRITE, CMD_FLAG_FUA, 1, SIZE as u64 - 4096, 512));
            client.send(&[7; 512]);
        } else {
            client.send(&header(CMD_FLUSH, 0, 1, 0, 0));
        }
        // Answered at once, so by then the request before it is with the worker.
        client.send(&header(CMD_READ, 0, 2, SIZE as u64 - 512, 512));
        assert_eq!(client.chunks(2).len(), 1);
        rig.store.stop_writes(false);
        let reply = client.message();
        assert_eq!((reply.cookie(), reply.error()), (1, 0));
        let before = rig.store.writes_before_flush();
        assert!(before <= 2 * WRITES + 1, "{before} writes, fua: {fua}");
        drop((greedy, client));
        rig.stop().unwrap();
    }
}

/// A connection whose jobs nobody works at yet: the one thread there is waits for the test.
struct Bench {
    shared: Shared,
    link: Arc<Link>,
    store: Arc<SlowStore>,
}

impl Bench {
    fn new() -> (Self, UnixStream) {
        let store = SlowStore::new();
        let (client, ours) = UnixStream::pair().unwrap();
        let exports = Exports::new();
        exports.set_memory(8 << 20);
        exports
            .add(export("", &volume(Arc::clone(&store) as _, false)))
            .unwrap();
        let shared = Shared {
            exports,
            workers: 1,
            tls: None,
            shutdown: Shutdown::new().unwrap(),
            timeouts: PATIENT,
        };
        let link = Arc::new(Link::new(0, ours.into()).unwrap());
        let bench = Self {
            shared,
            link,
            store,
        };
        (bench, client)
    }

    fn await_link(&self, wanted: impl Fn(&Link) -> bool) {
        while !wanted(&self.link) {
            thread::yield_now();
        }
    }
}

/// Into transmission, with simple replies.
fn greet(client: &mut UnixStream) {
    client.write_all(&handshake("", false)).unwrap();
    client.read_exact(&mut [0; 18 + 32 + 20]).unwrap();
}

#[test]
fn of_what_was_received_together_so_much_is_in_flight() {
    const COUNT: usize = 3 * MAX_IN_FLIGHT;
    let (bench, mut client) = Bench::new();
    thread::scope(|scope| {
        scope.spawn(|| connection::serve(&bench.shared, &bench.link));
        greet(&mut client);
        bench.store.stop_flushes(true);
        client
            .write_all(&header(CMD_FLUSH, 0, 1, 0, 0).repeat(COUNT))
            .unwrap();
        bench.await_link(|link| link.outbox().is_awaiting_jobs());
        assert_eq!(bench.link.outbox().in_flight(), MAX_IN_FLIGHT);
        bench.store.stop_flushes(false);
        client.read_exact(&mut [0; 16 * COUNT]).unwrap();
        assert_eq!(bench.store.flushes(), COUNT as u64);
        drop(client);
    });
}

#[test]
fn for_a_client_that_is_gone_only_its_data_is_written() {
    let (bench, mut client) = Bench::new();
    thread::scope(|scope| {
        scope.spawn(|| connection::serve(&bench.shared, &bench.link));
        greet(&mut client);
        bench.store.stop_flushes(true);
        client.write_all(&header(CMD_FLUSH, 0, 0, 0, 0)).unwrap();
        bench.store.await_waiting(1);
        client
            .write_all(&header(CMD_WRITE_ZEROES, 0, 1, 0, 40 << 20).repeat(10))
            .unwrap();
        client
            .write_all(&header(CMD_WRITE, CMD_FLAG_FUA, 2, 0, 512))
            .unwrap();
        client.write_all(&[7; 512]).unwrap();
        bench.await_link(|link| link.outbox().jobs() == 12);
        drop(client);
        bench.await_link(|link| link.outbox().is_broken());
        bench.store.stop_flushes(false);
    });
    let writes = bench.store.inner.inner().writes();
    // The flush that was under way, and the one of the write.
    assert_eq!((writes, bench.store.flushes()), (1, 2));
    assert_eq!(bench.link.outbox().jobs(), 0);
}

/// The pieces of one request become durable together.
#[test]
fn zeros_with_fua_are_flushed_once() {
    let rig = Rig::new();
    let mut client = rig.connect("", true);
    let before = rig.store.flushes();
    let error = client.command(CMD_WRITE_ZEROES, CMD_FLAG_FUA, 512, 40 << 20);
    assert_eq!((error, rig.store.flushes()), (0, before + 1));
    rig.stop().unwrap();
}
