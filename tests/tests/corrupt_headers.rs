//! Spoiled and hostile headers through the command: an error or a recovery,
//! never a crash, never a write.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use serde_json::{Value, json};
use xtent_tests::header::{
    COPY, LUKS1_FIELDS, LUKS2_FIELDS, Luks2Copy, edit_json, set_json, spoil,
};
use xtent_tests::luks::{Container, Maker, Pbkdf, Shape, add_key, cryptsetup_opens, xtent_opens};
use xtent_tests::scratch::{assert_same, read_range, write_range};
use xtent_tests::xtent::{Server, xtent};
use xtent_tests::{Finished, Scratch, pattern};

/// Everything that opens a header, each of which must fail or succeed in good
/// order and leave the image alone. Returns the exit codes of the dump and of
/// the test of the key.
fn probe(container: &Container, what: &str) -> (i32, i32) {
    let _named = Named(what);
    let image = &container.image;
    // Metadata and the beginning of the keyslot area: nothing else is read.
    let head = |path: &Path| {
        let len = std::fs::metadata(path).unwrap().len().min(256 << 10);
        read_range(path, 0, usize::try_from(len).unwrap())
    };
    let before = head(image);
    let dump = xtent().args(["header", "dump"]).arg(image);
    let test = xtent()
        .args(["key", "test", "--key-file"])
        .args([&container.key, image]);
    let code = |done: Finished| {
        done.assert_no_crash();
        let code = done.code().unwrap();
        assert!(code <= 4, "{what}: {}", done.text());
        assert!(code == 0 || !done.stderr.is_empty(), "{what}: no message");
        code
    };
    let codes = (code(dump.run()), code(test.run()));
    assert_same(&head(image), &before, what);
    codes
}

/// Says what was tried, should a step panic.
struct Named<'a>(&'a str);

impl Drop for Named<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this was tried: {}", self.0);
        }
    }
}

/// Whether a cost is so high that a derivation takes long, where it is not
/// refused: which depends on the machine, and is tested with the bad input.
fn takes_long(cost: u64) -> bool {
    cost >= 1_000_000
}

#[test]
fn every_field_of_luks1() {
    let scratch = Scratch::new();
    let container = Shape::LUKS1.image(Maker::Cryptsetup, &scratch, 4096);
    let good = read_range(&container.image, 0, 592);
    for &(name, offset, len) in LUKS1_FIELDS {
        for (n, way) in spoil(&good[offset..offset + len]).iter().enumerate() {
            if name.ends_with("iter") || name.ends_with("iterations") {
                let cost = u32::from_be_bytes(way[..4].try_into().unwrap());
                if takes_long(u64::from(cost)) {
                    continue;
                }
            }
            write_range(&container.image, offset as u64, way);
            let what = format!("LUKS1 {name}, way {n}");
            let (dump, test) = probe(&container, &what);
            match name {
                "magic" | "version" => assert_eq!((dump, test), (4, 4), "{what}"),
                // What only serves to derive and to check keys.
                "mk-digest" | "mk-digest-salt" | "slot0-salt" => {
                    assert_ne!(test, 0, "{what}");
                }
                _ => {}
            }
            write_range(&container.image, 0, &good);
        }
    }
    assert!(xtent_opens(&container.image, &container.key));
}

