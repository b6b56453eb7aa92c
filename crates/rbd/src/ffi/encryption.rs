//! librbd's own encryption, to measure against.

use std::ffi::{c_char, c_int, c_void};
use std::io;

use libloading::Library;

use super::{Handle, Opaque, RBD, check, text};

/// `RBD_ENCRYPTION_FORMAT_LUKS2`.
const LUKS2: c_int = 1;

/// `rbd_encryption_luks2_format_options_t`.
#[repr(C)]
struct Options {
    algorithm: c_int,
    passphrase: *const c_char,
    length: usize,
}

type Load = unsafe extern "C" fn(Opaque, c_int, *mut c_void, usize) -> c_int;

impl Handle {
    /// Has librbd decrypt and encrypt from now on.
    pub(crate) fn load_luks2(&self, passphrase: &str) -> io::Result<()> {
        let length = passphrase.len();
        let passphrase = text(passphrase)?;
        let mut options = Options {
            algorithm: 0,
            passphrase: passphrase.as_ptr(),
            length,
        };
        // SAFETY: it is loaded already, and its initialisers have run.
        let library = unsafe { Library::new(RBD) }.map_err(io::Error::other)?;
        // SAFETY: the type is the function's in the library's header.
        let load = unsafe { library.get::<Load>(b"rbd_encryption_load\0") };
        let load = load.map_err(io::Error::other)?;
        // SAFETY: the handle is ours, and the options are of the kind and size that is said.
        check(unsafe {
            load(
                self.raw,
                LUKS2,
                (&raw mut options).cast(),
                size_of::<Options>(),
            )
        })
        .map(drop)
    }
}
