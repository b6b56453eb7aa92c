//! Random requests against a plain array of bytes.

use std::sync::Arc;

use proptest::prelude::*;
use sector_cipher::SectorCount;
use xtent_store::Limits;
use xtent_store::testing::MemStore;
use xtent_volume::DiscardPolicy;

use crate::support::{
    CBC, DRIVERS, Driven, Driver, XTS, config, driven, open, pattern, plaintext, store_len,
};

/// More than two pieces, so that requests cross their borders.
const LENGTH: usize = 600 << 10;

#[derive(Clone, Debug)]
enum Request {
    Read { try_first: bool },
    Write { seed: u64, fua: bool },
    WriteInPlace { seed: u64, fua: bool },
    TryWriteInPlace { seed: u64 },
    Zeroes { fua: bool },
    Discard { fua: bool },
    Flush,
}

fn request() -> impl Strategy<Value = Request> {
    prop_oneof![
        3 => any::<bool>().prop_map(|try_first| Request::Read { try_first }),
        3 => any::<(u64, bool)>().prop_map(|(seed, fua)| Request::Write { seed, fua }),
        3 => any::<(u64, bool)>().prop_map(|(seed, fua)| Request::WriteInPlace { seed, fua }),
        2 => any::<u64>().prop_map(|seed| Request::TryWriteInPlace { seed }),
        2 => any::<bool>().prop_map(|fua| Request::Zeroes { fua }),
        2 => any::<bool>().prop_map(|fua| Request::Discard { fua }),
        1 => Just(Request::Flush),
    ]
}

/// Mostly small and anywhere, sometimes aligned, sometimes large.
fn range() -> impl Strategy<Value = (usize, usize)> {
    let len = prop_oneof![
        4 => 0..1500usize,
        2 => 0..20_000usize,
        1 => 0..LENGTH,
    ];
    let unit = prop_oneof![3 => Just(1usize), 1 => Just(512), 1 => Just(4096)];
    (0..LENGTH, len, unit).prop_map(|(offset, len, unit)| {
        let offset = offset / unit * unit;
        let len = len.next_multiple_of(unit).min(LENGTH - offset);
        (offset, len)
    })
}

fn policy() -> impl Strategy<Value = DiscardPolicy> {
    prop_oneof![
        Just(DiscardPolicy::Never),
        Just(DiscardPolicy::Allow),
        Just(DiscardPolicy::Zero)
    ]
}

/// What is known of each byte: nothing after a discard that went to the store.
struct Model {
    bytes: Vec<Option<u8>>,
}

impl Model {
    fn put(&mut self, offset: usize, data: &[u8]) {
        for (byte, new) in self.bytes[offset..].iter_mut().zip(data) {
            *byte = Some(*new);
        }
    }

    fn check(&self, offset: usize, found: &[u8]) -> Result<(), TestCaseError> {
        for (index, byte) in found.iter().enumerate() {
            if let Some(expected) = self.bytes[offset + index] {
                prop_assert_eq!(*byte, expected, "byte {}", offset + index);
            }
        }
        Ok(())
    }
}

