//! Writes, zeroes and discards on lent memory.

use std::ops::Range;

use xtent_store::block_on;

use super::Wait;
use super::spare::with_buffer;
use crate::discard::Discard;
use crate::metrics::{Phase, Watch};
use crate::plan::{Edge, PIECE, Plan, Run};
use crate::range_lock::Mode;
use crate::volume::MAX_SECTOR;
use crate::{DiscardPolicy, Error, Volume};

/// What is to be written.
#[derive(Clone, Copy)]
enum Source<'a> {
    Bytes(&'a [u8]),
    Zeros(usize),
}

impl<'a> Source<'a> {
    fn len(self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Zeros(len) => len,
        }
    }

    fn split_at(self, middle: usize) -> (Self, Self) {
        match self {
            Self::Bytes(bytes) => {
                let (a, b) = bytes.split_at(middle);
                (Self::Bytes(a), Self::Bytes(b))
            }
            Self::Zeros(len) => (Self::Zeros(middle), Self::Zeros(len - middle)),
        }
    }

    fn part(self, range: Range<usize>) -> Self {
        self.split_at(range.start).1.split_at(range.len()).0
    }

    fn copy_to(self, dest: &mut [u8]) {
        match self {
            Self::Bytes(bytes) => dest.copy_from_slice(bytes),
            Self::Zeros(_) => dest.fill(0),
        }
    }
}

impl Volume {
    /// Encrypts and writes `data`, which is left as it is and whose bytes are
    /// read once each. Durable on return if `fua`.
    pub fn write_at(&self, data: &[u8], offset: u64, fua: bool) -> Result<(), Error> {
        let sectors = self.check_write(offset, data.len() as u64)?;
        if data.is_empty() {
            return Ok(());
        }
        let mut watch = Watch::of_some(&self.metrics);
        let _guard = self.locks.lock(sectors, Mode::Exclusive);
        watch.lap(Phase::Lock);
        let source = Source::Bytes(data);
        self.write_locked(source, offset, fua, Wait::Allowed, &mut watch)
            .map(|_| ())
    }

    /// As [`Volume::write_at`], encrypting `data` in place: its contents are
    /// undefined afterwards. Saves the copy for callers that own their buffer.
    pub fn write_at_in_place(&self, data: &mut [u8], offset: u64, fua: bool) -> Result<(), Error> {
        self.write_in_place(data, offset, fua, Wait::Allowed)
            .map(|_| ())
    }

    /// As [`Volume::write_at_in_place`], on the thread that polls: another request that has the range is waited
    /// for without it.
    pub async fn write_lent_async(
        &self,
        data: &mut [u8],
        offset: u64,
        fua: bool,
    ) -> Result<(), Error> {
        let sectors = self.check_write(offset, data.len() as u64)?;
        if data.is_empty() {
            return Ok(());
        }
        let mut watch = Watch::of_some(&self.metrics);
        let _guard = self.locks.lock_async(sectors, Mode::Exclusive).await;
        watch.lap(Phase::Lock);
        self.write_in_place_locked(data, offset, fua, Wait::Allowed, &mut watch)
            .map(|_| ())
    }

    /// As [`Volume::write_at`] without `fua`, if that needs to wait for nothing, as in
    /// [`Volume::try_write_at_in_place`].
    pub fn try_write_at(&self, data: &[u8], offset: u64) -> Result<bool, Error> {
        let sectors = self.check_write(offset, data.len() as u64)?;
        if data.is_empty() {
            return Ok(true);
        }
        if self.goes_to_engine(data.len()) {
            return Ok(false);
        }
        let Some(_guard) = self.locks.try_lock(sectors, Mode::Exclusive) else {
            return Ok(false);
        };
        match self.store_takes_at_once(offset, data.len())? {
            true => {
                let mut watch = Watch::of_some(&self.metrics);
                self.write_locked(Source::Bytes(data), offset, false, Wait::Never, &mut watch)
            }
            false => Ok(false),
        }
    }

