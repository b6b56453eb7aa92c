//! TLS for clients: what it takes, and its handshake on a connection.

use std::io;
use std::io::IoSlice;

use rustix::io::Errno;
use xtent_store::chain;
use xtent_tls::{Handshake, Next, Server};

use super::port::{Closed, For, Port};

/// TLS for the clients of a server.
#[derive(Clone, Debug)]
pub struct Tls {
    /// Certificates, and whether clients need some.
    pub server: Server,
    /// Whether clients without TLS are refused. If not, whoever is between a client and this server
    /// can have the client believe that there is no TLS; clients have to insist.
    pub required: bool,
}

impl Port {
    /// Begins TLS; the client's names, by a certificate that was verified. The socket has not been read
    /// beyond the client's wish for it.
    pub(super) fn start_tls(&mut self, server: &Server) -> Result<Vec<String>, Closed> {
        let mut handshake = Handshake::server(server).map_err(failed)?;
        loop {
            let next = handshake.step();
            // After a failure it says what was wrong.
            let output = handshake.take_output();
            if !output.is_empty() {
                let (mut turn, ()) = self.take_turn(|| ())?;
                turn.send(self, &mut [IoSlice::new(&output)])?;
            }
            if next.map_err(failed)? == Next::Done {
                break;
            }
            if self.expired() {
                return Err(Closed::TimedOut("TLS handshake"));
            }
            let received = loop {
                match self.try_receive_bytes(handshake.room(), "in the TLS handshake")? {
                    Some(received) => break received,
                    None if self.check_stop() => return Err(Closed::Stopping),
                    None => self.wait(For::Input)?,
                }
            };
            handshake.received(received);
        }
        let channel = handshake.into_channel();
        let peer = channel.peer().cloned();
        let subject = peer.as_ref().map_or("none", |peer| &peer.subject);
        tracing::info!(
            client = self.link.client.id,
            peer = %self.link.client.peer,
            certificate = subject,
            cipher = channel.cipher(),
            "TLS"
        );
        // There is none yet: the handshake of NBD begins it once.
        let _ = self.link.tls.set(channel);
        Ok(peer.map_or_else(Vec::new, |peer| peer.names))
    }
}

fn failed(error: xtent_tls::Error) -> Closed {
    Closed::Tls(chain(&error).to_string())
}

/// Why a channel gave nothing.
pub(super) fn closed_by(error: &io::Error, place: &'static str) -> Closed {
    match Errno::from_io_error(error) {
        Some(error) => Closed::Socket(error),
        None if error.kind() == io::ErrorKind::UnexpectedEof => Closed::CutOff(place),
        None => Closed::Tls(chain(error).to_string()),
    }
}

/// What a channel's error is for whoever sends: anything but a full socket ends the connection.
pub(super) fn errno(error: &io::Error) -> Errno {
    match Errno::from_io_error(error) {
        Some(error) => error,
        None if error.kind() == io::ErrorKind::WouldBlock => Errno::AGAIN,
        None => Errno::PROTO,
    }
}
