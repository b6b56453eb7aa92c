//! The file's data: how the kernel's requests for it are carried out.

use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError};

use fuser::{ReplyData, ReplyEmpty, ReplyWrite};
use rustix::io::Errno;
use xtent_store::{AlignedBuffer, block_on};
use xtent_volume::Volume;

use crate::executor::{Executor, Kind};
use crate::request::{Asked, Carrier, Client, Failed, Request, Threads};

/// Threads for requests whose store completes later: they decrypt, encrypt and answer.
pub(super) const WORKERS: usize = 2;

/// Bytes of such requests under way.
const MEMORY: usize = 64 << 20;

/// What the file system shares with those who manage its mount.
#[derive(Default)]
pub(super) struct Shared {
    /// How many have the file open.
    pub(super) openers: AtomicUsize,
    /// statfs(2) fails. A loop device that is attached meanwhile offers
    /// neither discards nor "write zeroes".
    pub(super) statfs_fails: AtomicBool,
    /// Writes that failed. Who wrote may never hear of it: the kernel writes later
    /// what came through its cache or a file system.
    pub(super) lost: Mutex<Lost>,
}

/// Writes that failed.
#[derive(Default)]
pub(super) struct Lost {
    pub(super) count: u64,
    pub(super) first: Option<Failed>,
}

impl Shared {
    /// Takes note of a failed write.
    fn lose(&self, failed: Failed) {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        lost.count += 1;
        lost.first.get_or_insert(failed);
    }
}

/// The way of the file's requests to the volume: on the session's threads, of which there are as many as
/// requests at a time; or, where the store completes later, away from them, so that none holds a thread.
pub(super) struct Data {
    carrier: Arc<Carrier>,
    shared: Arc<Shared>,
}

impl Data {
    pub(super) fn new(volume: &Arc<Volume>, shared: &Arc<Shared>) -> Self {
        Self {
            carrier: Carrier::new(volume, Executor::new(WORKERS), MEMORY, Threads::Callers),
            shared: Arc::clone(shared),
        }
    }

    pub(super) fn volume(&self) -> &Volume {
        self.carrier.volume()
    }

    /// What requests are carried out by, where the store completes later.
    pub(super) fn executor(&self) -> Option<Arc<Executor>> {
        let completes_later = self.volume().completes_later();
        completes_later.then(|| Arc::clone(self.carrier.executor()))
    }

    pub(super) fn read(&self, range: &Range<u64>, reply: ReplyData) {
        let len = range.end - range.start;
        let asked = Asked::Read {
            offset: range.start,
            len,
        };
        // At most what a request has.
        let len = usize::try_from(len).unwrap_or_default();
        let memory = match self.volume().takes_at_once(len) {
            true => take_buffer(len),
            false => None,
        };
        let reply = Some(reply);
        let reading = Reading { reply, len, memory };
        self.carrier.carry_out(reading, asked, &mut []);
    }

    /// The data is borrowed from the session: where the store or an engine completes later it is copied,
    /// and it is waited for the memory.
    pub(super) fn write(&self, range: &Range<u64>, data: &[u8], fua: bool, reply: ReplyWrite) {
        let (offset, len) = (range.start, data.len());
        let asked = Asked::Write {
            offset,
            len: len as u64,
            fua,
        };
        let writing = Writing {
            reply: Some(Answer::Written(reply)),
            // Requests have less.
            len: u32::try_from(len).unwrap_or(u32::MAX),
            shared: Some(Arc::clone(&self.shared)),
        };
        let volume = self.carrier.volume();
        let request = Request::new(writing, &asked, volume);
        if volume.takes_at_once(len) {
            let written = volume.write_at(data, offset, fua);
            return request.end(written.map_err(Failed::from));
        }
        let hull = volume.hull(offset, len);
        let Some(mut buffer) = block_on(self.carrier.memory().wait_for(hull.len)) else {
            return request.end(Err(Failed::With(Errno::NOMEM)));
        };
        buffer[hull.skip..hull.skip + len].copy_from_slice(data);
        self.carrier.later(Kind::Prompt, |carrier| async move {
            let written = carrier.volume().write_async(buffer, offset, len, fua);
            let result = written.await.map_err(Failed::from);
            request.end_later(result);
        });
    }

    pub(super) fn flush(&self, reply: ReplyEmpty) {
        self.without_data(Asked::Flush, None, reply);
    }