fn apply(
    volume: &Driven,
    model: &mut Model,
    request: &Request,
    start: usize,
    len: usize,
) -> Result<(), TestCaseError> {
    let offset = start as u64;
    match *request {
        Request::Read { try_first } => {
            let mut buf = vec![0x55; len];
            if !try_first || !volume.try_read_at(&mut buf, offset).unwrap() {
                volume.read_at(&mut buf, offset).unwrap();
            }
            model.check(start, &buf)?;
        }
        Request::Write { seed, fua } => {
            let data = pattern(len, seed);
            volume.write_at(&data, offset, fua).unwrap();
            prop_assert_eq!(&data, &pattern(len, seed), "the caller's buffer changed");
            model.put(start, &data);
        }
        Request::WriteInPlace { seed, fua } => {
            let data = pattern(len, seed);
            volume
                .write_at_in_place(&mut data.clone(), offset, fua)
                .unwrap();
            model.put(start, &data);
        }
        Request::TryWriteInPlace { seed } => {
            let data = pattern(len, seed);
            // Nothing else is in flight and memory need not be waited for.
            prop_assert!(
                volume
                    .try_write_at_in_place(&mut data.clone(), offset)
                    .unwrap()
            );
            model.put(start, &data);
        }
        Request::Zeroes { fua } => {
            volume.write_zeroes(offset, len as u64, fua).unwrap();
            model.put(start, &vec![0; len]);
        }
        Request::Discard { fua } => {
            volume.discard(offset, len as u64, fua).unwrap();
            match volume.volume.discard_policy() {
                DiscardPolicy::Never => {}
                DiscardPolicy::Zero => model.put(start, &vec![0; len]),
                DiscardPolicy::Allow => {
                    let sector = volume.volume.sector_size().bytes();
                    let inside = start.next_multiple_of(sector)..(start + len) / sector * sector;
                    if !inside.is_empty() {
                        model.bytes[inside].fill(None);
                    }
                }
            }
        }
        Request::Flush => volume.flush().unwrap(),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn behaves_like_an_array_of_bytes(
        cipher in prop_oneof![Just(XTS), Just(CBC)],
        sector in prop_oneof![3 => Just(512u32), 1 => Just(1024), 1 => Just(2048), 3 => Just(4096)],
        count in prop_oneof![Just(SectorCount::Units512), Just(SectorCount::Large)],
        discard in policy(),
        driver in prop::sample::select(DRIVERS.to_vec()),
        block in prop_oneof![Just(1_u32), Just(512), Just(8192)],
        requests in prop::collection::vec((request(), range()), 1..30),
    ) {
        let length = LENGTH as u64;
        let mut config = config(cipher, sector, length);
        config.discard = discard;
        config.sector_count = count;
        // A volume lies on whole blocks.
        config.offset = config.offset.next_multiple_of(block.into());
        let volume_end = usize::try_from(config.offset + length).unwrap();
        let volume_start = volume_end - LENGTH;
        let outside = pattern(1000, 99);
        let mut bytes = vec![0; volume_end];
        bytes[..1000].copy_from_slice(&outside);
        bytes.extend(&outside);
        let limits = Limits { atomic: 512, discard: 4096, block };
        let store = Arc::new(MemStore::from(bytes).with_limits(limits));
        let volume = driven(&store, &config, driver);
        let mut model = Model { bytes: vec![None; LENGTH] };
        for (request, (offset, len)) in &requests {
            apply(&volume, &mut model, request, *offset, *len)?;
        }
        let mut all = vec![0; LENGTH];
        volume.read_at(&mut all, 0).unwrap();
        model.check(0, &all)?;
        // On disk it is what the cipher alone makes of it, and nothing around it changed.
        let image = store.contents();
        model.check(0, &plaintext(&image, &config))?;
        prop_assert_eq!(&image[..1000], &outside[..]);
        prop_assert_eq!(&image[volume_end..], &outside[..]);
        prop_assert!(image[1000..volume_start].iter().all(|b| *b == 0));
    }
}

/// Every split of a small range into partial and whole sectors.
#[test]
fn every_alignment_of_a_small_range() {
    let length = 4 * 512;
    for (cipher, driver) in [XTS, CBC].into_iter().flat_map(|c| DRIVERS.map(|d| (c, d))) {
        let config = config(cipher, 512, length);
        let store = Arc::new(MemStore::new(store_len(length)));
        let volume = driven(&store, &config, driver);
        let mut expected = pattern(2048, 1);
        volume.write_at(&expected, 0, false).unwrap();
        let edges = [
            0, 1, 511, 512, 513, 1023, 1024, 1025, 1535, 1536, 2047, 2048,
        ];
        for (seed, start) in edges.iter().enumerate() {
            for end in edges.iter().filter(|end| *end >= start) {
                let data = pattern(end - start, seed as u64 + 2);
                volume.write_at(&data, *start as u64, false).unwrap();
                expected[*start..*end].copy_from_slice(&data);
                let mut found = vec![0; end - start];
                volume.read_at(&mut found, *start as u64).unwrap();
                assert_eq!(found, data, "{start}..{end}");
                assert_eq!(
                    plaintext(&store.contents(), &config),
                    expected,
                    "{start}..{end}"
                );
            }
        }
    }
}

/// Aligned requests take one write per piece and no read; a partial one takes
/// one write too.
#[test]
fn runs_stay_whole() {
    let length = 4 << 20;
    let config = config(XTS, 512, length);
    let store = Arc::new(MemStore::new(store_len(length)));
    let volume = open(store.clone(), &config);
    let piece = volume.preferred_piece();
    volume.write_at(&pattern(4096, 1), 512, false).unwrap();
    assert_eq!(store.writes(), 1);
    volume.write_at(&pattern(4 * piece, 1), 512, false).unwrap();
    assert_eq!(store.writes(), 5);
    volume
        .write_at_in_place(&mut pattern(4 * piece, 1), 512, true)
        .unwrap();
    assert_eq!((store.writes(), store.flushes()), (9, 1));
    volume.write_at(&pattern(10_000, 1), 100, true).unwrap();
    assert_eq!((store.writes(), store.flushes()), (10, 2));
}

/// Over a store that completes later a request is one read or one write, whatever its length.
#[test]
fn owned_memory_goes_to_the_store_whole() {
    let length = 4 << 20;
    let config = config(XTS, 512, length);
    let store = Arc::new(MemStore::new(store_len(length)));
    let volume = driven(&store, &config, Driver::Later);
    volume.write_at(&pattern(2 << 20, 1), 512, false).unwrap();
    volume.write_at(&pattern(10_000, 1), 100, true).unwrap();
    assert_eq!((store.writes(), store.flushes()), (2, 1));
}

/// Memory of another length than the hull's is refused before anything is done.
#[test]
fn memory_must_fit_its_request() {
    let config = config(XTS, 512, 8192);
    let store = Arc::new(MemStore::new(store_len(8192)));
    for driver in DRIVERS {
        let Driven { volume, memory, .. } = driven(&store, &config, driver);
        let wrong = || memory.take(512).unwrap();
        assert!(xtent_store::block_on(volume.read_async(wrong(), 0, 1024)).is_err());
        assert!(xtent_store::block_on(volume.write_async(wrong(), 256, 512, false)).is_err());
        assert!(xtent_store::block_on(volume.write_async(wrong(), 8192, 512, false)).is_err());
        assert!(xtent_store::block_on(volume.read_async(wrong(), u64::MAX, 512)).is_err());
        assert_eq!(store.writes(), 0);
    }
}
