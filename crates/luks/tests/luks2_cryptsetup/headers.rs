//! What is in a header, damaged ones, and those that are refused.

use super::*;

#[test]
fn labels_flags_and_tokens_survive_our_edits() {
    let bed = Bed::new();
    bed.image("disk", 20 << 20);
    bed.format("disk", &["--label", "a label", "--subsystem", "sub"]);
    let token =
        r#"{"type":"odd-token","keyslots":["0"],"f":1.50,"s":"a\\b é","n":-7,"deep":{"a":[1,{}]}}"#;
    fs::write(bed.path("token"), token).unwrap();
    bed.ok(&["token", "import", "--json-file", "token", "disk"]);
    let device = bed.device("disk");
    let unlocked = unlock(&device, "one").unwrap();
    device
        .add_key(&unlocked, &word("two"), None, &fast("pbkdf2"))
        .unwrap();
    device
        .change_key(
            &word("one"),
            None,
            &word("three"),
            &fast("pbkdf2"),
            ChangeOptions::default(),
            &LIMITS,
        )
        .unwrap();
    let json = bed.ok(&["token", "export", "--token-id", "0", "disk"]);
    assert_eq!(json.trim_end(), token);
    let header = device.read().unwrap();
    assert_eq!(header.label().as_deref(), Some("a label"));
    assert_eq!(header.subsystem().as_deref(), Some("sub"));
    assert!(!header.allows_discards());
    let dump = bed.ok(&["luksDump", "disk"]);
    assert_eq!(dump.trim_end(), header.dump().to_string().trim_end());
    assert!(dump.contains(header.uuid()));
    // A killed slot leaves its tokens.
    device.kill_slot(0, false).unwrap();
    let json = bed.ok(&["token", "export", "--token-id", "0", "disk"]);
    assert_eq!(json.trim_end(), token.replace("[\"0\"]", "[]"));
}

/// Replaces `old` by `new` in the JSON text of both copies (of 16 KiB), with
/// good checksums.
fn rewrite(path: &Path, old: &str, new: &str) {
    use sha2::Digest as _;
    let mut image = fs::read(path).unwrap();
    for copy in image[..0x8000].chunks_mut(0x4000) {
        let text = String::from_utf8(copy[4096..].to_vec()).unwrap();
        let text = text.trim_end_matches('\0').replace(old, new);
        assert!(text.contains(new));
        copy[4096..].fill(0);
        copy[4096..4096 + text.len()].copy_from_slice(text.as_bytes());
        copy[448..512].fill(0);
        let sum = sha2::Sha256::digest(&*copy);
        copy[448..480].copy_from_slice(&sum);
    }
    fs::write(path, image).unwrap();
}

#[test]
fn unknown_keyslots_and_flags_pass_through_both() {
    let bed = Bed::new();
    bed.image("disk", 20 << 20);
    bed.format("disk", &[]);
    let odd = concat!(
        r#""9":{"type":"odd","key_size":7,"more":[1.50,{}],"#,
        r#""area":{"type":"odd","offset":"8388608","size":"4097"}}"#
    );
    let path = bed.path("disk");
    let flags = r#""config":{"flags":["allow-discards","odd-flag"],"#;
    rewrite(
        &path,
        "\"keyslots\":{\"0\":",
        &format!("\"keyslots\":{{{odd},\"0\":"),
    );
    rewrite(&path, "\"config\":{", flags);
    let device = bed.device("disk");
    assert!(device.read().unwrap().allows_discards());
    let unlocked = unlock(&device, "one").unwrap();
    device
        .add_key(&unlocked, &word("two"), None, &fast("pbkdf2"))
        .unwrap();
    assert_eq!(bed.opens("disk", "two"), Some(1));
    bed.ok(&["luksKillSlot", "-d", "two", "disk", "0"]);
    let text = String::from_utf8_lossy(&fs::read(&path).unwrap()[4096..0x4000]).into_owned();
    assert!(text.contains(odd) && text.contains(flags), "{text}");
    assert_eq!(device.read().unwrap().keyslots(), [1, 9]);
    // The last one that we know how to open counts as the last.
    let error = device.kill_slot(1, false).unwrap_err();
    assert_eq!(error.kind, ErrorKind::LastKeyslot);
    device.kill_slot(9, false).unwrap();
    assert!(!bed.ok(&["luksDump", "disk"]).contains("odd\n"));
}

