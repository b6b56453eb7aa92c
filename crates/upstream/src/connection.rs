//! One connection after its handshake: what goes out.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{Shutdown, sockopt};
use xtent_nbd::client::{Form, request_head};
use xtent_nbd::constants::CMD_DISC;
use xtent_nbd::{Head, Request};
use xtent_store::Buffer;

use crate::connect::until;
use crate::lock;
use crate::receive::CALLS;
use crate::wake::Wake;
use crate::wire::Wire;

/// Pieces of memory in one system call: heads and payloads of several requests.
const SLICES: usize = 64;

/// Payload of a write.
#[derive(Clone)]
pub(crate) enum Payload {
    /// Part of a caller's buffer.
    Caller(Arc<Buffer>, Range<usize>),
    /// An entry of the journal.
    Journal(Arc<Vec<u8>>),
}

impl Payload {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Caller(buffer, range) => &buffer[range.clone()],
            Self::Journal(data) => data,
        }
    }
}

/// A request on its way out.
pub(crate) struct Outgoing {
    pub(crate) head: Head,
    pub(crate) payload: Option<Payload>,
}

/// Requests that are being sent, and the bytes of the first that have been.
#[derive(Default)]
struct Sending {
    requests: VecDeque<Outgoing>,
    sent: usize,
}

/// A connection. It is known by its number and never used again once it is
/// dead.
pub(crate) struct Connection {
    pub(crate) id: u64,
    /// Index of the thread that receives.
    pub(crate) lane: usize,
    pub(crate) form: Form,
    pub(crate) wire: Wire,
    /// Bytes asked for or sent, of requests without an answer.
    pub(crate) under_way: AtomicU64,
    /// Since when there are such.
    busy_since: Mutex<Option<Instant>>,
    /// When the peer last sent or took something.
    heard: Mutex<Instant>,
    /// What comes next; locked for moments only.
    queue: Mutex<VecDeque<Outgoing>>,
    /// Locked while the system takes bytes.
    sending: Mutex<Sending>,
    /// Locked while whoever receives copies from a request's memory.
    copying: Mutex<()>,
    /// The socket is full: whoever receives sends when there is room.
    full: AtomicBool,
    dead: AtomicBool,
    /// Another connection was lost: no new requests go out on this one, and those that it has
    /// are answered until then.
    leaves: Mutex<Option<Instant>>,
    /// It leads to the right disk, as far as that can be told.
    admitted: AtomicBool,
}

impl Connection {
    pub(crate) fn new(id: u64, lane: usize, form: Form, wire: Wire) -> Arc<Self> {
        Arc::new(Self {
            id,
            lane,
            form,
            wire,
            under_way: AtomicU64::new(0),
            busy_since: Mutex::default(),
            heard: Mutex::new(Instant::now()),
            queue: Mutex::default(),
            sending: Mutex::default(),
            copying: Mutex::default(),
            full: AtomicBool::new(false),
            dead: AtomicBool::new(false),
            leaves: Mutex::default(),
            admitted: AtomicBool::new(false),
        })
    }

    /// A request of that weight will wait for its answer.
    pub(crate) fn begin(&self, weight: u64) {
        let mut busy_since = lock(&self.busy_since);
        if !self.has_requests() {
            *busy_since = Some(Instant::now());
        }
        self.under_way.fetch_add(weight, Ordering::Release);
    }

    /// Whether there are requests without an answer.
    pub(crate) fn has_requests(&self) -> bool {
        self.under_way.load(Ordering::Acquire) > 0
    }

    /// It has been answered.
    pub(crate) fn conclude(&self, weight: u64) {
        self.under_way.fetch_sub(weight, Ordering::Relaxed);
    }

    /// The peer has sent or taken something.
    pub(crate) fn hear(&self) {
        *lock(&self.heard) = Instant::now();
    }

    /// Since when there have been requests without an answer, and not a word from the peer.
    pub(crate) fn silent_since(&self) -> Option<Instant> {
        let busy_since = self.has_requests().then(|| *lock(&self.busy_since))??;
        Some(busy_since.max(*lock(&self.heard)))
    }

    /// Puts a request at the end of what is sent next.
    pub(crate) fn queue(&self, request: Outgoing) {
        lock(&self.queue).push_back(request);
    }

