//! Key derivation: PBKDF2 and Argon2, with their costs known before they run.
//!
//! Costs in a header are chosen by whoever wrote it. Nothing here starts to
//! compute or to allocate before [`Kdf::derive`] has compared the estimate
//! with the caller's limit and the memory with what is free.

use std::time::{Duration, Instant};

use xtent_secret::SecretBytes;

use crate::{Error, ErrorKind};

mod argon2;
mod benchmark;
mod free_memory;
pub(crate) mod hash;
mod plain;
mod turn;

pub use benchmark::{pbkdf2_hashes, pbkdf2_iterations_per_second};
pub use plain::plain_key;
pub use turn::serialize_memory_hard;

use hash::Hash;
use serde::Serialize;

/// A key derivation with its cost, as a header stores it. As JSON, one object: its `type`
/// beside the cost that this type has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
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
    /// Longest estimated time of a whole operation, however many keyslots it
    /// tries; `None` for no limit (the user insists).
    pub longest: Option<Duration>,
}

impl KdfLimits {
    /// The limits as a budget for several derivations, which starts now.
    pub(crate) fn start(&self) -> Budget {
        Budget {
            limits: *self,
            started: Instant::now(),
        }
    }
}

/// A limit for a whole operation: what one derivation took, the next one has no
/// more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    limits: KdfLimits,
    started: Instant,
}

impl Budget {
    /// What a derivation that starts now may take.
    pub(crate) fn left(&self) -> KdfLimits {
        self.left_after(self.started.elapsed())
    }

    fn left_after(&self, spent: Duration) -> KdfLimits {
        KdfLimits {
            longest: self
                .limits
                .longest
                .map(|longest| longest.saturating_sub(spent)),
        }
    }
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
    /// Settles on a cost for a key of `key_length` bytes, by benchmark unless
    /// forced; within cryptsetup's bounds (LUKS2: at least 4 passes, 32 KiB,
    /// at most 4 GiB and 4 lanes; PBKDF2 at least 1000 iterations). A
    /// benchmark takes about as long as the target.
    ///
    /// Argon2's memory is the most that is asked for (1 GiB if nothing is),
    /// but not more than half of the physical memory and half of what is free,
    /// and less where even four passes over it would exceed the target.
    ///
    /// # Errors
    /// [`ErrorKind::Options`] for values out of bounds,
    /// [`ErrorKind::Unsupported`] for an unknown hash,
    /// [`ErrorKind::NoMemory`] if the benchmark's memory cannot be had.
    pub fn settle(&self, default: KdfKind, key_length: usize) -> Result<Kdf, Error> {
        benchmark::settle(self, default, key_length)
    }
}

/// KiB of Argon2 that no header needs (libcryptsetup's `crypt_pbkdf_get_limits()`): more is memory that others are swapped out for.
const MOST_MEMORY: u32 = 4 << 20;

impl Kdf {
    /// How long [`Kdf::derive`] would take here, from a short benchmark (some
    /// ten milliseconds, whatever the cost is; once per process and kind).
    pub fn estimate(&self, key_length: usize) -> Result<Duration, Error> {
        self.check(key_length)?;
        benchmark::estimate(self, key_length)
    }

