//! The lock of an image: one client writes, and one that lost the lock does nothing any more.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::io::Errno;
use xtent_store::{Act, ErrorKind};

use crate::Name;
use crate::ffi::{Handle, Way};
use crate::image::{Shared, Trouble};

/// `RBD_FEATURE_EXCLUSIVE_LOCK`.
const EXCLUSIVE_LOCK: u64 = 1 << 2;

/// Refuses to write to an image that has no lock: nothing would keep others away, and a client that
/// was thought to be dead would write on when another has taken its place. The locks that every
/// image can have (`rbd lock`) are looked at by those only who want to.
pub(crate) fn check_feature(handle: &Handle, name: &Name) -> Result<(), Trouble> {
    let features = handle
        .features()
        .map_err(|error| Trouble::new("cannot look at the image's features", error))?;
    if features & EXCLUSIVE_LOCK == 0 {
        return Err(Trouble::said(
            ErrorKind::Unsupported,
            format!(
                "the image has no lock that keeps other writers away; `rbd feature enable {} \
                 exclusive-lock` gives it one",
                name.spec()
            ),
        ));
    }
    Ok(())
}

/// Takes the lock unless somebody is there who has it.
pub(crate) fn take(handle: &Handle) -> Result<(), Trouble> {
    let failed = |error| Trouble::new("cannot find out who has the image's lock", error);
    let owners = handle.lock_owners().map_err(failed)?;
    let watchers = handle.watchers().map_err(failed)?;
    // The lock of a client that is not there any more goes to whoever asks.
    let owner = owners.into_iter().find(|owner| watchers.contains(owner));
    match owner {
        Some(owner) => Err(taken(&owner)),
        None => acquire(handle),
    }
}

/// Takes the lock away from whoever has it.
pub(crate) fn take_away(handle: &Handle) -> Result<(), Trouble> {
    let failed = |error| Trouble::new("cannot find out who has the image's lock", error);
    for owner in handle.lock_owners().map_err(failed)? {
        tracing::warn!(owner, "taking the image's lock away from its owner");
        match handle.break_lock(&owner) {
            // It has given it back meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other.map_err(|error| {
                Trouble::new(format!("cannot take the lock away from {owner}"), error)
            })?,
        }
    }
    acquire(handle)
}

fn acquire(handle: &Handle) -> Result<(), Trouble> {
    match handle.acquire_lock() {
        // Somebody was faster, and insists.
        Err(error) if is(&error, Errno::ROFS) => {
            let owners = handle.lock_owners().unwrap_or_default();
            Err(taken(owners.first().map_or("another", |owner| owner)))
        }
        other => other.map_err(|error| Trouble::new("cannot take the image's lock", error)),
    }
}

fn taken(owner: &str) -> Trouble {
    Trouble::said(
        ErrorKind::Busy,
        format!(
            "the client at {owner} has it open for writing (`rbd lock ls` and `rbd status` show it)"
        ),
    )
}

/// How often the lock is looked at. Far less than an hour, for which the cluster shuts a client out:
/// one that had nothing to do meanwhile would never know.
const LOOK: Duration = Duration::from_secs(10);

/// A thread that looks at the lock; ended when dropped.
pub(crate) struct Watch {
    /// Dropped to end it.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub(crate) fn start(way: Way, shared: Arc<Shared>) -> io::Result<Self> {
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new().name("rbd lock".into());
        let thread = thread.spawn(move || {
            while stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                match way.handle().has_lock() {
                    Ok(true) => {}
                    Ok(false) => return shared.fence.close(),
                    Err(error) if is(&error, Errno::SHUTDOWN) => return shared.fence.close(),
                    Err(error) => tracing::debug!(%error, "the image's lock cannot be looked at"),
                }
            }
        })?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported.
            let _ = thread.join();
        }
    }
}

