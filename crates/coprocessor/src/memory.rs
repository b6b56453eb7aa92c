//! Memory that the device sees too, and its division.
//!
//! It belongs to nobody: whoever is at the other end can change every byte at any time. So it is never a slice; what is
//! in it is copied in and out once, and looked at afterwards.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::atomic::Ordering;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{Advice, madvise, mlock};
use vm_memory::mmap::MmapRegion;
use vm_memory::{Bytes, FileOffset, VolatileMemory, VolatileSlice};

use crate::{Error, ErrorKind};

/// Where the device finds the memory: below 4 GiB, for devices with 32 address bits, and away from the addresses where
/// machines have their interrupt controllers.
const BASE: u64 = 0x1000_0000;

/// Memory of this process and the device, mapped once; wiped when dropped. It is locked and left out of core dumps,
/// as far as the system allows it.
pub struct Memory {
    region: MmapRegion,
}

impl Memory {
    /// `len` zero bytes, whole pages.
    pub(crate) fn new(len: usize) -> Result<Self, Error> {
        let fail = |source: std::io::Error| {
            let message = format!("cannot get {len} bytes of memory for the engine");
            Error::by(ErrorKind::Memory, message, source)
        };
        let name = "xtent-engine";
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create(name, flags).map_err(|e| fail(e.into()))?;
        let file = File::from(file);
        file.set_len(len as u64).map_err(fail)?;
        // Another process gets the file: it must not be able to cut it short, which would end this one.
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals).map_err(|e| fail(e.into()))?;
        let region = MmapRegion::from_file(FileOffset::new(file, 0), len)
            .map_err(|e| fail(std::io::Error::other(e)))?;
        // SAFETY: advises and locks exactly the mapping made above.
        let (dumps, lock) = unsafe {
            let start = region.as_ptr().cast();
            (
                madvise(start, len, Advice::LinuxDontDump),
                mlock(start, len),
            )
        };
        dumps.map_err(|e| fail(e.into()))?;
        if let Err(errno) = lock {
            tracing::warn!(
                "cannot lock the engine's memory ({errno}): data may reach swap; raise the limit on locked memory \
                 (ulimit -l, LimitMEMLOCK=)"
            );
        }
        Ok(Self { region })
    }

    /// The device's side of it: the file that it was given.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn of_file(file: File, len: usize) -> std::io::Result<Self> {
        let region = MmapRegion::from_file(FileOffset::new(file, 0), len);
        Ok(Self {
            region: region.map_err(std::io::Error::other)?,
        })
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.region.size()
    }

    /// Whether it has none: never.
    #[cfg(any(test, feature = "testing"))]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The address at which the device sees byte `offset`.
    pub fn address(&self, offset: usize) -> u64 {
        BASE + offset as u64
    }

    /// The offset of an address of the device's, if `len` bytes from there on are in this memory.
    #[cfg(any(test, feature = "testing"))]
    pub fn offset(&self, address: u64, len: usize) -> Option<usize> {
        let offset = usize::try_from(address.checked_sub(BASE)?).ok()?;
        let end = offset.checked_add(len)?;
        (end <= self.len()).then_some(offset)
    }

    /// The file behind it.
    pub(crate) fn file(&self) -> Option<&File> {
        self.region.file_offset().map(FileOffset::file)
    }

    /// Where it is mapped here.
    pub(crate) fn pointer(&self) -> *mut u8 {
        self.region.as_ptr()
    }

    /// # Panics
    /// If there are not so many bytes there: offsets are this crate's own.
    fn slice(&self, offset: usize, len: usize) -> VolatileSlice<'_> {
        self.region
            .get_slice(offset, len)
            .expect("a place inside the memory")
    }

    /// Copies in.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        self.slice(offset, bytes.len()).copy_from(bytes);
    }

    /// Copies out.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        self.slice(offset, bytes.len()).copy_to(bytes);
    }

    /// Sets bytes to zero.
    pub(crate) fn wipe(&self, offset: usize, len: usize) {
        const ZEROS: [u8; 4096] = [0; 4096];
        for at in (0..len).step_by(ZEROS.len()) {
            self.write(offset + at, &ZEROS[..ZEROS.len().min(len - at)]);
        }
    }

    /// An aligned word, at once; what the device wrote before it is there as well.
    pub fn load(&self, offset: usize) -> u64 {
        let word: u64 = self
            .slice(offset, 8)
            .load(0, Ordering::Acquire)
            .expect("an aligned word");
        u64::from_le(word)
    }

    /// Writes an aligned word, at once, after all that was written before.
    #[cfg(any(test, feature = "testing"))]
    pub fn store(&self, offset: usize, word: u64) {
        self.slice(offset, 8)
            .store(word.to_le(), 0, Ordering::Release)
            .expect("an aligned word");
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.wipe(0, self.len());
    }
}

