//! What the ciphers of `sector-cipher` make of data.

use sector_cipher::{Cipher, First, SectorCount, SectorSize};

/// AES of blocks one by one: the first blocks of CBC with IV 0.
pub fn ecb(key: &[u8], decrypt: bool, data: &[u8]) -> Vec<u8> {
    let spec = "aes-cbc-plain64".parse().unwrap();
    let size = SectorSize::new(512).unwrap();
    let aes = Cipher::new(spec, size, SectorCount::Large, key, None).unwrap();
    let block = |block: &[u8]| {
        let mut sector = [0; 512];
        sector[..16].copy_from_slice(block);
        if decrypt {
            aes.try_decrypt(First::Index(0), &mut sector).unwrap();
        } else {
            aes.try_encrypt(First::Index(0), &mut sector).unwrap();
        }
        <[u8; 16]>::try_from(&sector[..16]).unwrap()
    };
    data.chunks(16).flat_map(block).collect()
}

/// Units of a mode, whose tweaks start at `tweak` and go up by `step`.
pub fn units(mode: &str, key: &[u8], unit: usize, tweak: u64, step: u64, data: &mut [u8]) {
    let spec = format!("{mode}-plain64").parse().unwrap();
    let size = SectorSize::new(unit.try_into().unwrap()).unwrap();
    let cipher = Cipher::new(spec, size, SectorCount::Large, key, None).unwrap();
    for (i, unit) in (0..).zip(data.chunks_mut(unit)) {
        cipher
            .try_encrypt(First::Index(tweak + i * step), unit)
            .unwrap();
    }
}
