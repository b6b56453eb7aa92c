//! What makes a volume of a store, and the checks on it.

use std::num::NonZeroUsize;

use sector_cipher::{Backend, CipherSpec, SectorCount, SectorSize};
use xtent_store::Store;

use crate::{Error, Holes};

/// Bytes that sector numbers and IV offsets count in.
pub(crate) const UNIT: u64 = 512;

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

/// How many threads work on one large run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CipherThreads {
    /// As many as there are cores, for runs that take the cipher on this CPU
    /// long enough to be worth it; no thread is started where none does.
    Auto,
    /// So many for every run of 32 KiB or more, the one that has the request
    /// among them; at most 16.
    Count(NonZeroUsize),
}

/// Everything that makes a volume of a store.
#[derive(Clone, Debug)]
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
    /// Added to every sector number (LUKS2's `iv_tweak`), in 512-byte units;
    /// a multiple of the sector size, as in dm-crypt.
    pub iv_offset: u64,
    /// Whether writes are refused.
    pub read_only: bool,
    /// What a discard does.
    pub discard: DiscardPolicy,
    /// What a sector reads as that was never written.
    pub holes: Holes,
    /// The back-end, or the fastest.
    pub backend: Option<Backend>,
}

impl Config {
    /// Checks it against itself, the store and the length of the key.
    pub(crate) fn check(&self, store: &dyn Store, key_length: usize) -> Result<(), Error> {
        let Self {
            offset,
            length,
            iv_offset,
            ..
        } = *self;
        let sector = self.sector_size.bytes() as u64;
        if !offset.is_multiple_of(UNIT) {
            return Err(Error::config(format!(
                "the data offset of {offset} bytes is not a multiple of 512; \
                 check the header or the offset given"
            )));
        }
        if length == 0 || !length.is_multiple_of(sector) {
            return Err(Error::config(format!(
                "the volume's length of {length} bytes is not a positive multiple of its \
                 {sector}-byte sectors; check the size of the device and the header"
            )));
        }
        let units = sector / UNIT;
        if !iv_offset.is_multiple_of(units) || iv_offset.checked_add(length / UNIT).is_none() {
            return Err(Error::config(format!(
                "the IV offset {iv_offset} must be a multiple of {units} for {sector}-byte \
                 sectors, and sector numbers must stay below 2^64; check the header"
            )));
        }
        let present = store.size();
        let needed = offset.checked_add(length);
        if needed.is_none_or(|needed| needed > present) {
            let needed = u128::from(offset) + u128::from(length);
            return Err(Error::config(format!(
                "the store is too short: the volume needs {needed} bytes, {present} are \
                 present; was the image truncated or copied in part?"
            )));
        }
        let block = u64::from(store.limits().block);
        let is_whole = |end: u64| {
            end.checked_next_multiple_of(block)
                .is_some_and(|e| e <= present)
        };
        if block > sector && !(offset.is_multiple_of(block) && is_whole(offset + length)) {
            return Err(Error::config(format!(
                "the store reads and writes blocks of {block} bytes, but the volume's data \
                 begins at byte {offset} and has {length} bytes; open it by a way that takes \
                 smaller blocks"
            )));
        }
        if store.is_read_only() && !self.read_only {
            return Err(Error::config(
                "the store is open for reading only; open the volume read-only too".into(),
            ));
        }
        let takes = self.cipher.key_lengths();
        if !takes.contains(&key_length) {
            return Err(Error::config(format!(
                "the key has {key_length} bytes, but {} takes one of {takes:?}; \
                 check cipher and key size",
                self.cipher
            )));
        }
        if let Some(backend) = self.backend
            && !backend.is_supported()
        {
            return Err(Error::config(format!(
                "this CPU lacks the cipher back-end {backend:?}; it has {:?}",
                Backend::available()
            )));
        }
        Ok(())
    }
}
