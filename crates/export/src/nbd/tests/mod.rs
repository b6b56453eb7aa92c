//! The server against a hand-written client, over Unix sockets.

mod client;
mod coming_and_going;
mod counting;
mod engine;
mod fairness;
mod far;
mod tls;

use std::io::{Read, Write};
use std::net::Shutdown as Half;
use std::time::Duration;

use xtent_store::testing::{Fault, Operation};

use self::client::{Message, Rig, SIZE, assemble, handshake, header};
use super::Options;
use super::port::Timeouts;
use super::proto::constants::*;
use super::proto::{MAX_DRAIN, MAX_PAYLOAD, be64};

const EPERM: u32 = 1;
const EIO: u32 = 5;
const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;
const EOVERFLOW: u32 = 75;
const ESHUTDOWN: u32 = 108;

/// As in earnest, but for clients of tests, which do not close their side.
const PATIENT: Timeouts = Timeouts {
    linger: Duration::from_millis(50),
    ..Timeouts::DEFAULT
};

/// Does not wait for clients that take no replies.
const QUICK: Timeouts = Timeouts {
    grace: Duration::from_millis(200),
    ..PATIENT
};

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    #[expect(clippy::cast_possible_truncation, reason = "any byte will do")]
    (0..len)
        .map(|at| (((at + seed) * 0x9E37_79B9) >> 11) as u8)
        .collect()
}

/// Writes and reads of many sizes and alignments against a model.
fn round_trips(rig: &Rig, structured: bool) {
    let mut client = rig.connect("", structured);
    let mut model = client.read(0, 0, 8 << 20).unwrap();
    for (seed, (offset, len)) in [
        (0, 4096),
        (512, 512),
        (1, 1),
        (4000, 200),
        (100, 70_000),
        (65_536, 262_144),
        (65_535, 262_145),
        (1 << 20, 1 << 20),
        ((1 << 20) + 7, (2 << 20) + 5),
        (8192, 5 << 20),
    ]
    .into_iter()
    .enumerate()
    {
        for flags in [0, CMD_FLAG_FUA] {
            let data = pattern(len, seed + usize::from(flags));
            assert_eq!(client.write(flags, offset as u64, &data), 0);
            model[offset..offset + len].copy_from_slice(&data);
            assert!(client.read(0, offset as u64, len).unwrap() == data);
        }
    }
    assert!(client.read(0, 0, model.len()).unwrap() == model);
    if structured {
        assert!(client.read(CMD_FLAG_DF, 3, model.len() - 3).unwrap() == model[3..]);
    }
    let from = 3_000_001;
    assert_eq!(
        client.command(CMD_WRITE_ZEROES, CMD_FLAG_NO_HOLE, from, 1_000_000),
        0
    );
    assert_eq!(client.command(CMD_TRIM, 0, 5_000_000, 100_000), 0);
    model[3_000_001..4_000_001].fill(0);
    model[5_000_000..5_100_000].fill(0);
    assert!(client.read(0, 0, model.len()).unwrap() == model);
}

#[test]
fn data_comes_back_with_either_kind_of_reply() {
    let rig = Rig::new();
    round_trips(&rig, true);
    round_trips(&rig, false);
    rig.stop().unwrap();
}

#[test]
fn without_memory_for_workers_everything_still_works() {
    let rig = Rig::with(Rig::tight(1), PATIENT);
    round_trips(&rig, true);
    rig.stop().unwrap();
    let rig = Rig::with(Rig::tight(1), PATIENT);
    round_trips(&rig, false);
    rig.stop().unwrap();
}

