//! The side of a connection that its thread and the workers share: replies go
//! out through it whole and one after the other, and no worker ever waits for
//! a client.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use super::peer::Client;
use super::proto::Head;
use super::tls::errno;
use crate::shutdown::wake;
use xtent_store::Buffer;
use xtent_tls::Channel;

/// Replies that go into one system call; two slices each, below `IOV_MAX`.
pub(super) const MAX_GATHER: usize = 500;

/// A reply that waits for its turn.
pub(super) struct Message {
    head: Head,
    data: Option<(Buffer, Range<usize>)>,
    sent: usize,
}

impl Message {
    /// A reply without data.
    pub(super) fn head(head: Head) -> Self {
        Self {
            head,
            data: None,
            sent: 0,
        }
    }

    /// A reply with these bytes of `data`.
    pub(super) fn with_data(head: Head, data: Buffer, range: Range<usize>) -> Self {
        Self {
            head,
            data: Some((data, range)),
            sent: 0,
        }
    }

    fn len(&self) -> usize {
        self.head.as_bytes().len() + self.data.as_ref().map_or(0, |(_, range)| range.len())
    }

    fn push_slices<'a>(&'a self, slices: &mut Vec<IoSlice<'a>>) {
        let head = self.head.as_bytes();
        slices.push(IoSlice::new(&head[self.sent.min(head.len())..]));
        if let Some((data, range)) = &self.data {
            let sent = self.sent.saturating_sub(head.len());
            slices.push(IoSlice::new(&data[range.clone()][sent..]));
        }
    }
}

/// The pieces of a read that are not answered yet. Counted down under the
/// lock of the outbox: the order of counting is the order on the wire, so that
/// the last one can carry the final flag.
pub(super) struct PiecesLeft(AtomicUsize);

impl PiecesLeft {
    pub(super) fn new(count: usize) -> Arc<Self> {
        Arc::new(Self(AtomicUsize::new(count)))
    }

    /// Counts one; whether it was the last.
    pub(super) fn answer_one(&self) -> bool {
        self.0.fetch_sub(1, Ordering::Relaxed) == 1
    }
}

/// The client is gone.
pub(super) struct Gone;

/// Replies on their way out, and requests with the workers.
#[derive(Default)]
pub(super) struct Outbox {
    queue: VecDeque<Message>,
    /// Records of TLS are left over that the socket has not taken.
    unsent: bool,
    /// Somebody is inside a system call with the socket.
    sending: bool,
    /// The connection's thread, and nobody else, waits for that to end.
    awaited: bool,
    /// The socket took no more; the connection's thread waits until it does.
    blocked: bool,
    /// The client is gone.
    broken: bool,
    /// Requests, or pieces of them, with the workers.
    jobs: usize,
    /// The connection's thread waits for a job to end.
    notify: bool,
}

impl Outbox {
    /// Requests in flight: with the workers, or answered and not yet sent.
    pub(super) fn in_flight(&self) -> usize {
        self.jobs + self.queue.len()
    }

    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    pub(super) fn jobs(&self) -> usize {
        self.jobs
    }

    pub(super) fn has_output(&self) -> bool {
        !self.queue.is_empty() || self.unsent
    }

    pub(super) fn set_notify(&mut self, notify: bool) {
        self.notify = notify;
    }

    /// Whether the connection's thread waits for jobs to end.
    #[cfg(test)]
    pub(super) fn is_awaiting_jobs(&self) -> bool {
        self.notify
    }

    fn break_off(&mut self) {
        self.broken = true;
        self.unsent = false;
        self.queue.clear();
    }
}

/// What the connection's thread and the workers share.
pub(super) struct Link {
    /// The connection's number.
    pub(super) id: u64,
    /// Who is at the other end.
    pub(super) client: Client,
    /// The client has chosen an export.
    pub(super) has_session: AtomicBool,
    pub(super) socket: OwnedFd,
    /// TLS on it, once that has begun.
    pub(super) tls: OnceLock<Channel>,
    /// Ends a wait of the connection's thread.
    pub(super) event: OwnedFd,
    outbox: Mutex<Outbox>,
    turn: Condvar,
}

impl Link {
    /// The connection of this number.
    pub(super) fn new(id: u64, socket: OwnedFd) -> std::io::Result<Self> {
        Ok(Self {
            id,
            client: Client::new(id, &socket),
            has_session: AtomicBool::new(false),
            socket,
            tls: OnceLock::new(),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            outbox: Mutex::default(),
            turn: Condvar::new(),
        })
    }

    /// Ends the current or next wait of the connection's thread.
    pub(super) fn wake(&self) {
        wake(&self.event);
    }

    pub(super) fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request handed to the workers; how many are in flight with it.
    pub(super) fn add_job(&self) -> usize {
        let mut outbox = self.outbox();
        outbox.jobs += 1;
        outbox.in_flight()
    }

    /// Counts a request that a worker is done with.
    pub(super) fn end_job(&self) {
        let mut outbox = self.outbox();
        outbox.jobs -= 1;
        let notify = outbox.notify;
        drop(outbox);
        if notify {
            self.wake();
        }
    }

