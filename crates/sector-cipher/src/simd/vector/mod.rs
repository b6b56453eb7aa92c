//! What a CPU's vectors can do, by subject.

mod aes;
mod clmul;
mod cpu;
mod lanes;
mod tuning;

pub(crate) use aes::Aes;
pub(crate) use clmul::{ASK, Clmul, LAST_BYTES, ROTATE, SHIFT};
pub(crate) use cpu::Cpu;
pub(crate) use lanes::Lanes;
pub(crate) use tuning::Tuning;

/// The vectors of a CPU that has the instructions for [`Lanes`], [`Clmul`] and [`Aes`], which is
/// what kernels are written for.
///
/// Using them outside [`Cpu::call`] is right but slow: nothing is inlined. A CPU without the
/// instructions must never come to them: [`Cpu`] says what sees to it.
///
/// # Safety
/// [`Vector::detect`] is true only where the instructions of every operation may be used, and
/// those of every operation of `One`; [`Vector::has_integers`] only where that of `Integers` is.
pub(crate) unsafe trait Vector: Lanes + Clmul + Aes + Tuning {
    /// The vectors for what has little of AES in it, where the CPU may have longer ones for
    /// that: see [`Cpu::for_integers`].
    type Integers: Vector;

    /// Whether the CPU, and the operating system, let us use them.
    fn detect() -> bool;

    /// Whether the CPU has [`Self::Integers`], and these are another kind that is to be taken.
    #[inline(always)]
    fn has_integers() -> bool {
        false
    }

    /// Runs a kernel with the CPU's features: see [`Cpu::call`].
    ///
    /// # Safety
    /// The CPU has them.
    unsafe fn call<R>(kernel: impl FnOnce() -> R) -> R;
}
