//! EME2-AES (IEEE 1619.2-2010) over a stream of sectors.
//!
//! The second pass adds to block j, before its AES, x^j times a mask that
//! depends on the whole sector, and from block 128 on x^(j - 128) times a
//! second one. Only block 0 has another: the sum that the standard puts there is
//! the block itself, plus both masks times 1 + x + x^2 + ... to the last power
//! in use. So the second pass needs no sum of its own.

use super::field::{Factor, Products};
use super::two_pass::{self, Lanes, SECTORS, Step, TwoPass};
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

/// What it keeps of a step's sectors.
#[derive(Clone, Copy)]
struct State {
    /// The standard's `T*`.
    hashes: Lanes,
    /// Sums of what the first pass leaves.
    sums: Lanes,
    /// The mask, and that from block 128 on, which is zero if there is none.
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
    unroll!(I in 0 1 2 3 4 5 6 7, {
        // SAFETY: vector I of the group.
        x[I] = unsafe { V::load(place.add(I * V::BYTES)) };
    });
    x
}

/// # Safety
/// The group is writable.
#[inline(always)]
unsafe fn store<V: Vector>(x: [V; LANES], place: *mut u8) {
    unroll!(I in 0 1 2 3 4 5 6 7, {
        // SAFETY: vector I of the group.
        unsafe { x[I].store(place.add(I * V::BYTES)) };
    });
}

/// The first vector of masks of group `index`, the one behind that whose first
/// vector is `before`.
#[inline(always)]
fn next_mask<V: Vector>(step: &Step<State>, before: V, index: usize, bytes: usize) -> V {
    let group = Group::at::<V>(index, bytes);
    if group.offset.is_multiple_of(MASKED_TOGETHER) {
        // Behind the last sector, anything.
        let sector = group.sector.min(SECTORS - 1);
        let mask = &step.state.masks[group.offset / MASKED_TOGETHER];
        V::powers_of_x(mask.one::<V>(sector))
    } else {
        before.times_x_of_group()
    }
}

/// Vector `$i`, from 1 on, of a group's masks, from its vector 0.
macro_rules! times_vectors {
    ($first:expr, $i:expr) => {{
        #[allow(clippy::cast_possible_truncation, reason = "below the lanes")]
        const POWER: u32 = $i as u32;
        match V::BLOCKS {
            1 => $first.times_x::<{ POWER }, { 64 - POWER }>(),
            2 => $first.times_x::<{ 2 * POWER }, { 64 - 2 * POWER }>(),
            _ => $first.times_x::<{ 4 * POWER }, { 64 - 4 * POWER }>(),
        }
    }};
}

/// Where the second pass is.
struct Second<V> {
    /// The next group.
    index: usize,
    /// Its masks.
    masks: [V; LANES],
}

/// A group of a step.
#[derive(Clone, Copy)]
struct Group {
    sector: usize,
    /// Where it begins in the sector.
    offset: usize,
}

impl Group {
    /// Group `index` of the step.
    #[inline(always)]
    fn at<V: Vector>(index: usize, bytes: usize) -> Self {
        let size = LANES * V::BYTES;
        let log = (bytes / size).trailing_zeros();
        let sector = index >> log;
        let offset = (index - (sector << log)) * size;
        Self { sector, offset }
    }
}

