//! The FUSE file system: a directory with one file, the plaintext.
//!
//! The kernel's page cache is left on for those who open the file without
//! `O_DIRECT` and out of the way for those who do, such as a loop device with
//! direct I/O: so a mounted file system has the only cache of plaintext. The
//! kernel keeps the two kinds of opener coherent, because all go through one
//! inode and nothing else changes the volume; for that reason
//! `FOPEN_KEEP_CACHE` is safe, and `FOPEN_DIRECT_IO`, which older kernels do
//! not keep coherent with cached pages, is not used. No writeback cache:
//! a write that returned has reached the volume or failed, and a killed
//! daemon loses nothing that it acknowledged.

use std::ffi::OsStr;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags,
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek,
    ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{FallocateFlags, OFlags};
use xtent_volume::{DiscardPolicy, Volume};

use super::FILE_NAME;
use super::data::{Data, Shared};

/// Bytes per request, at most: what kernels allow (256 pages) unless an
/// administrator raised `fs.fuse.max_pages_limit`.
pub(super) const MAX_REQUEST: u32 = 1 << 20;

/// Requests that the kernel keeps in flight at a time (direct I/O, read-ahead).
const MAX_BACKGROUND: u16 = 64;

/// The same where a request need not have a thread.
const MAX_BACKGROUND_LATER: u16 = 256;

/// Nothing here changes while it is mounted.
const TTL: Duration = Duration::from_secs(24 * 60 * 60);

const ROOT: INodeNo = INodeNo(1);
const FILE: INodeNo = INodeNo(2);

/// What `FALLOC_FL_PUNCH_HOLE` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holes {
    /// Refused, unless discards are zeros in writing by the volume's policy:
    /// mkfs punches holes as large as the volume just to be nice.
    Refused,
    /// Zeros in writing. For loop devices: they make holes of discards and of
    /// the block layer's "write zeroes", and file systems trust the zeros.
    Written,
}

/// The directory and its file.
pub(super) struct VolumeFile {
    data: Data,
    holes: Holes,
    shared: Arc<Shared>,
    /// Told when the last opener closes the file.
    closed: Box<dyn Fn() + Send + Sync>,
    uid: u32,
    gid: u32,
    mounted: SystemTime,
}

impl VolumeFile {
    /// `closed` is called when the last opener is gone.
    pub(super) fn new(
        data: Data,
        holes: Holes,
        shared: Arc<Shared>,
        closed: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        Self {
            data,
            holes,
            shared,
            closed: Box::new(closed),
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            mounted: SystemTime::now(),
        }
    }

    fn volume(&self) -> &Volume {
        self.data.volume()
    }

