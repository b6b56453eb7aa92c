//! The end of a server's exports: what is left is flushed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use xtent_store::chain;

use super::{Exports, error};
use crate::Error;

/// Most volumes that a server flushes at a time when it ends.
const CLOSERS: usize = 64;

impl Exports {
    /// Flushes what is left and lets go of it, side by side, and takes nothing more; waits for what is being removed, and
    /// names all that could not be flushed.
    pub(in crate::nbd) fn close(&self) -> Result<(), Error> {
        let all: Vec<_> = {
            let mut set = self.set();
            set.closed = true;
            let left = set.all.iter().filter(|served| !served.is_ending());
            left.cloned().collect()
        };
        let next = AtomicUsize::new(0);
        let failures = Mutex::new(BTreeMap::new());
        let close_some = || {
            while let Some(nth) = Some(next.fetch_add(1, Ordering::Relaxed))
                && let Some(served) = all.get(nth)
            {
                if let Err(failure) = served.flush() {
                    let mut failures = failures.lock().unwrap_or_else(PoisonError::into_inner);
                    failures.insert(nth, failure);
                }
                // Whoever still has the set has no volume by it: locks are given back in order.
                let volume = served.volume().take();
                drop(volume);
            }
        };
        thread::scope(|scope| {
            for _ in 1..all.len().min(CLOSERS) {
                let builder = thread::Builder::new().name("close".to_owned());
                if let Err(error) = builder.spawn_scoped(scope, close_some) {
                    tracing::warn!(%error, "cannot start a thread to flush volumes side by side");
                    break;
                }
            }
            close_some();
        });
        // However long one of these takes, the others are flushed.
        let removed = {
            let mut set = self.set();
            while set.removing > 0 {
                let waited = self.0.removed.wait(set);
                set = waited.unwrap_or_else(PoisonError::into_inner);
            }
            std::mem::take(&mut set.failed)
        };
        let failures = failures
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let count = all.len() + removed.len();
        let named = failures
            .into_iter()
            .map(|(nth, failure)| (all[nth].name.as_str(), failure))
            .chain(removed.iter().map(|(name, failure)| {
                let failure = error(failure.kind, failure.message.clone());
                (name.as_str(), failure)
            }));
        match count {
            0 | 1 => named
                .map(|(_, failure)| Err(failure))
                .next()
                .unwrap_or(Ok(())),
            _ => not_flushed(named.collect()),
        }
    }
}

/// What a server of several volumes says of those that could not be flushed.
fn not_flushed(mut failures: Vec<(&str, Error)>) -> Result<(), Error> {
    let shown = |name: &str| match name {
        "" => "the export without a name".to_owned(),
        name => name.to_owned(),
    };
    if let [(name, _)] = failures[..]
        && let Some((_, failure)) = failures.pop()
    {
        let message = format!("{}: {}", shown(name), failure.message);
        return Err(Error { message, ..failure });
    }
    let texts: Vec<_> = failures
        .iter()
        .map(|(name, failure)| format!("{}: {}", shown(name), chain(failure)))
        .collect();
    match failures.first() {
        Some((_, first)) => Err(error(first.kind, texts.join("\n"))),
        None => Ok(()),
    }
}
