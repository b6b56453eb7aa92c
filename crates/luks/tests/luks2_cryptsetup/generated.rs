//! Mangled headers of the kinds that cryptsetup's own generators make, with
//! good checksums: both programs have to agree which are headers, or the table
//! says why not.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::*;

/// A change to a header's JSON.
type Change = fn(&mut Value);

/// Damage to one copy.
type Spoil = fn(&mut [u8]);

/// Bytes of binary header in front of the JSON area.
const BINARY: usize = 4096;

/// The sizes that a copy of the header may have.
const SIZES: [usize; 9] = [
    16 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    512 << 10,
    1 << 20,
    2 << 20,
    4 << 20,
];

/// A volume with two keyslots and a token, by cryptsetup, as bytes.
fn image(bed: &Bed, copy: usize) -> Vec<u8> {
    bed.image("made", 20 << 20);
    let copy = copy.to_string();
    bed.format(
        "made",
        &[
            "--luks2-metadata-size",
            &copy,
            "--luks2-keyslots-size",
            "1048576",
        ],
    );
    let fast = ["--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000"];
    bed.ok(&[&["luksAddKey", "-d", "one"], &fast[..], &["made", "two"]].concat());
    bed.ok(&["token", "add", "--key-description", "x", "made"]);
    fs::read(bed.path("made")).unwrap()
}

/// Puts a checksum right.
fn seal(copy: &mut [u8]) {
    copy[448..512].fill(0);
    let sum = Sha256::digest(&*copy);
    copy[448..480].copy_from_slice(&sum);
}

/// Writes `text` to both copies, of `size` bytes each.
fn set_text(image: &mut [u8], size: usize, text: &[u8]) {
    for start in [0, size] {
        let copy = &mut image[start..start + size];
        copy[BINARY..].fill(0);
        copy[BINARY..BINARY + text.len()].copy_from_slice(text);
        seal(copy);
    }
}

fn text(image: &[u8], size: usize) -> String {
    let area = &image[BINARY..size];
    let end = area.iter().position(|byte| *byte == 0).unwrap();
    String::from_utf8(area[..end].to_vec()).unwrap()
}

/// Whether we, and whether they, read it; ours must not write.
fn verdicts(bed: &Bed, image: &[u8]) -> (Result<(), String>, bool) {
    fs::write(bed.path("case"), image).unwrap();
    let ours = bed
        .device("case")
        .read()
        .map(drop)
        .map_err(|e| e.to_string());
    assert!(
        fs::read(bed.path("case")).unwrap() == image,
        "reading wrote"
    );
    let theirs = bed.run(&["luksDump", "case"]).status.success();
    (ours, theirs)
}

/// Bytes of JSON whose text is not what it should be.
#[test]
fn texts() {
    let bed = Bed::new();
    let size = SIZES[0];
    let good = image(&bed, size);
    let text = text(&good, size).into_bytes();
    let room = size - BINARY;
    let pad = |text: &[u8], length: usize| {
        let mut text = text.to_vec();
        text.resize(length, b' ');
        text
    };
    for (what, text, is_header) in [
        ("as it was", text.clone(), true),
        ("no opening brace", text[1..].to_vec(), false),
        ("no closing brace", text[..text.len() - 1].to_vec(), false),
        ("a blank in front", [b" ", &text[..]].concat(), false),
        ("bytes behind its end", [&text[..], b"\0x"].concat(), false),
        ("garbage behind", [&text[..], b"x"].concat(), false),
        ("another brace", [&text[..], b"}"].concat(), false),
        ("no NUL", pad(&text, room), false),
        ("nothing", Vec::new(), false),
        ("an array", b"[]".to_vec(), false),
        ("an empty object", b"{}".to_vec(), false),
    ] {
        let mut image = good.clone();
        set_text(&mut image, size, &text);
        let (ours, theirs) = verdicts(&bed, &image);
        assert_eq!(ours.is_ok(), is_header, "{what}: {ours:?}");
        assert_eq!(theirs, is_header, "{what}");
    }
}

