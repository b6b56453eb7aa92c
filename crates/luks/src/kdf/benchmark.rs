//! What derivations cost on this machine.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::argon2::Variant;
use super::hash::{self, Hash};
use super::{Argon2Cost, Kdf, KdfChoice, KdfKind, argon2, free_memory, mebibytes};
use crate::Error;

/// cryptsetup's default cap: 1 GiB.
const DEFAULT_MEMORY: u32 = 1 << 20;
/// cryptsetup's bounds.
const LEAST_MEMORY: u32 = 32;
const MOST_MEMORY: u32 = 4 << 20;
const LEAST_PASSES: u32 = 4;
const MOST_LANES: u32 = 4;
const LEAST_ITERATIONS: u32 = 1000;

/// What an estimate of Argon2 measures at most: larger than the caches of most
/// CPUs, done in some ten milliseconds.
const ESTIMATE_MEMORY: u32 = 32 << 10;

/// The hashes that PBKDF2 can use, by cryptsetup's names.
pub fn pbkdf2_hashes() -> impl Iterator<Item = &'static str> {
    hash::ALL.iter().map(|&(_, name)| name)
}

/// How many iterations of PBKDF2 one second allows for a key of `key_length`
/// bytes, measured over a quarter of a second of CPU time. For Argon2,
/// [`KdfChoice::settle`] says what the target time allows.
///
/// # Errors
/// [`crate::ErrorKind::Unsupported`] for an unknown hash.
pub fn pbkdf2_iterations_per_second(hash: &str, key_length: usize) -> Result<u64, Error> {
    let speed = pbkdf2_speed(
        Hash::from_name(hash)?,
        key_length,
        Duration::from_millis(250),
        u32::MAX,
    );
    Ok(whole(speed))
}

/// See [`KdfChoice::settle`].
pub(super) fn settle(
    choice: &KdfChoice,
    default: KdfKind,
    key_length: usize,
) -> Result<Kdf, Error> {
    if choice.force_iterations.is_none() && choice.target.is_zero() {
        return Err(Error::options("a key derivation time of zero"));
    }
    let kdf = match choice.kind.unwrap_or(default) {
        KdfKind::Pbkdf2 => settle_pbkdf2(choice, key_length)?,
        KdfKind::Argon2i => Kdf::Argon2i(settle_argon2(choice, Variant::I, key_length)?),
        KdfKind::Argon2id => Kdf::Argon2id(settle_argon2(choice, Variant::Id, key_length)?),
    };
    kdf.check(key_length)?;
    Ok(kdf)
}

fn settle_pbkdf2(choice: &KdfChoice, key_length: usize) -> Result<Kdf, Error> {
    if choice.memory.is_some() || choice.parallel.is_some() {
        return Err(Error::options(
            "pbkdf2 has neither a memory cost nor a parallel cost; leave them out or choose argon2id",
        ));
    }
    let name = choice.hash.as_deref().unwrap_or("sha256");
    let hash = Hash::from_name(name)?;
    let iterations = match choice.force_iterations {
        Some(iterations) if iterations < LEAST_ITERATIONS => {
            return Err(Error::options(format!(
                "{iterations} iterations are too few for pbkdf2; the least are {LEAST_ITERATIONS}"
            )));
        }
        Some(iterations) => iterations,
        None => {
            let time = Duration::from_millis(500).min(choice.target);
            let speed = pbkdf2_speed(hash, key_length, time, u32::MAX);
            let iterations = whole(speed * choice.target.as_secs_f64());
            u32::try_from(iterations)
                .unwrap_or(u32::MAX)
                .max(LEAST_ITERATIONS)
        }
    };
    Ok(Kdf::Pbkdf2 {
        hash: name.to_ascii_lowercase(),
        iterations,
    })
}

