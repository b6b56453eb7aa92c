//! What each operation promises, besides what cryptsetup is the judge of.

use serde_json::{Value, json};
use xtent_store::testing::{Fault, FaultStore, Operation};

use super::*;
use crate::{ChangeOptions, ErrorKind, Priority};

#[test]
fn unknown_content_survives_byte_for_byte() {
    let image = volume();
    let odd_slot = format!(
        r#"{{ "type":"odd\/type", "key_size" : 7,"area":{{"type":"x","offset":"{}","size":"4097"}}, "f":1.500, "n":123456789012345678901234567890 }}"#,
        AREAS + AREA
    );
    let token = r#"{"keyslots":[ "7" , "0"],"type":"t\u00e9","x":[1,2 ,{"y":-0.0E+1}]}"#;
    let original = text(&image)
        .replace(
            "\"keyslots\":{\"0\":{",
            &format!("\"new\":[ 1 ],\"keyslots\":{{\"7\":{odd_slot},\"0\":{{\"mine\": 1.0,"),
        )
        .replace("\"tokens\":{}", &format!("\"tokens\":{{\"31\":{token}}}"))
        .replace(
            "\"config\":{",
            "\"config\":{\"flags\":[\"allow-discards\",\"who-knows\"],\"more\": null,",
        );
    let image = sealed(&image, &original);
    assert!(read(&image).unwrap().allows_discards());
    assert_eq!(read(&image).unwrap().keyslots(), [0, 7]);
    let edited = changed(image, |device| {
        let unlocked = device.unlock(&word("old"), None, &LIMITS).unwrap();
        assert_eq!(
            device
                .add_key(&unlocked, &word("new"), None, &fast())
                .unwrap(),
            1
        );
        // The odd area is not aligned; the next one is.
        let dump = device.read().unwrap().dump().to_string();
        assert!(dump.contains(&format!("Area offset:{} ", AREAS + AREA + 8192)));
        device.kill_slot(1, false).unwrap();
    });
    assert_eq!(text(&edited), original);
    // A change touches its own members only.
    let room = changed(edited, |device| device.kill_slot(7, false).unwrap());
    let changed = changed(room, |device| {
        device
            .change_key(
                &word("old"),
                Some(0),
                &word("new"),
                &fast(),
                ChangeOptions::default(),
                &LIMITS,
            )
            .unwrap();
    });
    let text = text(&changed);
    for part in [
        "{\"new\":[ 1 ],",
        "\"0\":{\"mine\":1.0,\"type\":\"luks2\"",
        "{\"keyslots\":[\"0\"],\"type\":\"t\\u00e9\",\"x\":[1,2 ,{\"y\":-0.0E+1}]}",
        "\"flags\":[\"allow-discards\",\"who-knows\"],\"more\":null,",
    ] {
        let spaced = text.replace(": ", ":").replace(" :", ":");
        assert!(spaced.contains(part), "{part} in {text}");
    }
    assert!(key(&changed, "new").is_ok());
}

#[test]
fn a_change_wipes_the_old_material_and_a_kill_too() {
    let image = volume();
    let before = image[AREAS..AREAS + AREA].to_vec();
    let after = changed(image.clone(), |device| {
        let slot = device
            .change_key(
                &word("old"),
                None,
                &word("new"),
                &fast(),
                ChangeOptions::default(),
                &LIMITS,
            )
            .unwrap();
        assert_eq!(slot, 0);
    });
    assert_eq!(
        key(&after, "old").unwrap_err().kind,
        ErrorKind::WrongPassphrase
    );
    assert_eq!(key(&after, "new").unwrap(), key(&image, "old").unwrap());
    let same = |now: &[u8]| now.chunks(512).zip(before.chunks(512)).any(|(a, b)| a == b);
    assert!(!same(&after[AREAS..AREAS + AREA]));
    let killed = changed(image, |device| device.kill_slot(0, true).unwrap());
    assert!(!same(&killed[AREAS..AREAS + AREA]));
    assert!(!text(&killed).contains("\"luks2\""));
}