/// What a case is: its name, the change, and why the verdicts differ if they do.
const CASES: &[(&str, Change, Option<&str>)] = &[
    ("nothing", |_| {}, None),
    // Areas.
    (
        "area in the header",
        |j| j["keyslots"]["0"]["area"]["offset"] = json!("4096"),
        None,
    ),
    (
        "area in the second header",
        |j| j["keyslots"]["0"]["area"]["offset"] = json!("16384"),
        None,
    ),
    (
        "area at 0",
        |j| j["keyslots"]["0"]["area"]["offset"] = json!("0"),
        None,
    ),
    (
        "area behind the room",
        |j| j["keyslots"]["0"]["area"]["offset"] = json!("1081344"),
        None,
    ),
    (
        "area beyond 2^64",
        |j| j["keyslots"]["0"]["area"]["offset"] = json!("18446744073709547520"),
        None,
    ),
    (
        "area too large",
        |j| j["keyslots"]["1"]["area"]["size"] = json!("1048576"),
        None,
    ),
    (
        "area of nothing",
        |j| j["keyslots"]["0"]["area"]["size"] = json!("0"),
        None,
    ),
    (
        "area too small",
        |j| j["keyslots"]["0"]["area"]["size"] = json!("4096"),
        Some("cryptsetup notices when it opens the keyslot"),
    ),
    (
        "areas overlap",
        |j| j["keyslots"]["1"]["area"] = j["keyslots"]["0"]["area"].clone(),
        None,
    ),
    (
        "area without type",
        |j| remove(j, "/keyslots/0/area", "type"),
        None,
    ),
    (
        "area without size",
        |j| remove(j, "/keyslots/0/area", "size"),
        None,
    ),
    (
        "area without offset",
        |j| remove(j, "/keyslots/0/area", "offset"),
        None,
    ),
    (
        "area without cipher",
        |j| remove(j, "/keyslots/0/area", "encryption"),
        None,
    ),
    (
        "area offset as number",
        |j| j["keyslots"]["0"]["area"]["offset"] = json!(32768),
        None,
    ),
    // Keyslots.
    (
        "keyslot without digest",
        |j| j["digests"]["0"]["keyslots"] = json!(["0"]),
        None,
    ),
    (
        "keyslot without kdf",
        |j| remove(j, "/keyslots/0", "kdf"),
        None,
    ),
    (
        "keyslot without af",
        |j| remove(j, "/keyslots/0", "af"),
        None,
    ),
    (
        "keyslot without area",
        |j| remove(j, "/keyslots/0", "area"),
        None,
    ),
    (
        "keyslot without type",
        |j| remove(j, "/keyslots/0", "type"),
        None,
    ),
    (
        "keyslot without size",
        |j| remove(j, "/keyslots/0", "key_size"),
        None,
    ),
    (
        "keyslot of size -1",
        |j| j["keyslots"]["0"]["key_size"] = json!(-1),
        None,
    ),
    (
        "keyslot without salt",
        |j| remove(j, "/keyslots/0/kdf", "salt"),
        None,
    ),
    (
        "keyslot with a number for a salt",
        |j| j["keyslots"]["0"]["kdf"]["salt"] = json!(7),
        None,
    ),
    (
        "keyslot 32",
        |j| j["keyslots"]["32"] = j["keyslots"]["0"].clone(),
        None,
    ),
    ("keyslot 00", |j| rename(j, "/keyslots", "1", "01"), None),
    (
        "keyslot by name",
        |j| rename(j, "/keyslots", "1", "x"),
        None,
    ),
    (
        "priority 3",
        |j| j["keyslots"]["0"]["priority"] = json!(3),
        Some("cryptsetup takes it for none"),
    ),
    (
        "priority as text",
        |j| j["keyslots"]["0"]["priority"] = json!("1"),
        Some("cryptsetup takes it for none"),
    ),
    (
        "priority 0",
        |j| j["keyslots"]["0"]["priority"] = json!(0),
        None,
    ),
    ("keyslots as array", |j| j["keyslots"] = json!([]), None),
    ("no keyslots member", |j| remove(j, "", "keyslots"), None),
    // Digests.
    (
        "digest for a missing keyslot",
        |j| push(j, "/digests/0/keyslots", json!("7")),
        None,
    ),
    (
        "digest for a missing segment",
        |j| push(j, "/digests/0/segments", json!("7")),
        None,
    ),
    (
        "digest without keyslots",
        |j| remove(j, "/digests/0", "keyslots"),
        None,
    ),
    (
        "digest without segments",
        |j| remove(j, "/digests/0", "segments"),
        None,
    ),
    (
        "digest without type",
        |j| remove(j, "/digests/0", "type"),
        None,
    ),
    (
        "digest without digest",
        |j| remove(j, "/digests/0", "digest"),
        Some("cryptsetup notices when it checks a key"),
    ),
    (
        "digest with numbers",
        |j| j["digests"]["0"]["keyslots"] = json!([0, 1]),
        None,
    ),
    ("no digests member", |j| remove(j, "", "digests"), None),
    // Segments.
    (
        "segment without type",
        |j| remove(j, "/segments/0", "type"),
        None,
    ),
    (
        "segment without offset",
        |j| remove(j, "/segments/0", "offset"),
        None,
    ),
    (
        "segment without size",
        |j| remove(j, "/segments/0", "size"),
        None,
    ),
    (
        "segment without cipher",
        |j| remove(j, "/segments/0", "encryption"),
        None,
    ),
    (
        "segment without tweak",
        |j| remove(j, "/segments/0", "iv_tweak"),
        None,
    ),
    (
        "segment without sector size",
        |j| remove(j, "/segments/0", "sector_size"),
        None,
    ),
    (
        "segment with sectors of -1",
        |j| j["segments"]["0"]["sector_size"] = json!(-1024),
        None,
    ),
    (
        "segment with sectors of 4097",
        |j| j["segments"]["0"]["sector_size"] = json!(4097),
        None,
    ),
    (
        "segment of size 0",
        |j| j["segments"]["0"]["size"] = json!("0"),
        None,
    ),
    (
        "segment of 4096",
        |j| j["segments"]["0"]["size"] = json!("4096"),
        None,
    ),
    (
        "segment of 512 + 1",
        |j| j["segments"]["0"]["size"] = json!("513"),
        None,
    ),
    (
        "segment of 2^64 - 512",
        |j| j["segments"]["0"]["size"] = json!("18446744073709551104"),
        None,
    ),
    (
        "segment of 2^64",
        |j| j["segments"]["0"]["size"] = json!("18446744073709551616"),
        None,
    ),
    (
        "segment of -512",
        |j| j["segments"]["0"]["size"] = json!("-512"),
        None,
    ),
    (
        "segment size as number",
        |j| j["segments"]["0"]["size"] = json!(4096),
        None,
    ),
    (
        "segment in the keyslots",
        |j| j["segments"]["0"]["offset"] = json!("65536"),
        None,
    ),
    (
        "segment 1 without 0",
        |j| rename(j, "/segments", "0", "1"),
        None,
    ),
    ("segments none", |j| j["segments"] = json!({}), None),
    (
        "segment twice",
        |j| j["segments"]["1"] = j["segments"]["0"].clone(),
        None,
    ),
    (
        "segment of no known type",
        |j| j["segments"]["0"]["type"] = json!("other"),
        None,
    ),
    (
        "segment integrity half",
        |j| j["segments"]["0"]["integrity"] = json!({"type": "hmac(sha256)"}),
        None,
    ),
    (
        "segment flags as text",
        |j| j["segments"]["0"]["flags"] = json!("x"),
        None,
    ),
    (
        "segment flags",
        |j| j["segments"]["0"]["flags"] = json!(["x"]),
        None,
    ),
    (
        "backup before data",
        |j| {
            j["segments"]["1"] = j["segments"]["0"].clone();
            j["segments"]["0"]["flags"] = json!(["backup-x"]);
        },
        None,
    ),
    // Tokens.
    (
        "token for a missing keyslot",
        |j| push(j, "/tokens/0/keyslots", json!("7")),
        None,
    ),
    (
        "token without keyslots",
        |j| remove(j, "/tokens/0", "keyslots"),
        None,
    ),
    (
        "token without type",
        |j| remove(j, "/tokens/0", "type"),
        None,
    ),
    (
        "token of no known type",
        |j| j["tokens"]["0"]["type"] = json!("other"),
        None,
    ),
    ("no tokens member", |j| remove(j, "", "tokens"), None),
    // Config.
    ("no config", |j| remove(j, "", "config"), None),
    (
        "json_size too small",
        |j| j["config"]["json_size"] = json!("4096"),
        None,
    ),
    (
        "json_size of the copy",
        |j| j["config"]["json_size"] = json!("16384"),
        None,
    ),
    (
        "json_size as number",
        |j| j["config"]["json_size"] = json!(12288),
        None,
    ),
    (
        "json_size beyond 2^64",
        |j| j["config"]["json_size"] = json!("18446744073709551616"),
        None,
    ),
    ("no json_size", |j| remove(j, "/config", "json_size"), None),
    (
        "no keyslots_size",
        |j| remove(j, "/config", "keyslots_size"),
        None,
    ),
    (
        "keyslots_size 0",
        |j| j["config"]["keyslots_size"] = json!("0"),
        None,
    ),
    (
        "keyslots_size odd",
        |j| j["config"]["keyslots_size"] = json!("1048577"),
        None,
    ),
    (
        "keyslots_size into the data",
        |j| j["config"]["keyslots_size"] = json!("17825792"),
        None,
    ),
    (
        "keyslots_size of 2^64 - 4096",
        |j| j["config"]["keyslots_size"] = json!("18446744073709547520"),
        None,
    ),
    (
        "keyslots_size over 128 MiB",
        |j| j["config"]["keyslots_size"] = json!("134221824"),
        None,
    ),
    (
        "config flags as text",
        |j| j["config"]["flags"] = json!("allow-discards"),
        None,
    ),
    (
        "config flags of numbers",
        |j| j["config"]["flags"] = json!([1]),
        None,
    ),
    (
        "config flags unknown",
        |j| j["config"]["flags"] = json!(["other"]),
        None,
    ),
    (
        "requirements as array",
        |j| j["config"]["requirements"] = json!([]),
        None,
    ),
    (
        "requirements of text",
        |j| j["config"]["requirements"] = json!({"mandatory": "x"}),
        None,
    ),
    (
        "requirements of numbers",
        |j| j["config"]["requirements"] = json!({"mandatory": [1]}),
        None,
    ),
    (
        "requirements unknown",
        |j| j["config"]["requirements"] = json!({"mandatory": ["x"]}),
        None,
    ),
    (
        "requirements empty",
        |j| j["config"]["requirements"] = json!({"mandatory": []}),
        None,
    ),
    (
        "reencryption without a keyslot",
        |j| j["config"]["requirements"] = json!({"mandatory": ["online-reencrypt"]}),
        Some("we show it, and refuse to open or change it"),
    ),
    (
        "root as it is, and more",
        |j| j["more"] = json!({"a": [1, "b"]}),
        None,
    ),
];

