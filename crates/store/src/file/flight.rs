//! One operation on its way through a ring: what to ask the kernel for next, and what
//! its answers mean. They mean what they mean to the calls that wait, in `io`.

use std::os::fd::AsRawFd;

use io_uring::{opcode, squeue, types};
use rustix::fs::FallocateFlags;
use rustix::io::{Errno, ReadWriteFlags};

use super::FileStore;
use crate::{Act, Buffer, Completed, Error, Operation, Store};

/// Most bytes that the kernel is asked for at a time: it does no more than 2 GiB.
const MOST: usize = 1 << 30;

/// An operation that has been found possible, and how far it is.
pub(super) struct Flight {
    work: Work,
    buffer: Option<Buffer>,
    /// First byte in the file, and how many of the buffer's are done.
    offset: u64,
    done: usize,
}

enum Work {
    Read,
    Write,
    DurableWrite,
    /// A durable write failed so, at this byte of the file; it is written once more
    /// without being made durable.
    Rewrite(Errno, u64),
    Flush,
    /// A discard of so many bytes.
    Discard(u64),
}

impl Work {
    fn act(&self) -> Act {
        match self {
            Self::Read => Act::Read,
            Self::Write => Act::Write,
            Self::DurableWrite | Self::Rewrite(..) => Act::DurableWrite,
            Self::Flush => Act::Flush,
            Self::Discard(_) => Act::Discard,
        }
    }
}

impl Flight {
    /// Checks all that can be before the kernel is asked; how the operation ended if it
    /// did there.
    pub(super) fn prepare(store: &FileStore, operation: Operation) -> Result<Self, Completed> {
        let checked = match &operation {
            Operation::Read { buffer, offset } => {
                let placed = store.place(Act::Read, *offset, buffer.len());
                placed.map(|offset| (Work::Read, offset))
            }
            Operation::Write {
                buffer,
                offset,
                durably,
            } => {
                let work = match durably {
                    true => Work::DurableWrite,
                    false => Work::Write,
                };
                let inside = store.check_range(work.act(), *offset, buffer.len() as u64);
                let checked = inside.and_then(|()| match durably {
                    true => store.check_flushes(work.act()),
                    false => Ok(()),
                });
                checked.map(|()| (work, store.start + offset))
            }
            Operation::Flush => store
                .check_flushes(Act::Flush)
                .map(|()| (Work::Flush, store.start)),
            Operation::Discard { offset, len } => {
                let inside = store.check_range(Act::Discard, *offset, *len);
                inside.map(|()| (Work::Discard(*len), store.start + offset))
            }
        };
        let buffer = operation.into_buffer();
        let (work, offset) = match checked {
            Ok(checked) => checked,
            Err(error) => return Err(Completed::new(buffer, Err(error))),
        };
        let is_nothing = match work {
            Work::Flush => store.is_read_only(),
            Work::Discard(len) => len == 0,
            _ => buffer.as_ref().is_none_or(|buffer| buffer.is_empty()),
        };
        if is_nothing {
            return Err(Completed::new(buffer, Ok(())));
        }
        Ok(Self {
            work,
            buffer,
            offset,
            done: 0,
        })
    }

    /// What to ask for next. It points to the buffer, which has to stay until the answer.
    pub(super) fn entry(&mut self, store: &FileStore) -> squeue::Entry {
        let file = types::Fd(store.file.as_raw_fd());
        let at = self.at();
        let rest = self.buffer.as_deref_mut().unwrap_or_default();
        let rest = rest.get_mut(self.done..).unwrap_or_default();
        let len = u32::try_from(rest.len().min(MOST)).unwrap_or_default();
        match self.work {
            Work::Read => opcode::Read::new(file, rest.as_mut_ptr(), len)
                .offset(at)
                .build(),
            Work::Write | Work::Rewrite(..) => opcode::Write::new(file, rest.as_ptr(), len)
                .offset(at)
                .build(),
            Work::DurableWrite => opcode::Write::new(file, rest.as_ptr(), len)
                .offset(at)
                .rw_flags(ReadWriteFlags::DSYNC.bits().cast_signed())
                .build(),
            Work::Flush => opcode::Fsync::new(file)
                .flags(types::FsyncFlags::DATASYNC)
                .build(),
            Work::Discard(len) => {
                let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                opcode::Fallocate::new(file, len)
                    .offset(at)
                    .mode(mode.bits().cast_signed())
                    .build()
            }
        }
    }

    /// Takes the kernel's answer: bytes done, or minus an errno. How the operation
    /// ended; [`None`] if there is more to ask for.
    pub(super) fn answered(&mut self, answer: i32, store: &FileStore) -> Option<Result<(), Error>> {
        let bytes = match usize::try_from(answer) {
            Ok(bytes) => bytes,
            Err(_) => return self.failed(Errno::from_raw_os_error(answer.saturating_neg()), store),
        };
        match self.work {
            Work::Flush | Work::Discard(_) => {}
            Work::Read if store.is_end(bytes, self.rest()) => {
                self.done += bytes;
                return Some(Err(store.out_of_range(Act::Read, self.at())));
            }
            _ if bytes == 0 => return self.failed(Errno::IO, store),
            _ => self.done += bytes,
        }
        if self.rest() > 0 {
            return None;
        }
        match self.work {
            Work::Flush => Some(store.check_flushes(Act::Flush)),
            Work::Rewrite(errno, at) => match store.durability_failed(errno, at) {
                Some(error) => Some(Err(error)),
                None => {
                    if let Err(error) = store.check_flushes(Act::Flush) {
                        return Some(Err(error));
                    }
                    self.work = Work::Flush;
                    None
                }
            },
            _ => Some(Ok(())),
        }
    }