#[test]
fn without_room_a_change_is_refused_untouched() {
    let full = changed(volume(), |device| {
        let unlocked = device.unlock(&word("old"), None, &LIMITS).unwrap();
        for more in ["two", "three"] {
            device
                .add_key(&unlocked, &word(more), None, &fast())
                .unwrap();
        }
        let error = device
            .add_key(&unlocked, &word("four"), None, &fast())
            .unwrap_err();
        assert_eq!(error.kind, ErrorKind::Full);
    });
    let after = changed(full.clone(), |device| {
        let error = device
            .change_key(
                &word("two"),
                None,
                &word("new"),
                &fast(),
                ChangeOptions::default(),
                &LIMITS,
            )
            .unwrap_err();
        assert_eq!(error.kind, ErrorKind::Full);
        assert!(error.to_string().contains("remove a keyslot"), "{error}");
    });
    assert!(after == full);
}

#[test]
fn requirements_and_odd_segments_are_refused_by_name() {
    let image = volume();
    let base: Value = serde_json::from_str(&text(&image)).unwrap();
    let size = SIZE as u64;
    let refused = |document: &Value, name: &str| {
        let image = sealed(&image, &document.to_string());
        let header = read(&image).unwrap();
        let error = header.segment(size).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unsupported);
        assert!(error.to_string().contains(name), "{error}");
        assert!(!header.dump().to_string().is_empty());
        image
    };
    for requirement in [
        "offline-reencrypt",
        "online-reencrypt-v3",
        "from-the-future",
    ] {
        let mut document = base.clone();
        document["config"]["requirements"] = json!({"mandatory": [requirement]});
        let image = refused(&document, requirement);
        let store = Arc::new(MemStore::from(image));
        let device = on(&store);
        for error in [
            device.unlock(&word("old"), None, &LIMITS).unwrap_err(),
            device.kill_slot(0, true).unwrap_err(),
            device.erase().unwrap_err(),
        ] {
            assert_eq!(error.kind, ErrorKind::Unsupported);
            assert!(error.to_string().contains(requirement), "{error}");
        }
        assert_eq!(store.writes(), 0);
        let folder = tempfile::tempdir().unwrap();
        device.backup(&folder.path().join("backup")).unwrap();
    }
    let mut document = base.clone();
    document["segments"]["0"]["integrity"] =
        json!({"type": "hmac(sha256)", "journal_encryption": "none", "journal_integrity": "none"});
    refused(&document, "hmac(sha256)");
    let mut document = base.clone();
    document["segments"]["0"]["encryption"] = json!("aegis256-random");
    refused(&document, "aegis256-random");
    // Near names, and keys of a length that the cipher does not take.
    for (name, text) in [
        ("capi:fast(aes)-plain", "capi:fast(aes)-plain"),
        ("capi:xcb(aes)-plain64 ", "not supported"),
        ("capi:eme2(aes)-plain64", "384 or 512 bits"),
    ] {
        let mut document = base.clone();
        document["segments"]["0"]["encryption"] = json!(name);
        document["keyslots"]["0"]["key_size"] = json!(32);
        refused(&document, text);
    }
    let mut document = base.clone();
    document["segments"]["0"]["sector_size"] = json!(8192);
    refused(&document, "8192");
    let mut document = base.clone();
    document["segments"]["0"]["type"] = json!("linear");
    refused(&document, "linear");
    let mut document = base.clone();
    document["segments"]["0"]["flags"] = json!(["in-reencryption"]);
    refused(&document, "reencrypt");
    let mut document = base.clone();
    document["segments"]["0"]["size"] = json!("512");
    document["segments"]["1"] = document["segments"]["0"].clone();
    document["segments"]["1"]["offset"] = json!((DATA + 512).to_string());
    document["digests"]["0"]["segments"] = json!(["0", "1"]);
    refused(&document, "2 segments");

    // What is in order, for comparison.
    let mut document = base.clone();
    document["segments"]["0"]["size"] = json!("1024");
    document["segments"]["0"]["iv_tweak"] = json!("77");
    let header = read(&sealed(&image, &document.to_string())).unwrap();
    let segment = header.segment(size).unwrap();
    assert_eq!((segment.length, segment.iv_tweak), (1024, 77));
    assert_eq!(segment.encryption, "aes-xts-plain64");
    let error = header.segment(DATA as u64 + 1023).unwrap_err();
    assert_eq!(error.kind, ErrorKind::TooShort);
    assert!(
        error.to_string().contains(&(DATA + 1024).to_string()),
        "{error}"
    );
    for (sector_size, tweak) in [(4096, "7"), (512, "18446744073709551615")] {
        document["segments"]["0"]["size"] = json!("4096");
        document["segments"]["0"]["sector_size"] = json!(sector_size);
        document["segments"]["0"]["iv_tweak"] = json!(tweak);
        let header = read(&sealed(&image, &document.to_string())).unwrap();
        assert_eq!(header.segment(size).unwrap_err().kind, ErrorKind::Corrupt);
    }
}

