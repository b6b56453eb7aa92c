//! Throughput of every back-end in GB per second of thread CPU time, and its
//! ratio to the CPU's AES limit, measured in the same process and in turns with
//! it: independent AES rounds on registers, nothing else.
//!
//! ```text
//! cargo run --release -p sector-cipher --example throughput [SPEC [KEY_BITS]] [-- BACKEND…]
//! ```
#![allow(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a tool for developers")]

mod limit;

use rustix::time::{ClockId, clock_gettime};
use sector_cipher::{Backend, Cipher, CipherSpec, Run, SectorCount, SectorSize};
use std::time::Duration;

/// Rounds of a measurement, of which the best few count.
const ROUNDS: usize = 15;
/// Bytes worked on in one round.
const BYTES_PER_ROUND: usize = 8 << 20;

/// Buffers start at pages, as those of servers do.
const PAGE: usize = 4096;

fn aligned(bytes: &mut [u8], len: usize) -> &mut [u8] {
    let start = bytes.as_ptr().align_offset(PAGE);
    &mut bytes[start..start + len]
}

fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        u64::try_from(now.tv_sec).expect("time is positive"),
        u32::try_from(now.tv_nsec).expect("below a second"),
    )
}

/// GB/s of something that works on `bytes` bytes.
fn rate(bytes: usize, work: impl FnOnce()) -> f64 {
    let start = cpu_time();
    work();
    bytes as f64 / (cpu_time() - start).as_secs_f64() / 1e9
}

fn median(rates: &mut [f64]) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn main() {
    let mut specs = Vec::new();
    let mut backends = Vec::new();
    let mut bits: Option<usize> = None;
    for argument in std::env::args().skip(1) {
        if let Ok(spec) = argument.parse::<CipherSpec>() {
            specs.push(spec);
        } else if let Ok(backend) = argument.parse::<Backend>() {
            backends.push(backend);
        } else if let Ok(number) = argument.parse() {
            bits = Some(number);
        } else {
            eprintln!("{argument} is no cipher, key size in bits or back-end");
            std::process::exit(1);
        }
    }
    if specs.is_empty() {
        specs = ["aes-xts-plain64", "aes-cbc-essiv:sha256"]
            .map(|name| name.parse().unwrap())
            .into();
    }
    if backends.is_empty() {
        backends = Backend::available().to_vec();
    }
    println!(
        "{:<21} {:>4} {:<9} {:>6} {:>5}  {:>7} {:>7} {:>7} {:>7}  {:>6}  {:>6} {:>6} {:>6}",
        "cipher",
        "bits",
        "back-end",
        "sector",
        "run",
        "enc",
        "dec",
        "copy",
        "segs",
        "limit",
        "enc/l",
        "dec/l",
        "dec/enc"
    );
    for &spec in &specs {
        for &key_len in spec.key_lengths() {
            if bits.is_some_and(|bits| bits != key_len * 8) {
                continue;
            }
            for &backend in &backends {
                for sector_size in [512, 4096] {
                    for run in [1, 8, 64, 2048] {
                        report(spec, key_len, backend, sector_size, run);
                    }
                }
            }
        }
    }
}

fn report(spec: CipherSpec, key_len: usize, backend: Backend, sector_size: usize, run: usize) {
    let size = SectorSize::new(u32::try_from(sector_size).unwrap()).unwrap();
    let key: Vec<u8> = (0x5a..).take(key_len).collect();
    let cipher = Cipher::new(spec, size, SectorCount::Units512, &key, Some(backend)).unwrap();
    let aes_key = match spec.mode() {
        sector_cipher::Mode::AesXts => key_len / 2,
        sector_cipher::Mode::Eme2 => key_len - 32,
        _ => key_len,
    };
    let aes_rounds = aes_key / 4 + 6;

    // Runs go round in a buffer that stays in the second-level cache.
    let len = run * sector_size;
    let total = len.max(64 << 10);
    let (mut data, mut other) = (vec![0; total + PAGE], vec![0; total + PAGE]);
    let (data, other) = (aligned(&mut data, total), aligned(&mut other, total));
    let per_buffer = data.len() / len;
    let bytes_per_round = if backend == Backend::Portable {
        BYTES_PER_ROUND / 8
    } else {
        BYTES_PER_ROUND
    };
    let buffers = bytes_per_round.div_ceil(data.len());
    let bytes = buffers * data.len();
    let units = (len / 512) as u64;

    let mut columns: [Vec<f64>; 5] = Default::default();
    for _ in 0..ROUNDS {
        columns[0].push(rate(bytes, || {
            for _ in 0..buffers {
                for (i, run) in data.chunks_exact_mut(len).enumerate() {
                    cipher.encrypt(i as u64 * units, run);
                }
            }
        }));
        columns[1].push(rate(bytes, || {
            for _ in 0..buffers {
                for (i, run) in data.chunks_exact_mut(len).enumerate() {
                    cipher.decrypt(i as u64 * units, run);
                }
            }
        }));
        columns[2].push(rate(bytes, || {
            for _ in 0..buffers {
                for i in 0..per_buffer {
                    let range = i * len..(i + 1) * len;
                    cipher.encrypt_to(i as u64 * units, &data[range.clone()], &mut other[range]);
                }
            }
        }));
        // As many single scattered sectors in a call as the run has sectors.
        columns[3].push(rate(bytes, || {
            for _ in 0..buffers {
                for run in data.chunks_exact_mut(len) {
                    let mut runs: Vec<_> = run
                        .chunks_exact_mut(sector_size)
                        .enumerate()
                        .map(|(i, data)| Run {
                            first: i as u64 * 1000,
                            data,
                        })
                        .collect();
                    cipher.encrypt_runs(&mut runs);
                }
            }
        }));
        let start = cpu_time();
        columns[4].push(match limit::work(backend, aes_rounds) {
            Some(bytes) => bytes as f64 / (cpu_time() - start).as_secs_f64() / 1e9,
            None => f64::NAN,
        });
    }
    let [encrypt, decrypt, copy, runs, limit] = columns.each_mut().map(|rates| median(rates));
    println!(
        "{:<21} {:>4} {:<9} {:>6} {:>5}  {:>7.3} {:>7.3} {:>7.3} {:>7.3}  {:>6.2}  {:>6.3} {:>6.3} {:>6.3}",
        spec.to_string(),
        key_len * 8,
        backend.name(),
        sector_size,
        run,
        encrypt,
        decrypt,
        copy,
        runs,
        limit,
        encrypt / limit,
        decrypt / limit,
        decrypt / encrypt
    );
}
