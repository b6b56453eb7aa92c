//! A keyed cipher: checks at the boundary, the key schedule, and the way from
//! a call to the kernel of its mode and back-end.

use crate::row::{Detected, KeySource, Keys};
use crate::run::{IvRule, Sectors};
use crate::{
    Backend, CipherSpec, First, Foreign, IvMode, Mode, NewError, RunError, SectorCount, SectorSize,
    WrongKeyLength,
};
use core::fmt;
use core::mem::size_of;
use sha2::{Digest, Sha256};
use zeroize::{Zeroize, Zeroizing};

/// One of several runs handed over together.
pub struct Run<'a> {
    /// Sector number of the first sector, in 512-byte units (whatever the
    /// sector size and [`SectorCount`]).
    pub first: u64,
    /// Whole sectors, in place.
    pub data: &'a mut [u8],
}

/// A keyed cipher with a sector size.
///
/// There are two forms of each call. [`Cipher::try_encrypt`] and its like return an error
/// where the arguments make no run of sectors, and take a [`First`], which says how the
/// first sector is counted. [`Cipher::encrypt`] and its like are shortcuts for callers who
/// have checked that already: what would be an error there is a programming error here and
/// **panics**, and `first` counts 512-byte units whatever the sector size. Either finds the
/// error before a byte is changed. The IV is made as [`SectorCount`] says.
///
/// The key schedule is inside, without indirection, at most 16 KiB in all, and
/// wiped on drop: put the value where keys may live before it gets its key with
/// [`Cipher::rekey`]. [`Cipher::new`] returns by value, which may leave a copy
/// on the stack; make it with a key of zeros where that matters. Both overwrite
/// the 32 KiB of stack below them when they are done (with debug assertions, as in
/// Cargo's dev profile, 128 KiB), so that a thread which calls them needs room for that;
/// the README says what more code without optimisation takes.
#[repr(align(64))]
pub struct Cipher {
    keys: Keys,
    rule: IvRule,
    spec: CipherSpec,
    sector_size: SectorSize,
    row: Detected,
}

// A value moves through the stack at times, and rooms put it in locked pages.
const _: () = assert!(size_of::<Cipher>() <= 16 * 1024);

impl Cipher {
    /// A cipher by name, on the fastest back-end or the one given.
    ///
    /// # Errors
    /// [`NewError::KeyLength`] if the cipher takes no key of this length, see
    /// [`CipherSpec::key_lengths`]; [`NewError::Backend`] if this CPU lacks the back-end.
    pub fn new(
        spec: CipherSpec,
        sector_size: SectorSize,
        count: SectorCount,
        key: &[u8],
        backend: Option<Backend>,
    ) -> Result<Self, NewError> {
        let backend = backend.unwrap_or_else(Backend::best);
        let row = Detected::of(backend).ok_or(NewError::Backend(backend))?;
        check_key(spec, key)?;
        let mut cipher = Self {
            keys: Keys::Unset,
            rule: IvRule::new(spec.iv(), sector_size, count),
            spec,
            sector_size,
            row,
        };
        cipher.set_keys(key);
        burn_stack::<SET>();
        Ok(cipher)
    }

    /// Replaces the key, in place: same length or another that the cipher
    /// takes. The old key schedule is wiped; after an error it is still there.
    pub fn rekey(&mut self, key: &[u8]) -> Result<(), WrongKeyLength> {
        check_key(self.spec, key)?;
        self.keys.wipe();
        self.set_keys(key);
        burn_stack::<SET>();
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
        self.row.backend()
    }

    /// Encrypts a run in place.
    ///
    /// ```
    /// use sector_cipher::{Cipher, First, RunError, SectorCount, SectorSize};
    ///
    /// let size = SectorSize::new(4096)?;
    /// let spec = "aes-xts-plain64".parse()?;
    /// let cipher = Cipher::new(spec, size, SectorCount::Units512, &[7; 64], None)?;
    /// let mut run = vec![0; 2 * 4096];
    /// cipher.try_encrypt(First::Index(1000), &mut run)?;
    /// // The same sectors, counted in 512-byte units.
    /// cipher.try_decrypt(First::Units512(8000), &mut run)?;
    /// assert_eq!(run, [0; 2 * 4096]);
    /// let error = cipher.try_encrypt(First::Index(0), &mut run[..4000]);
    /// assert!(matches!(error, Err(RunError::Length { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`RunError`] if `data` is not whole sectors, `first` is not at the start of one, or
    /// the run goes beyond the last sector that has a number. Nothing has been changed then.
    pub fn try_encrypt(&self, first: First, data: &mut [u8]) -> Result<(), RunError> {
        let first = first.units(self.sector_size)?;
        self.crypt(Sectors::in_place(&self.rule, first, data)?, true);
        Ok(())
    }

