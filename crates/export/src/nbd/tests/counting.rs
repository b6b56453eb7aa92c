//! What the volume says it was asked for, and what was spent on it.

use std::net::Shutdown;
use std::time::Duration;

use xtent_store::testing::{Fault, Operation};
use xtent_volume::{Phase, RequestKind, Requests, Snapshot};

use super::client::{Client, Rig, header};
use super::{EIO, Options, pattern};
use crate::nbd::proto::constants::*;

/// How many requests of each kind were answered, failed, and how many bytes they asked for.
fn of(snapshot: &Snapshot, kind: RequestKind) -> (u64, u64, u64) {
    let Requests {
        bytes,
        failed,
        latency,
    } = &snapshot.requests[kind as usize];
    (latency.count(), *failed, *bytes)
}

/// What was counted once the server has taken its leave of the client, and so counted all.
fn at_the_end(rig: &Rig, client: &mut Client) -> Snapshot {
    client.socket.shutdown(Shutdown::Write).unwrap();
    assert!(client.is_closed());
    rig.volume.metrics().snapshot()
}

fn count_all_kinds(rig: &Rig, structured: bool) -> Snapshot {
    let mut client = rig.connect("", structured);
    let data = pattern(3 << 20, 1);
    assert_eq!(client.write(0, 0, &data), 0);
    assert_eq!(client.write(CMD_FLAG_FUA, 0, &data[..512]), 0);
    let reads: Vec<u8> = (0..10)
        .flat_map(|cookie| header(CMD_READ, 0, cookie, cookie * 4096, 4096))
        .collect();
    client.send(&reads);
    for _ in 0..10 {
        let reply = client.message();
        assert_eq!(reply.error(), 0);
        if !structured {
            client.take(4096);
        }
    }
    assert_eq!(client.read(0, 0, 3 << 20).unwrap().len(), 3 << 20);
    assert_eq!(client.command(CMD_FLUSH, 0, 0, 0), 0);
    assert_eq!(client.command(CMD_TRIM, 0, 0, 8192), 0);
    assert_eq!(client.command(CMD_WRITE_ZEROES, 0, 0, 9 << 20), 0);
    assert_eq!(client.command(CMD_CACHE, 0, 0, 1 << 20), 0);
    at_the_end(rig, &mut client)
}

fn check(snapshot: &Snapshot) {
    assert_eq!(
        of(snapshot, RequestKind::Write),
        (2, 0, (3 << 20) + 512),
        "writes"
    );
    assert_eq!(
        of(snapshot, RequestKind::Read),
        (11, 0, 40_960 + (3 << 20)),
        "reads"
    );
    assert_eq!(of(snapshot, RequestKind::Flush), (1, 0, 0));
    assert_eq!(of(snapshot, RequestKind::Discard), (1, 0, 8192));
    assert_eq!(of(snapshot, RequestKind::WriteZeroes), (1, 0, 9 << 20));
    assert_eq!(of(snapshot, RequestKind::ReadAhead), (1, 0, 1 << 20));
    assert_eq!(snapshot.under_way, 0);
    // None took no time at all: each is counted in whole microseconds that it has begun.
    for requests in &snapshot.requests {
        assert!(requests.latency.sum >= requests.latency.count());
    }
    // Every sector that was asked for went through the cipher.
    assert!(snapshot.runs.sum >= ((3 << 20) + (3 << 20) + (9 << 20)) / 512);
}

#[test]
fn each_request_counts_once_however_it_is_served() {
    for structured in [true, false] {
        let rig = Rig::new();
        check(&count_all_kinds(&rig, structured));
        rig.stop().unwrap();
        let (rig, _) = Rig::far(Options::default());
        let snapshot = count_all_kinds(&rig, structured);
        check(&snapshot);
        // All of it waits there, and all that waits is timed.
        for phase in [Phase::Store, Phase::Cipher, Phase::Socket] {
            let time = snapshot.time[phase as usize];
            assert!(time > Duration::ZERO, "{phase:?}");
        }
        rig.stop().unwrap();
        let rig = Rig::with(Rig::tight(1), super::PATIENT);
        check(&count_all_kinds(&rig, structured));
        rig.stop().unwrap();
    }
}

#[test]
fn a_large_read_in_part_from_the_disk_counts_once() {
    let rig = Rig::new();
    let mut client = rig.connect("", true);
    assert_eq!(client.write(0, 0, &pattern(1 << 20, 1)), 0);
    rig.store.stop_disk(300_000..400_000);
    client.send(&header(CMD_READ, 0, 1, 0, 1 << 20));
    rig.store.await_waiting(1);
    let snapshot = rig.volume.metrics().snapshot();
    assert_eq!(of(&snapshot, RequestKind::Read), (0, 0, 1 << 20));
    assert!(snapshot.under_way > 0);
    rig.store.stop_disk(0..0);
    assert_eq!(client.chunks(1).len(), 4);
    let snapshot = at_the_end(&rig, &mut client);
    assert_eq!(of(&snapshot, RequestKind::Read), (1, 0, 1 << 20));
    assert_eq!(snapshot.under_way, 0);
    rig.stop().unwrap();
}

#[test]
fn what_fails_is_counted() {
    let rig = Rig::new();
    let mut client = rig.connect("", true);
    rig.store.inner.inject(Fault::on(Operation::Read));
    assert_eq!(client.read(0, 0, 512).unwrap_err(), EIO);
    let snapshot = at_the_end(&rig, &mut client);
    assert_eq!(of(&snapshot, RequestKind::Read), (1, 1, 512));
    rig.stop().unwrap();
}
