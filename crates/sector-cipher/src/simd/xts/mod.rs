//! XTS-AES (IEEE 1619-2007, clause 5). Eight or sixteen vectors of blocks are in
//! flight, a *group*: a part of a sector, or two sectors of 512 bytes. While one
//! is under way, the masks of the next are worked out between its rounds, across
//! sectors and segments. They wait in memory: the registers are for the blocks.

use super::{Vector, WideKeys, fresh};
use crate::run::{BATCH, Batch, Sector, Sectors};
use core::mem::MaybeUninit;
use core::{mem, ptr};

/// Vectors of half a group of sixteen, and of a whole one of eight.
const HALF: usize = 8;

/// Keys for data and tweaks.
pub(crate) struct Keys {
    encrypt: WideKeys,
    decrypt: WideKeys,
    tweak: WideKeys,
    rounds: usize,
}

impl Keys {
    /// Holds no key yet.
    pub(crate) const UNSET: Self = Self {
        encrypt: WideKeys::ZERO,
        decrypt: WideKeys::ZERO,
        tweak: WideKeys::ZERO,
        rounds: 0,
    };

    /// Sets the keys: that for data, that for tweaks.
    #[inline(always)]
    pub(super) fn set<V: Vector>(&mut self, key: &[u8]) {
        let (data, tweak) = key.split_at(key.len() / 2);
        self.rounds = V::expand(data, &mut self.encrypt.narrow);
        V::invert(&self.encrypt.narrow, &mut self.decrypt.narrow, self.rounds);
        self.encrypt.widen();
        self.decrypt.widen();
        V::expand(tweak, &mut self.tweak.narrow);
        self.tweak.widen();
    }

    /// Rounds under either key: 10 or 14.
    #[inline(always)]
    pub(super) fn rounds(&self) -> usize {
        self.rounds
    }
}

/// Tweaks of a batch.
#[repr(C, align(64))]
struct Tweaks([u128; BATCH]);

impl Tweaks {
    #[inline(always)]
    fn unset() -> Self {
        Self([0; BATCH])
    }

    /// Sets vector `i` of them.
    #[inline(always)]
    fn set<V: Vector>(&mut self, i: usize, x: V) {
        let tweaks = &mut self.0[i * V::BLOCKS..][..V::BLOCKS];
        // SAFETY: as many bytes as a vector has.
        unsafe { x.store(tweaks.as_mut_ptr().cast()) };
    }

    /// The tweak of sector `i`. From memory: the compiler would take a vector
    /// that it has just seen apart in general registers.
    #[inline(always)]
    fn of<V: Vector>(&self, i: usize) -> V::One {
        let tweak: *const u128 = &fresh(self).0[i];
        // SAFETY: as many bytes as the vector has.
        unsafe { V::One::load(tweak.cast()) }
    }
}

/// Vector `i` of a batch's IVs.
#[inline(always)]
fn ivs<V: Vector>(sectors: &Sectors<'_, '_>, batch: &Batch<'_>, i: usize) -> V {
    if let Some(count) = batch.count() {
        let (steps, masks) = sectors.counting();
        let steps = &steps[i * V::BLOCKS..][..V::BLOCKS];
        // SAFETY: as many steps as the vector has blocks.
        let steps = unsafe { V::load(steps.as_ptr().cast()) };
        let count = V::splat(u128::from(count)).add64(steps);
        let [little, big] = masks.map(V::splat);
        return count.and(little).xor(count.reverse_bytes().and(big));
    }
    let ivs = &batch.ivs()[i * V::BLOCKS..][..V::BLOCKS];
    // Block by block, as they were written just before, because a CPU does not
    // put several such writes together for a read.
    let at = |lane: usize| ptr::from_ref(fresh(&ivs[lane % V::BLOCKS])).cast();
    // SAFETY: IVs of the batch.
    unsafe { V::gather([at(0), at(1), at(2), at(3)]) }
}

/// A vector of IVs encrypted.
#[inline(always)]
fn encrypted<V: Vector, const ROUNDS: usize>(ivs: V, key: &WideKeys) -> V {
    let mut x = [ivs];
    V::wide_start_with(&mut x, key, &[V::zero()]);
    unroll!(ROUND in 1 2 3 4 5 6 7 8 9 10 11 12 13, if ROUND < ROUNDS {
        V::wide_round::<1, true, ROUND>(&mut x, key);
    });
    V::wide_finish::<1, true, ROUNDS>(&mut x, key, &[V::zero()]);
    x[0]
}

