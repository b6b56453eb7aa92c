//! The conformance suite: every back-end that this CPU has must give what the
//! portable one gives, in every form of call, and back again.
#![allow(clippy::unwrap_used, reason = "a test fails that way")]

mod common;

use common::{SIZES, cipher, cut, for_all, lengths, names, quick, size, spec};
use sector_cipher::{Backend, Cipher, First, NewError, Run, RunError, SectorCount, WrongKeyLength};
use std::fs::OpenOptions;
use std::io::Write;
use std::panic::AssertUnwindSafe;
use std::path::Path;

/// Which back-ends these tests leave out, where nobody can miss it: past the test
/// runner's capture, and in the list that `make test` prints at its end.
fn name_what_is_not_run() {
    let missing: String = Backend::ALL
        .iter()
        .filter(|backend| !backend.is_supported())
        .map(|backend| format!("NOT RUN on this machine: back-end {backend}: this CPU lacks it\n"))
        .collect();
    std::io::stderr().write_all(missing.as_bytes()).unwrap();
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(Path::new(env!("CARGO_TARGET_TMPDIR")).join("../tests-not-run"))
        .and_then(|mut list| list.write_all(missing.as_bytes()))
        .unwrap();
}

#[test]
fn every_backend_matches_portable_at_every_length() {
    name_what_is_not_run();
    for_all(|name, key, bytes, random| {
        let portable = cipher(name, bytes, key, Backend::Portable);
        for sectors in lengths() {
            let first = random.next() / 8 * 8;
            let len = sectors * bytes;
            let plain = random.bytes(len);
            let mut expected = vec![0; len];
            portable.encrypt_to(first, &plain, &mut expected);
            assert_ne!(plain, expected);
            for &backend in Backend::available() {
                // Slow, and against itself: up to two batches and a bit.
                if backend == Backend::Portable && sectors > 18 {
                    continue;
                }
                let what = format!("{name} {} {bytes} {backend}: {sectors} sectors", key.len());
                let cipher = cipher(name, bytes, key, backend);
                let (from, to) = (random.below(65), random.below(65));
                let mut source = vec![0xa5; from + len + 64];
                let mut dest = vec![0x5a; to + len + 64];

                // From source to destination, which leaves all else alone.
                source[from..from + len].copy_from_slice(&plain);
                let (source_before, dest_before) = (source.clone(), dest.clone());
                cipher.encrypt_to(first, &source[from..from + len], &mut dest[to..to + len]);
                assert!(source == source_before, "{what}: source changed");
                assert!(dest[to..to + len] == expected, "{what}: encrypt_to");
                assert!(dest[..to] == dest_before[..to], "{what}: wrote ahead");
                assert!(
                    dest[to + len..] == dest_before[to + len..],
                    "{what}: wrote behind"
                );
                let mut back = vec![0; len];
                cipher.decrypt_to(first, &dest[to..to + len], &mut back);
                assert!(back == plain, "{what}: decrypt_to");

                // In place.
                cipher.encrypt(first, &mut source[from..from + len]);
                assert!(source[from..from + len] == expected, "{what}: encrypt");
                assert!(
                    source[..from] == source_before[..from],
                    "{what}: wrote ahead"
                );
                assert!(
                    source[from + len..] == source_before[from + len..],
                    "{what}: wrote behind"
                );
                cipher.decrypt(first, &mut source[from..from + len]);
                assert!(source == source_before, "{what}: decrypt");

                // Runs.
                let data = &mut source[from..from + len];
                cipher.encrypt_runs(&mut cut(first, data, bytes, random));
                assert!(*data == expected, "{what}: encrypt_runs");
                cipher.decrypt_runs(&mut cut(first, data, bytes, random));
                assert!(*data == plain, "{what}: decrypt_runs");
            }
        }
    });
}

