//! Making a header: its layout, its options, and what is refused.

use super::*;

#[test]
fn a_new_header_opens_with_its_passphrase_only() {
    for (encryption, key_length) in [
        ("aes-xts-plain64", 32),
        ("aes-xts-plain64", 64),
        ("aes-xts-plain", 64),
        ("aes-cbc-essiv:sha256", 32),
        ("aes-cbc-plain64", 16),
        ("aes-cbc-plain", 24),
    ] {
        for hash in ["sha1", "sha256", "sha512", "ripemd160", "whirlpool"] {
            let store = Arc::new(MemStore::new((2 << 20) + 512));
            let device = device_on(store);
            let options = FormatOptions {
                encryption: encryption.into(),
                key_length,
                hash: hash.into(),
                detached: false,
                ..options()
            };
            format(&device, &options, &pass("zero")).unwrap();
            let (keyslot, key) = opens(&device, "zero").unwrap();
            assert_eq!((keyslot, key.len()), (0, key_length));
            assert_ne!(key, vec![0; key_length]);
            assert_eq!(opens(&device, "zer0"), None);
            assert_eq!(opens(&device, ""), None);

            let header = read(&device).unwrap();
            assert_eq!(header.keyslots(), [0]);
            assert_eq!(header.key_length(), key_length);
            assert_eq!(header.encryption(), encryption);
            let segment = header.segment(device.store.size()).unwrap();
            assert_eq!(segment.encryption, encryption);
            assert_eq!(segment.sector_size, 512);
            assert_eq!(
                segment.offset + segment.length,
                device.store.size() / 512 * 512
            );
            assert_eq!(segment.iv_tweak, 0);
        }
    }
}

#[test]
fn the_layout_is_that_of_cryptsetup() {
    let place = |key_length, encryption: &str| {
        let device = device_on(Arc::new(MemStore::new(3 << 20)));
        let options = FormatOptions {
            encryption: encryption.into(),
            key_length,
            detached: false,
            ..options()
        };
        format(&device, &options, &pass("x")).unwrap();
        let header = read(&device).unwrap();
        (
            header.payload_offset,
            std::array::from_fn(|number| header.slot(number).offset),
        )
    };
    assert_eq!(
        place(64, "aes-xts-plain64"),
        (4096, [8, 512, 1016, 1520, 2024, 2528, 3032, 3536])
    );
    assert_eq!(
        place(32, "aes-xts-plain64"),
        (4096, [8, 264, 520, 776, 1032, 1288, 1544, 1800])
    );
    assert_eq!(
        place(16, "aes-cbc-plain64"),
        (2048, [8, 136, 264, 392, 520, 648, 776, 904])
    );
}

#[test]
fn signatures_of_luks2_do_not_survive() {
    let mut bytes = vec![0x55; 5 << 20];
    bytes[..6].copy_from_slice(b"LUKS\xba\xbe");
    for power in 0..9 {
        let place = 0x4000 << power;
        bytes[place..place + 6].copy_from_slice(b"SKUL\xba\xbe");
    }
    let store = Arc::new(MemStore::from(bytes));
    let options = FormatOptions {
        detached: false,
        ..options()
    };
    format(&device_on(store.clone()), &options, &pass("x")).unwrap();
    let after = store.contents();
    assert!(!after.windows(6).any(|bytes| bytes == b"SKUL\xba\xbe"));
    // Nothing else of the data area was touched.
    assert_eq!(after[(1 << 20) + 4096], 0x55);
    assert_eq!(after[(4 << 20) + 4096], 0x55);
}

