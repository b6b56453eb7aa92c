//! OpenSSL and AWS-LC through their EVP interface: OpenSSL as built into this
//! program, AWS-LC likewise, and the system's OpenSSL, loaded at run time.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::rc::Rc;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use sector_cipher::Mode;

use super::{Peer, tweak};
use crate::contestant::{Contestant, Task, UNIT};

/// `RTLD_DEEPBIND` of glibc: a library finds its own symbols first, so that
/// two versions of OpenSSL in one process stay apart.
#[cfg(target_env = "gnu")]
const DEEPBIND: c_int = 8;
#[cfg(not(target_env = "gnu"))]
const DEEPBIND: c_int = 0;

/// The functions in use, the same in all of them.
///
/// # Safety
///
/// Implementations pass the arguments on to functions of these names.
unsafe trait Evp {
    fn ctx_new(&self) -> *mut c_void;
    /// # Safety
    /// `ctx` comes from `ctx_new` and is not used again.
    unsafe fn ctx_free(&self, ctx: *mut c_void);
    /// `EVP_aes_…`, or null.
    fn cipher(&self, name: &str) -> *const c_void;
    /// `EVP_CipherInit_ex`.
    /// # Safety
    /// As documented there.
    unsafe fn init(
        &self,
        ctx: *mut c_void,
        cipher: *const c_void,
        key: *const u8,
        iv: *const u8,
        encrypt: c_int,
    ) -> c_int;
    /// `EVP_CIPHER_CTX_set_padding`, to no padding.
    /// # Safety
    /// As documented there.
    unsafe fn no_padding(&self, ctx: *mut c_void) -> c_int;
    /// `EVP_CipherUpdate`.
    /// # Safety
    /// As documented there.
    unsafe fn update(
        &self,
        ctx: *mut c_void,
        out: *mut u8,
        written: *mut c_int,
        data: *const u8,
        len: c_int,
    ) -> c_int;
}

pub(super) fn all() -> [Result<Peer, String>; 3] {
    [
        openssl(),
        aws_lc(),
        System::load().map(|system| peer(system.version(), system)),
    ]
}

fn peer(name: String, library: impl Evp + 'static) -> Peer {
    let library = Rc::new(library);
    Peer::new(name, move |task| Sectors::new(library.clone(), task))
}

/// Two contexts, with the key for either direction.
struct Sectors<E: Evp> {
    library: Rc<E>,
    encrypt: *mut c_void,
    decrypt: *mut c_void,
    sector: usize,
}

impl<E: Evp> Sectors<E> {
    fn new(library: Rc<E>, task: &Task) -> Option<Self> {
        let name = match (task.spec.mode(), task.aes_bits()?) {
            (Mode::AesXts, 128) => "EVP_aes_128_xts",
            (Mode::AesXts, 256) => "EVP_aes_256_xts",
            (Mode::AesCbc, 128) => "EVP_aes_128_cbc",
            (Mode::AesCbc, 256) => "EVP_aes_256_cbc",
            _ => return None,
        };
        let cipher = library.cipher(name);
        if cipher.is_null() {
            return None;
        }
        let key = task.key();
        let context = |encrypt| {
            let ctx = library.ctx_new();
            assert!(!ctx.is_null(), "out of memory");
            // SAFETY: a new context, a cipher of the library, a key of its
            // length; an IV may follow later.
            let done = unsafe {
                library.init(ctx, cipher, key.as_ptr(), null(), encrypt) == 1
                    && library.no_padding(ctx) == 1
            };
            assert!(done, "{name} takes a key");
            ctx
        };
        Some(Self {
            encrypt: context(1),
            decrypt: context(0),
            sector: task.sector,
            library,
        })
    }
}

