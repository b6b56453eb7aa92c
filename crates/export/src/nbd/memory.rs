//! Buffers for request payload: page-aligned, reused, and bounded over all
//! connections.
#![allow(unsafe_code)]

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Alignment of every buffer, so that stores can bypass the page cache.
pub(super) const PAGE: usize = 4096;
/// Smallest buffer that is worth sharing.
const SMALLEST: usize = 16 << 10;

/// Page-aligned bytes, in a mapping of their own: what is given up goes back to
/// the system. An allocator that has a heap for every few threads keeps several
/// times what is in use where connections come and go.
pub(super) struct Aligned {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it owns the mapping, and gives access to it as a slice would.
unsafe impl Send for Aligned {}
// SAFETY: as above.
unsafe impl Sync for Aligned {}

impl Aligned {
    /// `len` zero bytes, if the system has the memory.
    pub(super) fn new(len: usize) -> Option<Self> {
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
        };
        let start = NonNull::new(mapping.ok()?.cast())?;
        Some(Self { start, len })
    }

    /// Bytes of memory behind `len` aligned ones.
    pub(super) const fn footprint(len: usize) -> usize {
        len.next_multiple_of(PAGE)
    }
}

impl Deref for Aligned {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping has `len` bytes, all initialized by the system, and
        // lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Aligned {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made, which nobody refers to any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len.max(1)) };
    }
}

/// Buffers for requests that outlive their turn on the connection's thread.
/// Never waits: a request that gets no buffer is served by the connection's
/// thread in the connection's own memory, so nobody can starve anybody.
pub(super) struct Pool {
    limit: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Bytes in use and idle.
    allocated: usize,
    /// Bytes idle; by size, ascending.
    idle: Vec<Aligned>,
}

impl Pool {
    /// At most `limit` bytes, idle buffers included.
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            state: Mutex::default(),
        })
    }

    /// A buffer of `len` bytes with any contents, if the limit allows.
    pub(super) fn take(self: &Arc<Self>, len: usize) -> Option<Buffer> {
        let class = len.max(SMALLEST).next_power_of_two();
        let footprint = Aligned::footprint(class);
        let mut state = self.lock();
        let fits = state.idle.partition_point(|idle| idle.len < class);
        let bytes = match state.idle.get(fits) {
            Some(idle) if idle.len == class => Some(state.idle.remove(fits)),
            _ => {
                // Idle buffers of other sizes give way.
                while state.allocated + footprint > self.limit {
                    let gone = state.idle.pop()?;
                    state.allocated -= Aligned::footprint(gone.len);
                }
                state.allocated += footprint;
                None
            }
        };
        drop(state);
        let bytes = bytes.or_else(|| Aligned::new(class));
        if bytes.is_none() {
            self.lock().allocated -= footprint;
        }
        Some(Buffer {
            bytes: Some(bytes?),
            len,
            pool: Arc::clone(self),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes allocated now.
    #[cfg(test)]
    pub(super) fn allocated(&self) -> usize {
        self.state.lock().unwrap().allocated
    }
}

/// A buffer that goes back to its pool when dropped.
pub(super) struct Buffer {
    /// Present until dropped.
    bytes: Option<Aligned>,
    len: usize,
    pool: Arc<Pool>,
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.bytes
            .as_deref()
            .map_or(&[], |bytes| &bytes[..self.len])
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let len = self.len;
        self.bytes
            .as_deref_mut()
            .map_or(&mut [], |bytes| &mut bytes[..len])
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(bytes) = self.bytes.take() {
            let mut state = self.pool.lock();
            let at = state.idle.partition_point(|idle| idle.len < bytes.len);
            state.idle.insert(at, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_as_long_as_asked() {
        let pool = Pool::new(1 << 20);
        for len in [0, 1, 512, 4096, 70_000] {
            let mut buffer = pool.take(len).unwrap();
            assert_eq!(buffer.len(), len);
            assert_eq!(buffer.as_ptr().align_offset(PAGE), 0);
            buffer.fill(7);
        }
    }

    #[test]
    fn the_limit_holds_and_idle_buffers_give_way() {
        let limit = 4 * Aligned::footprint(1 << 16);
        let pool = Pool::new(limit);
        let mut held: Vec<_> = std::iter::from_fn(|| pool.take(1 << 16)).collect();
        assert_eq!(held.len(), 4);
        assert!(pool.take(1).is_none());
        held.pop();
        assert!(pool.take(1 << 16).is_some(), "reused");
        assert!(pool.take(1 << 17).is_none());
        held.clear();
        assert_eq!(pool.allocated(), 3 * Aligned::footprint(1 << 16));
        let large = pool.take(1 << 17).unwrap();
        assert!(pool.allocated() <= limit);
        drop(large);
        assert!(pool.take(1 << 20).is_none());
    }
}
