//! Sectors that were never written, as noise and as zeros.

use std::sync::Arc;

use proptest::prelude::*;
use xtent_store::testing::MemStore;
use xtent_store::{Limits, Store};
use xtent_volume::{DiscardPolicy, Holes};

use crate::support::{
    CBC, DRIVERS, OFFSET, XTS, config, driven, image, open, pattern, plaintext, store_len,
};

/// More than two pieces.
const LENGTH: usize = 600 << 10;

/// The image of a volume with `data` in it but for holes where `is_hole` says, and what it reads
/// as.
fn with_holes(
    config: &xtent_volume::Config,
    data: &[u8],
    is_hole: impl Fn(usize) -> bool,
) -> (Vec<u8>, Vec<u8>) {
    let sector = config.sector_size.bytes();
    let start = usize::try_from(config.offset).unwrap();
    let (mut image, mut plain) = (image(data, config), data.to_vec());
    for index in (0..data.len() / sector).filter(|index| is_hole(*index)) {
        let place = index * sector..(index + 1) * sector;
        plain[place.clone()].fill(0);
        image[start..][place].fill(0);
    }
    (image, plain)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Against an array of bytes, and on the disk against the cipher alone.
    #[test]
    fn holes_are_zeros_until_they_are_written(
        cipher in prop_oneof![Just(XTS), Just(CBC)],
        sector in prop_oneof![Just(512_u32), Just(4096)],
        block in prop_oneof![Just(1_u32), Just(8192)],
        driver in prop::sample::select(DRIVERS.to_vec()),
        holes in prop::collection::vec(any::<bool>(), 1..50),
        requests in prop::collection::vec((0..5_u8, 0..LENGTH, prop_oneof![0..2000_usize, 0..LENGTH], any::<u64>()), 1..20),
    ) {
        let mut config = config(cipher, sector, LENGTH as u64);
        config.holes = Holes::Zero;
        config.offset = config.offset.next_multiple_of(block.into());
        let is_hole = |index: usize| holes[index % holes.len()];
        let (image, mut model) = with_holes(&config, &pattern(LENGTH, 5), is_hole);
        let limits = Limits { atomic: 512, discard: 4096, block };
        let store = Arc::new(MemStore::from(image).with_limits(limits));
        let volume = driven(&store, &config, driver);
        for (kind, start, len, seed) in requests {
            let len = len.min(LENGTH - start);
            let (offset, end) = (start as u64, start + len);
            let data = pattern(len, seed);
            match kind {
                0 | 1 => {
                    let mut found = vec![0x55; len];
                    match kind {
                        0 => volume.read_at(&mut found, offset).unwrap(),
                        _ => prop_assert!(volume.try_read_at(&mut found, offset).unwrap()),
                    }
                    prop_assert!(found == model[start..end]);
                    continue;
                }
                2 => volume.write_at(&data, offset, false).unwrap(),
                3 => volume.write_at_in_place(&mut data.clone(), offset, false).unwrap(),
                _ => volume.write_zeroes(offset, len as u64, false).unwrap(),
            }
            match kind {
                4 => model[start..end].fill(0),
                _ => model[start..end].copy_from_slice(&data),
            }
        }
        let mut all = vec![0; LENGTH];
        volume.read_at(&mut all, 0).unwrap();
        prop_assert!(all == model);
        // What was written at all is whole sectors of ciphertext.
        let (image, size) = (store.contents(), config.sector_size.bytes());
        let stored = &image[usize::try_from(config.offset).unwrap()..];
        let decrypted = plaintext(&image, &config);
        for (index, stored) in stored.chunks(size).take(LENGTH / size).enumerate() {
            let place = index * size..(index + 1) * size;
            let is_zero = stored.iter().all(|byte| *byte == 0);
            prop_assert!(is_zero || decrypted[place.clone()] == model[place], "sector {index}");
        }
    }
}

#[test]
fn by_default_a_hole_is_noise_as_with_dm_crypt() {
    for driver in DRIVERS {
        let config = config(XTS, 512, 4096);
        assert_eq!(config.holes, Holes::Noise);
        let store = Arc::new(MemStore::new(store_len(4096)));
        let mut found = vec![0; 4096];
        let volume = driven(&store, &config, driver);
        volume.read_at(&mut found, 0).unwrap();
        assert_eq!(found, plaintext(&store.contents(), &config));
        assert!(
            found
                .chunks(512)
                .all(|sector| sector.iter().any(|b| *b != 0))
        );
    }
}

/// One byte into a hole: the rest of the sector is zeros for good, and the neighbours stay holes.
#[test]
fn a_part_of_a_hole_is_written_with_zeros_around_it() {
    for driver in DRIVERS {
        let mut config = config(XTS, 512, 4096);
        config.holes = Holes::Zero;
        let store = Arc::new(MemStore::new(store_len(4096)));
        let volume = driven(&store, &config, driver);
        volume.write_at(&[7], 1000, false).unwrap();
        let mut expected = vec![0; 4096];
        expected[1000] = 7;
        let mut found = vec![0; 4096];
        volume.read_at(&mut found, 0).unwrap();
        assert_eq!(found, expected);
        let image = store.contents();
        let start = usize::try_from(OFFSET).unwrap();
        assert_eq!(plaintext(&image, &config)[512..1024], expected[512..1024]);
        assert!(image[start..start + 512].iter().all(|b| *b == 0));
        assert!(image[start + 1024..].iter().all(|b| *b == 0));
    }
}

#[test]
fn what_was_discarded_reads_as_zeros() {
    for driver in DRIVERS {
        let mut config = config(XTS, 512, 1 << 16);
        (config.holes, config.discard) = (Holes::Zero, DiscardPolicy::Allow);
        let limits = Limits {
            atomic: 512,
            discard: 512,
            block: 1,
        };
        let store = Arc::new(MemStore::new(store_len(1 << 16)).with_limits(limits));
        let volume = driven(&store, &config, driver);
        volume.write_at(&pattern(1 << 16, 1), 0, false).unwrap();
        volume.discard(512, 4096, false).unwrap();
        // This store zeroes what it discards; not all do.
        store.write_at(&[0; 4096], OFFSET + 512).unwrap();
        let mut found = vec![1; 4096];
        volume.read_at(&mut found, 512).unwrap();
        assert_eq!(found, vec![0; 4096]);
    }
}

/// A plain image has no holes: its zeros are what is to be encrypted.
#[test]
fn zeros_of_a_plain_image_are_encrypted_all_the_same() {
    let mut config = config(XTS, 512, 4096);
    config.read_only = true;
    let read = |holes| {
        config.holes = holes;
        let store = Arc::new(MemStore::new(store_len(4096)));
        let mut found = vec![0; 4096];
        let volume = open(store, &config).turned();
        volume.read_at(&mut found, 0).unwrap();
        found
    };
    let [noise, zero] = [Holes::Noise, Holes::Zero].map(read);
    assert_eq!(noise, zero);
    assert!(zero.iter().any(|byte| *byte != 0));
}
