//! File descriptors that the caller hands over by number.
#![allow(unsafe_code)]

use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

/// A descriptor that was open when the process started. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct InheritedFd(Arc<OwnedFd>);

impl InheritedFd {
    /// The open descriptor.
    pub(crate) fn get(&self) -> &OwnedFd {
        &self.0
    }
}

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
    // SAFETY: the borrow lasts for this one call; a number that is not open
    // makes the system call fail with EBADF, nothing else.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    match rustix::io::fcntl_dupfd_cloexec(borrowed, 3) {
        Ok(copy) => Ok(InheritedFd(Arc::new(copy))),
        Err(_) => Err(format!("descriptor {fd} is not open")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn takes_open_descriptors_only() {
        let file = tempfile::tempfile().unwrap();
        assert!(parse_inherited(&file.as_raw_fd().to_string()).is_ok());
        for text in ["-1", "x", "0", "2", "987654", "99999999999"] {
            assert!(parse_inherited(text).is_err(), "{text}");
        }
    }
}
