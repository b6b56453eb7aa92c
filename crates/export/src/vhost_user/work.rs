//! What a guest asks of the volume: at once on the ring's thread where nothing has to be waited
//! for, else as a future. A request is one run of sectors, however many pieces of memory the guest
//! has it in; it passes through memory of this process, since the guest may change its own at any
//! time.

use std::sync::Arc;
use std::time::Instant;

use xtent_store::{AlignedBuffer, Memory, chain};
use xtent_volume::{RequestKind, Volume};

use super::request::{Chain, Command, ID_LENGTH, Status};
use super::ring::Shared;
use crate::executor::{Executor, Kind, give_way};
use crate::zeroes;

/// Bytes of a request to a store that completes later, at a time.
const LARGE_PIECE: usize = 4 << 20;

/// What all rings share.
pub(super) struct Work {
    pub(super) volume: Arc<Volume>,
    pub(super) executor: Arc<Executor>,
    /// For requests that wait.
    pub(super) memory: Arc<Memory>,
    /// For zeros.
    pub(super) bulk: Arc<Memory>,
    /// What the guest knows the disk by, padded with zeros.
    pub(super) id: [u8; ID_LENGTH],
}

/// A ring's memory for what does not wait.
pub(super) struct Scratch(AlignedBuffer);

impl Scratch {
    pub(super) fn new(volume: &Volume) -> Option<Self> {
        AlignedBuffer::zeroed(volume.preferred_piece())
            .ok()
            .map(Self)
    }
}

/// A request under way. Dropped without having ended it fails.
pub(super) struct Job {
    ring: Arc<Shared>,
    volume: Arc<Volume>,
    /// None once it has ended.
    chain: Option<Chain>,
    kind: Option<RequestKind>,
    since: Instant,
}

impl Job {
    pub(super) fn new(
        ring: &Arc<Shared>,
        chain: Chain,
        command: &Command,
        volume: &Arc<Volume>,
    ) -> Self {
        let all = |ranges: &[(u64, u64)]| ranges.iter().map(|range| range.1).sum();
        let asked = match command {
            Command::Read { len, .. } => Some((RequestKind::Read, *len)),
            Command::Write { len, .. } => Some((RequestKind::Write, *len)),
            Command::Flush => Some((RequestKind::Flush, 0)),
            Command::Discard(ranges) => Some((RequestKind::Discard, all(ranges))),
            Command::WriteZeroes(ranges) => Some((RequestKind::WriteZeroes, all(ranges))),
            Command::Identify => None,
        };
        if let Some((kind, bytes)) = asked {
            volume.metrics().asked(kind, bytes);
        }
        volume.metrics().begun();
        Self {
            ring: Arc::clone(ring),
            volume: Arc::clone(volume),
            chain: Some(chain),
            kind: asked.map(|asked| asked.0),
            since: Instant::now(),
        }
    }

    /// Writes for the guest.
    fn put(&self, from: u64, data: &[u8]) -> bool {
        let chain = self.chain.as_ref();
        chain.is_some_and(|chain| self.ring.guest.write(&chain.room, from, data))
    }

    /// Reads what the guest has written.
    fn get(&self, from: u64, data: &mut [u8]) -> bool {
        let chain = self.chain.as_ref();
        chain.is_some_and(|chain| self.ring.guest.read(&chain.data, from, data))
    }

    /// The end; the guest is not told yet.
    fn end(mut self, result: Result<u64, Failed>) {
        self.give_back(result);
    }

    /// The end, with the guest told.
    fn end_and_tell(self, result: Result<u64, Failed>) {
        let ring = Arc::clone(&self.ring);
        self.end(result);
        ring.tell();
    }

