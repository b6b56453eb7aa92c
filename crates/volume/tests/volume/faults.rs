//! A store's failure fails its request alone.

use std::sync::Arc;

use rustix::io::Errno;
use xtent_store::testing::{Fault, FaultStore, MemStore, Operation};
use xtent_store::{Error, Limits, Store};
use xtent_volume::{Config, DiscardPolicy, ErrorKind};

use crate::support::{
    CBC, DRIVERS, Driven, Driver, OFFSET, XTS, config, driven, image, open, pattern, plaintext,
    store_len,
};

const LENGTH: usize = 1 << 20;

struct Bench {
    store: Arc<FaultStore<MemStore>>,
    volume: Driven,
    config: Config,
    before: Vec<u8>,
}

fn bench(driver: Driver, cipher: &str, sector: u32, discard: DiscardPolicy) -> Bench {
    let mut config = config(cipher, sector, LENGTH as u64);
    config.discard = discard;
    let before = pattern(LENGTH, 7);
    let store = Arc::new(FaultStore::new(image(&before, &config).into()));
    let volume = driven(&store, &config, driver);
    Bench {
        store,
        volume,
        config,
        before,
    }
}

impl Bench {
    fn plaintext(&self) -> Vec<u8> {
        plaintext(&self.store.inner().contents(), &self.config)
    }

    /// Nothing but bytes of this range differs, and requests work again.
    fn check_after_error(&self, offset: usize, len: usize) {
        let now = self.plaintext();
        assert_eq!(now[..offset], self.before[..offset]);
        assert_eq!(now[offset + len..], self.before[offset + len..]);
        self.store.heal();
        let data = pattern(len, 8);
        self.volume.write_at(&data, offset as u64, false).unwrap();
        assert!(
            self.volume
                .try_write_at_in_place(&mut data.clone(), offset as u64)
                .unwrap(),
            "a lock was left behind"
        );
        let mut expected = self.before.clone();
        expected[offset..offset + len].copy_from_slice(&data);
        assert_eq!(self.plaintext(), expected);
    }
}

#[test]
fn a_failed_read_fails_alone() {
    for driver in DRIVERS {
        let b = bench(driver, XTS, 4096, DiscardPolicy::Never);
        b.store
            .inject(Fault::on(Operation::Read).within(OFFSET + 8192..OFFSET + 8193));
        let mut buf = vec![0; LENGTH];
        for (offset, len) in [(8192, 4096), (8000, 300), (9000, 10), (0, LENGTH)] {
            let error = b.volume.read_at(&mut buf[..len], offset).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Store(xtent_store::ErrorKind::Io));
            assert_eq!(error.errno(), Errno::IO);
            assert!(
                xtent_store::chain(&error)
                    .to_string()
                    .contains("of the volume failed")
            );
            assert!(b.volume.try_read_at(&mut buf[..len], offset).is_err());
        }
        b.volume.read_at(&mut buf[..4096], 4096).unwrap();
        assert_eq!(buf[..4096], b.before[4096..8192]);
        b.store.heal();
        b.volume.read_at(&mut buf, 0).unwrap();
        assert_eq!(buf, b.before);
    }
}

/// Partial sectors at both ends: the read of either fails, before anything is
/// written; then the write fails.
#[test]
fn a_failed_step_of_read_modify_write_spares_the_neighbours() {
    for driver in DRIVERS {
        for cipher in [XTS, CBC] {
            let (offset, len) = (1000usize, 20_000usize);
            let steps = [
                Fault::on(Operation::Read).times(1),
                Fault::on(Operation::Read).after(1).times(1),
                Fault::on(Operation::Write).times(1),
            ];
            for (index, step) in steps.into_iter().enumerate() {
                for form in 0..3 {
                    let b = bench(driver, cipher, 512, DiscardPolicy::Never);
                    b.store.inject(step.clone());
                    let mut data = pattern(len, 9);
                    match form {
                        0 => b.volume.write_at(&data, offset as u64, false),
                        1 => b.volume.write_at_in_place(&mut data, offset as u64, true),
                        _ => b.volume.write_zeroes(offset as u64, len as u64, false),
                    }
                    .unwrap_err();
                    assert_eq!(b.plaintext(), b.before, "step {index}");
                    b.check_after_error(offset, len);
                }
            }
        }
    }
}

#[test]
fn a_write_that_fails_half_way_stays_in_its_range() {
    for driver in DRIVERS {
        let b = bench(driver, XTS, 512, DiscardPolicy::Never);
        let (offset, len) = (1000, 600_000);
        // The second piece, torn; or the whole, which is one write.
        let before = u64::from(driver == Driver::Now);
        b.store
            .inject(Fault::on(Operation::Write).after(before).times(1).torn());
        b.volume
            .write_at(&pattern(len, 9), offset as u64, false)
            .unwrap_err();
        assert_ne!(b.plaintext(), b.before);
        b.check_after_error(offset, len);
    }
}

#[test]
fn no_space_is_told_as_such() {
    for driver in DRIVERS {
        let b = bench(driver, XTS, 512, DiscardPolicy::Never);
        b.store.fill_up_after(1024);
        b.volume.write_at(&pattern(1024, 1), 0, false).unwrap();
        let error = b.volume.write_at(&pattern(512, 1), 0, false).unwrap_err();
        assert_eq!(error.errno(), Errno::NOSPC);
        b.store.heal();
        b.volume.write_at(&pattern(512, 1), 0, false).unwrap();
    }
}

