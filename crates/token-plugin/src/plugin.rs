//! cryptsetup's token plugins: `libcryptsetup-token-TYPE.so` in the folder that
//! libcryptsetup names, by the interface in `libcryptsetup.h` ("External LUKS2 token
//! handler"). A plugin asks libcryptsetup for its token's JSON, so it is given a device
//! context of a copy of the metadata in memory.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::ptr::{null, null_mut};

use libloading::Library;
use rustix::fs::MemfdFlags;
use xtent_token::{Outcome, Request};

use crate::{Failure, hand_over};

/// libcryptsetup, by its ABI (cryptsetup 2.0 and later).
const LIBRARY: &str = "libcryptsetup.so.12";
/// `CRYPT_LUKS2`.
const LUKS2: &CStr = c"LUKS2";
/// `CRYPT_LOG_ERROR`.
const LOG_ERROR: c_int = 1;
/// `CRYPT_LOG_DEBUG`.
const LOG_DEBUG: c_int = -1;
/// `CRYPT_DEBUG_ALL`.
const DEBUG_ALL: c_int = -1;

/// Both copies of the metadata, 4 MiB each at most, and 128 MiB of keyslots, rounded up.
const LONGEST_METADATA: u64 = 256 << 20;

/// `struct crypt_device`.
type Context = *mut c_void;
type Init = unsafe extern "C" fn(*mut Context, *const c_char) -> c_int;
type Load = unsafe extern "C" fn(Context, *const c_char, *mut c_void) -> c_int;
type Locking = unsafe extern "C" fn(Context, c_int) -> c_int;
type LogCallback = unsafe extern "C" fn(c_int, *const c_char, *mut c_void);
type SetLog = unsafe extern "C" fn(Context, LogCallback, *mut c_void);
type SetDebug = unsafe extern "C" fn(c_int);
type ExternalPath = unsafe extern "C" fn() -> *const c_char;

/// `cryptsetup_token_open_func`.
type Open =
    unsafe extern "C" fn(Context, c_int, *mut *mut c_char, *mut usize, *mut c_void) -> c_int;
/// `cryptsetup_token_open_pin_func`.
type OpenPin = unsafe extern "C" fn(
    Context,
    c_int,
    *const c_char,
    usize,
    *mut *mut c_char,
    *mut usize,
    *mut c_void,
) -> c_int;
/// `cryptsetup_token_validate_func`.
type Validate = unsafe extern "C" fn(Context, *const c_char) -> c_int;

/// What the plugin `systemd-tpm2` takes as its user pointer (systemd's
/// `luks2-tpm2.h`; later versions have more members behind these).
#[repr(C)]
struct Tpm2Parameters {
    search_pcr_mask: u32,
    device: *const c_char,
    signature_path: *const c_char,
    /// Since systemd 255; earlier ones do not read it.
    pcrlock_path: *const c_char,
}

/// A token with the plugin that opens it, ready.
///
/// The libraries and the context stay until the process ends: nothing is gained by
/// undoing what the next instruction undoes.
pub(crate) struct Plugin {
    library: Library,
    context: Context,
    token: c_int,
    kind: String,
    json: CString,
    tpm2_device: Option<CString>,
    // libcryptsetup may open the path below /proc/self again.
    _header: OwnedFd,
}

