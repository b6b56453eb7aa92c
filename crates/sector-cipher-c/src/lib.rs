//! The C interface of `sector-cipher`: `sector_cipher.h` is made from this
//! file, its comments included.
//!
//! Whatever the caller can get wrong and C can see is an error code, given
//! before a byte is changed. A panic would be a bug and aborts the process: it
//! cannot pass an `extern "C"` function.
#![allow(unsafe_code)]

#[cfg(test)]
mod hostile;
mod names;
mod overlap;

use ::sector_cipher::{
    Backend, Cipher, CipherSpec, First, NewError, Run, RunError, SectorCount, SectorSize,
};
use std::ffi::{CStr, CString, c_char, c_int};
use std::{ptr, slice};
use xtent_secret::{KeyedError, SecretCipher};

pub use names::*;

/// The longest key that a cipher takes.
const MAX_KEY: usize = 64;

/// Segments handed over together.
const SEGMENTS: usize = 64;

/// What a call came to: zero, or a negative number. After an error nothing has
/// been changed.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub enum sector_cipher_result {
    /// Done.
    Ok = 0,
    /// A pointer is null that must not be.
    Null = -1,
    /// No cipher has this name.
    UnknownCipher = -2,
    /// Sectors have 512, 1024, 2048 or 4096 bytes.
    SectorSize = -3,
    /// The cipher takes no key of this length.
    KeyLength = -4,
    /// No back-end has this name.
    UnknownBackend = -5,
    /// This CPU lacks what the back-end needs.
    UnsupportedBackend = -6,
    /// The system gives no memory for the key.
    NoMemory = -7,
    /// The length is not one of whole sectors.
    Length = -8,
    /// The first sector number is not at the start of a sector.
    FirstSector = -9,
    /// Source and destination overlap without being the same, or two segments do.
    Overlap = -10,
    /// The run goes beyond sector 2^64 - 1.
    BeyondLast = -11,
}

use sector_cipher_result as Code;

/// A keyed cipher with a sector size. Its key schedule is in pages of its own,
/// which are locked against swap (as far as the limit on locked memory allows)
/// and left out of core dumps, and is wiped by `sector_cipher_free`.
///
/// Several threads may encrypt and decrypt with it at the same time. Nothing
/// else may go on during `sector_cipher_rekey` and `sector_cipher_free`.
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct sector_cipher {
    cipher: SecretCipher,
    /// The back-end's name.
    backend: CString,
}

/// One of several runs that are handed over together.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct sector_cipher_segment {
    /// Number of the first sector, in 512-byte units whatever the sector size.
    pub first: u64,
    /// Whole sectors, in place.
    pub data: *mut u8,
    /// How many bytes.
    pub len: usize,
}

/// Makes a cipher and puts it at `*cipher`; after an error there is NULL.
///
/// `name` is dm-crypt's, such as "aes-xts-plain64". `large_iv` says that IVs
/// count whole sectors (dm-crypt's `iv_large_sectors`) instead of 512-byte
/// units. `backend` is "portable", "aes-ni" and so on, or NULL for the fastest
/// one. The key is not needed afterwards: wipe it.
///
/// "capi:xcb(aes)-plain64" is broken (ePrint 2024/1554) and not refused, because
/// there may be volumes that have it: do not make new ones.
///
/// # Safety
/// `cipher` is writable, `name` and, if not null, `backend` are strings with a
/// zero at the end, and `key` is readable for `key_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sector_cipher_new(
    cipher: *mut *mut sector_cipher,
    name: *const c_char,
    sector_size: u32,
    large_iv: bool,
    key: *const u8,
    key_len: usize,
    backend: *const c_char,
) -> sector_cipher_result {
    if cipher.is_null() {
        return Code::Null;
    }
    let make = || {
        // SAFETY: the caller's promise.
        let spec = unsafe { text(name) }?;
        let spec: CipherSpec = parse(spec).ok_or(Code::UnknownCipher)?;
        let size = SectorSize::new(sector_size).map_err(|_| Code::SectorSize)?;
        let count = if large_iv {
            SectorCount::Large
        } else {
            SectorCount::Units512
        };
        let backend: Option<Backend> = if backend.is_null() {
            None
        } else {
            // SAFETY: as above.
            let backend = unsafe { text(backend) }?;
            Some(parse(backend).ok_or(Code::UnknownBackend)?)
        };
        // Nothing that long is looked at.
        if key_len > MAX_KEY {
            return Err(Code::KeyLength);
        }
        // SAFETY: as above.
        let key = unsafe { bytes(key, key_len) }?;
        let keyed = SecretCipher::keyed(spec, size, count, key, backend);
        let cipher = keyed.map_err(|error| match error {
            KeyedError::Cipher(NewError::KeyLength(_)) => Code::KeyLength,
            KeyedError::Cipher(_) => Code::UnsupportedBackend,
            KeyedError::Memory(_) => Code::NoMemory,
        })?;
        let backend = CString::new(cipher.backend().name()).unwrap_or_default();
        Ok(Box::into_raw(Box::new(sector_cipher { cipher, backend })))
    };
    let (made, code) = match make() {
        Ok(made) => (made, Code::Ok),
        Err(code) => (ptr::null_mut(), code),
    };
    // SAFETY: not null, and the caller's promise.
    unsafe { cipher.write(made) };
    code
}

