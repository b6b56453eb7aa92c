//! A few threads that lend a hand with one large piece of work at a time.
//!
//! The caller works as well, and takes parts like everybody else: a helper
//! that the scheduler lets in late finds less to do, or nothing, and nobody
//! waits for one that has not begun. The only wait is for parts under way.
//! Nothing is allocated per piece of work.
//!
//! Scoped threads of the standard library would have to be started for every
//! run, and a general pool (rayon's) allocates for each job and waits until
//! the last of them has been picked up. What both hide is the one unsafe line
//! here: a borrow is lent to threads that outlive it.
#![allow(unsafe_code)]

use std::mem::transmute;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{Builder, JoinHandle};

/// What is called for each part, by number.
type Work<'a> = &'a (dyn Fn(usize) + Sync);

/// The threads that help. Ended when dropped.
pub(crate) struct Helpers {
    board: Arc<Board>,
    /// One piece of work at a time.
    taken: Mutex<()>,
    threads: Vec<JoinHandle<()>>,
}

/// A claim on the helpers, that are nobody else's until this is dropped.
pub(crate) struct Lease<'a> {
    board: &'a Board,
    helpers: usize,
    _taken: MutexGuard<'a, ()>,
}

/// Where the work is posted.
#[derive(Default)]
struct Board {
    state: Mutex<State>,
    /// There is a part to take, or the helpers end.
    posted: Condvar,
    /// No helper is at work.
    finished: Condvar,
}

#[derive(Default)]
struct State {
    /// Present while a caller waits for its end, never longer.
    work: Option<Work<'static>>,
    /// The part to take next, and how many there are.
    next: usize,
    parts: usize,
    /// Helpers at work on a part.
    busy: usize,
    /// One of them panicked.
    panicked: bool,
    /// The helpers end.
    closed: bool,
}

impl Helpers {
    /// Starts `helpers` threads, or as many as the system allows; `None` if
    /// that is none.
    pub(crate) fn start(helpers: usize) -> Option<Self> {
        let board = Arc::new(Board::default());
        let mut threads = Vec::with_capacity(helpers);
        for index in 0..helpers {
            let board = Arc::clone(&board);
            let thread = Builder::new()
                .name(format!("cipher-{index}"))
                .spawn(move || board.help());
            match thread {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    tracing::warn!(%error, "cannot start a cipher thread; doing with fewer");
                    break;
                }
            }
        }
        (!threads.is_empty()).then(|| Self {
            board,
            taken: Mutex::default(),
            threads,
        })
    }

    /// The helpers for one piece of work, unless they are at work for somebody else.
    pub(crate) fn try_lease(&self) -> Option<Lease<'_>> {
        let taken = match self.taken.try_lock() {
            Ok(taken) => taken,
            // It guards nothing that a panic could have left half done.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(Lease {
            board: &self.board,
            helpers: self.threads.len(),
            _taken: taken,
        })
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        self.board.state().closed = true;
        self.board.posted.notify_all();
        for thread in self.threads.drain(..) {
            // Panics of the work were caught, and told to its caller.
            let _ = thread.join();
        }
    }
}

impl Lease<'_> {
    /// Calls `work` once for each of `0..parts`, on this thread and the
    /// helpers, and returns when every call has. Panics if one of them does;
    /// parts may be left out then.
    pub(crate) fn run(self, parts: usize, work: Work<'_>) {
        // SAFETY: only the lifetime changes. The reference is read from the
        // board under its lock, by helpers that count as busy until they are
        // done with it. `Withdrawn` takes it off the board and waits until none
        // is busy, before this function returns or unwinds; so nobody has it
        // when the borrow ends.
        let lent = unsafe { transmute::<Work<'_>, Work<'static>>(work) };
        {
            let mut state = self.board.state();
            state.work = Some(lent);
            state.next = 0;
            state.parts = parts;
            state.panicked = false;
        }
        let withdrawn = Withdrawn(self.board);
        for _ in 0..self.helpers.min(parts.saturating_sub(1)) {
            self.board.posted.notify_one();
        }
        loop {
            // The lock is given back before the work begins.
            let part = self.board.state().take();
            let Some(part) = part else { break };
            work(part);
        }
        drop(withdrawn);
        let panicked = self.board.state().panicked;
        assert!(!panicked, "a cipher thread panicked");
    }
}

