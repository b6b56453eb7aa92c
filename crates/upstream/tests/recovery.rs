//! Lost connections, before a server that crashes and loses any part of what it was not told to
//! flush.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod common;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use common::{Action, SECTOR, SIZE, Server};
use xtent_nbd::NbdError;
use xtent_nbd::constants::*;
use xtent_store::{Access, AlignedBuffer, ErrorKind, Operation, Store, Submitted, block_on, chain};
use xtent_upstream::{Identity, Options, Upstream};

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

struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }

    fn index(&mut self, limit: usize) -> usize {
        usize::try_from(self.below(limit as u64)).unwrap()
    }
}

/// A sector of which every part says which version it is.
fn sector(version: u64) -> Vec<u8> {
    version.to_le_bytes().repeat(SECTOR / 8)
}

fn version(sector: &[u8]) -> u64 {
    let mut first = [0; 8];
    first.copy_from_slice(&sector[..8]);
    assert!(sector.chunks(8).all(|part| part == first), "a torn sector");
    u64::from_le_bytes(first)
}

fn write(
    upstream: &Upstream,
    first: usize,
    count: usize,
    version: u64,
    durably: bool,
) -> Submitted {
    let mut buffer = AlignedBuffer::zeroed(count * SECTOR).unwrap();
    buffer.copy_from_slice(&sector(version).repeat(count));
    upstream.submit(Operation::Write {
        buffer: buffer.into(),
        offset: (first * SECTOR) as u64,
        durably,
    })
}

/// The first write waits, then that action.
fn once(action: Action) -> common::Fault {
    let waits = AtomicBool::new(true);
    Box::new(move |request| match request.kind {
        CMD_WRITE if waits.swap(false, Ordering::SeqCst) => action,
        _ => Action::Serve,
    })
}

/// Returns once requests have gone out on two connections.
fn use_both(server: &Server, upstream: &Upstream) {
    while server.active() < 2 {
        let flushes = [0, 1].map(|_| upstream.submit(Operation::Flush));
        for flush in flushes {
            block_on(flush).result.unwrap();
        }
    }
}

/// A store with two connections, on one of which a write is under way when the other is lost.
fn open_and_lose_one(server: &Server, options: Options) -> (Upstream, Submitted) {
    let options = Options {
        connections: 2,
        ..options
    };
    let upstream = open(server, options);
    use_both(server, &upstream);
    let first = write(&upstream, 0, 1, 1, false);
    while !server.is_stalled() {
        std::thread::yield_now();
    }
    server.cut_others();
    (upstream, first)
}

/// A server goes on with what it has received on one connection when another one is lost.
#[test]
fn what_a_server_is_at_work_on_does_not_undo_a_later_write() {
    let server = Server::new(1, 512, once(Action::Hold));
    let (upstream, first) = open_and_lose_one(&server, patient());
    let is_lost = || {
        let waiting = upstream.waiting();
        waiting.is_some_and(|it| it.why.contains("the connection was lost"))
    };
    while !is_lost() {
        std::thread::yield_now();
    }
    // Sent again at once, it would be undone when the server comes to it.
    assert!(!server.is_given_up());
    server.released.store(true, Ordering::SeqCst);
    block_on(first).result.unwrap();
    block_on(write(&upstream, 0, 1, 2, false)).result.unwrap();
    upstream.flush().unwrap();
    let mut found = vec![0; SECTOR];
    upstream.read_at(&mut found, 0).unwrap();
    assert_eq!(version(&found), 2);
}

/// One that does not answer on it keeps nobody from making new connections.
#[test]
fn a_connection_that_is_not_answered_is_given_up() {
    let server = Server::new(1, 512, once(Action::Stall));
    let options = Options {
        reconnect: Duration::from_secs(6),
        ..Options::default()
    };
    let (upstream, first) = open_and_lose_one(&server, options);
    block_on(first).result.unwrap();
    let mut found = vec![0; SECTOR];
    upstream.read_at(&mut found, 0).unwrap();
    assert_eq!(version(&found), 1);
}