/// Which part of the memory is whose: pieces are whole multiples of [`Places::GRAIN`].
pub(crate) struct Places {
    /// Where free pieces begin, and how long they are. No two touch.
    free: BTreeMap<usize, usize>,
}

impl Places {
    const GRAIN: usize = 512;

    /// All of it is free.
    pub(crate) fn new(start: usize, len: usize) -> Self {
        Self {
            free: BTreeMap::from([(start, len)]),
        }
    }

    /// A piece of `len` bytes and more, if there is one.
    pub(crate) fn take(&mut self, len: usize) -> Option<usize> {
        let len = len.next_multiple_of(Self::GRAIN);
        let (&start, &free) = self.free.iter().find(|(_, free)| **free >= len)?;
        self.free.remove(&start);
        if free > len {
            self.free.insert(start + len, free - len);
        }
        Some(start)
    }

    /// Gives a piece back that was taken with the same `len`.
    pub(crate) fn give(&mut self, start: usize, len: usize) {
        let mut start = start;
        let mut len = len.next_multiple_of(Self::GRAIN);
        if let Some(behind) = self.free.remove(&(start + len)) {
            len += behind;
        }
        if let Some((&before, &before_len)) = self.free.range(..start).next_back()
            && before + before_len == start
        {
            start = before;
            len += before_len;
        }
        self.free.insert(start, len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out_and_nobody_can_cut_it_short() {
        let memory = Memory::new(64 << 10).unwrap();
        memory.write(5000, b"plaintext");
        let mut bytes = [0; 9];
        memory.read(5000, &mut bytes);
        assert_eq!(&bytes, b"plaintext");
        memory.store(64, 0x0102_0304_0506_0708);
        assert_eq!(memory.load(64), 0x0102_0304_0506_0708);
        memory.read(64, &mut bytes);
        assert_eq!(bytes[..8], [8, 7, 6, 5, 4, 3, 2, 1]);
        memory.wipe(4990, 40);
        memory.read(5000, &mut bytes);
        assert_eq!(bytes, [0; 9]);
        assert!(memory.file().unwrap().set_len(100).is_err());
        assert_eq!(memory.offset(memory.address(100), 50), Some(100));
        assert_eq!(memory.offset(memory.address(0), (64 << 10) + 1), None);
        assert_eq!(memory.offset(0, 1), None);
        assert_eq!(memory.offset(u64::MAX, 1), None);
    }

    #[test]
    fn it_is_wiped_when_dropped() {
        let memory = Memory::new(8192).unwrap();
        memory.write(0, &[7; 8192]);
        let file = memory.file().unwrap().try_clone().unwrap();
        drop(memory);
        let mut bytes = vec![1; 8192];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 0).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 0));
    }

    #[test]
    fn pieces_do_not_overlap_and_all_come_back() {
        let mut places = Places::new(4096, 64 << 10);
        let mut taken = Vec::new();
        let mut random = 1_u64;
        for _ in 0..10_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let pick = usize::try_from(random >> 40).unwrap();
            if pick % 2 == 0 || taken.is_empty() {
                let len = 1 + pick % 9000;
                if let Some(start) = places.take(len) {
                    for &(other, other_len) in &taken {
                        assert!(start + len <= other || other + other_len <= start);
                    }
                    assert!(start >= 4096 && start + len <= 4096 + (64 << 10));
                    taken.push((start, len));
                }
            } else {
                let (start, len) = taken.swap_remove(pick % taken.len());
                places.give(start, len);
            }
        }
        for (start, len) in taken {
            places.give(start, len);
        }
        assert_eq!(places.free, BTreeMap::from([(4096, 64 << 10)]));
        assert!(places.take((64 << 10) + 1).is_none());
    }
}