#[test]
fn options_that_luks1_does_not_have_are_refused() {
    let store = Arc::new(MemStore::new(4 << 20));
    let device = device_on(store.clone());
    let base = || FormatOptions {
        detached: false,
        ..options()
    };
    let kdf = |kdf| FormatOptions { kdf, ..base() };
    use ErrorKind::{Options, TooShort, Unsupported};
    for (options, kind) in [
        (
            FormatOptions {
                sector_size: 4096,
                ..base()
            },
            Options,
        ),
        (
            FormatOptions {
                label: Some("x".into()),
                ..base()
            },
            Options,
        ),
        (
            FormatOptions {
                subsystem: Some("x".into()),
                ..base()
            },
            Options,
        ),
        (
            FormatOptions {
                encryption: "serpent-xts-plain64".into(),
                ..base()
            },
            Unsupported,
        ),
        (
            FormatOptions {
                encryption: "aes".into(),
                ..base()
            },
            Unsupported,
        ),
        (
            FormatOptions {
                encryption: "capi:fast(aes)-plain64".into(),
                ..base()
            },
            Unsupported,
        ),
        (
            FormatOptions {
                key_length: 33,
                ..base()
            },
            Unsupported,
        ),
        (
            FormatOptions {
                key_length: 0,
                ..base()
            },
            Unsupported,
        ),
        (
            FormatOptions {
                hash: "md5".into(),
                ..base()
            },
            Unsupported,
        ),
        (
            FormatOptions {
                uuid: Some("no".into()),
                ..base()
            },
            Options,
        ),
        (
            FormatOptions {
                data_offset: Some(512),
                ..base()
            },
            Options,
        ),
        (
            FormatOptions {
                data_offset: Some(0),
                ..base()
            },
            Options,
        ),
        (
            FormatOptions {
                data_offset: Some((1 << 20) + 1),
                ..base()
            },
            Options,
        ),
        (
            FormatOptions {
                data_offset: Some(1 << 42),
                ..base()
            },
            Options,
        ),
        (
            FormatOptions {
                data_offset: Some(4 << 20),
                ..base()
            },
            TooShort,
        ),
        (
            kdf(KdfChoice {
                kind: Some(KdfKind::Argon2id),
                ..cheap()
            }),
            Options,
        ),
        (
            kdf(KdfChoice {
                hash: Some("sha512".into()),
                ..cheap()
            }),
            Options,
        ),
        (
            kdf(KdfChoice {
                force_iterations: Some(999),
                ..cheap()
            }),
            Options,
        ),
    ] {
        let error = format(&device, &options, &pass("x")).unwrap_err();
        assert_eq!(error.kind, kind, "{options:?}: {error}");
    }
    assert_eq!(store.writes(), 0);
    let short = device_on(Arc::new(MemStore::new(1 << 20)));
    assert_eq!(
        format(&short, &base(), &pass("x")).unwrap_err().kind,
        TooShort
    );
}

#[test]
fn a_given_uuid_and_offset_are_used() {
    let device = device_on(Arc::new(MemStore::new(4 << 20)));
    let options = FormatOptions {
        uuid: Some("ABCDEF01-2345-6789-abcd-ef0123456789".into()),
        data_offset: Some(3 << 20),
        detached: false,
        ..options()
    };
    format(&device, &options, &pass("x")).unwrap();
    let header = read(&device).unwrap();
    assert_eq!(header.uuid(), "abcdef01-2345-6789-abcd-ef0123456789");
    assert_eq!(header.payload_offset(), 3 << 20);
    assert_eq!(header.segment(4 << 20).unwrap().length, 1 << 20);
    for size in [0, 3 << 20, (3 << 20) + 511] {
        assert_eq!(header.segment(size).unwrap_err().kind, ErrorKind::TooShort);
    }
}

#[test]
fn a_benchmarked_header_has_cryptsetups_shares() {
    let (_, device) = formatted();
    let options = FormatOptions {
        kdf: KdfChoice {
            target: Duration::from_millis(100),
            force_iterations: None,
            ..cheap()
        },
        ..options()
    };
    format(&device, &options, &pass("zero")).unwrap();
    let header = read(&device).unwrap();
    assert!(header.slot(0).iterations > 1000);
    assert!(header.mk_iterations >= header.slot(0).iterations);
    assert!(opens(&device, "zero").is_some());
}
