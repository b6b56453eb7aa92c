//! Damaged copies, cut off devices, failing disks.

use std::sync::Arc;

use xtent_store::Store as _;
use xtent_store::testing::{Fault, FaultStore, MemStore, Operation};

use super::*;
use crate::ErrorKind;

/// The first and last byte of every field of the binary header, and bytes of
/// the JSON area.
fn places() -> Vec<usize> {
    let fields = [
        (0, 6),
        (6, 2),
        (8, 8),
        (16, 8),
        (24, 48),
        (72, 32),
        (104, 64),
        (168, 40),
        (208, 48),
        (256, 8),
        (264, 184),
        (448, 32),
        (512, 3584),
        (4096, 1),
        (4200, 40),
        (COPY - 4096, 4096),
    ];
    let ends = fields.map(|(start, length)| [start, start + length / 2, start + length - 1]);
    ends.into_iter().flatten().collect()
}

#[test]
fn one_damaged_byte_is_recovered_and_two_are_refused() {
    let image = volume();
    let good = key(&image, "old").unwrap();
    for place in places() {
        for start in [0, COPY] {
            let mut bad = image.clone();
            bad[start + place] ^= 0x10;
            // A version that is not known is not a damaged header.
            if start == 0 && (6..8).contains(&place) {
                assert_eq!(read(&bad).unwrap_err().kind, ErrorKind::Unsupported);
                continue;
            }
            let header = read(&bad).unwrap_or_else(|error| panic!("{place}: {error}"));
            assert!(header.is_recovered());
            assert_eq!(key(&bad, "old").unwrap(), good);
            // The next update makes both good again.
            let repaired = changed(bad.clone(), |device| assert!(device.repair().unwrap()));
            assert!(!read(&repaired).unwrap().is_recovered());
            let edited = changed(bad, |device| {
                let unlocked = device.unlock(&word("old"), None, &LIMITS).unwrap();
                device
                    .add_key(&unlocked, &word("new"), None, &fast())
                    .unwrap();
            });
            assert!(!read(&edited).unwrap().is_recovered());
            assert_eq!(key(&edited, "new").unwrap(), good);
        }
        let mut bad = image.clone();
        bad[place] ^= 0x10;
        bad[COPY + place] ^= 0x10;
        assert_refused(&bad, &format!("byte {place} of both copies"));
    }
}

#[test]
fn the_newer_copy_wins() {
    let image = volume();
    let newer = changed(image.clone(), |device| {
        let unlocked = device.unlock(&word("old"), None, &LIMITS).unwrap();
        device
            .add_key(&unlocked, &word("new"), None, &fast())
            .unwrap();
    });
    for stale in [0, COPY] {
        let mut mixed = newer.clone();
        mixed[stale..stale + COPY].copy_from_slice(&image[stale..stale + COPY]);
        let header = read(&mixed).unwrap();
        assert_eq!(header.keyslots(), [0, 1]);
        assert!(header.is_recovered());
        assert!(key(&mixed, "new").is_ok());
        let repaired = changed(mixed, |device| assert!(device.repair().unwrap()));
        assert_eq!(read(&repaired).unwrap().keyslots(), [0, 1]);
        assert!(!read(&repaired).unwrap().is_recovered());
    }
}

#[test]
fn cut_off_devices_are_refused() {
    let image = volume();
    for end in [
        0,
        1,
        7,
        8,
        511,
        512,
        4095,
        4096,
        4097,
        COPY - 1,
        COPY,
        COPY + 4096,
        2 * COPY - 1,
        2 * COPY,
        AREAS + 1,
        AREAS + AREA,
        DATA - 1,
    ] {
        assert_refused(&image[..end], &format!("{end} bytes"));
        let mut end_only = image[..end].to_vec();
        if end > 4096 {
            end_only[..4096].fill(0);
            assert_refused(&end_only, &format!("{end} bytes without a primary header"));
        }
    }
    let header = read(&image[..DATA]).unwrap();
    let kind = |size: usize| header.segment(size as u64).unwrap_err().kind;
    assert_eq!(kind(DATA), ErrorKind::TooShort);
    assert_eq!(kind(DATA + 511), ErrorKind::TooShort);
    assert_eq!(kind(0), ErrorKind::TooShort);
    assert_eq!(header.segment(DATA as u64 + 1023).unwrap().length, 512);
}

