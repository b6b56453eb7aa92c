//! Headers with good checksums and hostile contents.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::ErrorKind;

/// A header with a second keyslot and a token, to be mutilated.
fn image() -> Vec<u8> {
    let image = changed(volume(), |device| {
        let unlocked = device.unlock(&word("old"), None, &LIMITS).unwrap();
        device
            .add_key(&unlocked, &word("new"), None, &fast())
            .unwrap();
    });
    let mut document: Value = serde_json::from_str(&text(&image)).unwrap();
    document["tokens"]["0"] = json!({"type": "t", "keyslots": ["0"]});
    sealed(&image, &document.to_string())
}

fn with(base: &Value, pointer: &str, value: Value) -> Value {
    let mut document = base.clone();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    document.pointer_mut(parent).unwrap()[name] = value;
    document
}

fn without(base: &Value, pointer: &str) -> Value {
    let mut document = base.clone();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let parent = document.pointer_mut(parent).unwrap();
    parent.as_object_mut().unwrap().remove(name).unwrap();
    document
}

/// Every member that is mandatory, of every structure.
const MANDATORY: &[&str] = &[
    "/keyslots",
    "/segments",
    "/digests",
    "/tokens",
    "/config",
    "/keyslots/0",
    "/keyslots/0/type",
    "/keyslots/0/key_size",
    "/keyslots/0/area",
    "/keyslots/0/area/type",
    "/keyslots/0/area/offset",
    "/keyslots/0/area/size",
    "/keyslots/0/area/encryption",
    "/keyslots/0/area/key_size",
    "/keyslots/0/af",
    "/keyslots/0/af/type",
    "/keyslots/0/af/stripes",
    "/keyslots/0/af/hash",
    "/keyslots/0/kdf",
    "/keyslots/0/kdf/type",
    "/keyslots/0/kdf/hash",
    "/keyslots/0/kdf/iterations",
    "/keyslots/0/kdf/salt",
    "/segments/0",
    "/segments/0/type",
    "/segments/0/offset",
    "/segments/0/size",
    "/segments/0/iv_tweak",
    "/segments/0/encryption",
    "/segments/0/sector_size",
    "/digests/0",
    "/digests/0/type",
    "/digests/0/keyslots",
    "/digests/0/segments",
    "/digests/0/hash",
    "/digests/0/iterations",
    "/digests/0/salt",
    "/digests/0/digest",
    "/tokens/0/type",
    "/tokens/0/keyslots",
    "/config/json_size",
    "/config/keyslots_size",
];

#[test]
fn every_member_must_be_there_and_of_its_type() {
    let image = image();
    let base: Value = serde_json::from_str(&text(&image)).unwrap();
    for pointer in MANDATORY {
        let document = without(&base, pointer).to_string();
        assert_refused(&sealed(&image, &document), &format!("no {pointer}"));
        for wrong in [
            json!(null),
            json!(true),
            json!(-1),
            json!(1.5),
            json!(1e300),
            json!(""),
            json!([]),
            json!([1]),
            json!({}),
        ] {
            // An empty list of keyslots is in order for tokens.
            if *pointer == "/tokens/0/keyslots" && wrong == json!([]) {
                continue;
            }
            // No tokens at all are, too.
            if *pointer == "/tokens" && wrong == json!({}) {
                continue;
            }
            let document = with(&base, pointer, wrong.clone()).to_string();
            assert_refused(&sealed(&image, &document), &format!("{pointer} = {wrong}"));
        }
    }
}

