//! AEZ10 (AEZ v5, figure 4) over a stream of sectors. There are no published
//! vectors for it: see the portable implementation, which says what it follows.
//!
//! The blocks of a sector are pairs; left and right ones go to vectors apart.
//! The last pair goes through the rounds with the others, as the last lane of
//! the last vector, where it has masks and inputs of its own: this gives the
//! encryptions of its right block and of the tweak in the first pass, and those
//! that make the last pair of the result in the second. Only one block a
//! sector is left to encrypt between the passes.

use super::two_pass::{self, SECTORS, SectorBlocks, Step, TwoPass};
use super::{AesKeys, Lanes, Vector, aes};
use crate::here::{MapHere, ZipHere};
use crate::run::{BLOCK, Sectors};
use crate::shared::double;

/// Vectors of left or right blocks in flight, a *group*. With twice as many,
/// the blocks that wait for a later layer do not fit in registers.
const LANES: usize = 8;

/// Vectors of left or right blocks that go together, a *quartet* of each: half a
/// group. Every sector is a multiple of as many.
const QUARTET: usize = LANES / 2;

/// Pairs of the largest sector.
const PAIRS: usize = 4096 / (2 * BLOCK);

/// Its keys. I and J are the encryptions of 0 and 1, and (r, c) the mask of a
/// row and a column, (r + 1) I + c J.
#[repr(C, align(64))]
pub(crate) struct Keys {
    /// (1, 1), (1, 2), ...
    masks: [u128; PAIRS],
    /// The last four of a sector, the last one replaced by (0, 1) or (0, 2);
    /// for sectors of 512, 1024, 2048 and 4096 bytes.
    last_masks: [[[u128; 4]; 2]; 4],
    /// (-1, 1) and (-1, 2).
    of_sums: [u128; 2],
    /// (0, 0).
    constant: u128,
    /// (4, 1).
    of_tweak: u128,
    /// The share of the tag's length, zero, in AEZ-hash.
    hash: u128,
    aes: AesKeys,
}

impl Keys {
    pub(super) const UNSET: Self = Self {
        masks: [0; PAIRS],
        last_masks: [[[0; 4]; 2]; 4],
        of_sums: [0; 2],
        constant: 0,
        of_tweak: 0,
        hash: 0,
        aes: AesKeys::UNSET,
    };

    /// Rounds of AES.
    #[inline(always)]
    pub(super) fn set<V: Vector>(&mut self, key: &[u8]) {
        self.aes.set::<V>(key, None);
        let encryption = |block: u128| {
            let mut x = [V::splat(block)];
            aes::encrypt(&mut x, &self.aes.encrypt);
            x[0].blocks()[0]
        };
        // The field is big endian.
        let i = encryption(0).swap_bytes();
        let j = encryption(1_u128.swap_bytes()).swap_bytes();
        let (i2, j2) = (double(i), double(j));
        let (i4, i5) = (double(i2), double(i2) ^ i);
        self.hash = encryption((i4 ^ j).swap_bytes());
        self.constant = i.swap_bytes();
        self.of_tweak = (i5 ^ j).swap_bytes();
        self.of_sums = [j.swap_bytes(), j2.swap_bytes()];

        // Multiples of J: n is twice n / 2, plus n mod 2.
        self.masks[0] = j;
        for n in 2..=PAIRS {
            let odd = if n % 2 == 1 { j } else { 0 };
            self.masks[n - 1] = double(self.masks[n / 2 - 1]) ^ odd;
        }
        for mask in &mut self.masks {
            *mask = (*mask ^ i2).swap_bytes();
        }
        for (log, last) in self.last_masks.iter_mut().enumerate() {
            let end = 16 << log;
            for (last, column) in last.iter_mut().zip_here([j, j2]) {
                last.copy_from_slice(&self.masks[end - 4..end]);
                last[3] = (i ^ column).swap_bytes();
            }
        }
    }
}

#[inline(always)]
pub(super) fn crypt<V: Vector>(keys: &Keys, sectors: &mut Sectors<'_, '_>, encrypt: bool) {
    let log = (sectors.bytes() / 512).trailing_zeros() as usize;
    let behind = V::BLOCKS.wrapping_neg() & 3;
    let last_masks = |column: usize| {
        let masks = &keys.last_masks[log][column][behind..][..V::BLOCKS];
        // SAFETY: as many bytes as a vector has.
        unsafe { V::load(masks.as_ptr().cast()) }
    };
    // Decryption swaps columns 1 and 2 of the last pair.
    let (before, after) = if encrypt { (0, 1) } else { (1, 0) };
    let kernel = Kernel::<V> {
        keys,
        constant: V::splat(keys.constant),
        last_lane: V::from_fn(|i| if i + 1 == V::BLOCKS { u128::MAX } else { 0 }),
        last_masks: [last_masks(before), last_masks(after)],
        of_sums: [keys.of_sums[before], keys.of_sums[after]],
    };
    two_pass::run::<V, _>(&kernel, sectors);
}

