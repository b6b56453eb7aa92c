//! Who may use a file: server locks, and claims on block devices.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, fcntl};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::geometry::BlockDevice;
use super::{Access, FileStore};
use crate::{Act, Error, ErrorKind, block};

/// Where the server lock of a file's byte 0 is: far beyond the end of any file, and away
/// from the bytes that QEMU locks (100 to 203). Each byte of the file has its own, so that
/// two partitions of one image can be served at once.
const LOCK_START: u64 = 1 << 62;
/// The bytes of which QEMU holds a lock as long as it may write to an image, and as long as nobody else may
/// (docs/system/qemu-block-drivers: "image locking"; block/file-posix.c).
const QEMU_WRITES: i64 = 101;
const QEMU_DENIES_WRITING: i64 = 201;
/// How long whoever is to serve waits for the lock: the kernel keeps that of a server that was
/// killed until nothing of it is at the disk any more (io_uring), and one that is
/// started again at once should not be refused for it.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two looks at the lock.
const PAUSE: Duration = Duration::from_millis(10);

impl FileStore {
    /// Takes the server lock: an open-file-description lock on bytes
    /// far beyond the end, exclusive for read-write access, shared for
    /// read-only. Held until this value is dropped. [`ErrorKind::Busy`] if
    /// another process (or another [`FileStore`] of this one) holds it, of the
    /// whole file or of a window that overlaps, and does not let go of it within a second.
    ///
    /// A file that QEMU may be writing, or lets nobody else write, is [`ErrorKind::Busy`] for writing as well; for reading
    /// that is a warning, and so is a device that somebody claims.
    ///
    /// A block device opened for writing is claimed exclusively as well
    /// (`O_EXCL`), so that one that is mounted, mapped or part of an array is
    /// refused, and cannot be mounted meanwhile. Of a loop device, its file is
    /// locked too, against a server of that file.
    pub fn lock_for_serving(&self) -> Result<(), Error> {
        let part = Part {
            start: self.start,
            len: self.span,
        };
        lock_part(&self.file, self.access, &self.path, part)?;
        match self.access {
            Access::ReadWrite => self.refuse_user()?,
            Access::ReadOnly => self.warn_of_user(),
        }
        if let (Some(device), None) = (self.block, self.backing.get())
            && let Some(file) = self.lock_backing_file(device)?
        {
            // A second thread may have been faster; one lock is enough.
            let _ = self.backing.set(file);
        }
        if let (Some(device), Access::ReadWrite, None) = (self.block, self.access, self.claim.get())
        {
            let claim = self.claim_device(device)?;
            // As above.
            let _ = self.claim.set(claim);
        }
        Ok(())
    }

    /// Fails if QEMU has what is to be written; it may be about to end.
    fn refuse_user(&self) -> Result<(), Error> {
        let end = Instant::now() + PATIENCE;
        while let Some(user) = self.user() {
            if Instant::now() >= end {
                return Err(Error {
                    source: Some(io::Error::other(user.to_string())),
                    ..Error::new(ErrorKind::Busy, Act::Lock, &self.path, None)
                });
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Who else may be writing, as far as that shows: QEMU, and where it is a block device that is opened
    /// for reading whoever claims it.
    fn user(&self) -> Option<User> {
        let is_reader = self.access == Access::ReadOnly;
        let bytes = match is_reader {
            true => &[QEMU_WRITES][..],
            false => &[QEMU_WRITES, QEMU_DENIES_WRITING],
        };
        if bytes.iter().any(|byte| is_locked(&self.file, *byte)) {
            return Some(User::Qemu);
        }
        // Twice: whoever else asks claims it for a moment.
        let is_claimed = || self.block.is_some() && is_reader && is_claimed(&self.file);
        (is_claimed() && is_claimed()).then_some(User::Claim)
    }

    /// Logs a warning if somebody else may be writing what is read here.
    pub fn warn_of_user(&self) {
        if let Some(user) = self.user() {
            let path = self.path.display();
            tracing::warn!("{path}: {user}; what is written there meanwhile may be read in part");
        }
    }

    /// Locks the file under a loop device, if it is one and the file can be
    /// found: it may be in another mount namespace, or removed, and then
    /// nobody here can serve it either.
    fn lock_backing_file(&self, device: BlockDevice) -> Result<Option<File>, Error> {
        let Some(block::Backing { path, start, len }) = block::backing(device.number) else {
            return Ok(None);
        };
        let part = Part {
            start: start.saturating_add(self.start),
            len: self.span.or(len),
        };
        let opened = OpenOptions::new()
            .read(true)
            .write(self.access == Access::ReadWrite)
            .custom_flags(nix::libc::O_NONBLOCK)
            .open(&path);
        let file = match opened {
            Ok(file) => file,
            Err(error) => {
                tracing::debug!("cannot lock {}: {error}", path.display());
                return Ok(None);
            }
        };
        lock_part(&file, self.access, &path, part)?;
        Ok(Some(file))
    }

    fn claim_device(&self, device: BlockDevice) -> Result<File, Error> {
        let fail = |e: io::Error| Error::from_io(e, Act::Claim, &self.path, None);
        let excl = i32::try_from(OFlags::EXCL.bits()).unwrap_or_default();
        let open = || {
            let mut options = OpenOptions::new();
            let options = options.read(true).write(true).custom_flags(excl);
            options.open(&self.path)
        };
        // Once more: somebody who only asks whether it is claimed claims it for a moment.
        let claim = open().or_else(|_| open()).map_err(fail)?;
        // The path may lead elsewhere by now.
        let metadata = claim.metadata().map_err(fail)?;
        if !metadata.file_type().is_block_device() || metadata.rdev() != device.number {
            return Err(fail(Errno::NODEV.into()));
        }
        Ok(claim)
    }
}

/// Somebody else who has a file or device.
#[derive(Clone, Copy, Debug)]
enum User {
    Qemu,
    Claim,
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Qemu => "QEMU, or another program that locks images as QEMU does, has it open",
            Self::Claim => "it is mounted, mapped, swap or part of an array",
        })
    }
}

