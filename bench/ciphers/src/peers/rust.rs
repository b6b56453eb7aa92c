//! Crates in Rust.

use adiantum::Cipher as Adiantum;
use aes::cipher::{
    Array, BlockCipherDecrypt, BlockCipherEncrypt, BlockModeDecrypt, BlockModeEncrypt,
    BlockSizeUser, InnerIvInit, KeyInit, SetIvState, consts::U16,
};
use aes::{Aes128, Aes256, Block};
use chacha20::{XChaCha12, XChaCha20};
use hctr2_rs::{Hctr2_128, Hctr2_256};
use sector_cipher::Mode;
use xts_mode::Xts128;
use zears::Aez;

use super::{Peer, tweak, version};
use crate::contestant::{Contestant, Task, UNIT};

/// A cipher on one sector with its number, by two functions.
struct Sectors<E, D> {
    sector: usize,
    encrypt: E,
    decrypt: D,
}

impl<E: FnMut(&mut [u8], u64), D: FnMut(&mut [u8], u64)> Contestant for Sectors<E, D> {
    fn crypt(&mut self, encrypt: bool, first: u64, data: &mut [u8]) {
        let numbers = (first..).step_by(self.sector / UNIT);
        for (sector, number) in data.chunks_exact_mut(self.sector).zip(numbers) {
            if encrypt {
                (self.encrypt)(sector, number);
            } else {
                (self.decrypt)(sector, number);
            }
        }
    }
}

pub(super) fn all() -> Vec<Peer> {
    let name = |package| format!("{package} {}", version(package));
    let boxed = |name, make: fn(&Task) -> Option<Box<dyn Contestant>>| Peer {
        name,
        same_cipher: true,
        make: Box::new(make),
    };
    vec![
        boxed(name("xts-mode"), xts),
        boxed(name("cbc"), cbc),
        boxed(name("hctr2-rs"), hctr2),
        boxed(name("adiantum"), adiantum),
        Peer {
            // Its rounds between the outer ones are AES4 instead of AES, and
            // its tweak goes in otherwise.
            same_cipher: false,
            ..boxed(format!("{} (AEZ v5, a variant)", name("zears")), aez)
        },
    ]
}

/// A contestant from the functions of both directions.
fn sectors(
    task: &Task,
    encrypt: impl FnMut(&mut [u8], u64) + 'static,
    decrypt: impl FnMut(&mut [u8], u64) + 'static,
) -> Option<Box<dyn Contestant>> {
    Some(Box::new(Sectors {
        sector: task.sector,
        encrypt,
        decrypt,
    }))
}

fn xts(task: &Task) -> Option<Box<dyn Contestant>> {
    fn make<A>(task: &Task) -> Option<Box<dyn Contestant>>
    where
        A: KeyInit + BlockCipherEncrypt + BlockCipherDecrypt + BlockSizeUser<BlockSize = U16>,
        A: Clone + 'static,
    {
        let key = task.key();
        let (data, tweak_key) = key.split_at(key.len() / 2);
        let cipher = || {
            Some(Xts128::new(
                A::new_from_slice(data).ok()?,
                A::new_from_slice(tweak_key).ok()?,
            ))
        };
        let (one, other) = (cipher()?, cipher()?);
        sectors(
            task,
            move |sector, number| one.encrypt_sector(sector, Array(tweak(number))),
            move |sector, number| other.decrypt_sector(sector, Array(tweak(number))),
        )
    }
    match (task.spec.mode(), task.aes_bits()?) {
        (Mode::AesXts, 128) => make::<Aes128>(task),
        (Mode::AesXts, 256) => make::<Aes256>(task),
        _ => None,
    }
}