#[test]
fn a_read_that_waits_for_the_disk_does_not_hold_up_others() {
    let rig = Rig::new();
    let mut client = rig.connect("", true);
    let data = pattern(1 << 20, 1);
    assert_eq!(client.write(0, 0, &data), 0);
    rig.store.stop_disk(300_000..400_000);
    let requests = [
        header(CMD_READ, 0, 1, 300_000, 512),
        header(CMD_READ, 0, 2, 0, 1 << 20),
        header(CMD_READ, 0, 3, 0, 4096),
        header(CMD_FLUSH, 0, 4, 0, 0),
    ];
    client.send(&requests.concat());
    rig.store.await_waiting(2);
    // Whatever does not touch the slow place is there before it.
    let mut replies = std::collections::HashMap::<u64, Vec<(u16, Vec<u8>)>>::new();
    let mut finished = Vec::new();
    while finished.len() < 4 {
        if finished.contains(&3) && finished.contains(&4) {
            rig.store.stop_disk(0..0);
        }
        match client.message() {
            Message::Simple { cookie, error } => {
                assert_eq!((cookie, error), (4, 0));
                finished.push(cookie);
            }
            Message::Chunk {
                cookie,
                kind,
                done,
                payload,
            } => {
                replies.entry(cookie).or_default().push((kind, payload));
                if done {
                    finished.push(cookie);
                }
            }
        }
    }
    let slow: Vec<_> = finished[2..].to_vec();
    assert!(slow.contains(&1) && slow.contains(&2), "{finished:?}");
    assert!(assemble(0, 1 << 20, &replies[&2]).unwrap() == data);
    assert!(assemble(300_000, 512, &replies[&1]).unwrap() == data[300_000..300_512]);
    rig.stop().unwrap();
}

#[test]
fn many_requests_in_one_send() {
    let rig = Rig::new();
    let mut client = rig.connect("", true);
    let mut requests = Vec::new();
    for index in 0..700_u64 {
        requests.extend(header(CMD_WRITE, 0, index, index * 512, 512));
        requests.extend(pattern(512, usize::try_from(index).unwrap()));
    }
    let mut socket = client.socket.try_clone().unwrap();
    let sender = std::thread::spawn(move || socket.write_all(&requests).unwrap());
    let mut seen: Vec<_> = (0..700).map(|_| client.message().cookie()).collect();
    sender.join().unwrap();
    seen.sort_unstable();
    assert!(seen.iter().copied().eq(0..700));
    let reads: Vec<u8> = (0..700)
        .flat_map(|index| header(CMD_READ, 0, index, index * 512, 512))
        .collect();
    client.send(&reads);
    for _ in 0..700 {
        let Message::Chunk {
            cookie, payload, ..
        } = client.message()
        else {
            panic!()
        };
        assert_eq!(be64(&payload, 0), cookie * 512);
        assert!(payload[8..] == pattern(512, usize::try_from(cookie).unwrap()));
    }
    rig.stop().unwrap();
}

#[test]
fn a_client_may_vanish_anywhere() {
    // Room for connections that are still being closed.
    let options = Options {
        connections: 1000,
        memory: 2 << 30,
        ..Options::default()
    };
    let rig = Rig::with(options, PATIENT);
    let mut session = handshake("", true);
    session.extend(header(CMD_WRITE, 0, 1, 512, 100));
    session.extend([7; 100]);
    session.extend(header(CMD_READ, 0, 2, 0, 300_000));
    session.extend(header(CMD_FLUSH, 0, 3, 0, 0));
    for cut in 0..=session.len() {
        let mut socket = rig.dial();
        socket.write_all(&session[..cut]).unwrap();
    }
    // And in the middle of a large payload.
    for sent in [1, 100_000, 900_000] {
        let mut client = rig.connect("", true);
        client.send(&header(CMD_WRITE, 0, 1, 0, 1 << 20));
        client.send(&vec![1; sent]);
    }
    // A client that has only closed its sending side gets its replies.
    let mut client = rig.connect("", true);
    client.send(&header(CMD_READ, 0, 2, 0, 1000));
    client.socket.shutdown(Half::Write).unwrap();
    assert_eq!(client.message().cookie(), 2);
    assert!(client.is_closed());
    assert_eq!(rig.connect("", false).write(0, 0, &[1; 512]), 0);
    rig.stop().unwrap();
}

