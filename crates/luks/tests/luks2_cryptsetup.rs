//! LUKS2 against the real cryptsetup, on plain files: what one makes or
//! changes, the other opens, and both recover the same headers.

#![expect(clippy::unwrap_used, reason = "a test may")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use xtent_luks::{
    ChangeOptions, Device, ErrorKind, FormatOptions, KdfChoice, KdfLimits, Priority, Unlocked,
    Version,
};
use xtent_secret::SecretBytes;
use xtent_store::{Access, FileStore};

const LIMITS: KdfLimits = KdfLimits { longest: None };

struct Bed {
    folder: TempDir,
}

impl Bed {
    fn new() -> Self {
        let bed = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        for word in ["one", "two", "three", "wrong"] {
            fs::write(bed.path(word), word).unwrap();
        }
        bed
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn image(&self, name: &str, size: u64) -> PathBuf {
        let path = self.path(name);
        fs::File::create(&path).unwrap().set_len(size).unwrap();
        path
    }

    /// Runs cryptsetup in the folder, where the passphrases are.
    fn run(&self, arguments: &[&str]) -> Output {
        Command::new("cryptsetup")
            .args(["-q"])
            .args(arguments)
            .current_dir(self.folder.path())
            .output()
            .expect("cannot run cryptsetup: install the package cryptsetup-bin")
    }

    fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Whether cryptsetup opens `image` with `word`, and with which slot.
    fn opens(&self, image: &str, word: &str) -> Option<u32> {
        let output = self.run(&["open", "-v", "--test-passphrase", "-d", word, image]);
        if output.status.code() == Some(2) {
            return None;
        }
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let slot = text.split("Key slot ").nth(1).unwrap();
        Some(slot.split(' ').next().unwrap().parse().unwrap())
    }

    /// The volume key as cryptsetup sees it.
    fn volume_key(&self, image: &str, word: &str) -> Vec<u8> {
        let file = self.path("volume.key");
        let _ = fs::remove_file(&file);
        self.ok(&[
            "luksDump",
            "--dump-volume-key",
            "--volume-key-file",
            "volume.key",
            "-d",
            word,
            image,
        ]);
        fs::read(file).unwrap()
    }

    fn format(&self, image: &str, more: &[&str]) {
        let fast = ["--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000"];
        let all = [
            &["luksFormat", "--type", "luks2"],
            &fast[..],
            more,
            &[image, "one"],
        ]
        .concat();
        self.ok(&all);
    }

    fn device(&self, name: &str) -> Device {
        device(&self.path(name))
    }
}

fn device(path: &Path) -> Device {
    Device::new(Arc::new(FileStore::open(path, Access::ReadWrite).unwrap()))
}

fn word(word: &str) -> SecretBytes {
    SecretBytes::copy_of(word.as_bytes()).unwrap()
}

fn fast(kind: &str) -> KdfChoice {
    let argon2 = kind != "pbkdf2";
    KdfChoice {
        kind: Some(match kind {
            "pbkdf2" => xtent_luks::kdf::KdfKind::Pbkdf2,
            "argon2i" => xtent_luks::kdf::KdfKind::Argon2i,
            _ => xtent_luks::kdf::KdfKind::Argon2id,
        }),
        hash: None,
        target: Duration::from_millis(10),
        force_iterations: Some(if argon2 { 4 } else { 1000 }),
        memory: argon2.then_some(64),
        parallel: argon2.then_some(1),
    }
}

fn options(key_length: usize, sector_size: u32, kdf: &str) -> FormatOptions {
    FormatOptions {
        version: Version::Luks2,
        encryption: "aes-xts-plain64".into(),
        key_length,
        sector_size,
        kdf: fast(kdf),
        hash: "sha256".into(),
        uuid: None,
        label: None,
        subsystem: None,
        data_offset: None,
        detached: false,
    }
}

fn unlock(device: &Device, passphrase: &str) -> Option<Unlocked> {
    match device.unlock(&word(passphrase), None, &LIMITS) {
        Ok(unlocked) => Some(unlocked),
        Err(error) if error.kind == ErrorKind::WrongPassphrase => None,
        Err(error) => panic!("{error}"),
    }
}

fn slot(device: &Device, passphrase: &str) -> Option<u32> {
    unlock(device, passphrase).map(|unlocked| unlocked.keyslot)
}

const KDFS: [(&str, &[&str]); 3] = [
    (
        "pbkdf2",
        &["--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000"],
    ),
    (
        "argon2id",
        &[
            "--pbkdf",
            "argon2id",
            "--pbkdf-memory",
            "64",
            "--pbkdf-parallel",
            "1",
            "--pbkdf-force-iterations",
            "4",
        ],
    ),
    (
        "argon2i",
        &[
            "--pbkdf",
            "argon2i",
            "--pbkdf-memory",
            "64",
            "--pbkdf-parallel",
            "1",
            "--pbkdf-force-iterations",
            "4",
        ],
    ),
];

#[test]
fn what_either_makes_the_other_opens() {
    let bed = Bed::new();
    for key_length in [32, 64] {
        for sector_size in [512, 4096] {
            for (kdf, arguments) in KDFS {
                bed.image("theirs", 20 << 20);
                let bits = (key_length * 8).to_string();
                let size = sector_size.to_string();
                let more = [&["--key-size", &bits, "--sector-size", &size], arguments].concat();
                let all = [
                    &["luksFormat", "--type", "luks2"],
                    &more[..],
                    &["theirs", "one"],
                ];
                bed.ok(&all.concat());
                let theirs = bed.device("theirs");
                let unlocked = unlock(&theirs, "one").unwrap();
                assert_eq!(*unlocked.key, bed.volume_key("theirs", "one"));
                assert!(unlock(&theirs, "wrong").is_none());
                let segment = theirs.read().unwrap().segment(20 << 20).unwrap();
                assert_eq!(segment.encryption, "aes-xts-plain64");
                assert_eq!(segment.sector_size, sector_size);
                assert_eq!((segment.offset, segment.length), (16 << 20, 4 << 20));

                bed.image("ours", 20 << 20);
                let ours = bed.device("ours");
                ours.format(&options(key_length, sector_size, kdf), &word("one"))
                    .unwrap();
                assert_eq!(bed.opens("ours", "one"), Some(0));
                assert_eq!(bed.opens("ours", "wrong"), None);
                let key = unlock(&ours, "one").unwrap().key;
                assert_eq!(*key, bed.volume_key("ours", "one"));
                assert_eq!(key.len(), key_length);
                let dump = bed.ok(&["luksDump", "ours"]);
                assert!(
                    dump.contains(&format!("sector: {sector_size} [bytes]")),
                    "{dump}"
                );
                assert_eq!(
                    dump.trim_end(),
                    ours.read().unwrap().dump().to_string().trim_end()
                );
            }
        }
    }
}

#[test]
fn keys_changed_by_either_work_in_the_other() {
    let bed = Bed::new();
    bed.image("disk", 20 << 20);
    bed.format("disk", &[]);
    let device = bed.device("disk");
    let key = bed.volume_key("disk", "one");

    // Ours: add, change, kill.
    let unlocked = unlock(&device, "one").unwrap();
    assert_eq!(*unlocked.key, key);
    let added = device.add_key(&unlocked, &word("two"), None, &fast("argon2id"));
    assert_eq!(added.unwrap(), 1);
    assert_eq!(bed.opens("disk", "two"), Some(1));
    let added = device.add_key(&unlocked, &word("three"), Some(31), &fast("pbkdf2"));
    assert_eq!(added.unwrap(), 31);
    assert_eq!(bed.opens("disk", "three"), Some(31));
    let taken = device.add_key(&unlocked, &word("three"), Some(31), &fast("pbkdf2"));
    assert_eq!(taken.unwrap_err().kind, ErrorKind::Keyslot);
    let changed = device.change_key(
        &word("three"),
        None,
        &word("wrong"),
        &fast("argon2i"),
        ChangeOptions::default(),
        &LIMITS,
    );
    assert_eq!(changed.unwrap(), 31);
    assert_eq!(bed.opens("disk", "wrong"), Some(31));
    assert_eq!(bed.opens("disk", "three"), None);
    device.kill_slot(31, false).unwrap();
    assert_eq!(bed.opens("disk", "wrong"), None);
    assert_eq!(bed.opens("disk", "one"), Some(0));

    // Theirs: the same.
    let fast = [
        "--pbkdf",
        "pbkdf2",
        "--pbkdf-force-iterations",
        "1000",
        "-d",
        "two",
    ];
    bed.ok(&[&["luksAddKey"], &fast[..], &["disk", "three"]].concat());
    assert_eq!(slot(&device, "three"), Some(2));
    bed.ok(&[&["luksChangeKey"], &fast[..], &["disk", "wrong"]].concat());
    assert_eq!(slot(&device, "wrong"), Some(1));
    assert_eq!(slot(&device, "two"), None);
    bed.ok(&["luksKillSlot", "-d", "three", "disk", "1"]);
    assert_eq!(slot(&device, "wrong"), None);
    assert_eq!(slot(&device, "one"), Some(0));
    assert_eq!(*unlock(&device, "three").unwrap().key, key);

    // The last one stays unless the user insists.
    device.kill_slot(0, false).unwrap();
    assert_eq!(
        device.kill_slot(2, false).unwrap_err().kind,
        ErrorKind::LastKeyslot
    );
    assert_eq!(
        device.kill_slot(5, false).unwrap_err().kind,
        ErrorKind::Keyslot
    );
    device.erase().unwrap();
    assert!(device.read().unwrap().keyslots().is_empty());
    assert!(!bed.ok(&["luksDump", "disk"]).contains("luks2\n\tKey"));
    let error = device.unlock(&word("three"), None, &LIMITS).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Keyslot);
}

