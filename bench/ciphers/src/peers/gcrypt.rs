//! libgcrypt, the system's, loaded at run time.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::{null, null_mut};
use std::rc::Rc;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use sector_cipher::Mode;

use super::{Peer, tweak};
use crate::contestant::{Contestant, Task, UNIT};

const FILE: &str = "libgcrypt.so.20";
const INITIALIZATION_FINISHED: c_int = 38;
const CIPHER_AES128: c_int = 7;
const CIPHER_AES256: c_int = 9;
const MODE_CBC: c_int = 3;
const MODE_XTS: c_int = 13;

type Crypt = unsafe extern "C" fn(*mut c_void, *mut u8, usize, *const u8, usize) -> c_uint;
type Bytes = unsafe extern "C" fn(*mut c_void, *const u8, usize) -> c_uint;

struct Gcrypt {
    check_version: unsafe extern "C" fn(*const c_char) -> *const c_char,
    open: unsafe extern "C" fn(*mut *mut c_void, c_int, c_int, c_uint) -> c_uint,
    close: unsafe extern "C" fn(*mut c_void),
    setkey: Bytes,
    setiv: Bytes,
    encrypt: Crypt,
    decrypt: Crypt,
    _library: Library,
}

pub(super) fn peer() -> Result<Peer, String> {
    let gcrypt = Rc::new(Gcrypt::load()?);
    // SAFETY: null asks for the version, which is text for good; the library
    // demands this call before others.
    let version = unsafe {
        let version = (gcrypt.check_version)(null());
        CStr::from_ptr(version).to_string_lossy().into_owned()
    };
    Ok(Peer::new(format!("libgcrypt {version}"), move |task| {
        Sectors::new(gcrypt.clone(), task)
    }))
}

impl Gcrypt {
    fn load() -> Result<Self, String> {
        let missing = |error| format!("libgcrypt is left out: {error}");
        // SAFETY: the C library's constructors run, as in any program that
        // links it; the names stand for functions of these types.
        unsafe {
            let library = Library::open(Some(FILE), RTLD_NOW | RTLD_LOCAL).map_err(missing)?;
            let gcrypt = Self {
                check_version: *library.get(b"gcry_check_version").map_err(missing)?,
                open: *library.get(b"gcry_cipher_open").map_err(missing)?,
                close: *library.get(b"gcry_cipher_close").map_err(missing)?,
                setkey: *library.get(b"gcry_cipher_setkey").map_err(missing)?,
                setiv: *library.get(b"gcry_cipher_setiv").map_err(missing)?,
                encrypt: *library.get(b"gcry_cipher_encrypt").map_err(missing)?,
                decrypt: *library.get(b"gcry_cipher_decrypt").map_err(missing)?,
                _library: library,
            };
            (gcrypt.check_version)(null());
            let control: unsafe extern "C" fn(c_int, ...) -> c_uint =
                *gcrypt._library.get(b"gcry_control").map_err(missing)?;
            control(INITIALIZATION_FINISHED, 0 as c_int);
            Ok(gcrypt)
        }
    }
}

struct Sectors {
    gcrypt: Rc<Gcrypt>,
    handle: *mut c_void,
    sector: usize,
}

impl Sectors {
    fn new(gcrypt: Rc<Gcrypt>, task: &Task) -> Option<Self> {
        let algorithm = match task.aes_bits()? {
            128 => CIPHER_AES128,
            256 => CIPHER_AES256,
            _ => return None,
        };
        let mode = match task.spec.mode() {
            Mode::AesXts => MODE_XTS,
            Mode::AesCbc => MODE_CBC,
            _ => return None,
        };
        let key = task.key();
        let mut handle = null_mut();
        // SAFETY: the handle goes where there is room for it, and is used only
        // if it could be made; the key is as long as it says.
        let ready = unsafe {
            (gcrypt.open)(&mut handle, algorithm, mode, 0) == 0
                && (gcrypt.setkey)(handle, key.as_ptr(), key.len()) == 0
        };
        ready.then_some(Self {
            gcrypt,
            handle,
            sector: task.sector,
        })
    }
}

impl Contestant for Sectors {
    fn crypt(&mut self, encrypt: bool, first: u64, data: &mut [u8]) {
        let crypt = if encrypt {
            self.gcrypt.encrypt
        } else {
            self.gcrypt.decrypt
        };
        let numbers = (first..).step_by(self.sector / UNIT);
        for (sector, number) in data.chunks_exact_mut(self.sector).zip(numbers) {
            let iv = tweak::<16>(number);
            // SAFETY: the handle is open and has its key; no source means in
            // place.
            let done = unsafe {
                (self.gcrypt.setiv)(self.handle, iv.as_ptr(), iv.len()) == 0
                    && crypt(self.handle, sector.as_mut_ptr(), sector.len(), null(), 0) == 0
            };
            assert!(done, "a sector was refused");
        }
    }
}

impl Drop for Sectors {
    fn drop(&mut self) {
        // SAFETY: the handle is open, and this is the end.
        unsafe { (self.gcrypt.close)(self.handle) };
    }
}
