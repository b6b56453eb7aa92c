//! Whether cutting runs over threads pays: wall and CPU time through a volume
//! in memory, with one thread and with several, by cipher, back-end and
//! request size.
//!
//! ```text
//! cargo run --release -p xtent-volume --example threads [THREADS [CIPHER...]]
//! ```
//!
//! `THREADS` (default: the cores) work on each run of 32 KiB or more.
#![allow(clippy::unwrap_used, reason = "an example may stop at an error")]

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};
use sector_cipher::{Backend, CipherSpec, SectorCount, SectorSize};
use xtent_secret::SecretBytes;
use xtent_store::FileStore;
use xtent_volume::{CipherThreads, Config, DiscardPolicy, Holes, Volume};

const SIZE: u64 = 16 << 20;
/// Seconds per measurement, at least.
const LEAST: f64 = 0.005;
const ROUNDS: usize = 7;
/// The last is four pieces, cut one after the other.
const REQUESTS: [usize; 5] = [32 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20];

/// CPU seconds of all threads.
fn cpu_seconds() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Wall microseconds per request, and CPU seconds per GB.
fn measure(volume: &Volume, buf: &mut [u8], is_write: bool) -> (f64, f64) {
    let request = buf.len() as u64;
    let mut count = 0;
    let (wall, cpu) = (Instant::now(), cpu_seconds());
    while count < 4 || wall.elapsed().as_secs_f64() < LEAST {
        let at = count * request % SIZE;
        if is_write {
            volume.write_at_in_place(buf, at, false).unwrap();
        } else {
            volume.read_at(buf, at).unwrap();
        }
        count += 1;
    }
    let (wall, cpu) = (wall.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    (
        wall * 1e6 / count as f64,
        cpu * 1e9 / (count * request) as f64,
    )
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let threads: NonZeroUsize = match arguments.next() {
        Some(count) => count.parse().unwrap(),
        None => std::thread::available_parallelism().unwrap(),
    };
    let mut ciphers: Vec<CipherSpec> = arguments.map(|name| name.parse().unwrap()).collect();
    if ciphers.is_empty() {
        ciphers = vec!["aes-xts-plain64".parse().unwrap()];
    }
    let path = PathBuf::from(format!("/dev/shm/xtent-threads-{}", std::process::id()));
    let store = Arc::new(FileStore::create(&path, SIZE).unwrap());
    println!("1 and {threads} threads; wall us per request (CPU s per GB); medians of {ROUNDS}");
    for cipher in ciphers {
        let key = SecretBytes::random(*cipher.key_lengths().last().unwrap()).unwrap();
        for &backend in Backend::available() {
            let open = || {
                let config = Config {
                    cipher,
                    sector_size: SectorSize::new(4096).unwrap(),
                    sector_count: SectorCount::Units512,
                    offset: 0,
                    length: SIZE,
                    iv_offset: 0,
                    read_only: false,
                    discard: DiscardPolicy::Never,
                    holes: Holes::Noise,
                    backend: Some(backend),
                };
                Volume::open(store.clone(), &key, &config).unwrap()
            };
            let one = open();
            one.write_zeroes(0, SIZE, false).unwrap();
            let many = open().with_cipher_threads(CipherThreads::Count(threads));
            for is_write in [false, true] {
                print!(
                    "{:>30} {:>8} {:5}",
                    cipher.to_string(),
                    backend.name(),
                    if is_write { "write" } else { "read" }
                );
                for request in REQUESTS {
                    let mut buf = vec![0x5A; request];
                    let mut results = [const { (Vec::new(), Vec::new()) }; 2];
                    // Interleaved, so that a busy machine treats both alike.
                    for _ in 0..ROUNDS {
                        for (volume, result) in [&one, &many].into_iter().zip(&mut results) {
                            let (wall, cpu) = measure(volume, &mut buf, is_write);
                            result.0.push(wall);
                            result.1.push(cpu);
                        }
                    }
                    let [a, b] = results.each_mut();
                    print!(
                        "  {:4}K {:6.1}({:.2}) {:6.1}({:.2})",
                        request >> 10,
                        median(&mut a.0),
                        median(&mut a.1),
                        median(&mut b.0),
                        median(&mut b.1)
                    );
                }
                println!();
            }
        }
    }
    std::fs::remove_file(path).unwrap();
}
