//! Carrying requests out: at once on the thread that asks where nothing has to be waited for, else as a
//! future. A request is one run of sectors; where its data passes through memory of this process on the way,
//! it does so in pieces that the cache takes.

use std::sync::Arc;

use rustix::io::Errno;
use xtent_store::{Buffer, Memory, block_on};
use xtent_volume::{Foreign, Volume};

use super::{Asked, Client, Failed, Range, Request};
use crate::executor::{Executor, Kind, give_way};
use crate::zeroes;

/// Most bytes that go to a store that completes later at a time.
const LARGE_PIECE: u64 = 4 << 20;
/// Bytes of zeros under way.
const ZEROES: usize = 4 << 20;

/// On what threads it is waited for a store that completes nothing later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Threads {
    /// On the callers': there are as many as requests at a time.
    Callers,
    /// On the executor's.
    Executors,
}

/// Carries out the requests of an export.
pub(crate) struct Carrier {
    volume: Arc<Volume>,
    executor: Arc<Executor>,
    /// For requests that wait.
    memory: Arc<Memory>,
    /// For zeros.
    bulk: Arc<Memory>,
    /// Whether whoever asks can be kept waiting.
    waits: bool,
}

impl Carrier {
    /// With so many bytes of requests that wait, at most.
    pub(crate) fn new(
        volume: &Arc<Volume>,
        executor: Arc<Executor>,
        memory: usize,
        threads: Threads,
    ) -> Arc<Self> {
        Arc::new(Self {
            volume: Arc::clone(volume),
            executor,
            memory: Memory::new(memory),
            bulk: Memory::new(ZEROES),
            waits: threads == Threads::Callers && !volume.completes_later(),
        })
    }

    /// What the requests are about.
    pub(crate) fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// For requests that wait.
    pub(crate) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// What is carried out later is carried out by this.
    pub(crate) fn executor(&self) -> &Arc<Executor> {
        &self.executor
    }

    /// Carries a request out, or has it carried out; the bytes that were moved here. `scratch` is memory of the
    /// caller's, a [piece](Volume::preferred_piece), or nothing for clients that have their own.
    pub(crate) fn carry_out<C: Client>(
        self: &Arc<Self>,
        client: C,
        asked: Asked,
        scratch: &mut [u8],
    ) -> u64 {
        let mut request = Request::new(client, &asked, &self.volume);
        match asked {
            Asked::Read { offset, len } => {
                let (done, result) = self.read_now(&mut request.client, (offset, len), scratch);
                match result {
                    Ok(()) if done < len => self.later(Kind::Prompt, |carrier| async move {
                        let client = &mut request.client;
                        let result = carrier.read_later(client, (offset, len), done).await;
                        request.end_later(result);
                    }),
                    result => request.end(result),
                }
                done
            }
            Asked::Write { offset, len, fua } => {
                let range = (offset, len);
                let (done, result) = match fua {
                    true => (0, Ok(())),
                    false => self.write_now(&mut request.client, range, scratch),
                };
                match result {
                    Ok(()) if done < len => self.later(Kind::Prompt, |carrier| async move {
                        let client = &mut request.client;
                        let result = carrier.write_later(client, range, done, fua).await;
                        request.end_later(result);
                    }),
                    result => request.end(result),
                }
                done
            }
            Asked::Flush => {
                self.later(Kind::Prompt, |carrier| async move {
                    let result = carrier.volume.flush_async().await;
                    request.end_later(result.map_err(Failed::from));
                });
                0
            }
            Asked::Discard { ranges, fua } => {
                self.later(Kind::Bulk, |carrier| async move {
                    let result = carrier.discard(&ranges, fua).await;
                    request.end_later(result);
                });
                0
            }
            Asked::WriteZeroes { ranges, fua } => {
                self.later(Kind::Bulk, |carrier| async move {
                    let result = carrier.write_zeroes(&ranges, fua).await;
                    request.end_later(result);
                });
                0
            }
        }
    }