#[test]
fn an_error_is_its_requests_alone() {
    let rig = Rig::new();
    let mut client = rig.connect("", true);
    let data = pattern(1 << 20, 3);
    assert_eq!(client.write(0, 0, &data), 0);
    rig.store
        .inner
        .inject(Fault::on(Operation::Read).within(600_064..600_576));
    for (slow, label) in [(0..0, "at once"), (0..1 << 20, "by workers")] {
        rig.store.stop_disk(slow.clone());
        client.send(&header(CMD_READ, 0, 5, 0, 1 << 20));
        if !slow.is_empty() {
            rig.store.await_waiting(4);
            rig.store.stop_disk(0..0);
        }
        let chunks = client.chunks(5);
        let errors: Vec<_> = chunks
            .iter()
            .filter(|chunk| chunk.0 == REPLY_TYPE_ERROR_OFFSET)
            .collect();
        assert_eq!(errors.len(), 1, "{label}");
        let at = be64(&errors[0].1, errors[0].1.len() - 8);
        assert!((524_288..600_577).contains(&at), "{label}: {at}");
        // The other pieces are there and right.
        for (_, payload) in chunks
            .iter()
            .filter(|chunk| chunk.0 == REPLY_TYPE_OFFSET_DATA)
        {
            let start = usize::try_from(be64(payload, 0)).unwrap();
            assert!(payload[8..] == data[start..start + payload.len() - 8]);
        }
    }
    assert_eq!(client.read(CMD_FLAG_DF, 0, 1 << 20), Err(EIO));
    assert_eq!(client.read(0, 600_064, 512), Err(EIO));
    let mut simple = rig.connect("", false);
    assert_eq!(simple.read(0, 0, 1 << 20), Err(EIO));
    assert!(simple.read(0, 0, 4096).unwrap() == data[..4096]);

    rig.store.inner.heal();
    rig.store
        .inner
        .inject(Fault::on(Operation::Write).within(800_000..800_001));
    assert_eq!(client.write(0, 0, &data), EIO);
    assert_eq!(client.write(CMD_FLAG_FUA, 0, &data), EIO);
    assert_eq!(client.write(0, 0, &data[..4096]), 0);
    rig.store.inner.heal();
    rig.store.inner.fill_up_after(0);
    assert_eq!(client.write(0, 0, &data[..4096]), ENOSPC);
    rig.store.inner.heal();
    rig.store.inner.inject(Fault::on(Operation::Flush).times(1));
    assert_eq!(client.command(CMD_FLUSH, 0, 0, 0), EIO);
    assert!(client.read(0, 0, 1 << 20).unwrap() == data);
    rig.store.inner.heal();
    rig.stop().unwrap();
}

#[test]
fn who_has_lost_the_volume_answers_nothing() {
    let errno = rustix::io::Errno::SHUTDOWN.raw_os_error();
    // By workers, and on the connection's own thread, which has no memory to give them.
    for options in [Options::default(), Rig::tight(32)] {
        let rig = Rig::with(options, PATIENT);
        for operation in [Operation::Read, Operation::Write] {
            rig.store.inner.inject(Fault::on(operation).errno(errno));
        }
        for structured in [false, true] {
            for (command, flags, len) in [
                (CMD_READ, 0, 512),
                (CMD_READ, 0, 2 << 20),
                (CMD_READ, CMD_FLAG_DF, 2 << 20),
                (CMD_WRITE, 0, 512),
                (CMD_WRITE, CMD_FLAG_FUA, 512),
                (CMD_WRITE, 0, 2 << 20),
            ] {
                if flags == CMD_FLAG_DF && !structured {
                    continue;
                }
                let mut client = rig.connect("", structured);
                let mut request = header(command, flags, 1, 0, len);
                if command == CMD_WRITE {
                    request.extend(pattern(len, 5));
                }
                // It may be cut off before it has read all of it.
                let _ = client.socket.write_all(&request);
                let mut received = Vec::new();
                let _ = client.socket.read_to_end(&mut received);
                assert_eq!(received, [0; 0], "{command} of {len}, {structured}");
            }
        }
        rig.store.inner.heal();
        rig.stop().unwrap();
    }
}

#[test]
fn late_errors_without_memory_end_only_simple_connections() {
    let rig = Rig::with(Rig::tight(2), PATIENT);
    rig.store
        .inner
        .inject(Fault::on(Operation::Read).within(900_096..900_608));
    let mut client = rig.connect("", true);
    client.send(&header(CMD_READ, CMD_FLAG_DF, 1, 0, 2 << 20));
    let chunks = client.chunks(1);
    let kinds: Vec<_> = chunks.iter().map(|chunk| chunk.0).collect();
    assert_eq!(kinds, [REPLY_TYPE_OFFSET_DATA, REPLY_TYPE_ERROR_OFFSET]);
    assert_eq!(chunks[0].1.len(), 8 + (2 << 20));
    assert!(client.read(CMD_FLAG_DF, 0, 512).is_ok());

    let mut simple = rig.connect("", false);
    simple.send(&header(CMD_READ, 0, 1, 0, 2 << 20));
    let mut received = Vec::new();
    let _ = simple.socket.read_to_end(&mut received);
    assert!(received.len() < 16 + (2 << 20));
    assert!(client.read(0, 0, 512).is_ok());
    rig.stop().unwrap();
}

