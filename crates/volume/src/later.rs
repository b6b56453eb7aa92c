//! The driver of requests on memory that operations own: the way to stores that complete
//! later, and to cipher engines. A request waits as a future, so that any number of them are under way without a
//! thread for each.
//!
//! The futures must be polled to their end: one that is dropped lets go of its range while
//! its operation may still be under way in the store.
//!
//! Over a store that completes nothing later, what does not go to an engine is carried out by the other
//! driver, on the thread that polls, once no other request has its range: that is waited for without a thread here, too,
//! since a request that is with an engine can only go on if there is one left to poll it.

use std::future::ready;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join;
use futures_util::stream::{self, StreamExt};
use xtent_store::{AlignedBuffer, Buffer, Completed, Memory, Operation};

use crate::discard::Discard;
use crate::metrics::{Phase, Watch};
use crate::plan::{Edge, Hull, PIECE, Plan};
use crate::range_lock::Mode;
use crate::{DiscardPolicy, Error, Volume};

/// Pieces of zeros under way at a time.
const ZEROES_UNDER_WAY: usize = 8;

impl Volume {
    /// Whether requests leave the thread while the store is at work on them.
    pub fn completes_later(&self) -> bool {
        self.store.completes_later()
    }

    /// As [`Store::prefers_long_reads`](xtent_store::Store::prefers_long_reads), of a request of `len`
    /// bytes: one that goes to an engine goes there whole.
    pub fn prefers_long_read(&self, len: usize) -> bool {
        self.goes_to_engine(len) || self.completes_later() && self.store.prefers_long_reads()
    }

    /// The memory that an operation on `len` bytes from `offset` on needs, and where in it
    /// their place is. The range must lie inside.
    pub fn hull(&self, offset: u64, len: usize) -> Hull {
        self.owned_plan(offset, len).hull()
    }

    /// Reads and decrypts into memory that has the length of the range's
    /// [hull](Volume::hull); the bytes asked for lie in their place in it, and what is
    /// around them is undefined.
    pub async fn read_async(
        &self,
        mut buffer: Buffer,
        offset: u64,
        len: usize,
    ) -> Result<Buffer, Error> {
        self.check_range(offset, len as u64)?;
        let hull = self.hull(offset, len);
        check_memory(&buffer, hull)?;
        if self.takes_at_once(len) {
            let lent = &mut buffer[hull.skip..hull.skip + len];
            self.read_lent_async(lent, offset).await?;
            return Ok(buffer);
        }
        if len == 0 {
            return Ok(buffer);
        }
        let mut watch = Watch::of_all(&self.metrics);
        let _guard = self
            .locks
            .lock_async(self.sectors(hull), Mode::Shared)
            .await;
        watch.lap(Phase::Lock);
        self.read_units(buffer, hull.start).await
    }

    /// Encrypts and writes memory that has the length of the range's [hull](Volume::hull),
    /// with the bytes to be written in their place in it. Durable on completion if `fua`.
    pub async fn write_async(
        &self,
        mut buffer: Buffer,
        offset: u64,
        len: usize,
        fua: bool,
    ) -> Result<(), Error> {
        self.check_write(offset, len as u64)?;
        let plan = self.owned_plan(offset, len);
        let hull = plan.hull();
        check_memory(&buffer, hull)?;
        if self.takes_at_once(len) {
            let lent = &mut buffer[hull.skip..hull.skip + len];
            return self.write_lent_async(lent, offset, fua).await;
        }
        if len == 0 {
            return Ok(());
        }
        let sectors = self.sectors(hull);
        let mut watch = Watch::of_all(&self.metrics);
        let _guard = self.locks.lock_async(sectors, Mode::Exclusive).await;
        watch.lap(Phase::Lock);
        // Whatever can fail before the write comes first, so that nothing is written then.
        let [head, tail] = plan.edges();
        let (head, tail) = join(self.read_edge(head), self.read_edge(tail)).await;
        for (edge, unit) in [head?, tail?].into_iter().flatten() {
            put_around(&mut buffer, hull, &edge, &unit);
        }
        // The edges have told their time themselves.
        watch.restart();
        let buffer = self.encrypt_owned(buffer, hull.start).await?;
        watch.lap(Phase::Cipher);
        let operation = Operation::Write {
            buffer,
            offset: self.offset + hull.start,
            durably: fua,
        };
        let Completed { result, .. } = self.store.submit(operation).await;
        watch.lap(Phase::Store);
        result.map_err(|e| Error::store(e, Some(offset)))
    }

    /// As [`Volume::flush`].
    pub async fn flush_async(&self) -> Result<(), Error> {
        if !self.completes_later() || self.read_only {
            return self.flush();
        }
        let mut watch = Watch::of_all(&self.metrics);
        let Completed { result, .. } = self.store.submit(Operation::Flush).await;
        watch.lap(Phase::Store);
        result.map_err(|e| Error::store(e, None))
    }

