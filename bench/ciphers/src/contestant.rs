//! Who is measured: our back-ends and the other libraries, behind one trait.

use std::rc::Rc;

use sector_cipher::{Backend, Cipher, CipherSpec, Run, SectorCount, SectorSize};

/// Sector numbers count units of so many bytes.
pub(crate) const UNIT: usize = 512;

/// A cipher with its key length and a sector size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) spec: CipherSpec,
    /// Bytes.
    pub(crate) key_len: usize,
    /// Bytes.
    pub(crate) sector: usize,
}

impl Task {
    /// Every cipher whose IV is the sector number, in dm-crypt's names.
    pub(crate) fn ciphers() -> impl Iterator<Item = (CipherSpec, usize)> {
        CipherSpec::all()
            .filter(|spec| spec.iv() == sector_cipher::IvMode::Plain64)
            .flat_map(|spec| spec.key_lengths().iter().map(move |&len| (spec, len)))
            .filter(|(spec, key_len)| spec.mode().aes_bits(*key_len) != Some(192))
    }

    /// A key whose halves and quarters differ.
    pub(crate) fn key(&self) -> Vec<u8> {
        (0x5a..).take(self.key_len).collect()
    }

    /// Bits of the AES key that encrypts the data. None for Adiantum.
    pub(crate) fn aes_bits(&self) -> Option<usize> {
        self.spec.mode().aes_bits(self.key_len)
    }

    /// AES rounds per block of data.
    pub(crate) fn aes_rounds(&self) -> Option<usize> {
        self.aes_bits().map(|bits| bits / 32 + 6)
    }

    /// The mode's common name, with the AES key length.
    pub(crate) fn title(&self) -> String {
        let mode = self.spec.mode();
        let broken = if mode.is_broken() { " (broken)" } else { "" };
        let name = format!("{}{broken}", mode.title());
        match self.aes_bits() {
            Some(bits) => format!("{name} AES-{bits}"),
            None => name,
        }
    }

    /// Our cipher on a back-end.
    pub(crate) fn cipher(&self, backend: Backend) -> Cipher {
        let size = u32::try_from(self.sector)
            .ok()
            .and_then(|bytes| SectorSize::new(bytes).ok())
            .expect("one of the four sector sizes");
        let key = self.key();
        Cipher::new(self.spec, size, SectorCount::Units512, &key, Some(backend))
            .expect("a key length of the cipher")
    }
}

/// Something that encrypts and decrypts sectors.
pub(crate) trait Contestant {
    /// Works through all of `data`, in as many calls as it needs; `first` is
    /// the sector number of the first sector, in units of 512 bytes.
    fn crypt(&mut self, encrypt: bool, first: u64, data: &mut [u8]);

    /// Where [`Contestant::crypt`] has put its result, if not into `data`: some
    /// libraries do not work in place, and copying would be held against them.
    fn result<'a>(&'a self, data: &'a [u8]) -> &'a [u8] {
        data
    }
}

/// Who a contestant is.
pub(crate) struct Entry {
    /// With its version.
    pub(crate) name: String,
    /// Ours.
    pub(crate) backend: Option<Backend>,
    /// Sectors that one call is given.
    pub(crate) run: usize,
    /// Whether its ciphertext is ours.
    pub(crate) same_cipher: bool,
    pub(crate) contestant: Box<dyn Contestant>,
}

/// Our cipher, in calls of so many consecutive sectors.
pub(crate) struct Runs {
    pub(crate) cipher: Rc<Cipher>,
    pub(crate) run: usize,
}

impl Contestant for Runs {
    fn crypt(&mut self, encrypt: bool, first: u64, data: &mut [u8]) {
        let bytes = self.run * self.cipher.sector_size().bytes();
        let firsts = (first..).step_by(bytes / UNIT);
        for (run, first) in data.chunks_mut(bytes).zip(firsts) {
            if encrypt {
                self.cipher.encrypt(first, run);
            } else {
                self.cipher.decrypt(first, run);
            }
        }
    }
}

/// Our cipher, in calls of so many single sectors that are no run: streams, each
/// with one sector in flight.
pub(crate) struct Scattered {
    pub(crate) cipher: Rc<Cipher>,
    pub(crate) streams: usize,
}

impl Scattered {
    /// Streams at most.
    pub(crate) const MOST: usize = 16;
}

impl Contestant for Scattered {
    fn crypt(&mut self, encrypt: bool, first: u64, data: &mut [u8]) {
        let sector = self.cipher.sector_size().bytes();
        let units = (sector / UNIT) as u64;
        let bytes = self.streams * sector;
        for (call, first) in data.chunks_mut(bytes).zip((first..).step_by(bytes / UNIT)) {
            let mut number = first + (call.len() / UNIT) as u64;
            // Backwards, so that no two of them are consecutive.
            let mut sectors = call.chunks_mut(sector).rev();
            let mut runs: [Run<'_>; Self::MOST] = std::array::from_fn(|_| {
                number = number.saturating_sub(units);
                Run {
                    first: number,
                    data: sectors.next().unwrap_or_default(),
                }
            });
            let runs = &mut runs[..self.streams];
            if encrypt {
                self.cipher.encrypt_runs(runs);
            } else {
                self.cipher.decrypt_runs(runs);
            }
        }
    }
}
