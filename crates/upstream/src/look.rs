//! Whether the export has grown. A connection has the size of its beginning, so one more is
//! made to see.

use std::io;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use xtent_nbd::client::{Answer, Fill, Form, parse_reply, request_head};
use xtent_nbd::constants::FLAG_CAN_MULTI_CONN;
use xtent_store::ErrorKind;

use crate::connect::{ConnectError, connect, receive_some, send_all};
use crate::connection::Connection;
use crate::identity::Expected;
use crate::lane::next_id;
use crate::lock;
use crate::shared::Shared;
use crate::state::{Phase, Successor, Todo};
use crate::wake::Wake;
use crate::wire::Wire;

/// Whoever looks; one at a time.
pub(crate) struct Looker {
    /// Whether somebody does.
    is_busy: Mutex<bool>,
    /// It is not so any more.
    is_free: Condvar,
    /// How long it may take, with the wait for others.
    pub(crate) limit: Duration,
    pub(crate) wake: Wake,
}

impl Looker {
    pub(crate) fn new(limit: Duration) -> io::Result<Self> {
        Ok(Self {
            is_busy: Mutex::new(false),
            is_free: Condvar::new(),
            limit,
            wake: Wake::new()?,
        })
    }

    /// Waits until nobody else looks.
    fn turn(&self, deadline: Instant) -> Result<Turn<'_>, Failed> {
        let left = deadline.saturating_duration_since(Instant::now());
        let must_wait = |is_busy: &mut bool| *is_busy && !self.wake.is_closed();
        let waited = self
            .is_free
            .wait_timeout_while(lock(&self.is_busy), left, must_wait);
        let (mut is_busy, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if self.wake.is_closed() {
            return Err(failed(CLOSED));
        }
        if *is_busy {
            return Err(failed(format!(
                "somebody else has been asking for it for {} seconds, and the server has not answered that",
                self.limit.as_secs_f64()
            )));
        }
        *is_busy = true;
        Ok(Turn(self))
    }
}

const CLOSED: &str = "it is being closed";

/// As long as this is there, nobody else looks.
struct Turn<'a>(&'a Looker);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *lock(&self.0.is_busy) = false;
        self.0.is_free.notify_one();
    }
}

/// Why the size is not known, or not taken.
pub(crate) type Failed = (ErrorKind, io::Error);

fn failed(why: impl Into<String>) -> Failed {
    (ErrorKind::Io, io::Error::other(why.into()))
}

/// Asks the server for the size of the export, and takes it if it has grown.
pub(crate) fn look(shared: &Shared) -> Result<(), Failed> {
    let deadline = Instant::now() + shared.looker.limit;
    let _turn = shared.looker.turn(deadline)?;
    // Whatever has come of it then.
    look_until(shared, deadline).map_err(|error| match shared.looker.wake.is_closed() {
        true => failed(CLOSED),
        false => error,
    })
}

/// Has looks fail from now on, those under way too. The connections that there are stay.
pub(crate) fn stop_looking(shared: &Shared) {
    let mut todo = Todo::default();
    {
        let mut state = lock(&shared.state);
        shared.looker.wake.close();
        if state.is_renewing() {
            state.stop_renewing(&mut todo);
        }
    }
    shared.carry_out(todo);
    // Whoever is about to wait waits, or has seen it.
    drop(lock(&shared.looker.is_busy));
    shared.looker.is_free.notify_all();
}

fn look_until(shared: &Shared, deadline: Instant) -> Result<(), Failed> {
    let Some(found) = find_larger(shared, deadline)? else {
        return Ok(());
    };
    // Elsewhere it may not see what is flushed on the others from here on.
    let successor = match found.1.has(FLAG_CAN_MULTI_CONN) {
        true => Some(found),
        false => {
            found.0.say_goodbye();
            None
        }
    };
    let mut todo = Todo::default();
    let epoch = {
        let mut state = lock(&shared.state);
        if shared.looker.wake.is_closed() {
            return Err(failed(CLOSED));
        }
        tracing::info!(device = %shared.terms.place, "the export has grown: the connections are made anew");
        let epoch = state.epoch;
        state.renew(successor, &mut todo).map_err(failed)?;
        epoch
    };
    shared.carry_out(todo);
    while !is_renewed(shared, epoch, deadline)? {
        let waited = shared.looker.wake.wait(None, Some(deadline));
        waited.map_err(|error| (ErrorKind::Io, error))?;
    }
    Ok(())
}

