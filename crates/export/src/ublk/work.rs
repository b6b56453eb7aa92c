//! What the kernel asks of the volume. The data of a request is in memory that belongs to it until it ends.

use std::sync::Arc;

use rustix::io::Errno;
use xtent_store::AlignedBuffer;

use super::abi::{self, Descriptor, SECTOR};
use super::queue::Ended;
use super::{LARGEST, LARGEST_RANGE};
use crate::request::{Asked, Carrier, Client, Failed};

/// The driver's words. None: nothing that it could be.
fn understand(descriptor: &Descriptor) -> Option<Asked> {
    let [operation, ..] = descriptor.operation_and_flags.to_le_bytes();
    if operation == abi::OPERATION_FLUSH {
        // Its place is none: -1.
        return Some(Asked::Flush);
    }
    let fua = descriptor.operation_and_flags & abi::REQUEST_FUA != 0;
    let len = u64::from(descriptor.sectors) * SECTOR;
    let offset = descriptor.start.checked_mul(SECTOR)?;
    let ranges = || vec![(offset, len)];
    match operation {
        abi::OPERATION_READ if len <= LARGEST.into() => Some(Asked::Read { offset, len }),
        abi::OPERATION_WRITE if len <= LARGEST.into() => Some(Asked::Write { offset, len, fua }),
        abi::OPERATION_DISCARD if len <= LARGEST_RANGE => Some(Asked::Discard {
            ranges: ranges(),
            fua,
        }),
        abi::OPERATION_WRITE_ZEROES if len <= LARGEST_RANGE => Some(Asked::WriteZeroes {
            ranges: ranges(),
            fua,
        }),
        _ => None,
    }
}

/// How a request ended, with its memory for the next one in its place.
pub(super) struct Answer {
    pub(super) tag: u16,
    pub(super) memory: AlignedBuffer,
    /// Bytes, or less than zero an errno.
    pub(super) result: i32,
}

/// Carries a request out, or has it carried out; the queue is told of its end.
pub(super) fn carry_out(
    carrier: &Arc<Carrier>,
    descriptor: &Descriptor,
    (tag, memory): (u16, AlignedBuffer),
    ended: &Arc<Ended>,
) {
    let Some(asked) = understand(descriptor) else {
        let result = -Errno::OPNOTSUPP.raw_os_error();
        let answer = Answer {
            tag,
            memory,
            result,
        };
        return ended.push(answer, false);
    };
    let moved = match asked {
        Asked::Read { len, .. } | Asked::Write { len, .. } => len,
        _ => 0,
    };
    let request = KernelRequest {
        tag,
        memory: Some(memory),
        // At most `LARGEST`.
        moved: i32::try_from(moved).unwrap_or(i32::MAX),
        ended: Arc::clone(ended),
    };
    carrier.carry_out(request, asked, &mut []);
}

/// A request of the kernel's, and its place in the queue.
struct KernelRequest {
    tag: u16,
    /// None once it has ended.
    memory: Option<AlignedBuffer>,
    /// The answer if all goes well.
    moved: i32,
    ended: Arc<Ended>,
}

impl KernelRequest {
    fn data(&mut self, from: u64, len: usize) -> Option<&mut [u8]> {
        let from = usize::try_from(from).ok()?;
        let end = from.checked_add(len)?;
        self.memory.as_deref_mut()?.get_mut(from..end)
    }
}

impl Client for KernelRequest {
    fn put(&mut self, from: u64, data: &[u8]) -> Result<(), Failed> {
        let own = self.data(from, data.len());
        own.ok_or(Failed::With(Errno::FAULT))?.copy_from_slice(data);
        Ok(())
    }

    fn get(&mut self, from: u64, data: &mut [u8]) -> Result<(), Failed> {
        let own = self.data(from, data.len());
        data.copy_from_slice(own.ok_or(Failed::With(Errno::FAULT))?);
        Ok(())
    }

    fn own(&mut self, from: u64, len: usize) -> Option<&mut [u8]> {
        self.data(from, len)
    }

    fn end(&mut self, result: Result<(), Failed>, later: bool) {
        let Some(memory) = self.memory.take() else {
            return;
        };
        // Of a volume that somebody else has taken over, too: that is the end of a file system, which would write what
        // it knows of before over what is there by now.
        let result = match result {
            Ok(()) => self.moved,
            Err(failed) => -failed.errno().raw_os_error(),
        };
        let tag = self.tag;
        let answer = Answer {
            tag,
            memory,
            result,
        };
        self.ended.push(answer, later);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(operation_and_flags: u32, sectors: u32, start: u64) -> Option<Asked> {
        understand(&Descriptor {
            operation_and_flags,
            sectors,
            start,
            address: 0,
        })
    }

    #[test]
    fn what_is_asked_is_in_bytes() {
        let (offset, len) = (512 * 7, 512 * 8);
        assert_eq!(asked(0, 8, 7), Some(Asked::Read { offset, len }));
        let fua = true;
        assert_eq!(
            asked(1 | 1 << 13, 8, 7),
            Some(Asked::Write { offset, len, fua })
        );
        assert_eq!(asked(2, 0, u64::MAX), Some(Asked::Flush));
        let (ranges, fua) = (vec![(offset, len)], false);
        let zeroes = Asked::WriteZeroes {
            ranges: ranges.clone(),
            fua,
        };
        // "Do not deallocate" goes without saying.
        assert_eq!(asked(5 | 1 << 15, 8, 7), Some(zeroes));
        assert_eq!(asked(3, 8, 7), Some(Asked::Discard { ranges, fua }));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert_eq!(asked(4, 8, 7), None);
        assert_eq!(asked(0, 8, u64::MAX / 2), None);
        assert_eq!(asked(0, LARGEST / 512 + 1, 0), None);
        assert_eq!(asked(5, u32::MAX, 0), None);
    }
}
