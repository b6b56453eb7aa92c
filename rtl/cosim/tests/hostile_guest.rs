//! Guests that send what no guest should: they are cut off, nothing is written where it should not
//! be, and the next is served.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use common::guest::{
    BASE, Guest, MESSAGES, OWN, QUEUE_SIZE, VERSION, message, pipe, places, region, send, words,
};
use common::{MEMORY, Simulator, noise};
use xtent_engine_sim::registers::*;

/// The device is there, for a guest that behaves.
fn check(simulator: &mut Simulator, timed: bool) {
    assert!(simulator.is_running());
    assert_eq!(Guest::ready(simulator, timed).read(REG_ID), ID);
}

/// A connection ends: without an answer, or after one that is no success.
fn cut_off(guest: &mut Guest, request: u32, body: &[u8], files: &[BorrowedFd<'_>]) {
    assert!(
        !guest.try_tell(request, body, files),
        "message {request} of {body:02x?}"
    );
}

#[test]
fn messages_that_are_none() {
    let mut simulator = Simulator::start_for_guest("xts", &[], false);
    let long = 0_u64.to_le_bytes();
    for (request, flags, body) in [
        (0, VERSION, &[][..]),
        (34, VERSION, &[]),
        (u32::MAX, VERSION, &[]),
        (1, 0, &[]),
        (1, 2, &[]),
        (1, VERSION | 4, &[]),
        (1, u32::MAX, &[]),
        (2, VERSION, &[0; 7]),
        (2, VERSION, &[0xff; 8]),
        (16, VERSION, &[0xff; 8]),
        (12, VERSION, &long),
        (13, VERSION, &long),
        (21, VERSION, &[]),
        (18, VERSION, &[0, 0, 0, 0, 1, 0, 0, 0]),
        (5, VERSION, &[0xff; 8]),
        (5, VERSION, &[1, 0, 0, 0, 0, 0, 0, 0]),
    ] {
        let mut guest = Guest::raw(&simulator, false);
        send(&guest.stream, &message(request, flags, body), &[]);
        cut_off(&mut guest, 3, &[], &[]);
    }
    // Too long; announced, and not sent; too many files.
    let mut guest = Guest::raw(&simulator, false);
    send(&guest.stream, &words([3, VERSION, u32::MAX]), &[]);
    cut_off(&mut guest, 3, &[], &[]);
    let guest = Guest::raw(&simulator, false);
    send(&guest.stream, &words([3, VERSION, 100]), &[]);
    drop(guest);
    let mut guest = Guest::raw(&simulator, false);
    let file = tempfile::tempfile().unwrap();
    send(&guest.stream, &message(3, VERSION, &[]), &[file.as_fd(); 9]);
    cut_off(&mut guest, 3, &[], &[]);
    check(&mut simulator, false);
}

#[test]
fn queues_that_cannot_be() {
    let mut simulator = Simulator::start_for_guest("xts", &[], false);
    for (request, body) in [
        (8, words([2, 16])),
        (8, words([0, 0])),
        (8, words([0, 3])),
        (8, words([0, 2048])),
        (8, words([0, u32::MAX])),
        (10, words([0, 0x1_0000])),
        (11, words([2, 0])),
        (18, words([2, 1])),
        (35, words([u32::MAX, 0])),
        (9, words([0])),
    ] {
        let mut guest = Guest::new(&simulator, false);
        cut_off(&mut guest, request, &body, &[]);
    }
    // Beyond the memory, below it, not aligned.
    for (at, place) in [
        (8, OWN + MEMORY),
        (16, OWN - 16),
        (24, u64::MAX),
        (8, OWN + 8),
        (16, OWN + 2),
        (24, OWN + 1),
    ] {
        let mut guest = Guest::new(&simulator, false);
        let mut body = places(0);
        body[at..at + 8].copy_from_slice(&u64::to_le_bytes(place));
        cut_off(&mut guest, 9, &body, &[]);
    }
    // Half of it is beyond the memory.
    for part in 0..3 {
        let mut guest = Guest::new(&simulator, false);
        let mut body = places(0);
        let place = OWN + MEMORY - 16;
        body[8 + 8 * part..][..8].copy_from_slice(&place.to_le_bytes());
        guest.tell(9, &body, &[]);
        if part == 0 {
            guest.offer(0, 1);
        } else {
            // What is available is what the memory's end says.
            guest.put(MEMORY - 16, &[0, 0, 15, 0]);
            guest.chain(0, 0, &[(BASE + MESSAGES, 16, false)]);
        }
        guest.put(MESSAGES, &[1, 0, 0, 0, 4]);
        cut_off(&mut guest, 35, &words([0, 0]), &[]);
    }
    check(&mut simulator, false);
}

#[test]
fn memory_that_cannot_be_shown() {
    let mut simulator = Simulator::start_for_guest("xts", &[], false);
    let file = tempfile::tempfile().unwrap();
    let (pipe, folder) = (pipe(), File::open("/").unwrap());
    let named = tempfile::NamedTempFile::new().unwrap();
    let appends = File::options()
        .read(true)
        .append(true)
        .open(named.path())
        .unwrap();
    let fd = file.as_fd();
    for (count, regions, files) in [
        (1, region(0, 0, OWN, 0), vec![fd]),
        (1, region(u64::MAX, 2, OWN, 0), vec![fd]),
        (1, region(0, 2, OWN, u64::MAX), vec![fd]),
        (1, region(0, 4096, OWN, 0), vec![]),
        (1, region(0, 4096, OWN, 0), vec![fd, fd]),
        (1, region(0, 4096, OWN, 0), vec![pipe.as_fd()]),
        (1, region(0, 4096, OWN, 0), vec![folder.as_fd()]),
        (1, region(0, 4096, OWN, 0), vec![appends.as_fd()]),
        (2, region(0, 4096, OWN, 0), vec![fd, fd]),
        (2, region(0, 4096, OWN, 0).repeat(2), vec![fd, fd]),
        (9, region(0, 4096, OWN, 0).repeat(9), vec![fd]),
        (u32::MAX, region(0, 4096, OWN, 0), vec![fd]),
    ] {
        let mut guest = Guest::raw(&simulator, false);
        let body = [words([count, 0]), regions].concat();
        cut_off(&mut guest, 5, &body, &files);
    }
    // A memory that goes away.
    let mut guest = Guest::ready(&simulator, false);
    guest.memory.set_len(0).unwrap();
    cut_off(&mut guest, 35, &words([0, 0]), &[]);
    assert_eq!(guest.memory.metadata().unwrap().len(), 0);
    check(&mut simulator, false);
}

#[test]
fn descriptors_that_cannot_be() {
    for timed in [false, true] {
        let mut simulator = Simulator::start_for_guest("xts", &[], timed);
        let at = BASE + MESSAGES;
        let chains: [&dyn Fn(&mut Guest); 9] = [
            // Beyond the queue; the next beyond it; round.
            &|guest| guest.offer(0, QUEUE_SIZE),
            &|guest| {
                guest.descriptor(0, 0, at, 16, 1, QUEUE_SIZE);
                guest.offer(0, 0);
            },
            &|guest| {
                guest.descriptor(0, 0, at, 16, 1, 0);
                guest.offer(0, 0);
            },
            // Indirect; to read behind one to write.
            &|guest| {
                guest.descriptor(0, 0, at, 16, 4, 0);
                guest.offer(0, 0);
            },
            &|guest| guest.chain(0, 0, &[(at, 4, true), (at, 16, false)]),
            // Not memory; its end; too long; too many available.
            &|guest| guest.chain(0, 0, &[(at, 16, false), (BASE - 4, 4, true)]),
            &|guest| guest.chain(0, 0, &[(u64::MAX - 7, 16, false)]),
            &|guest| guest.chain(0, 0, &[(at, u32::MAX, false)]),
            &|guest| (0..=QUEUE_SIZE).for_each(|_| guest.offer(0, 0)),
        ];
        for (i, chain) in chains.iter().enumerate() {
            let mut guest = Guest::ready(&simulator, timed);
            // A read of the configuration space.
            let mut command = vec![1, 0, 0, 0, 4, 0, 0, 0];
            command.resize(16, 0);
            guest.put(MESSAGES, &command);
            chain(&mut guest);
            assert!(!guest.try_tell(35, &words([0, 0]), &[]), "chain {i}");
        }
        check(&mut simulator, timed);
    }
}

#[test]
fn commands_that_are_none() {
    for timed in [false, true] {
        let mut simulator = Simulator::start_for_guest("xts", &[], timed);
        let end = u64::from(BAR_BYTES);
        for (op, bar, at, size, data, room) in [
            (0, 0, 0, 4, 4, 4),
            (6, 0, 0, 4, 4, 4),
            (7, 0, 0, 4, 4, 4),
            (255, 0, 0, 4, 4, 4),
            (1, 0, 0, 3, 0, 8),
            (1, 0, 0, 0, 0, 8),
            (1, 0, 0xffe, 4, 0, 8),
            (1, 0, u64::MAX, 4, 0, 8),
            (1, 0, 0, 4, 0, 3),
            (2, 0, 0, 4, 3, 0),
            (3, 1, 0, 4, 0, 4),
            (3, 0, end, 4, 0, 4),
            (3, 0, end - 4, 8, 0, 8),
            (3, 0, u64::MAX - 3, 4, 0, 4),
            (3, 2, 0x1000, 4, 0, 4),
            (3, 0, 0, u32::MAX, 0, 8),
            (4, 0, end, 4, 4, 0),
            (4, 0, 0, 8, 4, 0),
            (4, 0, 0, 0x3000, 0x3000, 0),
            (5, 0, 0, 4, 0, 0),
            (5, 2, 0, 0x1001, 1, 0),
        ] {
            let mut guest = Guest::ready(&simulator, timed);
            let mut command = vec![op, bar, 0, 0];
            command.extend_from_slice(&u32::to_le_bytes(size));
            command.extend_from_slice(&u64::to_le_bytes(at));
            command.resize(16 + data, 0xff);
            guest.put(MESSAGES, &command);
            let size = u32::try_from(command.len()).unwrap();
            let answer = (BASE + MESSAGES + 0x8000, room, true);
            guest.chain(0, 0, &[(BASE + MESSAGES, size, false), answer]);
            assert!(
                !guest.try_tell(35, &words([0, 0]), &[]),
                "{op} of {bar} at {at:#x}"
            );
        }
        // Shorter than its header.
        let mut guest = Guest::ready(&simulator, timed);
        guest.chain(0, 0, &[(BASE + MESSAGES, 15, false)]);
        cut_off(&mut guest, 35, &words([0, 0]), &[]);
        check(&mut simulator, timed);
    }
}

#[test]
fn noise_for_messages_and_rings() {
    for timed in [false, true] {
        let mut simulator = Simulator::start_for_guest(
            "xts",
            if timed {
                &["--register-latency", "1700"]
            } else {
                &[]
            },
            timed,
        );
        for seed in 0..100_u32 {
            let noise = noise(seed.into(), 4096);
            let mut guest = Guest::ready(&simulator, timed);
            if seed % 2 == 0 {
                guest.put(0x30_0000, &noise.repeat(16));
                guest.try_tell(35, &words([seed / 2 % 2, 0]), &[]);
                continue;
            }
            for bytes in noise.chunks(64) {
                let request = u32::from(bytes[0] % 40);
                let body = &bytes[2..2 + usize::from(bytes[1] % 60)];
                let memory = guest.memory.try_clone().unwrap();
                let files = vec![memory.as_fd(); usize::from(bytes[63] % 3)];
                // Answers that nobody reads are lost with the connection.
                send(&guest.stream, &message(request, VERSION, body), &files);
            }
            drop(guest);
            assert!(simulator.is_running(), "seed {seed}");
        }
        check(&mut simulator, timed);
    }
}

/// Messages about time: in another order, of no kind, of the past.
#[test]
fn time_that_cannot_be() {
    let mut simulator = Simulator::start_for_guest("xts", &[], true);
    let message = |op: u32, time: u64| {
        let mut bytes = words([op, 1]);
        bytes.extend_from_slice(&time.to_le_bytes());
        bytes
    };
    for bytes in [
        message(0, 0),
        message(3, 0),
        message(5, 1),
        message(6, 0),
        message(7, 0),
        message(99, 0),
        message(2, 9_999),
        vec![2],
    ] {
        let mut guest = Guest::ready(&simulator, true);
        guest.sleep_until(10_000);
        let clock = guest.clock.as_mut().unwrap();
        clock.stream.write_all(&bytes).unwrap();
        clock.stream.shutdown(std::net::Shutdown::Write).unwrap();
        clock
            .stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let mut rest = Vec::new();
        std::io::Read::read_to_end(&mut clock.stream, &mut rest).unwrap();
        assert!(rest.is_empty(), "{bytes:?} was answered with {rest:?}");
        assert!(!guest.try_tell(3, &[], &[]), "its device is still there");
        assert!(simulator.is_running());
    }
    let mut guest = Guest::ready(&simulator, true);
    assert_eq!(guest.read(REG_ID), ID);
}
