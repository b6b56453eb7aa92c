//! Notices that an image has changed: its size, its snapshots, its features.

use std::ffi::c_void;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{Way, check};

/// What a change calls.
type Hear = Box<dyn Fn() + Send + Sync>;

/// Has changes of an image told, until it is dropped; not on one of the library's threads, for which that
/// waits.
pub(crate) struct Changes {
    way: Way,
    /// By which the library knows it.
    number: u64,
    /// What it calls.
    hear: *mut Hear,
}

// SAFETY: what the pointer leads to may be called by any thread, and is freed by one.
unsafe impl Send for Changes {}
// SAFETY: nothing is done by way of a shared reference.
unsafe impl Sync for Changes {}

impl Changes {
    /// Calls `hear` on the library's threads.
    pub(crate) fn tell(way: Way, hear: Hear) -> io::Result<Self> {
        let hear = Box::into_raw(Box::new(hear));
        let handle = way.handle();
        let (watch, image) = (handle.api().rbd_update_watch, handle.raw);
        let mut number = 0;
        // SAFETY: the image is good, and the place for the number for the call; what it will be
        // called with is there until the library has let go of it.
        let watched = check(unsafe { watch(image, &raw mut number, changed, hear.cast()) });
        if let Err(error) = watched {
            // SAFETY: it was made above, and the library has not taken it.
            drop(unsafe { Box::from_raw(hear) });
            return Err(error);
        }
        Ok(Self { way, number, hear })
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        let handle = self.way.handle();
        let unwatch = handle.api().rbd_update_unwatch;
        // SAFETY: the image is good, and the number one that it gave.
        match check(unsafe { unwatch(handle.raw, self.number) }) {
            // SAFETY: it was made for this, and nobody has it: the library has waited for its calls.
            Ok(_) => drop(unsafe { Box::from_raw(self.hear) }),
            Err(error) => tracing::warn!(%error, "an image's changes are still listened to"),
        }
    }
}

/// The image has changed.
///
/// # Safety
/// `hear` is what [`Changes::tell`] made, and is not freed before this returns.
unsafe extern "C" fn changed(hear: *mut c_void) {
    // SAFETY: by the contract of this function.
    let hear = unsafe { &*hear.cast::<Hear>() };
    // What panics has been reported, and goes no further: above is C.
    let _ = catch_unwind(AssertUnwindSafe(hear));
}
