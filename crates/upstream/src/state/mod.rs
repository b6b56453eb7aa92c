//! What is under way over all connections. Everything here happens under one lock that is
//! held for moments.

mod recovery;
mod renewal;

pub(crate) use renewal::Successor;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use xtent_nbd::Request;
use xtent_nbd::client::Failure;
use xtent_nbd::constants::*;
use xtent_store::{Buffer, Completed, Completion, Error, ErrorKind};

use crate::connection::{Connection, Payload};
use crate::identity::Expected;
use crate::journal::Journal;
use crate::operation::{Operation, Piece, Work};
use crate::terms::Terms;
use crate::{Waiting, lock};

/// What is longer than this is no pause between answers, for whoever is told of it.
const SILENT: Duration = Duration::from_secs(1);

/// Where the store stands with its server.
#[derive(Debug)]
pub(crate) enum Phase {
    /// Requests are sent as they come.
    Serving,
    /// Which disk the connection leads to is being asked.
    Asking,
    /// That many writes of the journal are to be acknowledged again first.
    Replaying(usize),
    /// Requests wait for a connection.
    Lost,
    /// Requests fail for this reason, until there is a connection.
    Down(String),
    /// Requests fail for this reason, for good.
    Closed(String),
}

/// What is to be done once the lock is free.
#[derive(Default)]
pub(crate) struct Todo {
    /// Ends to tell.
    pub(crate) told: Vec<(Completion, Completed)>,
    /// Connections with something to send.
    pub(crate) send: Vec<Arc<Connection>>,
    /// Threads may have something else to do.
    pub(crate) wake: bool,
}

pub(crate) struct State {
    pub(crate) terms: Arc<Terms>,
    pub(crate) phase: Phase,
    /// By lane.
    pub(crate) connections: Vec<Option<Arc<Connection>>>,
    /// How often connections were lost.
    pub(crate) epoch: u64,
    /// When the connection was lost, unless the server has answered since.
    pub(crate) lost_since: Option<Instant>,
    /// When it was lost last after it had been of use.
    pub(crate) lost_at: Option<Instant>,
    /// Connections that were given up with requests under way, whose server may be at work on them.
    pub(crate) ending: Vec<Arc<Connection>>,
    /// What the last failure said.
    pub(crate) why: String,
    /// Whether the server has answered since the last try to connect.
    pub(crate) has_answered: bool,
    /// Violations of the protocol without a good answer between them.
    pub(crate) violations: u32,
    /// Somebody wanted something while it was down.
    pub(crate) demand: bool,
    /// By cookie, so in the order in which they were submitted.
    pending: BTreeMap<u64, Piece>,
    next_cookie: u64,
    pub(crate) journal: Journal,
    /// Everything under way is waited for, so that the connections can be made anew.
    is_renewing: bool,
    /// The first of the connections that come then, if it is there already.
    successor: Option<Successor>,
    /// The connections were given up while all was well, and none has taken their place yet.
    is_between: bool,
    /// Writes that wait for room in the journal, and what waits for the connections to be made anew.
    pub(crate) held: VecDeque<Arc<Operation>>,
    /// Bytes that writes under way will take of the journal.
    room: usize,
    /// Whether the journal's own flush is under way.
    own_flush: bool,
    /// Why flushes fail ever after.
    pub(crate) flush_failure: Option<String>,
    /// What tells the disk from others.
    pub(crate) expected: Option<Arc<Expected>>,
}

impl State {
    pub(crate) fn new(terms: Arc<Terms>, lanes: usize) -> Self {
        Self {
            terms,
            phase: Phase::Lost,
            connections: vec![None; lanes],
            epoch: 0,
            lost_since: None,
            lost_at: None,
            ending: Vec::new(),
            why: String::new(),
            has_answered: true,
            violations: 0,
            demand: false,
            pending: BTreeMap::new(),
            next_cookie: 1,
            journal: Journal::default(),
            is_renewing: false,
            successor: None,
            is_between: false,
            held: VecDeque::new(),
            room: 0,
            own_flush: false,
            flush_failure: None,
            expected: None,
        }
    }

    /// Whether an operation waits: a write without room in the journal, or behind others
    /// that wait, and whatever comes while the connections are to be made anew. A write that is alone always has
    /// room.
    pub(crate) fn must_wait(&self, room: usize) -> bool {
        let lacks_room = || self.keeps_journal() && (!self.held.is_empty() || !self.has_room(room));
        self.is_renewing || room > 0 && lacks_room()
    }

    fn has_room(&self, room: usize) -> bool {
        let used = self.journal.bytes() + self.room;
        used == 0 || used.saturating_add(room) <= self.terms.journal
    }

    /// Whether acknowledged writes are to be kept.
    pub(crate) fn keeps_journal(&self) -> bool {
        self.terms.has(FLAG_SEND_FLUSH) && self.flush_failure.is_none()
    }

