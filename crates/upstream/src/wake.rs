//! Waiting for sockets and for other threads at once.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::lock;

/// What a thread is to do when it waits next.
type Errand = Box<dyn FnOnce() + Send>;

/// Wakes the one thread that waits with it.
pub(crate) struct Wake {
    event: OwnedFd,
    closed: AtomicBool,
    /// None once the thread has ended.
    errands: Mutex<Option<Vec<Errand>>>,
}

impl Wake {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self {
            event: eventfd(0, flags)?,
            closed: AtomicBool::new(false),
            errands: Mutex::new(Some(Vec::new())),
        })
    }

    /// The thread's present or next wait ends.
    pub(crate) fn wake(&self) {
        // It fails only where it has been woken 2^64 times already.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    /// The thread is to end.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.wake();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Has the thread do this in its present or next wait; dropped if it has ended.
    pub(crate) fn send(&self, errand: Errand) {
        if let Some(errands) = &mut *lock(&self.errands) {
            errands.push(errand);
        }
        self.wake();
    }

    /// The thread has ended: nothing that it was sent will be done.
    pub(crate) fn ended(&self) {
        *lock(&self.errands) = None;
    }

    fn run_errands(&self) {
        let errands = lock(&self.errands).as_mut().map(std::mem::take);
        for errand in errands.into_iter().flatten() {
            errand();
        }
    }

    /// The only way in which a thread may wait for anything outside of this process: whoever sends errands counts on it.
    ///
    /// Waits for `events` of the socket, a wake, or the deadline; what has happened to
    /// the socket is returned, nothing after a wake or the deadline alone.
    pub(crate) fn wait(
        &self,
        socket: Option<(BorrowedFd<'_>, PollFlags)>,
        deadline: Option<Instant>,
    ) -> io::Result<PollFlags> {
        let mut fds = vec![PollFd::from_borrowed_fd(self.event.as_fd(), PollFlags::IN)];
        fds.extend(socket.map(|(fd, events)| PollFd::from_borrowed_fd(fd, events)));
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        // A time too long to be counted is no limit.
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if !fds[0].revents().is_empty() {
            let _ = rustix::io::read(&self.event, &mut [0; 8]);
            self.run_errands();
        }
        Ok(fds.get(1).map_or(PollFlags::empty(), PollFd::revents))
    }
}
