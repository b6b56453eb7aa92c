//! The driver of requests on memory that is lent for a call: the way to a local file.
//! Everything is done on the caller's thread, in pieces that stay in its second-level cache,
//! and nothing is copied that need not be.

mod foreign;
mod spare;
mod write;

use crate::metrics::{Phase, Watch};
use crate::plan::{Plan, Run};
use crate::range_lock::Mode;
use crate::volume::MAX_SECTOR;
use crate::{Error, Volume};

/// Whether a call may wait for a disk or for another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    Allowed,
    Never,
}

impl Volume {
    /// Reads and decrypts into `buf`.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), Error> {
        let sectors = self.check_range(offset, buf.len() as u64)?;
        let mut watch = Watch::of_some(&self.metrics);
        let _guard = self.locks.lock(sectors, Mode::Shared);
        watch.lap(Phase::Lock);
        self.read_locked(buf, offset, Wait::Allowed, &mut watch)
            .map(|_| ())
    }

    /// As [`Volume::read_at`], on the thread that polls: another request that has the range is waited for
    /// without it.
    pub async fn read_lent_async(&self, buf: &mut [u8], offset: u64) -> Result<(), Error> {
        let sectors = self.check_range(offset, buf.len() as u64)?;
        let mut watch = Watch::of_some(&self.metrics);
        let _guard = self.locks.lock_async(sectors, Mode::Shared).await;
        watch.lap(Phase::Lock);
        self.read_locked(buf, offset, Wait::Allowed, &mut watch)
            .map(|_| ())
    }

    /// As [`Volume::read_at`] if that needs to wait neither for a disk nor for
    /// another request nor for an engine; `Ok(false)` otherwise, with the contents of `buf` undefined.
    pub fn try_read_at(&self, buf: &mut [u8], offset: u64) -> Result<bool, Error> {
        let sectors = self.check_range(offset, buf.len() as u64)?;
        if self.goes_to_engine(buf.len()) {
            return Ok(false);
        }
        let Some(_guard) = self.locks.try_lock(sectors, Mode::Shared) else {
            return Ok(false);
        };
        let mut watch = Watch::of_some(&self.metrics);
        self.read_locked(buf, offset, Wait::Never, &mut watch)
    }

    /// Everything that completed before is durable on return. After one
    /// failed flush every later one fails (see [`xtent_store::Store::flush`]).
    pub fn flush(&self) -> Result<(), Error> {
        if self.read_only {
            return Ok(());
        }
        let mut watch = Watch::of_all(&self.metrics);
        let result = self.store.flush();
        watch.lap(Phase::Store);
        result.map_err(|e| Error::store(e, None))
    }

    /// The plan of a request in whole sectors.
    fn plan(&self, offset: u64, len: usize) -> Plan {
        Plan::new(offset, len, self.sector_size.bytes())
    }

    /// Reads any range under the caller's lock.
    fn read_locked(
        &self,
        buf: &mut [u8],
        offset: u64,
        wait: Wait,
        watch: &mut Watch<'_>,
    ) -> Result<bool, Error> {
        let plan = self.plan(offset, buf.len());
        for edge in plan.edges().into_iter().flatten() {
            let mut sector = [0; MAX_SECTOR];
            let sector = &mut sector[..self.sector_size.bytes()];
            if !self.read_run(sector, edge.position, wait, watch)? {
                return Ok(false);
            }
            buf[edge.in_request].copy_from_slice(&sector[edge.in_unit]);
        }
        let middle = plan.middle();
        let position = offset + middle.start as u64;
        self.read_run(&mut buf[middle], position, wait, watch)
    }

    /// Reads whole sectors, in pieces, each decrypted where it lies.
    fn read_run(
        &self,
        run: &mut [u8],
        position: u64,
        wait: Wait,
        watch: &mut Watch<'_>,
    ) -> Result<bool, Error> {
        for Run { position, bytes } in Plan::runs(position, run.len()) {
            let (piece, at) = (&mut run[bytes], self.offset + position);
            let is_read = match wait {
                Wait::Allowed => self.store.read_at(piece, at).map(|()| true),
                Wait::Never => self.store.try_read_at(piece, at),
            }
            .map_err(|e| Error::store(e, Some(position)))?;
            watch.lap(Phase::Store);
            if !is_read {
                return Ok(false);
            }
            self.decrypt(piece, position);
            watch.lap(Phase::Cipher);
        }
        Ok(true)
    }
}