#[inline(always)]
pub(super) fn crypt<V: Vector, const ROUNDS: usize, const ENCRYPT: bool>(
    keys: &Keys,
    sectors: &mut Sectors<'_, '_>,
) {
    if V::ABREAST == HALF {
        run::<V, HALF, ROUNDS, ENCRYPT, false>(keys, sectors);
    } else if sectors.bytes() == HALF * V::BYTES {
        run::<V, { 2 * HALF }, ROUNDS, ENCRYPT, true>(keys, sectors);
    } else {
        run::<V, { 2 * HALF }, ROUNDS, ENCRYPT, false>(keys, sectors);
    }
}

/// Groups of `N` vectors; with `PAIRS` each is two sectors.
#[inline(always)]
fn run<V: Vector, const N: usize, const ROUNDS: usize, const ENCRYPT: bool, const PAIRS: bool>(
    keys: &Keys,
    sectors: &mut Sectors<'_, '_>,
) {
    let data = if ENCRYPT {
        &keys.encrypt
    } else {
        &keys.decrypt
    };
    let group = N * V::BYTES;
    let bytes = sectors.bytes();
    let groups = bytes / group;
    // Places change, nothing is copied: a CPU that reads a part of what it has
    // just written waits until it has left the pipeline.
    let mut batch = &mut sectors.empty_batch();
    let mut following = &mut sectors.empty_batch();
    let (mut tweaks, mut next_tweaks) = (&mut Tweaks::unset(), &mut Tweaks::unset());
    sectors.fill_places(batch);
    if batch.len() == 0 {
        return;
    }
    if batch.len() == 1 {
        let tweak = encrypted::<V::One, ROUNDS>(ivs(sectors, batch, 0), &keys.tweak);
        // SAFETY: a sector of the stream.
        unsafe { lone::<V, ROUNDS, ENCRYPT, PAIRS>(data, batch.sector(0), bytes, tweak) };
        return;
    }
    for i in 0..batch.len().div_ceil(V::BLOCKS) {
        let x = encrypted::<V, ROUNDS>(ivs(sectors, batch, i), &keys.tweak);
        tweaks.set(i, x);
    }
    let (now, next) = (&mut Masks::unset(), &mut Masks::unset());
    let mut work = Work::<V, N> {
        data,
        tweak: &keys.tweak,
        src: [ptr::null(); 2],
        dst: [ptr::null_mut(); 2],
        now,
        next,
    };
    work.first::<PAIRS>([tweaks.of::<V>(0), tweaks.of::<V>(1)]);
    loop {
        if batch.len() == BATCH {
            sectors.fill_places(following);
        }
        // Vectors of tweaks, encrypted one with each of the first groups of
        // this batch, or first sectors', which is full then.
        let with_tweaks = following.len().div_ceil(V::BLOCKS);
        let half = HALF * V::BYTES;
        if PAIRS {
            for i in 0..batch.len().div_ceil(2) {
                let a = batch.sector(2 * i);
                if 2 * i + 1 == batch.len() {
                    // SAFETY: a sector of the stream.
                    unsafe {
                        lone::<V, ROUNDS, ENCRYPT, true>(data, a, bytes, tweaks.of::<V>(2 * i))
                    };
                    break;
                }
                let b = batch.sector(2 * i + 1);
                work.src = [a.src(), b.src()];
                work.dst = [a.dst(), b.dst()];
                // SAFETY: the halves are the sectors.
                unsafe {
                    if i < with_tweaks {
                        let next = [tweaks.of::<V>(2 * i + 2), tweaks.of::<V>(2 * i + 3)];
                        let x = work
                            .group::<ROUNDS, ENCRYPT, PAIR, true>(ivs(sectors, following, i), next);
                        next_tweaks.set(i, x);
                    } else {
                        let next = if 2 * i + 2 < BATCH {
                            [tweaks.of::<V>(2 * i + 2), tweaks.of::<V>(2 * i + 3)]
                        } else {
                            [next_tweaks.of::<V>(0), next_tweaks.of::<V>(1)]
                        };
                        work.group::<ROUNDS, ENCRYPT, PAIR, false>(V::zero(), next);
                    }
                }
            }
        } else {
            let none = [V::One::zero(); 2];
            for i in 0..batch.len() {
                let sector = batch.sector(i);
                work.src = [sector.src(), sector.src().wrapping_add(half)];
                work.dst = [sector.dst(), sector.dst().wrapping_add(half)];
                let mut left = groups - 1;
                if i < with_tweaks {
                    let x = ivs::<V>(sectors, following, i);
                    // SAFETY: the group is in the sector.
                    let x = unsafe {
                        if left == 0 {
                            let next = [tweaks.of::<V>(i + 1); 2];
                            work.group::<ROUNDS, ENCRYPT, OTHER, true>(x, next)
                        } else {
                            work.group::<ROUNDS, ENCRYPT, SAME, true>(x, none)
                        }
                    };
                    next_tweaks.set(i, x);
                    if left == 0 {
                        continue;
                    }
                    work.advance();
                    left -= 1;
                }
                while left != 0 {
                    // SAFETY: as above.
                    unsafe { work.group::<ROUNDS, ENCRYPT, SAME, false>(V::zero(), none) };
                    work.advance();
                    left -= 1;
                }
                let next = if i + 1 < BATCH {
                    tweaks.of::<V>(i + 1)
                } else {
                    next_tweaks.of::<V>(0)
                };
                // SAFETY: as above.
                unsafe { work.group::<ROUNDS, ENCRYPT, OTHER, false>(V::zero(), [next; 2]) };
            }
        }
        if following.len() == 0 {
            return;
        }
        mem::swap(&mut batch, &mut following);
        mem::swap(&mut tweaks, &mut next_tweaks);
        following.clear();
    }
}