    /// An operation becomes requests, which are sent if there is a connection.
    pub(crate) fn start(&mut self, operation: &Arc<Operation>, todo: &mut Todo) {
        self.room += operation.room;
        let has_fua = self.terms.has(FLAG_SEND_FUA);
        let requests = operation.requests(self.terms.blocks.maximum, has_fua);
        {
            let mut progress = lock(&operation.progress);
            progress.left = requests.len();
            progress.flush_after =
                operation.is_durable_write() && !has_fua && self.terms.has(FLAG_SEND_FLUSH);
        }
        self.add(operation, requests, todo);
    }

    fn add(&mut self, operation: &Arc<Operation>, requests: Vec<Request>, todo: &mut Todo) {
        let connection = match self.phase {
            Phase::Serving => self.least_busy(),
            // The others wait.
            Phase::Replaying(_) if matches!(operation.work, Work::Replay(_)) => self.least_busy(),
            _ => None,
        };
        self.put(operation, requests, connection, todo);
    }

    /// Requests go out on that connection, or wait.
    fn put(
        &mut self,
        operation: &Arc<Operation>,
        requests: Vec<Request>,
        connection: Option<Arc<Connection>>,
        todo: &mut Todo,
    ) {
        for mut request in requests {
            request.cookie = self.next_cookie;
            self.next_cookie += 1;
            let mut piece = Piece::new(operation, request);
            if request.kind == CMD_FLUSH {
                piece.covers = self.journal.begin_flush();
            }
            if let Some(connection) = &connection {
                send_on(connection, &mut piece);
            }
            self.pending.insert(request.cookie, piece);
        }
        todo.send.extend(connection);
    }

    fn least_busy(&self) -> Option<Arc<Connection>> {
        let connections = self.connections.iter().flatten();
        connections
            .filter(|connection| connection.is_admitted())
            .min_by_key(|connection| connection.under_way.load(Ordering::Relaxed))
            .cloned()
    }

    /// Starts the journal's own flush, and what has waited for one.
    pub(crate) fn tend_journal(&mut self, todo: &mut Todo) {
        if self.is_renewing {
            return;
        }
        while let Some(first) = self.held.front() {
            if first.room > 0 && self.keeps_journal() && !self.has_room(first.room) {
                break;
            }
            let Some(first) = self.held.pop_front() else {
                break;
            };
            self.start(&first, todo);
        }
        let bytes = self.journal.bytes();
        let full = bytes >= self.terms.journal / 2 || !self.held.is_empty() && self.room == 0;
        if bytes > 0 && full && !self.own_flush && self.keeps_journal() {
            self.flush_journal(todo);
        }
    }

    fn flush_journal(&mut self, todo: &mut Todo) {
        self.own_flush = true;
        let flush = Arc::new(Operation::new(Work::Flush, 0, 0, None));
        self.start(&flush, todo);
    }

    /// The piece that is answered on this connection.
    pub(crate) fn piece(&mut self, connection: &Connection, cookie: u64) -> Option<&mut Piece> {
        let piece = self.pending.get_mut(&cookie);
        piece.filter(|piece| piece.connection == connection.id)
    }

