//! Whether what the kernel has said of durable writes and flushes is known yet.
//!
//! It tells of what it could not write back once, to the first that asks, which may be a durable
//! write of other bytes. One that it answers with success meanwhile has to wait until it is known what
//! those have heard that were under way with it.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Those of one file.
#[derive(Debug, Default)]
pub(super) struct Settling {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Numbers of those under way, in order.
    under_way: Vec<u64>,
    next: u64,
    /// Whether somebody waits for one of them.
    is_awaited: bool,
    /// Rung when one of them has ended, for threads that wait for the kernel as well: one of each ring.
    bells: Vec<OwnedFd>,
}

/// One durable write or flush, from before the kernel is asked until what it answered has been noted.
#[derive(Debug)]
pub(super) struct Unsettled {
    among: Arc<Settling>,
    number: u64,
}

/// All that were under way at some moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Earlier(u64);

impl Settling {
    pub(super) fn begin(self: &Arc<Self>) -> Unsettled {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.under_way.push(number);
        Unsettled {
            among: Arc::clone(self),
            number,
        }
    }

    /// Those that are under way now.
    pub(super) fn now(&self) -> Earlier {
        Earlier(self.state().next)
    }

    /// Waits for those that are under way now.
    pub(super) fn wait(&self) {
        let mut state = self.state();
        let earlier = Earlier(state.next);
        while !state.have_ended(earlier) {
            state.is_awaited = true;
            state = self
                .ended
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether all of them have ended; if not, the bells will ring.
    pub(super) fn have_ended(&self, earlier: Earlier) -> bool {
        let mut state = self.state();
        let have_ended = state.have_ended(earlier);
        state.is_awaited |= !have_ended;
        have_ended
    }

    /// Whether somebody waits.
    #[cfg(test)]
    pub(super) fn is_awaited(&self) -> bool {
        self.state().is_awaited
    }

    /// The bell of a ring.
    pub(super) fn add_bell(&self, bell: OwnedFd) {
        self.state().bells.push(bell);
    }

    /// Nothing in here panics while it is changed.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn have_ended(&self, Earlier(next): Earlier) -> bool {
        self.under_way.first().is_none_or(|&first| first >= next)
    }
}

impl Drop for Unsettled {
    fn drop(&mut self) {
        let mut state = self.among.state();
        state.under_way.retain(|&number| number != self.number);
        let is_awaited = std::mem::take(&mut state.is_awaited);
        for bell in state.bells.iter().filter(|_| is_awaited) {
            // It fails only if it has been rung 2^64 times.
            let _ = rustix::io::retry_on_intr(|| rustix::io::write(bell, &1_u64.to_ne_bytes()));
        }
        drop(state);
        self.among.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustix::io::Errno;

    use crate::file::FileStore;
    use crate::{AlignedBuffer, Operation, Store, block_on};

    /// Calls `flush`, which makes something durable, beside another of which is not known yet what the kernel has told it:
    /// what was lost.
    fn beside_a_failure(store: &FileStore, flush: impl FnOnce() -> bool + Send) {
        let unsettled = store.settling.begin();
        std::thread::scope(|scope| {
            let flushed = scope.spawn(flush);
            while !store.settling.is_awaited() && !flushed.is_finished() {
                std::thread::yield_now();
            }
            store.flushes_failed(Errno::IO);
            drop(unsettled);
            assert!(!flushed.join().unwrap(), "it said that all is durable");
        });
    }

    fn store(folder: &tempfile::TempDir) -> FileStore {
        FileStore::create(&folder.path().join("image"), 4096).unwrap()
    }

    #[test]
    fn a_flush_waits_for_what_others_have_heard() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(&folder);
        store.flush().unwrap();
        beside_a_failure(&store, || store.flush().is_ok());
    }

    #[test]
    fn so_does_a_durable_write() {
        let folder = tempfile::tempdir().unwrap();
        let file = Arc::new(store(&folder));
        beside_a_failure(&file, || file.write_at_durably(&[1; 512], 0).is_ok());
        let folder = tempfile::tempdir().unwrap();
        let file = Arc::new(store(&folder));
        let later = Arc::clone(&file).complete_later();
        beside_a_failure(&file, || {
            let operation = Operation::Write {
                buffer: AlignedBuffer::zeroed(512).unwrap().into(),
                offset: 0,
                durably: true,
            };
            block_on(later.submit(operation)).result.is_ok()
        });
    }

    #[test]
    fn so_does_a_flush_that_completes_later() {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(store(&folder));
        for _ in 0..2 {
            let later = Arc::clone(&store).complete_later();
            block_on(later.submit(Operation::Flush)).result.unwrap();
        }
        let later = Arc::clone(&store).complete_later();
        beside_a_failure(&store, || {
            block_on(later.submit(Operation::Flush)).result.is_ok()
        });
    }

    #[test]
    fn flushes_beside_each_other_end() {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(store(&folder));
        let later = Arc::clone(&store).complete_later();
        std::thread::scope(|scope| {
            for i in 0..8_u64 {
                let (store, later) = (&store, &later);
                scope.spawn(move || {
                    for round in 0..200 {
                        match (i + round) % 3 {
                            0 => store.flush().unwrap(),
                            1 => store.write_at_durably(&[1; 512], 512 * i).unwrap(),
                            _ => block_on(later.submit(Operation::Flush)).result.unwrap(),
                        }
                    }
                });
            }
        });
        assert!(store.settling.have_ended(store.settling.now()));
    }
}
