//! Futures that wait for their turn, in order.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use crate::Error;
use crate::shared::{Core, Life, Shared, dead};

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

/// A place in one of the lines; given up when dropped.
pub(crate) struct Turn<'a> {
    shared: &'a Shared,
    line: fn(&mut Core) -> &mut Line,
    /// None before the first wait.
    number: Option<u64>,
}

impl<'a> Turn<'a> {
    pub(crate) fn new(shared: &'a Shared, line: fn(&mut Core) -> &mut Line) -> Self {
        Self {
            shared,
            line,
            number: None,
        }
    }

    /// Tries, when it is its turn and the engine takes requests.
    pub(crate) fn poll<R>(
        &mut self,
        context: &Context<'_>,
        mut attempt: impl FnMut(&mut Core, &Shared) -> Option<R>,
    ) -> Poll<Result<R, Error>> {
        let mut core = self.shared.lock();
        if let Life::Dead(reason) = &core.life {
            return Poll::Ready(Err(dead(reason)));
        }
        let is_up = matches!(core.life, Life::Up);
        if is_up
            && (self.line)(&mut core).is_first(self.number)
            && let Some(result) = attempt(&mut core, self.shared)
        {
            return Poll::Ready(Ok(result));
        }
        (self.line)(&mut core).wait(&mut self.number, context.waker());
        Poll::Pending
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let Some(number) = self.number else {
            return;
        };
        let mut core = self.shared.lock();
        let next = (self.line)(&mut core).leave(number);
        drop(core);
        if let Some(waker) = next {
            waker.wake();
        }
    }
}
