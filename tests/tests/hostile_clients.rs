//! Clients that attack, beside one that works and verifies. The server answers
//! or hangs up, keeps everybody else's data, takes a bounded amount of memory and
//! lives.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use xtent_tests::luks::{Maker, Shape};
use xtent_tests::nbd::{Raw, Request, command, go};
use xtent_tests::random::Random;
use xtent_tests::xtent::Server;
use xtent_tests::{Scratch, soak_rounds};

/// Bytes of the volume; the first half is the good client's.
const SIZE: u64 = 16 << 20;
const HALF: u64 = SIZE / 2;
/// More than the server is ever allowed to have, in KiB: its 128 MiB for
/// payload, and a quarter of that for itself.
const MEMORY: u64 = 160 << 10;

/// One attack. Writes and reads may fail: the server hangs up on most.
type Attack = fn(&Path, &mut Random) -> std::io::Result<()>;

const ATTACKS: &[(&str, Attack)] = &[
    ("garbage instead of flags", |socket, random| {
        let mut stream = greeted(socket)?;
        stream.write_all(&random.bytes(4096))?;
        drain(&mut stream)
    }),
    ("nothing after the greeting", |socket, _| {
        greeted(socket).map(drop)
    }),
    ("a handshake byte by byte, unfinished", |socket, random| {
        let mut stream = greeted(socket)?;
        let bytes = [&3_u32.to_be_bytes()[..], &go()].concat();
        let most = usize::try_from(random.below(bytes.len() as u64)).unwrap();
        for byte in &bytes[..most] {
            stream.write_all(&[*byte])?;
        }
        Ok(())
    }),
    (
        "options with any number, length and data",
        |socket, random| {
            let mut stream = haggling(socket)?;
            for _ in 0..50 {
                let len = random.below(200);
                let number = random.of(&[1, 2, 3, 5, 6, 7, 8, 9, 10, 0x7777]);
                let claimed = random.of(&[len, len, len, len / 2, 4 * len]);
                let data = random.bytes(usize::try_from(len).unwrap());
                stream.write_all(&option(number, claimed, &data))?;
            }
            drain(&mut stream)
        },
    ),
    ("options beyond every length", |socket, random| {
        let mut stream = haggling(socket)?;
        let len = random.of(&[65537, 1 << 20, 1 << 31, u64::from(u32::MAX)]);
        stream.write_all(&option(random.of(&[1, 6, 7, 10]), len, &[0; 4096]))?;
        stream.write_all(&[0; 1 << 16])?;
        drain(&mut stream)
    }),
    ("a flood of options", |socket, _| {
        let mut stream = haggling(socket)?;
        // Lists, whose answers are not read either.
        for _ in 0..2000 {
            stream.write_all(&option(3, 0, &[]))?;
        }
        drain(&mut stream)
    }),
    ("an export's name of a megabyte", |socket, random| {
        let mut stream = haggling(socket)?;
        stream.write_all(&option(1, 1 << 20, &random.bytes(1 << 20)))?;
        drain(&mut stream)
    }),
    ("a wrong magic", |socket, random| {
        let mut stream = transmitting(socket);
        stream.write_all(&random.bytes(28))?;
        drain(&mut stream)
    }),
    ("any command, flags and range", |socket, random| {
        let mut stream = transmitting(socket);
        let edges = [0, 1, 511, 512, HALF, SIZE - 512, SIZE - 1, SIZE, SIZE + 1];
        let far = [u64::MAX, u64::MAX - 511, 1 << 63];
        for _ in 0..40 {
            // Writes have data, and harm the good client: not among these.
            let kind = random.of(&[0, 3, 5, 7, 8, 9, 255, 0xffff]);
            let offset = match random.below(3) {
                0 => random.of(&edges),
                1 => random.of(&far),
                _ => random.below(SIZE),
            };
            let len = random.of(&[0, 1, 511, 512, 4096, 1 << 20, 33 << 20, u32::MAX]);
            let flags = u16::try_from(random.below(64)).unwrap();
            stream.write_all(&Request::new(kind, offset, len).flags(flags).bytes())?;
        }
        drain(&mut stream)
    }),
    ("writes and zeros out of range", |socket, random| {
        let mut stream = transmitting(socket);
        for _ in 0..20 {
            let kind = random.of(&[command::WRITE_ZEROES, command::TRIM]);
            let offset = random.of(&[SIZE - 511, SIZE, u64::MAX - 4095, u64::MAX]);
            let len = random.of(&[512, 4096, 1 << 20, u32::MAX]);
            stream.write_all(&Request::new(kind, offset, len).bytes())?;
            stream.write_all(&Request::new(command::WRITE, offset, 512).bytes())?;
            stream.write_all(&[0xee; 512])?;
        }
        drain(&mut stream)
    }),
    ("writes longer than is allowed", |socket, random| {
        let mut stream = transmitting(socket);
        let len = random.of(&[(32 << 20) + 1, 64 << 20, (64 << 20) + 1, u32::MAX]);
        stream.write_all(&Request::new(command::WRITE, HALF, len).bytes())?;
        stream.write_all(&vec![0xee; 1 << 20])?;
        Ok(())
    }),
    ("half a request", |socket, random| {
        let mut stream = transmitting(socket);
        let request = Request::new(command::READ, 0, 4096).bytes();
        let most = usize::try_from(random.below(28)).unwrap();
        stream.write_all(&request[..most])
    }),
    ("a write that ends in its data", |socket, random| {
        let mut stream = transmitting(socket);
        let len = u32::try_from(random.below(2 << 20)).unwrap() + 1;
        let request = Request::new(command::WRITE, HALF, len).flags(1).bytes();
        stream.write_all(&request)?;
        let part = usize::try_from(random.below(u64::from(len))).unwrap();
        stream.write_all(&vec![0xee; part])?;
        if random.below(2) == 0 {
            stream.shutdown(std::net::Shutdown::Write)?;
            drain(&mut stream)?;
        }
        Ok(())
    }),
    ("many reads, no answer taken", |socket, random| {
        let mut stream = transmitting(socket);
        for _ in 0..200 {
            let offset = random.below(HALF);
            stream.write_all(&Request::new(command::READ, offset, 8 << 20).bytes())?;
        }
        Ok(())
    }),
    ("a burst of zeros", |socket, _| {
        let mut stream = transmitting(socket);
        let len = u32::try_from(HALF).unwrap();
        let zeros = Request::new(command::WRITE_ZEROES, HALF, len).bytes();
        stream.write_all(&zeros.repeat(2000))
    }),
    (
        "a burst of flushes, trims and read-aheads",
        |socket, random| {
            let mut stream = transmitting(socket);
            let mut bytes = Vec::new();
            for _ in 0..1000 {
                let kind = random.of(&[command::FLUSH, command::TRIM, 5]);
                let (offset, len) = match kind {
                    command::FLUSH => (0, 0),
                    _ => (HALF, u32::try_from(HALF).unwrap()),
                };
                bytes.extend(Request::new(kind, offset, len).bytes());
            }
            stream.write_all(&bytes)?;
            match random.below(2) {
                0 => Ok(()),
                _ => stream.read_exact(&mut [0; 16 * 1000]),
            }
        },
    ),
    ("more connections than there is room for", |socket, _| {
        let all: Vec<_> = (0..40).map(|_| UnixStream::connect(socket)).collect();
        drop(all);
        Ok(())
    }),
];

