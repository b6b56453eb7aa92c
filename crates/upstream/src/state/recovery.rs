//! What becomes of what is under way when connections are lost.
//!
//! All connections are given up with one: what the server acknowledged on another one is as
//! uncertain. But what it is at work on there is waited for, since it may finish that whenever it
//! likes. A new first connection is asked which disk it leads to, if that is known; then it
//! takes the journal's writes before anything else, then all requests without an answer in the
//! order in which they were submitted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use xtent_nbd::client::{Answer, Failure};
use xtent_store::ErrorKind;

use super::{Phase, State, Todo, send_on};
use crate::connection::Connection;
use crate::identity::Expected;
use crate::lock;
use crate::operation::{Operation, Piece, Work};

impl State {
    /// There is a first connection, which was just made.
    pub(crate) fn connected(&mut self, connection: Arc<Connection>, todo: &mut Todo) {
        self.connections[0] = Some(Arc::clone(&connection));
        match self.expected.clone() {
            None => {
                connection.admit();
                self.replay(todo);
            }
            Some(expected) => {
                self.phase = Phase::Asking;
                self.ask(&expected, &connection, todo);
            }
        }
    }

    /// Another connection, beside the first, that was just made.
    pub(crate) fn joined(&mut self, connection: Arc<Connection>, todo: &mut Todo) {
        self.connections[connection.lane] = Some(Arc::clone(&connection));
        match self.expected.clone() {
            None => connection.admit(),
            Some(expected) => self.ask(&expected, &connection, todo),
        }
    }

    /// Asks which disk the connection leads to.
    fn ask(&mut self, expected: &Expected, connection: &Arc<Connection>, todo: &mut Todo) {
        let question = match expected.question() {
            Ok(question) => Arc::new(question),
            Err(error) => {
                // As if the server had gone: it is asked again.
                self.lost(format!("cannot ask which disk it has: {error}"));
                todo.wake = true;
                return;
            }
        };
        let requests = question.requests(self.terms.blocks.maximum, false);
        lock(&question.progress).left = requests.len();
        self.put(&question, requests, Some(Arc::clone(connection)), todo);
    }

    /// Which disk the connection leads to has been said.
    pub(super) fn identified(
        &mut self,
        connection: &Connection,
        question: &Operation,
        todo: &mut Todo,
    ) {
        {
            let mut progress = lock(&question.progress);
            progress.left = progress.left.saturating_sub(1);
            if progress.left > 0 {
                return;
            }
        }
        let answer = match &question.work {
            Work::Read(buffer) => lock(buffer).take(),
            _ => None,
        };
        let (Some(expected), Some(answer)) = (&self.expected, answer) else {
            return;
        };
        match (expected.check(&answer), connection.lane) {
            (Ok(()), 0) => {
                connection.admit();
                self.replay(todo);
            }
            (Ok(()), _) => connection.admit(),
            (Err(what), 0) => {
                let why = format!(
                    "the server came back with another disk: {what}. Nothing was written to it; have \
                     the server export the right one, then close and open again"
                );
                self.close(why, todo);
            }
            (Err(why), lane) => {
                tracing::warn!(device = %self.terms.place, number = lane + 1, error = why, "connection given up");
                connection.kill();
                self.connections[lane] = None;
            }
        }
    }

    /// The export is of no use any more: nothing is written to it, and everything fails.
    pub(crate) fn close(&mut self, why: String, todo: &mut Todo) {
        tracing::error!(device = %self.terms.place, error = why, "given up for good");
        self.lost(why.clone());
        if !self.terms.read_only {
            self.fail_flushes(why.clone());
        }
        self.fail_all(Phase::Closed(why.clone()), &why, todo);
        self.ending.clear();
    }

    /// Sends what the server may have lost, if there is any.
    fn replay(&mut self, todo: &mut Todo) {
        let entries: Vec<_> = self.journal.entries().collect();
        self.phase = Phase::Replaying(entries.len());
        for (offset, data) in entries {
            let len = data.len() as u64;
            let replay = Arc::new(Operation::new(Work::Replay(data), offset, len, None));
            // An entry is no longer than the request that it came by.
            self.start(&replay, todo);
        }
        if matches!(self.phase, Phase::Replaying(0)) {
            self.resume(todo);
        }
    }