#[test]
fn priorities_and_unbound_keys_are_as_in_cryptsetup() {
    let bed = Bed::new();
    bed.image("disk", 20 << 20);
    bed.format("disk", &[]);
    let device = bed.device("disk");
    let fast_options = ["--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000"];
    // The same passphrase in three slots, and an unbound key.
    for number in ["3", "4"] {
        let all = [
            &["luksAddKey", "-S", number],
            &fast_options[..],
            &["-d", "one", "disk", "one"],
        ];
        bed.ok(&all.concat());
    }
    let all = [
        &["luksAddKey", "--unbound", "--key-size", "256", "-S", "7"],
        &fast_options[..],
        &["disk", "three"],
    ];
    bed.ok(&all.concat());
    bed.ok(&["config", "--priority", "ignore", "-S", "0", "disk"]);
    bed.ok(&["config", "--priority", "prefer", "-S", "4", "disk"]);
    assert_eq!(slot(&device, "one"), Some(4));
    assert_eq!(bed.opens("disk", "one"), Some(4));
    device.kill_slot(4, false).unwrap();
    assert_eq!(slot(&device, "one"), Some(3));
    assert_eq!(bed.opens("disk", "one"), Some(3));
    device.kill_slot(3, false).unwrap();
    // Ignored slots open only by name.
    assert_eq!(
        device.unlock(&word("one"), None, &LIMITS).unwrap_err().kind,
        ErrorKind::Keyslot
    );
    assert_eq!(
        device
            .unlock(&word("one"), Some(0), &LIMITS)
            .unwrap()
            .keyslot,
        0
    );
    let error = device.unlock(&word("three"), Some(7), &LIMITS).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Keyslot);
    let info = device.read().unwrap().keyslot_info();
    let summary: Vec<_> = info
        .iter()
        .map(|slot| {
            (
                slot.keyslot,
                slot.priority,
                slot.opens_volume,
                slot.key_length,
            )
        })
        .collect();
    assert_eq!(
        summary,
        [
            (0, Priority::Ignore, true, 64),
            (7, Priority::Normal, false, 32)
        ]
    );
    assert_eq!(
        bed.ok(&["luksDump", "disk"]).trim_end(),
        device.read().unwrap().dump().to_string().trim_end()
    );
    // Killing it takes its digest along; the volume's last key stays.
    device.kill_slot(7, false).unwrap();
    assert_eq!(
        device.kill_slot(0, false).unwrap_err().kind,
        ErrorKind::LastKeyslot
    );
    let dump = bed.ok(&["luksDump", "disk"]);
    assert!(!dump.contains("  1: pbkdf2"), "{dump}");
}

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

