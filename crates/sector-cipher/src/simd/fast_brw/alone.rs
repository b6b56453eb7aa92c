//! A sector of 512 bytes that has no others beside it.

use super::super::brw;
use super::super::field::{Factor, Products};
use super::super::{Cpu, Lanes, Vector, aes, counter};
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

#[inline(always)]
fn of_one<V: Vector>(cpu: Cpu<V>, keys: &Keys, sectors: &mut Sectors<'_, '_>, encrypt: bool) {
    let (sector, tweak) = sectors.one();
    let tweak = V::One::splat(tweak);
    let key = &keys.hash;
    // A function of its own: it is called twice, and takes half of the time to compile this.
    let hash = |src| {
        cpu.call(move || {
            // SAFETY: the sector is there.
            unsafe { brw::subtree::<V>(key, src) }
                .lane::<0>()
                .xor(tweak)
        })
    };
    let times = |x: V::One, log| Products::new(x, Factor::new(keys.hash.power(log))).reduce();
    // The block that the first hash masks, and the other.
    let (first, second) = if encrypt { (0, 1) } else { (1, 0) };
    // SAFETY: blocks of the sector.
    let head = |i: usize| unsafe { V::One::load(sector.src().add(i * BLOCK)) };
    let cipher = |block| {
        let mut x = [block];
        aes::encrypt(&mut x, &keys.aes.narrow);
        x[0]
    };
    let a = head(first).xor(times(hash(sector.src()), first));
    let f = head(second).xor(times(a, 0));
    let g = a.xor(cipher(f));
    let b = f.xor(cipher(g));
    let masked = g.xor(times(b, 0));

    let keys = &keys.aes.narrow;
    let start = counter::xctr_start(keys, V::spread(f.xor(g)));
    for offset in (0..STRIDE).step_by(ABREAST * V::BYTES) {
        let mut x = counter::xctr::<V, ABREAST>(start, &counter::FROM_THIRD, offset / BLOCK);
        V::aes_early::<ABREAST, true>(&mut x, keys);
        unroll!(ROUND in 5 6 7 8 9 10 11 12 13, {
            V::aes_round::<ABREAST, true, ROUND>(&mut x, keys);
        });
        // SAFETY: inside the sector.
        unsafe {
            let (src, dst) = (sector.src().add(offset), sector.dst().add(offset));
            V::aes_finish_between::<ABREAST, true>(x, keys, src, dst);
        }
    }
    let b = b.xor(times(hash(sector.dst()), second));
    // SAFETY: blocks of the sector.
    unsafe {
        masked.store(sector.dst().add(first * BLOCK));
        b.store(sector.dst().add(second * BLOCK));
    }
}
