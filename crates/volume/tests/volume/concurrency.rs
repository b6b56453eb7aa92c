//! Requests at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use xtent_store::testing::MemStore;
use xtent_store::{Error, Limits, Store};

use crate::support::{CBC, DRIVERS, XTS, config, driven, pattern, plaintext, store_len};

/// A store that writes and reads byte ranges in small steps, so that others
/// come in between, as they do with files.
struct Stepwise(MemStore);

/// Seven steps, which end within sectors. Not more: on a busy machine whoever lets others go
/// first waits for all of them.
fn step(len: usize) -> usize {
    len.div_ceil(7).next_multiple_of(16)
}

impl Store for Stepwise {
    fn size(&self) -> u64 {
        self.0.size()
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn limits(&self) -> Limits {
        self.0.limits()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), Error> {
        let len = step(buf.len());
        for (index, step) in buf.chunks_mut(len).enumerate() {
            self.0.read_at(step, offset + (index * len) as u64)?;
            std::thread::yield_now();
        }
        Ok(())
    }
    fn try_read_at(&self, buf: &mut [u8], offset: u64) -> Result<bool, Error> {
        self.read_at(buf, offset).map(|()| true)
    }
    fn takes_write_at_once(&self, _offset: u64, _len: u64) -> Result<bool, Error> {
        Ok(true)
    }
    fn write_at(&self, data: &[u8], offset: u64) -> Result<(), Error> {
        let len = step(data.len());
        for (index, step) in data.chunks(len).enumerate() {
            self.0.write_at(step, offset + (index * len) as u64)?;
            std::thread::yield_now();
        }
        Ok(())
    }
    fn flush(&self) -> Result<(), Error> {
        self.0.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.0.discard(offset, len)
    }
}

/// Each thread owns a few bytes of every sector; none loses any.
#[test]
fn partial_writes_to_the_same_sectors_lose_nothing() {
    let ciphers = [(XTS, 512), (CBC, 4096)];
    for ((cipher, sector), driver) in ciphers.into_iter().flat_map(|c| DRIVERS.map(|d| (c, d))) {
        const THREADS: usize = 4;
        let length = 4 * u64::from(sector);
        let config = config(cipher, sector, length);
        let store = Arc::new(Stepwise(MemStore::new(store_len(length))));
        let volume = driven(&store, &config, driver);
        volume.write_zeroes(0, length, false).unwrap();
        let total = usize::try_from(length).unwrap();
        let share = 128;
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let volume = &volume;
                scope.spawn(move || {
                    for start in (thread * share..total).step_by(THREADS * share) {
                        let mut data = pattern(share, start as u64);
                        let offset = start as u64;
                        match start / share % 3 {
                            0 => volume.write_at(&data, offset, false).unwrap(),
                            1 => volume.write_at_in_place(&mut data, offset, false).unwrap(),
                            _ => {
                                while !volume.try_write_at_in_place(&mut data, offset).unwrap() {
                                    std::thread::yield_now();
                                }
                            }
                        }
                    }
                });
            }
        });
        let expected: Vec<u8> = (0..total)
            .step_by(share)
            .flat_map(|start| pattern(share, start as u64))
            .collect();
        assert_eq!(plaintext(&store.0.contents(), &config), expected);
    }
}

/// While part of a sector is written over and over, readers of the rest of it
/// see what is there, and readers of the part see it old or new.
#[test]
fn readers_never_see_half_a_sector() {
    for driver in DRIVERS {
        let config = config(CBC, 512, 4096);
        let store = Arc::new(Stepwise(MemStore::new(store_len(4096))));
        let volume = driven(&store, &config, driver);
        let before = pattern(4096, 1);
        volume.write_at(&before, 0, false).unwrap();
        let done = AtomicBool::new(false);
        // In the middle of a run, with partial sectors on both sides.
        let (start, len) = (700, 1000);
        std::thread::scope(|scope| {
            for reader in 0..2 {
                let (volume, before, done) = (&volume, &before, &done);
                scope.spawn(move || {
                    let mut found = vec![0; 4096];
                    while !done.load(Ordering::Relaxed) {
                        if reader == 0 {
                            volume.read_at(&mut found, 0).unwrap();
                        } else if !volume.try_read_at(&mut found, 0).unwrap() {
                            std::thread::yield_now();
                            continue;
                        }
                        assert_eq!(found[..start], before[..start]);
                        assert_eq!(found[start + len..], before[start + len..]);
                        let part = &found[start..start + len];
                        assert!(
                            part == &before[start..start + len]
                                || part.iter().all(|b| *b == part[0]),
                            "neither old nor new"
                        );
                    }
                });
            }
            for round in 0..100u32 {
                let fill = u8::try_from(round % 251).unwrap();
                volume
                    .write_at(&vec![fill; len], start as u64, false)
                    .unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}
