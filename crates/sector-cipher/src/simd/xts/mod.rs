//! XTS-AES (IEEE 1619-2007, clause 5). Eight or sixteen vectors of blocks are in
//! flight, a *group*. While one is under way, masks of those that follow are worked
//! out between its rounds, across sectors and runs. They wait in memory: the
//! registers are for the blocks.

mod eights;
mod group;
mod sixteens;

use super::ivs::ivs;
use super::{ASK, Lanes, ROTATE, SHIFT, Vector, WideKeys, fresh};
use crate::run::{BATCH, Batch, Sector, Sectors};

/// Vectors of half a group of sixteen, and of a whole one of eight.
const HALF: usize = 8;

/// Keys for data and tweaks.
pub(crate) struct Keys {
    encrypt: WideKeys,
    decrypt: WideKeys,
    tweak: WideKeys,
}

impl Keys {
    /// Holds no key yet.
    pub(crate) const UNSET: Self = Self {
        encrypt: WideKeys::ZERO,
        decrypt: WideKeys::ZERO,
        tweak: WideKeys::ZERO,
    };

    /// Sets the keys: that for data, that for tweaks.
    #[inline(always)]
    pub(super) fn set<V: Vector>(&mut self, key: &[u8]) {
        let (data, tweak) = key.split_at(key.len() / 2);
        V::expand(data, &mut self.encrypt.narrow);
        V::invert(&self.encrypt.narrow, &mut self.decrypt.narrow);
        self.encrypt.widen();
        self.decrypt.widen();
        V::expand(tweak, &mut self.tweak.narrow);
        self.tweak.widen();
    }

    #[inline(always)]
    fn schedules<const ENCRYPT: bool>(&self) -> Schedules<'_> {
        Schedules {
            data: if ENCRYPT {
                &self.encrypt
            } else {
                &self.decrypt
            },
            tweak: &self.tweak,
        }
    }

    /// The number of either key's first round key.
    #[inline(always)]
    pub(super) fn first(&self) -> usize {
        self.tweak.first()
    }
}

/// The keys for data, in the direction that is wanted, and for tweaks.
#[derive(Clone, Copy)]
struct Schedules<'k> {
    data: &'k WideKeys,
    tweak: &'k WideKeys,
}

/// Tweaks of a batch, and of that which follows it: there stand IVs first.
#[repr(C, align(64))]
struct Tweaks([u128; 2 * BATCH]);

impl Tweaks {
    /// Those of the first batch, `None` if it is empty, and the first vector of them once more: in a
    /// register, since the first masks wait for it and nothing else is there to do.
    #[inline(always)]
    fn start<'a, V: Vector, const FIRST: usize>(
        keys: Schedules<'_>,
        sectors: &mut Sectors<'a, '_>,
        batch: &mut Batch<'a>,
    ) -> Option<(Self, V)> {
        let count = sectors.fill_places(batch);
        if batch.len() == 0 {
            return None;
        }
        let mut tweaks = Self([0; 2 * BATCH]);
        let mut first = V::zero();
        for i in 0..batch.len().div_ceil(V::BLOCKS) {
            let ivs = ivs::<V>(sectors, batch, count, i);
            let x = encrypted::<V, FIRST>(ivs, keys.tweak);
            tweaks.set(i, x);
            if i == 0 {
                first = x.pin();
            }
        }
        Some((tweaks, first))
    }

    /// Sets the IVs of the batch that follows. Returns how many vectors of them there
    /// are: each is to be replaced by [`Self::set_following`].
    #[inline(always)]
    fn set_ivs<V: Vector>(&mut self, sectors: &Sectors<'_, '_>, following: &Batch<'_>) -> usize {
        let vectors = following.len().div_ceil(V::BLOCKS);
        for i in 0..vectors {
            self.set_following(i, ivs::<V>(sectors, following, following.count(), i));
        }
        vectors
    }

    /// The batch that follows comes.
    #[inline(always)]
    fn advance<V: Vector>(&mut self) {
        for i in 0..BATCH / V::BLOCKS {
            self.set(i, self.following::<V>(i));
        }
    }

    /// Sets vector `i` of them.
    #[inline(always)]
    fn set<V: Vector>(&mut self, i: usize, x: V) {
        let tweaks = &mut self.0[i * V::BLOCKS..][..V::BLOCKS];
        // SAFETY: as many bytes as a vector has.
        unsafe { x.store(tweaks.as_mut_ptr().cast()) };
    }

    /// Sets vector `i` of the batch that follows.
    #[inline(always)]
    fn set_following<V: Vector>(&mut self, i: usize, x: V) {
        self.set(BATCH / V::BLOCKS + i, x);
    }

    /// Vector `i` of the batch that follows.
    #[inline(always)]
    fn following<V: Vector>(&self, i: usize) -> V {
        let tweaks = &self.0[BATCH + i * V::BLOCKS..][..V::BLOCKS];
        // SAFETY: as many bytes as a vector has.
        unsafe { V::load(tweaks.as_ptr().cast()) }
    }

    /// The tweak of sector `i`; behind the batch come those of the next. From memory: the
    /// compiler would take a vector that it has just seen apart in general registers.
    #[inline(always)]
    fn of<V: Vector>(&self, i: usize) -> V::One {
        let tweak: *const u128 = &fresh(self).0[i];
        // SAFETY: as many bytes as the vector has.
        unsafe { V::One::load(tweak.cast()) }
    }
}

