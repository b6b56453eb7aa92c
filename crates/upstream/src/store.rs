//! The store's calls: what is asked is checked here, before the server hears of it.

use std::io;
use std::ops::Range;

use std::sync::{Arc, Mutex};
use xtent_nbd::constants::{FLAG_SEND_FLUSH, FLAG_SEND_FUA, FLAG_SEND_TRIM};
use xtent_store::{
    Act, AlignedBuffer, Buffer, Completed, Error, ErrorKind, Limits, Operation, Store, Submitted,
    block_on,
};

use crate::look::look;
use crate::operation::{self, Work};
use crate::{Upstream, lock};

impl Store for Upstream {
    fn size(&self) -> u64 {
        self.shared.terms.size()
    }

    fn look_at_size(&self) -> Result<u64, Error> {
        look(&self.shared).map_err(|(kind, source)| Error {
            source: Some(source),
            ..Error::new(kind, Act::Look, self.shared.terms.place.clone(), None)
        })?;
        Ok(self.size())
    }

    fn is_read_only(&self) -> bool {
        self.shared.terms.read_only
    }

    fn limits(&self) -> Limits {
        let blocks = self.shared.terms.blocks;
        Limits {
            atomic: blocks.minimum.max(512),
            discard: blocks.preferred,
            block: blocks.minimum,
        }
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), Error> {
        self.check(Act::Read, offset, buf.len() as u64)?;
        let (start, len) = self.whole_blocks(offset, buf.len());
        let within = within(start, offset, buf.len());
        buf.copy_from_slice(&self.read_blocks(start, len)?[within]);
        Ok(())
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<(), Error> {
        self.write_bytes(data, offset, false)
    }

    fn write_at_durably(&self, data: &[u8], offset: u64) -> Result<(), Error> {
        self.write_bytes(data, offset, true)
    }

    fn flush(&self) -> Result<(), Error> {
        block_on(self.submit(Operation::Flush)).result
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.check(Act::Discard, offset, len)?;
        // Partial blocks stay as they are.
        let block = u64::from(self.limits().block);
        let start = offset.next_multiple_of(block);
        let end = (offset + len) & !(block - 1);
        let len = end.saturating_sub(start);
        block_on(self.submit(Operation::Discard {
            offset: if len == 0 { 0 } else { start },
            len,
        }))
        .result
    }

    fn completes_later(&self) -> bool {
        true
    }

    fn submit(&self, operation: Operation) -> Submitted {
        match self.refusal(&operation) {
            Err(error) => Submitted::ended(Completed::new(operation.into_buffer(), Err(error))),
            Ok(true) => self.begin(operation),
            Ok(false) => Submitted::ended(Completed::new(operation.into_buffer(), Ok(()))),
        }
    }
}

impl Upstream {
    fn begin(&self, operation: Operation) -> Submitted {
        let (completion, submitted) = Submitted::later();
        let limit = self.shared.terms.journal;
        let mut room = 0;
        let (work, offset, len) = match operation {
            Operation::Read { buffer, offset } => {
                let len = buffer.len() as u64;
                (Work::Read(Mutex::new(Some(buffer))), offset, len)
            }
            Operation::Write {
                buffer,
                offset,
                durably,
            } => {
                // What the journal cannot keep is not left to it.
                let durably = durably || buffer.len() > limit;
                // Without FUA it is a plain write until it is flushed, and is kept as one.
                if !durably || !self.shared.terms.has(FLAG_SEND_FUA) {
                    room = buffer.len();
                }
                let len = buffer.len() as u64;
                let buffer = Mutex::new(Some(Arc::new(buffer)));
                (Work::Write { buffer, durably }, offset, len)
            }
            Operation::Flush => (Work::Flush, 0, 0),
            Operation::Discard { offset, len } => (Work::Discard, offset, len),
        };
        let mut operation = operation::Operation::new(work, offset, len, Some(completion));
        operation.room = room;
        self.shared.begin(operation);
        submitted
    }