    pub(super) fn write_zeroes(&self, range: &Range<u64>, reply: ReplyEmpty) {
        let asked = Asked::WriteZeroes {
            ranges: vec![(range.start, range.end - range.start)],
            fua: false,
        };
        self.without_data(asked, Some(Arc::clone(&self.shared)), reply);
    }

    fn without_data(&self, asked: Asked, shared: Option<Arc<Shared>>, reply: ReplyEmpty) {
        let writing = Writing {
            reply: Some(Answer::Done(reply)),
            len: 0,
            shared,
        };
        self.carrier.carry_out(writing, asked, &mut []);
    }
}

thread_local! {
    /// For the reads of one thread: grows to the largest request it has seen.
    static BUFFER: Cell<Option<AlignedBuffer>> = const { Cell::new(None) };
}

/// This thread's buffer, of `len` bytes or more with any contents.
fn take_buffer(len: usize) -> Option<AlignedBuffer> {
    match BUFFER.take() {
        Some(buffer) if buffer.len() >= len => Some(buffer),
        _ => AlignedBuffer::zeroed(len.next_power_of_two()).ok(),
    }
}

/// For a program: the driver's number in the file system's words.
fn errno_of(failed: &Failed) -> fuser::Errno {
    fuser::Errno::from_i32(failed.errno().raw_os_error())
}

/// A read, and its answer.
struct Reading {
    reply: Option<ReplyData>,
    len: usize,
    memory: Option<AlignedBuffer>,
}

impl Client for Reading {
    /// What comes from a store or an engine that completes later is the answer as it comes: requests are small enough to come
    /// in one piece.
    fn put(&mut self, from: u64, data: &[u8]) -> Result<(), Failed> {
        match self.reply.take() {
            Some(reply) if from == 0 && data.len() == self.len => {
                reply.data(data);
                Ok(())
            }
            reply => {
                self.reply = reply;
                Err(Failed::With(Errno::IO))
            }
        }
    }

    /// There is nothing to be had of a read.
    fn get(&mut self, _from: u64, _data: &mut [u8]) -> Result<(), Failed> {
        Err(Failed::With(Errno::IO))
    }

    fn own(&mut self, from: u64, len: usize) -> Option<&mut [u8]> {
        let from = usize::try_from(from).ok()?;
        let end = from.checked_add(len)?;
        self.memory.as_deref_mut()?.get_mut(from..end)
    }

    fn end(&mut self, result: Result<(), Failed>, _later: bool) {
        let memory = self.memory.take();
        if let Some(reply) = self.reply.take() {
            let data = memory.as_deref().and_then(|memory| memory.get(..self.len));
            match (result, data) {
                (Ok(()), Some(data)) => reply.data(data),
                (Ok(()), None) if self.len == 0 => reply.data(&[]),
                (Ok(()), None) => reply.error(fuser::Errno::ENOMEM),
                (Err(failed), _) => reply.error(errno_of(&failed)),
            }
        }
        BUFFER.set(memory);
    }
}

/// What asks for no data, and its answer.
struct Writing {
    reply: Option<Answer>,
    /// Bytes written if all goes well.
    len: u32,
    /// Hears of what is lost.
    shared: Option<Arc<Shared>>,
}

enum Answer {
    Written(ReplyWrite),
    Done(ReplyEmpty),
}

impl Client for Writing {
    /// Nothing is to be had of it, and nothing to be given: a write's data is not here.
    fn put(&mut self, _from: u64, _data: &[u8]) -> Result<(), Failed> {
        Err(Failed::With(Errno::IO))
    }

    fn get(&mut self, _from: u64, _data: &mut [u8]) -> Result<(), Failed> {
        Err(Failed::With(Errno::IO))
    }

    fn end(&mut self, result: Result<(), Failed>, _later: bool) {
        let errno = result.as_ref().err().map(errno_of);
        // Before the answer: who was answered may ask for it.
        if let (Err(failed), Some(shared)) = (result, &self.shared) {
            shared.lose(failed);
        }
        match (self.reply.take(), errno) {
            (Some(Answer::Written(reply)), None) => reply.written(self.len),
            (Some(Answer::Written(reply)), Some(errno)) => reply.error(errno),
            (Some(Answer::Done(reply)), None) => reply.ok(),
            (Some(Answer::Done(reply)), Some(errno)) => reply.error(errno),
            (None, _) => {}
        }
    }
}
