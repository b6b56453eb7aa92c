//! Both ways, for every number of keyslots and room, with the power cut at
//! every instant.

use std::sync::Arc;
use std::time::Duration;

use xtent_secret::SecretBytes;
use xtent_store::testing::{MemStore, RecordingStore, Sampling};

use super::*;
use crate::{FormatOptions, KdfChoice, KdfLimits};

const LIMITS: KdfLimits = KdfLimits { longest: None };
/// From one area to the next, with keys of 16 bytes.
const STEP: u64 = 65536;
/// Room for LUKS2's header and eight areas, no more.
const TIGHT: u64 = LUKS2_HEADER + 8 * STEP;
/// With room to spare.
const WIDE: u64 = TIGHT + 2 * STEP;

fn pass(keyslot: u32) -> SecretBytes {
    SecretBytes::copy_of(format!("word {keyslot}").as_bytes()).unwrap()
}

fn on(store: Arc<dyn Store>) -> Device {
    Device::without_locks(store)
}

fn cheap() -> KdfChoice {
    KdfChoice {
        kind: None,
        hash: None,
        target: Duration::from_secs(1),
        force_iterations: Some(1000),
        memory: None,
        parallel: None,
    }
}

/// Of a LUKS1 volume whose data begin there.
fn options(payload: u64) -> FormatOptions {
    FormatOptions {
        version: Version::Luks1,
        encryption: "aes-cbc-essiv:sha256".into(),
        key_length: 16,
        sector_size: 512,
        kdf: cheap(),
        hash: "sha256".into(),
        uuid: None,
        label: None,
        subsystem: None,
        data_offset: Some(payload),
        detached: false,
        metadata_size: None,
        keyslots_size: None,
    }
}

/// A LUKS1 volume with these keyslots in use, each with a passphrase of its own.
fn luks1(payload: u64, keyslots: &[u32]) -> Vec<u8> {
    let size = usize::try_from(payload).unwrap() + 4096;
    let store = Arc::new(MemStore::new(size));
    let device = on(store.clone());
    let options = options(payload);
    device.format(&options, &pass(0)).unwrap();
    let unlocked = device.unlock(&pass(0), None, &LIMITS).unwrap();
    for keyslot in keyslots.iter().filter(|keyslot| **keyslot != 0) {
        device
            .add_key(&unlocked, &pass(*keyslot), Some(*keyslot), &cheap())
            .unwrap();
    }
    if !keyslots.contains(&0) {
        device.kill_slot(0, false).unwrap();
    }
    let mut image = store.contents();
    let data = usize::try_from(payload).unwrap();
    image[data..].fill(0xda);
    image
}

fn converted(image: &[u8], to: Version) -> Vec<u8> {
    let store = Arc::new(MemStore::from(image.to_vec()));
    let device = on(store.clone());
    let plan = device.plan_conversion(to).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let header = device
        .convert(plan, Some(&folder.path().join("backup")))
        .unwrap();
    assert_eq!(header.version(), to);
    assert!(!header.is_recovered());
    store.contents()
}

/// The volume key, once every passphrase gives it, from its keyslot.
fn key(image: &[u8], keyslots: &[u32]) -> Vec<u8> {
    let device = on(Arc::new(MemStore::from(image.to_vec())));
    assert_eq!(device.read().unwrap().keyslots(), keyslots);
    let keys: Vec<Vec<u8>> = keyslots
        .iter()
        .map(|keyslot| {
            let unlocked = device.unlock(&pass(*keyslot), Some(*keyslot), &LIMITS);
            unlocked.unwrap().key.to_vec()
        })
        .collect();
    assert!(keys.windows(2).all(|pair| pair[0] == pair[1]));
    keys[0].clone()
}

fn segment(image: &[u8]) -> crate::Segment {
    let device = on(Arc::new(MemStore::from(image.to_vec())));
    let header = device.read().unwrap();
    header.segment(image.len() as u64).unwrap()
}

const SETS: [&[u32]; 9] = [
    &[0],
    &[3],
    &[0, 1],
    &[6, 7],
    &[1, 2, 4, 5, 7],
    &[0, 1, 2, 3, 4, 5],
    &[0, 2, 3, 4, 5, 6, 7],
    &[0, 1, 2, 3, 4, 5, 6],
    &[0, 1, 2, 3, 4, 5, 6, 7],
];