/// Replaces the key, by one of the same length or of another that the cipher
/// takes. The old one is wiped; after an error it is still in use.
///
/// # Safety
/// `cipher` is from `sector_cipher_new`, and no other thread uses it; `key` is
/// readable for `key_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sector_cipher_rekey(
    cipher: *mut sector_cipher,
    key: *const u8,
    key_len: usize,
) -> sector_cipher_result {
    // SAFETY: the caller's promise: null, or a cipher of ours that nobody else uses.
    let Some(cipher) = (unsafe { cipher.as_mut() }) else {
        return Code::Null;
    };
    // Nothing that long is looked at.
    if key_len > MAX_KEY {
        return Code::KeyLength;
    }
    // SAFETY: the caller's promise.
    match unsafe { bytes(key, key_len) }.map(|key| cipher.cipher.rekey(key)) {
        Ok(Ok(())) => Code::Ok,
        Ok(Err(_)) => Code::KeyLength,
        Err(code) => code,
    }
}

/// The name of the back-end in use; NULL for NULL. It goes with the cipher.
///
/// # Safety
/// `cipher` is null or from `sector_cipher_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sector_cipher_backend(cipher: *const sector_cipher) -> *const c_char {
    // SAFETY: the caller's promise.
    let Some(cipher) = (unsafe { cipher.as_ref() }) else {
        return ptr::null();
    };
    cipher.backend.as_ptr()
}

/// Wipes and frees a cipher. NULL is left alone.
///
/// # Safety
/// `cipher` is null or from `sector_cipher_new`, and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sector_cipher_free(cipher: *mut sector_cipher) {
    if !cipher.is_null() {
        // SAFETY: the caller's promise: it came from `Box::into_raw`.
        drop(unsafe { Box::from_raw(cipher) });
    }
}

/// Overwrites what calls with this cipher from the same function, or from
/// functions that it called, have left on the stack, some of which depends on
/// the key. Once after a request is enough.
///
/// # Safety
/// `cipher` is NULL or from `sector_cipher_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sector_cipher_wipe_stack(cipher: *const sector_cipher) {
    // SAFETY: the caller's promise.
    if let Some(cipher) = unsafe { cipher.as_ref() } {
        cipher.cipher.wipe_stack();
    }
}

/// Encrypts a run of sectors in place. `first` is the number of its first
/// sector in 512-byte units, whatever the sector size; `len` is in bytes.
///
/// # Safety
/// `cipher` is from `sector_cipher_new`; `data` is readable and writable for
/// `len` bytes, and no other thread uses them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sector_cipher_encrypt(
    cipher: *const sector_cipher,
    first: u64,
    data: *mut u8,
    len: usize,
) -> sector_cipher_result {
    // SAFETY: the caller's promise.
    unsafe { run(cipher, first, data, len, Cipher::try_encrypt) }
}

/// Decrypts a run of sectors in place.
///
/// # Safety
/// As for `sector_cipher_encrypt`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sector_cipher_decrypt(
    cipher: *const sector_cipher,
    first: u64,
    data: *mut u8,
    len: usize,
) -> sector_cipher_result {
    // SAFETY: the caller's promise.
    unsafe { run(cipher, first, data, len, Cipher::try_decrypt) }
}

/// Encrypts a run of sectors from `source` to `dest`, which are the same or do
/// not overlap.
///
/// # Safety
/// `cipher` is from `sector_cipher_new`; `source` is readable and `dest`
/// writable for `len` bytes, and no other thread writes to the former or uses
/// the latter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sector_cipher_encrypt_to(
    cipher: *const sector_cipher,
    first: u64,
    source: *const u8,
    dest: *mut u8,
    len: usize,
) -> sector_cipher_result {
    let (in_place, between) = (Cipher::try_encrypt, Cipher::try_encrypt_to);
    // SAFETY: the caller's promise.
    unsafe { run_between(cipher, first, source, dest, len, in_place, between) }
}

