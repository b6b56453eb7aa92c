//! Front-ends that speak the protocol, turn by turn: nothing but their rings runs beside them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, memfd_create};
use xtent_store::testing::{LaterStore, MemStore};
use xtent_volume::Volume;

use super::*;
use crate::nbd::{SocketFile, bind_unix};
use crate::vhost_user::message::{NEED_REPLY, Reply, VERSION};
use crate::vhost_user::testing::work;
use crate::vhost_user::tests::volume;

const GET_FEATURES: u32 = 1;
const SET_FEATURES: u32 = 2;
const SET_MEM_TABLE: u32 = 5;
const SET_LOG_BASE: u32 = 6;
const SET_VRING_NUM: u32 = 8;
const SET_VRING_ADDR: u32 = 9;
const SET_VRING_BASE: u32 = 10;
const GET_VRING_BASE: u32 = 11;
const SET_VRING_KICK: u32 = 12;
const SET_PROTOCOL_FEATURES: u32 = 16;

const LOG_ALL: u64 = 1 << 26;
/// Where the front-end has its guest's memory.
const USER: u64 = 0x7000_0000;
const MEMORY: u64 = 1 << 20;
const ENTRIES: u16 = 16;
/// Where the guest has its ring and requests.
const DESCRIPTORS: u64 = 0x1000;
const AVAILABLE: u64 = 0x2000;
const USED: u64 = 0x3000;
const HEADER: u64 = 0x8000;
const STATUS: u64 = 0x9000;
const DATA: u64 = 0xa000;

fn memory(name: &str, length: u64) -> File {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(memfd_create(name, flags).unwrap());
    file.set_len(length).unwrap();
    file
}

fn words(words: [u32; 2]) -> Vec<u8> {
    words.map(u32::to_le_bytes).concat()
}

/// The server, and where it listens.
struct Bed {
    ends: FrontEnds<'static>,
    shutdown: Shutdown,
    growth: Growth,
    _file: SocketFile,
    folder: tempfile::TempDir,
}

impl Bed {
    fn new(volume: Arc<Volume>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (listener, file) = bind_unix(&folder.path().join("socket")).unwrap();
        listener.set_nonblocking().unwrap();
        let (listener, work) = (Box::leak(Box::new(listener)), work(volume));
        Self {
            ends: FrontEnds::new(listener, Box::leak(Box::new(work)), 4),
            shutdown: Shutdown::new().unwrap(),
            growth: Growth::new().unwrap(),
            _file: file,
            folder,
        }
    }

    fn turn(&mut self) {
        self.ends.turn(&self.shutdown, &self.growth).unwrap();
    }

    fn connect(&mut self) -> FrontEnd {
        let stream = UnixStream::connect(self.folder.path().join("socket")).unwrap();
        self.turn();
        FrontEnd {
            stream,
            memory: memory("guest", MEMORY),
            kick: eventfd(0, EventfdFlags::CLOEXEC).unwrap().into(),
            asked: 0,
        }
    }

    /// Who has the disk, in the order in which they have connected.
    fn holders(&self) -> Vec<bool> {
        let all = self.ends.connected.iter();
        all.map(|(_, session)| session.has_disk()).collect()
    }
}

/// A virtual machine of one ring, and its guest.
struct FrontEnd {
    stream: UnixStream,
    memory: File,
    kick: File,
    asked: u16,
}

impl FrontEnd {
    /// Says something, and has it heard; the answer to it.
    fn ask(&self, bed: &mut Bed, request: u32, body: &[u8], file: Option<&File>) -> Vec<u8> {
        let said = Reply {
            body: body.to_vec(),
            file: file.map(|file| file.try_clone().unwrap().into()),
        };
        message::send(&self.stream, request, VERSION | NEED_REPLY, &said).unwrap();
        bed.turn();
        let answer = message::receive(&self.stream, PATIENCE).unwrap().unwrap();
        assert_eq!(answer.request, request);
        answer.body
    }

