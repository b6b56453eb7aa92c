//! A keyed cipher: checks at the boundary, the key schedule, and the way from
//! a call to the kernel of its mode and back-end.
#![allow(unsafe_code)]

use crate::run::{IvRule, Sectors};
use crate::{Backend, CipherSpec, IvMode, Mode, SectorCount, SectorSize, WrongKeyLength, portable};
use core::fmt;
use core::mem::size_of;
use core::ptr;
use sha2::{Digest, Sha256};
use zeroize::{Zeroize, Zeroizing};

/// One of several runs handed over together.
pub struct Segment<'a> {
    /// Sector number of the first sector, in 512-byte units (whatever the
    /// sector size and [`SectorCount`]).
    pub first: u64,
    /// Whole sectors, in place.
    pub data: &'a mut [u8],
}

/// A keyed cipher with a sector size. Cannot fail once made: lengths that are
/// not whole sectors, or a first sector that is not a multiple of the sector
/// size, are programming errors and panic at the boundary, before a byte is
/// changed.
///
/// `first` counts 512-byte units everywhere, whatever the sector size and
/// [`SectorCount`] say about the IV. Behind sector 2^64 - 1 comes sector 0.
///
/// The key schedule is inside, without indirection, at most 2 KiB and a little
/// in all, and wiped on drop: put the value where keys may live before it gets
/// its key with [`Cipher::rekey`]. [`Cipher::new`] returns by value, which may
/// leave a copy on the stack; make it with a key of zeros where that matters.
#[repr(align(64))]
pub struct Cipher {
    keys: Keys,
    rule: IvRule,
    spec: CipherSpec,
    sector_size: SectorSize,
    backend: Backend,
}

// A value moves through the stack at times, and rooms put it in locked pages.
const _: () = assert!(size_of::<Cipher>() <= 2048 + 128);

/// The key schedule, in the form that the kernel of a mode and back-end wants.
/// None of them owns anything or has a destructor: `wipe` depends on that.
enum Keys {
    PortableXts(portable::Xts),
    PortableCbc(portable::Cbc),
}

const _: () = assert!(!core::mem::needs_drop::<Keys>());

impl Cipher {
    /// A cipher by name, on the fastest back-end or the one given. Panics if
    /// the CPU lacks the back-end.
    pub fn new(
        spec: CipherSpec,
        sector_size: SectorSize,
        count: SectorCount,
        key: &[u8],
        backend: Option<Backend>,
    ) -> Result<Self, WrongKeyLength> {
        let backend = backend.unwrap_or_else(Backend::best);
        assert!(
            backend.is_supported(),
            "this CPU cannot run the cipher back-end {backend}"
        );
        check_key(spec, key)?;
        Ok(Self {
            keys: Keys::new(spec, key, backend),
            rule: IvRule::new(spec.iv, sector_size, count),
            spec,
            sector_size,
            backend,
        })
    }

    /// Replaces the key, in place: same length or another that the cipher
    /// takes. The old key schedule is wiped; after an error it is still there.
    pub fn rekey(&mut self, key: &[u8]) -> Result<(), WrongKeyLength> {
        check_key(self.spec, key)?;
        self.keys.wipe();
        // SAFETY: a place that may be written; the old value needs no drop.
        unsafe { ptr::write(&mut self.keys, Keys::new(self.spec, key, self.backend)) };
        Ok(())
    }

    /// The name it was made with.
    pub fn spec(&self) -> CipherSpec {
        self.spec
    }

    /// Its sector size.
    pub fn sector_size(&self) -> SectorSize {
        self.sector_size
    }

    /// The back-end in use.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// Encrypts a run in place.
    pub fn encrypt(&self, first: u64, data: &mut [u8]) {
        self.keys.encrypt(Sectors::in_place(self.rule, first, data));
    }

    /// Decrypts a run in place.
    pub fn decrypt(&self, first: u64, data: &mut [u8]) {
        self.keys.decrypt(Sectors::in_place(self.rule, first, data));
    }

    /// Encrypts a run from `source` to `dest`, of equal length; reads each byte of `source` once.
    pub fn encrypt_to(&self, first: u64, source: &[u8], dest: &mut [u8]) {
        self.keys
            .encrypt(Sectors::between(self.rule, first, source, dest));
    }

    /// Decrypts a run from `source` to `dest`, of equal length; reads each byte of `source` once.
    pub fn decrypt_to(&self, first: u64, source: &[u8], dest: &mut [u8]) {
        self.keys
            .decrypt(Sectors::between(self.rule, first, source, dest));
    }

    /// Encrypts several runs together, in place: scattered single sectors fill
    /// the pipelines as one long run does.
    pub fn encrypt_segments(&self, segments: &mut [Segment<'_>]) {
        self.keys.encrypt(Sectors::segments(self.rule, segments));
    }

    /// Decrypts several runs together, in place.
    pub fn decrypt_segments(&self, segments: &mut [Segment<'_>]) {
        self.keys.decrypt(Sectors::segments(self.rule, segments));
    }
}

impl Drop for Cipher {
    fn drop(&mut self) {
        self.keys.wipe();
    }
}

impl zeroize::ZeroizeOnDrop for Cipher {}

impl fmt::Debug for Cipher {
    /// Everything but the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cipher")
            .field("spec", &format_args!("{}", self.spec))
            .field("sector_size", &self.sector_size.bytes())
            .field("backend", &format_args!("{}", self.backend))
            .finish_non_exhaustive()
    }
}

impl Keys {
    /// `key` has been checked.
    fn new(spec: CipherSpec, key: &[u8], backend: Backend) -> Self {
        match (spec.mode, backend) {
            (Mode::AesXts, _) => Self::PortableXts(portable::Xts::new(key)),
            (Mode::AesCbc, _) => {
                Self::PortableCbc(portable::Cbc::new(key, essiv_key(spec, key).as_deref()))
            }
        }
    }

    fn encrypt(&self, sectors: Sectors<'_, '_>) {
        match self {
            Self::PortableXts(xts) => xts.crypt::<true>(sectors),
            Self::PortableCbc(cbc) => cbc.encrypt(sectors),
        }
    }

    fn decrypt(&self, sectors: Sectors<'_, '_>) {
        match self {
            Self::PortableXts(xts) => xts.crypt::<false>(sectors),
            Self::PortableCbc(cbc) => cbc.decrypt(sectors),
        }
    }

    /// Overwrites it with zeros. It may be no value of the type after that:
    /// only dropping or overwriting it may follow.
    fn wipe(&mut self) {
        // SAFETY: the type has no destructor and refers to nothing outside
        // itself; callers do not use the value again.
        unsafe { zeroize::zeroize_flat_type(self) }
    }
}

/// The IV key of ESSIV: the hash of the data key.
fn essiv_key(spec: CipherSpec, key: &[u8]) -> Option<Zeroizing<[u8; 32]>> {
    (spec.iv == IvMode::EssivSha256).then(|| {
        let mut digest = Sha256::digest(key);
        let essiv = Zeroizing::new(digest.into());
        digest.as_mut_slice().zeroize();
        essiv
    })
}

fn check_key(spec: CipherSpec, key: &[u8]) -> Result<(), WrongKeyLength> {
    let takes = spec.key_lengths();
    if takes.contains(&key.len()) {
        Ok(())
    } else {
        Err(WrongKeyLength {
            given: key.len(),
            takes,
        })
    }
}