/// One copy spoiled: the other serves. Both: an error.
#[test]
fn every_field_of_luks2_in_either_copy() {
    let scratch = Scratch::new();
    let container = Shape::LUKS2.image(Maker::Cryptsetup, &scratch, 4096);
    let image = &container.image;
    let good = [Luks2Copy::read(image, false), Luks2Copy::read(image, true)];
    for &(name, offset, len) in LUKS2_FIELDS {
        for n in 0..8 {
            let spoiled: Vec<Option<Luks2Copy>> = good
                .iter()
                .map(|copy| {
                    let way = spoil(&copy.bytes[offset..offset + len]).get(n)?.clone();
                    let mut copy = copy.clone();
                    copy.bytes[offset..offset + len].copy_from_slice(&way);
                    Some(copy)
                })
                .collect();
            let [Some(first), Some(second)] = &spoiled[..] else {
                continue;
            };
            for (which, expected) in [("first", 0), ("second", 0), ("both", 4)] {
                if which != "second" {
                    first.write(image, false);
                }
                if which != "first" {
                    second.write(image, true);
                }
                let what = format!("LUKS2 {name}, way {n}, {which}");
                let found = probe(&container, &what);
                // An unknown version may be a format to come: refused at once.
                if name != "version" || which != "first" || found != (4, 4) {
                    assert_eq!(found, (expected, expected), "{what}");
                }
                good[0].write(image, false);
                good[1].write(image, true);
            }
        }
    }
}

/// The same with a checksum that fits: nothing but validation is left to
/// notice.
#[test]
fn every_field_of_luks2_signed() {
    let scratch = Scratch::new();
    let container = Shape::LUKS2.image(Maker::Cryptsetup, &scratch, 4096);
    let image = &container.image;
    let good = [Luks2Copy::read(image, false), Luks2Copy::read(image, true)];
    for &(name, offset, len) in LUKS2_FIELDS {
        for n in 0..8 {
            for which in ["first", "second", "both"] {
                for (second, copy) in [(false, &good[0]), (true, &good[1])] {
                    let is_hit = matches!(
                        (which, second),
                        ("both", _) | ("first", false) | ("second", true)
                    );
                    let way = spoil(&copy.bytes[offset..offset + len]).get(n).cloned();
                    if let (true, Some(way)) = (is_hit, way) {
                        let mut copy = copy.clone();
                        copy.bytes[offset..offset + len].copy_from_slice(&way);
                        if name != "csum" {
                            copy.sign();
                        }
                        copy.write(image, second);
                    }
                }
                probe(
                    &container,
                    &format!("LUKS2 {name}, way {n}, {which}, signed"),
                );
                good[0].write(image, false);
                good[1].write(image, true);
            }
        }
    }
    assert!(xtent_opens(image, &container.key));
}

/// Files that end too early, everywhere that matters.
#[test]
fn truncated_headers() {
    let scratch = Scratch::new();
    for shape in [Shape::LUKS1, Shape::LUKS2] {
        let container = shape.image(Maker::Cryptsetup, &scratch, 4096);
        let whole = std::fs::read(&container.image).unwrap();
        for len in [
            0,
            1,
            5,
            6,
            8,
            207,
            208,
            511,
            512,
            591,
            592,
            593,
            1024,
            4095,
            4096,
            4097,
            8192,
            16383,
            16384,
            16385,
            20480,
            32767,
            32768,
            65536,
            131_072,
            258_048,
            1 << 20,
        ] {
            let container = Container {
                image: scratch.join("cut"),
                key: container.key.clone(),
            };
            std::fs::write(&container.image, &whole[..len]).unwrap();
            let what = format!("{shape} cut to {len} bytes");
            let (_, test) = probe(&container, &what);
            if len <= 16384 {
                assert_eq!(test, 4, "{what}");
            }
            // Whether or not the key area is whole, there is no data.
            let served = Server::command(&container, &scratch.join("sock"), &[]).run();
            served.assert_no_crash();
            assert_eq!(served.code(), Some(4), "{what}: {}", served.text());
        }
    }
}