fn settle_argon2(
    choice: &KdfChoice,
    variant: Variant,
    key_length: usize,
) -> Result<Argon2Cost, Error> {
    let online = std::thread::available_parallelism().map_or(1, usize::from);
    let online = u32::try_from(online).unwrap_or(u32::MAX);
    let forced = choice.force_iterations.is_some();
    let cpus = match choice.parallel {
        Some(cpus) if !(1..=MOST_LANES).contains(&cpus) => {
            return Err(Error::options(format!(
                "{cpus} lanes for argon2; it takes 1 to {MOST_LANES}"
            )));
        }
        Some(cpus) if forced => cpus,
        cpus => cpus.unwrap_or(MOST_LANES).min(online),
    };
    let least_memory = LEAST_MEMORY.max(8 * cpus);
    let memory = match choice.memory {
        Some(memory) if !(least_memory..=MOST_MEMORY).contains(&memory) => {
            return Err(Error::options(format!(
                "{memory} KiB of memory for argon2 with {cpus} lanes; it takes {least_memory} to {MOST_MEMORY}"
            )));
        }
        Some(memory) if forced => memory,
        memory => {
            let wanted = memory.unwrap_or(DEFAULT_MEMORY);
            let cap = memory_cap().max(least_memory);
            if cap < wanted {
                tracing::info!(
                    "argon2 gets {} instead of {}: that is half of the memory that is free",
                    mebibytes(u64::from(cap)),
                    mebibytes(u64::from(wanted))
                );
            }
            wanted.min(cap)
        }
    };
    if let Some(time) = choice.force_iterations {
        if time < LEAST_PASSES {
            return Err(Error::options(format!(
                "{time} passes are too few for argon2; the least are {LEAST_PASSES}"
            )));
        }
        return Ok(Argon2Cost { time, memory, cpus });
    }
    search_argon2(
        choice.target,
        variant,
        key_length,
        least_memory,
        memory,
        cpus,
    )
}

/// KiB that a new keyslot may need: half of the physical memory, as
/// cryptsetup has it, and half of what is free now.
fn memory_cap() -> u32 {
    let cap = [free_memory::physical_kib(), free_memory::free_ram_kib()]
        .into_iter()
        .flatten()
        .min()
        .map_or(u64::from(DEFAULT_MEMORY), |kib| kib / 2);
    u32::try_from(cap).unwrap_or(u32::MAX)
}

/// The cost that takes `target`: all of `most_memory` and as many passes as
/// fit, or four passes over as much memory as they can cover.
fn search_argon2(
    target: Duration,
    variant: Variant,
    key_length: usize,
    least_memory: u32,
    most_memory: u32,
    cpus: u32,
) -> Result<Argon2Cost, Error> {
    let fit = |speed: f64| {
        let work = speed * target.as_secs_f64();
        let passes = work / f64::from(most_memory);
        if passes >= f64::from(LEAST_PASSES) {
            Argon2Cost {
                time: saturate(passes),
                memory: most_memory,
                cpus,
            }
        } else {
            Argon2Cost {
                time: LEAST_PASSES,
                memory: saturate(work / f64::from(LEAST_PASSES)).clamp(least_memory, most_memory),
                cpus,
            }
        }
    };
    let small = Argon2Cost {
        time: 1,
        memory: most_memory.min(2 * ESTIMATE_MEMORY),
        cpus,
    };
    let mut cost = fit(argon2_speed(variant, small, key_length)?);
    // Speed depends on the size (caches, page faults of the first pass):
    // measure what was found, and correct it at most twice. What is measured
    // is kept from running far over the target by starting with four passes.
    for _ in 0..2 {
        let probe = Argon2Cost {
            time: LEAST_PASSES,
            ..cost
        };
        let better = fit(argon2_speed(variant, probe, key_length)?);
        let close = better.memory.abs_diff(cost.memory) <= cost.memory / 10;
        cost = better;
        if close {
            break;
        }
    }
    Ok(cost)
}

