//! Nanoseconds that a request's metrics take: all that the NBD server counts of a read or write that its
//! connection's thread carries out and answers alone, as it does at depth 1. At larger depths requests
//! share most of it.
//!
//! ```text
//! cargo run --release -p xtent-volume --example metrics
//! ```
#![allow(clippy::unwrap_used, reason = "an example may stop at an error")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use sector_cipher::{SectorCount, SectorSize};
use xtent_secret::SecretBytes;
use xtent_store::{FileStore, Store};
use xtent_volume::{
    Config, DiscardPolicy, Holes, Metrics, Phase, RequestKind, Volume, Watch, now_and_then,
};

const REQUESTS: u32 = 1_000_000;
const ROUNDS: usize = 11;

fn cpu_nanoseconds() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

fn main() {
    let volume = volume();
    let mut of_rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = cpu_nanoseconds();
            for _ in 0..REQUESTS {
                request(black_box(volume.metrics()));
            }
            (cpu_nanoseconds() - start) / f64::from(REQUESTS)
        })
        .collect();
    of_rounds.sort_by(f64::total_cmp);
    println!("{:.0} ns per request", of_rounds[ROUNDS / 2]);
}

fn request(metrics: &Metrics) {
    // Received, and since then.
    let mut watch = Watch::of_some(metrics);
    watch.lap(Phase::Socket);
    let since = now_and_then();
    // Read and decrypted: three laps. The cipher counts its run in a histogram as latencies are.
    let mut watch = Watch::of_some(metrics);
    watch.lap(Phase::Lock);
    watch.lap(Phase::Store);
    metrics.answered(RequestKind::ReadAhead, 1, Duration::from_nanos(8));
    watch.lap(Phase::Cipher);
    // Sent.
    let mut watch = Watch::of_some(metrics);
    watch.lap(Phase::Socket);
    let latency = since.map_or(black_box(Duration::from_micros(3)), |since| since.elapsed());
    metrics.asked(RequestKind::Read, 4096);
    metrics.answered(RequestKind::Read, 1, latency);
}

/// Metrics belong to a volume.
fn volume() -> Volume {
    let path = std::env::temp_dir().join(format!("xtent-metrics-{}", std::process::id()));
    let store = FileStore::create(&path, 8192).unwrap();
    std::fs::remove_file(&path).unwrap();
    let config = Config {
        cipher: "aes-xts-plain64".parse().unwrap(),
        sector_size: SectorSize::new(512).unwrap(),
        sector_count: SectorCount::Units512,
        offset: 4096,
        length: 4096,
        iv_offset: 0,
        read_only: false,
        discard: DiscardPolicy::Never,
        holes: Holes::Noise,
        backend: None,
    };
    let key: Vec<u8> = (0..64).collect();
    let store = Arc::new(store) as Arc<dyn Store>;
    Volume::open(store, &SecretBytes::copy_of(&key).unwrap(), &config).unwrap()
}
