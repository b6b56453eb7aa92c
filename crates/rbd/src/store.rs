//! The store's calls. All of them are the library's asynchronous operations; those on borrowed
//! memory wait for theirs.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use xtent_store::{
    Act, AlignedBuffer, Buffer, Completed, Error, ErrorKind, Limits, Operation, Store, Submitted,
    block_on,
};

use crate::Image;
use crate::fence::Ticket;
use crate::ffi::Way;
use crate::image::Shared;

/// Bytes below which librbd ignores discards (`rbd_discard_granularity_bytes`).
const DISCARD: u32 = 64 << 10;

impl Store for Image {
    fn size(&self) -> u64 {
        self.look_at_size()
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn limits(&self) -> Limits {
        Limits {
            atomic: self.atomic,
            discard: DISCARD,
            block: 1,
        }
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), Error> {
        let buffer = self.memory(Act::Read, offset, buf.len())?;
        let completed = block_on(self.submit(Operation::Read { buffer, offset }));
        completed.result?;
        if let Some(read) = completed.buffer {
            buf.copy_from_slice(&read);
        }
        Ok(())
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<(), Error> {
        self.write(data, offset, false)
    }

    fn write_at_durably(&self, data: &[u8], offset: u64) -> Result<(), Error> {
        self.write(data, offset, true)
    }

    fn flush(&self) -> Result<(), Error> {
        block_on(self.submit(Operation::Flush)).result
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), Error> {
        block_on(self.submit(Operation::Discard { offset, len })).result
    }

    fn completes_later(&self) -> bool {
        true
    }

    /// An operation on an object costs librbd more than it costs to decrypt 100 KiB.
    fn prefers_long_reads(&self) -> bool {
        true
    }

    fn submit(&self, operation: Operation) -> Submitted {
        let (act, offset, len) = match &operation {
            Operation::Read { buffer, offset } => (Act::Read, *offset, buffer.len() as u64),
            Operation::Write {
                buffer,
                offset,
                durably,
            } => {
                let act = match durably {
                    true => Act::DurableWrite,
                    false => Act::Write,
                };
                (act, *offset, buffer.len() as u64)
            }
            Operation::Flush => (Act::Flush, 0, 0),
            Operation::Discard { offset, len } => (Act::Discard, *offset, *len),
        };
        let way = match (self.check(act, offset, len), self.way()) {
            (Ok(()), Some(way)) if len > 0 || act == Act::Flush => way,
            (result, _) => {
                return Submitted::ended(Completed::new(operation.into_buffer(), result));
            }
        };
        let (completion, submitted) = Submitted::later();
        let place = (act != Act::Flush).then_some(offset);
        let fence = &self.shared.fence;
        let begin = |buffer: Option<&mut Buffer>| {
            Some(End {
                ticket: fence.begin(act, place, completion, buffer)?,
                shared: Arc::clone(&self.shared),
                act,
            })
        };
        match operation {
            Operation::Read { mut buffer, offset } => {
                if let Some(end) = begin(Some(&mut buffer)) {
                    way.read(buffer, offset, move |buffer, read| {
                        let whole = read.and_then(|read| all(read as u64, len));
                        end.tell(buffer, whole);
                    });
                }
            }
            Operation::Write {
                mut buffer,
                offset,
                durably,
            } => {
                if let Some(end) = begin(Some(&mut buffer)) {
                    let again = durably.then(|| way.clone());
                    way.write(buffer, offset, move |buffer, written| {
                        end.after_write(again, buffer, written.map(drop));
                    });
                }
            }
            Operation::Flush => {
                if let Some(end) = begin(None) {
                    way.flush(move |_, flushed| end.tell(None, flushed.map(drop)));
                }
            }
            Operation::Discard { offset, len } => {
                if let Some(end) = begin(None) {
                    way.discard(offset, len, move |_, gone| end.tell(None, gone.map(drop)));
                }
            }
        }
        submitted
    }
}

/// Whether all was read that was asked for.
fn all(read: u64, asked: u64) -> io::Result<()> {
    match read == asked {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "only {read} bytes of {asked} were read"
        ))),
    }
}

/// The end of an operation, to be told.
struct End {
    shared: Arc<Shared>,
    ticket: Ticket,
    act: Act,
}

impl End {
    fn after_write(self, flush: Option<Way>, buffer: Option<Buffer>, written: io::Result<()>) {
        match flush {
            Some(way) if written.is_ok() && !self.shared.fence.is_lost() => {
                way.flush(move |_, flushed| self.tell(buffer, flushed.map(drop)));
            }
            // What was to be flushed is not in doubt.
            _ => self.tell_of(Act::Write, buffer, written),
        }
    }

    fn tell(self, buffer: Option<Buffer>, result: io::Result<()>) {
        let act = self.act;
        self.tell_of(act, buffer, result);
    }

    /// Tells of an operation that ended in this part of it.
    fn tell_of(self, part: Act, buffer: Option<Buffer>, result: io::Result<()>) {
        self.shared.fence.end(self.ticket, part, buffer, result);
    }
}

impl Image {
    /// Refuses what cannot be done.
    fn check(&self, act: Act, offset: u64, len: u64) -> Result<(), Error> {
        let error = |kind, text: Option<&str>| {
            Err(Error {
                source: text.map(io::Error::other),
                ..Error::new(
                    kind,
                    act,
                    self.shared.place.clone(),
                    (act != Act::Flush).then_some(offset),
                )
            })
        };
        if let Some((kind, why)) = self.shared.fence.refusal(act) {
            return error(kind, Some(why));
        }
        // What was found when it was last looked: to look takes a while.
        let size = self.shared.size.load(Ordering::Relaxed);
        if offset.checked_add(len).is_none_or(|end| end > size) {
            return error(ErrorKind::OutOfRange, None);
        }
        if self.read_only && !matches!(act, Act::Read | Act::Flush) {
            return error(ErrorKind::ReadOnly, None);
        }
        Ok(())
    }

    fn memory(&self, act: Act, offset: u64, len: usize) -> Result<Buffer, Error> {
        // Before it is asked for: a length that is beyond the image may be beyond all memory.
        self.check(act, offset, len as u64)?;
        let memory = AlignedBuffer::zeroed(len);
        memory
            .map(Buffer::from)
            .map_err(|e| Error::from_io(e, act, self.shared.place.clone(), Some(offset)))
    }

    fn write(&self, data: &[u8], offset: u64, durably: bool) -> Result<(), Error> {
        let act = match durably {
            true => Act::DurableWrite,
            false => Act::Write,
        };
        let mut buffer = self.memory(act, offset, data.len())?;
        buffer.copy_from_slice(data);
        block_on(self.submit(Operation::Write {
            buffer,
            offset,
            durably,
        }))
        .result
    }
}
