//! How long anybody waits for the device to answer.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The same, once an end was asked for.
const AT_THE_END: Duration = Duration::from_secs(1);

/// A wait that nobody can wake looks so often whether an end was asked for.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// How long anybody waits for the device to answer: shorter from when an end is asked for, also who waits already.
pub(crate) struct Patience {
    most: Duration,
    end_asked_for: OnceLock<Instant>,
}

impl Patience {
    pub(crate) fn new(most: Duration) -> Self {
        Self {
            most,
            end_asked_for: OnceLock::new(),
        }
    }

    /// An end is asked for.
    pub(crate) fn hurry(&self) {
        // The first time counts.
        let _ = self.end_asked_for.set(Instant::now());
    }

    /// What is left of a wait that began then.
    pub(crate) fn left(&self, begun: Instant) -> Duration {
        let left = self.most.saturating_sub(begun.elapsed());
        match self.end_asked_for.get() {
            None => left,
            Some(&asked) => left.min(AT_THE_END.saturating_sub(begun.max(asked).elapsed())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_shorter_once_an_end_is_asked_for_and_never_longer() {
        let now = Instant::now();
        let long = Patience::new(Duration::from_secs(3600));
        assert!(long.left(now) > Duration::from_secs(3000));
        long.hurry();
        assert!(long.left(now) <= AT_THE_END);
        let short = Patience::new(Duration::from_millis(1));
        short.hurry();
        assert!(short.left(now) <= Duration::from_millis(1));
        assert!(
            Patience::new(Duration::MAX).left(now) > AT_THE_END,
            "no overflow"
        );
        assert_eq!(Patience::new(Duration::ZERO).left(now), Duration::ZERO);
    }
}
