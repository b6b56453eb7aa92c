//! Multiplication in GF(2^128) by carry-less products: sums of products with
//! one reduction for all.
#![allow(dead_code, reason = "for the ciphers to come")]

use super::Vector;

/// A factor that many products share, with the sum of its halves beside it
/// (Karatsuba's middle product).
#[derive(Clone, Copy)]
pub(super) struct Factor<V> {
    value: V,
    /// The sum of the halves, in the low half at least.
    sum: V,
}

impl<V: Vector> Factor<V> {
    #[inline(always)]
    pub(super) fn new(value: V) -> Self {
        Self {
            value,
            sum: value.xor(value.swap_halves()),
        }
    }
}

impl<V: Vector> Factor<V> {
    /// From a table: the value, and the sum of its halves in the low half.
    #[inline(always)]
    pub(super) fn with_sum(value: V, sum: V) -> Self {
        Self { value, sum }
    }
}

/// A sum of products, not reduced: 255 bits a lane in three overlapping parts.
#[derive(Clone, Copy)]
pub(super) struct Products<V> {
    low: V,
    /// Of the sums of the halves: Karatsuba's, `low` and `high` still in it.
    middle: V,
    high: V,
}

impl<V: Vector> Products<V> {
    /// One product.
    #[inline(always)]
    pub(super) fn new(a: V, b: Factor<V>) -> Self {
        Self {
            low: a.clmul::<0x00>(b.value),
            middle: a.xor(a.swap_halves()).clmul::<0x00>(b.sum),
            high: a.clmul::<0x11>(b.value),
        }
    }

    /// Nothing.
    #[inline(always)]
    pub(super) fn zero() -> Self {
        let zero = V::zero();
        Self {
            low: zero,
            middle: zero,
            high: zero,
        }
    }

    /// Adds two products.
    #[inline(always)]
    pub(super) fn add_two(&mut self, a: V, b: Factor<V>, c: V, d: Factor<V>) {
        let (p, q) = (Self::new(a, b), Self::new(c, d));
        self.low = self.low.xor3(p.low, q.low);
        self.middle = self.middle.xor3(p.middle, q.middle);
        self.high = self.high.xor3(p.high, q.high);
    }

    /// The sum of all lanes.
    #[inline(always)]
    pub(super) fn fold(self) -> Products<V::One> {
        Products {
            low: self.low.fold(),
            middle: self.middle.fold(),
            high: self.high.fold(),
        }
    }

    /// Holds the compiler to the order written: what was added before is added
    /// before what is done with `x` from here on.
    #[inline(always)]
    pub(super) fn order(&mut self, x: &mut [V; 4]) {
        let mut parts = self.into_parts();
        V::order(x, &mut parts);
        *self = Self::from_parts(parts);
    }

    /// The three parts.
    #[inline(always)]
    pub(super) fn into_parts(self) -> [V; 3] {
        [self.low, self.middle, self.high]
    }

    /// From what [`Self::into_parts`] gave.
    #[inline(always)]
    pub(super) fn from_parts([low, middle, high]: [V; 3]) -> Self {
        Self { low, middle, high }
    }

    /// The sum of both.
    #[inline(always)]
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            low: self.low.xor(other.low),
            middle: self.middle.xor(other.middle),
            high: self.high.xor(other.high),
        }
    }

    /// Both halves of the 255 bits.
    #[inline(always)]
    fn halves(self) -> (V, V) {
        let middle = self.middle.xor3(self.low, self.high);
        (
            self.low.xor(middle.low_to_high()),
            self.high.xor(middle.high_to_low()),
        )
    }

    /// Reduced in the layout of XTS and FAST: bit i is x^i, and x^128 is
    /// x^7 + x^2 + x + 1.
    #[inline(always)]
    pub(super) fn reduce(self) -> V {
        let polynomial = V::splat(0x87);
        let (low, high) = self.halves();
        // The upper word first: what it gives lies at x^64, and reaches up to
        // x^134, into the lower word of the high half.
        let upper = high.clmul::<0x01>(polynomial);
        let high = high.xor(upper.high_to_low());
        low.xor3(upper.low_to_high(), high.clmul::<0x00>(polynomial))
    }

    /// Reduced in POLYVAL (RFC 8452, section 3), with its factor of x^-128.
    #[inline(always)]
    pub(super) fn reduce_polyval(self) -> V {
        // x^63 + x^62 + x^57: the modulus's middle terms, from x^64 on.
        let polynomial = V::splat(0xc200_0000_0000_0000);
        let (mut low, high) = self.halves();
        for _ in 0..2 {
            // Adds the multiple of the modulus that clears the lowest word.
            low = low.swap_halves().xor(low.clmul::<0x00>(polynomial));
        }
        low.xor(high)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Against RFC 8452, appendix A, in every lane.
    ///
    /// # Safety
    /// The CPU has what `V` needs.
    pub(crate) unsafe fn check<V: Vector>() {
        let bytes = |text| u128::from_str_radix(text, 16).unwrap().swap_bytes();
        let a = bytes("66e94bd4ef8a2c3b884cfa59ca342b2e");
        let b = bytes("ff000000000000000000000000000000");
        // SAFETY: the caller's promise.
        unsafe {
            V::call(|| {
                let product = Products::new(V::splat(a), Factor::new(V::splat(b)));
                let expected = V::splat(bytes("ebe563401e7e91ea3ad6426b8140c394"));
                assert_eq!(product.reduce_polyval().blocks(), expected.blocks());
                // x^127 times x^127, and twice that product is nothing.
                let x127 = V::splat(1 << 127);
                let product = Products::new(x127, Factor::new(x127));
                // x^254 = x^126 (x^7 + x^2 + x + 1), reduced once more.
                let expected = 1 << 126 ^ 1 << 127 ^ 0x87 ^ 0x87 << 5;
                assert_eq!(product.reduce().blocks(), V::splat(expected).blocks());
                assert_eq!(product.plus(product).reduce().blocks(), [0; 4]);
            });
        }
    }
}
