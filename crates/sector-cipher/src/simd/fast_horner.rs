//! FAST with the Horner hash over a stream of sectors: ePrint 2017/849.

use super::field::{Factor, Products};
use super::hash_ctr_hash::{self, Group, Scheme};
use super::powers::Powers;
use super::{AesKeys, RoundKeys, Vector, aes, counter};
use crate::run::{BLOCK, Sectors};

/// The keys of FAST with the Horner hash.
pub(crate) struct Keys {
    aes: AesKeys,
    powers: Powers,
    /// The hash's key.
    tau: u128,
    /// What the leading one of the first hash comes to.
    leading: u128,
}

impl Keys {
    pub(super) const UNSET: Self = Self {
        aes: AesKeys::UNSET,
        powers: Powers::ZERO,
        tau: 0,
        leading: 0,
    };

    /// Sets the key, for sectors of `bytes` bytes.
    #[inline(always)]
    pub(super) fn set<V: Vector>(&mut self, key: &[u8], bytes: usize) {
        self.aes.set::<V>(key, None);
        let mut x = [V::zero()];
        aes::encrypt::<V, 1>(&mut x, &self.aes.encrypt);
        let [tau] = x;
        let times_tau = |x| times(x, tau);
        let blocks = bytes / BLOCK;
        // The tweak is behind the last block.
        let power = times_tau(tau);
        let leading = self.powers.set(blocks, 2..blocks, power, times_tau);
        self.tau = tau.blocks()[0];
        self.leading = leading.blocks()[0];
    }

    /// The first hash, which is over plaintext, or the second, over ciphertext:
    /// that one is the first hash times its key.
    #[inline(always)]
    fn hash<V: Vector>(&self, second: bool, sector: Products<V>, tweak: V) -> V {
        let tau = Factor::new(V::splat(self.tau));
        let hash = sector.plus(Products::new(tweak, tau)).reduce();
        let hash = hash.xor(V::splat(self.leading));
        if second {
            Products::new(hash, tau).reduce()
        } else {
            hash
        }
    }

    #[inline(always)]
    fn encrypt<V: Vector>(&self, block: V) -> V {
        let mut x = [block];
        aes::encrypt::<V, 1>(&mut x, &self.aes.encrypt);
        x[0]
    }
}

#[inline(always)]
fn times<V: Vector>(x: V, y: V) -> V {
    Products::new(x, Factor::new(y)).reduce()
}

#[inline(always)]
pub(super) fn crypt<V: Vector>(keys: &Keys, sectors: &mut Sectors<'_, '_>, encrypt: bool) {
    hash_ctr_hash::crypt::<Keys, V>(keys, sectors, encrypt);
}

impl Scheme for Keys {
    const REVERSED: bool = false;

    #[inline(always)]
    fn powers(&self) -> &Powers {
        &self.powers
    }

    #[inline(always)]
    fn counter_keys(&self) -> &RoundKeys {
        &self.aes.encrypt
    }

    #[inline(always)]
    fn start<V: Vector>(&self, start: V) -> V {
        counter::xctr_start(self.counter_keys(), start)
    }

    #[inline(always)]
    fn counters<V: Vector, const N: usize>(&self, start: V, block: usize) -> [V; N] {
        let mut x = counter::xctr(start, &counter::FROM_THIRD, block);
        V::aes_early::<N, true>(&mut x, self.counter_keys());
        x
    }

    #[inline(always)]
    fn middle<V: Vector>(
        &self,
        encrypt: bool,
        part: usize,
        group: &mut Group,
        hash: impl Fn() -> Products<V>,
        lane: usize,
    ) {
        // Between the parts `kept` has the AES call's input, and what its
        // output is added to.
        let tau = V::splat(self.tau);
        let (input, other) = (group.kept[0].get::<V>(lane), group.kept[1].get::<V>(lane));
        match part {
            0 => {
                // The block that the first hash masks, and the one beside it.
                let (masked, beside) = if encrypt { (0, BLOCK) } else { (BLOCK, 0) };
                let hash = self.hash(!encrypt, hash(), group.tweaks.get(lane));
                let other = group.load::<V>(lane, masked).xor(hash);
                let input = group.load::<V>(lane, beside).xor(times(other, tau));
                group.kept[0].set(lane, input);
                group.kept[1].set(lane, other);
            }
            1 => {
                let f = other.xor(self.encrypt(input));
                group.start.set(lane, input.xor(f));
                group.kept[0].set(lane, f);
                group.kept[1].set(lane, input);
            }
            2 => {
                let f = other.xor(self.encrypt(input));
                group.kept[1].set(lane, f);
            }
            _ => {
                group.kept[0].set(lane, input.xor(times(other, tau)));
            }
        }
    }

    #[inline(always)]
    fn finish<V: Vector>(&self, encrypt: bool, group: &Group, hash: Products<V>, lane: usize) {
        // The block that the second hash masks, and the one beside it.
        let (masked, beside) = if encrypt { (BLOCK, 0) } else { (0, BLOCK) };
        let hash = self.hash(encrypt, hash, group.tweaks.get(lane));
        group.store(lane, beside, group.kept[0].get::<V>(lane));
        group.store(lane, masked, group.kept[1].get::<V>(lane).xor(hash));
    }
}
