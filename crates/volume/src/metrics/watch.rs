//! A watch that tells what a call spends its time on.

use std::cell::Cell;
use std::time::Instant;

use super::{Metrics, Phase};

/// Of the calls that may take a microsecond, one in so many is timed, and counts for all. That is the
/// average: which ones is chance, so that no rhythm of requests keeps step with it.
pub(super) const EVERY: u32 = 17;

thread_local! {
    /// Calls to leave out before the next that is timed, and the last random number.
    static TURNS: Cell<(u32, u32)> = const { Cell::new((0, 1)) };
}

/// Now, if this call is one of those that are timed.
pub fn now_and_then() -> Option<Instant> {
    let (left, random) = TURNS.get();
    if let Some(left) = left.checked_sub(1) {
        TURNS.set((left, random));
        return None;
    }
    // Marsaglia, "Xorshift RNGs" (2003), one of the full periods for 32 bits.
    let mut random = random;
    random ^= random << 13;
    random ^= random >> 17;
    random ^= random << 5;
    TURNS.set((random % (2 * EVERY - 1), random));
    Some(Instant::now())
}

/// Tells what one call spends its time on, or nothing.
pub struct Watch<'a> {
    metrics: &'a Metrics,
    /// When the last phase ended, if this call is timed.
    since: Option<Instant>,
    weight: u32,
}

impl<'a> Watch<'a> {
    /// For a call that may take a microsecond.
    pub fn of_some(metrics: &'a Metrics) -> Self {
        Self {
            metrics,
            since: now_and_then(),
            weight: EVERY,
        }
    }

    /// For a call that waits.
    pub fn of_all(metrics: &'a Metrics) -> Self {
        Self {
            metrics,
            since: Some(Instant::now()),
            weight: 1,
        }
    }

    /// What was done since the last lap is told elsewhere.
    pub fn restart(&mut self) {
        if let Some(since) = &mut self.since {
            *since = Instant::now();
        }
    }

    /// What was done since the last lap was this.
    pub fn lap(&mut self, phase: Phase) {
        if let Some(since) = &mut self.since {
            let now = Instant::now();
            self.metrics.spent(phase, (now - *since) * self.weight);
            *since = now;
        }
    }
}
