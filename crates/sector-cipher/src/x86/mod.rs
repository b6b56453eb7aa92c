//! Back-ends for x86-64: AES-NI, and VAES with AVX2 or AVX-512. One key schedule
//! for all of them, and per mode and vector width one kernel over a stream of
//! sectors.
//!
//! Constant time by construction: key expansion and rounds are the CPU's AES
//! instructions, field arithmetic is shifts and carry-less products, and
//! branches and addresses depend only on lengths, key sizes and sector counts.
#![allow(unsafe_code)]

/// One AES round on eight vectors side by side, with round key `$round` of
/// `$key`, loaded once. Assembly, because the compiler, seeing eight
/// independent chains, may put them one behind the other again.
///
/// Four pieces of other work go between the vectors, where the AES unit leaves
/// the other units idle; they have operands of their own.
macro_rules! round_on {
    (
        $load:literal, $class:ident, $vector:ty,
        $instruction:literal, $x:expr, $key:expr, $round:expr,
        $work0:expr, $work1:expr, $work2:expr, $work3:expr, $($operands:tt)*
    ) => {{
        let key: *const RoundKeys = $key;
        // Named, because the width of the register follows from its type.
        let _round_key: $vector;
        // SAFETY: computes on registers, and reads round keys and what the
        // operands point to.
        unsafe {
            core::arch::asm!(
                concat!($load, " {k}, xmmword ptr [{key} + {offset}]"),
                concat!($instruction, " {x0}, {x0}, {k}"),
                concat!($instruction, " {x1}, {x1}, {k}"),
                $work0,
                concat!($instruction, " {x2}, {x2}, {k}"),
                concat!($instruction, " {x3}, {x3}, {k}"),
                $work1,
                concat!($instruction, " {x4}, {x4}, {k}"),
                concat!($instruction, " {x5}, {x5}, {k}"),
                $work2,
                concat!($instruction, " {x6}, {x6}, {k}"),
                concat!($instruction, " {x7}, {x7}, {k}"),
                $work3,
                x0 = inout($class) $x[0],
                x1 = inout($class) $x[1],
                x2 = inout($class) $x[2],
                x3 = inout($class) $x[3],
                x4 = inout($class) $x[4],
                x5 = inout($class) $x[5],
                x6 = inout($class) $x[6],
                x7 = inout($class) $x[7],
                k = out($class) _round_key,
                key = in(reg) key,
                offset = const 16 * ($round),
                $($operands)*
                options(readonly, nostack, preserves_flags),
            );
        }
    }};
}

/// [`round_on`] with 128-bit vectors, with or without other work.
macro_rules! round {
    ($instruction:literal, $x:expr, $key:expr, $round:expr) => {
        round!($instruction, $x, $key, $round, "", "", "", "",)
    };
    ($($rest:tt)*) => {
        round_on!("vmovdqa", xmm_reg, __m128i, $($rest)*)
    };
}

/// One AES round on one block, where it stands.
macro_rules! round_of_one {
    ($instruction:literal, $x:expr, $key:expr, $round:expr) => {{
        let key: *const RoundKeys = $key;
        // SAFETY: computes on a register and reads one round key.
        unsafe {
            core::arch::asm!(
                concat!($instruction, " {x}, {x}, xmmword ptr [{key} + {offset}]"),
                x = inout(xmm_reg) $x,
                key = in(reg) key,
                offset = const 16 * ($round),
                options(readonly, nostack, preserves_flags),
            );
        }
    }};
}

mod schedule;
mod v128;
mod v256;
mod v512;
mod xts;
mod xts256;
mod xts512;

use crate::Backend;
use crate::run::Sectors;
use crate::simd::{self, AesKeys};
use v128::V128;
use v256::V256;
use v512::V512;

cpufeatures::new!(aes_ni, "aes", "avx", "pclmulqdq", "sse4.1");

/// Whether the CPU, and the operating system, let us use AES-NI with AVX.
pub(crate) fn has_aes_ni() -> bool {
    aes_ni::get()
}

