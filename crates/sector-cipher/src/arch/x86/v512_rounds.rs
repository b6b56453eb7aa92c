//! Rounds and products of [`V512`] in assembly, where the order of instructions
//! and their operands decide.

use super::V512;
use crate::simd::{RoundKeys, WideKeys};
use core::arch::x86_64::*;

rounds! {
    V512, __m512i, zmm_reg, "aes,avx512f,vaes";
    round_of_eight, 8 from RoundKeys, "vbroadcasti32x4 {k}, xmmword", 16:
        0 x0 1 x1 2 x2 3 x3 4 x4 5 x5 6 x6 7 x7;
    round_of_sixteen, 16 from RoundKeys, "vbroadcasti32x4 {k}, xmmword", 16:
        0 x0 1 x1 2 x2 3 x3 4 x4 5 x5 6 x6 7 x7
        8 x8 9 x9 10 x10 11 x11 12 x12 13 x13 14 x14 15 x15;
    wide_round_of_eight, 8 from WideKeys, "vmovdqa64 {k}, zmmword", 64:
        0 x0 1 x1 2 x2 3 x3 4 x4 5 x5 6 x6 7 x7;
    wide_round_of_sixteen, 16 from WideKeys, "vmovdqa64 {k}, zmmword", 64:
        0 x0 1 x1 2 x2 3 x3 4 x4 5 x5 6 x6 7 x7
        8 x8 9 x9 10 x10 11 x11 12 x12 13 x13 14 x14 15 x15;
}