/// A connection that does not wait for ever.
fn dial(socket: &Path) -> std::io::Result<UnixStream> {
    Ok(Raw::connect(socket).into_stream())
}

fn greeted(socket: &Path) -> std::io::Result<UnixStream> {
    let mut stream = dial(socket)?;
    stream.read_exact(&mut [0; 18])?;
    Ok(stream)
}

fn haggling(socket: &Path) -> std::io::Result<UnixStream> {
    let mut stream = greeted(socket)?;
    stream.write_all(&3_u32.to_be_bytes())?;
    Ok(stream)
}

fn transmitting(socket: &Path) -> UnixStream {
    connect(socket).into_stream()
}

/// In transmission; again where other attackers have all the connections.
fn connect(socket: &Path) -> Raw {
    loop {
        let mut stream = Raw::connect(socket).into_stream();
        if stream.read_exact(&mut [0; 18]).is_err() {
            std::thread::yield_now();
            continue;
        }
        stream.write_all(&3_u32.to_be_bytes()).unwrap();
        let mut client = Raw::from(stream);
        client.go();
        return client;
    }
}

/// Says that it has nothing more to say, and takes what comes.
fn drain(stream: &mut UnixStream) -> std::io::Result<()> {
    stream.shutdown(std::net::Shutdown::Write)?;
    std::io::copy(stream, &mut std::io::sink()).map(drop)
}

