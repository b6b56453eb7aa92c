//! Sockets to serve on: `--nbd` options, systemd's, and the default one.

use std::fmt::Write as _;
use std::net::{TcpListener, ToSocketAddrs};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::fs::Mode;
use xtent_export::nbd::Listener;

use crate::failure::{Exit, Failure, Result};

/// The port IANA gave to NBD.
const NBD_PORT: u16 = 10809;

/// Where `--nbd` wants the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Spec {
    Unix(PathBuf),
    Tcp { host: String, port: u16 },
}

impl FromStr for Spec {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        const EXPECTED: &str = "write unix:PATH, tcp:HOST:PORT or tcp:[IPv6]:PORT";
        match text.split_once(':') {
            Some(("unix", "")) | Some(("tcp", "")) | None => Err(EXPECTED.to_owned()),
            Some(("unix", path)) => Ok(Spec::Unix(PathBuf::from(path))),
            Some(("tcp", rest)) => {
                let (host, port) = match rest.strip_prefix('[') {
                    Some(rest) => {
                        let (host, port) = rest.split_once(']').ok_or(EXPECTED)?;
                        match port {
                            "" => (host, None),
                            _ => (host, Some(port.strip_prefix(':').ok_or(EXPECTED)?)),
                        }
                    }
                    None => match rest.split_once(':') {
                        Some((_, port)) if port.contains(':') => return Err(EXPECTED.to_owned()),
                        Some((host, port)) => (host, Some(port)),
                        None => (rest, None),
                    },
                };
                if host.is_empty() {
                    return Err(EXPECTED.to_owned());
                }
                let port = match port {
                    None => NBD_PORT,
                    Some(port) => port.parse().map_err(|_| format!("`{port}` is not a port"))?,
                };
                Ok(Spec::Tcp {
                    host: host.to_owned(),
                    port,
                })
            }
            Some(_) => Err(EXPECTED.to_owned()),
        }
    }
}

/// A socket that listens, and how clients reach it.
pub(crate) struct Bound {
    pub(crate) listener: Listener,
    pub(crate) place: Place,
}

/// Where a client connects to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Unix(PathBuf),
    Tcp(std::net::SocketAddr),
}

impl Place {
    /// The URI of the NBD project's specification, for `export` there.
    pub(crate) fn uri(&self, export: &str) -> String {
        let export = percent(export.as_bytes(), b"");
        match self {
            Place::Unix(path) => {
                use std::os::unix::ffi::OsStrExt;
                let path = percent(path.as_os_str().as_bytes(), b"/");
                format!("nbd+unix:///{export}?socket={path}")
            }
            Place::Tcp(address) if export.is_empty() => format!("nbd://{address}"),
            Place::Tcp(address) => format!("nbd://{address}/{export}"),
        }
    }
}

/// Percent-encodes all but RFC 3986's unreserved characters and `keep`.
fn percent(bytes: &[u8], keep: &[u8]) -> String {
    let mut text = String::new();
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || keep.contains(&byte) {
            text.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// Removes a server's socket when it ends.
pub(crate) struct SocketFile(PathBuf);

impl SocketFile {
    /// The folder it is in.
    pub(crate) fn folder(&self) -> Option<PathBuf> {
        self.0.parent().map(PathBuf::from)
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::info!(path = %self.0.display(), %error, "socket not removed");
        }
    }
}

/// The default socket of a device: `/run/xtent` for root, else
/// `$XDG_RUNTIME_DIR/xtent`.
pub(crate) fn default_socket(device: &Path) -> Result<PathBuf> {
    let dir = if rustix::process::geteuid().is_root() {
        PathBuf::from("/run/xtent")
    } else {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").ok_or_else(|| {
            Failure::parameters("no place for a socket: $XDG_RUNTIME_DIR is not set")
                .advise("Give one with --nbd unix:PATH.")
        })?;
        Path::new(&runtime).join("xtent")
    };
    let name = device.file_name().unwrap_or(device.as_os_str());
    let mut file = name.to_os_string();
    file.push(".sock");
    Ok(dir.join(file))
}

/// Makes the folder of the default socket, for its owner only.
pub(crate) fn make_private_dir(path: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let fail = |e| Failure::system(format!("cannot make {}", path.display()), e);
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(fail)?;
    let metadata = path.symlink_metadata().map_err(fail)?;
    if !metadata.is_dir()
        || metadata.uid() != rustix::process::geteuid().as_raw()
        || metadata.permissions().mode() & 0o022 != 0
    {
        return Err(Failure::new(
            Exit::Permission,
            format!("{} is not a folder that only this user can change", path.display()),
        )
        .advise("Give another place with --nbd unix:PATH."));
    }
    Ok(())
}

/// Listens on `spec`. The socket file, if it is one, goes when the second
/// value is dropped.
pub(crate) fn bind(spec: &Spec, allow_remote: bool) -> Result<(Bound, Option<SocketFile>)> {
    match spec {
        Spec::Unix(path) => {
            let path = std::path::absolute(path)
                .map_err(|e| Failure::system(format!("cannot resolve {}", path.display()), e))?;
            let listener = bind_unix(&path)?;
            let bound = Bound {
                listener: Listener::Unix(listener),
                place: Place::Unix(path.clone()),
            };
            Ok((bound, Some(SocketFile(path))))
        }
        Spec::Tcp { host, port } => {
            let name = format!("{host}:{port}");
            let addresses: Vec<_> = (host.as_str(), *port)
                .to_socket_addrs()
                .map_err(|e| Failure::system(format!("cannot find the address of {name}"), e))?
                .collect();
            if !allow_remote && let Some(remote) = addresses.iter().find(|a| !a.ip().is_loopback()) {
                return Err(refuse_remote(&remote.to_string()));
            }
            let listener = TcpListener::bind(&addresses[..])
                .map_err(|e| Failure::system(format!("cannot listen on {name}"), e))?;
            Ok((bound_tcp(listener)?, None))
        }
    }
}

