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

    /// Reduced in the layout of XTS and FAST: bit i is x^i, and x^128 is
    /// x^7 + x^2 + x + 1.
    #[inline(always)]
    pub(super) fn reduce(self) -> V {
        reduce(self.low, self.middle.xor3(self.low, self.high), self.high)
    }

    /// Reduced in POLYVAL (RFC 8452, section 3), with its factor of x^-128.
    #[inline(always)]
    pub(super) fn reduce_polyval(self) -> V {
        let middle = self.middle.xor3(self.low, self.high);
        reduce_polyval(self.low, middle, self.high)
    }
}

/// `low` + x^64 `middle` + x^128 `high` in the layout of XTS and FAST. A word at the
/// top, of x^64 times a vector, goes down to x^0 times x^7 + x^2 + x + 1. With the
/// one of these that is the word itself a word of the vector beside it trades
/// places: two products and two swaps, and no shift of what reaches from one half into
/// the other.
#[inline(always)]
pub(super) fn reduce<V: Vector>(low: V, middle: V, high: V) -> V {
    let rest = V::splat(1 << 7 | 1 << 2 | 1 << 1);
    let middle = middle.xor3(high.swap_halves(), high.clmul::<0x01>(rest));
    low.xor3(middle.swap_halves(), middle.clmul::<0x01>(rest))
}

/// The same in POLYVAL, times x^-128: a word at the bottom is cleared by the multiple
/// of the modulus that adds it at x^57, x^62 and x^63 from there, and at x^128.
#[inline(always)]
fn reduce_polyval<V: Vector>(low: V, middle: V, high: V) -> V {
    let rest = V::splat(0xc200_0000_0000_0000);
    let middle = middle.xor3(low.swap_halves(), low.clmul::<0x00>(rest));
    high.xor3(middle.swap_halves(), middle.clmul::<0x00>(rest))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::simd::Cpu;

    /// Against RFC 8452, appendix A, in every lane.
    pub(crate) fn check<V: Vector>(cpu: Cpu<V>) {
        let bytes = |text| u128::from_str_radix(text, 16).unwrap().swap_bytes();
        let a = bytes("66e94bd4ef8a2c3b884cfa59ca342b2e");
        let b = bytes("ff000000000000000000000000000000");
        cpu.call(|| {
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