/// Whether the image was lost to somebody else. Nothing undoes it.
#[derive(Default)]
pub(crate) struct Fence {
    is_lost: AtomicBool,
    /// Who is to be told of it.
    hears: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    has_failed_flush: AtomicBool,
}

/// Why nothing is done any more.
const LOST: &str = "the cluster has given the image's lock to another client, or shut this one out";
const UNFLUSHED: &str = "an earlier flush has failed";

impl Fence {
    /// Why an operation is not even tried.
    pub(crate) fn refusal(&self, act: Act) -> Option<(ErrorKind, &'static str)> {
        if self.is_lost.load(Ordering::Acquire) {
            return Some((ErrorKind::Fenced, LOST));
        }
        let waits = matches!(act, Act::Flush | Act::DurableWrite);
        (waits && self.has_failed_flush.load(Ordering::Acquire))
            .then_some((ErrorKind::Io, UNFLUSHED))
    }

    /// Has `hear` called when the image is lost: at once if it is.
    pub(crate) fn on_loss(&self, hear: Box<dyn FnOnce() + Send>) {
        *self.hears() = Some(hear);
        if self.is_lost.load(Ordering::Acquire) {
            self.tell();
        }
    }

    /// The image is lost.
    fn close(&self) {
        if !self.is_lost.swap(true, Ordering::AcqRel) {
            tracing::error!("{LOST}: nothing is read or written from now on");
            self.tell();
        }
    }

    fn tell(&self) {
        let hears = self.hears().take();
        if let Some(hear) = hears {
            hear();
        }
    }

    fn hears(&self) -> std::sync::MutexGuard<'_, Option<Box<dyn FnOnce() + Send>>> {
        self.hears.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at an operation's error, and gives its kind.
    pub(crate) fn note(&self, act: Act, error: &io::Error) -> ErrorKind {
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
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_stays_lost() {
        let fence = Fence::default();
        assert!(fence.refusal(Act::Write).is_none());
        assert_eq!(
            fence.note(Act::Read, &Errno::ROFS.into()),
            ErrorKind::ReadOnly
        );
        assert!(fence.refusal(Act::Read).is_none());
        assert_eq!(
            fence.note(Act::Read, &Errno::SHUTDOWN.into()),
            ErrorKind::Fenced
        );
        for act in [Act::Read, Act::Write, Act::Flush, Act::Discard] {
            assert_eq!(
                fence.refusal(act).map(|(kind, _)| kind),
                Some(ErrorKind::Fenced)
            );
        }
    }

    #[test]
    fn a_write_without_the_lock_is_a_loss_and_a_full_cluster_is_none() {
        let fence = Fence::default();
        assert_eq!(
            fence.note(Act::Write, &Errno::NOSPC.into()),
            ErrorKind::NoSpace
        );
        assert!(fence.refusal(Act::Write).is_none());
        assert_eq!(
            fence.note(Act::Write, &Errno::ROFS.into()),
            ErrorKind::Fenced
        );
        assert!(fence.refusal(Act::Write).is_some());
    }

    #[test]
    fn after_a_failed_flush_every_later_one_fails() {
        let fence = Fence::default();
        assert_eq!(fence.note(Act::Flush, &Errno::IO.into()), ErrorKind::Io);
        assert!(fence.refusal(Act::Write).is_none());
        for act in [Act::Flush, Act::DurableWrite] {
            assert_eq!(fence.refusal(act), Some((ErrorKind::Io, UNFLUSHED)));
        }
    }

    #[test]
    fn a_loss_is_told_once_and_to_who_comes_late_at_once() {
        let (tell, told) = channel();
        let on_loss = |fence: &Fence| {
            let tell = tell.clone();
            fence.on_loss(Box::new(move || tell.send(()).unwrap()));
        };
        let fence = Fence::default();
        on_loss(&fence);
        assert!(told.try_recv().is_err());
        fence.close();
        fence.close();
        assert_eq!(told.try_iter().count(), 1);
        on_loss(&fence);
        assert_eq!(told.try_iter().count(), 1);
    }
}
