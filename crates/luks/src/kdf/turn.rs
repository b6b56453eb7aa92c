//! One derivation at a time where memory is short. Several volumes that are unlocked
//! at boot would otherwise want a GiB each at once, and all but the first be refused or
//! killed for it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::free_memory;
use crate::lock::{DIRECTORY, Named};

/// cryptsetup's name for it (`--serialize-memory-hard-pbkdf`): it and this crate wait for
/// each other.
const NAME: &str = "memory-hard-access";

/// KiB up to which a derivation never waits; cryptsetup's bound.
const LITTLE: u64 = 32 << 10;

/// A derivation that takes more than this part of the free memory waits for its turn.
const SHARE: u64 = 4;

/// Whether every derivation with more waits.
static ALWAYS: AtomicBool = AtomicBool::new(false);

/// Has every Argon2 derivation of this process with more than 32 MiB wait until no other one
/// runs that waits for turns, whatever memory there is. Without, those do that would take more
/// than a quarter of what is free.
pub fn serialize_memory_hard() {
    ALWAYS.store(true, Ordering::Relaxed);
}

/// Waits for the turn to use `needed_kib` KiB, if that takes turns here: the lock, which is
/// released when dropped. `None` also where this user may not use cryptsetup's lock.
pub(super) fn wait(needed_kib: u64) -> Option<Named> {
    let always = ALWAYS.load(Ordering::Relaxed);
    wait_in(
        Path::new(DIRECTORY),
        needed_kib > LITTLE && (always || is_short(needed_kib, free_memory::free_kib())),
    )
}

fn is_short(needed_kib: u64, free_kib: Option<u64>) -> bool {
    free_kib.is_some_and(|free| needed_kib > free / SHARE)
}

fn wait_in(directory: &Path, takes_turns: bool) -> Option<Named> {
    if !takes_turns {
        return None;
    }
    let waiting = || {
        tracing::warn!("waiting for another key derivation to end, to have its memory");
    };
    Named::wait_for(directory, NAME, &waiting)
        .inspect_err(|error| tracing::info!(%error, "key derivations do not take turns"))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_what_is_free_is_short() {
        assert!(!is_short(1 << 20, None));
        assert!(!is_short(1 << 20, Some(4 << 20)));
        assert!(is_short((1 << 20) + 1, Some(4 << 20)));
        assert!(is_short(1, Some(0)));
    }

    #[test]
    fn the_lock_is_there_while_it_is_held() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("LN_memory-hard-access");
        assert!(wait_in(directory.path(), false).is_none());
        assert!(!file.exists());
        let turn = wait_in(directory.path(), true);
        assert!(turn.is_some() && file.exists());
        drop(turn);
        assert!(!file.exists());
    }

    #[test]
    fn who_may_not_take_turns_goes_on() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(wait_in(file.path(), true).is_none());
    }
}
