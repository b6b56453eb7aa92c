//! The cipher over runs of up to a piece, on one core or on several.
//!
//! A run is cut over cores where that pays, and nowhere else. The cut is at
//! sector boundaries, into parts that are still runs. It pays where the cipher
//! is slow enough that handing parts over costs little against them; where a
//! whole piece takes no longer than waking another thread, as AES-XTS with wide
//! vectors does, nothing is ever handed over and no thread is started. Nor is
//! it where as many requests are under way as there are threads: then all
//! cores have work, and handing it about only costs.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use sector_cipher::Cipher;
use xtent_secret::SecretCipher;

use crate::config::{CipherThreads, UNIT};
use crate::helpers::{Helpers, Lease};
use crate::plan::PIECE;

/// Parts are not smaller, and are multiples of it: whole sectors of any size.
const PART: usize = 16 << 10;

/// The most parts that a piece is cut into.
const MAX_PARTS: usize = PIECE / PART;

/// A run that takes one thread so long is worth cutting: several times what it
/// takes to wake another thread and to wait for its last part.
const WORTH_CUTTING: Duration = Duration::from_micros(100);

/// Bytes that the cipher's speed is measured with.
const SAMPLE: usize = 64 << 10;

/// A keyed cipher and the threads that may share its work.
pub(crate) struct SharedCipher {
    cipher: SecretCipher,
    /// At work on a run, the caller among them.
    threads: usize,
    /// Shorter runs are not cut.
    threshold: usize,
    /// The others; started with the first run that is worth it, so that they
    /// are in whatever sandbox the process has entered by then.
    helpers: OnceLock<Option<Helpers>>,
}

impl SharedCipher {
    pub(crate) fn new(cipher: SecretCipher) -> Self {
        Self {
            cipher,
            threads: 1,
            threshold: usize::MAX,
            helpers: OnceLock::new(),
        }
    }

    /// Sets how many threads work on one run.
    pub(crate) fn set_threads(&mut self, threads: CipherThreads) {
        (self.threads, self.threshold) = match threads {
            CipherThreads::Count(count) => (count.get(), 2 * PART),
            CipherThreads::Auto => {
                let cores = std::thread::available_parallelism().map_or(1, usize::from);
                (cores, self.worth_cutting())
            }
        };
        self.threads = self.threads.min(MAX_PARTS);
        self.helpers = OnceLock::new();
    }

    /// Threads at work on one run that is large enough, and what is large
    /// enough; `None` where no piece is.
    pub(crate) fn threads(&self) -> Option<(usize, usize)> {
        (self.threads > 1 && self.threshold <= PIECE).then_some((self.threads, self.threshold))
    }

    /// Bytes that take this cipher on this CPU [`WORTH_CUTTING`] and more.
    fn worth_cutting(&self) -> usize {
        let mut sample = vec![0; SAMPLE];
        // The fastest of a few: the machine may be doing other things as well.
        let fastest = (0..4).map(|_| {
            let start = Instant::now();
            self.cipher.decrypt(0, &mut sample);
            start.elapsed()
        });
        let nanos = fastest.min().unwrap_or_default().as_nanos().max(1);
        self.cipher.wipe_stack();
        let bytes = WORTH_CUTTING.as_nanos() * SAMPLE as u128 / nanos;
        usize::try_from(bytes).unwrap_or(usize::MAX).max(2 * PART)
    }

    /// The cipher itself.
    pub(crate) fn cipher(&self) -> &Cipher {
        &self.cipher
    }

    /// Decrypts in place, while `requests` of the volume's are under way.
    pub(crate) fn decrypt(&self, first: u64, run: &mut [u8], requests: usize) {
        self.all_of(first, run, requests, |at, part| {
            self.cipher.decrypt(at, part);
        });
    }

    /// Encrypts in place.
    pub(crate) fn encrypt(&self, first: u64, run: &mut [u8], requests: usize) {
        self.all_of(first, run, requests, |at, part| {
            self.cipher.encrypt(at, part);
        });
    }

    /// Encrypts from `source` to `dest`, of the same length.
    pub(crate) fn encrypt_to(&self, first: u64, source: &[u8], dest: &mut [u8], requests: usize) {
        self.all_of(first, dest, requests, |at, part| {
            // Within the run.
            let skip = usize::try_from((at - first) * UNIT).unwrap_or_default();
            let source = &source[skip..skip + part.len()];
            self.cipher.encrypt_to(at, source, part);
        });
    }

    /// Calls `work` for the run, or for its parts where that pays, and overwrites
    /// what it leaves on the stack.
    fn all_of(
        &self,
        first: u64,
        run: &mut [u8],
        requests: usize,
        work: impl Fn(u64, &mut [u8]) + Sync,
    ) {
        let work = |at, part: &mut [u8]| {
            work(at, part);
            self.cipher.wipe_stack();
        };
        match self.lease(run.len(), requests) {
            None => work(first, run),
            Some(lease) => self.cut(lease, first, run, work),
        }
    }

    /// The helpers, for a run that is worth it and while the cores are not busy
    /// with other requests anyway.
    fn lease(&self, len: usize, requests: usize) -> Option<Lease<'_>> {
        if len < self.threshold || requests >= self.threads.max(2) {
            return None;
        }
        self.helpers
            .get_or_init(|| Helpers::start(self.threads - 1))
            .as_ref()?
            .try_lease()
    }

    /// Calls `work` for parts of the run, on several threads.
    fn cut(
        &self,
        lease: Lease<'_>,
        first: u64,
        run: &mut [u8],
        work: impl Fn(u64, &mut [u8]) + Sync,
    ) {
        // More parts than threads: they do not all begin at the same time.
        let size = run
            .len()
            .div_ceil(4 * self.threads)
            .max(run.len().div_ceil(MAX_PARTS))
            .next_multiple_of(PART);
        let parts = [const { Mutex::new(None) }; MAX_PARTS];
        let mut count = 0;
        for (slot, part) in parts.iter().zip(run.chunks_mut(size)) {
            let at = first + count as u64 * (size as u64 / UNIT);
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some((at, part));
            count += 1;
        }
        lease.run(count, &|index| {
            let part = parts[index]
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            if let Some((at, part)) = part {
                work(at, part);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sector_cipher::{SectorCount, SectorSize};
    use std::num::NonZeroUsize;

    fn cipher(threads: usize) -> SharedCipher {
        let size = SectorSize::new(512).unwrap();
        let spec = "aes-xts-plain64".parse().unwrap();
        let cipher = Cipher::new(spec, size, SectorCount::Units512, &[1; 64], None).unwrap();
        let mut shared = SharedCipher::new(SecretCipher::new(cipher).unwrap());
        shared.set_threads(CipherThreads::Count(NonZeroUsize::new(threads).unwrap()));
        shared
    }

    #[test]
    fn nothing_is_handed_over_while_every_thread_has_a_request() {
        for threads in [2, 3, 5] {
            let cipher = cipher(threads);
            for requests in 1..8 {
                let helps = cipher.lease(2 * PART, requests).is_some();
                assert_eq!(helps, requests < threads, "{threads} threads, {requests}");
            }
            assert!(cipher.lease(2 * PART - 1, 1).is_none(), "a short run");
        }
        // There is nobody else.
        assert!(cipher(1).lease(2 * PART, 1).is_none());
    }
}
