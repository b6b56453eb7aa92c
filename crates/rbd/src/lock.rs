//! The lock of an image: one client writes, and one that lost the lock does nothing any more.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::io::Errno;
use xtent_store::ErrorKind;

use crate::Name;
use crate::fence::is;
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
            while stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout)
                && !shared.fence.is_lost()
            {
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
