//! Memory for keys and passphrases: in pages of its own, locked against swap,
//! left out of core dumps, wiped when dropped.
//!
//! Locking is best effort: where the limit on locked memory is too small, the
//! memory is still excluded from dumps and wiped, and one warning is logged.
//!
//! The pages survive `fork`, on purpose: a daemon that opened its volume
//! before it forks into the background needs the key afterwards
//! (`MADV_WIPEONFORK` would hand it zeros). Locks are not inherited by a
//! child; fork before any secret is read where swap matters.

use std::fmt;
use std::ops::{Deref, DerefMut};

use subtle::ConstantTimeEq;

#[cfg(feature = "cipher")]
mod cipher;
mod pages;

#[cfg(feature = "cipher")]
pub use cipher::{KeyedError, SecretCipher};
use pages::Pages;

/// The example of the README, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Why secret memory could not be had.
#[derive(Debug)]
pub struct Error {
    /// Bytes asked for.
    pub len: usize,
    /// The system's reason.
    pub source: std::io::Error,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot get {} bytes of memory for secrets", self.len)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// A byte string that is secret. Compares in constant time (its length is not
/// secret), never prints.
pub struct SecretBytes {
    pages: Pages,
    len: usize,
}

impl SecretBytes {
    /// `len` zero bytes.
    pub fn zeroed(len: usize) -> Result<Self, Error> {
        Ok(Self {
            pages: Pages::new(len)?,
            len,
        })
    }

    /// A copy of `bytes`; the caller wipes the original.
    pub fn copy_of(bytes: &[u8]) -> Result<Self, Error> {
        let mut copy = Self::zeroed(bytes.len())?;
        copy.copy_from_slice(bytes);
        Ok(copy)
    }

    /// `len` bytes from the system's random number generator.
    pub fn random(len: usize) -> Result<Self, Error> {
        let mut bytes = Self::zeroed(len)?;
        fill_random(&mut bytes)?;
        Ok(bytes)
    }

    /// Shortens to `len` bytes, wiping the rest. A `len` that is not shorter
    /// changes nothing.
    pub fn truncate(&mut self, len: usize) {
        if len < self.len {
            zeroize::Zeroize::zeroize(&mut self[len..]);
            self.len = len;
        }
    }
}

impl Deref for SecretBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.pages.bytes()[..self.len]
    }
}

impl DerefMut for SecretBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.pages.bytes_mut()[..self.len]
    }
}

impl PartialEq for SecretBytes {
    fn eq(&self, other: &Self) -> bool {
        bool::from(self.ct_eq(other))
    }
}

impl Eq for SecretBytes {}

impl fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretBytes(..)")
    }
}

/// Whether two byte strings are equal, in a time that depends on their lengths
/// only.
#[must_use]
pub fn equal(a: &[u8], b: &[u8]) -> bool {
    bool::from(a.ct_eq(b))
}

/// Fills `bytes` from the system's random number generator; waits until it is
/// seeded.
pub fn fill_random(bytes: &mut [u8]) -> Result<(), Error> {
    use rustix::rand::{GetRandomFlags, getrandom};

    let len = bytes.len();
    let mut rest = bytes;
    while !rest.is_empty() {
        match getrandom(&mut *rest, GetRandomFlags::empty()) {
            Ok(filled) => rest = &mut rest[filled..],
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => {
                return Err(Error {
                    len,
                    source: errno.into(),
                });
            }
        }
    }
    Ok(())
}

/// A value in secret memory, for key schedules. Wiped (every byte of `T`)
/// after `T`'s own drop.
pub struct SecretBox<T> {
    place: pages::Place<T>,
}

impl<T> SecretBox<T> {
    /// Moves `value` in. Put secrets into the value only after this call
    /// (for a cipher there is `SecretCipher::keyed`), so
    /// that no copy stays on the stack.
    pub fn new(value: T) -> Result<Self, Error> {
        Ok(Self {
            place: pages::Place::new(value)?,
        })
    }
}

impl<T> Deref for SecretBox<T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.place.get()
    }
}

impl<T> DerefMut for SecretBox<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.place.get_mut()
    }
}

impl<T> fmt::Debug for SecretBox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretBox(..)")
    }
}

