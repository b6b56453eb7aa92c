//! Back-ends for x86-64: AES-NI, and VAES with AVX2 or AVX-512. One key schedule
//! for all of them; the kernels are those of `simd`.
//!
//! Constant time by construction: key expansion and rounds are the CPU's AES
//! instructions, arithmetic is shifts, sums and products, and branches and
//! addresses depend only on lengths, key sizes, sector counts and the CPU.
#![allow(unsafe_code)]

#[macro_use]
mod operations;
mod ports;
mod schedule;
mod v128;
mod v256;
mod v512;
mod v512_masks;
mod v512_rounds;

use crate::Backend;
use crate::row::Row;
use crate::simd::row;
use core::sync::atomic::{AtomicU8, Ordering};
pub(crate) use ports::of as ports_of;
#[cfg(any(test, feature = "hazmat"))]
pub(crate) use ports::{set as set_ports, timed as timed_ports};
use v128::V128;
use v256::V256;
use v512::V512;

cpufeatures::new!(aes_ni, "aes", "avx", "pclmulqdq", "sse4.1");

/// Whether the CPU, and the operating system, let us use AES-NI with AVX.
fn has_aes_ni() -> bool {
    let has = aes_ni::get();
    if has {
        // SAFETY: it has them. No other back-end is used before this one is asked for.
        unsafe { ports::look() };
    }
    has
}

cpufeatures::new!(avx2, "aes", "avx", "pclmulqdq", "sse4.1", "avx2");

/// Whether they let us use AVX2 beside AES-NI.
fn has_avx2() -> bool {
    avx2::get()
}

/// Whether they let us use VAES with AVX2. `cpufeatures` reports VAES only
/// where the operating system has AVX-512 switched on, so its bits are read
/// here: CPUID leaf 7, ECX, bits 9 (VAES) and 10 (VPCLMULQDQ). Once: in a virtual machine
/// that takes some ten microseconds.
fn has_vaes256() -> bool {
    /// Plus one, and zero at first.
    static FOUND: AtomicU8 = AtomicU8::new(0);
    match FOUND.load(Ordering::Relaxed) {
        0 => {
            let has = has_avx2() && {
                // A safe function in later releases of Rust.
                #[allow(unused_unsafe)]
                // SAFETY: a CPU with AVX2 has the instruction, and the leaf.
                let leaf = unsafe { core::arch::x86_64::__cpuid_count(7, 0) };
                leaf.ecx & 0x600 == 0x600
            };
            FOUND.store(1 + u8::from(has), Ordering::Relaxed);
            has
        }
        found => found != 1,
    }
}

cpufeatures::new!(
    vaes512,
    "aes",
    "avx",
    "pclmulqdq",
    "sse4.1",
    "avx2",
    "avx512f",
    "avx512bw",
    "avx512vbmi",
    "avx512vl",
    "vaes",
    "vpclmulqdq"
);

/// Whether they let us use VAES with AVX-512.
fn has_vaes512() -> bool {
    vaes512::get()
}

/// The back-ends, slowest first.
pub(crate) static ROWS: [Row; 4] = [
    Row::PORTABLE,
    row::<V128, V128>(Backend::AesNi),
    row::<V128, V256>(Backend::Vaes256),
    row::<V128, V512>(Backend::Vaes512),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::vector_tests::check;

    #[test]
    fn vectors_agree_with_integers() {
        check::<V128>();
        check::<V256<false>>();
        check::<V256>();
        check::<V512>();
    }
}
