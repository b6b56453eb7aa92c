//! Whether an image was lost to somebody else, and what is under way on it: that is over then.
//!
//! librbd was seen to leave an operation without an end when the lock was taken away. So nobody who
//! waits for one depends on librbd once the image is lost: all of them are told at once.

use std::io;
use std::mem::{replace, take};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use slab::Slab;
use xtent_store::{Act, Buffer, Completed, Completion, Error, ErrorKind, Place, Share};

/// Whether the image was lost. Nothing undoes it.
pub(crate) struct Fence {
    place: Place,
    state: Mutex<State>,
    /// As in the state, for those who only want to know.
    is_lost: AtomicBool,
    has_failed_flush: AtomicBool,
}

#[derive(Default)]
struct State {
    is_lost: bool,
    /// Empty for ever once it is lost.
    under_way: Slab<UnderWay>,
    /// Who is to be told of the loss.
    hears: Vec<Box<dyn FnOnce() + Send>>,
}

/// An operation that has not ended.
struct UnderWay {
    act: Act,
    offset: Option<u64>,
    completion: Completion,
    /// What its memory counts for, wherever that is.
    share: Option<Share>,
}

/// The place of an operation among those under way.
pub(crate) struct Ticket(usize);

/// Why nothing is done any more.
const LOST: &str = "the cluster has given the image's lock to another client, or shut this one out";
const UNFLUSHED: &str = "an earlier flush has failed";

impl Fence {
    /// Of an image that is not lost.
    pub(crate) fn new(place: Place) -> Self {
        Self {
            place,
            state: Mutex::default(),
            is_lost: AtomicBool::new(false),
            has_failed_flush: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    /// Why an operation is not even tried.
    pub(crate) fn refusal(&self, act: Act) -> Option<(ErrorKind, &'static str)> {
        if self.is_lost() {
            return Some((ErrorKind::Fenced, LOST));
        }
        let waits = matches!(act, Act::Flush | Act::DurableWrite);
        (waits && self.has_failed_flush.load(Ordering::Acquire))
            .then_some((ErrorKind::Io, UNFLUSHED))
    }

    /// Has `hear` called when the image is lost: at once if it is.
    pub(crate) fn on_loss(&self, hear: Box<dyn FnOnce() + Send>) {
        let mut state = self.state();
        if !state.is_lost {
            return state.hears.push(hear);
        }
        drop(state);
        hear();
    }

    /// Notes an operation, with the memory that the library gets for it, before that gets it. Where the
    /// image is lost, tells its end instead.
    pub(crate) fn begin(
        &self,
        act: Act,
        offset: Option<u64>,
        completion: Completion,
        buffer: Option<&mut Buffer>,
    ) -> Option<Ticket> {
        let operation = UnderWay {
            act,
            offset,
            completion,
            share: buffer.map(Buffer::part),
        };
        let mut state = self.state();
        if !state.is_lost {
            return Some(Ticket(state.under_way.insert(operation)));
        }
        drop(state);
        self.give_up(operation);
        None
    }

    /// Tells the end of an operation, or of the `part` of it that failed. Of one that was given up
    /// meanwhile nobody wants to know.
    pub(crate) fn end(
        &self,
        ticket: Ticket,
        part: Act,
        mut buffer: Option<Buffer>,
        result: io::Result<()>,
    ) {
        let Some(operation) = self.state().under_way.try_remove(ticket.0) else {
            return;
        };
        if let (Some(buffer), Some(share)) = (&mut buffer, operation.share) {
            buffer.join(share);
        }
        let result = result.map_err(|source| Error {
            kind: self.note(part, &source),
            act: operation.act,
            place: self.place.clone(),
            offset: operation.offset,
            source: Some(source),
        });
        operation
            .completion
            .complete(Completed::new(buffer, result));
    }

    /// The image is lost.
    pub(crate) fn close(&self) {
        let (under_way, hears) = {
            let mut state = self.state();
            if replace(&mut state.is_lost, true) {
                return;
            }
            self.is_lost.store(true, Ordering::Release);
            (take(&mut state.under_way), take(&mut state.hears))
        };
        tracing::error!(
            under_way = under_way.len(),
            "{LOST}: nothing is read or written from now on"
        );
        for (_, operation) in under_way {
            self.give_up(operation);
        }
        for hear in hears {
            hear();
        }
    }

    /// Fails an operation without its memory: as long as the library has not ended it, it may read
    /// and write there. It is counted no more.
    fn give_up(&self, operation: UnderWay) {
        drop(operation.share);
        let error = Error {
            source: Some(io::Error::other(LOST)),
            ..Error::new(
                ErrorKind::Fenced,
                operation.act,
                self.place.clone(),
                operation.offset,
            )
        };
        operation
            .completion
            .complete(Completed::new(None, Err(error)));
    }

    /// Looks at an operation's error, and gives its kind.
    fn note(&self, act: Act, error: &io::Error) -> ErrorKind {
        // librbd says "read-only" of a write without the lock, and the cluster "shut down" of
        // whatever comes from a client on its blocklist.
        let is_lost = is(error, Errno::SHUTDOWN) || act != Act::Read && is(error, Errno::ROFS);
        if is_lost {
            self.close();
            return ErrorKind::Fenced;
        }
        if matches!(act, Act::Flush | Act::DurableWrite) {
            self.has_failed_flush.store(true, Ordering::Release);
        }
        ErrorKind::of(error)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

#[cfg(test)]
mod tests;
