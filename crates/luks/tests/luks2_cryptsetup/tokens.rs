//! Tokens and what else `config` changes: written by either, read by the other.

use xtent_luks::Changes;

use super::*;

const TOKEN: &str = r#"{"type":"x-test","keyslots":["0"],"n":1.50,"s":"\u00e9"}"#;

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn tokens_of_either_are_read_by_the_other() {
    let bed = Bed::new();
    bed.image("disk", 20 << 20);
    bed.format("disk", &[]);
    let device = bed.device("disk");

    // Ours.
    assert_eq!(device.import_token(TOKEN, None, false).unwrap(), 0);
    let id = device
        .add_keyring_token("xtent:disk", None, Some(7))
        .unwrap();
    assert_eq!(id, 7);
    assert_eq!(
        json(&bed.ok(&["token", "export", "--token-id", "0", "disk"])),
        json(TOKEN)
    );
    let theirs = bed.ok(&["token", "export", "--token-id", "7", "disk"]);
    assert_eq!(
        json(&theirs),
        json(r#"{"type":"luks2-keyring","keyslots":["0"],"key_description":"xtent:disk"}"#)
    );
    let dump = bed.ok(&["luksDump", "disk"]);
    assert!(
        dump.contains("7: luks2-keyring\n\tKey description: xtent:disk"),
        "{dump}"
    );
    let tokens = device.read().unwrap().tokens().unwrap();
    assert_eq!(tokens[0].json, TOKEN);
    assert_eq!((tokens[1].id, &*tokens[1].kind), (7, "luks2-keyring"));

    // Theirs.
    bed.ok(&[
        "token",
        "add",
        "--key-description",
        "theirs",
        "--token-id",
        "3",
        "disk",
    ]);
    fs::write(bed.path("token.json"), r#"{"type":"other","keyslots":[]}"#).unwrap();
    bed.ok(&["token", "import", "--json-file", "token.json", "disk"]);
    let tokens = device.read().unwrap().tokens().unwrap();
    let summary: Vec<_> = tokens
        .iter()
        .map(|token| (token.id, &*token.kind, &token.keyslots[..]))
        .collect();
    assert_eq!(
        summary,
        [
            (0, "x-test", &[0][..]),
            (1, "other", &[]),
            (3, "luks2-keyring", &[0]),
            (7, "luks2-keyring", &[0]),
        ]
    );

    device.assign_token(1, None).unwrap();
    device.unassign_token(3, 0).unwrap();
    device.remove_token(7).unwrap();
    let theirs = bed.ok(&["token", "export", "--token-id", "1", "disk"]);
    assert_eq!(json(&theirs), json(r#"{"type":"other","keyslots":["0"]}"#));
    let theirs = bed.ok(&["token", "export", "--token-id", "3", "disk"]);
    assert_eq!(json(&theirs)["keyslots"], json("[]"));
    assert_ne!(
        bed.run(&["token", "export", "--token-id", "7", "disk"])
            .status
            .code(),
        Some(0)
    );
    assert_eq!(bed.opens("disk", "one"), Some(0));
}

#[test]
fn tokens_that_cryptsetup_refuses_are_refused() {
    let bed = Bed::new();
    bed.image("disk", 20 << 20);
    bed.format("disk", &[]);
    let device = bed.device("disk");
    let before = fs::read(bed.path("disk")).unwrap();
    for (bad, kind) in [
        ("", ErrorKind::Options),
        ("[]", ErrorKind::Options),
        (r#"{"type":"t"}"#, ErrorKind::Options),
        (r#"{"keyslots":[]}"#, ErrorKind::Options),
        (r#"{"type":1,"keyslots":[]}"#, ErrorKind::Options),
        (r#"{"type":"t","keyslots":"0"}"#, ErrorKind::Options),
        (r#"{"type":"t","keyslots":[0]}"#, ErrorKind::Options),
        (r#"{"type":"t","keyslots":["1"]}"#, ErrorKind::Keyslot),
        (
            r#"{"type":"luks2-keyring","keyslots":["0"]}"#,
            ErrorKind::Options,
        ),
        (
            r#"{"type":"luks2-keyring","keyslots":["0"],"key_description":7}"#,
            ErrorKind::Options,
        ),
        (
            r#"{"type":"luks2-other","keyslots":["0"]}"#,
            ErrorKind::Options,
        ),
    ] {
        fs::write(bed.path("token.json"), bad).unwrap();
        let theirs = bed.run(&["token", "import", "--json-file", "token.json", "disk"]);
        assert!(!theirs.status.success(), "cryptsetup takes {bad}");
        let ours = device.import_token(bad, None, false).unwrap_err();
        assert_eq!(ours.kind, kind, "{bad}: {ours}");
    }
    let long = format!(
        r#"{{"type":"t","keyslots":[],"x":"{}"}}"#,
        "x".repeat(13_000)
    );
    let error = device.import_token(&long, None, false).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Full, "{error}");
    for id in [32, u32::MAX] {
        let error = device.import_token(TOKEN, Some(id), true).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Token);
    }
    assert_eq!(device.remove_token(0).unwrap_err().kind, ErrorKind::Token);
    assert!(
        before == fs::read(bed.path("disk")).unwrap(),
        "a refusal wrote"
    );

    device.import_token(TOKEN, Some(4), false).unwrap();
    let error = device.import_token(TOKEN, Some(4), false).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Token);
    device
        .import_token(r#"{"type":"t","keyslots":[]}"#, Some(4), true)
        .unwrap();
    assert_eq!(
        device.unassign_token(4, 0).unwrap_err().kind,
        ErrorKind::Token
    );
    assert_eq!(
        device.assign_token(4, Some(1)).unwrap_err().kind,
        ErrorKind::Keyslot
    );
    for id in (0..32).filter(|id| *id != 4) {
        assert_eq!(device.import_token(TOKEN, None, false).unwrap(), id);
    }
    let error = device.import_token(TOKEN, None, false).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Full);
}

#[test]
fn cryptsetup_sees_what_was_configured() {
    let bed = Bed::new();
    bed.image("disk", 20 << 20);
    bed.format("disk", &[]);
    let device = bed.device("disk");
    let uuid = "22b51bd9-f269-4cc7-94f2-dd5abdc517e9";
    device
        .configure(&Changes {
            uuid: Some(uuid.to_uppercase()),
            label: Some("backup".into()),
            subsystem: Some("lab".into()),
            priority: Some((0, Priority::Prefer)),
            set_flags: vec!["allow-discards".into(), "no-write-workqueue".into()],
            clear_flags: vec![],
        })
        .unwrap();
    let dump = bed.ok(&["luksDump", "disk"]);
    for line in [
        format!("UUID:          \t{uuid}"),
        "Label:         \tbackup".into(),
        "Subsystem:     \tlab".into(),
        "Flags:       \tallow-discards no-write-workqueue".into(),
        "Priority:   preferred".into(),
    ] {
        assert!(dump.contains(&line), "no {line} in {dump}");
    }
    assert_eq!(bed.ok(&["luksUUID", "disk"]).trim(), uuid);
    device
        .configure(&Changes {
            label: Some(String::new()),
            priority: Some((0, Priority::Normal)),
            clear_flags: vec!["allow-discards".into()],
            ..Changes::default()
        })
        .unwrap();
    let dump = bed.ok(&["luksDump", "disk"]);
    assert!(dump.contains("Label:         \t(no label)"), "{dump}");
    assert!(dump.contains("Flags:       \tno-write-workqueue"), "{dump}");
    assert!(dump.contains("Priority:   normal"), "{dump}");
    assert_eq!(bed.opens("disk", "one"), Some(0));

    let before = fs::read(bed.path("disk")).unwrap();
    for changes in [
        Changes {
            uuid: Some("x".into()),
            ..Changes::default()
        },
        Changes {
            label: Some("x".repeat(48)),
            ..Changes::default()
        },
        Changes {
            set_flags: vec!["fast".into()],
            ..Changes::default()
        },
        Changes {
            priority: Some((1, Priority::Ignore)),
            ..Changes::default()
        },
        Changes {
            set_flags: vec!["allow-discards".into()],
            clear_flags: vec!["allow-discards".into()],
            ..Changes::default()
        },
    ] {
        assert!(device.configure(&changes).is_err(), "{changes:?}");
    }
    assert!(
        before == fs::read(bed.path("disk")).unwrap(),
        "a refusal wrote"
    );
}
