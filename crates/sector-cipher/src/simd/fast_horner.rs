//! FAST with the Horner hash over a stream of sectors: ePrint 2017/849.

use super::aes::encrypt;
use super::field::{Factor, Products};
use super::hash_ctr_hash::{self, Group, Scheme};
use super::powers::Powers;
use super::{AesKeys, RoundKeys, Vector, counter};
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

    /// Rounds of AES.
    pub(super) fn rounds(&self) -> usize {
        self.aes.rounds()
    }

    /// Sets the key, for sectors of `bytes` bytes.
    #[inline(always)]
    pub(super) fn set<V: Vector>(&mut self, key: &[u8], bytes: usize) {
        self.aes.set::<V>(key, None);
        let mut x = [V::zero()];
        match self.aes.rounds() {
            10 => encrypt::<V, 1, 10>(&mut x, &self.aes.encrypt),
            _ => encrypt::<V, 1, 14>(&mut x, &self.aes.encrypt),
        }
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
    fn hash<V: Vector, const SECOND: bool>(&self, sector: Products<V>, tweak: V) -> V {
        let tau = Factor::new(V::splat(self.tau));
        let hash = sector.plus(Products::new(tweak, tau)).reduce();
        let hash = hash.xor(V::splat(self.leading));
        if SECOND {
            Products::new(hash, tau).reduce()
        } else {
            hash
        }
    }

    #[inline(always)]
    fn encrypt<V: Vector, const ROUNDS: usize>(&self, block: V) -> V {
        let mut x = [block];
        encrypt::<V, 1, ROUNDS>(&mut x, &self.aes.encrypt);
        x[0]
    }
}

#[inline(always)]
fn times<V: Vector>(x: V, y: V) -> V {
    Products::new(x, Factor::new(y)).reduce()
}

#[inline(always)]
pub(super) fn crypt<V: Vector, const ROUNDS: usize, const ENCRYPT: bool>(
    keys: &Keys,
    sectors: Sectors<'_, '_>,
) {
    hash_ctr_hash::crypt::<Keys, V, ROUNDS, ENCRYPT>(keys, sectors);
}

impl Scheme for Keys {
    /// The sector's third block has number one.
    const FIRST: u32 = 1_u32.wrapping_sub(2);
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
    fn counters<V: Vector, const N: usize>(&self, start: V, numbers: [V; N]) -> [V; N] {
        counter::xctr(start, numbers)
    }

    #[inline(always)]
    fn middle<V: Vector, const ROUNDS: usize, const ENCRYPT: bool>(
        &self,
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
                let first = group.load::<V>(lane, 0);
                let second = group.load::<V>(lane, BLOCK);
                let (hash, tweak) = (hash(), group.tweaks.get(lane));
                let (other, input) = if ENCRYPT {
                    let a1 = first.xor(self.hash::<V, false>(hash, tweak));
                    (a1, second.xor(times(a1, tau)))
                } else {
                    let b2 = second.xor(self.hash::<V, true>(hash, tweak));
                    (b2, first.xor(times(b2, tau)))
                };
                group.kept[0].set(lane, input);
                group.kept[1].set(lane, other);
            }
            1 => {
                let f = other.xor(self.encrypt::<V, ROUNDS>(input));
                group.start.set(lane, input.xor(f));
                group.kept[0].set(lane, f);
                group.kept[1].set(lane, input);
            }
            2 => {
                let f = other.xor(self.encrypt::<V, ROUNDS>(input));
                group.kept[1].set(lane, f);
            }
            _ => {
                group.kept[0].set(lane, input.xor(times(other, tau)));
            }
        }
    }

    #[inline(always)]
    fn finish<V: Vector, const ROUNDS: usize, const ENCRYPT: bool>(
        &self,
        group: &Group,
        hash: Products<V>,
        lane: usize,
    ) {
        // The blocks that the hashes are added to are the same in both
        // directions.
        let tweak = group.tweaks.get(lane);
        let (one, other) = (group.kept[0].get::<V>(lane), group.kept[1].get::<V>(lane));
        if ENCRYPT {
            let hash = self.hash::<V, true>(hash, tweak);
            group.store(lane, 0, one);
            group.store(lane, BLOCK, other.xor(hash));
        } else {
            let hash = self.hash::<V, false>(hash, tweak);
            group.store(lane, 0, other.xor(hash));
            group.store(lane, BLOCK, one);
        }
    }
}
