//! What there is: ciphers, their key lengths, back-ends, and the library's version.
#![allow(unsafe_code)]

use crate::{parse, sector_cipher_result as Code, text};
use ::sector_cipher::{Backend, CipherSpec};
use std::ffi::{CString, c_char, c_int};
use std::ptr;
use std::sync::OnceLock;

/// Version of this header. A program works with every later library whose file has the same number behind
/// its name, `libsector_cipher.so.0`.
pub const SECTOR_CIPHER_VERSION_MAJOR: u32 = 0;
/// See `SECTOR_CIPHER_VERSION_MAJOR`.
pub const SECTOR_CIPHER_VERSION_MINOR: u32 = 1;
/// See `SECTOR_CIPHER_VERSION_MAJOR`.
pub const SECTOR_CIPHER_VERSION_PATCH: u32 = 0;

/// The version of the library in use, such as "0.1.0"; not to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn sector_cipher_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

fn c_strings(names: impl Iterator<Item = String>) -> Vec<CString> {
    names.filter_map(|name| CString::new(name).ok()).collect()
}

fn pointer(names: &[CString], i: usize) -> *const c_char {
    names.get(i).map_or(ptr::null(), |name| name.as_ptr())
}

/// Name number `i`, from 0, of the ciphers that there are; NULL behind the last. Not to be
/// freed.
#[unsafe(no_mangle)]
pub extern "C" fn sector_cipher_name(i: usize) -> *const c_char {
    static NAMES: OnceLock<Vec<CString>> = OnceLock::new();
    let names = NAMES.get_or_init(|| c_strings(CipherSpec::all().map(|spec| spec.to_string())));
    pointer(names, i)
}

/// Key length number `i`, from 0, in bytes, of those that a cipher takes, ascending; 0
/// behind the last, and where no cipher has this name.
///
/// # Safety
/// `name` is NULL or a string with a zero at the end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sector_cipher_key_length(name: *const c_char, i: usize) -> usize {
    // SAFETY: the caller's promise.
    let spec: Option<CipherSpec> = unsafe { text(name) }.ok().and_then(parse);
    let lengths = spec.as_ref().map_or(&[][..], CipherSpec::key_lengths);
    lengths.get(i).copied().unwrap_or(0)
}

/// Whether an attack on a cipher is known that nobody who makes a new volume should accept:
/// 1 or 0, or a negative `sector_cipher_result` where no cipher has this name.
///
/// # Safety
/// `name` is NULL or a string with a zero at the end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sector_cipher_is_broken(name: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { text(name) }.map(parse::<CipherSpec>) {
        Ok(Some(spec)) => c_int::from(spec.mode().is_broken()),
        Ok(None) => Code::UnknownCipher as c_int,
        Err(code) => code as c_int,
    }
}

/// Name number `i`, from 0, of all back-ends, slowest first, whether or not this CPU has
/// them; NULL behind the last. Not to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn sector_cipher_backend_name(i: usize) -> *const c_char {
    static NAMES: OnceLock<Vec<CString>> = OnceLock::new();
    let names = || c_strings(Backend::ALL.iter().map(|backend| backend.to_string()));
    pointer(NAMES.get_or_init(names), i)
}

/// Whether this CPU has a back-end: 1 or 0, or a negative `sector_cipher_result` where no
/// back-end has this name.
///
/// # Safety
/// `backend` is NULL or a string with a zero at the end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sector_cipher_backend_is_supported(backend: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { text(backend) }.map(parse::<Backend>) {
        Ok(Some(backend)) => c_int::from(backend.is_supported()),
        Ok(None) => Code::UnknownBackend as c_int,
        Err(code) => code as c_int,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::ffi::CStr;

    fn all(name: impl Fn(usize) -> *const c_char) -> Vec<String> {
        (0..)
            .map(name)
            .take_while(|name| !name.is_null())
            // SAFETY: strings of ours.
            .map(|name| unsafe { CStr::from_ptr(name) }.to_str().unwrap().to_owned())
            .collect()
    }

    #[allow(clippy::redundant_closure, reason = "C functions are no closures")]
    #[test]
    fn what_c_sees_is_what_rust_has() {
        let specs: Vec<CipherSpec> = CipherSpec::all().collect();
        let names = all(|i| sector_cipher_name(i));
        assert_eq!(names.len(), specs.len());
        for (name, spec) in names.iter().zip(&specs) {
            assert_eq!(*name, spec.to_string());
            let name = CString::new(name.as_str()).unwrap();
            // SAFETY: a string.
            let length = |i| unsafe { sector_cipher_key_length(name.as_ptr(), i) };
            let lengths: Vec<usize> = (0..).map(length).take_while(|&len| len != 0).collect();
            assert_eq!(lengths, spec.key_lengths());
            // SAFETY: as above.
            let broken = unsafe { sector_cipher_is_broken(name.as_ptr()) };
            assert_eq!(broken, c_int::from(spec.mode().is_broken()));
        }
        let backends = all(|i| sector_cipher_backend_name(i));
        assert_eq!(backends.len(), Backend::ALL.len());
        for (name, backend) in backends.iter().zip(Backend::ALL) {
            assert_eq!(*name, backend.name());
            let name = CString::new(name.as_str()).unwrap();
            // SAFETY: a string.
            let supported = unsafe { sector_cipher_backend_is_supported(name.as_ptr()) };
            assert_eq!(supported, c_int::from(backend.is_supported()));
        }
        // SAFETY: strings, and NULL.
        unsafe {
            assert_eq!(sector_cipher_key_length(c"aes".as_ptr(), 0), 0);
            assert_eq!(sector_cipher_key_length(ptr::null(), 0), 0);
            assert_eq!(sector_cipher_is_broken(c"aes".as_ptr()), -2);
            assert_eq!(sector_cipher_is_broken(ptr::null()), -1);
            assert_eq!(sector_cipher_backend_is_supported(c"gpu".as_ptr()), -5);
        }
    }

    /// The text of the error about key lengths, which has them by kind of cipher.
    #[test]
    fn the_error_names_the_key_lengths() {
        // SAFETY: a string of ours.
        let text = unsafe { CStr::from_ptr(crate::sector_cipher_error_text(-4)) };
        let text = text.to_str().unwrap();
        let mut by_kind = BTreeMap::new();
        for spec in CipherSpec::all() {
            let name = spec.to_string();
            let kind = ["aes-xts", "aes-cbc", "adiantum", "eme2"]
                .into_iter()
                .find(|kind| name.contains(kind))
                .unwrap_or("the others");
            let lengths = spec.key_lengths();
            assert_eq!(*by_kind.entry(kind).or_insert(lengths), lengths, "{name}");
        }
        for (kind, lengths) in by_kind {
            let after = text.split_once(kind).unwrap().1;
            let digits = |c: char| !c.is_ascii_digit();
            let next = after.split(digits).filter(|word| !word.is_empty());
            let named: Vec<usize> = next
                .take(lengths.len())
                .map(|n| n.parse().unwrap())
                .collect();
            assert_eq!(named, lengths, "{kind}");
        }
    }

    #[test]
    fn the_version_is_the_crates() {
        let version = format!(
            "{SECTOR_CIPHER_VERSION_MAJOR}.{SECTOR_CIPHER_VERSION_MINOR}.\
             {SECTOR_CIPHER_VERSION_PATCH}"
        );
        assert_eq!(version, env!("CARGO_PKG_VERSION"));
        // SAFETY: a string of ours.
        let text = unsafe { CStr::from_ptr(sector_cipher_version()) };
        assert_eq!(text.to_str().unwrap(), version);
    }
}
