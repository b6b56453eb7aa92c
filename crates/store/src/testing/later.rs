//! A store whose operations complete later, in any order.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::{Completion, Error, Limits, Operation, Store, Submitted};

/// Carries out another store's operations on a thread of its own, always one of those
/// under way that chance picks, as a store far away might. An operation that is not in
/// whole [blocks](Limits::block) panics.
pub struct LaterStore<S: ?Sized> {
    shared: Arc<Shared<S>>,
    thread: Option<JoinHandle<()>>,
}

struct Shared<S: ?Sized> {
    inner: Arc<S>,
    state: Mutex<State>,
    changed: Condvar,
    most_waiting: AtomicUsize,
}

struct State {
    waiting: Vec<(Operation, Completion)>,
    held: Range<u64>,
    is_closed: bool,
    /// State of the generator that picks.
    random: u64,
}

impl<S: ?Sized> Shared<S> {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Store + ?Sized + 'static> LaterStore<S> {
    /// Over this store, with an order of completion that `seed` makes.
    pub fn new(inner: Arc<S>, seed: u64) -> Self {
        let shared = Arc::new(Shared {
            inner,
            state: Mutex::new(State {
                waiting: Vec::new(),
                held: 0..0,
                is_closed: false,
                random: seed | 1,
            }),
            changed: Condvar::new(),
            most_waiting: AtomicUsize::new(0),
        });
        let worker = Arc::clone(&shared);
        Self {
            shared,
            thread: Some(std::thread::spawn(move || work(&worker))),
        }
    }

    /// The store below.
    pub fn inner(&self) -> &S {
        &self.shared.inner
    }

    /// From now on completes no operation that begins in this range, where flushes begin
    /// at 0. An empty range lets all go on.
    pub fn hold(&self, range: Range<u64>) {
        self.shared.state().held = range;
        self.shared.changed.notify_all();
    }

    /// Operations under way.
    pub fn waiting(&self) -> usize {
        self.shared.state().waiting.len()
    }

    /// The most operations that ever were under way at a time.
    pub fn most_waiting(&self) -> usize {
        self.shared.most_waiting.load(Ordering::SeqCst)
    }
}

fn work<S: Store + ?Sized>(shared: &Shared<S>) {
    let mut state = shared.state();
    loop {
        let free: Vec<usize> = (0..state.waiting.len())
            .filter(|index| {
                state.is_closed || !state.held.contains(&start(&state.waiting[*index].0))
            })
            .collect();
        if free.is_empty() {
            if state.is_closed {
                return;
            }
            state = shared
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        // Xorshift.
        state.random ^= state.random << 13;
        state.random ^= state.random >> 7;
        state.random ^= state.random << 17;
        let pick = usize::try_from(state.random % free.len() as u64).unwrap_or_default();
        let (operation, completion) = state.waiting.swap_remove(free[pick]);
        drop(state);
        completion.complete(shared.inner.perform(operation));
        state = shared.state();
    }
}

fn start(operation: &Operation) -> u64 {
    match operation {
        Operation::Read { offset, .. }
        | Operation::Write { offset, .. }
        | Operation::Discard { offset, .. } => *offset,
        Operation::Flush => 0,
    }
}

impl<S: ?Sized> Drop for LaterStore<S> {
    fn drop(&mut self) {
        self.shared.state().is_closed = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl<S: Store + ?Sized + 'static> Store for LaterStore<S> {
    fn size(&self) -> u64 {
        self.shared.inner.size()
    }
    fn is_read_only(&self) -> bool {
        self.shared.inner.is_read_only()
    }
    fn limits(&self) -> Limits {
        self.shared.inner.limits()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), Error> {
        self.shared.inner.read_at(buf, offset)
    }
    fn write_at(&self, data: &[u8], offset: u64) -> Result<(), Error> {
        self.shared.inner.write_at(data, offset)
    }
    fn write_at_durably(&self, data: &[u8], offset: u64) -> Result<(), Error> {
        self.shared.inner.write_at_durably(data, offset)
    }
    fn flush(&self) -> Result<(), Error> {
        self.shared.inner.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.shared.inner.discard(offset, len)
    }
    fn completes_later(&self) -> bool {
        true
    }
    fn submit(&self, operation: Operation) -> Submitted {
        let block = u64::from(self.limits().block);
        let is_whole = |offset: u64, len: u64| (offset | len).is_multiple_of(block);
        assert!(match &operation {
            Operation::Read { buffer, offset } | Operation::Write { buffer, offset, .. } =>
                is_whole(*offset, buffer.len() as u64),
            Operation::Discard { offset, len } => is_whole(*offset, *len),
            Operation::Flush => true,
        });
        let (completion, submitted) = Submitted::later();
        let mut state = self.shared.state();
        state.waiting.push((operation, completion));
        self.shared
            .most_waiting
            .fetch_max(state.waiting.len(), Ordering::SeqCst);
        drop(state);
        self.shared.changed.notify_all();
        submitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MemStore;
    use crate::{AlignedBuffer, block_on};

    #[test]
    fn operations_complete_once_they_are_let_go() {
        let store = LaterStore::new(Arc::new(MemStore::new(1 << 16)), 3);
        store.hold(0..u64::MAX);
        let submitted: Vec<_> = (0..16_u8)
            .map(|i| {
                let mut buffer = AlignedBuffer::zeroed(4096).unwrap();
                buffer.fill(i);
                store.submit(Operation::Write {
                    buffer: buffer.into(),
                    offset: u64::from(i) * 4096,
                    durably: false,
                })
            })
            .collect();
        assert_eq!((store.waiting(), store.inner().writes()), (16, 0));
        store.hold(0..0);
        for one in submitted {
            assert!(block_on(one).result.is_ok());
        }
        let contents = store.inner().contents();
        assert!((0..16_u8).all(|i| contents[usize::from(i) * 4096] == i));
        assert_eq!(store.most_waiting(), 16);
    }
}
