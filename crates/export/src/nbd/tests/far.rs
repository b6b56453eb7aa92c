//! A volume whose store completes its operations later, as one far away.

use std::sync::Arc;

use xtent_store::testing::{Fault, LaterStore, Operation};

use super::client::{Rig, header};
use super::{ESHUTDOWN, Options, pattern, round_trips};
use crate::nbd::connection::MAX_IN_FLIGHT;
use crate::nbd::proto::constants::*;

const ALL: std::ops::Range<u64> = 0..u64::MAX;

fn one_worker() -> Options {
    Options {
        workers: 1,
        ..Options::default()
    }
}

fn await_waiting<S: xtent_store::Store + 'static>(store: &Arc<LaterStore<S>>, count: usize) {
    while store.waiting() < count {
        std::thread::yield_now();
    }
}

#[test]
fn data_comes_back_with_either_kind_of_reply() {
    let (rig, store) = Rig::far(one_worker());
    round_trips(&rig, true);
    round_trips(&rig, false);
    assert!(store.most_waiting() > 4, "pieces are under way together");
    rig.stop().unwrap();
}

#[test]
fn without_memory_for_requests_everything_still_works() {
    let (rig, _) = Rig::far(Rig::tight(1));
    round_trips(&rig, true);
    rig.stop().unwrap();
}

#[test]
fn hundreds_of_requests_wait_without_a_thread_for_each() {
    let (rig, store) = Rig::far(one_worker());
    let data = pattern(2 << 20, 3);
    let mut clients = [rig.connect("", false), rig.connect("", false)];
    assert_eq!(clients[0].write(0, 0, &data), 0);
    store.hold(ALL);
    // One of each connection is left for what comes after.
    let count = MAX_IN_FLIGHT - 1;
    for client in &mut clients {
        for cookie in 0..count {
            client.send(&header(
                CMD_READ,
                0,
                cookie as u64,
                (cookie * 4096) as u64,
                4096,
            ));
        }
    }
    await_waiting(&store, 2 * count);
    store.hold(0..0);
    for client in &mut clients {
        let mut seen = vec![false; count];
        for _ in 0..count {
            let reply = client.message();
            assert_eq!(reply.error(), 0);
            let cookie = usize::try_from(reply.cookie()).unwrap();
            assert!(client.take(4096) == data[cookie * 4096..(cookie + 1) * 4096]);
            assert!(!std::mem::replace(&mut seen[cookie], true));
        }
    }
    rig.stop().unwrap();
}

#[test]
fn a_slow_request_does_not_hold_up_others() {
    let (rig, store) = Rig::far(one_worker());
    let mut client = rig.connect("", true);
    store.hold(4096..8192);
    client.send(&header(CMD_READ, 0, 1, 4096, 512));
    client.send(&header(CMD_WRITE, 0, 2, 7680, 512));
    client.send(&[1; 512]);
    await_waiting(&store, 2);
    // Neither small nor large ones, nor those that read before they write.
    assert_eq!(client.read(0, 8192, 4096).unwrap().len(), 4096);
    assert_eq!(client.read(0, 1 << 20, 4 << 20).unwrap().len(), 4 << 20);
    assert_eq!(client.write(CMD_FLAG_FUA, 10_000, &[7; 100]), 0);
    assert_eq!(client.command(CMD_WRITE_ZEROES, 0, 1 << 20, 9 << 20), 0);
    assert_eq!(client.command(CMD_FLUSH, 0, 0, 0), 0);
    assert_eq!(store.waiting(), 2);
    store.hold(0..0);
    assert_eq!(client.chunks_of_either(1, 2), 2);
    rig.stop().unwrap();
}

/// Only its own connection ends: the server of the volume is told otherwise.
#[test]
fn what_a_volume_is_asked_that_was_taken_over_is_left_without_an_answer() {
    let (rig, _) = Rig::far(one_worker());
    let errno = i32::try_from(ESHUTDOWN).unwrap();
    for (command, operation) in [
        (CMD_READ, Operation::Read),
        (CMD_WRITE, Operation::Write),
        (CMD_FLUSH, Operation::Flush),
    ] {
        let mut client = rig.connect("", true);
        let mut idle = rig.connect("", true);
        rig.store.inner.inject(Fault::on(operation).errno(errno));
        let len = if command == CMD_FLUSH { 0 } else { 4096 };
        client.send(&header(command, 0, 1, 0, len));
        if command == CMD_WRITE {
            client.send(&[1; 4096]);
        }
        assert!(client.is_closed());
        rig.store.inner.heal();
        assert_eq!(idle.read(0, 0, 4096).unwrap().len(), 4096);
    }
    rig.stop().unwrap();
}

#[test]
fn a_stopping_server_waits_for_what_is_under_way() {
    let (rig, store) = Rig::far(one_worker());
    let mut client = rig.connect("", false);
    store.hold(ALL);
    client.send(&header(CMD_WRITE, 0, 1, 4096, 512));
    client.send(&[9; 512]);
    await_waiting(&store, 1);
    rig.shutdown.trigger();
    store.hold(0..0);
    assert_eq!(client.message().error(), 0);
    let volume = Arc::clone(&rig.volume);
    rig.wait().unwrap();
    let mut found = [0; 512];
    volume.read_at(&mut found, 4096).unwrap();
    assert!(found == [9; 512]);
}