#[test]
fn values_out_of_bounds_are_refused() {
    let image = image();
    let base: Value = serde_json::from_str(&text(&image)).unwrap();
    let area = |offset: u64, size: u64| {
        let mut area = base["keyslots"]["0"]["area"].clone();
        area["offset"] = offset.to_string().into();
        area["size"] = size.to_string().into();
        area
    };
    let areas = AREAS as u64;
    let size = AREA as u64;
    for (pointer, value) in [
        ("/keyslots/0/key_size", json!(0)),
        ("/keyslots/0/key_size", json!(33)),
        ("/keyslots/0/key_size", json!(1_u64 << 32)),
        ("/keyslots/0/key_size", json!(u32::MAX)),
        ("/keyslots/0/key_size", json!(u64::MAX)),
        ("/keyslots/0/priority", json!(3)),
        ("/keyslots/0/priority", json!("1")),
        ("/keyslots/0/af/type", json!("luks9")),
        ("/keyslots/0/af/stripes", json!(0)),
        ("/keyslots/0/af/stripes", json!(u32::MAX)),
        ("/keyslots/0/area/type", json!("cooked")),
        ("/keyslots/0/area/key_size", json!(0)),
        ("/keyslots/0/kdf/iterations", json!(0)),
        ("/keyslots/0/kdf/iterations", json!(1_u64 << 32)),
        ("/keyslots/0/kdf/salt", json!("AAAA")),
        ("/keyslots/0/kdf/salt", json!("not base64!")),
        ("/keyslots/0/kdf/salt", json!("A".repeat(44))),
        ("/keyslots/0/area", area(0, size)),
        ("/keyslots/0/area", area(areas - 4096, size)),
        ("/keyslots/0/area", area(areas, 0)),
        ("/keyslots/0/area", area(areas, size - 4096)),
        ("/keyslots/0/area", area(areas + 512, size)),
        ("/keyslots/0/area", area(areas, size + 4096)),
        ("/keyslots/0/area", area(areas + size, size)),
        ("/keyslots/0/area", area(areas + 3 * size, size)),
        ("/keyslots/0/area", area(areas + 2 * size + 4096, size)),
        ("/keyslots/0/area", area(u64::MAX - 4095, size)),
        ("/keyslots/0/area", area(areas, u64::MAX)),
        ("/keyslots/0/area/offset", json!("32768 ")),
        ("/keyslots/0/area/offset", json!("+32768")),
        ("/keyslots/0/area/offset", json!("-32768")),
        ("/keyslots/0/area/offset", json!("0x8000")),
        ("/keyslots/0/area/offset", json!("18446744073709551616")),
        ("/keyslots/0/area/offset", json!(32768)),
        ("/segments/0/offset", json!("1")),
        ("/segments/0/offset", json!("512")),
        ("/segments/0/size", json!("0")),
        ("/segments/0/size", json!("513")),
        ("/segments/0/size", json!("Dynamic")),
        ("/segments/0/sector_size", json!(0)),
        ("/segments/0/sector_size", json!(513)),
        ("/segments/0/iv_tweak", json!("dynamic")),
        ("/segments/0/flags", json!("backup-final")),
        ("/segments/0/flags", json!(["backup-final"])),
        ("/segments/0/flags", json!([7])),
        ("/segments/0/integrity", json!("none")),
        ("/segments/0/integrity", json!({"type": "hmac(sha256)"})),
        ("/segments/00", base["segments"]["0"].clone()),
        ("/segments/2", base["segments"]["0"].clone()),
        ("/segments/1", base["segments"]["0"].clone()),
        ("/segments/x", base["segments"]["0"].clone()),
        ("/digests/0/keyslots", json!(["0"])),
        ("/digests/0/keyslots", json!(["0", "1", "2"])),
        ("/digests/0/keyslots", json!(["0", "1", "x"])),
        ("/digests/0/keyslots", json!(["0", "01"])),
        ("/digests/0/keyslots", json!([0, 1])),
        ("/digests/0/segments", json!(["1"])),
        ("/digests/0/digest", json!("AAAA")),
        ("/digests/0/digest", json!("A".repeat(88) + "AAAA")),
        ("/digests/0/iterations", json!(0)),
        ("/digests/1", base["digests"]["0"].clone()),
        ("/digests/99", base["digests"]["0"].clone()),
        ("/tokens/0/keyslots", json!(["5"])),
        ("/tokens/32", base["tokens"]["0"].clone()),
        ("/tokens/-1", base["tokens"]["0"].clone()),
        ("/keyslots/2", base["keyslots"]["0"].clone()),
        ("/keyslots/32", base["keyslots"]["0"].clone()),
        ("/keyslots/4294967296", base["keyslots"]["0"].clone()),
        ("/keyslots/2", json!({"type": "odd", "key_size": 1})),
        (
            "/keyslots/2",
            json!({"type": "odd", "key_size": 1, "area": area(areas + 4096, 4096)}),
        ),
        (
            "/keyslots/2",
            json!({"type": "reencrypt", "key_size": 1, "area": area(areas + 2 * size, 4096)}),
        ),
        ("/config/json_size", json!("12287")),
        ("/config/json_size", json!("28672")),
        ("/config/keyslots_size", json!("1")),
        ("/config/keyslots_size", json!("0")),
        (
            "/config/keyslots_size",
            json!((3 * size + 4096).to_string()),
        ),
        ("/config/keyslots_size", json!((256_u64 << 20).to_string())),
        ("/config/flags", json!("allow-discards")),
        ("/config/flags", json!([1])),
        ("/config/requirements", json!([])),
        ("/config/requirements", json!({"mandatory": "x"})),
        ("/config/requirements", json!({"mandatory": [1]})),
        (
            "/config/requirements",
            json!({"mandatory": ["online-reencrypt", "online-reencrypt-v2"]}),
        ),
    ] {
        let document = with(&base, pointer, value.clone()).to_string();
        assert_refused(&sealed(&image, &document), &format!("{pointer} = {value}"));
    }
}