/// Overwrites `length` bytes with noise that is no header.
fn scribble(path: &Path, offset: u64, length: usize) {
    use std::os::unix::fs::FileExt as _;
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    let noise: Vec<u8> = (3..=255).step_by(7).cycle().take(length).collect();
    file.write_all_at(&noise, offset).unwrap();
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
fn backups_of_either_restore_by_the_other() {
    let bed = Bed::new();
    bed.image("disk", 20 << 20);
    bed.format("disk", &[]);
    let device = bed.device("disk");
    device.backup(&bed.path("ours.bak")).unwrap();
    bed.ok(&[
        "luksHeaderBackup",
        "disk",
        "--header-backup-file",
        "theirs.bak",
    ]);
    assert!(
        fs::read(bed.path("ours.bak")).unwrap() == fs::read(bed.path("theirs.bak")).unwrap(),
        "not cryptsetup's bytes"
    );
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = fs::metadata(bed.path("ours.bak"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o7777, 0o400);
    }
    // Never over an existing file.
    let error = device.backup(&bed.path("ours.bak")).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Store(xtent_store::ErrorKind::Busy));

    let unlocked = unlock(&device, "one").unwrap();
    device
        .add_key(&unlocked, &word("two"), None, &fast("pbkdf2"))
        .unwrap();
    device.kill_slot(0, false).unwrap();
    let plan = device.plan_restore(&bed.path("theirs.bak")).unwrap();
    assert_eq!(plan.warnings.len(), 1, "{:?}", plan.warnings);
    device.restore(plan).unwrap();
    assert_eq!(bed.opens("disk", "one"), Some(0));
    assert_eq!(bed.opens("disk", "two"), None);
    let start = fs::read(bed.path("disk")).unwrap();
    assert!(start[..16 << 20] == fs::read(bed.path("ours.bak")).unwrap());

    device.erase().unwrap();
    bed.ok(&[
        "luksHeaderRestore",
        "disk",
        "--header-backup-file",
        "ours.bak",
    ]);
    assert_eq!(slot(&device, "one"), Some(0));

    // To a device without a header, to one with another, and refusals.
    bed.image("empty", 20 << 20);
    let empty = bed.device("empty");
    let plan = empty.plan_restore(&bed.path("ours.bak")).unwrap();
    assert!(
        plan.warnings[0].contains("no LUKS header"),
        "{:?}",
        plan.warnings
    );
    empty.restore(plan).unwrap();
    assert_eq!(bed.opens("empty", "one"), Some(0));
    bed.format("empty", &[]);
    let plan = empty.plan_restore(&bed.path("ours.bak")).unwrap();
    assert!(
        plan.warnings
            .iter()
            .any(|warning| warning.contains("UUIDs differ"))
    );
    empty.restore(plan).unwrap();
    assert_eq!(bed.opens("empty", "one"), Some(0));
    for arguments in [
        &["--offset", "16384"][..],
        &["--key-size", "256"],
        &["--sector-size", "512"],
    ] {
        bed.format("empty", arguments);
        let error = empty.plan_restore(&bed.path("ours.bak")).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Refused, "{arguments:?}");
    }
    let small = bed.image("small", 15 << 20);
    let error = self::device(&small)
        .plan_restore(&bed.path("ours.bak"))
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::TooShort);
    // Over a LUKS1 header, and the reverse.
    bed.ok(&[
        "luksFormat",
        "--type",
        "luks1",
        "--pbkdf-force-iterations",
        "1000",
        "empty",
        "two",
    ]);
    bed.ok(&[
        "luksHeaderBackup",
        "empty",
        "--header-backup-file",
        "luks1.bak",
    ]);
    empty.backup(&bed.path("our1.bak")).unwrap();
    assert!(fs::read(bed.path("our1.bak")).unwrap() == fs::read(bed.path("luks1.bak")).unwrap());
    let plan = empty.plan_restore(&bed.path("ours.bak")).unwrap();
    assert!(plan.warnings[0].contains("LUKS1"), "{:?}", plan.warnings);
    empty.restore(plan).unwrap();
    assert_eq!(bed.opens("empty", "one"), Some(0));
    let plan = empty.plan_restore(&bed.path("luks1.bak")).unwrap();
    assert!(plan.warnings[0].contains("LUKS2"), "{:?}", plan.warnings);
    empty.restore(plan).unwrap();
    assert_eq!(bed.opens("empty", "two"), Some(0));
    assert_eq!(slot(&empty, "two"), Some(0));
}

