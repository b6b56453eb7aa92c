//! Reads: at once where nothing need be waited for, by workers where not, and
//! in the connection's own memory where there is none for workers.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use xtent_store::PAGE;
use xtent_volume::Error as VolumeError;

use super::{BATCH_ALIGN, Connection};
use crate::nbd::errno;
use crate::nbd::link::{MAX_GATHER, Message, PiecesLeft};
use crate::nbd::port::Closed;
use crate::nbd::proto::{self, Head};
use crate::nbd::worker::{Reply, Task, error_offset, payload_len};

impl Connection<'_> {
    /// A read that fits into the batch.
    pub(super) fn read(&mut self, reply: Reply, offset: u64, len: usize) -> Result<(), Closed> {
        if self.batch.used + len > self.batch.data.len() || self.batch.replies.len() == MAX_GATHER {
            self.flush()?;
        }
        let range = self.batch.used..self.batch.used + len;
        let place = &mut self.batch.data[range.clone()];
        let result = match self.volume.try_read_at(place, offset) {
            Ok(true) => Ok(()),
            Ok(false) => {
                if let Some(buffer) = self.shared.memory.take(len) {
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
    pub(super) fn read_in_pieces(
        &mut self,
        reply: Reply,
        offset: u64,
        len: usize,
    ) -> Result<(), Closed> {
        self.flush()?;
        // From the first piece on that a worker gets.
        let mut left: Option<Arc<PiecesLeft>> = None;
        let mut pieces = pieces(offset, len, self.shared.piece);
        while let Some((offset, range)) = pieces.next() {
            let remaining = pieces.len() + 1;
            let piece = &mut self.batch.data[..range.len()];
            let result = match self.volume.try_read_at(piece, offset) {
                Ok(true) => Ok(()),
                Ok(false) => match self.shared.memory.take(range.len()) {
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
                    reply.report("read", &error),
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
    pub(super) fn read_whole(
        &mut self,
        reply: Reply,
        offset: u64,
        len: usize,
    ) -> Result<(), Closed> {
        let Some(mut buffer) = self.shared.memory.take(len) else {
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
                    reply.report("read", &error),
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