#[test]
fn thirty_three_keyslots_are_one_too_many() {
    let base = volume();
    let document: Value = serde_json::from_str(&text(&base)).unwrap();
    let mut many = document.clone();
    for id in 1..32 {
        many["keyslots"][id.to_string()] = json!({
            "type": "odd", "key_size": 1,
            "area": {"type": "x", "offset": (AREAS + AREA + id * 4096).to_string(), "size": "1"},
        });
    }
    // 32 are in order.
    let full = sealed(&base, &many.to_string());
    assert_eq!(read(&full).unwrap().keyslots().len(), 32);
    let unlocked = on(&Arc::new(MemStore::from(full.clone())))
        .unlock(&word("old"), None, &LIMITS)
        .unwrap();
    let store = Arc::new(MemStore::from(full));
    let error = on(&store)
        .add_key(&unlocked, &word("new"), None, &fast())
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::Full);
    assert_eq!(store.writes(), 0);
    many["keyslots"]["32"] = json!({
        "type": "odd", "key_size": 1,
        "area": {"type": "x", "offset": (DATA - 4096).to_string(), "size": "1"},
    });
    assert_refused(&sealed(&base, &many.to_string()), "33 keyslots");
}

#[test]
fn hostile_texts_are_refused() {
    let image = volume();
    let good = text(&image);
    let unclosed = &good[..good.len() - 1];
    for bad in [
        String::new(),
        "{}".into(),
        "[]".into(),
        "null".into(),
        unclosed.into(),
        format!("{good}}}"),
        format!(" {good}"),
        format!("{good} "),
        format!("{unclosed},\"config\":{{}}}}"),
        format!("{unclosed},\"x\":{}1{}}}", "[".repeat(200), "]".repeat(200)),
        format!("{unclosed},\"x\":{}", "[".repeat(5000)),
        format!("{unclosed},\"x\":1e999}}"),
        format!("{unclosed},\"x\":{}}}", "9".repeat(400)),
        good.replace("\"keyslots\":{", "\"keyslots\":{\"0\":{},"),
        good.replace('{', "{/**/"),
        good.replace("luks2", "luks2\u{1}"),
    ] {
        // A text that is not touched would prove nothing.
        assert_ne!(bad, good);
        assert_refused(&sealed(&image, &bad), &bad);
    }
    // No NUL at the end, and bytes behind the end.
    let full = format!(
        "{unclosed},\"x\":\"{}\"}}",
        "y".repeat(12288 - good.len() - 7)
    );
    assert_eq!(full.len(), 12288);
    let mut copies = image.clone();
    for (which, start) in [(Which::Primary, 0), (Which::Secondary, COPY)] {
        let mut binary = Binary::parse(&image[start..], which, start as u64).unwrap();
        binary.size *= 2;
        // Encoded for a larger area, cut to this one, checksum made anew.
        let copy = binary.encode(which, &full).unwrap();
        copies[start + 4096..start + COPY].copy_from_slice(&copy[4096..COPY]);
    }
    let reseal = |mut image: Vec<u8>| {
        use sha2::Digest as _;
        for start in [0, COPY] {
            image[start + 448..start + 512].fill(0);
            let sum = sha2::Sha256::digest(&image[start..start + COPY]);
            image[start + 448..start + 480].copy_from_slice(&sum);
        }
        image
    };
    assert_refused(&reseal(copies), "no NUL at the end");
    let mut behind = image.clone();
    behind[COPY - 1] = b'x';
    behind[2 * COPY - 1] = b'x';
    assert_refused(&reseal(behind), "a byte behind the end");
    assert!(read(&reseal(image)).is_ok());
}