#[test]
fn odd_requests_are_refused_and_the_stream_stays_in_step() {
    let rig = Rig::new();
    let end = SIZE as u64;
    for structured in [true, false] {
        let mut client = rig.connect("", structured);
        assert_eq!(client.read(0, 0, 0), Ok(vec![]));
        assert_eq!(client.write(0, 0, &[]), 0);
        assert_eq!(client.write(CMD_FLAG_FUA, end, &[]), 0);
        assert_eq!(client.command(CMD_TRIM, 0, 0, 0), 0);
        assert_eq!(client.read(0, end, 1), Err(EINVAL));
        assert_eq!(client.read(0, u64::MAX, 1), Err(EINVAL));
        assert_eq!(client.write(0, end - 100, &[0; 200]), ENOSPC);
        assert_eq!(client.write(0, end, &vec![0; 1 << 20]), ENOSPC);
        assert_eq!(client.command(CMD_WRITE_ZEROES, 0, end - 1, 2), ENOSPC);
        assert_eq!(client.command(CMD_TRIM, 0, end - 1, 2), EINVAL);
        assert_eq!(client.command(CMD_CACHE, 0, 0, 3 << 20), 0);
        assert_eq!(client.command(CMD_BLOCK_STATUS, 0, 0, 512), EINVAL);
        assert_eq!(client.command(1234, 0, 0, 0), EINVAL);
        assert_eq!(client.write(1 << 9, 0, &[1; 600]), EINVAL);
        assert_eq!(client.read(0, 0, MAX_PAYLOAD as usize + 1), Err(EINVAL));
        if structured {
            assert_eq!(
                client.read(CMD_FLAG_DF, 0, MAX_PAYLOAD as usize + 1),
                Err(EOVERFLOW)
            );
        }
        assert_eq!(
            client.write(0, 0, &vec![1; MAX_PAYLOAD as usize + 1]),
            EINVAL
        );
        assert_eq!(client.write(0, 0, &vec![1; MAX_PAYLOAD as usize]), 0);
        assert!(
            client
                .read(0, 0, MAX_PAYLOAD as usize)
                .unwrap()
                .iter()
                .all(|&byte| byte == 1)
        );
        let huge = MAX_DRAIN as usize + 1;
        client.send(&header(CMD_WRITE, 0, 1, 0, huge));
        assert!(client.is_closed());
    }
    let mut read_only = rig.connect("ro", true);
    assert_eq!(read_only.write(0, 0, &vec![0; 300_000]), EPERM);
    assert_eq!(read_only.command(CMD_TRIM, 0, 0, 512), EPERM);
    assert_eq!(read_only.command(CMD_WRITE_ZEROES, 0, 0, 512), EPERM);
    assert_eq!(read_only.command(CMD_FLUSH, 0, 0, 0), 0);
    assert!(read_only.read(0, 0, 512).is_ok());

    let mut garbage = rig.connect("", true);
    garbage.send(&[0xAA; 28]);
    assert!(garbage.is_closed());
    let mut goodbye = rig.connect("", true);
    goodbye.send(&header(CMD_DISC, 0, 0, 0, 0));
    assert!(goodbye.is_closed());
    rig.stop().unwrap();
}

#[test]
fn flush_and_fua_reach_the_store_before_their_replies() {
    let rig = Rig::new();
    let (mut one, mut other) = (rig.connect("", true), rig.connect("", true));
    let before = rig.store.flushes();
    assert_eq!(one.write(0, 0, &[1; 4096]), 0);
    assert_eq!(rig.store.flushes(), before);
    // Multi-conn: a flush covers the other connection's writes.
    assert_eq!(other.command(CMD_FLUSH, 0, 0, 0), 0);
    assert_eq!(rig.store.flushes(), before + 1);
    assert_eq!(one.write(CMD_FLAG_FUA, 0, &[2; 4096]), 0);
    assert_eq!(rig.store.flushes(), before + 2);
    assert!(other.read(0, 0, 4096).unwrap() == [2; 4096]);
    assert_eq!(one.command(CMD_WRITE_ZEROES, CMD_FLAG_FUA, 0, 4096), 0);
    assert!(rig.store.flushes() > before + 2);
    rig.stop().unwrap();
}

