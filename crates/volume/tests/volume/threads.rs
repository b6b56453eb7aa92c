//! Runs that are cut over threads.

use std::num::NonZeroUsize;
use std::sync::Arc;

use xtent_store::testing::MemStore;
use xtent_volume::{CipherThreads, Volume};

use crate::support::{CBC, XTS, config, open, pattern, plaintext, store_len};

const SIZE: usize = (1 << 20) + 5 * 4096;

fn count(threads: usize) -> CipherThreads {
    CipherThreads::Count(NonZeroUsize::new(threads).unwrap())
}

/// Ranges with odd edges and whole ones, below and above what is cut.
fn ranges(sector: usize) -> [(usize, usize); 7] {
    [
        (0, SIZE),
        (0, 32 << 10),
        (sector, (32 << 10) - sector),
        (8192, (64 << 10) + sector),
        (4096, (256 << 10) + 4096),
        (777, 300_001),
        (SIZE - 100_003, 100_003),
    ]
}

#[test]
fn cut_runs_are_the_same_on_disk_and_in_memory() {
    for (cipher, sector) in [(XTS, 512), (XTS, 4096), (CBC, 512)] {
        for threads in [count(1), count(2), count(3), count(16), CipherThreads::Auto] {
            let config = config(cipher, sector, SIZE as u64);
            let store = Arc::new(MemStore::new(store_len(SIZE as u64)));
            let volume = open(store.clone(), &config).with_cipher_threads(threads);
            let mut model = pattern(SIZE, 1);
            volume.write_at(&model, 0, false).unwrap();
            for (seed, (at, len)) in (2..).zip(ranges(usize::try_from(sector).unwrap())) {
                let data = pattern(len, seed);
                model[at..at + len].copy_from_slice(&data);
                if seed % 2 == 0 {
                    volume.write_at(&data, at as u64, false).unwrap();
                } else {
                    let mut data = data.clone();
                    volume
                        .write_at_in_place(&mut data, at as u64, false)
                        .unwrap();
                }
                let mut read = vec![0; len];
                volume.read_at(&mut read, at as u64).unwrap();
                assert!(read == data, "{cipher}, {sector}, {threads:?}: {at}, {len}");
            }
            volume.write_zeroes(200_000, 400_000, false).unwrap();
            model[200_000..600_000].fill(0);
            assert!(
                plaintext(&store.contents(), &config) == model,
                "{cipher}, {sector}, {threads:?}"
            );
        }
    }
}

/// Requests of several threads share the pool, or do without it.
#[test]
fn requests_at_the_same_time_share_the_pool() {
    const PART: usize = 256 << 10;
    let config = config(XTS, 4096, 4 * PART as u64);
    let store = Arc::new(MemStore::new(store_len(4 * PART as u64)));
    let volume = &open(store, &config).with_cipher_threads(count(8));
    let work = |volume: &Volume, part: usize| {
        for seed in 0..30 {
            let data = pattern(PART, seed + 100 * part as u64);
            volume.write_at(&data, (part * PART) as u64, false).unwrap();
            let mut read = vec![0; PART];
            volume.read_at(&mut read, (part * PART) as u64).unwrap();
            assert!(read == data);
        }
    };
    std::thread::scope(|scope| {
        for part in 0..4 {
            scope.spawn(move || work(volume, part));
        }
    });
}
