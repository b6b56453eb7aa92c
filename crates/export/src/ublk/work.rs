//! What the kernel asks of the volume: at once on the queue's thread where nothing has to be waited
//! for, else as a future. A request is one run of sectors, in memory that belongs to it until it ends.

use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;
use xtent_store::{AlignedBuffer, Memory, chain};
use xtent_volume::{RequestKind, Volume};

use super::abi::{self, Descriptor, SECTOR};
use super::queue::Ended;
use super::{LARGEST, LARGEST_RANGE};
use crate::executor::{Executor, Kind};
use crate::zeroes;

/// What all queues share.
pub(super) struct Work {
    pub(super) volume: Arc<Volume>,
    pub(super) executor: Arc<Executor>,
    /// For requests to a store that completes later.
    pub(super) memory: Arc<Memory>,
    /// For zeros.
    pub(super) bulk: Arc<Memory>,
}

/// What is asked for. Bytes, of a range that may be outside the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Read {
        offset: u64,
        len: usize,
    },
    Write {
        offset: u64,
        len: usize,
        fua: bool,
    },
    Flush,
    Discard {
        offset: u64,
        len: u64,
        fua: bool,
    },
    WriteZeroes {
        offset: u64,
        len: u64,
        fua: bool,
    },
    /// Nothing that it could be.
    Unknown,
}

impl Asked {
    /// The driver's words.
    pub(super) fn of(descriptor: &Descriptor) -> Self {
        let [operation, ..] = descriptor.operation_and_flags.to_le_bytes();
        if operation == abi::OPERATION_FLUSH {
            // Its place is none: -1.
            return Self::Flush;
        }
        let fua = descriptor.operation_and_flags & abi::REQUEST_FUA != 0;
        let len = u64::from(descriptor.sectors) * SECTOR;
        let Some(offset) = descriptor.start.checked_mul(SECTOR) else {
            return Self::Unknown;
        };
        let data = match usize::try_from(len) {
            Ok(data) if len <= LARGEST.into() => Some(data),
            _ => None,
        };
        match (operation, data) {
            (abi::OPERATION_READ, Some(len)) => Self::Read { offset, len },
            (abi::OPERATION_WRITE, Some(len)) => Self::Write { offset, len, fua },
            (abi::OPERATION_DISCARD, _) if len <= LARGEST_RANGE => {
                Self::Discard { offset, len, fua }
            }
            (abi::OPERATION_WRITE_ZEROES, _) if len <= LARGEST_RANGE => {
                Self::WriteZeroes { offset, len, fua }
            }
            _ => Self::Unknown,
        }
    }

    fn kind(self) -> Option<(RequestKind, u64)> {
        match self {
            Self::Read { len, .. } => Some((RequestKind::Read, len as u64)),
            Self::Write { len, .. } => Some((RequestKind::Write, len as u64)),
            Self::Flush => Some((RequestKind::Flush, 0)),
            Self::Discard { len, .. } => Some((RequestKind::Discard, len)),
            Self::WriteZeroes { len, .. } => Some((RequestKind::WriteZeroes, len)),
            Self::Unknown => None,
        }
    }
}

/// How a request ended, with its memory for the next one in its place.
pub(super) struct Answer {
    pub(super) tag: u16,
    pub(super) memory: AlignedBuffer,
    /// Bytes, or less than zero an errno. None: it is not ours to answer.
    pub(super) result: Option<i32>,
}

/// A request under way. Dropped without having ended it fails.
pub(super) struct Request {
    tag: u16,
    asked: Asked,
    /// None once it has ended.
    memory: Option<AlignedBuffer>,
    ended: Arc<Ended>,
    volume: Arc<Volume>,
    since: Instant,
}

impl Request {
    pub(super) fn new(
        tag: u16,
        descriptor: &Descriptor,
        memory: AlignedBuffer,
        ended: &Arc<Ended>,
        volume: &Arc<Volume>,
    ) -> Self {
        let asked = Asked::of(descriptor);
        if let Some((kind, bytes)) = asked.kind() {
            volume.metrics().asked(kind, bytes);
        }
        volume.metrics().begun();
        Self {
            tag,
            asked,
            memory: Some(memory),
            ended: Arc::clone(ended),
            volume: Arc::clone(volume),
            since: Instant::now(),
        }
    }

