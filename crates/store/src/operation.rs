//! Operations that own their memory until they complete.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::{Act, Buffer, Error, ErrorKind};

/// What a store is asked to do with memory that it owns meanwhile. Offsets and
/// lengths are multiples of [`Limits::block`](crate::Limits::block).
#[derive(Debug)]
pub enum Operation {
    /// Fills all of the buffer from `offset` on.
    Read {
        /// Where the bytes go.
        buffer: Buffer,
        /// First byte in the store.
        offset: u64,
    },
    /// Writes all of the buffer at `offset`; never extends the store.
    Write {
        /// The bytes.
        buffer: Buffer,
        /// First byte in the store.
        offset: u64,
        /// Whether they are durable on completion (FUA).
        durably: bool,
    },
    /// Makes durable what completed before this was submitted, as
    /// [`Store::flush`](crate::Store::flush) does.
    Flush,
    /// Deallocates, as [`Store::discard`](crate::Store::discard) does.
    Discard {
        /// First byte in the store.
        offset: u64,
        /// How many bytes.
        len: u64,
    },
}

impl Operation {
    /// The operation's memory, if it has some.
    pub fn into_buffer(self) -> Option<Buffer> {
        match self {
            Self::Read { buffer, .. } | Self::Write { buffer, .. } => Some(buffer),
            Self::Flush | Self::Discard { .. } => None,
        }
    }
}

/// An operation that has ended.
#[derive(Debug)]
pub struct Completed {
    /// Its memory: what was read, if all went well; of a write, whatever the store has
    /// left there. The store may have kept it, if the operation failed.
    pub buffer: Option<Buffer>,
    /// How it ended.
    pub result: Result<(), Error>,
}

impl Completed {
    /// Success or failure of an operation that had this memory.
    pub fn new(buffer: Option<Buffer>, result: Result<(), Error>) -> Self {
        Self { buffer, result }
    }
}

/// An operation under way: a future of its end. The operation goes on if this is dropped.
pub struct Submitted(State);

enum State {
    /// It has ended already; none once that was told.
    Ended(Option<Box<Completed>>),
    Later(Arc<Slot>),
}

/// Where the end of an operation is left for whoever waits for it.
#[derive(Default)]
struct Slot {
    state: Mutex<(Option<Completed>, Option<Waker>)>,
}

impl Submitted {
    /// An operation that ended at once.
    pub fn ended(completed: Completed) -> Self {
        Self(State::Ended(Some(Box::new(completed))))
    }

    /// An operation that ends when the [`Completion`] is told.
    pub fn later() -> (Completion, Self) {
        let slot = Arc::new(Slot::default());
        (
            Completion(Some(Arc::clone(&slot))),
            Self(State::Later(slot)),
        )
    }
}

impl Future for Submitted {
    type Output = Completed;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Completed> {
        match &mut self.0 {
            // A future is not polled again after its end; if it is, it never ends.
            State::Ended(completed) => completed
                .take()
                .map_or(Poll::Pending, |completed| Poll::Ready(*completed)),
            State::Later(slot) => {
                let mut state = slot.state.lock().unwrap_or_else(PoisonError::into_inner);
                match state.0.take() {
                    Some(completed) => Poll::Ready(completed),
                    None => {
                        state.1 = Some(context.waker().clone());
                        Poll::Pending
                    }
                }
            }
        }
    }
}

/// The store's end of an operation under way. Dropped untold, the operation fails.
pub struct Completion(Option<Arc<Slot>>);

impl Completion {
    /// The operation has ended.
    pub fn complete(mut self, completed: Completed) {
        self.tell(completed);
    }

    fn tell(&mut self, completed: Completed) {
        let Some(slot) = self.0.take() else {
            return;
        };
        let mut state = slot.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = Some(completed);
        let waker = state.1.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if self.0.is_some() {
            let error = Error {
                source: Some(std::io::Error::other("the operation was given up")),
                ..Error::new(ErrorKind::Io, Act::Operation, Path::new("the store"), None)
            };
            self.tell(Completed::new(None, Err(error)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_on;

    #[test]
    fn an_end_is_told_whenever_it_comes() {
        let at_once = Submitted::ended(Completed::new(None, Ok(())));
        assert!(block_on(at_once).result.is_ok());

        let (completion, submitted) = Submitted::later();
        completion.complete(Completed::new(None, Ok(())));
        assert!(block_on(submitted).result.is_ok());

        let (completion, submitted) = Submitted::later();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| block_on(submitted));
            completion.complete(Completed::new(None, Ok(())));
            assert!(waiter.join().unwrap().result.is_ok());
        });
    }

    #[test]
    fn an_operation_given_up_fails() {
        let (completion, submitted) = Submitted::later();
        drop(completion);
        let error = block_on(submitted).result.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Io);
    }
}
