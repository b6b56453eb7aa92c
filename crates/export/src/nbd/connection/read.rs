//! Reads, by two routes: small ones are answered together with others; large ones go
//! piece by piece to a [`Sink`]. Either is done at once where nothing need be waited for, as
//! a job where something must be, and here where there is no memory for a job.

use std::ops::Range;
use std::sync::Arc;

use xtent_store::{Buffer, PAGE};
use xtent_volume::RequestKind;

use super::sink::{Piece, Sink};
use super::{Connection, REPLY_ALIGN};
use crate::nbd::job::{Reply, Task};
use crate::nbd::link::{MAX_GATHER, PiecesLeft};
use crate::nbd::port::Closed;

impl Connection<'_> {
    /// A read whose data fits beside those of the other replies.
    pub(super) fn read(&mut self, reply: Reply, offset: u64, len: usize) -> Result<(), Closed> {
        if self.replies.used + len > self.replies.data.len()
            || self.replies.waiting.len() == MAX_GATHER
        {
            self.flush()?;
        }
        let mut range = self.replies.used..self.replies.used + len;
        let place = &mut self.replies.data[range.clone()];
        let result = match self.volume.try_read_at(place, offset) {
            Ok(true) => Ok(()),
            Ok(false) => {
                if let Some(buffer) = self.memory_for(offset, len) {
                    return self.read_later(reply, offset, len, buffer, None);
                }
                self.flush()?;
                // There are no replies any more, and their memory is free.
                range = 0..len;
                self.volume.read_at(&mut self.replies.data[..len], offset)
            }
            Err(error) => Err(error),
        };
        let answer = match result {
            Ok(()) => {
                self.replies.used = range.end.next_multiple_of(REPLY_ALIGN);
                (reply.whole_read(offset, len), range)
            }
            Err(error) => {
                self.end_if_fenced(reply, RequestKind::Read, &error)?;
                let head =
                    reply.volume_failure(self.served, self.volume, RequestKind::Read, &error);
                (head, 0..0)
            }
        };
        self.replies.waiting.push(answer);
        Ok(())
    }

    /// A large read: each piece is read, decrypted and passed on while it is in the cache, unless
    /// the store would rather read all of it, or an engine decrypts it.
    pub(super) fn read_in_pieces(
        &mut self,
        reply: Reply,
        offset: u64,
        len: usize,
        whole: bool,
    ) -> Result<(), Closed> {
        self.flush()?;
        if self.volume.prefers_long_read(len)
            && let Some(buffer) = self.memory_for(offset, len)
        {
            return self.read_later(reply, offset, len, buffer, None);
        }
        let mut sink = Sink::new(self, reply, offset, len, whole);
        let mut pieces = pieces(offset, len, self.piece);
        while let Some((at, range)) = pieces.next() {
            let place = match &mut sink {
                Sink::Whole { buffer, skip, .. } => &mut buffer[*skip..][range.clone()],
                Sink::Chunks { .. } | Sink::Stream { .. } => &mut self.replies.data[..range.len()],
            };
            let mut result = self.volume.try_read_at(place, at);
            if matches!(result, Ok(false)) {
                match &mut sink {
                    // Its reply is in one piece, so all of it waits.
                    Sink::Whole { .. } => {
                        return match sink.into_buffer() {
                            Some(buffer) => self.read_later(reply, offset, len, buffer, None),
                            None => Ok(()),
                        };
                    }
                    Sink::Chunks { left } => {
                        if let Some(buffer) = self.memory_for(at, range.len()) {
                            let remaining = pieces.len() + 1;
                            let left = left.get_or_insert_with(|| PiecesLeft::new(remaining));
                            let left = Some(Arc::clone(left));
                            self.read_later(reply, at, range.len(), buffer, left)?;
                            continue;
                        }
                    }
                    Sink::Stream { .. } => {}
                }
                let place = &mut self.replies.data[..range.len()];
                result = self.volume.read_at(place, at).map(|()| true);
            }
            let piece = Piece {
                offset: at,
                len: range.len(),
                is_last: pieces.len() == 0,
            };
            sink.put(self, reply, &piece, result.map(|_| ()))?;
        }
        sink.end(self, reply, offset, len)
    }

    /// Memory for a job's read, if there is some.
    pub(super) fn memory_for(&self, offset: u64, len: usize) -> Option<Buffer> {
        self.served.memory.take(self.volume.hull(offset, len).len)
    }

    fn read_later(
        &mut self,
        reply: Reply,
        offset: u64,
        len: usize,
        buffer: Buffer,
        left: Option<Arc<PiecesLeft>>,
    ) -> Result<(), Closed> {
        let task = Task::Read {
            offset,
            len,
            buffer,
            left,
        };
        self.hand_over(reply, task)
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
