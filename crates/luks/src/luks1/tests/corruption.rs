//! Damaged and hostile headers: errors, never panics, never writes.

use super::*;
use proptest::prelude::*;
use xtent_store::testing::MemStore;

/// Runs everything that reads on `bytes`; the error, if any, of reading.
fn read_all(bytes: Vec<u8>) -> Option<Error> {
    let store = Arc::new(MemStore::from(bytes).read_only());
    let device = device_on(store.clone());
    let limits = KdfLimits {
        longest: Some(Duration::from_secs(5)),
    };
    let error = match read(&device) {
        Ok(header) => {
            let _ = header.dump().to_string();
            let _ = header.segment(store.size());
            let _ = unlock(&device, &pass("zero"), None, &limits);
            None
        }
        Err(error) => {
            assert!(!error.message.is_empty());
            assert!(unlock(&device, &pass("zero"), None, &limits).is_err());
            assert!(erase(&device).is_err());
            Some(error)
        }
    };
    assert_eq!(store.writes(), 0);
    error
}

fn good() -> Vec<u8> {
    formatted().0.contents()
}

fn with(good: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut bad = good.to_vec();
    bad[at..at + bytes.len()].copy_from_slice(bytes);
    bad
}

#[test]
fn each_field_out_of_bounds_is_named() {
    let good = good();
    let full = [b'a'; 40];
    for (at, bytes, kind, word) in [
        (0, &b"luks"[..], ErrorKind::NotLuks, "no LUKS header"),
        (6, &[0, 0], ErrorKind::Unsupported, "version 0"),
        (6, &[0, 2], ErrorKind::Unsupported, "version 2"),
        (8, &full[..32], ErrorKind::Corrupt, "cipher name"),
        (8, b"\0", ErrorKind::Corrupt, "cipher name"),
        (8, b"\x1b[2J", ErrorKind::Corrupt, "cipher name"),
        (40, &full[..32], ErrorKind::Corrupt, "cipher mode"),
        (72, &full[..32], ErrorKind::Corrupt, "hash"),
        (104, &1_u32.to_be_bytes(), ErrorKind::Corrupt, "data begins"),
        (
            104,
            &1028_u32.to_be_bytes(),
            ErrorKind::Corrupt,
            "data begins",
        ),
        (108, &0_u32.to_be_bytes(), ErrorKind::Corrupt, "volume key"),
        (
            108,
            &4097_u32.to_be_bytes(),
            ErrorKind::Corrupt,
            "volume key",
        ),
        (
            108,
            &u32::MAX.to_be_bytes(),
            ErrorKind::Corrupt,
            "volume key",
        ),
        (108, &32_u32.to_be_bytes(), ErrorKind::Corrupt, "overlaps"),
        (164, &0_u32.to_be_bytes(), ErrorKind::Corrupt, "iterations"),
        (
            208 + 40,
            &0_u32.to_be_bytes(),
            ErrorKind::Corrupt,
            "overlaps the header",
        ),
        (
            208 + 40,
            &1_u32.to_be_bytes(),
            ErrorKind::Corrupt,
            "overlaps the header",
        ),
        (
            208 + 40,
            &u32::MAX.to_be_bytes(),
            ErrorKind::TooShort,
            "truncated",
        ),
        (
            208 + 44,
            &u32::MAX.to_be_bytes(),
            ErrorKind::Corrupt,
            "stripes",
        ),
    ] {
        let error = read_all(with(&good, at, bytes)).unwrap_or_else(|| panic!("{at}: {word}"));
        assert_eq!(error.kind, kind, "{at}: {error}");
        assert!(error.message.contains(word), "{at}: {error}");
    }
}

#[test]
fn an_unknown_cipher_or_hash_can_be_dumped_but_not_opened() {
    let good = good();
    for (at, name, word) in [
        (8, &b"serpent\0"[..], "serpent-cbc-essiv:sha256"),
        (40, b"ecb\0", "aes-ecb"),
        (40, b"xts-plain64\0", "128 bits"),
        (72, b"gost\0", "gost"),
    ] {
        let store = Arc::new(MemStore::from(with(&good, at, name)));
        let device = device_on(store);
        read(&device).unwrap().dump();
        let error = unlock(&device, &pass("zero"), None, &NO_LIMIT)
            .err()
            .unwrap();
        assert_eq!(error.kind, ErrorKind::Unsupported);
        assert!(error.message.contains(word), "{error}");
    }
}

#[test]
fn truncated_at_every_length() {
    let good = good();
    let end = usize::try_from(formatted_header_size()).unwrap();
    let lengths = (0..1100).chain((1100..end).step_by(4099)).chain([end - 1]);
    for length in lengths {
        let error = read_all(good[..length].to_vec()).unwrap();
        let expected = if length < 1024 {
            ErrorKind::NotLuks
        } else {
            ErrorKind::TooShort
        };
        assert_eq!(error.kind, expected, "{length}");
    }
    assert!(read_all(good[..end].to_vec()).is_none());
}

#[test]
fn no_single_bit_makes_trouble() {
    let good = good();
    let header: [u8; HEADER] = *good.first_chunk().unwrap();
    let mut kinds = std::collections::BTreeMap::new();
    for bit in 0..592 * 8 {
        let mut bad = header;
        bad[bit / 8] ^= 1 << (bit % 8);
        let kind = match Header::parse(&bad) {
            Ok(header) => {
                let _ = header.dump().to_string();
                let _ = header.segment(u64::MAX);
                assert_eq!(header.sectors(), &bad);
                "accepted".into()
            }
            Err(error) => std::format!("{:?}", error.kind),
        };
        *kinds.entry(kind).or_insert(0) += 1;
    }
    assert!(
        kinds["Corrupt"] > 100 && kinds["accepted"] > 2000,
        "{kinds:?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn noise_after_the_magic_never_panics(noise in proptest::collection::vec(any::<u8>(), HEADER)) {
        let mut sectors: [u8; HEADER] = *noise.first_chunk().unwrap();
        sectors[..8].copy_from_slice(b"LUKS\xba\xbe\0\x01");
        prop_assert!(Header::parse(&sectors).is_err());
        // Far enough to reach the rules between fields.
        let good = Header::parse(formatted_header()).unwrap();
        let mut mixed = *good.sectors();
        let at = usize::from(u16::from_le_bytes([noise[0], noise[1]])) % 592;
        let length = (usize::from(noise[2]) % 8).min(592 - at);
        mixed[at..at + length].copy_from_slice(&noise[3..3 + length]);
        if let Ok(header) = Header::parse(&mixed) {
            let _ = header.dump().to_string();
            let _ = header.segment(u64::MAX);
            prop_assert!(header.header_size() >= 1024);
            prop_assert_eq!(header.sectors(), &mixed);
        }
    }
}

fn formatted_header_size() -> u64 {
    Header::parse(formatted_header()).unwrap().header_size()
}

fn formatted_header() -> &'static [u8; HEADER] {
    static HEADER_SECTORS: std::sync::OnceLock<[u8; HEADER]> = std::sync::OnceLock::new();
    HEADER_SECTORS.get_or_init(|| *good().first_chunk().unwrap())
}
