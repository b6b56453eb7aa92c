//! kill -9 of the NBD server that a volume lies behind, under a client that goes on writing.
//! What was not flushed dies with that server. The client hears of nothing, and loses nothing.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::HashSet;

use xtent_tests::far::Far;
use xtent_tests::luks::{Maker, Shape};
use xtent_tests::nbd::{Raw, Request, command};
use xtent_tests::random::Random;
use xtent_tests::xtent::Server;
use xtent_tests::{Scratch, soak_rounds};

const BLOCK: usize = 4096;
const BLOCKS: u64 = 256;
/// Requests in flight.
const DEPTH: u64 = 64;

/// What the write of this number leaves in a block.
fn contents(block: u64, stamp: u64) -> Vec<u8> {
    [block.to_le_bytes(), stamp.to_le_bytes()]
        .concat()
        .repeat(BLOCK / 16)
}

fn length() -> u32 {
    u32::try_from(BLOCK).unwrap()
}

/// Writes with a kill among them: after so many replies. Every other one is good, too.
fn writes(client: &mut Raw, stamps: &mut [u64], random: &mut Random, kill: impl FnOnce()) {
    let mut blocks = HashSet::new();
    let mut bytes = Vec::new();
    while (blocks.len() as u64) < DEPTH {
        let block = random.below(BLOCKS);
        if !blocks.insert(block) {
            continue;
        }
        let stamp = &mut stamps[usize::try_from(block).unwrap()];
        *stamp += 1;
        let fua = u16::from(random.below(8) == 0);
        let request = Request::new(command::WRITE, block * BLOCK as u64, length());
        bytes.extend(request.cookie(block).flags(fua).bytes());
        bytes.extend(contents(block, *stamp));
    }
    bytes.extend(Request::new(command::FLUSH, 0, 0).bytes());
    client.send(&bytes);
    let replies = DEPTH + 1;
    let before = random.below(replies);
    for _ in 0..before {
        assert_eq!(client.reply(), 0);
    }
    kill();
    for _ in before..replies {
        assert_eq!(client.reply(), 0);
    }
}

fn check(client: &mut Raw, stamps: &[u64], round: u64) {
    for (block, stamp) in (0..).zip(stamps) {
        client.request(command::READ, block * BLOCK as u64, length());
        assert_eq!(client.reply(), 0);
        let found = client.receive(BLOCK);
        assert!(found == contents(block, *stamp), "round {round}: {block}");
    }
}

fn kills(rounds: u64) {
    let scratch = Scratch::new();
    let size = BLOCKS * BLOCK as u64;
    let container = Shape::LUKS2.image(Maker::Cryptsetup, &scratch, size);
    let image = container.image.to_string_lossy();
    // Writes stay in a file of its own until they are flushed.
    let far = Far::nbdkit(&["--filter=cache", "file", &image, "cache=writeback"]);
    let server = Server::start_with(&far.container(&container.key), &["--reconnect", "60"]);
    let mut client = Raw::connect(&server.socket);
    client.greet();
    assert_eq!(client.go(), size);
    let mut stamps = vec![0; usize::try_from(BLOCKS).unwrap()];
    for (block, stamp) in (0..).zip(&mut stamps) {
        *stamp = 1;
        let request = Request::new(command::WRITE, block * BLOCK as u64, length());
        client.send(&request.bytes());
        client.send(&contents(block, 1));
        assert_eq!(client.reply(), 0);
    }
    let mut random = Random::new(rounds);
    for round in 0..rounds {
        writes(&mut client, &mut stamps, &mut random, || {
            far.kill();
            far.start_again();
        });
        check(&mut client, &stamps, round);
    }
    drop(client);
    server.stop();
    far.stop();
    // As cryptsetup's users see it.
    let plain = container.decrypt();
    for (block, stamp) in (0..).zip(&stamps) {
        let start = usize::try_from(block).unwrap() * BLOCK;
        assert!(
            plain[start..start + BLOCK] == contents(block, *stamp),
            "{block}"
        );
    }
}

#[test]
fn a_client_hears_nothing_of_a_killed_storage() {
    kills(5);
}

#[test]
#[ignore = "a hundred kills; make soak"]
fn soak_a_hundred_kills_of_the_storage() {
    kills(soak_rounds());
}
