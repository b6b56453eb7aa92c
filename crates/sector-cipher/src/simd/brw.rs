//! BRW polynomials (Bernstein; Rabin and Winograd), the hash of FAST-BRW: about
//! one product for two blocks.
//!
//! With powers of the key `tau`: the empty message gives 0, one block gives
//! itself, two give m1 tau + m2, three (tau + m1)(tau^2 + m2) + m3, and with t
//! the largest power of two that is no larger than n, n >= 4 blocks give
//! `BRW(m1 .. m_{t-1})` (tau^t + m_t) + `BRW(m_{t+1} .. m_n)`.
//!
//! A sector's hash is that of one block less than a power of two. Each lane of
//! a vector takes a subtree of 31 blocks, which are 512 bytes with the block
//! behind them; subtrees of one sector are joined in the end. A sum of products
//! is reduced only where it becomes a factor.
//!
//! FAST hashes a sector from its third block on. Lanes nevertheless take what
//! is in 512 aligned bytes, since loads and stores across cache lines take
//! twice as long: a subtree's last block, which is only added, and the block
//! behind it are the first two of the next 512 bytes, and left to the joining.

mod levels;

use super::{Vector, field};
pub(super) use levels::subtree;

/// Blocks from one subtree to the next: its 31, and the one that joins it with
/// what follows.
pub(super) const SUBTREE: usize = 32;

/// Blocks of a lane before its subtree.
pub(super) const HEAD: usize = 2;

/// Powers of the key that sectors of up to 256 blocks need: 1, 2, 4, ... 128.
const POWERS: usize = 8;

/// One block in each lane of any vector.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Wide([u128; 4]);

impl Wide {
    const ZERO: Self = Self([0; 4]);

    #[inline(always)]
    fn load<V: Vector>(&self) -> V {
        // SAFETY: as many bytes as any vector has.
        unsafe { V::load(self.0.as_ptr().cast()) }
    }
}

/// The hash's key.
#[repr(C)]
pub(super) struct HashKey {
    /// The low halves of the key and of its square, and their high halves.
    leaf: [Wide; 2],
    /// The key to the power of 2^i.
    powers: [Wide; POWERS],
}

impl HashKey {
    pub(super) const UNSET: Self = Self {
        leaf: [Wide::ZERO; 2],
        powers: [Wide::ZERO; POWERS],
    };

    /// Sets the key.
    #[inline(always)]
    pub(super) fn set<V: Vector>(&mut self, tau: V) {
        let mut power = tau;
        for place in &mut self.powers {
            *place = Wide([power.blocks()[0]; 4]);
            power = Sum::product(power, power).reduce();
        }
        let square = self.power::<V>(1);
        self.leaf = [
            Wide([tau.low_halves(square).blocks()[0]; 4]),
            Wide([tau.high_halves(square).blocks()[0]; 4]),
        ];
    }

    /// The key to the power of 2^`log`.
    #[inline(always)]
    pub(super) fn power<V: Vector>(&self, log: usize) -> V {
        self.powers[log].load()
    }
}

/// A sum of products and of a block, not reduced.
#[derive(Clone, Copy)]
pub(super) struct Sum<V> {
    low: V,
    middle: V,
    high: V,
    block: V,
}

impl<V: Vector> Sum<V> {
    /// Nothing.
    #[inline(always)]
    fn none() -> Self {
        let zero = V::zero();
        Self {
            low: zero,
            middle: zero,
            high: zero,
            block: zero,
        }
    }

    /// One product.
    #[inline(always)]
    pub(super) fn product(a: V, b: V) -> Self {
        // Looked at each time, which also keeps the compiler from mixing this with what is
        // around it: it has been put between AES rounds where it is to be.
        if V::three_products() {
            return Self::three_products(a, b);
        }
        Self {
            low: a.clmul::<0x00>(b),
            middle: a.clmul::<0x01>(b).xor(a.clmul::<0x10>(b)),
            high: a.clmul::<0x11>(b),
            block: V::zero(),
        }
    }

    /// One product, by three of halves.
    #[inline(always)]
    fn three_products(a: V, b: V) -> Self {
        // Both low halves, and both high ones: one sum for what Karatsuba's takes of both.
        Self::product_of_halves(a.low_halves(b), a.high_halves(b))
    }