    fn attr(&self, ino: INodeNo) -> Option<FileAttr> {
        let read_only = self.volume().is_read_only();
        let (kind, perm, nlink, size) = match ino {
            ROOT => (FileType::Directory, 0o500, 2, 0),
            FILE => (
                FileType::RegularFile,
                if read_only { 0o400 } else { 0o600 },
                1,
                self.volume().size(),
            ),
            _ => return None,
        };
        Some(FileAttr {
            ino,
            size,
            blocks: size / 512,
            atime: self.mounted,
            mtime: self.mounted,
            ctime: self.mounted,
            crtime: self.mounted,
            kind,
            perm,
            nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    /// The part of a request that lies inside the volume.
    fn clip(&self, offset: u64, len: u64) -> Range<u64> {
        let size = self.volume().size();
        offset.min(size)..offset.saturating_add(len).min(size)
    }

    /// The range that is to be zeros, if this mode means that.
    fn zeros_of(&self, mode: i32, offset: u64, len: u64) -> Result<Range<u64>, Errno> {
        let flags = u32::try_from(mode)
            .ok()
            .and_then(FallocateFlags::from_bits)
            .ok_or(Errno::EOPNOTSUPP)?;
        let end = offset.checked_add(len).ok_or(Errno::EFBIG)?;
        let zeroes = FallocateFlags::ZERO_RANGE;
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // A hole must read as zeros afterwards. A discard of ciphertext leaves
        // noise, and one that the policy ignores leaves the old data, so
        // neither may stand for it: only zeros in writing are right.
        let holes_are_written =
            self.holes == Holes::Written || self.volume().discard_policy() == DiscardPolicy::Zero;
        let supported = flags == zeroes
            || flags == zeroes | FallocateFlags::KEEP_SIZE
            || flags == hole && holes_are_written;
        if !supported {
            // Plain allocation as well: as for block devices, nothing here can
            // reserve space. posix_fallocate(3) writes instead, which does.
            return Err(Errno::EOPNOTSUPP);
        }
        if end > self.volume().size() && !flags.contains(FallocateFlags::KEEP_SIZE) {
            return Err(Errno::ENOSPC);
        }
        Ok(self.clip(offset, len))
    }
}

impl Filesystem for VolumeFile {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Each setter offers the nearest value that it takes.
        if let Err(most) = config.set_max_write(MAX_REQUEST) {
            let _ = config.set_max_write(most);
        }
        if let Err(most) = config.set_max_readahead(MAX_REQUEST) {
            let _ = config.set_max_readahead(most);
        }
        let _ = config.set_max_background(match self.volume().completes_later() {
            true => MAX_BACKGROUND_LATER,
            false => MAX_BACKGROUND,
        });
        // Direct I/O that does not wait for one request before it sends the
        // next; missing only in kernels before 3.13.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attr(FILE) {
            Some(attr) if parent == ROOT && name == FILE_NAME => {
                reply.entry(&TTL, &attr, Generation(0));
            }
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.attr(ino) {
            Some(attr) => reply.attr(&TTL, &attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        match self.attr(ino) {
            None => reply.error(Errno::ENOENT),
            // Times are taken and forgotten; all else is as it is.
            Some(attr)
                if mode.is_none()
                    && uid.is_none()
                    && gid.is_none()
                    && size.is_none_or(|s| s == attr.size) =>
            {
                reply.attr(&TTL, &attr);
            }
            Some(_) => reply.error(Errno::EPERM),
        }
    }

    fn open(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        if ino != FILE {
            return reply.error(Errno::EISDIR);
        }
        self.shared.openers.fetch_add(1, Ordering::SeqCst);
        reply.opened(
            FileHandle(0),
            FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH,
        );
    }

    fn release(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
        if self.shared.openers.fetch_sub(1, Ordering::SeqCst) == 1 {
            (self.closed)();
        }
    }

    fn read(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.data.read(&self.clip(offset, u64::from(size)), reply);
    }

    fn write(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let range = self.clip(offset, data.len() as u64);
        // Short at the end, then "no space left", as a block device does it.
        let Ok(len) = usize::try_from(range.end - range.start) else {
            return reply.error(Errno::EINVAL);
        };
        if len == 0 && !data.is_empty() {
            return reply.error(Errno::ENOSPC);
        }
        let fua = OFlags::from_bits_retain(flags.0.cast_unsigned()).contains(OFlags::DSYNC);
        self.data.write(&range, &data[..len], fua, reply);
    }

    fn fsync(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        self.data.flush(reply);
    }

    fn fallocate(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        match self.zeros_of(mode, offset, length) {
            Ok(range) => self.data.write_zeroes(&range, reply),
            Err(e) => reply.error(e),
        }
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if ino != ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let entries = [
            (ROOT, FileType::Directory, "."),
            (ROOT, FileType::Directory, ".."),
            (FILE, FileType::RegularFile, FILE_NAME),
        ];
        for (next, (ino, kind, name)) in (1..).zip(entries) {
            if next > offset && reply.add(ino, next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn fsyncdir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        if self.shared.statfs_fails.load(Ordering::SeqCst) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        reply.statfs(self.volume().size() / 512, 0, 0, 2, 0, 512, 255, 512);
    }

    // Nothing else can be made or removed here.

    fn create(
        &self,
        _req: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        reply.error(Errno::EPERM);
    }
    fn mknod(
        &self,
        _req: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        reply.error(Errno::EPERM);
    }
    fn mkdir(
        &self,
        _req: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        reply.error(Errno::EPERM);
    }
    fn unlink(&self, _req: &Request, _parent: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }
    fn rmdir(&self, _req: &Request, _parent: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }
    fn rename(
        &self,
        _req: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _newparent: INodeNo,
        _newname: &OsStr,
        _flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EPERM);
    }

    // "Not implemented" is the right answer to these: the kernel remembers it
    // and does what is needed itself (all data and no holes; copy by reading
    // and writing; no extended attributes). Without them `fuser` logs each.

    fn lseek(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _offset: i64,
        _whence: i32,
        reply: ReplyLseek,
    ) {
        reply.error(Errno::ENOSYS);
    }
    fn copy_file_range(
        &self,
        _req: &Request,
        _ino_in: INodeNo,
        _fh_in: FileHandle,
        _offset_in: u64,
        _ino_out: INodeNo,
        _fh_out: FileHandle,
        _offset_out: u64,
        _len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        reply.error(Errno::ENOSYS);
    }
    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOSYS);
    }
    fn getxattr(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _name: &OsStr,
        _size: u32,
        reply: ReplyXattr,
    ) {
        reply.error(Errno::ENOSYS);
    }
    fn setxattr(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _name: &OsStr,
        _value: &[u8],
        _flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOSYS);
    }
    fn listxattr(&self, _req: &Request, _ino: INodeNo, _size: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }
}
