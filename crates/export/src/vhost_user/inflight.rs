//! Which requests are under way, in memory that outlives this process: whoever serves the rings
//! next carries them out again. "Inflight I/O tracking" of the vhost-user protocol, split rings.
//!
//! For each ring: features (8 bytes), version (2), entries (2), the head of the last that was
//! given back (2), the used index then (2); for each entry whether it is under way (1), padding
//! (5), the entry given back before it (2), and its place in the order (8).

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering, fence};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, memfd_create};
use vm_memory::{FileOffset, MmapRegion, VolatileMemory};

const HEADER: usize = 16;
const ENTRY: usize = 16;
/// Rings begin at a multiple of this.
const ALIGNMENT: usize = 64;
const VERSION: u16 = 1;

/// The memory, for all rings.
pub(super) struct Inflight {
    map: MmapRegion,
    entries: u16,
}

/// Bytes for a ring.
fn stride(entries: u16) -> usize {
    (HEADER + ENTRY * usize::from(entries)).next_multiple_of(ALIGNMENT)
}

/// Bytes for so many rings.
pub(super) fn length(rings: u16, entries: u16) -> u64 {
    (usize::from(rings) * stride(entries)) as u64
}

/// New memory, which nothing can make shorter: who reads beyond its end is killed.
pub(super) fn create(rings: u16, entries: u16) -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("xtent-inflight", flags)?;
    fallocate(&file, FallocateFlags::empty(), 0, length(rings, entries))?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(File::from(file))
}

impl Inflight {
    /// Maps what is at `start` of the file.
    pub(super) fn new(file: File, start: u64, rings: u16, entries: u16) -> io::Result<Self> {
        let length = length(rings, entries);
        let end = start.checked_add(length);
        if entries == 0 || end.is_none_or(|end| file.metadata().is_ok_and(|it| it.len() < end)) {
            return Err(io::Error::other(
                "the file is shorter than it is said to be",
            ));
        }
        let bytes = usize::try_from(length).map_err(io::Error::other)?;
        let map = MmapRegion::from_file(FileOffset::new(file, start), bytes);
        Ok(Self {
            map: map.map_err(io::Error::other)?,
            entries,
        })
    }

    /// That of one ring.
    pub(super) fn ring(self: &Arc<Self>, index: usize, entries: u16) -> Option<RingInflight> {
        let start = index * stride(self.entries);
        let is_inside = start + stride(self.entries) <= self.map.size();
        (is_inside && entries <= self.entries).then(|| RingInflight {
            all: Arc::clone(self),
            start,
            entries,
            next: 0,
        })
    }
}

/// What is under way of one ring. Not shared: the ring's lock keeps it.
pub(super) struct RingInflight {
    all: Arc<Inflight>,
    start: usize,
    entries: u16,
    /// The next one's place in the order.
    next: u64,
}

impl RingInflight {
    /// What was under way when the ring was last served, in order; the used ring says `used` now. None if the
    /// memory is new, and says nothing of that.
    /// The memory is anybody's word: no entry that the ring has not got, and none twice.
    pub(super) fn begin(&mut self, used: u16) -> Option<Vec<u16>> {
        let is_ours = self.u16_at(8).load(Ordering::Acquire) == VERSION;
        if !is_ours || self.u16_at(10).load(Ordering::Acquire) != self.entries {
            // New memory, or another ring's.
            (0..self.entries).for_each(|head| self.flag(head).store(0, Ordering::Relaxed));
            self.u16_at(10).store(self.entries, Ordering::Relaxed);
            self.u16_at(12).store(0, Ordering::Relaxed);
            self.u16_at(14).store(used, Ordering::Relaxed);
            self.u16_at(8).store(VERSION, Ordering::Release);
            return None;
        }
        if self.u16_at(14).load(Ordering::Acquire) != used {
            // The last one had been given back, and this was not noted any more.
            let last = self.u16_at(12).load(Ordering::Acquire);
            if last < self.entries {
                self.flag(last).store(0, Ordering::Release);
            }
            self.u16_at(14).store(used, Ordering::Release);
        }
        let mut left: Vec<(u64, u16)> = (0..self.entries)
            .filter(|&head| self.flag(head).load(Ordering::Acquire) != 0)
            .map(|head| (self.counter(head).load(Ordering::Acquire), head))
            .collect();
        left.sort_unstable();
        self.next = left.last().map_or(0, |last| last.0.wrapping_add(1));
        Some(left.into_iter().map(|(_, head)| head).collect())
    }