    /// Has something done that waits.
    pub(crate) fn later<F: Future<Output = ()> + Send + 'static>(
        self: &Arc<Self>,
        kind: Kind,
        future: impl FnOnce(Arc<Self>) -> F,
    ) {
        let future = future(Arc::clone(self));
        match self.waits {
            true => block_on(future),
            false => self.executor.spawn(0, kind, future),
        }
    }

    /// Whether a request may be carried out on the thread that asks: nothing completes it later for certain.
    fn takes_at_once(&self, (_, len): Range) -> bool {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        self.volume.takes_at_once(len)
    }

    /// The next piece of a range of which some is done: where it begins, and its bytes to where a piece of the
    /// size ends.
    fn piece((offset, len): Range, done: u64, size: u64) -> (u64, usize) {
        let at = offset.saturating_add(done);
        // At most `size`.
        let here = usize::try_from((size - at % size).min(len - done));
        (at, here.unwrap_or_default())
    }

    /// The next piece of what passes on this thread.
    fn small_piece(&self, range: Range, done: u64) -> (u64, usize) {
        Self::piece(range, done, self.volume.preferred_piece() as u64)
    }

    /// The next piece of what is waited for: a store that completes later, or an engine, has the whole run.
    fn large_piece(&self, range: Range, done: u64) -> (u64, usize) {
        let (offset, len) = range;
        match self.takes_at_once(range) {
            true => self.small_piece(range, done),
            // It is whole, wherever it begins: nothing of it was done before.
            false if len <= LARGE_PIECE && done == 0 => {
                (offset, usize::try_from(len).unwrap_or_default())
            }
            false => Self::piece(range, done, LARGE_PIECE),
        }
    }

    /// Reads as much as need not be waited for.
    fn read_now<C: Client>(
        &self,
        client: &mut C,
        range: Range,
        scratch: &mut [u8],
    ) -> (u64, Result<(), Failed>) {
        if let Some((own, at)) = self.own(client, range, 0) {
            let is_read = match self.waits {
                true => self.volume.read_at(own, at).map(|()| true),
                false => self.volume.try_read_at(own, at),
            };
            return all_or_nothing(range, is_read);
        }
        self.pieces_now(range, scratch, |done, at, piece| {
            if let Some(foreign) = self.foreign(client, done, (at, piece.len())) {
                return Ok(self.volume.try_read_into(piece, &foreign, at)?);
            }
            let is_read = self.volume.try_read_at(piece, at)?;
            if is_read {
                client.put(done, piece)?;
            }
            Ok(is_read)
        })
    }

    /// Writes as much as need not be waited for.
    fn write_now<C: Client>(
        &self,
        client: &mut C,
        range: Range,
        scratch: &mut [u8],
    ) -> (u64, Result<(), Failed>) {
        if let Some((own, at)) = self.own(client, range, 0) {
            return all_or_nothing(range, self.volume.try_write_at_in_place(own, at));
        }
        self.pieces_now(range, scratch, |done, at, piece| {
            if let Some(foreign) = self.foreign(client, done, (at, piece.len())) {
                return Ok(self.volume.try_write_from(&foreign, piece, at)?);
            }
            client.get(done, piece)?;
            Ok(self.volume.try_write_at_in_place(piece, at)?)
        })
    }

    /// Has `carry` called for piece after piece, with what is done before, where it begins in the volume, and
    /// scratch of its length, until one would have to be waited for; how much was done.
    fn pieces_now(
        &self,
        range: Range,
        scratch: &mut [u8],
        mut carry: impl FnMut(u64, u64, &mut [u8]) -> Result<bool, Failed>,
    ) -> (u64, Result<(), Failed>) {
        let mut done = 0;
        while done < range.1 && self.takes_at_once(range) {
            let (at, here) = self.small_piece(range, done);
            let carried = match scratch.get_mut(..here) {
                Some(piece) => carry(done, at, piece),
                None => Err(Failed::With(Errno::NOMEM)),
            };
            match carried {
                Ok(true) => done += here as u64,
                Ok(false) => break,
                Err(failed) => return (done, Err(failed)),
            }
        }
        (done, Ok(()))
    }

    /// A piece's data in memory that others see, if the volume can work on that.
    fn foreign<'c, C: Client>(
        &self,
        client: &'c C,
        done: u64,
        (at, len): (u64, usize),
    ) -> Option<Vec<Foreign<'c>>> {
        let pieces = client.foreign(done, len)?;
        self.volume.takes_foreign(&pieces, at).then_some(pieces)
    }

    async fn read_later<C: Client>(
        &self,
        client: &mut C,
        range: Range,
        mut done: u64,
    ) -> Result<(), Failed> {
        if let Some((own, at)) = self.own(client, range, done) {
            return Ok(self.volume.read_lent_async(own, at).await?);
        }
        while done < range.1 {
            let Owned { at, data, buffer } = self.next(range, done).await?;
            let buffer = self.volume.read_async(buffer, at, data.len()).await?;
            client.put(done, &buffer[data.clone()])?;
            done += data.len() as u64;
            if done < range.1 {
                give_way().await;
            }
        }
        Ok(())
    }

    async fn write_later<C: Client>(
        &self,
        client: &mut C,
        range: Range,
        mut done: u64,
        fua: bool,
    ) -> Result<(), Failed> {
        if let Some((own, at)) = self.own(client, range, done) {
            return Ok(self.volume.write_lent_async(own, at, fua).await?);
        }
        while done < range.1 {
            let Owned {
                at,
                data,
                mut buffer,
            } = self.next(range, done).await?;
            client.get(done, &mut buffer[data.clone()])?;
            let written = self.volume.write_async(buffer, at, data.len(), fua);
            written.await?;
            done += data.len() as u64;
            if done < range.1 {
                give_way().await;
            }
        }
        Ok(())
    }

    /// The next piece of what is waited for, with memory for it. A range that lies outside has none.
    async fn next(&self, range: Range, done: u64) -> Result<Owned, Failed> {
        let (at, len) = self.large_piece(range, done);
        match at.checked_add(len as u64) {
            Some(end) if end <= self.volume.size() => {}
            _ => return Err(Failed::With(Errno::INVAL)),
        }
        let hull = self.volume.hull(at, len);
        let buffer = self.memory.wait_for(hull.len).await;
        Ok(Owned {
            at,
            data: hull.skip..hull.skip + len,
            buffer: buffer.ok_or(Failed::With(Errno::NOMEM))?,
        })
    }

    /// What is left of a request in memory of its own, and where that begins in the volume. Where neither the
    /// store nor an engine completes it later it is carried out whole: under one lock, and made durable once.
    fn own<'c, C: Client>(
        &self,
        client: &'c mut C,
        (offset, len): Range,
        done: u64,
    ) -> Option<(&'c mut [u8], u64)> {
        if !self.takes_at_once((offset, len)) {
            return None;
        }
        let own = client.own(done, usize::try_from(len - done).ok()?)?;
        Some((own, offset.saturating_add(done)))
    }

    async fn discard(&self, ranges: &[Range], fua: bool) -> Result<(), Failed> {
        for &(offset, len) in ranges {
            let volume = &self.volume;
            volume.discard_async(&self.bulk, offset, len, fua).await?;
            give_way().await;
        }
        Ok(())
    }

    async fn write_zeroes(&self, ranges: &[Range], fua: bool) -> Result<(), Failed> {
        for &(offset, len) in ranges {
            zeroes::write(&self.volume, &self.bulk, offset, len, fua, |_| true).await?;
            give_way().await;
        }
        Ok(())
    }
}

/// A piece of a request, in memory that an operation owns.
struct Owned {
    /// Where it begins in the volume.
    at: u64,
    /// Which part of the memory it is.
    data: std::ops::Range<usize>,
    buffer: Buffer,
}

fn all_or_nothing(
    (_, len): Range,
    is_done: Result<bool, xtent_volume::Error>,
) -> (u64, Result<(), Failed>) {
    match is_done {
        Ok(true) => (len, Ok(())),
        Ok(false) => (0, Ok(())),
        Err(error) => (0, Err(error.into())),
    }
}