impl<E: Evp> Contestant for Sectors<E> {
    fn crypt(&mut self, encrypt: bool, first: u64, data: &mut [u8]) {
        let (ctx, direction) = if encrypt {
            (self.encrypt, 1)
        } else {
            (self.decrypt, 0)
        };
        let numbers = (first..).step_by(self.sector / UNIT);
        for (sector, number) in data.chunks_exact_mut(self.sector).zip(numbers) {
            let iv = tweak::<16>(number);
            let len = c_int::try_from(sector.len()).expect("a sector is small");
            let mut written = 0;
            // SAFETY: the context has its cipher and key; the IV has 16 bytes;
            // the sector is read and written in place, and padding is off.
            let done = unsafe {
                self.library
                    .init(ctx, null(), null(), iv.as_ptr(), direction)
                    == 1
                    && self.library.update(
                        ctx,
                        sector.as_mut_ptr(),
                        &mut written,
                        sector.as_ptr(),
                        len,
                    ) == 1
            };
            assert!(done && written == len, "a sector was refused");
        }
    }
}

impl<E: Evp> Drop for Sectors<E> {
    fn drop(&mut self) {
        for ctx in [self.encrypt, self.decrypt] {
            // SAFETY: made by `ctx_new`, and this is the end.
            unsafe { self.library.ctx_free(ctx) };
        }
    }
}

/// An implementation on a crate of bindings.
#[cfg(any(feature = "openssl", feature = "aws-lc"))]
macro_rules! linked {
    ($name:ident, $sys:ident, $($cipher:ident)*) => {
        struct $name;

        // SAFETY: arguments are passed on as they are.
        unsafe impl Evp for $name {
            fn ctx_new(&self) -> *mut c_void {
                // SAFETY: it takes nothing.
                unsafe { $sys::EVP_CIPHER_CTX_new().cast() }
            }
            unsafe fn ctx_free(&self, ctx: *mut c_void) {
                // SAFETY: as the caller promises.
                unsafe { $sys::EVP_CIPHER_CTX_free(ctx.cast()) }
            }
            fn cipher(&self, name: &str) -> *const c_void {
                $(if name == stringify!($cipher) {
                    // SAFETY: it takes nothing.
                    return unsafe { $sys::$cipher() }.cast();
                })*
                null()
            }
            unsafe fn init(
                &self,
                ctx: *mut c_void,
                cipher: *const c_void,
                key: *const u8,
                iv: *const u8,
                encrypt: c_int,
            ) -> c_int {
                // SAFETY: as the caller promises.
                unsafe {
                    $sys::EVP_CipherInit_ex(ctx.cast(), cipher.cast(), null_mut(), key, iv, encrypt)
                }
            }
            unsafe fn no_padding(&self, ctx: *mut c_void) -> c_int {
                // SAFETY: as the caller promises.
                unsafe { $sys::EVP_CIPHER_CTX_set_padding(ctx.cast(), 0) }
            }
            unsafe fn update(
                &self,
                ctx: *mut c_void,
                out: *mut u8,
                written: *mut c_int,
                data: *const u8,
                len: c_int,
            ) -> c_int {
                // SAFETY: as the caller promises.
                unsafe { $sys::EVP_CipherUpdate(ctx.cast(), out, written, data, len) }
            }
        }
    };
}

/// Text that a library keeps for good.
///
/// # Safety
///
/// `text` is null or a string that nobody changes.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: as the caller promises.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

