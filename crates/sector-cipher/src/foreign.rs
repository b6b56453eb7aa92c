//! Memory that others see: a guest's, or another process's.
#![allow(unsafe_code)]

use core::marker::PhantomData;

/// Bytes that others may look at and change at any time.
///
/// A cipher that [takes](crate::Cipher::takes_foreign) such memory reads each byte of a source once, so that what
/// it works on is what somebody has written there at some time, and writes to a destination nothing but the
/// result.
#[derive(Clone, Copy, Debug)]
pub struct Foreign<'a> {
    start: *mut u8,
    len: usize,
    _memory: PhantomData<&'a ()>,
}

impl<'a> Foreign<'a> {
    /// `len` bytes from `start` on.
    ///
    /// # Safety
    /// They can be read and written for as long as `'a`, whatever others do with them, and no reference of this program
    /// points to them meanwhile. Other values of this type may: a guest can name the same memory twice, and has what
    /// it gets then.
    pub const unsafe fn new(start: *mut u8, len: usize) -> Self {
        Self {
            start,
            len,
            _memory: PhantomData,
        }
    }

    /// Bytes in it.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Those before the byte `middle`, and the others; all and none where that is beyond the end.
    #[must_use]
    pub const fn split_at(self, middle: usize) -> (Self, Self) {
        let middle = if middle < self.len { middle } else { self.len };
        (
            Self {
                start: self.start,
                len: middle,
                _memory: PhantomData,
            },
            Self {
                start: self.start.wrapping_add(middle),
                len: self.len - middle,
                _memory: PhantomData,
            },
        )
    }

    pub(crate) const fn start(&self) -> *mut u8 {
        self.start
    }
}