/// One AES round on one vector, from wide keys.
macro_rules! round_of_one {
    ($instruction:literal, $x:expr, $keys:expr, $round:ident) => {
        // SAFETY: computes on registers and reads one round key.
        unsafe {
            core::arch::asm!(
                concat!($instruction, " {x}, {x}, zmmword ptr [{keys} + {offset}]"),
                x = inout(zmm_reg) $x.0,
                keys = in(reg) $keys.at(0),
                offset = const 64 * $round,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
    };
}

/// One round on one vector, its key from memory.
#[target_feature(enable = "aes,avx512f,vaes")]
#[inline]
pub(super) fn wide_round_of_one<const ENCRYPT: bool, const ROUND: usize>(
    [x]: &mut [V512; 1],
    keys: &WideKeys,
) {
    if ENCRYPT {
        round_of_one!("vaesenc", x, keys, ROUND);
    } else {
        round_of_one!("vaesdec", x, keys, ROUND);
    }
}

/// The last round on eight vectors, encryption: see
/// [`crate::simd::Tuning::aes_finish_between`]. Assembly for the order of `round_of_eight`.
///
/// # Safety
/// Eight vectors are readable at `src` and writable at `dst`.
#[target_feature(enable = "aes,avx512f,vaes")]
#[inline]
pub(super) unsafe fn finish_eight(
    x: &[V512; 8],
    keys: &RoundKeys,
    src: *const u8,
    dst: *mut u8,
) -> [V512; 8] {
    macro_rules! finish {
        ($($number:literal $x:literal $y:literal)*) => {{
            let _round_key: __m512i;
            let (y0, y1, y2, y3): (__m512i, __m512i, __m512i, __m512i);
            let (y4, y5, y6, y7): (__m512i, __m512i, __m512i, __m512i);
            // SAFETY: reads one round key, and reads and writes what the caller
            // promises.
            unsafe {
                core::arch::asm!(
                    "vbroadcasti32x4 {k}, xmmword ptr [{keys} + {offset}]",
                    $(
                        concat!("vpxorq {", $y, "}, {k}, zmmword ptr [{src} + 64 * ", $number, "]"),
                        concat!("vaesenclast {", $y, "}, {", $x, "}, {", $y, "}"),
                        concat!("vmovdqu64 zmmword ptr [{dst} + 64 * ", $number, "], {", $y, "}"),
                    )*
                    x0 = in(zmm_reg) x[0].0,
                    x1 = in(zmm_reg) x[1].0,
                    x2 = in(zmm_reg) x[2].0,
                    x3 = in(zmm_reg) x[3].0,
                    x4 = in(zmm_reg) x[4].0,
                    x5 = in(zmm_reg) x[5].0,
                    x6 = in(zmm_reg) x[6].0,
                    x7 = in(zmm_reg) x[7].0,
                    y0 = out(zmm_reg) y0,
                    y1 = out(zmm_reg) y1,
                    y2 = out(zmm_reg) y2,
                    y3 = out(zmm_reg) y3,
                    y4 = out(zmm_reg) y4,
                    y5 = out(zmm_reg) y5,
                    y6 = out(zmm_reg) y6,
                    y7 = out(zmm_reg) y7,
                    k = out(zmm_reg) _round_key,
                    keys = in(reg) keys.at(0),
                    offset = const 16 * RoundKeys::LAST,
                    src = in(reg) src,
                    dst = in(reg) dst,
                    options(nostack, preserves_flags),
                );
            }
            [
                V512(y0), V512(y1), V512(y2), V512(y3), V512(y4), V512(y5), V512(y6), V512(y7),
            ]
        }};
    }
    finish!(
        0 "x0" "y0" 1 "x1" "y1" 2 "x2" "y2" 3 "x3" "y3"
        4 "x4" "y4" 5 "x5" "y5" 6 "x6" "y6" 7 "x7" "y7"
    )
}

/// See [`crate::simd::Tuning::add_products`]. Assembly, because on AMD's CPUs a product
/// starts a cycle of its own in the front end: six one behind the other leave
/// whole cycles to other instructions, and with operands from memory they are
/// slower still.
#[target_feature(enable = "avx512f,vpclmulqdq")]
#[inline]
pub(super) fn add_products(sum: &mut [V512; 3], x: [V512; 2], y: [V512; 2], halves: V512) {
    let (_s, _t, _u, _v, _w, _z): (__m512i, __m512i, __m512i, __m512i, __m512i, __m512i);
    // SAFETY: computes on registers.
    unsafe {
        core::arch::asm!(
            // Sums of halves: the first one's low, the second one's high.
            "vpunpcklqdq {s}, {a}, {b}",
            "vpunpckhqdq {t}, {a}, {b}",
            "vpxorq {s}, {s}, {t}",
            "vpclmulqdq {t}, {a}, {p}, 0x00",
            "vpclmulqdq {a}, {a}, {p}, 0x11",
            "vpclmulqdq {u}, {b}, {q}, 0x00",
            "vpclmulqdq {b}, {b}, {q}, 0x11",
            "vpclmulqdq {v}, {s}, {h}, 0x00",
            "vpclmulqdq {s}, {s}, {h}, 0x11",
            "vpternlogq {low}, {t}, {u}, 0x96",
            "vpternlogq {high}, {a}, {b}, 0x96",
            "vpternlogq {middle}, {v}, {s}, 0x96",
            a = inout(zmm_reg) x[0].0 => _w,
            b = inout(zmm_reg) x[1].0 => _z,
            p = in(zmm_reg) y[0].0,
            q = in(zmm_reg) y[1].0,
            h = in(zmm_reg) halves.0,
            s = out(zmm_reg) _s,
            t = out(zmm_reg) _t,
            u = out(zmm_reg) _u,
            v = out(zmm_reg) _v,
            low = inout(zmm_reg) sum[0].0,
            middle = inout(zmm_reg) sum[1].0,
            high = inout(zmm_reg) sum[2].0,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
}

/// See [`crate::simd::Tuning::add_products_at`]. Sums of halves take no shuffles
/// here, which are done where products are: reading can put the low half of each
/// block beside its high one as well.
///
/// # Safety
/// Two vectors are readable at `src`.
#[target_feature(enable = "avx512f,vpclmulqdq")]
#[inline]
pub(super) unsafe fn add_products_at(
    sum: &mut [V512; 3],
    src: *const u8,
    y: [V512; 2],
    halves: V512,
) {
    let (_a, _b, _s, _t, _u): (__m512i, __m512i, __m512i, __m512i, __m512i);
    let _v: __m512i;
    // SAFETY: computes on registers, and reads what the caller promises.
    unsafe {
        core::arch::asm!(
            "vmovdqu64 {a}, zmmword ptr [{src}]",
            "vmovdqu64 {b}, zmmword ptr [{src} + 64]",
            // In the high halves.
            "vmovddup {s}, zmmword ptr [{src}]",
            "vmovddup {t}, zmmword ptr [{src} + 64]",
            "vpxorq {s}, {s}, {a}",
            "vpxorq {t}, {t}, {b}",
            "vpclmulqdq {u}, {a}, {p}, 0x00",
            "vpclmulqdq {a}, {a}, {p}, 0x11",
            "vpclmulqdq {v}, {b}, {q}, 0x00",
            "vpclmulqdq {b}, {b}, {q}, 0x11",
            "vpclmulqdq {s}, {s}, {h}, 0x01",
            "vpclmulqdq {t}, {t}, {h}, 0x11",
            "vpternlogq {low}, {u}, {v}, 0x96",
            "vpternlogq {high}, {a}, {b}, 0x96",
            "vpternlogq {middle}, {s}, {t}, 0x96",
            src = in(reg) src,
            p = in(zmm_reg) y[0].0,
            q = in(zmm_reg) y[1].0,
            h = in(zmm_reg) halves.0,
            a = out(zmm_reg) _a,
            b = out(zmm_reg) _b,
            s = out(zmm_reg) _s,
            t = out(zmm_reg) _t,
            u = out(zmm_reg) _u,
            v = out(zmm_reg) _v,
            low = inout(zmm_reg) sum[0].0,
            middle = inout(zmm_reg) sum[1].0,
            high = inout(zmm_reg) sum[2].0,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
}
