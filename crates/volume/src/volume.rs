//! The volume: opening, what it is, and its cipher over runs.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sector_cipher::{First, Foreign, SectorSize};
use xtent_secret::{KeyedError, SecretBytes, SecretCipher};
use xtent_store::Store;

use crate::config::UNIT;
use crate::engine::Attached;
use crate::holes::next_run;
use crate::metrics::Metrics;
use crate::plan::PIECE;
use crate::range_lock::RangeLock;
use crate::shared_cipher::SharedCipher;
use crate::{CipherThreads, Config, DiscardPolicy, Error, Holes};

/// Bytes in the largest sector.
pub(crate) const MAX_SECTOR: usize = 4096;

/// An open volume. All calls take `&self` and may come from many threads.
/// Ranges are in bytes of plaintext and need no alignment. Empty ranges inside
/// the volume succeed.
///
/// A request that fails may have been carried out in part, but never touches
/// bytes outside its range, and leaves the volume fit for others.
pub struct Volume {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) cipher: SharedCipher,
    /// What takes long runs.
    pub(crate) engine: Option<Attached>,
    /// Who works on which sectors, by number.
    pub(crate) locks: RangeLock,
    pub(crate) sector_size: SectorSize,
    /// Where the first sector is in the store, in bytes.
    pub(crate) offset: u64,
    /// Grows, and never shrinks.
    length: AtomicU64,
    iv_offset: u64,
    pub(crate) read_only: bool,
    pub(crate) discard: DiscardPolicy,
    pub(crate) holes: Holes,
    /// The store has the plaintext, and reads give the ciphertext.
    pub(crate) turned: bool,
    /// The store has been found unable to discard, and the log says so.
    pub(crate) cannot_discard: AtomicBool,
    pub(crate) metrics: Metrics,
    /// Dropped after the store.
    _held: Option<Box<dyn Any + Send + Sync>>,
}

impl Volume {
    /// Opens a volume; the key is copied into the cipher's schedule and may be dropped.
    pub fn open(store: Arc<dyn Store>, key: &SecretBytes, config: &Config) -> Result<Self, Error> {
        config.check(&*store, key.len())?;
        let cipher = SecretCipher::keyed(
            config.cipher,
            config.sector_size,
            config.sector_count,
            key,
            config.backend,
        )
        .map_err(|e| match e {
            KeyedError::Cipher(e) => Error::config(e.to_string()),
            KeyedError::Memory(_) => Error::no_memory("the key schedule"),
        })?;
        tracing::debug!(
            cipher = %config.cipher,
            backend = ?cipher.backend(),
            sector_size = config.sector_size.bytes(),
            offset = config.offset,
            length = config.length,
            "volume open"
        );
        Ok(Self {
            store,
            cipher: SharedCipher::new(cipher),
            engine: None,
            locks: RangeLock::default(),
            sector_size: config.sector_size,
            offset: config.offset,
            length: AtomicU64::new(config.length),
            iv_offset: config.iv_offset,
            read_only: config.read_only,
            discard: config.discard,
            holes: config.holes,
            turned: false,
            cannot_discard: AtomicBool::new(false),
            metrics: Metrics::new(),
            _held: None,
        })
    }

    /// Keeps something for as long as the volume is open: locks on what it is made of.
    pub fn holding(mut self, held: impl Any + Send + Sync) -> Self {
        self._held = Some(Box::new(held));
        self
    }

    /// Has several threads work on one large run; after [`Volume::open`] it is
    /// one. They are started with the first run that is worth it, never before.
    pub fn with_cipher_threads(mut self, threads: CipherThreads) -> Self {
        self.cipher.set_threads(threads);
        match self.cipher.threads() {
            Some((threads, threshold)) => {
                tracing::debug!(threads, threshold, "large runs are cut over threads");
            }
            None => tracing::debug!("no run is worth cutting over threads"),
        }
        self
    }

    /// Turns the volume round: the store has the plaintext, and reads give what it is
    /// encrypted, the same bytes each time. Writes are refused. It has no holes: zeros are
    /// plaintext as any other.
    pub fn turned(mut self) -> Self {
        self.turned = true;
        self.read_only = true;
        self
    }

    /// Bytes of plaintext.
    pub fn size(&self) -> u64 {
        self.length.load(Ordering::Relaxed)
    }

    /// Makes it `length` bytes long, a multiple of the sector size that the store
    /// has behind the first sector; whether that is longer than it was. Never
    /// makes it shorter: somebody may be using what would be cut off.
    pub fn grow(&self, length: u64) -> Result<bool, Error> {
        let sector = self.sector_size.bytes() as u64;
        let end = self.offset.checked_add(length);
        let is_possible = length.is_multiple_of(sector)
            && end.is_some_and(|end| end <= self.store.size())
            && self.iv_offset.checked_add(length / UNIT).is_some();
        if !is_possible {
            return Err(Error::config(format!(
                "the volume cannot become {length} bytes long: the store has {} behind byte {}, \
                 and sectors have {sector}",
                self.store.size().saturating_sub(self.offset),
                self.offset
            )));
        }
        Ok(self.length.fetch_max(length, Ordering::Relaxed) < length)
    }

