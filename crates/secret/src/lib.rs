//! Memory for keys and passphrases: in pages of its own, locked against swap,
//! left out of core dumps, wiped when dropped.
//!
//! Locking is best effort: where the limit on locked memory is too small, the
//! memory is still excluded from dumps and wiped, and one warning is logged.

use std::ops::{Deref, DerefMut};

/// Why secret memory could not be had.
#[derive(Debug)]
pub struct Error {
    /// Bytes asked for.
    pub len: usize,
    /// The system's reason.
    pub source: std::io::Error,
}

/// A byte string that is secret. Compares in constant time, never prints.
pub struct SecretBytes {
    _todo: Vec<u8>,
}

impl SecretBytes {
    /// `len` zero bytes.
    pub fn zeroed(_len: usize) -> Result<Self, Error> {
        todo!()
    }
    /// A copy of `bytes`; the caller wipes the original.
    pub fn copy_of(_bytes: &[u8]) -> Result<Self, Error> {
        todo!()
    }
    /// `len` bytes from the system's random number generator.
    pub fn random(_len: usize) -> Result<Self, Error> {
        todo!()
    }
    /// Shortens to `len` bytes, wiping the rest.
    pub fn truncate(&mut self, _len: usize) {
        todo!()
    }
}

impl Deref for SecretBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        todo!()
    }
}
impl DerefMut for SecretBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        todo!()
    }
}

/// A value in secret memory, for key schedules. Wiped (every byte of `T`)
/// after `T`'s own drop.
pub struct SecretBox<T> {
    _todo: Box<T>,
}

impl<T> SecretBox<T> {
    /// Moves `value` in. Put secrets into the value only after this call
    /// (for a cipher: make it with a zero key, then `rekey` it in place), so
    /// that no copy stays on the stack.
    pub fn new(_value: T) -> Result<Self, Error> {
        todo!()
    }
}
impl<T> Deref for SecretBox<T> {
    type Target = T;
    fn deref(&self) -> &T {
        todo!()
    }
}
impl<T> DerefMut for SecretBox<T> {
    fn deref_mut(&mut self) -> &mut T {
        todo!()
    }
}

/// Forbids core dumps and tracing by other processes of the same user
/// (`PR_SET_DUMPABLE` 0, `RLIMIT_CORE` 0). Call first thing in `main`.
pub fn harden_process() -> std::io::Result<()> {
    todo!()
}
