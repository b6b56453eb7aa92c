//! What a volume has done so far: counts, histograms, and where the time went.
//!
//! Counting must not cost what it counts. So most threads have a shard of their own, to which they add
//! without an atomic operation, and the clock is read for one call in 17 of those that take microseconds.

mod histogram;
mod shard;
mod watch;

use std::sync::OnceLock;
use std::time::Duration;

pub use histogram::Histogram;
use histogram::doubling;
use shard::{Adders, Counter, LATENCIES, RUNS, SHARDS, Shard};
pub use watch::{Watch, now_and_then};

/// What clients ask a volume for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// To be given bytes.
    Read,
    /// To keep bytes.
    Write,
    /// To make durable what was written.
    Flush,
    /// To forget a range.
    Discard,
    /// To keep zeros.
    WriteZeroes,
    /// To be ready for reads of a range.
    ReadAhead,
}

impl RequestKind {
    /// All of them, in the order of [`Snapshot::requests`].
    pub const ALL: [Self; 6] = [
        Self::Read,
        Self::Write,
        Self::Flush,
        Self::Discard,
        Self::WriteZeroes,
        Self::ReadAhead,
    ];

    /// For programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
            Self::WriteZeroes => "write_zeroes",
            Self::ReadAhead => "read_ahead",
        }
    }
}

/// What the time of requests is spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Waiting for the store, or copying out of the page cache.
    Store,
    /// Encrypting and decrypting.
    Cipher,
    /// Waiting for other requests on the same sectors.
    Lock,
    /// Sending and receiving.
    Socket,
}

impl Phase {
    /// All of them, in the order of [`Snapshot::time`].
    pub const ALL: [Self; 4] = [Self::Store, Self::Cipher, Self::Lock, Self::Socket];

    /// For programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Cipher => "cipher",
            Self::Lock => "lock",
            Self::Socket => "socket",
        }
    }
}

/// The counters of a volume.
pub struct Metrics {
    /// Made when a thread first counts: a volume that nobody uses has none.
    shards: [OnceLock<Box<Shard>>; SHARDS],
}

impl Metrics {
    pub(crate) fn new() -> Self {
        Self {
            shards: [const { OnceLock::new() }; SHARDS],
        }
    }

    /// The shard of this thread.
    fn shard(&self) -> (&Shard, Adders) {
        let (shard, adders) = shard::of_this_thread();
        (self.shards[shard].get_or_init(Box::default), adders)
    }

    /// The shards that there are.
    fn all(&self) -> impl Iterator<Item = &Shard> {
        self.shards
            .iter()
            .filter_map(OnceLock::get)
            .map(Box::as_ref)
    }

    /// Requests of one kind have been answered, each `latency` after it had come.
    pub fn answered(&self, kind: RequestKind, count: u64, latency: Duration) {
        let micros = u64::try_from(latency.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX);
        let (shard, adders) = self.shard();
        shard.requests[kind as usize]
            .micros
            .add(adders, micros, count);
    }

    /// Bytes have been asked for.
    pub fn asked(&self, kind: RequestKind, bytes: u64) {
        let (shard, adders) = self.shard();
        shard.requests[kind as usize].bytes.add(adders, bytes);
    }

    /// A request has been answered with an error.
    pub fn failed(&self, kind: RequestKind) {
        let (shard, adders) = self.shard();
        shard.requests[kind as usize].failed.add(adders, 1);
    }

    /// A request begins to wait for the store or for others.
    pub fn begun(&self) {
        let (shard, adders) = self.shard();
        shard.begun.add(adders, 1);
    }

    /// A request that had begun to wait has ended.
    pub fn ended(&self) {
        let (shard, adders) = self.shard();
        shard.ended.add(adders, 1);
    }

    /// Time was spent.
    pub fn spent(&self, phase: Phase, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let (shard, adders) = self.shard();
        shard.nanos[phase as usize].add(adders, nanos);
    }

    /// One call of the cipher.
    pub(crate) fn run(&self, sectors: usize) {
        let (shard, adders) = self.shard();
        shard.runs.add(adders, sectors as u64, 1);
    }

    /// A run of so many bytes has come back from the cipher engine; how many of them the CPU did, unless nobody
    /// did them.
    pub(crate) fn of_engine(&self, bytes: usize, by_cpu: Option<usize>) {
        let (shard, adders) = self.shard();
        let engine = &shard.engine;
        match by_cpu {
            Some(0) => engine.count.add(adders, 1),
            Some(_) => engine.replaced.add(adders, 1),
            None => engine.failed.add(adders, 1),
        }
        if let Some(by_cpu) = by_cpu {
            engine
                .bytes
                .add(adders, bytes.saturating_sub(by_cpu) as u64);
        }
    }

