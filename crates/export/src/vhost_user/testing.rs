//! A guest in memory, for tests: its driver writes descriptors, and a ring serves them.

use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
#[cfg(test)]
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use vm_memory::{Bytes, GuestAddress};
use xtent_volume::Volume;

use super::dirty::Dirty;
use super::guest::{Guest, Region};
use super::inflight::RingInflight;
use super::ring::{Call, Layout, Ring};
use super::work::Work;
use crate::executor::Executor;
use crate::request::{Carrier, Threads};

/// Entries of its ring.
pub const ENTRIES: u16 = 16;
/// Where the ring is.
const DESCRIPTORS: u64 = 0x1000;
const AVAILABLE: u64 = 0x2000;
const USED: u64 = 0x3000;
/// The memory: two regions, and nothing between.
pub const REGIONS: [(u64, usize); 2] = [(0x1000, 0xf000), (0x10_0000, 0x40_0000)];

/// Only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor {
    /// Where its memory is.
    pub at: u64,
    /// Bytes of it.
    pub len: u32,
    /// `NEXT` 1, `WRITE` 2, `INDIRECT` 4.
    pub flags: u16,
    /// The one after it.
    pub next: u16,
}

/// Memory for regions, of zeros.
pub(super) fn files(regions: &[(u64, usize)]) -> Vec<File> {
    let file = |&(_, size): &(u64, usize)| {
        let file = memfd_create("guest", MemfdFlags::CLOEXEC).map(File::from);
        let file = file.expect("memory for a guest");
        file.set_len(size as u64).expect("memory for a guest");
        file
    };
    regions.iter().map(file).collect()
}

/// A guest of them, which the front-end has where the guest has it.
pub(super) fn guest(regions: &[(u64, usize)], files: &[File], dirty: Arc<Dirty>) -> Guest {
    let region = |&(at, size): &(u64, usize)| Region {
        user: at,
        guest: at,
        size: size as u64,
    };
    let wanted = regions.iter().map(|it| (region(it), 0)).collect();
    let files = files.iter().map(|it| it.try_clone().expect("a descriptor"));
    Guest::new(wanted, files.collect(), dirty).unwrap_or_else(|bad| panic!("{}", bad.0))
}

/// What serves a guest's rings.
pub(super) fn work(volume: Arc<Volume>) -> Arc<Work> {
    let executor = Executor::with_own_threads();
    executor.open(2).expect("a thread");
    Arc::new(Work {
        is_resumed: true,
        carrier: Carrier::new(&volume, executor, 8 << 20, Threads::Executors),
        id: *b"0123456789abcdefghij",
    })
}

/// A guest, and the ring that serves it.
pub struct Rig {
    /// The memory, as the driver has it: what it writes is not in our log.
    driver: Guest,
    guest: Arc<Guest>,
    work: Arc<Work>,
    kick: File,
    call: Call,
    ring: Option<Ring>,
    available: u16,
    has_event_index: bool,
    writes_through: bool,
    pub(super) used_in_log: Option<u64>,
}

impl Rig {
    /// A guest whose disk is the volume; its memory is zeros.
    #[expect(clippy::missing_panics_doc, reason = "of tests")]
    pub fn new(volume: Arc<Volume>) -> Self {
        let files = files(&REGIONS);
        let driver = guest(&REGIONS, &files, Arc::default());
        let guest = guest(&REGIONS, &files, Arc::default());
        let event = || {
            let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
            File::from(eventfd(0, flags).expect("an event"))
        };
        Self {
            driver,
            guest: Arc::new(guest),
            work: work(volume),
            kick: event(),
            call: Arc::new(std::sync::Mutex::new(Some(event()))),
            ring: None,
            available: 0,
            has_event_index: false,
            writes_through: false,
            used_in_log: None,
        }
    }

    /// The guest says when it wants to be told.
    #[must_use]
    pub fn with_event_index(mut self) -> Self {
        self.has_event_index = true;
        self
    }

    /// The guest knows no flush.
    #[must_use]
    pub fn without_flush(mut self) -> Self {
        self.writes_through = true;
        self
    }

    /// Nothing that was under way is carried out by the next server.
    #[cfg(test)]
    pub(super) fn without_resumption(mut self) -> Self {
        let Work { carrier, id, .. } = &*self.work;
        self.work = Arc::new(Work {
            carrier: Arc::clone(carrier),
            id: *id,
            is_resumed: false,
        });
        self
    }

