//! Page-aligned memory for data on its way to and from a store.
#![allow(unsafe_code)]

use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Bytes in a page of the kernel's cache, and what direct I/O wants memory and
/// ranges aligned to.
pub const PAGE: usize = 4096;

/// A byte buffer that starts on a page boundary, so that copies to and from
/// the page cache run aligned, and direct I/O can take it.
///
/// It is a mapping of its own: what is given up goes back to the system. An
/// allocator that has a heap for every few threads keeps several times what is
/// in use where threads come and go.
pub struct AlignedBuffer {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it owns the mapping, and gives access to it as a slice would.
unsafe impl Send for AlignedBuffer {}
// SAFETY: it gives shared access for reading only, as a slice would.
unsafe impl Sync for AlignedBuffer {}

impl AlignedBuffer {
    /// `len` zero bytes; the system's error if it has not got the memory.
    pub fn zeroed(len: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new private mapping, wherever the system puts it, is nobody
        // else's memory. Its length is not zero.
        let mapping = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                len.max(1),
                protection,
                MapFlags::PRIVATE,
            )
        }?;
        let start = NonNull::new(mapping.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }

    /// Bytes of memory behind `len` aligned ones.
    pub const fn footprint(len: usize) -> usize {
        len.next_multiple_of(PAGE)
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping has `len` bytes, all initialized by the system, and
        // lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        // SAFETY: the mapping that `zeroed` made, which nobody refers to any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len.max(1)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_aligned_and_zero() {
        for len in [0, 1, 4095, 4096, 262_144] {
            let mut buffer = AlignedBuffer::zeroed(len).unwrap();
            assert_eq!(buffer.len(), len);
            assert_eq!(buffer.as_ptr().align_offset(PAGE), 0);
            assert!(buffer.iter().all(|b| *b == 0));
            buffer.fill(1);
        }
    }

    #[test]
    fn too_much_is_an_error() {
        assert!(AlignedBuffer::zeroed(usize::MAX).is_err());
        assert!(AlignedBuffer::zeroed(usize::MAX / 2).is_err());
    }
}
