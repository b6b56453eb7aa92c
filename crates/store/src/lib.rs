//! Where ciphertext lives. A [`Store`] takes byte ranges; it knows neither
//! ciphers nor LUKS.

use std::path::{Path, PathBuf};

/// What went wrong, for the tables that turn it into errno, NBD errors and
/// exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No such file or device.
    NotFound,
    /// Not allowed.
    Permission,
    /// Somebody else has it (the server lock, or an exclusive open).
    Busy,
    /// The range lies outside the store, or the file became shorter.
    OutOfRange,
    /// A write to a read-only store.
    ReadOnly,
    /// No space left, or over quota.
    NoSpace,
    /// The store cannot do this (discard on a file system without holes).
    Unsupported,
    /// Any other I/O error.
    Io,
}

/// A failed store operation: what, where, why.
#[derive(Debug)]
pub struct Error {
    /// What kind of failure.
    pub kind: ErrorKind,
    /// What was being done: "read", "write", "flush", "open", …
    pub operation: &'static str,
    /// The file or device.
    pub path: PathBuf,
    /// Byte offset, where there is one.
    pub offset: Option<u64>,
    /// The system's error, where there is one.
    pub source: Option<std::io::Error>,
}

/// Sizes that matter for alignment and atomicity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that the store writes atomically: the disk's physical block, 512
    /// when not known.
    pub atomic: u32,
    /// Granularity of discards in bytes.
    pub discard: u32,
}

/// A flat range of bytes with positioned I/O. Every call may come from many
/// threads at once; overlapping calls are the caller's affair.
pub trait Store: Send + Sync {
    /// Bytes in the store now.
    fn size(&self) -> u64;
    /// Whether writes are refused.
    fn is_read_only(&self) -> bool;
    /// Alignment and atomicity.
    fn limits(&self) -> Limits;
    /// Fills `buf` from `offset`. A range that is not wholly inside is an
    /// error ([`ErrorKind::OutOfRange`]), never a short read.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), Error>;
    /// As [`Store::read_at`], but only if it need not wait for a disk;
    /// `Ok(false)` means it would have to (contents of `buf` undefined).
    fn try_read_at(&self, _buf: &mut [u8], _offset: u64) -> Result<bool, Error> {
        Ok(false)
    }
    /// Writes all of `data` at `offset`; never extends the store.
    fn write_at(&self, data: &[u8], offset: u64) -> Result<(), Error>;
    /// As [`Store::write_at`], and the data is durable on return (FUA).
    fn write_at_durably(&self, data: &[u8], offset: u64) -> Result<(), Error> {
        self.write_at(data, offset)?;
        self.flush()
    }
    /// All writes that completed before this call are durable on return.
    /// After one failed flush every later one fails: the kernel may have
    /// dropped the dirty pages, and a success would be a lie.
    fn flush(&self) -> Result<(), Error>;
    /// Deallocates; the range then reads as anything.
    fn discard(&self, offset: u64, len: u64) -> Result<(), Error>;
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads only.
    ReadOnly,
    /// Reads and writes.
    ReadWrite,
}

/// A regular file or a block device.
pub struct FileStore {
    _todo: (),
}

impl FileStore {
    /// Opens an existing file or block device. Refuses directories, character
    /// devices, FIFOs.
    pub fn open(_path: &Path, _access: Access) -> Result<Self, Error> {
        todo!()
    }
    /// Makes a new sparse file of `size` bytes, mode 0600; fails if it exists.
    pub fn create(_path: &Path, _size: u64) -> Result<Self, Error> {
        todo!()
    }
    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        todo!()
    }
    /// The open file, for cryptsetup's metadata locks.
    pub fn file(&self) -> &std::fs::File {
        todo!()
    }
    /// Whether it is a block device.
    pub fn is_block_device(&self) -> bool {
        todo!()
    }
    /// Takes the server lock: an open-file-description lock on a byte range
    /// far beyond the end, exclusive for read-write access, shared for
    /// read-only. Held until this value is dropped. [`ErrorKind::Busy`] if
    /// another process holds it.
    pub fn lock_for_serving(&self) -> Result<(), Error> {
        todo!()
    }
}
impl Store for FileStore {
    fn size(&self) -> u64 {
        todo!()
    }
    fn is_read_only(&self) -> bool {
        todo!()
    }
    fn limits(&self) -> Limits {
        todo!()
    }
    fn read_at(&self, _buf: &mut [u8], _offset: u64) -> Result<(), Error> {
        todo!()
    }
    fn write_at(&self, _data: &[u8], _offset: u64) -> Result<(), Error> {
        todo!()
    }
    fn flush(&self) -> Result<(), Error> {
        todo!()
    }
    fn discard(&self, _offset: u64, _len: u64) -> Result<(), Error> {
        todo!()
    }
}

/// Stores for tests: in memory, with injected faults, and one that records
/// writes and flushes and presents every legal survivor of a power cut.
pub mod testing {
    /// Bytes in memory.
    pub struct MemStore {
        _todo: (),
    }
}
