//! What callers and the connections' threads do to the state, and what follows from it
//! once the lock is free.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use xtent_nbd::NbdError;
use xtent_nbd::client::{Fill, Reply};
use xtent_nbd::constants::{CMD_FLAG_FUA, CMD_WRITE};

use crate::connect::Addresses;
use crate::connection::{Connection, Payload};
use crate::lock;
use crate::look::Looker;
use crate::operation::{Operation, Work};
use crate::state::{Phase, State, Todo, describe};
use crate::terms::Terms;
use crate::wake::Wake;

/// Violations of the protocol in a row after which requests fail.
const VIOLATIONS: u32 = 3;

/// How long connections that are given up with another may still be answered, if
/// [`Options::reconnect`](crate::Options::reconnect) is very long.
const LONGEST_LEAVE: Duration = Duration::from_secs(15);

/// Why a connection cannot go on.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// It broke, or was closed.
    Gone(String),
    /// The server broke the protocol, in its answer to the request with this cookie.
    Violation(String, u64),
    /// Another thread has ended it.
    Dead,
}

impl From<std::io::Error> for Trouble {
    fn from(error: std::io::Error) -> Self {
        Self::Gone(error.to_string())
    }
}

impl From<rustix::io::Errno> for Trouble {
    fn from(error: rustix::io::Errno) -> Self {
        std::io::Error::from(error).into()
    }
}

/// Bytes of a read that follow in the stream.
pub(crate) struct Incoming {
    pub(crate) cookie: u64,
    pub(crate) operation: Arc<Operation>,
    /// First byte in the operation's buffer, and how many are still to come.
    pub(crate) start: usize,
    pub(crate) left: usize,
}

/// Everything that is common to the callers and the threads.
pub(crate) struct Shared {
    pub(crate) terms: Arc<Terms>,
    pub(crate) state: Mutex<State>,
    /// By lane: of the thread that receives.
    pub(crate) wakes: Vec<Wake>,
    pub(crate) looker: Looker,
    pub(crate) addresses: Addresses,
    pub(crate) export: String,
    /// How long a lost connection may stay lost.
    pub(crate) reconnect: Duration,
    /// How long a server may leave requests without a word.
    pub(crate) silence: Duration,
}

impl Shared {
    /// How long requests wait for a connection. Where all was well before, that is no less than they may wait for the
    /// rest of a look.
    pub(crate) fn patience(&self, state: &State) -> Duration {
        match state.is_between() {
            true => self.reconnect.max(self.looker.limit),
            false => self.reconnect,
        }
    }

    /// Begins an operation that has been checked; its end is told whatever happens.
    pub(crate) fn begin(&self, operation: Operation) {
        let mut todo = Todo::default();
        let operation = Arc::new(operation);
        {
            let mut state = lock(&self.state);
            if let Phase::Down(why) | Phase::Closed(why) = &state.phase {
                let why = why.clone();
                if !std::mem::replace(&mut state.demand, true) {
                    self.wakes[0].wake();
                }
                state.fail(&operation, &why, &mut todo);
            } else if state.must_wait(operation.room) {
                state.held.push_back(operation);
                state.tend_journal(&mut todo);
            } else {
                state.start(&operation, &mut todo);
            }
        }
        self.carry_out(todo);
    }

    /// Does what a change of the state has brought about.
    pub(crate) fn carry_out(&self, todo: Todo) {
        if todo.wake {
            self.wake_all();
        }
        for connection in todo.send {
            self.send(&connection);
        }
        for (completion, completed) in todo.told {
            completion.complete(completed);
        }
    }

    /// Has every thread look at the state.
    fn wake_all(&self) {
        for wake in &self.wakes {
            wake.wake();
        }
        self.looker.wake.wake();
    }

    /// Sends what is queued there.
    pub(crate) fn send(&self, connection: &Arc<Connection>) {
        match connection.send() {
            Ok(true) => {}
            // Whoever waits for answers waits for room, too, from now on.
            Ok(false) => self.wakes[connection.lane].wake(),
            Err(error) => self.lost(connection, error.into()),
        }
    }

    /// A reply came; what has to be received for it next.
    pub(crate) fn replied(
        &self,
        connection: &Arc<Connection>,
        reply: Reply,
    ) -> Result<Option<Incoming>, Trouble> {
        let cookie = reply.cookie;
        let broken =
            |what| Trouble::Violation(format!("the server broke the protocol: {what}"), cookie);
        let mut state = lock(&self.state);
        if connection.is_dead() {
            return Err(Trouble::Dead);
        }
        let piece = state
            .piece(connection, cookie)
            .ok_or_else(|| broken("an answer to what was not asked"))?;
        let fill = piece
            .answer
            .take(connection.form, reply)
            .map_err(|violation| broken(violation.0))?;
        let (operation, start) = (Arc::clone(&piece.operation), piece.start());
        drop(state);
        match fill {
            Fill::Data(range) if !range.is_empty() => {
                return Ok(Some(Incoming {
                    cookie,
                    operation,
                    start: start + range.start,
                    left: range.len(),
                }));
            }
            Fill::Zeros(range) => {
                let Work::Read(buffer) = &operation.work else {
                    return Err(Trouble::Dead);
                };
                let mut buffer = lock(buffer);
                // As in the receiver: it may have been sent anew meanwhile.
                match buffer.as_mut() {
                    Some(buffer) if !connection.is_dead() => {
                        buffer[start + range.start..start + range.end].fill(0);
                    }
                    _ => return Err(Trouble::Dead),
                }
            }
            Fill::Data(_) | Fill::Nothing => {}
        }
        self.conclude(connection, cookie)?;
        Ok(None)
    }

