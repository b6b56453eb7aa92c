//! Making a connection: addresses, the socket, the handshake.

use std::fmt;
use std::io::{self, IoSlice};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use xtent_nbd::client::{Handshake, HandshakeError, HandshakeErrorKind, Negotiated, Step};
use xtent_store::ErrorKind;
use xtent_tls::{Channel, Client, Next};

use crate::uri::{Place, Uri};
use crate::wake::Wake;
use crate::wire::Wire;

/// How long a peer that says nothing is asked, and how often, before it counts as gone.
const KEEPALIVE: Duration = Duration::from_secs(5);
const KEEPALIVE_TRIES: u32 = 3;

/// Where to connect to, and with what; nothing has to be looked up or read any more.
#[derive(Debug)]
pub(crate) struct Addresses {
    sockets: Sockets,
    tls: Option<Client>,
}

#[derive(Debug)]
enum Sockets {
    Tcp(Vec<SocketAddr>),
    Unix(SocketAddrUnix),
}

/// Why there is no connection.
#[derive(Debug)]
pub(crate) enum ConnectError {
    Io(io::Error),
    Handshake(HandshakeError),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Handshake(error) => error.fmt(f),
        }
    }
}

impl<E: Into<io::Error>> From<E> for ConnectError {
    fn from(error: E) -> Self {
        Self::Io(error.into())
    }
}

impl ConnectError {
    /// As an error of the store: its kind and cause.
    pub(crate) fn into_parts(self) -> (ErrorKind, io::Error) {
        match self {
            Self::Io(error) => (ErrorKind::of(&error), error),
            Self::Handshake(error) => {
                let kind = match error.kind {
                    HandshakeErrorKind::UnknownExport => ErrorKind::NotFound,
                    HandshakeErrorKind::Policy => ErrorKind::Permission,
                    HandshakeErrorKind::TlsRequired | HandshakeErrorKind::NoTls => {
                        ErrorKind::Unsupported
                    }
                    HandshakeErrorKind::Protocol | HandshakeErrorKind::Refused => ErrorKind::Io,
                };
                (kind, io::Error::other(error))
            }
        }
    }

    /// Whether the server said something that no server may.
    pub(crate) fn is_violation(&self) -> bool {
        matches!(self, Self::Handshake(error) if error.kind == HandshakeErrorKind::Protocol)
    }
}

/// What to do about the cause of an error, if it is one of TLS, or of a server that wants it or does not.
pub(crate) fn advice(cause: &io::Error) -> Option<&'static str> {
    let cause = cause.get_ref()?;
    if let Some(tls) = cause.downcast_ref::<xtent_tls::Error>() {
        return tls.advice.or(match tls.kind {
            xtent_tls::ErrorKind::File | xtent_tls::ErrorKind::Unusable => Some(
                "tls-certificates=DIR in the URI names a folder: ca-cert.pem there says whom to trust, and \
                 client-cert.pem with client-key.pem is shown to servers that ask.",
            ),
            xtent_tls::ErrorKind::Untrusted => Some("The server needs another certificate."),
            xtent_tls::ErrorKind::Name => {
                Some("tls-hostname=NAME in the URI says which name the certificate has.")
            }
            xtent_tls::ErrorKind::Refused => Some(
                "client-cert.pem and client-key.pem in the folder of tls-certificates=DIR in the URI are what \
                 this side shows; the server's authority has to have signed them.",
            ),
            _ => None,
        });
    }
    match cause.downcast_ref::<HandshakeError>()?.kind {
        HandshakeErrorKind::TlsRequired => Some(
            "Write nbds:// in place of nbd:// (nbds+unix:// in place of nbd+unix://), with tls-certificates=DIR \
             where none of the system's authorities has signed the server's certificate.",
        ),
        HandshakeErrorKind::NoTls => Some(
            "If the server has none and the way to it is trusted, write nbd:// in place of nbds:// \
             (nbd+unix:// in place of nbds+unix://), without the parameters of TLS.",
        ),
        _ => None,
    }
}

impl Addresses {
    /// Looks the host up and reads certificates.
    pub(crate) fn of(uri: &Uri) -> io::Result<Self> {
        let tls = uri.tls.as_ref().map(|tls| {
            let name = match (&tls.hostname, &uri.place) {
                (Some(name), _) => name,
                (None, Place::Tcp { host, .. }) => host,
                (None, Place::Unix(_)) => "localhost",
            };
            Client::open(tls.certificates.as_deref(), name)
        });
        Ok(Self {
            tls: tls.transpose()?,
            sockets: Sockets::of(uri)?,
        })
    }
}

impl Sockets {
    fn of(uri: &Uri) -> io::Result<Self> {
        match &uri.place {
            Place::Unix(path) => Ok(Self::Unix(SocketAddrUnix::new(path)?)),
            Place::Tcp { host, port } => {
                let addresses: Vec<_> = (host.as_str(), *port).to_socket_addrs()?.collect();
                match addresses.is_empty() {
                    true => Err(io::Error::other("the host has no address")),
                    false => Ok(Self::Tcp(addresses)),
                }
            }
        }
    }