    /// This and one product.
    #[inline(always)]
    fn plus_product(self, a: V, b: V) -> Self {
        let product = Self::product(a, b);
        Self {
            low: self.low.xor(product.low),
            middle: self.middle.xor(product.middle),
            high: self.high.xor(product.high),
            block: self.block,
        }
    }

    /// The product of two factors, given by both low halves and both high ones
    /// (Karatsuba's).
    #[inline(always)]
    fn product_of_halves(low: V, high: V) -> Self {
        let sums = low.xor(high);
        let low = low.clmul::<0x10>(low);
        let high = high.clmul::<0x10>(high);
        Self {
            low,
            middle: sums.clmul::<0x10>(sums).xor3(low, high),
            high,
            block: V::zero(),
        }
    }

    #[inline(always)]
    fn pin(self) -> Self {
        Self {
            low: self.low.pin(),
            middle: self.middle.pin(),
            high: self.high.pin(),
            ..self
        }
    }

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        Self {
            low: self.low.xor(other.low),
            middle: self.middle.xor(other.middle),
            high: self.high.xor(other.high),
            block: self.block.xor(other.block),
        }
    }

    #[inline(always)]
    pub(super) fn plus_block(self, block: V) -> Self {
        Self {
            block: self.block.xor(block),
            ..self
        }
    }

    #[inline(always)]
    pub(super) fn reduce(self) -> V {
        field::reduce(self.low.xor(self.block), self.middle, self.high)
    }
}

/// A tree times the factor behind it, of level `log`.
#[inline(always)]
fn node<V: Vector>(key: &HashKey, tree: Sum<V>, block: V, log: usize) -> Sum<V> {
    Sum::product(tree.reduce(), block.xor(key.power(log)))
}

/// Subtrees in each lane under way, a quarter after the other. A quarter's
/// products depend on each other, and each takes long, so that three quarters
/// are in work at a time: leaves of one, what joins two leaves of the quarter
/// before, and what joins that with the rest of the one before that. All that
/// is divided into [`STEPS`] steps, that other work can go between; no step
/// needs the one before it.
pub(super) struct Tree<V> {
    /// Four blocks of each lane, as they come out of transposing: two that
    /// follow a leaf, and the halves of the next leaf's two. Twice that.
    blocks: [[V; 4]; 2],
    left: Sum<V>,
    /// The block behind the left leaf.
    fourth: V,
    right: Sum<V>,
    /// What the left leaf is as a factor.
    three: V,
    /// Seven blocks, and the eighth.
    seven: Sum<V>,
    eighth: V,
    /// All up to there as a factor.
    most: V,
    sum: Sum<V>,
    /// Two quarters after the last of a subtree: its hash, but for the last
    /// block.
    pub(super) hash: V,
}

/// Steps of a quarter.
pub(super) const STEPS: usize = 8;

#[inline(always)]
fn pin_all<V: Vector>([a, b, c, d]: [V; 4]) -> [V; 4] {
    [a.pin(), b.pin(), c.pin(), d.pin()]
}

/// The last two.
#[inline(always)]
fn halves<V: Vector>([_, _, low, high]: [V; 4]) -> [V; 2] {
    [low, high]
}

impl<V: Vector> Tree<V> {
    #[inline(always)]
    pub(super) fn new() -> Self {
        let (zero, none) = (V::zero(), Sum::none());
        Self {
            blocks: [[zero; 4]; 2],
            left: none,
            fourth: zero,
            right: none,
            three: zero,
            seven: none,
            eighth: zero,
            most: zero,
            sum: none,
            hash: zero,
        }
    }

    /// The product of two blocks, of which these are both low halves and both high ones.
    #[inline(always)]
    fn leaf(key: &HashKey, [low, high]: [V; 2]) -> Sum<V> {
        let low = low.xor(key.leaf[0].load());
        let high = high.xor(key.leaf[1].load());
        Sum::product_of_halves(low, high)
    }

