//! File descriptors that the caller hands over by number.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A descriptor that was open when the process started. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct InheritedFd(Arc<Mutex<Option<OwnedFd>>>);

impl InheritedFd {
    fn new(fd: OwnedFd) -> Self {
        Self(Arc::new(Mutex::new(Some(fd))))
    }

    /// What it is, until it is taken.
    pub(crate) fn metadata(&self) -> Option<Metadata> {
        let fd = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let copy = fd.as_ref()?.try_clone().ok()?;
        File::from(copy).metadata().ok()
    }

    /// The open descriptor, for the one who reads it; nothing the second time.
    pub(crate) fn take(&self) -> Option<OwnedFd> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Whether there was no standard output when the process started.
static STDOUT_CLOSED: AtomicBool = AtomicBool::new(false);

/// Looks whether standard output is open before the standard library opens /dev/null in its
/// place (so that no file gets that number), where results would be lost without an error.
extern "C" fn look_at_stdout() {
    let is_closed = rustix::io::fcntl_getfd(rustix::stdio::stdout()).is_err();
    STDOUT_CLOSED.store(is_closed, Ordering::Relaxed);
}

// SAFETY: the system calls what is in this section once, before `main`, as functions of C
// that return nothing. This one makes a system call and stores to an atomic: it needs
// nothing that `main` has yet to set up, and cannot panic.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK_AT_STDOUT: extern "C" fn() = look_at_stdout;

/// Whether the process was started with a standard output.
pub(crate) fn has_stdout() -> bool {
    !STDOUT_CLOSED.load(Ordering::Relaxed)
}

/// Descriptors that were taken hold of, by number.
static TAKEN: Mutex<BTreeMap<RawFd, InheritedFd>> = Mutex::new(BTreeMap::new());

/// Parses `--key-fd N` and takes hold of the descriptor at once: later the
/// number could be one that the process has opened itself. (A path like
/// `/proc/self/fd/N` would not do: sockets cannot be opened so, and a process
/// that has made itself undumpable may not.)
pub(crate) fn parse_inherited(text: &str) -> Result<InheritedFd, String> {
    let fd: RawFd = text
        .parse()
        .ok()
        .filter(|&fd| fd >= 0)
        .ok_or_else(|| format!("`{text}` is not a descriptor number"))?;
    if fd <= 2 {
        return Err("take a descriptor above 2, as in `--key-fd 3 3<FILE`; \
                    for standard input give `--key-file -`"
            .to_owned());
    }
    take_hold(fd)
}

/// Takes hold of standard input or output (a copy of it), or of a descriptor
/// above 2 as [`parse_inherited`]. Call it while arguments are parsed.
pub(crate) fn inherited(fd: RawFd) -> Result<InheritedFd, String> {
    let standard = match fd {
        1 if !has_stdout() => return Err("standard output is closed".to_owned()),
        0 => rustix::stdio::stdin(),
        1 => rustix::stdio::stdout(),
        2 => rustix::stdio::stderr(),
        _ => return take_hold(fd),
    };
    let copy = standard.try_clone_to_owned();
    copy.map(InheritedFd::new)
        .map_err(|e| format!("cannot use descriptor {fd}: {e}"))
}

fn take_hold(fd: RawFd) -> Result<InheritedFd, String> {
    if fd - 3 < sockets_passed() {
        return Err(format!("descriptor {fd} is a socket of LISTEN_FDS"));
    }
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(inherited) = taken.get(&fd) {
        return Ok(inherited.clone());
    }
    // SAFETY: the borrow lasts for this one call; a number that is not open
    // makes the system call fail with EBADF, nothing else.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    if rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC).is_err() {
        return Err(format!("descriptor {fd} is not open"));
    }
    // SAFETY: it is open, and nobody else owns it: arguments are parsed before
    // the process opens anything, each number is taken once (above), and
    // sockets from the service manager, which the server adopts, are refused.
    let owned = unsafe { OwnedFd::from_raw_fd(fd) };
    let inherited = InheritedFd::new(owned);
    taken.insert(fd, inherited.clone());
    Ok(inherited)
}

/// Has every descriptor above 2 closed in the programs that this process will start, those
/// as well that it has inherited without knowing.
pub(crate) fn keep_from_children() -> std::io::Result<()> {
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let name = entry?.file_name();
        let Some(fd) = name.to_str().and_then(|name| name.parse::<RawFd>().ok()) else {
            continue;
        };
        if fd > 2 {
            // SAFETY: the borrow lasts for this one call; a number that is not open (the
            // folder's own, later) makes the call fail with EBADF, nothing else. The flag
            // changes nothing for whoever uses the descriptor in this process.
            let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
            let _ = rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC);
        }
    }
    Ok(())
}

/// How many sockets `LISTEN_FDS` announces to this process.
fn sockets_passed() -> RawFd {
    let number = |name| std::env::var(name).ok().and_then(|v| v.parse::<u32>().ok());
    if number("LISTEN_PID") != Some(std::process::id()) {
        return 0;
    }
    number("LISTEN_FDS")
        .and_then(|n| RawFd::try_from(n).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::IntoRawFd;

    #[test]
    fn takes_open_descriptors_only() {
        let fd = tempfile::tempfile().unwrap().into_raw_fd().to_string();
        let (first, second) = (parse_inherited(&fd).unwrap(), parse_inherited(&fd).unwrap());
        assert!(first.take().is_some());
        assert!(second.take().is_none());
        for text in ["-1", "x", "0", "2", "987654", "99999999999"] {
            assert!(parse_inherited(text).is_err(), "{text}");
        }
    }
}