/// Whether a block device is claimed by somebody: then no further exclusive open is possible.
fn is_claimed(device: &File) -> bool {
    let path = format!("/proc/self/fd/{}", device.as_raw_fd());
    let flags = OFlags::EXCL | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).is_err_and(|errno| errno == Errno::BUSY)
}

/// Whether another open file holds a lock of that byte.
fn is_locked(file: &File, byte: i64) -> bool {
    let mut asked = nix::libc::flock {
        l_type: i16::try_from(nix::libc::F_WRLCK).unwrap_or_default(),
        l_whence: i16::try_from(nix::libc::SEEK_SET).unwrap_or_default(),
        l_start: byte,
        l_len: 1,
        l_pid: 0,
    };
    // File systems without locks have no answer, and nobody holds any there.
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut asked)).is_ok()
        && i32::from(asked.l_type) != nix::libc::F_UNLCK
}

/// A process that this one forks shares the open file descriptions until it
/// executes its program: closing ours would leave the lock with it.
impl Drop for FileStore {
    fn drop(&mut self) {
        if self.handed_over.load(Ordering::Relaxed) {
            return;
        }
        for file in [Some(&self.file), self.backing.get()].into_iter().flatten() {
            let _ = fcntl(
                file,
                FcntlArg::F_OFD_SETLK(&server_lock(nix::libc::F_UNLCK, Part::WHOLE)),
            );
        }
    }
}

/// Bytes of a file that are served; without a length, up to wherever it ends.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) start: u64,
    pub(super) len: Option<u64>,
}

impl Part {
    const WHOLE: Self = Self {
        start: 0,
        len: None,
    };
}

/// The range of the server lock, for `F_OFD_SETLK`. A part of which offsets cannot count
/// the bytes, or that is empty, counts as the whole file.
fn server_lock(kind: nix::libc::c_int, part: Part) -> nix::libc::flock {
    let (l_start, l_len) = LOCK_START
        .checked_add(part.start)
        .filter(|start| {
            let last = start.checked_add(part.len.unwrap_or(1));
            last.is_some_and(|end| i64::try_from(end).is_ok()) && part.len != Some(0)
        })
        .map_or((LOCK_START, 0), |start| (start, part.len.unwrap_or(0)));
    nix::libc::flock {
        l_type: i16::try_from(kind).unwrap_or_default(),
        l_whence: i16::try_from(nix::libc::SEEK_SET).unwrap_or_default(),
        l_start: i64::try_from(l_start).unwrap_or_default(),
        l_len: i64::try_from(l_len).unwrap_or_default(),
        l_pid: 0,
    }
}

/// Takes the server lock of a part of an open file; waits for [`PATIENCE`] at most.
pub(super) fn lock_part(file: &File, access: Access, path: &Path, part: Part) -> Result<(), Error> {
    let kind = match access {
        Access::ReadOnly => nix::libc::F_RDLCK,
        Access::ReadWrite => nix::libc::F_WRLCK,
    };
    let range = server_lock(kind, part);
    let end = Instant::now() + PATIENCE;
    loop {
        match fcntl(file, FcntlArg::F_OFD_SETLK(&range)) {
            Ok(_) => return Ok(()),
            Err(nix::errno::Errno::EINTR) => {}
            Err(nix::errno::Errno::EACCES | nix::errno::Errno::EAGAIN) if Instant::now() < end => {
                std::thread::sleep(PAUSE);
            }
            // The system's words, "temporarily unavailable", say less.
            Err(nix::errno::Errno::EACCES | nix::errno::Errno::EAGAIN) => {
                let offset = part.len.map(|_| part.start);
                return Err(Error::new(ErrorKind::Busy, Act::Lock, path, offset));
            }
            Err(e) => {
                let errno = Errno::from_raw_os_error(e as i32);
                return Err(Error::from_io(errno, Act::Lock, path, None));
            }
        }
    }
}
