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
/// those of every operation of `One`.
pub(crate) unsafe trait Vector: Lanes + Clmul + Aes + Tuning {
    /// Whether the CPU, and the operating system, let us use them.
    fn detect() -> bool;

    /// Runs a kernel with the CPU's features: see [`Cpu::call`].
    ///
    /// # Safety
    /// The CPU has them.
    unsafe fn call<R>(kernel: impl FnOnce() -> R) -> R;
}
