//! What of a discard reaches the store.

use std::ops::Range;
use std::sync::atomic::Ordering;

use xtent_store::chain;

use crate::{Error, Volume};

/// What a discard takes away.
pub(crate) struct Discard {
    /// The sectors to be locked.
    pub(crate) sectors: Range<u64>,
    /// The bytes of the store.
    pub(crate) range: Range<u64>,
}

impl Volume {
    /// Bytes that can be discarded at a time: ranges that are no multiples of it, from one on, are
    /// not discarded whole.
    pub fn discard_unit(&self) -> u64 {
        let limits = self.store.limits();
        let unit = u64::from(limits.discard.max(limits.block));
        unit.max(self.sector_size.bytes() as u64)
    }

    /// What of the range lies wholly inside in units of sectors and of the store; nothing
    /// if the store cannot discard.
    pub(crate) fn discardable(&self, offset: u64, len: u64) -> Option<Discard> {
        let sector = self.sector_size.bytes() as u64;
        let limits = self.store.limits();
        let unit = u64::from(limits.discard.max(limits.block)).max(1);
        let end = (offset + len) / sector * sector;
        // No overflow: the sums lie inside the store, give or take a unit.
        let first = offset.next_multiple_of(sector);
        if first >= end || self.cannot_discard.load(Ordering::Relaxed) {
            return None;
        }
        let start_at = (self.offset + first).next_multiple_of(unit);
        let end_at = (self.offset + end) / unit * unit;
        (start_at < end_at).then_some(Discard {
            sectors: first / sector..end / sector,
            range: start_at..end_at,
        })
    }

    /// The end of a discard in the store. One that cannot is no error, and is not asked again.
    pub(crate) fn discarded(
        &self,
        result: Result<(), xtent_store::Error>,
        offset: u64,
    ) -> Result<(), Error> {
        match result {
            Err(e) if e.kind == xtent_store::ErrorKind::Unsupported => {
                if !self.cannot_discard.swap(true, Ordering::Relaxed) {
                    tracing::warn!(error = %chain(&e), "discards are ignored from now on");
                }
                Ok(())
            }
            result => result.map_err(|e| Error::store(e, Some(offset))),
        }
    }
}
