//! Where ciphertext lives. A [`Store`] takes byte ranges; it knows neither
//! ciphers nor LUKS.

mod block;
mod buffer;
mod error;
mod file;
pub mod loopdev;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use buffer::{AlignedBuffer, PAGE};
pub use error::{Error, ErrorKind};
pub use file::{Access, FileStore};

/// The example of the README, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

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
/// threads at once; overlapping calls are the caller's affair. Empty ranges
/// inside the store succeed.
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
    /// Deallocates; the range then reads as anything. Partial units of
    /// [`Limits::discard`] at the edges may be left as they are.
    fn discard(&self, offset: u64, len: u64) -> Result<(), Error>;
}
