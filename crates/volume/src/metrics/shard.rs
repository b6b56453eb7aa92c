//! The shards of a volume's counters, and which threads add to which.
//!
//! An atomic addition takes as long as a copy of a kilobyte, even where nobody else adds. So each of the first
//! threads has a shard to itself, the same in every volume, and later ones share what is left.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::histogram::Cells;
use super::{Phase, RequestKind};

/// Cells of a histogram of latencies: up to 1 µs, 2 µs, 4 µs ... 8.4 s, and longer.
pub(super) const LATENCIES: usize = 25;
/// Cells of a histogram of runs: up to 1, 2, 4 ... 8192 sectors, and longer.
pub(super) const RUNS: usize = 15;

/// Shards that have one thread each.
const OWNED: usize = 24;
/// Shards of all other threads.
const SHARED: usize = 8;
pub(super) const SHARDS: usize = OWNED + SHARED;

/// Two cache lines apart: CPUs fetch them in pairs.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Shard {
    pub(super) requests: [Counters; RequestKind::ALL.len()],
    pub(super) runs: Cells<RUNS>,
    pub(super) engine: Engine,
    pub(super) nanos: [Counter; Phase::ALL.len()],
    pub(super) begun: Counter,
    pub(super) ended: Counter,
}

#[derive(Default)]
pub(super) struct Engine {
    pub(super) count: Counter,
    pub(super) bytes: Counter,
    pub(super) failed: Counter,
    pub(super) replaced: Counter,
    pub(super) beside: Counter,
}

#[derive(Default)]
pub(super) struct Counters {
    pub(super) bytes: Counter,
    pub(super) failed: Counter,
    pub(super) micros: Cells<LATENCIES>,
}

/// A number that only grows.
#[derive(Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, adders: Adders, count: u64) {
        match adders {
            // Nobody else writes, so nothing is lost between the two.
            Adders::One => self
                .0
                .store(self.read().wrapping_add(count), Ordering::Relaxed),
            Adders::Many => {
                self.0.fetch_add(count, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How many threads may add to a shard.
#[derive(Clone, Copy)]
pub(super) enum Adders {
    /// The one that runs.
    One,
    Many,
}

/// Which shard a thread adds to, for as long as it lives.
struct Seat {
    shard: usize,
    adders: Adders,
}

/// The owned shards that have their thread, a bit each.
static TAKEN: AtomicU32 = AtomicU32::new(0);

impl Seat {
    fn take() -> Self {
        let free = |taken: u32| {
            let shard = taken.trailing_ones();
            ((shard as usize) < OWNED).then(|| taken | 1 << shard)
        };
        // What the owner before has added is seen: it was added before the seat was left.
        match TAKEN.fetch_update(Ordering::AcqRel, Ordering::Acquire, free) {
            Ok(before) => Self {
                shard: before.trailing_ones() as usize,
                adders: Adders::One,
            },
            Err(_) => {
                static NEXT: AtomicUsize = AtomicUsize::new(0);
                Self {
                    shard: OWNED + NEXT.fetch_add(1, Ordering::Relaxed) % SHARED,
                    adders: Adders::Many,
                }
            }
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Adders::One = self.adders {
            TAKEN.fetch_and(!(1 << self.shard), Ordering::Release);
        }
    }
}

thread_local! {
    static SEAT: Seat = Seat::take();
}

/// The shard of this thread, by number.
pub(super) fn of_this_thread() -> (usize, Adders) {
    SEAT.try_with(|seat| (seat.shard, seat.adders))
        // The thread is at its end, and has left its seat.
        .unwrap_or((OWNED, Adders::Many))
}