/// Decrypts a run of sectors from `source` to `dest`.
///
/// # Safety
/// As for `sector_cipher_encrypt_to`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sector_cipher_decrypt_to(
    cipher: *const sector_cipher,
    first: u64,
    source: *const u8,
    dest: *mut u8,
    len: usize,
) -> sector_cipher_result {
    let (in_place, between) = (Cipher::try_decrypt, Cipher::try_decrypt_to);
    // SAFETY: the caller's promise.
    unsafe { run_between(cipher, first, source, dest, len, in_place, between) }
}

/// Encrypts several runs together, in place: scattered single sectors are then
/// as fast as one run of as many. All are checked before the first is changed; segments that
/// overlap are refused.
///
/// # Safety
/// `cipher` is from `sector_cipher_new`; `segments` is readable for `count` of
/// them, and no other thread writes to it; what they name is readable and
/// writable, and no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sector_cipher_encrypt_segments(
    cipher: *const sector_cipher,
    segments: *const sector_cipher_segment,
    count: usize,
) -> sector_cipher_result {
    // SAFETY: the caller's promise.
    unsafe { run_segments(cipher, segments, count, Cipher::try_encrypt_runs) }
}

/// Decrypts several runs together, in place.
///
/// # Safety
/// As for `sector_cipher_encrypt_segments`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sector_cipher_decrypt_segments(
    cipher: *const sector_cipher,
    segments: *const sector_cipher_segment,
    count: usize,
) -> sector_cipher_result {
    // SAFETY: the caller's promise.
    unsafe { run_segments(cipher, segments, count, Cipher::try_decrypt_runs) }
}

/// What a result means, in English. Any number will do. Not to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn sector_cipher_error_text(result: c_int) -> *const c_char {
    let text = match result {
        0 => c"no error",
        -1 => c"a pointer is null that must not be",
        -2 => c"no cipher has this name: sector_cipher_name lists them",
        -3 => c"sectors have 512, 1024, 2048 or 4096 bytes",
        -4 => {
            c"the cipher takes no key of this length: aes-xts takes 32 or 64 bytes, \
              aes-cbc 16, 24 or 32, adiantum 32, eme2 48 or 64, the others 16 or 32"
        }
        -5 => c"no back-end has this name: sector_cipher_backend_name lists them",
        -6 => c"this CPU lacks what the back-end needs",
        -7 => c"the system gives no memory for the key",
        -8 => c"the length is not one of whole sectors",
        -9 => c"the first sector number is not at the start of a sector",
        -10 => c"source and destination, or two segments, overlap",
        -11 => c"the run goes beyond sector 2^64 - 1",
        _ => c"unknown error",
    };
    text.as_ptr()
}

/// A string from C; what is not UTF-8 has no meaning here, as the empty string.
///
/// # Safety
/// It is null, or has a zero at the end.
unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, Code> {
    if text.is_null() {
        return Err(Code::Null);
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { CStr::from_ptr(text) }.to_str().unwrap_or_default())
}

fn parse<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

/// Bytes to read.
///
/// # Safety
/// Where not null they are readable, and nobody writes to them.
unsafe fn bytes<'a>(start: *const u8, len: usize) -> Result<&'a [u8], Code> {
    match (start.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Code::Null),
        // SAFETY: the caller's promise; no object is longer than that.
        _ if isize::try_from(len).is_ok() => Ok(unsafe { slice::from_raw_parts(start, len) }),
        _ => Err(Code::Length),
    }
}

/// Bytes to change.
///
/// # Safety
/// Where not null they are readable and writable, and nobody else uses them.
unsafe fn bytes_mut<'a>(start: *mut u8, len: usize) -> Result<&'a mut [u8], Code> {
    match (start.is_null(), len) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(Code::Null),
        // SAFETY: the caller's promise; no object is longer than that.
        _ if isize::try_from(len).is_ok() => Ok(unsafe { slice::from_raw_parts_mut(start, len) }),
        _ => Err(Code::Length),
    }
}

/// The cipher.
///
/// # Safety
/// It is null or one of ours.
unsafe fn cipher_of<'a>(cipher: *const sector_cipher) -> Result<&'a Cipher, Code> {
    // SAFETY: the caller's promise.
    Ok(&unsafe { cipher.as_ref() }.ok_or(Code::Null)?.cipher)
}