/// Reading commands use the good copy and say so; the next that writes mends
/// the bad one.
#[test]
fn a_header_with_one_good_copy_is_used_and_mended() {
    let scratch = Scratch::new();
    for second in [false, true] {
        let folder = Scratch::new();
        let container = Shape::LUKS2.image(Maker::Cryptsetup, &folder, 1 << 20);
        let data = pattern(1 << 20, 31);
        container.encrypt(&data);
        let damage = if second { COPY as u64 } else { 0 };
        write_range(&container.image, damage + 100, &[0; 200]);
        let dump = xtent().args(["header", "dump"]).arg(&container.image).ok();
        let said = format!("{}{}", dump.out(), dump.stderr).to_lowercase();
        assert!(
            said.contains("recover") || said.contains("damaged") || said.contains("cop"),
            "not a word about the bad copy: {}",
            dump.text()
        );
        assert_same(&container.decrypt(), &data, "from the good copy");
        let new = scratch.file(&format!("new{second}"), b"new");
        add_key(2, &container.image, &container.key, &new).ok();
        let copies = [
            Luks2Copy::read(&container.image, false),
            Luks2Copy::read(&container.image, true),
        ];
        assert_eq!(copies[0].json(), copies[1].json());
        assert!(cryptsetup_opens(&container.image, &new));
        assert_same(&container.decrypt(), &data, "after mending");
    }
}

/// Well-signed JSON that says impossible or evil things.
#[test]
fn hostile_json() {
    let scratch = Scratch::new();
    let shape = Shape {
        pbkdf: Pbkdf::Argon2id,
        ..Shape::LUKS2
    };
    let container = shape.image(Maker::Cryptsetup, &scratch, 1 << 20);
    let image = &container.image;
    let good = Luks2Copy::read(image, false).json();
    let text = good.to_string();

    let mut hostile: Vec<(String, Vec<u8>)> = Vec::new();
    for raw in [
        "",
        " ",
        "{",
        "}",
        "[]",
        "null",
        "0",
        "\"\"",
        "{}",
        "{\"keyslots\":{}}",
        "{\"a\":NaN}",
        "{\"keyslots\":1e999}",
    ] {
        hostile.push((format!("text {raw:?}"), raw.into()));
    }
    hostile.push(("nested arrays".into(), vec![b'['; 12000]));
    hostile.push(("nested objects".into(), b"{\"a\":".repeat(2400)));
    hostile.push(("no end".into(), vec![b' '; 12288]));
    hostile.push((
        "not UTF-8".into(),
        text.replacen("luks2", "\u{1}", 1).into(),
    ));
    hostile.push(("garbage behind".into(), format!("{text}garbage").into()));
    hostile.push(("a second document".into(), format!("{text}{text}").into()));
    hostile.push((
        "the same name twice".into(),
        text.replacen("\"config\":", "\"config\":{},\"config\":", 1)
            .into(),
    ));
    let mut broken = text.clone().into_bytes();
    broken[20] = 0xff;
    hostile.push(("a bad byte".into(), broken));

    let numbers = [
        json!(0),
        json!(1),
        json!(-1),
        json!(3),
        json!(513),
        json!(8192),
        json!(1.5),
        json!(2_147_483_648_u64),
        json!(4_294_967_295_u64),
        json!(4_294_967_296_u64),
        json!(u64::MAX),
        json!(1e300),
        json!("0"),
        json!("1"),
        json!("-1"),
        json!("511"),
        json!("4096"),
        json!("18446744073709551615"),
        json!("18446744073709551104"),
        json!("9223372036854775807"),
        json!("99999999999999999999999"),
        json!("0x10"),
        json!("1 "),
        json!("dynamic"),
        json!(""),
        json!("x".repeat(4000)),
        json!("a\u{0}b"),
        json!("\u{202e}%s%n"),
        json!(null),
        json!(true),
        json!([]),
        json!({}),
        json!(["0"]),
        json!(["99"]),
        json!(["0", "0"]),
    ];
    for path in leaves(&good) {
        for value in &numbers {
            let mut json = good.clone();
            *json.pointer_mut(&path).unwrap() = value.clone();
            let is_cost = ["/iterations", "/time"].iter().any(|n| path.ends_with(n));
            if is_cost && value.as_u64().is_some_and(takes_long) {
                continue;
            }
            if json != good {
                let shown: String = value.to_string().chars().take(40).collect();
                hostile.push((format!("{path} = {shown}"), json.to_string().into()));
            }
        }
        let mut json = good.clone();
        let (parent, name) = path.rsplit_once('/').unwrap();
        if let Some(object) = json.pointer_mut(parent).and_then(Value::as_object_mut) {
            object.remove(name);
            hostile.push((format!("without {path}"), json.to_string().into()));
        }
    }
    for (what, change) in structural() {
        let mut json = good.clone();
        change(&mut json);
        hostile.push((what.to_owned(), json.to_string().into()));
    }

    for (what, json) in &hostile {
        set_json(image, json);
        probe(&container, what);
    }
    // The same image, whole again, still opens: the loop above tested what it
    // says it did.
    set_json(image, text.as_bytes());
    assert!(xtent_opens(image, &container.key));
}

