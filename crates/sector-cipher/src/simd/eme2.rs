//! EME2-AES (IEEE 1619.2-2010) over a stream of sectors.
//!
//! The second pass adds to block j, before its AES, x^j times a mask that
//! depends on the whole sector, and from block 128 on x^(j - 128) times a
//! second one. Only block 0 has another: the sum that the standard puts there is
//! the block itself, plus both masks times 1 + x + x^2 + ... to the last power
//! in use. So the second pass needs no sum of its own.

use super::field::{Factor, Products};
use super::two_pass::{self, Lanes, Step, TwoPass};
use super::{AesKeys, RoundKeys, Vector, aes};
use crate::portable::double;
use crate::run::{BLOCK, Sectors};

/// Vectors in flight. Every sector is a multiple of as many.
const LANES: usize = 8;

/// Bytes that one mask serves.
const MASKED_TOGETHER: usize = 128 * BLOCK;

/// Blocks of the largest sector.
const BLOCKS: usize = 4096 / BLOCK;

/// Its keys.
#[repr(C, align(64))]
pub(crate) struct Keys {
    /// The standard's `K_ECB` times 1, x, x^2, ...: the same for every sector.
    masks: [u128; BLOCKS],
    aes: AesKeys,
    /// x times the standard's `K_AD`.
    tweak_mask: u128,
}

impl Keys {
    pub(super) const UNSET: Self = Self {
        masks: [0; BLOCKS],
        aes: AesKeys::UNSET,
        tweak_mask: 0,
    };

    /// Rounds of AES.
    pub(super) fn rounds(&self) -> usize {
        self.aes.rounds()
    }

    /// `key` is `K_AD`, `K_ECB` and the AES key.
    #[inline(always)]
    pub(super) fn set<V: Vector>(&mut self, key: &[u8]) {
        let block = |bytes: &[u8]| {
            let mut block = [0; BLOCK];
            block.copy_from_slice(bytes);
            u128::from_le_bytes(block)
        };
        self.tweak_mask = double(block(&key[..BLOCK]));
        let mut mask = block(&key[BLOCK..2 * BLOCK]);
        for place in &mut self.masks {
            *place = mask;
            mask = double(mask);
        }
        self.aes.set::<V>(&key[2 * BLOCK..], None);
    }
}

#[inline(always)]
pub(super) fn crypt<V: Vector, const ROUNDS: usize, const ENCRYPT: bool>(
    keys: &Keys,
    sectors: Sectors<'_, '_>,
) {
    let data = if ENCRYPT {
        &keys.aes.encrypt
    } else {
        &keys.aes.decrypt
    };
    two_pass::run::<V, _>(&Kernel::<ROUNDS, ENCRYPT> { keys, data }, sectors);
}

struct Kernel<'k, const ROUNDS: usize, const ENCRYPT: bool> {
    keys: &'k Keys,
    data: &'k RoundKeys,
}

/// The masks of a step's sectors.
#[derive(Clone, Copy)]
struct Masks {
    /// The mask, and that from block 128 on.
    masks: [Lanes; 2],
    /// What block 0 gets in addition.
    of_block_0: Lanes,
}

/// The group of vectors at `place`.
///
/// # Safety
/// It is readable.
#[inline(always)]
unsafe fn load<V: Vector>(place: *const u8) -> [V; LANES] {
    let mut x = [V::zero(); LANES];
    for (i, x) in x.iter_mut().enumerate() {
        // SAFETY: vector i of the group.
        *x = unsafe { V::load(place.add(i * V::BYTES)) };
    }
    x
}

/// # Safety
/// The group is writable.
#[inline(always)]
unsafe fn store<V: Vector>(x: [V; LANES], place: *mut u8) {
    for (i, x) in x.into_iter().enumerate() {
        // SAFETY: vector i of the group.
        unsafe { x.store(place.add(i * V::BYTES)) };
    }
}

/// Times 1, x, x^2, ...: as many as the blocks of a group.
#[inline(always)]
fn first_masks<V: Vector>(mask: V::One) -> [V; LANES] {
    let mut masks = [V::powers_of_x(mask); LANES];
    unroll!(I in 1 2 3 4 5 6 7, masks[I] = match V::BLOCKS {
        1 => masks[0].times_x::<{ I as u32 }, { 64 - I as u32 }>(),
        2 => masks[0].times_x::<{ 2 * I as u32 }, { 64 - 2 * I as u32 }>(),
        _ => masks[0].times_x::<{ 4 * I as u32 }, { 64 - 4 * I as u32 }>(),
    });
    masks
}

