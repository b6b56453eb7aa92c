//! The handshake, driven by whoever has the socket.

use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;

use crate::certificate::Peer;
use crate::channel::Channel;
use crate::records::{Incoming, Side, Stands};
use crate::{Client, Error, ErrorKind, Server};

/// What a handshake needs next, once its output is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// More from the peer.
    Receive,
    /// Nothing: it is over.
    Done,
}

/// A handshake. Call [`Handshake::step`], send [`Handshake::take_output`] whatever came of it, and
/// receive into [`Handshake::room`], in turns.
pub struct Handshake {
    side: Side,
    incoming: Incoming,
    output: Vec<u8>,
    /// What was said behind the handshake already.
    data: Vec<u8>,
    has_begun: bool,
}

impl Handshake {
    /// As a server; the peer speaks first.
    ///
    /// # Errors
    /// If rustls cannot be set up so.
    pub fn server(config: &Server) -> Result<Self, Error> {
        UnbufferedServerConnection::new(Arc::clone(&config.0))
            .map(|server| Self::new(Side::Server(Box::new(server))))
            .map_err(|error| Error::of_peer(&error))
    }

    /// As a client.
    ///
    /// # Errors
    /// If rustls cannot be set up so.
    pub fn client(config: &Client) -> Result<Self, Error> {
        UnbufferedClientConnection::new(Arc::clone(&config.config), config.name.clone())
            .map(|client| Self::new(Side::Client(Box::new(client))))
            .map_err(|error| Error::of_peer(&error))
    }

    fn new(side: Side) -> Self {
        Self {
            side,
            incoming: Incoming::new(),
            output: Vec::new(),
            data: Vec::new(),
            has_begun: false,
        }
    }

    /// Goes on with what has come.
    ///
    /// # Errors
    /// Whatever is wrong with the peer, of which it is told by the output.
    pub fn step(&mut self) -> Result<Next, Error> {
        if !self.has_begun {
            self.has_begun = true;
            self.side.begin(&mut self.incoming, &mut self.output)?;
        }
        loop {
            let data = &mut self.data;
            let stands =
                self.side
                    .open_next(&mut self.incoming, &mut self.output, &mut |bytes| {
                        data.extend_from_slice(bytes)
                    })?;
            match stands {
                Some(Stands::Closed | Stands::Over) => {
                    return Err(Error::new(ErrorKind::Refused, "the peer ended TLS"));
                }
                Some(_) if !self.side.is_handshaking() => {
                    // Nobody needs that, and whoever sends must find nothing half done.
                    return match self.incoming.keeps() {
                        true => Err(split()),
                        false => Ok(Next::Done),
                    };
                }
                Some(_) => {}
                None if self.incoming.room().is_empty() => {
                    let what = "the peer's handshake is too long";
                    return Err(Error::new(ErrorKind::Protocol, what));
                }
                None => return Ok(Next::Receive),
            }
        }
    }

    /// What has to be sent now; empties it.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Where to receive.
    pub fn room(&mut self) -> &mut [u8] {
        self.incoming.room()
    }

    /// So many bytes were received into the room.
    pub fn received(&mut self, len: usize) {
        self.incoming.received(len);
    }

    /// The channel, once the handshake is [`Next::Done`] and its output sent.
    pub fn into_channel(self) -> Channel {
        let shown = self.side.peer_certificates();
        let peer = shown.and_then(<[_]>::first).map(|it| Peer::of(it));
        Channel::new(self.side, self.incoming, self.data, peer)
    }
}

/// A message of the handshake in several records, after it.
pub(crate) fn split() -> Error {
    let what = "the peer cut a message of TLS in pieces";
    Error::new(ErrorKind::Protocol, what)
}