/// "OpenSSL 3.6.3" of "OpenSSL 3.6.3 9 Jun 2026".
fn short(version: &str) -> String {
    version.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

#[cfg(feature = "openssl")]
linked!(OpenSsl, openssl_sys, EVP_aes_128_xts EVP_aes_256_xts EVP_aes_128_cbc EVP_aes_256_cbc);

#[cfg(feature = "openssl")]
fn openssl() -> Result<Peer, String> {
    // SAFETY: it takes a number and returns text for good.
    let version = unsafe { text(openssl_sys::OpenSSL_version(0)) };
    Ok(peer(short(&version), OpenSsl))
}

#[cfg(not(feature = "openssl"))]
fn openssl() -> Result<Peer, String> {
    Err("OpenSSL is not built in: no feature `openssl`".to_owned())
}

// AWS-LC has no XTS with AES-128.
#[cfg(feature = "aws-lc")]
linked!(AwsLc, aws_lc_sys, EVP_aes_256_xts EVP_aes_128_cbc EVP_aes_256_cbc);

#[cfg(feature = "aws-lc")]
fn aws_lc() -> Result<Peer, String> {
    // SAFETY: it takes a number and returns text for good.
    let version = unsafe { text(aws_lc_sys::OpenSSL_version(0)) };
    Ok(peer(short(&version), AwsLc))
}

#[cfg(not(feature = "aws-lc"))]
fn aws_lc() -> Result<Peer, String> {
    Err("AWS-LC is not built in: no feature `aws-lc`".to_owned())
}

type CipherInit = unsafe extern "C" fn(
    *mut c_void,
    *const c_void,
    *mut c_void,
    *const u8,
    *const u8,
    c_int,
) -> c_int;
type CipherUpdate =
    unsafe extern "C" fn(*mut c_void, *mut u8, *mut c_int, *const u8, c_int) -> c_int;

/// The system's OpenSSL 3.
struct System {
    ctx_new: unsafe extern "C" fn() -> *mut c_void,
    ctx_free: unsafe extern "C" fn(*mut c_void),
    init: CipherInit,
    no_padding: unsafe extern "C" fn(*mut c_void, c_int) -> c_int,
    update: CipherUpdate,
    version: unsafe extern "C" fn(c_int) -> *const c_char,
    library: Library,
}

impl System {
    const FILE: &str = "libcrypto.so.3";

    fn load() -> Result<Self, String> {
        let missing = |error| format!("the system's OpenSSL is left out: {error}");
        // SAFETY: the C library's constructors run, as in any program that
        // links it; the names stand for functions of these types.
        unsafe {
            let library = Library::open(Some(Self::FILE), RTLD_NOW | RTLD_LOCAL | DEEPBIND)
                .map_err(missing)?;
            Ok(Self {
                ctx_new: *library.get(b"EVP_CIPHER_CTX_new").map_err(missing)?,
                ctx_free: *library.get(b"EVP_CIPHER_CTX_free").map_err(missing)?,
                init: *library.get(b"EVP_CipherInit_ex").map_err(missing)?,
                no_padding: *library
                    .get(b"EVP_CIPHER_CTX_set_padding")
                    .map_err(missing)?,
                update: *library.get(b"EVP_CipherUpdate").map_err(missing)?,
                version: *library.get(b"OpenSSL_version").map_err(missing)?,
                library,
            })
        }
    }

    fn version(&self) -> String {
        // SAFETY: it takes a number and returns text for good.
        let version = unsafe { text((self.version)(0)) };
        format!("{} (system)", short(&version))
    }
}

// SAFETY: arguments are passed on as they are.
unsafe impl Evp for System {
    fn ctx_new(&self) -> *mut c_void {
        // SAFETY: it takes nothing.
        unsafe { (self.ctx_new)() }
    }
    unsafe fn ctx_free(&self, ctx: *mut c_void) {
        // SAFETY: as the caller promises.
        unsafe { (self.ctx_free)(ctx) }
    }
    fn cipher(&self, name: &str) -> *const c_void {
        // SAFETY: functions of these names take nothing and return a constant.
        unsafe {
            self.library
                .get::<unsafe extern "C" fn() -> *const c_void>(name.as_bytes())
                .map_or(null(), |cipher| cipher())
        }
    }
    unsafe fn init(
        &self,
        ctx: *mut c_void,
        cipher: *const c_void,
        key: *const u8,
        iv: *const u8,
        encrypt: c_int,
    ) -> c_int {
        // SAFETY: as the caller promises.
        unsafe { (self.init)(ctx, cipher, null_mut(), key, iv, encrypt) }
    }
    unsafe fn no_padding(&self, ctx: *mut c_void) -> c_int {
        // SAFETY: as the caller promises.
        unsafe { (self.no_padding)(ctx, 0) }
    }
    unsafe fn update(
        &self,
        ctx: *mut c_void,
        out: *mut u8,
        written: *mut c_int,
        data: *const u8,
        len: c_int,
    ) -> c_int {
        // SAFETY: as the caller promises.
        unsafe { (self.update)(ctx, out, written, data, len) }
    }
}
