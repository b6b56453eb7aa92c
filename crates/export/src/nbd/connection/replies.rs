//! The replies of a connection's thread, which go out together, and what of them counts.

use std::io::IoSlice;
use std::ops::Range;

use xtent_store::AlignedBuffer;
use xtent_volume::{Phase, RequestKind, Watch};

use super::Connection;
use crate::nbd::link::MAX_GATHER;
use crate::nbd::port::Closed;
use crate::nbd::proto::Head;

/// Replies that go out together.
pub(super) struct Replies {
    pub(super) data: AlignedBuffer,
    pub(super) used: usize,
    pub(super) waiting: Vec<(Head, Range<usize>)>,
}

impl Replies {
    pub(super) fn new(len: usize) -> Option<Self> {
        Some(Self {
            data: AlignedBuffer::zeroed(len).ok()?,
            used: 0,
            waiting: Vec::new(),
        })
    }
}

impl Connection<'_> {
    /// Adds a reply without data to those that go out together.
    pub(super) fn answer(&mut self, head: Head) -> Result<(), Closed> {
        if self.replies.waiting.len() == MAX_GATHER {
            self.flush()?;
        }
        self.replies.waiting.push((head, 0..0));
        Ok(())
    }

    /// Sends the replies, and counts what was answered.
    pub(super) fn flush(&mut self) -> Result<(), Closed> {
        if !self.replies.waiting.is_empty() {
            let mut watch = Watch::of_some(self.volume.metrics());
            self.send_replies()?;
            watch.lap(Phase::Socket);
        }
        self.count_answered();
        Ok(())
    }

    pub(super) fn count_answered(&mut self) {
        let metrics = self.volume.metrics();
        let timed = self.since.map(|since| since.elapsed());
        for kind in RequestKind::ALL {
            let asked = std::mem::take(&mut self.asked[kind as usize]);
            if asked > 0 {
                metrics.asked(kind, asked);
            }
            let answered = std::mem::take(&mut self.answered[kind as usize]);
            if answered > 0 {
                let latency = &mut self.latency[kind as usize];
                *latency = timed.or(*latency);
                metrics.answered(kind, answered, latency.unwrap_or_default());
            }
        }
    }

    fn send_replies(&mut self) -> Result<(), Closed> {
        let Replies {
            data,
            used,
            waiting,
        } = &mut self.replies;
        let mut slices = Vec::with_capacity(2 * waiting.len());
        for (head, range) in waiting.iter() {
            slices.push(IoSlice::new(head.as_bytes()));
            if !range.is_empty() {
                slices.push(IoSlice::new(&data[range.clone()]));
            }
        }
        let (mut turn, ()) = self.port.take_turn(|| ())?;
        turn.send(self.port, &mut slices)?;
        drop(turn);
        waiting.clear();
        *used = 0;
        Ok(())
    }
}
