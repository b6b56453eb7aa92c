//! Requests that have to wait for a disk or a server far away, as futures.

use std::sync::Arc;
use std::time::{Duration, Instant};

use xtent_store::Buffer;
use xtent_store::chain;
use xtent_volume::{DiscardPolicy, Phase, RequestKind, Volume, Watch};

use super::errno;
use super::exports::Served;
use super::link::{Link, Message, PiecesLeft};
use super::peer::Client;
use super::proto::{self, Head, MAX_PAYLOAD, NbdError};
use super::shutdown::Ending;
use crate::executor::{Kind, give_way};
use crate::request::is_fenced;
use crate::zeroes;

/// Bytes of zeros that a stopping server, or an export that ends, does not begin to write. Fewer are
/// given up when they take too long.
const ABANDON: u64 = 1 << 30;

/// How a request is answered.
#[derive(Clone, Copy)]
pub(super) struct Reply {
    pub(super) cookie: u64,
    /// Whether errors go as chunks with a message.
    pub(super) structured: bool,
    /// Whose request it is.
    pub(super) client: Client,
    /// When all of it had been received, if that was timed.
    pub(super) since: Option<Instant>,
}

impl Reply {
    /// Success, of a command other than read.
    pub(super) fn success(self) -> Head {
        proto::simple_reply(self.cookie, None)
    }

    /// Failure.
    pub(super) fn failure(self, error: NbdError, message: &str) -> Head {
        match self.structured {
            true => proto::error_chunk(self.cookie, error, message),
            false => proto::simple_reply(self.cookie, Some(error)),
        }
    }

    /// The volume's failure, which is also logged.
    pub(super) fn volume_failure(
        self,
        served: &Served,
        volume: &Volume,
        kind: RequestKind,
        error: &xtent_volume::Error,
    ) -> Head {
        let error = self.report(served, volume, kind, error);
        self.failure(error, errno::message(error))
    }

    /// Logs and counts a failed request; its error for the client.
    pub(super) fn report(
        self,
        served: &Served,
        volume: &Volume,
        kind: RequestKind,
        error: &xtent_volume::Error,
    ) -> NbdError {
        tracing::warn!(
            client = self.client.id,
            peer = %self.client.peer,
            export = served.name,
            operation = kind.name(),
            error = %chain(error),
            "request failed"
        );
        volume.metrics().failed(kind);
        errno::from_errno(error.errno())
    }

    /// The head of all the data of a read, `len` bytes, which may still fail.
    pub(super) fn begin_whole_read(self, offset: u64, len: usize) -> Head {
        match self.structured {
            true => proto::offset_data(self.cookie, offset, payload_len(len), false),
            false => self.success(),
        }
    }

    /// The head of all the data of a read, `len` bytes.
    pub(super) fn whole_read(self, offset: u64, len: usize) -> Head {
        match self.structured {
            true => proto::offset_data(self.cookie, offset, payload_len(len), true),
            false => proto::simple_reply(self.cookie, None),
        }
    }
}

/// Payload lengths came from 32-bit fields and fit.
pub(super) fn payload_len(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(MAX_PAYLOAD)
}

/// What is to be done.
pub(super) enum Task {
    /// A read, or a piece of one, into memory of the range's hull.
    Read {
        offset: u64,
        len: usize,
        buffer: Buffer,
        /// Of a read that is answered in chunks, what is not answered yet.
        left: Option<Arc<PiecesLeft>>,
    },
    /// A write, encrypted in its memory.
    Write {
        offset: u64,
        len: usize,
        buffer: Buffer,
        fua: bool,
    },
    /// A flush.
    Flush,
    /// A discard by the volume's policy.
    Trim { offset: u64, len: u64, fua: bool },
    /// Zeros.
    WriteZeroes { offset: u64, len: u64, fua: bool },
    /// Reading ahead.
    Cache { offset: u64, len: u64 },
}