#[test]
fn every_alignment() {
    for_all(|name, key, bytes, random| {
        let (sectors, first) = (3, 4096);
        let len = sectors * bytes;
        let plain = random.bytes(len);
        let mut expected = plain.clone();
        cipher(name, bytes, key, Backend::Portable).encrypt(first, &mut expected);
        for &backend in &Backend::available()[1..] {
            let cipher = cipher(name, bytes, key, backend);
            let mut source = vec![0; len + 16];
            let mut dest = vec![0; len + 16];
            let step = if quick() { 5 } else { 1 };
            for from in (0..16).step_by(step) {
                for to in (0..16).step_by(step) {
                    source[from..from + len].copy_from_slice(&plain);
                    cipher.encrypt_to(first, &source[from..from + len], &mut dest[to..to + len]);
                    assert!(
                        dest[to..to + len] == expected,
                        "{name} {backend} {from} {to}"
                    );
                    cipher.decrypt_to(first, &dest[to..to + len], &mut source[from..from + len]);
                    assert!(
                        source[from..from + len] == plain,
                        "{name} {backend} {from} {to}"
                    );
                }
            }
        }
    });
}

#[test]
fn a_run_is_its_sectors_one_by_one() {
    for_all(|name, key, bytes, random| {
        for &backend in Backend::available() {
            let cipher = cipher(name, bytes, key, backend);
            let units = (bytes / 512) as u64;
            // Across 2^32 and 2^63, and up to the last number.
            for first in [
                0,
                (1 << 32) - 8 * units,
                (1 << 63) - 8 * units,
                0_u64.wrapping_sub(20 * units),
            ] {
                let mut run = random.bytes(20 * bytes);
                let plain = run.clone();
                let mut single = run.clone();
                cipher.encrypt(first, &mut run);
                for (i, sector) in single.chunks_exact_mut(bytes).enumerate() {
                    cipher.encrypt(first + i as u64 * units, sector);
                }
                assert!(run == single, "{name} {bytes} {backend} {first:#x}");
                cipher.decrypt(first, &mut run);
                assert!(run == plain, "{name} {bytes} {backend} {first:#x}");
            }
        }
    });
}

