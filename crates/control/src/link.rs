//! The socket: messages with files beside them, between processes of the same user or root.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    accept_with, bind, connect, listen, recvmsg, sendmsg, socket_with, sockopt,
};
use xtent_secret::SecretBytes;

use crate::{Error, MAX_MESSAGE, MOST_FILES};

/// Clients that wait to be accepted.
const BACKLOG: i32 = 16;
/// How long a server may take to accept a client.
const CONNECTING: Duration = Duration::from_secs(5);
/// What Linux takes at most beside a message (`SCM_MAX_FD`): what comes is all received, and
/// closed if it is too much.
const FDS: usize = 253;

/// A socket that waits for clients.
#[derive(Debug)]
pub struct Listener(OwnedFd);

impl Listener {
    /// Makes a socket for its owner alone (mode 0600). The name must be free.
    pub fn bind(path: &Path) -> Result<Self, Error> {
        let fail = |e| Error::io("cannot make the control socket", e);
        let address = SocketAddrUnix::new(path).map_err(fail)?;
        let socket = socket()?;
        // The kernel makes the file with the mode of the socket, less the umask.
        rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(fail)?;
        bind(&socket, &address).map_err(fail)?;
        listen(&socket, BACKLOG).map_err(fail)?;
        Ok(Self(socket))
    }

    /// Waits for the next client.
    pub fn accept(&self) -> Result<Link, Error> {
        loop {
            match accept_with(&self.0, SocketFlags::CLOEXEC) {
                Ok(socket) => return Ok(Link(socket)),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => return Err(Error::io("cannot accept a control connection", error)),
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Who is at the other end, by the system's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its process; 0 if it is in a container from which this one does not see it.
    pub pid: i32,
    /// Its user.
    pub uid: u32,
}

/// A connection.
#[derive(Debug)]
pub struct Link(OwnedFd);

impl Link {
    /// Connects to the socket of a server.
    pub fn connect(path: &Path) -> Result<Self, Error> {
        Self::connect_within(path, CONNECTING)
    }

    fn connect_within(path: &Path, patience: Duration) -> Result<Self, Error> {
        let fail = |e| Error::io("cannot connect to the server's control socket", e);
        let address = SocketAddrUnix::new(path).map_err(fail)?;
        let socket = socket()?;
        // A process that accepts nobody has its clients wait.
        let limit = |patience| {
            sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, patience).map_err(fail)
        };
        limit(Some(patience))?;
        rustix::io::retry_on_intr(|| connect(&socket, &address)).map_err(fail)?;
        limit(None)?;
        Ok(Self(socket))
    }

    /// Who is at the other end.
    pub fn peer(&self) -> Result<Peer, Error> {
        let found = getsockopt(&self.0, PeerCredentials).map_err(|e| {
            let errno = Errno::from_raw_os_error(e as i32);
            Error::io("cannot tell who is at the other end", errno)
        })?;
        Ok(Peer {
            pid: found.pid(),
            uid: found.uid(),
        })
    }

    /// From now on sending and receiving fail after so long ([`crate::ErrorKind::TimedOut`]).
    pub fn set_patience(&self, patience: Duration) -> Result<(), Error> {
        for which in [sockopt::Timeout::Recv, sockopt::Timeout::Send] {
            sockopt::set_socket_timeout(&self.0, which, Some(patience))
                .map_err(|e| Error::io("cannot set up the connection", e))?;
        }
        Ok(())
    }

    /// Sends a message and files.
    pub fn send(&self, message: &[u8], files: &[BorrowedFd<'_>]) -> Result<(), Error> {
        if files.len() > MOST_FILES {
            return Err(Error::protocol("too many files"));
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(files)) {
            return Err(Error::protocol("too many files"));
        }
        rustix::io::retry_on_intr(|| {
            sendmsg(
                &self.0,
                &[IoSlice::new(message)],
                &mut beside,
                SendFlags::NOSIGNAL,
            )
        })
        .map(drop)
        .map_err(|e| Error::io("cannot send to the other side", e))
    }

    /// Receives a message and the files with it: [`MOST_FILES`] at most, more are an error.
    pub fn receive(&self) -> Result<(Vec<u8>, Vec<File>), Error> {
        let mut message = vec![0; MAX_MESSAGE];
        let (len, files) = self.receive_into(&mut message)?;
        message.truncate(len);
        Ok((message, files))
    }

    /// Receives a message of exactly `len` bytes, without files, into memory for secrets.
    pub fn receive_key(&self, len: usize) -> Result<SecretBytes, Error> {
        let no_memory = |error: xtent_secret::Error| Error {
            kind: crate::ErrorKind::Io,
            message: "no memory for a key".into(),
            source: Some(error.into()),
        };
        // One byte more, to notice a longer one.
        let mut key = SecretBytes::zeroed(len + 1).map_err(no_memory)?;
        let (received, files) = self.receive_into(&mut key)?;
        if received != len || !files.is_empty() {
            return Err(Error::protocol(format!(
                "the key was announced with {len} bytes and came with {received}"
            )));
        }
        key.truncate(len);
        Ok(key)
    }

    fn receive_into(&self, space: &mut [u8]) -> Result<(usize, Vec<File>), Error> {
        let mut beside = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
        let mut beside = RecvAncillaryBuffer::new(&mut beside);
        let mut receive = || {
            rustix::io::retry_on_intr(|| {
                recvmsg(
                    &self.0,
                    &mut [IoSliceMut::new(space)],
                    &mut beside,
                    RecvFlags::CMSG_CLOEXEC,
                )
            })
        };
        let received = match receive() {
            // The other side has closed without having read everything. That is told once, and
            // before what it had said.
            Err(Errno::CONNRESET) => receive(),
            other => other,
        }
        .map_err(|e| Error::io("cannot receive from the other side", e))?;
        // All that came are owned, and closed if they are not wanted.
        let files: Vec<File> = beside
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(fds) => Some(fds.map(File::from)),
                _ => None,
            })
            .flatten()
            .collect();
        if received.bytes == 0 {
            return Err(Error {
                kind: crate::ErrorKind::Closed,
                ..Error::protocol("the other side has closed the connection")
            });
        }
        if received
            .flags
            .intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC)
        {
            return Err(Error::protocol("the message is too long"));
        }
        if files.len() > MOST_FILES {
            return Err(Error::protocol("too many files"));
        }
        Ok((received.bytes, files))
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn socket() -> Result<OwnedFd, Error> {
    socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|e| Error::io("cannot make a socket", e))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::ErrorKind;

    fn pair() -> (tempfile::TempDir, Link, Link) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let listener = Listener::bind(&path).unwrap();
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        let client = Link::connect(&path).unwrap();
        let server = listener.accept().unwrap();
        server.set_patience(Duration::from_secs(60)).unwrap();
        (dir, client, server)
    }