    /// The answer to a request is complete. `copy` has the bytes of a plain write for the
    /// journal. An error says that the server answered what it cannot have received.
    pub(crate) fn conclude(
        &mut self,
        connection: &Connection,
        cookie: u64,
        copy: Option<Vec<u8>>,
        todo: &mut Todo,
    ) -> Result<(), &'static str> {
        self.answered(connection, cookie, copy, todo)?;
        self.go_on_renewing(todo);
        Ok(())
    }

    fn answered(
        &mut self,
        connection: &Connection,
        cookie: u64,
        copy: Option<Vec<u8>>,
        todo: &mut Todo,
    ) -> Result<(), &'static str> {
        let Some(piece) = self.pending.remove(&cookie) else {
            return Ok(());
        };
        connection.conclude(piece.weight());
        let failure = match piece.answer.result() {
            Some(Err(failure)) => Some(failure.clone()),
            _ => None,
        };
        if piece.is_replay() {
            self.replayed(failure, todo);
            return Ok(());
        }
        if piece.operation.identifies {
            self.identified(connection, &piece.operation, todo);
            return Ok(());
        }
        self.has_answered = true;
        if connection.leaves().is_none() {
            (self.violations, self.lost_since) = (0, None);
        } else if piece.request.kind == CMD_FLUSH && failure.is_none() {
            // What was acknowledged on the lost connection may be lost, too: it is for a new one to say.
            let mut piece = piece;
            piece.connection = 0;
            piece.lost = piece.lost.or(self.lost_at);
            self.pending.insert(cookie, piece);
            return Ok(());
        }
        let operation = &piece.operation;
        let mut error = failure.map(|failure| self.error_of(operation, &failure));
        match piece.request.kind {
            CMD_WRITE if error.is_none() && self.keeps_journal() => {
                if let Some(copy) = copy {
                    self.journal.insert(piece.request.offset, copy);
                } else if let Some(Payload::Caller(buffer, range)) = piece.payload() {
                    self.journal.overwrite(piece.request.offset, &buffer[range]);
                }
            }
            CMD_FLUSH => {
                if let Some(error) = &error {
                    self.fail_flushes(describe(error));
                }
                match &self.flush_failure {
                    None => self.journal.forget(piece.covers),
                    Some(why) => {
                        error = Some(self.terms.error(ErrorKind::Io, operation, why.clone()));
                    }
                }
            }
            _ => {}
        }
        self.ended(operation, error, todo)
    }

    /// What requests under way wait for, and no longer than what.
    pub(crate) fn waiting(&self, reconnect: Duration, silence: Duration) -> Option<Waiting> {
        if self.pending.is_empty() && self.held.is_empty() {
            return None;
        }
        let left = |since: Instant, limit: Duration| limit.saturating_sub(since.elapsed());
        match self.phase {
            Phase::Down(_) | Phase::Closed(_) => None,
            Phase::Serving => {
                let connections = self.connections.iter().flatten();
                let longest = connections.filter_map(|it| it.silent_since()).min()?;
                (longest.elapsed() >= SILENT).then(|| Waiting {
                    why: "it does not answer".to_owned(),
                    at_most: left(longest, silence),
                })
            }
            Phase::Lost | Phase::Asking | Phase::Replaying(_) => Some(Waiting {
                why: format!("the connection was lost: {}", self.why),
                at_most: left(self.lost_since.unwrap_or_else(Instant::now), reconnect),
            }),
        }
    }

    pub(crate) fn error_of(&self, operation: &Operation, failure: &Failure) -> Error {
        let (kind, name) = match failure.error {
            1 => (ErrorKind::Permission, "EPERM"),
            5 => (ErrorKind::Io, "EIO"),
            12 => (ErrorKind::Io, "ENOMEM"),
            22 => (ErrorKind::Io, "EINVAL"),
            28 => (ErrorKind::NoSpace, "ENOSPC"),
            75 => (ErrorKind::Io, "EOVERFLOW"),
            95 => (ErrorKind::Unsupported, "ENOTSUP"),
            _ => (ErrorKind::Io, "an unknown error"),
        };
        let mut text = format!("the server answered {name}");
        if !failure.message.is_empty() {
            text = format!("{text}: {}", failure.message);
        }
        self.terms.error(kind, operation, text)
    }

    fn fail_flushes(&mut self, why: String) {
        // The first reason is the one to tell ever after.
        self.flush_failure.get_or_insert(why);
        self.journal.clear();
    }

    /// One request of an operation has ended; with the last one so has the operation.
    fn ended(
        &mut self,
        operation: &Arc<Operation>,
        error: Option<Error>,
        todo: &mut Todo,
    ) -> Result<(), &'static str> {
        let mut progress = lock(&operation.progress);
        progress.failure = progress.failure.take().or(error);
        progress.left = progress.left.saturating_sub(1);
        if progress.left > 0 {
            return Ok(());
        }
        if std::mem::take(&mut progress.flush_after) && progress.failure.is_none() {
            progress.left = 1;
            drop(progress);
            let flush = Operation::new(Work::Flush, 0, 0, None);
            self.add(operation, flush.requests(0, false), todo);
            return Ok(());
        }
        drop(progress);
        let result = self.end(operation, todo);
        self.tend_journal(todo);
        result
    }

    fn end(&mut self, operation: &Arc<Operation>, todo: &mut Todo) -> Result<(), &'static str> {
        self.room = self.room.saturating_sub(operation.room);
        let mut early = false;
        let buffer = match &operation.work {
            Work::Read(buffer) => lock(buffer).take(),
            Work::Write { buffer, .. } => {
                let shared = lock(buffer).take();
                let had = shared.is_some();
                let buffer = shared.and_then(|shared| self.unshared(shared));
                early = had && buffer.is_none();
                buffer
            }
            Work::Flush | Work::Discard | Work::Replay(_) => None,
        };
        let mut progress = lock(&operation.progress);
        if early {
            let text = "the server answered a write that it had not received";
            let error = || self.terms.error(ErrorKind::Io, operation, text.to_owned());
            progress.failure.get_or_insert_with(error);
        }
        let result = progress.failure.take().map_or(Ok(()), Err);
        match progress.completion.take() {
            Some(completion) => todo.told.push((completion, Completed::new(buffer, result))),
            None if matches!(operation.work, Work::Flush) => self.own_flush = false,
            None => {}
        }
        match early {
            true => Err("an answer to a write that it had not received"),
            false => Ok(()),
        }
    }

    /// The buffer of a write that has been answered; [`None`] if it has not been sent. A thread
    /// may be about to return from sending the end of it, on another connection than
    /// that of a flush that followed.
    fn unshared(&self, shared: Arc<Buffer>) -> Option<Buffer> {
        let shared = match Arc::try_unwrap(shared) {
            Ok(buffer) => return Some(buffer),
            Err(shared) => shared,
        };
        for connection in self.connections.iter().flatten() {
            connection.wait_for_sender();
        }
        Arc::into_inner(shared)
    }
}

fn send_on(connection: &Connection, piece: &mut Piece) {
    piece.connection = connection.id;
    connection.begin(piece.weight());
    connection.queue(piece.outgoing(connection.form));
}

/// What the server did, out of an error.
pub(crate) fn describe(error: &Error) -> String {
    error
        .source
        .as_ref()
        .map_or_else(|| error.to_string(), ToString::to_string)
}