    /// Its data, or as much of it as there can be.
    fn data(&mut self, len: usize) -> &mut [u8] {
        let memory = self.memory.as_deref_mut().unwrap_or_default();
        let len = len.min(memory.len());
        &mut memory[..len]
    }

    fn end(mut self, result: Result<(), Failed>) -> Option<Answer> {
        self.take(result)
    }

    fn end_and_tell(mut self, result: Result<(), Failed>) {
        if let Some(answer) = self.take(result) {
            self.ended.push(answer);
        }
    }

    fn take(&mut self, result: Result<(), Failed>) -> Option<Answer> {
        let memory = self.memory.take()?;
        let metrics = self.volume.metrics();
        if let Some((kind, _)) = self.asked.kind() {
            if result.is_err() {
                metrics.failed(kind);
            }
            metrics.answered(kind, 1, self.since.elapsed());
        }
        metrics.ended();
        let moved = match self.asked {
            Asked::Read { len, .. } | Asked::Write { len, .. } => {
                i32::try_from(len).unwrap_or(i32::MAX)
            }
            _ => 0,
        };
        Some(Answer {
            tag: self.tag,
            memory,
            result: match result {
                Ok(()) => Some(moved),
                Err(Failed::With(error)) => Some(-error.raw_os_error()),
                Err(Failed::Fenced) => None,
            },
        })
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if let Some(answer) = self.take(Err(Failed::With(Errno::IO))) {
            self.ended.push(answer);
        }
    }
}

/// It failed, and the log says why.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Failed {
    With(Errno),
    /// Somebody else has taken the volume over. An error would be the end of a file system, so the
    /// request is left for a server that has the volume again.
    Fenced,
}

impl From<xtent_volume::Error> for Failed {
    fn from(error: xtent_volume::Error) -> Self {
        tracing::error!(error = %chain(&error), "a request of the kernel's failed");
        match error.kind {
            xtent_volume::ErrorKind::Store(xtent_store::ErrorKind::Fenced) => Self::Fenced,
            _ => Self::With(error.errno()),
        }
    }
}

impl Work {
    /// Carries a request out, or has it carried out: then the queue is told of its end.
    pub(super) fn carry_out(self: &Arc<Self>, mut request: Request) -> Option<Answer> {
        match request.asked {
            Asked::Read { offset, len } => match self.read_now(&mut request, offset, len) {
                Ok(done) if done < len => {
                    self.later(Kind::Prompt, |work| async move {
                        let result = work.read_later(&mut request, offset, len, done).await;
                        request.end_and_tell(result);
                    });
                    None
                }
                result => request.end(result.map(drop)),
            },
            Asked::Write { offset, len, fua } => {
                match self.write_now(&mut request, offset, len, fua) {
                    Ok(done) if done < len => {
                        self.later(Kind::Prompt, |work| async move {
                            let left = (offset, len, done);
                            let result = work.write_later(&mut request, left, fua).await;
                            request.end_and_tell(result);
                        });
                        None
                    }
                    result => request.end(result.map(drop)),
                }
            }
            Asked::Flush => {
                self.later(Kind::Prompt, |work| async move {
                    let result = work.volume.flush_async().await;
                    request.end_and_tell(result.map_err(Failed::from));
                });
                None
            }
            Asked::Discard { offset, len, fua } => {
                self.later(Kind::Bulk, |work| async move {
                    let volume = &work.volume;
                    let result = volume.discard_async(&work.bulk, offset, len, fua).await;
                    request.end_and_tell(result.map_err(Failed::from));
                });
                None
            }
            Asked::WriteZeroes { offset, len, fua } => {
                self.later(Kind::Bulk, |work| async move {
                    let (volume, memory) = (&work.volume, &work.bulk);
                    let result = zeroes::write(volume, memory, offset, len, fua, |_| true).await;
                    request.end_and_tell(result.map(drop).map_err(Failed::from));
                });
                None
            }
            Asked::Unknown => request.end(Err(Failed::With(Errno::OPNOTSUPP))),
        }
    }

