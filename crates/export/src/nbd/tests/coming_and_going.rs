//! Exports that come and go while clients are connected.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::thread;

use xtent_store::testing::{Fault, Operation};

use super::client::{Rig, SlowStore, export, handshake, header, volume};
use super::{Options, PATIENT, QUICK};
use crate::ErrorKind;
use crate::nbd::proto::be32;
use crate::nbd::proto::constants::*;

/// A rig with one more export, "more", on a store of its own.
fn with_more() -> (Rig, Arc<SlowStore>) {
    let rig = Rig::with(Options::default(), PATIENT);
    let store = SlowStore::new();
    let volume = volume(Arc::clone(&store) as _, false);
    rig.exports.add(export("more", &volume)).unwrap();
    (rig, store)
}

/// The type of the server's answer to the choice of an export.
fn answer_to(rig: &Rig, name: &str) -> u32 {
    let mut socket = rig.dial();
    socket.write_all(&handshake(name, false)).unwrap();
    let mut reply = [0; 18 + 20];
    socket.read_exact(&mut reply).unwrap();
    be32(&reply, 18 + 12)
}

#[test]
fn an_export_can_be_added_and_removed() {
    let (rig, store) = with_more();
    let mut client = rig.connect("more", true);
    let mut other = rig.connect("", true);
    assert_eq!(client.write(0, 0, &[7; 512]), 0);
    let flushes = store.flushes();
    rig.exports.remove("more").unwrap();
    assert!(client.is_closed());
    assert_eq!(store.flushes(), flushes + 1);
    // Nothing of it is held here.
    assert_eq!(Arc::strong_count(&store), 1);
    assert_eq!(answer_to(&rig, "more"), REP_ERR_UNKNOWN);
    assert_eq!(
        rig.exports.remove("more").unwrap_err().kind,
        ErrorKind::Argument
    );
    assert!(other.read(0, 0, 512).is_ok());
    let volume = volume(Arc::clone(&store) as _, false);
    rig.exports.add(export("more", &volume)).unwrap();
    let taken = rig.exports.add(export("more", &volume)).unwrap_err();
    assert_eq!(taken.kind, ErrorKind::Busy);
    assert!(rig.connect("more", true).read(0, 0, 512).unwrap() == [7; 512]);
    rig.stop().unwrap();
}

#[test]
fn a_client_that_haggles_sees_the_exports_of_the_moment() {
    let rig = Rig::new();
    let mut socket = rig.dial();
    let late = handshake("late", false);
    socket.write_all(&late).unwrap();
    socket.read_exact(&mut [0; 18 + 20 + 14]).unwrap();
    let store = SlowStore::new();
    let volume = volume(Arc::clone(&store) as _, false);
    rig.exports.add(export("late", &volume)).unwrap();
    // The same option once more, without the client's flags.
    socket.write_all(&late[4..]).unwrap();
    let mut reply = [0; 20];
    socket.read_exact(&mut reply).unwrap();
    assert_eq!(be32(&reply, 12), REP_INFO);
    rig.stop().unwrap();
}

#[test]
fn what_had_arrived_is_finished_before_an_export_is_gone() {
    let (rig, store) = with_more();
    let mut client = rig.connect("more", false);
    store.stop_flushes(true);
    client.send(&header(CMD_FLUSH, 0, 1, 0, 0));
    store.await_waiting(1);
    thread::scope(|scope| {
        let removal = scope.spawn(|| rig.exports.remove("more"));
        while !rig.exports.listing("more").unwrap().is_ending {
            thread::yield_now();
        }
        assert_eq!(rig.exports.listing("more").unwrap().clients, 1);
        assert_eq!(answer_to(&rig, "more"), REP_ERR_UNKNOWN);
        let twice = rig.exports.remove("more").unwrap_err();
        assert_eq!(twice.kind, ErrorKind::Busy);
        assert!(!removal.is_finished());
        store.stop_flushes(false);
        assert_eq!(client.message().error(), 0);
        assert!(client.is_closed());
        removal.join().unwrap().unwrap();
    });
    rig.stop().unwrap();
}

#[test]
fn the_servers_end_waits_for_a_removal_and_tells_of_its_failure() {
    let (rig, store) = with_more();
    let exports = rig.exports.clone();
    store.stop_flushes(true);
    store.inner.inject(Fault::on(Operation::Flush));
    thread::scope(|scope| {
        let removal = scope.spawn(|| exports.remove("more"));
        store.await_waiting(1);
        let end = scope.spawn(|| rig.stop());
        let another = volume(SlowStore::new() as _, false);
        let refused = || exports.add(export("more", &another)).unwrap_err();
        while !refused().message.contains("ending") {
            thread::yield_now();
        }
        assert_eq!(exports.remove("").unwrap_err().kind, ErrorKind::Busy);
        assert!(!end.is_finished());
        store.stop_flushes(false);
        removal.join().unwrap().unwrap_err();
        let told = end.join().unwrap().unwrap_err();
        assert!(told.message.starts_with("more: "), "{told}");
    });
}