/// A vector of IVs encrypted.
#[inline(always)]
fn encrypted<V: Vector, const FIRST: usize>(ivs: V, key: &WideKeys) -> V {
    let mut x = [ivs];
    V::wide_start_from::<1, FIRST>(&mut x, key, &[V::zero()]);
    unroll!(ROUND in 1 2 3 4 5 6 7 8 9 10 11 12 13, if ROUND > FIRST {
        V::wide_round::<1, true, ROUND>(&mut x, key);
    });
    V::wide_finish::<1, true>(&mut x, key, &[V::zero()]);
    x[0]
}

/// Encrypts or decrypts the stream. `FIRST` is that of the keys.
#[inline(always)]
pub(super) fn crypt<V: Vector, const FIRST: usize, const ENCRYPT: bool>(
    keys: &Keys,
    sectors: &mut Sectors<'_, '_>,
) {
    if sectors.left() == Some(1) {
        return alone::<V, FIRST, ENCRYPT>(keys, sectors);
    }
    if const { V::ABREAST != HALF } {
        if sectors.bytes() == HALF * V::BYTES {
            // Asked once: four times in a group would cost as much as the wrong way.
            if V::shifts() {
                sixteens::run::<V, FIRST, ENCRYPT, true, SHIFT>(keys, sectors);
            } else {
                sixteens::run::<V, FIRST, ENCRYPT, true, ROTATE>(keys, sectors);
            }
        } else {
            sixteens::run::<V, FIRST, ENCRYPT, false, ASK>(keys, sectors);
        }
    } else if const { V::BLOCKS == 1 } {
        eights::run::<V, 4, FIRST, ENCRYPT>(keys, sectors);
    } else {
        eights::run::<V, 2, FIRST, ENCRYPT>(keys, sectors);
    }
}

/// Encrypts or decrypts the one sector of the stream: no batch is filled for it.
#[inline(always)]
fn alone<V: Vector, const FIRST: usize, const ENCRYPT: bool>(
    keys: &Keys,
    sectors: &mut Sectors<'_, '_>,
) {
    let keys = keys.schedules::<ENCRYPT>();
    let bytes = sectors.bytes();
    let (sector, iv) = sectors.one();
    let tweak = encrypted::<V::One, FIRST>(V::One::splat(iv), keys.tweak);
    // SAFETY: a sector of the stream.
    unsafe {
        if const { V::ABREAST != HALF } && bytes == HALF * V::BYTES {
            lone::<V, FIRST, ENCRYPT, true>(keys.data, sector, bytes, tweak);
        } else {
            lone::<V, FIRST, ENCRYPT, false>(keys.data, sector, bytes, tweak);
        }
    }
}

/// A sector with nothing to do beside it, in groups of eight vectors, or in `ONE`.
/// What one step gives the next stays in registers: here its time counts.
///
/// # Safety
/// The sector has `bytes` bytes.
#[inline(always)]
unsafe fn lone<V: Vector, const FIRST: usize, const ENCRYPT: bool, const ONE: bool>(
    keys: &WideKeys,
    sector: Sector,
    bytes: usize,
    tweak: V::One,
) {
    let group = HALF * V::BYTES;
    let mut masks = [V::zero(); HALF];
    let mut state = [V::zero(); 5];
    unroll!(STEP in 0 1 2 3 4 5 6 7, {
        masks[group::order(HALF, STEP)] = V::mask::<HALF, ASK>(&mut state, V::zero(), #[inline(always)] || V::powers_of_x::<ASK>(tweak), STEP);
    });
    let mut offset = 0;
    loop {
        let mut x = [V::zero(); HALF];
        unroll!(I in 0 1 2 3 4 5 6 7, {
            // SAFETY: vector I of a group in the sector.
            x[I] = unsafe { V::load(sector.src().add(offset + I * V::BYTES)) };
        });
        V::wide_start_from::<HALF, FIRST>(&mut x, keys, &masks);
        let now = masks;
        unroll!(ROUND in 1 2 3 4 5 6 7 8 9 10 11 12 13, if ROUND > FIRST {
            V::wide_round::<HALF, ENCRYPT, ROUND>(&mut x, keys);
            // The ties keep the masks beside the rounds.
            if const { ROUND > FIRST + 1 && ROUND <= FIRST + HALF + 1 && !ONE } {
                let before = ROUND - FIRST - 2;
                x[1].tie(&mut masks[before]);
            }
            if const { ROUND <= FIRST + HALF && !ONE } {
                let i = ROUND - FIRST - 1;
                let mut mask = now[i];
                x[0].tie(&mut mask);
                masks[i] = mask.times_x_of_group();
            }
        });
        V::wide_finish::<HALF, ENCRYPT>(&mut x, keys, &now);
        unroll!(I in 0 1 2 3 4 5 6 7, {
            // SAFETY: as above, and the destination may be written.
            unsafe { x[I].store(sector.dst().add(offset + I * V::BYTES)) };
        });
        offset += group;
        if ONE || offset == bytes {
            return;
        }
    }
}

/// Times x^64 in the field of XTS, where x^128 is x^7 + x^2 + x + 1.
#[inline(always)]
fn times_x64<V: Vector>(mask: V) -> V {
    mask.shl_bytes::<8>()
        .xor(mask.clmul::<0x01>(V::splat(0x87)))
}
