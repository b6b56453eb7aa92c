//! Where ciphertext lives. A [`Store`] takes byte ranges; it knows neither
//! ciphers nor LUKS.

mod act;
mod block;
mod buffer;
mod chain;
mod error;
mod file;
pub mod loopdev;
mod memory;
mod operation;
mod place;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use act::Act;
pub use buffer::{AlignedBuffer, PAGE};
pub use chain::{advice, chain};
pub use error::{Error, ErrorKind};
pub use file::{Access, FileParts, FileStore};
pub use memory::{Buffer, Memory, Share, block_on};
pub use operation::{Completed, Completion, Operation, Submitted};
pub use place::Place;

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
    /// Bytes that an [`Operation`]'s offset and length are multiples of: 1 if
    /// it takes any. A power of two.
    pub block: u32,
}

/// A flat range of bytes with positioned I/O. Every call may come from many
/// threads at once; overlapping calls are the caller's affair. Empty ranges
/// inside the store succeed.
///
/// There are two ways to use it. The calls on borrowed memory ([`Store::read_at`] and
/// its like) return when the work is done, and take any range. An [`Operation`] owns its
/// memory, and a store that [completes later](Store::completes_later) has any number of
/// them under way without a thread for each.
pub trait Store: Send + Sync {
    /// Bytes in the store now.
    fn size(&self) -> u64;
    /// Bytes in the store, asked for anew where [`Store::size`] is what was found when it was opened. May
    /// take some seconds.
    ///
    /// # Errors
    /// If they cannot be asked for, or what is there is not the same store any more: smaller, or
    /// another one. The size stays then.
    fn look_at_size(&self) -> Result<u64, Error> {
        Ok(self.size())
    }
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
    /// Whether [`Store::write_at`] of this range would return without waiting for a
    /// disk or a network, so that a thread that others wait for may call it.
    fn takes_write_at_once(&self, _offset: u64, _len: u64) -> Result<bool, Error> {
        Ok(false)
    }
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
    /// Whether [`Store::submit`] returns before the work is done. If not, it is
    /// called where waiting is allowed.
    fn completes_later(&self) -> bool {
        false
    }
    /// Whether one long read costs less than several that make it up, side by side. For a disk it
    /// does not, since the first part can be decrypted and sent meanwhile.
    fn prefers_long_reads(&self) -> bool {
        false
    }
    /// Begins an operation. Without an own implementation it is carried out at once,
    /// by the calls above.
    ///
    /// A write that has not completed may have reached the store in any part, and
    /// operations under way may be carried out in any order.
    fn submit(&self, operation: Operation) -> Submitted {
        Submitted::ended(self.perform(operation))
    }
    /// Carries an operation out by the calls that wait.
    fn perform(&self, operation: Operation) -> Completed {
        match operation {
            Operation::Read { mut buffer, offset } => {
                let result = self.read_at(&mut buffer, offset);
                Completed::new(Some(buffer), result)
            }
            Operation::Write {
                buffer,
                offset,
                durably,
            } => {
                let result = match durably {
                    true => self.write_at_durably(&buffer, offset),
                    false => self.write_at(&buffer, offset),
                };
                Completed::new(Some(buffer), result)
            }
            Operation::Flush => Completed::new(None, self.flush()),
            Operation::Discard { offset, len } => Completed::new(None, self.discard(offset, len)),
        }
    }
}
