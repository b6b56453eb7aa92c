//! Which pages of the guest's memory this process has written: a front-end that moves a running
//! guest to another process sends those again. A bit for each page of 4 KiB from address 0 on, in
//! memory that the front-end shares; "Migration" in the vhost-user specification.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering, fence};
use std::sync::{Arc, PoisonError, RwLock};

use rustix::fs::{SealFlags, fcntl_add_seals, fcntl_get_seals};
use vm_memory::bitmap::{Bitmap, RefSlice, WithBitmapSlice};
use vm_memory::{FileOffset, MmapRegion, VolatileMemory};

/// Bytes of a page, whatever the machine's are.
const PAGE: u64 = 4096;

/// The bits.
pub(super) struct Log(MmapRegion);

impl Log {
    /// Maps `length` bytes from `start` of the file on, which can never be made shorter from then
    /// on: who writes beyond the end of a file is killed.
    pub(super) fn new(file: File, start: u64, length: u64) -> io::Result<Self> {
        if let Err(error) = fcntl_add_seals(&file, SealFlags::SHRINK)
            && !fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK))
        {
            tracing::warn!(%error, "a log that could be made shorter");
            return Err(error.into());
        }
        let end = start.checked_add(length);
        let size = file.metadata()?.len();
        if end.is_none_or(|end| end > size) {
            return Err(io::Error::other("the log goes beyond its file"));
        }
        let bytes = usize::try_from(length).map_err(io::Error::other)?;
        let map = MmapRegion::from_file(FileOffset::new(file, start), bytes);
        map.map(Self).map_err(io::Error::other)
    }

    /// Whether it has bits for all addresses below `end`.
    pub(super) fn reaches(&self, end: u64) -> bool {
        end.div_ceil(PAGE).div_ceil(8) <= self.0.size() as u64
    }

    /// These bytes were written. Whoever sees the bit sees them.
    fn mark(&self, at: u64, len: u64) {
        let Some(last) = len.checked_sub(1) else {
            return;
        };
        let (mut page, last) = (at / PAGE, at.saturating_add(last) / PAGE);
        while page <= last {
            let end = (page | 7).min(last);
            let bits = (0xff_u8 >> (7 - (end - page))) << (page % 8);
            let byte = usize::try_from(page / 8).ok();
            let Some(Ok(byte)) = byte.map(|byte| self.0.get_atomic_ref::<AtomicU8>(byte)) else {
                // No region lies there: `reaches` was asked.
                return;
            };
            byte.fetch_or(bits, Ordering::Release);
            page = end + 1;
        }
    }
}

/// The log of a front-end, if it keeps one.
#[derive(Default)]
pub(super) struct Dirty {
    /// So that those who write memory need not look further.
    is_kept: AtomicBool,
    log: RwLock<Option<Log>>,
    /// Where the front-end wants to be told that there is more in it.
    event: RwLock<Option<File>>,
}

impl Dirty {
    /// Whether what is written from now on is noted, once there is a log. Without, it is let go.
    pub(super) fn keep(&self, is_kept: bool) {
        if self.is_kept.swap(is_kept, Ordering::SeqCst) && !is_kept {
            *self.log.write().unwrap_or_else(PoisonError::into_inner) = None;
        }
        // Against the one in `mark`.
        fence(Ordering::SeqCst);
    }

    /// All goes into this one from now on; into none that can be seen if there is none.
    pub(super) fn set(&self, log: Option<Log>) {
        *self.log.write().unwrap_or_else(PoisonError::into_inner) = log;
    }

    pub(super) fn set_event(&self, event: Option<File>) {
        *self.event.write().unwrap_or_else(PoisonError::into_inner) = event;
    }

    /// Whether there is a log, and what it says of it.
    pub(super) fn log_is(&self, what: impl FnOnce(&Log) -> bool) -> bool {
        let log = self.log.read().unwrap_or_else(PoisonError::into_inner);
        log.as_ref().is_some_and(what)
    }

    /// These bytes of the guest's memory were written.
    pub(super) fn mark(&self, at: u64, len: u64) {
        self.mark_all(std::iter::once((at, len)));
    }

    /// The same for several ranges: where they begin, and their lengths.
    pub(super) fn mark_all(&self, ranges: impl Iterator<Item = (u64, u64)>) {
        // Either they are noted, or whoever has begun to keep a log sees them.
        fence(Ordering::SeqCst);
        if self.is_kept.load(Ordering::Relaxed) {
            let log = self.log.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(log) = &*log {
                ranges.for_each(|(at, len)| log.mark(at, len));
            }
        }
    }

    /// Tells the front-end that there may be more in the log, if it wants to know.
    pub(super) fn tell(&self) {
        if self.is_kept.load(Ordering::Relaxed) {
            let event = self.event.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(event) = &*event {
                let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
            }
        }
    }
}

/// That of one region of the guest's memory: all that is written there is marked by `vm_memory`.
pub(super) struct Pages {
    dirty: Arc<Dirty>,
    /// Where the region begins, for the guest.
    start: u64,
}

impl Pages {
    pub(super) fn new(dirty: Arc<Dirty>, start: u64) -> Self {
        Self { dirty, start }
    }
}

