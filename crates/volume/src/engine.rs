//! A cipher engine outside of the CPU, which completes later. Long runs go to it, whole and in
//! memory that they own; short ones, and whoever cannot wait, stay on the CPU, which has the same key.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use xtent_store::{AlignedBuffer, Buffer, block_on};

use crate::config::UNIT;
use crate::error::Cause;
use crate::holes::next_run;
use crate::plan::{PIECE, Plan};
use crate::{Error, Holes, Volume};

/// Sizes that the engine and the CPU are compared at, in ascending order: multiples of every sector size.
const SIZES: [usize; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// What the comparison takes at most, about.
const PATIENCE: Duration = Duration::from_millis(500);

/// Runs of each size on either.
const RUNS: u32 = 3;

/// Sectors that the engine has to do as the CPU does before it gets any.
const SAMPLE: usize = 4;

/// What is done to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Plaintext becomes ciphertext.
    Encrypt,
    /// Ciphertext becomes plaintext.
    Decrypt,
}

/// The end of a run in an engine: the memory that it was given, and how it went: how many of its bytes were done by
/// the CPU, in the place of an engine that failed. On an error the bytes are undefined.
pub type Crypted = Pin<Box<dyn Future<Output = (Buffer, Result<usize, Cause>)> + Send>>;

/// What encrypts and decrypts elsewhere, with the key of one volume.
pub trait CipherEngine: Send + Sync {
    /// Encrypts or decrypts whole sectors in place. The first of them has the number `first`, in 512-byte
    /// units, as for [`sector_cipher::Cipher`]. The run may go on if the future is dropped.
    fn crypt(&self, direction: Direction, first: u64, run: Buffer) -> Crypted;

    /// Why it is out of service, if it is, in a few words that anybody may read.
    fn failure(&self) -> Option<String>;
}

/// From how many bytes on a run goes to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threshold {
    /// From the size on at which the engine is faster than the CPU here, if it ever is.
    Measured,
    /// From so many bytes on, whoever is faster.
    Bytes(usize),
}

/// A volume's engine.
pub(crate) struct Attached {
    engine: Arc<dyn CipherEngine>,
    /// Runs are not shorter; none if no run is worth it.
    threshold: Option<usize>,
}

impl Volume {
    /// Has an engine encrypt and decrypt what is long enough. The engine and the CPU are first compared on
    /// sectors of noise, under the numbers at both ends of the volume and on either side of 2^32, if it goes that
    /// far, and with [`Threshold::Measured`] their
    /// speed, which takes about half a second at most. For the comparison it counts how many
    /// [threads](Volume::with_cipher_threads) the CPU's side has.
    ///
    /// # Errors
    /// [`ErrorKind::Engine`](crate::ErrorKind::Engine) if it fails, or does not do what the CPU does.
    pub fn with_engine(
        mut self,
        engine: Arc<dyn CipherEngine>,
        threshold: Threshold,
    ) -> Result<Self, Error> {
        for position in self.samples() {
            self.compare(&*engine, self.first(position))?;
        }
        let threshold = match threshold {
            Threshold::Bytes(bytes) => Some(bytes),
            Threshold::Measured => self.measure(&*engine)?,
        };
        self.engine = Some(Attached { engine, threshold });
        match self.engine_threshold() {
            Some(bytes) => tracing::debug!(bytes, "long runs go to the cipher engine"),
            None => tracing::debug!("the CPU is faster than the cipher engine at every size"),
        }
        Ok(self)
    }

    /// Whether there is one, also if nothing goes to it.
    pub fn has_engine(&self) -> bool {
        self.engine.is_some()
    }

    /// Why its engine is out of service, if there is one that is.
    pub fn engine_failure(&self) -> Option<String> {
        self.engine.as_ref()?.engine.failure()
    }

    /// Bytes from which on a request goes to the engine; none if there is no engine, or it is never faster.
    pub fn engine_threshold(&self) -> Option<usize> {
        self.engine.as_ref()?.threshold
    }

    /// Whether there is an engine, and a request of `len` bytes goes to it, whatever store the data comes from.
    /// The calls that wait for nothing decline such a request; those that wait, on lent memory, carry it
    /// out on the CPU.
    pub fn goes_to_engine(&self, len: usize) -> bool {
        self.engine_for(len).is_some()
    }

    /// Whether a request of `len` bytes may be carried out at once, if the store happens to have the data at
    /// hand.
    pub fn takes_at_once(&self, len: usize) -> bool {
        !self.completes_later() && !self.goes_to_engine(len)
    }

    fn engine_for(&self, len: usize) -> Option<&dyn CipherEngine> {
        let attached = self.engine.as_ref()?;
        let is_long = len > 0 && attached.threshold.is_some_and(|least| len >= least);
        is_long.then_some(&*attached.engine)
    }

    /// Decrypts all of the memory, which holds whole sectors from `position` on.
    pub(crate) async fn decrypt_owned(
        &self,
        mut buffer: Buffer,
        position: u64,
    ) -> Result<Buffer, Error> {
        let Some(engine) = self.engine_for(buffer.len()) else {
            for run in Plan::runs(position, buffer.len()) {
                self.decrypt(&mut buffer[run.bytes], run.position);
            }
            return Ok(buffer);
        };
        if self.turned {
            return self
                .in_engine(engine, Direction::Encrypt, buffer, position)
                .await;
        }
        // An engine knows no holes: it decrypts them, and they become zeros again.
        let data = self.data_in(&buffer);
        if data.as_ref().is_some_and(Vec::is_empty) {
            return Ok(buffer);
        }
        let mut buffer = self
            .in_engine(engine, Direction::Decrypt, buffer, position)
            .await?;
        if let Some(data) = data {
            let mut end = 0;
            for run in data {
                buffer[end..run.start].fill(0);
                end = run.end;
            }
            buffer[end..].fill(0);
        }
        Ok(buffer)
    }

