//! Megabytes per CPU second through a volume, by request size, next to the
//! store alone and the cipher alone.
//!
//! ```text
//! cargo run --release -p xtent-volume --example requests [FILE [SECTOR SIZE]]
//! ```
//!
//! `FILE` is made anew (default: one in `/dev/shm`, so in memory) and removed.
#![allow(clippy::unwrap_used, reason = "an example may stop at an error")]

use std::path::PathBuf;
use std::sync::Arc;

use rustix::time::{ClockId, clock_gettime};
use sector_cipher::{Cipher, SectorCount, SectorSize};
use xtent_secret::SecretBytes;
use xtent_store::{FileStore, Store};
use xtent_volume::{Config, DiscardPolicy, Holes, Volume};

const SIZE: u64 = 256 << 20;
const OFFSET: u64 = 4096;
const ROUNDS: usize = 5;

/// CPU seconds of this thread.
fn cpu_seconds() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Bytes per pass: enough to outlast the clock's noise.
const PASS: u64 = 128 << 20;

/// One request: a buffer and the offset in the volume.
type Work<'a> = &'a mut dyn FnMut(&mut [u8], u64);

fn measure(request: usize, work: Work<'_>) -> f64 {
    // As in a server: few buffers, used again and again.
    let mut buf = vec![0x5A; request];
    let count = PASS / request as u64;
    let slots = SIZE / request as u64;
    let start = cpu_seconds();
    for index in 0..count {
        // Scattered if small, as random requests are.
        let slot = if request < 65_536 {
            index.wrapping_mul(0x9E37_79B1) % slots
        } else {
            index % slots
        };
        work(&mut buf, slot * request as u64);
    }
    (count * request as u64) as f64 / (cpu_seconds() - start) / 1e6
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = PathBuf::from(
        arguments
            .next()
            .unwrap_or_else(|| format!("/dev/shm/xtent-throughput-{}", std::process::id())),
    );
    let sector = arguments.next().map_or(512, |s| s.parse().unwrap());
    let sector = SectorSize::new(sector).expect("512, 1024, 2048 or 4096");
    let store = Arc::new(FileStore::create(&path, OFFSET + SIZE).unwrap());
    let config = Config {
        cipher: "aes-xts-plain64".parse().unwrap(),
        sector_size: sector,
        sector_count: SectorCount::Units512,
        offset: OFFSET,
        length: SIZE,
        iv_offset: 0,
        read_only: false,
        discard: DiscardPolicy::Never,
        holes: Holes::Noise,
        backend: None,
    };
    let key = SecretBytes::random(64).unwrap();
    let cipher = Cipher::new(config.cipher, sector, config.sector_count, &key, None).unwrap();
    println!(
        "{}, {}-byte sectors, back-end {:?}, pieces of {} KiB; MB per CPU second, median of {ROUNDS}",
        config.cipher,
        sector.bytes(),
        cipher.backend(),
        Volume::open(store.clone(), &key, &config)
            .unwrap()
            .preferred_piece()
            >> 10
    );
    let volume = Volume::open(store.clone(), &key, &config).unwrap();
    volume.write_zeroes(0, SIZE, false).unwrap();
    let as_zeros = Config {
        holes: Holes::Zero,
        ..config.clone()
    };
    let with_holes = Volume::open(store.clone(), &key, &as_zeros).unwrap();
    let names = [
        "cipher alone, decrypt",
        "store read",
        "volume read",
        "volume read, holes: zero",
        "volume try_read",
        "cipher alone, encrypt",
        "store write",
        "volume write",
        "volume write in place",
        "volume try_write in place",
    ];
    let requests = [4096, 65_536, 256 << 10, 1 << 20, 4 << 20];
    println!("{:>28} {:?} KiB", "", requests.map(|r| r >> 10));
    let mut results = vec![[const { Vec::new() }; 5]; names.len()];
    // Interleaved, so that a busy machine treats all alike.
    for _ in 0..ROUNDS {
        let mut kinds: [Work<'_>; 10] = [
            &mut |buf, at| cipher.decrypt(at / 512, buf),
            &mut |buf, at| store.read_at(buf, OFFSET + at).unwrap(),
            &mut |buf, at| volume.read_at(buf, at).unwrap(),
            &mut |buf, at| with_holes.read_at(buf, at).unwrap(),
            &mut |buf, at| {
                if !volume.try_read_at(buf, at).unwrap() {
                    volume.read_at(buf, at).unwrap();
                }
            },
            &mut |buf, at| cipher.encrypt(at / 512, buf),
            &mut |buf, at| store.write_at(buf, OFFSET + at).unwrap(),
            &mut |buf, at| volume.write_at(buf, at, false).unwrap(),
            &mut |buf, at| volume.write_at_in_place(buf, at, false).unwrap(),
            &mut |buf, at| assert!(volume.try_write_at_in_place(buf, at).unwrap()),
        ];
        for (work, row) in kinds.iter_mut().zip(&mut results) {
            for (request, cell) in requests.iter().zip(row) {
                cell.push(measure(*request, *work));
            }
        }
    }
    for (name, row) in names.iter().zip(results) {
        print!("{name:>28}");
        for cell in row {
            print!(" {:7.0}", median(cell));
        }
        println!();
    }
    std::fs::remove_file(path).unwrap();
}