    /// Sends the reply that `make` builds, or leaves it to whoever is sending.
    /// Never waits for the client.
    pub(super) fn reply(&self, make: impl FnOnce() -> Message) {
        let mut outbox = self.outbox();
        let message = make();
        if outbox.broken {
            return;
        }
        outbox.queue.push_back(message);
        if !outbox.sending && !outbox.blocked {
            outbox = self.send_queue(outbox);
            if outbox.blocked || outbox.broken {
                drop(outbox);
                self.wake();
            }
        }
    }

    /// Sends what is queued as far as the socket takes it. Must not be called
    /// while somebody is sending.
    fn send_queue<'a>(&'a self, mut outbox: MutexGuard<'a, Outbox>) -> MutexGuard<'a, Outbox> {
        outbox.sending = true;
        outbox.blocked = false;
        outbox.unsent = self.has_unsent(&outbox);
        while outbox.has_output() && !outbox.blocked {
            let count = outbox.queue.len().min(MAX_GATHER);
            let mut messages: VecDeque<_> = outbox.queue.drain(..count).collect();
            drop(outbox);
            let sent = self.send_messages(&mut messages);
            outbox = self.outbox();
            match sent {
                // Drops what went out, and so frees its memory.
                Ok(()) => {}
                Err(Errno::AGAIN) => {
                    outbox.blocked = true;
                    messages.append(&mut outbox.queue);
                    outbox.queue = messages;
                }
                Err(_) => outbox.break_off(),
            }
            outbox.unsent = self.has_unsent(&outbox);
        }
        outbox.sending = false;
        // A call that wakes nobody is still a system call.
        if outbox.awaited {
            self.turn.notify_one();
        }
        outbox
    }

    fn await_turn<'a>(&'a self, mut outbox: MutexGuard<'a, Outbox>) -> MutexGuard<'a, Outbox> {
        outbox.awaited = true;
        let mut outbox = self
            .turn
            .wait(outbox)
            .unwrap_or_else(PoisonError::into_inner);
        outbox.awaited = false;
        outbox
    }

    fn has_unsent(&self, outbox: &Outbox) -> bool {
        !outbox.broken && self.tls.get().is_some_and(Channel::has_unsent)
    }

    /// Leaves in `messages` what could not be sent.
    fn send_messages(&self, messages: &mut VecDeque<Message>) -> rustix::io::Result<()> {
        if messages.is_empty() {
            return self.try_send(&[]).map(drop);
        }
        while !messages.is_empty() {
            let mut slices = Vec::with_capacity(2 * messages.len());
            for message in messages.iter() {
                message.push_slices(&mut slices);
            }
            let mut sent = self.try_send(&slices)?;
            while let Some(first) = messages.front_mut() {
                let rest = first.len() - first.sent;
                if sent < rest {
                    first.sent += sent;
                    break;
                }
                sent -= rest;
                messages.pop_front();
            }
        }
        Ok(())
    }

    /// Hands slices to the socket, by way of TLS if that has begun; `EAGAIN` if it takes none now.
    pub(super) fn try_send(&self, slices: &[IoSlice<'_>]) -> rustix::io::Result<usize> {
        match self.tls.get() {
            None => self.try_send_bytes(slices),
            Some(channel) => channel
                .send(slices, |records| self.try_send_records(records))
                .map_err(|error| errno(&error)),
        }
    }

    /// As they are.
    pub(super) fn try_send_records(&self, records: &[u8]) -> std::io::Result<usize> {
        Ok(self.try_send_bytes(&[IoSlice::new(records)])?)
    }

    fn try_send_bytes(&self, slices: &[IoSlice<'_>]) -> rustix::io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        rustix::io::retry_on_intr(|| {
            sendmsg(
                &self.socket,
                slices,
                &mut SendAncillaryBuffer::default(),
                flags,
            )
        })
    }

    /// One attempt to send what is queued, by the connection's thread.
    pub(super) fn try_send_queue(&self) {
        let mut outbox = self.outbox();
        while outbox.sending {
            outbox = self.await_turn(outbox);
        }
        if outbox.has_output() {
            drop(self.send_queue(outbox));
        }
    }

    /// The connection's thread takes the turn to send, once everything queued
    /// has gone: the outbox, marked as being sent to, or nothing if the socket
    /// must take more first. End it with [`Link::end_turn`].
    pub(super) fn try_take_turn(&self) -> Result<Option<MutexGuard<'_, Outbox>>, Gone> {
        let mut outbox = self.outbox();
        loop {
            if outbox.broken {
                return Err(Gone);
            }
            if outbox.sending {
                outbox = self.await_turn(outbox);
            } else if !outbox.has_output() {
                outbox.sending = true;
                outbox.blocked = false;
                return Ok(Some(outbox));
            } else {
                outbox = self.send_queue(outbox);
                if outbox.blocked {
                    return Ok(None);
                }
            }
        }
    }

    /// Ends a turn and sends what the workers answered meanwhile.
    pub(super) fn end_turn(&self) {
        drop(self.send_queue(self.outbox()));
    }

    /// The client is gone: drops what is queued, for good.
    pub(super) fn break_off(&self) {
        self.outbox().break_off();
    }
}
