//! Where clients connect: Unix sockets and TCP, and the URIs to tell them.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, chownat, fchmod, open};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    socket_with,
};
use rustix::process::{Gid, Uid};

use crate::{Error, ErrorKind};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 64;

/// Where to listen.
pub enum Listener {
    /// A Unix socket.
    Unix(UnixListener),
    /// A TCP socket; the caller has made sure it is on loopback or insisted.
    Tcp(TcpListener),
}

/// Where clients find a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    scheme: &'static str,
    /// After the export's name.
    socket: String,
    /// Before it.
    host: String,
}

impl Address {
    /// The URI of an export there, to be pasted into a client
    /// (`nbd+unix:///NAME?socket=PATH` or `nbd://ADDRESS:PORT/NAME`; `nbds` with TLS).
    pub fn uri(&self, export: &str) -> String {
        let Self {
            scheme,
            socket,
            host,
        } = self;
        let name = percent_encode(export.as_bytes());
        format!("{scheme}://{host}/{name}{socket}")
    }
}

impl Listener {
    /// Where clients find it, with TLS or without.
    pub fn address(&self, tls: bool) -> io::Result<Address> {
        Ok(match self {
            Self::Unix(listener) => {
                let address = listener.local_addr()?;
                let path = address
                    .as_pathname()
                    .ok_or(io::ErrorKind::AddrNotAvailable)?;
                let path = std::path::absolute(path)?;
                let path = percent_encode(path.as_os_str().as_bytes());
                Address {
                    scheme: if tls { "nbds+unix" } else { "nbd+unix" },
                    socket: format!("?socket={path}"),
                    host: String::new(),
                }
            }
            Self::Tcp(listener) => Address {
                scheme: if tls { "nbds" } else { "nbd" },
                socket: String::new(),
                host: listener.local_addr()?.to_string(),
            },
        })
    }

    /// The URI of an export here.
    pub fn uri(&self, export: &str, tls: bool) -> io::Result<String> {
        Ok(self.address(tls)?.uri(export))
    }

    /// The address, with the port that the system chose for port 0.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Unix(_) => None,
            Self::Tcp(listener) => listener.local_addr().ok(),
        }
    }

    pub(crate) fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Unix(listener) => listener.set_nonblocking(true),
            Self::Tcp(listener) => listener.set_nonblocking(true),
        }
    }

    pub(crate) fn accept(&self) -> rustix::io::Result<OwnedFd> {
        accept_with(self, SocketFlags::CLOEXEC)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(listener) => listener.as_fd(),
            Self::Tcp(listener) => listener.as_fd(),
        }
    }
}

/// All bytes but the unreserved ones and `/` (RFC 3986, section 2.3) as `%XX`.
fn percent_encode(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                out.push(char::from(byte));
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// The name of a listening Unix socket; removed when dropped, unless somebody
/// else has taken the path meanwhile.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// The file itself: while it is open, no other gets its inode number.
    file: OwnedFd,
}

