//! Futures that wait for their turn, in order.

use std::collections::VecDeque;
use std::task::Waker;

/// Who waits, in order of arrival, by number.
#[derive(Default)]
pub(crate) struct Line {
    waiting: VecDeque<(u64, Waker)>,
    next: u64,
}

impl Line {
    /// Whether somebody with this number, or who has none yet, is next.
    pub(crate) fn is_first(&self, number: Option<u64>) -> bool {
        match (number, self.waiting.front()) {
            (None, front) => front.is_none(),
            (Some(number), front) => front.is_some_and(|(first, _)| *first == number),
        }
    }

    /// Waits, at the end or at the place that it has.
    pub(crate) fn wait(&mut self, number: &mut Option<u64>, waker: &Waker) {
        match *number {
            None => {
                *number = Some(self.next);
                self.waiting.push_back((self.next, waker.clone()));
                self.next += 1;
            }
            Some(number) => {
                if let Some((_, old)) = self.waiting.iter_mut().find(|(n, _)| *n == number) {
                    old.clone_from(waker);
                }
            }
        }
    }

    /// Gives a place up, and has whoever is first now look.
    pub(crate) fn leave(&mut self, number: u64) -> Option<Waker> {
        self.waiting.retain(|(other, _)| *other != number);
        self.first()
    }

    /// Whoever is first.
    pub(crate) fn first(&self) -> Option<Waker> {
        self.waiting.front().map(|(_, waker)| waker.clone())
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = Waker> {
        self.waiting.iter().map(|(_, waker)| waker.clone())
    }
}
