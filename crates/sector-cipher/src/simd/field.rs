//! Multiplication in GF(2^128) by carry-less products: sums of products with
//! one reduction for all.

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

/// Factors for two vectors, from a table.
#[derive(Clone, Copy)]
pub(super) struct Pair<V> {
    pub(super) values: [V; 2],
    /// The sums of their halves: the first one's low, the second one's high.
    pub(super) sums: V,
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

    /// Adds the products of two vectors.
    #[inline(always)]
    pub(super) fn add_two(&mut self, x: [V; 2], y: Pair<V>) {
        let mut parts = self.into_parts();
        V::add_products(&mut parts, x, y.values, y.sums);
        *self = Self::from_parts(parts);
    }

    /// The same of two vectors in memory, one behind the other.
    ///
    /// # Safety
    /// They are readable.
    #[inline(always)]
    pub(super) unsafe fn add_two_at(&mut self, src: *const u8, y: Pair<V>) {
        let mut parts = self.into_parts();
        // SAFETY: the caller's promise.
        unsafe { V::add_products_at(&mut parts, src, y.values, y.sums) };
        *self = Self::from_parts(parts);
    }

    /// Lane `i` is the sum of all lanes of `sums[i]`; there are as many as a
    /// vector has lanes.
    #[inline(always)]
    pub(super) fn fold_each(sums: &[Self]) -> Self {
        let part = |part: fn(&Self) -> V| {
            let add = |a, b| {
                let (even, odd) = V::unzip(a, b);
                even.xor(odd)
            };
            match V::BLOCKS {
                1 => part(&sums[0]),
                2 => add(part(&sums[0]), part(&sums[1])),
                _ => add(
                    add(part(&sums[0]), part(&sums[1])),
                    add(part(&sums[2]), part(&sums[3])),
                ),
            }
        };
        Self {
            low: part(|sum| sum.low),
            middle: part(|sum| sum.middle),
            high: part(|sum| sum.high),
        }
    }

    /// Holds the compiler to the order written: what was added before is added
    /// before what is done with `x` from here on.
    #[inline(always)]
    pub(super) fn order<const N: usize>(&mut self, x: &mut [V; N]) {
        if let Some(x) = x.first_chunk_mut() {
            let mut parts = self.into_parts();
            V::order(x, &mut parts);
            *self = Self::from_parts(parts);
        }
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
    /// x^7 + x^2 + x + 1. On narrow vectors by shifts: the unit for carry-less products
    /// is the one that hashes wait for.
    #[inline(always)]
    pub(super) fn reduce(self) -> V {
        if V::BLOCKS == 4 {
            let middle = self.middle.xor3(self.low, self.high);
            return V::reduce(self.low, middle, self.high, V::zero());
        }
        let (low, high) = self.halves();
        // What the shifts move out of each half.
        let out = high
            .shr64::<63>()
            .xor3(high.shr64::<62>(), high.shr64::<57>());
        // From the upper half it comes back at x^128, where the high half
        // begins, and is too short to be moved out again.
        let high = high.xor(out.high_to_low());
        let times = high.xor3(high.shl64::<1>(), high.shl64::<2>());
        let times = times.xor3(high.shl64::<7>(), out.low_to_high());
        low.xor(times)
    }

    /// Reduced in POLYVAL (RFC 8452, section 3), with its factor of x^-128.
    #[inline(always)]
    pub(super) fn reduce_polyval(self) -> V {
        if V::BLOCKS == 4 {
            // A word at the bottom is cleared by the multiple of the modulus that
            // adds it at x^57, x^62 and x^63 from there, and at x^128. The lower
            // word first, then the upper one, with what the lower one gives it.
            let modulus = V::splat(0xc200_0000_0000_0000);
            let middle = self.middle.xor3(self.low, self.high);
            let low = self.low.xor(middle.low_to_high());
            let low = low.swap_halves().xor(low.clmul::<0x00>(modulus));
            let low = low.swap_halves().xor(low.clmul::<0x00>(modulus));
            return self.high.xor3(middle.high_to_low(), low);
        }
        let (low, high) = self.halves();
        // The same by shifts.
        let up = |x: V| x.shl64::<57>().xor3(x.shl64::<62>(), x.shl64::<63>());
        let down = |x: V| x.shr64::<7>().xor3(x.shr64::<2>(), x.shr64::<1>());
        let low = low.xor(up(low).low_to_high());
        let rest = down(low).xor(up(low).high_to_low());
        high.xor3(low, rest)
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
