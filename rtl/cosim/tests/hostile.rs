//! Clients that send what no client should: the device goes on, and serves the next.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use common::{BAR0, BASE, CONFIG, Driver, MEMORY, Simulator, Submission, noise};
use vmm_sys_util::sock_ctrl_msg::ScmSocket;
use xtent_engine_sim::registers::*;

const DESIGN: &str = "xts";

// Commands.
const VERSION: u16 = 1;
const DMA_MAP: u16 = 2;
const DMA_UNMAP: u16 = 3;
const GET_INFO: u16 = 4;
const REGION_INFO: u16 = 5;
const IRQ_INFO: u16 = 7;
const SET_IRQS: u16 = 8;
const READ: u16 = 9;
const WRITE: u16 = 10;
const RESET: u16 = 13;
const NO_REPLY: u32 = 1 << 4;
const ERROR: u32 = 1 << 5;

/// A connection that sends what it likes.
struct Raw(UnixStream);

impl Raw {
    fn new(simulator: &Simulator) -> Self {
        Self(UnixStream::connect(simulator.socket()).unwrap())
    }

    /// A message with these files; a server that has cut us off already is fine.
    fn send(&mut self, message: &[u8], files: &[RawFd]) {
        // The files go with the header, which the server reads first.
        let _ = self.0.send_with_fds(&[message], files);
    }

    /// The flags of an answer of nothing but a header.
    fn flags(&mut self) -> u32 {
        let mut header = [0; 16];
        self.0.read_exact(&mut header).unwrap();
        u32::from_le_bytes(header[8..12].try_into().unwrap())
    }

    /// Sends a message that has to be refused.
    fn refused(&mut self, message: &[u8], files: &[RawFd]) {
        self.send(message, files);
        assert_eq!(self.flags() & ERROR, ERROR, "{message:02x?}");
    }
}

fn message(command: u16, body: &[&[u8]]) -> Vec<u8> {
    let body = body.concat();
    let size = u32::try_from(16 + body.len()).unwrap();
    let mut bytes = header(command, size, 0);
    bytes.extend_from_slice(&body);
    bytes
}