impl<const ROUNDS: usize, const ENCRYPT: bool> Kernel<'_, ROUNDS, ENCRYPT> {
    /// AES on a group, after adding masks, but for the last round.
    #[inline(always)]
    fn rounds<V: Vector>(&self, x: &mut [V; LANES], before: &[V; LANES]) {
        V::aes_start_with(x, self.data, before);
        unroll!(ROUND in 1 2 3 4 5 6 7 8 9 10 11 12 13, if ROUND < ROUNDS {
            V::aes_round::<LANES, ENCRYPT, ROUND>(x, self.data);
        });
    }

    /// The group's masks of the data, which depend on the key only.
    #[inline(always)]
    fn masks<V: Vector>(&self, offset: usize) -> [V; LANES] {
        let masks = &self.keys.masks[offset / BLOCK..][..LANES * V::BLOCKS];
        // SAFETY: the bytes of a group.
        unsafe { load(masks.as_ptr().cast()) }
    }

    /// AES in the direction of the data.
    #[inline(always)]
    fn one<V: Vector>(&self, x: V) -> V {
        let mut x = [x];
        if ENCRYPT {
            aes::encrypt::<V, 1, ROUNDS>(&mut x, self.data);
        } else {
            aes::decrypt::<V, 1, ROUNDS>(&mut x, self.data);
        }
        x[0]
    }

    /// The standard's `T*` of a vector of tweaks.
    #[inline(always)]
    fn hash<V: Vector>(&self, tweaks: V) -> V {
        let mask = V::splat(self.keys.tweak_mask);
        let mut x = [tweaks.xor(mask)];
        aes::encrypt::<V, 1, ROUNDS>(&mut x, &self.keys.aes.encrypt);
        x[0].xor(mask)
    }

    /// What is between the passes, for the sectors from `first` on that a
    /// vector has lanes for.
    #[inline(always)]
    fn middle<V: Vector>(&self, step: &mut Step<Masks>, sums: &Lanes, first: usize, bytes: usize) {
        let before = sums.load::<V>(first).xor(self.hash(step.tweaks.load(first)));
        let mask = before.xor(self.one(before));
        step.state.masks[0].store(first, mask);
        let mut sum = mask;
        if bytes > MASKED_TOGETHER {
            let last = step.sectors().len() - 1;
            let block = |i: usize| {
                let sector = (first + i).min(last);
                step.between()
                    .wrapping_add(sector * bytes + MASKED_TOGETHER)
            };
            // SAFETY: block 128 of a sector.
            let block = unsafe { V::gather([block(0), block(1), block(2), block(3)]) };
            let before = block.xor(mask);
            let second = before.xor(self.one(before));
            step.state.masks[1].store(first, second);
            sum = sum.xor(second);
        }
        // 1 + x + x^2 + ...
        let powers = V::splat(u128::MAX >> (128 - bytes.min(MASKED_TOGETHER) / BLOCK));
        let product = Products::new(sum, Factor::new(powers)).reduce();
        step.state.of_block_0.store(first, product.xor(mask));
    }
}

impl<V: Vector, const ROUNDS: usize, const ENCRYPT: bool> TwoPass<V>
    for Kernel<'_, ROUNDS, ENCRYPT>
{
    type State = Masks;

    #[inline(always)]
    fn start(&self) -> Masks {
        Masks {
            masks: [Lanes::ZERO; 2],
            of_block_0: Lanes::ZERO,
        }
    }

    #[inline(always)]
    fn first(&self, step: &mut Step<Masks>, bytes: usize) {
        let mut sums = Lanes::ZERO;
        for i in 0..step.sectors().len() {
            let src = step.sectors()[i].src();
            let dst = step.between().wrapping_add(i * bytes);
            let mut sum = V::zero();
            let mut offset = 0;
            while offset < bytes {
                // SAFETY: the group is inside the sector.
                let mut x = unsafe { load::<V>(src.add(offset)) };
                self.rounds(&mut x, &self.masks(offset));
                V::aes_finish::<LANES, ENCRYPT, ROUNDS>(&mut x, self.data, &[V::zero(); LANES]);
                // SAFETY: the step has as many bytes.
                unsafe { store(x, dst.add(offset)) };
                for pair in x.chunks_exact(2) {
                    sum = sum.xor3(pair[0], pair[1]);
                }
                offset += LANES * V::BYTES;
            }
            sums.store(i, sum.fold());
        }
        let mut first = 0;
        while first < step.sectors().len() {
            self.middle::<V>(step, &sums, first, bytes);
            first += V::BLOCKS;
        }
    }

    #[inline(always)]
    fn second(&self, step: &mut Step<Masks>, bytes: usize) {
        let group = LANES * V::BYTES;
        for i in 0..step.sectors().len() {
            let src = step.between().wrapping_add(i * bytes);
            let dst = step.sectors()[i].dst();
            let mut part = 0;
            while part < bytes {
                let mask = &step.state.masks[part / MASKED_TOGETHER];
                let mut masks = first_masks::<V>(mask.one::<V>(i));
                if part == 0 {
                    masks[0] = masks[0].xor(V::alone(step.state.of_block_0.one::<V>(i)));
                }
                let end = bytes.min(part + MASKED_TOGETHER);
                let mut offset = part;
                while offset < end {
                    // SAFETY: the group is inside the sector, and so in the step.
                    let mut x = unsafe { load::<V>(src.add(offset)) };
                    self.rounds(&mut x, &masks);
                    if part == 0 && offset == 0 {
                        masks[0] = masks[0].xor(V::alone(step.state.of_block_0.one::<V>(i)));
                    }
                    if offset + group != end {
                        masks = masks.map(V::times_x_of_group);
                    }
                    let after = self.masks(offset);
                    V::aes_finish::<LANES, ENCRYPT, ROUNDS>(&mut x, self.data, &after);
                    // SAFETY: as above, and the destination may be written.
                    unsafe { store(x, dst.add(offset)) };
                    offset += group;
                }
                part = end;
            }
        }
    }
}
