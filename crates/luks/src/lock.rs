//! cryptsetup's metadata locks: `flock` on image files, a lock file in
//! `/run/cryptsetup` for block devices. Held only while metadata is read or
//! written; held longer they hang cryptsetup. And its lock for derivations that
//! take much memory, in the same folder.
//!
//! cryptsetup itself takes them for LUKS2 only. We take them for both
//! formats, so that two of ours never meet on a LUKS1 header either.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use xtent_store::FileStore;

use crate::{Error, ErrorKind};

/// The most that headers and their keyslots take: two LUKS2 copies of 4 MiB and 128 MiB of keyslots.
pub(crate) const METADATA: u64 = (8 + 128) << 20;

/// Where cryptsetup has its lock files.
pub(crate) const DIRECTORY: &str = "/run/cryptsetup";

/// What a lock is taken on.
#[derive(Clone)]
pub enum Target {
    /// Nothing: a store without locks, in tests.
    None,
    /// A file or block device.
    File(Arc<FileStore>),
    /// What has neither on this machine: a lock file of its own, by cryptsetup's protocol.
    LockFile {
        /// The folder of it, which exists or can be made.
        directory: PathBuf,
        /// Its name there.
        name: String,
        /// What it is for, in messages.
        of: PathBuf,
    },
}

/// A held lock; released when dropped. Stays on its thread: a thread that
/// holds a lock and asks again must be recognised, or it would wait for itself.
pub struct Guard {
    _held: Option<Rc<Held>>,
    _stays_on_its_thread: PhantomData<*const ()>,
}

impl Target {
    /// Waits for a shared lock, to read metadata.
    ///
    /// A thread that already holds a lock on the same file or device gets
    /// another guard of that one at once.
    pub fn shared(&self) -> Result<Guard, Error> {
        self.lock(Kind::Shared)
    }

    /// Waits for the exclusive lock, to write metadata.
    ///
    /// A thread that already holds the exclusive lock on the same file or
    /// device gets another guard of it at once; one that holds the shared lock
    /// waits for the others to leave, and somebody else may have written
    /// meanwhile: read again.
    pub fn exclusive(&self) -> Result<Guard, Error> {
        self.lock(Kind::Exclusive)
    }

    fn lock(&self, kind: Kind) -> Result<Guard, Error> {
        let held = match self {
            Self::None => None,
            Self::File(store) => Some(lock_store(store, kind)?),
            Self::LockFile {
                directory,
                name,
                of,
            } => Some(lock_named(directory, name, of, kind)?),
        };
        Ok(Guard {
            _held: held,
            _stays_on_its_thread: PhantomData,
        })
    }
}

/// A held lock on something that has a name and no device, in cryptsetup's directory of
/// lock files; released when dropped. Not for a thread that holds it already.
pub(crate) struct Named {
    fd: OwnedFd,
    file: LockFile,
}

impl Named {
    /// Waits for the exclusive lock called `name`; calls `waiting` first if somebody else
    /// has it.
    ///
    /// # Errors
    /// If this user may not write to cryptsetup's directory.
    pub(crate) fn wait_for(
        directory: &Path,
        name: &str,
        waiting: &dyn Fn(),
    ) -> Result<Self, Error> {
        let file = LockFile {
            directory: directory.into(),
            name: format!("LN_{name}"),
        };
        let fd = file.lock_saying(Kind::Exclusive, Path::new(name), waiting)?;
        Ok(Self { fd, file })
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        self.file.remove_if_unused(&self.fd);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Shared,
    Exclusive,
}

impl Kind {
    fn waiting(self) -> FlockOperation {
        match self {
            Self::Shared => FlockOperation::LockShared,
            Self::Exclusive => FlockOperation::LockExclusive,
        }
    }

    fn trying(self) -> FlockOperation {
        match self {
            Self::Shared => FlockOperation::NonBlockingLockShared,
            Self::Exclusive => FlockOperation::NonBlockingLockExclusive,
        }
    }
}

/// A file or device, whatever path leads to it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Identity {
    File { device: u64, inode: u64 },
    BlockDevice { number: u64 },
    LockFile { path: PathBuf },
}

/// One `flock` that this thread holds.
struct Held {
    fd: OwnedFd,
    identity: Identity,
    kind: std::cell::Cell<Kind>,
    lock_file: Option<LockFile>,
}

thread_local! {
    static HELD: RefCell<Vec<Weak<Held>>> = const { RefCell::new(Vec::new()) };
}

