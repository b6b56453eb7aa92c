//! What tells the disk behind an export from every other one.

use std::fmt;
use std::ops::Range;
use std::sync::Mutex;

use xtent_store::AlignedBuffer;

use crate::operation::{Operation, Work};

/// Bytes of a disk by which it is known again after a lost connection.
pub struct Identity {
    /// First byte that is looked at.
    pub offset: u64,
    /// How many bytes are.
    pub len: usize,
    /// Whether these bytes are those of the same disk; else what was expected and what is there,
    /// as a clause.
    pub check: Check,
}

/// Looks at the bytes of an [`Identity`].
pub type Check = Box<dyn Fn(&[u8]) -> Result<(), String> + Send + Sync>;

/// An [`Identity`] as it is asked for: in whole blocks.
pub(crate) struct Expected {
    offset: u64,
    len: usize,
    /// Where in them the bytes are.
    within: Range<usize>,
    check: Check,
}

impl Expected {
    pub(crate) fn new(offset: u64, len: usize, within: Range<usize>, check: Check) -> Self {
        Self {
            offset,
            len,
            within,
            check,
        }
    }

    /// The read that asks for it.
    pub(crate) fn question(&self) -> std::io::Result<Operation> {
        let buffer = AlignedBuffer::zeroed(self.len)?;
        let work = Work::Read(Mutex::new(Some(buffer.into())));
        let mut question = Operation::new(work, self.offset, self.len as u64, None);
        question.identifies = true;
        Ok(question)
    }

    /// Whether the answer is the right one; else what was expected and what is there, as a clause.
    pub(crate) fn check(&self, answer: &[u8]) -> Result<(), String> {
        (self.check)(answer.get(self.within.clone()).unwrap_or_default())
    }
}

impl fmt::Debug for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expected")
            .field("offset", &self.offset)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("offset", &self.offset)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}
