//! XTS-AES (IEEE 1619-2007, clause 5): eight vectors of a sector's blocks in
//! flight, a *group*. While one is under way, the masks of the next are worked
//! out between its rounds, across sectors and segments; and the tweaks of the
//! next eight sectors go through the rounds beside it, a vector of them with a
//! group.

use super::{AesKeys, RoundKeys, Vector, aes, fresh};
use crate::run::{BATCH, Batch, Sectors};
use core::{mem, ptr};

/// Vectors in flight. Every sector is a whole number of groups: a group has no
/// more than 512 bytes.
const LANES: usize = 8;

/// Tweaks of a batch.
#[repr(C, align(64))]
struct Tweaks([u128; BATCH]);

impl Tweaks {
    const UNSET: Self = Self([0; BATCH]);

    /// Sets vector `i` of them.
    #[inline(always)]
    fn set<V: Vector>(&mut self, i: usize, x: V) {
        let tweaks = &mut self.0[i * V::BLOCKS..][..V::BLOCKS];
        // SAFETY: as many bytes as a vector has.
        unsafe { x.store(tweaks.as_mut_ptr().cast()) };
    }

    /// The tweak of sector `i`.
    #[inline(always)]
    fn of<V: Vector>(&self, i: usize) -> V::One {
        let tweak: *const u128 = &self.0[i];
        // SAFETY: as many bytes as the vector has.
        unsafe { V::One::load(tweak.cast()) }
    }
}

/// Vector `i` of a batch's IVs: block by block, as they were written just
/// before, because a CPU does not put several such writes together for a read.
#[inline(always)]
fn ivs<V: Vector>(batch: &Batch<'_>, i: usize) -> V {
    let ivs = &batch.ivs()[i * V::BLOCKS..][..V::BLOCKS];
    let at = |lane: usize| ptr::from_ref(fresh(&ivs[lane % V::BLOCKS])).cast();
    // SAFETY: IVs of the batch.
    unsafe { V::gather([at(0), at(1), at(2), at(3)]) }
}

/// Encrypts the IVs of a batch, a vector of them after the other.
#[inline(always)]
fn encrypt_ivs<V: Vector, const ROUNDS: usize>(
    batch: &Batch<'_>,
    tweaks: &mut Tweaks,
    key: &RoundKeys,
) {
    for i in 0..batch.len().div_ceil(V::BLOCKS) {
        let mut x = [ivs::<V>(batch, i)];
        aes::encrypt::<V, 1, ROUNDS>(&mut x, key);
        tweaks.set(i, x[0]);
    }
}

#[inline(always)]
pub(super) fn crypt<V: Vector, const ROUNDS: usize, const ENCRYPT: bool>(
    keys: &AesKeys,
    sectors: &mut Sectors<'_, '_>,
) {
    let group = LANES * V::BYTES;
    let groups = sectors.bytes() / group;
    let mut batch = sectors.empty_batch();
    sectors.fill(&mut batch);
    let mut tweaks = Tweaks::UNSET;
    match batch.len() {
        0 => return,
        1 => encrypt_ivs::<V::One, ROUNDS>(&batch, &mut tweaks, &keys.iv),
        _ => encrypt_ivs::<V, ROUNDS>(&batch, &mut tweaks, &keys.iv),
    }
    let mut work = Work {
        data: if ENCRYPT {
            &keys.encrypt
        } else {
            &keys.decrypt
        },
        iv: &keys.iv,
        masks: first_masks::<V>(tweaks.of::<V>(0)),
    };
    let mut following = sectors.empty_batch();
    loop {
        if batch.len() == BATCH {
            sectors.fill_inline(&mut following);
        }
        let mut next_tweaks = Tweaks::UNSET;
        // Vectors of tweaks, encrypted one with each of the first sectors of
        // this batch, which is full then.
        let with_tweaks = following.len().div_ceil(V::BLOCKS);
        for (i, sector) in batch.sectors().iter().enumerate() {
            let (mut src, mut dst) = (sector.src(), sector.dst());
            let mut left = groups - 1;
            if i < with_tweaks {
                let x = ivs::<V>(&following, i);
                // SAFETY: the group is in the sector.
                let x = unsafe {
                    if left == 0 {
                        let next = tweaks.of::<V>(i + 1);
                        work.group::<ROUNDS, ENCRYPT, true, true>(src, dst, x, next)
                    } else {
                        let none = tweaks.of::<V>(i);
                        work.group::<ROUNDS, ENCRYPT, true, false>(src, dst, x, none)
                    }
                };
                next_tweaks.set(i, x);
                if left == 0 {
                    continue;
                }
                src = src.wrapping_add(group);
                dst = dst.wrapping_add(group);
                left -= 1;
            }
            while left != 0 {
                // SAFETY: as above.
                unsafe {
                    work.group::<ROUNDS, ENCRYPT, false, false>(
                        src,
                        dst,
                        V::zero(),
                        tweaks.of::<V>(i),
                    );
                }
                src = src.wrapping_add(group);
                dst = dst.wrapping_add(group);
                left -= 1;
            }
            let next = if i + 1 < BATCH {
                tweaks.of::<V>(i + 1)
            } else {
                next_tweaks.of::<V>(0)
            };
            // SAFETY: as above.
            unsafe { work.group::<ROUNDS, ENCRYPT, false, true>(src, dst, V::zero(), next) };
        }
        if following.len() == 0 {
            return;
        }
        mem::swap(&mut batch, &mut following);
        tweaks = next_tweaks;
        following.clear();
    }
}