fn lock_store(store: &FileStore, kind: Kind) -> Result<Rc<Held>, Error> {
    let path = store.path();
    let stat = rustix::fs::fstat(store.file()).map_err(|errno| failed(path, "look at", errno))?;
    let identity = if store.is_block_device() {
        Identity::BlockDevice {
            number: stat.st_rdev,
        }
    } else {
        Identity::File {
            device: stat.st_dev,
            inode: stat.st_ino,
        }
    };
    let held = lock_once(identity, kind, path, || {
        if !store.is_block_device() {
            let fd = reopen(store)?;
            wait(&fd, kind, path)?;
            return Ok((fd, None));
        }
        let lock_file = LockFile {
            directory: DIRECTORY.into(),
            name: lock_file_name(stat.st_rdev),
        };
        Ok((lock_file.lock(kind, path)?, Some(lock_file)))
    })?;
    // As cryptsetup, which reads metadata past the cache.
    store.forget_cached(METADATA);
    Ok(held)
}

fn lock_named(directory: &Path, name: &str, of: &Path, kind: Kind) -> Result<Rc<Held>, Error> {
    let lock_file = LockFile {
        directory: directory.to_owned(),
        name: name.to_owned(),
    };
    let path = lock_file.path();
    lock_once(Identity::LockFile { path }, kind, of, || {
        Ok((lock_file.lock(kind, of)?, Some(lock_file)))
    })
}

/// The lock that this thread holds already, or what `take` takes. `path` is for messages.
fn lock_once(
    identity: Identity,
    kind: Kind,
    path: &Path,
    take: impl FnOnce() -> Result<(OwnedFd, Option<LockFile>), Error>,
) -> Result<Rc<Held>, Error> {
    let known = HELD.with_borrow_mut(|held| {
        held.retain(|held| held.strong_count() > 0);
        held.iter()
            .filter_map(Weak::upgrade)
            .find(|held| held.identity == identity)
    });
    if let Some(held) = known {
        if kind == Kind::Exclusive && held.kind.get() == Kind::Shared {
            wait(&held.fd, kind, path)?;
            held.kind.set(kind);
        }
        return Ok(held);
    }
    let (fd, lock_file) = take()?;
    let held = Rc::new(Held {
        fd,
        identity,
        kind: std::cell::Cell::new(kind),
        lock_file,
    });
    HELD.with_borrow_mut(|all| all.push(Rc::downgrade(&held)));
    Ok(held)
}

impl Drop for Held {
    fn drop(&mut self) {
        // Closing the file releases the lock; only a lock file needs care.
        if let Some(lock_file) = &self.lock_file {
            lock_file.remove_if_unused(&self.fd);
        }
    }
}

/// A new open file description of the store's own file: `flock` belongs to
/// those, and one that others use as well would be shared with them.
fn reopen(store: &FileStore) -> Result<OwnedFd, Error> {
    // The path may lead elsewhere by now; the descriptor does not.
    let path = PathBuf::from(format!("/proc/self/fd/{}", store.file().as_raw_fd()));
    let flags = OFlags::NONBLOCK | OFlags::CLOEXEC;
    // Writable where possible: network file systems want it for an exclusive
    // lock. Nothing is written.
    rustix::fs::open(&path, flags | OFlags::RDWR, Mode::empty())
        .or_else(|_| rustix::fs::open(&path, flags | OFlags::RDONLY, Mode::empty()))
        .map_err(|errno| failed(store.path(), "open, for its metadata lock,", errno))
}

/// A lock file in a directory of them, by cryptsetup's protocol: whoever
/// leaves last removes it, so a lock counts only while the name still leads
/// to the locked file.
#[derive(Debug)]
struct LockFile {
    directory: PathBuf,
    name: String,
}

/// `L_8:1` for /dev/sda1.
fn lock_file_name(device: u64) -> String {
    format!(
        "L_{}:{}",
        rustix::fs::major(device),
        rustix::fs::minor(device)
    )
}

impl LockFile {
    /// Waits for the lock; `device` is for messages.
    fn lock(&self, kind: Kind, device: &Path) -> Result<OwnedFd, Error> {
        self.lock_saying(kind, device, &|| say_waiting(device))
    }

    /// As [`Self::lock`], with a message of its own when it has to wait.
    fn lock_saying(&self, kind: Kind, device: &Path, waiting: &dyn Fn()) -> Result<OwnedFd, Error> {
        let directory = self.open_directory(device)?;
        loop {
            let flags = OFlags::CREATE | OFlags::NOFOLLOW | OFlags::RDWR | OFlags::CLOEXEC;
            let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
            let fd = rustix::fs::openat(&directory, &self.name, flags, mode).map_err(|errno| {
                let what = format!("open {}, to lock the metadata of", self.path().display());
                failed(device, &what, errno)
            })?;
            wait_saying(&fd, kind, device, waiting)?;
            if self.is_still(&fd) {
                return Ok(fd);
            }
            // Removed by the one who held it before: start over.
        }
    }

