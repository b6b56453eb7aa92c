//! The one table from the volume's errors to NBD's.

use rustix::io::Errno;

use super::proto::NbdError;

/// The NBD error for an errno.
pub(super) fn from_errno(errno: Errno) -> NbdError {
    match errno {
        Errno::PERM | Errno::ACCESS | Errno::ROFS => NbdError::Perm,
        Errno::NOMEM => NbdError::NoMem,
        Errno::INVAL => NbdError::Inval,
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => NbdError::NoSpc,
        Errno::OVERFLOW => NbdError::Overflow,
        Errno::OPNOTSUPP => NbdError::NotSup,
        Errno::SHUTDOWN => NbdError::Shutdown,
        _ => NbdError::Io,
    }
}

/// What a client is told of it; paths and causes stay in the server's log.
pub(super) fn message(error: NbdError) -> &'static str {
    match error {
        NbdError::Perm => "not permitted; the export or the storage behind it is read-only",
        NbdError::Io => "input/output error in the storage behind the export",
        NbdError::NoMem => "the server is out of memory",
        NbdError::Inval => "invalid request",
        NbdError::NoSpc => "no space left in the storage behind the export",
        NbdError::Overflow => "request too large",
        NbdError::NotSup => "the storage behind the export cannot do this",
        NbdError::Shutdown => {
            "the server is shutting down, or the storage was taken over by another"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_map_as_the_standard_says() {
        for (errno, expected) in [
            (Errno::ROFS, NbdError::Perm),
            (Errno::IO, NbdError::Io),
            (Errno::NODEV, NbdError::Io),
            (Errno::DQUOT, NbdError::NoSpc),
            (Errno::FBIG, NbdError::NoSpc),
            (Errno::NOTSUP, NbdError::NotSup),
            (Errno::SHUTDOWN, NbdError::Shutdown),
        ] {
            assert_eq!(from_errno(errno), expected);
        }
    }
}
