//! Writes, zeroes and discards.

use std::ops::Range;
use std::sync::atomic::Ordering;

use crate::piece::{PIECE, with_buffer};
use crate::range_lock::Mode;
use crate::volume::{MAX_SECTOR, Parts, Volume, Wait};
use crate::{DiscardPolicy, Error};

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

    fn copy_to(self, dest: &mut [u8]) {
        match self {
            Self::Bytes(bytes) => dest.copy_from_slice(bytes),
            Self::Zeros(_) => dest.fill(0),
        }
    }
}

/// A whole sector of plaintext made of what was there and a part of a request.
type Edge = [u8; MAX_SECTOR];

impl Volume {
    /// Encrypts and writes `data`, which is left as it is and whose bytes are
    /// read once each. Durable on return if `fua`.
    pub fn write_at(&self, data: &[u8], offset: u64, fua: bool) -> Result<(), Error> {
        self.write(Source::Bytes(data), offset, fua)
    }

    /// As [`Volume::write_at`], encrypting `data` in place: its contents are
    /// undefined afterwards. Saves the copy for callers that own their buffer.
    pub fn write_at_in_place(&self, data: &mut [u8], offset: u64, fua: bool) -> Result<(), Error> {
        self.write_in_place(data, offset, fua, Wait::Allowed)
            .map(|_| ())
    }