/// The group's masks go on in its sector.
const SAME: u8 = 0;
/// They are those of the next sector.
const OTHER: u8 = 1;
/// They are those of the next two sectors.
const PAIR: u8 = 2;

/// A sector with nothing to do beside it, in groups of eight vectors, or in `ONE`.
/// What one step gives the next stays in registers: here its time counts.
///
/// # Safety
/// The sector has `bytes` bytes.
#[inline(always)]
unsafe fn lone<V: Vector, const ROUNDS: usize, const ENCRYPT: bool, const ONE: bool>(
    keys: &WideKeys,
    sector: Sector,
    bytes: usize,
    tweak: V::One,
) {
    let group = HALF * V::BYTES;
    let mut masks = [V::zero(); HALF];
    let mut state = [V::zero(); 5];
    unroll!(STEP in 0 1 2 3 4 5 6 7, {
        masks[order(HALF, STEP)] = V::mask::<HALF>(&mut state, #[inline(always)] || V::powers_of_x(tweak), STEP);
    });
    let mut offset = 0;
    loop {
        let mut x = [V::zero(); HALF];
        for (i, x) in x.iter_mut().enumerate() {
            // SAFETY: vector i of a group in the sector.
            *x = unsafe { V::load(sector.src().add(offset + i * V::BYTES)) };
        }
        V::wide_start_with(&mut x, keys, &masks);
        let now = masks;
        unroll!(ROUND in 1 2 3 4 5 6 7 8 9 10 11 12 13, if ROUND < ROUNDS {
            V::wide_round::<HALF, ENCRYPT, ROUND>(&mut x, keys);
            // The ties keep the masks beside the rounds.
            if ROUND > 1 && ROUND <= HALF + 1 && !ONE {
                const BEFORE: usize = (ROUND + HALF - 2) % HALF;
                x[1].tie(&mut masks[BEFORE]);
            }
            if ROUND <= HALF && !ONE {
                const I: usize = (ROUND - 1) % HALF;
                let mut mask = now[I];
                x[0].tie(&mut mask);
                masks[I] = mask.times_x_of_group();
            }
        });
        V::wide_finish::<HALF, ENCRYPT, ROUNDS>(&mut x, keys, &now);
        for (i, x) in x.into_iter().enumerate() {
            // SAFETY: as above, and the destination may be written.
            unsafe { x.store(sector.dst().add(offset + i * V::BYTES)) };
        }
        offset += group;
        if ONE || offset == bytes {
            return;
        }
    }
}

/// Masks of a group, which are there when it comes: writing zeros before would
/// keep other writes waiting.
#[repr(C, align(64))]
struct Masks<V, const N: usize>([MaybeUninit<V>; N]);

impl<V: Vector, const N: usize> Masks<V, N> {
    #[inline(always)]
    fn unset() -> Self {
        Self([const { MaybeUninit::uninit() }; N])
    }

    /// # Safety
    /// They have been set, all of them.
    #[inline(always)]
    unsafe fn all(&self) -> &[V; N] {
        // SAFETY: the caller's promise; the layout is the same.
        unsafe { &*ptr::from_ref(self).cast() }
    }
}

/// What lives from group to group.
struct Work<'k, V, const N: usize> {
    data: &'k WideKeys,
    tweak: &'k WideKeys,
    /// Where the halves of the next group come from, and where they go; of
    /// groups of eight the first is the whole.
    src: [*const u8; 2],
    dst: [*mut u8; 2],
    now: &'k mut Masks<V, N>,
    next: &'k mut Masks<V, N>,
}

