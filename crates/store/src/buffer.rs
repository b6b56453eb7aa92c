//! Page-aligned memory for ciphertext on its way to a store.

use std::collections::TryReserveError;
use std::ops::{Deref, DerefMut};

const ALIGNMENT: usize = 4096;

/// A byte buffer that starts on a page boundary, so that copies to and from
/// the page cache run aligned, and direct I/O can take it.
pub struct AlignedBuffer {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuffer {
    /// `len` zero bytes. Fails, instead of aborting, when there is no memory.
    pub fn zeroed(len: usize) -> Result<Self, TryReserveError> {
        let mut memory: Vec<u8> = Vec::new();
        // An overflowing sum is refused by try_reserve_exact as well.
        memory.try_reserve_exact(len.saturating_add(ALIGNMENT - 1))?;
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        memory.resize(start + len, 0);
        Ok(Self { memory, start, len })
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
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
            assert_eq!(buffer.as_ptr().align_offset(ALIGNMENT), 0);
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
