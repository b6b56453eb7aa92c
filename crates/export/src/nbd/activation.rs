//! Listening sockets handed over by systemd (`sd_listen_fds(3)`).
#![allow(unsafe_code)]

use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{AddressFamily, SocketType, sockopt};

use super::Listener;
use crate::{Error, ErrorKind};

/// The first descriptor that is handed over.
const FIRST: RawFd = 3;
/// More than this many are a mistake.
const MOST: usize = 64;

/// The listening sockets that the service manager passed to this process
/// (`LISTEN_PID`, `LISTEN_FDS`), none if it passed none. They are handed out
/// once; a second call returns none.
pub fn activated_listeners() -> Result<Vec<Listener>, Error> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let variable = |name| std::env::var(name).unwrap_or_default();
    if variable("LISTEN_PID").parse() != Ok(std::process::id()) {
        return Ok(Vec::new());
    }
    let count: usize = variable("LISTEN_FDS").parse().unwrap_or(0);
    if count > MOST {
        return Err(refuse(format!(
            "LISTEN_FDS is {count}; at most {MOST} sockets are taken"
        )));
    }
    if TAKEN.swap(true, Ordering::SeqCst) {
        return Ok(Vec::new());
    }
    (FIRST..).take(count).map(adopt).collect()
}

fn adopt(fd: RawFd) -> Result<Listener, Error> {
    let entry = format!("/proc/self/fd/{fd}");
    if std::fs::symlink_metadata(&entry).is_err() {
        return Err(refuse(format!(
            "descriptor {fd}, announced by LISTEN_FDS, is not open"
        )));
    }
    // SAFETY: the descriptor is open, and by the protocol of `sd_listen_fds`
    // it was passed to this process for it to own; each is adopted once.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let context = || format!("cannot use descriptor {fd} from LISTEN_FDS as a socket");
    fcntl_setfd(&socket, FdFlags::CLOEXEC).map_err(|error| Error::io(context(), error))?;
    listener(socket)
        .map_err(|error| Error::io(context(), error))?
        .ok_or_else(|| {
            refuse(format!(
                "descriptor {fd} from LISTEN_FDS is not a listening stream socket"
            ))
        })
}

/// The listener behind a descriptor, if it is one that can be served.
fn listener(socket: OwnedFd) -> rustix::io::Result<Option<Listener>> {
    let listening = sockopt::socket_type(&socket)? == SocketType::STREAM
        && sockopt::socket_acceptconn(&socket)?;
    Ok(match sockopt::socket_domain(&socket)? {
        _ if !listening => None,
        AddressFamily::UNIX => Some(Listener::Unix(socket.into())),
        AddressFamily::INET | AddressFamily::INET6 => Some(Listener::Tcp(socket.into())),
        _ => None,
    })
}

fn refuse(message: String) -> Error {
    Error {
        kind: ErrorKind::Argument,
        message,
        source: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    /// Runs itself as a service manager would run a server.
    #[test]
    fn sockets_are_taken_from_the_service_manager() {
        const CHILD: &str = "XTENT_TEST_ACTIVATED";
        if std::env::var_os(CHILD).is_some() {
            let listeners = activated_listeners().unwrap();
            let [Listener::Tcp(listener)] = &listeners[..] else {
                panic!("not handed over")
            };
            listener.accept().unwrap().0.write_all(b"!").unwrap();
            assert!(
                activated_listeners().unwrap().is_empty(),
                "handed out twice"
            );
            return;
        }
        assert!(activated_listeners().unwrap().is_empty());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let script = "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" --exact \"$1\" 3<&0";
        let name = "nbd::activation::tests::sockets_are_taken_from_the_service_manager";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .arg(std::env::current_exe().unwrap())
            .arg(name)
            .env(CHILD, "1")
            .stdin(OwnedFd::from(listener))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut client = std::net::TcpStream::connect(address).unwrap();
        let mut byte = [0];
        client.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"!");
        assert!(child.wait().unwrap().success());
    }

    #[test]
    fn only_listening_stream_sockets_are_taken() {
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(matches!(listener(tcp.into()), Ok(Some(Listener::Tcp(_)))));
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(matches!(listener(one.into()), Ok(None)));
        let file = tempfile::tempfile().unwrap();
        assert!(listener(file.into()).is_err());
    }
}
