//! Operations under way. The library has their memory until it calls back on a thread of its own.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use xtent_store::Buffer;

use super::{Handle, Opaque, check};

thread_local! {
    /// Whether this thread is the library's, and is telling an end.
    static TELLING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is one of the library's, for which closing an image waits.
pub(crate) fn is_librarys_thread() -> bool {
    TELLING.get()
}

/// A way to an image for operations; clones are the same one. It waits for none: see [`Way::end`].
#[derive(Clone)]
pub(crate) struct Way {
    handle: Arc<Handle>,
    under_way: Arc<UnderWay>,
}

/// How many operations have not ended.
#[derive(Default)]
struct UnderWay {
    count: Mutex<usize>,
    none: Condvar,
}

impl UnderWay {
    fn begin(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    }

    fn end(&self) {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        *count -= 1;
        if *count == 0 {
            self.none.notify_all();
        }
    }

    fn wait(&self) {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let _none = self.none.wait_while(count, |count| *count > 0);
    }
}

/// An operation under way: what the library has a pointer to.
struct Pending<F> {
    way: Way,
    buffer: Option<Buffer>,
    done: F,
}

impl Way {
    pub(crate) fn new(handle: Handle) -> Self {
        Self {
            handle: Arc::new(handle),
            under_way: Arc::default(),
        }
    }

    /// The image.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Waits until every operation has ended, and closes the image if this is the last way to it.
    /// Not on one of the library's threads.
    pub(crate) fn end(self) {
        self.under_way.wait();
    }

    /// Fills the buffer from `offset` on, and then calls `done` on some thread with the buffer and
    /// what came of it.
    pub(crate) fn read<F>(&self, buffer: Buffer, offset: u64, done: F)
    where
        F: FnOnce(Option<Buffer>, io::Result<usize>) + Send + 'static,
    {
        let start = self.handle.api().rbd_aio_read;
        self.begin(Some(buffer), done, |image, memory, length, completion| {
            // SAFETY: image and completion are good, and the memory is the operation's, who has it
            // alone until it is told of the end.
            unsafe { start(image, offset, length, memory.cast(), completion) }
        });
    }

    /// Writes the buffer; see [`Way::read`].
    pub(crate) fn write<F>(&self, buffer: Buffer, offset: u64, done: F)
    where
        F: FnOnce(Option<Buffer>, io::Result<usize>) + Send + 'static,
    {
        let start = self.handle.api().rbd_aio_write;
        self.begin(Some(buffer), done, |image, memory, length, completion| {
            // SAFETY: as for a read.
            unsafe { start(image, offset, length, memory.cast(), completion) }
        });
    }

    /// Has everything on the disks that was written before; see [`Way::read`].
    pub(crate) fn flush<F>(&self, done: F)
    where
        F: FnOnce(Option<Buffer>, io::Result<usize>) + Send + 'static,
    {
        let start = self.handle.api().rbd_aio_flush;
        self.begin(None, done, |image, _, _, completion| {
            // SAFETY: image and completion are good.
            unsafe { start(image, completion) }
        });
    }

    /// Deallocates; see [`Way::read`].
    pub(crate) fn discard<F>(&self, offset: u64, length: u64, done: F)
    where
        F: FnOnce(Option<Buffer>, io::Result<usize>) + Send + 'static,
    {
        let start = self.handle.api().rbd_aio_discard;
        self.begin(None, done, |image, _, _, completion| {
            // SAFETY: image and completion are good.
            unsafe { start(image, offset, length, completion) }
        });
    }

    /// Gives an operation to the library: `start` is called with the image, the buffer's memory
    /// and length, and the completion.
    fn begin<F>(
        &self,
        mut buffer: Option<Buffer>,
        done: F,
        start: impl FnOnce(Opaque, *mut u8, usize, Opaque) -> c_int,
    ) where
        F: FnOnce(Option<Buffer>, io::Result<usize>) + Send + 'static,
    {
        let (memory, length) = match &mut buffer {
            Some(buffer) => (buffer.as_mut_ptr(), buffer.len()),
            None => (null_mut(), 0),
        };
        let api = self.handle.api();
        self.under_way.begin();
        let pending = Box::into_raw(Box::new(Pending {
            way: self.clone(),
            buffer,
            done,
        }));
        let mut completion = null_mut();
        // SAFETY: the place for the completion is good for the call. What it will be called with
        // is a box of the type that this instance of the function takes.
        let made = check(unsafe {
            (api.rbd_aio_create_completion)(pending.cast(), completed::<F>, &raw mut completion)
        });
        let made = made.map(|_| check(start(self.handle.raw, memory, length, completion)));
        let error = match made {
            Ok(Ok(_)) => return,
            Ok(Err(error)) => {
                // SAFETY: the library refused the operation, and so calls nobody back; the
                // completion is ours, and nobody has it after this.
                unsafe { (api.rbd_aio_release)(completion) };
                error
            }
            Err(error) => error,
        };
        // SAFETY: it was made above, and the library has not taken it.
        let pending = unsafe { Box::from_raw(pending) };
        pending.tell(Err(error));
    }
}

impl<F> Pending<F>
where
    F: FnOnce(Option<Buffer>, io::Result<usize>) + Send + 'static,
{
    /// Tells the end. What panics on the way has been reported, and goes no further: above is C.
    fn tell(self, result: io::Result<usize>) {
        let Self { way, buffer, done } = self;
        let _ = catch_unwind(AssertUnwindSafe(|| done(buffer, result)));
        let Way { handle, under_way } = way;
        // First: whoever waits for the end closes the image, unless somebody else still has it.
        drop(handle);
        under_way.end();
    }
}

/// The library has ended an operation.
///
/// # Safety
/// `pending` is what [`Way::begin`] made for this `F`, and nobody else has or will have it;
/// `completion` is the one that was made with it.
unsafe extern "C" fn completed<F>(completion: Opaque, pending: *mut c_void)
where
    F: FnOnce(Option<Buffer>, io::Result<usize>) + Send + 'static,
{
    // SAFETY: by the contract of this function, which the library keeps by calling back once.
    let pending = unsafe { Box::from_raw(pending.cast::<Pending<F>>()) };
    let api = pending.way.handle.api();
    // SAFETY: the operation has ended.
    let returned = unsafe { (api.rbd_aio_get_return_value)(completion) };
    // SAFETY: the completion is ours, and nobody has it after this.
    unsafe { (api.rbd_aio_release)(completion) };
    let result = usize::try_from(returned).map_err(|_| {
        let errno = c_int::try_from(returned.saturating_neg()).unwrap_or(c_int::MAX);
        io::Error::from_raw_os_error(errno)
    });
    TELLING.set(true);
    pending.tell(result);
    TELLING.set(false);
}
