//! Requests that have to wait for a disk, as workers do them.

use std::sync::Arc;
use std::time::Duration;

use xtent_volume::{DiscardPolicy, Volume};

use super::errno;
use super::link::{Link, Message, PiecesLeft};
use super::peer::Client;
use super::proto::{self, Head, MAX_PAYLOAD, NbdError};
use super::shutdown::Shutdown;
use xtent_store::Buffer;

/// Bytes of zeros that one worker writes before the other requests get their
/// turn; a multiple of every sector size.
const ZEROES_AT_A_TIME: u64 = 4 << 20;

/// Bytes of zeros that a stopping server does not begin to write. Fewer are
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
    pub(super) fn volume_failure(self, operation: &str, error: &xtent_volume::Error) -> Head {
        let error = self.report(operation, error);
        self.failure(error, errno::message(error))
    }

    /// Logs a failed request; its error for the client.
    pub(super) fn report(self, operation: &str, error: &xtent_volume::Error) -> NbdError {
        tracing::warn!(client = %self.client, operation, %error, "request failed");
        errno::from_errno(error.errno())
    }

    /// The head of all the data of a read.
    pub(super) fn whole_read(self, offset: u64, data: &[u8]) -> Head {
        match self.structured {
            true => proto::offset_data(self.cookie, offset, payload_len(data.len()), true),
            false => proto::simple_reply(self.cookie, None),
        }
    }
}

/// Payload lengths came from 32-bit fields and fit.
pub(super) fn payload_len(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(MAX_PAYLOAD)
}

/// What a worker does.
pub(super) enum Task {
    /// A piece of a read that is answered in chunks.
    ReadPiece {
        offset: u64,
        buffer: Buffer,
        left: Arc<PiecesLeft>,
    },
    /// A read that is answered at once; `done` bytes are there already.
    Read {
        offset: u64,
        buffer: Buffer,
        done: usize,
    },
    /// A write, encrypted in its buffer.
    Write {
        offset: u64,
        buffer: Buffer,
        fua: bool,
    },
    /// A flush.
    Flush,
    /// A discard by the volume's policy.
    Trim { offset: u64, len: u64, fua: bool },
    /// Zeros; `is_rest` if others before them have been written.
    WriteZeroes {
        offset: u64,
        len: u64,
        fua: bool,
        is_rest: bool,
    },
    /// Reading ahead, through this buffer.
    Cache {
        offset: u64,
        len: u64,
        buffer: Buffer,
    },
}

impl Task {
    /// Whether a small message can ask for any amount of it.
    fn is_bulk(&self) -> bool {
        matches!(
            self,
            Self::Trim { .. } | Self::WriteZeroes { .. } | Self::Cache { .. }
        )
    }
}

/// A request on its way through the workers. Counted by its link until dropped.
pub(super) struct Job {
    link: Arc<Link>,
    volume: Arc<Volume>,
    reply: Reply,
    task: Option<Task>,
}

impl Job {
    /// Counted by its link from now on.
    pub(super) fn new(link: &Arc<Link>, volume: &Arc<Volume>, reply: Reply, task: Task) -> Self {
        Self {
            link: Arc::clone(link),
            volume: Arc::clone(volume),
            reply,
            task: Some(task),
        }
    }

    /// The connection that it came by.
    pub(super) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// Whether a small message can have asked for any amount of work.
    pub(super) fn is_bulk(&self) -> bool {
        self.task.as_ref().is_some_and(Task::is_bulk)
    }

    /// Ends the connection: the request went wrong in a way that has no reply.
    pub(super) fn break_off(&self) {
        self.link.break_off();
        self.link.wake();
    }

    /// Does the task, or the first part of it; whether anything is left. `grace`
    /// is how long a server that stops goes on writing zeros.
    ///
    /// For a client that is gone nothing more is begun, but that data it has
    /// sent is written.
    pub(super) fn perform(&mut self, shutdown: &Shutdown, grace: Duration) -> bool {
        if let Some(task) = self.task.take()
            && (matches!(task, Task::Write { .. }) || !self.link.outbox().is_broken())
        {
            self.task = self.run(task, shutdown, grace);
        }
        self.task.is_some()
    }