/// Loads libcryptsetup, the metadata and the plugin. Executes no plugin's code but its
/// initialisers.
pub(crate) fn load(request: &Request) -> Result<Plugin, Failure> {
    if !request.verbose {
        // tpm2-tss writes lines of its own for what systemd's plugin says in words.
        // SAFETY: this process has one thread.
        unsafe { std::env::set_var("TSS2_LOG", "all+none") };
    }
    let unsupported = |message: String| Failure::new(Outcome::Unsupported, message);
    if !xtent_token::is_plugin_name(&request.kind) {
        return Err(unsupported("a token of this type has no plugin".into()));
    }
    // SAFETY: libcryptsetup is a library for use by any program; its initialisers have no
    // preconditions.
    let cryptsetup = unsafe { Library::new(LIBRARY) }.map_err(|e| {
        unsupported(format!(
            "{LIBRARY} cannot be loaded (Debian package libcryptsetup12): {e}"
        ))
    })?;
    let api = Api::of(&cryptsetup)?;
    let path = api
        .folder()?
        .join(format!("libcryptsetup-token-{}.so", request.kind));
    if !path.exists() {
        return Err(unsupported(format!(
            "there is no plugin for tokens of type {}: {} is not there",
            request.kind,
            path.display()
        )));
    }
    let header = memory_file(request)?;
    let context = api.context(&header, request.verbose)?;
    // SAFETY: a plugin in libcryptsetup's own folder, made to be loaded by any program that
    // uses libcryptsetup.
    let library = unsafe { Library::new(&path) }
        .map_err(|e| unsupported(format!("{} cannot be loaded: {e}", path.display())))?;
    // Used by its context until the end.
    std::mem::forget(cryptsetup);
    let text = |text: &str| {
        CString::new(text).map_err(|_| Failure::failed("the request has a NUL in a text"))
    };
    Ok(Plugin {
        library,
        context,
        token: c_int::try_from(request.token)
            .map_err(|_| Failure::failed("there is no token of this number"))?,
        kind: request.kind.clone(),
        json: text(request.json.get())?,
        tpm2_device: request.tpm2_device.as_deref().map(text).transpose()?,
        _header: header,
    })
}

/// The functions of libcryptsetup that are needed.
struct Api {
    init: Init,
    load: Load,
    locking: Locking,
    set_log: SetLog,
    set_debug: SetDebug,
    external_path: ExternalPath,
}

impl Api {
    fn of(library: &Library) -> Result<Self, Failure> {
        let missing = |e| {
            Failure::new(
                Outcome::Unsupported,
                format!("{LIBRARY} is older than cryptsetup 2.4, which has no plugins: {e}"),
            )
        };
        // SAFETY: the types are those of `libcryptsetup.h`, which its versioned symbols
        // promise to keep.
        unsafe {
            Ok(Self {
                init: *library.get::<Init>(b"crypt_init\0").map_err(missing)?,
                load: *library.get::<Load>(b"crypt_load\0").map_err(missing)?,
                locking: *library
                    .get::<Locking>(b"crypt_metadata_locking\0")
                    .map_err(missing)?,
                set_log: *library
                    .get::<SetLog>(b"crypt_set_log_callback\0")
                    .map_err(missing)?,
                set_debug: *library
                    .get::<SetDebug>(b"crypt_set_debug_level\0")
                    .map_err(missing)?,
                external_path: *library
                    .get::<ExternalPath>(b"crypt_token_external_path\0")
                    .map_err(missing)?,
            })
        }
    }

    /// Where the plugins are.
    fn folder(&self) -> Result<PathBuf, Failure> {
        // SAFETY: no arguments; returns NULL or a string that lives as long as the library.
        let path = unsafe { (self.external_path)() };
        if path.is_null() {
            return Err(Failure::new(
                Outcome::Unsupported,
                "this libcryptsetup was built without plugins",
            ));
        }
        // SAFETY: a terminated string, as above.
        let path = unsafe { CStr::from_ptr(path) };
        Ok(PathBuf::from(path.to_string_lossy().into_owned()))
    }