    /// Decrypts a run in place.
    ///
    /// # Errors
    /// See [`Cipher::try_encrypt`].
    pub fn try_decrypt(&self, first: First, data: &mut [u8]) -> Result<(), RunError> {
        let first = first.units(self.sector_size)?;
        self.crypt(Sectors::in_place(&self.rule, first, data)?, false);
        Ok(())
    }

    /// Encrypts a run from `source` to `dest`, of equal length.
    ///
    /// Most modes read a byte of `source` more than once, and while the call
    /// lasts `dest` may hold what is neither plaintext nor ciphertext, or be
    /// read again. Memory that another process may write to has to be copied
    /// before, and nobody else may see `dest` until then.
    ///
    /// # Errors
    /// See [`Cipher::try_encrypt`], and [`RunError::Unequal`].
    pub fn try_encrypt_to(
        &self,
        first: First,
        source: &[u8],
        dest: &mut [u8],
    ) -> Result<(), RunError> {
        let first = first.units(self.sector_size)?;
        self.crypt(Sectors::between(&self.rule, first, source, dest)?, true);
        Ok(())
    }

    /// Decrypts a run from `source` to `dest`, of equal length: see
    /// [`Cipher::try_encrypt_to`].
    ///
    /// # Errors
    /// As there.
    pub fn try_decrypt_to(
        &self,
        first: First,
        source: &[u8],
        dest: &mut [u8],
    ) -> Result<(), RunError> {
        let first = first.units(self.sector_size)?;
        self.crypt(Sectors::between(&self.rule, first, source, dest)?, false);
        Ok(())
    }

    /// Whether [memory that others see](Foreign) can be a run's source or destination: AES-XTS. All other modes need
    /// more than one look at a byte.
    pub fn takes_foreign(&self) -> bool {
        self.spec.mode() == Mode::AesXts
    }