    /// As [`Volume::write_at_in_place`] without `fua`, if that needs to wait
    /// neither for a disk read (partial sectors, partial pages of the cache)
    /// nor for another request; `Ok(false)` otherwise, with `data` untouched.
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
                self.discard_in_store(offset, len)?;
                if fua { self.flush() } else { Ok(()) }
            }
        }
    }

    /// Writes encrypted zeros.
    pub fn write_zeroes(&self, offset: u64, len: u64, fua: bool) -> Result<(), Error> {
        self.check_write(offset, len)?;
        let end = offset + len;
        let mut position = offset;
        let mut is_durable = !fua;
        while position < end {
            // Each piece is a request of its own, so that others need not
            // wait for all of a large one.
            let next = (self.sector_start(position).0 + PIECE as u64).min(end);
            let is_all = position == offset && next == end;
            // At most a piece.
            let piece = usize::try_from(next - position).unwrap_or_default();
            self.write(Source::Zeros(piece), position, fua && is_all)?;
            is_durable |= is_all;
            position = next;
        }
        if is_durable { Ok(()) } else { self.flush() }
    }

    /// The sectors that a range touches, if it lies inside and may be written.
    fn check_write(&self, offset: u64, len: u64) -> Result<Range<u64>, Error> {
        if self.read_only {
            return Err(Error::read_only(offset));
        }
        self.check_range(offset, len)
    }

    fn write(&self, source: Source<'_>, offset: u64, fua: bool) -> Result<(), Error> {
        let sectors = self.check_write(offset, source.len() as u64)?;
        if source.len() == 0 {
            return Ok(());
        }
        let _guard = self.locks.lock(sectors, Mode::Exclusive);
        self.write_locked(source, offset, fua, Wait::Allowed)
            .map(|_| ())
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
        let guard = match wait {
            Wait::Allowed => Some(self.locks.lock(sectors, Mode::Exclusive)),
            Wait::Never => self.locks.try_lock(sectors, Mode::Exclusive),
        };
        let Some(_guard) = guard else {
            return Ok(false);
        };
        if wait == Wait::Never && !self.store_takes_at_once(offset, data.len())? {
            return Ok(false);
        }
        let parts = Parts::of(offset, data.len(), self.sector_size);
        if parts.head + parts.tail > 0 {
            // Edges and middle go together through the buffer, as one write.
            return self.write_locked(Source::Bytes(data), offset, fua, wait);
        }
        let is_one = data.len() <= PIECE;
        let mut position = offset;
        for piece in data.chunks_mut(PIECE) {
            self.engine
                .encrypt(self.first(position), piece, self.locks.in_use());
            self.write_piece(piece, position, fua && is_one)?;
            position += piece.len() as u64;
        }
        if fua && !is_one {
            self.flush()?;
        }
        Ok(true)
    }

    fn store_takes_at_once(&self, offset: u64, len: usize) -> Result<bool, Error> {
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
    ) -> Result<bool, Error> {
        const NONE: Source<'_> = Source::Bytes(&[]);
        let parts = Parts::of(offset, source.len(), self.sector_size);
        if parts.head + parts.tail == 0 {
            self.write_runs([NONE, source, NONE], offset, fua)?;
            return Ok(true);
        }
        let (head, rest) = source.split_at(parts.head);
        let (middle, tail) = rest.split_at(parts.middle);
        let tail_offset = offset + (parts.head + parts.middle) as u64;
        let mut edges = [[0; MAX_SECTOR]; 2];
        let [head_edge, tail_edge] = &mut edges;
        if !self.merge(head_edge, head, offset, wait)?
            || !self.merge(tail_edge, tail, tail_offset, wait)?
        {
            return Ok(false);
        }
        let sector = self.sector_size.bytes();
        let head = (parts.head > 0).then(|| &head_edge[..sector]);
        let tail = (parts.tail > 0).then(|| &tail_edge[..sector]);
        let runs = [
            head.map_or(NONE, Source::Bytes),
            middle,
            tail.map_or(NONE, Source::Bytes),
        ];
        self.write_runs(runs, self.sector_start(offset).0, fua)?;
        Ok(true)
    }

    /// Reads the sector that `part`, at `offset`, lies in and puts `part` over it.
    fn merge(
        &self,
        edge: &mut Edge,
        part: Source<'_>,
        offset: u64,
        wait: Wait,
    ) -> Result<bool, Error> {
        if part.len() == 0 {
            return Ok(true);
        }
        let (start, skip) = self.sector_start(offset);
        let sector = &mut edge[..self.sector_size.bytes()];
        let is_read = self.read_run(sector, start, wait)?;
        part.copy_to(&mut sector[skip..skip + part.len()]);
        Ok(is_read)
    }

    /// Encrypts consecutive runs of whole sectors, the first of which begins at
    /// `position`, into this thread's buffer and writes it whenever it is full.
    fn write_runs(&self, runs: [Source<'_>; 3], position: u64, fua: bool) -> Result<(), Error> {
        let total: usize = runs.iter().map(|run| run.len()).sum();
        let is_one = total <= PIECE;
        let requests = self.locks.in_use();
        with_buffer(|buffer| {
            let mut start = position;
            let mut filled = 0;
            for mut run in runs {
                while run.len() > 0 {
                    let (now, later) = run.split_at(run.len().min(PIECE - filled));
                    let dest = &mut buffer[filled..filled + now.len()];
                    let first = self.first(start + filled as u64);
                    match now {
                        Source::Bytes(bytes) => {
                            self.engine.encrypt_to(first, bytes, dest, requests);
                        }
                        Source::Zeros(_) => {
                            dest.fill(0);
                            self.engine.encrypt(first, dest, requests);
                        }
                    }
                    filled += now.len();
                    run = later;
                    if filled == PIECE {
                        self.write_piece(buffer, start, fua && is_one)?;
                        start += filled as u64;
                        filled = 0;
                    }
                }
            }
            if filled > 0 {
                self.write_piece(&buffer[..filled], start, fua && is_one)?;
            }
            Ok(())
        })?;
        if fua && !is_one { self.flush() } else { Ok(()) }
    }

    fn write_piece(&self, ciphertext: &[u8], position: u64, durably: bool) -> Result<(), Error> {
        let at = self.offset + position;
        if durably {
            self.store.write_at_durably(ciphertext, at)
        } else {
            self.store.write_at(ciphertext, at)
        }
        .map_err(|e| Error::store(e, Some(position)))
    }

    /// Discards what lies wholly inside in units of sectors and of the store.
    fn discard_in_store(&self, offset: u64, len: u64) -> Result<(), Error> {
        let sector = self.sector_size.bytes() as u64;
        let unit = u64::from(self.store.limits().discard).max(1);
        let end = (offset + len) / sector * sector;
        // No overflow: the sums lie inside the store, give or take a unit.
        let first = offset.next_multiple_of(sector);
        if first >= end || self.cannot_discard.load(Ordering::Relaxed) {
            return Ok(());
        }
        let start_at = (self.offset + first).next_multiple_of(unit);
        let end_at = (self.offset + end) / unit * unit;
        if start_at >= end_at {
            return Ok(());
        }
        let sectors = first / sector..end / sector;
        let _guard = self.locks.lock(sectors, Mode::Exclusive);
        match self.store.discard(start_at, end_at - start_at) {
            Err(e) if e.kind == xtent_store::ErrorKind::Unsupported => {
                if !self.cannot_discard.swap(true, Ordering::Relaxed) {
                    tracing::warn!("discards are ignored from now on: {e}");
                }
                Ok(())
            }
            result => result.map_err(|e| Error::store(e, Some(offset))),
        }
    }
}