    /// As [`Volume::write_at_in_place`] without `fua`, if that needs to wait
    /// neither for a disk read (partial sectors, partial pages of the cache)
    /// nor for another request nor for an engine; `Ok(false)` otherwise, with `data` untouched.
    pub fn try_write_at_in_place(&self, data: &mut [u8], offset: u64) -> Result<bool, Error> {
        self.write_in_place(data, offset, false, Wait::Never)
    }

    /// Discards by the policy; partial sectors at the edges are left alone
    /// (`Allow`) or zeroed (`Zero`). A store that cannot discard is no error.
    pub fn discard(&self, offset: u64, len: u64, fua: bool) -> Result<(), Error> {
        match self.discard {
            DiscardPolicy::Never => self.check_write(offset, len).map(|_| ()),
            DiscardPolicy::Zero => self.write_zeroes(offset, len, fua),
            DiscardPolicy::Allow => {
                self.check_write(offset, len)?;
                if let Some(Discard { sectors, range }) = self.discardable(offset, len) {
                    let _guard = self.locks.lock(sectors, Mode::Exclusive);
                    let result = self.store.discard(range.start, range.end - range.start);
                    self.discarded(result, offset)?;
                }
                if fua { self.flush() } else { Ok(()) }
            }
        }
    }

    /// Writes encrypted zeros.
    pub fn write_zeroes(&self, offset: u64, len: u64, fua: bool) -> Result<(), Error> {
        block_on(self.write_zeroes_here(offset, len, fua))
    }

    /// The same on the thread that polls, which waits for no other request.
    pub(crate) async fn write_zeroes_here(
        &self,
        offset: u64,
        len: u64,
        fua: bool,
    ) -> Result<(), Error> {
        self.check_write(offset, len)?;
        let end = offset + len;
        let mut position = offset;
        let mut is_durable = !fua;
        while position < end {
            // Each piece is a request of its own, so that others need not
            // wait for all of a large one.
            let next = (self.plan(position, 1).hull().start + PIECE as u64).min(end);
            let is_all = position == offset && next == end;
            // At most a piece.
            let piece = usize::try_from(next - position).unwrap_or_default();
            let sectors = self.check_write(position, piece as u64)?;
            let mut watch = Watch::of_some(&self.metrics);
            let _guard = self.locks.lock_async(sectors, Mode::Exclusive).await;
            watch.lap(Phase::Lock);
            let zeros = Source::Zeros(piece);
            self.write_locked(zeros, position, fua && is_all, Wait::Allowed, &mut watch)?;
            is_durable |= is_all;
            position = next;
        }
        if is_durable { Ok(()) } else { self.flush() }
    }

    fn write_in_place(
        &self,
        data: &mut [u8],
        offset: u64,
        fua: bool,
        wait: Wait,
    ) -> Result<bool, Error> {
        let sectors = self.check_write(offset, data.len() as u64)?;
        if data.is_empty() {
            return Ok(true);
        }
        if wait == Wait::Never && self.goes_to_engine(data.len()) {
            return Ok(false);
        }
        let mut watch = Watch::of_some(&self.metrics);
        let guard = match wait {
            Wait::Allowed => Some(self.locks.lock(sectors, Mode::Exclusive)),
            Wait::Never => self.locks.try_lock(sectors, Mode::Exclusive),
        };
        let Some(_guard) = guard else {
            return Ok(false);
        };
        watch.lap(Phase::Lock);
        if wait == Wait::Never && !self.store_takes_at_once(offset, data.len())? {
            return Ok(false);
        }
        self.write_in_place_locked(data, offset, fua, wait, &mut watch)
    }

