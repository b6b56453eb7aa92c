//! Back-ends for x86-64: AES-NI. One key schedule for all of them, and per mode
//! and vector width one kernel over a stream of sectors.
//!
//! Constant time by construction: key expansion and rounds are the CPU's AES
//! instructions, field arithmetic is shifts and carry-less products, and
//! branches and addresses depend only on lengths, key sizes and sector counts.
#![allow(unsafe_code)]

/// Repeats the body with a constant: loops over rounds must be straight code.
macro_rules! unroll {
    ($i:ident in $($n:literal)*, $body:expr) => {
        $({
            const $i: usize = $n;
            $body
        })*
    };
}

/// One AES round on eight blocks side by side, the key loaded once. Assembly
/// because the compiler, seeing eight independent chains, may put them one
/// behind the other again.
macro_rules! round {
    ($instruction:literal, $x:expr, $key:expr) => {{
        let key: *const __m128i = $key;
        // SAFETY: computes on registers and reads one round key.
        unsafe {
            core::arch::asm!(
                "vmovdqa {k}, xmmword ptr [{key}]",
                concat!($instruction, " {0}, {0}, {k}"),
                concat!($instruction, " {1}, {1}, {k}"),
                concat!($instruction, " {2}, {2}, {k}"),
                concat!($instruction, " {3}, {3}, {k}"),
                concat!($instruction, " {4}, {4}, {k}"),
                concat!($instruction, " {5}, {5}, {k}"),
                concat!($instruction, " {6}, {6}, {k}"),
                concat!($instruction, " {7}, {7}, {k}"),
                inout(xmm_reg) $x[0],
                inout(xmm_reg) $x[1],
                inout(xmm_reg) $x[2],
                inout(xmm_reg) $x[3],
                inout(xmm_reg) $x[4],
                inout(xmm_reg) $x[5],
                inout(xmm_reg) $x[6],
                inout(xmm_reg) $x[7],
                k = out(xmm_reg) _,
                key = in(reg) key,
                options(readonly, nostack, preserves_flags),
            );
        }
    }};
}

mod cbc;
mod schedule;
mod xts;
mod xts512;

use crate::run::Sectors;
pub(crate) use schedule::Keys;

cpufeatures::new!(aes_ni, "aes", "avx", "pclmulqdq", "sse4.1");

/// Whether the CPU, and the operating system, let us use AES-NI with AVX.
pub(crate) fn has_aes_ni() -> bool {
    aes_ni::get()
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
    Vaes512,
}

/// XTS-AES over the stream.
pub(crate) fn xts<const ENCRYPT: bool>(level: Level, keys: &Keys, sectors: Sectors<'_, '_>) {
    // SAFETY: `Cipher` takes a back-end only if the CPU has its features.
    unsafe {
        match (level, keys.rounds()) {
            (Level::AesNi, 10) => xts::crypt::<10, ENCRYPT>(keys, sectors),
            (Level::AesNi, _) => xts::crypt::<14, ENCRYPT>(keys, sectors),
            (Level::Vaes512, 10) => xts512::crypt::<10, ENCRYPT>(keys, sectors),
            (Level::Vaes512, _) => xts512::crypt::<14, ENCRYPT>(keys, sectors),
        }
    }
}

/// AES-CBC over the stream.
pub(crate) fn cbc<const ENCRYPT: bool>(keys: &Keys, sectors: Sectors<'_, '_>) {
    // SAFETY: as above; all levels include AES-NI.
    unsafe {
        match (keys.rounds(), ENCRYPT) {
            (10, true) => cbc::encrypt::<10>(keys, sectors),
            (12, true) => cbc::encrypt::<12>(keys, sectors),
            (_, true) => cbc::encrypt::<14>(keys, sectors),
            (10, false) => cbc::decrypt::<10>(keys, sectors),
            (12, false) => cbc::decrypt::<12>(keys, sectors),
            (_, false) => cbc::decrypt::<14>(keys, sectors),
        }
    }
}