    /// As [`FrontEnd::ask`], where it is done.
    fn tell(&self, bed: &mut Bed, request: u32, body: &[u8], file: Option<&File>) {
        assert_eq!(self.ask(bed, request, body, file), [0; 8], "{request}");
    }

    fn set_features(&self, bed: &mut Bed, features: u64) {
        // Version 1, event index; without those of the protocol a ring is enabled at once.
        let features = 1_u64 << 32 | 1 << 29 | features;
        self.tell(bed, SET_FEATURES, &features.to_le_bytes(), None);
    }

    /// Says all that is to be said, up to where the ring is.
    fn prepare(&self, bed: &mut Bed, features: u64) {
        // LOG_SHMFD and REPLY_ACK; the answer is the first one that can be asked for.
        let protocol = 0b1010_u64.to_le_bytes();
        self.tell(bed, SET_PROTOCOL_FEATURES, &protocol, None);
        self.set_features(bed, features);
        let table = [1_u64, 0, MEMORY, USER, 0].map(u64::to_le_bytes).concat();
        self.tell(bed, SET_MEM_TABLE, &table, Some(&self.memory));
        self.tell(bed, SET_VRING_NUM, &words([0, ENTRIES.into()]), None);
        self.tell(bed, SET_VRING_BASE, &words([0, self.asked.into()]), None);
        self.set_places(bed, None);
    }

    /// Where the ring is, and where its used part is in the log.
    fn set_places(&self, bed: &mut Bed, in_log: Option<u64>) {
        let mut body = words([0, in_log.is_some().into()]);
        let places = [DESCRIPTORS, USED, AVAILABLE].map(|at| (USER + at).to_le_bytes());
        body.extend(places.concat());
        body.extend(in_log.unwrap_or(0).to_le_bytes());
        self.tell(bed, SET_VRING_ADDR, &body, None);
    }

    fn start(&self, bed: &mut Bed) {
        let kick = Some(&self.kick);
        self.tell(bed, SET_VRING_KICK, &0_u64.to_le_bytes(), kick);
    }

    /// Stops the ring; where it stands.
    fn stop(&self, bed: &mut Bed) -> u8 {
        self.ask(bed, GET_VRING_BASE, &words([0, 0]), None)[4]
    }

    /// Another length of the log, and what is said to it.
    fn set_log(&self, bed: &mut Bed, length: u64) -> (u8, File) {
        let log = memory("log", 4096);
        let body = [length, 0].map(u64::to_le_bytes).concat();
        let answer = self.ask(bed, SET_LOG_BASE, &body, Some(&log));
        (answer[0], log)
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        self.memory.write_all_at(bytes, at).unwrap();
    }

    /// The guest reads a page.
    fn submit(&mut self) {
        // Header (a read of sector 0), page, status.
        self.put(HEADER, &[0; 16]);
        let chain = [(HEADER, 16, 1), (DATA, 4096, 3), (STATUS, 1, 2)];
        for (index, (at, len, flags)) in (0_u32..).zip(chain) {
            let mut descriptor = u64::to_le_bytes(at).to_vec();
            descriptor.extend(words([len, flags | (index + 1) << 16]));
            self.put(DESCRIPTORS + 16 * u64::from(index), &descriptor);
        }
        let slot = AVAILABLE + 4 + u64::from(self.asked % ENTRIES) * 2;
        self.put(slot, &[0, 0]);
        self.asked = self.asked.wrapping_add(1);
        self.put(AVAILABLE + 2, &self.asked.to_le_bytes());
        rustix::io::write(&self.kick, &1_u64.to_ne_bytes()).unwrap();
    }

    fn used(&self) -> u16 {
        let mut bytes = [0; 2];
        self.memory.read_exact_at(&mut bytes, USED + 2).unwrap();
        u16::from_le_bytes(bytes)
    }

    /// Waits until all that was asked for was given back.
    fn wait(&self) {
        let start = Instant::now();
        while self.used() != self.asked {
            assert!(start.elapsed() < Duration::from_secs(60), "{}", self.used());
            std::thread::yield_now();
        }
    }
}

fn plain() -> Arc<Volume> {
    volume(Arc::new(MemStore::new(1 << 20)), 512, false)
}