/// One that does not answer in time is waited for until it closes its end.
#[test]
fn a_server_that_hangs_is_waited_for_until_it_closes() {
    let server = Server::new(1, 512, once(Action::Stall));
    let options = Options {
        silence: Duration::from_secs(1),
        connections: 1,
        ..patient()
    };
    let upstream = open(&server, options);
    block_on(write(&upstream, 0, 1, 1, false)).result.unwrap();
    block_on(write(&upstream, 0, 1, 2, false)).result.unwrap();
    upstream.flush().unwrap();
    server.released.store(true, Ordering::SeqCst);
    while server.ended.load(Ordering::SeqCst) < 1 {
        std::thread::yield_now();
    }
    let mut found = vec![0; SECTOR];
    upstream.read_at(&mut found, 0).unwrap();
    assert_eq!(version(&found), 2);
}

/// Sectors that are used: few, so that they are written again and again.
const SECTORS: usize = 64;

/// Rounds of writes, reads and flushes under way at once, while the server crashes or loses a connection.
fn run(seed: u64) {
    let (crashes, cuts) = (AtomicU64::new(0), AtomicU64::new(0));
    let random = Mutex::new(Random::new(seed ^ 0x5555));
    let server = Server::new(
        seed,
        512,
        Box::new(move |_| {
            let mut random = random.lock().unwrap();
            match random.below(30) {
                0 | 1 if crashes.fetch_add(1, Ordering::SeqCst) < 4 => match random.below(2) {
                    0 => Action::CrashBefore,
                    _ => Action::CrashAfter,
                },
                2 if cuts.fetch_add(1, Ordering::SeqCst) < 2 => Action::Cut,
                _ => Action::Serve,
            }
        }),
    );
    let mut random = Random::new(seed);
    let upstream = open(
        &server,
        Options {
            connections: 1 + random.index(4),
            // Sometimes so small that writes wait, or are made durable.
            journal: [1 << 20, 16 << 10, 3 << 10, 0][random.index(4)],
            ..patient()
        },
    );
    if random.below(2) == 0 {
        // It is asked for on every connection, and crashes meet that, too.
        let offset = ((SECTORS + 1) * SECTOR) as u64;
        let check = |found: &[u8]| match found == [7; 64] {
            true => Ok(()),
            false => Err("another disk".to_owned()),
        };
        server.disk.lock().unwrap().durable[(SECTORS + 1) * SECTOR..][..64].fill(7);
        upstream.identify(Identity {
            offset,
            len: 64,
            check: Box::new(check),
        });
    }
    // What was acknowledged, by sector, and what of it was durable when a flush ended.
    let mut newest = [0; SECTORS];
    let (mut next, mut size) = (0, SIZE);
    for _ in 0..12 {
        let mut free: BTreeMap<usize, ()> = (0..SECTORS).map(|n| (n, ())).collect();
        let mut writes = Vec::new();
        let mut reads = Vec::new();
        let before = newest;
        let mut flush = None;
        for _ in 0..random.index(12) {
            let first = random.index(SECTORS);
            let count = (1 + random.index(10)).min(SECTORS - first);
            // Others that are under way do not overlap: their order would be anyone's.
            if (first..first + count).any(|n| !free.contains_key(&n)) {
                continue;
            }
            for n in first..first + count {
                free.remove(&n);
            }
            next += 1;
            let durably = random.below(5) == 0;
            match random.below(4) {
                0 => {
                    let buffer = AlignedBuffer::zeroed(count * SECTOR).unwrap().into();
                    let offset = (first * SECTOR) as u64;
                    reads.push((first, upstream.submit(Operation::Read { buffer, offset })));
                }
                _ => writes.push((
                    first,
                    count,
                    next,
                    durably,
                    write(&upstream, first, count, next, durably),
                )),
            }
            if flush.is_none() && random.below(6) == 0 {
                flush = Some(upstream.submit(Operation::Flush));
            }
        }
        if random.below(4) == 0 {
            size += SIZE;
            server.grow(size);
            // A crash may be faster.
            let _ = upstream.look_at_size();
        }
        if random.below(8) == 0 {
            server.crash();
        }
        for (first, submitted) in reads {
            let completed = block_on(submitted);
            completed.result.unwrap();
            for (n, data) in completed.buffer.unwrap().chunks(SECTOR).enumerate() {
                assert_eq!(
                    version(data),
                    newest[first + n],
                    "seed {seed}: read of sector {}",
                    first + n
                );
            }
        }
        for (first, count, version, durably, submitted) in writes {
            let completed = block_on(submitted);
            completed.result.unwrap();
            assert_eq!(completed.buffer.unwrap()[..], sector(version).repeat(count));
            newest[first..first + count].fill(version);
            if durably {
                check(&server, seed, "durable write", first..first + count, |n| {
                    newest[n]
                });
            }
        }
        if let Some(flush) = flush {
            block_on(flush).result.unwrap();
            // Writes of this round may be there or not.
            check(&server, seed, "flush beside writes", 0..SECTORS, |n| {
                before[n]
            });
        }
        if random.below(3) == 0 {
            upstream.flush().unwrap();
            check(&server, seed, "flush", 0..SECTORS, |n| newest[n]);
        }
    }
    while upstream.look_at_size().ok() != Some(size as u64) {}
    let last = size - SECTOR;
    upstream.write_at(&sector(next), last as u64).unwrap();
    upstream.flush().unwrap();
    assert!(server.disk.lock().unwrap().durable[last..] == sector(next));
    let mut all = vec![0; SECTORS * SECTOR];
    upstream.read_at(&mut all, 0).unwrap();
    for (n, data) in all.chunks(SECTOR).enumerate() {
        assert_eq!(version(data), newest[n], "seed {seed}: at the end");
    }
    server.disk.lock().unwrap().crash();
    check(&server, seed, "end", 0..SECTORS, |n| newest[n]);
}

