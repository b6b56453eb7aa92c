//! EME2-AES (IEEE 1619.2-2010) over a stream of sectors.
//!
//! The second pass adds to block j, before its AES, x^j times a mask that
//! depends on the whole sector, and from block 128 on x^(j - 128) times a
//! second one. Only block 0 has another: the sum that the standard puts there is
//! the block itself, plus both masks times 1 + x + x^2 + ... to the last power
//! in use. So the second pass needs no sum of its own.

use super::field::{Factor, Products};
use super::two_pass::{self, SECTORS, SectorBlocks, Step, TwoPass};
use super::{ASK, AesKeys, RoundKeys, Vector, aes};
use crate::here::MapHere;
use crate::run::{BLOCK, Sectors};
use crate::shared::double;

/// Vectors that go together, an *octet*, and have their masks from the first of
/// them. Every sector is a multiple of as many.
const OCTET: usize = 8;

/// Bytes that one mask serves.
const MASKED_TOGETHER: usize = 128 * BLOCK;

/// Blocks of the largest sector.
const BLOCKS: usize = 4096 / BLOCK;

/// The keys of EME2.
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
pub(super) fn crypt<V: Vector, const ENCRYPT: bool>(keys: &Keys, sectors: &mut Sectors<'_, '_>) {
    let data = if ENCRYPT {
        &keys.aes.encrypt
    } else {
        &keys.aes.decrypt
    };
    two_pass::run::<V, _>(&Kernel::<ENCRYPT> { keys, data }, sectors);
}

struct Kernel<'k, const ENCRYPT: bool> {
    keys: &'k Keys,
    data: &'k RoundKeys,
}

/// What it keeps of a step's sectors.
#[derive(Clone, Copy)]
struct State<V> {
    /// Sums of what the first pass leaves.
    sums: [V; SECTORS],
    /// The standard's `T*`.
    hashes: SectorBlocks,
    /// The mask, and that from block 128 on, which is zero if there is none.
    masks: [SectorBlocks; 2],
    /// What block 0 gets in addition.
    of_block_0: SectorBlocks,
}

/// An octet of a step, and those behind it.
struct Cursor {
    sector: usize,
    /// Where it begins in the sector.
    offset: usize,
    /// Where it is in the source, or in the destination.
    data: *mut u8,
    /// Its place between the passes.
    between: *mut u8,
}

impl Cursor {
    /// The first octet of a step, in its sources or its destinations.
    #[inline(always)]
    fn new<S, const SOURCE: bool>(step: &Step<S>) -> Self {
        Self {
            sector: 0,
            offset: 0,
            data: Self::data::<S, SOURCE>(step, 0),
            between: step.between(),
        }
    }

    #[inline(always)]
    fn data<S, const SOURCE: bool>(step: &Step<S>, sector: usize) -> *mut u8 {
        match step.sectors().get(sector) {
            Some(sector) if SOURCE => sector.src().cast_mut(),
            Some(sector) => sector.dst(),
            None => core::ptr::null_mut(),
        }
    }

    /// Goes on to the next octet; behind the last sector it is in none.
    #[inline(always)]
    fn advance<V: Vector, S, const SOURCE: bool>(&mut self, step: &Step<S>, bytes: usize) {
        let size = OCTET * V::BYTES;
        self.between = self.between.wrapping_add(size);
        self.data = self.data.wrapping_add(size);
        self.offset += size;
        if self.offset == bytes {
            self.offset = 0;
            self.sector += 1;
            self.data = Self::data::<S, SOURCE>(step, self.sector);
        }
    }
}

/// The second pass's masks for the octet that comes next.
struct Second<V> {
    /// Vector 0 of them, but for what block 0 has in addition.
    first: V,
    state: [V; 5],
    masks: [V; OCTET],
}

impl<V: Vector> Second<V> {
    /// For the first octet of a step.
    #[inline(always)]
    fn new(step: &Step<State<V>>) -> Self {
        let zero = V::zero();
        let mut second = Self {
            first: zero,
            state: [zero; 5],
            masks: [zero; OCTET],
        };
        let at = Cursor::new::<_, false>(step);
        unroll!(I in 0 1 2 3 4 5 6 7, second.beside::<I, 1>(&mut [zero], [step; 2], &at));
        second
    }

