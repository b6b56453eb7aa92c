//! What was agreed on with the server when the store was opened, and has to be
//! so again on every connection.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use xtent_nbd::client::{BlockSizes, Negotiated};
use xtent_nbd::constants::*;
use xtent_store::{Error, ErrorKind, Place};

use crate::operation::Operation;

/// Flags on which writing depends.
const WRITING: u16 = FLAG_READ_ONLY | FLAG_SEND_FLUSH | FLAG_SEND_FUA | FLAG_SEND_TRIM;

/// The export as it was found.
pub(crate) struct Terms {
    /// The URI, for errors and messages.
    pub(crate) place: Place,
    flags: u16,
    pub(crate) blocks: BlockSizes,
    pub(crate) read_only: bool,
    /// Bytes that the journal may take.
    pub(crate) journal: usize,
    /// Whole blocks of the export, in bytes. Grows with it.
    size: AtomicU64,
    /// Bytes behind them when the store was opened.
    pub(crate) left_out: u64,
}

impl Terms {
    pub(crate) fn new(place: Place, found: &Negotiated, read_only: bool, journal: usize) -> Self {
        let mut terms = Self {
            place,
            flags: found.flags,
            blocks: found.blocks,
            read_only,
            journal,
            size: AtomicU64::new(0),
            left_out: 0,
        };
        let size = terms.whole_blocks(found.size);
        terms.left_out = found.size - size;
        if terms.left_out > 0 {
            tracing::warn!(
                "the last {} bytes of {} are left out: they are no whole block of {} bytes",
                terms.left_out,
                terms.place,
                found.blocks.minimum
            );
        }
        terms.size.store(size, Ordering::Release);
        terms
    }

    fn whole_blocks(&self, size: u64) -> u64 {
        size & !(u64::from(self.blocks.minimum) - 1)
    }

    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Whether a later connection found the export as large as the first one did.
    pub(crate) fn is_as_large(&self, found: &Negotiated) -> bool {
        self.whole_blocks(found.size) == self.size()
    }

    /// Takes what a later connection found, or says why that is another export.
    pub(crate) fn renew(&self, found: &Negotiated) -> Result<(), String> {
        let size = self.check(found)?;
        self.size.store(size, Ordering::Release);
        Ok(())
    }

    /// The size that a later connection found, or why that is another export.
    pub(crate) fn check(&self, found: &Negotiated) -> Result<u64, String> {
        let size = self.whole_blocks(found.size);
        if size < self.size() || i64::try_from(found.size).is_err() {
            return Err(format!(
                "the export is not the same any more: it had {} bytes and has {}",
                self.size(),
                found.size
            ));
        }
        if !self.read_only && (found.flags ^ self.flags) & WRITING != 0 {
            return Err(format!(
                "the export is not the same any more: its flags were {:#x} and are {:#x}",
                self.flags, found.flags
            ));
        }
        let blocks = found.blocks;
        if blocks.minimum > self.blocks.minimum || blocks.maximum < self.blocks.maximum {
            return Err(format!(
                "the export is not the same any more: it takes requests of \
                 {} to {} bytes and took {} to {}",
                blocks.minimum, blocks.maximum, self.blocks.minimum, self.blocks.maximum
            ));
        }
        Ok(size)
    }

    /// An error of an operation, for the reason in `text`.
    pub(crate) fn error(&self, kind: ErrorKind, operation: &Operation, text: String) -> Error {
        Error {
            source: Some(io::Error::other(text)),
            ..Error::new(kind, operation.act(), self.place.clone(), operation.place())
        }
    }
}
