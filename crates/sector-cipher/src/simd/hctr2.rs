//! HCTR2 over a stream of sectors: ePrint 2021/1441.

use super::field::{Factor, Products};
use super::hash_ctr_hash::{self, Group, Scheme};
use super::powers::Powers;
use super::{AesKeys, RoundKeys, Vector, aes, counter};
use crate::run::{BLOCK, Sectors};

/// The first block of the hash's input: twice the tweak's bits, and two
/// because the message is whole blocks.
const LENGTH: u128 = 2 * 256 + 2;

/// The keys of HCTR2.
pub(crate) struct Keys {
    aes: AesKeys,
    l: u128,
    powers: Powers,
    /// The hash key's power for the tweak's first half. The other is zero.
    tweak: u128,
    /// What the first block of the hash's input comes to.
    constant: u128,
}

impl Keys {
    pub(super) const UNSET: Self = Self {
        aes: AesKeys::UNSET,
        l: 0,
        powers: Powers::ZERO,
        tweak: 0,
        constant: 0,
    };

    /// Sets the key, for sectors of `bytes` bytes.
    #[inline(always)]
    pub(super) fn set<V: Vector>(&mut self, key: &[u8], bytes: usize) {
        self.aes.set::<V>(key, None);
        let mut x = [V::zero(), V::splat(1)];
        aes::encrypt::<V, 2>(&mut x, &self.aes.encrypt);
        let [h, l] = x;
        let factor = Factor::new(h);
        let times_h = |x| Products::new(x, factor).reduce_polyval();
        let blocks = bytes / BLOCK;
        let first = self.powers.set(blocks, 1..blocks, h, times_h);
        let tweak = times_h(first);
        let constant = times_h(tweak);
        let constant = Products::new(V::splat(LENGTH), Factor::new(constant)).reduce_polyval();
        self.l = l.blocks()[0];
        self.tweak = tweak.blocks()[0];
        self.constant = constant.blocks()[0];
    }
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
        let mut x = counter::xctr(start, &counter::FROM_FIRST, block);
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
        match part {
            0 => {
                let tweak = group.tweaks.get(lane);
                let tweak = Products::new(tweak, Factor::new(V::splat(self.tweak)));
                let tweak = tweak.reduce_polyval().xor(V::splat(self.constant));
                let hash = hash().reduce_polyval();
                let before = group.load::<V>(lane, 0).xor3(hash, tweak);
                group.start.set(lane, before);
                group.kept[0].set(lane, tweak);
            }
            1 => {
                let before = group.start.get::<V>(lane);
                let mut x = [before];
                if encrypt {
                    aes::encrypt::<V, 1>(&mut x, &self.aes.encrypt);
                } else {
                    aes::decrypt::<V, 1>(&mut x, &self.aes.decrypt);
                }
                let [after] = x;
                let start = before.xor3(after, V::splat(self.l));
                group.start.set(lane, start);
                let tweak = group.kept[0].get::<V>(lane);
                group.kept[0].set(lane, after.xor(tweak));
            }
            _ => {}
        }
    }

    #[inline(always)]
    fn finish<V: Vector>(&self, _encrypt: bool, group: &Group, hash: Products<V>, lane: usize) {
        let block = group.kept[0].get::<V>(lane).xor(hash.reduce_polyval());
        group.store(lane, 0, block);
    }
}