    /// This one is under way from now on.
    pub(super) fn take(&mut self, head: u16) {
        if head < self.entries {
            self.counter(head).store(self.next, Ordering::Relaxed);
            self.next = self.next.wrapping_add(1);
            self.flag(head).store(1, Ordering::Release);
        }
    }

    /// This one is about to be given back.
    pub(super) fn before_return(&mut self, head: u16) {
        if head < self.entries {
            self.u16_at(12).store(head, Ordering::Release);
            fence(Ordering::SeqCst);
        }
    }

    /// It was, and the used ring says so.
    pub(super) fn after_return(&mut self, head: u16, used: u16) {
        if head < self.entries {
            fence(Ordering::SeqCst);
            self.flag(head).store(0, Ordering::Release);
            self.u16_at(14).store(used, Ordering::Release);
        }
    }

    fn u16_at(&self, offset: usize) -> &AtomicU16 {
        self.at(offset)
    }

    fn flag(&self, head: u16) -> &AtomicU8 {
        self.at(HEADER + ENTRY * usize::from(head))
    }

    fn counter(&self, head: u16) -> &AtomicU64 {
        self.at(HEADER + ENTRY * usize::from(head) + 8)
    }

    fn at<T: vm_memory::AtomicInteger>(&self, offset: usize) -> &T {
        let place = self.all.map.get_atomic_ref(self.start + offset);
        // Every ring is inside of the mapping, and its parts aligned.
        place.unwrap_or_else(|error| unreachable!("{error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(file: &File) -> Arc<Inflight> {
        let file = file.try_clone().unwrap();
        Arc::new(Inflight::new(file, 0, 2, 8).unwrap())
    }

    #[test]
    fn what_was_under_way_is_known_to_the_next_in_order() {
        let file = create(2, 8).unwrap();
        let mut ring = map(&file).ring(1, 8).unwrap();
        assert!(ring.begin(5).is_none());
        for head in [3, 1, 7, 0] {
            ring.take(head);
        }
        ring.before_return(1);
        ring.after_return(1, 6);
        let mut other = map(&file).ring(1, 8).unwrap();
        assert_eq!(other.begin(6).unwrap(), [3, 7, 0]);
        other.take(5);
        // Given back, and killed before it was noted.
        other.before_return(7);
        let mut third = map(&file).ring(1, 8).unwrap();
        assert_eq!(third.begin(7).unwrap(), [3, 0, 5]);
        // Killed before it was given back.
        third.before_return(0);
        assert_eq!(map(&file).ring(1, 8).unwrap().begin(7).unwrap(), [3, 0, 5]);
        let left = map(&file).ring(0, 8).unwrap().begin(0);
        assert!(left.unwrap_or_default().is_empty());
    }

    #[test]
    fn nothing_beyond_the_memory_is_looked_at() {
        let file = create(2, 8).unwrap();
        for (start, rings, entries) in [(0, 3, 8), (64, 2, 8), (u64::MAX, 2, 8), (0, 2, 0)] {
            let file = file.try_clone().unwrap();
            assert!(Inflight::new(file, start, rings, entries).is_err());
        }
        assert!(map(&file).ring(2, 8).is_none());
        assert!(map(&file).ring(0, 9).is_none());
        let mut ring = map(&file).ring(0, 8).unwrap();
        ring.begin(0);
        // A head that the ring has not got.
        ring.take(8);
        ring.before_return(u16::MAX);
        ring.after_return(8, 1);
        let left = map(&file).ring(0, 8).unwrap().begin(0);
        assert!(left.unwrap_or_default().is_empty());
        assert!(rustix::fs::ftruncate(&file, 0).is_err(), "sealed");
    }
}
