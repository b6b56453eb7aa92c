//! The crate's one error type, and the one table from system errors to kinds
//! and back to errno.

use std::fmt;
use std::io;
use std::path::Path;

use rustix::io::Errno;

use crate::{Act, Place};

/// What went wrong, for the tables that turn it into errno, NBD errors and
/// exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No such file or device.
    NotFound,
    /// There is a file of that name already.
    Exists,
    /// Not allowed.
    Permission,
    /// Somebody else has it (the server lock, or an exclusive open).
    Busy,
    /// The range lies outside the store, or the file became shorter.
    OutOfRange,
    /// A write to a read-only store.
    ReadOnly,
    /// Somebody else has been given it, and what this process does reaches it no more.
    Fenced,
    /// No space left, or over quota.
    NoSpace,
    /// The store cannot do this (discard on a file system without holes).
    Unsupported,
    /// Any other I/O error.
    Io,
}

/// System errors and what they mean here; whatever is not listed is
/// [`ErrorKind::Io`]. The first entry of each kind is the errno reported for
/// that kind.
const KINDS: &[(Errno, ErrorKind)] = &[
    (Errno::NOENT, ErrorKind::NotFound),
    (Errno::NXIO, ErrorKind::NotFound),
    (Errno::NODEV, ErrorKind::NotFound),
    (Errno::NOTDIR, ErrorKind::NotFound),
    (Errno::EXIST, ErrorKind::Exists),
    (Errno::ACCESS, ErrorKind::Permission),
    (Errno::PERM, ErrorKind::Permission),
    (Errno::BUSY, ErrorKind::Busy),
    (Errno::TXTBSY, ErrorKind::Busy),
    (Errno::AGAIN, ErrorKind::Busy),
    (Errno::INVAL, ErrorKind::OutOfRange),
    (Errno::ROFS, ErrorKind::ReadOnly),
    (Errno::SHUTDOWN, ErrorKind::Fenced),
    (Errno::NOSPC, ErrorKind::NoSpace),
    (Errno::DQUOT, ErrorKind::NoSpace),
    (Errno::FBIG, ErrorKind::NoSpace),
    (Errno::OPNOTSUPP, ErrorKind::Unsupported),
    (Errno::NOSYS, ErrorKind::Unsupported),
    (Errno::NOTTY, ErrorKind::Unsupported),
    (Errno::ISDIR, ErrorKind::Unsupported),
    (Errno::IO, ErrorKind::Io),
];

impl ErrorKind {
    /// The kind of a system error.
    pub fn of(error: &io::Error) -> Self {
        error
            .raw_os_error()
            .map(Errno::from_raw_os_error)
            // EINVAL from the system is a fault of this program or a driver;
            // its entry in the table is for the way back.
            .filter(|errno| *errno != Errno::INVAL)
            .and_then(|errno| KINDS.iter().find(|(e, _)| *e == errno))
            .map_or(Self::Io, |(_, kind)| *kind)
    }

    /// The errno that protocols report for it.
    pub fn errno(self) -> Errno {
        KINDS
            .iter()
            .find(|(_, kind)| *kind == self)
            .map_or(Errno::IO, |(errno, _)| *errno)
    }

