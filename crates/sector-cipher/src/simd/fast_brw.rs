//! FAST with the BRW hash (ePrint 2017/849, the fixed-length setting) over a
//! stream of sectors.
//!
//! A sector is two blocks P1 and P2, and the rest P3. A hash of P3 and the
//! tweak masks P1; a two-round Feistel network with AES turns both blocks into
//! the seed of the counter mode that encrypts P3; a hash of what comes out, and
//! the tweak, masks the second block. Decryption is the same with the two
//! blocks, and the two hashes, in exchanged roles.
//!
//! Lanes hash subtrees, of one sector or of several (see [`super::brw`]); everything
//! that comes once in a sector is done for several sectors side by side. Counter
//! mode runs over the first two blocks too, which are written in the end.

mod alone;
mod blocks;
mod lanes;
mod pass;

use super::brw::{HashKey, SUBTREE};
use super::field::{Factor, Products};
use super::{Cpu, Vector, WideKeys, aes};
use crate::here::ZipHere;
use crate::run::{BLOCK, Sectors};
use pass::Pass;

/// The keys of FAST with the BRW hash.
#[repr(C)]
pub(crate) struct Keys {
    aes: WideKeys,
    hash: HashKey,
}

impl Keys {
    pub(super) const UNSET: Self = Self {
        aes: WideKeys::ZERO,
        hash: HashKey::UNSET,
    };

    #[inline(always)]
    pub(super) fn set<V: Vector>(&mut self, key: &[u8]) {
        V::expand(key, &mut self.aes.narrow);
        self.aes.widen();
        let mut tau = [V::zero()];
        aes::encrypt::<V, 1>(&mut tau, &self.aes.narrow);
        self.hash.set(tau[0]);
    }

    /// The products with the hash's key to the power of 2^`log`.
    #[inline(always)]
    fn times<V: Vector>(&self, x: V, log: usize) -> V {
        Products::new(x, Factor::new(self.hash.power(log))).reduce()
    }
}

/// Bytes that a lane takes.
const STRIDE: usize = SUBTREE * BLOCK;

/// Subtrees that go through the phases together, and so sectors, at most. Each is read twice, the second time
/// from the second-level cache, whose bytes have been asked for; what has to wait between the
/// phases does it for as many as these at a time.
const SUBTREES: usize = 64;

/// Lanes of the widest vector.
const LANES: usize = 4;

/// Subtrees of the largest sector.
const MOST: usize = 4096 / STRIDE;

#[inline(always)]
pub(super) fn crypt<V: Vector, const ENCRYPT: bool>(
    cpu: Cpu<V>,
    keys: &Keys,
    sectors: &mut Sectors<'_, '_>,
) {
    let log = (sectors.bytes() / STRIDE).trailing_zeros();
    if log == 0 && sectors.left() == Some(1) {
        return alone::crypt(cpu, keys, sectors, ENCRYPT);
    }
    // A short run in two halves, so that there is something ahead.
    let together = sectors
        .left()
        .map_or(SUBTREES, |left| (left << log).div_ceil(2))
        .clamp(2 * LANES, SUBTREES)
        >> log;
    let mut passes = [
        Pass::none(keys, log, together),
        Pass::none(keys, log, together),
    ];
    // Sectors of the largest pass.
    let mut most = [0; 2];
    let [mut pass, mut ahead] = passes.each_mut();
    let [mut pass_most, mut ahead_most] = most.each_mut();
    if !pass.fill(sectors) {
        return;
    }
    pass.first_hash(cpu, 0);
    loop {
        *pass_most = pass.len.max(*pass_most);
        pass.join(cpu, false);
        match pass.len.div_ceil(V::BLOCKS) {
            1 | 2 => pass.middle::<V, 2>(cpu, ENCRYPT),
            _ => pass.middle::<V, 8>(cpu, ENCRYPT),
        }
        let more = ahead.fill(sectors);
        pass.counter_and_hashes(cpu, ahead);
        pass.join(cpu, true);
        pass.finish(cpu, ENCRYPT);
        if !more {
            break;
        }
        core::mem::swap(&mut pass, &mut ahead);
        core::mem::swap(&mut pass_most, &mut ahead_most);
    }
    for (pass, most) in passes.iter_mut().zip_here(most) {
        pass.wipe::<V>(most);
    }
}
