//! Anonymous pages of their own for each secret. The only unsafe code of the
//! crate: mapping, and typed access to what was mapped.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Once;

use rustix::mm::{Advice, MapFlags, ProtFlags};
use zeroize::Zeroize;

use crate::Error;

/// Whole zeroed pages that nobody else has, or none at all for length zero.
/// Wiped and unmapped when dropped.
pub(crate) struct Pages {
    start: NonNull<u8>,
    mapped: usize,
}

// SAFETY: the mapping belongs to this value alone; shared access only reads.
unsafe impl Send for Pages {}
// SAFETY: as above: `&Pages` gives out `&[u8]` only.
unsafe impl Sync for Pages {}

impl Pages {
    /// Pages for `len` bytes.
    pub(crate) fn new(len: usize) -> Result<Self, Error> {
        if len == 0 {
            return Ok(Self {
                start: NonNull::dangling(),
                mapped: 0,
            });
        }
        let fail = |errno: rustix::io::Errno| Error {
            len,
            source: errno.into(),
        };
        // Slices longer than isize::MAX are undefined behaviour.
        let mapped = len
            .checked_next_multiple_of(rustix::param::page_size())
            .filter(|&mapped| isize::try_from(mapped).is_ok())
            .ok_or_else(|| fail(rustix::io::Errno::NOMEM))?;
        // SAFETY: a fresh private mapping at an address of the kernel's choice
        // touches no existing memory.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                mapped,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }
        .map_err(fail)?;
        let start =
            NonNull::new(start.cast::<u8>()).ok_or_else(|| fail(rustix::io::Errno::NOMEM))?;
        let pages = Self { start, mapped };
        // SAFETY: advises and locks exactly the mapping made above.
        let (advised, locked) = unsafe {
            (
                rustix::mm::madvise(start.as_ptr().cast(), mapped, Advice::LinuxDontDump),
                rustix::mm::mlock(start.as_ptr().cast(), mapped),
            )
        };
        advised.map_err(fail)?;
        if let Err(errno) = locked {
            warn_unlocked(errno);
        }
        Ok(pages)
    }

    /// The whole mapping.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `mapped` readable, initialised (zeroed by the kernel) bytes
        // live at `start` as long as `self`; length zero allows a dangling
        // pointer. No `&mut` exists while `&self` does.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.mapped) }
    }

    /// The whole mapping.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, writable, and `&mut self` is the only access.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.mapped) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if self.mapped == 0 {
            return;
        }
        self.bytes_mut().zeroize();
        // SAFETY: unmaps exactly what `new` mapped; nothing borrows it any more.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.mapped) };
        debug_assert!(unmapped.is_ok());
    }
}

/// One `T` at the start of pages of its own.
pub(crate) struct Place<T> {
    pages: Pages,
    _owns: PhantomData<T>,
}

impl<T> Place<T> {
    /// Moves `value` in.
    pub(crate) fn new(value: T) -> Result<Self, Error> {
        let mut pages = Pages::new(size_of::<T>())?;
        if size_of::<T>() == 0 {
            pages.start = NonNull::<T>::dangling().cast();
        } else if !pages.start.cast::<T>().is_aligned() {
            // Only types aligned to more than a page.
            return Err(Error {
                len: size_of::<T>(),
                source: std::io::Error::from(std::io::ErrorKind::InvalidInput),
            });
        }
        // SAFETY: the place is aligned (checked), large enough, writable and
        // holds no value yet; for a zero-sized type any aligned non-null
        // pointer will do.
        unsafe { pages.start.cast::<T>().write(value) };
        Ok(Self {
            pages,
            _owns: PhantomData,
        })
    }

    /// The value.
    pub(crate) fn get(&self) -> &T {
        // SAFETY: `new` put a valid `T` there, it stays until `drop`, and
        // there is no `&mut` while `&self` lives.
        unsafe { self.pages.start.cast::<T>().as_ref() }
    }

    /// The value.
    pub(crate) fn get_mut(&mut self) -> &mut T {
        // SAFETY: as in `get`, and `&mut self` is the only access.
        unsafe { self.pages.start.cast::<T>().as_mut() }
    }
}

impl<T> Drop for Place<T> {
    fn drop(&mut self) {
        // SAFETY: the value is valid and not used afterwards; `pages` wipes and
        // unmaps the bytes when it is dropped next.
        unsafe { self.pages.start.cast::<T>().drop_in_place() };
    }
}

/// Says once per process that secrets may reach swap.
fn warn_unlocked(errno: rustix::io::Errno) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing::warn!(
            "cannot lock secret memory ({errno}): keys may reach swap; \
             raise the limit on locked memory (ulimit -l, LimitMEMLOCK=)"
        );
    });
}