#[test]
fn the_second_has_the_disk_when_the_guest_of_the_first_has_moved_to_it() {
    let mut bed = Bed::new(plain());
    let mut source = bed.connect();
    source.prepare(&mut bed, 0);
    assert_eq!(bed.holders(), [false]);
    source.start(&mut bed);
    assert_eq!(bed.holders(), [true]);
    source.submit();
    source.wait();
    // The other one is told what there is, and has said that it is ready.
    let mut destination = bed.connect();
    assert_ne!(destination.ask(&mut bed, GET_FEATURES, &[], None), [0; 8]);
    destination.prepare(&mut bed, 0);
    destination.start(&mut bed);
    destination.submit();
    assert_eq!(bed.holders(), [true, false]);
    // A guest that starts anew keeps its disk.
    assert_eq!(source.stop(&mut bed), 1);
    assert_eq!(bed.holders(), [true, false]);
    source.start(&mut bed);
    source.submit();
    source.wait();
    // One that moves does not.
    assert_eq!(source.set_log(&mut bed, 4096).0, 0);
    source.set_features(&mut bed, LOG_ALL);
    assert_eq!(destination.used(), 0);
    assert_eq!(source.stop(&mut bed), 2);
    assert_eq!(bed.holders(), [false, true]);
    destination.wait();
    // What has moved can come back, but not before the other one has gone.
    source.start(&mut bed);
    assert_eq!(bed.holders(), [false, true]);
    source.submit();
    drop(destination);
    bed.turn();
    assert_eq!(bed.holders(), [true]);
    source.wait();
    assert_eq!(source.stop(&mut bed), 3);
}

#[test]
fn a_migration_that_fails_leaves_the_disk_where_it_was() {
    let mut bed = Bed::new(plain());
    let mut source = bed.connect();
    source.prepare(&mut bed, 0);
    source.start(&mut bed);
    let destination = bed.connect();
    destination.prepare(&mut bed, 0);
    assert_eq!(source.set_log(&mut bed, 4096).0, 0);
    source.set_features(&mut bed, LOG_ALL);
    // It had stopped already, and goes on.
    source.stop(&mut bed);
    drop(destination);
    bed.turn();
    source.start(&mut bed);
    assert_eq!(bed.holders(), [true]);
    source.submit();
    source.wait();
    source.set_features(&mut bed, 0);
    assert_eq!(source.stop(&mut bed), 1);
    assert_eq!(bed.holders(), [true]);
}

#[test]
fn a_third_one_is_heard_when_one_of_two_has_left() {
    let mut bed = Bed::new(plain());
    let (first, _second) = (bed.connect(), bed.connect());
    let third = UnixStream::connect(bed.folder.path().join("socket")).unwrap();
    first.prepare(&mut bed, 0);
    assert_eq!(bed.ends.connected.len(), 2);
    drop(first);
    bed.turn();
    bed.turn();
    assert_eq!(bed.ends.connected.len(), 2);
    drop(third);
}

#[test]
fn a_server_that_ends_parts_from_all() {
    let mut bed = Bed::new(plain());
    let mut first = bed.connect();
    first.prepare(&mut bed, 0);
    first.start(&mut bed);
    let second = bed.connect();
    second.prepare(&mut bed, 0);
    first.submit();
    first.wait();
    bed.shutdown.trigger();
    bed.ends.serve(&bed.shutdown, &bed.growth).unwrap();
    for end in [first, second] {
        assert!(message::receive(&end.stream, PATIENCE).unwrap().is_none());
    }
}

