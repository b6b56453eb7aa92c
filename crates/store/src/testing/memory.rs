//! A store in memory.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::{Act, Error, ErrorKind, Limits, Store};

/// What a discarded range reads as: neither zeros nor what was there.
pub(super) const DISCARDED: u8 = 0xDB;

/// The name that errors of stores in memory carry.
pub(super) const NAME: &str = "(memory)";

/// Bytes in memory. Flushes do nothing; discarded ranges read as noise.
pub struct MemStore {
    bytes: RwLock<Vec<u8>>,
    writes: AtomicU64,
    flushes: AtomicU64,
    read_only: bool,
    limits: Limits,
}

impl MemStore {
    /// `size` zero bytes.
    pub fn new(size: usize) -> Self {
        vec![0; size].into()
    }

    /// The same, with writes refused.
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// The same, with other limits than 512 and 512.
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// A copy of what it holds now.
    pub fn contents(&self) -> Vec<u8> {
        self.locked().clone()
    }

    /// Makes it shorter or longer under its users.
    pub fn resize(&self, size: usize) {
        self.locked_mut().resize(size, 0);
    }

    /// Successful writes so far, durable ones and discards included.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::SeqCst)
    }

    /// Flushes so far; a durable write counts as one.
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::SeqCst)
    }

    fn locked(&self) -> RwLockReadGuard<'_, Vec<u8>> {
        self.bytes.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn locked_mut(&self) -> RwLockWriteGuard<'_, Vec<u8>> {
        self.bytes.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(
        &self,
        act: Act,
        offset: u64,
        len: u64,
        change: impl FnOnce(&mut [u8]),
    ) -> Result<(), Error> {
        if self.read_only {
            let kind = ErrorKind::ReadOnly;
            return Err(Error::new(kind, act, Path::new(NAME), Some(offset)));
        }
        let mut bytes = self.locked_mut();
        let range = range(bytes.len(), act, offset, len)?;
        change(&mut bytes[range]);
        self.writes.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

impl From<Vec<u8>> for MemStore {
    fn from(bytes: Vec<u8>) -> Self {
        Self {
            bytes: RwLock::new(bytes),
            writes: AtomicU64::new(0),
            flushes: AtomicU64::new(0),
            read_only: false,
            limits: Limits {
                atomic: 512,
                discard: 512,
                block: 1,
            },
        }
    }
}

impl Store for MemStore {
    fn size(&self) -> u64 {
        self.locked().len() as u64
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), Error> {
        let bytes = self.locked();
        let range = range(bytes.len(), Act::Read, offset, buf.len() as u64)?;
        buf.copy_from_slice(&bytes[range]);
        Ok(())
    }

    fn try_read_at(&self, buf: &mut [u8], offset: u64) -> Result<bool, Error> {
        self.read_at(buf, offset).map(|()| true)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<(), Error> {
        self.change(Act::Write, offset, data.len() as u64, |bytes| {
            bytes.copy_from_slice(data);
        })
    }

    fn takes_write_at_once(&self, _offset: u64, _len: u64) -> Result<bool, Error> {
        Ok(true)
    }

    fn flush(&self) -> Result<(), Error> {
        self.flushes.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.change(Act::Discard, offset, len, |bytes| bytes.fill(DISCARDED))
    }
}

/// The range as indices, if it lies inside.
pub(super) fn range(
    size: usize,
    act: Act,
    offset: u64,
    len: u64,
) -> Result<std::ops::Range<usize>, Error> {
    let inside = || {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(usize::try_from(len).ok()?)?;
        (end <= size).then_some(start..end)
    };
    inside().ok_or_else(|| Error::new(ErrorKind::OutOfRange, act, Path::new(NAME), Some(offset)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_was_written_and_stays_inside() {
        let store = MemStore::new(1000);
        store.write_at(&[7; 10], 990).unwrap();
        let mut buf = [0; 10];
        store.read_at(&mut buf, 990).unwrap();
        assert_eq!(buf, [7; 10]);
        for offset in [991, 1001, u64::MAX, u64::MAX - 5] {
            let kind = ErrorKind::OutOfRange;
            assert_eq!(store.read_at(&mut buf, offset).unwrap_err().kind, kind);
            assert_eq!(store.write_at(&buf, offset).unwrap_err().kind, kind);
            assert_eq!(store.discard(offset, 10).unwrap_err().kind, kind);
        }
        assert_eq!(store.writes(), 1);
        assert_eq!(store.size(), 1000);
    }

    #[test]
    fn read_only_refuses_writes() {
        let store = MemStore::new(1000).read_only();
        let kind = ErrorKind::ReadOnly;
        assert_eq!(store.write_at(&[1], 0).unwrap_err().kind, kind);
        assert_eq!(store.discard(0, 1).unwrap_err().kind, kind);
    }
}
