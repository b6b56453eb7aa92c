//! What comes in on one connection: replies are parsed from a small buffer, data goes straight
//! where it belongs.

use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;

use rustix::io::Errno;
use xtent_nbd::client::{REPLY_CAPACITY, parse_reply};
use xtent_store::{Buffer, chain};

use crate::connection::Connection;
use crate::lock;
use crate::operation::Work;
use crate::shared::{Incoming, Shared, Trouble};

/// Bytes received ahead of being understood.
const BUFFER: usize = 16 << 10;
/// System calls in a row before the thread looks for other things to do.
pub(crate) const CALLS: usize = 16;

const _: () = assert!(BUFFER >= REPLY_CAPACITY);

/// The receiving end of a connection.
pub(crate) struct Receiver {
    bytes: Vec<u8>,
    /// What of it has come and is not used.
    filled: Range<usize>,
    incoming: Option<Incoming>,
}

impl Receiver {
    pub(crate) fn new() -> Self {
        Self {
            bytes: vec![0; BUFFER],
            filled: 0..0,
            incoming: None,
        }
    }

    /// Takes what has come, or a good part of it.
    pub(crate) fn receive(
        &mut self,
        shared: &Shared,
        connection: &Arc<Connection>,
    ) -> Result<(), Trouble> {
        let mut calls = 0;
        loop {
            self.use_up(shared, connection)?;
            // What TLS holds already is taken: no wait for the socket would tell of it.
            if calls == CALLS && !connection.wire.has_more() {
                break;
            }
            calls = CALLS.min(calls + 1);
            if !self.fill(connection)? {
                break;
            }
        }
        self.use_up(shared, connection)
    }

    /// Does what the bytes received so far say.
    fn use_up(&mut self, shared: &Shared, connection: &Arc<Connection>) -> Result<(), Trouble> {
        loop {
            if let Some(incoming) = &mut self.incoming {
                let ahead = &self.bytes[self.filled.clone()];
                let n = ahead.len().min(incoming.left);
                into_buffer(incoming, connection, |place| {
                    place[..n].copy_from_slice(&ahead[..n])
                })?;
                self.filled.start += n;
                incoming.advance(n);
                if incoming.left > 0 {
                    return Ok(());
                }
                let cookie = incoming.cookie;
                self.incoming = None;
                shared.conclude(connection, cookie)?;
            }
            let parsed = parse_reply(connection.form, &self.bytes[self.filled.clone()]);
            match parsed.map_err(|error| Trouble::Violation(error.to_string(), 0))? {
                Some((used, reply)) => {
                    self.filled.start += used;
                    self.incoming = shared.replied(connection, reply)?;
                }
                None => return Ok(()),
            }
        }
    }

    /// Receives more, with one system call; [`false`] if there is no more for now.
    fn fill(&mut self, connection: &Connection) -> Result<bool, Trouble> {
        self.bytes.copy_within(self.filled.clone(), 0);
        self.filled = 0..self.filled.len();
        if connection.wire.tls.is_some() {
            return self.fill_by_tls(connection);
        }
        let ahead = &mut self.bytes[self.filled.end..];
        let room = ahead.len();
        let socket = &connection.wire.socket;
        let mut direct = 0;
        let received = match &mut self.incoming {
            None => rustix::io::read(socket, ahead),
            Some(incoming) => {
                direct = incoming.left;
                into_buffer(incoming, connection, |place| {
                    let mut slices = [IoSliceMut::new(place), IoSliceMut::new(ahead)];
                    rustix::io::readv(socket, &mut slices)
                })?
            }
        };
        let n = match received {
            Ok(0) => return Err(closed()),
            Ok(n) => n,
            Err(Errno::INTR) => return Ok(true),
            Err(Errno::AGAIN) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let placed = n.min(direct);
        if let Some(incoming) = &mut self.incoming {
            incoming.advance(placed);
        }
        self.filled.end += n - placed;
        // What came was less than could have.
        Ok(n == direct + room)
    }

    /// As [`Receiver::fill`], with a system call only where nothing is left from before.
    fn fill_by_tls(&mut self, connection: &Connection) -> Result<bool, Trouble> {
        let wire = &connection.wire;
        let received = match &mut self.incoming {
            None => wire.receive(&mut self.bytes[self.filled.end..]),
            Some(incoming) => into_buffer(incoming, connection, |place| wire.receive(place))?,
        };
        let n = match received {
            Ok(0) => return Err(closed()),
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(Trouble::Gone(chain(&error).to_string())),
        };
        match &mut self.incoming {
            None => self.filled.end += n,
            Some(incoming) => incoming.advance(n),
        }
        Ok(true)
    }
}

fn closed() -> Trouble {
    Trouble::Gone("the server closed the connection".to_owned())
}

impl Incoming {
    fn advance(&mut self, n: usize) {
        self.start += n;
        self.left -= n;
    }
}

/// Gives access to what is still to be filled. While this is locked no other connection
/// fills it; after this one has died, it is others' to fill.
fn into_buffer<T>(
    incoming: &Incoming,
    connection: &Connection,
    fill: impl FnOnce(&mut [u8]) -> T,
) -> Result<T, Trouble> {
    let Work::Read(buffer) = &incoming.operation.work else {
        return Err(Trouble::Dead);
    };
    let mut buffer = lock(buffer);
    match buffer.as_mut() {
        Some(buffer) if !connection.is_dead() => {
            let buffer: &mut Buffer = buffer;
            let place = incoming.start..incoming.start + incoming.left;
            Ok(fill(&mut buffer[place]))
        }
        _ => Err(Trouble::Dead),
    }
}