impl SocketFile {
    /// Gives the socket to another user. It is the file that was made, or at least a
    /// socket: whoever may write to its folder can have put anything in its place.
    pub fn give_to(&self, uid: u32, gid: u32) -> Result<(), Error> {
        let failed = |error: io::Error| {
            let message = format!("cannot give {} to user {uid}", self.path.display());
            Error::io(message, error)
        };
        let found = rustix::fs::fstat(&self.file).map_err(|e| failed(e.into()))?;
        let is_socket = FileType::from_raw_mode(found.st_mode) == FileType::Socket;
        if !is_socket || found.st_uid != rustix::process::geteuid().as_raw() {
            return Err(failed(io::Error::other("another file has taken its place")));
        }
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        chownat(&self.file, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH)
            .map_err(|e| failed(e.into()))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let same = fs::symlink_metadata(&self.path).is_ok_and(|now| {
            rustix::fs::fstat(&self.file)
                .is_ok_and(|ours| (ours.st_dev, ours.st_ino) == (now.dev(), now.ino()))
        });
        if same {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Listens on a Unix socket that only this user can connect to (mode 0600).
///
/// The socket of a server that is gone is replaced. [`ErrorKind::Busy`] where
/// one is listening, or where the path is anything but a socket.
pub fn bind_unix(path: &Path) -> Result<(Listener, SocketFile), Error> {
    let context = || format!("cannot listen on {}", path.display());
    let address = SocketAddrUnix::new(path).map_err(|error| match error {
        Errno::NAMETOOLONG => Error {
            kind: ErrorKind::Argument,
            message: format!(
                "the socket path {} is too long; the system allows 107 bytes",
                path.display()
            ),
            source: None,
        },
        error => Error::io(context(), error),
    })?;
    let socket = socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|error| Error::io(context(), error))?;
    // The kernel makes the file with the mode of the socket, less the umask:
    // it is never open to others, not even for a moment.
    fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(|error| Error::io(context(), error))?;
    match bind(&socket, &address) {
        Err(Errno::ADDRINUSE) => {
            remove_stale(path, &address)?;
            bind(&socket, &address)
        }
        result => result,
    }
    .map_err(|error| Error::io(context(), error))?;
    let file = SocketFile {
        path: path.to_owned(),
        file: open(
            path,
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(|error| Error::io(context(), error))?,
    };
    listen(&socket, BACKLOG).map_err(|error| Error::io(context(), error))?;
    Ok((Listener::Unix(UnixListener::from(socket)), file))
}

/// Removes the socket of a server that is gone.
fn remove_stale(path: &Path, address: &SocketAddrUnix) -> Result<(), Error> {
    let busy = |what: &str| Error {
        kind: ErrorKind::Busy,
        message: format!("cannot listen on {}: {what}", path.display()),
        source: None,
    };
    let metadata = fs::symlink_metadata(path)
        .map_err(|error| Error::io(format!("cannot look at {}", path.display()), error))?;
    if !metadata.file_type().is_socket() {
        return Err(busy(
            "the path exists and is not a socket; choose another one",
        ));
    }
    let cannot_tell = |error: Errno| {
        let message = format!("cannot tell whether {} is in use", path.display());
        Error::io(message, error)
    };
    // A server that accepts nobody, with as many waiting as may be, must not hold this one up.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let client = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    match connect(client.map_err(cannot_tell)?, address) {
        Err(Errno::CONNREFUSED) => fs::remove_file(path)
            .map_err(|error| Error::io(format!("cannot remove {}", path.display()), error)),
        Ok(()) | Err(Errno::AGAIN) => Err(busy(
            "a server is listening there; stop it or choose another path",
        )),
        Err(error) => Err(cannot_tell(error)),
    }
}

/// Listens on TCP at `address`, such as `127.0.0.1:10809`, `localhost:0`
/// or `[::1]:10809`; port 0 lets the system choose ([`Listener::tcp_address`]).
///
/// Without TLS the stream is not encrypted, so anything but loopback is refused with
/// [`ErrorKind::Permission`] unless `allow_remote`.
pub fn bind_tcp(address: &str, allow_remote: bool) -> Result<Listener, Error> {
    let context = || format!("cannot listen on {address}");
    let addresses: Vec<_> = address
        .to_socket_addrs()
        .map_err(|error| Error::io(context(), error))?
        .collect();
    if let Some(remote) = addresses
        .iter()
        .find(|it| !it.ip().to_canonical().is_loopback())
        && !allow_remote
    {
        return Err(Error {
            kind: ErrorKind::Permission,
            message: format!("{remote} can be reached from other machines"),
            source: None,
        });
    }
    let listener =
        TcpListener::bind(&addresses[..]).map_err(|error| Error::io(context(), error))?;
    Ok(Listener::Tcp(listener))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_unix_socket_is_private_and_goes_away() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("my socket");
        let (listener, file) = bind_unix(&path).unwrap();
        let mode = fs::symlink_metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let uri = listener.uri("a b/c", false).unwrap();
        assert!(uri.starts_with("nbd+unix:///a%20b/c?socket=/"), "{uri}");
        assert!(uri.ends_with("/my%20socket"), "{uri}");

        // However many have asked it, and it has answered none.
        for _ in 0..BACKLOG + 2 {
            let busy = bind_unix(&path).err().unwrap();
            assert_eq!(busy.kind, ErrorKind::Busy, "{busy}");
            assert!(busy.message.contains("listening there"), "{busy}");
        }
        drop(listener);
        // A dead server's socket is replaced; its guard then leaves ours alone.
        let (_listener, second) = bind_unix(&path).unwrap();
        drop(file);
        assert!(path.exists());
        drop(second);
        assert!(!path.exists());
    }

    /// To this user, which anybody may: what the path leads to now cannot be given at all.
    #[test]
    fn a_socket_is_given_away_and_nothing_that_took_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let (_listener, file) = bind_unix(&path).unwrap();
        fs::rename(&path, dir.path().join("moved")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("gone"), &path).unwrap();
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        file.give_to(uid.as_raw(), gid.as_raw()).unwrap();
    }

    #[test]
    fn other_files_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "data").unwrap();
        assert_eq!(bind_unix(&path).err().unwrap().kind, ErrorKind::Busy);
        assert_eq!(fs::read(&path).unwrap(), b"data");
        let long = dir.path().join("x".repeat(120));
        assert_eq!(bind_unix(&long).err().unwrap().kind, ErrorKind::Argument);
    }

    #[test]
    fn tcp_stays_on_loopback_unless_told() {
        let listener = bind_tcp("127.0.0.1:0", false).unwrap();
        let port = listener.tcp_address().unwrap().port();
        assert_eq!(
            listener.uri("", false).unwrap(),
            format!("nbd://127.0.0.1:{port}/")
        );
        assert_eq!(
            listener.uri("x", true).unwrap(),
            format!("nbds://127.0.0.1:{port}/x")
        );
        let refused = bind_tcp("0.0.0.0:0", false).err().unwrap();
        assert_eq!(refused.kind, ErrorKind::Permission);
        assert!(bind_tcp("0.0.0.0:0", true).is_ok());
        let taken = bind_tcp(&format!("127.0.0.1:{port}"), false).err().unwrap();
        assert_eq!(taken.kind, ErrorKind::Busy);
    }
}