cpufeatures::new!(avx2, "aes", "avx", "pclmulqdq", "sse4.1", "avx2");

/// Whether they let us use VAES with AVX2. `cpufeatures` reports VAES only
/// where the operating system has AVX-512 switched on, so its bits are read
/// here: CPUID leaf 7, ECX, bits 9 (VAES) and 10 (VPCLMULQDQ).
pub(crate) fn has_vaes256() -> bool {
    if !avx2::get() {
        return false;
    }
    // A safe function in later releases of Rust.
    #[allow(unused_unsafe)]
    // SAFETY: a CPU with AVX2 has the instruction, and the leaf.
    let leaf = unsafe { core::arch::x86_64::__cpuid_count(7, 0) };
    leaf.ecx & 0x600 == 0x600
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
    "avx512vl",
    "vaes",
    "vpclmulqdq"
);

/// Whether they let us use VAES with AVX-512.
pub(crate) fn has_vaes512() -> bool {
    vaes512::get()
}

/// Which kernels to use.
#[derive(Clone, Copy)]
pub(crate) enum Level {
    AesNi,
    Vaes256,
    Vaes512,
}

impl Level {
    /// The kernels of a back-end, if it is one of these.
    pub(crate) fn of(backend: Backend) -> Option<Self> {
        match backend {
            Backend::AesNi => Some(Self::AesNi),
            Backend::Vaes256 => Some(Self::Vaes256),
            Backend::Vaes512 => Some(Self::Vaes512),
            _ => None,
        }
    }
}

/// Sets the key of a mode, for sectors of `bytes` bytes, whatever the level: all have the same schedule.
///
/// # Safety
/// The CPU has AES-NI with AVX.
pub(crate) unsafe fn set_keys(
    keys: &mut simd::Keys,
    key: &[u8],
    bytes: usize,
    essiv: Option<&[u8; 32]>,
) {
    // SAFETY: the caller's promise.
    unsafe { keys.set::<V128>(key, bytes, essiv) };
}

/// Runs the kernel of a mode.
///
/// # Safety
/// The CPU has the level's features, and the keys are set.
pub(crate) unsafe fn crypt<const ENCRYPT: bool>(
    level: Level,
    keys: &simd::Keys,
    sectors: Sectors<'_, '_>,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match (level, keys) {
            (_, simd::Keys::Xts(keys)) => xts::<ENCRYPT>(level, keys, sectors),
            (Level::AesNi, _) => simd::crypt::<V128, ENCRYPT>(keys, sectors),
            (Level::Vaes256, _) => simd::crypt::<V256, ENCRYPT>(keys, sectors),
            (Level::Vaes512, _) => simd::crypt::<V512, ENCRYPT>(keys, sectors),
        }
    }
}

/// XTS-AES over the stream.
fn xts<const ENCRYPT: bool>(level: Level, keys: &AesKeys, sectors: Sectors<'_, '_>) {
    // SAFETY: `Cipher` takes a back-end only if the CPU has its features.
    unsafe {
        match (level, keys.rounds()) {
            (Level::AesNi, 10) => xts::crypt::<10, ENCRYPT>(keys, sectors),
            (Level::AesNi, _) => xts::crypt::<14, ENCRYPT>(keys, sectors),
            (Level::Vaes256, 10) => xts256::crypt::<10, ENCRYPT>(keys, sectors),
            (Level::Vaes256, _) => xts256::crypt::<14, ENCRYPT>(keys, sectors),
            (Level::Vaes512, 10) => xts512::crypt::<10, ENCRYPT>(keys, sectors),
            (Level::Vaes512, _) => xts512::crypt::<14, ENCRYPT>(keys, sectors),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::vector_tests::check;

    #[test]
    fn vectors_agree_with_integers() {
        // SAFETY: asked before.
        unsafe {
            if has_aes_ni() {
                check::<V128>();
            }
            if has_vaes256() {
                check::<V256>();
            }
            if has_vaes512() {
                check::<V512>();
            }
        }
    }
}
