//! Key material: the volume key, split, encrypted under a derived key, in a
//! keyslot's area.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sector_cipher::{CipherSpec, NewError, SectorCount, SectorSize};
use serde::Serialize;
use xtent_secret::{KeyedError, SecretBytes, SecretCipher};

use super::areas::area_size;
use super::model::{Area, Keyslot, Luks2Keyslot, SALT_SIZE, SlotKdf};
use crate::kdf::KdfKind;
use crate::{Error, Kdf, KdfChoice, KdfLimits, af};

/// Cipher of the areas that we make, whatever the volume's cipher is.
const ENCRYPTION: &str = "aes-xts-plain64";

/// Bytes of its key.
const AREA_KEY_SIZE: usize = 64;

impl Keyslot {
    /// Bytes of key material: whole 512-byte sectors.
    pub(crate) fn material_size(&self) -> Result<usize, Error> {
        let stripes = self.luks2.as_ref().map_or(0, |luks2| luks2.stripes);
        (u64::from(self.key_size) * u64::from(stripes))
            .checked_next_multiple_of(512)
            .filter(|size| *size <= self.area.size)
            .and_then(|size| usize::try_from(size).ok())
            .ok_or_else(|| Error::corrupt("a LUKS2 keyslot's key does not fit its area"))
    }

    /// What stands against opening this slot, whatever the passphrase is.
    pub(crate) fn luks2(&self) -> Result<&Luks2Keyslot, Error> {
        let Some(luks2) = &self.luks2 else {
            return Err(Error::unsupported(format!(
                "keyslot type \"{}\" is not supported",
                self.kind.escape_debug()
            )));
        };
        if luks2.stripes != af::STRIPES {
            return Err(Error::unsupported(format!(
                "{} stripes are not supported, only {}",
                luks2.stripes,
                af::STRIPES
            )));
        }
        Ok(luks2)
    }

    /// The key that `passphrase` gives for the slot's encrypted `material`:
    /// the volume key or, for a wrong passphrase, noise.
    pub(crate) fn open(
        &self,
        material: &[u8],
        passphrase: &SecretBytes,
        limits: &KdfLimits,
    ) -> Result<SecretBytes, Error> {
        let luks2 = self.luks2()?;
        let (kdf, salt) = match &luks2.kdf {
            SlotKdf::Known { kdf, salt } => (kdf, salt),
            SlotKdf::Unknown(kind) => {
                return Err(Error::unsupported(format!(
                    "key derivation \"{}\" is not supported",
                    kind.escape_debug()
                )));
            }
        };
        // Before the costly part: is there any point?
        crate::null::refuse(&luks2.encryption, "the key in it")?;
        let spec = parse_encryption(&luks2.encryption, luks2.area_key_size as usize)?;
        let derived = kdf.derive(passphrase, salt, luks2.area_key_size as usize, limits)?;
        let cipher = cipher(spec, &derived)?;
        let mut split = SecretBytes::copy_of(material)?;
        cipher.decrypt(0, &mut split);
        cipher.wipe_stack();
        af::merge(
            &split,
            self.key_size as usize,
            luks2.stripes,
            &luks2.af_hash,
        )
    }
}

/// Everything about a new keyslot except its place: the derivation is done
/// before any lock is taken.
pub(crate) struct NewKeyslot {
    key_size: usize,
    kdf: Kdf,
    salt: [u8; SALT_SIZE],
    af_hash: String,
    /// Encrypted; independent of the place, since its sectors are counted
    /// from the start of the area.
    pub(crate) material: Vec<u8>,
}

impl NewKeyslot {
    /// Derives and encrypts.
    pub(crate) fn new(
        key: &SecretBytes,
        passphrase: &SecretBytes,
        choice: &KdfChoice,
        af_hash: &str,
    ) -> Result<Self, Error> {
        let kdf = choice.settle(KdfKind::Argon2id, AREA_KEY_SIZE)?;
        let mut salt = [0; SALT_SIZE];
        xtent_secret::fill_random(&mut salt)?;
        // The cost was chosen here and now, by the user or by a benchmark.
        let limits = KdfLimits { longest: None };
        let derived = kdf.derive(passphrase, &salt, AREA_KEY_SIZE, &limits)?;
        let split = af::split(key, af::STRIPES, af_hash)?;
        let mut material = SecretBytes::zeroed(split.len().next_multiple_of(512))?;
        material[..split.len()].copy_from_slice(&split);
        let spec = parse_encryption(ENCRYPTION, AREA_KEY_SIZE)?;
        let cipher = cipher(spec, &derived)?;
        cipher.encrypt(0, &mut material);
        cipher.wipe_stack();
        Ok(Self {
            key_size: key.len(),
            kdf,
            salt,
            af_hash: af_hash.to_owned(),
            material: material.to_vec(),
        })
    }

