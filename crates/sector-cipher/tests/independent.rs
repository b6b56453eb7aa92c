//! Against other implementations: RustCrypto's `xts-mode` and `cbc` over its
//! `aes`, which uses the CPU's AES instructions, and the crates `hctr2-rs` and
//! `adiantum`. Their code is not this crate's on any back-end. IVs are worked
//! out here from dm-crypt's rules. FAST, EME2, AEZ10 and XCB have no other
//! implementation in Rust: `zears` is AEZ v5 with its reduced AES, not AEZ10.
#![allow(clippy::unwrap_used, reason = "a test fails that way")]

mod common;

use aes::cipher::{
    Array, BlockCipherEncrypt, BlockModeDecrypt, BlockModeEncrypt, KeyInit, KeyIvInit,
};
use aes::{Aes128, Aes192, Aes256};
use chacha20::{XChaCha12, XChaCha20};
use common::{SIZES, cipher, for_all, size, spec};
use hctr2_rs::{Hctr2_128, Hctr2_256};
use sector_cipher::{Backend, Cipher, SectorCount};
use sha2::{Digest, Sha256};
use xts_mode::Xts128;

/// The IV of a sector by the name of its generator.
fn iv(name: &str, number: u64) -> [u8; 16] {
    let mut iv = [0; 16];
    match name.rsplit('-').next().unwrap() {
        "plain" => iv[..4].copy_from_slice(&number.to_le_bytes()[..4]),
        "plain64" | "essiv:sha256" => iv[..8].copy_from_slice(&number.to_le_bytes()),
        "plain64be" => iv[8..].copy_from_slice(&number.to_be_bytes()),
        other => panic!("{other}"),
    }
    iv
}

fn key<A: KeyInit>(key: &[u8]) -> A {
    A::new_from_slice(key).unwrap()
}

fn encrypt_xts(key_bytes: &[u8], iv: [u8; 16], sector: &mut [u8]) {
    let (data, tweak) = key_bytes.split_at(key_bytes.len() / 2);
    match key_bytes.len() {
        32 => Xts128::<Aes128>::new(key(data), key(tweak)).encrypt_sector(sector, iv.into()),
        64 => Xts128::<Aes256>::new(key(data), key(tweak)).encrypt_sector(sector, iv.into()),
        _ => unreachable!(),
    }
}

fn cbc<M: KeyIvInit + BlockModeEncrypt<BlockSize = aes::cipher::consts::U16>>(
    key: &[u8],
    iv: [u8; 16],
    sector: &mut [u8],
) {
    let mut mode = M::new_from_slices(key, &iv).unwrap();
    for block in sector.chunks_exact_mut(16) {
        let block: &mut Array<u8, _> = block.try_into().unwrap();
        mode.encrypt_block(block);
    }
}

fn encrypt_cbc(name: &str, key_bytes: &[u8], mut iv: [u8; 16], sector: &mut [u8]) {
    if name.ends_with("essiv:sha256") {
        let essiv: Aes256 = key(&Sha256::digest(key_bytes));
        let mut block = Array::from(iv);
        essiv.encrypt_block(&mut block);
        iv = block.into();
    }
    match key_bytes.len() {
        16 => cbc::<cbc::Encryptor<Aes128>>(key_bytes, iv, sector),
        24 => cbc::<cbc::Encryptor<Aes192>>(key_bytes, iv, sector),
        32 => cbc::<cbc::Encryptor<Aes256>>(key_bytes, iv, sector),
        _ => unreachable!(),
    }
}

/// The tweak is 32 bytes long, as the kernel has it: zeros behind the IV.
fn long_tweak(iv: [u8; 16]) -> [u8; 32] {
    let mut tweak = [0; 32];
    tweak[..16].copy_from_slice(&iv);
    tweak
}