/// What would be left after a crash now is no older than that.
fn check(
    server: &Server,
    seed: u64,
    what: &str,
    sectors: std::ops::Range<usize>,
    oldest: impl Fn(usize) -> u64,
) {
    let disk = server.disk.lock().unwrap();
    for n in sectors {
        let there = version(&disk.durable[n * SECTOR..][..SECTOR]);
        assert!(
            there >= oldest(n),
            "seed {seed}: {what}: sector {n} has {there}, not {}",
            oldest(n)
        );
    }
}

#[test]
fn nothing_that_was_flushed_is_lost() {
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if seed >= 160 {
                        return;
                    }
                    run(seed);
                }
            });
        }
    });
}

/// The first flush crashes the server, which loses what it had acknowledged.
#[test]
fn acknowledged_writes_come_again_before_a_flush() {
    let crash = AtomicBool::new(true);
    let server = Server::new(
        3,
        512,
        Box::new(move |request| {
            match request.kind == CMD_FLUSH && crash.swap(false, Ordering::SeqCst) {
                true => Action::CrashBefore,
                false => Action::Serve,
            }
        }),
    );
    let options = Options {
        connections: 1,
        ..patient()
    };
    let upstream = open(&server, options);
    upstream.write_at(&sector(1).repeat(40), 0).unwrap();
    upstream.write_at(&sector(2).repeat(10), 5 * 512).unwrap();
    upstream
        .write_at_durably(&sector(3).repeat(10), 30 * 512)
        .unwrap();
    upstream.flush().unwrap();
    check(&server, 3, "flush", 0..5, |_| 1);
    check(&server, 3, "flush", 5..15, |_| 2);
    check(&server, 3, "flush", 15..30, |_| 1);
    check(&server, 3, "flush", 30..40, |_| 3);
    assert_eq!(server.connections.load(Ordering::SeqCst), 2);
}