    fn meaning(self, place: &Place) -> &'static str {
        match (place, self) {
            (Place::Uri(_), Self::NotFound) => return "no such server or export",
            (Place::Uri(_), Self::OutOfRange) => return "the range lies outside the export",
            (Place::Uri(_), Self::ReadOnly) => return "the export is read-only",
            (Place::Image(_), Self::NotFound) => return "no such cluster, pool or image",
            (Place::Image(_), Self::OutOfRange) => return "the range lies outside the image",
            (Place::Image(_), Self::Busy) => return "in use by another client of the cluster",
            _ => {}
        }
        match self {
            Self::NotFound => "no such file or device",
            Self::Exists => "it exists already",
            Self::Permission => "permission denied",
            Self::Busy => "in use by another process",
            Self::OutOfRange => "the range lies outside the file or device",
            Self::ReadOnly => "opened read-only",
            Self::Fenced => "somebody else has taken it over",
            Self::NoSpace => "no space left",
            Self::Unsupported => "not supported here",
            Self::Io => "input/output error",
        }
    }

    fn advice(self, act: Act, place: &Place) -> &'static str {
        match place {
            Place::Path(path) => self.advice_for_path(act, path),
            Place::Uri(_) => self.advice_for_uri(act),
            Place::Image(_) => self.advice_for_image(act),
        }
    }

    /// What to do about an image in a Ceph cluster.
    fn advice_for_image(self, act: Act) -> &'static str {
        match (self, act) {
            (Self::NotFound, _) => {
                "Check the cluster's ceph.conf and the name; `rbd ls POOL` lists the images of a pool."
            }
            (Self::Permission, Act::Open) => {
                "Check the keyring, the user (:id=NAME) and what the cluster lets it do \
                 (`ceph auth get client.NAME`); read-only access may suffice."
            }
            (Self::Busy, _) => {
                "Stop the other client, or read only (--read-only). One that has died is let go \
                 30 seconds later."
            }
            (Self::Fenced, _) => FENCED,
            (Self::OutOfRange, _) => "The image is shorter than needed: has it been made smaller?",
            (Self::Permission | Self::ReadOnly, _) => "Open it read-only (--read-only).",
            (Self::NoSpace, _) => {
                "Free space in the cluster, or raise the quota of its pool: `ceph df` shows both."
            }
            (Self::Unsupported, _) => {
                "It has to be there first; `rbd info` shows what features an image has."
            }
            (Self::Io, Act::Flush | Act::DurableWrite) => {
                "Writes since the last successful flush may be lost; look at `ceph status`, then \
                 close and open again."
            }
            (Self::Exists | Self::Io, _) => "Look at `ceph status`.",
        }
    }

    /// What to do about an export of a server.
    fn advice_for_uri(self, act: Act) -> &'static str {
        match (self, act) {
            (Self::NotFound, _) => "Check that the server runs, and the export's name.",
            (Self::Permission, Act::Open) => {
                "Check the owner and mode of the socket, and whom the server lets in."
            }
            (Self::Busy, Act::Lock) => {
                "Stop the other server or program that uses it; those that only read can share it."
            }
            (Self::OutOfRange, _) => {
                "The export is shorter than needed: is it the right one, and all of it?"
            }
            (Self::Permission | Self::ReadOnly, _) => {
                "Have the server export it for writing, or use --read-only where the command has it."
            }
            (Self::Fenced, _) => FENCED,
            (Self::NoSpace, _) => "Free space where the server has the export's data.",
            (Self::Unsupported, _) => "Use a server that supports it.",
            (Self::Io, Act::Flush | Act::DurableWrite) => {
                "Writes since the last successful flush may be lost; check the server's log, then \
                 close and open again."
            }
            (Self::Exists | Self::Busy | Self::Io, _) => {
                "Check that the server runs, and what its log says."
            }
        }
    }

    fn advice_for_path(self, act: Act, path: &Path) -> &'static str {
        match (self, act) {
            (Self::NotFound, Act::Open) if is_loop_control(path) => "`modprobe loop` may help.",
            (Self::Permission, Act::Open) if is_loop_control(path) => "Loop devices require root.",
            (Self::Unsupported, Act::Attach) => "A loop device in one step takes Linux 5.8.",
            (Self::NotFound, _) => "Check the path.",
            (Self::Exists, _) => "Choose another name or remove it first.",
            (Self::Permission, Act::Open) => {
                "Check the owner and mode, or run as a user who may; read-only access may suffice."
            }
            (Self::Permission, Act::Create) => "Check the owner and mode of the directory.",
            (Self::Permission, _) => "Check that the device or file is not write-protected.",
            (Self::Busy, Act::Lock) => {
                "Stop the other server or program that uses it; those that only read can share it."
            }
            (Self::Busy, Act::Claim) => {
                "Unmount it, or close the mapping, swap area or array that holds it, and try again."
            }
            (Self::Busy, _) => "Stop the program that uses it and try again.",
            (Self::OutOfRange, _) => {
                "The file or device is shorter than needed: was it truncated or copied in part?"
            }
            (Self::ReadOnly, Act::Open | Act::Create) => {
                "Open it read-only, or make the file system or device writable."
            }
            (Self::ReadOnly, _) => "Open it for reading and writing.",
            (Self::Fenced, _) => FENCED,
            (Self::NoSpace, _) => {
                "Free space (or raise the quota or file size limit) on the file system that holds it."
            }
            (Self::Unsupported, Act::Open) => "Give a regular file or a block device.",
            (Self::Unsupported, Act::DirectIo) => "Leave out --direct-io.",
            (Self::Unsupported, Act::Create) => "Give the name of a file.",
            (Self::Unsupported, _) => "Use a file system or device that supports it.",
            (Self::Io, Act::Flush | Act::DurableWrite) => {
                "Writes since the last successful flush may be lost; check the system log, \
                 replace the disk if it fails, then close and open again."
            }
            (Self::Io, _) => "Check the system log for the disk's error.",
        }
    }
}

/// What to do once somebody else has it.
const FENCED: &str = "What was not flushed is lost. End this process, find out who has taken the \
                      volume over, and start again only if that was a mistake.";

