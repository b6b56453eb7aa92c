//! The kernel's own dm-crypt: shell scripts as root inside User Mode Linux
//! (`scripts/uml.sh`). No privileges on the host.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{Cmd, Scratch};

/// Names in the guest: of the mapping and of the key file.
const PRELUDE: &str = r#"
set -e
# open_luks NAME KEY: /d/NAME becomes /dev/mapper/NAME
open_luks() {
    cryptsetup open --disable-keyring --key-file "/in/$2" "/d/$1" "$1"
}
"#;

/// A script and what it works on.
#[derive(Default)]
pub struct Job {
    script: String,
    disks: Vec<(String, PathBuf)>,
    files: Vec<(String, Vec<u8>)>,
}

/// What came of it.
pub struct Outcome {
    /// What the script printed.
    pub console: String,
    results: Scratch,
}

impl Job {
    /// A script for busybox's `sh -e`, in the folder `/out`.
    pub fn new(script: &str) -> Self {
        Self {
            script: format!("{PRELUDE}{script}"),
            ..Self::default()
        }
    }

    /// An image that the script sees as the block device `/d/NAME`.
    pub fn disk(mut self, name: &str, image: &Path) -> Self {
        self.disks.push((name.to_owned(), image.to_owned()));
        self
    }

    /// A file that the script sees as `/in/NAME`.
    pub fn file(mut self, name: &str, bytes: &[u8]) -> Self {
        self.files.push((name.to_owned(), bytes.to_vec()));
        self
    }

    /// Boots, runs, fails with the console log if the script fails.
    pub fn run(self) -> Outcome {
        let results = Scratch::new();
        let inputs = Scratch::new();
        let mut command = Cmd::new(crate::bed::root_folder().join("scripts/uml.sh"))
            .args(["--timeout", "150", "--out"])
            .arg(results.path())
            .limit(Duration::from_secs(180));
        for (name, image) in &self.disks {
            command = command.args(["--disk", &format!("{name}={}", image.display())]);
        }
        for (name, bytes) in &self.files {
            let path = inputs.file(name, bytes);
            command = command.args(["--file", &format!("{name}={}", path.display())]);
        }
        let script = inputs.file("job-script", self.script.as_bytes());
        let done = command
            .env("CARGO_TARGET_DIR", crate::bed::target_folder())
            .arg(script)
            .ok();
        Outcome {
            console: done.out(),
            results,
        }
    }
}

impl Outcome {
    /// A file that the script left in `/out`.
    pub fn file(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.results.join(name))
            .unwrap_or_else(|error| panic!("{name}: {error}; console:\n{}", self.console))
    }
}