struct Kernel<'k, V> {
    keys: &'k Keys,
    constant: V,
    /// All ones in the last lane.
    last_lane: V,
    /// Masks of a sector's last vector: in the first pass, and in the second.
    last_masks: [V; 2],
    /// Row -1: in the first pass, and in the second.
    of_sums: [u128; 2],
}

/// What it keeps of a step.
#[derive(Clone, Copy)]
struct State<V> {
    /// The last vector of right blocks of each sector.
    right: [V; SECTORS],
    /// Sums over each sector: of X in the first pass, of Y in the second.
    sums: [V; SECTORS],
    /// S, plus mask (0, 0).
    s: SectorBlocks,
    /// The standard's S_x.
    s_x: SectorBlocks,
    /// The result's last left block, but for its encryption and the sum of Y.
    last_left: SectorBlocks,
}

/// A quartet of a step.
#[derive(Clone, Copy)]
struct Quartet {
    sector: usize,
    /// Where it begins in the sector.
    offset: usize,
    /// Whether it is the first or the last of its sector.
    first: bool,
    last: bool,
}

impl Quartet {
    /// Bytes of a quartet.
    #[inline(always)]
    fn size<V: Vector>() -> usize {
        2 * QUARTET * V::BYTES
    }

    /// How many a step has.
    #[inline(always)]
    fn count<V: Vector, S>(step: &Step<S>, bytes: usize) -> usize {
        step.sectors().len() * bytes / Self::size::<V>()
    }

    /// Those of the group that begins with number `index`; the same twice at the
    /// end of an odd number.
    #[inline(always)]
    fn group<V: Vector, S>(step: &Step<S>, index: usize, bytes: usize) -> [Self; 2] {
        let log = (bytes / Self::size::<V>()).trailing_zeros();
        let last = Self::count::<V, S>(step, bytes) - 1;
        [index, (index + 1).min(last)].map_here(
            #[inline(always)]
            |index| {
                let sector = index >> log;
                let offset = (index - (sector << log)) * Self::size::<V>();
                Self {
                    sector,
                    offset,
                    first: offset == 0,
                    last: offset + Self::size::<V>() == bytes,
                }
            },
        )
    }

    /// Where each of a group is between the passes.
    #[inline(always)]
    fn between<S>(group: [Self; 2], step: &Step<S>, bytes: usize) -> [*mut u8; 2] {
        group.map_here(
            #[inline(always)]
            |at| step.between().wrapping_add(at.sector * bytes + at.offset),
        )
    }
}