#[test]
fn nothing_at_all_is_not_luks() {
    for image in [vec![0; SIZE], vec![0xa5; SIZE], b"LUKS\xba\xbe".to_vec()] {
        assert_eq!(read(&image).unwrap_err().kind, ErrorKind::NotLuks);
        assert_refused(&image, "no header");
    }
    let mut wiped = volume();
    wiped[..COPY].fill(0);
    assert!(read(&wiped).is_ok());
    wiped[COPY..COPY + 512].fill(0);
    assert_eq!(read(&wiped).unwrap_err().kind, ErrorKind::NotLuks);
}

#[test]
fn a_bad_sector_in_one_copy_is_recovered() {
    let image = volume();
    for start in [0, COPY as u64] {
        let store = Arc::new(FaultStore::new(MemStore::from(image.clone())));
        store.inject(Fault::on(Operation::Read).within(start..start + 512));
        let device = on(&store);
        assert!(device.read().unwrap().is_recovered());
        assert!(device.unlock(&word("old"), None, &LIMITS).is_ok());
    }
    let store = Arc::new(FaultStore::new(MemStore::from(image)));
    store.inject(Fault::on(Operation::Read));
    assert!(matches!(
        on(&store).read().unwrap_err().kind,
        ErrorKind::Store(_)
    ));
}

#[test]
fn a_bad_sector_in_one_keyslot_leaves_the_others() {
    let image = changed(volume(), |device| {
        let unlocked = device.unlock(&word("old"), None, &LIMITS).unwrap();
        device
            .add_key(&unlocked, &word("new"), None, &fast())
            .unwrap();
    });
    let store = Arc::new(FaultStore::new(MemStore::from(image)));
    let area = AREAS as u64..AREAS as u64 + 512;
    store.inject(Fault::on(Operation::Read).within(area));
    let device = on(&store);
    assert_eq!(
        device.unlock(&word("new"), None, &LIMITS).unwrap().keyslot,
        Some(1)
    );
    let error = device.unlock(&word("old"), None, &LIMITS).unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Store(_)), "{error}");
    assert!(error.to_string().contains("keyslot 0"), "{error}");
}

/// To be written anew may be all that such a sector needs.
#[test]
fn a_restore_goes_over_a_keyslot_that_cannot_be_read() {
    let backup = volume();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("backup");
    std::fs::write(&path, &backup[..DATA]).unwrap();
    let mut image = backup.clone();
    image[AREAS..AREAS + 512].fill(0);
    let store = Arc::new(FaultStore::new(MemStore::from(image)));
    let area = AREAS as u64..AREAS as u64 + 512;
    store.inject(Fault::on(Operation::Read).within(area));
    let device = on(&store);
    let plan = device.plan_restore(&path).unwrap();
    device.restore(plan).unwrap();
    let mut there = vec![0; DATA];
    store.inner().read_at(&mut there, 0).unwrap();
    assert!(there == backup[..DATA], "not the backup's bytes");
}

#[test]
fn failed_writes_and_flushes_lose_nothing() {
    let image = volume();
    let good = key(&image, "old").unwrap();
    for operation in [Operation::Write, Operation::Flush] {
        for after in 0..8 {
            let store = Arc::new(FaultStore::new(MemStore::from(image.clone())));
            let device = on(&store);
            let unlocked = device.unlock(&word("old"), None, &LIMITS).unwrap();
            store.inject(Fault::on(operation).after(after));
            let result = device.change_key(
                &word("old"),
                None,
                &word("new"),
                &fast(),
                crate::ChangeOptions::default(),
                &LIMITS,
            );
            drop(unlocked);
            let left = store.inner().contents();
            let opened = [key(&left, "old"), key(&left, "new")];
            assert!(
                opened.iter().flatten().any(|key| *key == good),
                "{operation:?} {after}: {opened:?} after {result:?}"
            );
            if result.is_ok() {
                assert!(opened[1].is_ok());
            }
        }
    }
    // A read-only device says so, and stays as it is.
    let store = Arc::new(MemStore::from(image.clone()).read_only());
    let error = on(&store).kill_slot(0, true).unwrap_err();
    assert_eq!(
        error.kind,
        ErrorKind::Store(xtent_store::ErrorKind::ReadOnly)
    );
    assert!(store.contents() == image);
    assert!(store.is_read_only());
}