    /// Bytes per sector: the granularity that needs no read-modify-write.
    pub fn sector_size(&self) -> SectorSize {
        self.sector_size
    }

    /// Whether writes are refused.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// What it has done so far.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The discard policy in force.
    pub fn discard_policy(&self) -> DiscardPolicy {
        self.discard
    }

    /// Bytes that are worth handling at a time: a piece that stays in the L2
    /// cache between store, cipher and socket. A multiple of the sector size.
    pub fn preferred_piece(&self) -> usize {
        PIECE
    }

    /// The sectors that a range touches, if it lies inside.
    pub(crate) fn check_range(&self, offset: u64, len: u64) -> Result<Range<u64>, Error> {
        match offset.checked_add(len) {
            Some(end) if end <= self.size() => {
                let sector = self.sector_size.bytes() as u64;
                Ok(offset / sector..end.div_ceil(sector))
            }
            _ => Err(Error::out_of_range(offset, len, self.size())),
        }
    }

    /// The sectors that a range touches, if it lies inside and may be written.
    pub(crate) fn check_write(&self, offset: u64, len: u64) -> Result<Range<u64>, Error> {
        if self.read_only {
            return Err(Error::read_only(offset));
        }
        self.check_range(offset, len)
    }

    /// Decrypts a run of whole sectors that begins at `position`.
    pub(crate) fn decrypt(&self, run: &mut [u8], position: u64) {
        if self.holes == Holes::Zero && !self.turned {
            return self.decrypt_data(run, position);
        }
        self.count(run.len());
        let (first, requests) = (self.first(position), self.locks.in_use());
        match self.turned {
            false => self.cipher.decrypt(first, run, requests),
            true => self.cipher.encrypt(first, run, requests),
        }
    }

    /// As [`Volume::decrypt`], but for holes, which are left zeros.
    fn decrypt_data(&self, run: &mut [u8], position: u64) {
        let (sector, requests) = (self.sector_size.bytes(), self.locks.in_use());
        let mut from = 0;
        while let Some(data) = next_run(run, from, sector) {
            from = data.end;
            let first = self.first(position + data.start as u64);
            self.count(data.len());
            self.cipher.decrypt(first, &mut run[data], requests);
        }
    }

    /// Encrypts a run of whole sectors that begins at `position`.
    pub(crate) fn encrypt(&self, run: &mut [u8], position: u64) {
        self.count(run.len());
        let (first, requests) = (self.first(position), self.locks.in_use());
        self.cipher.encrypt(first, run, requests);
    }

    /// As [`Volume::encrypt`], from `source` to `dest` of the same length.
    pub(crate) fn encrypt_to(&self, source: &[u8], dest: &mut [u8], position: u64) {
        self.count(dest.len());
        let (first, requests) = (self.first(position), self.locks.in_use());
        self.cipher.encrypt_to(first, source, dest, requests);
    }

    /// Whether the cipher works on memory that others see, on one core.
    pub(crate) fn takes_foreign_memory(&self) -> bool {
        self.cipher.threads().is_none() && self.cipher.cipher().takes_foreign()
    }

    /// Encrypts a run of whole sectors that begins at `position`, out of memory that others see.
    pub(crate) fn encrypt_from(
        &self,
        source: &[Foreign<'_>],
        dest: &mut [u8],
        position: u64,
    ) -> Result<(), Error> {
        self.count(dest.len());
        let (first, cipher) = (First::Units512(self.first(position)), self.cipher.cipher());
        let result = cipher.try_encrypt_from(first, source, dest);
        cipher.wipe_stack();
        result.map_err(|e| Error::config(e.to_string()))
    }

    /// Decrypts a run of whole sectors that begins at `position`, into memory that others see.
    pub(crate) fn decrypt_into(
        &self,
        source: &[u8],
        dest: &[Foreign<'_>],
        position: u64,
    ) -> Result<(), Error> {
        self.count(source.len());
        let (first, cipher) = (First::Units512(self.first(position)), self.cipher.cipher());
        let result = cipher.try_decrypt_into(first, source, dest);
        cipher.wipe_stack();
        result.map_err(|e| Error::config(e.to_string()))
    }

    /// Counts a call of the cipher on the CPU.
    pub(crate) fn count(&self, len: usize) {
        if len > 0 {
            self.metrics.run(len / self.sector_size.bytes());
            if self.has_engine() {
                self.metrics.beside_engine();
            }
        }
    }

    /// The cipher's number for the sector that begins at `position`.
    pub(crate) fn first(&self, position: u64) -> u64 {
        self.iv_offset + position / UNIT
    }
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Volume")
            .field("cipher", &self.cipher.cipher().spec())
            .field("sector_size", &self.sector_size)
            .field("offset", &self.offset)
            .field("length", &self.size())
            .field("read_only", &self.read_only)
            .field("discard", &self.discard)
            .finish_non_exhaustive()
    }
}
