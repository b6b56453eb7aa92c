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
use crate::ffi::{Handle, Setting, Source, Way};
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

/// Seconds for which whoever loses the lock has to be shut out at least, the cluster's own default: then it has looked at
/// its lock many times.
const SHUT_OUT: u64 = 3600;

/// Refuses to write to an image whose lock would be taken from a client without keeping that from writing on, or for a moment
/// only. An image and a pool can say so, whatever the client's settings are.
pub(crate) fn check_fencing(handle: &Handle, name: &Name) -> Result<(), Trouble> {
    let settings = handle
        .settings()
        .map_err(|error| Trouble::new("cannot look at the image's settings", error))?;
    let is_asked_for = |setting: &Setting| {
        let asked = |(option, _): &(String, String)| *option == setting.name;
        setting.source == Source::Client && name.options.iter().any(asked)
    };
    let spoils = |setting: &&Setting| spoils_fencing(&setting.name, &setting.value);
    let spoilt = settings.iter().filter(spoils).find(|it| !is_asked_for(it));
    let Some(Setting {
        name: option,
        value,
        source,
    }) = spoilt
    else {
        return Ok(());
    };
    let (whose, mend) = match source {
        Source::Client => ("ceph.conf or the cluster's configuration", String::new()),
        Source::Pool => (
            "the pool",
            format!(
                "; `rbd config pool remove {} {option}` mends that",
                name.pool
            ),
        ),
        Source::Image => (
            "the image",
            format!(
                "; `rbd config image remove {} {option}` mends that",
                name.spec()
            ),
        ),
    };
    Err(Trouble::said(
        ErrorKind::Unsupported,
        format!(
            "{option}={value}, by {whose}: a client that loses the image's lock would write on, over what its \
             successor has written{mend}"
        ),
    ))
}

/// Whether an option with such a value leaves clients that lost the lock their way to the data.
fn spoils_fencing(option: &str, value: &str) -> bool {
    let number = value.parse::<u64>();
    match option {
        "rbd_blocklist_on_break_lock" | "rbd_blacklist_on_break_lock" => {
            !value.eq_ignore_ascii_case("true") && !matches!(number, Ok(1..))
        }
        // Zero is what the cluster has for it.
        "rbd_blocklist_expire_seconds" | "rbd_blacklist_expire_seconds" => {
            !matches!(number, Ok(0 | SHUT_OUT..))
        }
        _ => false,
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fencing_has_to_be_there_and_to_last() {
        for (option, good, bad) in [
            ("on_break_lock", ["true", "True", "1"], ["false", "0", ""]),
            (
                "expire_seconds",
                ["0", "3600", "86400"],
                ["5", "3599", "-1"],
            ),
        ] {
            for word in ["blocklist", "blacklist"] {
                let spoils = |value: &str| spoils_fencing(&format!("rbd_{word}_{option}"), value);
                assert!(!good.into_iter().any(spoils), "{word}_{option}");
                assert!(bad.into_iter().all(spoils), "{word}_{option}");
            }
        }
        assert!(!spoils_fencing("rbd_cache", "false"));
    }
}
