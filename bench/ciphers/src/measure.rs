//! Rates by thread CPU time, in rounds in which everyone has a turn.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use sector_cipher::Backend;

use crate::contestant::Entry;
use crate::{limit, sharing};

/// Buffers start at pages, as those of servers do.
const PAGE: usize = 4096;
/// Short runs go round in a buffer that stays in the second-level cache.
pub(crate) const BUFFER: usize = 64 << 10;

/// How often a reading is taken, at most, to have one on a core of our own, when
/// nobody said how long to wait for that.
const ATTEMPTS: usize = 20;
/// Between looks at a core that another hardware thread uses.
const PAUSE: Duration = Duration::from_millis(1);

/// CPU time that this thread has used.
fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// Bytes that start at a page.
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
}

impl Buffer {
    pub(crate) fn new(len: usize) -> Self {
        let bytes = vec![0; len + PAGE];
        let start = bytes.as_ptr().align_offset(PAGE);
        Self { bytes, start }
    }

    pub(crate) fn get(&mut self, len: usize) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + len]
    }
}

/// What is measured in a turn of a round.
#[derive(Clone, Copy)]
pub(crate) enum Turn {
    /// One of the contestants, by its place, on so many bytes of the buffer.
    Crypt {
        who: usize,
        encrypt: bool,
        bytes: usize,
    },
    /// The AES unit alone, with blocks of so many rounds.
    Limit { backend: Backend, rounds: usize },
}

/// GB/s of every round.
pub(crate) struct Rates(Vec<f64>);

impl Rates {
    pub(crate) fn median(&self) -> f64 {
        median(self.0.clone())
    }

    /// The median of the ratios within a round, so that what disturbs a round
    /// disturbs both sides.
    pub(crate) fn ratio(&self, other: &Self) -> f64 {
        median(self.0.iter().zip(&other.0).map(|(a, b)| a / b).collect())
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        (values[middle - 1] + values[middle]) / 2.0
    }
}

/// How long to measure, and on what.
pub(crate) struct Meter {
    rounds: usize,
    /// CPU time of a turn, at least.
    slice: Duration,
    buffer: Buffer,
    progress: Progress,
    core: sharing::Core,
    /// How long to wait for a core of our own, in all, from now on; see [`Meter::new`].
    patience: Option<Duration>,
    /// Time that went into readings, and into repeating them.
    spent: Duration,
    repeated: Duration,
    /// Readings, and those of them on a core that was shared.
    readings: usize,
    shared: usize,
}

impl Meter {
    /// `cases` calls of [`Meter::run`] are to be expected. Without `patience` repeating
    /// readings takes no longer than measuring.
    pub(crate) fn new(
        rounds: usize,
        slice: Duration,
        patience: Option<Duration>,
        largest: usize,
        cases: usize,
    ) -> Self {
        Self {
            rounds,
            slice,
            patience,
            buffer: Buffer::new(largest.max(BUFFER)),
            progress: Progress::new(cases),
            core: sharing::Core::new(),
            spent: Duration::ZERO,
            repeated: Duration::ZERO,
            readings: 0,
            shared: 0,
        }
    }

    /// The share of the readings that were taken on a core which another hardware
    /// thread used as well, and slowed down.
    pub(crate) fn shared(&self) -> f64 {
        self.shared as f64 / self.readings.max(1) as f64
    }