#[test]
fn slots_that_are_not_understood_do_not_stand_in_the_way() {
    let image = changed(volume(), |device| {
        let unlocked = device.unlock(&word("old"), None, &LIMITS).unwrap();
        device
            .add_key(&unlocked, &word("new"), None, &fast())
            .unwrap();
    });
    let base: Value = serde_json::from_str(&text(&image)).unwrap();
    for (member, value) in [
        ("kdf", json!({"type": "scrypt", "n": 5})),
        ("priority", json!(0)),
    ] {
        let mut document = base.clone();
        document["keyslots"]["0"][member] = value;
        let image = sealed(&image, &document.to_string());
        assert!(key(&image, "new").is_ok());
        let kind = key(&image, "old").unwrap_err().kind;
        if member == "priority" {
            assert_eq!(kind, ErrorKind::WrongPassphrase);
            assert_eq!(
                read(&image).unwrap().keyslot_info()[0].priority,
                Priority::Ignore
            );
        } else {
            assert_eq!(kind, ErrorKind::Unsupported);
        }
    }
    for (pointer, value) in [
        ("/keyslots/0/area/encryption", json!("serpent-xts-plain64")),
        ("/keyslots/0/area/key_size", json!(48)),
        ("/keyslots/0/af/hash", json!("md9")),
        ("/keyslots/0/kdf/hash", json!("md9")),
    ] {
        let mut document = base.clone();
        *document.pointer_mut(pointer).unwrap() = value;
        let image = sealed(&image, &document.to_string());
        assert!(key(&image, "new").is_ok(), "{pointer}");
        assert_eq!(
            key(&image, "old").unwrap_err().kind,
            ErrorKind::Unsupported,
            "{pointer}"
        );
    }
}

#[test]
fn nonsense_is_not_formatted() {
    let store = Arc::new(MemStore::new(SIZE));
    let refuse = |change: &dyn Fn(&mut FormatOptions)| {
        let mut options = options();
        change(&mut options);
        let error = on(&store).format(&options, &word("x")).unwrap_err();
        assert_eq!(store.writes(), 0);
        error.kind
    };
    let cases: [&dyn Fn(&mut FormatOptions); 14] = [
        &|options| options.key_length = usize::MAX,
        &|options| options.sector_size = 1000,
        &|options| options.sector_size = 8192,
        &|options| options.sector_size = 0,
        &|options| options.encryption = "rot13-xts-plain64".into(),
        &|options| options.key_length = 33,
        &|options| options.key_length = 0,
        &|options| options.label = Some("x".repeat(48)),
        &|options| options.subsystem = Some("a\0b".into()),
        &|options| options.uuid = Some("not a uuid".into()),
        &|options| options.data_offset = Some(0),
        &|options| options.data_offset = Some(513),
        &|options| options.data_offset = Some(AREAS as u64 + 4096),
        &|options| {
            options.data_offset = Some(DATA as u64 + 512);
            options.sector_size = 1024;
        },
    ];
    for (number, case) in cases.into_iter().enumerate() {
        assert_eq!(refuse(case), ErrorKind::Options, "case {number}");
    }
    assert_eq!(
        refuse(&|options| options.data_offset = None),
        ErrorKind::TooShort
    );
    for offset in [SIZE as u64, 1 << 40, u64::MAX - 511] {
        assert_eq!(
            refuse(&|options| options.data_offset = Some(offset)),
            ErrorKind::TooShort
        );
    }
    assert_eq!(
        refuse(&|options| options.hash = "md9".into()),
        ErrorKind::Unsupported
    );
}

#[test]
fn old_headers_never_come_back() {
    // Old volumes with every size of copies, made by hand.
    for size in super::super::binary::COPY_SIZES {
        let length = 5 << 20;
        let mut image = vec![0; length];
        let binary = Binary {
            size,
            seqid: 1000,
            ..Binary::parse(&volume(), Which::Primary, 0).unwrap()
        };
        let document = text(&volume())
            .replace(&DATA.to_string(), "0")
            .replace("\"12288\"", &format!("\"{}\"", size - 4096))
            .replace(&format!("\"{AREAS}\""), &format!("\"{}\"", 2 * size))
            .replace(&format!("\"{}\"", 3 * AREA), &format!("\"{AREA}\""));
        let fits = 2 * size + AREA as u64 <= length as u64;
        for which in [Which::Primary, Which::Secondary] {
            let copy = binary.encode(which, &document).unwrap();
            let start = if which == Which::Primary {
                0
            } else {
                copy.len()
            };
            let end = (start + copy.len()).min(length);
            image[start..end].copy_from_slice(&copy[..end - start]);
        }
        assert_eq!(read(&image).is_ok(), fits, "{size}");
        let mut image = changed(image, |device| {
            device.format(&options(), &word("new")).unwrap();
        });
        assert!(key(&image, "new").is_ok());
        image[..2 * COPY].fill(0);
        assert_eq!(read(&image).unwrap_err().kind, ErrorKind::NotLuks, "{size}");
    }
}