    /// Under the caller's lock.
    fn write_in_place_locked(
        &self,
        data: &mut [u8],
        offset: u64,
        fua: bool,
        wait: Wait,
        watch: &mut Watch<'_>,
    ) -> Result<bool, Error> {
        if self.plan(offset, data.len()).middle().len() < data.len() {
            // Edges and middle go together through the buffer, as one write.
            return self.write_locked(Source::Bytes(data), offset, fua, wait, watch);
        }
        let is_one = data.len() <= PIECE;
        for Run { position, bytes } in Plan::runs(offset, data.len()) {
            let piece = &mut data[bytes];
            self.encrypt(piece, position);
            watch.lap(Phase::Cipher);
            self.write_piece(piece, position, fua && is_one)?;
            watch.lap(Phase::Store);
        }
        if fua && !is_one {
            self.flush()?;
        }
        Ok(true)
    }

    pub(super) fn store_takes_at_once(&self, offset: u64, len: usize) -> Result<bool, Error> {
        self.store
            .takes_write_at_once(self.offset + offset, len as u64)
            .map_err(|e| Error::store(e, Some(offset)))
    }

    /// Writes any range under the caller's lock. Whatever can fail or wait for
    /// a read comes first, so that nothing is written then.
    fn write_locked(
        &self,
        source: Source<'_>,
        offset: u64,
        fua: bool,
        wait: Wait,
        watch: &mut Watch<'_>,
    ) -> Result<bool, Error> {
        const NONE: Source<'_> = Source::Bytes(&[]);
        let plan = self.plan(offset, source.len());
        let unit = self.sector_size.bytes();
        let mut memory = [[0; MAX_SECTOR]; 2];
        let mut edges = [NONE; 2];
        for ((edge, sector), merged) in plan.edges().into_iter().zip(&mut memory).zip(&mut edges) {
            let Some(Edge {
                position,
                in_unit,
                in_request,
            }) = edge
            else {
                continue;
            };
            let sector = &mut sector[..unit];
            if !self.read_run(sector, position, wait, watch)? {
                return Ok(false);
            }
            source.part(in_request).copy_to(&mut sector[in_unit]);
            *merged = Source::Bytes(sector);
        }
        let [head, tail] = edges;
        let runs = [head, source.part(plan.middle()), tail];
        self.write_runs(runs, plan.hull().start, fua, watch)?;
        Ok(true)
    }

    /// Encrypts consecutive runs of whole sectors, the first of which begins at
    /// `position`, into this thread's buffer and writes it whenever it is full.
    fn write_runs(
        &self,
        runs: [Source<'_>; 3],
        position: u64,
        fua: bool,
        watch: &mut Watch<'_>,
    ) -> Result<(), Error> {
        let total: usize = runs.iter().map(|run| run.len()).sum();
        let is_one = total <= PIECE;
        with_buffer(|buffer| {
            let mut start = position;
            let mut filled = 0;
            for mut run in runs {
                while run.len() > 0 {
                    let (now, later) = run.split_at(run.len().min(PIECE - filled));
                    let dest = &mut buffer[filled..filled + now.len()];
                    let here = start + filled as u64;
                    match now {
                        Source::Bytes(bytes) => self.encrypt_to(bytes, dest, here),
                        Source::Zeros(_) => {
                            dest.fill(0);
                            self.encrypt(dest, here);
                        }
                    }
                    watch.lap(Phase::Cipher);
                    filled += now.len();
                    run = later;
                    if filled == PIECE {
                        self.write_piece(buffer, start, fua && is_one)?;
                        watch.lap(Phase::Store);
                        start += filled as u64;
                        filled = 0;
                    }
                }
            }
            if filled > 0 {
                self.write_piece(&buffer[..filled], start, fua && is_one)?;
                watch.lap(Phase::Store);
            }
            Ok(())
        })?;
        if fua && !is_one { self.flush() } else { Ok(()) }
    }

    pub(super) fn write_piece(
        &self,
        ciphertext: &[u8],
        position: u64,
        durably: bool,
    ) -> Result<(), Error> {
        let at = self.offset + position;
        if durably {
            self.store.write_at_durably(ciphertext, at)
        } else {
            self.store.write_at(ciphertext, at)
        }
        .map_err(|e| Error::store(e, Some(position)))
    }
}
