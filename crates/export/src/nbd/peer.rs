//! Who is at the other end of a connection, for the log.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use rustix::io::Errno;
use rustix::net::{AddressFamily, getpeername, sockopt};

/// A client: a number of this server's, and where it comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Client {
    pub(super) id: u64,
    pub(super) peer: Peer,
}

/// Where a client comes from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Peer {
    /// The process that connected to a Unix socket, and its user.
    Process { pid: i32, uid: u32 },
    /// An address.
    Address(SocketAddr),
    /// The system does not say.
    Unknown,
}

impl Client {
    pub(super) fn new(id: u64, socket: impl AsFd) -> Self {
        let peer = match sockopt::socket_domain(&socket) {
            // As plain numbers: the process of one in another container is 0.
            Ok(AddressFamily::UNIX) => getsockopt(&socket, PeerCredentials)
                .map(|peer| Peer::Process {
                    pid: peer.pid(),
                    uid: peer.uid(),
                })
                .map_err(|error| Errno::from_raw_os_error(error as i32)),
            _ => getpeername(&socket)
                .and_then(|address| address.ok_or(Errno::NOTCONN))
                .and_then(SocketAddr::try_from)
                .map(Peer::Address),
        };
        Self {
            id,
            peer: peer.unwrap_or(Peer::Unknown),
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { pid, uid } => write!(f, "pid {pid}, uid {uid}"),
            Self::Address(address) => write!(f, "{address}"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_who_it_is() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let uid = rustix::process::getuid().as_raw();
        assert_eq!(
            Client::new(7, &one).peer.to_string(),
            format!("pid {}, uid {uid}", std::process::id())
        );
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let ours = listener.accept().unwrap().0;
        assert_eq!(
            Client::new(8, &ours).peer.to_string(),
            client.local_addr().unwrap().to_string()
        );
    }
}
