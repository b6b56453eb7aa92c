//! A store in a regular file or on a block device.
//!
//! I/O goes through the page cache, unless it is [direct](FileStore::direct). A regular file never grows by a write: its
//! size is looked up before each one (another process that truncates the file
//! between the look and the write can still make it sparse; nothing on Linux
//! closes that gap).

mod direct;
mod flight;
mod geometry;
mod hand_over;
mod io;
mod lock;
mod ring;
mod settling;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use self::direct::Direct;
use self::geometry::{BlockDevice, block_geometry, check_type, file_limits, is_in_memory};
pub use self::hand_over::FileParts;
use self::settling::Settling;
use crate::{Act, Error, ErrorKind, Limits, block};

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads only.
    ReadOnly,
    /// Reads and writes.
    ReadWrite,
}

/// A regular file or a block device.
#[derive(Debug)]
pub struct FileStore {
    file: File,
    path: PathBuf,
    access: Access,
    limits: Limits,
    /// First byte of the window, and its length unless it goes to the end.
    start: u64,
    span: Option<u64>,
    /// Device number and logical block if it is a block device.
    block: Option<BlockDevice>,
    /// Size when last looked at.
    size: AtomicU64,
    /// Errno of the flush that failed; 0 if none did.
    flush_failure: AtomicI32,
    /// Durable writes and flushes that may yet turn out to be such a failure.
    settling: Arc<Settling>,
    /// Whether the kernel takes `RWF_NOWAIT` for this file.
    nowait: AtomicBool,
    /// Whether the file lives in memory only, so that nothing waits for a
    /// disk. Linux does not take `RWF_NOWAIT` there.
    in_memory: bool,
    /// What direct I/O takes, if that is how it is used.
    direct: Option<Direct>,
    /// The exclusive claim on a block device that is served for writing.
    claim: OnceLock<File>,
    /// The file under a loop device that is served, with its server lock.
    backing: OnceLock<File>,
    /// Another process has the open files, and their locks.
    handed_over: AtomicBool,
}

impl FileStore {
    /// Opens an existing file or block device. Refuses directories, character
    /// devices, FIFOs and sockets.
    ///
    /// A block device is opened without an exclusive claim, so that keys can
    /// be managed while it is in use, as with cryptsetup. Whoever is going to
    /// write data, or to format, calls [`FileStore::lock_for_serving`], which
    /// refuses a device that is mounted or mapped.
    pub fn open(path: &Path, access: Access) -> Result<Self, Error> {
        let fail = |e: std::io::Error| Error::from_io(e, Act::Open, path, None);
        // Looked at before it is opened: opening a FIFO would hang.
        check_type(&std::fs::metadata(path).map_err(fail)?, path)?;
        let file = OpenOptions::new()
            .read(true)
            .write(access == Access::ReadWrite)
            .open(path)
            .map_err(fail)?;
        Self::from_file(file, path, access)
    }

    /// Makes a new sparse file of `size` bytes, mode 0600; fails if it exists.
    /// Its name is durable on return where the file system can do that. Space
    /// is taken as it is written, so a full file system shows later, as
    /// [`ErrorKind::NoSpace`].
    pub fn create(path: &Path, size: u64) -> Result<Self, Error> {
        let fail = |e: std::io::Error| Error::from_io(e, Act::Create, path, None);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(fail)?;
        let finish = || {
            // The system's word for it, EINVAL, would tell nobody anything.
            if i64::try_from(size).is_err() {
                return Err(Errno::FBIG.into());
            }
            file.set_len(size)?;
            file.sync_all()
        };
        if let Err(error) = finish() {
            // Best effort: the error that matters is the one at hand.
            let _ = std::fs::remove_file(path);
            return Err(fail(error));
        }
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
        // Best effort: a directory may be closed to reading, and some file
        // systems do not synchronize directories.
        if let Err(error) = File::open(parent.unwrap_or(Path::new("."))).and_then(|d| d.sync_all())
        {
            tracing::debug!("the name of {} may not be durable: {error}", path.display());
        }
        Self::from_file(file, path, Access::ReadWrite)
    }