/// Which of `count` masks comes at a step: first those with even numbers.
#[inline(always)]
const fn order(count: usize, step: usize) -> usize {
    2 * step % count + 2 * step / count
}

impl<V: Vector, const N: usize> Work<'_, V, N> {
    /// One mask of the next group.
    #[inline(always)]
    fn step<const NEXT: u8>(&mut self, state: &mut [V; 5], tweaks: [V::One; 2], step: usize) {
        match NEXT {
            SAME => {
                // SAFETY: all of them have been set.
                let mask = unsafe { self.now.0[step].assume_init() };
                let mask = if N * V::BLOCKS == 64 {
                    mask.low_to_high().xor(mask.clmul::<0x01>(V::splat(0x87)))
                } else {
                    mask.times_x_of_group()
                };
                self.next.0[step].write(mask);
            }
            OTHER => {
                let mask = V::mask::<N>(
                    state,
                    #[inline(always)]
                    || V::powers_of_x(tweaks[0]),
                    step,
                );
                self.next.0[order(N, step)].write(mask);
            }
            _ => {
                let (half, step) = (step / HALF, step % HALF);
                let mask = V::mask::<HALF>(
                    state,
                    #[inline(always)]
                    || V::powers_of_x(tweaks[half]),
                    step,
                );
                self.next.0[half * HALF + order(HALF, step)].write(mask);
            }
        }
    }

    /// The masks of the first group.
    #[inline(always)]
    fn first<const PAIRS: bool>(&mut self, tweaks: [V::One; 2]) {
        let mut state = [V::zero(); 5];
        unroll!(I in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15, if I < N {
            if PAIRS {
                self.step::<PAIR>(&mut state, tweaks, I);
            } else {
                self.step::<OTHER>(&mut state, tweaks, I);
            }
        });
        mem::swap(&mut self.now, &mut self.next);
    }

    /// Goes to the next group of a sector.
    #[inline(always)]
    fn advance(&mut self) {
        self.src = self.src.map(|src| src.wrapping_add(N * V::BYTES));
        self.dst = self.dst.map(|dst| dst.wrapping_add(N * V::BYTES));
    }

    /// One group of blocks. Its masks are there; it leaves those of the next
    /// group, which `NEXT` tells. With `TWEAKS` it returns `ivs` encrypted.
    ///
    /// # Safety
    /// The sources can be read and the destinations written.
    #[inline(always)]
    unsafe fn group<
        const ROUNDS: usize,
        const ENCRYPT: bool,
        const NEXT: u8,
        const TWEAKS: bool,
    >(
        &mut self,
        ivs: V,
        next: [V::One; 2],
    ) -> V {
        let mut x = [V::zero(); N];
        for (i, x) in x.iter_mut().enumerate() {
            // SAFETY: vector i of the group.
            *x = unsafe { V::load(self.src[i / HALF].add(i % HALF * V::BYTES)) };
        }
        // SAFETY: the group before, or `first`, has set them.
        V::wide_start_with(&mut x, self.data, unsafe { self.now.all() });
        let mut ivs = [ivs];
        if TWEAKS {
            V::wide_start_with(&mut ivs, self.tweak, &[V::zero()]);
        }
        let mut state = [V::zero(); 5];
        unroll!(ROUND in 1 2 3 4 5 6 7 8 9 10 11 12 13, if ROUND < ROUNDS {
            V::wide_round::<N, ENCRYPT, ROUND>(&mut x, self.data);
            if TWEAKS {
                V::wide_round::<1, true, ROUND>(&mut ivs, self.tweak);
                x[2].tie(&mut ivs[0]);
            }
            if ROUND <= 8 {
                if N == HALF {
                    self.step::<NEXT>(&mut state, next, ROUND - 1);
                } else {
                    self.step::<NEXT>(&mut state, next, 2 * ROUND - 2);
                    self.step::<NEXT>(&mut state, next, 2 * ROUND - 1);
                }
            }
        });
        // SAFETY: as above.
        let masks = unsafe { fresh(&*self.now).all() };
        V::wide_finish::<N, ENCRYPT, ROUNDS>(&mut x, self.data, masks);
        for (i, x) in x.into_iter().enumerate() {
            // SAFETY: as above, and the destination may be written.
            unsafe { x.store(self.dst[i / HALF].add(i % HALF * V::BYTES)) };
        }
        if TWEAKS {
            V::wide_finish::<1, true, ROUNDS>(&mut ivs, self.tweak, &[V::zero()]);
        }
        mem::swap(&mut self.now, &mut self.next);
        ivs[0]
    }
}