    /// Step `I` of eight to the masks of the octet `at`, beside the rounds of `x`,
    /// to which it is tied to stay there.
    #[inline(always)]
    fn beside<const I: usize, const N: usize>(
        &mut self,
        x: &mut [V; N],
        steps: [&Step<State<V>>; 2],
        at: &Cursor,
    ) {
        if I == 0 {
            let [mut first, more] = first_mask(steps, self.first, at);
            x[0].tie(&mut first);
            self.first = first;
            let mask = V::mask::<OCTET, ASK>(
                &mut self.state,
                V::zero(),
                #[inline(always)]
                || first,
                0,
            );
            self.masks[0] = mask.xor(more);
            return;
        }
        x[0].tie(&mut self.state[0]);
        let mut mask = V::mask::<OCTET, ASK>(&mut self.state, V::zero(), V::zero, I);
        x[N / 2].tie(&mut mask);
        self.masks[2 * I % OCTET + 2 * I / OCTET] = mask;
    }
}

/// Vector 0 of the masks of an octet of the first step, or of the first one of
/// the second step, from vector 0 of the octet before; and what block 0 has in
/// addition.
#[inline(always)]
fn first_mask<V: Vector>([step, next]: [&Step<State<V>>; 2], before: V, at: &Cursor) -> [V; 2] {
    if !at.offset.is_multiple_of(MASKED_TOGETHER) {
        return [before.times_x_of_group(), V::zero()];
    }
    let (state, sector) = if at.sector < step.sectors().len() {
        (&step.state, at.sector % SECTORS)
    } else {
        (&next.state, 0)
    };
    if at.offset == 0 {
        let more = V::alone(state.of_block_0.one::<V>(sector));
        [V::powers_of_x::<ASK>(state.masks[0].one::<V>(sector)), more]
    } else {
        [
            V::powers_of_x::<ASK>(state.masks[1].one::<V>(sector)),
            V::zero(),
        ]
    }
}

/// The sum of an octet, and `more`.
#[inline(always)]
fn sum<V: Vector>(x: &[V], more: V) -> V {
    let sum = x[0].xor3(x[1], x[2]).xor3(x[3], x[4]);
    sum.xor3(x[5], x[6]).xor3(x[7], more)
}

