//! What a CPU's vectors can do, by subject.

mod aes;
mod clmul;
mod lanes;
mod tuning;

pub(crate) use aes::Aes;
pub(crate) use clmul::Clmul;
pub(crate) use lanes::Lanes;
pub(crate) use tuning::Tuning;

/// The vectors of a CPU that has the instructions for [`Lanes`], [`Clmul`] and [`Aes`], which is
/// what kernels are written for.
///
/// Using them outside [`Vector::call`] is right but slow: nothing is inlined. A
/// CPU without the instructions must never come here; the table of back-ends sees to it.
pub(crate) trait Vector: Lanes + Clmul + Aes + Tuning {
    /// Runs a kernel with the CPU's features. Its closure is `#[inline(always)]`:
    /// a large one may stay outside otherwise, where the features are not.
    ///
    /// # Safety
    /// The CPU has them.
    unsafe fn call<R>(kernel: impl FnOnce() -> R) -> R;
}
