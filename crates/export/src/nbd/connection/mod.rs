//! One connection: its thread receives many requests at a time, serves at
//! once what need not wait, and sends the replies together. What would wait
//! for a disk or a server goes to the executor.

mod command;
mod handshake;
mod read;
mod replies;
mod sink;
mod write;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use xtent_store::AlignedBuffer;
use xtent_volume::{Phase, RequestKind, Volume, Watch, now_and_then};

use crate::Shutdown;
use crate::nbd::exports::{Exports, Served, Visit};
use crate::nbd::input::Input;
use crate::nbd::link::Link;
use crate::nbd::peer::Client;
use crate::nbd::port::{Closed, For, Port, Timeouts};
use crate::nbd::proto::constants::REQUEST_LEN;
use crate::nbd::proto::{Request, Session};
use crate::nbd::shutdown::Ending;
use crate::nbd::tls::Tls;

use handshake::handshake;
use replies::Replies;

/// Requests of one connection in flight; more wait where they were received, or
/// in the socket.
pub(super) const MAX_IN_FLIGHT: usize = 256;
/// A write up to this size is waited for whole; a larger one is written piece
/// by piece as it comes.
const SMALL_WRITE: usize = 64 << 10;
/// Bytes of a large write that are worth a call of the volume.
const WORTH_WRITING: usize = 128 << 10;
/// Payload that the receive buffer takes.
const INPUT_PAYLOAD: usize = 256 << 10;
/// Where the data of a reply begins in those that go out together: a multiple of this.
const REPLY_ALIGN: usize = 512;

const IN_PAYLOAD: &str = "within the data of a write";

/// Bounds on the pieces in which large reads are sent.
const SMALLEST_PIECE: usize = 64 << 10;
const LARGEST_PIECE: usize = 256 << 10;

/// Bytes that every connection has for itself.
pub(super) const fn footprint(tls: bool) -> usize {
    let records = match tls {
        true => xtent_tls::FOOTPRINT,
        false => 0,
    };
    Input::footprint(INPUT_PAYLOAD) + AlignedBuffer::footprint(LARGEST_PIECE) + records
}

/// What all connections share.
pub(super) struct Shared {
    pub(super) exports: Exports,
    pub(super) tls: Option<Tls>,
    /// Threads of each export for requests that wait.
    pub(super) workers: usize,
    pub(super) shutdown: Shutdown,
    pub(super) timeouts: Timeouts,
}

/// What a client has asked for, for the log.
#[derive(Default)]
struct Totals {
    /// The export that it has chosen.
    export: Option<String>,
    requests: u64,
    /// Bytes read.
    read: u64,
    /// Bytes written.
    written: u64,
}

/// Serves one client until it leaves or the server stops.
pub(super) fn serve(shared: &Shared, link: &Arc<Link>) {
    let Client { id, peer } = link.client;
    tracing::info!(client = id, %peer, "connection opened");
    let mut totals = Totals::default();
    let reason = serve_until_closed(shared, link, &mut totals);
    let Totals {
        export,
        requests,
        read,
        written,
    } = totals;
    tracing::info!(client = id, %peer, export, %reason, requests, read, written, "connection closed");
}

/// Why it ended.
fn serve_until_closed(shared: &Shared, link: &Arc<Link>, totals: &mut Totals) -> Closed {
    let ending = Ending::of_server(&shared.shutdown);
    let mut port = Port::new(Arc::clone(link), ending, shared.timeouts);
    let Some(mut input) = Input::new(INPUT_PAYLOAD) else {
        return Closed::NoMemory;
    };
    let closed = match handshake(shared, &mut port, &mut input) {
        Ok((session, visit)) => {
            port.begin_transmission();
            link.has_session.store(true, Ordering::Relaxed);
            totals.export = Some(visit.served().name.clone());
            let closed = visit_export(shared, session, &visit, (&mut port, input), totals);
            port.finish();
            // From here on nothing of the connection is at the volume.
            drop(visit);
            return closed;
        }
        Err(closed) => closed,
    };
    port.finish();
    closed
}

fn visit_export(
    shared: &Shared,
    session: Session,
    visit: &Visit,
    (port, input): (&mut Port, Input),
    totals: &mut Totals,
) -> Closed {
    let Some(volume) = visit.volume() else {
        return Closed::Stopping;
    };
    let piece = volume.preferred_piece();
    let piece = piece.clamp(SMALLEST_PIECE, LARGEST_PIECE);
    let Some(replies) = Replies::new(piece) else {
        return Closed::NoMemory;
    };
    let mut connection = Connection {
        shared,
        served: visit.served(),
        volume: &volume,
        piece,
        session,
        port,
        input,
        replies,
        is_full: false,
        quota: None,
        since: None,
        latency: [None; RequestKind::ALL.len()],
        waits: false,
        asked: [0; RequestKind::ALL.len()],
        answered: [0; RequestKind::ALL.len()],
        totals,
    };
    let Err(closed) = connection.transmission();
    closed
}

