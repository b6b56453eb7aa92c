//! What an administrator does to metadata, beside cryptsetup on the same files.
#![allow(clippy::unwrap_used, reason = "a panic is how tests fail")]

mod common;

use std::process::Command;

use common::{Bed, Said};

/// Runs cryptsetup in the bed's folder; standard input is empty.
fn cryptsetup(bed: &Bed, line: &str) -> Said {
    let output = Command::new("cryptsetup")
        .arg("-q")
        .args(line.split(' '))
        .current_dir(bed.dir())
        .stdin(std::process::Stdio::null())
        .output()
        .expect("cryptsetup, of package cryptsetup-bin");
    Said {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

#[test]
fn keyslots_of_priority_ignore_want_to_be_named() {
    let bed = Bed::with_luks2();
    cryptsetup(&bed, "config --priority ignore --key-slot 0 disk.img").ok();
    let cheap = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000";
    let add = format!("key add {cheap} --new-key-file other");
    for command in ["key test", "key remove", &add, "serve"] {
        let said = bed
            .run(&format!("{command} --key-file key disk.img"))
            .failed(1, &["keyslot 0 has priority \"ignore\"", "--key-slot N"]);
        assert!(!said.err.contains("backup"), "{said:?}");
    }
    let theirs = cryptsetup(&bed, "open --test-passphrase --key-file key disk.img");
    assert_eq!(theirs.code, Some(1), "{theirs:?}");
    bed.run(&format!("{add} --key-file key --key-slot 0 disk.img"))
        .ok();
    cryptsetup(&bed, "config --priority ignore --key-slot 1 disk.img").ok();
    bed.run("key test --key-file key disk.img")
        .failed(1, &["keyslots 0 and 1", "--key-slot N"]);
    bed.run("key test --key-file other --key-slot 1 disk.img")
        .ok();

    cryptsetup(&bed, "luksErase disk.img").ok();
    bed.run("key test --key-file key disk.img")
        .failed(1, &["restore the header from a backup"]);
}

#[test]
fn tokens_go_from_one_header_to_another() {
    let bed = Bed::with_luks2();
    let token = r#"{"type":"mine","keyslots":["0"],"n":1.50}"#;
    let stored = bed.run_with("token import --json disk.img", token).ok();
    assert_eq!(stored.json()["token"], 0);
    bed.run("token add --key-description volume --token-id 4 disk.img")
        .ok();
    assert_eq!(
        bed.run("token list disk.img").ok().out,
        "token 0: mine, for keyslot 0\ntoken 4: luks2-keyring, for keyslot 0\n"
    );
    let list = bed.run("token list --json disk.img").ok().json();
    assert_eq!(list["tokens"][1]["type"], "luks2-keyring");
    assert_eq!(list["tokens"][1]["keyslots"][0], 0);
    assert_eq!(
        bed.run("token export --token-id 0 disk.img").ok().out,
        format!("{token}\n")
    );
    bed.run("token export --token-id 4 --json-file t.json disk.img")
        .ok();
    bed.run("token export --token-id 4 --json-file t.json disk.img")
        .failed(5, &["t.json"]);
    cryptsetup(&bed, "token remove --token-id 4 disk.img").ok();
    bed.run("token import --token-id 4 --json-file t.json disk.img")
        .ok();
    bed.run("token import --token-id 4 --json-file t.json disk.img")
        .failed(1, &["token 4 is in use"]);
    bed.run("token unassign --token-id 4 --key-slot 0 disk.img")
        .ok();
    bed.run("token unassign --token-id 4 --key-slot 0 disk.img")
        .failed(1, &["token 4 is not for keyslot 0"]);
    bed.run("token assign --token-id 4 --key-slot 0 disk.img")
        .ok();
    bed.run("token remove --token-id 0 disk.img").ok();
    bed.run("token remove --token-id 0 disk.img")
        .failed(1, &["token 0 is not in use"]);
    bed.run_with("token import disk.img", "{\"type\":\"mine\"}")
        .failed(1, &["this is no token", "\"keyslots\""]);
    bed.run("token import disk.img")
        .failed(1, &["standard input is empty"]);
    let theirs = cryptsetup(&bed, "token export --token-id 4 disk.img").ok();
    assert_eq!(theirs.json()["key_description"], "volume");

    let bed = Bed::with_luks1();
    bed.run_with("token import disk.img", token)
        .failed(1, &["LUKS1 has no tokens"]);
}

#[test]
fn a_header_can_be_named_and_flagged() {
    let uuid = "22b51bd9-f269-4cc7-94f2-dd5abdc517e9";
    let bed = Bed::with_luks2();
    let changed = bed
        .run(&format!(
            "config --json --label here --subsystem lab --uuid {uuid} --key-slot 0 \
             --priority prefer --set-flags allow-discards,no-read-workqueue disk.img"
        ))
        .ok()
        .json();
    assert_eq!(changed["label"], "here");
    assert_eq!(changed["flags"][1], "no-read-workqueue");
    assert_eq!(bed.run("uuid disk.img").ok().out, format!("{uuid}\n"));
    let dump = cryptsetup(&bed, "luksDump disk.img").ok().out;
    for line in [
        uuid,
        "here",
        "lab",
        "allow-discards no-read-workqueue",
        "preferred",
    ] {
        assert!(dump.contains(line), "no {line} in {dump}");
    }
    bed.run("config --clear-flags allow-discards disk.img").ok();
    assert!(
        !cryptsetup(&bed, "luksDump disk.img")
            .out
            .contains("allow-discards")
    );
    bed.run("config disk.img").failed(1, &["nothing to change"]);
    bed.run("config --uuid x disk.img")
        .failed(1, &["'x' is no UUID"]);
    bed.run("config --set-flags no-journal disk.img")
        .failed(1, &["no-journal"]);
    bed.run("config --priority ignore disk.img")
        .failed(1, &["--key-slot"]);
    bed.run("key test --key-file key disk.img").ok();

    let bed = Bed::with_luks1();
    bed.run(&format!("config --uuid {uuid} disk.img")).ok();
    assert_eq!(cryptsetup(&bed, "luksUUID disk.img").ok().out.trim(), uuid);
    for option in [
        "--label x",
        "--subsystem x",
        "--key-slot 0 --priority ignore",
        "--set-flags allow-discards",
    ] {
        bed.run(&format!("config {option} disk.img"))
            .failed(1, &["LUKS1 has no"]);
    }
    bed.run("key test --key-file key disk.img").ok();
}

#[test]
fn scripts_ask_by_exit_code() {
    for (bed, is, other) in [
        (Bed::with_luks1(), "luks1", "luks2"),
        (Bed::with_luks2(), "luks2", "luks1"),
    ] {
        for (line, code) in [
            ("is-luks disk.img".to_owned(), 0),
            (format!("is-luks --type {is} disk.img"), 0),
            (format!("is-luks --type {other} disk.img"), 1),
            ("is-luks --json key".to_owned(), 1),
        ] {
            let said = bed.run(&line);
            assert_eq!(
                (said.code, &*said.out, &*said.err),
                (Some(code), "", ""),
                "{line}"
            );
        }
        bed.run("is-luks gone.img").failed(4, &["gone.img"]);
        bed.run("uuid key").failed(4, &["no LUKS header"]);
    }
}
