//! Where the CPU shifts bits of 64-byte vectors.

use crate::here::MapHere;
use core::sync::atomic::{AtomicU8, Ordering};

/// Nobody has looked at the CPU yet.
const UNKNOWN: u8 = 0;
const WITH_AES: u8 = 1;
const BESIDE_AES: u8 = 2;

static SHIFTS: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Whether shifts of bits and AES rounds run side by side. On AMD's CPUs they do, and what takes
/// bits from anywhere (`vpmultishiftqb`) or rotates them takes the turns of AES rounds
/// (measured on Zen 5: four rounds and two shifts start in two cycles, four rounds and two of
/// the others in three); on Intel's it is the other way round. No secret has a part in it.
#[inline(always)]
pub(super) fn are_beside_aes() -> bool {
    SHIFTS.load(Ordering::Relaxed) == BESIDE_AES
}

/// Looks at the CPU, which has AVX-512, once: in a virtual machine that takes microseconds.
/// Nothing but speed depends on it.
pub(super) fn look() {
    if SHIFTS.load(Ordering::Relaxed) != UNKNOWN {
        return;
    }
    // A safe function in later releases of Rust.
    #[allow(unused_unsafe)]
    // SAFETY: a CPU with AVX-512 has the instruction.
    let maker = unsafe { core::arch::x86_64::__cpuid(0) };
    let amd = [*b"Auth", *b"enti", *b"cAMD"];
    let [ebx, edx, ecx] = amd.map_here(u32::from_le_bytes);
    let is_amd = (maker.ebx, maker.edx, maker.ecx) == (ebx, edx, ecx);
    let shifts = if is_amd { BESIDE_AES } else { WITH_AES };
    SHIFTS.store(shifts, Ordering::Relaxed);
}