    fn give_back(&mut self, result: Result<u64, Failed>) {
        let Some(chain) = self.chain.take() else {
            return;
        };
        let (status, written) = match result {
            Ok(written) => (Status::Ok, written),
            Err(_) => (Status::IoError, 0),
        };
        let metrics = self.volume.metrics();
        if let Some(kind) = self.kind {
            if status != Status::Ok {
                metrics.failed(kind);
            }
            metrics.answered(kind, 1, self.since.elapsed());
        }
        metrics.ended();
        match result {
            // An error would be the end of the guest's file system.
            Err(Failed::Fenced) => self.ring.leave(),
            _ => self.ring.end(&chain, status, written),
        }
    }

    /// Memory that the guest has named is not there.
    fn lost(&self) -> Failed {
        self.ring.complain("its data is in no memory");
        Failed::Here
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if self.chain.is_some() {
            self.give_back(Err(Failed::Here));
            self.ring.tell();
        }
    }
}

/// It failed, and the log says why.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Failed {
    Here,
    /// Somebody else has taken the volume over, who may be asked again.
    Fenced,
}

impl From<xtent_volume::Error> for Failed {
    fn from(error: xtent_volume::Error) -> Self {
        use xtent_store::ErrorKind::Fenced;
        tracing::error!(error = %chain(&error), "a guest's request failed");
        match error.kind {
            xtent_volume::ErrorKind::Store(Fenced) => Self::Fenced,
            _ => Self::Here,
        }
    }
}

impl Work {
    /// Carries a request out, or has it carried out; the bytes that were moved here.
    pub(super) fn carry_out(
        self: &Arc<Self>,
        job: Job,
        command: Command,
        scratch: &mut Scratch,
    ) -> u64 {
        match command {
            Command::Read { offset, len } => {
                let (done, result) = self.read_now(&job, offset, len, scratch);
                match result {
                    Ok(()) if done < len => self.later(Kind::Prompt, |work| async move {
                        let result = work.read_later(&job, offset, len, done).await;
                        job.end_and_tell(result.map(|()| len));
                    }),
                    result => job.end(result.map(|()| len)),
                }
                done
            }
            Command::Write { offset, len } => {
                let (done, result) = self.write_now(&job, offset, len, scratch);
                match result {
                    Ok(()) if done < len => self.later(Kind::Prompt, |work| async move {
                        let result = work.write_later(&job, offset, len, done).await;
                        job.end_and_tell(result.map(|()| 0));
                    }),
                    result => job.end(result.map(|()| 0)),
                }
                done
            }
            Command::Flush => {
                self.later(Kind::Prompt, |work| async move {
                    let result = work.volume.flush_async().await;
                    job.end_and_tell(result.map(|()| 0).map_err(Failed::from));
                });
                0
            }
            Command::Identify => {
                let room = job
                    .chain
                    .as_ref()
                    .map_or(0, |it| super::guest::total(&it.room));
                let len = usize::try_from(room).unwrap_or(ID_LENGTH).min(ID_LENGTH);
                let result = match job.put(0, &self.id[..len]) {
                    true => Ok(len as u64),
                    false => Err(job.lost()),
                };
                job.end(result);
                0
            }
            Command::Discard(ranges) => {
                self.later(Kind::Bulk, |work| async move {
                    let (mut result, fua) = (Ok(0), job.ring.writes_through);
                    for (offset, len) in ranges {
                        let volume = &work.volume;
                        let done = volume.discard_async(&work.bulk, offset, len, fua).await;
                        result = result.and(done.map(|()| 0).map_err(Failed::from));
                        give_way().await;
                    }
                    job.end_and_tell(result);
                });
                0
            }
            Command::WriteZeroes(ranges) => {
                self.later(Kind::Bulk, |work| async move {
                    let result = work.write_zeroes(&job, &ranges).await;
                    job.end_and_tell(result.map(|()| 0));
                });
                0
            }
        }
    }

