//! What is refused, and how it is said.

use std::sync::Arc;

use rustix::io::Errno;
use xtent_secret::SecretBytes;
use xtent_store::testing::MemStore;
use xtent_volume::{Config, DiscardPolicy, ErrorKind, Volume};

use crate::support::{OFFSET, XTS, config, key, open, pattern, store_len};

fn refusal(change: impl FnOnce(&mut Config), store: MemStore, key_length: usize) -> String {
    let mut config = config(XTS, 4096, 8192);
    change(&mut config);
    let key = SecretBytes::zeroed(key_length).unwrap();
    let error = Volume::open(Arc::new(store), &key, &config).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Config, "{error}");
    assert_eq!(error.errno(), Errno::INVAL);
    xtent_store::chain(&error).to_string()
}

#[test]
fn contradictory_configurations_are_refused() {
    let store = || MemStore::new(store_len(8192));
    let refused = |change: fn(&mut Config)| refusal(change, store(), 64);
    assert!(refused(|c| c.offset = 100).contains("multiple of 512"));
    assert!(refused(|c| c.length = 0).contains("positive multiple"));
    assert!(refused(|c| c.length = 4096 + 512).contains("4096-byte"));
    assert!(refused(|c| c.iv_offset = 3).contains("multiple of 8"));
    assert!(refused(|c| c.iv_offset = u64::MAX - 7).contains("2^64"));
    let text = refused(|c| c.length = 1 << 20);
    assert!(text.contains(&(OFFSET + (1 << 20)).to_string()), "{text}");
    assert!(text.contains(&store_len(8192).to_string()), "{text}");
    assert!(refused(|c| c.offset = !511).contains("too short"));
    assert!(refused(|c| c.length = !4095).contains("too short"));
    for bytes in [0, 16, 63, 65] {
        assert!(refusal(|_| (), store(), bytes).contains("key"));
    }
    let text = refusal(|_| (), store().read_only(), 64);
    assert!(text.contains("read-only"), "{text}");
}

#[test]
fn debug_output_has_no_key() {
    let config = config(XTS, 512, 8192);
    let volume = open(Arc::new(MemStore::new(store_len(8192))), &config);
    let text = format!("{volume:?}");
    assert!(text.contains("Volume"));
    let key = key(XTS);
    assert!(!text.contains(&format!("{}, {}", key[0], key[1])), "{text}");
}

#[test]
fn ranges_are_checked_without_overflow() {
    for discard in [
        DiscardPolicy::Never,
        DiscardPolicy::Allow,
        DiscardPolicy::Zero,
    ] {
        let mut config = config(XTS, 512, 8192);
        config.discard = discard;
        let store = Arc::new(MemStore::new(store_len(8192)));
        let volume = open(store.clone(), &config);
        let mut buf = [0; 512];
        for offset in [8192 - 511, 8192, 8193, u64::MAX, u64::MAX - 511] {
            let errors = [
                volume.read_at(&mut buf, offset).unwrap_err(),
                volume.try_read_at(&mut buf, offset).unwrap_err(),
                volume.write_at(&buf, offset, false).unwrap_err(),
                volume
                    .write_at_in_place(&mut buf, offset, true)
                    .unwrap_err(),
                volume.try_write_at_in_place(&mut buf, offset).unwrap_err(),
                volume.discard(offset, 512, true).unwrap_err(),
                volume.write_zeroes(offset, 512, false).unwrap_err(),
                volume.discard(512, u64::MAX - 511, false).unwrap_err(),
                volume.write_zeroes(0, u64::MAX, false).unwrap_err(),
            ];
            for error in errors {
                assert_eq!(error.kind, ErrorKind::OutOfRange, "{error}");
                assert!(error.offset.is_some());
            }
        }
        assert_eq!(store.writes(), 0);
    }
}

