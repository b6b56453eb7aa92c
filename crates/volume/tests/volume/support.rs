//! Volumes for tests, and their plaintext by a way that is not the volume's.

use std::sync::Arc;

use sector_cipher::{Cipher, CipherSpec, SectorCount, SectorSize};
use xtent_secret::SecretBytes;
use xtent_store::Store;
use xtent_volume::{Config, DiscardPolicy, Volume};

pub(crate) const XTS: &str = "aes-xts-plain64";
pub(crate) const CBC: &str = "aes-cbc-essiv:sha256";

/// Where the volumes of tests begin: not a multiple of large sectors, as in LUKS1.
pub(crate) const OFFSET: u64 = 3 * 512;

pub(crate) fn key(cipher: &str) -> Vec<u8> {
    let len = if cipher == XTS { 64 } else { 32 };
    (0..len).map(|i: u8| 3 * i + 1).collect()
}

pub(crate) fn config(cipher: &str, sector: u32, length: u64) -> Config {
    Config {
        cipher: cipher.parse().unwrap(),
        sector_size: SectorSize::new(sector).unwrap(),
        sector_count: SectorCount::Units512,
        offset: OFFSET,
        length,
        iv_offset: 8,
        read_only: false,
        discard: DiscardPolicy::Never,
        backend: None,
    }
}

pub(crate) fn open(store: Arc<dyn Store>, config: &Config) -> Volume {
    let key = SecretBytes::copy_of(&key(&config.cipher.to_string())).unwrap();
    Volume::open(store, &key, config).unwrap()
}

pub(crate) fn store_len(length: u64) -> usize {
    usize::try_from(OFFSET + length).unwrap()
}

/// Decrypts a store's image sector by sector with the cipher crate alone.
pub(crate) fn plaintext(image: &[u8], config: &Config) -> Vec<u8> {
    crypt(image, config, Cipher::decrypt)
}

/// A store's image with this plaintext.
pub(crate) fn image(plaintext: &[u8], config: &Config) -> Vec<u8> {
    let mut image = vec![0; usize::try_from(config.offset).unwrap()];
    image.extend_from_slice(plaintext);
    let body = crypt(&image, config, Cipher::encrypt);
    image.truncate(usize::try_from(config.offset).unwrap());
    image.extend(body);
    image
}

fn crypt(image: &[u8], config: &Config, crypt: fn(&Cipher, u64, &mut [u8])) -> Vec<u8> {
    let spec: CipherSpec = config.cipher;
    let cipher = Cipher::new(
        spec,
        config.sector_size,
        config.sector_count,
        &key(&spec.to_string()),
        Some(sector_cipher::Backend::Portable),
    )
    .unwrap();
    let offset = usize::try_from(config.offset).unwrap();
    let mut body = image[offset..][..usize::try_from(config.length).unwrap()].to_vec();
    let sector = config.sector_size.bytes();
    for (index, data) in body.chunks_mut(sector).enumerate() {
        let first = config.iv_offset + (index * (sector / 512)) as u64;
        crypt(&cipher, first, data);
    }
    body
}

/// Bytes that differ from place to place and from seed to seed.
pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}