    /// A context with the metadata loaded.
    fn context(&self, header: &OwnedFd, verbose: bool) -> Result<Context, Failure> {
        let path = CString::new(format!("/proc/self/fd/{}", header.as_raw_fd()))
            .map_err(|_| Failure::failed("impossible path"))?;
        let mut context: Context = null_mut();
        // SAFETY: pointers to a null context, to a terminated string, and below to the
        // context that `crypt_init` has made; a null parameter means defaults. The
        // callback takes what `crypt_set_log_callback` promises it.
        let code = unsafe {
            if verbose {
                (self.set_debug)(DEBUG_ALL);
            }
            match (self.init)(&mut context, path.as_ptr()) {
                0 => {
                    (self.set_log)(context, log, null_mut());
                    // Nobody else knows the copy.
                    (self.locking)(context, 0);
                    (self.load)(context, LUKS2.as_ptr(), null_mut())
                }
                code => code,
            }
        };
        if code == 0 {
            Ok(context)
        } else {
            Err(Failure::failed(format!(
                "libcryptsetup does not load the volume's metadata: {}",
                reason(code)
            )))
        }
    }
}

/// libcryptsetup's and the plugins' messages, to standard error: errors, and with debugging
/// switched on everything. (The plugins say at level "debug" what failed.)
unsafe extern "C" fn log(level: c_int, message: *const c_char, _: *mut c_void) {
    if message.is_null() || !(level == LOG_ERROR || level <= LOG_DEBUG) {
        return;
    }
    // SAFETY: libcryptsetup passes a terminated string.
    let message = unsafe { CStr::from_ptr(message) }.to_string_lossy();
    eprintln!("{}", message.trim_end());
}

/// The metadata as a file that only this process has.
fn memory_file(request: &Request) -> Result<OwnedFd, Failure> {
    let header = request
        .header_bytes()
        .ok_or_else(|| Failure::failed("the request's header is not base64"))?;
    let failed = |e| Failure::failed(format!("cannot make a file in memory: {e}"));
    let file = rustix::fs::memfd_create("luks2-metadata", MemfdFlags::CLOEXEC)
        .map_err(|e| failed(e.into()))?;
    let mut file = std::fs::File::from(file);
    file.write_all(&header).map_err(failed)?;
    // Where libcryptsetup expects the keyslots. Holes take no memory.
    file.set_len(LONGEST_METADATA).map_err(failed)?;
    Ok(file.into())
}

impl Plugin {
    /// Has the plugin open its token, and writes the passphrase to standard output. `pin`
    /// ends with a NUL.
    pub(crate) fn open(&self, pin: Option<&[u8]>) -> Result<(), Failure> {
        self.validate()?;
        let parameters = Tpm2Parameters {
            search_pcr_mask: u32::MAX,
            device: self.tpm2_device.as_ref().map_or(null(), |d| d.as_ptr()),
            signature_path: null(),
            pcrlock_path: null(),
        };
        let user: *mut c_void = match (&self.tpm2_device, self.kind.as_str()) {
            (Some(_), "systemd-tpm2") => (&raw const parameters).cast_mut().cast(),
            _ => null_mut(),
        };
        let mut passphrase: *mut c_char = null_mut();
        let mut length = 0;
        let code = match pin {
            None => {
                let open: Open = self.symbol(b"cryptsetup_token_open\0")?;
                // SAFETY: the plugin's own function with a loaded context, the number of a
                // token in it, places for its results, and the user pointer of its type.
                unsafe { open(self.context, self.token, &mut passphrase, &mut length, user) }
            }
            Some(pin) => {
                let open: OpenPin = self.symbol(b"cryptsetup_token_open_pin\0")?;
                // SAFETY: as above; the PIN is readable for its length and a NUL follows.
                unsafe {
                    open(
                        self.context,
                        self.token,
                        pin.as_ptr().cast(),
                        pin.len() - 1,
                        &mut passphrase,
                        &mut length,
                        user,
                    )
                }
            }
        };
        if code < 0 || passphrase.is_null() {
            return Err(failure(&self.kind, code, pin.is_some()));
        }
        // SAFETY: a plugin that succeeds hands over `length` bytes.
        let bytes = unsafe { std::slice::from_raw_parts(passphrase.cast::<u8>(), length) };
        let written = hand_over(bytes);
        // SAFETY: the same bytes, ours to overwrite; the process ends without another use.
        unsafe { std::ptr::write_bytes(passphrase, 0, length) };
        std::hint::black_box(passphrase);
        written
    }