#[test]
fn empty_requests_succeed() {
    let config = config(XTS, 512, 8192);
    let store = Arc::new(MemStore::new(store_len(8192)));
    let volume = open(store.clone(), &config);
    for offset in [0, 100, 8192] {
        volume.read_at(&mut [], offset).unwrap();
        assert!(volume.try_read_at(&mut [], offset).unwrap());
        volume.write_at(&[], offset, true).unwrap();
        volume.write_at_in_place(&mut [], offset, false).unwrap();
        assert!(volume.try_write_at_in_place(&mut [], offset).unwrap());
        volume.write_zeroes(offset, 0, true).unwrap();
        volume.discard(offset, 0, true).unwrap();
    }
    assert!(volume.read_at(&mut [], 8193).is_err());
    assert_eq!(store.writes(), 0);
}

#[test]
fn read_only_volumes_refuse_every_change() {
    let mut config = config(XTS, 512, 8192);
    config.read_only = true;
    for discard in [
        DiscardPolicy::Never,
        DiscardPolicy::Allow,
        DiscardPolicy::Zero,
    ] {
        config.discard = discard;
        let store = Arc::new(MemStore::new(store_len(8192)).read_only());
        let volume = open(store, &config);
        let mut buf = pattern(512, 1);
        volume.read_at(&mut buf, 0).unwrap();
        volume.flush().unwrap();
        let errors = [
            volume.write_at(&buf, 0, false).unwrap_err(),
            volume.write_at_in_place(&mut buf, 0, false).unwrap_err(),
            volume.try_write_at_in_place(&mut buf, 0).unwrap_err(),
            volume.discard(0, 512, false).unwrap_err(),
            volume.write_zeroes(0, 512, false).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind, ErrorKind::ReadOnly);
            assert_eq!(error.errno(), Errno::ROFS);
        }
        assert!(volume.is_read_only());
    }
}

#[test]
fn a_volume_grows_with_its_store_and_never_shrinks() {
    let store = Arc::new(MemStore::new(store_len(8192)));
    let volume = open(store.clone(), &config(XTS, 4096, 8192));
    assert_eq!(volume.grow(12288).unwrap_err().kind, ErrorKind::Config);
    store.resize(store_len(16384 + 100));
    for length in [8192 + 512, 20480, u64::MAX - 4095] {
        assert_eq!(volume.grow(length).unwrap_err().kind, ErrorKind::Config);
    }
    assert_eq!(volume.size(), 8192);
    assert!(volume.read_at(&mut [0; 1], 8192).is_err());
    assert!(volume.grow(16384).unwrap());
    volume.write_at(&[7; 4096], 12288, false).unwrap();
    assert!(!volume.grow(16384).unwrap() && !volume.grow(8192).unwrap());
    assert_eq!(volume.size(), 16384);
}

#[test]
fn a_volume_turned_round_encrypts_and_takes_no_writes() {
    for cipher in [XTS, crate::support::CBC] {
        let config = config(cipher, 4096, 1 << 20);
        let plain = pattern(1 << 20, 5);
        let mut stored = vec![0; usize::try_from(OFFSET).unwrap()];
        stored.extend_from_slice(&plain);
        let wanted = crate::support::image(&plain, &config);
        let wanted = &wanted[usize::try_from(OFFSET).unwrap()..];
        let volume = open(Arc::new(MemStore::from(stored)), &config).turned();
        for (offset, len) in [
            (0, 1 << 20),
            (4096, 8192),
            (1, 3),
            (4095, 4098),
            (70_000, 300_000),
        ] {
            let mut read = vec![0; len];
            volume.read_at(&mut read, offset as u64).unwrap();
            assert!(read == wanted[offset..offset + len], "{cipher} {offset}");
            assert!(volume.try_read_at(&mut read, offset as u64).unwrap());
            assert!(read == wanted[offset..offset + len], "{cipher} {offset}");
        }
        let refused = volume.write_at(&[0; 4096], 0, false).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::ReadOnly);
    }
}