/// Vector `$i`, from 1 on, of a sector's masks, from its vector 0 and the same
/// with its halves swapped.
macro_rules! times_vectors {
    ($first:expr, $swapped:expr, $i:literal) => {
        match V::BLOCKS {
            1 => $first.times_x_with::<$i, { 64 - $i }>($swapped),
            2 => $first.times_x_with::<{ 2 * $i }, { 64 - 2 * $i }>($swapped),
            _ => $first.times_x_with::<{ 4 * $i }, { 64 - 4 * $i }>($swapped),
        }
    };
}

/// Vector `i` of a sector's masks, from its vector 0 and the same with its
/// halves swapped.
#[inline(always)]
fn spread<V: Vector>(first: V, swapped: V, i: usize) -> V {
    match i {
        0 => first,
        1 => times_vectors!(first, swapped, 1),
        2 => times_vectors!(first, swapped, 2),
        3 => times_vectors!(first, swapped, 3),
        4 => times_vectors!(first, swapped, 4),
        5 => times_vectors!(first, swapped, 5),
        6 => times_vectors!(first, swapped, 6),
        _ => times_vectors!(first, swapped, 7),
    }
}

/// The masks of a sector's first group: its tweak times 1, x, x^2, ...
#[inline(always)]
fn first_masks<V: Vector>(tweak: V::One) -> [V; LANES] {
    let first = V::powers_of_x(tweak);
    let swapped = first.swap_halves();
    let mut masks = [first; LANES];
    unroll!(I in 1 2 3 4 5 6 7, masks[I] = spread(first, swapped, I));
    masks
}

/// What lives from group to group.
struct Work<'k, V> {
    data: &'k RoundKeys,
    iv: &'k RoundKeys,
    masks: [V; LANES],
}

impl<V: Vector> Work<'_, V> {
    /// One group of blocks. Its masks are there; it leaves those of the next
    /// group of its sector or, with `LAST`, those of the first group of the
    /// sector with tweak `next`. With `WITH_TWEAKS` it returns `tweaks`
    /// encrypted.
    ///
    /// # Safety
    /// `src` can be read and `dst` written for the group's bytes.
    #[inline(always)]
    unsafe fn group<
        const ROUNDS: usize,
        const ENCRYPT: bool,
        const WITH_TWEAKS: bool,
        const LAST: bool,
    >(
        &mut self,
        src: *const u8,
        dst: *mut u8,
        tweaks: V,
        next: V::One,
    ) -> V {
        let masks = self.masks;
        let mut x = [V::zero(); LANES];
        for (i, x) in x.iter_mut().enumerate() {
            // SAFETY: vector i of the group.
            *x = unsafe { V::load(src.add(i * V::BYTES)) };
        }
        V::aes_start_with(&mut x, self.data, &masks);
        let mut tweaks = [tweaks];
        if WITH_TWEAKS {
            V::aes_start(&mut tweaks, self.iv);
        }
        // With the first eight rounds go the masks; the ties keep them there.
        let mut first = V::zero();
        let mut swapped = first;
        unroll!(ROUND in 1 2 3 4 5 6 7 8 9 10 11 12 13, if ROUND < ROUNDS {
            V::aes_round::<LANES, ENCRYPT, ROUND>(&mut x, self.data);
            if WITH_TWEAKS {
                V::aes_round::<1, true, ROUND>(&mut tweaks, self.iv);
                x[2].tie(&mut tweaks[0]);
            }
            if ROUND > 1 && ROUND <= LANES + 1 {
                const BEFORE: usize = (ROUND + LANES - 2) % LANES;
                x[1].tie(&mut self.masks[BEFORE]);
            }
            if ROUND <= LANES {
                const I: usize = if ROUND <= LANES { ROUND - 1 } else { 0 };
                if !LAST {
                    let mut mask = masks[I];
                    x[0].tie(&mut mask);
                    self.masks[I] = mask.times_x_of_group();
                } else if I == 0 {
                    first = V::powers_of_x(next);
                    x[0].tie(&mut first);
                    swapped = first.swap_halves();
                    self.masks[0] = first;
                } else {
                    x[0].tie(&mut swapped);
                    self.masks[I] = spread(first, swapped, I);
                }
            }
        });
        V::aes_finish::<LANES, ENCRYPT, ROUNDS>(&mut x, self.data, &masks);
        for (i, x) in x.into_iter().enumerate() {
            // SAFETY: as above, and the destination may be written.
            unsafe { x.store(dst.add(i * V::BYTES)) };
        }
        if WITH_TWEAKS {
            V::aes_finish::<1, true, ROUNDS>(&mut tweaks, self.iv, &[V::zero()]);
        }
        tweaks[0]
    }
}
