//! Locks on ranges of sectors: shared for readers, exclusive for writers.
//!
//! First come, first served among those that conflict, so nobody starves. A
//! request holds one range at a time, so nobody deadlocks. Ranges in use are
//! few (requests in flight), hence a plain list.

use std::future::poll_fn;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// Who may use a range at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Anyone else who shares.
    Shared,
    /// Nobody else.
    Exclusive,
}

/// The ranges in use.
#[derive(Default)]
pub(crate) struct RangeLock {
    queue: Mutex<Queue>,
    released: Condvar,
    /// Entries in the queue, for those who only want to know how many.
    in_use: AtomicUsize,
}

#[derive(Default)]
struct Queue {
    /// Held and waited for, in order of arrival. An entry is held if no
    /// earlier one conflicts.
    entries: Vec<Entry>,
    next_id: u64,
    waiting: usize,
}

struct Entry {
    id: u64,
    range: Range<u64>,
    mode: Mode,
    /// To be woken when ranges before this one are released; of a future that waits.
    waker: Option<Waker>,
}

impl Entry {
    fn conflicts(&self, range: &Range<u64>, mode: Mode) -> bool {
        (self.mode == Mode::Exclusive || mode == Mode::Exclusive)
            && self.range.start < range.end
            && range.start < self.range.end
    }
}

/// A held range; released when dropped.
pub(crate) struct Guard<'a> {
    lock: &'a RangeLock,
    id: u64,
}

impl RangeLock {
    /// Waits until the range is free, and for those that came before.
    pub(crate) fn lock(&self, range: Range<u64>, mode: Mode) -> Guard<'_> {
        let mut queue = self.queue();
        let id = self.enter(&mut queue, range, mode);
        if !queue.is_held(id) {
            queue.waiting += 1;
            while !queue.is_held(id) {
                queue = self
                    .released
                    .wait(queue)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            queue.waiting -= 1;
        }
        Guard { lock: self, id }
    }

    /// As [`RangeLock::lock`], without a thread that waits. Its place is given up if the
    /// future is dropped.
    pub(crate) async fn lock_async(&self, range: Range<u64>, mode: Mode) -> Guard<'_> {
        let id = self.enter(&mut self.queue(), range, mode);
        // From here on, so that the place is given up if this future is.
        let guard = Guard { lock: self, id };
        poll_fn(|context| {
            let mut queue = self.queue();
            if queue.is_held(id) {
                return Poll::Ready(());
            }
            let position = queue.position(id);
            queue.entries[position].waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
        guard
    }

    /// The range, if nobody holds it or waits for it.
    pub(crate) fn try_lock(&self, range: Range<u64>, mode: Mode) -> Option<Guard<'_>> {
        let mut queue = self.queue();
        if queue.entries.iter().any(|e| e.conflicts(&range, mode)) {
            return None;
        }
        let id = self.enter(&mut queue, range, mode);
        Some(Guard { lock: self, id })
    }

    /// How many ranges are held or waited for at the moment.
    pub(crate) fn in_use(&self) -> usize {
        self.in_use.load(Ordering::Relaxed)
    }

    fn enter(&self, queue: &mut Queue, range: Range<u64>, mode: Mode) -> u64 {
        let id = queue.push(range, mode);
        self.in_use.store(queue.entries.len(), Ordering::Relaxed);
        id
    }