/// The flush has begun and not returned, and others are answered meanwhile: only
/// then can it be seen that a reply waits for it.
#[test]
fn no_durable_reply_goes_out_before_the_flush_returns() {
    let large = 10 << 20;
    for (kind, flags, len) in [
        (CMD_FLUSH, 0, 0),
        (CMD_WRITE, CMD_FLAG_FUA, 4096),
        (CMD_WRITE, CMD_FLAG_FUA, 1 << 20),
        (CMD_WRITE_ZEROES, CMD_FLAG_FUA, 4096),
        (CMD_WRITE_ZEROES, CMD_FLAG_FUA, large),
        (CMD_TRIM, CMD_FLAG_FUA, large),
    ] {
        let rig = Rig::new();
        let mut client = rig.connect("", true);
        rig.store.stop_flushes(true);
        client.send(&header(kind, flags, 1, 0, len));
        if kind == CMD_WRITE {
            client.send(&pattern(len, 1));
        }
        rig.store.await_waiting(1);
        client.send(&header(CMD_READ, 0, 2, SIZE as u64 - 512, 512));
        assert_eq!(client.chunks(2).len(), 1, "command {kind}");
        rig.store.stop_flushes(false);
        let reply = client.message();
        assert_eq!((reply.cookie(), reply.error()), (1, 0), "command {kind}");
        rig.stop().unwrap();
    }
}

#[test]
fn a_client_that_takes_no_replies_disturbs_nobody() {
    let options = Options {
        workers: 1,
        ..Rig::tight(2)
    };
    let options = Options {
        memory: options.memory + (8 << 20),
        ..options
    };
    let rig = Rig::with(options, QUICK);
    let mut silent = rig.connect("", true);
    // More replies than the socket, the pool and the connection hold, by
    // workers and at once.
    rig.store.stop_disk(0..1 << 20);
    for cookie in 0..20 {
        silent.send(&header(CMD_READ, 0, cookie, 0, 1 << 20));
        silent.send(&header(CMD_FLUSH, 0, cookie, 0, 0));
    }
    rig.store.await_waiting(1);
    rig.store.stop_disk(0..0);
    let mut client = rig.connect("", true);
    for _ in 0..10 {
        assert_eq!(client.write(0, 0, &[1; 70_000]), 0);
        assert_eq!(client.write(CMD_FLAG_FUA, 100, &[1; 70_000]), 0);
        assert_eq!(client.read(0, 0, 1 << 20).unwrap().len(), 1 << 20);
    }
    // Nor does it keep the server from stopping.
    rig.stop().unwrap();
}

#[test]
fn stopping_answers_what_had_arrived_and_flushes() {
    let rig = Rig::new();
    let mut client = rig.connect("", true);
    let mut idle = rig.connect("", true);
    let mut haggling = rig.dial();
    rig.store.stop_disk(0..4096);
    client.send(&header(CMD_READ, 0, 1, 0, 512));
    client.send(&header(CMD_WRITE, 0, 2, 8192, 4096));
    client.send(&[9; 4096]);
    assert_eq!(
        client.message(),
        Message::Simple {
            cookie: 2,
            error: 0
        }
    );
    rig.store.await_waiting(1);
    let flushes = rig.store.flushes();
    rig.shutdown.trigger();
    rig.shutdown.trigger();
    assert!(idle.is_closed());
    rig.store.stop_disk(0..0);
    assert_eq!(client.message().cookie(), 1);
    assert!(client.is_closed());
    let store = std::sync::Arc::clone(&rig.store);
    haggling
        .write_all(&handshake("", false))
        .unwrap_or_default();
    let _ = haggling.read_to_end(&mut Vec::new());
    // Clients close their side, so that nothing lingers.
    drop((client, idle, haggling));
    rig.stop().unwrap();
    assert_eq!(store.flushes(), flushes + 1);
}