fn is_loop_control(path: &Path) -> bool {
    path == Path::new("/dev/loop-control")
}

/// A failed store operation: what, where, why. `Display` is the message alone; the cause is
/// in [`std::error::Error::source`], what to do in [`Error::advice`], and
/// [`chain`](crate::chain()) puts all three into a line.
#[derive(Debug)]
pub struct Error {
    /// What kind of failure.
    pub kind: ErrorKind,
    /// What was being done.
    pub act: Act,
    /// Where the store is.
    pub place: Place,
    /// Byte offset, where there is one.
    pub offset: Option<u64>,
    /// The system's error, where there is one.
    pub source: Option<io::Error>,
}

impl Error {
    /// An error that this program found itself.
    pub fn new(kind: ErrorKind, act: Act, place: impl Into<Place>, offset: Option<u64>) -> Self {
        Self {
            kind,
            act,
            place: place.into(),
            offset,
            source: None,
        }
    }

    /// An error that the system reported; the kind follows from it.
    pub fn from_io(
        source: impl Into<io::Error>,
        act: Act,
        place: impl Into<Place>,
        offset: Option<u64>,
    ) -> Self {
        let source = source.into();
        Self {
            kind: ErrorKind::of(&source),
            act,
            place: place.into(),
            offset,
            source: Some(source),
        }
    }

    /// What to do about it, in a sentence.
    pub fn advice(&self) -> &'static str {
        self.kind.advice(self.act, &self.place)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.act, self.place)?;
        if let Some(offset) = self.offset {
            write!(f, " at byte {offset}")?;
        }
        write!(f, " failed")?;
        match &self.source {
            Some(_) => Ok(()),
            None => write!(f, ": {}", self.kind.meaning(&self.place)),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|e| e as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [ErrorKind; 10] = [
        ErrorKind::NotFound,
        ErrorKind::Exists,
        ErrorKind::Permission,
        ErrorKind::Busy,
        ErrorKind::OutOfRange,
        ErrorKind::ReadOnly,
        ErrorKind::Fenced,
        ErrorKind::NoSpace,
        ErrorKind::Unsupported,
        ErrorKind::Io,
    ];

    #[test]
    fn every_kind_has_an_errno_of_its_own() {
        let mut errnos: Vec<_> = ALL.iter().map(|k| k.errno().raw_os_error()).collect();
        errnos.sort_unstable();
        errnos.dedup();
        assert_eq!(errnos.len(), ALL.len());
    }

    #[test]
    fn system_errors_map_to_kinds() {
        let kind = |e: Errno| ErrorKind::of(&e.into());
        assert_eq!(kind(Errno::DQUOT), ErrorKind::NoSpace);
        assert_eq!(kind(Errno::IO), ErrorKind::Io);
        assert_eq!(kind(Errno::INVAL), ErrorKind::Io);
        assert_eq!(kind(Errno::MFILE), ErrorKind::Io);
        assert_eq!(ErrorKind::of(&io::Error::other("x")), ErrorKind::Io);
    }

    #[test]
    fn message_cause_and_remedy_are_each_in_their_place() {
        use std::error::Error as _;

        let e = Error::from_io(Errno::NOSPC, Act::Write, Path::new("/img"), Some(4096));
        assert_eq!(e.to_string(), "write of /img at byte 4096 failed");
        let source = e.source().unwrap().to_string();
        assert!(source.starts_with("No space left"), "{source}");
        assert!(e.advice().starts_with("Free space"), "{}", e.advice());
    }

    #[test]
    fn message_without_a_cause_says_what_is_wrong() {
        let e = Error::new(ErrorKind::Busy, Act::Lock, Path::new("/img"), None);
        assert_eq!(
            e.to_string(),
            "lock of /img failed: in use by another process"
        );
    }

    #[test]
    fn advice_on_what_is_far_away_is_about_that() {
        let places = [
            Place::Uri("nbd://host:10809/disk".into()),
            Place::Image("rbd:pool/disk".into()),
        ];
        let acts = [Act::Open, Act::Lock, Act::Read, Act::Write, Act::Flush];
        for (place, kind) in places
            .iter()
            .flat_map(|place| ALL.map(|kind| (place, kind)))
        {
            for act in acts {
                let error = Error::new(kind, act, place.clone(), None);
                let text = format!("{error}. {}", error.advice());
                assert!(text.contains(&format!("of {place} failed")), "{text}");
                for word in ["path", "disk's", "file", "device"] {
                    assert!(!text.contains(word), "{text:?} has {word:?}");
                }
            }
        }
    }
}
