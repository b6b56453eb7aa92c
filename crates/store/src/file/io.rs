//! Reads, writes, flushes and discards that wait until they are done.

use std::io::{IoSlice, IoSliceMut};
use std::num::NonZeroU64;
use std::sync::atomic::Ordering;

use rustix::fs::FallocateFlags;
use rustix::io::{Errno, ReadWriteFlags};

use super::{Access, FileStore};
use crate::{Act, Error, ErrorKind, Limits, PAGE, Store, block};

impl FileStore {
    /// Checks that a range to be changed lies inside.
    pub(super) fn check_range(&self, act: Act, offset: u64, len: u64) -> Result<(), Error> {
        if self.access == Access::ReadOnly {
            return Err(Error::new(
                ErrorKind::ReadOnly,
                act,
                &self.path,
                Some(offset),
            ));
        }
        let end = offset
            .checked_add(len)
            .ok_or_else(|| self.out_of_range(act, offset))?;
        // A write cannot extend a block device, so the size seen last will do there.
        if self.block.is_some() && end <= self.size.load(Ordering::Relaxed) {
            return Ok(());
        }
        let size = self
            .look_up_size()
            .map_err(|e| self.fail(e, act, Some(offset)))?;
        if end > size {
            return Err(self.out_of_range(act, offset));
        }
        Ok(())
    }

    /// Has the next reads of the first `len` bytes of a block device see what is there, and not what the
    /// page cache of this device has kept: whoever writes them by way of the file under a loop device, the disk
    /// of a partition or another path to it does not change that. What is still to be written is kept.
    pub fn forget_cached(&self, len: u64) {
        if self.block.is_some() && self.direct.is_none() {
            // Whole pages alone are dropped.
            let first = self.start - self.start % PAGE as u64;
            let len = len
                .saturating_add(self.start - first)
                .next_multiple_of(PAGE as u64);
            // Advice: where the kernel does not take it, its cache is all there is.
            let _ = rustix::fs::fadvise(
                &self.file,
                first,
                NonZeroU64::new(len),
                rustix::fs::Advice::DontNeed,
            );
        }
    }

    /// Fills `buf` from this byte of the file on.
    pub(super) fn read_all(&self, mut buf: &mut [u8], mut offset: u64) -> Result<(), Error> {
        if !self.takes(buf, offset) {
            return self.read_around(buf, offset);
        }
        while !buf.is_empty() {
            match rustix::io::pread(&self.file, &mut *buf, offset) {
                Ok(n) if self.is_end(n, buf.len()) => {
                    return Err(self.out_of_range(Act::Read, offset + n as u64));
                }
                Ok(n) => {
                    buf = &mut buf[n..];
                    offset += n as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.fail(errno, Act::Read, Some(offset))),
            }
        }
        Ok(())
    }

    /// Whether a read of `n` bytes instead of `wanted` has met the end of the file. Direct
    /// I/O cannot ask for what follows a part of a block.
    pub(super) fn is_end(&self, n: usize, wanted: usize) -> bool {
        n == 0 || (n < wanted && !n.is_multiple_of(self.limits.block as usize))
    }

    /// Writes all of `data` by `write`, which may do part of it.
    fn write_all(
        &self,
        mut data: &[u8],
        mut offset: u64,
        write: &dyn Fn(&[u8], u64) -> rustix::io::Result<usize>,
    ) -> Result<(), (Errno, u64)> {
        if !self.takes(data, offset) {
            return self.write_around(data, offset, |whole, first| {
                self.write_all(whole, first, write)
            });
        }
        while !data.is_empty() {
            match write(data, offset) {
                Ok(0) => return Err((Errno::IO, offset)),
                Ok(n) => {
                    data = &data[n..];
                    offset += n as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err((errno, offset)),
            }
        }
        Ok(())
    }

    fn write_plainly(&self, data: &[u8], offset: u64) -> Result<(), (Errno, u64)> {
        self.write_all(data, offset, &|data, offset| {
            rustix::io::pwrite(&self.file, data, offset)
        })
    }

    /// A write's error; a block device that shrank says "no space".
    pub(super) fn write_error(&self, errno: Errno, act: Act, offset: u64) -> Error {
        if self.block.is_some()
            && errno == Errno::NOSPC
            && self
                .look_up_size()
                .is_ok_and(|size| offset >= self.start + size)
        {
            return self.out_of_range(act, offset);
        }
        self.fail(errno, act, Some(offset))
    }

    /// What there is to say of what the kernel has found durable, once it is known what others have heard that
    /// were under way with it: that may have been about the same bytes.
    fn settled(&self, act: Act) -> Result<(), Error> {
        self.settling.wait();
        self.check_flushes(act)
    }

    pub(super) fn check_flushes(&self, act: Act) -> Result<(), Error> {
        match self.flush_failure.load(Ordering::Acquire) {
            0 => Ok(()),
            errno => Err(self.fail(Errno::from_raw_os_error(errno), act, None)),
        }
    }

    /// What is to say of a durable write that failed so, and then went well without being
    /// made durable; [`None`] if the kernel only lacks the flag, and a flush will do.
    pub(super) fn durability_failed(&self, errno: Errno, at: u64) -> Option<Error> {
        if matches!(errno, Errno::OPNOTSUPP | Errno::NOSYS) {
            return None;
        }
        self.flushes_failed(errno);
        Some(self.fail(errno, Act::DurableWrite, Some(at)))
    }

    /// A durable write failed with this, and then so did the same without a synchronization: an error of the disk
    /// may have been that of others' pages, which the kernel tells once.
    pub(super) fn may_be_told(&self, errno: Errno) {
        if errno == Errno::IO {
            self.flushes_failed(errno);
        }
    }

    pub(super) fn flushes_failed(&self, errno: Errno) {
        // The first failure is the one to report ever after.
        let _ = self.flush_failure.compare_exchange(
            0,
            errno.raw_os_error(),
            Ordering::AcqRel,
            Ordering::Acquire,
        );
    }
}

impl Store for FileStore {
    fn size(&self) -> u64 {
        self.look_up_size()
            .unwrap_or_else(|_| self.size.load(Ordering::Relaxed))
    }

