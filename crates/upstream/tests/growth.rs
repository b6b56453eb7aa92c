//! Exports that grow while they are in use.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod common;

use std::sync::atomic::Ordering;

use common::{Action, SIZE, Server};
use xtent_store::{Access, AlignedBuffer, Completed, Operation, Store, Submitted, block_on, chain};
use xtent_upstream::{Options, Upstream};

fn open(server: &Server) -> Upstream {
    Upstream::open(&server.uri(), Access::ReadWrite, Options::default()).unwrap()
}

fn write(upstream: &Upstream, offset: usize, byte: u8) -> Submitted {
    let mut buffer = AlignedBuffer::zeroed(512).unwrap();
    buffer.fill(byte);
    upstream.submit(Operation::Write {
        buffer: buffer.into(),
        offset: offset as u64,
        durably: false,
    })
}

#[test]
fn what_has_grown_is_there_and_nothing_that_was_written_is_lost() {
    let server = Server::new(11, 512, Box::new(|_| Action::Serve));
    let upstream = open(&server);
    upstream.look_at_size().unwrap();
    assert_eq!(upstream.size(), SIZE as u64);
    let used = server.connections.load(Ordering::SeqCst);
    for round in 1..=4_u8 {
        let size = SIZE + usize::from(round) * 4096;
        // Some are answered, and in a cache; others are under way.
        let submitted: Vec<_> = (0..64).map(|n| write(&upstream, n * 512, round)).collect();
        server.disk.lock().unwrap().grow(size);
        assert_eq!(upstream.size(), size as u64 - 4096, "nobody has looked");
        assert!(upstream.read_at(&mut [0; 512], size as u64 - 512).is_err());
        std::thread::scope(|scope| {
            // Two at once find the same.
            let other = scope.spawn(|| upstream.look_at_size());
            upstream.look_at_size().unwrap();
            other.join().unwrap().unwrap();
        });
        assert_eq!(upstream.size(), size as u64);
        for Completed { result, .. } in submitted.into_iter().map(block_on) {
            result.unwrap();
        }
        block_on(write(&upstream, size - 512, 0x55)).result.unwrap();
        upstream.flush().unwrap();
        let disk = server.disk.lock().unwrap();
        assert!(disk.durable[..64 * 512].iter().all(|b| *b == round));
        assert!(disk.durable[size - 512..].iter().all(|b| *b == 0x55));
    }
    assert!(server.connections.load(Ordering::SeqCst) > used + 4);
}

#[test]
fn a_smaller_export_stays_in_use_as_it_was() {
    let server = Server::new(12, 512, Box::new(|_| Action::Serve));
    let upstream = open(&server);
    server.disk.lock().unwrap().durable.truncate(SIZE / 2);
    let error = upstream.look_at_size().unwrap_err();
    assert!(
        chain(&error).to_string().contains("not the same"),
        "{}",
        chain(&error)
    );
    assert_eq!(upstream.size(), SIZE as u64);
    upstream.read_at(&mut [0; 512], 0).unwrap();
    // Nor is one that cannot be asked.
    server.stop();
    assert!(upstream.look_at_size().is_err());
}