    /// A socket that is connected, without blocking calls; by the deadline.
    fn connect(&self, wake: &Wake, deadline: Instant) -> io::Result<OwnedFd> {
        let addresses = match self {
            Self::Unix(address) => {
                let socket = new_socket(AddressFamily::UNIX)?;
                let begun = rustix::net::connect(&socket, address);
                return connected(socket, begun, wake, deadline);
            }
            Self::Tcp(addresses) => addresses,
        };
        let mut last = io::ErrorKind::AddrNotAvailable.into();
        for (tried, address) in addresses.iter().enumerate() {
            let now = Instant::now();
            // Those that have not been tried share the time that is left.
            let others = u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
            let deadline = now + deadline.saturating_duration_since(now) / others;
            match connect_tcp(address, wake, deadline) {
                Ok(socket) => return Ok(socket),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

fn new_socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(
        family,
        SocketType::STREAM,
        flags,
        None,
    )?)
}

fn connect_tcp(address: &SocketAddr, wake: &Wake, deadline: Instant) -> io::Result<OwnedFd> {
    let socket = new_socket(match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    })?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(&socket, KEEPALIVE)?;
    sockopt::set_tcp_keepcnt(&socket, KEEPALIVE_TRIES)?;
    // No limit for what was sent (TCP_USER_TIMEOUT): it counts a full window as well, and a server that is busy is not gone.
    let begun = rustix::net::connect(&socket, address);
    connected(socket, begun, wake, deadline)
}

/// Waits until a connection that has begun is there.
fn connected(
    socket: OwnedFd,
    begun: rustix::io::Result<()>,
    wake: &Wake,
    deadline: Instant,
) -> io::Result<OwnedFd> {
    match begun {
        Ok(()) => return Ok(socket),
        Err(Errno::INPROGRESS) => {}
        Err(error) => return Err(error.into()),
    }
    until(wake, &socket, PollFlags::OUT, deadline)?;
    match sockopt::socket_error(&socket)? {
        Ok(()) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}

/// Waits for the socket, or fails at the deadline or when this thread is to end.
pub(crate) fn until(
    wake: &Wake,
    socket: &OwnedFd,
    events: PollFlags,
    deadline: Instant,
) -> io::Result<()> {
    loop {
        // It is told of once, which may have been in another wait.
        if wake.is_closed() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        if !wake
            .wait(Some((socket.as_fd(), events)), Some(deadline))?
            .is_empty()
        {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(Errno::TIMEDOUT.into());
        }
    }
}

/// Connects and negotiates, by the deadline.
pub(crate) fn connect(
    addresses: &Addresses,
    export: &str,
    wake: &Wake,
    deadline: Instant,
) -> Result<(Wire, Negotiated), ConnectError> {
    let mut wire = Wire {
        socket: addresses.sockets.connect(wake, deadline)?,
        tls: None,
    };
    let mut handshake = Handshake::new(export, addresses.tls.is_some());
    let mut input = Vec::with_capacity(Handshake::input_capacity());
    loop {
        let (used, step) = handshake.step(&input).map_err(ConnectError::Handshake)?;
        input.drain(..used);
        if step == Step::StartTls {
            // What came in the clear is nobody's word; it must not be taken for one behind TLS.
            let (Some(client), true) = (&addresses.tls, input.is_empty()) else {
                return Err(unasked());
            };
            wire.tls = Some(start_tls(&wire, client, wake, deadline)?);
            handshake.secured();
        }
        send_all(&wire, &handshake.take_output(), wake, deadline)?;
        if let Step::Done(negotiated) = step {
            return match input.is_empty() {
                true => Ok((wire, negotiated)),
                false => Err(unasked()),
            };
        }
        if used == 0 {
            receive_some(&wire, &mut input, wake, deadline)?;
        }
    }
}

/// Adds to `input` what comes next, by the deadline.
pub(crate) fn receive_some(
    wire: &Wire,
    input: &mut Vec<u8>,
    wake: &Wake,
    deadline: Instant,
) -> Result<(), ConnectError> {
    let mut bytes = [0; 1024];
    loop {
        match wire.receive(&mut bytes) {
            Ok(0) => return Err(closed()),
            Ok(n) => {
                input.extend(&bytes[..n]);
                return Ok(());
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => until(wake, &wire.socket, PollFlags::IN, deadline)?,
                io::ErrorKind::Interrupted => {}
                _ => return Err(error.into()),
            },
        }
    }
}

fn unasked() -> ConnectError {
    ConnectError::Handshake(HandshakeError {
        kind: HandshakeErrorKind::Protocol,
        message: "the server answers what was not asked".to_owned(),
    })
}

fn closed() -> ConnectError {
    let what = "the server closed the connection at its beginning";
    io::Error::new(io::ErrorKind::UnexpectedEof, what).into()
}

/// Begins TLS on a connection whose server has agreed to it.
fn start_tls(
    wire: &Wire,
    client: &Client,
    wake: &Wake,
    deadline: Instant,
) -> Result<Channel, ConnectError> {
    let mut handshake = xtent_tls::Handshake::client(client)?;
    loop {
        let next = handshake.step();
        // After a failure it says what was wrong.
        send_all(wire, &handshake.take_output(), wake, deadline)?;
        if next? == Next::Done {
            return Ok(handshake.into_channel());
        }
        until(wake, &wire.socket, PollFlags::IN, deadline)?;
        match wire.receive_bytes(handshake.room()) {
            Ok(0) => return Err(closed()),
            Ok(n) => handshake.received(n),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Sends all of it, by the deadline.
pub(crate) fn send_all(
    wire: &Wire,
    mut data: &[u8],
    wake: &Wake,
    deadline: Instant,
) -> io::Result<()> {
    while !data.is_empty() || wire.has_unsent() {
        match wire.send(&[IoSlice::new(data)]) {
            Ok(n) => data = &data[n..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                until(wake, &wire.socket, PollFlags::OUT, deadline)?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
