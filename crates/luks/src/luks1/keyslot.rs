//! What is in a keyslot: the volume key, split, encrypted with the header's
//! own cipher under a key derived from the passphrase (LUKS1 specification,
//! sections 2.2 and 3.2).

use std::time::Duration;

use sector_cipher::{CipherSpec, Mode, SectorCount, SectorSize};
use xtent_secret::{KeyedError, SecretBytes, SecretCipher};

use super::header::{DIGEST, Header, SALT, SLOTS, area_length};
use crate::af::{self, STRIPES};
use crate::kdf::{Budget, KdfKind};
use crate::tries::Tries;
use crate::{Error, ErrorKind, Kdf, KdfChoice, KdfLimits, Unlocked};

/// cryptsetup's time for the digest, where a keyslot may take `target`.
const DIGEST_TIME: Duration = Duration::from_millis(125);
const LEAST_ITERATIONS: u32 = 1000;

/// The header and the key material of its active keyslots, of one moment.
pub(super) struct Snapshot {
    pub(super) header: Header,
    /// Encrypted key material by keyslot number. A bad sector in one keyslot's area is no
    /// reason not to try the others.
    pub(super) areas: [Option<Result<Vec<u8>, Error>>; SLOTS],
}

/// What a new keyslot gets on disk.
pub(super) struct NewKeyslot {
    pub(super) iterations: u32,
    pub(super) salt: [u8; SALT],
    pub(super) area: Vec<u8>,
}

impl Snapshot {
    /// Tries the passphrase on `keyslot`, or on all that are active.
    pub(super) fn unlock(
        &mut self,
        passphrase: &SecretBytes,
        keyslot: Option<u32>,
        limits: &KdfLimits,
    ) -> Result<Unlocked, Error> {
        let header = &self.header;
        let spec = cipher(&header.encryption(), header.key_length())?;
        let candidates = match keyslot {
            Some(keyslot) => {
                let number = slot_number(keyslot)?;
                if !header.slot(number).active {
                    return Err(Error::new(
                        ErrorKind::Keyslot,
                        format!("keyslot {keyslot} is not in use"),
                    ));
                }
                vec![keyslot]
            }
            None => header.keyslots(),
        };
        let budget = limits.start();
        let mut tries = Tries::default();
        for keyslot in candidates {
            tracing::debug!(keyslot, "trying the passphrase on a keyslot");
            let number = slot_number(keyslot)?;
            let Some(area) = self.areas[number].take() else {
                continue;
            };
            match area.and_then(|area| open(header, spec, number, &area, passphrase, &budget)) {
                Ok(Some(key)) => {
                    let salt = header.slot(number).salt.to_vec();
                    let keyslot = Some(keyslot);
                    return Ok(Unlocked { key, keyslot, salt });
                }
                Ok(None) => tries.does_not_open(),
                // Another keyslot may open: at a cost that is allowed, or from better sectors.
                Err(error) => tries.failed(keyslot, error),
            }
        }
        tries.end()?;
        let message = match keyslot {
            Some(keyslot) => format!("this passphrase does not open keyslot {keyslot}"),
            None if header.keyslots().is_empty() => {
                "no keyslot is in use: this header was erased, restore a backup of it, or give \
                 the volume key itself (--volume-key-file) if it was saved"
                    .into()
            }
            None => "no keyslot opens with this passphrase".into(),
        };
        Err(Error::new(ErrorKind::WrongPassphrase, message))
    }
}

/// The keyslot as an index.
pub(super) fn slot_number(keyslot: u32) -> Result<usize, Error> {
    usize::try_from(keyslot)
        .ok()
        .filter(|&number| number < SLOTS)
        .ok_or_else(|| {
            Error::new(
                ErrorKind::Keyslot,
                format!("there is no keyslot {keyslot}; LUKS1 has 0 to 7"),
            )
        })
}

/// The volume key from one keyslot; `None` for another passphrase.
fn open(
    header: &Header,
    spec: CipherSpec,
    number: usize,
    area: &[u8],
    passphrase: &SecretBytes,
    budget: &Budget,
) -> Result<Option<SecretBytes>, Error> {
    let slot = header.slot(number);
    let kdf = Kdf::Pbkdf2 {
        hash: header.hash.clone(),
        iterations: slot.iterations,
    };
    let key_length = header.key_length();
    let derived = kdf.derive(passphrase, &slot.salt, key_length, &budget.left())?;
    let mut material = SecretBytes::zeroed(area.len())?;
    let cipher = keyed(spec, &derived)?;
    cipher.decrypt_to(0, area, &mut material);
    cipher.wipe_stack();
    let key = af::merge(&material, key_length, STRIPES, &header.hash)?;
    Ok(is_volume_key(header, &key, &budget.left())?.then_some(key))
}

/// Whether `key` has the header's digest.
pub(super) fn is_volume_key(
    header: &Header,
    key: &SecretBytes,
    limits: &KdfLimits,
) -> Result<bool, Error> {
    let kdf = Kdf::Pbkdf2 {
        hash: header.hash.clone(),
        iterations: header.mk_iterations,
    };
    let digest = kdf.derive(key, &header.mk_salt, DIGEST, limits)?;
    Ok(key.len() == header.key_length() && xtent_secret::equal(&digest, &header.mk_digest))
}