impl Task {
    /// Whether a small message can ask for any amount of it.
    fn kind(&self) -> Kind {
        match self {
            Self::Trim { .. } | Self::WriteZeroes { .. } | Self::Cache { .. } => Kind::Bulk,
            Self::Read { .. } | Self::Write { .. } | Self::Flush => Kind::Prompt,
        }
    }
}

/// A request that outlives its turn on the connection's thread. Counted by its link until
/// dropped.
pub(super) struct Job {
    link: Arc<Link>,
    volume: Arc<Volume>,
    served: Arc<Served>,
    reply: Reply,
    /// When all of the request had been received, or it became a job.
    since: Instant,
    ending: Ending,
    /// How long what ends goes on writing zeros.
    grace: Duration,
    /// Last: whoever waits for the end finds nothing of the job.
    _counted: Counted,
}

/// A job that its link counts.
struct Counted(Arc<Link>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.end_job();
    }
}

impl Job {
    /// Counted by its link already.
    pub(super) fn new(
        link: &Arc<Link>,
        volume: &Arc<Volume>,
        served: &Arc<Served>,
        reply: Reply,
        ending: &Ending,
        grace: Duration,
    ) -> Self {
        volume.metrics().begun();
        Self {
            _counted: Counted(Arc::clone(link)),
            link: Arc::clone(link),
            volume: Arc::clone(volume),
            served: Arc::clone(served),
            reply,
            since: reply.since.unwrap_or_else(Instant::now),
            ending: ending.clone(),
            grace,
        }
    }

    /// Has the export's executor carry the task out.
    pub(super) fn start(self, task: Task) {
        let (kind, client) = (task.kind(), self.link.id);
        let executor = Arc::clone(&self.served.executor);
        executor.spawn(client, kind, self.perform(task));
    }

    /// For a client that is gone nothing more is begun, but that data it has
    /// sent is written.
    async fn perform(self, task: Task) {
        if !matches!(task, Task::Write { .. }) && self.is_pointless() {
            return;
        }
        match task {
            Task::Read {
                offset,
                len,
                buffer,
                left,
            } => self.read(offset, len, buffer, left).await,
            Task::Write {
                offset,
                len,
                buffer,
                fua,
            } => {
                // The memory is free before the client sends the next request.
                let result = self.volume.write_async(buffer, offset, len, fua).await;
                self.send_result(RequestKind::Write, result);
            }
            Task::Flush => {
                let result = self.volume.flush_async().await;
                self.send_result(RequestKind::Flush, result);
            }
            Task::Trim { offset, len, fua }
                if self.volume.discard_policy() == DiscardPolicy::Zero =>
            {
                self.write_zeroes(RequestKind::Discard, offset, len, fua)
                    .await;
            }
            Task::Trim { offset, len, fua } => {
                let discarded = self
                    .volume
                    .discard_async(&self.served.bulk, offset, len, fua);
                self.send_result(RequestKind::Discard, discarded.await);
            }
            Task::WriteZeroes { offset, len, fua } => {
                self.write_zeroes(RequestKind::WriteZeroes, offset, len, fua)
                    .await;
            }
            Task::Cache { offset, len } => self.read_ahead(offset, len).await,
        }
    }

    fn is_pointless(&self) -> bool {
        self.link.outbox().is_broken()
    }

    /// Answers the request.
    fn send(&self, kind: RequestKind, head: Head) {
        self.reply_with(|| Message::head(head));
        self.answered(kind);
    }

    fn reply_with(&self, make: impl FnOnce() -> Message) {
        let mut watch = Watch::of_all(self.volume.metrics());
        self.link.reply(make);
        watch.lap(Phase::Socket);
    }

    fn answered(&self, kind: RequestKind) {
        let latency = self.since.elapsed();
        self.volume.metrics().answered(kind, 1, latency);
    }

    /// Leaves a request without an answer, and parts from the client: somebody else has taken the
    /// volume over. A client that connects again by itself has it sent there, where it would hand
    /// an error on.
    fn part(&self, kind: RequestKind, error: &xtent_volume::Error) {
        self.reply.report(&self.served, &self.volume, kind, error);
        self.link.break_off();
        self.link.wake();
    }

