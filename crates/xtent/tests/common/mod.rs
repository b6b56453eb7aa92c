//! Runs the command in a folder of its own, with small and cheap volumes.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "each test program uses a part of it, and a panic is how tests fail"
)]

pub mod server;

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// The passphrase of every volume here; `key` holds it.
pub const SECRET: &str = "correct horse";

/// 1 MiB that no two sectors of share.
pub fn image() -> Vec<u8> {
    (0..1_u32 << 18)
        .flat_map(|i| (i.wrapping_mul(2_654_435_761)).to_le_bytes())
        .collect()
}

/// A folder for one test.
pub struct Bed {
    dir: TempDir,
}

/// What a command said.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Said {
    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// Failed with this exit code, saying all of these.
    #[track_caller]
    pub fn failed(self, code: i32, texts: &[&str]) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(!self.err.contains("panicked"), "{self:?}");
        for text in texts {
            assert!(self.err.contains(text), "no `{text}` in {self:?}");
        }
        self
    }

    /// The JSON object on standard output.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

impl Bed {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("key"), SECRET).unwrap();
        std::fs::write(dir.path().join("other"), "battery staple").unwrap();
        Self { dir }
    }

    /// With a cheap LUKS2 volume of 1 MiB, `disk.img`.
    pub fn with_luks2() -> Self {
        let bed = Self::new();
        bed.run(
            "format --size 1M --key-file key --pbkdf pbkdf2 --pbkdf-force-iterations 1000 disk.img",
        )
        .ok();
        bed
    }

    /// With a cheap LUKS1 volume of 1 MiB, `disk.img`.
    pub fn with_luks1() -> Self {
        let bed = Self::new();
        bed.run(
            "format --type luks1 --size 1M --key-file key --pbkdf-force-iterations 1000 disk.img",
        )
        .ok();
        bed
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Words separated by blanks; standard input is empty.
    pub fn run(&self, line: &str) -> Said {
        self.run_with(line, "")
    }

    /// Words that may have blanks; standard input is empty.
    pub fn run_words(&self, words: &[&str]) -> Said {
        self.run_command(self.command(words), "")
    }

    /// The same as [`Self::run`] with this on standard input.
    pub fn run_with(&self, line: &str, input: &str) -> Said {
        self.run_command(self.command(line.split(' ')), input)
    }

    fn run_command(&self, mut command: Command, input: &str) -> Said {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A command that fails early does not read it.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        Said {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    pub fn command(&self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtent"));
        command
            .args(args)
            .current_dir(self.dir())
            .env_remove("CREDENTIALS_DIRECTORY")
            .env_remove("LISTEN_FDS")
            .env_remove("NOTIFY_SOCKET")
            .env("XDG_RUNTIME_DIR", self.dir());
        command
    }

    /// Overwrites bytes of a file.
    pub fn damage(&self, name: &str, offset: u64, bytes: &[u8]) {
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::options()
            .write(true)
            .open(self.path(name))
            .unwrap();
        file.write_all_at(bytes, offset).unwrap();
    }

    pub fn truncate(&self, name: &str, size: u64) {
        let file = std::fs::File::options()
            .write(true)
            .open(self.path(name))
            .unwrap();
        file.set_len(size).unwrap();
    }
}