    fn send(&self, head: Head) {
        self.link.reply(|| Message::head(head));
    }

    fn send_result(&self, operation: &str, result: Result<(), xtent_volume::Error>) {
        self.send(match result {
            Ok(()) => self.reply.success(),
            Err(error) => self.reply.volume_failure(operation, &error),
        });
    }

    /// What is left of the task.
    fn run(&self, task: Task, shutdown: &Shutdown, grace: Duration) -> Option<Task> {
        let volume = &*self.volume;
        let reply = self.reply;
        match task {
            Task::ReadPiece {
                offset,
                mut buffer,
                left,
            } => match volume.read_at(&mut buffer, offset) {
                Ok(()) => self.link.reply(|| {
                    let len = payload_len(buffer.len());
                    let last = left.answer_one();
                    let head = proto::offset_data(reply.cookie, offset, len, last);
                    Message::with_data(head, buffer)
                }),
                Err(error) => {
                    let offset = error_offset(&error, offset, buffer.len());
                    let error = reply.report("read", &error);
                    self.link.reply(|| {
                        let text = errno::message(error);
                        let last = left.answer_one();
                        Message::head(proto::error_at(reply.cookie, error, offset, text, last))
                    });
                }
            },
            Task::Read {
                offset,
                mut buffer,
                done,
            } => match volume.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(()) => {
                    let head = reply.whole_read(offset, &buffer);
                    self.link.reply(|| Message::with_data(head, buffer));
                }
                Err(error) => self.send(reply.volume_failure("read", &error)),
            },
            Task::Write {
                offset,
                mut buffer,
                fua,
            } => {
                let result = volume.write_at_in_place(&mut buffer, offset, fua);
                // The memory is free before the client sends the next request.
                drop(buffer);
                self.send_result("write", result);
            }
            Task::Flush => self.send_result("flush", volume.flush()),
            Task::Trim { offset, len, fua } if volume.discard_policy() == DiscardPolicy::Zero => {
                let zeros = Task::WriteZeroes {
                    offset,
                    len,
                    fua,
                    is_rest: false,
                };
                return self.run(zeros, shutdown, grace);
            }
            Task::Trim { offset, len, fua } => {
                self.send_result("discard", volume.discard(offset, len, fua));
            }
            Task::WriteZeroes {
                offset,
                len,
                fua,
                is_rest,
            } => {
                if let Some(at) = shutdown.triggered_at()
                    && (len > ABANDON || at.elapsed() > grace)
                {
                    let text = errno::message(NbdError::Shutdown);
                    self.send(reply.failure(NbdError::Shutdown, text));
                    return None;
                }
                let here = len.min(ZEROES_AT_A_TIME - offset % ZEROES_AT_A_TIME);
                let is_all = here == len && !is_rest;
                let written = volume.write_zeroes(offset, here, fua && is_all);
                if written.is_ok() && here < len {
                    return Some(Task::WriteZeroes {
                        offset: offset + here,
                        len: len - here,
                        fua,
                        is_rest: true,
                    });
                }
                // One flush for all the pieces.
                let result = written.and_then(|()| match fua && !is_all {
                    true => volume.flush(),
                    false => Ok(()),
                });
                self.send_result("write zeroes", result);
            }
            Task::Cache {
                offset,
                len,
                mut buffer,
            } => {
                let here = len.min(buffer.len() as u64);
                let rest = len - here;
                let now = usize::try_from(here).unwrap_or(buffer.len());
                match volume.read_at(&mut buffer[..now], offset) {
                    Ok(()) if rest > 0 && !shutdown.is_triggered() => {
                        return Some(Task::Cache {
                            offset: offset + here,
                            len: rest,
                            buffer,
                        });
                    }
                    result => self.send_result("read ahead", result),
                }
            }
        }
        None
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
        self.link.end_job();
    }
}