    #[test]
    fn messages_keep_their_bounds_and_files() {
        let (dir, client, server) = pair();
        let path = dir.path().join("f");
        std::fs::write(&path, "data").unwrap();
        let file = File::open(&path).unwrap();
        client.send(b"one", &[file.as_fd(), file.as_fd()]).unwrap();
        client.send(&[7; 64], &[]).unwrap();
        let (message, files) = server.receive().unwrap();
        assert_eq!((&message[..], files.len()), (&b"one"[..], 2));
        assert_eq!(files[1].metadata().unwrap().len(), 4);
        assert_eq!(&*server.receive_key(64).unwrap(), &[7; 64]);
        let peer = server.peer().unwrap();
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
        assert_eq!(peer.pid.unsigned_abs(), std::process::id());
        drop(client);
        assert_eq!(server.receive().unwrap_err().kind, ErrorKind::Closed);
    }

    #[test]
    fn what_was_said_comes_although_the_rest_was_not_heard() {
        let (_dir, client, server) = pair();
        client.send(b"request", &[]).unwrap();
        client.send(&[7; 64], &[]).unwrap();
        server.receive().unwrap();
        server.send(b"no", &[]).unwrap();
        drop(server);
        assert_eq!(client.receive().unwrap().0, b"no");
        assert_eq!(client.receive().unwrap_err().kind, ErrorKind::Closed);
    }

    #[test]
    fn nobody_waits_for_a_process_that_accepts_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let _listener = Listener::bind(&path).unwrap();
        let mut waiting = Vec::new();
        let error = loop {
            match Link::connect_within(&path, Duration::from_millis(1)) {
                Ok(link) => waiting.push(link),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind, ErrorKind::TimedOut);
    }

    #[test]
    fn what_is_too_much_is_refused_and_closed() {
        let (_dir, client, server) = pair();
        for len in [1, 63, 65, 4096] {
            client.send(&vec![7; len], &[]).unwrap();
            let error = server.receive_key(64).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Protocol);
        }
        client.send(&vec![7; MAX_MESSAGE + 1], &[]).unwrap();
        assert_eq!(server.receive().unwrap_err().kind, ErrorKind::Protocol);
        // More files than anybody of ours sends.
        let (reader, _writer) = std::io::pipe().unwrap();
        let many = [reader.as_fd(); 200];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(200))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        assert!(beside.push(SendAncillaryMessage::ScmRights(&many)));
        sendmsg(
            &client,
            &[IoSlice::new(b"x")],
            &mut beside,
            SendFlags::empty(),
        )
        .unwrap();
        let before = std::fs::read_dir("/proc/self/fd").unwrap().count();
        assert_eq!(server.receive().unwrap_err().kind, ErrorKind::Protocol);
        let after = std::fs::read_dir("/proc/self/fd").unwrap().count();
        assert!(after < before + 100, "{before} descriptors, now {after}");
    }
}
