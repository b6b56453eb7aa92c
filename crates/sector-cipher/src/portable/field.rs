//! Multiplication in GF(2^128) without carry-less instructions, tables or
//! branches: integer products of words whose bits have holes between them, so
//! that carries die in the holes (T. Pornin, `BearSSL`, "ctmul64").

use crate::here::MapHere;

/// The product in the layout of XTS and FAST: bit i is x^i, and x^128 is
/// x^7 + x^2 + x + 1.
pub(super) fn multiply(a: u128, b: u128) -> u128 {
    let (low, high) = product(a, b);
    // high * 0x87, of which at most seven bits stand out again.
    let (folded, out) = times_0x87(high);
    low ^ folded ^ times_0x87(out).0
}

/// The product in POLYVAL (RFC 8452, section 3): bit i is x^i, x^128 is
/// x^127 + x^126 + x^121 + 1, and a factor of x^-128 goes with it.
pub(super) fn dot(a: u128, b: u128) -> u128 {
    let (mut low, mut high) = product(a, b);
    // Twice: adds the multiple of the modulus that clears the lowest word, and
    // drops that word.
    for _ in 0..2 {
        let word = u128::from(halves(low).0);
        let times = (word << 57) ^ (word << 62) ^ (word << 63) ^ (word << 64);
        low = (low >> 64) ^ (high << 64) ^ times;
        high >>= 64;
    }
    low
}

/// Times x in POLYVAL's field, without a branch on the carry.
pub(super) fn double_polyval(a: u128) -> u128 {
    const MODULUS: u128 = 1 << 127 | 1 << 126 | 1 << 121 | 1;
    (a << 1) ^ ((a >> 127) * MODULUS)
}

/// The 255 bits of a product, low and high half.
fn product(a: u128, b: u128) -> (u128, u128) {
    let (a0, a1) = halves(a);
    let (b0, b1) = halves(b);
    let (low, high) = (wide(a0, b0), wide(a1, b1));
    let middle = wide(a0 ^ a1, b0 ^ b1) ^ low ^ high;
    (low ^ (middle << 64), high ^ (middle >> 64))
}

fn halves(a: u128) -> (u64, u64) {
    #[allow(clippy::cast_possible_truncation, reason = "the halves are wanted")]
    (a as u64, (a >> 64) as u64)
}

/// Times x^7 + x^2 + x + 1: the low 128 bits, and the rest.
fn times_0x87(a: u128) -> (u128, u128) {
    (
        a ^ (a << 1) ^ (a << 2) ^ (a << 7),
        (a >> 127) ^ (a >> 126) ^ (a >> 121),
    )
}

/// The 127 bits of a product.
fn wide(a: u64, b: u64) -> u128 {
    let high = low_half(a.reverse_bits(), b.reverse_bits()).reverse_bits() >> 1;
    u128::from(high) << 64 | u128::from(low_half(a, b))
}

/// The low 64 bits of a product: at most sixteen ones meet in one place, and
/// the sum of sixteen needs the three holes behind it, or falls out at the top.
fn low_half(a: u64, b: u64) -> u64 {
    const MASKS: [u64; 4] = [
        0x1111_1111_1111_1111,
        0x2222_2222_2222_2222,
        0x4444_4444_4444_4444,
        0x8888_8888_8888_8888,
    ];
    let a = MASKS.map_here(|mask| a & mask);
    let b = MASKS.map_here(|mask| b & mask);
    let mut sum = 0;
    for (i, mask) in MASKS.into_iter().enumerate() {
        let mut part = 0;
        for (j, a) in a.into_iter().enumerate() {
            part ^= a.wrapping_mul(b[(i + 4 - j) % 4]);
        }
        sum |= part & mask;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bit by bit.
    fn slow(a: u128, b: u128) -> u128 {
        let (mut sum, mut a) = (0, a);
        for i in 0..128 {
            if b >> i & 1 == 1 {
                sum ^= a;
            }
            a = crate::shared::double(a);
        }
        sum
    }

    #[test]
    fn multiply_agrees_with_bit_by_bit() {
        let mut x = 0x0123_4567_89ab_cdef_0f1e_2d3c_4b5a_6978_u128;
        for _ in 0..500 {
            let y = x.wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645);
            assert_eq!(multiply(x, y), slow(x, y));
            x = y ^ (y >> 61);
        }
        for edge in [0, 1, u128::MAX, 1 << 127] {
            assert_eq!(multiply(edge, u128::MAX), slow(edge, u128::MAX));
            assert_eq!(multiply(edge, 1), edge);
        }
    }

    /// RFC 8452, appendix A.
    #[test]
    fn dot_of_rfc_8452() {
        let bytes = |text| u128::from_str_radix(text, 16).map(u128::swap_bytes);
        let a = bytes("66e94bd4ef8a2c3b884cfa59ca342b2e").unwrap();
        let b = bytes("ff000000000000000000000000000000").unwrap();
        assert_eq!(
            dot(a, b),
            bytes("ebe563401e7e91ea3ad6426b8140c394").unwrap()
        );
    }
}
