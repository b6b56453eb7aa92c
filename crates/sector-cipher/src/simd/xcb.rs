//! XCB-AES over a stream of sectors: IEEE 1619.2-2010. Broken: see
//! [`crate::Mode::Xcb`].

use super::field::{Factor, Products};
use super::hash_ctr_hash::{self, Group, Scheme};
use super::powers::Powers;
use super::{AesKeys, RoundKeys, Vector, aes, counter, fresh};
use crate::here::{MapHere, ZipHere, from_fn};
use crate::run::{BLOCK, Sectors};
use zeroize::Zeroize;

/// The keys of XCB.
pub(crate) struct Keys {
    /// For the last block on its way into the middle.
    into: AesKeys,
    /// For its way out again, in the inverse direction.
    out: AesKeys,
    counter: AesKeys,
    powers: Powers,
    over_plain: Ends,
    over_encrypted: Ends,
}

/// What a hash has besides the sector.
struct Ends {
    /// The power of the hash's key for the tweak.
    tweak: u128,
    /// What the lengths come to.
    lengths: u128,
}

impl Ends {
    const ZERO: Self = Self {
        tweak: 0,
        lengths: 0,
    };
}

/// The factor that doubles in POLYVAL's field, whose products have x^-128 in
/// them: x^129.
const X129: u128 = 1 << 126 | 1 << 122 | 1 << 121 | 1 << 1 | 1;

/// A block of lengths: both include a block of zeros, or for the ciphertext
/// also the block that is not hashed.
fn lengths(tweak_bytes: usize, bytes: usize) -> u128 {
    ((tweak_bytes as u128 * 8) << 64) | (bytes as u128 * 8)
}

impl Keys {
    pub(super) const UNSET: Self = Self {
        into: AesKeys::UNSET,
        out: AesKeys::UNSET,
        counter: AesKeys::UNSET,
        powers: Powers::ZERO,
        over_plain: Ends::ZERO,
        over_encrypted: Ends::ZERO,
    };

    /// Sets the key, for sectors of `bytes` bytes.
    #[inline(always)]
    pub(super) fn set<V: Vector>(&mut self, key: &[u8], bytes: usize) {
        // The key itself is in the place of one that comes from it.
        self.counter.set::<V>(key, None);
        let numbers: [u128; 7] = from_fn(|i| (i as u128).swap_bytes());
        let mut x = numbers.map_here(V::splat);
        aes::encrypt::<V, 7>(&mut x, &self.counter.encrypt);
        let mut derived = [[0_u8; 32]; 3];
        let mut keys = [&mut self.into, &mut self.out, &mut self.counter];
        for (i, (bytes, keys)) in derived.iter_mut().zip_here(&mut keys).enumerate() {
            for (j, block) in bytes.chunks_exact_mut(BLOCK).enumerate() {
                block.copy_from_slice(&x[1 + 2 * i + j].blocks()[0].to_le_bytes());
            }
            keys.set::<V>(&bytes[..key.len()], None);
        }
        derived.as_flattened_mut().zeroize();

        // GHASH is POLYVAL with the bytes of all blocks reversed and the key
        // doubled (RFC 8452, appendix A).
        let x129 = Factor::new(V::splat(X129));
        let h = Products::new(x[0].reverse_bytes(), x129).reduce_polyval();
        let times_h = |x| Products::new(x, Factor::new(h)).reduce_polyval();
        let blocks = bytes / BLOCK;
        // Behind the sector's part of the input come two more blocks.
        let square = times_h(h);
        let before = self.powers.set(blocks, 0..blocks - 1, square, times_h);
        let inner = V::splat(lengths(2 * BLOCK, bytes - BLOCK));
        let outer = V::splat(lengths(2 * BLOCK, bytes));
        let far = times_h(before);
        self.over_plain = Ends {
            tweak: before.blocks()[0],
            lengths: times_h(outer).blocks()[0],
        };
        self.over_encrypted = Ends {
            tweak: far.blocks()[0],
            lengths: times_h(times_h(inner).xor(outer)).blocks()[0],
        };
    }

    /// A hash, over plaintext or over ciphertext.
    #[inline(always)]
    fn hash<V: Vector>(&self, plain: bool, sector: Products<V>, tweak: V) -> V {
        let ends = if plain {
            &self.over_plain
        } else {
            &self.over_encrypted
        };
        let tweak = Products::new(tweak.reverse_bytes(), Factor::new(V::splat(ends.tweak)));
        let hash = sector.plus(tweak).reduce_polyval();
        hash.xor(V::splat(ends.lengths)).reverse_bytes()
    }
}

#[inline(always)]
pub(super) fn crypt<V: Vector>(keys: &Keys, sectors: &mut Sectors<'_, '_>, encrypt: bool) {
    hash_ctr_hash::crypt::<Keys, V>(keys, sectors, encrypt);
}

impl Scheme for Keys {
    const REVERSED: bool = true;

    #[inline(always)]
    fn powers(&self) -> &Powers {
        &self.powers
    }

    #[inline(always)]
    fn counter_keys(&self) -> &RoundKeys {
        &self.counter.encrypt
    }

    /// Its bytes are reversed, so that its last word, which counts big endian
    /// and wraps, is the first.
    #[inline(always)]
    fn start<V: Vector>(&self, start: V) -> V {
        start.reverse_bytes()
    }

    #[inline(always)]
    fn counters<V: Vector, const N: usize>(&self, start: V, block: usize) -> [V; N] {
        let numbers = fresh(&counter::FROM_FIRST);
        let start = start.add32(numbers.splat(block));
        let mut x = numbers.vectors::<V, N>();
        for x in &mut x {
            *x = start.add32(*x).reverse_bytes();
        }
        V::aes_start::<N, true>(&mut x, self.counter_keys());
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
                let hash = self.hash(encrypt, hash(), group.tweaks.get(lane));
                group.kept[0].set(lane, hash);
            }
            1 => {
                let keys = if encrypt { &self.into } else { &self.out };
                let mut x = [group.load::<V>(lane, group.bytes - BLOCK)];
                aes::encrypt::<V, 1>(&mut x, &keys.encrypt);
                let middle = x[0].xor(group.kept[0].get(lane));
                group.start.set(lane, middle);
                group.kept[0].set(lane, middle);
            }
            _ => {}
        }
    }

    #[inline(always)]
    fn finish<V: Vector>(&self, encrypt: bool, group: &Group, hash: Products<V>, lane: usize) {
        let hash = self.hash(!encrypt, hash, group.tweaks.get(lane));
        let keys = if encrypt { &self.out } else { &self.into };
        let mut x = [group.kept[0].get::<V>(lane).xor(hash)];
        aes::decrypt::<V, 1>(&mut x, &keys.decrypt);
        group.store(lane, group.bytes - BLOCK, x[0]);
    }
}