impl<const ROUNDS: usize, const ENCRYPT: bool> Kernel<'_, ROUNDS, ENCRYPT> {
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

    /// The first pass over group `index`.
    #[inline(always)]
    fn first_pass<V: Vector>(
        &self,
        step: &Step<State>,
        sums: &mut [V; SECTORS],
        index: usize,
        bytes: usize,
    ) {
        let group = Group::at::<V>(index, bytes);
        let src = step.sectors()[group.sector].src();
        // SAFETY: the group is inside the sector.
        let mut x = unsafe { load::<V>(src.add(group.offset)) };
        V::aes_start_with(&mut x, self.data, &self.masks(group.offset));
        unroll!(ROUND in 1 2 3 4 5 6 7 8 9 10 11 12 13, if ROUND < ROUNDS {
            V::aes_round::<LANES, ENCRYPT, ROUND>(&mut x, self.data);
        });
        V::aes_finish::<LANES, ENCRYPT, ROUNDS>(&mut x, self.data, &[V::zero(); LANES]);
        let dst = step.between().wrapping_add(group.sector * bytes);
        // SAFETY: the step has a place for each byte of its sectors.
        unsafe { store(x, dst.add(group.offset)) };
        let sum = x[0].xor3(x[1], x[2]).xor3(x[3], x[4]);
        let sum = sum.xor3(x[5], x[6]).xor(x[7]);
        let place = &mut sums[group.sector];
        *place = if group.offset == 0 {
            sum
        } else {
            place.xor(sum)
        };
    }

    /// The second pass over group `index`, with its masks; they become those of
    /// the next.
    #[inline(always)]
    fn second_pass<V: Vector>(
        &self,
        step: &Step<State>,
        masks: &mut [V; LANES],
        index: usize,
        bytes: usize,
    ) {
        let group = Group::at::<V>(index, bytes);
        step.prefetch::<V>(index * LANES * V::BYTES, LANES * V::BYTES);
        let src = step.between().wrapping_add(group.sector * bytes);
        // SAFETY: the first pass has written it.
        let mut x = unsafe { load::<V>(src.add(group.offset)) };
        if group.offset == 0 {
            let more = step.state.of_block_0.one::<V>(group.sector);
            x[0] = x[0].xor(V::alone(more));
        }
        V::aes_start_with(&mut x, self.data, masks);
        let first = next_mask(step, masks[0], index + 1, bytes);
        masks[0] = first;
        unroll!(ROUND in 1 2 3 4 5 6 7 8 9 10 11 12 13, if ROUND < ROUNDS {
            V::aes_round::<LANES, ENCRYPT, ROUND>(&mut x, self.data);
            // Beside the rounds, the masks of the next group.
            if ROUND < LANES {
                const COUNT: usize = if ROUND < LANES { ROUND } else { 1 };
                masks[COUNT] = times_vectors!(first, COUNT);
            }
        });
        let after = self.masks(group.offset);
        V::aes_finish::<LANES, ENCRYPT, ROUNDS>(&mut x, self.data, &after);
        let dst = step.sectors()[group.sector].dst();
        // SAFETY: the group is inside the sector, which may be written.
        unsafe { store(x, dst.add(group.offset)) };
    }

    /// A part of what is between the passes, for the sectors from `first` on
    /// that a vector has lanes for.
    #[inline(always)]
    fn middle_of<V: Vector>(
        &self,
        step: &mut Step<State>,
        part: usize,
        first: usize,
        bytes: usize,
    ) {
        let last = step.sectors().len() - 1;
        let sector = |i: usize| (first + i).min(last);
        if part == 0 {
            // The standard's `MP` and `M1`.
            let sums = step.state.sums.gather::<V>(first, last);
            let before = sums.xor(step.state.hashes.load(first));
            let mask = before.xor(self.one(before));
            step.state.masks[0].store(first, mask);
        } else if part == 1 && bytes > MASKED_TOGETHER {
            let block = |i: usize| {
                step.between()
                    .wrapping_add(sector(i) * bytes + MASKED_TOGETHER)
                    .cast_const()
            };
            // SAFETY: block 128 of a sector.
            let block = unsafe { V::gather([block(0), block(1), block(2), block(3)]) };
            let before = block.xor(step.state.masks[0].load(first));
            let mask = before.xor(self.one(before));
            step.state.masks[1].store(first, mask);
        } else if part == 2 {
            let mask = step.state.masks[0].load::<V>(first);
            let second = step.state.masks[1].load::<V>(first);
            // 1 + x + x^2 + ...
            let powers = V::splat(u128::MAX >> (128 - bytes.min(MASKED_TOGETHER) / BLOCK));
            let product = Products::new(mask.xor(second), Factor::new(powers)).reduce();
            step.state.of_block_0.store(first, product.xor(mask));
        }
    }
}

impl<V: Vector, const ROUNDS: usize, const ENCRYPT: bool> TwoPass<V>
    for Kernel<'_, ROUNDS, ENCRYPT>
{
    type State = State;
    type Second = Second<V>;
    const PARTS: usize = 3;

    #[inline(always)]
    fn start(&self) -> State {
        State {
            hashes: Lanes::ZERO,
            sums: Lanes::ZERO,
            masks: [Lanes::ZERO; 2],
            of_block_0: Lanes::ZERO,
        }
    }

    #[inline(always)]
    fn first(&self, step: &mut Step<State>, bytes: usize) {
        let mut first = 0;
        let last = step.sectors().len() - 1;
        while first <= last {
            let hashes = self.hash::<V>(step.tweaks.gather(first, last));
            step.state.hashes.store(first, hashes);
            first += V::BLOCKS;
        }
        let end = step.sectors().len() * bytes / (LANES * V::BYTES);
        let mut sums = [V::zero(); SECTORS];
        for index in 0..end {
            self.first_pass::<V>(step, &mut sums, index, bytes);
        }
        for (i, sum) in sums.iter().enumerate() {
            step.state.sums.store(i, sum.fold());
        }
    }

    #[inline(always)]
    fn middle(&self, step: &mut Step<State>, part: usize, bytes: usize) {
        let mut first = 0;
        while first < step.sectors().len() {
            self.middle_of::<V>(step, part, first, bytes);
            first += V::BLOCKS;
        }
    }

    #[inline(always)]
    fn start_second(&self, step: &Step<State>, bytes: usize) -> Second<V> {
        let first = next_mask(step, V::zero(), 0, bytes);
        let mut masks = [first; LANES];
        unroll!(I in 1 2 3 4 5 6 7, masks[I] = times_vectors!(first, I));
        Second { index: 0, masks }
    }

    #[inline(always)]
    fn second(&self, step: &mut Step<State>, second: &mut Second<V>, bytes: usize) -> bool {
        let end = step.sectors().len() * bytes / (LANES * V::BYTES);
        let Second { index, masks } = second;
        if *index < end {
            self.second_pass::<V>(step, masks, *index, bytes);
            *index += 1;
        }
        *index < end
    }
}
