//! Buffers for request payload: page-aligned, reused, and bounded over all
//! connections.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use xtent_store::AlignedBuffer;

/// Smallest buffer that is worth sharing.
const SMALLEST: usize = 16 << 10;

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
    idle: Vec<AlignedBuffer>,
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
        let footprint = AlignedBuffer::footprint(class);
        let mut state = self.lock();
        let fits = state.idle.partition_point(|idle| idle.len() < class);
        let bytes = match state.idle.get(fits) {
            Some(idle) if idle.len() == class => Some(state.idle.remove(fits)),
            _ => {
                // Idle buffers of other sizes give way.
                while state.allocated + footprint > self.limit {
                    let gone = state.idle.pop()?;
                    state.allocated -= AlignedBuffer::footprint(gone.len());
                }
                state.allocated += footprint;
                None
            }
        };
        drop(state);
        let bytes = bytes.or_else(|| AlignedBuffer::zeroed(class).ok());
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
    bytes: Option<AlignedBuffer>,
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
            let at = state.idle.partition_point(|idle| idle.len() < bytes.len());
            state.idle.insert(at, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xtent_store::PAGE;

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
        let limit = 4 * AlignedBuffer::footprint(1 << 16);
        let pool = Pool::new(limit);
        let mut held: Vec<_> = std::iter::from_fn(|| pool.take(1 << 16)).collect();
        assert_eq!(held.len(), 4);
        assert!(pool.take(1).is_none());
        held.pop();
        assert!(pool.take(1 << 16).is_some(), "reused");
        assert!(pool.take(1 << 17).is_none());
        held.clear();
        assert_eq!(pool.allocated(), 3 * AlignedBuffer::footprint(1 << 16));
        let large = pool.take(1 << 17).unwrap();
        assert!(pool.allocated() <= limit);
        drop(large);
        assert!(pool.take(1 << 20).is_none());
    }
}
