//! A store that fails on demand: a file in a FUSE folder whose reads, writes
//! and flushes go through nbdkit, where a trigger file makes them fail.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::mount::{Cleaner, mounts_under};
use crate::{Background, Cmd, PATIENCE, Scratch};

/// What can be made to fail.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// Reads, with EIO.
    Read,
    /// Writes, with ENOSPC.
    Write,
    /// Flushes, with EIO.
    Flush,
}

/// The store, present while this is.
pub struct FaultyStore {
    /// The file to open.
    pub path: PathBuf,
    process: Background,
    _cleaner: Cleaner,
    scratch: Scratch,
}

impl FaultyStore {
    /// A store whose bytes are those of `image`.
    pub fn new(image: &Path) -> Self {
        let scratch = Scratch::new();
        let cleaner = Cleaner::new(scratch.path());
        let folder = scratch.folder("mnt");
        let path = folder.join("store");
        let trigger = |name: &str| scratch.join(name).display().to_string();
        let image = image.display();
        // Flushes cannot be made to fail by nbdkit's error filter, so the
        // device below it is a script.
        let process = Cmd::peer("nbdfuse")
            .arg(&path)
            .args(["--command"])
            .arg(Cmd::peer("nbdkit").line())
            .args(["-s", "--exit-with-parent", "--filter=error", "eval"])
            .args([
                "can_write=exit 0".to_owned(),
                "can_flush=exit 0".to_owned(),
                "thread_model=echo parallel".to_owned(),
                format!("get_size=stat -c %s {image}"),
                format!(
                    "pread=dd if={image} iflag=skip_bytes,count_bytes skip=$4 count=$3 bs=1M status=none"
                ),
                format!(
                    "pwrite=dd of={image} oflag=seek_bytes seek=$4 bs=1M conv=notrunc status=none"
                ),
                format!(
                    "flush=if [ -e {} ]; then echo EIO told to fail >&2; exit 1; fi",
                    trigger("Flush")
                ),
                "error-pread=EIO".to_owned(),
                "error-pread-rate=100%".to_owned(),
                format!("error-pread-file={}", trigger("Read")),
                "error-pwrite=ENOSPC".to_owned(),
                "error-pwrite-rate=100%".to_owned(),
                format!("error-pwrite-file={}", trigger("Write")),
            ])
            .spawn();
        let mut store = Self {
            path,
            process,
            _cleaner: cleaner,
            scratch,
        };
        store.wait(&folder);
        store
    }

    /// nbdfuse says nothing when it is ready: the mount table does.
    fn wait(&mut self, folder: &Path) {
        let end = Instant::now() + PATIENCE;
        while mounts_under(folder).is_empty() || fs::metadata(&self.path).is_err() {
            assert!(self.process.is_running(), "nbdfuse ended at once");
            assert!(Instant::now() < end, "nbdfuse does not mount");
            std::thread::yield_now();
        }
    }

    /// From now on it fails.
    pub fn break_it(&self, fault: Fault) {
        fs::write(self.scratch.join(&format!("{fault:?}")), b"").unwrap();
    }

    /// From now on it works again.
    pub fn mend_it(&self, fault: Fault) {
        fs::remove_file(self.scratch.join(&format!("{fault:?}"))).unwrap();
    }
}