    /// Encrypts all of the memory, which holds whole sectors from `position` on.
    pub(crate) async fn encrypt_owned(
        &self,
        mut buffer: Buffer,
        position: u64,
    ) -> Result<Buffer, Error> {
        if let Some(engine) = self.engine_for(buffer.len()) {
            return self
                .in_engine(engine, Direction::Encrypt, buffer, position)
                .await;
        }
        for run in Plan::runs(position, buffer.len()) {
            self.encrypt(&mut buffer[run.bytes], run.position);
        }
        Ok(buffer)
    }

    async fn in_engine(
        &self,
        engine: &dyn CipherEngine,
        direction: Direction,
        buffer: Buffer,
        position: u64,
    ) -> Result<Buffer, Error> {
        let len = buffer.len();
        self.metrics.run(len / self.sector_size.bytes());
        let (buffer, result) = engine.crypt(direction, self.first(position), buffer).await;
        self.metrics.of_engine(len, result.as_ref().ok().copied());
        match result {
            Ok(_) => Ok(buffer),
            // What is in the memory by now is nobody's.
            Err(error) => Err(Error::engine(error, Some(position))),
        }
    }

    /// The runs of sectors that are no holes, where holes are told from data.
    fn data_in(&self, bytes: &[u8]) -> Option<Vec<std::ops::Range<usize>>> {
        let sector = self.sector_size.bytes();
        let next = |from| next_run(bytes, from, sector);
        let all = || std::iter::successors(next(0), |run| next(run.end)).collect();
        (self.holes == Holes::Zero).then(all)
    }

    /// Where the sectors begin on which engine and CPU are compared: at both ends, and where numbers need more
    /// than 32 bits, whichever way they are counted. There those of `plain` begin again.
    fn samples(&self) -> Vec<u64> {
        let sector = self.sector_size.bytes() as u64;
        let last = self.size().saturating_sub(SAMPLE as u64 * sector);
        let mut samples = vec![0, last];
        for units in [1, sector / UNIT] {
            let number = units << 32;
            let middle = number.checked_sub(self.first(0)).map(|ahead| ahead * UNIT);
            let start = middle.and_then(|it| it.checked_sub(SAMPLE as u64 / 2 * sector));
            samples.extend(start.filter(|start| *start < last && start.is_multiple_of(sector)));
        }
        samples.dedup();
        samples
    }

    /// Fails if the engine does not do to some sectors, of which the first has this number, what the CPU does.
    fn compare(&self, engine: &dyn CipherEngine, first: u64) -> Result<(), Error> {
        let len = SAMPLE * self.sector_size.bytes();
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut plaintext = vec![0; len];
        for word in plaintext.chunks_mut(8) {
            // Xorshift.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
        }
        let mut ciphertext = plaintext.clone();
        self.cipher.cipher().encrypt(first, &mut ciphertext);
        self.cipher.cipher().wipe_stack();
        for (direction, from, to) in [
            (Direction::Encrypt, &plaintext, &ciphertext),
            (Direction::Decrypt, &ciphertext, &plaintext),
        ] {
            let mut run = sample(len)?;
            run.copy_from_slice(from);
            let (run, result) = block_on(engine.crypt(direction, first, run));
            result.map_err(|e| Error::engine(e, None))?;
            if run[..] != to[..] {
                return Err(Error::engine_differs());
            }
        }
        Ok(())
    }

    /// From how many bytes on the engine is faster than the CPU, at every size that there was time for.
    fn measure(&self, engine: &dyn CipherEngine) -> Result<Option<usize>, Error> {
        let begun = Instant::now();
        let cipher = self.cipher.cipher();
        let mut threshold = None;
        for size in SIZES {
            let mut run = sample(size)?;
            let mut on_cpu = fastest(|| cipher.decrypt(0, &mut run));
            cipher.wipe_stack();
            // Threads are started in the sandbox, so they are counted instead; they share a piece at a time.
            if let Some((threads, least)) = self.cipher.threads()
                && size.min(PIECE) >= least
            {
                on_cpu /= u32::try_from(threads).unwrap_or(1);
            }
            let mut in_engine = Duration::MAX;
            for _ in 0..RUNS {
                let start = Instant::now();
                let result;
                (run, result) = block_on(engine.crypt(Direction::Decrypt, 0, run));
                result.map_err(|e| Error::engine(e, None))?;
                in_engine = in_engine.min(start.elapsed());
            }
            tracing::debug!(size, ?on_cpu, ?in_engine, "CPU and cipher engine compared");
            threshold = match in_engine < on_cpu {
                true => threshold.or(Some(size)),
                false => None,
            };
            // The next size takes up to four times as long.
            if begun.elapsed() + 4 * RUNS * in_engine > PATIENCE {
                break;
            }
        }
        Ok(threshold)
    }
}

/// Memory for a run that counts for nothing.
fn sample(len: usize) -> Result<Buffer, Error> {
    let memory = AlignedBuffer::zeroed(len).map_err(|_| Error::no_memory("a sample of sectors"))?;
    Ok(memory.into())
}

/// The machine may be doing other things as well.
fn fastest(mut call: impl FnMut()) -> Duration {
    let times = (0..RUNS).map(|_| {
        let start = Instant::now();
        call();
        start.elapsed()
    });
    times.min().unwrap_or_default()
}