impl<V: Vector> Kernel<'_, V> {
    /// AES on a group, after adding `before`; then adds `after`.
    #[inline(always)]
    fn rounds(&self, x: &mut [V; LANES], before: &[V; LANES], after: &[V; LANES]) {
        self.rounds_and(
            x,
            before,
            after,
            #[inline(always)]
            |_| {},
        );
    }

    /// The same, with something else beside each of rounds 5 to 12, from 0 on.
    #[inline(always)]
    fn rounds_and(
        &self,
        x: &mut [V; LANES],
        before: &[V; LANES],
        after: &[V; LANES],
        beside: impl Fn(usize),
    ) {
        let keys = &self.keys.aes.encrypt;
        V::aes_start_with::<LANES, true>(x, keys, before);
        unroll!(ROUND in 5 6 7 8 9 10 11 12 13, {
            V::aes_round::<LANES, true, ROUND>(x, keys);
            if ROUND < 13 {
                beside(ROUND - 5);
            }
        });
        V::aes_finish::<LANES, true>(x, keys, after);
    }

    /// Row 1 of the masks for a group; a sector's last vector from `last`.
    #[inline(always)]
    fn masks(&self, group: &[Quartet; 2], last: V) -> [V; LANES] {
        let at = group.map_here(
            #[inline(always)]
            |at| {
                let masks = &self.keys.masks[at.offset / (2 * BLOCK)..][..QUARTET * V::BLOCKS];
                masks.as_ptr().cast::<u8>()
            },
        );
        let mut x = [V::zero(); LANES];
        unroll!(I in 0 1 2 3 4 5 6 7, {
            // SAFETY: as many as a quartet needs.
            x[I] = unsafe { V::load(at[I / QUARTET].add(I % QUARTET * V::BYTES)) };
        });
        unroll!(Q in 0 1, if group[Q].last {
            x[Q * QUARTET + QUARTET - 1] = last;
        });
        x
    }

    /// `x`, its last lane from `y`.
    #[inline(always)]
    fn replace_last(&self, x: V, y: V) -> V {
        x.xor(x.xor(y).and(self.last_lane))
    }

    /// The first pass over the group that begins with quartet `index`.
    #[inline(always)]
    fn first_pass(&self, step: &mut Step<State<V>>, index: usize, bytes: usize) {
        let group = Quartet::group::<V, _>(step, index, bytes);
        let src = group.map_here(
            #[inline(always)]
            |at| step.sectors()[at.sector].src().wrapping_add(at.offset),
        );
        let mut left = [V::zero(); LANES];
        let mut right = [V::zero(); LANES];
        unroll!(I in 0 1 2 3 4 5 6 7, {
            // SAFETY: the quartet is inside the sector.
            let (a, b) = unsafe {
                let src = src[I / QUARTET].add(2 * (I % QUARTET) * V::BYTES);
                (V::load(src), V::load(src.add(V::BYTES)))
            };
            (left[I], right[I]) = V::unzip(a, b);
        });
        let mut w = right;
        let ahead = step.ahead(src[0]);
        self.rounds_and(
            &mut w,
            &self.masks(&group, self.last_masks[0]),
            &left,
            #[inline(always)]
            |i| {
                unroll!(Q in 0 1, ahead.ask(2 * i + Q, 2 * Quartet::size::<V>()));
            },
        );
        let between = Quartet::between(group, step, bytes);
        unroll!(I in 0 1 2 3 4 5 6 7, {
            // SAFETY: the step has a place for each byte of its sectors.
            unsafe { w[I].store(between[I / QUARTET].add(2 * (I % QUARTET) * V::BYTES)) };
        });
        let mut x = w;
        unroll!(Q in 0 1, if group[Q].last {
            // The tweak's encryption.
            let block = V::One::splat(self.keys.of_tweak ^ self.keys.constant)
                .xor(step.tweaks.one::<V>(group[Q].sector));
            let i = Q * QUARTET + QUARTET - 1;
            x[i] = self.replace_last(x[i], V::spread(block));
        });
        self.rounds(&mut x, &[self.constant; LANES], &right);
        unroll!(I in 0 1 2 3 4 5 6 7, {
            // SAFETY: as above.
            unsafe { x[I].store(between[I / QUARTET].add((2 * (I % QUARTET) + 1) * V::BYTES)) };
        });
        unroll!(Q in 0 1, {
            let at = group[Q];
            add_up(&mut step.state.sums, &at, &x[Q * QUARTET..][..QUARTET]);
            if at.last {
                step.state.right[at.sector] = right[Q * QUARTET + QUARTET - 1];
            }
        });
    }

    /// What is between the passes, for the sectors from `first` on that a
    /// vector has lanes for.
    #[inline(always)]
    fn middle_of(&self, step: &mut Step<State<V>>, first: usize, bytes: usize) {
        let last = step.sectors().len() - 1;
        let sector = |i: usize| (first + i).min(last);
        // The last lanes of each sector's W and X, and the last block.
        let between = step.between();
        let gather = |from_end: usize| {
            let block = |i: usize| between.wrapping_add((sector(i) + 1) * bytes - from_end);
            // SAFETY: blocks of the step's sectors.
            unsafe { V::gather([block(0), block(1), block(2), block(3)]) }
        };
        let (w, x) = (gather(V::BYTES + BLOCK), gather(BLOCK));
        let right = &step.state.right;
        let block = |i: usize| {
            let vector: *const V = &raw const right[sector(i)];
            vector.cast::<u8>().wrapping_add(V::BYTES - BLOCK)
        };
        // SAFETY: the last blocks of vectors.
        let right = unsafe { V::gather([block(0), block(1), block(2), block(3)]) };
        let mut sums = [V::One::zero(); SECTORS];
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum = step.state.sums[sector(i)].fold();
        }
        let block = |i: usize| (&raw const sums[i]).cast::<u8>();
        // SAFETY: blocks.
        let sums = unsafe { V::gather([block(0), block(1), block(2), block(3)]) };

        let hash = V::splat(self.keys.hash);
        // The sum has the last lane of X in it, which is the tweak's encryption
        // and the last block.
        let s_x = w.xor3(sums, hash).xor(right);
        let delta = hash.xor3(x, right);
        let mut encryption = [s_x.xor(V::splat(self.of_sums[0]))];
        aes::encrypt::<V, 1>(&mut encryption, &self.keys.aes.encrypt);
        let s_y = right.xor(encryption[0]);
        step.state.s_x.store(first, s_x);
        step.state.s.store(first, s_x.xor3(s_y, self.constant));
        step.state.last_left.store(first, s_y.xor(delta));
    }

    /// The second pass over the group that begins with quartet `index`.
    #[inline(always)]
    fn second_pass(&self, step: &mut Step<State<V>>, index: usize, bytes: usize) {
        let group = Quartet::group::<V, _>(step, index, bytes);
        let between = Quartet::between(group, step, bytes);
        let mut s = [V::zero(); LANES];
        unroll!(Q in 0 1, {
            let at = group[Q];
            let all = V::spread(step.state.s.one::<V>(at.sector));
            let i = Q * QUARTET;
            (s[i], s[i + 1], s[i + 2], s[i + 3]) = (all, all, all, all);
            if at.last {
                // S_x takes S to S_y.
                let s_x = V::spread(step.state.s_x.one::<V>(at.sector));
                s[i + 3] = all.xor(s_x.and(self.last_lane));
            }
        });
        let masks = self.masks(&group, self.last_masks[1]);
        self.rounds(&mut s, &masks, &[V::zero(); LANES]);
        let mut y = [V::zero(); LANES];
        let mut z = [V::zero(); LANES];
        unroll!(I in 0 1 2 3 4 5 6 7, {
            // SAFETY: the first pass has written it.
            unsafe {
                let between = between[I / QUARTET].add(2 * (I % QUARTET) * V::BYTES);
                y[I] = V::load(between).xor(s[I]);
                z[I] = V::load(between.add(V::BYTES));
            }
        });
        unroll!(Q in 0 1, if group[Q].last {
            // This makes the result's last block.
            let s_x = V::spread(step.state.s_x.one::<V>(group[Q].sector));
            let i = Q * QUARTET + QUARTET - 1;
            z[i] = self.replace_last(z[i], s_x.xor(V::splat(self.of_sums[1])));
        });
        unroll!(I in 0 1 2 3 4 5 6 7, z[I] = z[I].xor(s[I]));
        let mut right = z;
        self.rounds_and(
            &mut right,
            &[self.constant; LANES],
            &y,
            #[inline(always)]
            |i| {
                unroll!(Q in 0 1, {
                    // SAFETY: read before.
                    unsafe { V::zero().store(between[Q].add(i * V::BYTES)) };
                });
            },
        );
        let mut left = right;
        let masks = self.masks(&group, self.last_masks[1]);
        self.rounds(&mut left, &masks, &z);
        unroll!(Q in 0 1, {
            let at = group[Q];
            add_up(&mut step.state.sums, &at, &y[Q * QUARTET..][..QUARTET]);
            if at.last {
                let i = Q * QUARTET + QUARTET - 1;
                // The sum has the last lane of Y in it, as `right` has.
                let rest = step.state.sums[at.sector]
                    .fold()
                    .xor(step.state.last_left.one::<V>(at.sector));
                left[i] = self.replace_last(left[i], right[i].xor(V::spread(rest)));
                right[i] = self.replace_last(right[i], z[i].xor(V::splat(self.of_sums[1])));
            }
        });
        let dst = group.map_here(
            #[inline(always)]
            |at| step.sectors()[at.sector].dst().wrapping_add(at.offset),
        );
        unroll!(I in 0 1 2 3 4 5 6 7, {
            let (a, b) = V::zip(left[I], right[I]);
            // SAFETY: the quartet is inside the sector.
            unsafe {
                let dst = dst[I / QUARTET].add(2 * (I % QUARTET) * V::BYTES);
                a.store(dst);
                b.store(dst.add(V::BYTES));
            }
        });
    }
}