/// Derives and encrypts what a keyslot for `passphrase` holds.
pub(super) fn seal(
    encryption: &str,
    hash: &str,
    key: &SecretBytes,
    passphrase: &SecretBytes,
    kdf: &Kdf,
) -> Result<NewKeyslot, Error> {
    let spec = cipher(encryption, key.len())?;
    let Kdf::Pbkdf2 { iterations, .. } = *kdf else {
        return Err(Error::options("LUKS1 keyslots take pbkdf2 only"));
    };
    let mut salt = [0; SALT];
    xtent_secret::fill_random(&mut salt)?;
    // Our own choice of cost: no limit.
    let derived = kdf.derive(passphrase, &salt, key.len(), &KdfLimits { longest: None })?;
    let split = af::split(key, STRIPES, hash)?;
    let key_bytes = u32::try_from(key.len()).map_err(|_| Error::options("key too long"))?;
    let length =
        usize::try_from(area_length(key_bytes)).map_err(|_| Error::options("key too long"))?;
    let mut material = SecretBytes::zeroed(length)?;
    material[..split.len()].copy_from_slice(&split);
    let mut area = vec![0; length];
    let cipher = keyed(spec, &derived)?;
    cipher.encrypt_to(0, &material, &mut area);
    cipher.wipe_stack();
    Ok(NewKeyslot {
        iterations,
        salt,
        area,
    })
}

/// The cost of a new keyslot: PBKDF2 with the header's hash.
pub(super) fn settle(choice: &KdfChoice, hash: &str, key_length: usize) -> Result<Kdf, Error> {
    if choice.kind.is_some_and(|kind| kind != KdfKind::Pbkdf2) {
        return Err(Error::options(
            "LUKS1 keyslots take pbkdf2 only; argon2 needs LUKS2",
        ));
    }
    if let Some(other) = &choice.hash
        && !other.eq_ignore_ascii_case(hash)
    {
        return Err(Error::options(format!(
            "LUKS1 has one hash for everything, here {hash}; a keyslot cannot use {other}"
        )));
    }
    let choice = KdfChoice {
        hash: Some(hash.into()),
        ..choice.clone()
    };
    choice.settle(KdfKind::Pbkdf2, key_length)
}

/// The digest's iterations, by cryptsetup's rule, from a keyslot's.
pub(super) fn digest_iterations(choice: &KdfChoice, keyslot: &Kdf) -> u32 {
    let (Kdf::Pbkdf2 { iterations, .. }, None) = (keyslot, choice.force_iterations) else {
        return LEAST_ITERATIONS;
    };
    let share = u128::from(*iterations) * DIGEST_TIME.as_nanos() / choice.target.as_nanos().max(1);
    u32::try_from(share)
        .unwrap_or(u32::MAX)
        .max(LEAST_ITERATIONS)
}

/// The cipher by name, if LUKS1 can have it with keys of this length.
pub(crate) fn cipher(encryption: &str, key_length: usize) -> Result<CipherSpec, Error> {
    crate::null::refuse(encryption, "the data and the keyslots")?;
    let known = encryption.parse::<CipherSpec>().ok();
    if known.is_some_and(|spec| spec.mode().is_wide_block()) {
        return Err(Error::unsupported(format!(
            "{encryption} needs LUKS2: LUKS1 encrypts its keyslots with the data's cipher, \
             which has to be XTS or CBC"
        )));
    }
    let spec = known
        // A LUKS1 keyslot is encrypted as the data is, in sectors of 512
        // bytes: only the ciphers that were always used so.
        .filter(|spec| matches!(spec.mode(), Mode::AesXts | Mode::AesCbc))
        .ok_or_else(|| {
            Error::unsupported(format!(
                "cipher '{}' is not supported on LUKS1; \
                 supported are aes-xts-plain64, aes-cbc-essiv:sha256, aes-cbc-plain64 and aes-cbc-plain",
                encryption.escape_debug()
            ))
        })?;
    if !spec.key_lengths().contains(&key_length) {
        let bits: Vec<String> = spec
            .key_lengths()
            .iter()
            .map(|bytes| (bytes * 8).to_string())
            .collect();
        return Err(Error::unsupported(format!(
            "{encryption} does not take keys of {} bits, but of {}",
            key_length * 8,
            bits.join(", ")
        )));
    }
    Ok(spec)
}

/// A keyed cipher over 512-byte sectors, in secret memory from the start.
fn keyed(spec: CipherSpec, key: &SecretBytes) -> Result<SecretCipher, Error> {
    const SECTOR: SectorSize = match SectorSize::new(512) {
        Ok(size) => size,
        Err(_) => unreachable!(),
    };
    SecretCipher::keyed(spec, SECTOR, SectorCount::Units512, key, crate::backend()).map_err(
        |error| match error {
            KeyedError::Cipher(error) => Error::unsupported(format!("cipher {spec}: {error}")),
            KeyedError::Memory(error) => error.into(),
        },
    )
}
