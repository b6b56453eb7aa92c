//! A store in a regular file or on a block device.
//!
//! I/O goes through the page cache. A regular file never grows by a write: its
//! size is looked up before each one (another process that truncates the file
//! between the look and the write can still make it sparse; nothing on Linux
//! closes that gap).

use std::fs::{File, OpenOptions};
use std::io::{IoSlice, IoSliceMut};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use nix::fcntl::{FcntlArg, fcntl};
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::{Errno, ReadWriteFlags};

use crate::{Error, ErrorKind, Limits, PAGE, Store, block};

/// Where the server lock of a file's byte 0 is: far beyond the end of any file, and away
/// from the bytes that QEMU locks (100 to 203). Each byte of the file has its own, so that
/// two partitions of one image can be served at once.
const LOCK_START: u64 = 1 << 62;

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
    /// Whether the kernel takes `RWF_NOWAIT` for this file.
    nowait: AtomicBool,
    /// Whether the file lives in memory only, so that nothing waits for a
    /// disk. Linux does not take `RWF_NOWAIT` there.
    in_memory: bool,
    /// The exclusive claim on a block device that is served for writing.
    claim: OnceLock<File>,
    /// The file under a loop device that is served, with its server lock.
    backing: OnceLock<File>,
}

#[derive(Clone, Copy, Debug)]
struct BlockDevice {
    number: u64,
    logical_block: u64,
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
        let fail = |e: std::io::Error| Error::from_io(e, "open", path, None);
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
        let fail = |e: std::io::Error| Error::from_io(e, "create", path, None);
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
        let fail = |e: std::io::Error| Error::from_io(e, "open", path, None);
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
            nowait: AtomicBool::new(true),
            claim: OnceLock::new(),
            backing: OnceLock::new(),
        };
        store.look_up_size().map_err(|e| fail(e.into()))?;
        Ok(store)
    }

    /// The same file with the view narrowed to `len` bytes from `start` on, as to a
    /// partition in an image: offsets count from there, and nothing outside can be
    /// read or written. The server lock is that of these bytes only; cryptsetup's locks are
    /// still those of the file.
    /// [`ErrorKind::OutOfRange`] if it does not lie inside.
    pub fn window(mut self, start: u64, len: u64) -> Result<Self, Error> {
        let size = self
            .look_up_size()
            .map_err(|e| self.fail(e, "open", None))?;
        if start.checked_add(len).is_none_or(|end| end > size) {
            return Err(self.out_of_range("open", start));
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
    fn place(&self, operation: &'static str, offset: u64, len: usize) -> Result<u64, Error> {
        let end = check_offset(offset, len).and_then(|()| offset.checked_add(len as u64));
        match end {
            Some(end) if self.span.is_none_or(|span| end <= span) => Ok(self.start + offset),
            _ => Err(self.out_of_range(operation, offset)),
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

    /// Takes the server lock: an open-file-description lock on bytes
    /// far beyond the end, exclusive for read-write access, shared for
    /// read-only. Held until this value is dropped. [`ErrorKind::Busy`] if
    /// another process (or another [`FileStore`] of this one) holds it, of the
    /// whole file or of a window that overlaps.
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
        let fail = |e: std::io::Error| Error::from_io(e, "claim", &self.path, None);
        let excl = i32::try_from(rustix::fs::OFlags::EXCL.bits()).unwrap_or_default();
        let claim = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(excl)
            .open(&self.path)
            .map_err(fail)?;
        // The path may lead elsewhere by now.
        let metadata = claim.metadata().map_err(fail)?;
        if !metadata.file_type().is_block_device() || metadata.rdev() != device.number {
            return Err(fail(Errno::NODEV.into()));
        }
        Ok(claim)
    }

    fn fail(&self, errno: Errno, operation: &'static str, offset: Option<u64>) -> Error {
        Error::from_io(errno, operation, &self.path, offset)
    }

    fn out_of_range(&self, operation: &'static str, offset: u64) -> Error {
        Error::new(ErrorKind::OutOfRange, operation, &self.path, Some(offset))
    }

    fn look_up_size(&self) -> Result<u64, Errno> {
        // Works on block devices too, and costs a fraction of what fstat does.
        // Nothing here uses the file's position.
        let end = rustix::fs::seek(&self.file, SeekFrom::End(0))?;
        let size = end.saturating_sub(self.start);
        let size = self.span.map_or(size, |span| span.min(size));
        self.size.store(size, Ordering::Relaxed);
        Ok(size)
    }

    /// Checks that a range to be changed lies inside.
    fn check_range(&self, operation: &'static str, offset: u64, len: u64) -> Result<(), Error> {
        if self.access == Access::ReadOnly {
            return Err(Error::new(
                ErrorKind::ReadOnly,
                operation,
                &self.path,
                Some(offset),
            ));
        }
        let end = offset
            .checked_add(len)
            .ok_or_else(|| self.out_of_range(operation, offset))?;
        // A write cannot extend a block device, so the size seen last will do there.
        if self.block.is_some() && end <= self.size.load(Ordering::Relaxed) {
            return Ok(());
        }
        let size = self
            .look_up_size()
            .map_err(|e| self.fail(e, operation, Some(offset)))?;
        if end > size {
            return Err(self.out_of_range(operation, offset));
        }
        Ok(())
    }

    /// Writes all of `data` by `write`, which may do part of it.
    fn write_all(
        &self,
        mut data: &[u8],
        mut offset: u64,
        mut write: impl FnMut(&[u8], u64) -> rustix::io::Result<usize>,
    ) -> Result<(), (Errno, u64)> {
        while !data.is_empty() {
            match write(data, offset) {
                Ok(0) => return Err((Errno::IO, offset)),
                Ok(n) => {
                    data = &data[n..];
                    offset += n as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err((errno, offset)),
            }
        }
        Ok(())
    }

    fn write_plainly(&self, data: &[u8], offset: u64) -> Result<(), (Errno, u64)> {
        self.write_all(data, offset, |data, offset| {
            rustix::io::pwrite(&self.file, data, offset)
        })
    }

    /// A write's error; a block device that shrank says "no space".
    fn write_error(&self, errno: Errno, operation: &'static str, offset: u64) -> Error {
        if self.block.is_some()
            && errno == Errno::NOSPC
            && self
                .look_up_size()
                .is_ok_and(|size| offset >= self.start + size)
        {
            return self.out_of_range(operation, offset);
        }
        self.fail(errno, operation, Some(offset))
    }

    fn check_flushes(&self, operation: &'static str) -> Result<(), Error> {
        match self.flush_failure.load(Ordering::Acquire) {
            0 => Ok(()),
            errno => Err(self.fail(Errno::from_raw_os_error(errno), operation, None)),
        }
    }

    fn flushes_failed(&self, errno: Errno) {
        // The first failure is the one to report ever after.
        let _ = self.flush_failure.compare_exchange(
            0,
            errno.raw_os_error(),
            Ordering::AcqRel,
            Ordering::Acquire,
        );
    }
}

/// A process that this one forks shares the open file descriptions until it
/// executes its program: closing ours would leave the lock with it.
impl Drop for FileStore {
    fn drop(&mut self) {
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
struct Part {
    start: u64,
    len: Option<u64>,
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

/// Takes the server lock of a part of an open file; never waits.
fn lock_part(file: &File, access: Access, path: &Path, part: Part) -> Result<(), Error> {
    let kind = match access {
        Access::ReadOnly => nix::libc::F_RDLCK,
        Access::ReadWrite => nix::libc::F_WRLCK,
    };
    let range = server_lock(kind, part);
    loop {
        match fcntl(file, FcntlArg::F_OFD_SETLK(&range)) {
            Ok(_) => return Ok(()),
            Err(nix::errno::Errno::EINTR) => {}
            // The system's words, "temporarily unavailable", say less.
            Err(nix::errno::Errno::EACCES | nix::errno::Errno::EAGAIN) => {
                let offset = part.len.map(|_| part.start);
                return Err(Error::new(ErrorKind::Busy, "lock", path, offset));
            }
            Err(e) => {
                let errno = Errno::from_raw_os_error(e as i32);
                return Err(Error::from_io(errno, "lock", path, None));
            }
        }
    }
}

impl Store for FileStore {
    fn size(&self) -> u64 {
        self.look_up_size()
            .unwrap_or_else(|_| self.size.load(Ordering::Relaxed))
    }

    fn is_read_only(&self) -> bool {
        self.access == Access::ReadOnly
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn read_at(&self, mut buf: &mut [u8], mut offset: u64) -> Result<(), Error> {
        offset = self.place("read", offset, buf.len())?;
        while !buf.is_empty() {
            match rustix::io::pread(&self.file, &mut *buf, offset) {
                Ok(0) => return Err(self.out_of_range("read", offset)),
                Ok(n) => {
                    buf = &mut buf[n..];
                    offset += n as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.fail(errno, "read", Some(offset))),
            }
        }
        Ok(())
    }

    fn try_read_at(&self, mut buf: &mut [u8], mut offset: u64) -> Result<bool, Error> {
        offset = self.place("read", offset, buf.len())?;
        if self.in_memory {
            return self.read_at(buf, offset).map(|()| true);
        }
        if !self.nowait.load(Ordering::Relaxed) {
            return Ok(buf.is_empty());
        }
        while !buf.is_empty() {
            let slice = &mut [IoSliceMut::new(buf)];
            match rustix::io::preadv2(&self.file, slice, offset, ReadWriteFlags::NOWAIT) {
                // The end of the file, or a kernel that stops here: the
                // caller's read_at tells which.
                Ok(0) => return Ok(false),
                Ok(n) => {
                    buf = &mut buf[n..];
                    offset += n as u64;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                    self.nowait.store(false, Ordering::Relaxed);
                    return Ok(false);
                }
                Err(errno) => return Err(self.fail(errno, "read", Some(offset))),
            }
        }
        Ok(true)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<(), Error> {
        self.check_range("write", offset, data.len() as u64)?;
        self.write_plainly(data, self.start + offset)
            .map_err(|(errno, at)| self.write_error(errno, "write", at))
    }

    /// A write into the page cache waits for nothing but the rest of a page that is
    /// written in part, which the kernel reads first unless it has the page.
    fn takes_write_at_once(&self, offset: u64, len: u64) -> Result<bool, Error> {
        let (Some(end), true) = (offset.checked_add(len), len > 0) else {
            return Ok(true);
        };
        // A byte of each page that may be written in part. Pages are those of the file,
        // which a window need not begin on.
        for (edge, byte) in [(offset, offset), (end, end - 1)] {
            let is_whole = self.start.wrapping_add(edge).is_multiple_of(PAGE as u64);
            if !is_whole && !self.try_read_at(&mut [0], byte)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn write_at_durably(&self, data: &[u8], offset: u64) -> Result<(), Error> {
        const OPERATION: &str = "durable write";
        self.check_range(OPERATION, offset, data.len() as u64)?;
        self.check_flushes(OPERATION)?;
        let offset = self.start + offset;
        let written = self.write_all(data, offset, |data, offset| {
            let slice = &[IoSlice::new(data)];
            rustix::io::pwritev2(&self.file, slice, offset, ReadWriteFlags::DSYNC)
        });
        let Err((errno, at)) = written else {
            return Ok(());
        };
        // Either the kernel does not know the flag, or the write itself
        // failed, or the synchronization after it: then the kernel has told
        // its error and a later flush would not hear of it again. Writing
        // once more without the flag tells the three apart.
        if let Err((errno, at)) = self.write_plainly(data, offset) {
            return Err(self.write_error(errno, OPERATION, at));
        }
        if matches!(errno, Errno::OPNOTSUPP | Errno::NOSYS) {
            return self.flush();
        }
        self.flushes_failed(errno);
        Err(self.fail(errno, OPERATION, Some(at)))
    }

    fn flush(&self) -> Result<(), Error> {
        self.check_flushes("flush")?;
        if self.access == Access::ReadOnly {
            return Ok(());
        }
        match rustix::io::retry_on_intr(|| rustix::fs::fdatasync(&self.file)) {
            // A flush that failed meanwhile may have been about our pages.
            Ok(()) => self.check_flushes("flush"),
            Err(errno) => {
                self.flushes_failed(errno);
                Err(self.fail(errno, "flush", None))
            }
        }
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.check_range("discard", offset, len)?;
        let offset = self.start + offset;
        let result = if let Some(device) = self.block {
            let unit = device.logical_block;
            let start = offset.next_multiple_of(unit);
            let end = (offset + len) / unit * unit;
            if start >= end {
                return Ok(());
            }
            // The kernel claims a device for a discard unless the descriptor
            // holds the claim already.
            let holder = self.claim.get().unwrap_or(&self.file);
            rustix::io::retry_on_intr(|| block::discard(holder, start, end - start))
        } else if len == 0 {
            return Ok(());
        } else {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::io::retry_on_intr(|| rustix::fs::fallocate(&self.file, flags, offset, len))
        };
        result.map_err(|errno| self.fail(errno, "discard", Some(offset)))
    }
}

fn is_in_memory(file: &File) -> bool {
    // From linux/magic.h.
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58F6;
    rustix::fs::fstatfs(file)
        .ok()
        .and_then(|fs| u64::try_from(fs.f_type).ok())
        .is_some_and(|kind| kind == TMPFS || kind == RAMFS)
}

/// Whether the range ends where the system's offsets end, at the latest.
fn check_offset(offset: u64, len: usize) -> Option<()> {
    let end = offset.checked_add(u64::try_from(len).ok()?)?;
    i64::try_from(end).ok().map(|_| ())
}

fn check_type(metadata: &std::fs::Metadata, path: &Path) -> Result<(), Error> {
    let kind = metadata.file_type();
    if kind.is_file() || kind.is_block_device() {
        return Ok(());
    }
    let what = if kind.is_dir() {
        "it is a directory"
    } else if kind.is_char_device() {
        "it is a character device"
    } else if kind.is_fifo() {
        "it is a FIFO"
    } else {
        "it is neither a file nor a block device"
    };
    Err(Error {
        kind: ErrorKind::Unsupported,
        operation: "open",
        path: path.to_owned(),
        offset: None,
        source: Some(std::io::Error::other(what)),
    })
}

fn file_limits(metadata: &std::fs::Metadata) -> Limits {
    let discard = u32::try_from(metadata.blksize()).ok().and_then(plausible);
    Limits {
        atomic: block::queue_value(metadata.dev(), "physical_block_size")
            .and_then(plausible)
            .unwrap_or(512),
        discard: discard.unwrap_or(4096),
        block: 1,
    }
}

fn block_geometry(file: &File, number: u64) -> (Option<BlockDevice>, Limits) {
    let logical = rustix::fs::ioctl_blksszget(file).ok().and_then(plausible);
    let logical = logical.unwrap_or(512);
    let atomic = rustix::fs::ioctl_blkpbszget(file).ok().and_then(plausible);
    let discard = block::queue_value(number, "discard_granularity").and_then(plausible);
    let device = BlockDevice {
        number,
        logical_block: logical.into(),
    };
    let limits = Limits {
        atomic: atomic.unwrap_or(512),
        discard: discard.unwrap_or(logical).max(logical),
        block: 1,
    };
    (Some(device), limits)
}

/// The size, if it is one that a disk can have: a power of two from 512 on.
fn plausible(bytes: u32) -> Option<u32> {
    (bytes >= 512 && bytes.is_power_of_two()).then_some(bytes)
}