    fn later<F: Future<Output = ()> + Send + 'static>(
        self: &Arc<Self>,
        kind: Kind,
        future: impl FnOnce(Arc<Self>) -> F,
    ) {
        let future = future(Arc::clone(self));
        self.executor.spawn(0, kind, future);
    }

    /// The bytes from `done` to where a piece of the size that the cache takes ends.
    fn piece(&self, offset: u64, len: usize, done: usize) -> usize {
        let size = self.volume.preferred_piece();
        // Less than `size`.
        let into = usize::try_from((offset + done as u64) % size as u64).unwrap_or_default();
        (size - into).min(len - done)
    }

    /// Reads as much as need not be waited for: so many bytes.
    fn read_now(&self, request: &mut Request, offset: u64, len: usize) -> Result<usize, Failed> {
        let mut done = 0;
        while done < len && !self.volume.completes_later() {
            let here = self.piece(offset, len, done);
            let piece = &mut request.data(len)[done..done + here];
            if !self.volume.try_read_at(piece, offset + done as u64)? {
                break;
            }
            done += here;
        }
        Ok(done)
    }

    /// Writes as much as need not be waited for: so many bytes.
    fn write_now(
        &self,
        request: &mut Request,
        offset: u64,
        len: usize,
        fua: bool,
    ) -> Result<usize, Failed> {
        let mut done = 0;
        while done < len && !fua && !self.volume.completes_later() {
            let here = self.piece(offset, len, done);
            let piece = &mut request.data(len)[done..done + here];
            if !self
                .volume
                .try_write_at_in_place(piece, offset + done as u64)?
            {
                break;
            }
            done += here;
        }
        Ok(done)
    }

    async fn read_later(
        &self,
        request: &mut Request,
        offset: u64,
        len: usize,
        done: usize,
    ) -> Result<(), Failed> {
        let (at, left) = (offset + done as u64, len - done);
        let data = &mut request.data(len)[done..];
        if !self.volume.completes_later() {
            return Ok(self.volume.read_at(data, at)?);
        }
        self.check(at, left)?;
        let hull = self.volume.hull(at, left);
        let buffer = self.memory.wait_for(hull.len).await;
        let buffer = buffer.ok_or(Failed::With(Errno::NOMEM))?;
        let buffer = self.volume.read_async(buffer, at, left).await?;
        data.copy_from_slice(&buffer[hull.skip..hull.skip + left]);
        Ok(())
    }

    async fn write_later(
        &self,
        request: &mut Request,
        (offset, len, done): (u64, usize, usize),
        fua: bool,
    ) -> Result<(), Failed> {
        let (at, left) = (offset + done as u64, len - done);
        let data = &mut request.data(len)[done..];
        if !self.volume.completes_later() {
            return Ok(self.volume.write_at_in_place(data, at, fua)?);
        }
        self.check(at, left)?;
        let hull = self.volume.hull(at, left);
        let buffer = self.memory.wait_for(hull.len).await;
        let mut buffer = buffer.ok_or(Failed::With(Errno::NOMEM))?;
        buffer[hull.skip..hull.skip + left].copy_from_slice(data);
        Ok(self.volume.write_async(buffer, at, left, fua).await?)
    }

    /// A range that lies outside has no hull.
    fn check(&self, offset: u64, len: usize) -> Result<(), Failed> {
        match offset.checked_add(len as u64) {
            Some(end) if end <= self.volume.size() => Ok(()),
            _ => Err(Failed::With(Errno::INVAL)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(operation_and_flags: u32, sectors: u32, start: u64) -> Asked {
        Asked::of(&Descriptor {
            operation_and_flags,
            sectors,
            start,
            address: 0,
        })
    }

    #[test]
    fn what_is_asked_is_in_bytes() {
        let (offset, len) = (512 * 7, 512 * 8);
        assert_eq!(asked(0, 8, 7), Asked::Read { offset, len });
        let fua = true;
        assert_eq!(asked(1 | 1 << 13, 8, 7), Asked::Write { offset, len, fua });
        assert_eq!(asked(2, 0, u64::MAX), Asked::Flush);
        let (len, fua) = (len as u64, false);
        // "Do not deallocate" goes without saying.
        assert_eq!(
            asked(5 | 1 << 15, 8, 7),
            Asked::WriteZeroes { offset, len, fua }
        );
        assert_eq!(asked(3, 8, 7), Asked::Discard { offset, len, fua });
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert_eq!(asked(4, 8, 7), Asked::Unknown);
        assert_eq!(asked(0, 8, u64::MAX / 2), Asked::Unknown);
        assert_eq!(asked(0, LARGEST / 512 + 1, 0), Asked::Unknown);
        assert_eq!(asked(5, u32::MAX, 0), Asked::Unknown);
    }
}