#[test]
fn a_store_that_became_short_is_an_io_error() {
    for driver in DRIVERS {
        let b = bench(driver, XTS, 512, DiscardPolicy::Never);
        b.store.truncate(OFFSET + 4096);
        let mut buf = [0; 1024];
        b.volume.read_at(&mut buf, 0).unwrap();
        let error = b.volume.read_at(&mut buf, 4096 - 512).unwrap_err();
        assert_eq!(error.errno(), Errno::IO);
        assert!(
            xtent_store::chain(&error).to_string().contains("truncated"),
            "{}",
            xtent_store::chain(&error)
        );
        let error = b.volume.write_at(&buf, 4096, false).unwrap_err();
        assert_eq!(error.errno(), Errno::IO);
        assert_eq!(b.volume.volume.size(), LENGTH as u64);
    }
}

#[test]
fn a_failed_flush_fails_those_that_ask_for_durability() {
    for driver in DRIVERS {
        let b = bench(driver, XTS, 512, DiscardPolicy::Allow);
        b.store.inject(Fault::on(Operation::Flush).times(1));
        let mut data = pattern(LENGTH, 3);
        assert!(b.volume.write_at(&data[..512], 0, true).is_err());
        assert!(b.volume.flush().is_err());
        assert!(b.volume.write_at(&data, 0, true).is_err());
        assert!(b.volume.write_at_in_place(&mut data, 0, true).is_err());
        assert!(b.volume.write_zeroes(0, LENGTH as u64, true).is_err());
        assert!(b.volume.discard(0, 4096, true).is_err());
        b.volume.write_at(&data, 0, false).unwrap();
    }
}

#[test]
fn discards_reach_the_store_by_policy() {
    for driver in DRIVERS {
        let cases = [
            (DiscardPolicy::Never, false),
            (DiscardPolicy::Allow, true),
            (DiscardPolicy::Zero, false),
        ];
        for (policy, fails) in cases {
            let b = bench(driver, XTS, 512, policy);
            b.store.inject(Fault::on(Operation::Discard));
            assert_eq!(b.volume.discard(0, 4096, false).is_err(), fails);
            // Nothing whole inside: nothing to do under `Allow`.
            assert!(b.volume.discard(1, 1022, false).is_ok());
        }
    }
}

#[test]
fn a_store_that_cannot_discard_is_no_error() {
    for driver in DRIVERS {
        let b = bench(driver, XTS, 512, DiscardPolicy::Allow);
        b.store.inject(
            Fault::on(Operation::Discard)
                .errno(Errno::OPNOTSUPP.raw_os_error())
                .times(1),
        );
        b.volume.discard(0, 4096, true).unwrap();
        b.volume.discard(0, 4096, false).unwrap();
        assert_eq!(b.plaintext(), b.before);
    }
}

/// Discards are cut to whole units of the store, counted from its beginning.
#[test]
fn discards_are_aligned_to_the_store() {
    for driver in DRIVERS {
        let mut config = config(XTS, 512, 65_536);
        config.discard = DiscardPolicy::Allow;
        let before = pattern(65_536, 1);
        let store = MemStore::from(image(&before, &config)).with_limits(Limits {
            atomic: 512,
            discard: 4096,
            block: 1,
        });
        let store = Arc::new(store);
        let volume = driven(&store, &config, driver);
        let image = store.contents();
        // 3 * 512 + 512 is not a multiple of 4096: the first unit is that at 4096.
        volume.discard(512, 10_000, false).unwrap();
        let now = store.contents();
        assert_eq!(now[..4096], image[..4096]);
        assert_eq!(now[8192..], image[8192..]);
        assert_ne!(now[4096..4160], image[4096..4160]);
        assert_ne!(now[8128..8192], image[8128..8192]);
    }
}

/// A store from which every read would have to wait.
struct Slow(MemStore);

impl Store for Slow {
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
        self.0.read_at(buf, offset)
    }
    fn write_at(&self, data: &[u8], offset: u64) -> Result<(), Error> {
        self.0.write_at(data, offset)
    }
    /// Whole pages only, as a page cache.
    fn takes_write_at_once(&self, offset: u64, len: u64) -> Result<bool, Error> {
        Ok((offset | len).is_multiple_of(4096))
    }
    fn flush(&self) -> Result<(), Error> {
        Ok(())
    }
    fn discard(&self, _: u64, _: u64) -> Result<(), Error> {
        Ok(())
    }
}

#[test]
fn calls_that_may_not_wait_leave_everything_as_it_is() {
    let config = config(XTS, 512, 8192);
    let store = Arc::new(Slow(MemStore::new(store_len(8192))));
    let volume = open(store.clone(), &config);
    assert!(!volume.try_read_at(&mut [0; 512], 0).unwrap());
    // Partial sectors, and whole ones that are only part of a page of the store.
    for (offset, len) in [(100, 10), (0, 700), (100, 2048), (0, 512), (2560, 512)] {
        let mut data = pattern(len, 1);
        assert!(!volume.try_write_at_in_place(&mut data, offset).unwrap());
        assert_eq!(data, pattern(len, 1));
        assert_eq!(store.0.writes(), 0);
    }
    let (offset, len) = (4096 - OFFSET, 4096);
    let mut data = pattern(len, 1);
    assert!(volume.try_write_at_in_place(&mut data, offset).unwrap());
    let mut found = vec![0; len];
    volume.read_at(&mut found, offset).unwrap();
    assert_eq!(found, pattern(len, 1));
}
