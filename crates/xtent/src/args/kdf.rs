//! How the keys of new keyslots are derived.

use std::time::Duration;

use clap::{Args, ValueEnum};
use xtent_luks::KdfChoice;
use xtent_luks::kdf::{KdfKind, pbkdf2_hashes};

/// Key derivations by cryptsetup's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pbkdf {
    Argon2id,
    Argon2i,
    Pbkdf2,
}

impl From<Pbkdf> for KdfKind {
    fn from(kind: Pbkdf) -> Self {
        match kind {
            Pbkdf::Argon2id => KdfKind::Argon2id,
            Pbkdf::Argon2i => KdfKind::Argon2i,
            Pbkdf::Pbkdf2 => KdfKind::Pbkdf2,
        }
    }
}

/// How a new keyslot's key is derived.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Key derivation")]
pub(crate) struct KdfArgs {
    /// Key derivation of the new keyslot [default: argon2id; LUKS1 has pbkdf2 only]
    #[arg(long, value_name = "KIND")]
    pub(crate) pbkdf: Option<Pbkdf>,
    /// Milliseconds that the derivation should take on this machine
    #[arg(short = 'i', long, value_name = "MS", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub(crate) iter_time: u64,
    /// Fixed cost instead of a benchmark: passes (Argon2) or iterations (PBKDF2)
    ///
    /// For Argon2 the memory is then that of --pbkdf-memory, or its default.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "iter_time")]
    pub(crate) pbkdf_force_iterations: Option<u32>,
    /// Memory for Argon2 in KiB, at most [default: 1048576, less if less is free]
    #[arg(long, value_name = "KIB", value_parser = clap::value_parser!(u32).range(32..=4_194_304))]
    pub(crate) pbkdf_memory: Option<u32>,
    /// Threads for Argon2, at most [default: 4, less if there are fewer CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4))]
    pub(crate) pbkdf_parallel: Option<u32>,
    /// Hash of PBKDF2 (and, when formatting, of the anti-forensic splitter and the digest)
    /// [default: sha256; in a keyslot of LUKS1 the volume's]
    #[arg(long, value_name = "HASH", value_parser = parse_hash)]
    pub(crate) hash: Option<String>,
}

/// One of the hashes that key derivation knows, by cryptsetup's names.
fn parse_hash(text: &str) -> Result<String, String> {
    let name = text.to_ascii_lowercase();
    if pbkdf2_hashes().any(|known| known == name) {
        Ok(name)
    } else {
        let known: Vec<&str> = pbkdf2_hashes().collect();
        Err(format!("known are {}", known.join(", ")))
    }
}

impl KdfArgs {
    pub(crate) fn choice(&self) -> KdfChoice {
        KdfChoice {
            kind: self.pbkdf.map(KdfKind::from),
            hash: self.hash.clone(),
            target: Duration::from_millis(self.iter_time),
            force_iterations: self.pbkdf_force_iterations,
            memory: self.pbkdf_memory,
            parallel: self.pbkdf_parallel,
        }
    }
}