    /// All that was announced has been received; the request ends if there is no more to come.
    pub(crate) fn conclude(
        &self,
        connection: &Arc<Connection>,
        cookie: u64,
    ) -> Result<(), Trouble> {
        let mut todo = Todo::default();
        let mut state = lock(&self.state);
        if connection.is_dead() {
            return Err(Trouble::Dead);
        }
        let keeps_journal = state.keeps_journal();
        let Some(piece) = state.piece(connection, cookie) else {
            return Err(Trouble::Dead);
        };
        let has_succeeded = match piece.answer.result() {
            None => return Ok(()),
            Some(Ok(())) => true,
            Some(Err(failure)) if failure.error == NbdError::Shutdown.code() => {
                return Err(Trouble::Gone("the server is shutting down".to_owned()));
            }
            Some(Err(failure)) if piece.operation.identifies => {
                let (operation, failure) = (Arc::clone(&piece.operation), failure.clone());
                let what = describe(&state.error_of(&operation, &failure));
                let why = format!("which disk it has cannot be read: {what}");
                return Err(Trouble::Gone(why));
            }
            Some(Err(_)) => false,
        };
        let is_plain_write =
            piece.request.kind == CMD_WRITE && piece.request.flags & CMD_FLAG_FUA == 0;
        let mut copy = None;
        if has_succeeded && is_plain_write && keeps_journal && !piece.is_replay() {
            let payload = piece.payload();
            // Sent anew on another connection, it would be answered while it is held here.
            let copying = connection.while_copying();
            drop(state);
            // Nobody waits for the lock while this is copied.
            if let Some(Payload::Caller(buffer, range)) = payload {
                copy = Some(buffer[range].to_vec());
            }
            drop(copying);
            state = lock(&self.state);
            if connection.is_dead() {
                return Err(Trouble::Dead);
            }
        }
        let result = state.conclude(connection, cookie, copy, &mut todo);
        drop(state);
        self.carry_out(todo);
        result.map_err(|what| {
            Trouble::Violation(format!("the server broke the protocol: {what}"), cookie)
        })
    }

    /// This connection was to be left, and nothing is under way on it any more, or for too long.
    pub(crate) fn left(&self, connection: &Connection) {
        let mut todo = Todo::default();
        {
            let mut state = lock(&self.state);
            if !state.has(connection) {
                return;
            }
            let why = state.why.clone();
            if connection.has_requests() {
                tracing::warn!(device = %self.terms.place, number = connection.lane + 1, "gave up a connection that was not answered");
            }
            state.lost_one(connection, why.clone(), Instant::now());
            state.give_up_after(self.reconnect, &why, &mut todo);
        }
        todo.wake = true;
        self.carry_out(todo);
    }

    /// This connection is lost. No new requests go out on the others, which are given up once they have
    /// been answered.
    pub(crate) fn lost(&self, connection: &Arc<Connection>, trouble: Trouble) {
        let mut todo = Todo::default();
        let leave_until = Instant::now() + LONGEST_LEAVE.min(self.reconnect / 3);
        {
            let mut state = lock(&self.state);
            if !state.has(connection) {
                return;
            }
            // What is wrong with all at once is wrong once.
            let counts = connection.leaves().is_none();
            match trouble {
                Trouble::Dead => return,
                Trouble::Gone(why) => {
                    tracing::warn!(device = %self.terms.place, error = why, "lost the connection");
                    state.lost_one(connection, why.clone(), leave_until);
                    state.give_up_after(self.reconnect, &why, &mut todo);
                }
                Trouble::Violation(why, cookie) => {
                    tracing::warn!(device = %self.terms.place, error = why, "cut the connection");
                    let mut of_request = 0;
                    if let Some(piece) = state.piece(connection, cookie) {
                        piece.violations += 1;
                        of_request = piece.violations;
                    }
                    state.lost_one(connection, why.clone(), leave_until);
                    state.give_up_after(self.reconnect, &why, &mut todo);
                    if counts {
                        self.violated(&mut state, &why, &mut todo);
                    }
                    if of_request >= VIOLATIONS {
                        state.give_up(cookie, &why, &mut todo);
                    }
                }
            }
        }
        todo.wake = true;
        self.carry_out(todo);
    }

    /// Counts a violation of the protocol; after too many in a row nothing waits any longer.
    pub(crate) fn violated(&self, state: &mut State, why: &str, todo: &mut Todo) {
        state.violations += 1;
        if state.violations >= VIOLATIONS {
            state.fail_all(Phase::Down(why.to_owned()), why, todo);
        }
    }
}
