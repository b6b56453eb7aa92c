//! Key derivation: PBKDF2 and Argon2, with their costs known before they run.

use crate::Error;
use std::time::Duration;
use xtent_secret::SecretBytes;

/// A key derivation with its cost, as a header stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kdf {
    /// PBKDF2-HMAC.
    Pbkdf2 {
        /// cryptsetup's name: `sha256`.
        hash: String,
        /// Iterations.
        iterations: u32,
    },
    /// Argon2i, version 1.3.
    Argon2i(Argon2Cost),
    /// Argon2id, version 1.3.
    Argon2id(Argon2Cost),
}

/// Argon2's cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argon2Cost {
    /// Passes.
    pub time: u32,
    /// KiB.
    pub memory: u32,
    /// Lanes.
    pub cpus: u32,
}

/// What a derivation may cost before it is refused with its estimate.
#[derive(Clone, Copy, Debug)]
pub struct KdfLimits {
    /// Longest estimated time; `None` for no limit (the user insists).
    pub longest: Option<Duration>,
}

/// How a new keyslot's derivation is chosen.
#[derive(Clone, Debug)]
pub struct KdfChoice {
    /// `argon2id`, `argon2i` or `pbkdf2`; the format's default if absent.
    pub kind: Option<KdfKind>,
    /// Hash for PBKDF2: `sha256` by default.
    pub hash: Option<String>,
    /// Benchmarked to take about this long (cryptsetup: 2 s).
    pub target: Duration,
    /// Fixed iterations or passes instead of a benchmark.
    pub force_iterations: Option<u32>,
    /// KiB for Argon2, at most; 1 GiB by default, capped by what is free.
    pub memory: Option<u32>,
    /// Lanes for Argon2, at most; 4 by default, capped by the CPUs.
    pub parallel: Option<u32>,
}

/// The algorithms by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KdfKind {
    /// `pbkdf2`
    Pbkdf2,
    /// `argon2i`
    Argon2i,
    /// `argon2id`
    Argon2id,
}

impl KdfChoice {
    /// Settles on a cost, by benchmark unless forced; within cryptsetup's
    /// bounds (LUKS2: at least 4 passes, 32 KiB; PBKDF2 at least 1000 iterations).
    pub fn settle(&self, _default: KdfKind, _key_length: usize) -> Result<Kdf, Error> {
        todo!()
    }
}

impl Kdf {
    /// How long [`Kdf::derive`] would take here, from a short benchmark.
    pub fn estimate(&self, _key_length: usize) -> Result<Duration, Error> {
        todo!()
    }
    /// Derives `key_length` bytes. Refuses by `limits` before it starts; says
    /// how many MiB Argon2 needs if they are not free.
    pub fn derive(
        &self,
        _passphrase: &SecretBytes,
        _salt: &[u8],
        _key_length: usize,
        _limits: &KdfLimits,
    ) -> Result<SecretBytes, Error> {
        todo!()
    }
}