    pub(super) fn replayed(&mut self, failure: Option<Failure>, todo: &mut Todo) {
        if let Some(failure) = failure {
            let what = match failure.message.is_empty() {
                true => format!("error {}", failure.error),
                false => failure.message,
            };
            self.fail_flushes(format!(
                "writes from before the connection was lost could not be repeated: {what}"
            ));
        }
        if let Phase::Replaying(left) = &mut self.phase {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.resume(todo);
            }
        }
    }

    /// Sends what waits, in order, and lets new requests through.
    fn resume(&mut self, todo: &mut Todo) {
        self.phase = Phase::Serving;
        self.is_between = false;
        let Some(connection) = self.connections.iter().flatten().next().cloned() else {
            return;
        };
        if self.pending.is_empty() {
            self.lost_since = None;
        }
        for piece in self.pending.values_mut() {
            piece.answer = Answer::to(&piece.request);
            send_on(&connection, piece);
        }
        todo.send.push(connection);
        todo.wake = true;
        self.tend_journal(todo);
    }

    /// All connections are gone. Their threads are to be woken.
    pub(crate) fn lost(&mut self, why: String) {
        self.part(why, |_| None);
    }

    /// Whether this is one of its connections.
    pub(crate) fn has(&self, connection: &Connection) -> bool {
        let mut connections = self.connections.iter().flatten();
        connections.any(|it| it.id == connection.id)
    }

    /// One connection is gone. The others take no new requests, and are left when theirs have been
    /// answered, or at that moment at the latest: what a server is at work on it may finish after the
    /// same request was sent again, and a later one, if nobody waits for its answer. All threads are to be woken.
    pub(crate) fn lost_one(&mut self, gone: &Connection, why: String, leave_until: Instant) {
        self.part(why, |connection| {
            // One that was not to be used yet has nothing under way that could matter.
            let stays = connection.id != gone.id && connection.is_admitted();
            (stays && connection.has_requests()).then_some(leave_until)
        });
    }

    /// Gives up the connections, some of them not before they have been answered or a moment has come.
    fn part(&mut self, why: String, leaves: impl Fn(&Connection) -> Option<Instant>) {
        let mut staying = Vec::new();
        for place in &mut self.connections {
            let Some(connection) = place else {
                continue;
            };
            if let Some(until) = leaves(connection) {
                connection.leave(until);
                staying.push(connection.id);
            } else {
                connection.kill();
                if connection.has_requests() {
                    self.ending.push(Arc::clone(connection));
                }
                *place = None;
            }
        }
        let now = Instant::now();
        // Not one that was lost before it was of any use: nothing that waits has been sent on it.
        if matches!(self.phase, Phase::Serving) {
            self.lost_at = Some(now);
        }
        self.pending.retain(|_, piece| {
            if staying.contains(&piece.connection) {
                return true;
            }
            if piece.connection != 0 {
                piece.lost.get_or_insert(now);
            }
            piece.connection = 0;
            !piece.dies_with_connection()
        });
        self.is_renewing = false;
        self.successor = None;
        self.epoch += 1;
        self.why = why;
        self.lost_since.get_or_insert(now);
        if !matches!(self.phase, Phase::Closed(_)) {
            self.phase = Phase::Lost;
        }
    }

    /// When the last of the connections that are still to be answered is given up.
    pub(crate) fn leaves(&self) -> Option<Instant> {
        let connections = self.connections.iter().flatten();
        connections.filter_map(|it| it.leaves()).max()
    }

    /// Gives up connections that are still to be answered: a request that is about to fail may be on
    /// its way out there.
    fn let_none_stay(&mut self) {
        if self.leaves().is_some() {
            self.lost(self.why.clone());
        }
    }

    /// Everything that waits fails for this reason, and so does what comes.
    pub(crate) fn fail_all(&mut self, phase: Phase, why: &str, todo: &mut Todo) {
        self.let_none_stay();
        self.phase = phase;
        (self.successor, self.is_between) = (None, false);
        todo.wake = true;
        let mut operations: Vec<_> = std::mem::take(&mut self.pending)
            .into_values()
            .map(|piece| piece.operation)
            .collect();
        // The requests of one follow each other.
        operations.dedup_by(|a, b| Arc::ptr_eq(a, b));
        operations.extend(std::mem::take(&mut self.held));
        for operation in operations {
            self.fail(&operation, why, todo);
        }
        self.room = 0;
    }

    /// Ends an operation that has no requests any more.
    pub(crate) fn fail(&mut self, operation: &Arc<Operation>, why: &str, todo: &mut Todo) {
        let error = self.terms.error(ErrorKind::Io, operation, why.to_owned());
        {
            let mut progress = lock(&operation.progress);
            (progress.left, progress.flush_after) = (0, false);
            progress.failure.get_or_insert(error);
        }
        // No connection is there that could have been early.
        let _ = self.end(operation, todo);
    }

    /// Ends operations with a request that was first lost so long ago, and has been lost again:
    /// others may have been answered in between.
    pub(crate) fn give_up_after(&mut self, patience: Duration, why: &str, todo: &mut Todo) {
        let is_old = |piece: &Piece| {
            piece.connection == 0 && piece.lost.is_some_and(|lost| lost.elapsed() > patience)
        };
        let pending = self.pending.iter();
        let old: Vec<_> = pending
            .filter(|(_, piece)| is_old(piece))
            .map(|(cookie, _)| *cookie)
            .collect();
        for cookie in old {
            self.give_up(cookie, why, todo);
        }
    }

    /// Ends the operation whose answer the server has broken off again and again.
    pub(crate) fn give_up(&mut self, cookie: u64, why: &str, todo: &mut Todo) {
        let Some(piece) = self.pending.get(&cookie) else {
            return;
        };
        let operation = Arc::clone(&piece.operation);
        let mut pieces = self.pending.values();
        if pieces.any(|it| it.connection != 0 && Arc::ptr_eq(&it.operation, &operation)) {
            self.let_none_stay();
        }
        self.pending
            .retain(|_, piece| !Arc::ptr_eq(&piece.operation, &operation));
        self.fail(&operation, why, todo);
        self.tend_journal(todo);
    }
}