/// The flush had been carried out when the write came, but its answer came last.
#[test]
fn a_flush_does_not_cover_what_was_acknowledged_while_it_was_under_way() {
    let crash = AtomicBool::new(true);
    let server = Server::new(
        10,
        512,
        Box::new(move |request| match request.kind {
            CMD_FLUSH => Action::AnswerLate,
            CMD_READ if crash.swap(false, Ordering::SeqCst) => Action::CrashBefore,
            _ => Action::Serve,
        }),
    );
    let options = Options {
        connections: 1,
        ..patient()
    };
    let upstream = open(&server, options);
    upstream.write_at(&sector(1).repeat(40), 0).unwrap();
    let flush = upstream.submit(Operation::Flush);
    block_on(write(&upstream, 0, 40, 2, false)).result.unwrap();
    block_on(flush).result.unwrap();
    let mut data = vec![0; 40 * SECTOR];
    upstream.read_at(&mut data, 0).unwrap();
    assert!(data.chunks(SECTOR).all(|data| version(data) == 2));
}

#[test]
fn flushes_fail_for_good_where_writes_cannot_be_repeated() {
    let crashed = AtomicBool::new(false);
    let server = Server::new(
        4,
        512,
        Box::new(move |request| match request.kind {
            CMD_READ if !crashed.swap(true, Ordering::SeqCst) => Action::CrashBefore,
            CMD_WRITE if crashed.load(Ordering::SeqCst) => Action::Fail(NbdError::NoSpc),
            _ => Action::Serve,
        }),
    );
    let upstream = open(
        &server,
        Options {
            connections: 1,
            ..patient()
        },
    );
    upstream.write_at(&[1; 4096], 0).unwrap();
    upstream.read_at(&mut [0; 512], 0).unwrap();
    for _ in 0..3 {
        let error = upstream.flush().unwrap_err();
        assert_eq!(error.kind, ErrorKind::Io);
        assert!(
            chain(&error)
                .to_string()
                .contains("could not be repeated: as ordered"),
            "{}",
            chain(&error)
        );
    }
}

#[test]
fn after_a_failed_flush_every_flush_fails() {
    let failed = AtomicBool::new(false);
    let server = Server::new(
        5,
        512,
        Box::new(move |request| {
            match request.kind == CMD_FLUSH && !failed.swap(true, Ordering::SeqCst) {
                true => Action::Fail(NbdError::Io),
                false => Action::Serve,
            }
        }),
    );
    let upstream = open(
        &server,
        Options {
            connections: 1,
            ..patient()
        },
    );
    upstream.write_at(&[1; 4096], 0).unwrap();
    for _ in 0..3 {
        let error = upstream.flush().unwrap_err();
        assert!(
            chain(&error).to_string().contains("EIO: as ordered"),
            "{}",
            chain(&error)
        );
    }
    upstream.write_at(&[1; 4096], 0).unwrap();
    assert_eq!(server.flushes.load(Ordering::SeqCst), 0);
}

/// Many writes through a small journal: it is emptied by flushes of its own.
#[test]
fn the_journal_is_bounded_by_its_own_flushes() {
    let server = Server::new(6, 512, Box::new(|_| Action::Serve));
    let options = Options {
        journal: 64 << 10,
        connections: 1,
        ..patient()
    };
    let upstream = open(&server, options);
    let submitted: Vec<_> = (0..128)
        .map(|n| write(&upstream, n * 16, 16, n as u64, false))
        .collect();
    for submitted in submitted {
        block_on(submitted).result.unwrap();
    }
    // A megabyte through 64 KiB, emptied when half is used at best.
    let flushes = server.flushes.load(Ordering::SeqCst);
    assert!((16..=64).contains(&flushes), "{flushes}");
}