impl<'a> WithBitmapSlice<'a> for Pages {
    type S = RefSlice<'a, Self>;
}

impl Bitmap for Pages {
    fn mark_dirty(&self, offset: usize, len: usize) {
        // The offset is inside of the region, which has an end.
        let at = self.start.saturating_add(offset as u64);
        self.dirty.mark(at, len as u64);
    }

    fn dirty_at(&self, offset: usize) -> bool {
        let page = self.start.saturating_add(offset as u64) / PAGE;
        let byte = usize::try_from(page / 8).unwrap_or(usize::MAX);
        self.dirty.log_is(|log| {
            let byte = log.0.get_atomic_ref::<AtomicU8>(byte);
            byte.is_ok_and(|byte| byte.load(Ordering::Acquire) & 1 << (page % 8) != 0)
        })
    }

    fn slice_at(&self, offset: usize) -> RefSlice<'_, Self> {
        RefSlice::new(self, offset)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    fn memory(length: u64) -> File {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("log", flags).unwrap();
        ftruncate(&file, length).unwrap();
        File::from(file)
    }

    fn bits(file: &File, start: u64, length: usize) -> Vec<u8> {
        let mut bits = vec![0; length];
        file.read_exact_at(&mut bits, start).unwrap();
        bits
    }

    #[test]
    fn every_page_that_is_touched_has_its_bit_and_no_other() {
        let file = memory(2 * PAGE);
        let log = Log::new(file.try_clone().unwrap(), PAGE, 5).unwrap();
        for (at, len, wanted) in [
            (0, 0, [0, 0, 0, 0, 0]),
            (0, 1, [1, 0, 0, 0, 0]),
            (PAGE - 1, 2, [3, 0, 0, 0, 0]),
            (3 * PAGE + 7, PAGE, [0b0001_1000, 0, 0, 0, 0]),
            (8 * PAGE, 8 * PAGE, [0, 0xff, 0, 0, 0]),
            (7 * PAGE, 18 * PAGE, [0x80, 0xff, 0xff, 1, 0]),
            // Beyond what it has.
            (39 * PAGE, 8 * PAGE, [0, 0, 0, 0, 0x80]),
            (40 * PAGE, 1, [0; 5]),
            (u64::MAX, 1, [0; 5]),
            (u64::MAX - 5, u64::MAX, [0; 5]),
        ] {
            log.mark(at, len);
            assert_eq!(bits(&file, PAGE, 5), wanted, "{at:x} {len:x}");
            file.write_all_at(&[0; 5], PAGE).unwrap();
        }
        log.mark(0, u64::MAX);
        assert_eq!(bits(&file, PAGE, 8), [255, 255, 255, 255, 255, 0, 0, 0]);
        assert_eq!(bits(&file, 0, 8), [0; 8]);
        assert!(log.reaches(40 * PAGE) && !log.reaches(40 * PAGE + 1));
        assert!(!log.reaches(u64::MAX));
    }

    #[test]
    fn a_log_that_is_not_there_or_can_go_away_is_refused() {
        for (start, length) in [(0, 2 * PAGE + 1), (0, 0), (5, 8), (u64::MAX, 2)] {
            assert!(Log::new(memory(2 * PAGE), start, length).is_err());
        }
        // One that nobody can seal.
        let file = tempfile::tempfile().unwrap();
        file.set_len(PAGE).unwrap();
        assert!(Log::new(file, 0, PAGE).is_err());
        let file = memory(PAGE);
        fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SEAL).unwrap();
        assert!(Log::new(file, 0, PAGE).is_err());
        // One that its owner has sealed, as QEMU does, and one that we have.
        let file = memory(PAGE);
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::SEAL).unwrap();
        assert!(Log::new(file, 0, PAGE).is_ok());
        let file = memory(PAGE);
        assert!(Log::new(file.try_clone().unwrap(), 0, PAGE).is_ok());
        assert!(ftruncate(&file, 0).is_err());
    }

    #[test]
    fn marks_go_into_the_log_there_is() {
        let (first, second) = (memory(PAGE), memory(PAGE));
        let log = |file: &File| Log::new(file.try_clone().unwrap(), 0, PAGE).unwrap();
        let dirty = Arc::new(Dirty::default());
        let pages = Pages::new(Arc::clone(&dirty), 4 * PAGE);
        dirty.mark(0, 1);
        dirty.set(Some(log(&first)));
        dirty.mark(PAGE, 1);
        assert_eq!(bits(&first, 0, 1), [0], "it is not kept yet");
        dirty.keep(true);
        pages.slice_at(10).mark_dirty(0, 1);
        assert!(pages.dirty_at(0) && !pages.dirty_at(4096));
        assert_eq!(bits(&first, 0, 1), [0x10]);
        dirty.set(Some(log(&second)));
        dirty.mark(2 * PAGE, 1);
        dirty.keep(false);
        dirty.mark(3 * PAGE, 1);
        assert_eq!(
            (bits(&first, 0, 1), bits(&second, 0, 1)),
            (vec![0x10], vec![4])
        );
        assert!(!dirty.log_is(|_| true));
    }
}