#[test]
fn there_and_back_every_passphrase_opens_and_the_data_stay() {
    for payload in [TIGHT, WIDE, 16 << 20] {
        for keyslots in SETS {
            let before = luks1(payload, keyslots);
            let data = usize::try_from(payload).unwrap();
            let luks2 = converted(&before, Version::Luks2);
            assert_eq!(key(&before, keyslots), key(&luks2, keyslots));
            assert_eq!(segment(&before), segment(&luks2));
            let back = converted(&luks2, Version::Luks1);
            assert_eq!(key(&before, keyslots), key(&back, keyslots));
            assert_eq!(segment(&before), segment(&back));
            // And once more, from whatever layout that was.
            let again = converted(&back, Version::Luks2);
            assert_eq!(key(&before, keyslots), key(&again, keyslots));
            for image in [&luks2, &back, &again] {
                assert_eq!(image[data..], before[data..]);
                let uuid = |image: &[u8]| image[168..204].to_vec();
                assert_eq!(uuid(image), uuid(&before));
            }
        }
    }
}

/// With every passphrase in use there is no place for a second copy of one.
#[test]
fn only_what_has_no_room_needs_a_backup() {
    let needs = |payload, keyslots: &[u32]| {
        let device = on(Arc::new(MemStore::from(luks1(payload, keyslots))));
        let plan = device.plan_conversion(Version::Luks2).unwrap();
        let needs = plan.needs_backup;
        if needs {
            let error = device.convert(plan, None).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Refused);
            assert_eq!(device.read().unwrap().version(), Version::Luks1);
        }
        needs
    };
    for keyslots in SETS {
        assert!(!needs(WIDE, keyslots));
        let full = keyslots.starts_with(&[0, 1, 2, 3, 4, 5]);
        assert_eq!(needs(TIGHT, keyslots), full, "{keyslots:?}");
    }
}

const SAMPLING: Sampling = Sampling {
    exhaustive: 16,
    random: 1,
    single_sectors: 1,
    seed: 11,
};

/// Cuts the power everywhere; says which versions were met, and how often
/// there was neither.
fn cut(image: &[u8], to: Version, keyslots: &[u32]) -> ([bool; 2], usize) {
    let store = Arc::new(RecordingStore::new(image.to_vec()));
    let device = on(store.clone());
    let plan = device.plan_conversion(to).unwrap();
    let needs_backup = plan.needs_backup;
    let folder = tempfile::tempdir().unwrap();
    let backup = folder.path().join("backup");
    device.convert(plan, Some(&backup)).unwrap();
    let end = store.position();
    let wanted = key(image, keyslots);
    let mut seen = [false; 2];
    let mut neither = 0;
    for survivor in store.survivors(SAMPLING) {
        let after = on(Arc::new(MemStore::from(survivor.image.clone())));
        match after.read() {
            Ok(header) => {
                let is_new = header.version() == to;
                assert!(is_new || survivor.cut < end, "{survivor}");
                seen[usize::from(is_new)] = true;
                assert_eq!(key(&survivor.image, keyslots), wanted, "{survivor}");
                assert_eq!(segment(&survivor.image), segment(image), "{survivor}");
            }
            Err(error) => {
                assert!(needs_backup && survivor.cut < end, "{survivor}: {error}");
                assert!(error.message.contains("was interrupted"), "{error}");
                if neither == 0 {
                    let plan = after.plan_restore(&backup).unwrap();
                    after.restore(plan).unwrap();
                    let device = after.read().unwrap();
                    assert_eq!(device.version(), Version::Luks1);
                    assert_eq!(device.keyslots(), keyslots);
                    let unlocked = after.unlock(&pass(keyslots[0]), None, &LIMITS).unwrap();
                    assert_eq!(unlocked.key.to_vec(), wanted);
                }
                neither += 1;
            }
        }
    }
    (seen, neither)
}

#[test]
fn a_cut_leaves_luks1_or_luks2() {
    for (payload, keyslots) in [
        (TIGHT, &[0][..]),
        (TIGHT, &[0, 1, 2, 4, 5, 6, 7]),
        (TIGHT, &[1, 3]),
        (WIDE, &[0, 1, 2, 3, 4, 5, 6, 7]),
    ] {
        let image = luks1(payload, keyslots);
        let met = cut(&image, Version::Luks2, keyslots);
        assert_eq!(met, ([true; 2], 0), "{keyslots:?}");
        let image = converted(&image, Version::Luks2);
        let met = cut(&image, Version::Luks1, keyslots);
        assert_eq!(met, ([true; 2], 0), "{keyslots:?}");
    }
}

#[test]
fn a_cut_where_there_is_no_room_is_refused_clearly_and_the_backup_restores() {
    let keyslots = SETS[8];
    let image = luks1(TIGHT, keyslots);
    let (seen, neither) = cut(&image, Version::Luks2, keyslots);
    assert_eq!(seen, [true; 2]);
    assert!(neither > 0);
}

