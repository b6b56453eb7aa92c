//! One connection: its thread receives many requests at a time, serves at
//! once what need not wait, and sends the replies together. What would wait
//! for a disk goes to the workers.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use xtent_volume::{Error as VolumeError, Volume};

use super::errno;
use super::input::Input;
use super::link::{Link, MAX_GATHER, Message, PiecesLeft};
use super::memory::{Aligned, PAGE, Pool};
use super::port::{Closed, For, Port, Timeouts};
use super::proto::constants::REQUEST_LEN;
use super::proto::{
    self, Command, ExportInfo, Handshake, Head, Progress, Refusal, Request, Session,
};
use super::shutdown::Shutdown;
use super::worker::{Job, Queue, Reply, Task, error_offset, payload_len, report};

/// Requests of one connection in flight; more are left in the socket.
const MAX_IN_FLIGHT: usize = 256;
/// A write up to this size is waited for whole; a larger one is written piece
/// by piece as it comes.
const SMALL_WRITE: usize = 64 << 10;
/// Bytes of a large write that are worth a call of the volume.
const WORTH_WRITING: usize = 128 << 10;
/// Payload that the receive buffer takes.
const INPUT_PAYLOAD: usize = 256 << 10;
/// Where the data of a reply begins in the batch: a multiple of this.
const BATCH_ALIGN: usize = 512;

const IN_PAYLOAD: &str = "within the data of a write";

/// What all connections share.
pub(super) struct Shared {
    pub(super) volumes: Vec<Arc<Volume>>,
    pub(super) exports: Vec<ExportInfo>,
    pub(super) pool: Arc<Pool>,
    pub(super) queue: Queue,
    pub(super) shutdown: Shutdown,
    /// Bytes of a read that are decrypted and sent at a time.
    pub(super) piece: usize,
    pub(super) timeouts: Timeouts,
}

/// Bytes that every connection has for itself.
pub(super) const fn footprint(piece: usize) -> usize {
    Input::footprint(INPUT_PAYLOAD) + Aligned::footprint(piece)
}

/// Serves one client until it leaves or the server stops; why it ended.
pub(super) fn serve(shared: &Shared, link: &Arc<Link>) -> Closed {
    let mut port = Port::new(Arc::clone(link), shared.shutdown.clone(), shared.timeouts);
    let mut input = Input::new(INPUT_PAYLOAD);
    let closed = match handshake(shared, &mut port, &mut input) {
        Ok(session) => {
            port.begin_transmission();
            let mut connection = Connection {
                shared,
                volume: &shared.volumes[session.export],
                session,
                port,
                input,
                batch: Batch::new(shared.piece),
                quota: None,
            };
            let Err(closed) = connection.transmission();
            port = connection.port;
            closed
        }
        Err(closed) => closed,
    };
    port.finish();
    closed
}

fn handshake(shared: &Shared, port: &mut Port, input: &mut Input) -> Result<Session, Closed> {
    let mut handshake = Handshake::new(&shared.exports);
    loop {
        if port.check_stop() {
            handshake.shut_down();
        }
        let (used, progress) = handshake.step(input.bytes());
        input.consume(used);
        let output = handshake.take_output();
        if !output.is_empty() {
            let (mut turn, ()) = port.take_turn(|| ())?;
            turn.send(port, &mut [IoSlice::new(&output)])?;
        }
        match progress {
            Progress::Transmission(session) => return Ok(session),
            Progress::Close(reason) => return Err(Closed::Handshake(reason)),
            Progress::Continue if used > 0 => {}
            Progress::Continue => {
                if port.expired() {
                    return Err(Closed::TimedOut("handshake"));
                }
                let received = port.receive(input.room_for_messages(), "in the handshake")?;
                input.received(received);
            }
        }
    }
}

/// Replies that go out together.
struct Batch {
    data: Aligned,
    used: usize,
    replies: Vec<(Head, Range<usize>)>,
}

impl Batch {
    fn new(len: usize) -> Self {
        Self {
            data: Aligned::new(len),
            used: 0,
            replies: Vec::with_capacity(MAX_GATHER),
        }
    }
}

