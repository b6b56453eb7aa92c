//! Throughput of runs that are not in the CPU's caches, beside runs that are, in GB per second of thread
//! CPU time; and what memory allows: a pass that adds 1 to every byte.
//!
//! ```text
//! cargo run --release -p sector-cipher --example memory [SPEC…] [BACKEND…]
//! ```
//!
//! Runs are 1 MiB of 4096-byte sectors, in place; those from memory lie in 512 MiB and are worked on in turn.
#![allow(clippy::unwrap_used, reason = "a tool for developers")]

use rustix::time::{ClockId, clock_gettime};
use sector_cipher::{Backend, Cipher, CipherSpec, SectorCount, SectorSize};

const RUN: usize = 1 << 20;
const ALL: usize = 512 << 20;
/// A run that stays in the second-level cache.
const CACHED: usize = 256 << 10;
const ROUNDS: usize = 5;

type Work<'a> = &'a dyn Fn(&mut [u8]);

fn cpu_seconds() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// GB/s of `work` on all runs of `memory`, of its median round.
fn rate(memory: &mut [u8], run: usize, work: Work<'_>) -> f64 {
    let mut rates: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let (start, passes) = (cpu_seconds(), ALL / memory.len());
            for _ in 0..passes {
                memory.chunks_mut(run).for_each(work);
            }
            ALL as f64 / (cpu_seconds() - start) / 1e9
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    rates[ROUNDS / 2]
}

fn main() {
    let (mut specs, mut backends) = (Vec::<CipherSpec>::new(), Vec::<Backend>::new());
    for argument in std::env::args().skip(1) {
        match (argument.parse(), argument.parse()) {
            (Ok(spec), _) => specs.push(spec),
            (_, Ok(backend)) => backends.push(backend),
            _ => {
                eprintln!("{argument} is no cipher and no back-end");
                std::process::exit(1);
            }
        }
    }
    if specs.is_empty() {
        let all = [
            "aes-xts-plain64",
            "aes-cbc-essiv:sha256",
            "capi:fast(aes)-plain64",
            "capi:fast_horner(aes)-plain64",
            "aes-hctr2-plain64",
            "xchacha12,aes-adiantum-plain64",
            "capi:eme2(aes)-plain64",
            "capi:aez10(aes)-plain64",
            "capi:xcb(aes)-plain64",
        ];
        specs = all.map(|name| name.parse().unwrap()).into();
    }
    if backends.is_empty() {
        backends = vec![Backend::best()];
    }
    let mut memory = vec![0x5A; ALL];
    let add = |run: &mut [u8]| run.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
    println!(
        "{:<31} {:>4} {:<9} {:>15}  {:>15}",
        "cipher", "bits", "back-end", "cached enc/dec", "memory enc/dec"
    );
    let cached = rate(&mut memory[..CACHED], CACHED, &add);
    let from_memory = rate(&mut memory, RUN, &add);
    println!(
        "{:<31} {:>4} {:<9} {cached:>15.1}  {from_memory:>15.1}",
        "add 1 to every byte", "", ""
    );
    for spec in specs {
        for &backend in &backends {
            let bits = spec.key_lengths().iter().max().unwrap() * 8;
            let key: Vec<u8> = (0..=255).take(bits / 8).collect();
            let size = SectorSize::new(4096).unwrap();
            let cipher =
                Cipher::new(spec, size, SectorCount::Units512, &key, Some(backend)).unwrap();
            let (encrypt, decrypt) = (
                |run: &mut [u8]| cipher.encrypt(0, run),
                |run: &mut [u8]| cipher.decrypt(0, run),
            );
            let works: [Work<'_>; 2] = [&encrypt, &decrypt];
            let cached = works.map(|work| rate(&mut memory[..CACHED], CACHED, work));
            let from_memory = works.map(|work| rate(&mut memory, RUN, work));
            println!(
                "{:<31} {bits:>4} {:<9} {:>7.1} {:>7.1}  {:>7.1} {:>7.1}",
                spec.to_string(),
                backend.name(),
                cached[0],
                cached[1],
                from_memory[0],
                from_memory[1]
            );
        }
    }
}