#[test]
fn a_foreign_key_is_not_added() {
    let other = volume();
    let unlocked = on(&Arc::new(MemStore::from(other)))
        .unlock(&word("old"), None, &LIMITS)
        .unwrap();
    let store = Arc::new(MemStore::from(volume()));
    let error = on(&store)
        .add_key(&unlocked, &word("new"), None, &fast())
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::Changed);
    assert_eq!(store.writes(), 0);
    for keyslot in [0, 32, u32::MAX] {
        let device = on(&store);
        let unlocked = device.unlock(&word("old"), None, &LIMITS).unwrap();
        let error = device
            .add_key(&unlocked, &word("new"), Some(keyslot), &fast())
            .unwrap_err();
        assert_eq!(error.kind, ErrorKind::Keyslot);
        assert_eq!(
            device
                .unlock(&word("old"), Some(keyslot.max(1)), &LIMITS)
                .unwrap_err()
                .kind,
            ErrorKind::Keyslot
        );
    }
    assert_eq!(store.writes(), 0);
}

#[test]
fn a_keyslot_with_another_key_by_now_is_not_removed() {
    let store = Arc::new(MemStore::from(volume()));
    let device = on(&store);
    let seen = device.unlock(&word("old"), None, &LIMITS).unwrap();
    device
        .add_key(&seen, &word("one"), Some(1), &fast())
        .unwrap();
    device
        .change_key(
            &word("old"),
            None,
            &word("new"),
            &fast(),
            ChangeOptions::default(),
            &LIMITS,
        )
        .unwrap();
    let writes = store.writes();
    let error = device.remove_key(&seen, false).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Changed, "{error}");
    assert_eq!(store.writes(), writes);
    let seen = device.unlock(&word("new"), None, &LIMITS).unwrap();
    device.remove_key(&seen, false).unwrap();
    assert!(device.unlock(&word("new"), None, &LIMITS).is_err());
    let error = device.remove_key(&seen, false).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Keyslot, "{error}");
    let last = device.unlock(&word("one"), None, &LIMITS).unwrap();
    let error = device.remove_key(&last, false).unwrap_err();
    assert_eq!(error.kind, ErrorKind::LastKeyslot, "{error}");
}

#[test]
fn dumps_are_safe_to_print() {
    let image = volume();
    let mut document: Value = serde_json::from_str(&text(&image)).unwrap();
    document["tokens"]["0"] = json!({"type": "\u{1b}[2J\nKeyslots:", "keyslots": []});
    document["config"]["flags"] = json!(["\u{7f}\u{9b}"]);
    let header = read(&sealed(&image, &document.to_string())).unwrap();
    let dump = header.dump().to_string();
    assert!(!dump.contains(['\u{1b}', '\u{7f}', '\u{9b}']), "{dump}");
    assert_eq!(dump.matches("\nKeyslots:").count(), 1);
    let json = serde_json::to_value(header.dump()).unwrap();
    assert_eq!(json["version"], 2);
    assert_eq!(json["keyslots"]["0"]["kdf"]["type"], "pbkdf2");
    assert_eq!(json["keyslots"]["0"]["priority"], "normal");
    assert_eq!(json["segments"]["0"]["offset"], DATA);
}

#[test]
fn after_the_highest_sequence_number_comes_one() {
    let killed = changed(with_seqid(&volume(), u64::MAX), |device| {
        device.kill_slot(0, true).unwrap();
    });
    assert!(read(&killed).unwrap().keyslots().is_empty());
    for (which, start) in [(Which::Primary, 0), (Which::Secondary, COPY)] {
        let binary = Binary::parse(&killed[start..], which, start as u64).unwrap();
        assert_eq!(binary.seqid, 1);
    }
}