fn cbc(task: &Task) -> Option<Box<dyn Contestant>> {
    fn make<A>(task: &Task) -> Option<Box<dyn Contestant>>
    where
        A: KeyInit + BlockCipherEncrypt + BlockCipherDecrypt + BlockSizeUser<BlockSize = U16>,
        A: Clone + 'static,
    {
        let zero = Array::default();
        let aes = A::new_from_slice(&task.key()).ok()?;
        let mut encryptor = cbc::Encryptor::inner_iv_init(aes.clone(), &zero);
        let mut decryptor = cbc::Decryptor::inner_iv_init(aes, &zero);
        sectors(
            task,
            move |sector, number| {
                encryptor.set_iv(&Array(tweak(number)));
                encryptor.encrypt_blocks(Block::slice_as_chunks_mut(sector).0);
            },
            move |sector, number| {
                decryptor.set_iv(&Array(tweak(number)));
                decryptor.decrypt_blocks(Block::slice_as_chunks_mut(sector).0);
            },
        )
    }
    match (task.spec.mode(), task.aes_bits()?) {
        (Mode::AesCbc, 128) => make::<Aes128>(task),
        (Mode::AesCbc, 256) => make::<Aes256>(task),
        _ => None,
    }
}

fn adiantum(task: &Task) -> Option<Box<dyn Contestant>> {
    fn make<S>(task: &Task) -> Option<Box<dyn Contestant>>
    where
        S: aes::cipher::KeyIvInit + aes::cipher::StreamCipher + 'static,
        S::IvSize: aes::cipher::typenum::IsGreaterOrEqual<U16>,
        Adiantum<S, Aes256>: KeyInit,
    {
        let key = task.key();
        let one = Adiantum::<S, Aes256>::new_from_slice(&key).ok()?;
        let other = Adiantum::<S, Aes256>::new_from_slice(&key).ok()?;
        sectors(
            task,
            move |sector, number| one.encrypt(sector, &tweak::<32>(number)),
            move |sector, number| other.decrypt(sector, &tweak::<32>(number)),
        )
    }
    match task.spec.mode() {
        Mode::Adiantum12 => make::<XChaCha12>(task),
        Mode::Adiantum20 => make::<XChaCha20>(task),
        _ => None,
    }
}

fn aez(task: &Task) -> Option<Box<dyn Contestant>> {
    if (task.spec.mode(), task.aes_bits()?) != (Mode::Aez10, 128) {
        return None;
    }
    let (one, other) = (Aez::new(&task.key()), Aez::new(&task.key()));
    sectors(
        task,
        move |sector, number| one.encrypt_inplace(&tweak::<16>(number), &[], 0, sector),
        move |sector, number| {
            other.decrypt_inplace(&tweak::<16>(number), &[], 0, sector);
        },
    )
}

/// HCTR2 from a source to a destination.
struct Between<C> {
    cipher: C,
    sector: usize,
    dest: Vec<u8>,
    crypt: Crypt<C>,
}

type Crypt<C> = fn(&C, bool, &[u8], &[u8], &mut [u8]) -> bool;

impl<C> Contestant for Between<C> {
    fn crypt(&mut self, encrypt: bool, first: u64, data: &mut [u8]) {
        self.dest.resize(data.len(), 0);
        let numbers = (first..).step_by(self.sector / UNIT);
        let pairs = data
            .chunks_exact(self.sector)
            .zip(self.dest.chunks_exact_mut(self.sector));
        for ((source, dest), number) in pairs.zip(numbers) {
            let done = (self.crypt)(&self.cipher, encrypt, source, &tweak::<32>(number), dest);
            assert!(done, "a sector was refused");
        }
    }

    fn result<'a>(&'a self, _data: &'a [u8]) -> &'a [u8] {
        &self.dest
    }
}

fn hctr2(task: &Task) -> Option<Box<dyn Contestant>> {
    macro_rules! make {
        ($cipher:ty) => {
            Some(Box::new(Between {
                cipher: <$cipher>::new(&task.key()),
                sector: task.sector,
                dest: Vec::new(),
                crypt: |cipher, encrypt, source, tweak, dest| {
                    if encrypt {
                        cipher.encrypt(source, tweak, dest).is_ok()
                    } else {
                        cipher.decrypt(source, tweak, dest).is_ok()
                    }
                },
            }))
        };
    }
    match (task.spec.mode(), task.aes_bits()?) {
        (Mode::Hctr2, 128) => make!(Hctr2_128),
        (Mode::Hctr2, 256) => make!(Hctr2_256),
        _ => None,
    }
}