#[test]
fn integrity_protection_is_shown_and_refused() {
    let bed = Bed::new();
    bed.image("disk", 20 << 20);
    bed.format("disk", &[]);
    let integrity = concat!(
        r#""integrity":{"type":"hmac(sha256)","#,
        r#""journal_encryption":"none","journal_integrity":"none"},"sector_size":"#
    );
    rewrite(&bed.path("disk"), "\"sector_size\":", integrity);
    let header = bed.device("disk").read().unwrap();
    let dump = header.dump().to_string();
    assert!(dump.contains("\tintegrity: hmac(sha256)\n"));
    assert_eq!(bed.ok(&["luksDump", "disk"]).trim_end(), dump.trim_end());
    let error = header.segment(20 << 20).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsupported);
    assert!(error.to_string().contains("hmac(sha256)"), "{error}");
}

#[test]
fn our_options_are_understood() {
    let bed = Bed::new();
    bed.image("disk", 8 << 20);
    let device = bed.device("disk");
    let mut options = options(64, 512, "pbkdf2");
    options.uuid = Some("22B51BD9-f269-4cc7-94f2-dd5abdc517e9".into());
    options.label = Some("x".repeat(47));
    options.subsystem = Some("système".into());
    options.data_offset = Some(1 << 20);
    options.hash = "sha512".into();
    options.encryption = "aes-cbc-essiv:sha256".into();
    options.key_length = 32;
    device.format(&options, &word("one")).unwrap();
    assert_eq!(bed.opens("disk", "one"), Some(0));
    let header = device.read().unwrap();
    assert_eq!(header.uuid(), "22b51bd9-f269-4cc7-94f2-dd5abdc517e9");
    assert_eq!(
        bed.ok(&["luksDump", "disk"]).trim_end(),
        header.dump().to_string().trim_end()
    );
    // A header by itself.
    bed.image("header", 16 << 20);
    bed.image("data", 1 << 20);
    let detached = bed.device("header");
    let mut options = self::options(32, 4096, "pbkdf2");
    options.detached = true;
    detached.format(&options, &word("one")).unwrap();
    assert_eq!(bed.opens("header", "one"), Some(0));
    let segment = detached.read().unwrap().segment(1 << 20).unwrap();
    assert_eq!((segment.offset, segment.length), (0, 1 << 20));
    // And theirs.
    bed.image("header2", 16 << 20);
    bed.ok(&[
        "luksFormat",
        "--type",
        "luks2",
        "--pbkdf",
        "pbkdf2",
        "--pbkdf-force-iterations",
        "1000",
        "--header",
        "header2",
        "data",
        "one",
    ]);
    let segment = bed
        .device("header2")
        .read()
        .unwrap()
        .segment(1 << 20)
        .unwrap();
    assert_eq!((segment.offset, segment.length), (0, 1 << 20));
}

#[test]
fn converted_headers_open() {
    let bed = Bed::new();
    for bits in ["256", "512"] {
        bed.image("disk", 20 << 20);
        bed.ok(&[
            "luksFormat",
            "--type",
            "luks1",
            "--pbkdf-force-iterations",
            "1000",
            "--key-size",
            bits,
            "disk",
            "one",
        ]);
        bed.ok(&["convert", "--type", "luks2", "disk"]);
        let device = bed.device("disk");
        let unlocked = unlock(&device, "one").unwrap();
        device
            .add_key(&unlocked, &word("two"), None, &fast("argon2id"))
            .unwrap();
        assert_eq!(bed.opens("disk", "two"), Some(1));
        assert_eq!(device.read().unwrap().version(), Version::Luks2);
    }
}

