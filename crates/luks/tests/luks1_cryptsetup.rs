//! LUKS1 against the real `cryptsetup`, on image files: each opens, changes
//! and dumps what the other made.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use xtent_luks::{
    ChangeOptions, Device, ErrorKind, FormatOptions, KdfChoice, KdfLimits, Unlocked, Version,
};
use xtent_secret::SecretBytes;
use xtent_store::{Access, FileStore};

const NO_LIMIT: KdfLimits = KdfLimits { longest: None };

/// Cipher, bits of key.
const CIPHERS: [(&str, usize); 5] = [
    ("aes-xts-plain64", 256),
    ("aes-xts-plain64", 512),
    ("aes-cbc-essiv:sha256", 256),
    ("aes-cbc-plain64", 256),
    ("aes-cbc-plain", 128),
];
const HASHES: [&str; 5] = ["sha1", "sha256", "sha512", "ripemd160", "whirlpool"];
/// With one cipher: all others that this cryptsetup's library has.
const OTHER_HASHES: [&str; 7] = [
    "sha3-224",
    "sha3-256",
    "sha3-384",
    "sha3-512",
    "blake2b-512",
    "blake2s-256",
    "sm3",
];

/// Cipher, bits of key, hash.
fn shapes() -> impl Iterator<Item = (&'static str, usize, &'static str)> {
    let all = CIPHERS
        .into_iter()
        .flat_map(|(cipher, bits)| HASHES.map(|hash| (cipher, bits, hash)));
    let (cipher, bits) = CIPHERS[0];
    all.chain(OTHER_HASHES.map(|hash| (cipher, bits, hash)))
}

struct Image {
    directory: tempfile::TempDir,
    path: PathBuf,
}

impl Image {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(4 << 20).unwrap();
        Self { directory, path }
    }

    fn device(&self) -> Device {
        Device::new(Arc::new(
            FileStore::open(&self.path, Access::ReadWrite).unwrap(),
        ))
    }

    /// A key file with this passphrase.
    fn key_file(&self, passphrase: &str) -> PathBuf {
        let path = self.directory.path().join(format!("key-{passphrase}"));
        std::fs::write(&path, passphrase).unwrap();
        path
    }

    fn cryptsetup_opens(&self, passphrase: &str) -> bool {
        let key = self.key_file(passphrase);
        let output = run(
            cryptsetup(&["open", "--test-passphrase", "--type", "luks1"])
                .arg("--key-file")
                .arg(key)
                .arg(&self.path),
        );
        match output.status.code() {
            Some(0) => true,
            Some(2) => false,
            _ => panic!("{output:?}"),
        }
    }

    fn opens(&self, passphrase: &str) -> Option<Unlocked> {
        match self.device().unlock(&pass(passphrase), None, &NO_LIMIT) {
            Ok(unlocked) => Some(unlocked),
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::WrongPassphrase, "{error}");
                None
            }
        }
    }

    fn luks_dump(&self) -> String {
        let output = succeed(cryptsetup(&["luksDump"]).arg(&self.path));
        String::from_utf8(output.stdout).unwrap()
    }
}

fn pass(text: &str) -> SecretBytes {
    SecretBytes::copy_of(text.as_bytes()).unwrap()
}

fn cryptsetup(arguments: &[&str]) -> Command {
    let mut command = Command::new("cryptsetup");
    command.arg("-q").args(arguments).stdin(Stdio::null());
    command
}

/// The same, as cheap as a keyslot can be.
fn cheaply(arguments: &[&str]) -> Command {
    let mut command = cryptsetup(&["--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000"]);
    command.args(arguments);
    command
}

fn run(command: &mut Command) -> Output {
    match command.output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            panic!("this test needs cryptsetup: install the package cryptsetup-bin")
        }
        output => output.unwrap(),
    }
}