    /// As libcryptsetup does before it calls a plugin.
    fn validate(&self) -> Result<(), Failure> {
        let Ok(validate) = self.symbol::<Validate>(b"cryptsetup_token_validate\0") else {
            return Ok(());
        };
        // SAFETY: the plugin's own function with a loaded context and a terminated string.
        match unsafe { validate(self.context, self.json.as_ptr()) } {
            0 => Ok(()),
            _ => Err(Failure::failed(format!(
                "the plugin for {} does not accept this token's data",
                self.kind
            ))),
        }
    }

    fn symbol<T: Copy>(&self, name: &[u8]) -> Result<T, Failure> {
        // SAFETY: the callers name functions of the plugin interface with their types.
        unsafe { self.library.get::<T>(name) }
            .map(|symbol| *symbol)
            .map_err(|e| {
                Failure::new(
                    Outcome::Unsupported,
                    format!("the plugin for {} lacks a function: {e}", self.kind),
                )
            })
    }
}

/// What a plugin's negative errno means, by what systemd's plugins return. What xtent says
/// itself for an outcome is not said here.
fn failure(kind: &str, code: c_int, had_pin: bool) -> Failure {
    use rustix::io::Errno;
    let outcome = match Errno::from_raw_os_error(-code) {
        Errno::NOANO if had_pin => Outcome::PinWrong,
        Errno::NOANO => Outcome::PinNeeded,
        // FIDO2, and systemd-tpm2 since 254; earlier ones do not tell a wrong PIN from what
        // else the TPM may not like.
        Errno::NOLCK | Errno::ILSEQ | Errno::NOTRECOVERABLE if had_pin => Outcome::PinWrong,
        Errno::AGAIN | Errno::NODEV | Errno::NXIO if kind == "systemd-fido2" => {
            return Failure::new(Outcome::Absent, forbidden_devices().unwrap_or_default());
        }
        Errno::AGAIN | Errno::NODEV | Errno::NXIO => Outcome::Absent,
        Errno::PERM | Errno::REMOTE | Errno::UCLEAN | Errno::NOTRECOVERABLE => Outcome::Refused,
        errno => {
            let why = if kind == "systemd-fido2" {
                security_key(errno)
            } else {
                None
            };
            return Failure::failed(why.map_or_else(
                || format!("the plugin for {kind} failed: {}", reason(code)),
                str::to_owned,
            ));
        }
    };
    Failure::new(outcome, String::new())
}

/// What a person can do about a security key, by the numbers that systemd's plugin chose for
/// libfido2's errors.
fn security_key(errno: rustix::io::Errno) -> Option<&'static str> {
    use rustix::io::Errno;
    Some(match errno {
        Errno::NOSTR => "nobody touched the security key in time",
        Errno::OWNERDEAD => {
            "the security key takes no PIN after several wrong ones: pull it out and plug it in again"
        }
        Errno::MEDIUMTYPE => {
            "the security key wants a touch, which this token was made without: enrol it again"
        }
        Errno::HWPOISON => "the security key cannot ask for the PIN or touch that this token wants",
        // All else that libfido2 says.
        Errno::IO => {
            "the security key gave no answer: it was not touched in time, was pulled out, \
             or still blinks for somebody else"
        }
        _ => return None,
    })
}

/// Whether there are devices that could be a security key and are not open to this user, which
/// libfido2 passes over without a word.
fn forbidden_devices() -> Option<String> {
    use rustix::fs::{Access, access};
    let forbidden = std::fs::read_dir("/dev").ok()?.flatten().find(|entry| {
        entry.file_name().as_encoded_bytes().starts_with(b"hidraw")
            && access(entry.path(), Access::READ_OK | Access::WRITE_OK).is_err()
    })?;
    Some(format!(
        "{} may be the security key, but is not open to this user",
        forbidden.path().display()
    ))
}

fn reason(code: c_int) -> std::io::Error {
    std::io::Error::from_raw_os_error(-code)
}
