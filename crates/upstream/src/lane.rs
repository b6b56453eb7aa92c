//! The threads: each receives on one connection. The first also connects again what was
//! lost; the others join once that is done.

use std::os::fd::AsFd;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use xtent_nbd::constants::{FLAG_CAN_MULTI_CONN, FLAG_SEND_FLUSH};
use xtent_store::Submitted;

use crate::connect::connect;
use crate::connection::Connection;
use crate::lock;
use crate::operation::{Operation, Work};
use crate::receive::Receiver;
use crate::shared::{Shared, Trouble};
use crate::state::{Phase, Todo};

/// Between two tries to connect, unless the server has answered something since.
const PAUSE: Duration = Duration::from_secs(1);
/// Between two tries if it has.
const SHORT_PAUSE: Duration = Duration::from_millis(20);
/// How long one try may take.
const LONGEST_TRY: Duration = Duration::from_secs(30);

/// The number of the next connection.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// A number that no other connection has.
pub(crate) fn next_id() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// How long a connection and its handshake may take.
pub(crate) fn longest_try(reconnect: Duration) -> Duration {
    reconnect.clamp(PAUSE, LONGEST_TRY)
}

/// The first thread, with the connection that was made when the store was opened.
pub(crate) fn first(shared: &Shared, connection: Arc<Connection>) {
    let mut current = Some(connection);
    let mut last_try = Instant::now();
    while let Some(connection) = current.take() {
        serve(shared, &connection);
        // Whoever sees it off closes it.
        drop(connection);
        current = reconnect(shared, &mut last_try);
    }
}

/// Any other thread. It tries once after each loss: a server that does not take it
/// is served by fewer.
pub(crate) fn other(shared: &Arc<Shared>, lane: usize) {
    let wake = &shared.wakes[lane];
    let mut tried = None;
    while !wake.is_closed() {
        let epoch = {
            let state = lock(&shared.state);
            matches!(state.phase, Phase::Serving).then_some(state.epoch)
        };
        if epoch.is_none() || epoch == tried {
            if wake.wait(None, None).is_err() {
                return;
            }
            continue;
        }
        tried = epoch;
        let deadline = Instant::now() + longest_try(shared.reconnect);
        let connected = connect(&shared.addresses, &shared.export, wake, deadline);
        let (wire, found) = match connected {
            Ok(connected) => connected,
            Err(error) => {
                tracing::debug!(device = %shared.terms.place, number = lane + 1, %error, "no connection");
                continue;
            }
        };
        let connection = Connection::new(next_id(), lane, found.form, wire);
        if !is_same_server(shared, lane) {
            continue;
        }
        let mut todo = Todo::default();
        {
            let mut state = lock(&shared.state);
            // One that found the export larger would give the store a size that the first connection,
            // over which requests go as well, does not have.
            let fits = found.has(FLAG_CAN_MULTI_CONN)
                && shared.terms.is_as_large(&found)
                && shared.terms.renew(&found).is_ok();
            if !fits || Some(state.epoch) != tried || !matches!(state.phase, Phase::Serving) {
                continue;
            }
            state.joined(Arc::clone(&connection), &mut todo);
        }
        shared.carry_out(todo);
        serve(shared, &connection);
    }
}

/// Whether the server still answers on the connections that there were, after another one was
/// made. If it was restarted in between, a flush on the new one would say nothing of what
/// was written on the old ones.
fn is_same_server(shared: &Arc<Shared>, lane: usize) -> bool {
    if shared.terms.read_only || !shared.terms.has(FLAG_SEND_FLUSH) {
        return true;
    }
    let (completion, submitted) = Submitted::later();
    shared.begin(Operation::new(Work::Flush, 0, 0, Some(completion)));
    let waker = Waker::from(Arc::new(LaneWaker(Arc::clone(shared), lane)));
    let mut submitted = pin!(submitted);
    loop {
        match submitted.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(flushed) => return flushed.result.is_ok(),
            // However long that takes, the thread does what it is asked to.
            Poll::Pending => {
                let wake = &shared.wakes[lane];
                if wake.wait(None, None).is_err() || wake.is_closed() {
                    return false;
                }
            }
        }
    }
}

/// Wakes the thread of a lane.
struct LaneWaker(Arc<Shared>, usize);

impl Wake for LaneWaker {
    fn wake(self: Arc<Self>) {
        self.0.wakes[self.1].wake();
    }
}