    /// Derives `key_length` bytes. Refuses by `limits` before it starts; says
    /// how many MiB Argon2 needs if they are not free.
    ///
    /// # Errors
    /// [`ErrorKind::TooCostly`] with the estimate, [`ErrorKind::NoMemory`],
    /// [`ErrorKind::Corrupt`] for a cost that is no valid one,
    /// [`ErrorKind::Unsupported`] for an unknown hash.
    pub fn derive(
        &self,
        passphrase: &SecretBytes,
        salt: &[u8],
        key_length: usize,
        limits: &KdfLimits,
    ) -> Result<SecretBytes, Error> {
        self.check(key_length)?;
        if let (Self::Argon2i(cost) | Self::Argon2id(cost), Some(_)) = (self, limits.longest)
            && cost.memory > MOST_MEMORY
        {
            return Err(Error::new(
                ErrorKind::TooCostly,
                format!(
                    "{self} takes more memory than the {} GiB that cryptsetup uses at most; this may be a hostile \
                     header. To run it all the same, lift the limit on key derivation time",
                    MOST_MEMORY >> 20
                ),
            ));
        }
        // Before the time: more memory than there is would only be estimated
        // as a long time. And after the turn, when others have given theirs back.
        let _turn = match self {
            Self::Argon2i(cost) | Self::Argon2id(cost) => {
                let turn = turn::wait(cost.memory.into());
                argon2::check_free_memory(*cost)?;
                turn
            }
            Self::Pbkdf2 { .. } => None,
        };
        if let Some(longest) = limits.longest {
            let estimate = benchmark::estimate(self, key_length)?;
            if estimate > longest {
                return Err(Error::new(
                    ErrorKind::TooCostly,
                    format!(
                        "{self} would take {} here, more than the limit of {}; \
                         this may be a hostile header. To run it all the same, raise or lift \
                         the limit on key derivation time",
                        human(estimate),
                        human(longest)
                    ),
                ));
            }
        }
        let mut key = SecretBytes::zeroed(key_length)?;
        let started = Instant::now();
        match self {
            Self::Pbkdf2 { hash, iterations } => {
                Hash::from_name(hash)?.pbkdf2(passphrase, salt, *iterations, &mut key);
            }
            Self::Argon2i(cost) => {
                argon2::derive(argon2::Variant::I, *cost, passphrase, salt, &mut key)?;
            }
            Self::Argon2id(cost) => {
                argon2::derive(argon2::Variant::Id, *cost, passphrase, salt, &mut key)?;
            }
        }
        tracing::debug!(kdf = %self, took = ?started.elapsed(), "key derived");
        Ok(key)
    }

    /// Whether the cost and the length are valid ones, without running anything.
    fn check(&self, key_length: usize) -> Result<(), Error> {
        // Far above any cipher's key.
        if !(1..=4096).contains(&key_length) {
            return Err(Error::corrupt(format!(
                "cannot derive a key of {key_length} bytes"
            )));
        }
        match self {
            Self::Pbkdf2 { hash, iterations } => {
                Hash::from_name(hash)?;
                if *iterations == 0 {
                    return Err(Error::corrupt("pbkdf2 with 0 iterations"));
                }
                Ok(())
            }
            Self::Argon2i(cost) | Self::Argon2id(cost) => argon2::check(*cost, key_length),
        }
    }
}

/// The cost in words: `argon2id with 4 passes over 1024 MiB`.
impl std::fmt::Display for Kdf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (name, cost) = match self {
            Self::Pbkdf2 { hash, iterations } => {
                return write!(
                    f,
                    "pbkdf2-{} with {iterations} iterations",
                    hash.escape_debug()
                );
            }
            Self::Argon2i(cost) => ("argon2i", cost),
            Self::Argon2id(cost) => ("argon2id", cost),
        };
        write!(
            f,
            "{name} with {} passes over {} in {} lanes",
            cost.time,
            mebibytes(u64::from(cost.memory)),
            cost.cpus
        )
    }
}

/// `kib` KiB for people.
fn mebibytes(kib: u64) -> String {
    if kib.is_multiple_of(1024) || kib >= 10 * 1024 {
        format!("{} MiB", kib.div_ceil(1024))
    } else {
        format!("{kib} KiB")
    }
}

/// A duration for people: two leading units at most.
fn human(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds < 10 {
        return format!("{:.1} seconds", duration.as_secs_f64());
    }
    let units = [
        ("year", 31_557_600),
        ("day", 86_400),
        ("hour", 3600),
        ("minute", 60),
        ("second", 1),
    ];
    let mut rest = seconds;
    let mut words = Vec::new();
    for (name, length) in units {
        let count = rest / length;
        rest %= length;
        if count > 0 {
            let plural = if count == 1 { "" } else { "s" };
            words.push(format!("{count} {name}{plural}"));
        } else if !words.is_empty() {
            break;
        }
        if words.len() == 2 {
            break;
        }
    }
    words.join(" ")
}

#[cfg(test)]
mod tests;