/// A new connection that finds the same disk, which has become larger.
fn find_larger(shared: &Shared, deadline: Instant) -> Result<Option<Successor>, Failed> {
    let wake = &shared.looker.wake;
    let connected = connect(&shared.addresses, &shared.export, wake, deadline);
    let (wire, found) = connected.map_err(|error| {
        let (kind, error) = error.into_parts();
        let hint = match error.kind() {
            // As servers do with a client too many.
            io::ErrorKind::TimedOut
            | io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe => {
                " (if it takes no more clients than it has, it is asked when the connection is made anew)"
            }
            _ => "",
        };
        let what = format!("no further connection, on which to ask: {error}{hint}");
        (kind, io::Error::new(error.kind(), what))
    })?;
    let connection = Connection::new(next_id(), 0, found.form, wire);
    let size = shared.terms.check(&found).map_err(failed);
    let has_grown = size.and_then(|size| {
        if size == shared.terms.size() {
            return Ok(false);
        }
        let expected = lock(&shared.state).expected.clone();
        if let Some(expected) = expected {
            let maximum = shared.terms.blocks.maximum;
            let wire = &connection.wire;
            let answer = ask(&expected, maximum, wire, found.form, wake, deadline);
            let answer = answer.map_err(|error| {
                let (kind, error) = error.into_parts();
                let what = format!("it has grown, but which disk it is was asked in vain: {error}");
                (kind, io::Error::new(error.kind(), what))
            })?;
            expected.check(&answer).map_err(|what| {
                failed(format!(
                    "the server has another disk for new clients: {what}"
                ))
            })?;
        }
        Ok(true)
    });
    match has_grown {
        Ok(true) => Ok(Some((connection, found))),
        Ok(false) => {
            connection.say_goodbye();
            Ok(None)
        }
        Err(failed) => {
            connection.say_goodbye();
            Err(failed)
        }
    }
}

/// Whether the connections have been made anew since that epoch.
fn is_renewed(shared: &Shared, epoch: u64, deadline: Instant) -> Result<bool, Failed> {
    let is_late = Instant::now() >= deadline;
    let seconds = shared.looker.limit.as_secs_f64();
    let mut todo = Todo::default();
    let mut state = lock(&shared.state);
    let renewed = match &state.phase {
        Phase::Down(why) | Phase::Closed(why) => Err(failed(why.clone())),
        Phase::Serving if state.epoch != epoch => Ok(true),
        _ if shared.looker.wake.is_closed() => Err(failed(CLOSED)),
        Phase::Serving if !state.is_renewing() => {
            let why = state.flush_failure.clone().unwrap_or_default();
            Err(failed(why))
        }
        _ if !is_late => Ok(false),
        Phase::Serving => {
            state.stop_renewing(&mut todo);
            Err(failed(format!(
                "the export has grown, but the server has not answered all requests within {seconds} seconds, \
                 which has to be before the connection is made anew"
            )))
        }
        _ => Err(failed(format!(
            "there is no connection yet after {seconds} seconds: {}",
            state.why
        ))),
    };
    drop(state);
    shared.carry_out(todo);
    renewed
}

/// The bytes by which the disk is known.
fn ask(
    expected: &Expected,
    maximum: u32,
    wire: &Wire,
    form: Form,
    wake: &Wake,
    deadline: Instant,
) -> Result<Vec<u8>, ConnectError> {
    let question = expected.question()?;
    let mut found = Vec::new();
    let mut input = Vec::new();
    for request in question.requests(maximum, false) {
        let mut bytes = vec![0; request.length as usize];
        send_all(
            wire,
            request_head(form, &request).as_bytes(),
            wake,
            deadline,
        )?;
        let mut answer = Answer::to(&request);
        while answer.result().is_none() {
            let broken = |what: String| ConnectError::from(io::Error::other(what));
            let parsed = parse_reply(form, &input).map_err(|it| broken(it.to_string()))?;
            let Some((used, reply)) = parsed else {
                receive_some(wire, &mut input, wake, deadline)?;
                continue;
            };
            input.drain(..used);
            if reply.cookie != request.cookie {
                return Err(broken("the server answers what was not asked".to_owned()));
            }
            let fill = answer.take(form, reply);
            match fill.map_err(|it| broken(it.to_string()))? {
                Fill::Nothing => {}
                Fill::Zeros(range) => bytes[range].fill(0),
                Fill::Data(range) => {
                    while input.len() < range.len() {
                        receive_some(wire, &mut input, wake, deadline)?;
                    }
                    let len = range.len();
                    bytes[range].copy_from_slice(&input[..len]);
                    input.drain(..len);
                }
            }
        }
        if let Some(Err(failure)) = answer.result() {
            let what = format!("error {}: {}", failure.error, failure.message);
            return Err(io::Error::other(what).into());
        }
        found.extend(bytes);
    }
    // Whoever goes on with the connection would not see it.
    match input.is_empty() {
        true => Ok(found),
        false => Err(io::Error::other("the server answers what was not asked").into()),
    }
}