struct Connection<'a> {
    shared: &'a Shared,
    served: &'a Arc<Served>,
    volume: &'a Arc<Volume>,
    /// Bytes of a read that are decrypted and sent at a time.
    piece: usize,
    session: Session,
    port: &'a mut Port,
    input: Input,
    replies: Replies,
    /// The last request was as much as may be in flight.
    is_full: bool,
    /// Once the server stops: bytes that had been received by then and are
    /// still served.
    quota: Option<u64>,
    /// When something was last received, if that was timed: to read the clock costs as much as all
    /// else that is counted of a small request.
    since: Option<Instant>,
    /// From then until the answer, the last time that it was timed; by kind. The requests between count
    /// as that one.
    latency: [Option<Duration>; RequestKind::ALL.len()],
    /// The request that is being served has become a job, or some of it.
    waits: bool,
    /// Bytes asked for, and requests served here, that are not counted yet; by kind.
    asked: [u64; RequestKind::ALL.len()],
    answered: [u64; RequestKind::ALL.len()],
    totals: &'a mut Totals,
}

/// What the next bytes are.
enum Next {
    /// A whole request, or a large write whose header is there.
    Request(Request),
    /// Not enough of it.
    Incomplete,
}

impl Connection<'_> {
    fn transmission(&mut self) -> Result<std::convert::Infallible, Closed> {
        loop {
            while let Next::Request(request) = self.next()? {
                self.serve(request)?;
                if self.is_full {
                    self.flush()?;
                    self.wait_for_jobs()?;
                }
            }
            self.flush()?;
            self.receive()?;
        }
    }

    /// Parses what is there; a header is consumed with its request.
    fn next(&mut self) -> Result<Next, Closed> {
        if self.port.check_stop() {
            let received = self.input.bytes().len() as u64;
            let port = &*self.port;
            let quota = *self
                .quota
                .get_or_insert_with(|| received + port.pending_input());
            if quota == 0 {
                self.flush()?;
                return Err(Closed::Stopping);
            }
        }
        let Some((header, payload)) = self.input.bytes().split_first_chunk::<REQUEST_LEN>() else {
            return Ok(Next::Incomplete);
        };
        let request = match Request::parse(header) {
            Ok(request) => request,
            Err(error) => {
                self.flush()?;
                return Err(Closed::Protocol(error));
            }
        };
        let wanted = request.payload_len();
        if payload.len() < wanted && wanted <= SMALL_WRITE {
            return Ok(Next::Incomplete);
        }
        self.input.consume(REQUEST_LEN);
        if let Some(quota) = &mut self.quota {
            *quota = quota.saturating_sub((REQUEST_LEN + wanted) as u64);
        }
        Ok(Next::Request(request))
    }

    /// Waits until the number in flight allows more.
    fn wait_for_jobs(&mut self) -> Result<(), Closed> {
        self.is_full = false;
        loop {
            let mut outbox = self.port.link.outbox();
            let full = outbox.in_flight() >= MAX_IN_FLIGHT;
            outbox.set_notify(full);
            drop(outbox);
            if !full {
                return Ok(());
            }
            self.port.wait(For::Jobs)?;
        }
    }

    /// Receives more messages, when the number in flight allows.
    fn receive(&mut self) -> Result<(), Closed> {
        loop {
            self.wait_for_jobs()?;
            let place = match self.input.bytes().is_empty() {
                true => "between requests",
                false => "within a request",
            };
            let mut watch = Watch::of_some(self.volume.metrics());
            match self
                .port
                .try_receive(self.input.room_for_messages(), place)?
            {
                Some(received) => {
                    watch.lap(Phase::Socket);
                    self.input.received(received);
                    self.since = now_and_then();
                    return Ok(());
                }
                None if self.quota.is_some() && self.input.bytes().is_empty() => {
                    return Err(Closed::Stopping);
                }
                None => self.port.wait(For::Input)?,
            }
            if self.port.check_stop() {
                // Back to where it is decided what is still served.
                return Ok(());
            }
        }
    }

    /// Drops payload.
    fn drain(&mut self, mut left: usize) -> Result<(), Closed> {
        loop {
            let here = self.input.bytes().len().min(left);
            self.input.consume(here);
            left -= here;
            if left == 0 {
                return Ok(());
            }
            self.receive_payload(0, left)?;
        }
    }

    /// Receives up to `more` bytes of payload behind what is there, after
    /// sending the replies that are ready.
    fn receive_payload(&mut self, offset: u64, more: usize) -> Result<(), Closed> {
        self.flush()?;
        let room = self.input.room_for_payload(offset, more);
        let received = self.port.receive(room, IN_PAYLOAD)?;
        self.input.received(received);
        self.since = self.since.map(|_| Instant::now());
        Ok(())
    }
}