fn remove(json: &mut Value, place: &str, name: &str) {
    let object = json.pointer_mut(place).unwrap();
    object.as_object_mut().unwrap().remove(name).unwrap();
}

fn push(json: &mut Value, place: &str, item: Value) {
    let array = json.pointer_mut(place).unwrap();
    array.as_array_mut().unwrap().push(item);
}

fn rename(json: &mut Value, place: &str, from: &str, to: &str) {
    let object = json.pointer_mut(place).unwrap().as_object_mut().unwrap();
    let value = object.remove(from).unwrap();
    object.insert(to.to_owned(), value);
}

#[test]
fn documents() {
    let bed = Bed::new();
    let size = SIZES[0];
    let good = image(&bed, size);
    let base: Value = serde_json::from_str(&text(&good, size)).unwrap();
    let mut wrong = Vec::new();
    for (what, change, why) in CASES {
        let mut json = base.clone();
        change(&mut json);
        let mut image = good.clone();
        set_text(&mut image, size, json.to_string().as_bytes());
        let (ours, theirs) = verdicts(&bed, &image);
        let expected = theirs != why.is_some();
        if ours.is_ok() != expected {
            wrong.push(format!("{what}: {ours:?}, cryptsetup takes it: {theirs}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Every size of metadata, with either copy damaged in several ways.
#[test]
fn sizes_and_damage() {
    let bed = Bed::new();
    for size in SIZES {
        let good = image(&bed, size);
        assert_eq!(unlock(&bed.device("made"), "two").unwrap().keyslot, Some(1));
        let damage: [(&str, Spoil); 5] = [
            ("a bit", |copy| copy[BINARY + 9] ^= 1),
            ("the checksum", |copy| copy[450] ^= 1),
            ("the magic", |copy| copy[..6].fill(0)),
            ("its size, sealed", |copy| {
                let size = u64::from_be_bytes(*copy[8..].first_chunk().unwrap());
                copy[8..16].copy_from_slice(&(size + 4096).to_be_bytes());
                seal(copy);
            }),
            ("its place, sealed", |copy| {
                copy[256..264].copy_from_slice(&512_u64.to_be_bytes());
                seal(copy);
            }),
        ];
        // All ways at the ends of the scale, the first one in between.
        let ways = if [SIZES[0], SIZES[8]].contains(&size) {
            5
        } else {
            1
        };
        for (what, spoil) in damage.into_iter().take(ways) {
            for (first, second) in [(true, false), (false, true), (true, true)] {
                let mut image = good.clone();
                if first {
                    spoil(&mut image[..size]);
                }
                if second {
                    spoil(&mut image[size..2 * size]);
                }
                let (ours, theirs) = verdicts(&bed, &image);
                let name = format!("{what} of {size} bytes, first {first}, second {second}");
                assert_eq!(ours.is_ok(), !(first && second), "{name}: {ours:?}");
                assert_eq!(theirs, !(first && second), "{name}");
                if ours.is_ok() {
                    fs::write(bed.path("case"), &image).unwrap();
                    let device = bed.device("case");
                    assert!(device.read().unwrap().is_recovered(), "{name}");
                    assert!(device.repair().unwrap(), "{name}");
                    assert_eq!(bed.opens("case", "one"), Some(0), "{name}");
                }
            }
        }
    }
}