fn bound_tcp(listener: TcpListener) -> Result<Bound> {
    let address = listener
        .local_addr()
        .map_err(|e| Failure::system("cannot find the socket's address", e))?;
    Ok(Bound {
        listener: Listener::Tcp(listener),
        place: Place::Tcp(address),
    })
}

fn refuse_remote(address: &str) -> Failure {
    Failure::parameters(format!(
        "{address} is reachable from other machines, and the data would cross the network readable"
    ))
    .advise(
        "Use unix:PATH or tcp:localhost:PORT and a tunnel; if the network is trusted, give --allow-remote.",
    )
}

fn bind_unix(path: &Path) -> Result<UnixListener> {
    // Only the owner may connect: whoever connects can read everything.
    let before = rustix::process::umask(Mode::from_raw_mode(0o177));
    let mut result = UnixListener::bind(path);
    if let Err(e) = &result
        && e.kind() == std::io::ErrorKind::AddrInUse
        && is_stale(path)
    {
        tracing::info!(path = %path.display(), "replacing the socket of a server that is gone");
        result = std::fs::remove_file(path).and_then(|()| UnixListener::bind(path));
    }
    rustix::process::umask(before);
    result.map_err(|e| match e.kind() {
        std::io::ErrorKind::AddrInUse => Failure::new(
            Exit::Busy,
            format!("{} exists and is in use or no socket", path.display()),
        )
        .advise("Give another place with --nbd unix:PATH."),
        _ => Failure::system(format!("cannot listen on {}", path.display()), e),
    })
}

/// A socket that nobody listens on any more.
fn is_stale(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|m| m.file_type().is_socket())
        && UnixStream::connect(path)
            .is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionRefused)
}

/// The sockets that systemd passes (`LISTEN_FDS`).
pub(crate) fn activated(allow_remote: bool) -> Result<Vec<Bound>> {
    let mut fds = listenfd::ListenFd::from_env();
    (0..fds.len())
        .map(|i| {
            if let Ok(Some(listener)) = fds.take_unix_listener(i) {
                let path = listener.local_addr().ok().and_then(|a| a.as_pathname().map(Path::to_owned));
                return Ok(Bound {
                    listener: Listener::Unix(listener),
                    place: Place::Unix(path.unwrap_or_default()),
                });
            }
            match fds.take_tcp_listener(i) {
                Ok(Some(listener)) => {
                    let bound = bound_tcp(listener)?;
                    match &bound.place {
                        Place::Tcp(a) if !allow_remote && !a.ip().is_loopback() => {
                            Err(refuse_remote(&a.to_string()))
                        }
                        _ => Ok(bound),
                    }
                }
                _ => Err(Failure::parameters(format!(
                    "socket {i} of LISTEN_FDS is neither a Unix nor a TCP socket that listens"
                ))),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Spec {
        Spec::Tcp {
            host: host.to_owned(),
            port,
        }
    }

    #[test]
    fn reads_specs() {
        for (text, spec) in [
            ("unix:/a b:c", Spec::Unix("/a b:c".into())),
            ("unix:rel", Spec::Unix("rel".into())),
            ("tcp:localhost:1", tcp("localhost", 1)),
            ("tcp:127.0.0.1", tcp("127.0.0.1", NBD_PORT)),
            ("tcp:[::1]:0", tcp("::1", 0)),
            ("tcp:[::1]", tcp("::1", NBD_PORT)),
        ] {
            assert_eq!(text.parse(), Ok(spec), "{text}");
        }
    }

    #[test]
    fn refuses_other_specs() {
        for text in [
            "", "unix", "unix:", "tcp:", "tcp::1", "tcp:::1", "tcp:::1:10809", "tcp:h:65536",
            "tcp:h:", "tcp:[::1", "tcp:[::1]x", "tcp:[]:1", "/path", "udp:h:1",
        ] {
            assert!(text.parse::<Spec>().is_err(), "{text}");
        }
    }

    #[test]
    fn writes_uris() {
        assert_eq!(
            Place::Unix("/tmp/a b&c.sock".into()).uri("disk/1?"),
            "nbd+unix:///disk%2F1%3F?socket=/tmp/a%20b%26c.sock"
        );
        assert_eq!(Place::Unix("/s".into()).uri(""), "nbd+unix:///?socket=/s");
        let v6: std::net::SocketAddr = "[::1]:10809".parse().unwrap();
        assert_eq!(Place::Tcp(v6).uri(""), "nbd://[::1]:10809");
        assert_eq!(Place::Tcp(v6).uri("x"), "nbd://[::1]:10809/x");
    }

    #[test]
    fn replaces_a_stale_socket_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let spec = Spec::Unix(path.clone());
        drop(UnixListener::bind(&path).unwrap());
        let (bound, file) = bind(&spec, false).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(bind(&spec, false).err().unwrap().exit, Exit::Busy);
        drop((bound, file));
        assert!(!path.exists());
        std::fs::write(&path, "no socket").unwrap();
        assert_eq!(bind(&spec, false).err().unwrap().exit, Exit::Busy);
        assert!(path.exists());
    }

    #[test]
    fn stays_on_this_machine_unless_told() {
        assert!(bind(&tcp("127.0.0.1", 0), false).is_ok());
        assert_eq!(bind(&tcp("0.0.0.0", 0), false).err().unwrap().exit, Exit::Parameters);
        assert!(bind(&tcp("0.0.0.0", 0), true).is_ok());
    }
}