    /// Encrypts a run out of pieces of memory that others see, each of whole sectors.
    ///
    /// # Errors
    /// See [`Cipher::try_encrypt_to`]; [`RunError::Foreign`] if the cipher does not
    /// [take](Cipher::takes_foreign) them.
    pub fn try_encrypt_from(
        &self,
        first: First,
        source: &[Foreign<'_>],
        dest: &mut [u8],
    ) -> Result<(), RunError> {
        let first = self.first_of_foreign(first)?;
        self.crypt(
            Sectors::from_foreign(&self.rule, first, source, dest)?,
            true,
        );
        Ok(())
    }

    /// Decrypts a run into pieces of memory that others see, each of whole sectors.
    ///
    /// # Errors
    /// As of [`Cipher::try_encrypt_from`].
    pub fn try_decrypt_into(
        &self,
        first: First,
        source: &[u8],
        dest: &[Foreign<'_>],
    ) -> Result<(), RunError> {
        let first = self.first_of_foreign(first)?;
        self.crypt(
            Sectors::into_foreign(&self.rule, first, source, dest)?,
            false,
        );
        Ok(())
    }

    fn first_of_foreign(&self, first: First) -> Result<u64, RunError> {
        match self.takes_foreign() {
            true => first.units(self.sector_size),
            false => Err(RunError::Foreign),
        }
    }

    /// Encrypts several runs together, in place: scattered single sectors fill
    /// the pipelines as one long run does. All are checked before the first is changed.
    ///
    /// # Errors
    /// See [`Cipher::try_encrypt`]. Runs cannot overlap, being borrowed mutably.
    pub fn try_encrypt_runs(&self, runs: &mut [Run<'_>]) -> Result<(), RunError> {
        self.crypt(Sectors::runs(&self.rule, runs)?, true);
        Ok(())
    }

    /// Decrypts several runs together, in place: see [`Cipher::try_encrypt_runs`].
    ///
    /// # Errors
    /// As there.
    pub fn try_decrypt_runs(&self, runs: &mut [Run<'_>]) -> Result<(), RunError> {
        self.crypt(Sectors::runs(&self.rule, runs)?, false);
        Ok(())
    }

    /// Encrypts a run in place; `first` counts 512-byte units.
    ///
    /// # Panics
    /// Where [`Cipher::try_encrypt`] returns an error.
    pub fn encrypt(&self, first: u64, data: &mut [u8]) {
        checked(self.try_encrypt(First::Units512(first), data));
    }

    /// Decrypts a run in place; `first` counts 512-byte units.
    ///
    /// # Panics
    /// Where [`Cipher::try_decrypt`] returns an error.
    pub fn decrypt(&self, first: u64, data: &mut [u8]) {
        checked(self.try_decrypt(First::Units512(first), data));
    }

    /// Encrypts a run from `source` to `dest`, of equal length, of which
    /// [`Cipher::try_encrypt_to`] says more; `first` counts 512-byte units.
    ///
    /// # Panics
    /// Where [`Cipher::try_encrypt_to`] returns an error.
    pub fn encrypt_to(&self, first: u64, source: &[u8], dest: &mut [u8]) {
        checked(self.try_encrypt_to(First::Units512(first), source, dest));
    }

    /// Decrypts a run from `source` to `dest`, of equal length; `first` counts 512-byte units.
    ///
    /// # Panics
    /// Where [`Cipher::try_decrypt_to`] returns an error.
    pub fn decrypt_to(&self, first: u64, source: &[u8], dest: &mut [u8]) {
        checked(self.try_decrypt_to(First::Units512(first), source, dest));
    }

    /// Encrypts several runs together, in place.
    ///
    /// # Panics
    /// Where [`Cipher::try_encrypt_runs`] returns an error.
    pub fn encrypt_runs(&self, runs: &mut [Run<'_>]) {
        checked(self.try_encrypt_runs(runs));
    }

    /// Decrypts several runs together, in place.
    ///
    /// # Panics
    /// Where [`Cipher::try_decrypt_runs`] returns an error.
    pub fn decrypt_runs(&self, runs: &mut [Run<'_>]) {
        checked(self.try_decrypt_runs(runs));
    }

    /// One sector under any tweak: see [`crate::hazmat`].
    #[cfg(any(test, feature = "hazmat"))]
    pub(crate) fn crypt_one(&self, tweak: u128, sector: &mut [u8], encrypt: bool) {
        let rule = IvRule::of_tweak(tweak, self.sector_size);
        self.crypt(Sectors::of_tweak(&rule, sector), encrypt);
    }

    /// Overwrites what calls from the same function, or from functions that it
    /// called, have left on the stack below it, some of which depends on the key.
    /// The calls do not do that themselves, since it can take as long as a
    /// sector; once after a request is enough.
    ///
    /// That is 12 to 44 KiB, the most that a call takes if the crate was
    /// compiled with optimisation.
    pub fn wipe_stack(&self) {
        match self.spec.mode() {
            Mode::AesXts | Mode::AesCbc | Mode::Adiantum12 | Mode::Adiantum20 => {
                burn_stack::<{ 14 << 10 }>();
            }
            Mode::FastHorner | Mode::Hctr2 | Mode::Xcb => burn_stack::<{ 12 << 10 }>(),
            Mode::FastBrw => burn_stack::<{ 32 << 10 }>(),
            // They keep sectors there between their passes.
            Mode::Eme2 | Mode::Aez10 => burn_stack::<{ 44 << 10 }>(),
        }
    }
}

impl Cipher {
    /// Makes the key schedule in place. `key` has been checked.
    #[inline(never)]
    fn set_keys(&mut self, key: &[u8]) {
        let essiv = essiv_key(self.spec, key);
        let from = KeySource {
            spec: self.spec,
            key,
            size: self.sector_size,
            essiv: essiv.as_deref(),
        };
        self.row.set_keys(&mut self.keys, &from);
    }

    #[inline(always)]
    fn crypt(&self, mut sectors: Sectors<'_, '_>, encrypt: bool) {
        self.row.crypt(&self.keys, &mut sectors, encrypt);
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
            .field("backend", &format_args!("{}", self.row.backend()))
            .finish_non_exhaustive()
    }
}

/// Bytes of stack that the making of a key schedule takes, and leaves pieces of it in: the
/// portable one is returned by value several times, and more often without optimisation.
const SET: usize = if cfg!(debug_assertions) {
    128 << 10
} else {
    32 << 10
};

/// Overwrites the stack below the caller.
#[inline(never)]
fn burn_stack<const BYTES: usize>() {
    let stack = [0_u8; BYTES];
    core::hint::black_box(&stack);
}

/// The IV key of ESSIV: the hash of the data key.
fn essiv_key(spec: CipherSpec, key: &[u8]) -> Option<Zeroizing<[u8; 32]>> {
    (spec.iv() == IvMode::EssivSha256).then(|| {
        let mut digest = Sha256::digest(key);
        let essiv = Zeroizing::new(digest.into());
        digest.as_mut_slice().zeroize();
        essiv
    })
}

/// The end of a shortcut.
#[track_caller]
fn checked(result: Result<(), RunError>) {
    if let Err(error) = result {
        panic!("{error}");
    }
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

#[cfg(test)]
mod tests {
    #![allow(unsafe_code)]

    extern crate std;
    use super::*;
    use core::mem::{MaybeUninit, offset_of};
    use std::collections::BTreeSet;
    use std::vec::Vec;

    fn cipher(spec: CipherSpec, key: &[u8], backend: Backend) -> Cipher {
        let size = SectorSize::new(512).unwrap();
        Cipher::new(spec, size, SectorCount::Units512, key, Some(backend)).unwrap()
    }

    fn key(step: u8, len: usize) -> Vec<u8> {
        (0..len)
            .scan(11_u8, |byte, _| {
                Some(core::mem::replace(byte, byte.wrapping_add(step)))
            })
            .collect()
    }

    /// One cipher serves several threads.
    #[test]
    fn threads_can_share_it() {
        fn shared<T: Send + Sync + Unpin>() {}
        shared::<Cipher>();
    }

    /// The bytes of the key schedule.
    fn schedule(place: &MaybeUninit<Cipher>) -> Vec<u8> {
        let base = place
            .as_ptr()
            .cast::<u8>()
            .wrapping_add(offset_of!(Cipher, keys));
        (0..size_of::<Keys>())
            // SAFETY: inside the place, which was zeroed before the value was
            // put there; volatile, so that no write is left out as dead.
            .map(|i| unsafe { base.wrapping_add(i).read_volatile() })
            .collect()
    }

    #[test]
    fn the_key_schedule_is_wiped_on_drop() {
        for &backend in Backend::available() {
            for spec in CipherSpec::all() {
                for &len in spec.key_lengths() {
                    let mut place = MaybeUninit::<Cipher>::zeroed();
                    place.write(cipher(spec, &std::vec![0xc5; len], backend));
                    let used = schedule(&place).iter().filter(|&&byte| byte != 0).count();
                    assert!(used > 300, "{spec} {backend}: {used}");
                    // SAFETY: the value is there and not used again.
                    unsafe { place.assume_init_drop() };
                    assert!(
                        schedule(&place).iter().all(|&byte| byte == 0),
                        "{spec} {backend}"
                    );
                }
            }
        }
    }

    #[test]
    fn rekeying_leaves_nothing_of_the_longer_key() {
        for &backend in Backend::available() {
            for spec in CipherSpec::all() {
                let lengths = spec.key_lengths();
                let (short, long) = (lengths[0], lengths[lengths.len() - 1]);
                let mut place = MaybeUninit::<Cipher>::zeroed();
                place.write(cipher(spec, &std::vec![0; long], backend));
                let mut rekey = |key: &[u8]| -> BTreeSet<Vec<u8>> {
                    // SAFETY: the value is there.
                    unsafe { place.assume_init_mut() }.rekey(key).unwrap();
                    // Unused places may hold addresses and lengths, whose
                    // last bytes are zero.
                    let schedule = schedule(&place);
                    let words = schedule.chunks_exact(8).filter(|word| word[6..] != [0, 0]);
                    words.map(Vec::from).collect()
                };
                // What else was on the stack, they do not hold before: what they hold after is the key's, then.
                burn_stack::<SET>();
                let before = rekey(&key(37, long));
                let after = rekey(&std::vec![0x11; short]);
                // What stands there whatever key was there before.
                rekey(&key(91, long));
                let always = rekey(&std::vec![0x11; short]);
                let left = before
                    .intersection(&after)
                    .filter(|word| !always.contains(*word));
                assert!(before.len() > 30, "{spec} {backend}");
                assert_eq!(left.count(), 0, "{spec} {backend}");
            }
        }
    }
}