#[test]
fn a_log_begins_while_a_request_is_under_way() {
    let store = Arc::new(LaterStore::new(Arc::new(MemStore::new(1 << 20)), 3));
    let mut bed = Bed::new(volume(Arc::clone(&store) as _, 512, false));
    let mut end = bed.connect();
    end.prepare(&mut bed, 0);
    end.start(&mut bed);
    store.hold(0..1 << 20);
    end.submit();
    while store.waiting() == 0 {
        std::thread::yield_now();
    }
    // If the ring were stopped for it, that would have no end.
    let (answer, log) = end.set_log(&mut bed, 4096);
    assert_eq!(answer, 0);
    end.set_features(&mut bed, LOG_ALL);
    end.set_places(&mut bed, Some(0x7000));
    store.hold(0..0);
    end.wait();
    end.stop(&mut bed);
    let mut pages = [0; 2];
    log.read_exact_at(&mut pages, 0).unwrap();
    // The used ring, by both of its addresses; status and data.
    assert_eq!(pages, [1 << 3 | 1 << 7, 1 << 1 | 1 << 2]);
}

#[test]
fn nothing_is_served_that_would_not_be_in_the_log() {
    let mut bed = Bed::new(plain());
    let mut end = bed.connect();
    end.prepare(&mut bed, LOG_ALL);
    end.start(&mut bed);
    end.submit();
    assert_eq!(bed.holders(), [false], "there is no log");
    // Of the memory's 32 bytes, the last one is not there.
    assert_eq!(end.set_log(&mut bed, 31).0, 1);
    assert_eq!(bed.holders(), [false]);
    assert_eq!(end.set_log(&mut bed, 5000).0, 1, "beyond its file");
    assert_eq!(end.set_log(&mut bed, 32).0, 0);
    assert_eq!(bed.holders(), [true]);
    end.wait();
    // A ring that the log has beyond its end; its guest has not moved for that.
    end.set_places(&mut bed, Some(MEMORY));
    assert_eq!(bed.holders(), [true]);
    assert!(!bed.ends.connected[0].1.is_served());
    end.set_places(&mut bed, Some(MEMORY - 4096));
    end.submit();
    end.wait();
    // Without a log there is no bound.
    end.set_places(&mut bed, Some(u64::MAX));
    end.set_features(&mut bed, 0);
    end.submit();
    end.wait();
}

#[test]
fn a_log_that_is_refused_takes_the_place_of_the_one_before() {
    let mut bed = Bed::new(plain());
    let end = bed.connect();
    end.prepare(&mut bed, 0);
    end.start(&mut bed);
    assert_eq!(end.set_log(&mut bed, 4096).0, 0);
    end.set_features(&mut bed, LOG_ALL);
    assert!(bed.ends.connected[0].1.is_served());
    // QEMU looks at this one alone from then on, whatever the answer says.
    assert_eq!(end.set_log(&mut bed, 5000).0, 1);
    assert!(!bed.ends.connected[0].1.is_served());
    assert_eq!(end.set_log(&mut bed, 4096).0, 0);
    assert!(bed.ends.connected[0].1.is_served());
}

#[test]
fn a_log_is_kept_in_whatever_order_the_features_are_told() {
    let mut bed = Bed::new(plain());
    let mut end = bed.connect();
    let features = 1_u64 << 32 | 1 << 29 | LOG_ALL;
    let said = Reply {
        body: features.to_le_bytes().to_vec(),
        file: None,
    };
    // Before the protocol's features nothing is answered.
    message::send(&end.stream, SET_FEATURES, VERSION, &said).unwrap();
    bed.turn();
    let protocol = 0b1010_u64.to_le_bytes();
    end.tell(&mut bed, SET_PROTOCOL_FEATURES, &protocol, None);
    let table = [1_u64, 0, MEMORY, USER, 0].map(u64::to_le_bytes).concat();
    end.tell(&mut bed, SET_MEM_TABLE, &table, Some(&end.memory));
    end.tell(&mut bed, SET_VRING_NUM, &words([0, ENTRIES.into()]), None);
    end.tell(&mut bed, SET_VRING_BASE, &words([0, 0]), None);
    end.set_places(&mut bed, None);
    let (answer, log) = end.set_log(&mut bed, 4096);
    assert_eq!(answer, 0);
    end.start(&mut bed);
    end.submit();
    end.wait();
    end.stop(&mut bed);
    let mut pages = [0; 2];
    log.read_exact_at(&mut pages, 0).unwrap();
    assert_eq!(pages, [1 << 3, 1 << 1 | 1 << 2]);
}