fn option(number: u64, claimed: u64, data: &[u8]) -> Vec<u8> {
    let number = u32::try_from(number).unwrap().to_be_bytes();
    let claimed = u32::try_from(claimed).unwrap().to_be_bytes();
    [b"IHAVEOPT", &number[..], &claimed, data].concat()
}

/// Writes, reads and flushes its half until told to end, and loses nothing. How
/// many rounds it made.
fn work(socket: &Path, end: &AtomicBool) -> u64 {
    const LEN: usize = 40_000;
    let mut client = connect(socket);
    let mut random = Random::new(77);
    let mut model = vec![0; usize::try_from(HALF).unwrap()];
    let mut rounds = 0;
    while !end.load(Ordering::Relaxed) || rounds == 0 {
        let offset = random.below(HALF - LEN as u64);
        let at = usize::try_from(offset).unwrap();
        let data = random.bytes(LEN);
        let len = u32::try_from(LEN).unwrap();
        let fua = u16::try_from(random.below(2)).unwrap();
        client.send(&Request::new(command::WRITE, offset, len).flags(fua).bytes());
        client.send(&data);
        assert_eq!(client.reply(), 0);
        model[at..at + LEN].copy_from_slice(&data);
        client.request(command::FLUSH, 0, 0);
        assert_eq!(client.reply(), 0);
        let offset = random.below(HALF - LEN as u64);
        let at = usize::try_from(offset).unwrap();
        client.request(command::READ, offset, len);
        assert_eq!(client.reply(), 0);
        assert!(client.receive(LEN) == model[at..at + LEN], "round {rounds}");
        rounds += 1;
    }
    client.request(command::READ, 0, u32::try_from(HALF).unwrap());
    assert_eq!(client.reply(), 0);
    assert!(client.receive(model.len()) == model, "at the end");
    rounds
}

/// Tells the good client to end, also when an attack panics.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn attack(rounds: u64, seed: u64) {
    let scratch = Scratch::new();
    let container = Shape::LUKS2.image(Maker::Xtent, &scratch, SIZE);
    container.encrypt(&vec![0; usize::try_from(SIZE).unwrap()]);
    let mut server = Server::start(&container);
    let socket = server.socket.clone();
    let mut random = Random::new(seed);
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| work(&socket, &end));
        let told = End(&end);
        for round in 0..rounds {
            for (name, attack) in ATTACKS {
                let mut random = Random::new(random.any());
                // What it meets is its own affair.
                let _ = attack(&socket, &mut random);
                assert!(!worker.is_finished(), "round {round}: {name}");
            }
        }
        drop(told);
        assert!(worker.join().unwrap() > 0);
    });
    assert!(server.is_running());
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
    let most: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(most < MEMORY, "{most} KiB of memory");
    let done = server.stop();
    assert!(!done.stderr.contains("panicked"), "{}", done.text());
}

#[test]
fn attackers_harm_nobody_else() {
    attack(2, 1);
}

#[test]
#[ignore = "many rounds of every attack; make soak"]
fn soak_attackers_harm_nobody_else() {
    for seed in 2..6 {
        attack(soak_rounds(), seed);
    }
}
