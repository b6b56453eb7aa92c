//! librados and librbd, opened at run time, behind calls that are safe: all of the crate's
//! `unsafe` is below here.
//!
//! The declarations follow `rados/librados.h` and `rbd/librbd.h`, whose interfaces have been
//! the same since Ceph 14.
#![allow(unsafe_code)]

mod aio;
mod changes;
mod cluster;
#[cfg(feature = "bench")]
mod encryption;
mod image;

pub(crate) use aio::{Way, is_librarys_thread};
pub(crate) use changes::Changes;
pub use cluster::has_clients;
pub(crate) use cluster::{Cluster, Pool};
pub(crate) use image::{Handle, Setting, Source};

use std::ffi::{CString, c_char, c_int, c_void};
use std::io;
use std::sync::OnceLock;

use libloading::Library;

/// The libraries by their ABI, and the Debian package that has both.
const RADOS: &str = "librados.so.2";
const RBD: &str = "librbd.so.1";
const PACKAGE: &str = "librbd1";

/// `rados_t`, `rados_ioctx_t`, `rbd_image_t`, `rbd_completion_t`: pointers to what only the
/// libraries know.
type Opaque = *mut c_void;
/// `rbd_callback_t`.
type Callback = unsafe extern "C" fn(Opaque, *mut c_void);
/// `rbd_update_callback_t`.
type UpdateCallback = unsafe extern "C" fn(*mut c_void);

/// `rbd_image_watcher_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Watcher {
    address: *mut c_char,
    id: i64,
    cookie: u64,
}

/// `rbd_config_option_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ConfigOption {
    name: *mut c_char,
    value: *mut c_char,
    /// `rbd_config_source_t`.
    source: c_int,
}

/// Declares the functions that are needed, as members of a struct that is filled by name.
macro_rules! functions {
    ($($library:ident { $($name:ident($($argument:ty),*) $(-> $value:ty)?;)* })*) => {
        /// The functions, and the libraries that have them, which stay to the end.
        struct Api {
            $($($name: unsafe extern "C" fn($($argument),*) $(-> $value)?,)*)*
        }

        impl Api {
            fn of(rados: &Library, rbd: &Library) -> Result<Self, libloading::Error> {
                let libraries = Libraries { rados, rbd };
                Ok(Self {
                    $($($name: {
                        let name = concat!(stringify!($name), "\0").as_bytes();
                        // SAFETY: the type is the function's in the library's header.
                        *unsafe { libraries.$library.get(name) }?
                    },)*)*
                })
            }
        }
    };
}

struct Libraries<'a> {
    rados: &'a Library,
    rbd: &'a Library,
}

functions! {
    rados {
        rados_create(*mut Opaque, *const c_char) -> c_int;
        rados_conf_read_file(Opaque, *const c_char) -> c_int;
        rados_conf_parse_env(Opaque, *const c_char) -> c_int;
        rados_conf_set(Opaque, *const c_char, *const c_char) -> c_int;
        rados_conf_get(Opaque, *const c_char, *mut c_char, usize) -> c_int;
        rados_connect(Opaque) -> c_int;
        rados_shutdown(Opaque);
        rados_ioctx_create(Opaque, *const c_char, *mut Opaque) -> c_int;
        rados_ioctx_set_namespace(Opaque, *const c_char);
        rados_ioctx_destroy(Opaque);
    }
    rbd {
        rbd_open(Opaque, *const c_char, *mut Opaque, *const c_char) -> c_int;
        rbd_open_read_only(Opaque, *const c_char, *mut Opaque, *const c_char) -> c_int;
        rbd_close(Opaque) -> c_int;
        rbd_get_size(Opaque, *mut u64) -> c_int;
        rbd_get_features(Opaque, *mut u64) -> c_int;
        rbd_get_stripe_unit(Opaque, *mut u64) -> c_int;
        rbd_config_image_list(Opaque, *mut ConfigOption, *mut c_int) -> c_int;
        rbd_config_image_list_cleanup(*mut ConfigOption, c_int);
        rbd_lock_acquire(Opaque, c_int) -> c_int;
        rbd_lock_get_owners(Opaque, *mut c_int, *mut *mut c_char, *mut usize) -> c_int;
        rbd_lock_get_owners_cleanup(*mut *mut c_char, usize);
        rbd_lock_break(Opaque, c_int, *const c_char) -> c_int;
        rbd_is_exclusive_lock_owner(Opaque, *mut c_int) -> c_int;
        rbd_watchers_list(Opaque, *mut Watcher, *mut usize) -> c_int;
        rbd_watchers_list_cleanup(*mut Watcher, usize);
        rbd_update_watch(Opaque, *mut u64, UpdateCallback, *mut c_void) -> c_int;
        rbd_update_unwatch(Opaque, u64) -> c_int;
        rbd_aio_create_completion(*mut c_void, Callback, *mut Opaque) -> c_int;
        rbd_aio_get_return_value(Opaque) -> isize;
        rbd_aio_release(Opaque);
        rbd_aio_read(Opaque, u64, usize, *mut c_char, Opaque) -> c_int;
        rbd_aio_write(Opaque, u64, usize, *const c_char, Opaque) -> c_int;
        rbd_aio_discard(Opaque, u64, u64, Opaque) -> c_int;
        rbd_aio_flush(Opaque, Opaque) -> c_int;
    }
}

/// Loads the libraries, if that has not been done; an error if they are not there.
pub(crate) fn load_libraries() -> io::Result<()> {
    api().map(drop)
}

/// The libraries' functions; loads them the first time.
fn api() -> io::Result<&'static Api> {
    static API: OnceLock<Result<Api, String>> = OnceLock::new();
    let loaded = API.get_or_init(|| load().map_err(|e| e.to_string()));
    loaded.as_ref().map_err(|e| {
        let text = format!("Ceph's library cannot be used (Debian package {PACKAGE}): {e}");
        io::Error::new(io::ErrorKind::Unsupported, text)
    })
}

fn load() -> Result<Api, libloading::Error> {
    // SAFETY: libraries for use by any program; their initialisers have no preconditions.
    let rados = unsafe { Library::new(RADOS) }?;
    // SAFETY: as above.
    let rbd = unsafe { Library::new(RBD) }?;
    let api = Api::of(&rados, &rbd)?;
    // Their threads run to the end of the process.
    std::mem::forget((rados, rbd));
    Ok(api)
}

/// What a function has returned: an errno, negative, or something else.
fn check(returned: c_int) -> io::Result<c_int> {
    match returned {
        0.. => Ok(returned),
        errno => Err(io::Error::from_raw_os_error(errno.saturating_neg())),
    }
}

/// A text for the libraries.
fn text(text: &str) -> io::Result<CString> {
    CString::new(text).map_err(|_| io::ErrorKind::InvalidInput.into())
}
