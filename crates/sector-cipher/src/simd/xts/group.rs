//! What groups of eight and of sixteen vectors have in common.

use crate::simd::Vector;
use core::mem::MaybeUninit;
use core::ptr;

/// Masks of a group, which are there when it comes: writing zeros before would
/// keep other writes waiting.
#[repr(C, align(64))]
pub(super) struct Masks<V, const N: usize>([MaybeUninit<V>; N]);

impl<V: Vector, const N: usize> Masks<V, N> {
    /// No constant: of that the compiler would make zeros.
    #[inline(always)]
    pub(super) fn unset() -> Self {
        Self([const { MaybeUninit::uninit() }; N])
    }

    #[inline(always)]
    pub(super) fn set(&mut self, i: usize, mask: V) {
        self.0[i].write(mask);
    }

    /// # Safety
    /// It has been set.
    #[inline(always)]
    pub(super) unsafe fn get(&self, i: usize) -> V {
        // SAFETY: the caller's promise.
        unsafe { self.0[i].assume_init() }
    }

    /// # Safety
    /// They have been set, all of them.
    #[inline(always)]
    pub(super) unsafe fn all(&self) -> &[V; N] {
        // SAFETY: the caller's promise; the layout is the same.
        unsafe { &*ptr::from_ref(self).cast() }
    }
}

/// Which of `count` masks comes at a step of [`Tuning::mask`](crate::simd::Tuning::mask): first those with even
/// numbers.
#[inline(always)]
pub(super) const fn order(count: usize, step: usize) -> usize {
    2 * step % count + 2 * step / count
}
