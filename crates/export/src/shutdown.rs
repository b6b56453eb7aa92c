//! Asking a running server to stop.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use rustix::event::{EventfdFlags, eventfd};

/// Asks a running server to stop: no new connections, requests in flight are
/// finished, volumes flushed. Safe to trigger from a signal thread.
#[derive(Clone)]
pub struct Shutdown {
    inner: Arc<Inner>,
}

struct Inner {
    triggered: OnceLock<Instant>,
    event: OwnedFd,
}

impl Shutdown {
    /// Not yet triggered.
    pub fn new() -> std::io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self {
            inner: Arc::new(Inner {
                triggered: OnceLock::new(),
                event,
            }),
        })
    }

    /// Triggers; idempotent.
    pub fn trigger(&self) {
        if self.inner.triggered.set(Instant::now()).is_ok() {
            wake(&self.inner.event);
        }
    }

    /// Whether it was triggered.
    pub fn is_triggered(&self) -> bool {
        self.triggered_at().is_some()
    }

    /// When it was triggered.
    pub(crate) fn triggered_at(&self) -> Option<Instant> {
        self.inner.triggered.get().copied()
    }

    /// Readable from the trigger on.
    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.inner.event.as_fd()
    }
}

/// Makes an event readable. It can only fail when the counter is full, and
/// then it is readable.
pub(crate) fn wake(event: &OwnedFd) {
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}
