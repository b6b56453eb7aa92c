//! The file with a server's process id.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Result};

/// Removed when dropped.
#[derive(Debug)]
pub(crate) struct PidFile(PathBuf);

impl PidFile {
    /// Writes this process's id and a line end; what was there is replaced.
    pub(crate) fn write(path: &Path) -> Result<Self> {
        let fail = |e| Failure::system(format!("cannot write {}", path.display()), e);
        let path = std::path::absolute(path).map_err(fail)?;
        let mut file = std::fs::File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o644)
            .open(&path)
            .map_err(fail)?;
        writeln!(file, "{}", std::process::id()).map_err(fail)?;
        Ok(Self(path))
    }

    /// The folder that it is removed from.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.0.parent()
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
