//! The anti-forensic splitter (LUKS1 specification, section 2.4): a key is
//! spread over so much disk that wiping any part of it destroys the key.

use xtent_secret::SecretBytes;

use crate::Error;
use crate::kdf::hash::Hash;

/// Stripes that both formats use.
pub const STRIPES: u32 = 4000;

/// Spreads `key` over `stripes` times its length.
pub fn split(key: &[u8], stripes: u32, hash: &str) -> Result<SecretBytes, Error> {
    let hash = Hash::from_name(hash)?;
    let length = material_length(key.len(), stripes)?;
    let mut material = SecretBytes::random(length)?;
    let (random, last) = material.split_at_mut(length - key.len());
    let state = absorb(random, key.len(), hash)?;
    for ((out, key), state) in last.iter_mut().zip(key).zip(&*state) {
        *out = key ^ state;
    }
    Ok(material)
}

/// Gathers the key of `key_length` bytes from split material, which may be
/// longer (keyslot areas are whole sectors).
pub fn merge(
    material: &[u8],
    key_length: usize,
    stripes: u32,
    hash: &str,
) -> Result<SecretBytes, Error> {
    let hash = Hash::from_name(hash)?;
    let length = material_length(key_length, stripes)?;
    let Some(material) = material.get(..length) else {
        return Err(Error::corrupt(format!(
            "key material has {} bytes, {length} are needed",
            material.len()
        )));
    };
    let (random, last) = material.split_at(length - key_length);
    let mut key = absorb(random, key_length, hash)?;
    for (out, last) in key.iter_mut().zip(last) {
        *out ^= last;
    }
    Ok(key)
}

/// Bytes of split material.
fn material_length(key_length: usize, stripes: u32) -> Result<usize, Error> {
    usize::try_from(stripes)
        .ok()
        .and_then(|stripes| stripes.checked_mul(key_length))
        .filter(|&length| length > 0)
        .ok_or_else(|| {
            Error::corrupt(format!(
                "a key of {key_length} bytes cannot be split into {stripes} stripes"
            ))
        })
}

/// The diffused state after every stripe but the last.
fn absorb(random: &[u8], key_length: usize, hash: Hash) -> Result<SecretBytes, Error> {
    let mut state = SecretBytes::zeroed(key_length)?;
    for stripe in random.chunks_exact(key_length) {
        for (state, stripe) in state.iter_mut().zip(stripe) {
            *state ^= stripe;
        }
        // H2 of the specification: each digest-sized block, the last one
        // possibly partial, becomes the hash of its big-endian number and
        // itself, cut to its length.
        for (number, block) in (0_u32..).zip(state.chunks_mut(hash.len())) {
            hash.replace(&number.to_be_bytes(), block);
        }
    }
    Ok(state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kdf::hash::ALL;
    use proptest::prelude::*;
    use sha2::Digest;

    proptest! {
        #[test]
        fn split_then_merge_gives_the_key(
            key in proptest::collection::vec(any::<u8>(), 1..200),
            stripes in 1_u32..20,
            hash in 0..ALL.len(),
            slack in 0_usize..600,
        ) {
            let hash = ALL[hash].1;
            let split = split(&key, stripes, hash).unwrap();
            prop_assert_eq!(split.len(), key.len() * stripes as usize);
            let mut area = split.to_vec();
            area.resize(area.len() + slack, 0x55);
            prop_assert_eq!(&*merge(&area, key.len(), stripes, hash).unwrap(), &key);
            // Any flipped bit destroys it, but where it meets a hash that is
            // cut to a few bytes: there one flip in 256 to the power of their
            // number goes unseen, by the specification.
            let bit = usize::from(key[0]) * 31 % (split.len() * 8);
            let block_size = Hash::from_name(hash).unwrap().len();
            let block_start = bit / 8 % key.len() / block_size * block_size;
            let in_last_stripe = bit / 8 >= split.len() - key.len();
            if in_last_stripe || key.len() - block_start >= 8 {
                area[bit / 8] ^= 1 << (bit % 8);
                prop_assert_ne!(&*merge(&area, key.len(), stripes, hash).unwrap(), &key);
            }
        }
    }

    /// The diffusion written out by hand for two stripes: block 0 whole,
    /// block 1 cut to the rest of the key.
    #[test]
    fn the_partial_block_is_hashed_cut() {
        let material: Vec<u8> = (0..80).collect();
        let mut h0 = sha1::Sha1::digest([&[0, 0, 0, 0][..], &material[..20]].concat()).to_vec();
        let h1 = sha1::Sha1::digest([&[0, 0, 0, 1][..], &material[20..40]].concat());
        h0.extend_from_slice(&h1);
        let expected: Vec<u8> = h0.iter().zip(&material[40..]).map(|(a, b)| a ^ b).collect();
        assert_eq!(&*merge(&material, 40, 2, "sha1").unwrap(), &expected);

        let h0 = sha1::Sha1::digest([&[0, 0, 0, 0][..], &material[..20]].concat());
        let h1 = sha1::Sha1::digest([&[0, 0, 0, 1][..], &material[20..32]].concat());
        let expected: Vec<u8> = h0
            .iter()
            .chain(&h1[..12])
            .zip(&material[32..])
            .map(|(a, b)| a ^ b)
            .collect();
        assert_eq!(&*merge(&material[..64], 32, 2, "sha1").unwrap(), &expected);
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(split(b"", 4000, "sha256").is_err());
        assert!(split(b"key", 0, "sha256").is_err());
        assert!(split(b"key", 4, "md4").is_err());
        assert!(merge(&[0; 11], 3, 4, "sha256").is_err());
        assert!(merge(&[0; 12], usize::MAX, u32::MAX, "sha256").is_err());
        assert!(merge(&[0; 12], 0, 4, "sha256").is_err());
    }
}