    /// Whether it waits for room in the socket.
    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Acquire)
    }

    /// There may be room in the socket again.
    pub(crate) fn has_room(&self) {
        self.full.store(false, Ordering::Release);
    }

    /// Whether requests may go out on it.
    pub(crate) fn is_admitted(&self) -> bool {
        self.admitted.load(Ordering::Acquire)
    }

    /// From now on they may.
    pub(crate) fn admit(&self) {
        self.admitted.store(true, Ordering::Release);
    }

    /// Tells the server that no more requests come.
    pub(crate) fn say_goodbye(&self) {
        let goodbye = Request {
            flags: 0,
            kind: CMD_DISC,
            cookie: 0,
            offset: 0,
            length: 0,
        };
        self.queue(Outgoing {
            head: request_head(self.form, &goodbye),
            payload: None,
        });
        // A server that takes no more sees the end of the connection all the same.
        let _ = self.send();
        self.wire.close();
    }

    /// What is under way here may be answered until that moment, and is the last. The thread that
    /// receives has to be woken.
    pub(crate) fn leave(&self, until: Instant) {
        lock(&self.leaves).get_or_insert(until);
    }

    /// When it is given up with whatever has not been answered, if it is to be.
    pub(crate) fn leaves(&self) -> Option<Instant> {
        *lock(&self.leaves)
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// Ends it. On return nothing of a request's memory is held here. What the server has not answered it may be
    /// at work on, or about to be, until it closes its end: [`Connection::see_off`]. The thread that
    /// receives has to be woken.
    pub(crate) fn kill(&self) {
        self.dead.store(true, Ordering::Release);
        let how = match self.has_requests() {
            true => Shutdown::Write,
            false => Shutdown::Both,
        };
        // It fails if the peer was faster.
        let _ = rustix::net::shutdown(&self.wire.socket, how);
        lock(&self.queue).clear();
        *lock(&self.sending) = Sending::default();
        drop(lock(&self.copying));
    }

    /// Waits until the server has closed its end of a connection that was killed. Most servers have done by then with what they
    /// had received: else they could carry out an old write after a later one of another connection. Past the deadline
    /// what it has not received yet is kept from it, which is all that can be done; nobody else may hold the connection by then.
    pub(crate) fn see_off(&self, wake: &Wake, deadline: Instant) {
        let mut space = [0; 16 << 10];
        // The wait is where the thread does other things.
        while Instant::now() < deadline
            && until(wake, &self.wire.socket, PollFlags::IN, deadline).is_ok()
        {
            for _ in 0..CALLS {
                match self.wire.receive_bytes(&mut space) {
                    Ok(0) => return,
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => break,
                    Err(_) => return,
                }
            }
        }
        // Not every socket has it; those of other kinds hold nothing back.
        let _ = sockopt::set_socket_linger(&self.wire.socket, Some(Duration::ZERO));
    }

    /// As long as this is held, [`Connection::kill`] waits: a request's memory is copied. To be
    /// taken under the state's lock, and dropped before that is taken again.
    pub(crate) fn while_copying(&self) -> MutexGuard<'_, ()> {
        lock(&self.copying)
    }

    /// On return no request that was sent in full is held here.
    pub(crate) fn wait_for_sender(&self) {
        drop(lock(&self.sending));
    }

    /// Sends what is queued, unless another thread does that. [`false`] means that the
    /// socket is full.
    pub(crate) fn send(&self) -> io::Result<bool> {
        loop {
            if self.is_full() {
                return Ok(true);
            }
            let mut sending = match self.sending.try_lock() {
                Ok(sending) => sending,
                // It looks at the queue again before it leaves.
                Err(TryLockError::WouldBlock) => return Ok(true),
                Err(TryLockError::Poisoned(error)) => error.into_inner(),
            };
            loop {
                sending.requests.extend(lock(&self.queue).drain(..));
                if self.is_dead() {
                    *sending = Sending::default();
                    return Ok(true);
                }
                if sending.requests.is_empty() && !self.wire.has_unsent() {
                    break;
                }
                match sending.send_some(&self.wire) {
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        // Whoever finds that there is room again has to find nobody sending.
                        drop(sending);
                        self.full.store(true, Ordering::Release);
                        return Ok(false);
                    }
                    Err(error) => return Err(error),
                }
            }
            drop(sending);
            if lock(&self.queue).is_empty() {
                return Ok(true);
            }
        }
    }
}

impl Sending {
    fn send_some(&mut self, wire: &Wire) -> io::Result<()> {
        let mut skip = self.sent;
        let mut slices = Vec::with_capacity(SLICES);
        for request in &self.requests {
            if slices.len() + 2 > SLICES {
                break;
            }
            let payload = request.payload.as_ref().map_or(&[][..], Payload::bytes);
            for bytes in [request.head.as_bytes(), payload] {
                let here = skip.min(bytes.len());
                skip -= here;
                if here < bytes.len() {
                    slices.push(IoSlice::new(&bytes[here..]));
                }
            }
        }
        self.sent += wire.send(&slices)?;
        while let Some(first) = self.requests.front() {
            let payload = first.payload.as_ref().map_or(0, |p| p.bytes().len());
            let len = first.head.as_bytes().len() + payload;
            if self.sent < len {
                break;
            }
            self.sent -= len;
            self.requests.pop_front();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_without_a_word_are_silence() {
        let (socket, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
        let wire = Wire {
            socket: socket.into(),
            tls: None,
        };
        let connection = Connection::new(1, 0, Form::Simple, wire);
        assert_eq!(connection.silent_since(), None);
        connection.begin(64);
        let first = connection.silent_since().unwrap();
        connection.begin(64);
        assert_eq!(connection.silent_since(), Some(first));
        connection.hear();
        let second = connection.silent_since().unwrap();
        assert!(second > first);
        connection.conclude(128);
        assert_eq!(connection.silent_since(), None);
        connection.begin(64);
        assert!(connection.silent_since().unwrap() > second);
    }
}