/// What can be wiped is, whatever cannot be written.
#[test]
fn an_erase_that_fails_has_erased_all_the_same() {
    let image = volume();
    let before = image[AREAS..AREAS + AREA].to_vec();
    let store = Arc::new(FaultStore::new(MemStore::from(image)));
    store.inject(Fault::on(Operation::Write).within(0..AREAS as u64));
    on(&store).erase().unwrap_err();
    store.heal();
    let mut after = vec![0; AREA];
    store.read_at(&mut after, AREAS as u64).unwrap();
    let mut sectors = after.chunks(512).zip(before.chunks(512));
    assert!(!sectors.any(|(a, b)| a == b));
}

#[test]
fn detached_headers_say_so() {
    let store = Arc::new(MemStore::new(AREAS + AREA + 100));
    let detached = FormatOptions {
        detached: true,
        data_offset: None,
        ..options()
    };
    let header = on(&store).format(&detached, &word("x")).unwrap();
    assert!(header.is_detached());
    assert_eq!(header.segment(1024).unwrap().length, 1024);
    assert_eq!(store.contents()[AREAS + AREA..], [0; 100]);
    assert!(!read(&volume()).unwrap().is_detached());
    // With an offset on the other device, however far.
    let far = FormatOptions {
        data_offset: Some(1 << 40),
        ..detached
    };
    let header = on(&store).format(&far, &word("x")).unwrap();
    assert!(!header.is_detached());
    assert_eq!(header.segment((1 << 40) + 1024).unwrap().offset, 1 << 40);
    let small = Arc::new(MemStore::new(AREAS + AREA - 1));
    let error = on(&small).format(&far, &word("x")).unwrap_err();
    assert_eq!(error.kind, ErrorKind::TooShort);
}

#[test]
fn a_size_that_is_fixed_is_changed_and_nothing_else_is() {
    let size = SIZE as u64;
    let image = volume();
    let resize = |image: &[u8], length, may_shrink| {
        let store = Arc::new(MemStore::from(image.to_vec()));
        let result = on(&store).resize(length, size, may_shrink);
        assert!(result.is_ok() || store.writes() == 0);
        (result, store.contents())
    };
    let refused = |image: &[u8], length, kind, part: &str| {
        let error = resize(image, length, false).0.unwrap_err();
        assert_eq!(error.kind, kind, "{error}");
        assert!(error.message.contains(part), "{error}");
    };
    refused(&image, 4096, ErrorKind::Options, "fixes no size");
    let original = text(&image).replace("\"dynamic\"", "\"4096\"");
    let fixed = sealed(&image, &original);
    assert_eq!(read(&fixed).unwrap().segment(size).unwrap().length, 4096);
    refused(&fixed, 8193, ErrorKind::Options, "whole sectors of 512");
    refused(&fixed, 0, ErrorKind::Options, "at least one");
    refused(
        &fixed,
        8192 + 512,
        ErrorKind::TooShort,
        "of 8192, not of 8704",
    );
    refused(&fixed, u64::MAX - 511, ErrorKind::TooShort, "room");
    refused(&fixed, 512, ErrorKind::Options, "would lose");
    let (result, grown) = resize(&fixed, 8192, false);
    assert_eq!(result.unwrap(), 4096);
    assert_eq!(text(&grown), original.replace("\"4096\"", "\"8192\""));
    assert_eq!(read(&grown).unwrap().segment(size).unwrap().length, 8192);
    assert_eq!(key(&grown, "old").unwrap(), key(&image, "old").unwrap());
    let (result, same) = resize(&grown, 8192, false);
    assert_eq!(result.unwrap(), 8192);
    assert!(same == grown, "written without need");
    let (result, shrunk) = resize(&grown, 512, true);
    assert_eq!(result.unwrap(), 8192);
    assert_eq!(read(&shrunk).unwrap().fixed_size(), Some(512));
    // By name: whatever is under way with the volume, and what is more than one segment.
    let base: Value = serde_json::from_str(&original).unwrap();
    let mut busy = base.clone();
    busy["config"]["requirements"] = json!({"mandatory": ["online-reencrypt-v2"]});
    let mut two = base.clone();
    two["segments"]["1"] = two["segments"]["0"].clone();
    two["segments"]["1"]["offset"] = json!((DATA + 4096).to_string());
    two["digests"]["0"]["segments"] = json!(["0", "1"]);
    for (document, part) in [(busy, "being reencrypted"), (two, "2 segments")] {
        let image = sealed(&image, &document.to_string());
        refused(&image, 8192, ErrorKind::Unsupported, part);
    }
}
