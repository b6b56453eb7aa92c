//! What a daemon leaves in `/run/xtent` so that another process can undo it.
//!
//! One directory per mount point, `mounts/ID/`:
//!
//! * `lock`: locked (flock(2)) as long as the daemon lives. This, not a process
//!   number, says whether it does;
//! * `state.json`: the record, [`State`];
//! * `fuse/`: the FUSE directory, where it is not the user's own.
//!
//! The record says only who serves what for whom. How far a mount got is not
//! recorded but looked up: the loop devices attached to `fuse/volume` and the
//! mounts on them are in `/sys` and `/proc/self/mountinfo`, which are right
//! even if the daemon was killed between any two steps.
//!
//! All of it is trusted only in directories that belong to this user and that
//! nobody else may enter.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::record::{State, read};
use crate::fuse::fail;
use crate::{Error, ErrorKind};

/// `mounts/`, checked.
pub(super) struct StateDir(PathBuf);

/// A mount's directory whose lock this process holds.
pub(super) struct Claim {
    path: PathBuf,
    _lock: File,
}

/// A mount's directory found in [`StateDir`].
pub(super) enum Found {
    /// Its daemon lives.
    Alive(PathBuf),
    /// Its daemon is gone; the lock is now held here.
    Dead(Claim),
}

impl StateDir {
    /// Opens the directory for this user, made if need be.
    pub(super) fn open() -> Result<Self, Error> {
        let uid = rustix::process::geteuid().as_raw();
        let base = if uid == 0 {
            PathBuf::from("/run/xtent")
        } else {
            let runtime = std::env::var_os("XDG_RUNTIME_DIR")
                .map(PathBuf::from)
                .filter(|dir| dir.is_absolute())
                .unwrap_or_else(|| PathBuf::from(format!("/run/user/{uid}")));
            if runtime.is_dir() {
                runtime.join("xtent")
            } else {
                PathBuf::from(format!("/tmp/xtent-{uid}"))
            }
        };
        Self::at(&base)
    }

    fn at(base: &Path) -> Result<Self, Error> {
        // Sockets that others use may be there as well: they enter, and change nothing.
        private_dir(base, 0o022)?;
        let mounts = base.join("mounts");
        private_dir(&mounts, 0o077)?;
        Ok(Self(mounts))
    }

    /// Takes the place for a mount on `state.dir` and writes `state` there.
    /// [`ErrorKind::Busy`] if there is one, dead or alive: clean up first.
    pub(super) fn claim(&self, state: &State) -> Result<Claim, Error> {
        let path = self.0.join(id(&state.dir));
        let failed = |e: io::Error| {
            fail(
                ErrorKind::Io,
                format!("cannot write the state of the mount to {}", path.display()),
                e,
            )
        };
        let in_use = || Error {
            kind: ErrorKind::Busy,
            message: format!(
                "another xtent is at work on {} just now; try again",
                state.dir.display()
            ),
            source: None,
        };
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Err(in_use()),
            other => other.map_err(failed)?,
        }
        let lock = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path.join("lock"))
            .map_err(failed)?;
        // Somebody who cleans up may have seen the directory already.
        if !try_lock(&lock).map_err(failed)? {
            return Err(in_use());
        }
        let claim = Claim { path, _lock: lock };
        match claim.save(state) {
            Ok(()) => Ok(claim),
            Err(e) => {
                claim.remove();
                Err(e)
            }
        }
    }

    /// The mounts whose state satisfies `wanted`.
    pub(super) fn find(
        &self,
        wanted: impl Fn(&State) -> bool,
    ) -> Result<Vec<(State, Found)>, Error> {
        let failed = |e: io::Error| {
            fail(
                ErrorKind::Io,
                format!("cannot read the states in {}", self.0.display()),
                e,
            )
        };
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.0).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            // A directory without a readable state is one that is being made
            // or removed, or was left by a kill in that moment: nothing is
            // mounted then.
            if let Some(state) = read(&path)
                && wanted(&state)
                && let Some(status) = status(path).map_err(failed)?
            {
                found.push((state, status));
            }
        }
        Ok(found)
    }

    /// Removes what a kill left between the first two steps of a claim on
    /// `dir`: a directory without a state.
    pub(super) fn remove_empty(&self, dir: &Path) {
        let path = self.0.join(id(dir));
        if path.is_dir() && read(&path).is_none() {
            match status(path.clone()) {
                Ok(Some(Found::Dead(claim))) => claim.remove(),
                // Not even a lock: rmdir refuses if one appears meanwhile.
                Ok(None) => drop(std::fs::remove_dir(path)),
                _ => {}
            }
        }
    }
}

impl Claim {
    /// Replaces the state at one stroke.
    pub(super) fn save(&self, state: &State) -> Result<(), Error> {
        let write = || -> io::Result<()> {
            let new = self.path.join("state.new");
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&new)?;
            file.write_all(&serde_json::to_vec_pretty(state)?)?;
            std::fs::rename(new, self.path.join("state.json"))
        };
        write().map_err(|e| {
            fail(
                ErrorKind::Io,
                format!(
                    "cannot write the state of the mount to {}",
                    self.path.display()
                ),
                e,
            )
        })
    }

    /// The private FUSE directory.
    pub(super) fn fuse_dir(&self) -> PathBuf {
        fuse_dir(&self.path)
    }

    /// Makes the private FUSE directory.
    pub(super) fn make_fuse_dir(&self) -> Result<PathBuf, Error> {
        let dir = self.fuse_dir();
        match DirBuilder::new().mode(0o700).create(&dir) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(fail(
                ErrorKind::Io,
                format!("cannot make {}", dir.display()),
                e,
            )),
            _ => Ok(dir),
        }
    }

    /// Removes all traces. What cannot be removed is left for the next one.
    pub(super) fn remove(self) {
        // The state first: without it nobody looks at the rest.
        for file in ["state.json", "state.new"] {
            let _ = std::fs::remove_file(self.path.join(file));
        }
        let _ = std::fs::remove_dir(self.fuse_dir());
        let _ = std::fs::remove_file(self.path.join("lock"));
        if let Err(e) = std::fs::remove_dir(&self.path) {
            tracing::warn!(path = %self.path.display(), error = %e, "state left behind");
        }
    }
}

