//! Records as they come, and rustls' side of a connection.
//!
//! rustls is handed one record at a time, and again the ones before it only as long as it puts a
//! message of the handshake together. So whoever sends can call it with nothing received at any
//! time after the handshake.

use std::ops::{Deref, Range};

use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};
use rustls::{CommonState, Error as Tls};

use crate::{Error, ErrorKind};

/// Bytes of a record's head.
const HEAD: usize = 5;
/// Plaintext in one record, in bytes.
pub(crate) const RECORD: usize = 16 << 10;
/// The longest record that is waited for, in bytes.
pub(crate) const MAX_RECORD: usize = HEAD + RECORD + 2048;
/// Bytes received ahead: what a handshake may send at once, or a few records.
pub(crate) const INCOMING: usize = 128 << 10;

/// Bytes that have come and are not opened.
pub(crate) struct Incoming {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes from `start` on that rustls has seen and keeps.
    kept: usize,
}

impl Incoming {
    pub(crate) fn new() -> Self {
        Self {
            bytes: vec![0; INCOMING],
            start: 0,
            end: 0,
            kept: 0,
        }
    }

    /// What to hand over next: what is kept and one record more, if that is there. What is no
    /// record of TLS is handed over as it is, to be refused.
    fn next(&self) -> Option<Range<usize>> {
        let at = self.start + self.kept;
        let head = self.bytes[at..self.end].first_chunk::<HEAD>()?;
        let len = HEAD + usize::from(u16::from_be_bytes([head[3], head[4]]));
        if !(20..=24).contains(&head[0]) || head[1] != 3 || len > MAX_RECORD {
            return Some(self.start..self.end);
        }
        (self.end - at >= len).then_some(self.start..at + len)
    }

    /// Whether a whole record is there.
    pub(crate) fn has_record(&self) -> bool {
        self.next().is_some()
    }

    /// Where to receive more; empty if nothing fits.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.bytes[self.end..]
    }

    /// So many bytes have come.
    pub(crate) fn received(&mut self, len: usize) {
        self.end = (self.end + len).min(self.bytes.len());
    }

    /// Bytes that are there.
    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }

    /// Whether rustls keeps a part of a message.
    pub(crate) fn keeps(&self) -> bool {
        self.kept > 0
    }
}

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stands {
    /// In the handshake.
    Opening,
    /// Data can be sent.
    Open,
    /// The peer has said that nothing follows.
    Closed,
    /// Both have.
    Over,
}

/// rustls' part of either side.
pub(crate) enum Side {
    Server(Box<UnbufferedServerConnection>),
    Client(Box<UnbufferedClientConnection>),
}

impl Deref for Side {
    type Target = CommonState;

    fn deref(&self) -> &CommonState {
        match self {
            Self::Server(server) => server,
            Self::Client(client) => client,
        }
    }
}

impl Side {
    /// Opens the next record, if one is there: [`None`] if not. What the peer sent goes to `data`,
    /// what has to be answered to `control`.
    pub(crate) fn open_next(
        &mut self,
        incoming: &mut Incoming,
        control: &mut Vec<u8>,
        data: &mut dyn FnMut(&[u8]),
    ) -> Result<Option<Stands>, Error> {
        let Some(range) = incoming.next() else {
            return Ok(None);
        };
        self.open(incoming, range, control, data).map(Some)
    }

    /// Goes on with what is kept alone: begins a handshake.
    pub(crate) fn begin(
        &mut self,
        incoming: &mut Incoming,
        control: &mut Vec<u8>,
    ) -> Result<Stands, Error> {
        let range = incoming.start..incoming.start + incoming.kept;
        self.open(incoming, range, control, &mut |_| {})
    }

    fn open(
        &mut self,
        incoming: &mut Incoming,
        mut range: Range<usize>,
        control: &mut Vec<u8>,
        data: &mut dyn FnMut(&[u8]),
    ) -> Result<Stands, Error> {
        loop {
            let bytes = &mut incoming.bytes[range.clone()];
            let (used, stands) = match self {
                Self::Server(server) => took(server.process_tls_records(bytes), control, data),
                Self::Client(client) => took(client.process_tls_records(bytes), control, data),
            };
            range.start = (range.start + used).min(range.end);
            incoming.start = range.start;
            incoming.kept = range.len();
            match stands {
                Ok(Some(stands)) => return Ok(stands),
                Ok(None) => {}
                Err(error) => {
                    self.last_words(control);
                    return Err(Error::of_peer(&error));
                }
            }
        }
    }

