//! What is under way when a server is killed, and what the next one makes of it.

use super::*;
use crate::vhost_user::inflight::{self, Inflight};

/// A list of what is under way, mapped by each server anew.
fn list() -> impl Fn() -> Arc<Inflight> {
    let file = inflight::create(1, ENTRIES).unwrap();
    move || {
        let file = file.try_clone().unwrap();
        Arc::new(Inflight::new(file, 0, 1, ENTRIES).unwrap())
    }
}

#[test]
fn what_was_under_way_is_carried_out_by_the_next() {
    let memory = list();
    let volume = volume(Arc::new(MemStore::new(SIZE)), 512, false);
    let mut rig = Rig::new(Arc::clone(&volume));
    rig.start(0, memory().ring(0, ENTRIES));
    assert_eq!(ask(&mut rig, FLUSH, 0, &[]).0, 0);
    rig.stop();
    // A server that took two requests, and was killed.
    let data = pattern(1024, 5);
    rig.put(DATA, &data);
    header(&rig, OUT, 6);
    rig.describe(
        Rig::TABLE,
        0,
        &[
            descriptor(HEADER, 16, NEXT, 1),
            descriptor(DATA, 512, NEXT, 2),
            descriptor(STATUS, 1, WRITE, 0),
            descriptor(HEADER, 16, NEXT, 4),
            descriptor(DATA, 1024, NEXT, 5),
            descriptor(STATUS, 1, WRITE, 0),
        ],
    );
    let mut killed = memory().ring(0, ENTRIES).unwrap();
    killed.begin(rig.used());
    for head in [0, 3] {
        rig.offer(head);
        killed.take(head);
    }
    // And one that nobody had taken.
    rig.offer(0);
    rig.start(0, memory().ring(0, ENTRIES));
    let before = 1;
    rig.wait_for(before + 3);
    rig.stop();
    let left = memory().ring(0, ENTRIES).unwrap().begin(rig.used());
    assert!(left.unwrap().is_empty());
    let mut found = vec![0; 1024];
    volume.read_at(&mut found, 6 * 512).unwrap();
    assert!(found == data);
}

/// Where the last server's write may still arrive.
#[test]
fn what_must_not_be_resumed_is_left_and_what_follows_is_served() {
    let memory = list();
    let volume = volume(Arc::new(MemStore::new(SIZE)), 512, false);
    volume.write_at(&[9; 1024], 0, false).unwrap();
    let mut rig = Rig::new(Arc::clone(&volume)).without_resumption();
    rig.start(0, memory().ring(0, ENTRIES));
    assert_eq!(ask(&mut rig, FLUSH, 0, &[]).0, 0);
    rig.stop();
    rig.put(DATA, &[5; 512]);
    header(&rig, OUT, 0);
    let write = |head: u16| {
        [
            descriptor(HEADER, 16, NEXT, head + 1),
            descriptor(DATA, 512, NEXT, head + 2),
            descriptor(STATUS, 1, WRITE, 0),
        ]
    };
    rig.describe(Rig::TABLE, 0, &[write(0), write(3), write(6)].concat());
    // A server that took two, gave back the second, and was killed.
    let mut killed = memory().ring(0, ENTRIES).unwrap();
    killed.begin(rig.used());
    for head in [0, 3] {
        rig.offer(head);
        killed.take(head);
    }
    killed.before_return(3);
    rig.put_used(rig.used() + 1);
    killed.after_return(3, rig.used());
    rig.start(0, memory().ring(0, ENTRIES));
    let before = rig.used();
    header(&rig, OUT, 1);
    rig.submit(6);
    assert_eq!(rig.wait_for(before + 1).0, 6);
    let next = rig.stop();
    assert_eq!((rig.used(), next), (before + 1, before + 2));
    let mut found = [0; 1024];
    volume.read_at(&mut found, 0).unwrap();
    assert!(found[..512] == [9; 512] && found[512..] == [5; 512]);
    let left = memory().ring(0, ENTRIES).unwrap().begin(rig.used());
    assert_eq!(left.unwrap(), [0]);
    // A guest that has moved has another list, and goes on where it was.
    rig.start(next, list()().ring(0, ENTRIES));
    rig.submit(3);
    assert_eq!(rig.wait_for(before + 2).0, 3);
    assert_eq!(rig.stop(), next + 1);
    assert_eq!(rig.used(), before + 2);
}

#[test]
fn what_a_killed_server_gave_back_is_told_by_the_next() {
    let memory = list();
    let ring = || memory().ring(0, ENTRIES);
    for has_event_index in [false, true] {
        let mut rig = Rig::new(volume(Arc::new(MemStore::new(SIZE)), 512, false));
        if has_event_index {
            rig = rig.with_event_index();
        }
        rig.offer(0);
        rig.put_used(1);
        rig.start(0, ring());
        rig.wait_until_told();
    }
}