#[test]
fn a_plan_is_for_the_header_it_was_made_for() {
    let bed = Bed::new();
    bed.image("disk", 20 << 20);
    bed.format("disk", &[]);
    let device = bed.device("disk");
    device.backup(&bed.path("bak")).unwrap();
    let plan = device.plan_restore(&bed.path("bak")).unwrap();
    bed.ok(&["config", "--label", "changed", "disk"]);
    assert_eq!(device.restore(plan).unwrap_err().kind, ErrorKind::Changed);
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

/// Two of ours and cryptsetup add keys at once: whoever reports success, its
/// key opens; nobody tramples on the others.
#[test]
fn everybody_adds_keys_at_once() {
    let bed = Bed::new();
    bed.image("disk", 20 << 20);
    bed.format("disk", &[]);
    let added = std::thread::scope(|scope| {
        let ours = ["a", "b"].map(|name| {
            let bed = &bed;
            scope.spawn(move || {
                let device = bed.device("disk");
                let unlocked = unlock(&device, "one").unwrap();
                (0..6)
                    .map(|number| format!("{name}{number}"))
                    .inspect(|new| {
                        // Nothing but the slots has changed, so this succeeds.
                        device
                            .add_key(&unlocked, &word(new), None, &fast("pbkdf2"))
                            .unwrap();
                    })
                    .collect::<Vec<_>>()
            })
        });
        // cryptsetup gives up when the header changed since it was read.
        let theirs = (0..6)
            .map(|number| format!("c{number}"))
            .filter(|new| {
                fs::write(bed.path(new), new).unwrap();
                let output = bed.run(&[
                    "luksAddKey",
                    "--pbkdf",
                    "pbkdf2",
                    "--pbkdf-force-iterations",
                    "1000",
                    "-d",
                    "one",
                    "disk",
                    new,
                ]);
                output.status.success()
            })
            .collect::<Vec<_>>();
        let mut added = theirs;
        for thread in ours {
            added.extend(thread.join().unwrap());
        }
        added
    });
    let device = bed.device("disk");
    assert_eq!(device.read().unwrap().keyslots().len(), 1 + added.len());
    for word in &added {
        assert!(slot(&device, word).is_some(), "{word}");
    }
    assert_eq!(bed.opens("disk", "one"), Some(0));
}