fn succeed(command: &mut Command) -> Output {
    let output = run(command);
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

fn cheap() -> KdfChoice {
    KdfChoice {
        kind: None,
        hash: None,
        target: Duration::from_secs(2),
        force_iterations: Some(1000),
        memory: None,
        parallel: None,
    }
}

fn options(cipher: &str, bits: usize, hash: &str) -> FormatOptions {
    FormatOptions {
        version: Version::Luks1,
        encryption: cipher.into(),
        key_length: bits / 8,
        sector_size: 512,
        kdf: cheap(),
        hash: hash.into(),
        uuid: Some("01234567-89ab-cdef-0123-456789abcdef".into()),
        label: None,
        subsystem: None,
        data_offset: None,
        detached: false,
        metadata_size: None,
        keyslots_size: None,
    }
}

fn luks_format(image: &Image, cipher: &str, bits: usize, hash: &str) {
    succeed(
        cheaply(&["luksFormat", "--type", "luks1", "--cipher", cipher])
            .args(["--key-size", &bits.to_string(), "--hash", hash])
            .args(["--uuid", "01234567-89ab-cdef-0123-456789abcdef"])
            .arg(&image.path)
            .arg(image.key_file("theirs")),
    );
}

/// Adds a key with cryptsetup.
fn luks_add_key(image: &Image, existing: &str, new: &str) {
    succeed(
        cheaply(&["luksAddKey", "--key-file"])
            .arg(image.key_file(existing))
            .arg(&image.path)
            .arg(image.key_file(new)),
    );
}

#[test]
fn what_cryptsetup_makes_opens_here_and_takes_our_keys() {
    for (cipher, bits, hash) in shapes() {
        let image = Image::new();
        luks_format(&image, cipher, bits, hash);
        let unlocked = image.opens("theirs").expect(cipher);
        assert_eq!(unlocked.key.len() * 8, bits);
        assert!(image.opens("wrong").is_none());

        let device = image.device();
        let added = device
            .add_key(&unlocked, &pass("ours"), None, &cheap())
            .unwrap();
        assert_eq!(added, 1);
        assert!(image.cryptsetup_opens("ours"), "{cipher} {bits} {hash}");
        luks_add_key(&image, "ours", "third");
        assert_eq!(image.opens("third").unwrap().key, unlocked.key);

        let changed = device
            .change_key(
                &pass("third"),
                None,
                &pass("fourth"),
                &cheap(),
                ChangeOptions::default(),
                &NO_LIMIT,
            )
            .unwrap();
        assert_eq!(changed, 3);
        assert!(!image.cryptsetup_opens("third"));
        assert!(image.cryptsetup_opens("fourth"));
        device.kill_slot(0, false).unwrap();
        assert!(!image.cryptsetup_opens("theirs"));
    }
}

#[test]
fn what_we_make_opens_in_cryptsetup_and_takes_its_keys() {
    for (cipher, bits, hash) in shapes() {
        let image = Image::new();
        image
            .device()
            .format(&options(cipher, bits, hash), &pass("ours"))
            .unwrap();
        assert!(image.cryptsetup_opens("ours"), "{cipher} {bits} {hash}");
        assert!(!image.cryptsetup_opens("wrong"));
        luks_add_key(&image, "ours", "theirs");
        assert_eq!(
            image.opens("theirs").unwrap().key,
            image.opens("ours").unwrap().key
        );
        succeed(
            cryptsetup(&["luksRemoveKey", "--key-file"])
                .arg(image.key_file("ours"))
                .arg(&image.path),
        );
        assert!(image.opens("ours").is_none());
        assert!(image.opens("theirs").is_some());
    }
}

/// Lines of a dump that are not random.
fn fixed_lines(dump: &str) -> Vec<&str> {
    let random = [
        "MK digest",
        "MK salt",
        "               \t",
        "\tSalt",
        "\t        ",
    ];
    dump.lines()
        .filter(|line| !random.iter().any(|start| line.starts_with(start)))
        .filter(|line| !line.starts_with("LUKS header information"))
        .collect()
}

#[test]
fn both_lay_the_header_out_alike() {
    for (cipher, bits) in CIPHERS {
        let (ours, theirs) = (Image::new(), Image::new());
        luks_format(&theirs, cipher, bits, "sha256");
        ours.device()
            .format(&options(cipher, bits, "sha256"), &pass("ours"))
            .unwrap();
        assert_eq!(
            fixed_lines(&ours.luks_dump()),
            fixed_lines(&theirs.luks_dump())
        );
        // All of the header but digest, salts and keyslot 0's salt.
        let read = |image: &Image| {
            let mut bytes = std::fs::read(&image.path).unwrap();
            bytes.truncate(4096);
            bytes[112..164].fill(0);
            bytes[216..248].fill(0);
            bytes
        };
        assert!(read(&ours) == read(&theirs), "{cipher} {bits}");
    }
}

#[test]
fn our_dump_reads_as_theirs() {
    let image = Image::new();
    luks_format(&image, "aes-xts-plain64", 512, "sha256");
    luks_add_key(&image, "theirs", "more");
    let theirs = image.luks_dump();
    let ours = image.device().read().unwrap().dump().to_string();
    let tail = |dump: &str| dump[dump.find("Version:").unwrap()..].to_string();
    assert_eq!(tail(&ours), tail(&theirs));
}

#[test]
fn a_benchmarked_key_has_sane_costs() {
    let image = Image::new();
    let options = FormatOptions {
        kdf: KdfChoice {
            target: Duration::from_millis(200),
            force_iterations: None,
            ..cheap()
        },
        ..options("aes-xts-plain64", 512, "sha256")
    };
    image.device().format(&options, &pass("ours")).unwrap();
    assert!(image.cryptsetup_opens("ours"));
}

#[test]
fn a_detached_header_works_both_ways() {
    for ours in [false, true] {
        let image = Image::new();
        let data: &Path = &image.directory.path().join("data");
        std::fs::File::create(data)
            .unwrap()
            .set_len(1 << 20)
            .unwrap();
        if ours {
            let options = FormatOptions {
                detached: true,
                ..options("aes-xts-plain64", 512, "sha256")
            };
            image.device().format(&options, &pass("theirs")).unwrap();
        } else {
            succeed(
                cheaply(&["luksFormat", "--type", "luks1", "--header"])
                    .arg(&image.path)
                    .arg(data)
                    .arg(image.key_file("theirs")),
            );
        }
        succeed(
            cryptsetup(&["open", "--test-passphrase", "--header"])
                .arg(&image.path)
                .arg("--key-file")
                .arg(image.key_file("theirs"))
                .arg(data),
        );
        let device = image.device();
        let segment = device.read().unwrap().segment(1 << 20).unwrap();
        assert_eq!((segment.offset, segment.length), (0, 1 << 20));
        assert!(image.opens("theirs").is_some());
    }
}

#[test]
fn an_erased_header_is_erased_for_both() {
    let image = Image::new();
    luks_format(&image, "aes-xts-plain64", 256, "sha256");
    image.device().erase().unwrap();
    assert!(image.opens("theirs").is_none());
    let output = run(cryptsetup(&["open", "--test-passphrase", "--key-file"])
        .arg(image.key_file("theirs"))
        .arg(&image.path));
    assert!(!output.status.success());
    assert!(image.luks_dump().contains("Key Slot 0: DISABLED"));
}