    /// All turns, round by round. `what` is for the progress line.
    pub(crate) fn run(&mut self, what: &str, entries: &mut [Entry], turns: &[Turn]) -> Vec<Rates> {
        let mut take = |turn: Turn, times: usize| match turn {
            Turn::Crypt {
                who,
                encrypt,
                bytes,
            } => {
                let data = self.buffer.get(bytes);
                let contestant = &mut entries[who].contestant;
                (0..times).for_each(|_| contestant.crypt(encrypt, 0, data));
                times * bytes
            }
            Turn::Limit { backend, rounds } => (0..times)
                .map(|_| limit::work(backend, rounds).unwrap_or(0))
                .sum(),
        };
        // The first time warms up; the second tells how often is long enough.
        let times: Vec<usize> = turns
            .iter()
            .map(|&turn| {
                take(turn, 1);
                let mut times = 1;
                loop {
                    let start = cpu_time();
                    take(turn, times);
                    let used = cpu_time()
                        .saturating_sub(start)
                        .max(Duration::from_nanos(1));
                    if used >= self.slice / 4 {
                        let factor = self.slice.as_secs_f64() / used.as_secs_f64();
                        return scaled(times, factor);
                    }
                    times *= 2;
                }
            })
            .collect();
        let mut rates: Vec<_> = turns.iter().map(|_| Rates(Vec::new())).collect();
        for round in 0..self.rounds {
            self.progress.show(what, round as f64 / self.rounds as f64);
            for ((&turn, &times), rates) in turns.iter().zip(&times).zip(&mut rates) {
                let (mut best_rate, mut best_share) = (0.0, 0.0);
                let mut attempts = 0;
                loop {
                    let before = wait(&mut self.core, &mut self.patience);
                    // Whatever ran in the meantime had the caches.
                    take(turn, 1);
                    let start = cpu_time();
                    let bytes = take(turn, times);
                    let used = cpu_time().saturating_sub(start);
                    let share = self.core.share().min(before);
                    if attempts == 0 {
                        self.spent += used;
                    } else {
                        self.repeated += used;
                    }
                    if share > best_share {
                        best_share = share;
                        best_rate = bytes as f64 / used.as_secs_f64().max(1e-9) / 1e9;
                    }
                    attempts += 1;
                    let enough = match &mut self.patience {
                        Some(left) => {
                            *left = left.saturating_sub(used);
                            left.is_zero()
                        }
                        None => attempts == ATTEMPTS || self.repeated > self.spent,
                    };
                    if share >= sharing::ALONE || enough {
                        break;
                    }
                }
                self.readings += 1;
                self.shared += usize::from(best_share < sharing::ALONE);
                rates.0.push(best_rate);
            }
        }
        self.progress.done();
        rates
    }
}

/// Waits for a core of our own as long as there is patience. Its share now.
fn wait(core: &mut sharing::Core, patience: &mut Option<Duration>) -> f64 {
    loop {
        let share = core.share();
        let Some(left) = patience else { return share };
        if share >= sharing::ALONE || left.is_zero() {
            return share;
        }
        let start = Instant::now();
        std::thread::sleep(PAUSE);
        *left = left.saturating_sub(start.elapsed());
    }
}

#[allow(clippy::cast_possible_truncation, reason = "small and positive")]
fn scaled(times: usize, factor: f64) -> usize {
    ((times as f64 * factor).ceil() as usize).max(1)
}

/// A line on standard error about how far it is, once that takes a while.
struct Progress {
    started: Instant,
    shown: Option<Instant>,
    cases: usize,
    done: usize,
    terminal: bool,
}

impl Progress {
    /// Before that, nobody asks.
    const PATIENCE: Duration = Duration::from_secs(2);
    /// Between lines that stay, in a log.
    const IN_A_LOG: Duration = Duration::from_secs(20);

    fn new(cases: usize) -> Self {
        Self {
            started: Instant::now(),
            shown: None,
            cases,
            done: 0,
            terminal: std::io::stderr().is_terminal(),
        }
    }

    fn show(&mut self, what: &str, part: f64) {
        let elapsed = self.started.elapsed();
        let pause = if self.terminal {
            Duration::from_millis(200)
        } else {
            Self::IN_A_LOG
        };
        if elapsed < Self::PATIENCE || self.shown.is_some_and(|at| at.elapsed() < pause) {
            return;
        }
        self.shown = Some(Instant::now());
        let share = (self.done as f64 + part) / self.cases.max(1) as f64;
        let mut line = format!("{:3.0} %  {what}", share * 100.0);
        if share > 0.02 {
            let left = elapsed.as_secs_f64() * (1.0 - share) / share;
            line += &format!(", about {left:.0} s left");
        }
        let mut stderr = std::io::stderr().lock();
        // Progress that nobody can read is no reason to stop.
        let _ = if self.terminal {
            write!(stderr, "\r{line}\x1b[K").and_then(|()| stderr.flush())
        } else {
            writeln!(stderr, "{line}")
        };
    }

    fn done(&mut self) {
        self.done += 1;
        if self.terminal && self.shown.is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        let (fast, slow) = (Rates(vec![2.0, 4.0, 9.0]), Rates(vec![1.0, 2.0, 3.0]));
        assert_eq!(fast.ratio(&slow), 2.0);
    }
}
