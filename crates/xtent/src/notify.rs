//! systemd's readiness protocol (`sd_notify`(3)): one datagram per state.

use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The service manager's socket, connected before the sandbox closes the door.
pub(crate) struct Notifier(Option<UnixDatagram>);

impl Notifier {
    /// Connects if a service manager asked for it; else stays mute.
    pub(crate) fn from_env() -> Self {
        Self(
            std::env::var_os("NOTIFY_SOCKET").and_then(|name| match connect(&name) {
                Ok(socket) => Some(socket),
                Err(error) => {
                    tracing::warn!(?name, %error, "cannot reach $NOTIFY_SOCKET");
                    None
                }
            }),
        )
    }

    /// Tells the state, such as `READY=1`.
    pub(crate) fn tell(&self, state: &str) {
        if let Some(socket) = &self.0
            && let Err(error) = socket.send(state.as_bytes())
        {
            tracing::warn!(state, %error, "cannot tell the service manager");
        }
    }
}

fn connect(name: &OsString) -> std::io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    match name.as_bytes().strip_prefix(b"@") {
        Some(name) => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        None => socket.connect(name)?,
    }
    Ok(socket)
}