struct Connection<'a> {
    shared: &'a Shared,
    volume: &'a Arc<Volume>,
    session: Session,
    port: Port,
    input: Input,
    batch: Batch,
    /// Once the server stops: bytes that had been received by then and are
    /// still served.
    quota: Option<u64>,
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
            }
            self.flush()?;
            self.receive()?;
        }
    }

    /// Parses what is there; a header is consumed with its request.
    fn next(&mut self) -> Result<Next, Closed> {
        if self.port.check_stop() {
            let received = self.input.bytes().len() as u64;
            let port = &self.port;
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

    /// Receives more messages, when the number in flight allows.
    fn receive(&mut self) -> Result<(), Closed> {
        loop {
            let mut outbox = self.port.link.outbox();
            let full = outbox.in_flight() >= MAX_IN_FLIGHT;
            outbox.set_notify(full);
            drop(outbox);
            if full {
                self.port.wait(For::Jobs)?;
                continue;
            }
            let place = match self.input.bytes().is_empty() {
                true => "between requests",
                false => "within a request",
            };
            match self
                .port
                .try_receive(self.input.room_for_messages(), place)?
            {
                Some(received) => {
                    self.input.received(received);
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

    fn serve(&mut self, request: Request) -> Result<(), Closed> {
        let reply = Reply {
            cookie: request.cookie,
            structured: self.session.structured_replies,
        };
        let command = match request.check(&self.session) {
            Ok(Ok(command)) => command,
            Ok(Err(refusal)) => return self.refuse(reply, &refusal),
            Err(error) => {
                self.flush()?;
                return Err(Closed::Protocol(error));
            }
        };
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
                if len <= self.shared.piece {
                    self.read(reply, offset, len)
                } else if whole || !reply.structured {
                    self.read_whole(reply, offset, len)
                } else {
                    self.read_in_pieces(reply, offset, len)
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
            Command::Cache { offset, len } => match self.shared.pool.take(self.shared.piece) {
                Some(buffer) => {
                    let len = u64::from(len);
                    self.hand_over(
                        reply,
                        Task::Cache {
                            offset,
                            len,
                            buffer,
                        },
                    )
                }
                // Only a hint, and memory is short.
                None => self.answer(reply.success()),
            },
            Command::BlockStatus { len } => self.answer(proto::block_status(reply.cookie, len)),
            Command::Disconnect => {
                self.flush()?;
                Err(Closed::Disconnect)
            }
        }
    }

    fn refuse(&mut self, reply: Reply, refusal: &Refusal) -> Result<(), Closed> {
        tracing::debug!(reason = refusal.message, "request refused");
        self.drain(refusal.drain as usize)?;
        self.answer(reply.failure(refusal.error, refusal.message))
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
        Ok(())
    }

    fn hand_over(&mut self, reply: Reply, task: Task) -> Result<(), Closed> {
        self.shared
            .queue
            .push(Job::new(&self.port.link, self.volume, reply, task));
        Ok(())
    }

    /// Adds a reply without data to the batch.
    fn answer(&mut self, head: Head) -> Result<(), Closed> {
        if self.batch.replies.len() == MAX_GATHER {
            self.flush()?;
        }
        self.batch.replies.push((head, 0..0));
        Ok(())
    }

    /// Sends the batch.
    fn flush(&mut self) -> Result<(), Closed> {
        if self.batch.replies.is_empty() {
            return Ok(());
        }
        let Batch {
            data,
            used,
            replies,
        } = &mut self.batch;
        let mut slices = Vec::with_capacity(2 * replies.len());
        for (head, range) in replies.iter() {
            slices.push(IoSlice::new(head.as_bytes()));
            if !range.is_empty() {
                slices.push(IoSlice::new(&data[range.clone()]));
            }
        }
        let (mut turn, ()) = self.port.take_turn(|| ())?;
        turn.send(&mut self.port, &mut slices)?;
        drop(turn);
        replies.clear();
        *used = 0;
        Ok(())
    }

    /// A read that fits into the batch.
    fn read(&mut self, reply: Reply, offset: u64, len: usize) -> Result<(), Closed> {
        if self.batch.used + len > self.batch.data.len() || self.batch.replies.len() == MAX_GATHER {
            self.flush()?;
        }
        let range = self.batch.used..self.batch.used + len;
        let place = &mut self.batch.data[range.clone()];
        let result = match self.volume.try_read_at(place, offset) {
            Ok(true) => Ok(()),
            Ok(false) => {
                if let Some(buffer) = self.shared.pool.take(len) {
                    return self.hand_over(
                        reply,
                        Task::Read {
                            offset,
                            buffer,
                            done: 0,
                        },
                    );
                }
                self.flush()?;
                // The batch is empty now, and its memory free.
                return self.read_here(reply, offset, len);
            }
            Err(error) => Err(error),
        };
        self.answer_read(reply, offset, range, result);
        Ok(())
    }

    /// As [`Connection::read`], without memory for a worker, and with the batch empty.
    fn read_here(&mut self, reply: Reply, offset: u64, len: usize) -> Result<(), Closed> {
        let result = self.volume.read_at(&mut self.batch.data[..len], offset);
        self.answer_read(reply, offset, 0..len, result);
        Ok(())
    }

    fn answer_read(
        &mut self,
        reply: Reply,
        offset: u64,
        range: Range<usize>,
        result: Result<(), VolumeError>,
    ) {
        let reply = match result {
            Ok(()) => {
                self.batch.used = range.end.next_multiple_of(BATCH_ALIGN);
                (
                    reply.whole_read(offset, &self.batch.data[range.clone()]),
                    range,
                )
            }
            Err(error) => (reply.volume_failure("read", &error), 0..0),
        };
        self.batch.replies.push(reply);
    }

    /// A large read that is answered in chunks: each piece is read, decrypted
    /// and sent while it is in the cache.
    fn read_in_pieces(&mut self, reply: Reply, offset: u64, len: usize) -> Result<(), Closed> {
        self.flush()?;
        // From the first piece on that a worker gets.
        let mut left: Option<Arc<PiecesLeft>> = None;
        let mut pieces = pieces(offset, len, self.shared.piece);
        while let Some((offset, range)) = pieces.next() {
            let remaining = pieces.len() + 1;
            let piece = &mut self.batch.data[..range.len()];
            let result = match self.volume.try_read_at(piece, offset) {
                Ok(true) => Ok(()),
                Ok(false) => match self.shared.pool.take(range.len()) {
                    Some(buffer) => {
                        let left = left.get_or_insert_with(|| Arc::new(PiecesLeft::new(remaining)));
                        let left = Arc::clone(left);
                        self.hand_over(
                            reply,
                            Task::ReadPiece {
                                offset,
                                buffer,
                                left,
                            },
                        )?;
                        continue;
                    }
                    None => self.volume.read_at(piece, offset),
                },
                Err(error) => Err(error),
            };
            let failure = result.err().map(|error| {
                (
                    report("read", &error),
                    error_offset(&error, offset, range.len()),
                )
            });
            let head = |last| match failure {
                None => proto::offset_data(reply.cookie, offset, payload_len(range.len()), last),
                Some((error, at)) => {
                    proto::error_at(reply.cookie, error, at, errno::message(error), last)
                }
            };
            let (mut turn, head) = self.port.take_turn(|| {
                head(match &left {
                    Some(left) => left.answer_one(),
                    None => remaining == 1,
                })
            })?;
            let data = if failure.is_none() { range.len() } else { 0 };
            let data = &self.batch.data[..data];
            turn.send(
                &mut self.port,
                &mut [IoSlice::new(head.as_bytes()), IoSlice::new(data)],
            )?;
        }
        Ok(())
    }

    /// A large read whose reply has to be in one piece, so that an error must
    /// be known before it begins.
    fn read_whole(&mut self, reply: Reply, offset: u64, len: usize) -> Result<(), Closed> {
        let Some(mut buffer) = self.shared.pool.take(len) else {
            self.flush()?;
            return self.read_whole_here(reply, offset, len);
        };
        for (offset_here, range) in pieces(offset, len, self.shared.piece) {
            let done = range.start;
            match self.volume.try_read_at(&mut buffer[range], offset_here) {
                Ok(true) => {}
                Ok(false) => {
                    return self.hand_over(
                        reply,
                        Task::Read {
                            offset,
                            buffer,
                            done,
                        },
                    );
                }
                Err(error) => return self.answer(reply.volume_failure("read", &error)),
            }
        }
        self.flush()?;
        let head = reply.whole_read(offset, &buffer);
        self.port.link.reply(|| Message::with_data(head, buffer));
        Ok(())
    }

    /// As [`Connection::read_whole`], without memory for it: what is read is
    /// sent at once, and an error comes late. Structured replies allow that;
    /// after the beginning of a simple one the connection has to end.
    fn read_whole_here(&mut self, reply: Reply, offset: u64, len: usize) -> Result<(), Closed> {
        let mut turn = None;
        let mut failure = None;
        for (offset_here, range) in pieces(offset, len, self.shared.piece) {
            let piece = &mut self.batch.data[..range.len()];
            if failure.is_none()
                && let Err(error) = self.volume.read_at(piece, offset_here)
            {
                if turn.is_none() {
                    return self.answer(reply.volume_failure("read", &error));
                }
                failure = Some((
                    report("read", &error),
                    error_offset(&error, offset_here, range.len()),
                ));
                if !reply.structured {
                    self.port.link.break_off();
                    return Err(Closed::ReadFailed);
                }
            }
            if failure.is_some() {
                piece.fill(0);
            }
            let head = match turn {
                None if reply.structured => {
                    proto::offset_data(reply.cookie, offset, payload_len(len), false)
                }
                None => reply.success(),
                Some(_) => Head::empty(),
            };
            let turn = match &mut turn {
                Some(turn) => turn,
                none => none.insert(self.port.take_turn(|| ())?.0),
            };
            turn.send(
                &mut self.port,
                &mut [IoSlice::new(head.as_bytes()), IoSlice::new(piece)],
            )?;
        }
        drop(turn);
        match failure {
            Some((error, at)) => self.answer(proto::error_at(
                reply.cookie,
                error,
                at,
                errno::message(error),
                true,
            )),
            None if reply.structured => self.answer(proto::no_data_reply(reply.cookie)),
            None => Ok(()),
        }
    }

    fn write(&mut self, reply: Reply, offset: u64, len: usize, fua: bool) -> Result<(), Closed> {
        if fua && len > 0 {
            return match self.write_by_worker(reply, offset, len, true)? {
                true => Ok(()),
                false => self.write_here(reply, offset, len, true),
            };
        }
        self.write_here(reply, offset, len, false)
    }

    /// Receives the payload into a buffer of its own for a worker; false if
    /// there is no memory.
    fn write_by_worker(
        &mut self,
        reply: Reply,
        offset: u64,
        len: usize,
        fua: bool,
    ) -> Result<bool, Closed> {
        let Some(mut buffer) = self.shared.pool.take(len) else {
            return Ok(false);
        };
        let here = self.input.bytes().len().min(len);
        buffer[..here].copy_from_slice(&self.input.bytes()[..here]);
        self.input.consume(here);
        if here < len {
            self.flush()?;
            self.port.receive_all(&mut buffer[here..], IN_PAYLOAD)?;
        }
        self.hand_over(
            reply,
            Task::Write {
                offset,
                buffer,
                fua,
            },
        )?;
        Ok(true)
    }

    /// Writes from the receive buffer, as the payload comes.
    fn write_here(
        &mut self,
        reply: Reply,
        mut offset: u64,
        mut left: usize,
        fua: bool,
    ) -> Result<(), Closed> {
        while left > 0 {
            let here = self.input.bytes().len().min(left);
            let take = if here == left {
                here
            } else if here >= WORTH_WRITING {
                // Up to a page boundary of the volume, so up to a sector's.
                #[expect(clippy::cast_possible_truncation, reason = "less than a page")]
                let beyond = ((offset + here as u64) % PAGE as u64) as usize;
                here - beyond
            } else {
                self.receive_payload(offset, left - here)?;
                continue;
            };
            let volume = self.volume;
            let data = self.input.front_mut(take);
            let result = match fua {
                true => Ok(false),
                false => volume.try_write_at_in_place(data, offset),
            };
            let result = match result {
                Ok(true) => Ok(()),
                Ok(false) if !fua && self.write_by_worker(reply, offset, left, false)? => {
                    return Ok(());
                }
                Ok(false) => {
                    self.flush()?;
                    volume.write_at_in_place(self.input.front_mut(take), offset, fua)
                }
                Err(error) => Err(error),
            };
            if let Err(error) = result {
                let head = reply.volume_failure("write", &error);
                self.drain(left)?;
                return self.answer(head);
            }
            self.input.consume(take);
            offset += take as u64;
            left -= take;
        }
        self.answer(reply.success())
    }
}

/// Cuts a range at multiples of a page of the volume into pieces of at most
/// `piece` bytes: the offset of each, and where it lies in the data.
fn pieces(
    offset: u64,
    len: usize,
    piece: usize,
) -> impl ExactSizeIterator<Item = (u64, Range<usize>)> {
    #[expect(clippy::cast_possible_truncation, reason = "less than a page")]
    let skew = (offset % PAGE as u64) as usize;
    (0..(skew + len).div_ceil(piece)).map(move |index| {
        let start = (index * piece).saturating_sub(skew);
        let end = ((index + 1) * piece - skew).min(len);
        (offset + start as u64, start..end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_cover_the_range_in_order(offset in 0_u64..1 << 40, len in 1_usize..1 << 22) {
            let piece = 1 << 17;
            let (mut at, mut count) = (0, 0);
            let all = pieces(offset, len, piece);
            let announced = all.len();
            for (place, range) in all {
                prop_assert_eq!(range.start, at);
                prop_assert_eq!(place, offset + at as u64);
                prop_assert!(!range.is_empty() && range.len() <= piece);
                at = range.end;
                prop_assert!(at == len || (offset + at as u64).is_multiple_of(PAGE as u64));
                count += 1;
            }
            prop_assert_eq!((at, count), (len, announced));
        }
    }
}
