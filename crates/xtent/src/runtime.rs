//! The folder for what lives as long as a process: sockets and the registry of
//! `xtent status`.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::failure::{Exit, Failure, Result};

/// Where root's is.
const OF_ROOT: &str = "/run/xtent";
/// Where the service manager makes a folder for each user that is logged in.
const OF_USERS: &str = "/run/user";
/// Where anybody can make a folder.
const TEMPORARY: &str = "/tmp";

/// This user's folder, made if need be, for its owner only: `/run/xtent` for
/// root; for others `xtent` in `$XDG_RUNTIME_DIR` or, where that is not set (`su`,
/// cron, containers), in `/run/user/UID`; `/tmp/xtent-UID` if there is neither.
pub(crate) fn folder() -> Result<PathBuf> {
    let uid = rustix::process::geteuid();
    let dir = if uid.is_root() {
        PathBuf::from(OF_ROOT)
    } else if let Some(runtime) = std::env::var_os("XDG_RUNTIME_DIR") {
        Path::new(&runtime).join("xtent")
    } else {
        let managed = Path::new(OF_USERS).join(uid.as_raw().to_string());
        match managed.metadata() {
            Ok(found) if found.uid() == uid.as_raw() => managed.join("xtent"),
            _ => Path::new(TEMPORARY).join(format!("xtent-{}", uid.as_raw())),
        }
    };
    make_private(&dir)?;
    Ok(dir)
}

/// Makes a folder that only this user can change; refuses another's.
pub(crate) fn make_private(path: &Path) -> Result<()> {
    let fail = |e| Failure::system(format!("cannot make {}", path.display()), e);
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(fail)?;
    let metadata = path.symlink_metadata().map_err(fail)?;
    if !metadata.is_dir()
        || metadata.uid() != rustix::process::geteuid().as_raw()
        || metadata.permissions().mode() & 0o022 != 0
    {
        return Err(Failure::new(
            Exit::Permission,
            format!(
                "{} is not a folder that only this user can change",
                path.display()
            ),
        ));
    }
    Ok(())
}

/// A file of this user's to be locked, made if need be; it stays.
pub(crate) fn file_to_lock(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.mode(0o600).open(path)
}

/// Folders like [`folder`] that exist: of every user for root, else this one's.
pub(crate) fn folders() -> Vec<PathBuf> {
    if !rustix::process::geteuid().is_root() {
        return folder().into_iter().collect();
    }
    let below = |parent: &Path, wanted: &dyn Fn(&Path) -> Option<PathBuf>| -> Vec<PathBuf> {
        std::fs::read_dir(parent)
            .into_iter()
            .flatten()
            .filter_map(|entry| wanted(&entry.ok()?.path()))
            .collect()
    };
    let mut found = vec![PathBuf::from(OF_ROOT)];
    // Each by the user whose name it has: anybody can make a folder below /tmp.
    let is_of = |dir: &Path, uid: &str| {
        let found = dir.symlink_metadata().ok()?;
        (found.is_dir() && Some(found.uid()) == uid.parse().ok()).then_some(())
    };
    found.extend(below(Path::new(OF_USERS), &|dir| {
        let own = dir.join("xtent");
        is_of(&own, dir.file_name()?.to_str()?)?;
        Some(own)
    }));
    found.extend(below(Path::new(TEMPORARY), &|dir| {
        is_of(dir, dir.file_name()?.to_str()?.strip_prefix("xtent-")?)?;
        Some(dir.to_owned())
    }));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/xtent");
        make_private(&path).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        make_private(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o777)).unwrap();
        assert_eq!(make_private(&path).unwrap_err().exit, Exit::Permission);
    }
}