    /// Removes the file if nobody else has or wants it, by taking the
    /// exclusive lock first. Whoever waits meanwhile finds the name gone.
    fn remove_if_unused(&self, fd: &OwnedFd) {
        let alone = rustix::fs::flock(fd, FlockOperation::NonBlockingLockExclusive).is_ok();
        if alone && self.is_still(fd) {
            // A file left behind does no harm.
            let _ = rustix::fs::unlink(self.path());
        }
    }

    /// Whether the name still leads to the open file.
    fn is_still(&self, fd: impl AsFd) -> bool {
        let same = |a: Stat, b: Stat| a.st_dev == b.st_dev && a.st_ino == b.st_ino;
        let named = rustix::fs::statat(rustix::fs::CWD, self.path(), AtFlags::SYMLINK_NOFOLLOW);
        match (rustix::fs::fstat(fd), named) {
            (Ok(open), Ok(named)) => same(open, named),
            _ => false,
        }
    }

    /// The directory, made if it is not there; `device` is for messages.
    fn open_directory(&self, device: &Path) -> Result<OwnedFd, Error> {
        let open = || {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::open(&self.directory, flags, Mode::empty())
        };
        let opened = match open() {
            Err(Errno::NOENT) => match rustix::fs::mkdir(&self.directory, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => open(),
                Err(errno) => Err(errno),
            },
            opened => opened,
        };
        opened.map_err(|errno| no_directory(device, &self.directory, errno))
    }

    fn path(&self) -> PathBuf {
        self.directory.join(&self.name)
    }
}

/// Takes the lock on `fd`, waiting for as long as it takes, and says so.
fn wait(fd: &OwnedFd, kind: Kind, path: &Path) -> Result<(), Error> {
    wait_saying(fd, kind, path, &|| say_waiting(path))
}

fn say_waiting(path: &Path) {
    tracing::info!(
        "waiting for another program to finish with the metadata of {}",
        path.display()
    );
}

fn wait_saying(fd: &OwnedFd, kind: Kind, path: &Path, waiting: &dyn Fn()) -> Result<(), Error> {
    let mut operation = kind.trying();
    loop {
        match rustix::fs::flock(fd, operation) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) => {
                waiting();
                operation = kind.waiting();
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(failed(path, "lock the metadata of", errno)),
        }
    }
}

/// The directory for a device's lock file cannot be opened.
fn no_directory(device: &Path, directory: &Path, errno: Errno) -> Error {
    let (device, directory) = (device.display(), directory.display());
    let what_to_do = match errno {
        Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::NOENT | Errno::NOTDIR | Errno::LOOP => {
            "; that must be a directory (mode 0700) that this user can write to: for block devices \
             run this as root"
        }
        // No descriptor is left, say: not the directory's fault.
        _ => "",
    };
    Error::new(
        store_kind(errno),
        format!("cannot lock the metadata of {device} in {directory}{what_to_do}"),
    )
    .caused_by(std::io::Error::from(errno))
}

fn failed(path: &Path, what: &str, errno: Errno) -> Error {
    Error::new(
        store_kind(errno),
        format!("cannot {what} {}", path.display()),
    )
    .caused_by(std::io::Error::from(errno))
}