    fn later<F: Future<Output = ()> + Send + 'static>(
        self: &Arc<Self>,
        kind: Kind,
        future: impl FnOnce(Arc<Self>) -> F,
    ) {
        let future = future(Arc::clone(self));
        self.executor.spawn(0, kind, future);
    }

    /// The next piece of a request of which some is done: where it begins, and its bytes to where a
    /// piece of the size ends.
    fn piece(offset: u64, len: u64, done: u64, size: usize) -> (u64, usize) {
        let (at, size) = (offset + done, size as u64);
        // At most `size`.
        let here = usize::try_from((size - at % size).min(len - done));
        (at, here.unwrap_or_default())
    }

    /// Reads as much as need not be waited for.
    fn read_now(
        &self,
        job: &Job,
        offset: u64,
        len: u64,
        scratch: &mut Scratch,
    ) -> (u64, Result<(), Failed>) {
        let mut done = 0;
        while done < len && !self.volume.completes_later() {
            let (at, here) = Self::piece(offset, len, done, scratch.0.len());
            let piece = &mut scratch.0[..here];
            match self.volume.try_read_at(piece, at) {
                Ok(true) if job.put(done, piece) => {}
                Ok(true) => return (done, Err(job.lost())),
                Ok(false) => break,
                Err(error) => return (done, Err(error.into())),
            }
            done += here as u64;
        }
        (done, Ok(()))
    }

    /// Writes as much as need not be waited for.
    fn write_now(
        &self,
        job: &Job,
        offset: u64,
        len: u64,
        scratch: &mut Scratch,
    ) -> (u64, Result<(), Failed>) {
        let mut done = 0;
        let waits = self.volume.completes_later() || job.ring.writes_through;
        while done < len && !waits {
            let (at, here) = Self::piece(offset, len, done, scratch.0.len());
            let piece = &mut scratch.0[..here];
            if !job.get(done, piece) {
                return (done, Err(job.lost()));
            }
            match self.volume.try_write_at_in_place(piece, at) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => return (done, Err(error.into())),
            }
            done += here as u64;
        }
        (done, Ok(()))
    }

    /// Bytes at a time where it is waited: a store that completes later has the whole run.
    fn step(&self) -> usize {
        match self.volume.completes_later() {
            true => LARGE_PIECE,
            false => self.volume.preferred_piece(),
        }
    }

    async fn read_later(
        &self,
        job: &Job,
        offset: u64,
        len: u64,
        mut done: u64,
    ) -> Result<(), Failed> {
        while done < len {
            let (at, here) = Self::piece(offset, len, done, self.step());
            let hull = self.volume.hull(at, here);
            let buffer = self.memory.wait_for(hull.len).await.ok_or(Failed::Here)?;
            let buffer = self.volume.read_async(buffer, at, here).await?;
            if !job.put(done, &buffer[hull.skip..hull.skip + here]) {
                return Err(job.lost());
            }
            done += here as u64;
            if done < len {
                give_way().await;
            }
        }
        Ok(())
    }

    async fn write_later(
        &self,
        job: &Job,
        offset: u64,
        len: u64,
        mut done: u64,
    ) -> Result<(), Failed> {
        while done < len {
            let (at, here) = Self::piece(offset, len, done, self.step());
            let hull = self.volume.hull(at, here);
            let mut buffer = self.memory.wait_for(hull.len).await.ok_or(Failed::Here)?;
            if !job.get(done, &mut buffer[hull.skip..hull.skip + here]) {
                return Err(job.lost());
            }
            let fua = job.ring.writes_through;
            self.volume.write_async(buffer, at, here, fua).await?;
            done += here as u64;
            if done < len {
                give_way().await;
            }
        }
        Ok(())
    }

    async fn write_zeroes(&self, job: &Job, ranges: &[(u64, u64)]) -> Result<(), Failed> {
        let fua = job.ring.writes_through;
        for &(offset, len) in ranges {
            zeroes::write(&self.volume, &self.bulk, offset, len, fua, |_| true).await?;
            give_way().await;
        }
        Ok(())
    }
}