#[test]
fn stopping_does_not_wait_for_gigabytes_of_zeros() {
    let timeouts = Timeouts {
        grace: Duration::ZERO,
        ..PATIENT
    };
    let rig = Rig::with(Options::default(), timeouts);
    let mut client = rig.connect("", true);
    // Its first sector has to be read, from a disk that stands still.
    rig.store.stop_disk(0..512);
    client.send(&header(CMD_WRITE_ZEROES, 0, 1, 1, 40 << 20));
    rig.store.await_waiting(1);
    rig.shutdown.trigger();
    rig.store.stop_disk(0..0);
    assert_eq!(client.message().error(), ESHUTDOWN);
    drop(client);
    rig.stop().unwrap();
}

#[test]
fn a_panic_ends_its_connection_alone() {
    let rig = Rig::new();
    let mut other = rig.connect("", true);
    let mut client = rig.connect("", true);
    rig.store
        .panics
        .store(true, std::sync::atomic::Ordering::SeqCst);
    client.send(&header(CMD_READ, 0, 1, 0, 512));
    assert!(client.is_closed());
    rig.store
        .panics
        .store(false, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(other.write(0, 0, &pattern(4096, 1)), 0);
    let store = std::sync::Arc::clone(&rig.store);
    let flushes = store.flushes();
    drop((client, other));
    rig.stop().unwrap();
    assert_eq!(store.flushes(), flushes + 1);
}

#[test]
fn a_failed_last_flush_is_reported() {
    let rig = Rig::new();
    rig.store.inner.inject(Fault::on(Operation::Flush));
    assert!(matches!(
        rig.stop().unwrap_err().kind,
        crate::ErrorKind::Volume(_)
    ));
}

#[test]
fn connections_are_limited() {
    let rig = Rig::with(
        Options {
            connections: 2,
            ..Options::default()
        },
        PATIENT,
    );
    let mut clients = [rig.connect("", true), rig.connect("", true)];
    assert!(matches!(rig.dial().read(&mut [0]), Ok(0) | Err(_)));
    assert!(clients[0].read(0, 0, 512).is_ok());
    rig.stop().unwrap();
}

#[test]
fn the_last_clients_end_can_be_the_servers() {
    let options = Options {
        exit_with_last: true,
        ..Options::default()
    };
    let rig = Rig::with(options, PATIENT);
    // Whoever chooses no export does not count.
    drop(rig.dial());
    let mut clients = [rig.connect("", true), rig.connect("", true)];
    let [one, other] = &mut clients;
    assert_eq!(one.write(0, 0, &[1; 512]), 0);
    one.send(&header(CMD_DISC, 0, 1, 0, 0));
    assert!(one.is_closed());
    assert!(other.read(0, 0, 512).is_ok());
    assert!(!rig.shutdown.is_triggered());
    drop(clients);
    rig.wait().unwrap();
}

#[test]
fn a_volume_that_grows_is_larger_for_new_clients() {
    let rig = Rig::new();
    let mut old = rig.connect("", true);
    rig.store.inner.inner().resize(SIZE + 4096);
    assert!(rig.volume.grow(SIZE as u64 + 4096).unwrap());
    let mut new = rig.connect("", true);
    assert_eq!(new.write(0, SIZE as u64, &[7; 4096]), 0);
    assert!(new.read(0, SIZE as u64, 4096).unwrap() == [7; 4096]);
    // Whoever was told the old size is held to it.
    assert_eq!(old.write(0, SIZE as u64, &[1; 512]), ENOSPC);
    assert_eq!(old.read(0, SIZE as u64, 512), Err(EINVAL));
    rig.stop().unwrap();
}

#[test]
fn a_slow_handshake_is_ended() {
    let timeouts = Timeouts {
        handshake: Duration::from_millis(50),
        ..PATIENT
    };
    let rig = Rig::with(Options::default(), timeouts);
    let mut silent = rig.dial();
    let mut rest = Vec::new();
    silent.read_to_end(&mut rest).unwrap();
    assert_eq!(rest.len(), 18);
    rig.stop().unwrap();
}

#[test]
fn contradictory_options_are_refused() {
    let shutdown = crate::Shutdown::new().unwrap();
    let options = Options {
        memory: 1,
        ..Options::default()
    };
    let refused = super::serve(vec![], &super::Exports::new(), options, &shutdown).unwrap_err();
    assert_eq!(refused.kind, crate::ErrorKind::Argument);
}
