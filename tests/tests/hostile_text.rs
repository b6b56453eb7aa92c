//! Whoever made a volume chose its label, its tokens and every name in its header; whoever
//! made its file, the file's name. None of that may do anything to the terminal of the one
//! who looks at it, nor look as if Xtent had said it.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use serde_json::{Value, json};
use xtent_tests::header::{COPY, Luks2Copy, edit_json, set_json};
use xtent_tests::luks::{Maker, Shape};
use xtent_tests::scratch::{read_range, write_range};
use xtent_tests::xtent::xtent;
use xtent_tests::{Scratch, pattern};

/// Red, and the screen's other sequences; then a line of its own.
const HOSTILE: &str = "\u{1b}[31m\u{9b}2J\u{7}\r\u{202e}\nFORGED";

/// Every command that shows something of a volume, with the arguments before and after it.
const COMMANDS: &[(&str, &str)] = &[
    ("header dump", ""),
    ("key list", ""),
    ("key test --key-file KEY", ""),
    (
        "key add --key-file KEY --new-key-file KEY --pbkdf pbkdf2 --pbkdf-force-iterations 1000",
        "",
    ),
    ("key kill -q", "7"),
    ("token list", ""),
    ("token export --token-id 0", ""),
    ("token add --key-description x", ""),
    ("config --label x", ""),
    ("uuid", ""),
    ("is-luks", ""),
    ("convert -q --no-backup --type luks1", ""),
    ("header repair", ""),
    ("header backup", "BACKUP"),
    ("header restore -q", "BACKUP"),
    ("decrypt --key-file KEY", "OUT"),
    ("status", ""),
    ("bench --no-kdf --key-file NONE", ""),
];

/// Runs all of them, in words and as JSON and with all logs, and finds what they say wrongly.
fn look(scratch: &Scratch, image: &Path, what: &str, found: &mut Vec<String>) {
    let copy = scratch.join("copy\u{1b}[31m\nFORGED");
    let path = |name: &str| scratch.join(name).to_str().unwrap().to_owned();
    let good = path("saved");
    std::fs::copy(image, &copy).unwrap();
    let headers = read_range(image, 0, 2 * COPY);
    for options in ["", "--json", "-vvv"] {
        for (before, after) in COMMANDS {
            write_range(&copy, 0, &headers);
            for name in ["out", "backup"] {
                let _ = std::fs::remove_file(path(name));
            }
            if before.starts_with("header restore") {
                std::fs::copy(&good, path("backup")).unwrap();
            }
            let word = |word: &str| match word {
                "KEY" => path("key"),
                "BACKUP" => path("backup"),
                "OUT" => path("out"),
                "NONE" => path("none"),
                _ => word.to_owned(),
            };
            let command = xtent()
                .args(options.split_whitespace())
                .args(before.split_whitespace().map(word))
                .arg(&copy)
                .args(after.split_whitespace().map(word));
            let done = command.run();
            done.assert_no_crash();
            let text = format!("{}{}", done.out(), done.stderr);
            let is_obeyed = |c: char| c.is_control() && c != '\n' && c != '\t' || c == '\u{202e}';
            let is_forged = text.lines().any(|line| line.starts_with("FORGED"));
            if text.contains(is_obeyed) || is_forged {
                found.push(format!("{what}, {options} {before}: {text:?}"));
            }
        }
    }
}

#[test]
fn nothing_that_a_volume_says_reaches_the_terminal_raw() {
    let scratch = Scratch::new();
    let made = Shape::LUKS2.image(Maker::Cryptsetup, &scratch, 1 << 20);
    std::fs::copy(&made.key, scratch.join("key")).unwrap();
    xtent()
        .args(["header", "backup"])
        .arg(&made.image)
        .arg(scratch.join("saved"))
        .ok();
    let image = scratch.join("hostile");
    let mut found = Vec::new();
    let fresh = || std::fs::copy(&made.image, &image).unwrap();

    // The fields of the binary header.
    for (what, at) in [("label", 24), ("uuid", 168), ("subsystem", 208)] {
        fresh();
        for second in [false, true] {
            let mut copy = Luks2Copy::read(&image, second);
            copy.bytes[at..at + 36].fill(0);
            copy.bytes[at..at + HOSTILE.len()].copy_from_slice(HOSTILE.as_bytes());
            copy.sign();
            copy.write(&image, second);
        }
        look(&scratch, &image, what, &mut found);
    }
    // Those of the JSON: texts, and names that nobody knows.
    let token = json!({ "type": HOSTILE, "keyslots": ["0"], "tang": HOSTILE });
    for (place, value) in [
        ("/tokens/0", token),
        ("/config/flags", json!([HOSTILE])),
        ("/config/requirements", json!({ "mandatory": [HOSTILE] })),
        ("/segments/0/encryption", json!(HOSTILE)),
        ("/segments/0/type", json!(HOSTILE)),
        ("/segments/0/size", json!(HOSTILE)),
        ("/segments/0/flags", json!([HOSTILE])),
        (
            "/segments/0/integrity",
            json!({ "type": HOSTILE, "journal_encryption": "none", "journal_integrity": "none" }),
        ),
        ("/keyslots/0/type", json!(HOSTILE)),
        ("/keyslots/0/kdf/type", json!(HOSTILE)),
        ("/keyslots/0/kdf/hash", json!(HOSTILE)),
        ("/keyslots/0/kdf/salt", json!(HOSTILE)),
        ("/keyslots/0/af/hash", json!(HOSTILE)),
        ("/keyslots/0/af/type", json!(HOSTILE)),
        ("/keyslots/0/area/encryption", json!(HOSTILE)),
        ("/keyslots/0/area/type", json!(HOSTILE)),
        ("/keyslots/0/priority", json!(HOSTILE)),
        ("/digests/0/hash", json!(HOSTILE)),
        ("/digests/0/type", json!(HOSTILE)),
        ("/digests/0/segments", json!([HOSTILE])),
        (HOSTILE, json!(HOSTILE)),
    ] {
        fresh();
        edit_json(&image, |document| put(document, place, value));
        look(&scratch, &image, place, &mut found);
    }
    // No JSON at all, and no LUKS.
    fresh();
    set_json(&image, HOSTILE.as_bytes());
    look(&scratch, &image, "no JSON", &mut found);
    std::fs::write(&image, pattern(1 << 20, 7)).unwrap();
    look(&scratch, &image, "noise", &mut found);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Puts a value in its place, which is made if there is none.
fn put(document: &mut Value, place: &str, value: Value) {
    let mut at = document;
    for name in place.trim_start_matches('/').split('/') {
        if !at.is_object() {
            *at = json!({});
        }
        at = at
            .as_object_mut()
            .unwrap()
            .entry(name)
            .or_insert(Value::Null);
    }
    *at = value;
}
