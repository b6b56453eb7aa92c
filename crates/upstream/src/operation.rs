//! A caller's operation, and the requests that it becomes.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use xtent_nbd::Request;
use xtent_nbd::client::{Answer, Form, request_head};
use xtent_nbd::constants::*;
use xtent_store::{Act, Buffer, Completion, Error};

use crate::connection::{Outgoing, Payload};
use crate::lock;

/// Bytes of one discard at most; a multiple of every block size.
const DISCARD: u32 = 1 << 30;

/// What is done, with its memory.
pub(crate) enum Work {
    /// The buffer is there until the end is told.
    Read(Mutex<Option<Buffer>>),
    /// As for a read; everybody who sends from it has a share.
    Write {
        buffer: Mutex<Option<Arc<Buffer>>>,
        durably: bool,
    },
    Flush,
    Discard,
    /// A write out of the journal.
    Replay(Arc<Vec<u8>>),
}

/// An operation under way.
pub(crate) struct Operation {
    pub(crate) work: Work,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// Bytes that are kept free for it in the journal.
    pub(crate) room: usize,
    /// It is the store's own and asks which disk there is; on one connection, and never again.
    pub(crate) identifies: bool,
    pub(crate) progress: Mutex<Progress>,
}

/// How far it has come.
#[derive(Default)]
pub(crate) struct Progress {
    /// Requests without an answer.
    pub(crate) left: usize,
    pub(crate) failure: Option<Error>,
    /// Who waits; nobody for the journal's own flush, and once it was told.
    pub(crate) completion: Option<Completion>,
    /// A flush follows when the writes are there.
    pub(crate) flush_after: bool,
}

impl Operation {
    pub(crate) fn new(work: Work, offset: u64, len: u64, completion: Option<Completion>) -> Self {
        Self {
            work,
            offset,
            len,
            room: 0,
            identifies: false,
            progress: Mutex::new(Progress {
                completion,
                ..Progress::default()
            }),
        }
    }

    /// What it is in errors.
    pub(crate) fn act(&self) -> Act {
        match self.work {
            Work::Read(_) => Act::Read,
            Work::Write { durably: true, .. } => Act::DurableWrite,
            Work::Write { .. } | Work::Replay(_) => Act::Write,
            Work::Flush => Act::Flush,
            Work::Discard => Act::Discard,
        }
    }

    /// Where, in errors.
    pub(crate) fn place(&self) -> Option<u64> {
        match self.work {
            Work::Flush => None,
            _ => Some(self.offset),
        }
    }

    pub(crate) fn is_durable_write(&self) -> bool {
        matches!(self.work, Work::Write { durably: true, .. })
    }

    /// The requests that it becomes, without cookies: kind, flags, offset and length of each.
    pub(crate) fn requests(&self, maximum: u32, has_fua: bool) -> Vec<Request> {
        let (kind, maximum) = match self.work {
            Work::Read(_) => (CMD_READ, maximum),
            Work::Write { .. } | Work::Replay(_) => (CMD_WRITE, maximum),
            Work::Flush => (CMD_FLUSH, maximum),
            Work::Discard => (CMD_TRIM, DISCARD),
        };
        let flags = match self.is_durable_write() && has_fua {
            true => CMD_FLAG_FUA,
            false => 0,
        };
        let request = |offset, length| Request {
            flags,
            kind,
            cookie: 0,
            offset,
            length,
        };
        if kind == CMD_FLUSH {
            return vec![request(0, 0)];
        }
        let mut requests = Vec::new();
        let (mut offset, mut left) = (self.offset, self.len);
        while left > 0 {
            let length = u32::try_from(left).unwrap_or(u32::MAX).min(maximum);
            requests.push(request(offset, length));
            offset += u64::from(length);
            left -= u64::from(length);
        }
        requests
    }
}

/// A request without an answer.
pub(crate) struct Piece {
    pub(crate) operation: Arc<Operation>,
    pub(crate) request: Request,
    pub(crate) answer: Answer,
    /// Number of the connection that it was sent on; 0 if it waits for one.
    pub(crate) connection: u64,
    /// Of a flush: the generation of the journal up to which it covers.
    pub(crate) covers: u64,
    /// How often the server broke the protocol in its answer.
    pub(crate) violations: u32,
    /// When a connection was first lost on which it had been sent.
    pub(crate) lost: Option<Instant>,
}

impl Piece {
    pub(crate) fn new(operation: &Arc<Operation>, request: Request) -> Self {
        Self {
            operation: Arc::clone(operation),
            answer: Answer::to(&request),
            request,
            connection: 0,
            covers: 0,
            violations: 0,
            lost: None,
        }
    }

    pub(crate) fn is_replay(&self) -> bool {
        matches!(self.operation.work, Work::Replay(_))
    }

    /// Whether it is of one connection only, and not sent again on the next.
    pub(crate) fn dies_with_connection(&self) -> bool {
        self.is_replay() || self.operation.identifies
    }

    /// What it weighs when connections are compared: bytes on the wire.
    pub(crate) fn weight(&self) -> u64 {
        let payload = match self.request.kind {
            CMD_READ | CMD_WRITE => self.request.length,
            _ => 0,
        };
        u64::from(payload) + 64
    }

    /// Where its first byte is in the operation's buffer.
    pub(crate) fn start(&self) -> usize {
        // A flush after a write has no place.
        let start = self.request.offset.saturating_sub(self.operation.offset);
        usize::try_from(start).unwrap_or(usize::MAX)
    }

    /// Payload, if it is a write.
    pub(crate) fn payload(&self) -> Option<Payload> {
        match &self.operation.work {
            Work::Replay(data) => Some(Payload::Journal(Arc::clone(data))),
            Work::Write { buffer, .. } if self.request.kind == CMD_WRITE => {
                let buffer = Arc::clone(lock(buffer).as_ref()?);
                let start = self.start();
                Some(Payload::Caller(
                    buffer,
                    start..start + self.request.length as usize,
                ))
            }
            _ => None,
        }
    }

    /// As it goes out.
    pub(crate) fn outgoing(&self, form: Form) -> Outgoing {
        Outgoing {
            head: request_head(form, &self.request),
            payload: self.payload(),
        }
    }
}
