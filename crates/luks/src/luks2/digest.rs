//! The digest that tells a right volume key from a wrong one.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use xtent_secret::SecretBytes;

use super::model::{Digest, Metadata, Pbkdf2Digest, SALT_SIZE};
use crate::kdf::hash::Hash;
use crate::{Error, Kdf, KdfChoice, KdfLimits};

/// cryptsetup's target for a digest.
const TARGET: Duration = Duration::from_millis(125);

/// The fewest iterations, used where benchmarks are not wanted.
const FEWEST_ITERATIONS: u32 = 1000;

impl Metadata {
    /// The digest of the key that the volume is encrypted with.
    pub(crate) fn volume_digest(&self) -> Result<(u32, &Digest), Error> {
        self.digests
            .iter()
            .find(|(_, digest)| digest.segments.contains(&0))
            .map(|(id, digest)| (*id, digest))
            .ok_or_else(|| Error::corrupt("no LUKS2 digest belongs to the data segment"))
    }
}

impl Digest {
    /// Whether `key` is the one. Constant time in the key's bytes.
    pub(crate) fn verify(&self, key: &SecretBytes, limits: &KdfLimits) -> Result<bool, Error> {
        let Some(pbkdf2) = &self.pbkdf2 else {
            return Err(Error::unsupported(format!(
                "digest type \"{}\" is not supported",
                self.kind.escape_debug()
            )));
        };
        let stored = SecretBytes::copy_of(&pbkdf2.digest)?;
        Ok(pbkdf2.of(key, stored.len(), limits)? == stored)
    }
}

impl Pbkdf2Digest {
    fn of(
        &self,
        key: &SecretBytes,
        length: usize,
        limits: &KdfLimits,
    ) -> Result<SecretBytes, Error> {
        Kdf::Pbkdf2 {
            hash: self.hash.clone(),
            iterations: self.iterations,
        }
        .derive(key, &self.salt, length, limits)
    }

    /// The digest of a new volume's key.
    pub(crate) fn new(key: &SecretBytes, hash: &str, benchmark: bool) -> Result<Self, Error> {
        let length = Hash::from_name(hash)?.len();
        let choice = KdfChoice {
            kind: Some(crate::kdf::KdfKind::Pbkdf2),
            hash: Some(hash.to_owned()),
            target: TARGET,
            force_iterations: (!benchmark).then_some(FEWEST_ITERATIONS),
            memory: None,
            parallel: None,
        };
        let Kdf::Pbkdf2 { hash, iterations } =
            choice.settle(crate::kdf::KdfKind::Pbkdf2, key.len())?
        else {
            return Err(Error::options("the digest's derivation must be pbkdf2"));
        };
        let mut salt = vec![0; SALT_SIZE];
        xtent_secret::fill_random(&mut salt)?;
        let mut new = Self {
            hash,
            iterations,
            salt,
            digest: Vec::new(),
        };
        new.digest = new.of(key, length, &KdfLimits { longest: None })?.to_vec();
        Ok(new)
    }

    /// Its JSON, assigned to `segments` and to keyslot `keyslot`.
    pub(crate) fn json(&self, keyslot: u32, segments: &[u32]) -> DigestJson {
        DigestJson {
            kind: "pbkdf2",
            keyslots: [keyslot.to_string()],
            segments: segments.iter().map(u32::to_string).collect(),
            hash: self.hash.clone(),
            iterations: self.iterations,
            salt: STANDARD.encode(&self.salt),
            digest: STANDARD.encode(&self.digest),
        }
    }
}

/// A digest as it is written.
#[derive(Serialize)]
pub(crate) struct DigestJson {
    #[serde(rename = "type")]
    kind: &'static str,
    keyslots: [String; 1],
    segments: Vec<String>,
    hash: String,
    iterations: u32,
    salt: String,
    digest: String,
}