/// Receives until the connection is lost.
fn serve(shared: &Shared, connection: &Arc<Connection>) {
    let mut receiver = Receiver::new();
    let wake = &shared.wakes[connection.lane];
    let trouble = loop {
        if connection.is_dead() {
            return;
        }
        // Without requests there is nothing to hear; those who send some wake nobody.
        let silent_since = connection.silent_since();
        let mut end = silent_since
            .unwrap_or_else(Instant::now)
            .checked_add(shared.silence);
        if let Some(until) = connection.leaves() {
            if !connection.has_requests() || until <= Instant::now() {
                shared.left(connection);
                return;
            }
            end = Some(end.map_or(until, |end| end.min(until)));
        }
        let mut events = PollFlags::IN;
        if connection.is_full() {
            events |= PollFlags::OUT;
        }
        let happened = match wake.wait(Some((connection.wire.socket.as_fd(), events)), end) {
            Ok(happened) => happened,
            Err(error) => break error.into(),
        };
        if !happened.is_empty() {
            connection.hear();
        } else if silent_since.is_some()
            && silent_since == connection.silent_since()
            && silent_since.is_some_and(|since| since.elapsed() >= shared.silence)
        {
            let seconds = shared.silence.as_secs_f64();
            break Trouble::Gone(format!("the server has not answered for {seconds} seconds"));
        }
        if happened.contains(PollFlags::OUT) {
            connection.has_room();
            shared.send(connection);
        }
        if happened.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR)
            && let Err(trouble) = receiver.receive(shared, connection)
        {
            break trouble;
        }
    };
    match trouble {
        Trouble::Dead => {}
        trouble => shared.lost(connection, trouble),
    }
}

/// When the next try may begin, and when it must have ended.
struct Try {
    from: Instant,
    until: Instant,
}

/// A new first connection, however long it takes; [`None`] if there will be none.
fn reconnect(shared: &Shared, last_try: &mut Instant) -> Option<Arc<Connection>> {
    let wake = &shared.wakes[0];
    loop {
        let planned = plan(shared, *last_try)?;
        let (from, until) = match planned {
            Some(Try { from, until }) => (Some(from), until),
            None => (None, Instant::now()),
        };
        if from.is_none_or(|from| from > Instant::now()) {
            let end = from.map(|from| from.min(until));
            wake.wait(None, end).ok()?;
            continue;
        }
        let (successor, ending) = {
            let mut state = lock(&shared.state);
            // Others are still to be answered.
            if state.leaves().is_some() {
                continue;
            }
            *last_try = Instant::now();
            (state.has_answered, state.demand) = (false, false);
            (state.take_successor(), std::mem::take(&mut state.ending))
        };
        let half = Instant::now() + until.saturating_duration_since(Instant::now()) / 2;
        for connection in ending {
            connection.see_off(wake, half);
        }
        let connected = match successor {
            Some(successor) => Ok(successor),
            None => connect(&shared.addresses, &shared.export, wake, until)
                .map(|(wire, found)| (Connection::new(next_id(), 0, found.form, wire), found)),
        };
        let (connection, found) = match connected {
            Ok(connected) => connected,
            Err(error) => {
                let mut todo = Todo::default();
                let mut state = lock(&shared.state);
                state.why = error.to_string();
                if error.is_violation() {
                    shared.violated(&mut state, &error.to_string(), &mut todo);
                }
                drop(state);
                shared.carry_out(todo);
                continue;
            }
        };
        let mut todo = Todo::default();
        let renewed = {
            let mut state = lock(&shared.state);
            if matches!(state.phase, Phase::Closed(_)) {
                return None;
            }
            let renewed = shared.terms.renew(&found);
            match &renewed {
                Ok(()) => state.connected(Arc::clone(&connection), &mut todo),
                Err(why) => state.close(why.clone(), &mut todo),
            }
            renewed
        };
        shared.carry_out(todo);
        match renewed {
            Ok(()) => {
                tracing::info!(device = %shared.terms.place, "connected again");
                return Some(connection);
            }
            Err(_) => return None,
        }
    }
}

/// When to try next; [`None`] inside if nobody asks for it, and outside if never again. Gives up on
/// what waits when that was long enough.
fn plan(shared: &Shared, last_try: Instant) -> Option<Option<Try>> {
    let mut todo = Todo::default();
    let mut state = lock(&shared.state);
    let now = Instant::now();
    // Whoever receives the last answer wakes this thread, and gives up what comes too late.
    if let Some(from) = state.leaves() {
        if now < from {
            return Some(Some(Try { from, until: from }));
        }
        let why = state.why.clone();
        state.lost(why);
    }
    let patience = shared.patience(&state);
    let from = match state.has_answered {
        _ if state.has_successor() => now,
        true => last_try + SHORT_PAUSE,
        false => last_try + PAUSE,
    };
    let until = now + longest_try(patience);
    let planned = match state.phase {
        _ if shared.wakes[0].is_closed() => None,
        Phase::Closed(_) => None,
        Phase::Down(_) => Some(state.demand.then_some(Try { from, until })),
        Phase::Serving | Phase::Asking | Phase::Replaying(_) | Phase::Lost => {
            let lost = state.lost_since.unwrap_or(now);
            let end = lost + patience;
            if now < end {
                let until = until.min(end);
                Some(Some(Try { from, until }))
            } else if last_try < state.lost_at.unwrap_or(lost) {
                // This thread may have been late, and the server has refused nothing.
                Some(Some(Try { from, until }))
            } else {
                let seconds = patience.as_secs_f64();
                let why = format!("no connection for {seconds} seconds: {}", state.why);
                state.fail_all(Phase::Down(why.clone()), &why, &mut todo);
                Some(None)
            }
        }
    };
    drop(state);
    shared.carry_out(todo);
    planned
}
