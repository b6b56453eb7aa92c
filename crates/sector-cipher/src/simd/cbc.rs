//! AES-CBC. Decryption takes eight vectors of a sector at a time; encryption,
//! serial inside a sector, takes eight sectors side by side.

use super::{AesKeys, Lanes, Vector, aes};
use crate::here::{ZipHere, from_fn};
use crate::run::{BATCH, BLOCK, Batch, RunEnd, Sector, Sectors};

#[inline(always)]
pub(super) fn crypt<V: Vector, const ENCRYPT: bool>(keys: &AesKeys, sectors: &mut Sectors<'_, '_>) {
    let bytes = sectors.bytes();
    let mut batch = sectors.empty_batch();
    loop {
        sectors.fill(&mut batch);
        if batch.len() == 0 {
            return;
        }
        let ivs = ivs::<V>(keys, &batch);
        if ENCRYPT {
            encrypt(keys, &batch, bytes, ivs);
        } else {
            for (sector, iv) in batch.sectors().iter().zip_here(ivs) {
                decrypt::<V>(keys, sector, batch.end(), bytes, iv);
            }
        }
    }
}

/// IVs of a batch, encrypted if the mode wants it.
#[inline(always)]
fn ivs<V: Vector>(keys: &AesKeys, batch: &Batch<'_>) -> [V::One; BATCH] {
    let ivs = batch.ivs();
    let mut x = from_fn(|i| V::One::splat(ivs[i]));
    if keys.encrypts_ivs() {
        // The ESSIV key is a SHA-256 digest: always AES-256. A lone IV does not
        // wait for seven others.
        if batch.len() == 1 {
            let mut first = [x[0]];
            aes::encrypt(&mut first, &keys.iv);
            [x[0]] = first;
        } else {
            aes::encrypt(&mut x, &keys.iv);
        }
    }
    x
}

/// The sectors of a batch side by side. Places without a sector go along: the
/// time is that of one block's latency, however many there are.
#[inline(always)]
fn encrypt<V: Vector>(keys: &AesKeys, batch: &Batch<'_>, bytes: usize, ivs: [V; BATCH]) {
    let mut x = ivs;
    for offset in (0..bytes).step_by(BLOCK) {
        for (x, sector) in x.iter_mut().zip_here(batch.sectors()) {
            // SAFETY: the block is inside the sector.
            *x = x.xor(unsafe { V::load(sector.src().add(offset)) });
        }
        aes::encrypt(&mut x, &keys.encrypt);
        for (x, sector) in x.iter().zip_here(batch.sectors()) {
            // SAFETY: as above, and the destination may be written.
            unsafe { x.store(sector.dst().add(offset)) };
        }
    }
}

/// One sector of a run, eight vectors at a time.
#[inline(always)]
fn decrypt<V: Vector>(keys: &AesKeys, sector: &Sector, end: RunEnd, bytes: usize, iv: V::One) {
    const { assert!(512 % (8 * V::BYTES) == 0, "a sector is whole groups") };
    let mut previous = [0; BLOCK];
    // SAFETY: a block has as many bytes.
    unsafe { iv.store(previous.as_mut_ptr()) };
    for offset in (0..bytes).step_by(8 * V::BYTES) {
        let src = sector.src().wrapping_add(offset);
        let dst = sector.dst().wrapping_add(offset);
        let ahead = end.ahead(src);
        let vector = |i: usize| src.wrapping_add(i * V::BYTES);
        // SAFETY: the vectors are inside the sector.
        let mut x: [V; 8] = from_fn(|i| unsafe { V::load(vector(i)) });
        V::aes_start::<8, false>(&mut x, &keys.decrypt);
        unroll!(ROUND in 5 6 7 8 9 10 11 12 13, {
            V::aes_round::<8, false, ROUND>(&mut x, &keys.decrypt);
            ahead.ask(ROUND - 5, 8 * V::BYTES);
        });
        // The blocks before. Read only now, as there are too few registers for
        // both, and before the destination, which may be the source, is written.
        let masks = from_fn(|i| {
            if i == 0 {
                let lanes = [
                    previous.as_ptr(),
                    src,
                    src.wrapping_add(BLOCK),
                    src.wrapping_add(2 * BLOCK),
                ];
                // SAFETY: a block, and blocks inside the sector.
                unsafe { V::gather(lanes) }
            } else {
                // SAFETY: from one block of the sector to another.
                unsafe { V::load(vector(i).wrapping_sub(BLOCK)) }
            }
        });
        // SAFETY: the last block of the group, and a place for a block.
        unsafe { V::One::load(vector(8).wrapping_sub(BLOCK)).store(previous.as_mut_ptr()) };
        V::aes_finish::<8, false>(&mut x, &keys.decrypt, &masks);
        for (i, x) in x.into_iter().enumerate() {
            // SAFETY: as above, and the destination may be written.
            unsafe { x.store(dst.wrapping_add(i * V::BYTES)) };
        }
    }
}