/// See [`Kdf::estimate`]. `kdf` has been checked.
pub(super) fn estimate(kdf: &Kdf, key_length: usize) -> Result<Duration, Error> {
    let (work, speed) = match kdf {
        Kdf::Pbkdf2 { hash, iterations } => {
            let hash = Hash::from_name(hash)?;
            let speed = remembered(Measured::Pbkdf2(hash, key_length), *iterations, || {
                Ok(pbkdf2_speed(
                    hash,
                    key_length,
                    Duration::from_millis(10),
                    *iterations,
                ))
            })?;
            (f64::from(*iterations), speed)
        }
        Kdf::Argon2i(cost) => argon2_estimate(Variant::I, *cost)?,
        Kdf::Argon2id(cost) => argon2_estimate(Variant::Id, *cost)?,
    };
    Ok(Duration::try_from_secs_f64(work / speed).unwrap_or(Duration::MAX))
}

/// Work in KiB-passes, and the speed.
fn argon2_estimate(variant: Variant, cost: Argon2Cost) -> Result<(f64, f64), Error> {
    // More lanes than any CPU count help nothing; eight KiB each must fit.
    let cpus = cost.cpus.min(64);
    let memory = cost.memory.min(ESTIMATE_MEMORY);
    let speed = remembered(Measured::Argon2(variant, cpus), memory, || {
        // Two passes: the first one alone would mostly measure page faults.
        let sample = Argon2Cost {
            time: 2,
            memory,
            cpus,
        };
        argon2_speed(variant, sample, 32)
    })?;
    Ok((f64::from(cost.memory) * f64::from(cost.time), speed))
}

/// What a speed was measured of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Measured {
    Pbkdf2(Hash, usize),
    Argon2(Variant, u32),
}

/// The speed from an earlier measurement, if it was made with a sample as
/// large; otherwise measures.
fn remembered(
    what: Measured,
    sample: u32,
    measure: impl FnOnce() -> Result<f64, Error>,
) -> Result<f64, Error> {
    static SPEEDS: Mutex<BTreeMap<Measured, (u32, f64)>> = Mutex::new(BTreeMap::new());

    let mut speeds = SPEEDS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(&(largest, speed)) = speeds.get(&what)
        && largest >= sample
    {
        return Ok(speed);
    }
    let speed = measure()?;
    speeds.insert(what, (sample, speed));
    Ok(speed)
}

/// Iterations per second of this thread's CPU time, from runs that double
/// until one takes `enough`, none with more than `most` iterations.
fn pbkdf2_speed(hash: Hash, key_length: usize, enough: Duration, most: u32) -> f64 {
    let mut key = vec![0; key_length];
    let mut iterations = LEAST_ITERATIONS.min(most);
    loop {
        let start = cpu_time();
        hash.pbkdf2(
            b"benchmark",
            b"0123456789abcdef0123456789abcdef",
            iterations,
            &mut key,
        );
        let took = cpu_time()
            .saturating_sub(start)
            .max(Duration::from_nanos(1));
        if took >= enough || iterations == most {
            return f64::from(iterations) / took.as_secs_f64();
        }
        // Straight to where it should end, but by no more than 16 times: a
        // short run is measured badly.
        let factor = (enough.as_secs_f64() / took.as_secs_f64() * 1.1).clamp(2.0, 16.0);
        iterations = saturate(f64::from(iterations) * factor).min(most);
    }
}

/// KiB-passes per second. Wall time: the lanes run on several CPUs.
fn argon2_speed(variant: Variant, cost: Argon2Cost, key_length: usize) -> Result<f64, Error> {
    let mut key = vec![0; key_length.max(4)];
    argon2::check_free_memory(cost)?;
    let start = Instant::now();
    argon2::derive(
        variant,
        cost,
        b"benchmark",
        b"0123456789abcdef0123456789abcdef",
        &mut key,
    )?;
    let took = start.elapsed().max(Duration::from_nanos(1));
    Ok(f64::from(cost.memory) * f64::from(cost.time) / took.as_secs_f64())
}

/// CPU time of this thread: other processes do not make new keys weaker.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanoseconds)
}

/// The whole part, within `u64`.
fn whole(value: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the cast saturates, which is what is wanted"
    )]
    let whole = value as u64;
    whole
}

/// The whole part, within `u32`.
fn saturate(value: f64) -> u32 {
    u32::try_from(whole(value)).unwrap_or(u32::MAX)
}
