//! How it becomes known that devices may have grown: some tell, others are looked at from time to time.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use crate::disk::Disk;
use crate::failure::{Failure, Result};
use crate::signals;

/// How often devices that do not tell are looked at. A change counts once it has been seen twice. The
/// system could tell of some (inotify, uevents), but not in every container and on every file system, and inotify
/// wakes at each write.
const PAUSE: Duration = Duration::from_secs(10);

/// Where it is told that volumes may have grown, each of which has a name here; clones are
/// the same place.
#[derive(Clone, Debug)]
pub(crate) struct Changes<T>(Sender<T>);

/// What is told there, until somebody follows.
pub(crate) struct Told<T>(Receiver<T>);

impl<T: Clone + Ord + Send + Sync + 'static> Changes<T> {
    /// Of no volume yet.
    pub(crate) fn new() -> (Self, Told<T>) {
        let (tell, told) = channel();
        (Self(tell), Told(told))
    }

    /// This one may have grown. Returns at once.
    pub(crate) fn tell(&self, name: T) {
        // Nobody listens any more who is ending.
        let _ = self.0.send(name);
    }

    /// What a device that tells of its changes is to call.
    pub(crate) fn teller(&self, name: T) -> impl Fn() + Send + Sync + 'static {
        let changes = self.clone();
        move || changes.tell(name.clone())
    }

    /// And of this device, if it tells.
    pub(crate) fn of(&self, device: &Disk, name: T) {
        if !device.is_image() {
            return;
        }
        device.on_change(self.teller(name.clone()));
        // It may have grown since it was opened.
        self.tell(name);
    }
}

impl<T: Ord + Send + 'static> Told<T> {
    /// Has `look` called with the names of those that have changed, on a thread of its own: to look takes a
    /// while. Those that do not tell are what `changed` finds from time to time. The thread ends when nobody can
    /// tell any more.
    pub(crate) fn follow(
        self,
        changed: impl Fn() -> BTreeSet<T> + Send + 'static,
        look: impl Fn(BTreeSet<T>) + Send + 'static,
    ) -> Result<()> {
        self.follow_with(PAUSE, changed, look)
    }

    fn follow_with(
        self,
        pause: Duration,
        changed: impl Fn() -> BTreeSet<T> + Send + 'static,
        look: impl Fn(BTreeSet<T>) + Send + 'static,
    ) -> Result<()> {
        let Self(told) = self;
        let follow = move || {
            // However often others tell.
            let mut next = Instant::now() + pause;
            loop {
                let left = next.saturating_duration_since(Instant::now());
                let told = match left.is_zero() {
                    true => Err(RecvTimeoutError::Timeout),
                    false => told
                        .recv_timeout(left)
                        .map(|first| (first, told.try_iter())),
                };
                let names = match told {
                    // Several notices of one change are one.
                    Ok((first, others)) => [first].into_iter().chain(others).collect(),
                    Err(RecvTimeoutError::Timeout) => {
                        next = Instant::now() + pause;
                        changed()
                    }
                    Err(RecvTimeoutError::Disconnected) => return,
                };
                if !names.is_empty() {
                    look(names);
                }
            }
        };
        signals::held_back(|| {
            std::thread::Builder::new()
                .name("growth".into())
                .spawn(follow)
        })?
        .map(drop)
        .map_err(|e| Failure::system("cannot start a thread", e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_tells_often_keeps_nobody_else_from_being_looked_at() {
        let (changes, told) = Changes::new();
        let (found, is_found) = channel();
        let changed = move || {
            // The test may have ended.
            let _ = found.send(());
            BTreeSet::new()
        };
        told.follow_with(Duration::from_millis(50), changed, drop)
            .unwrap();
        let start = Instant::now();
        // Each before the pause is over.
        while is_found.try_recv().is_err() {
            assert!(start.elapsed() < Duration::from_secs(60), "never looked at");
            changes.tell(1);
            std::thread::yield_now();
        }
    }
}