impl<const ENCRYPT: bool> Kernel<'_, ENCRYPT> {
    /// The masks of the data of an octet, which depend on the key only.
    #[inline(always)]
    fn masks<V: Vector>(&self, at: &Cursor) -> *const u8 {
        let masks = &self.keys.masks[at.offset / BLOCK..][..OCTET * V::BLOCKS];
        masks.as_ptr().cast()
    }

    /// AES in the direction of the data.
    #[inline(always)]
    fn one<V: Vector>(&self, x: V) -> V {
        let mut x = [x];
        if ENCRYPT {
            aes::encrypt::<V, 1>(&mut x, self.data);
        } else {
            aes::decrypt::<V, 1>(&mut x, self.data);
        }
        x[0]
    }

    /// The standard's `T*` of a vector of tweaks.
    #[inline(always)]
    fn hash<V: Vector>(&self, tweaks: V) -> V {
        let mask = V::splat(self.keys.tweak_mask);
        let mut x = [tweaks.xor(mask)];
        aes::encrypt::<V, 1>(&mut x, &self.keys.aes.encrypt);
        x[0].xor(mask)
    }

    /// The first pass over an octet.
    #[inline(always)]
    fn first_pass<V: Vector>(&self, new: &mut Step<State<V>>, at: &mut Cursor, bytes: usize) {
        let key_masks = self.masks::<V>(at);
        let ahead = new.ahead(at.data);
        let mut x = [V::zero(); OCTET];
        let mut before = x;
        unroll!(I in 0 1 2 3 4 5 6 7, {
            // SAFETY: the octet is inside the sector, and there are masks for one.
            unsafe {
                x[I] = V::load(at.data.add(I * V::BYTES));
                before[I] = V::load(key_masks.add(I * V::BYTES));
            }
        });
        V::aes_start_with::<OCTET, ENCRYPT>(&mut x, self.data, &before);
        unroll!(ROUND in 5 6 7 8 9 10 11 12 13, {
            V::aes_round::<OCTET, ENCRYPT, ROUND>(&mut x, self.data);
            ahead.ask(ROUND - 5, OCTET * V::BYTES);
        });
        V::aes_finish::<OCTET, ENCRYPT>(&mut x, self.data, &[V::zero(); OCTET]);
        unroll!(I in 0 1 2 3 4 5 6 7, {
            // SAFETY: the step has a place for each byte of its sectors.
            unsafe { x[I].store(at.between.add(I * V::BYTES)) };
        });
        let sums = &mut new.state.sums[at.sector];
        *sums = sum(&x, if at.offset == 0 { V::zero() } else { *sums });
        at.advance::<V, _, true>(new, bytes);
    }

    /// The second pass over an octet, with its masks; they become those of the
    /// next one.
    #[inline(always)]
    fn second_pass<V: Vector>(
        &self,
        steps: [&Step<State<V>>; 2],
        second: &mut Second<V>,
        at: &mut Cursor,
        bytes: usize,
    ) {
        let key_masks = self.masks::<V>(at);
        let (dst, between) = (at.data, at.between);
        at.advance::<V, _, false>(steps[0], bytes);
        let mut x = [V::zero(); OCTET];
        unroll!(I in 0 1 2 3 4 5 6 7, {
            // SAFETY: the first pass has written it.
            x[I] = unsafe { V::load(between.add(I * V::BYTES)) };
        });
        V::aes_start_with::<OCTET, ENCRYPT>(&mut x, self.data, &second.masks);
        unroll!(ROUND in 5 6 7 8 9 10 11 12 13, {
            V::aes_round::<OCTET, ENCRYPT, ROUND>(&mut x, self.data);
            if const { ROUND < 5 + OCTET } {
                const I: usize = (ROUND - 5) % OCTET;
                second.beside::<I, OCTET>(&mut x, steps, at);
                // SAFETY: read before.
                unsafe { V::zero().store(between.add(I * V::BYTES)) };
            }
        });
        V::aes_finish::<OCTET, ENCRYPT>(&mut x, self.data, &[V::zero(); OCTET]);
        unroll!(I in 0 1 2 3 4 5 6 7, {
            // SAFETY: there are masks for an octet, which is inside the sector,
            // and that may be written.
            unsafe {
                // Added here, not with the last round: with few registers the
                // compiler leaves these masks, which are keys, on the stack.
                let mask = V::load(key_masks.add(I * V::BYTES));
                x[I].xor(mask).store(dst.add(I * V::BYTES));
            }
        });
    }

    /// The first pass over an octet of step 0, and the second over one of step
    /// 2, side by side: the second has masks to work out, for which the first
    /// leaves the CPU time. For CPUs with 32 registers.
    #[inline(always)]
    fn both_passes<V: Vector>(
        &self,
        [new, next, step]: [&mut Step<State<V>>; 3],
        second: &mut Second<V>,
        [first_at, at]: [&mut Cursor; 2],
        bytes: usize,
    ) {
        let key_masks = [self.masks::<V>(first_at), self.masks::<V>(at)];
        let (dst, between) = (at.data, at.between);
        at.advance::<V, _, false>(step, bytes);
        let ahead = new.ahead(first_at.data);
        let mut x = [V::zero(); 2 * OCTET];
        let mut before = x;
        unroll!(I in 0 1 2 3 4 5 6 7, {
            // SAFETY: the octet is inside the sector, the first pass over the
            // step has written it, and there are masks for an octet.
            unsafe {
                x[I] = V::load(first_at.data.add(I * V::BYTES));
                before[I] = V::load(key_masks[0].add(I * V::BYTES));
                x[OCTET + I] = V::load(between.add(I * V::BYTES));
            }
            before[OCTET + I] = second.masks[I];
        });
        V::aes_start_with::<16, ENCRYPT>(&mut x, self.data, &before);
        unroll!(ROUND in 5 6 7 8 9 10 11 12 13, {
            V::aes_round::<16, ENCRYPT, ROUND>(&mut x, self.data);
            ahead.ask(ROUND - 5, OCTET * V::BYTES);
            if const { ROUND < 5 + OCTET } {
                const I: usize = (ROUND - 5) % OCTET;
                second.beside::<I, 16>(&mut x, [step, next], at);
                // SAFETY: read before.
                unsafe { V::zero().store(between.add(I * V::BYTES)) };
            }
        });
        let mut after = [V::zero(); 2 * OCTET];
        unroll!(I in 0 1 2 3 4 5 6 7, {
            // SAFETY: there are masks for an octet.
            after[OCTET + I] = unsafe { V::load(key_masks[1].add(I * V::BYTES)) };
        });
        V::aes_finish::<16, ENCRYPT>(&mut x, self.data, &after);
        unroll!(I in 0 1 2 3 4 5 6 7, {
            // SAFETY: the step has a place for each byte of its sectors, and the
            // destination may be written.
            unsafe {
                x[I].store(first_at.between.add(I * V::BYTES));
                x[OCTET + I].store(dst.add(I * V::BYTES));
            }
        });
        let sums = &mut new.state.sums[first_at.sector];
        *sums = sum(
            &x,
            if first_at.offset == 0 {
                V::zero()
            } else {
                *sums
            },
        );
        first_at.advance::<V, _, true>(new, bytes);
    }

    /// A part of what is between the passes, for the sectors from `first` on
    /// that a vector has lanes for. Each part waits for AES once.
    #[inline(always)]
    fn middle_of<V: Vector>(
        &self,
        step: &mut Step<State<V>>,
        part: usize,
        first: usize,
        bytes: usize,
    ) {
        let last = step.sectors().len() - 1;
        let sector = |i: usize| (first + i) % SECTORS;
        if part == 0 {
            // The standard's `MP` and `M1`.
            let sums = &step.state.sums;
            let sums = V::fold_each([0, 1, 2, 3].map_here(|i| sums[sector(i)]));
            let before = sums.xor(step.state.hashes.load(first));
            let mask = before.xor(self.one(before));
            step.state.masks[0].store(first, mask);
        } else if part == 1 && bytes > MASKED_TOGETHER {
            let block = |i: usize| {
                step.between()
                    .wrapping_add(sector(i).min(last) * bytes + MASKED_TOGETHER)
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

    /// A part of what is between the passes.
    #[inline(always)]
    fn middle<V: Vector>(&self, step: &mut Step<State<V>>, part: usize, bytes: usize) {
        let mut first = 0;
        while first < step.sectors().len() {
            self.middle_of::<V>(step, part, first, bytes);
            first += V::BLOCKS;
        }
    }
}

impl<V: Vector, const ENCRYPT: bool> TwoPass<V> for Kernel<'_, ENCRYPT> {
    type State = State<V>;
    type Carried = Option<Second<V>>;

    #[inline(always)]
    fn start(&self) -> State<V> {
        State {
            sums: [V::zero(); SECTORS],
            hashes: SectorBlocks::ZERO,
            masks: [SectorBlocks::ZERO; 2],
            of_block_0: SectorBlocks::ZERO,
        }
    }

    #[inline(always)]
    fn carried(&self) -> Option<Second<V>> {
        None
    }

    #[inline(always)]
    fn stage(
        &self,
        [new, next, step]: [&mut Step<State<V>>; 3],
        carried: &mut Option<Second<V>>,
        bytes: usize,
    ) {
        let mut first = 0;
        while first < new.sectors().len() {
            let tweaks = new.tweaks.gather(first, new.sectors().len() - 1);
            new.state.hashes.store(first, self.hash::<V>(tweaks));
            first += V::BLOCKS;
        }
        if carried.is_none() && !step.sectors().is_empty() {
            *carried = Some(Second::new(step));
        }
        let mut part = 0;
        let mut first_at = Cursor::new::<_, true>(new);
        let mut second_at = Cursor::new::<_, false>(step);
        if V::ABREAST == 16
            && let Some(carried) = carried
        {
            let sectors = new.sectors().len().min(step.sectors().len());
            while first_at.sector < sectors {
                if part < 3 {
                    self.middle::<V>(next, part, bytes);
                    part += 1;
                }
                let steps = [&mut *new, &mut *next, &mut *step];
                self.both_passes(steps, carried, [&mut first_at, &mut second_at], bytes);
            }
        }
        while part < 3 {
            self.middle::<V>(next, part, bytes);
            part += 1;
        }
        while first_at.sector < new.sectors().len() {
            self.first_pass::<V>(new, &mut first_at, bytes);
        }
        if let Some(carried) = carried {
            while second_at.sector < step.sectors().len() {
                self.second_pass::<V>([step, next], carried, &mut second_at, bytes);
            }
        }
    }
}