    fn failed(&mut self, errno: Errno, store: &FileStore) -> Option<Result<(), Error>> {
        let at = self.at();
        let name = self.work.act();
        let error = match self.work {
            // The last is what the kernel says of requests that it had not begun when
            // the thread that brought them ended.
            _ if matches!(errno, Errno::INTR | Errno::AGAIN | Errno::CANCELED) => return None,
            Work::DurableWrite => {
                self.work = Work::Rewrite(errno, at);
                self.done = 0;
                return None;
            }
            Work::Write => store.write_error(errno, name, at),
            Work::Rewrite(first, _) => {
                store.may_be_told(first);
                store.write_error(errno, name, at)
            }
            Work::Flush => {
                store.flushes_failed(errno);
                store.fail(errno, name, None)
            }
            Work::Read | Work::Discard(_) => store.fail(errno, name, Some(at)),
        };
        Some(Err(error))
    }

    /// The first byte in the file that is not done.
    fn at(&self) -> u64 {
        self.offset + self.done as u64
    }

    /// Bytes of the buffer that are not done.
    fn rest(&self) -> usize {
        let len = self.buffer.as_ref().map_or(0, |buffer| buffer.len());
        len.saturating_sub(self.done)
    }

    /// Whether what the kernel answers may be about other bytes than its own.
    pub(super) fn is_about_others(&self) -> bool {
        matches!(
            self.work,
            Work::DurableWrite | Work::Rewrite(..) | Work::Flush
        )
    }

    /// What it has asked for last.
    pub(super) fn act(&self) -> Act {
        self.work.act()
    }

    /// Its memory and its result, for whoever waits.
    pub(super) fn ended(self, result: Result<(), Error>) -> Completed {
        Completed::new(self.buffer, result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AlignedBuffer, ErrorKind};

    const IO: i32 = -5;
    const AGAIN: i32 = -11;
    const NO_SPACE: i32 = -28;
    const OPNOTSUPP: i32 = -95;

    fn store(dir: &tempfile::TempDir) -> FileStore {
        FileStore::create(&dir.path().join("image"), 1 << 20).unwrap()
    }

    fn write(store: &FileStore, durably: bool) -> Flight {
        let operation = Operation::Write {
            buffer: AlignedBuffer::zeroed(8192).unwrap().into(),
            offset: 4096,
            durably,
        };
        Flight::prepare(store, operation).ok().unwrap()
    }

    fn flush(store: &FileStore) -> Flight {
        Flight::prepare(store, Operation::Flush).ok().unwrap()
    }

    #[test]
    fn what_was_done_in_part_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir);
        let mut flight = write(&store, false);
        for answer in [4096, AGAIN, 4095] {
            assert!(flight.answered(answer, &store).is_none());
        }
        assert_eq!(flight.at(), 4096 + 8191);
        assert!(flight.answered(1, &store).unwrap().is_ok());
        let mut flight = write(&store, false);
        assert!(flight.answered(512, &store).is_none());
        let error = flight.answered(0, &store).unwrap().unwrap_err();
        assert_eq!((error.kind, error.offset), (ErrorKind::Io, Some(4608)));
    }

    #[test]
    fn a_part_of_a_block_is_the_end_of_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = store(&dir);
        for (block, offset) in [(1, None), (512, Some(4096 + 612))] {
            store.limits.block = block;
            let operation = Operation::Read {
                buffer: AlignedBuffer::zeroed(8192).unwrap().into(),
                offset: 4096,
            };
            let mut flight = Flight::prepare(&store, operation).ok().unwrap();
            assert!(flight.answered(512, &store).is_none());
            let ended = flight.answered(100, &store);
            assert_eq!(ended.and_then(|result| result.unwrap_err().offset), offset);
        }
    }

    #[test]
    fn a_durable_write_that_only_lacks_the_flag_is_flushed() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir);
        let mut flight = write(&store, true);
        assert!(flight.answered(4096, &store).is_none());
        assert!(flight.answered(OPNOTSUPP, &store).is_none());
        assert_eq!(flight.at(), 4096, "written anew from its beginning");
        assert!(flight.answered(8192, &store).is_none());
        assert!(matches!(flight.work, Work::Flush));
        assert!(flight.answered(0, &store).unwrap().is_ok());
    }

    #[test]
    fn a_failed_durable_write_fails_the_flushes_to_come() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir);
        // Where there is no room, nothing that was promised is lost.
        let mut flight = write(&store, true);
        assert!(flight.answered(NO_SPACE, &store).is_none());
        let error = flight.answered(NO_SPACE, &store).unwrap().unwrap_err();
        assert_eq!(error.kind, ErrorKind::NoSpace);
        let mut under_way = flush(&store);
        let mut flight = write(&store, true);
        assert!(flight.answered(IO, &store).is_none());
        let error = flight.answered(8192, &store).unwrap().unwrap_err();
        assert_eq!((error.act, error.offset), (Act::DurableWrite, Some(4096)));
        assert!(under_way.answered(0, &store).unwrap().is_err());
        assert!(Flight::prepare(&store, Operation::Flush).is_err());
        assert!(store.flush().is_err());
    }

    /// The first answer may have been of others' pages, whatever becomes of its own.
    #[test]
    fn a_disk_that_fails_twice_fails_the_flushes_to_come() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir);
        let mut flight = write(&store, true);
        assert!(flight.answered(IO, &store).is_none());
        let error = flight.answered(NO_SPACE, &store).unwrap().unwrap_err();
        assert_eq!(error.kind, ErrorKind::NoSpace);
        assert!(Flight::prepare(&store, Operation::Flush).is_err());
    }

    #[test]
    fn a_failed_flush_fails_those_to_come() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir);
        let mut flight = flush(&store);
        assert!(flight.answered(IO, &store).unwrap().is_err());
        assert!(store.flush().is_err());
    }
}
