//! A sector of 512 bytes that has no others beside it.

use super::super::brw;
use super::super::{Cpu, Lanes, RoundKeys, Vector, aes, counter};
use super::{Keys, STRIDE};
use crate::run::{BLOCK, Sectors};

/// Vectors side by side in counter mode.
const ABREAST: usize = 8;

/// Encrypts or decrypts the next sector of the present run, which has 512 bytes: one phase after the
/// other, in which nothing waits in memory, so that nothing is wiped here. What the compiler has
/// put on the stack is left to [`Cipher::wipe_stack`](crate::Cipher::wipe_stack).
pub(super) fn crypt<V: Vector>(
    cpu: Cpu<V>,
    keys: &Keys,
    sectors: &mut Sectors<'_, '_>,
    encrypt: bool,
) {
    cpu.call(
        #[inline(always)]
        || of_one::<V>(cpu, keys, sectors, encrypt),
    );
}

/// The hash of the sector at `src`. It is called twice, and as a function of its own takes half of
/// the time to compile.
///
/// # Safety
/// The sector is readable.
#[inline(always)]
unsafe fn hash<V: Vector>(cpu: Cpu<V>, keys: &Keys, src: *const u8, tweak: V::One) -> V::One {
    let key = &keys.hash;
    cpu.call(
        #[inline(always)]
        move || {
            // SAFETY: the caller's promise.
            unsafe { brw::subtree::<V>(key, src) }
                .lane::<0>()
                .xor(tweak)
        },
    )
}

/// AES on one block.
#[inline(always)]
fn encrypt_one<V: Vector>(keys: &RoundKeys, block: V) -> V {
    let mut x = [block];
    aes::encrypt(&mut x, keys);
    x[0]
}

#[inline(always)]
fn of_one<V: Vector>(cpu: Cpu<V>, keys: &Keys, sectors: &mut Sectors<'_, '_>, encrypt: bool) {
    let (sector, tweak) = sectors.one();
    let tweak = V::One::splat(tweak);
    let aes = &keys.aes.narrow;
    // The block that the first hash masks, and the other.
    let (first, second) = if encrypt { (0, 1) } else { (1, 0) };
    // SAFETY: the sector is there.
    let (before, heads) = unsafe {
        let second = sector.src().add(BLOCK);
        (
            hash(cpu, keys, sector.src(), tweak),
            [V::One::load(sector.src()), V::One::load(second)],
        )
    };
    let a = heads[first].xor(keys.times(before, first));
    let f = heads[second].xor(keys.times(a, 0));
    let g = a.xor(encrypt_one(aes, f));
    let b = f.xor(encrypt_one(aes, g));
    let masked = g.xor(keys.times(b, 0));

    let start = counter::xctr_start(aes, V::spread(f.xor(g)));
    for offset in (0..STRIDE).step_by(ABREAST * V::BYTES) {
        let mut x = counter::xctr::<V, ABREAST>(start, &counter::FROM_THIRD, offset / BLOCK);
        V::aes_early::<ABREAST, true>(&mut x, aes);
        unroll!(ROUND in 5 6 7 8 9 10 11 12 13, {
            V::aes_round::<ABREAST, true, ROUND>(&mut x, aes);
        });
        // SAFETY: inside the sector.
        unsafe {
            let (src, dst) = (sector.src().add(offset), sector.dst().add(offset));
            V::aes_finish_between::<ABREAST, true>(x, aes, src, dst);
        }
    }
    // SAFETY: the sector is there, and these are blocks of it.
    unsafe {
        let after = hash(cpu, keys, sector.dst(), tweak);
        let b = b.xor(keys.times(after, second));
        masked.store(sector.dst().add(first * BLOCK));
        b.store(sector.dst().add(second * BLOCK));
    }
}
