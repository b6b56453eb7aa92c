//! Poly1305's polynomial (RFC 8439, clause 2.5) without the final addition, in
//! 64-bit limbs. Adiantum needs it for a few blocks of a sector only.

/// The point at which the polynomial is evaluated.
#[derive(Clone, Copy)]
pub(crate) struct Point {
    low: u64,
    high: u64,
    /// `high` times 5/4, which is whole: a limb at 2^128 comes back as that.
    folded: u64,
}

/// A partly reduced number below 2^131.
#[derive(Clone, Copy)]
pub(crate) struct Sum([u64; 3]);

impl Point {
    /// Holds no key yet.
    pub(crate) const ZERO: Self = Self {
        low: 0,
        high: 0,
        folded: 0,
    };

    /// Some bits of a key are not used.
    pub(crate) const fn new(key: u128) -> Self {
        let r = key & 0x0fff_fffc_0fff_fffc_0fff_fffc_0fff_ffff;
        let (low, high) = halves(r);
        Self {
            low,
            high,
            folded: high + (high >> 2),
        }
    }
}

impl Sum {
    /// The polynomial of no blocks.
    pub(crate) const ZERO: Self = Self([0; 3]);

    /// Appends a block: adds it, with a one above it, and multiplies.
    #[inline(always)]
    pub(crate) const fn absorb(self, r: &Point, block: u128) -> Self {
        let (low, high) = halves(block);
        let (h0, carry) = self.0[0].overflowing_add(low);
        let (h1, carry0) = self.0[1].overflowing_add(high);
        let (h1, carry1) = h1.overflowing_add(carry as u64);
        // At most 5. Nothing from here on overflows; sums that may wrap spare
        // builds that check for it a branch on what is secret.
        let h2 = self.0[2].wrapping_add(1 + carry0 as u64 + carry1 as u64);

        let d0 = product(h0, r.low).wrapping_add(product(h1, r.folded));
        let d1 = product(h0, r.high)
            .wrapping_add(product(h1, r.low))
            .wrapping_add(h2.wrapping_mul(r.folded) as u128);
        let d2 = h2.wrapping_mul(r.low);

        let (h0, above) = halves(d0);
        let (h1, above) = halves(d1.wrapping_add(above as u128));
        let d2 = d2.wrapping_add(above);
        // 2^130 is 5.
        let (h0, carry) = h0.overflowing_add((d2 >> 2).wrapping_add(d2 & !3));
        let (h1, carry) = h1.overflowing_add(carry as u64);
        Self([h0, h1, (d2 & 3) + carry as u64])
    }

    /// The number modulo 2^130 - 5, and of that the low 128 bits.
    #[inline(always)]
    pub(crate) const fn low(self) -> u128 {
        let Self([h0, h1, h2]) = self;
        // By limbs: of a sum of 128 bits compilers may make a branch.
        let (minus0, carry) = h0.overflowing_add(5);
        let (minus1, carry) = h1.overflowing_add(carry as u64);
        // All ones if the modulus must be subtracted, which is below 2^131.
        let mask = 0_u64.wrapping_sub(h2.wrapping_add(carry as u64) >> 2);
        let low = h0 ^ ((h0 ^ minus0) & mask);
        let high = h1 ^ ((h1 ^ minus1) & mask);
        low as u128 | (high as u128) << 64
    }
}

#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "the low half is meant")]
const fn halves(x: u128) -> (u64, u64) {
    (x as u64, (x >> 64) as u64)
}

#[inline(always)]
const fn product(a: u64, b: u64) -> u128 {
    a as u128 * b as u128
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poly(key: u128, blocks: &[u128]) -> u128 {
        let point = Point::new(key);
        let sum = blocks
            .iter()
            .fold(Sum::ZERO, |sum, &block| sum.absorb(&point, block));
        sum.low()
    }

    /// RFC 8439, clause 2.5.2 up to the last whole block, by plain arithmetic;
    /// and points where carries are long.
    #[test]
    fn agrees_with_arithmetic_on_small_limbs() {
        const KEYS: [u128; 5] = [
            0x8036_d433_5424_3306_b342_4443_7d81_a885,
            u128::MAX,
            2,
            0x0fff_fffc_0000_0000_0000_0000_0000_0000,
            1,
        ];
        const BLOCKS: [u128; 5] = [
            0x6f46_2063_6968_7061_7267_6f74_7079_7243,
            u128::MAX,
            u128::MAX - 4,
            0,
            0x8000_0000_0000_0000_0000_0000_0000_0000,
        ];
        for key in KEYS {
            for first in BLOCKS {
                for second in BLOCKS {
                    for third in BLOCKS {
                        let blocks = [first, second, third, second];
                        assert_eq!(poly(key, &blocks), slow(key, &blocks), "{key:x}");
                    }
                }
            }
        }
        // 2^130 - 5 + 4 is 4, and 2^130 - 6 is itself.
        assert_eq!(Sum([u64::MAX, u64::MAX, 3]).low(), 4);
        assert_eq!(Sum([u64::MAX - 5, u64::MAX, 3]).low(), u128::MAX - 5);
        assert_eq!(Sum([u64::MAX - 4, u64::MAX, 3]).low(), 0);
    }

    /// The same in thirteen limbs of ten bits, without any trick.
    fn slow(key: u128, blocks: &[u128]) -> u128 {
        const LIMBS: usize = 13;
        let split = |x: u128, above: u64| -> [u64; LIMBS] {
            core::array::from_fn(|i| {
                let limb = u64::try_from(x >> (10 * i) & 0x3ff).unwrap();
                if i == LIMBS - 1 {
                    limb | above << 8
                } else {
                    limb
                }
            })
        };
        let carry = |h: &mut [u64; LIMBS]| {
            for _ in 0..3 {
                for i in 0..LIMBS {
                    let over = h[i] >> 10;
                    h[i] &= 0x3ff;
                    if i + 1 < LIMBS {
                        h[i + 1] += over;
                    } else {
                        h[0] += 5 * over;
                    }
                }
            }
        };
        let r = split(key & 0x0fff_fffc_0fff_fffc_0fff_fffc_0fff_ffff, 0);
        let mut h = [0_u64; LIMBS];
        for &block in blocks {
            for (h, m) in h.iter_mut().zip(split(block, 1)) {
                *h += m;
            }
            let mut product = [0_u64; LIMBS];
            for i in 0..LIMBS {
                for j in 0..LIMBS {
                    let wrap = if i + j < LIMBS { 1 } else { 5 };
                    product[(i + j) % LIMBS] += wrap * h[i] * r[j];
                }
            }
            h = product;
            carry(&mut h);
        }
        // The modulus is all limbs full, the lowest but for four.
        if h[1..].iter().all(|&limb| limb == 0x3ff) && h[0] >= 0x3fb {
            h[1..].fill(0);
            h[0] -= 0x3fb;
        }
        (0..LIMBS).fold(0, |sum, i| sum | u128::from(h[i]) << (10 * i))
    }
}