#[test]
fn a_flush_that_fails_at_the_removal_is_told() {
    let (rig, store) = with_more();
    store.inner.inject(Fault::on(Operation::Flush));
    let error = rig.exports.remove("more").unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Volume(_)), "{error}");
    assert_eq!(rig.exports.list().len(), 2);
    // The others' flushes are their own.
    rig.stop().unwrap();
}

/// Each waits for its own disk only, and none that fails keeps another from its flush.
#[test]
fn at_the_end_all_are_flushed_side_by_side() {
    let (rig, more) = with_more();
    let stores = [(); 3].map(|()| SlowStore::new());
    for (name, store) in ["a", "b", "c"].into_iter().zip(&stores) {
        let volume = volume(Arc::clone(store) as _, false);
        rig.exports.add(export(name, &volume)).unwrap();
        store.stop_flushes(true);
    }
    let [a, b, c] = &stores;
    for store in [a, b] {
        store.inner.inject(Fault::on(Operation::Flush));
    }
    let exports = rig.exports.clone();
    thread::scope(|scope| {
        let end = scope.spawn(|| rig.stop());
        for store in &stores {
            store.await_waiting(1);
        }
        // One that is done is let go of while others are not.
        while Arc::strong_count(&more) > 1 {
            thread::yield_now();
        }
        assert!(!end.is_finished());
        for store in &stores {
            store.stop_flushes(false);
        }
        let error = end.join().unwrap().unwrap_err();
        assert!(matches!(error.kind, ErrorKind::Volume(_)), "{error}");
        let told: Vec<_> = error.message.lines().map(|line| &line[..2]).collect();
        assert_eq!(told, ["a:", "b:"], "{error}");
    });
    assert_eq!(c.flushes(), 1);
    assert!(exports.list().iter().all(|export| export.clients == 0));
}

/// However many requests wait for the one store, and however many clients have them.
#[test]
fn an_export_that_stands_still_holds_up_no_other() {
    let options = Options {
        workers: 2,
        ..Options::default()
    };
    let rig = Rig::with(options, QUICK);
    let store = SlowStore::new();
    let slow = volume(Arc::clone(&store) as _, false);
    rig.exports.add(export("slow", &slow)).unwrap();
    store.stop_flushes(true);
    store.stop_disk(0..u64::MAX);
    let mut waiting: Vec<_> = (0..4).map(|_| rig.connect("slow", true)).collect();
    for client in &mut waiting {
        for cookie in 0..40 {
            client.send(&header(CMD_FLUSH, 0, cookie, 0, 0));
            client.send(&header(CMD_READ, 0, cookie, 0, 1 << 20));
            client.send(&header(CMD_WRITE_ZEROES, 0, cookie, 0, 40 << 20));
        }
    }
    store.await_waiting(2);
    let mut client = rig.connect("", true);
    for _ in 0..3 {
        assert_eq!(client.write(CMD_FLAG_FUA, 0, &[1; 4096]), 0);
        assert_eq!(client.command(CMD_WRITE_ZEROES, 0, 4096, 9 << 20), 0);
        assert_eq!(client.command(CMD_FLUSH, 0, 0, 0), 0);
        assert!(client.read(0, 0, 1 << 20).is_ok());
    }
    store.stop_flushes(false);
    store.stop_disk(0..0);
    drop((waiting, client));
    rig.stop().unwrap();
}

/// What an export takes for its clients goes with them.
#[test]
fn an_export_without_clients_takes_neither_threads_nor_memory() {
    let (rig, _) = with_more();
    let mut client = rig.connect("more", true);
    assert_eq!(client.write(CMD_FLAG_FUA, 0, &[1; 1 << 20]), 0);
    let (served, _) = rig.exports.offered();
    let more = served.iter().find(|served| served.name == "more").unwrap();
    assert!(more.memory.allocated() > 0 && more.executor.threads() > 0);
    drop(client);
    while more.executor.threads() > 0 || more.memory.allocated() > 0 {
        thread::yield_now();
    }
    rig.stop().unwrap();
}

#[test]
fn a_server_that_has_ended_has_let_go_of_its_volumes() {
    let rig = Rig::new();
    let (exports, volume) = (rig.exports.clone(), Arc::downgrade(&rig.volume));
    let mut client = rig.connect("", true);
    assert_eq!(client.write(0, 0, &[1; 512]), 0);
    rig.stop().unwrap();
    assert!(volume.upgrade().is_none());
    assert!(exports.list().iter().all(|export| export.clients == 0));
}

#[test]
fn whoever_looks_keeps_nobody_from_coming() {
    let rig = Rig::new();
    thread::scope(|scope| {
        let looking = scope.spawn(|| {
            for _ in 0..2_000_000 {
                assert!(!rig.exports.exported().is_empty());
            }
        });
        while !looking.is_finished() {
            let mut client = rig.connect("", false);
            client.read(0, 0, 512).unwrap();
            client.socket.shutdown(Shutdown::Write).unwrap();
            assert!(client.is_closed());
        }
    });
    rig.stop().unwrap();
}
