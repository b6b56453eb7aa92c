//! A watch that tells what a call spends its time on.

use std::cell::Cell;
use std::time::Instant;

use super::{Metrics, Phase};

/// Of the calls that may take a microsecond, one in so many is timed, and counts for all. A
/// prime, so that no rhythm of requests keeps step with it.
pub(super) const EVERY: u32 = 17;

thread_local! {
    static UNTIL: Cell<u32> = const { Cell::new(0) };
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
        let until = UNTIL.get();
        UNTIL.set(until.checked_sub(1).unwrap_or(EVERY - 1));
        Self {
            metrics,
            since: (until == 0).then(Instant::now),
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

    /// When the last phase ended, if this call is timed.
    pub fn since(&self) -> Option<Instant> {
        self.since
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