/// Adds a quartet to the sum of its sector.
#[inline(always)]
fn add_up<V: Vector>(sums: &mut [V; SECTORS], at: &Quartet, x: &[V]) {
    let sum = x[0].xor3(x[1], x[2].xor(x[3]));
    let place = &mut sums[at.sector];
    *place = if at.first { sum } else { place.xor(sum) };
}

impl<V: Vector> TwoPass<V> for Kernel<'_, V> {
    type State = State<V>;
    type Carried = ();

    #[inline(always)]
    fn carried(&self) {}

    #[inline(always)]
    fn start(&self) -> State<V> {
        State {
            right: [V::zero(); SECTORS],
            sums: [V::zero(); SECTORS],
            s: SectorBlocks::ZERO,
            s_x: SectorBlocks::ZERO,
            last_left: SectorBlocks::ZERO,
        }
    }

    #[inline(always)]
    fn stage(&self, [new, next, step]: [&mut Step<State<V>>; 3], _carried: &mut (), bytes: usize) {
        let mut first = 0;
        while first < next.sectors().len() {
            self.middle_of(next, first, bytes);
            first += V::BLOCKS;
        }
        let end = Quartet::count::<V, _>(new, bytes);
        let mut index = 0;
        while index < end {
            self.first_pass(new, index, bytes);
            index += 2;
        }
        let end = Quartet::count::<V, _>(step, bytes);
        let mut index = 0;
        while index < end {
            self.second_pass(step, index, bytes);
            index += 2;
        }
    }
}