    /// Step `STEP` of quarter `K`, whose eight blocks for each lane are `x`:
    /// four consecutive ones of each, lane by lane, and the four that follow.
    #[inline(always)]
    pub(super) fn step<const K: usize, const STEP: usize>(&mut self, key: &HashKey, x: &[V; 8]) {
        match STEP {
            // The second quarter before this.
            0 => {
                self.most = match K {
                    0 | 2 => self.seven,
                    _ => self.sum.plus(self.seven),
                }
                .reduce();
            }
            // This one.
            1 => self.blocks[0] = V::transpose_halves([x[0], x[1], x[2], x[3]]),
            // The quarter before.
            2 => self.three = self.left.reduce(),
            3 => self.left = Self::leaf(key, halves(self.blocks[0])),
            4 => {
                let level = if K == 3 { 4 } else { 3 };
                let factor = self.eighth.xor(key.power(level));
                match K {
                    2 | 3 => self.sum = Sum::product(self.most, factor),
                    0 => self.sum = self.sum.plus_product(self.most, factor),
                    _ => self.hash = self.most,
                }
            }
            5 => self.blocks[1] = V::transpose_halves([x[4], x[5], x[6], x[7]]),
            6 => {
                let fourth = self.fourth.xor(key.power(2));
                self.seven = self.right.plus_product(self.three, fourth);
                if K != 0 {
                    self.seven.block = self.blocks[0][0];
                    self.eighth = self.blocks[0][1];
                }
            }
            _ => {
                self.right = Self::leaf(key, halves(self.blocks[1]));
                self.left.block = self.blocks[1][0];
                self.fourth = self.blocks[1][1];
            }
        }
    }

    /// Keeps the compiler from moving step `STEP` behind the work that follows:
    /// nothing needs its results soon, which is why it stands there.
    #[inline(always)]
    pub(super) fn pin<const STEP: usize>(&mut self) {
        match STEP {
            0 => self.most = self.most.pin(),
            1 => self.blocks[0] = pin_all(self.blocks[0]),
            2 => self.three = self.three.pin(),
            3 => self.left = self.left.pin(),
            4 => self.sum = self.sum.pin(),
            5 => self.blocks[1] = pin_all(self.blocks[1]),
            6 => self.seven = self.seven.pin(),
            _ => self.right = self.right.pin(),
        }
    }

    /// Quarter `K` at once.
    #[inline(always)]
    pub(super) fn quarter<const K: usize>(&mut self, key: &HashKey, x: &[V; 8]) {
        unroll!(STEP in 0 1 2 3 4 5 6 7, {
            self.step::<K, STEP>(key, x);
            self.pin::<STEP>();
        });
    }

    /// What is left to do after the last quarter of all.
    #[inline(always)]
    pub(super) fn finish(&mut self, key: &HashKey) {
        unroll!(STEP in 0 2 4 6, self.step::<0, STEP>(key, &[V::zero(); 8]));
        unroll!(STEP in 0 4, self.step::<1, STEP>(key, &[V::zero(); 8]));
    }
}

/// A sector's hash in each lane from those of its `count` subtrees: 2, 4 or 8.
/// `at` gives them.
#[inline(always)]
pub(super) fn join<V: Vector, T: Subtrees<V>>(key: &HashKey, count: usize, at: &T) -> V {
    match count {
        2 => two(key, at, 0).reduce(),
        4 => four(key, at, 0).reduce(),
        _ => {
            let left = four(key, at, 0);
            node(key, left, at.join(3), 7)
                .plus(four(key, at, 4))
                .reduce()
        }
    }
}

/// The subtrees of a sector in each lane.
pub(super) trait Subtrees<V> {
    /// The whole hash of one.
    fn hash(&self, index: usize) -> V;
    /// The block that joins it with what follows.
    fn join(&self, index: usize) -> V;
}

#[inline(always)]
fn two<V: Vector, T: Subtrees<V>>(key: &HashKey, at: &T, first: usize) -> Sum<V> {
    let factor = at.join(first).xor(key.power(5));
    Sum::product(at.hash(first), factor).plus_block(at.hash(first + 1))
}

#[inline(always)]
fn four<V: Vector, T: Subtrees<V>>(key: &HashKey, at: &T, first: usize) -> Sum<V> {
    let left = two(key, at, first);
    node(key, left, at.join(first + 1), 6).plus(two(key, at, first + 2))
}
