//! Both passes, and what is between them.

use super::super::two_pass::{SECTORS, SectorBlocks, Step, TwoPass};
use super::super::{Lanes, Vector, aes};
use super::Keys;
use super::group::{Done, LANES, QUARTET, Quartet, pairs};
use crate::here::MapHere;
use crate::run::BLOCK;

/// A key, and what of it depends on the direction and on sectors.
pub(super) struct Kernel<'k, V> {
    pub(super) keys: &'k Keys,
    pub(super) constant: V,
    /// All ones in the last lane.
    pub(super) last_lane: V,
    /// Masks of a sector's last vector: in the first pass, and in the second.
    pub(super) last_masks: [V; 2],
    /// Row -1: in the first pass, and in the second.
    pub(super) of_sums: [u128; 2],
}

/// What it keeps of a step.
#[derive(Clone, Copy)]
pub(in crate::simd) struct State<V> {
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

impl<V: Vector> Kernel<'_, V> {
    /// AES on a group, after adding `before`; then adds `after`.
    #[inline(always)]
    fn rounds(&self, x: &mut [V; LANES], before: &[V; LANES], after: &[V; LANES]) {
        let mut after = *after;
        self.rounds_and(
            x,
            before,
            &mut after,
            #[inline(always)]
            |_, _, _| {},
        );
    }

    /// The same, with something else beside each of rounds 5 to 12, `i` from 0 on: it has
    /// `after[i]`, to set it, and one of the blocks, to tie what it makes to them.
    #[inline(always)]
    fn rounds_and(
        &self,
        x: &mut [V; LANES],
        before: &[V; LANES],
        after: &mut [V; LANES],
        mut beside: impl FnMut(usize, &mut V, &mut V),
    ) {
        let keys = &self.keys.aes.encrypt;
        V::aes_start_with::<LANES, true>(x, keys, before);
        unroll!(ROUND in 5 6 7 8 9 10 11 12 13, {
            V::aes_round::<LANES, true, ROUND>(x, keys);
            if ROUND < 13 {
                beside(ROUND - 5, &mut x[0], &mut after[(ROUND - 5) % LANES]);
            }
        });
        V::aes_finish::<LANES, true>(x, keys, after);
    }

    /// The right blocks of the group that begins with quartet 0.
    #[inline(always)]
    fn first_right(step: &Step<State<V>>, bytes: usize) -> [V; LANES] {
        let src = Quartet::sources(step, &Quartet::group::<V, _>(step, 0, bytes));
        let mut right = [V::zero(); LANES];
        // SAFETY: the quartets are inside their sectors.
        unroll!(I in 0 1 2 3 4 5 6 7, right[I] = unsafe { pairs(src, I) }.1);
        right
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

    /// The first pass over the group that begins with quartet `index`, whose right blocks are
    /// `right`. Returns those of the group that follows.
    #[inline(always)]
    fn first_pass(
        &self,
        step: &mut Step<State<V>>,
        index: usize,
        bytes: usize,
        right: &[V; LANES],
    ) -> [V; LANES] {
        let group = Quartet::group::<V, _>(step, index, bytes);
        let src = Quartet::sources(step, &group);
        let mut left = [V::zero(); LANES];
        let mut w = *right;
        let ahead = step.ahead(src[0]);
        self.rounds_and(
            &mut w,
            &self.masks(&group, self.last_masks[0]),
            &mut left,
            #[inline(always)]
            |i, x, left| {
                unroll!(Q in 0 1, ahead.ask(2 * i + Q, 2 * Quartet::size::<V>()));
                // SAFETY: the quartets are inside their sectors.
                (*left, _) = unsafe { pairs(src, i) };
                x.tie(left);
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
        let following = Quartet::group::<V, _>(step, index + 2, bytes);
        let following = Quartet::sources(step, &following);
        let mut next_right = [V::zero(); LANES];
        self.rounds_and(
            &mut x,
            &[self.constant; LANES],
            &mut { *right },
            #[inline(always)]
            |i, x, _| {
                // SAFETY: as above.
                (_, next_right[i]) = unsafe { pairs(following, i) };
                x.tie(&mut next_right[i]);
            },
        );
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
        next_right
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

    /// The second pass over the group that begins with quartet `index`, whose result comes to
    /// `done`. There is that of the group before, if there is one, which it writes.
    #[inline(always)]
    fn second_pass(
        &self,
        step: &mut Step<State<V>>,
        index: usize,
        bytes: usize,
        done: &mut Done<V>,
    ) {
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
        self.rounds_and(
            &mut s,
            &masks,
            &mut [V::zero(); LANES],
            #[inline(always)]
            |i, _, _| {
                if index != 0 {
                    // SAFETY: its quartets are inside their sectors.
                    unsafe { done.write(i) };
                }
            },
        );
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
            &mut { y },
            #[inline(always)]
            |i, _, _| {
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
        *done = Done {
            left,
            right,
            dst: Quartet::destinations(step, &group),
        };
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
        if end != 0 {
            let mut right = Self::first_right(new, bytes);
            let mut index = 0;
            while index < end {
                right = self.first_pass(new, index, bytes, &right);
                index += 2;
            }
        }
        let end = Quartet::count::<V, _>(step, bytes);
        let mut done = Done::none();
        let mut index = 0;
        while index < end {
            self.second_pass(step, index, bytes, &mut done);
            index += 2;
        }
        if end != 0 {
            // SAFETY: its quartets are inside their sectors.
            unroll!(I in 0 1 2 3 4 5 6 7, unsafe { done.write(I) });
        }
    }
}
