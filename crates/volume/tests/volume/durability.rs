//! What was acknowledged as durable survives a power cut at any point.

use std::sync::Arc;

use futures_util::future::join_all;
use proptest::prelude::*;
use xtent_store::block_on;
use xtent_store::testing::{RecordingStore, Sampling};

use crate::support::{CBC, DRIVERS, Driver, XTS, config, driven, pattern, plaintext, store_len};

const LENGTH: usize = 300 << 10;

const SAMPLING: Sampling = Sampling {
    exhaustive: 32,
    random: 4,
    single_sectors: 4,
    seed: 1,
};

#[derive(Clone, Debug)]
enum Step {
    Write { fua: bool },
    WriteInPlace { fua: bool },
    Zeroes { fua: bool },
    Flush,
}

fn step() -> impl Strategy<Value = (Step, usize, usize)> {
    let step = prop_oneof![
        2 => any::<bool>().prop_map(|fua| Step::Write { fua }),
        2 => any::<bool>().prop_map(|fua| Step::WriteInPlace { fua }),
        1 => any::<bool>().prop_map(|fua| Step::Zeroes { fua }),
        2 => Just(Step::Flush),
    ];
    let len = prop_oneof![4 => 1..3000usize, 1 => 1..LENGTH];
    (step, 0..LENGTH, len).prop_map(|(step, offset, len)| (step, offset, len.min(LENGTH - offset)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn acknowledged_data_survives(
        cipher in prop_oneof![Just(XTS), Just(CBC)],
        driver in prop::sample::select(DRIVERS.to_vec()),
        steps in prop::collection::vec(step(), 1..6),
    ) {
        // Sectors of 512 bytes, which a disk does not tear.
        let config = config(cipher, 512, LENGTH as u64);
        let store = Arc::new(RecordingStore::new(vec![0; store_len(LENGTH as u64)]));
        let volume = driven(&store, &config, driver);
        volume.write_zeroes(0, LENGTH as u64, true).unwrap();
        store.restart();
        // Snapshots: (position of the record, plaintext, is each byte promised by then).
        let mut current = vec![0u8; LENGTH];
        let mut is_durable = vec![true; LENGTH];
        let mut snapshots = vec![(0, current.clone(), is_durable.clone())];
        for (seed, (step, offset, len)) in steps.iter().enumerate() {
            let (offset, len) = (*offset, *len);
            let range = offset..offset + len;
            let at = offset as u64;
            let mut data = pattern(len, seed as u64 + 1);
            if !matches!(step, Step::Flush) {
                // Until it is acknowledged, it may be there or not. The rest
                // of its partial sectors stays promised.
                is_durable[range.clone()].fill(false);
                snapshots.push((store.position(), current.clone(), is_durable.clone()));
            }
            let fua = match *step {
                Step::Flush => {
                    volume.flush().unwrap();
                    is_durable.fill(true);
                    snapshots.push((store.position(), current.clone(), is_durable.clone()));
                    continue;
                }
                Step::Write { fua } => {
                    volume.write_at(&data, at, fua).unwrap();
                    fua
                }
                Step::WriteInPlace { fua } => {
                    volume.write_at_in_place(&mut data.clone(), at, fua).unwrap();
                    fua
                }
                Step::Zeroes { fua } => {
                    volume.write_zeroes(at, len as u64, fua).unwrap();
                    data.fill(0);
                    fua
                }
            };
            current[range.clone()].copy_from_slice(&data);
            if fua {
                is_durable[range].fill(true);
            }
            snapshots.push((store.position(), current.clone(), is_durable.clone()));
        }
        for survivor in store.survivors(SAMPLING) {
            // The last promise that was made before the cut and not revoked by
            // a request that began before it.
            let (_, expected, promised) = snapshots
                .iter()
                .rev()
                .find(|(position, ..)| *position <= survivor.cut)
                .unwrap();
            let found = plaintext(&survivor.image, &config);
            for byte in 0..LENGTH {
                if promised[byte] && found[byte] != expected[byte] {
                    prop_assert!(false, "byte {} lost: {}", byte, survivor);
                }
            }
        }
    }
}

/// Requests of several pieces, with partial sectors at both ends, in every
/// form: all of it is durable, not just the last piece.
#[test]
fn large_durable_requests_survive_whole() {
    let length = 600 << 10;
    let (offset, len) = (1000u64, 590_000);
    let mut config = config(XTS, 512, length);
    config.discard = xtent_volume::DiscardPolicy::Zero;
    for (form, driver) in (0..4).flat_map(|form| DRIVERS.map(|driver| (form, driver))) {
        let store = Arc::new(RecordingStore::new(vec![0xFF; store_len(length)]));
        let volume = driven(&store, &config, driver);
        let mut data = pattern(len, 5);
        let expected = if form < 2 { data.clone() } else { vec![0; len] };
        match form {
            0 => volume.write_at(&data, offset, true),
            1 => volume.write_at_in_place(&mut data, offset, true),
            2 => volume.write_zeroes(offset, len as u64, true),
            _ => volume.discard(offset, len as u64, true),
        }
        .unwrap();
        let acknowledged = store.position();
        let mut seen = 0;
        for survivor in store.survivors(SAMPLING) {
            if survivor.cut >= acknowledged {
                let found = plaintext(&survivor.image, &config);
                assert!(found[1000..1000 + len] == expected, "{survivor}");
                seen += 1;
            }
        }
        assert!(seen > 0);
    }
    // Aligned, in place: without the buffer.
    let store = Arc::new(RecordingStore::new(vec![0xFF; store_len(length)]));
    let volume = driven(&store, &config, Driver::Now);
    let mut data = pattern(600 << 10, 6);
    volume.write_at_in_place(&mut data, 0, true).unwrap();
    let acknowledged = store.position();
    for survivor in store.survivors(SAMPLING) {
        let found = plaintext(&survivor.image, &config);
        assert!(
            survivor.cut < acknowledged || found == pattern(600 << 10, 6),
            "{survivor}"
        );
    }
}

/// Many writes under way at a time, which the store carries out in any order: what a flush
/// that began after them has promised is there, and of the rest each sector is old or new.
#[test]
fn writes_under_way_survive_or_not_but_flushed_ones_do() {
    const SECTORS: usize = 16;
    let length = (SECTORS * 512) as u64;
    let config = config(XTS, 512, length);
    for round in 0..12_u64 {
        let store = Arc::new(RecordingStore::new(vec![0xFF; store_len(length)]));
        let volume = driven(&store, &config, Driver::Later);
        let write = |generation: u64| {
            let volume = &volume;
            (0..SECTORS).map(move |sector| async move {
                let data = pattern(512, generation * 100 + sector as u64);
                let offset = (sector * 512) as u64;
                volume.write_async(&data, offset, false).await.unwrap();
            })
        };
        let sector =
            |sector: usize, generation: u64| pattern(512, generation * 100 + sector as u64);
        let mut promised = vec![(0, None)];
        for generation in 1..4 {
            block_on(join_all(write(round * 10 + generation)));
            volume.flush().unwrap();
            promised.push((store.position(), Some(round * 10 + generation)));
        }
        block_on(join_all(write(round * 10 + 4)));
        for survivor in store.survivors(SAMPLING) {
            let (_, kept) = promised
                .iter()
                .rev()
                .find(|(at, _)| *at <= survivor.cut)
                .unwrap();
            let found = plaintext(&survivor.image, &config);
            for (index, bytes) in found.chunks(512).enumerate() {
                let Some(kept) = *kept else { continue };
                assert!(
                    bytes == sector(index, kept) || bytes == sector(index, kept + 1),
                    "sector {index}: {survivor}"
                );
            }
        }
    }
}
