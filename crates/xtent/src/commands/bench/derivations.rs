//! Key derivations, as `cryptsetup benchmark` shows them.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;
use xtent_luks::KdfChoice;
use xtent_luks::kdf::{Kdf, KdfKind, pbkdf2_hashes, pbkdf2_iterations_per_second};

use crate::failure::Result;

/// Bytes of derived key: what unlocks a keyslot of AES-256 in XTS mode.
const KEY_LENGTH: usize = 64;
/// The time that Argon2's cost is chosen for.
const TARGET: Duration = Duration::from_secs(2);

#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Figures {
    Pbkdf2 {
        kdf: &'static str,
        hash: &'static str,
        iterations_per_second: u64,
    },
    Argon2 {
        kdf: &'static str,
        passes: u32,
        memory_kib: u32,
        threads: u32,
        target_ms: u128,
    },
}

pub(super) fn measure() -> Result<Vec<Figures>> {
    let mut all = Vec::new();
    for hash in pbkdf2_hashes() {
        all.push(Figures::Pbkdf2 {
            kdf: "pbkdf2",
            hash,
            iterations_per_second: pbkdf2_iterations_per_second(hash, KEY_LENGTH)?,
        });
    }
    for (kdf, kind) in [
        ("argon2i", KdfKind::Argon2i),
        ("argon2id", KdfKind::Argon2id),
    ] {
        let choice = KdfChoice {
            kind: Some(kind),
            hash: None,
            target: TARGET,
            force_iterations: None,
            memory: None,
            parallel: None,
        };
        if let Kdf::Argon2i(cost) | Kdf::Argon2id(cost) = choice.settle(kind, KEY_LENGTH)? {
            all.push(Figures::Argon2 {
                kdf,
                passes: cost.time,
                memory_kib: cost.memory,
                threads: cost.cpus,
                target_ms: TARGET.as_millis(),
            });
        }
    }
    Ok(all)
}

pub(super) fn table(all: &[Figures]) -> String {
    let mut text = format!("\nKey derivations, for {} bits of key", KEY_LENGTH * 8);
    for figures in all {
        let _ = match figures {
            Figures::Pbkdf2 {
                kdf,
                hash,
                iterations_per_second,
            } => write!(
                text,
                "\n{kdf:<9} {hash:<10} {iterations_per_second:>9} iterations per second"
            ),
            Figures::Argon2 {
                kdf,
                passes,
                memory_kib,
                threads,
                target_ms,
            } => write!(
                text,
                "\n{kdf:<9} {passes} passes over {memory_kib} KiB with {threads} threads take about {target_ms} ms"
            ),
        };
    }
    text
}