fn header(command: u16, size: u32, flags: u32) -> Vec<u8> {
    let mut bytes = vec![7, 0];
    bytes.extend_from_slice(&command.to_le_bytes());
    for word in [size, flags, 0] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn map(flags: u32, offset: u64, address: u64, size: u64) -> Vec<u8> {
    let numbers = [offset, address, size].map(u64::to_le_bytes);
    message(
        DMA_MAP,
        &[
            &32_u32.to_le_bytes(),
            &flags.to_le_bytes(),
            numbers.as_flattened(),
        ],
    )
}

fn access(command: u16, region: u32, offset: u64, count: u32, data: &[u8]) -> Vec<u8> {
    message(
        command,
        &[
            &offset.to_le_bytes(),
            &region.to_le_bytes(),
            &count.to_le_bytes(),
            data,
        ],
    )
}

fn irqs(flags: u32, index: u32, start: u32, count: u32) -> Vec<u8> {
    let words = [20, flags, index, start, count].map(u32::to_le_bytes);
    message(SET_IRQS, &[words.as_flattened()])
}

/// The device is there, for a client that behaves.
fn check(simulator: &mut Simulator) {
    assert!(simulator.is_running());
    assert_eq!(Driver::new(simulator).read(REG_ID), ID);
}

fn pipe() -> OwnedFd {
    std::io::pipe().unwrap().1.into()
}

#[test]
fn messages_that_are_none() {
    let mut simulator = Simulator::start(DESIGN, &[]);
    let json = |text: &[u8]| message(VERSION, &[&[0; 4], text]);
    let messages = [
        vec![1],
        header(VERSION, 0, 0),
        header(VERSION, 19, 0),
        header(VERSION, 1 << 28, 0),
        json(b""),
        json(b"{}"),
        json(b"{\0}\0"),
        json(b"{]\0"),
        json(b"\xff\xff\0"),
        header(0, 16, 0),
        header(99, 16, 0),
        header(GET_INFO, 16, NO_REPLY),
        header(READ, 16, NO_REPLY),
        header(DMA_MAP, 16, 0),
    ];
    for message in messages {
        let mut raw = Raw::new(&simulator);
        raw.send(&message, &[]);
        raw.0.shutdown(std::net::Shutdown::Both).unwrap();
        check(&mut simulator);
    }
}

#[test]
fn accesses_beyond_the_regions() {
    let mut simulator = Simulator::start(DESIGN, &[]);
    let mut raw = Raw::new(&simulator);
    let end = u64::from(BAR_BYTES);
    for (region, offset, count) in [
        (BAR0, end, 4),
        (BAR0, end - 4, 8),
        (BAR0, u64::MAX, 4),
        (BAR0, u64::MAX - 3, 4),
        (BAR0, 1, 4),
        (BAR0, 0, 1),
        (BAR0, 2, 2),
        // Not more: the library has the memory ready before it asks.
        (BAR0, 0, 1 << 28),
        (1, 0, 4),
        (2, 0xffd, 4),
        (6, 0, 1),
        (CONFIG, 256, 1),
        (CONFIG, 0, 257),
        (8, 0, 1),
        (9, 0, 1),
        (u32::MAX, 0, 1),
    ] {
        raw.refused(&access(READ, region, offset, count, &[]), &[]);
        // What follows a write that is refused unread would be the next message.
        if count <= 257 && region < 9 {
            raw.refused(
                &access(WRITE, region, offset, count, &vec![0; count as usize]),
                &[],
            );
        }
    }
    for index in [9, u32::MAX] {
        let words = [32, 0, index, 0, 0, 0, 0, 0].map(u32::to_le_bytes);
        raw.refused(&message(REGION_INFO, &[words.as_flattened()]), &[]);
        let words = [16, 0, index, 0].map(u32::to_le_bytes);
        raw.refused(&message(IRQ_INFO, &[words.as_flattened()]), &[]);
    }
    // A write that is announced, and does not come.
    raw.send(&access(WRITE, BAR0, 0, 1 << 28, &[0; 64]), &[]);
    drop(raw);
    check(&mut simulator);
}

#[test]
fn memory_that_cannot_be_mapped() {
    let mut simulator = Simulator::start(DESIGN, &[]);
    let mut raw = Raw::new(&simulator);
    let file = tempfile::tempfile().unwrap();
    let fd = file.as_raw_fd();
    let pipe = pipe();
    let folder = File::open("/").unwrap();
    let named = tempfile::NamedTempFile::new().unwrap();
    let appends = File::options()
        .read(true)
        .append(true)
        .open(named.path())
        .unwrap();
    for (offset, address, size, fds) in [
        (0, 0, 0, &[fd][..]),
        (0, u64::MAX, 2, &[fd]),
        (u64::MAX, 0, 2, &[fd]),
        (1 << 62, 0, 1 << 62, &[fd]),
        (0, 0, 4096, &[fd, fd]),
        (0, 0, 4096, &[pipe.as_raw_fd()]),
        (0, 0, 4096, &[folder.as_raw_fd()]),
        (0, 0, 4096, &[appends.as_raw_fd()]),
        (0, 0, 4096, &[raw.0.as_raw_fd()]),
    ] {
        raw.refused(&map(3, offset, address, size), fds);
    }
    // As much as there can be; twice; and too many.
    raw.send(&map(3, 0, 1 << 62, 1 << 62), &[fd]);
    assert_eq!(raw.flags() & ERROR, 0);
    raw.refused(&map(3, 0, (1 << 62) + 4096, 4096), &[fd]);
    let most = xtent_engine_sim::mappings::MOST as u64;
    for i in 1..most {
        raw.send(&map(3, 0, i << 12, 4096), &[fd]);
        assert_eq!(raw.flags() & ERROR, 0, "mapping {i}");
    }
    raw.refused(&map(3, 0, most << 12, 4096), &[fd]);
    // Half of one; then all.
    let unmap = |flags: u32, address: u64, size: u64| {
        let numbers = [address, size].map(u64::to_le_bytes);
        message(
            DMA_UNMAP,
            &[
                &24_u32.to_le_bytes(),
                &flags.to_le_bytes(),
                numbers.as_flattened(),
            ],
        )
    };
    raw.refused(&unmap(0, 4096, 2048), &[]);
    raw.refused(&unmap(0, 4096, 0), &[]);
    raw.refused(&unmap(0, u64::MAX, 4096), &[]);
    raw.send(&unmap(4, 0, 0), &[]);
    let mut reply = [0; 40];
    raw.0.read_exact(&mut reply).unwrap();
    raw.send(&map(3, 0, 4096, 4096), &[fd]);
    assert_eq!(raw.flags() & ERROR, 0);
    drop(raw);
    check(&mut simulator);
}

#[test]
fn interrupts_that_are_not_there() {
    let mut simulator = Simulator::start(DESIGN, &[]);
    let mut raw = Raw::new(&simulator);
    let eventfd = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    let fd = eventfd.as_raw_fd();
    let pipe = pipe();
    for (flags, index, start, count, fds) in [
        (0x24, 2, 0, 3, &[fd, fd, fd][..]),
        (0x24, 2, 2, 1, &[fd]),
        (0x24, 2, u32::MAX, 1, &[fd]),
        (0x24, 2, 0, u32::MAX, &[fd]),
        (0x24, 2, 0, 1, &[fd, fd]),
        (0x24, 2, 0, 1, &[pipe.as_raw_fd()]),
        (0x24, 0, 0, 1, &[fd]),
        (0x24, 1, 0, 1, &[fd]),
        (0x24, 5, 0, 1, &[fd]),
        (0x24, u32::MAX, 0, 1, &[fd]),
        (0x21, 2, 1, 2, &[]),
        (0x09, 2, 0, 1, &[]),
        (0x11, 2, 0, 1, &[]),
        (0x22, 2, 0, 1, &[]),
        (u32::MAX, 2, 0, 1, &[]),
        (0, 2, 0, 1, &[]),
    ] {
        raw.refused(&irqs(flags, index, start, count), fds);
    }
    drop(raw);
    check(&mut simulator);
}

#[test]
fn noise_for_messages() {
    let mut simulator = Simulator::start(DESIGN, &[]);
    let file = tempfile::tempfile().unwrap();
    file.set_len(1 << 20).unwrap();
    for seed in 0..200 {
        let noise = noise(seed, 4096);
        let mut raw = Raw::new(&simulator);
        for message in noise.chunks(64) {
            let command = u16::from(message[0] % 15);
            let mut bytes = header(command, u32::from(message[1]), u32::from(message[2]) & 0x3f);
            bytes.extend_from_slice(&message[8..8 + usize::from(message[3] % 48)]);
            // An access's size: the library has the memory ready before it asks.
            if let Some(high) = bytes.get_mut(31) {
                *high = 0;
            }
            let files = vec![file.as_raw_fd(); usize::from(message[4] % 4)];
            raw.send(&bytes, &files);
        }
        // Answers that nobody reads are lost with the connection.
        drop(raw);
        assert!(simulator.is_running(), "seed {seed}");
    }
    check(&mut simulator);
}

#[test]
fn resets_in_between() {
    let mut simulator = Simulator::start(DESIGN, &[]);
    for _ in 0..20 {
        let mut raw = Raw::new(&simulator);
        for register in (0..0x400_u64).step_by(4) {
            let mut write = access(WRITE, BAR0, register, 4, &[0xff; 4]);
            write[8..12].copy_from_slice(&NO_REPLY.to_le_bytes());
            raw.0.write_all(&write).unwrap();
        }
        raw.send(&header(RESET, 16, 0), &[]);
        assert_eq!(raw.flags() & ERROR, 0);
    }
    check(&mut simulator);
}

/// Rings of noise, and registers written at random while they run: the model keeps to AXI, which
/// the process watches, and works after a reset.
#[test]
fn noise_for_requests() {
    let mut simulator = Simulator::start("xts-2rings", &["--read-latency", "7"]);
    let before_end = u32::try_from(MEMORY).unwrap() - 1;
    for seed in 0..40 {
        let mut driver = Driver::new(&simulator);
        for slot in 0..2 {
            assert_eq!(
                driver.key(slot, CIPHER_XTS, 256, &noise(seed, 64)),
                u32::from(KEY_RESULT_DONE)
            );
        }
        let mut bytes = noise(seed, 4096).into_iter();
        let mut word = || u32::from_le_bytes([(); 4].map(|()| bytes.next().unwrap()));
        for ring in 0..2 {
            driver.ring(ring);
            for _ in 0..8 {
                let [kind, sizes, first, second] = [(); 4].map(|()| word());
                let address = |word: u32| BASE + u64::from(word & before_end & !7);
                let [op, flags, slot, log2_unit] = kind.to_le_bytes();
                driver.submit(
                    ring,
                    &Submission {
                        op: if op & 0xf0 == 0 { op } else { 3 },
                        flags: flags & 0x1f,
                        slot: slot % 3,
                        log2_unit: 9 + log2_unit % 4,
                        step: 1,
                        units: sizes & 0x1f,
                        tweak: first.into(),
                        source: address(first) & !u64::from(op & 8),
                        destination: address(second) & !u64::from(op & 8),
                        source_entries: sizes >> 8 & 3,
                        destination_entries: sizes >> 16 & 3,
                        cookie: seed,
                    },
                );
            }
            driver.doorbell(ring);
        }
        for _ in 0..100 {
            let [place, value] = [(); 2].map(|()| word());
            // Of the first ring everything, of the second the doorbells; anything else below.
            let register = match place & 3 {
                0 => RINGS_OFFSET + (place >> 2 & 0x3c),
                1 => RINGS_OFFSET + RINGS_STRIDE + RING_TAIL + (place >> 2 & 4),
                2 => place >> 2 & 0x17c,
                _ => REG_COUNTER_CTRL,
            };
            driver.write(
                register,
                if place & 0x8000 == 0 {
                    value
                } else {
                    value & 0x1f
                },
            );
        }
        assert!(simulator.is_running(), "seed {seed}");
    }
    check(&mut simulator);
}