/// Forbids core dumps and tracing by other processes of the same user
/// (`PR_SET_DUMPABLE` 0, `RLIMIT_CORE` 0). Call first thing in `main`.
pub fn harden_process() -> std::io::Result<()> {
    use rustix::process::{DumpableBehavior, Resource, Rlimit};

    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    rustix::process::setrlimit(
        Resource::Core,
        Rlimit {
            current: Some(0),
            maximum: Some(0),
        },
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The `VmFlags` of the mapping that holds `address`.
    fn vm_flags(address: usize) -> Vec<String> {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut inside = false;
        for line in smaps.lines() {
            let first = line.split_whitespace().next().unwrap_or_default();
            if let Some((from, to)) = first.split_once('-') {
                if let (Ok(from), Ok(to)) = (
                    usize::from_str_radix(from, 16),
                    usize::from_str_radix(to, 16),
                ) {
                    inside = (from..to).contains(&address);
                }
            } else if inside && first == "VmFlags:" {
                return line.split_whitespace().skip(1).map(Into::into).collect();
            }
        }
        panic!("no mapping holds {address:#x}");
    }

    #[test]
    fn memory_is_locked_and_left_out_of_dumps() {
        let bytes = SecretBytes::random(100).unwrap();
        let boxed = SecretBox::new([7_u64; 1000]).unwrap();
        for address in [bytes.as_ptr() as usize, boxed.as_ptr() as usize] {
            let flags = vm_flags(address);
            assert!(
                flags.iter().any(|f| f == "lo"),
                "not locked: {flags:?}; this test needs a limit on locked memory \
                 of a megabyte (ulimit -l 1024)"
            );
            assert!(flags.iter().any(|f| f == "dd"), "dumped: {flags:?}");
            assert!(!flags.iter().any(|f| f == "wf"), "wiped on fork: {flags:?}");
        }
    }

    #[test]
    fn secrets_share_no_page() {
        let a = SecretBytes::zeroed(1).unwrap();
        let b = SecretBytes::zeroed(1).unwrap();
        assert!((a.as_ptr() as usize).abs_diff(b.as_ptr() as usize) >= 4096);
    }

    #[test]
    fn every_length_works() {
        for len in [0, 1, 15, 16, 4095, 4096, 4097, 300_000] {
            let mut a = SecretBytes::zeroed(len).unwrap();
            assert_eq!(a.len(), len);
            assert!(a.iter().all(|&b| b == 0));
            a.fill(0xa5);
            let mut b = SecretBytes::copy_of(&a).unwrap();
            assert_eq!(a, b);
            if len > 0 {
                b[len - 1] ^= 1;
                assert_ne!(a, b);
            }
            assert_ne!(a, SecretBytes::zeroed(len + 1).unwrap());
        }
    }

    #[test]
    fn truncation_wipes_the_rest() {
        let mut a = SecretBytes::copy_of(b"passphrase").unwrap();
        a.truncate(20);
        assert_eq!(&*a, b"passphrase");
        a.truncate(4);
        assert_eq!(&*a, b"pass");
        assert_eq!(&a.pages.bytes()[..10], b"pass\0\0\0\0\0\0");
        a.truncate(0);
        assert!(a.is_empty());
    }

    #[test]
    fn random_bytes_differ() {
        let a = SecretBytes::random(64).unwrap();
        assert_ne!(a, SecretBytes::random(64).unwrap());
        assert_ne!(a, SecretBytes::zeroed(64).unwrap());
    }

    #[test]
    fn absurd_lengths_are_errors() {
        for len in [usize::MAX, usize::MAX - 4096, isize::MAX as usize + 1] {
            let error = SecretBytes::zeroed(len).unwrap_err();
            assert_eq!(error.len, len);
            assert!(error.to_string().contains("memory for secrets"));
        }
    }

    #[test]
    fn nothing_prints() {
        let a = SecretBytes::copy_of(b"hunter2").unwrap();
        assert_eq!(format!("{a:?}"), "SecretBytes(..)");
        let b = SecretBox::new(*b"hunter2").unwrap();
        assert_eq!(format!("{b:?}"), "SecretBox(..)");
    }

    #[test]
    fn a_box_drops_its_value_once() {
        use std::sync::Arc;
        let counter = Arc::new(());
        let boxed = SecretBox::new(Arc::clone(&counter)).unwrap();
        assert_eq!(Arc::strong_count(&boxed), 2);
        drop(boxed);
        assert_eq!(Arc::strong_count(&counter), 1);
    }

    #[test]
    fn boxes_keep_alignment_and_take_nothing() {
        #[repr(align(64))]
        struct Aligned([u8; 3]);
        let mut boxed = SecretBox::new(Aligned([1, 2, 3])).unwrap();
        assert_eq!(std::ptr::from_ref(&*boxed) as usize % 64, 0);
        boxed.0[1] = 9;
        assert_eq!(boxed.0, [1, 9, 3]);
        let nothing = SecretBox::new(()).unwrap();
        assert_eq!(*nothing, ());
    }

    #[test]
    fn secrets_cross_threads() {
        fn sound<T: Send + Sync>() {}
        sound::<SecretBytes>();
        sound::<SecretBox<[u8; 32]>>();
    }
}