    /// Whether there is anything to do, or why it cannot be done.
    fn refusal(&self, operation: &Operation) -> Result<bool, Error> {
        let (act, offset, len) = match operation {
            Operation::Read { buffer, offset } => (Act::Read, *offset, buffer.len() as u64),
            Operation::Write { buffer, offset, .. } => (Act::Write, *offset, buffer.len() as u64),
            Operation::Flush => return self.has_flush(),
            Operation::Discard { offset, len } => (Act::Discard, *offset, *len),
        };
        self.check(act, offset, len)?;
        if (offset | len) & (u64::from(self.limits().block) - 1) != 0 {
            let text = format!(
                "the server takes whole blocks of {} bytes",
                self.limits().block
            );
            return Err(self.error(ErrorKind::Unsupported, act, Some(offset), Some(text)));
        }
        Ok(len > 0)
    }

    fn has_flush(&self) -> Result<bool, Error> {
        let terms = &self.shared.terms;
        if let Some(why) = lock(&self.shared.state).flush_failure.clone() {
            return Err(self.error(ErrorKind::Io, Act::Flush, None, Some(why)));
        }
        Ok(!terms.read_only && terms.has(FLAG_SEND_FLUSH))
    }

    /// Whether the store allows it at all.
    fn check(&self, act: Act, offset: u64, len: u64) -> Result<(), Error> {
        let refuse = |kind, text: Option<&str>| {
            Err(self.error(kind, act, Some(offset), text.map(str::to_owned)))
        };
        if offset.checked_add(len).is_none_or(|end| end > self.size()) {
            return refuse(ErrorKind::OutOfRange, None);
        }
        if act != Act::Read && self.is_read_only() {
            return refuse(ErrorKind::ReadOnly, None);
        }
        if act == Act::Discard && !self.shared.terms.has(FLAG_SEND_TRIM) {
            return refuse(ErrorKind::Unsupported, Some("the server has no trim"));
        }
        Ok(())
    }

    fn error(&self, kind: ErrorKind, act: Act, offset: Option<u64>, text: Option<String>) -> Error {
        Error {
            source: text.map(io::Error::other),
            ..Error::new(kind, act, self.shared.terms.place.clone(), offset)
        }
    }

    /// The blocks that a range touches, as offset and length. Inside the store they end before
    /// `usize` does.
    pub(crate) fn whole_blocks(&self, offset: u64, len: usize) -> (u64, usize) {
        let block = u64::from(self.limits().block);
        let start = offset & !(block - 1);
        let end = (offset + len as u64).next_multiple_of(block);
        (start, usize::try_from(end - start).unwrap_or(usize::MAX))
    }

    fn memory(&self, act: Act, offset: u64, len: usize) -> Result<AlignedBuffer, Error> {
        AlignedBuffer::zeroed(len).map_err(|error| {
            Error::from_io(error, act, self.shared.terms.place.clone(), Some(offset))
        })
    }

    fn read_blocks(&self, offset: u64, len: usize) -> Result<Buffer, Error> {
        let buffer = Buffer::from(self.memory(Act::Read, offset, len)?);
        let completed = block_on(self.submit(Operation::Read { buffer, offset }));
        completed.result?;
        let lost = || self.error(ErrorKind::Io, Act::Read, Some(offset), None);
        completed.buffer.ok_or_else(lost)
    }

    fn write_bytes(&self, data: &[u8], offset: u64, durably: bool) -> Result<(), Error> {
        self.check(Act::Write, offset, data.len() as u64)?;
        let (start, len) = self.whole_blocks(offset, data.len());
        let within = within(start, offset, data.len());
        let mut buffer = self.memory(Act::Write, offset, len)?;
        let mut partial = None;
        if within != (0..len) {
            // Two of them may change different bytes of one block.
            partial = Some(lock(&self.partial));
            let block = self.limits().block as usize;
            let mut edges = vec![0];
            if len > block {
                edges.push(len - block);
            }
            for edge in edges {
                let old = self.read_blocks(start + edge as u64, block)?;
                buffer[edge..edge + block].copy_from_slice(&old);
            }
        }
        buffer[within].copy_from_slice(data);
        let completed = block_on(self.submit(Operation::Write {
            buffer: buffer.into(),
            offset: start,
            durably,
        }));
        drop(partial);
        completed.result
    }
}

/// Where a range lies in blocks that begin at `start`.
pub(crate) fn within(start: u64, offset: u64, len: usize) -> Range<usize> {
    // Less than a block.
    let skip = usize::try_from(offset - start).unwrap_or(usize::MAX);
    skip..skip.saturating_add(len)
}