    /// Puts what is to be sent before anything else into `control`; fails if nothing can be sent
    /// any more. After the handshake.
    pub(crate) fn settle(&mut self, control: &mut Vec<u8>) -> Result<(), Error> {
        loop {
            let nothing = &mut [];
            let (_, stands) = match self {
                Self::Server(it) => took(it.process_tls_records(nothing), control, &mut |_| {}),
                Self::Client(it) => took(it.process_tls_records(nothing), control, &mut |_| {}),
            };
            match stands.map_err(|error| Error::of_peer(&error))? {
                Some(Stands::Open) => return Ok(()),
                // The latter is said once, and this direction goes on.
                None | Some(Stands::Closed) => {}
                Some(Stands::Opening | Stands::Over) => {
                    return Err(Error::new(ErrorKind::Protocol, "TLS has ended"));
                }
            }
        }
    }

    /// Encrypts into `out`, which has room for it; after [`Side::settle`]. Bytes written.
    pub(crate) fn encrypt(&mut self, data: &[u8], out: &mut [u8]) -> Result<usize, Error> {
        match self {
            Self::Server(it) => encrypted(it.process_tls_records(&mut []), Some(data), out),
            Self::Client(it) => encrypted(it.process_tls_records(&mut []), Some(data), out),
        }
    }

    /// Says that nothing follows.
    pub(crate) fn close(&mut self, out: &mut [u8]) -> Result<usize, Error> {
        match self {
            Self::Server(it) => encrypted(it.process_tls_records(&mut []), None, out),
            Self::Client(it) => encrypted(it.process_tls_records(&mut []), None, out),
        }
    }

    #[cfg(test)]
    pub(crate) fn refresh_keys(&mut self) {
        fn refresh<D>(status: UnbufferedStatus<'_, '_, D>) {
            let Ok(ConnectionState::WriteTraffic(traffic)) = status.state else {
                panic!("it is not open");
            };
            traffic.refresh_traffic_keys().unwrap();
        }
        match self {
            Self::Server(it) => refresh(it.process_tls_records(&mut [])),
            Self::Client(it) => refresh(it.process_tls_records(&mut [])),
        }
    }

    /// After a failure: what the peer is told about it, if anything.
    fn last_words(&mut self, control: &mut Vec<u8>) {
        while self.wants_write() {
            let before = control.len();
            let (_, stands) = match self {
                Self::Server(it) => took(it.process_tls_records(&mut []), control, &mut |_| {}),
                Self::Client(it) => took(it.process_tls_records(&mut []), control, &mut |_| {}),
            };
            if stands.is_err() || control.len() == before {
                return;
            }
        }
    }
}

/// Takes what rustls came to: the bytes to discard, and where the connection stands, unless it
/// is to be called again.
fn took<D>(
    status: UnbufferedStatus<'_, '_, D>,
    control: &mut Vec<u8>,
    data: &mut dyn FnMut(&[u8]),
) -> (usize, Result<Option<Stands>, Tls>) {
    let UnbufferedStatus { mut discard, state } = status;
    let stands = match state {
        Err(error) => Err(error),
        Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
            match traffic.next_record() {
                Some(Ok(record)) => {
                    discard += record.discard;
                    data(record.payload);
                }
                Some(Err(error)) => break Err(error),
                None => break Ok(None),
            }
        },
        Ok(ConnectionState::EncodeTlsData(mut encoding)) => {
            let start = control.len();
            let mut encoded = encoding.encode(&mut []);
            if let Err(EncodeError::InsufficientSize(needed)) = &encoded {
                control.resize(start + needed.required_size, 0);
                encoded = encoding.encode(&mut control[start..]);
            }
            match encoded {
                Ok(_) => Ok(None),
                Err(error) => Err(Tls::General(error.to_string())),
            }
        }
        Ok(ConnectionState::TransmitTlsData(transmit)) => {
            // It goes out before anything that is encrypted later.
            transmit.done();
            Ok(None)
        }
        Ok(ConnectionState::BlockedHandshake) => Ok(Some(Stands::Opening)),
        Ok(ConnectionState::WriteTraffic(_)) => Ok(Some(Stands::Open)),
        Ok(ConnectionState::PeerClosed) => Ok(Some(Stands::Closed)),
        Ok(ConnectionState::Closed) => Ok(Some(Stands::Over)),
        Ok(other) => Err(Tls::General(format!("unexpected {other:?}"))),
    };
    (discard, stands)
}

fn encrypted<D>(
    status: UnbufferedStatus<'_, '_, D>,
    data: Option<&[u8]>,
    out: &mut [u8],
) -> Result<usize, Error> {
    match status.state {
        Ok(ConnectionState::WriteTraffic(mut traffic)) => match data {
            Some(data) => traffic.encrypt(data, out),
            None => traffic.queue_close_notify(out),
        }
        .map_err(|error| Error::new(ErrorKind::Protocol, "cannot encrypt").because(error)),
        Ok(_) => Err(Error::new(ErrorKind::Protocol, "TLS has ended")),
        Err(error) => Err(Error::of_peer(&error)),
    }
}
