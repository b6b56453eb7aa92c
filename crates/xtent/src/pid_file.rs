//! The file with a server's process id.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::libc::{O_NOFOLLOW, O_NONBLOCK};

use crate::failure::{Exit, Failure, Result};

/// Bytes in a file that may be one of a process id.
const LONGEST: u64 = 16;

/// The highest process id that Linux gives (`PID_MAX_LIMIT`).
const HIGHEST: u32 = 1 << 22;

/// Removed when dropped.
#[derive(Debug)]
pub(crate) struct PidFile {
    path: PathBuf,
    file: File,
}

impl PidFile {
    /// Writes this process's id and a line end to a new file, or in place of the id
    /// of a server that has ended. Anything else that has the name stays: it may be
    /// a volume, or a key.
    pub(crate) fn write(path: &Path) -> Result<Self> {
        let fail = |e| Failure::system(format!("cannot write {}", path.display()), e);
        let path = std::path::absolute(path).map_err(fail)?;
        refuse_what_is_there(&path)?;
        let mut options = File::options();
        options.write(true).create_new(true).mode(0o644);
        let mut file = options.open(&path).map_err(fail)?;
        writeln!(file, "{}", std::process::id()).map_err(fail)?;
        Ok(Self { path, file })
    }

    /// The folder that it is removed from.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.path.parent()
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // Not the file of another server that has taken the name since.
        let identity = |found: std::fs::Metadata| (found.dev(), found.ino());
        let ours = self.file.metadata().ok().map(identity);
        let there = self.path.symlink_metadata().ok().map(identity);
        if ours.is_some() && ours == there && std::fs::remove_file(&self.path).is_err() {
            // A server that has become another user may not remove it, and its sandbox lets it cut no file.
            let digits = std::process::id().to_string().len();
            let _ = self.file.write_all_at(&vec![b'\n'; digits], 0);
        }
    }
}

/// Whether the process runs, and this program: after a while, or a restart of the
/// machine, the number of one that was killed is another's.
fn is_ours(pid: u32) -> bool {
    let name = |process: &str| std::fs::read(format!("/proc/{process}/comm")).ok();
    let found = name(&pid.to_string());
    found.is_some() && found == name("self")
}

/// Removes the file of a process that has ended; an error for everything else.
fn refuse_what_is_there(path: &Path) -> Result<()> {
    let mut options = File::options();
    options.read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK);
    let taken = |what: &str| {
        Err(Failure::new(
            Exit::Busy,
            format!("{} {what}; nothing was changed", path.display()),
        )
        .advise("Give a name that is free for --pid-file."))
    };
    let file = match options.open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        Err(_) => return taken("is no file with a process id"),
    };
    let mut text = String::new();
    let is_short = file
        .metadata()
        .is_ok_and(|m| m.is_file() && m.len() < LONGEST);
    if !is_short || file.take(LONGEST).read_to_string(&mut text).is_err() {
        return taken("is no file with a process id");
    }
    // One that is empty was left by a server that could not remove it.
    if !text.trim_end_matches('\n').is_empty() {
        // A number that can be one of a process; others may be a key.
        let number = text.strip_suffix('\n').map(str::parse::<u32>);
        match number
            .and_then(std::result::Result::ok)
            .filter(|&pid| pid <= HIGHEST)
        {
            Some(pid) if is_ours(pid) => {
                return taken(&format!("is the file of process {pid}, which runs"));
            }
            Some(_) => {}
            None => return taken("is no file with a process id"),
        }
    }
    std::fs::remove_file(path)
        .map_err(|e| Failure::system(format!("cannot replace {}", path.display()), e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_file_of_a_process_that_has_ended_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pid");
        let ours = format!("{}\n", std::process::id());
        // No process, and one of another program.
        for stale in [
            None,
            Some(""),
            Some("\n\n\n"),
            Some("4194304\n"),
            Some("1\n"),
        ] {
            if let Some(text) = stale {
                std::fs::write(&path, text).unwrap();
            }
            let file = PidFile::write(&path).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), ours);
            drop(file);
            assert!(!path.exists());
        }
        for kept in [
            "a key",
            "12345678\n",
            "4194304",
            &ours,
            "123456789012345678901234567890",
        ] {
            std::fs::write(&path, kept).unwrap();
            assert_eq!(PidFile::write(&path).unwrap_err().exit, Exit::Busy);
            assert_eq!(std::fs::read_to_string(&path).unwrap(), kept);
        }
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(PidFile::write(&link).is_err());
        assert!(PidFile::write(Path::new("/dev/null")).is_err());
    }

    #[test]
    fn another_servers_file_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pid");
        let file = PidFile::write(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "1\n").unwrap();
        drop(file);
        assert!(path.exists());
    }
}