    fn send_result(&self, kind: RequestKind, result: Result<(), xtent_volume::Error>) {
        let head = match result {
            Ok(()) => self.reply.success(),
            Err(error) if is_fenced(&error) => return self.part(kind, &error),
            Err(error) => self
                .reply
                .volume_failure(&self.served, &self.volume, kind, &error),
        };
        self.send(kind, head);
    }

    async fn read(&self, offset: u64, len: usize, buffer: Buffer, left: Option<Arc<PiecesLeft>>) {
        let reply = self.reply;
        let skip = self.volume.hull(offset, len).skip;
        let result = self.volume.read_async(buffer, offset, len).await;
        let mut was_last = left.is_none();
        let mut is_last = || {
            was_last = left.as_ref().is_none_or(|left| left.answer_one());
            was_last
        };
        let kind = RequestKind::Read;
        match result {
            Ok(buffer) => self.reply_with(|| {
                let head = match reply.structured {
                    true => proto::offset_data(reply.cookie, offset, payload_len(len), is_last()),
                    false => reply.success(),
                };
                Message::with_data(head, buffer, skip..skip + len)
            }),
            Err(error) if is_fenced(&error) => return self.part(kind, &error),
            Err(error) if left.is_some() => {
                let at = error_offset(&error, offset, len);
                let error = reply.report(&self.served, &self.volume, kind, &error);
                self.reply_with(|| {
                    let text = errno::message(error);
                    Message::head(proto::error_at(reply.cookie, error, at, text, is_last()))
                });
            }
            Err(error) => {
                let head = reply.volume_failure(&self.served, &self.volume, kind, &error);
                self.reply_with(|| Message::head(head));
            }
        }
        if was_last {
            self.answered(kind);
        }
    }

    /// Writes zeros, unless what ends has too many left, or nobody waits any more.
    async fn write_zeroes(&self, kind: RequestKind, offset: u64, len: u64, fua: bool) {
        let is_abandoned = |left| {
            self.ending
                .at()
                .is_some_and(|at| left > ABANDON || at.elapsed() > self.grace)
        };
        let goes_on = |left| !is_abandoned(left) && !self.is_pointless();
        let memory = &self.served.bulk;
        match zeroes::write(&self.volume, memory, offset, len, fua, goes_on).await {
            Ok(false) if self.is_pointless() => {}
            Ok(false) => {
                let text = errno::message(NbdError::Shutdown);
                self.send(kind, self.reply.failure(NbdError::Shutdown, text));
            }
            result => self.send_result(kind, result.map(drop)),
        }
    }

    /// Reads a part at a time, and drops it: only a hint, which shortness of memory ends.
    async fn read_ahead(&self, mut offset: u64, mut len: u64) {
        while len > 0 && !self.ending.is_here() && !self.is_pointless() {
            let piece = self.volume.preferred_piece();
            let here = usize::try_from(len).unwrap_or(piece).min(piece);
            let hull = self.volume.hull(offset, here);
            let Some(buffer) = self.served.bulk.wait_for(hull.len).await else {
                break;
            };
            if let Err(error) = self.volume.read_async(buffer, offset, here).await {
                return self.send_result(RequestKind::ReadAhead, Err(error));
            }
            (offset, len) = (offset + here as u64, len - here as u64);
            give_way().await;
        }
        self.send(RequestKind::ReadAhead, self.reply.success());
    }
}

/// Where in the piece an error lies, as far as the volume says.
pub(super) fn error_offset(error: &xtent_volume::Error, offset: u64, len: usize) -> u64 {
    let piece = offset..offset + len as u64;
    error
        .offset
        .filter(|at| piece.contains(at))
        .unwrap_or(offset)
}

impl Drop for Job {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Nobody will answer: this client loses its connection, and no other does.
            tracing::error!(
                client = self.reply.client.id,
                peer = %self.reply.client.peer,
                export = self.served.name,
                "a request panicked; its connection is closed"
            );
            self.link.break_off();
            self.link.wake();
        }
        self.volume.metrics().ended();
    }
}