    fn from_file(file: File, path: &Path, access: Access) -> Result<Self, Error> {
        let fail = |e: std::io::Error| Error::from_io(e, Act::Open, path, None);
        let metadata = file.metadata().map_err(fail)?;
        check_type(&metadata, path)?;
        let (block, limits) = if metadata.file_type().is_block_device() {
            let refuses = || block::is_read_only(&file).map_err(|e| fail(e.into()));
            if access == Access::ReadWrite && refuses()? {
                return Err(fail(Errno::ROFS.into()));
            }
            block_geometry(&file, metadata.rdev())
        } else {
            (None, file_limits(&metadata))
        };
        let store = Self {
            in_memory: block.is_none() && is_in_memory(&file),
            file,
            path: path.to_owned(),
            access,
            limits,
            start: 0,
            span: None,
            block,
            size: AtomicU64::new(0),
            flush_failure: AtomicI32::new(0),
            settling: Arc::default(),
            nowait: AtomicBool::new(true),
            direct: None,
            claim: OnceLock::new(),
            backing: OnceLock::new(),
            handed_over: AtomicBool::new(false),
        };
        store.look_up_size().map_err(|e| fail(e.into()))?;
        Ok(store)
    }

    /// The same file with the view narrowed to `len` bytes from `start` on, as to a
    /// partition in an image: offsets count from there, and nothing outside can be
    /// read or written. The server lock is that of these bytes only; cryptsetup's locks are
    /// still those of the file.
    /// [`ErrorKind::OutOfRange`] if it does not lie inside. Direct I/O comes after it.
    pub fn window(mut self, start: u64, len: u64) -> Result<Self, Error> {
        let size = self
            .look_up_size()
            .map_err(|e| self.fail(e, Act::Open, None))?;
        if start.checked_add(len).is_none_or(|end| end > size) {
            return Err(self.out_of_range(Act::Open, start));
        }
        self.start += start;
        self.span = Some(len);
        self.size.store(len, Ordering::Relaxed);
        // What begins in the middle of a physical block is written in parts of it.
        if !self.start.is_multiple_of(self.limits.atomic.into()) {
            self.limits.atomic = 512;
        }
        Ok(self)
    }

    /// Where in the file a range of the window begins.
    fn place(&self, act: Act, offset: u64, len: usize) -> Result<u64, Error> {
        let end = check_offset(offset, len).and_then(|()| offset.checked_add(len as u64));
        match end {
            Some(end) if self.span.is_none_or(|span| end <= span) => Ok(self.start + offset),
            _ => Err(self.out_of_range(act, offset)),
        }
    }

    /// First byte of the window in the file; 0 without one.
    pub fn window_start(&self) -> u64 {
        self.start
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open file, for cryptsetup's metadata locks. Its position moves at
    /// any time.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Whether it is a block device.
    pub fn is_block_device(&self) -> bool {
        self.block.is_some()
    }

    fn fail(&self, errno: Errno, act: Act, offset: Option<u64>) -> Error {
        Error::from_io(errno, act, &self.path, offset)
    }

    fn out_of_range(&self, act: Act, offset: u64) -> Error {
        Error::new(ErrorKind::OutOfRange, act, &self.path, Some(offset))
    }

    fn look_up_size(&self) -> Result<u64, Errno> {
        // Works on block devices too, and costs a fraction of what fstat does.
        // Nothing here uses the file's position.
        let end = rustix::fs::seek(&self.file, SeekFrom::End(0))?;
        let size = end.saturating_sub(self.start);
        let size = self.span.map_or(size, |span| span.min(size));
        // What follows the last whole block is out of reach.
        let size = size - size % u64::from(self.limits.block);
        self.size.store(size, Ordering::Relaxed);
        Ok(size)
    }
}

/// Whether the range ends where the system's offsets end, at the latest.
fn check_offset(offset: u64, len: usize) -> Option<()> {
    let end = offset.checked_add(u64::try_from(len).ok()?)?;
    i64::try_from(end).ok().map(|_| ())
}