    /// Begins to serve, from the index on.
    pub(super) fn start(&mut self, next: u16, inflight: Option<RingInflight>) {
        let layout = Layout {
            entries: ENTRIES,
            descriptors: GuestAddress(DESCRIPTORS),
            available: GuestAddress(AVAILABLE),
            used: GuestAddress(USED),
            next,
            has_event_index: self.has_event_index,
            writes_through: self.writes_through,
            used_in_log: self.used_in_log,
        };
        let kick = self.kick.try_clone().expect("an event");
        let call = Arc::clone(&self.call);
        let (guest, work) = (Arc::clone(&self.guest), Arc::clone(&self.work));
        let ring = Ring::start("test".into(), &layout, guest, kick, call, inflight, work);
        self.ring = Some(ring.expect("a ring"));
    }

    /// Ends what is under way; the index of the next request.
    pub fn stop(&mut self) -> u16 {
        self.ring.take().map_or(0, Ring::stop)
    }

    /// Waits until the guest is told of what was given back.
    #[cfg(test)]
    pub(super) fn wait_until_told(&self) {
        // A lock that is held would keep the ring from telling.
        let call = self
            .call
            .lock()
            .expect("an event")
            .as_ref()
            .map(File::try_clone);
        let call = call.expect("an event").expect("a descriptor");
        let mut fds = [PollFd::new(&call, PollFlags::IN)];
        let patience = PATIENCE.try_into().expect("a time");
        assert_eq!(poll(&mut fds, Some(&patience)), Ok(1), "nobody tells");
    }

    /// Where it is noted what was written for the guest.
    #[cfg(test)]
    pub(super) fn dirty(&self) -> &Dirty {
        self.guest.dirty()
    }

    /// Whether the ring is served no more, whatever the guest does.
    #[cfg(test)]
    pub(super) fn is_broken(&self) -> bool {
        self.ring.as_ref().is_some_and(Ring::is_broken)
    }

    /// Serves what is there, whatever it is; the guest says that it has so many requests.
    pub fn serve_anything(&mut self, available: u16) {
        self.put(AVAILABLE + 2, &available.to_le_bytes());
        self.start(0, None);
        self.stop();
    }

    /// Says that there are so many requests.
    pub fn claim(&mut self, available: u16) {
        self.put(AVAILABLE + 2, &available.to_le_bytes());
        let _ = rustix::io::write(&self.kick, &1_u64.to_ne_bytes());
    }

    /// Writes into the guest's memory what there is room for.
    pub fn put(&self, at: u64, bytes: &[u8]) {
        let _ = self.driver.map().write(bytes, GuestAddress(at));
    }

    /// Reads from the guest's memory.
    #[expect(clippy::missing_panics_doc, reason = "of tests")]
    pub fn get(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.driver
            .map()
            .read_slice(&mut bytes, GuestAddress(at))
            .expect("the guest's memory");
        bytes
    }

    /// Writes descriptors into a table, from an index on.
    pub fn describe(&self, table: u64, from: u16, descriptors: &[Descriptor]) {
        for (index, it) in (u64::from(from)..).zip(descriptors) {
            let mut bytes = it.at.to_le_bytes().to_vec();
            bytes.extend(it.len.to_le_bytes());
            bytes.extend(it.flags.to_le_bytes());
            bytes.extend(it.next.to_le_bytes());
            self.put(table + index * 16, &bytes);
        }
    }

    /// The ring's own table.
    pub const TABLE: u64 = DESCRIPTORS;

    /// Puts a request into the ring, and says so.
    pub fn submit(&mut self, head: u16) {
        self.offer(head);
        let _ = rustix::io::write(&self.kick, &1_u64.to_ne_bytes());
    }

    /// Puts a request into the ring.
    pub fn offer(&mut self, head: u16) {
        let at = AVAILABLE + 4 + u64::from(self.available % ENTRIES) * 2;
        self.put(at, &head.to_le_bytes());
        self.available = self.available.wrapping_add(1);
        self.put(AVAILABLE + 2, &self.available.to_le_bytes());
    }

    /// As if a server had given back so many, and had been killed before it told.
    #[cfg(test)]
    pub(super) fn put_used(&self, count: u16) {
        self.put(USED + 2, &count.to_le_bytes());
    }

    /// Requests that were given back so far.
    pub fn used(&self) -> u16 {
        let bytes = self.get(USED + 2, 2);
        u16::from_le_bytes([bytes[0], bytes[1]])
    }

    /// Waits until so many were given back; heads and lengths of the last of them.
    #[expect(clippy::missing_panics_doc, reason = "of tests")]
    pub fn wait_for(&self, count: u16) -> (u32, u32) {
        let start = Instant::now();
        while self.used() != count {
            assert!(start.elapsed() < PATIENCE, "{} of {count}", self.used());
            std::thread::yield_now();
        }
        let last = count.wrapping_sub(1) % ENTRIES;
        let bytes = self.get(USED + 4 + u64::from(last) * 8, 8);
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        (word(0), word(4))
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.ring = None;
        self.work.carrier.executor().close();
    }
}