    /// Bytes of area that it needs.
    pub(crate) fn area_size(&self) -> u64 {
        area_size(self.key_size)
    }

    /// Its JSON, at a place.
    pub(crate) fn json(&self, area: Area) -> KeyslotJson {
        let salt = STANDARD.encode(self.salt);
        let kdf = match &self.kdf {
            Kdf::Pbkdf2 { hash, iterations } => KdfJson::Pbkdf2 {
                kind: "pbkdf2",
                hash: hash.clone(),
                iterations: *iterations,
                salt,
            },
            Kdf::Argon2i(cost) | Kdf::Argon2id(cost) => KdfJson::Argon2 {
                kind: match self.kdf {
                    Kdf::Argon2i(_) => "argon2i",
                    _ => "argon2id",
                },
                time: cost.time,
                memory: cost.memory,
                cpus: cost.cpus,
                salt,
            },
        };
        KeyslotJson {
            kind: "luks2",
            key_size: self.key_size,
            af: AfJson {
                kind: "luks1",
                stripes: af::STRIPES,
                hash: self.af_hash.clone(),
            },
            area: AreaJson {
                kind: "raw",
                offset: area.offset.to_string(),
                size: area.size.to_string(),
                encryption: ENCRYPTION,
                key_size: AREA_KEY_SIZE,
            },
            kdf,
        }
    }
}

/// A keyslot as it is written, members in cryptsetup's order.
#[derive(Serialize)]
pub(crate) struct KeyslotJson {
    #[serde(rename = "type")]
    kind: &'static str,
    pub(crate) key_size: usize,
    pub(crate) af: AfJson,
    pub(crate) area: AreaJson,
    pub(crate) kdf: KdfJson,
}

#[derive(Serialize)]
pub(crate) struct AfJson {
    #[serde(rename = "type")]
    kind: &'static str,
    stripes: u32,
    hash: String,
}

#[derive(Serialize)]
pub(crate) struct AreaJson {
    #[serde(rename = "type")]
    kind: &'static str,
    offset: String,
    size: String,
    encryption: &'static str,
    key_size: usize,
}

#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum KdfJson {
    Pbkdf2 {
        #[serde(rename = "type")]
        kind: &'static str,
        hash: String,
        iterations: u32,
        salt: String,
    },
    Argon2 {
        #[serde(rename = "type")]
        kind: &'static str,
        time: u32,
        memory: u32,
        cpus: u32,
        salt: String,
    },
}

/// A cipher's name, if we have it and it takes keys of that length.
pub(crate) fn parse_encryption(name: &str, key_length: usize) -> Result<CipherSpec, Error> {
    let spec: CipherSpec = name.parse().map_err(|_| {
        Error::unsupported(format!(
            "cipher \"{}\" is not supported",
            name.escape_debug()
        ))
    })?;
    if !spec.key_lengths().contains(&key_length) {
        return Err(wrong_key_length(spec, key_length));
    }
    Ok(spec)
}

/// In bits, as `xtent format` and `header dump` count them.
fn wrong_key_length(spec: CipherSpec, given: usize) -> Error {
    let takes: Vec<String> = spec
        .key_lengths()
        .iter()
        .map(|bytes| (bytes * 8).to_string())
        .collect();
    Error::unsupported(format!(
        "cipher {spec} takes keys of {} bits, the header gives it {}",
        takes.join(" or "),
        given.saturating_mul(8)
    ))
}

/// A keyed cipher over 512-byte sectors, in secret memory from the start.
fn cipher(spec: CipherSpec, key: &SecretBytes) -> Result<SecretCipher, Error> {
    let sector_size =
        SectorSize::new(512).map_err(|error| Error::unsupported(error.to_string()))?;
    let count = SectorCount::Units512;
    SecretCipher::keyed(spec, sector_size, count, key, crate::backend()).map_err(
        |error| match error {
            KeyedError::Cipher(NewError::KeyLength(error)) => wrong_key_length(spec, error.given),
            KeyedError::Cipher(error) => Error::unsupported(format!("cipher {spec}: {error}")),
            KeyedError::Memory(error) => error.into(),
        },
    )
}
