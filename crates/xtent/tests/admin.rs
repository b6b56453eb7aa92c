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

/// Both keys open the volume, by cryptsetup's word.
fn both_open(bed: &Bed) {
    for key in ["key", "other"] {
        let line = format!("open --test-passphrase --key-file {key} disk.img");
        cryptsetup(bed, &line).ok();
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
fn the_same_thing_is_the_same_object_everywhere() {
    let converted = Bed::with_luks2();
    let argon2 = "--pbkdf argon2i --pbkdf-force-iterations 4 --pbkdf-memory 64";
    converted
        .run(&format!("key convert --key-file key {argon2} disk.img"))
        .ok();
    for bed in [Bed::with_luks1(), Bed::with_luks2(), converted] {
        let list = bed.run("key list --json disk.img").ok().json();
        let dump = bed.run("header dump --json disk.img").ok().json();
        let kdf = &dump["keyslots"][0]["kdf"];
        // LUKS2 numbers its keyslots by name.
        let kdf = if kdf.is_null() {
            &dump["keyslots"]["0"]["kdf"]
        } else {
            kdf
        };
        assert!(kdf["type"].is_string(), "{dump}");
        assert_eq!(list["keyslots"][0]["kdf"], *kdf);
    }
    let bed = Bed::with_luks2();
    for label in ["", "x"] {
        let changed = bed
            .run_words(&["config", "--json", "--label", label, "disk.img"])
            .ok()
            .json();
        let dump = bed.run("header dump --json disk.img").ok().json();
        assert_eq!(changed["label"], dump["label"]);
        assert_eq!(changed["subsystem"], dump["subsystem"]);
        assert_eq!(dump["label"].is_null(), label.is_empty());
    }
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

/// The device is not written to: there is nothing to ask about but the header.
#[test]
fn a_new_header_elsewhere_asks_nothing() {
    let bed = Bed::with_luks2();
    let before = std::fs::read(bed.path("disk.img")).unwrap();
    let format = format!("format --key-file key {CHEAP} --header new.header disk.img");
    bed.run(&format).ok();
    assert_eq!(std::fs::read(bed.path("disk.img")).unwrap(), before);
    bed.run(&format)
        .failed(1, &["overwrite data on new.header", "It holds a LUKS2"]);
}

const CHEAP: &str = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000";

/// To HMAC, and so to a digest, a key is the same with and without zeros at its end; and without a
/// keyslot nothing else says how long it is.
#[test]
fn a_volume_key_has_its_length_without_a_keyslot_too() {
    let bed = Bed::with_luks2();
    let mut key: Vec<u8> = (1..=64).collect();
    key[63] = 0;
    std::fs::write(bed.path("vk"), &key).unwrap();
    bed.run(&format!(
        "format -q --overwrite-luks --key-file key --volume-key-file vk {CHEAP} disk.img"
    ))
    .ok();
    bed.run("header erase -q disk.img").ok();
    for other in [&key[..63], &[&key[..], &[0]].concat()] {
        std::fs::write(bed.path("other.vk"), other).unwrap();
        bed.run("key test --volume-key-file other.vk disk.img")
            .failed(2, &["not the key of the volume"]);
    }
    bed.run("key test --volume-key-file vk disk.img").ok();
}

#[test]
fn a_volume_key_is_escrowed_and_opens_an_erased_volume() {
    use std::os::unix::fs::PermissionsExt;
    for (bed, hash) in [
        (Bed::with_luks1(), ""),
        (Bed::with_luks2(), " --hash sha512"),
    ] {
        let dump = "header dump --key-file key --volume-key-file vk disk.img";
        bed.run(dump)
            .failed(1, &["without a passphrase, for ever", "--batch-mode"]);
        assert!(!bed.path("vk").exists());
        bed.run("header dump -q --key-file other --volume-key-file vk disk.img")
            .failed(2, &["no keyslot opens"]);
        assert!(!bed.path("vk").exists());
        bed.run(&format!("{dump} -q")).ok();
        bed.run(&format!("{dump} -q"))
            .failed(5, &["vk exists already"]);
        let mode = bed.path("vk").metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let key = std::fs::read(bed.path("vk")).unwrap();
        assert_eq!(key.len(), 64);
        let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        let printed = bed
            .run("header dump -q --key-file key --volume-key disk.img")
            .ok();
        assert_eq!(printed.out, format!("{hex}\n"));
        bed.run("header dump -q --json --key-file key --volume-key disk.img")
            .failed(1, &["do not go together"]);
        cryptsetup(
            &bed,
            "luksDump --dump-volume-key --volume-key-file theirs --key-file key disk.img",
        )
        .ok();
        assert_eq!(std::fs::read(bed.path("theirs")).unwrap(), key);

        // What was written before opens without a passphrase.
        std::fs::write(bed.path("plain"), vec![7; 1 << 20]).unwrap();
        bed.run("encrypt --volume-key-file vk plain disk.img").ok();
        bed.run("header erase -q disk.img").ok();
        bed.run("key test --volume-key-file vk disk.img")
            .ok()
            .out
            .find("The volume key is the right one")
            .unwrap();
        bed.run("decrypt --volume-key-file vk disk.img back").ok();
        assert!(std::fs::read(bed.path("back")).unwrap() == vec![7; 1 << 20]);

        let mut wrong = key.clone();
        wrong[0] ^= 1;
        std::fs::write(bed.path("wrong"), &wrong).unwrap();
        bed.run("key test --volume-key-file wrong disk.img")
            .failed(2, &["not the key of the volume"]);
        for length in [0, 63] {
            std::fs::write(bed.path("short"), &key[..length]).unwrap();
            let said = bed.run("key test --volume-key-file short disk.img");
            assert_ne!(said.code, Some(0), "{said:?}");
        }
        bed.run("key test --volume-key-file vk --key-file key disk.img")
            .failed(1, &["cannot be used with"]);
        if hash.is_empty() {
            // LUKS1 knows the length without a keyslot.
            bed.run("key test --volume-key-file short disk.img")
                .failed(1, &["holds 63 bytes", "has 64"]);
        }

        let add =
            format!("key add --volume-key-file vk --new-key-file other {CHEAP}{hash} disk.img");
        bed.run(&add).ok();
        bed.run("key test --key-file other disk.img").ok();
        cryptsetup(&bed, "open --test-passphrase --key-file other disk.img").ok();
        bed.run("key remove --volume-key-file vk disk.img")
            .failed(1, &["unexpected argument"]);
    }
}

#[test]
fn a_volume_is_formatted_around_a_key() {
    let bed = Bed::new();
    std::fs::write(bed.path("vk"), [[1; 16], [2; 16]].concat()).unwrap();
    let format = format!("format --size 1M --key-file key {CHEAP} --volume-key-file vk");
    bed.run(&format!("{format} disk.img"))
        .failed(1, &["vk holds 32 bytes", "has 64", "--key-size"]);
    assert!(!bed.path("disk.img").exists());
    bed.run(&format!("{format} --key-size 256 disk.img")).ok();
    bed.run("key test --volume-key-file vk disk.img").ok();
    bed.run("key test --key-file key disk.img").ok();
    std::fs::write(bed.path("vk"), [1; 32]).unwrap();
    bed.run(&format!("{format} --key-size 256 other.img"))
        .failed(1, &["two halves", "XTS"]);
}

#[test]
fn a_key_keeps_passphrase_and_keyslot_when_it_is_converted() {
    let bed = Bed::with_luks2();
    let argon2 = "--pbkdf argon2id --pbkdf-memory 64 --pbkdf-parallel 1 --pbkdf-force-iterations 4";
    let add = format!("key add {CHEAP} --key-file key --new-key-file other --new-key-slot 3");
    bed.run(&format!("{add} disk.img")).ok();
    let said = bed
        .run(&format!(
            "key convert --json --key-file other {argon2} disk.img"
        ))
        .ok();
    assert_eq!(said.json()["keyslot"], 3);
    bed.run("key test --key-file other --key-slot 3 disk.img")
        .ok();
    cryptsetup(&bed, "open --test-passphrase --key-file other disk.img").ok();
    let list = bed.run("key list --json disk.img").ok().json();
    assert_eq!(
        list["keyslots"][0]["kdf"],
        serde_json::json!({ "type": "pbkdf2", "hash": "sha256", "iterations": 1000 })
    );
    assert_eq!(
        list["keyslots"][1]["kdf"],
        serde_json::json!({ "type": "argon2id", "time": 4, "memory": 64, "cpus": 1 })
    );
    bed.run(&format!("key convert --key-file plain {argon2} disk.img"))
        .failed(4, &["plain"]);

    let bed = Bed::with_luks1();
    bed.run("key convert --key-file key disk.img")
        .failed(1, &["LUKS1 has pbkdf2", "xtent key change"]);
}

#[test]
fn an_unbound_key_is_kept_and_opens_nothing() {
    let bed = Bed::with_luks2();
    let add = format!("key add --unbound {CHEAP} --new-key-file other");
    bed.run(&format!("{add} disk.img"))
        .failed(1, &["--key-size"]);
    bed.run(&format!("{add} --key-size 255 disk.img"))
        .failed(1, &["multiple of 8"]);
    bed.run(&format!("{add} --key-size 256 disk.img")).ok();
    std::fs::write(bed.path("mine"), [9; 20]).unwrap();
    bed.run(&format!(
        "{add} --volume-key-file mine --new-key-slot 5 disk.img"
    ))
    .ok();
    bed.run("header dump -q --key-file key --volume-key-file vk disk.img")
        .ok();
    bed.run(&format!("{add} --volume-key-file vk disk.img"))
        .failed(1, &["no unbound key"]);
    bed.run("key test --key-file other disk.img").failed(2, &[]);
    bed.run("key test --key-file other --key-slot 5 disk.img")
        .failed(1, &["not the volume's"]);
    bed.run("key test --unbound --key-file other --key-slot 5 disk.img")
        .ok();
    let any = bed
        .run("key test --json --unbound --key-file other disk.img")
        .ok();
    let bound = bed
        .run("key test --json --key-file key disk.img")
        .ok()
        .json();
    let fields = |value: &serde_json::Value| -> Vec<String> {
        value.as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!(any.json()["keyslot"], 1);
    assert_eq!(fields(&any.json()), fields(&bound));
    cryptsetup(
        &bed,
        "open --test-passphrase --unbound --key-slot 1 --key-file other disk.img",
    )
    .ok();
    cryptsetup(
        &bed,
        "luksDump --unbound --key-slot 5 --volume-key-file theirs --key-file other disk.img",
    )
    .ok();
    assert_eq!(std::fs::read(bed.path("theirs")).unwrap(), [9; 20]);
    // Beside them the volume's only key is the last one all the same.
    bed.run("key kill -q disk.img 0")
        .failed(1, &["(the others are unbound)", "--even-last"]);
    bed.run("key kill --even-last disk.img 0").failed(
        1,
        &["(the others are unbound) of disk.img: nobody will be able"],
    );
    bed.run("key kill --even-last -q disk.img 0").ok();
    let list = bed.run("key list disk.img").ok();
    assert!(list.err.contains("--volume-key-file"), "{list:?}");
    bed.run("key test --key-file key disk.img")
        .failed(1, &["--volume-key-file", "backup"]);
    bed.run("key test --volume-key-file vk disk.img").ok();
    // Now no passphrase is any good to allow it.
    bed.run("key kill disk.img 5")
        .failed(1, &["not the volume's", "--batch-mode"]);
    bed.run("key kill -q disk.img 5").ok();
    bed.run("key kill -q disk.img 1").ok();
    let list = bed.run("key list disk.img").ok();
    assert!(list.out.contains("--volume-key-file"), "{list:?}");
    let bed = Bed::with_luks1();
    bed.run(&format!("{add} --key-size 256 disk.img"))
        .failed(1, &["LUKS1 has no unbound keys"]);
}

/// LUKS1 has one hash for everything: nobody has to know which.
#[test]
fn keys_of_a_luks1_volume_have_its_hash() {
    let bed = Bed::with_luks1();
    cryptsetup(
        &bed,
        "luksFormat -q --type luks1 --hash sha1 --pbkdf-force-iterations 1000 --key-file key disk.img",
    )
    .ok();
    bed.run(&format!(
        "key add {CHEAP} --key-file key --new-key-file other disk.img"
    ))
    .ok();
    bed.run(&format!(
        "key change {CHEAP} --key-file key --new-key-file key disk.img"
    ))
    .ok();
    both_open(&bed);
    bed.run(&format!(
        "key add {CHEAP} --hash sha256 --key-file key --new-key-file other disk.img"
    ))
    .failed(1, &["one hash for everything, here sha1"]);
}

#[test]
fn a_pin_is_asked_before_a_change_and_not_after() {
    let bed = Bed::with_luks2();
    let pin = bed.run("header pin --metadata disk.img").ok();
    let pin = pin.out.trim();
    bed.run(&format!(
        "config --expect-header {pin} --label first disk.img"
    ))
    .ok();
    assert!(bed.run("header dump disk.img").ok().out.contains("first"));
    bed.run(&format!(
        "config --expect-header {pin} --label second disk.img"
    ))
    .failed(4, &["has changed it since"]);
    assert!(!bed.run("header dump disk.img").ok().out.contains("second"));
}

#[test]
fn a_damaged_luks1_header_opens_and_is_repaired() {
    for (at, bytes, what) in [
        (
            256,
            &[0; 4][..],
            "keyslot 1 is neither enabled nor disabled",
        ),
        (168, &[0xff; 40], "the UUID is no text"),
        (
            208,
            &[0; 4],
            "keyslot 0 is neither enabled nor disabled (0x00000000); it counts as in use",
        ),
    ] {
        let bed = Bed::with_luks1();
        bed.damage("disk.img", at, bytes);
        let said = bed.run("key test --key-file key disk.img").ok();
        assert!(said.err.contains(what), "{said:?}");
        assert!(
            said.err.contains("xtent header repair disk.img"),
            "{said:?}"
        );
        // cryptsetup takes the last one's keyslot for one that is not in use.
        if at != 208 {
            cryptsetup(&bed, "open --test-passphrase --key-file key disk.img").ok();
        }
        bed.run(&format!(
            "key add {CHEAP} --key-file key --new-key-file other disk.img"
        ))
        .failed(4, &["xtent header repair"]);
        let repaired = bed.run("header repair --json disk.img").ok();
        assert_eq!(repaired.json()["repaired"], true);
        let damage = repaired.json()["damage"][0].as_str().unwrap().to_owned();
        assert!(damage.contains(what), "{damage}");
        let said = bed.run("key test --key-file key disk.img").ok();
        assert_eq!(said.err, "");
        bed.run(&format!(
            "key add {CHEAP} --key-file key --new-key-file other disk.img"
        ))
        .ok();
        both_open(&bed);
        assert_eq!(
            bed.run("uuid disk.img").ok().out,
            cryptsetup(&bed, "luksUUID disk.img").ok().out
        );
    }
}