    /// The list stays whole even if a holder panics: nothing in here does
    /// while it is changed.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn push(&mut self, range: Range<u64>, mode: Mode) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.entries.push(Entry {
            id,
            range,
            mode,
            waker: None,
        });
        id
    }

    fn is_held(&self, id: u64) -> bool {
        let position = self.position(id);
        let Entry { range, mode, .. } = &self.entries[position];
        !self.entries[..position]
            .iter()
            .any(|e| e.conflicts(range, *mode))
    }

    /// Identifiers ascend along the list.
    fn position(&self, id: u64) -> usize {
        self.entries.partition_point(|e| e.id < id)
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let mut queue = self.lock.queue();
        let position = queue.position(self.id);
        let Entry { range, mode, .. } = queue.entries.remove(position);
        let wakers: Vec<Waker> = queue.entries[position..]
            .iter_mut()
            .filter(|entry| entry.waker.is_some() && entry.conflicts(&range, mode))
            .filter_map(|entry| entry.waker.take())
            .collect();
        self.lock
            .in_use
            .store(queue.entries.len(), Ordering::Relaxed);
        let is_awaited = queue.waiting > 0;
        drop(queue);
        if is_awaited {
            self.lock.released.notify_all();
        }
        for waker in wakers {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    #[test]
    fn conflicts_are_overlaps_with_a_writer() {
        let lock = RangeLock::default();
        let reader = lock.lock(10..20, Mode::Shared);
        assert!(lock.try_lock(15..25, Mode::Shared).is_some());
        assert!(lock.try_lock(15..25, Mode::Exclusive).is_none());
        assert!(lock.try_lock(20..25, Mode::Exclusive).is_some());
        assert!(lock.try_lock(0..10, Mode::Exclusive).is_some());
        drop(reader);
        let writer = lock.lock(10..20, Mode::Exclusive);
        assert!(lock.try_lock(19..20, Mode::Shared).is_none());
        drop(writer);
        assert!(lock.try_lock(10..20, Mode::Exclusive).is_some());
        assert!(lock.queue().entries.is_empty());
    }

    #[test]
    fn a_waiting_writer_is_not_overtaken() {
        let lock = RangeLock::default();
        let written = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = lock.lock(0..4, Mode::Shared);
            scope.spawn(|| {
                let _writer = lock.lock(2..6, Mode::Exclusive);
                written.store(true, Ordering::SeqCst);
            });
            while lock.queue().waiting == 0 {
                std::thread::yield_now();
            }
            // New readers of the writer's range queue up behind it.
            assert!(lock.try_lock(3..4, Mode::Shared).is_none());
            assert!(lock.try_lock(0..2, Mode::Shared).is_some());
            let late = scope.spawn(|| {
                let _reader = lock.lock(3..4, Mode::Shared);
                assert!(written.load(Ordering::SeqCst));
            });
            while lock.queue().waiting < 2 {
                std::thread::yield_now();
            }
            drop(reader);
            late.join().unwrap();
        });
        assert!(lock.queue().entries.is_empty());
    }

    #[test]
    fn futures_wait_in_the_same_line() {
        let lock = RangeLock::default();
        let mut context = std::task::Context::from_waker(Waker::noop());
        let writer = lock.lock(0..4, Mode::Exclusive);
        let mut given_up = Box::pin(lock.lock_async(2..8, Mode::Exclusive));
        let mut reader = Box::pin(lock.lock_async(6..8, Mode::Shared));
        assert!(given_up.as_mut().poll(&mut context).is_pending());
        assert!(reader.as_mut().poll(&mut context).is_pending());
        drop(given_up);
        assert!(reader.as_mut().poll(&mut context).is_ready());
        drop(reader);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                xtent_store::block_on(lock.lock_async(3..5, Mode::Exclusive));
            });
            while !lock.queue().entries.iter().any(|e| e.waker.is_some()) {
                std::thread::yield_now();
            }
            drop(writer);
            waiting.join().unwrap();
        });
        assert!(lock.queue().entries.is_empty());
    }

    #[test]
    fn exclusive_means_exclusive() {
        let lock = RangeLock::default();
        let cells: Vec<AtomicU64> = (0..8).map(|_| AtomicU64::new(0)).collect();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (lock, cells) = (&lock, &cells);
                scope.spawn(move || {
                    for round in 0..2000u64 {
                        let start = (round * 7 + thread * 3) % 8;
                        let end = (start + 1 + round % 3).min(8);
                        let _guard = lock.lock(start..end, Mode::Exclusive);
                        for cell in start..end {
                            // A lost update unless exclusive.
                            let cell = &cells[usize::try_from(cell).unwrap()];
                            let value = cell.load(Ordering::Relaxed);
                            std::hint::spin_loop();
                            cell.store(value + 1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        let expected: u64 = (0..4u64)
            .flat_map(|t| (0..2000u64).map(move |r| (r, (r * 7 + t * 3) % 8)))
            .map(|(r, start)| (start + 1 + r % 3).min(8) - start)
            .sum();
        let total: u64 = cells.iter().map(|c| c.load(Ordering::Relaxed)).sum();
        assert_eq!(total, expected);
    }
}