    /// A call of the cipher for what was the CPU's from the beginning, where there is a cipher engine.
    pub(crate) fn beside_engine(&self) {
        let (shard, adders) = self.shard();
        shard.engine.beside.add(adders, 1);
    }

    /// What they are now. Counters that belong together may be a request apart.
    pub fn snapshot(&self) -> Snapshot {
        // Those that have ended first, so that no more seem to have ended than begun.
        let ended = self.sum(|shard| &shard.ended);
        let under_way = self.sum(|shard| &shard.begun).saturating_sub(ended);
        let requests = RequestKind::ALL.map(|kind| {
            let kind = kind as usize;
            let latencies = self.all().map(|shard| shard.requests[kind].micros.read());
            Requests {
                bytes: self.sum(|shard| &shard.requests[kind].bytes),
                failed: self.sum(|shard| &shard.requests[kind].failed),
                latency: Histogram::total(doubling::<LATENCIES>(), latencies),
            }
        });
        Snapshot {
            requests,
            runs: Histogram::total(
                doubling::<RUNS>(),
                self.all().map(|shard| shard.runs.read()),
            ),
            engine: EngineRuns {
                count: self.sum(|shard| &shard.engine.count),
                bytes: self.sum(|shard| &shard.engine.bytes),
                failed: self.sum(|shard| &shard.engine.failed),
                replaced: self.sum(|shard| &shard.engine.replaced),
                beside: self.sum(|shard| &shard.engine.beside),
            },
            time: Phase::ALL
                .map(|phase| Duration::from_nanos(self.sum(|shard| &shard.nanos[phase as usize]))),
            under_way,
        }
    }

    fn sum<'a>(&'a self, of: impl Fn(&'a Shard) -> &'a Counter) -> u64 {
        let each = self.all().map(|shard| of(shard).read());
        each.fold(0, u64::wrapping_add)
    }
}

/// The counters of a volume at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// By kind, in the order of [`RequestKind::ALL`].
    pub requests: [Requests; RequestKind::ALL.len()],
    /// Sectors in each call of the cipher.
    pub runs: Histogram,
    /// Who did them, where there is a cipher engine.
    pub engine: EngineRuns,
    /// Where the time went, in the order of [`Phase::ALL`], added up over requests: more than the
    /// clock shows, where several are under way.
    pub time: [Duration; Phase::ALL.len()],
    /// Requests that wait for the store or for others.
    pub under_way: u64,
}

/// The runs of a volume that has a cipher engine, by who did them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineRuns {
    /// Runs that the engine did, all of them.
    pub count: u64,
    /// Bytes that it has encrypted and decrypted.
    pub bytes: u64,
    /// Runs that nobody did, since the engine failed.
    pub failed: u64,
    /// Runs that the CPU did, in part at least, since the engine failed.
    pub replaced: u64,
    /// Calls of the CPU's cipher, for what was the CPU's from the beginning: short runs, and those of calls that cannot
    /// wait. A long run has several.
    pub beside: u64,
}

/// The requests of one kind.
#[derive(Clone, Debug)]
pub struct Requests {
    /// Bytes that they asked for.
    pub bytes: u64,
    /// How many were answered with an error.
    pub failed: u64,
    /// Microseconds from when all of a request had been received until its answer was handed to
    /// the socket.
    pub latency: Histogram,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn what_several_threads_count_adds_up() {
        let metrics = Metrics::new();
        // All at the same time, so that some have a shard to themselves and others share one.
        let together = Barrier::new(2 * SHARDS);
        std::thread::scope(|scope| {
            for thread in 0..2 * SHARDS {
                let (metrics, together) = (&metrics, &together);
                scope.spawn(move || {
                    metrics.begun();
                    metrics.ended();
                    together.wait();
                    for _ in 0..100 {
                        metrics.begun();
                        metrics.run(8);
                        metrics.asked(RequestKind::Read, 4096);
                        metrics.answered(RequestKind::Read, 1, Duration::from_micros(3));
                        metrics.spent(Phase::Cipher, Duration::from_nanos(10));
                        metrics.ended();
                    }
                    if thread == 0 {
                        metrics.failed(RequestKind::Flush);
                        metrics.begun();
                    }
                });
            }
        });
        let count = 200 * SHARDS as u64;
        let snapshot = metrics.snapshot();
        let read = &snapshot.requests[RequestKind::Read as usize];
        assert_eq!((read.bytes, read.failed), (4096 * count, 0));
        assert_eq!((read.latency.count(), read.latency.sum), (count, 3 * count));
        assert_eq!(snapshot.requests[RequestKind::Flush as usize].failed, 1);
        assert_eq!(snapshot.runs.sum, 8 * count);
        assert_eq!(
            snapshot.time[Phase::Cipher as usize],
            Duration::from_nanos(10 * count)
        );
        assert_eq!(snapshot.under_way, 1);
    }
}