#[test]
fn large_sectors_count_whole_sectors() {
    for &backend in Backend::available() {
        for name in names() {
            let key = vec![7; *spec(&name).key_lengths().last().unwrap()];
            for bytes in SIZES {
                let units = (bytes / 512) as u64;
                let large = Cipher::new(
                    spec(&name),
                    size(bytes),
                    SectorCount::Large,
                    &key,
                    Some(backend),
                )
                .unwrap();
                let small = cipher(&name, bytes, &key, backend);
                let mut run = vec![1; 12 * bytes];
                large.encrypt(units * 500, &mut run);
                for (i, sector) in run.chunks_exact_mut(bytes).enumerate() {
                    // Sector n of the large count is the one whose 512-byte
                    // number is n: its first unit may not be aligned, so only
                    // those that are can be compared.
                    let number = 500 + i as u64;
                    if number.is_multiple_of(units) {
                        small.decrypt(number, sector);
                        assert!(
                            sector.iter().all(|&byte| byte == 1),
                            "{name} {bytes} {backend}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn empty_requests_do_nothing() {
    for &backend in Backend::available() {
        let cipher = cipher("aes-xts-plain64", 512, &[1; 64], backend);
        cipher.encrypt(5, &mut []);
        cipher.decrypt_to(5, &[], &mut []);
        cipher.encrypt_runs(&mut []);
        let mut none = [];
        cipher.decrypt_runs(&mut [Run {
            first: 1,
            data: &mut none,
        }]);
    }
}

/// The only sector of a stream, whether that is seen before or not.
#[test]
fn one_sector_beside_empty_runs_is_as_alone() {
    for_all(|name, key, bytes, random| {
        for &backend in Backend::available() {
            let cipher = cipher(name, bytes, key, backend);
            let plain = random.bytes(bytes);
            let mut alone = plain.clone();
            cipher.encrypt(8, &mut alone);
            let mut data = plain.clone();
            let beside = |data: &mut [u8], crypt: fn(&Cipher, &mut [Run<'_>])| {
                let [mut before, mut behind] = [[0; 0]; 2];
                let runs = [(16, &mut before[..]), (8, data), (24, &mut behind[..])];
                crypt(&cipher, &mut runs.map(|(first, data)| Run { first, data }));
            };
            beside(&mut data, |cipher, runs| cipher.encrypt_runs(runs));
            assert!(data == alone, "{name}, {bytes} bytes, {backend}");
            beside(&mut data, |cipher, runs| cipher.decrypt_runs(runs));
            assert!(data == plain, "{name}, {bytes} bytes, {backend}");
        }
    });
}

#[test]
fn rekeying_is_as_making_anew() {
    for_all(|name, key, bytes, random| {
        for &backend in Backend::available() {
            let plain = random.bytes(9 * bytes);
            let mut expected = plain.clone();
            cipher(name, bytes, key, backend).encrypt(8, &mut expected);
            for &other in spec(name).key_lengths() {
                let mut cipher = cipher(name, bytes, &random.bytes(other), backend);
                let mut data = plain.clone();
                cipher.rekey(key).unwrap();
                cipher.encrypt(8, &mut data);
                assert!(data == expected, "{name} {backend}");
                // A refused key leaves the old one.
                let takes = spec(name).key_lengths();
                for given in (0..=128).filter(|given| !takes.contains(given)) {
                    let error = WrongKeyLength { given, takes };
                    assert_eq!(cipher.rekey(&vec![9; given]), Err(error));
                }
                cipher.decrypt(8, &mut data);
                assert!(data == plain, "{name} {backend}");
            }
        }
    });
}

#[test]
fn key_lengths_are_checked() {
    for name in names() {
        let takes = spec(&name).key_lengths();
        for given in 0..=130 {
            let made = Cipher::new(
                spec(&name),
                size(512),
                SectorCount::Units512,
                &vec![3; given],
                None,
            );
            match made {
                Ok(cipher) => {
                    assert!(takes.contains(&given));
                    assert_eq!(cipher.spec(), spec(&name));
                    assert_eq!(cipher.backend(), Backend::best());
                    assert_eq!(cipher.sector_size(), size(512));
                }
                Err(error) => {
                    assert!(!takes.contains(&given));
                    assert_eq!(error, NewError::KeyLength(WrongKeyLength { given, takes }));
                }
            }
        }
    }
}

/// The back-end of another architecture.
#[test]
fn a_backend_that_the_cpu_lacks_is_refused() {
    let lacking = Backend::ALL
        .iter()
        .filter(|backend| !backend.is_supported());
    let mut count = 0;
    for &backend in lacking {
        count += 1;
        let made = Cipher::new(
            spec("aes-xts-plain64"),
            size(512),
            SectorCount::Units512,
            &[3; 32],
            Some(backend),
        );
        assert_eq!(made.err(), Some(NewError::Backend(backend)));
    }
    assert_ne!(count, 0);
}

#[test]
fn debug_output_has_no_key() {
    for &backend in Backend::available() {
        let text = format!(
            "{:?}",
            cipher("aes-xts-plain64", 4096, &[0xab; 64], backend)
        );
        assert_eq!(
            text,
            format!(
                "Cipher {{ spec: aes-xts-plain64, sector_size: 4096, backend: {backend}, .. }}"
            )
        );
    }
}

/// What the checked call refuses, and the shortcut panics on; the data stay as they were.
fn refuses(
    call: impl FnOnce(&Cipher, &mut [u8]) -> Result<(), RunError>,
    shortcut: impl FnOnce(&Cipher, &mut [u8]),
) -> RunError {
    let cipher = cipher("aes-xts-plain64", 4096, &[1; 32], Backend::best());
    let mut data = vec![5; 3 * 4096];
    let error = call(&cipher, &mut data).unwrap_err();
    let shortcut = AssertUnwindSafe(|| shortcut(&cipher, &mut data));
    let panic = std::panic::catch_unwind(shortcut).unwrap_err();
    assert_eq!(*panic.downcast::<String>().unwrap(), error.to_string());
    assert!(data.iter().all(|&byte| byte == 5), "changed before");
    error
}

#[test]
fn what_is_no_run_is_refused_before_a_byte_changes() {
    let sector_size = 4096;
    let length = |len| RunError::Length { len, sector_size };
    let first_sector = |first| RunError::FirstSector { first, sector_size };
    assert_eq!(
        refuses(
            |cipher, data| cipher.try_encrypt(First::Index(0), &mut data[..4095]),
            |cipher, data| cipher.encrypt(0, &mut data[..4095]),
        ),
        length(4095)
    );
    assert_eq!(
        refuses(
            |cipher, data| cipher.try_decrypt(First::Index(0), &mut data[..512]),
            |cipher, data| cipher.decrypt(0, &mut data[..512]),
        ),
        length(512)
    );
    assert_eq!(
        refuses(
            |cipher, data| cipher.try_encrypt(First::Units512(1), &mut data[..4096]),
            |cipher, data| cipher.encrypt(1, &mut data[..4096]),
        ),
        first_sector(1)
    );
    let first = 0_u64.wrapping_sub(8);
    assert_eq!(
        refuses(
            |cipher, data| cipher.try_encrypt(First::Units512(first), &mut data[..8192]),
            |cipher, data| cipher.encrypt(first, &mut data[..8192]),
        ),
        RunError::BeyondLast { first }
    );
    assert_eq!(
        refuses(
            |cipher, data| cipher.try_encrypt_to(First::Index(0), &[0; 8192], &mut data[..4096]),
            |cipher, data| cipher.encrypt_to(0, &[0; 8192], &mut data[..4096]),
        ),
        RunError::Unequal {
            source: 8192,
            dest: 4096
        }
    );
    assert_eq!(
        refuses(
            |cipher, data| cipher.try_decrypt_to(First::Index(0), &[0; 100], &mut data[..100]),
            |cipher, data| cipher.decrypt_to(0, &[0; 100], &mut data[..100]),
        ),
        length(100)
    );
    fn runs<'a>(data: &'a mut [u8], at: usize, first: u64, len: usize) -> [Run<'a>; 2] {
        let (good, bad) = data.split_at_mut(at);
        let data = &mut bad[..len];
        [
            Run {
                first: 8,
                data: good,
            },
            Run { first, data },
        ]
    }
    assert_eq!(
        refuses(
            |cipher, data| cipher.try_encrypt_runs(&mut runs(data, 8192, 7, 4096)),
            |cipher, data| cipher.encrypt_runs(&mut runs(data, 8192, 7, 4096)),
        ),
        first_sector(7)
    );
    assert_eq!(
        refuses(
            |cipher, data| cipher.try_decrypt_runs(&mut runs(data, 4096, 16, 513)),
            |cipher, data| cipher.decrypt_runs(&mut runs(data, 4096, 16, 513)),
        ),
        length(513)
    );
}

/// Both ways to count come to the same, and to what the shortcut does.
#[test]
fn an_index_is_its_number_divided() {
    for bytes in SIZES {
        let units = (bytes / 512) as u64;
        let cipher = cipher("aes-xts-plain64", bytes, &[1; 64], Backend::best());
        let mut expected = vec![5; 3 * bytes];
        cipher.encrypt(1000 * units, &mut expected);
        for first in [First::Index(1000), First::Units512(1000 * units)] {
            let mut data = vec![5; 3 * bytes];
            cipher.try_encrypt(first, &mut data).unwrap();
            assert!(data == expected);
            cipher.try_decrypt(first, &mut data).unwrap();
            assert!(data == vec![5; 3 * bytes]);
            let mut dest = vec![0; 3 * bytes];
            cipher.try_encrypt_to(first, &data, &mut dest).unwrap();
            assert!(dest == expected);
            cipher.try_decrypt_to(first, &dest, &mut data).unwrap();
            assert!(data == vec![5; 3 * bytes]);
        }
    }
}