/// The private FUSE directory of the mount with directory `path`.
pub(super) fn fuse_dir(path: &Path) -> PathBuf {
    path.join("fuse")
}

/// Whether the daemon of a mount's directory lives; `None` if there is no
/// (longer a) lock.
pub(super) fn status(path: PathBuf) -> io::Result<Option<Found>> {
    let name = path.join("lock");
    let lock = match OpenOptions::new().write(true).open(&name) {
        Ok(lock) => lock,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    if !try_lock(&lock)? {
        return Ok(Some(Found::Alive(path)));
    }
    // Whoever held it may have removed it, and a new one may be there.
    let still_there = match std::fs::metadata(&name) {
        Ok(named) => named.ino() == lock.metadata()?.ino(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => false,
        Err(e) => return Err(e),
    };
    Ok(still_there.then_some(Found::Dead(Claim { path, _lock: lock })))
}

fn try_lock(lock: &File) -> io::Result<bool> {
    match rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// One name per mount point, so that two daemons cannot claim the same: the
/// FNV-1a hash of its path. A collision refuses the second mount.
fn id(dir: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let hash = dir
        .as_os_str()
        .as_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    format!("{hash:016x}")
}

/// Makes `dir`, or checks that it is this user's and gives nobody else the rights
/// in `closed`.
fn private_dir(dir: &Path, closed: u32) -> Result<(), Error> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => return Ok(()),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) => {
            return Err(fail(
                ErrorKind::Io,
                format!("cannot make {} for the state of mounts", dir.display()),
                e,
            ));
        }
    }
    let metadata = std::fs::symlink_metadata(dir).map_err(|e| {
        fail(
            ErrorKind::Io,
            format!("cannot look at {}", dir.display()),
            e,
        )
    })?;
    let uid = rustix::process::geteuid().as_raw();
    if metadata.is_dir() && metadata.uid() == uid && metadata.mode() & closed == 0 {
        return Ok(());
    }
    Err(Error {
        kind: ErrorKind::Permission,
        message: format!(
            "{} must be a directory of user {uid} that nobody else can change (mode 0700 will do); \
             remove it or correct it",
            dir.display()
        ),
        source: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn state(dir: &str) -> State {
        State::new(dir.into(), "/dev/sdz".into(), false)
    }

    #[test]
    fn one_claim_per_mount_point() {
        let base = tempfile::tempdir().unwrap();
        let states = StateDir::at(&base.path().join("xtent")).unwrap();
        let first = states.claim(&state("/mnt/a")).unwrap();
        assert_eq!(
            states.claim(&state("/mnt/a")).err().unwrap().kind,
            ErrorKind::Busy
        );
        let other = states.claim(&state("/mnt/b")).unwrap();
        let found = states.find(|s| s.dir == Path::new("/mnt/a")).unwrap();
        assert!(matches!(found[..], [(_, Found::Alive(_))]));

        // A daemon that dies leaves its directory but not its lock.
        drop(first);
        let (found_state, found) = states
            .find(|s| s.dir == Path::new("/mnt/a"))
            .unwrap()
            .remove(0);
        assert_eq!(found_state, state("/mnt/a"));
        let Found::Dead(claim) = found else {
            panic!("seen as alive")
        };
        claim.remove();
        states.claim(&state("/mnt/a")).unwrap().remove();
        other.remove();
        assert_eq!(std::fs::read_dir(&states.0).unwrap().count(), 0);
    }

    #[test]
    fn a_kill_between_the_steps_of_a_claim_is_cleaned_up() {
        let base = tempfile::tempdir().unwrap();
        let states = StateDir::at(&base.path().join("xtent")).unwrap();
        let path = states.0.join(id(Path::new("/mnt/a")));
        for files in [&[][..], &["lock"], &["lock", "state.new"]] {
            std::fs::create_dir(&path).unwrap();
            for file in files {
                std::fs::write(path.join(file), "{").unwrap();
            }
            assert!(states.find(|_| true).unwrap().is_empty());
            states.remove_empty(Path::new("/mnt/a"));
            assert!(!path.exists(), "{files:?}");
        }
        // One that is alive stays.
        let claim = states.claim(&state("/mnt/a")).unwrap();
        std::fs::remove_file(path.join("state.json")).unwrap();
        states.remove_empty(Path::new("/mnt/a"));
        assert!(path.exists());
        claim.remove();
    }

    #[test]
    fn refuses_directories_that_others_can_write() {
        let base = tempfile::tempdir().unwrap();
        let dir = base.path().join("xtent");
        std::fs::create_dir(&dir).unwrap();
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o775)).unwrap();
        assert_eq!(
            StateDir::at(&dir).err().unwrap().kind,
            ErrorKind::Permission
        );
        let link = base.path().join("link");
        std::os::unix::fs::symlink(base.path(), &link).unwrap();
        assert_eq!(
            StateDir::at(&link).err().unwrap().kind,
            ErrorKind::Permission
        );
    }
}
