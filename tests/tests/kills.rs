//! kill -9 of a server under load. Whatever it has acknowledged is there
//! afterwards, and no sector is torn: the kernel has what the server wrote, so
//! this is not about power cuts, which the crates' tests present in full.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};

use xtent_tests::luks::{Container, Maker, Shape};
use xtent_tests::nbd::{Raw, Request, command};
use xtent_tests::process::Background;
use xtent_tests::random::Random;
use xtent_tests::xtent::Server;
use xtent_tests::{Scratch, soak_rounds};

/// What is written at a time: a sector of one size, eight of the other.
const BLOCK: usize = 4096;
/// Blocks of each client.
const BLOCKS: u64 = 64;
const CLIENTS: u64 = 3;
/// Requests in flight of each client.
const DEPTH: u64 = 8;

/// What a block may hold: any of the writes from the last one that was
/// acknowledged on.
#[derive(Clone, Copy, Default)]
struct Block {
    acknowledged: u64,
    issued: u64,
}

/// One client and what it knows of its blocks.
struct Client {
    first: u64,
    blocks: Vec<Block>,
    random: Random,
}

impl Client {
    fn new(index: u64, seed: u64) -> Self {
        Self {
            first: index * BLOCKS,
            blocks: vec![Block::default(); usize::try_from(BLOCKS).unwrap()],
            random: Random::new(seed * CLIENTS + index),
        }
    }

    /// Writes, with FUA now and then, and flushes, until the server dies. Says
    /// when so many requests have been answered.
    fn load(&mut self, client: Raw, after: u64, told: &Sender<()>) {
        let mut stream = client.into_stream();
        let mut answered = 0;
        while let Some(count) = self.batch(&mut stream) {
            if answered < after && answered + count >= after {
                // Of the others nobody waits any more.
                let _ = told.send(());
            }
            answered += count;
        }
    }

    /// Several requests in flight; how many were answered, none if the server is
    /// gone.
    fn batch(&mut self, stream: &mut UnixStream) -> Option<u64> {
        let mut in_flight = HashMap::new();
        let mut bytes = Vec::new();
        for cookie in 0..1 + self.random.below(DEPTH) {
            let index = self.random.below(BLOCKS);
            let at = usize::try_from(index).unwrap();
            let is_flush = self.random.below(8) == 0;
            // One write of a block at a time: the order of two is nobody's.
            if is_flush || in_flight.values().any(|other| *other == Some(at)) {
                bytes.extend(Request::new(command::FLUSH, 0, 0).cookie(cookie).bytes());
                in_flight.insert(cookie, None);
                continue;
            }
            let block = &mut self.blocks[at];
            block.issued += 1;
            let offset = (self.first + index) * BLOCK as u64;
            let fua = u16::from(self.random.below(4) == 0);
            let len = u32::try_from(BLOCK).unwrap();
            let request = Request::new(command::WRITE, offset, len);
            bytes.extend(request.cookie(cookie).flags(fua).bytes());
            bytes.extend(contents(self.first + index, block.issued));
            in_flight.insert(cookie, Some(at));
        }
        stream.write_all(&bytes).ok()?;
        let count = in_flight.len() as u64;
        for _ in 0..count {
            let mut reply = [0; 16];
            stream.read_exact(&mut reply).ok()?;
            assert_eq!(reply[..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0]);
            let cookie = u64::from_be_bytes(reply[8..].try_into().unwrap());
            if let Some(at) = in_flight.remove(&cookie).unwrap() {
                self.blocks[at].acknowledged = self.blocks[at].issued;
            }
        }
        Some(count)
    }

    /// Compares with what is there, and goes on from that.
    fn check(&mut self, image: &[u8], sector: usize, round: u64) {
        for (index, block) in (self.first..).zip(&mut self.blocks) {
            let start = usize::try_from(index).unwrap() * BLOCK;
            let found = &image[start..start + BLOCK];
            let possible = block.acknowledged..=block.issued;
            for (at, sector) in (0..).step_by(sector).zip(found.chunks(sector)) {
                let is_known = possible
                    .clone()
                    .any(|stamp| contents(index, stamp)[at..at + sector.len()] == *sector);
                assert!(
                    is_known,
                    "round {round}, block {index}, byte {at}: none of the writes {possible:?}"
                );
            }
            // Its sectors may be of several writes: any of them from here on.
            block.issued += 1;
        }
    }

    /// Leaves every block with one known write.
    fn settle(&mut self, socket: &Path) {
        let mut client = connect(socket);
        for (index, block) in (self.first..).zip(&mut self.blocks) {
            let len = u32::try_from(BLOCK).unwrap();
            client.send(&Request::new(command::WRITE, index * BLOCK as u64, len).bytes());
            client.send(&contents(index, block.issued));
            assert_eq!(client.reply(), 0);
            block.acknowledged = block.issued;
        }
    }
}

/// What the write of this number leaves in a block: different in every sector.
/// Number 0 is the volume as it was made.
fn contents(block: u64, stamp: u64) -> Vec<u8> {
    if stamp == 0 {
        return vec![0; BLOCK];
    }
    (0..BLOCK as u64 / 16)
        .flat_map(|n| [(block << 32 | n).to_le_bytes(), stamp.to_le_bytes()])
        .flatten()
        .collect()
}

fn start(container: &Container, socket: &Path) -> Background {
    let mut process = Server::command(container, socket, &[]).spawn();
    process.wait_for_line(|line| line.contains("nbd+unix"));
    process
}

fn connect(socket: &Path) -> Raw {
    let mut client = Raw::connect(socket);
    client.greet();
    client.go();
    client
}

fn read_all(socket: &Path) -> Vec<u8> {
    let len = u32::try_from(CLIENTS * BLOCKS).unwrap() * u32::try_from(BLOCK).unwrap();
    let mut client = connect(socket);
    client.request(command::READ, 0, len);
    assert_eq!(client.reply(), 0);
    client.receive(len as usize)
}

fn kills(shape: Shape, rounds: u64) {
    let scratch = Scratch::new();
    let size = CLIENTS * BLOCKS * BLOCK as u64;
    let container = shape.image(Maker::Xtent, &scratch, size);
    container.encrypt(&vec![0; usize::try_from(size).unwrap()]);
    let socket = scratch.join("socket");
    let sector = usize::try_from(shape.sector).unwrap();
    let mut clients: Vec<_> = (0..CLIENTS).map(|index| Client::new(index, 1)).collect();
    let mut random = Random::new(rounds);
    for round in 0..=rounds {
        let server = start(&container, &socket);
        let image = read_all(&socket);
        for client in &mut clients {
            client.check(&image, sector, round);
            client.settle(&socket);
        }
        let after = 1 + random.below(200);
        let connections: Vec<_> = clients.iter().map(|_| connect(&socket)).collect();
        std::thread::scope(|scope| {
            let (sender, told) = channel();
            for (client, connection) in clients.iter_mut().zip(connections) {
                let sender = sender.clone();
                scope.spawn(move || client.load(connection, after, &sender));
            }
            // The fastest has so many answers; the others are anywhere.
            told.recv().unwrap();
            assert_eq!(server.kill().code(), None);
        });
    }
}

#[test]
fn nothing_acknowledged_is_lost_with_a_killed_server() {
    for shape in [Shape::LUKS2, Shape::LUKS2_4096] {
        kills(shape, 5);
    }
}

#[test]
#[ignore = "a thousand kills; make soak"]
fn soak_a_thousand_kills() {
    for shape in [Shape::LUKS2, Shape::LUKS2_4096] {
        kills(shape, 5 * soak_rounds());
    }
}
