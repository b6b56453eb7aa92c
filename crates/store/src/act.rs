//! What a store is asked to do, for errors.

use std::fmt;

/// What was being done when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Act {
    /// To open what is there.
    Open,
    /// To make a file.
    Create,
    /// To take the server lock.
    Lock,
    /// To claim a block device, so that nothing is mounted from it or mapped to it.
    Claim,
    /// To go past the page cache.
    DirectIo,
    /// To find out how large it is.
    Look,
    /// To read.
    Read,
    /// To write.
    Write,
    /// To write, and have it on the disk on return.
    DurableWrite,
    /// To have on the disk what was written before.
    Flush,
    /// To give up a range's contents.
    Discard,
    /// To find a loop device that is free.
    FindFree,
    /// To attach a loop device.
    Attach,
    /// An [`Operation`](crate::Operation) that the store has forgotten.
    Operation,
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Create => "create",
            Self::Lock => "lock",
            Self::Claim => "claim",
            Self::DirectIo => "direct I/O",
            Self::Look => "look at the size",
            Self::Read => "read",
            Self::Write => "write",
            Self::DurableWrite => "durable write",
            Self::Flush => "flush",
            Self::Discard => "discard",
            Self::FindFree => "search for a free device",
            Self::Attach => "attach",
            Self::Operation => "operation",
        })
    }
}