/// What moved leaves no second copy behind.
#[test]
fn no_key_material_stays_where_it_was() {
    let image = luks1(WIDE, &[0, 1]);
    let material = |image: &[u8], at: usize| image[at..at + 64000].to_vec();
    let old: Vec<Vec<u8>> = [4096, 4096 + 65536].map(|at| material(&image, at)).to_vec();
    let luks2 = converted(&image, Version::Luks2);
    let luks1 = converted(&luks2, Version::Luks1);
    for image in [luks2, luks1] {
        for old in &old {
            for part in [&old[..64], &old[40000..40064]] {
                let found = image.windows(64).filter(|window| window == &part).count();
                assert_eq!(found, 1);
            }
        }
    }
}

fn refused(image: Vec<u8>, to: Version, what: &str) {
    let store = Arc::new(MemStore::from(image));
    let device = on(store.clone());
    let error = device.plan_conversion(to).unwrap_err();
    assert!(error.message.contains(what), "{error}");
    assert_eq!(store.writes(), 0);
}

#[test]
fn what_cannot_be_converted_is_refused_by_name() {
    let image = luks1(WIDE, &[0]);
    refused(image.clone(), Version::Luks1, "LUKS1 already");
    let mut detached = image.clone();
    detached[104..108].fill(0);
    refused(detached, Version::Luks2, "detached");
    let mut luksmeta = image.clone();
    let behind = usize::try_from(4096 + 8 * STEP).unwrap();
    luksmeta[behind..behind + 8].copy_from_slice(b"LUKSMETA");
    refused(luksmeta, Version::Luks2, "LUKSMETA");
    // cryptsetup has no room for eight areas here, and so has nobody.
    let narrow = luks1(4096 + 8 * STEP, SETS[8]);
    refused(narrow, Version::Luks2, "the data begins at byte");

    let image = converted(&image, Version::Luks2);
    refused(image.clone(), Version::Luks2, "LUKS2 already");
    let with = |from: &str, to: &str| {
        let store = Arc::new(MemStore::from(image.clone()));
        let mut header = luks2::read_present(&*store).unwrap();
        assert!(header.text.contains(from), "{}", header.text);
        header = header.with_text(header.text.replacen(from, to, 1)).unwrap();
        header.write(&*store).unwrap();
        store.contents()
    };
    for (from, to, what) in [
        (r#""sector_size":512"#, r#""sector_size":4096"#, "sectors"),
        (
            r#""tokens":{}"#,
            r#""tokens":{"0":{"type":"x","keyslots":[]}}"#,
            "1 tokens",
        ),
        (
            r#""config":{"#,
            r#""config":{"flags":["allow-discards"],"#,
            "allow-discards",
        ),
        (
            r#""config":{"#,
            r#""config":{"requirements":{"mandatory":["odd"]},"#,
            "odd",
        ),
        (r#""size":"dynamic""#, r#""size":"4096""#, "fixed size"),
        (r#""iv_tweak":"0""#, r#""iv_tweak":"8""#, "IV offset"),
        (r#""stripes":4000"#, r#""stripes":3999"#, "stripes"),
        (r#""af":{"hash":"sha256""#, r#""af":{"hash":"sha1""#, "hash"),
        (
            r#""encryption":"aes-cbc-essiv:sha256","key_size":16"#,
            r#""encryption":"aes-xts-plain64","key_size":32"#,
            "aes-xts-plain64 (256 bits)",
        ),
        (r#""type":"luks2""#, r#""type":"odd""#, "odd"),
    ] {
        refused(with(from, to), Version::Luks1, what);
    }
}

/// A header that lies apart from its data has room for eight keyslots up to its own end only.
#[test]
fn a_header_without_room_for_eight_keyslots_stays() {
    let store = Arc::new(MemStore::new((16 << 20) + 4096));
    let device = on(store.clone());
    let options = FormatOptions {
        version: Version::Luks2,
        encryption: "aes-xts-plain64".into(),
        key_length: 64,
        kdf: KdfChoice {
            kind: Some(crate::kdf::KdfKind::Pbkdf2),
            ..cheap()
        },
        keyslots_size: Some(512 << 10),
        ..options(16 << 20)
    };
    device.format(&options, &pass(0)).unwrap();
    let image = store.contents();
    // 512-bit keys take 252 KiB of eight keyslots each, from 4 KiB on.
    for (size, has_room) in [
        (544 << 10, false),
        (4096 + 8 * (252 << 10) - 1, false),
        (3 << 20, true),
    ] {
        let header = image[..size].to_vec();
        let device = on(Arc::new(MemStore::from(header.clone())));
        match device.plan_conversion(Version::Luks1) {
            Ok(_) => assert!(has_room, "{size}"),
            Err(error) => {
                assert!(!has_room, "{size}: {error}");
                assert_eq!(error.kind, ErrorKind::Full);
                assert!(error.message.contains("where the device ends"), "{error}");
                continue;
            }
        }
        let luks1 = converted(&header, Version::Luks1);
        assert_eq!(key(&luks1, &[0]), key(&header, &[0]));
    }
}