#[test]
fn costs_are_estimated_before_they_are_paid() {
    let image = image();
    let base: Value = serde_json::from_str(&text(&image)).unwrap();
    for (pointer, value) in [
        ("/keyslots/0/kdf/iterations", json!(u32::MAX)),
        ("/digests/0/iterations", json!(u32::MAX)),
    ] {
        let image = sealed(&image, &with(&base, pointer, value).to_string());
        let error = on(&Arc::new(MemStore::from(image)))
            .unlock(&word("old"), Some(0), &LIMITS)
            .unwrap_err();
        assert_eq!(error.kind, ErrorKind::TooCostly, "{error}");
    }
    // A slot that costs too much does not keep the others from opening.
    let costly = with(&base, "/keyslots/0/kdf/iterations", json!(u32::MAX));
    let costly = sealed(&image, &costly.to_string());
    assert!(key(&costly, "new").is_ok());
    assert_eq!(key(&costly, "old").unwrap_err().kind, ErrorKind::TooCostly);
    let mut huge = base.clone();
    huge["keyslots"]["0"]["kdf"] = json!({
        "type": "argon2id", "time": 4, "memory": 4_000_000_000_u32, "cpus": 1,
        "salt": base["keyslots"]["0"]["kdf"]["salt"],
    });
    assert!(key(&sealed(&image, &huge.to_string()), "old").is_err());
}

#[test]
fn a_segment_that_ends_nowhere_is_shown_and_not_opened() {
    let image = image();
    let base: Value = serde_json::from_str(&text(&image)).unwrap();
    let endless = with(&base, "/segments/0/size", json!("18446744073709551104"));
    let header = read(&sealed(&image, &endless.to_string())).unwrap();
    assert!(header.dump().to_string().contains("18446744073709551104"));
    for size in [SIZE as u64, u64::MAX] {
        let error = header.segment(size).unwrap_err();
        assert_eq!(error.kind, ErrorKind::TooShort, "{error}");
    }
}

/// A value of any kind.
fn junk() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (0_u32..40).prop_map(Value::from),
        (0_u64..200).prop_map(|n| Value::from((n * 4096).to_string())),
        any::<u64>().prop_map(|n| Value::from(n.to_string())),
        any::<f64>().prop_map(Value::from),
        "[ -~]{0,8}".prop_map(Value::from),
        Just(json!("luks2")),
        Just(json!("reencrypt")),
        Just(json!("argon2id")),
        Just(json!("dynamic")),
        Just(json!([])),
        Just(json!(["0"])),
        Just(json!(["0", "1"])),
        Just(json!({})),
        Just(json!({"mandatory": ["x"]})),
    ]
}

/// Every place in a document, as JSON pointers.
fn pointers(value: &Value, at: &str, all: &mut Vec<String>) {
    let inner: Vec<(String, &Value)> = match value {
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| (name.clone(), value))
            .collect(),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(index, value)| (index.to_string(), value))
            .collect(),
        _ => Vec::new(),
    };
    for (name, value) in inner {
        let at = format!("{at}/{name}");
        all.push(at.clone());
        pointers(value, &at, all);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// Whatever the validator lets through can be used without a panic, and
    /// an edit of it can be read again.
    #[test]
    fn what_is_valid_is_usable(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), junk()), 1..4),
    ) {
        use std::sync::LazyLock;
        static IMAGE: LazyLock<Vec<u8>> = LazyLock::new(image);
        let mut document: Value = serde_json::from_str(&text(&IMAGE)).unwrap();
        for (which, value) in changes {
            let mut all = Vec::new();
            pointers(&document, "", &mut all);
            if all.is_empty() { break; }
            let pointer: &String = which.get(&all);
            *document.pointer_mut(pointer).unwrap() = value;
        }
        let hostile = sealed(&IMAGE, &document.to_string());
        let header = read(&hostile);
        prop_assert_eq!(
            header.is_ok(),
            super::super::document::parse(&document.to_string())
                .and_then(|value| super::super::model::Metadata::parse(&value))
                .and_then(|metadata| metadata.validate(COPY as u64))
                .is_ok()
        );
        let Ok(header) = header else { return Ok(()); };
        let _ = header.segment(SIZE as u64);
        let _ = header.dump().to_string();
        let _ = serde_json::to_string(&header.dump()).unwrap();
        let _ = header.keyslot_info();
        let limits = KdfLimits { longest: Some(Duration::from_millis(50)) };
        let store = Arc::new(MemStore::from(hostile.clone()));
        let device = on(&store);
        let opened = device.unlock(&word("old"), None, &limits);
        prop_assert_eq!(store.writes(), 0);
        if let Ok(unlocked) = opened
            && device.add_key(&unlocked, &word("third"), None, &fast()).is_ok()
        {
            prop_assert!(device.unlock(&word("third"), None, &LIMITS).is_ok());
            let now = device.read().unwrap().keyslots().len();
            prop_assert_eq!(now, header.keyslots().len() + 1);
        }
        for keyslot in header.keyslots() {
            let _ = device.kill_slot(keyslot, true);
        }
        prop_assert!(device.read().is_ok());
    }
}