type Change = fn(&mut Value);

/// Changes to more than one value.
fn structural() -> Vec<(&'static str, Change)> {
    vec![
        ("keyslot 99", |j| {
            let slot = j["keyslots"]["0"].clone();
            j["keyslots"]["99"] = slot;
        }),
        ("two keyslots in one area", |j| {
            let slot = j["keyslots"]["0"].clone();
            j["keyslots"]["1"] = slot;
        }),
        ("keyslot \"-1\"", |j| {
            let slot = j["keyslots"]["0"].clone();
            j["keyslots"]["-1"] = slot;
        }),
        ("no digests", |j| j["digests"] = json!({})),
        ("no segments", |j| j["segments"] = json!({})),
        ("two segments that overlap", |j| {
            let segment = j["segments"]["0"].clone();
            j["segments"]["1"] = segment;
        }),
        ("segment in the header", |j| {
            j["segments"]["0"]["offset"] = json!("4096");
        }),
        ("keyslot area in the header", |j| {
            j["keyslots"]["0"]["area"]["offset"] = json!("4096");
        }),
        ("keyslot area in the data", |j| {
            j["keyslots"]["0"]["area"]["offset"] = json!("16777216");
        }),
        ("an unknown requirement", |j| {
            j["config"]["requirements"] = json!({"mandatory": ["time-travel"]});
        }),
        ("reencryption in progress", |j| {
            j["config"]["requirements"] = json!({"mandatory": ["online-reencrypt-v2"]});
        }),
        ("Argon2 of 4 TiB", |j| {
            j["keyslots"]["0"]["kdf"]["memory"] = json!(4_294_967_295_u64);
        }),
        ("Argon2 for years", |j| {
            j["keyslots"]["0"]["kdf"]["time"] = json!(4_294_967_295_u64);
        }),
    ]
}

/// JSON pointers to everything that is not an object.
fn leaves(value: &Value) -> Vec<String> {
    match value {
        Value::Object(object) => object
            .iter()
            .flat_map(|(name, inner)| {
                leaves(inner)
                    .into_iter()
                    .map(move |path| format!("/{name}{path}"))
            })
            .chain(std::iter::empty())
            .collect(),
        _ => vec![String::new()],
    }
}

/// What nobody here understands is kept: tokens, flags, other keyslot types.
#[test]
fn unknown_content_is_kept() {
    let scratch = Scratch::new();
    let container = Shape::LUKS2.image(Maker::Cryptsetup, &scratch, 4096);
    let image = &container.image;
    let token = json!({"type": "x-ours", "keyslots": ["0"], "blob": {"deep": ["ü", 1, null]}});
    edit_json(image, |j| {
        j["tokens"]["5"] = token.clone();
        j["config"]["flags"] = json!(["no-read-workqueue", "x-flag"]);
    });
    let new = scratch.file("new", b"new");
    add_key(2, image, &container.key, &new).ok();
    let after = Luks2Copy::read(image, false).json();
    assert_eq!(after["tokens"]["5"], token);
    assert_eq!(
        after["config"]["flags"],
        json!(["no-read-workqueue", "x-flag"])
    );
    assert!(cryptsetup_opens(image, &new));
}