    fn is_read_only(&self) -> bool {
        self.access == Access::ReadOnly
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), Error> {
        let offset = self.place(Act::Read, offset, buf.len())?;
        self.read_all(buf, offset)
    }

    fn try_read_at(&self, mut buf: &mut [u8], mut offset: u64) -> Result<bool, Error> {
        offset = self.place(Act::Read, offset, buf.len())?;
        if self.direct.is_some() {
            return Ok(buf.is_empty());
        }
        if self.in_memory {
            return self.read_all(buf, offset).map(|()| true);
        }
        if !self.nowait.load(Ordering::Relaxed) {
            return Ok(buf.is_empty());
        }
        while !buf.is_empty() {
            let slice = &mut [IoSliceMut::new(buf)];
            match rustix::io::preadv2(&self.file, slice, offset, ReadWriteFlags::NOWAIT) {
                // The end of the file, or a kernel that stops here: the
                // caller's read_at tells which.
                Ok(0) => return Ok(false),
                Ok(n) => {
                    buf = &mut buf[n..];
                    offset += n as u64;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                    self.nowait.store(false, Ordering::Relaxed);
                    return Ok(false);
                }
                Err(errno) => return Err(self.fail(errno, Act::Read, Some(offset))),
            }
        }
        Ok(true)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<(), Error> {
        self.check_range(Act::Write, offset, data.len() as u64)?;
        self.write_plainly(data, self.start + offset)
            .map_err(|(errno, at)| self.write_error(errno, Act::Write, at))
    }

    /// A write into the page cache waits for nothing but the rest of a page that is
    /// written in part, which the kernel reads first unless it has the page.
    fn takes_write_at_once(&self, offset: u64, len: u64) -> Result<bool, Error> {
        let (Some(end), true) = (offset.checked_add(len), len > 0) else {
            return Ok(true);
        };
        if self.direct.is_some() {
            return Ok(false);
        }
        // A byte of each page that may be written in part. Pages are those of the file,
        // which a window need not begin on.
        for (edge, byte) in [(offset, offset), (end, end - 1)] {
            let is_whole = self.start.wrapping_add(edge).is_multiple_of(PAGE as u64);
            if !is_whole && !self.try_read_at(&mut [0], byte)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn write_at_durably(&self, data: &[u8], offset: u64) -> Result<(), Error> {
        self.check_range(Act::DurableWrite, offset, data.len() as u64)?;
        self.check_flushes(Act::DurableWrite)?;
        let offset = self.start + offset;
        let unsettled = self.settling.begin();
        let written = self.write_all(data, offset, &|data, offset| {
            let slice = &[IoSlice::new(data)];
            rustix::io::pwritev2(&self.file, slice, offset, ReadWriteFlags::DSYNC)
        });
        let Err((errno, at)) = written else {
            drop(unsettled);
            return self.settled(Act::DurableWrite);
        };
        // Either the kernel does not know the flag, or the write itself
        // failed, or the synchronization after it: then the kernel has told
        // its error and a later flush would not hear of it again. Writing
        // once more without the flag tells the three apart.
        if let Err((again, at)) = self.write_plainly(data, offset) {
            self.may_be_told(errno);
            return Err(self.write_error(again, Act::DurableWrite, at));
        }
        match self.durability_failed(errno, at) {
            Some(error) => Err(error),
            None => {
                drop(unsettled);
                self.flush()
            }
        }
    }

    fn flush(&self) -> Result<(), Error> {
        self.check_flushes(Act::Flush)?;
        if self.access == Access::ReadOnly {
            return Ok(());
        }
        let unsettled = self.settling.begin();
        if let Err(errno) = rustix::io::retry_on_intr(|| rustix::fs::fdatasync(&self.file)) {
            self.flushes_failed(errno);
            return Err(self.fail(errno, Act::Flush, None));
        }
        drop(unsettled);
        self.settled(Act::Flush)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.check_range(Act::Discard, offset, len)?;
        let offset = self.start + offset;
        let result = if let Some(device) = self.block {
            let unit = device.logical_block;
            let start = offset.next_multiple_of(unit);
            let end = (offset + len) / unit * unit;
            if start >= end {
                return Ok(());
            }
            // The kernel claims a device for a discard unless the descriptor
            // holds the claim already.
            let holder = self.claim.get().unwrap_or(&self.file);
            rustix::io::retry_on_intr(|| block::discard(holder, start, end - start))
        } else if len == 0 {
            return Ok(());
        } else {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::io::retry_on_intr(|| rustix::fs::fallocate(&self.file, flags, offset, len))
        };
        result.map_err(|errno| self.fail(errno, Act::Discard, Some(offset)))
    }
}
