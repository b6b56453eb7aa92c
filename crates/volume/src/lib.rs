//! An open volume: byte-range reads, writes, flush, discard and zeroes over a
//! cipher and a store. Runs stay whole; partial sectors are read, modified and
//! written under a range lock.

use std::sync::Arc;

use sector_cipher::{CipherSpec, SectorCount, SectorSize};
use xtent_secret::SecretBytes;
use xtent_store::Store;

/// What a discard does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DiscardPolicy {
    /// Accepted and ignored (dm-crypt's default): holes would show which
    /// sectors are in use.
    #[default]
    Never,
    /// Passed to the store; reads of the range return noise afterwards.
    Allow,
    /// Written as encrypted zeros.
    Zero,
}

/// Everything that makes a volume of a store.
pub struct Config {
    /// The cipher.
    pub cipher: CipherSpec,
    /// Bytes per sector.
    pub sector_size: SectorSize,
    /// What sector numbers count.
    pub sector_count: SectorCount,
    /// Where the first sector lies in the store, in bytes; a multiple of 512.
    pub offset: u64,
    /// Bytes of plaintext; a multiple of the sector size.
    pub length: u64,
    /// Added to every sector number (LUKS2's `iv_tweak`), in 512-byte units.
    pub iv_offset: u64,
    /// Whether writes are refused.
    pub read_only: bool,
    /// What a discard does.
    pub discard: DiscardPolicy,
    /// The back-end, or the fastest.
    pub backend: Option<sector_cipher::Backend>,
}

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The configuration contradicts itself or the store (too short, odd
    /// offset, wrong key length).
    Config,
    /// The range lies outside the volume.
    OutOfRange,
    /// A write to a read-only volume.
    ReadOnly,
    /// No memory for a buffer or a key.
    NoMemory,
    /// The store failed.
    Store(xtent_store::ErrorKind),
}

/// A failed request: what, where, why.
#[derive(Debug)]
pub struct Error {
    /// What kind of failure.
    pub kind: ErrorKind,
    /// Byte offset in the volume, where there is one.
    pub offset: Option<u64>,
    /// What to tell a person.
    pub message: String,
    /// The store's error, where it was that.
    pub source: Option<xtent_store::Error>,
}

impl Error {
    /// The errno that protocols report for it.
    pub fn errno(&self) -> rustix::io::Errno {
        todo!()
    }
}

/// An open volume. All calls take `&self` and may come from many threads.
/// Ranges are in bytes of plaintext and need no alignment.
pub struct Volume {
    _todo: (),
}

impl Volume {
    /// Opens a volume; the key is copied into the cipher's schedule and may be dropped.
    pub fn open(
        _store: Arc<dyn Store>,
        _key: &SecretBytes,
        _config: &Config,
    ) -> Result<Self, Error> {
        todo!()
    }
    /// Bytes of plaintext.
    pub fn size(&self) -> u64 {
        todo!()
    }
    /// Bytes per sector: the granularity that needs no read-modify-write.
    pub fn sector_size(&self) -> SectorSize {
        todo!()
    }
    /// Whether writes are refused.
    pub fn is_read_only(&self) -> bool {
        todo!()
    }
    /// The discard policy in force.
    pub fn discard_policy(&self) -> DiscardPolicy {
        todo!()
    }
    /// Bytes that are worth handling at a time: a piece that stays in the L2
    /// cache between store, cipher and socket.
    pub fn preferred_piece(&self) -> usize {
        todo!()
    }
    /// Reads and decrypts into `buf`.
    pub fn read_at(&self, _buf: &mut [u8], _offset: u64) -> Result<(), Error> {
        todo!()
    }
    /// As [`Volume::read_at`] if that needs to wait neither for a disk nor for
    /// another request; `Ok(false)` otherwise.
    pub fn try_read_at(&self, _buf: &mut [u8], _offset: u64) -> Result<bool, Error> {
        todo!()
    }
    /// Encrypts and writes `data`, which is left as it is. Durable on return if `fua`.
    pub fn write_at(&self, _data: &[u8], _offset: u64, _fua: bool) -> Result<(), Error> {
        todo!()
    }
    /// As [`Volume::write_at`], encrypting `data` in place: its contents are
    /// undefined afterwards. Saves the copy for callers that own their buffer.
    pub fn write_at_in_place(
        &self,
        _data: &mut [u8],
        _offset: u64,
        _fua: bool,
    ) -> Result<(), Error> {
        todo!()
    }
    /// As [`Volume::write_at_in_place`] without `fua`, if that needs to wait neither for a
    /// disk read (partial sectors) nor for another request; `Ok(false)` otherwise, with `data` untouched.
    pub fn try_write_at_in_place(&self, _data: &mut [u8], _offset: u64) -> Result<bool, Error> {
        todo!()
    }
    /// Everything that completed before is durable on return.
    pub fn flush(&self) -> Result<(), Error> {
        todo!()
    }
    /// Discards by the policy; partial sectors at the edges are left alone
    /// (`Allow`) or zeroed (`Zero`).
    pub fn discard(&self, _offset: u64, _len: u64, _fua: bool) -> Result<(), Error> {
        todo!()
    }
    /// Writes encrypted zeros.
    pub fn write_zeroes(&self, _offset: u64, _len: u64, _fua: bool) -> Result<(), Error> {
        todo!()
    }
}
