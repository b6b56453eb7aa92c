//! Direct I/O: past the page cache, straight between the disk and the caller's memory.
//!
//! The kernel takes whole blocks of the disk only, to and from memory that is aligned.
//! [`Operation`](crate::Operation)s are that by contract. Any other range goes through memory of our
//! own, and what surrounds a part of a block is read and written with it.

use std::fs::File;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{AtFlags, OFlags, StatxFlags, fcntl_getfl, fcntl_setfl, statx};
use rustix::io::Errno;

use super::FileStore;
use crate::{Act, AlignedBuffer, Error, ErrorKind, PAGE};

/// Most bytes that go through our memory at a time.
const PIECE: usize = 1 << 20;

/// What a store has for direct I/O.
#[derive(Debug)]
pub(super) struct Direct {
    /// Held by whoever writes parts of blocks: two of them may have one block.
    parts: Mutex<()>,
}

impl FileStore {
    /// The same file past the page cache (`O_DIRECT`): the operating system keeps no
    /// copy of the ciphertext, and nothing is read or written without the disk.
    /// [`Limits::block`](crate::Limits::block) is the disk's block from now on. All other
    /// calls take any range as before, more slowly.
    ///
    /// [`ErrorKind::Unsupported`] if the file system does not have it, or if a window or
    /// the size is not in whole blocks.
    pub fn direct(mut self) -> Result<Self, Error> {
        // The open file is this store's own: nobody else's I/O changes with it.
        let set = fcntl_getfl(&self.file)
            .and_then(|flags| fcntl_setfl(&self.file, flags | OFlags::DIRECT));
        match set {
            Ok(()) => {}
            Err(Errno::INVAL) => return Err(self.not_direct("its file system has none")),
            Err(errno) => return Err(self.fail(errno, Act::DirectIo, None)),
        }
        let block = match self.block {
            Some(device) => u32::try_from(device.logical_block).ok(),
            None => file_block(&self.file),
        };
        let Some(block) = block else {
            return Err(self.not_direct("its file system has none for this file"));
        };
        let size = self.look_up_size();
        let size = size.map_err(|errno| self.fail(errno, Act::DirectIo, None))?;
        if ![self.start, size]
            .iter()
            .all(|n| n.is_multiple_of(block.into()))
        {
            let what = format!("the volume's storage is not in whole blocks of {block} bytes");
            return Err(self.not_direct(what));
        }
        self.limits.block = block;
        self.direct = Some(Direct {
            parts: Mutex::new(()),
        });
        Ok(self)
    }

    /// Whether it goes past the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    fn not_direct(&self, why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error {
            source: Some(std::io::Error::other(why)),
            ..Error::new(ErrorKind::Unsupported, Act::DirectIo, &self.path, None)
        }
    }

    /// Whether the kernel takes this as it is.
    pub(super) fn takes(&self, memory: &[u8], offset: u64) -> bool {
        let block = u64::from(self.limits.block);
        self.direct.is_none()
            || (memory.as_ptr().addr().is_multiple_of(PAGE)
                && offset.is_multiple_of(block)
                && (memory.len() as u64).is_multiple_of(block))
    }

    /// Fills `buf` from this byte of the file on, by way of aligned memory.
    pub(super) fn read_around(&self, buf: &mut [u8], offset: u64) -> Result<(), Error> {
        let mut at = offset;
        for part in buf.chunks_mut(PIECE) {
            let (first, mut whole) = self
                .blocks_around(part.len(), at)
                .map_err(|errno| self.fail(errno, Act::Read, Some(at)))?;
            self.read_all(&mut whole, first)?;
            part.copy_from_slice(&whole[within(first, at)..][..part.len()]);
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Writes `data` from this byte of the file on, by way of aligned memory; `write`
    /// writes whole blocks.
    pub(super) fn write_around(
        &self,
        data: &[u8],
        offset: u64,
        mut write: impl FnMut(&[u8], u64) -> Result<(), (Errno, u64)>,
    ) -> Result<(), (Errno, u64)> {
        let block = self.limits.block as usize;
        let parts = self.direct.as_ref().map(|direct| &direct.parts);
        let _alone = parts.map(|parts| parts.lock().unwrap_or_else(PoisonError::into_inner));
        let mut at = offset;
        for part in data.chunks(PIECE) {
            let (first, mut whole) = self
                .blocks_around(part.len(), at)
                .map_err(|errno| (errno, at))?;
            let start = within(first, at);
            let end = start + part.len();
            let last = whole.len() - block;
            if start > 0 {
                self.read_edge(&mut whole[..block], first)?;
            }
            if end < whole.len() && (last > 0 || start == 0) {
                self.read_edge(&mut whole[last..], first + last as u64)?;
            }
            whole[start..end].copy_from_slice(part);
            write(&whole, first)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    fn read_edge(&self, block: &mut [u8], offset: u64) -> Result<(), (Errno, u64)> {
        let mut aligned = AlignedBuffer::zeroed(block.len()).map_err(|_| (Errno::NOMEM, offset))?;
        self.read_all(&mut aligned, offset).map_err(|error| {
            let errno = error.source.as_ref().and_then(Errno::from_io_error);
            (errno.unwrap_or(Errno::IO), offset)
        })?;
        block.copy_from_slice(&aligned);
        Ok(())
    }

    /// Memory for the whole blocks with these bytes, and where in the file they begin.
    fn blocks_around(&self, len: usize, offset: u64) -> Result<(u64, AlignedBuffer), Errno> {
        let block = u64::from(self.limits.block);
        let first = offset - offset % block;
        let end = (offset + len as u64).next_multiple_of(block);
        let len = usize::try_from(end - first).map_err(|_| Errno::NOMEM)?;
        let whole = AlignedBuffer::zeroed(len).map_err(|_| Errno::NOMEM)?;
        Ok((first, whole))
    }
}

/// Where `at` is in memory that begins with byte `first`, less than a block before it.
fn within(first: u64, at: u64) -> usize {
    usize::try_from(at - first).unwrap_or_default()
}

/// The unit of direct I/O on a file: what the file system says, or else what it takes.
/// [`None`] if it takes none.
fn file_block(file: &File) -> Option<u32> {
    let stat = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    if let Ok(stat) = stat
        && stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0
    {
        let block = stat.stx_dio_offset_align.max(512);
        let is_usable = stat.stx_dio_offset_align > 0
            && block.is_power_of_two()
            && (1..=PAGE).contains(&(stat.stx_dio_mem_align as usize));
        return is_usable.then_some(block);
    }
    [512_u32, 4096].into_iter().find(|&block| {
        AlignedBuffer::zeroed(block as usize)
            .is_ok_and(|mut memory| rustix::io::pread(file, &mut *memory, 0).is_ok())
    })
}