    /// As [`Volume::discard`], with memory for zeros, if the policy has any written.
    pub async fn discard_async(
        &self,
        memory: &Arc<Memory>,
        offset: u64,
        len: u64,
        fua: bool,
    ) -> Result<(), Error> {
        match self.discard {
            DiscardPolicy::Never => self.check_write(offset, len).map(|_| ()),
            DiscardPolicy::Zero => self.write_zeroes_async(memory, offset, len, fua).await,
            DiscardPolicy::Allow => {
                self.check_write(offset, len)?;
                if let Some(Discard { sectors, range }) = self.discardable(offset, len) {
                    let _guard = self.locks.lock_async(sectors, Mode::Exclusive).await;
                    let operation = Operation::Discard {
                        offset: range.start,
                        len: range.end - range.start,
                    };
                    let Completed { result, .. } = self.store.submit(operation).await;
                    self.discarded(result, offset)?;
                }
                match fua {
                    true => self.flush_async().await,
                    false => Ok(()),
                }
            }
        }
    }

    /// As [`Volume::write_zeroes`], with `memory` for what is encrypted of them: at most
    /// eight pieces of [`Volume::preferred_piece`] at a time, and one at least.
    pub async fn write_zeroes_async(
        &self,
        memory: &Arc<Memory>,
        offset: u64,
        len: u64,
        fua: bool,
    ) -> Result<(), Error> {
        self.check_write(offset, len)?;
        if self.takes_at_once(usize::try_from(len).unwrap_or(PIECE).min(PIECE)) {
            return self.write_zeroes_here(offset, len, fua).await;
        }
        let end = offset + len;
        let step = PIECE as u64;
        // Each piece is a request of its own, so that others need not wait for all of a
        // large one.
        let pieces = (offset / step..end.div_ceil(step)).map(|piece| {
            let start = offset.max(piece * step);
            (start, end.min((piece + 1) * step) - start)
        });
        let is_one = pieces.clone().take(2).count() == 1;
        let has_failed = AtomicBool::new(false);
        let write = |(start, len)| {
            let has_failed = &has_failed;
            let piece = async move {
                // At most a piece.
                let len = usize::try_from(len).unwrap_or_default();
                let hull = self.hull(start, len);
                let buffer = memory.wait_for(hull.len).await;
                let mut buffer = buffer.ok_or_else(|| Error::no_memory("a piece of zeros"))?;
                buffer[hull.skip..hull.skip + len].fill(0);
                self.write_async(buffer, start, len, fua && is_one).await
            };
            async move {
                if has_failed.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let result = piece.await;
                has_failed.fetch_or(result.is_err(), Ordering::Relaxed);
                result
            }
        };
        // After an error no piece begins, but those under way go on to their end: they have their ranges.
        let all = |so_far: Result<(), Error>, one| ready(so_far.and(one));
        stream::iter(pieces)
            .map(write)
            .buffer_unordered(ZEROES_UNDER_WAY)
            .fold(Ok(()), all)
            .await?;
        match fua && !is_one {
            true => self.flush_async().await,
            false => Ok(()),
        }
    }

    /// The plan of a request in units that are whole for the cipher and for the store.
    fn owned_plan(&self, offset: u64, len: usize) -> Plan {
        Plan::new(offset, len, self.unit())
    }

    fn unit(&self) -> usize {
        let sector = self.sector_size.bytes();
        let block = usize::try_from(self.store.limits().block).unwrap_or(sector);
        sector.max(block)
    }

    fn sectors(&self, hull: Hull) -> Range<u64> {
        let sector = self.sector_size.bytes() as u64;
        hull.start / sector..(hull.start + hull.len as u64) / sector
    }

    /// Fills the buffer with units from `position` on, under the caller's lock.
    async fn read_units(&self, buffer: Buffer, position: u64) -> Result<Buffer, Error> {
        let offset = self.offset + position;
        let mut watch = Watch::of_all(&self.metrics);
        let Completed { buffer, result } =
            self.store.submit(Operation::Read { buffer, offset }).await;
        watch.lap(Phase::Store);
        result.map_err(|e| Error::store(e, Some(position)))?;
        // A store that succeeds gives the memory back.
        let buffer = buffer.ok_or_else(|| Error::no_memory("what was read"))?;
        let buffer = self.decrypt_owned(buffer, position).await?;
        watch.lap(Phase::Cipher);
        Ok(buffer)
    }

    /// Reads the unit that an edge lies in.
    async fn read_edge(&self, edge: Option<Edge>) -> Result<Option<(Edge, Buffer)>, Error> {
        let Some(edge) = edge else {
            return Ok(None);
        };
        let memory =
            AlignedBuffer::zeroed(self.unit()).map_err(|_| Error::no_memory("a sector"))?;
        let unit = self.read_units(memory.into(), edge.position).await?;
        Ok(Some((edge, unit)))
    }
}

/// The memory must be the hull's: anything else is a fault of the caller's.
fn check_memory(buffer: &Buffer, hull: Hull) -> Result<(), Error> {
    match buffer.len() == hull.len {
        true => Ok(()),
        false => Err(Error::config(format!(
            "an operation needs {} bytes of memory, and was given {}",
            hull.len,
            buffer.len()
        ))),
    }
}

/// Puts what the request leaves of an edge's unit around the request's bytes.
fn put_around(memory: &mut [u8], hull: Hull, edge: &Edge, unit: &[u8]) {
    let start = hull.skip + edge.in_request.start - edge.in_unit.start;
    let place = &mut memory[start..start + unit.len()];
    let Range { start, end } = edge.in_unit;
    place[..start].copy_from_slice(&unit[..start]);
    place[end..].copy_from_slice(&unit[end..]);
}
