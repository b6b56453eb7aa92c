//! LUKS2 against the real cryptsetup, on plain files: what one makes or
//! changes, the other opens, and both recover the same headers.

#![expect(clippy::unwrap_used, reason = "a test may")]

mod backups;
mod generated;
mod headers;
mod keys;
mod tokens;

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
use xtent_store::testing::{RecordingStore, Sampling};
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
        metadata_size: None,
        keyslots_size: None,
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
    unlock(device, passphrase).and_then(|unlocked| unlocked.keyslot)
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
