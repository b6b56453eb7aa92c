//! What is done with a request: served at once, made a job, or refused.

use super::{Connection, MAX_IN_FLIGHT};
use crate::nbd::job::{Job, Reply, Task};
use crate::nbd::port::Closed;
use crate::nbd::proto::{self, Command, Refusal, Request, Verdict};
use crate::request::is_fenced;
use std::time::Instant;
use xtent_volume::RequestKind;

impl Connection<'_> {
    pub(super) fn serve(&mut self, request: Request) -> Result<(), Closed> {
        let mut reply = Reply {
            cookie: request.cookie,
            structured: self.session.structured_replies,
            client: self.port.link.client,
            since: self.since,
        };
        self.totals.requests += 1;
        let command = match request.check(&self.session) {
            Verdict::Serve(command) => command,
            Verdict::Refuse(refusal) => return self.refuse(reply, &refusal),
            Verdict::End(error) => {
                self.flush()?;
                return Err(Closed::Protocol(error));
            }
        };
        let (kind, len) = match command {
            Command::Read { len, .. } => (RequestKind::Read, len),
            Command::Write { len, .. } => (RequestKind::Write, len),
            Command::Flush => (RequestKind::Flush, 0),
            Command::Trim { len, .. } => (RequestKind::Discard, len),
            Command::WriteZeroes { len, .. } => (RequestKind::WriteZeroes, len),
            Command::Cache { len, .. } => (RequestKind::ReadAhead, len),
            Command::BlockStatus { .. } | Command::Disconnect => {
                return self.carry_out(reply, command);
            }
        };
        let is_large = len as usize > self.piece;
        if is_large || self.since.is_none() && self.latency[kind as usize].is_none() {
            // What came before took its own time.
            self.count_answered();
            self.since = Some(Instant::now());
        }
        if is_large {
            reply.since = self.since;
        }
        self.asked[kind as usize] += u64::from(len);
        match kind {
            RequestKind::Read => self.totals.read += u64::from(len),
            RequestKind::Write => self.totals.written += u64::from(len),
            _ => {}
        }
        self.waits = false;
        self.carry_out(reply, command)?;
        match (is_large, self.waits) {
            (true, waits) => {
                // The time of a large one says nothing of others.
                if let (Some(since), false) = (self.since.take(), waits) {
                    let metrics = self.volume.metrics();
                    metrics.answered(kind, 1, since.elapsed());
                }
            }
            (false, false) => self.answered[kind as usize] += 1,
            (false, true) => {}
        }
        Ok(())
    }

    fn carry_out(&mut self, reply: Reply, command: Command) -> Result<(), Closed> {
        match command {
            Command::Read { len: 0, .. } => {
                let head = match reply.structured {
                    true => proto::no_data_reply(reply.cookie),
                    false => reply.success(),
                };
                self.answer(head)
            }
            Command::Read { offset, len, whole } => {
                let len = len as usize;
                match len <= self.piece {
                    true => self.read(reply, offset, len),
                    false => self.read_in_pieces(reply, offset, len, whole),
                }
            }
            Command::Write { offset, len, fua } => self.write(reply, offset, len as usize, fua),
            Command::Flush => self.hand_over(reply, Task::Flush),
            Command::Trim { len: 0, .. }
            | Command::WriteZeroes { len: 0, .. }
            | Command::Cache { len: 0, .. } => self.answer(reply.success()),
            Command::Trim { offset, len, fua } => {
                let len = u64::from(len);
                self.hand_over(reply, Task::Trim { offset, len, fua })
            }
            Command::WriteZeroes { offset, len, fua } => {
                let len = u64::from(len);
                self.hand_over(reply, Task::WriteZeroes { offset, len, fua })
            }
            Command::Cache { offset, len } => {
                let len = u64::from(len);
                self.hand_over(reply, Task::Cache { offset, len })
            }
            Command::BlockStatus { len } => self.answer(proto::block_status(reply.cookie, len)),
            Command::Disconnect => {
                self.flush()?;
                Err(Closed::Disconnect)
            }
        }
    }

    /// Ends the connection where somebody else has taken the volume over: of an error the client would be the end, and
    /// without an answer it asks whoever has the volume now.
    pub(super) fn end_if_fenced(
        &self,
        reply: Reply,
        kind: RequestKind,
        error: &xtent_volume::Error,
    ) -> Result<(), Closed> {
        if !is_fenced(error) {
            return Ok(());
        }
        reply.report(self.served, self.volume, kind, error);
        self.port.link.break_off();
        Err(Closed::Fenced)
    }

    fn refuse(&mut self, reply: Reply, refusal: &Refusal) -> Result<(), Closed> {
        tracing::debug!(
            client = reply.client.id,
            peer = %reply.client.peer,
            export = self.served.name,
            reason = refusal.message,
            "request refused"
        );
        self.drain(refusal.drain as usize)?;
        self.answer(reply.failure(refusal.error, refusal.message))
    }

    pub(super) fn hand_over(&mut self, reply: Reply, task: Task) -> Result<(), Closed> {
        self.waits = true;
        self.is_full = self.port.link.add_job() >= MAX_IN_FLIGHT;
        let grace = self.shared.timeouts.grace;
        let ending = self.port.ending();
        let link = &self.port.link;
        Job::new(link, self.volume, self.served, reply, ending, grace).start(task);
        Ok(())
    }
}
