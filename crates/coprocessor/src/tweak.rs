//! The CPU's part of XTS where the engine does only some of it: tweaks, and both exclusive-ors.

use aes::cipher::{BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Aes256, Block};
use xtent_secret::SecretBox;
use zeroize::Zeroize;

use crate::{Error, ErrorKind};

/// Bytes in a block.
pub(crate) const BLOCK: usize = 16;

/// Encrypts single blocks: sector-cipher has runs of sectors only.
enum Aes {
    Unset,
    Aes128(Aes128),
    Aes256(Aes256),
}

/// The tweak key on the CPU, in secret memory.
pub(crate) struct TweakKey(SecretBox<Aes>);

impl TweakKey {
    /// Of 16 or 32 bytes.
    pub(crate) fn new(key: &[u8]) -> Result<Self, Error> {
        let mut place = SecretBox::new(Aes::Unset)
            .map_err(|e| Error::by(ErrorKind::Memory, "cannot keep the tweak key", e))?;
        schedule(&mut place, key);
        burn_stack();
        match *place {
            Aes::Unset => Err(Error::new(ErrorKind::Request, "no AES key of this length")),
            _ => Ok(Self(place)),
        }
    }

    /// Encrypts blocks in place.
    pub(crate) fn encrypt(&self, tweaks: &mut [u128]) {
        let mut blocks = [Block::default(); 32];
        for group in tweaks.chunks_mut(blocks.len()) {
            let blocks = &mut blocks[..group.len()];
            for (block, tweak) in blocks.iter_mut().zip(&*group) {
                *block = tweak.to_le_bytes().into();
            }
            match &*self.0 {
                Aes::Unset => {}
                Aes::Aes128(aes) => aes.encrypt_blocks(blocks),
                Aes::Aes256(aes) => aes.encrypt_blocks(blocks),
            }
            for (block, tweak) in blocks.iter_mut().zip(group) {
                *tweak = u128::from_le_bytes((*block).into());
                block.as_mut_slice().zeroize();
            }
        }
    }
}

#[inline(never)]
fn schedule(place: &mut Aes, key: &[u8]) {
    match key.len() {
        16 => {
            if let Ok(aes) = Aes128::new_from_slice(key) {
                *place = Aes::Aes128(aes);
            }
        }
        32 => {
            if let Ok(aes) = Aes256::new_from_slice(key) {
                *place = Aes::Aes256(aes);
            }
        }
        _ => {}
    }
}

/// Overwrites what was left on the stack: by making a key schedule, or by a part of a job.
#[inline(never)]
pub(crate) fn burn_stack() {
    let stack = [0_u8; 8 << 10];
    std::hint::black_box(&stack);
}

/// One exclusive-or of XTS over a sector, with the masks that follow from its encrypted tweak (IEEE 1619-2007, clause 5.2).
pub(crate) fn mask(tweak: u128, from: &[u8], to: &mut [u8]) {
    let mut mask = tweak;
    let blocks = from.chunks_exact(BLOCK).zip(to.chunks_exact_mut(BLOCK));
    for (from, to) in blocks {
        let mut block = [0; BLOCK];
        block.copy_from_slice(from);
        to.copy_from_slice(&(u128::from_le_bytes(block) ^ mask).to_le_bytes());
        // Times alpha.
        mask = (mask << 1) ^ (0x87 * (mask >> 127));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FIPS 197, appendix C.
    #[test]
    fn blocks_are_those_of_the_standard() {
        let plain =
            u128::from_be_bytes(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff_u128.to_le_bytes());
        let key: Vec<u8> = (0..32).collect();
        for (len, expected) in [
            (16, 0x69c4_e0d8_6a7b_0430_d8cd_b780_70b4_c55a_u128),
            (32, 0x8ea2_b7ca_5167_45bf_eafc_4990_4b49_6089_u128),
        ] {
            let expected = u128::from_le_bytes(expected.to_be_bytes());
            for count in [1, 31, 32, 33, 100] {
                let mut tweaks = vec![plain; count];
                TweakKey::new(&key[..len]).unwrap().encrypt(&mut tweaks);
                assert_eq!(tweaks, vec![expected; count]);
            }
        }
        for len in [0, 15, 24, 31] {
            assert_eq!(
                TweakKey::new(&key[..len]).err().unwrap().kind(),
                ErrorKind::Request
            );
        }
    }

    #[test]
    fn masks_double() {
        let mut to = [0; 48];
        mask(1 << 127, &[0; 48], &mut to);
        assert_eq!(to[..16], (1_u128 << 127).to_le_bytes());
        assert_eq!(to[16..32], 0x87_u128.to_le_bytes());
        assert_eq!(to[32..], 0x10e_u128.to_le_bytes());
    }
}