fn store_kind(errno: Errno) -> ErrorKind {
    ErrorKind::Store(match errno {
        Errno::ACCESS | Errno::PERM => xtent_store::ErrorKind::Permission,
        Errno::ROFS => xtent_store::ErrorKind::ReadOnly,
        Errno::NOSPC => xtent_store::ErrorKind::NoSpace,
        Errno::NOENT => xtent_store::ErrorKind::NotFound,
        Errno::NOSYS | Errno::OPNOTSUPP => xtent_store::ErrorKind::Unsupported,
        _ => xtent_store::ErrorKind::Io,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use xtent_store::Access;

    fn image() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        std::fs::write(&path, [0; 512]).unwrap();
        (directory, path)
    }

    fn target(path: &Path) -> Target {
        Target::File(Arc::new(FileStore::open(path, Access::ReadWrite).unwrap()))
    }

    /// Whether somebody with an open file of his own could lock it now.
    fn free(path: &Path, kind: Kind) -> bool {
        let file = std::fs::File::open(path).unwrap();
        rustix::fs::flock(&file, kind.trying()).is_ok()
    }

    #[test]
    fn others_see_the_lock_and_its_release() {
        let (_directory, path) = image();
        let target = target(&path);
        let guard = target.shared().unwrap();
        assert!(free(&path, Kind::Shared));
        assert!(!free(&path, Kind::Exclusive));
        drop(guard);
        let guard = target.exclusive().unwrap();
        assert!(!free(&path, Kind::Shared));
        drop(guard);
        assert!(free(&path, Kind::Exclusive));
    }

    #[test]
    fn a_thread_never_waits_for_itself() {
        let (_directory, path) = image();
        // Two stores on one file, as with two operations on one image.
        let (one, other) = (target(&path), target(&path));
        let shared = one.shared().unwrap();
        let exclusive = other.exclusive().unwrap();
        let again = one.shared().unwrap();
        assert!(!free(&path, Kind::Shared));
        drop(shared);
        drop(exclusive);
        assert!(!free(&path, Kind::Shared));
        drop(again);
        assert!(free(&path, Kind::Exclusive));
    }

    #[test]
    fn another_thread_waits() {
        let (_directory, path) = image();
        let guard = target(&path).exclusive().unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _guard = target(&path).shared().unwrap();
                sender.send("reader").unwrap();
            });
            // Once the kernel lists the waiter, it is known to wait.
            let inode = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(&path).unwrap());
            loop {
                let locks = std::fs::read_to_string("/proc/locks").unwrap();
                let waits =
                    |line: &str| line.contains("-> FLOCK") && line.contains(&format!(":{inode} "));
                if locks.lines().any(waits) {
                    break;
                }
                std::thread::yield_now();
            }
            sender.send("writer").unwrap();
            drop(guard);
        });
        assert_eq!(
            receiver.iter().take(2).collect::<Vec<_>>(),
            ["writer", "reader"]
        );
    }

    #[test]
    fn only_a_directory_that_is_at_fault_is_blamed() {
        let message =
            |errno| no_directory(Path::new("/dev/sda"), Path::new("/run/x"), errno).message;
        for errno in [Errno::MFILE, Errno::NFILE, Errno::ACCESS, Errno::NOTDIR] {
            let at_fault = matches!(errno, Errno::ACCESS | Errno::NOTDIR);
            assert_eq!(message(errno).contains("as root"), at_fault);
            assert!(message(errno).contains("/dev/sda in /run/x"));
        }
        // What is not a directory, for a store without a path.
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("file"), "").unwrap();
        let target = Target::LockFile {
            directory: directory.path().join("file"),
            name: "export".into(),
            of: "nbd://host".into(),
        };
        let error = target.shared().err().unwrap();
        assert!(
            error.message.contains("metadata of nbd://host in "),
            "{error}"
        );
    }

    #[test]
    fn what_has_no_file_is_locked_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let target = || Target::LockFile {
            directory: directory.path().join("made"),
            name: "export".into(),
            of: "nbd://host".into(),
        };
        let file = directory.path().join("made/export");
        let shared = target().shared().unwrap();
        assert!(free(&file, Kind::Shared));
        assert!(!free(&file, Kind::Exclusive));
        // The same thread never waits for itself.
        let exclusive = target().exclusive().unwrap();
        assert!(!free(&file, Kind::Shared));
        drop((shared, exclusive));
        assert!(!file.exists());
    }

    #[test]
    fn lock_files_follow_the_name_and_are_removed_by_the_last() {
        let directory = tempfile::tempdir().unwrap();
        let make = || LockFile {
            directory: directory.path().join("cryptsetup"),
            name: "L_8:1".into(),
        };
        let (one, other) = (make(), make());
        let device = Path::new("/dev/sda1");
        let first = one.lock(Kind::Shared, device).unwrap();
        let second = other.lock(Kind::Shared, device).unwrap();
        one.remove_if_unused(&first);
        drop(first);
        assert!(one.path().exists());
        other.remove_if_unused(&second);
        assert!(!other.path().exists());
        assert!(!other.is_still(&second));
        // The old file is still locked; a newcomer gets a new one.
        let third = one.lock(Kind::Exclusive, device).unwrap();
        assert!(one.is_still(&third));
        other.remove_if_unused(&second);
        assert!(one.path().exists());
    }

    #[test]
    fn names_are_those_of_cryptsetup() {
        assert_eq!(lock_file_name(rustix::fs::makedev(8, 1)), "L_8:1");
        assert_eq!(
            lock_file_name(rustix::fs::makedev(259, 1_000_000)),
            "L_259:1000000"
        );
    }

    #[test]
    fn a_file_in_place_of_the_directory_is_an_error_that_names_it() {
        let directory = tempfile::NamedTempFile::new().unwrap();
        let lock_file = LockFile {
            directory: directory.path().into(),
            name: "L_8:1".into(),
        };
        let error = lock_file
            .lock(Kind::Shared, Path::new("/dev/sda1"))
            .unwrap_err();
        assert!(error.message.contains(directory.path().to_str().unwrap()));
        assert!(error.message.contains("run this as root"));
    }
}