#[test]
fn both_recover_the_same_headers() {
    let bed = Bed::new();
    for (metadata, size) in [("16k", 0x4000_u64), ("128k", 0x2_0000), ("4m", 0x40_0000)] {
        bed.image("whole", 20 << 20);
        bed.format(
            "whole",
            &[
                "--luks2-metadata-size",
                metadata,
                "--luks2-keyslots-size",
                "4m",
            ],
        );
        for destroyed in [0, size] {
            for (offset, length) in [(0, 512), (0, 4096), (4096, 100), (0x3e00, 512)] {
                for name in ["ours", "theirs"] {
                    fs::copy(bed.path("whole"), bed.path(name)).unwrap();
                    scribble(&bed.path(name), destroyed + offset, length);
                }
                let device = bed.device("ours");
                let before = fs::read(bed.path("ours")).unwrap();
                let header = device.read().unwrap();
                assert!(header.is_recovered());
                assert_eq!(slot(&device, "one"), Some(0));
                assert_eq!(before, fs::read(bed.path("ours")).unwrap(), "reading wrote");
                // cryptsetup repairs as it reads.
                assert_eq!(bed.opens("theirs", "one"), Some(0));
                assert!(!bed.device("theirs").read().unwrap().is_recovered());
                assert!(device.repair().unwrap());
                assert!(!device.repair().unwrap());
                assert!(!device.read().unwrap().is_recovered());
                let without_salts = |name| {
                    let mut bytes = fs::read(bed.path(name)).unwrap();
                    for start in [0, usize::try_from(size).unwrap()] {
                        bytes[start + 104..start + 168].fill(0);
                        bytes[start + 448..start + 512].fill(0);
                    }
                    bytes
                };
                assert!(without_salts("ours") == without_salts("theirs"));
                assert_eq!(bed.opens("ours", "one"), Some(0));
            }
        }
    }
}

#[test]
fn something_else_over_the_header_is_left_alone() {
    let bed = Bed::new();
    bed.image("disk", 20 << 20);
    bed.format("disk", &[]);
    scribble(&bed.path("disk"), 0, 4096);
    {
        use std::os::unix::fs::FileExt as _;
        let file = fs::OpenOptions::new()
            .write(true)
            .open(bed.path("disk"))
            .unwrap();
        file.write_all_at(b"XFSB", 0).unwrap();
    }
    let device = bed.device("disk");
    assert_eq!(device.read().unwrap_err().kind, ErrorKind::Refused);
    assert_eq!(
        device.kill_slot(0, true).unwrap_err().kind,
        ErrorKind::Refused
    );
    assert!(device.repair().unwrap());
    assert_eq!(slot(&device, "one"), Some(0));
    assert_eq!(bed.opens("disk", "one"), Some(0));
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    let bed = Bed::new();
    bed.image("disk", 40 << 20);
    bed.format("disk", &[]);
    let device = bed.device("disk");
    // A reencryption that was begun.
    bed.ok(&[
        "reencrypt",
        "--init-only",
        "--resilience",
        "none",
        "-d",
        "one",
        "--pbkdf",
        "pbkdf2",
        "--pbkdf-force-iterations",
        "1000",
        "disk",
    ]);
    let header = device.read().unwrap();
    let error = header.segment(40 << 20).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsupported);
    assert!(error.to_string().contains("online-reencrypt"), "{error}");
    let error = device.unlock(&word("one"), None, &LIMITS).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsupported);
    assert_eq!(device.erase().unwrap_err().kind, ErrorKind::Unsupported);
    assert_eq!(
        bed.ok(&["luksDump", "disk"])
            .lines()
            .take(20)
            .collect::<Vec<_>>(),
        header
            .dump()
            .to_string()
            .lines()
            .take(20)
            .collect::<Vec<_>>()
    );
    device.backup(&bed.path("bak")).unwrap();
}

/// Overwrites `length` bytes with noise that is no header.
fn scribble(path: &Path, offset: u64, length: usize) {
    use std::os::unix::fs::FileExt as _;
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    let noise: Vec<u8> = (3..=255).step_by(7).cycle().take(length).collect();
    file.write_all_at(&noise, offset).unwrap();
}
