//! Requests whose data is in memory that others see, a guest's: the cipher reads what is to be written there, and
//! writes what was read, so that nothing is copied. Only ciphertext passes through memory of ours.

use sector_cipher::Foreign;

use crate::metrics::{Phase, Watch};
use crate::range_lock::Mode;
use crate::{Error, Holes, Volume};

impl Volume {
    /// Whether a request from `offset` on can have its data in these pieces: the cipher takes such memory, each is
    /// whole sectors, and no engine takes the request.
    pub fn takes_foreign(&self, pieces: &[Foreign<'_>], offset: u64) -> bool {
        let sector = self.sector_size.bytes();
        let len = pieces.iter().map(|piece| piece.len()).sum();
        let is_plain = self.holes == Holes::Noise && !self.turned;
        is_plain
            && !self.goes_to_engine(len)
            && self.takes_foreign_memory()
            && offset.is_multiple_of(sector as u64)
            && pieces
                .iter()
                .all(|piece| piece.len().is_multiple_of(sector))
    }

    /// As [`Volume::try_read_at`], into pieces that the volume [takes](Volume::takes_foreign) and by way of `scratch`,
    /// whose length is theirs together.
    pub fn try_read_into(
        &self,
        scratch: &mut [u8],
        dest: &[Foreign<'_>],
        offset: u64,
    ) -> Result<bool, Error> {
        let sectors = self.check_range(offset, scratch.len() as u64)?;
        let Some(_guard) = self.locks.try_lock(sectors, Mode::Shared) else {
            return Ok(false);
        };
        let mut watch = Watch::of_some(&self.metrics);
        let is_read = self
            .store
            .try_read_at(scratch, self.offset + offset)
            .map_err(|e| Error::store(e, Some(offset)))?;
        watch.lap(Phase::Store);
        if is_read {
            self.decrypt_into(scratch, dest, offset)?;
            watch.lap(Phase::Cipher);
        }
        Ok(is_read)
    }

    /// As [`Volume::try_write_at`], from pieces that the volume [takes](Volume::takes_foreign) and by way of
    /// `scratch`, whose length is theirs together.
    pub fn try_write_from(
        &self,
        source: &[Foreign<'_>],
        scratch: &mut [u8],
        offset: u64,
    ) -> Result<bool, Error> {
        let sectors = self.check_write(offset, scratch.len() as u64)?;
        let Some(_guard) = self.locks.try_lock(sectors, Mode::Exclusive) else {
            return Ok(false);
        };
        let mut watch = Watch::of_some(&self.metrics);
        if !self.store_takes_at_once(offset, scratch.len())? {
            return Ok(false);
        }
        self.encrypt_from(source, scratch, offset)?;
        watch.lap(Phase::Cipher);
        self.write_piece(scratch, offset, false)?;
        watch.lap(Phase::Store);
        Ok(true)
    }
}
