//! FAST with the Horner hash over a stream of sectors: ePrint 2017/849.

use super::aes::encrypt;
use super::field::{Factor, Products};
use super::hash_ctr_hash::{self, Group, Scheme};
use super::powers::Powers;
use super::{AesKeys, RoundKeys, Vector, counter};
use crate::run::{BLOCK, Sectors};

/// Its keys.
pub(crate) struct Keys {
    aes: AesKeys,
    powers: Powers,
    /// The hash's key and its square.
    tau: u128,
    tau_squared: u128,
    /// What the leading ones of both hashes come to.
    leading: u128,
    leading_second: u128,
}

impl Keys {
    pub(super) const UNSET: Self = Self {
        aes: AesKeys::UNSET,
        powers: Powers::ZERO,
        tau: 0,
        tau_squared: 0,
        leading: 0,
        leading_second: 0,
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
        let leading = self.powers.set(blocks, 2..blocks, tau, times_tau);
        self.tau = tau.blocks()[0];
        self.tau_squared = times_tau(tau).blocks()[0];
        self.leading = leading.blocks()[0];
        self.leading_second = times_tau(leading).blocks()[0];
    }

    /// The first hash, which is over plaintext, or the second, over ciphertext.
    /// The table's powers leave out the factor that both have in all
    /// coefficients but the leading one, and that the tweak has too.
    #[inline(always)]
    fn hash<V: Vector, const SECOND: bool>(&self, sector: Products<V>, tweak: V) -> V {
        let (factor, leading) = if SECOND {
            (self.tau_squared, self.leading_second)
        } else {
            (self.tau, self.leading)
        };
        times(sector.reduce().xor(tweak), V::splat(factor)).xor(V::splat(leading))
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

    #[inline(always)]
    fn element<V: Vector>(block: V) -> V {
        block
    }

    #[inline(always)]
    fn powers(&self) -> &Powers {
        &self.powers
    }

    #[inline(always)]
    fn counter_keys(&self) -> &RoundKeys {
        &self.aes.encrypt
    }

    #[inline(always)]
    fn counters<V: Vector, const N: usize>(&self, start: V, numbers: [V; N]) -> [V; N] {
        counter::xctr(self.counter_keys(), start, numbers)
    }

    /// Up to the first of two AES calls.
    #[inline(always)]
    fn middle<V: Vector, const ROUNDS: usize, const ENCRYPT: bool>(
        &self,
        group: &mut Group,
        lane: usize,
    ) {
        let tau = V::splat(self.tau);
        let first = group.load::<V>(lane, 0);
        let second = group.load::<V>(lane, BLOCK);
        let (sector, tweak) = (group.before.get(lane), group.tweaks.get(lane));
        if ENCRYPT {
            let a1 = first.xor(self.hash::<V, false>(sector, tweak));
            let f1 = second.xor(times(a1, tau));
            let f2 = a1.xor(self.encrypt::<V, ROUNDS>(f1));
            group.kept[0].set(lane, f2);
            group.kept[1].set(lane, f1);
        } else {
            let b2 = second.xor(self.hash::<V, true>(sector, tweak));
            let f2 = first.xor(times(b2, tau));
            let f1 = b2.xor(self.encrypt::<V, ROUNDS>(f2));
            group.kept[0].set(lane, f2);
            group.kept[1].set(lane, f1);
        }
    }

    #[inline(always)]
    fn middle_second<V: Vector, const ROUNDS: usize, const ENCRYPT: bool>(
        &self,
        group: &mut Group,
        lane: usize,
    ) {
        let tau = V::splat(self.tau);
        let f2 = group.kept[0].get::<V>(lane);
        let f1 = group.kept[1].get::<V>(lane);
        group.start.set(lane, f1.xor(f2));
        if ENCRYPT {
            let b2 = f1.xor(self.encrypt::<V, ROUNDS>(f2));
            group.kept[0].set(lane, f2.xor(times(b2, tau)));
            group.kept[1].set(lane, b2);
        } else {
            let a1 = f2.xor(self.encrypt::<V, ROUNDS>(f1));
            group.kept[0].set(lane, a1);
            group.kept[1].set(lane, f1.xor(times(a1, tau)));
        }
    }

    #[inline(always)]
    fn finish<V: Vector, const ROUNDS: usize, const ENCRYPT: bool>(
        &self,
        group: &mut Group,
        lane: usize,
    ) {
        let (sector, tweak) = (group.after.get(lane), group.tweaks.get(lane));
        let first = group.kept[0].get::<V>(lane);
        let second = group.kept[1].get::<V>(lane);
        if ENCRYPT {
            group.store(lane, 0, first);
            let hash = self.hash::<V, true>(sector, tweak);
            group.store(lane, BLOCK, second.xor(hash));
        } else {
            let hash = self.hash::<V, false>(sector, tweak);
            group.store(lane, 0, first.xor(hash));
            group.store(lane, BLOCK, second);
        }
    }
}