fn encrypt_hctr2(key: &[u8], iv: [u8; 16], sector: &mut [u8]) {
    let (plain, tweak) = (sector.to_vec(), long_tweak(iv));
    match key.len() {
        16 => Hctr2_128::new(key).encrypt(&plain, &tweak, sector),
        32 => Hctr2_256::new(key).encrypt(&plain, &tweak, sector),
        _ => unreachable!(),
    }
    .unwrap();
}

fn encrypt_adiantum(name: &str, key_bytes: &[u8], iv: [u8; 16], sector: &mut [u8]) {
    let tweak = long_tweak(iv);
    if name.starts_with("xchacha12") {
        key::<adiantum::Cipher<XChaCha12, Aes256>>(key_bytes).encrypt(sector, &tweak);
    } else {
        key::<adiantum::Cipher<XChaCha20, Aes256>>(key_bytes).encrypt(sector, &tweak);
    }
}

/// Whether there is somebody to ask.
fn has_other(name: &str) -> bool {
    !name.starts_with("capi:")
}

fn expected(name: &str, key: &[u8], bytes: usize, first: u64, shift: u32, plain: &[u8]) -> Vec<u8> {
    let mut data = plain.to_vec();
    for (i, sector) in data.chunks_exact_mut(bytes).enumerate() {
        let number = first.wrapping_add((i * bytes / 512) as u64) >> shift;
        let iv = iv(name, number);
        match name.rsplit_once('-').unwrap().0 {
            "aes-xts" => encrypt_xts(key, iv, sector),
            "aes-cbc" => encrypt_cbc(name, key, iv, sector),
            "aes-hctr2" => encrypt_hctr2(key, iv, sector),
            _ => encrypt_adiantum(name, key, iv, sector),
        }
    }
    data
}

#[test]
fn as_other_implementations() {
    for_all(|name, key, bytes, random| {
        if !has_other(name) {
            return;
        }
        let units = (bytes / 512) as u64;
        for first in [
            0,
            8,
            (1 << 32) - 5 * units,
            (1 << 35) - 5 * units,
            (1 << 63) - 5 * units,
            0_u64.wrapping_sub(24 * units),
            random.next() / 8 * 8,
        ] {
            for sectors in [1, 2, 9, 17, 24] {
                let plain = random.bytes(sectors * bytes);
                for (count, shift) in [
                    (SectorCount::Units512, 0),
                    (SectorCount::Large, units.trailing_zeros()),
                ] {
                    let expected = expected(name, key, bytes, first, shift, &plain);
                    for &backend in Backend::available() {
                        let cipher =
                            Cipher::new(spec(name), size(bytes), count, key, Some(backend))
                                .unwrap();
                        let mut data = plain.clone();
                        cipher.encrypt(first, &mut data);
                        assert!(
                            data == expected,
                            "{name} {bytes} {backend} {first:#x} {sectors}"
                        );
                        cipher.decrypt(first, &mut data);
                        assert!(
                            data == plain,
                            "{name} {bytes} {backend} {first:#x} {sectors}"
                        );
                    }
                }
            }
        }
    });
}

/// The other direction of the other CBC: what it decrypts is what we encrypted.
#[test]
fn other_cbc_decrypts_ours() {
    for bytes in SIZES {
        for &backend in Backend::available() {
            let key = [0x42; 32];
            let mut data = vec![0x17; 3 * bytes];
            cipher("aes-cbc-plain64", bytes, &key, backend).encrypt(0, &mut data);
            for (i, sector) in data.chunks_exact_mut(bytes).enumerate() {
                let iv = iv("aes-cbc-plain64", (i * bytes / 512) as u64);
                let mut mode = cbc::Decryptor::<Aes256>::new_from_slices(&key, &iv).unwrap();
                for block in sector.chunks_exact_mut(16) {
                    let block: &mut Array<u8, _> = block.try_into().unwrap();
                    mode.decrypt_block(block);
                }
            }
            assert!(data.iter().all(|&byte| byte == 0x17), "{bytes} {backend}");
        }
    }
}