impl From<RunError> for Code {
    fn from(error: RunError) -> Self {
        match error {
            RunError::FirstSector { .. } => Self::FirstSector,
            RunError::BeyondLast { .. } => Self::BeyondLast,
            // Buffers have one length in C.
            _ => Self::Length,
        }
    }
}

fn code(result: Result<(), Code>) -> sector_cipher_result {
    result.err().unwrap_or(Code::Ok)
}

/// # Safety
/// As for `sector_cipher_encrypt`.
unsafe fn run(
    cipher: *const sector_cipher,
    first: u64,
    data: *mut u8,
    len: usize,
    work: impl Fn(&Cipher, First, &mut [u8]) -> Result<(), RunError>,
) -> sector_cipher_result {
    let all = || {
        // SAFETY: the caller's promise.
        let (cipher, data) = unsafe { (cipher_of(cipher)?, bytes_mut(data, len)?) };
        Ok(work(cipher, First::Units512(first), data)?)
    };
    code(all())
}

/// # Safety
/// As for `sector_cipher_encrypt_to`.
unsafe fn run_between(
    cipher: *const sector_cipher,
    first: u64,
    source: *const u8,
    dest: *mut u8,
    len: usize,
    in_place: impl Fn(&Cipher, First, &mut [u8]) -> Result<(), RunError>,
    between: impl Fn(&Cipher, First, &[u8], &mut [u8]) -> Result<(), RunError>,
) -> sector_cipher_result {
    if ptr::eq(source, dest) {
        // SAFETY: the caller's promise.
        return unsafe { run(cipher, first, dest, len, in_place) };
    }
    let work = || {
        // SAFETY: the caller's promise.
        let cipher = unsafe { cipher_of(cipher) }?;
        if len != 0 && (source.is_null() || dest.is_null()) {
            return Err(Code::Null);
        }
        if source.addr().abs_diff(dest.addr()) < len {
            return Err(Code::Overlap);
        }
        // SAFETY: as above, and they do not overlap.
        let (source, dest) = unsafe { (bytes(source, len)?, bytes_mut(dest, len)?) };
        Ok(between(cipher, First::Units512(first), source, dest)?)
    };
    code(work())
}

/// # Safety
/// As for `sector_cipher_encrypt_segments`.
unsafe fn run_segments(
    cipher: *const sector_cipher,
    segments: *const sector_cipher_segment,
    count: usize,
    work: impl Fn(&Cipher, &mut [Run<'_>]) -> Result<(), RunError>,
) -> sector_cipher_result {
    let all = || {
        // SAFETY: the caller's promise.
        let cipher = unsafe { cipher_of(cipher) }?;
        let len = count.checked_mul(size_of::<sector_cipher_segment>());
        let segments = match (segments.is_null(), count) {
            (_, 0) => &[],
            (true, _) => return Err(Code::Null),
            _ if len.is_none_or(|len| isize::try_from(len).is_err()) => return Err(Code::Length),
            // SAFETY: as above; not null, and no longer than an object can be.
            _ => unsafe { slice::from_raw_parts(segments, count) },
        };
        let sector = cipher.sector_size().bytes();
        for segment in segments {
            if segment.data.is_null() && segment.len != 0 {
                return Err(Code::Null);
            }
            // Powers of two: no division.
            if segment.len & (sector - 1) != 0 || isize::try_from(segment.len).is_err() {
                return Err(Code::Length);
            }
            First::Units512(segment.first).units(cipher.sector_size())?;
            if (segment.len as u64 / 512).saturating_sub(1) > u64::MAX - segment.first {
                return Err(Code::BeyondLast);
            }
        }
        if overlap::any(segments) {
            return Err(Code::Overlap);
        }
        for some in segments.chunks(SEGMENTS) {
            let mut some = some.iter();
            let mut taken: [Run<'_>; SEGMENTS] = std::array::from_fn(|_| {
                let (first, data): (u64, &mut [u8]) = match some.next() {
                    // SAFETY: as above; they have been checked, and do not overlap.
                    Some(segment) => (segment.first, unsafe {
                        bytes_mut(segment.data, segment.len).unwrap_or(&mut [])
                    }),
                    None => (0, &mut []),
                };
                Run { first, data }
            });
            work(cipher, &mut taken)?;
        }
        Ok(())
    };
    code(all())
}
