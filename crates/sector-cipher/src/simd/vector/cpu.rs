//! Evidence of what the CPU has.

use super::Vector;
use core::marker::PhantomData;

/// Evidence that the CPU, and the operating system, let us use the vectors `V`: the way into
/// code that uses them is [`Cpu::call`]. It is a value without bytes.
///
/// # What it proves
///
/// Outside tests it is made in one way that is not `unsafe`: from another one. The first comes
/// from a function of a [`Row`](crate::row::Row), which trusts that the row's `detect` has been
/// true; and [`Detected`](crate::row::Detected), without which safe code has no way to these
/// functions, is made by asking `detect`. Since a row takes `detect` from its vectors
/// ([`Vector::detect`]), it cannot ask for other instructions than it uses. So safe code cannot
/// enter a kernel for which the CPU lacks instructions.
///
/// It does not prove that of a single operation: those are safe functions that ask for no
/// evidence. What keeps safe code from using them without is that it cannot say of which
/// vectors: their types are private to the module of their architecture, `arch::x86` or
/// `arch::aarch64`, which hands them to [`row`](crate::simd::row()) and to the tests of vectors,
/// and to nobody else. Code that is generic over them runs for a vector only if these two run
/// it, and both do it by [`Cpu::call`]. In these modules themselves it is a matter of care.
pub(crate) struct Cpu<V>(PhantomData<V>);

impl<V> Clone for Cpu<V> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for Cpu<V> {}

impl<V: Vector> Cpu<V> {
    /// Evidence, if the CPU has the vectors.
    #[cfg(test)]
    pub(crate) fn detect() -> Option<Self> {
        V::detect().then_some(Self(PhantomData))
    }

    /// Evidence from what somebody else has detected.
    ///
    /// # Safety
    /// [`Vector::detect`] has been true.
    #[inline(always)]
    pub(crate) unsafe fn detected() -> Self {
        Self(PhantomData)
    }

    /// For the vectors of one lane, which the same CPU has.
    #[inline(always)]
    pub(crate) fn one(self) -> Cpu<V::One> {
        Cpu(PhantomData)
    }

    /// For the vectors for integers, where those are others.
    #[inline(always)]
    pub(crate) fn for_integers(self) -> Option<Cpu<V::Integers>> {
        V::has_integers().then_some(Cpu(PhantomData))
    }

    /// Runs a kernel, or a part of one that is to be a function of its own, with the CPU's
    /// features. Its closure is `#[inline(always)]`: a large one may stay outside otherwise,
    /// where the features are not.
    #[inline(always)]
    pub(crate) fn call<R>(self, kernel: impl FnOnce() -> R) -> R {
        // SAFETY: `self` is the evidence.
        unsafe { V::call(kernel) }
    }
}
