//! Scratch folders, images and test data.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::Cmd;

/// A folder that goes away when dropped.
pub struct Scratch(tempfile::TempDir);

impl Scratch {
    /// An empty folder on the machine's temporary file system.
    #[expect(clippy::new_without_default, reason = "it makes a folder")]
    pub fn new() -> Self {
        Self(tempfile::Builder::new().prefix("xtent-").tempdir().unwrap())
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// A path in the folder.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A new file with `bytes` in it.
    pub fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    /// A new shell script that can be run. Another process writes it: a command that another
    /// test starts in this one just then would have the file open, and what somebody writes
    /// cannot be run.
    pub fn program(&self, name: &str, script: &str) -> PathBuf {
        let path = self.join(name);
        Cmd::new("/bin/sh")
            .args(["-c", "cat >\"$0\" && chmod 755 \"$0\""])
            .arg(&path)
            .stdin(format!("#!/bin/sh\n{script}\n").as_bytes())
            .ok();
        path
    }

    /// A new sparse file.
    pub fn image(&self, name: &str, size: u64) -> PathBuf {
        let path = self.join(name);
        File::create_new(&path).unwrap().set_len(size).unwrap();
        path
    }

    /// A new folder.
    pub fn folder(&self, name: &str) -> PathBuf {
        let path = self.join(name);
        fs::create_dir(&path).unwrap();
        path
    }
}

/// `len` bytes without any period that a sector or a tweak could hide in;
/// different for different seeds.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    // xorshift64*: good enough to make any two places differ.
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        bytes.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Fails at the first byte that differs; does not print both.
pub fn assert_same(found: &[u8], wanted: &[u8], what: &str) {
    assert_eq!(found.len(), wanted.len(), "{what}: length");
    if let Some(at) = found.iter().zip(wanted).position(|(a, b)| a != b) {
        let end = (at + 16).min(found.len());
        panic!(
            "{what}: differs at byte {at}: found {:02x?}, wanted {:02x?}",
            &found[at..end],
            &wanted[at..end]
        );
    }
}

/// Bytes of a file from `offset` on.
pub fn read_range(path: &Path, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    File::open(path)
        .unwrap()
        .read_exact_at(&mut bytes, offset)
        .unwrap();
    bytes
}

/// Overwrites a part of a file.
pub fn write_range(path: &Path, offset: u64, bytes: &[u8]) {
    File::options()
        .write(true)
        .open(path)
        .unwrap()
        .write_all_at(bytes, offset)
        .unwrap();
}

/// Fails if `path` no longer holds what it held when this was made.
pub struct Unchanged {
    path: PathBuf,
    before: Vec<u8>,
}

impl Unchanged {
    /// Remembers what is in `path`.
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            before: fs::read(path).unwrap(),
        }
    }

    /// Compares.
    pub fn assert(&self, what: &str) {
        assert_same(&fs::read(&self.path).unwrap(), &self.before, what);
    }
}