/// Takes the work off the board when dropped, and waits until nobody is at it.
struct Withdrawn<'a>(&'a Board);

impl Drop for Withdrawn<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.work = None;
        state.parts = 0;
        while state.busy > 0 {
            state = self
                .0
                .finished
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Board {
    /// Nothing panics while the state is changed: it is whole always.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A helper's life.
    fn help(&self) {
        let mut state = self.state();
        while !state.closed {
            let Some((work, part)) = state.work.zip(state.take()) else {
                state = self
                    .posted
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            state.busy += 1;
            drop(state);
            let result = catch_unwind(AssertUnwindSafe(|| work(part)));
            state = self.state();
            state.busy -= 1;
            if result.is_err() {
                state.panicked = true;
                // The caller fails: the rest need not be done.
                state.parts = 0;
            }
            if state.busy == 0 && state.next >= state.parts {
                self.finished.notify_all();
            }
        }
    }
}

impl State {
    /// The next part, if there is one left.
    fn take(&mut self) -> Option<usize> {
        let part = self.next;
        (part < self.parts).then(|| {
            self.next += 1;
            part
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn every_part_is_done_once() {
        let helpers = Helpers::start(3).unwrap();
        for parts in [0, 1, 2, 3, 4, 16, 100] {
            for _ in 0..200 {
                let done: Vec<AtomicUsize> = (0..parts).map(|_| AtomicUsize::new(0)).collect();
                helpers.try_lease().unwrap().run(parts, &|part| {
                    done[part].fetch_add(1, Ordering::Relaxed);
                });
                assert!(done.iter().all(|count| count.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn one_at_a_time() {
        let helpers = Helpers::start(1).unwrap();
        let lease = helpers.try_lease().unwrap();
        assert!(helpers.try_lease().is_none());
        drop(lease);
        assert!(helpers.try_lease().is_some());
    }

    /// A part that waits for another to begin ends only if two threads work.
    #[test]
    fn helpers_help() {
        let helpers = Helpers::start(1).unwrap();
        let begun = AtomicUsize::new(0);
        helpers.try_lease().unwrap().run(2, &|_| {
            begun.fetch_add(1, Ordering::SeqCst);
            while begun.load(Ordering::SeqCst) < 2 {
                std::thread::yield_now();
            }
        });
    }

    #[test]
    fn panics_reach_the_caller_and_leave_the_helpers_fit() {
        let helpers = Helpers::start(2).unwrap();
        for bad in 0..8 {
            let caught = catch_unwind(AssertUnwindSafe(|| {
                helpers
                    .try_lease()
                    .unwrap()
                    .run(8, &|part| assert_ne!(part, bad, "on purpose"));
            }));
            assert!(caught.is_err());
            let count = AtomicUsize::new(0);
            helpers.try_lease().unwrap().run(8, &|_| {
                count.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(count.into_inner(), 8);
        }
    }

    /// The borrow of the stack ends with each call, whoever did the work.
    #[test]
    fn nobody_is_left_with_the_borrow() {
        let helpers = Helpers::start(2).unwrap();
        for round in 0..1000 {
            let cells: [Mutex<usize>; 4] = std::array::from_fn(|_| Mutex::new(0));
            helpers
                .try_lease()
                .unwrap()
                .run(4, &|part| *cells[part].lock().unwrap() = round + part);
            for (part, cell) in cells.into_iter().enumerate() {
                assert_eq!(cell.into_inner().unwrap(), round + part);
            }
        }
    }
}
