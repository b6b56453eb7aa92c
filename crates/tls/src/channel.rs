//! A connection after its handshake: bytes to records and back.

use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::certificate::Peer;
use crate::handshake::split;
use crate::records::{Incoming, MAX_RECORD, RECORD, Side, Stands};
use crate::{Error, ErrorKind};

/// Bytes that a record has beside its data.
const OVERHEAD: usize = 22;
/// Records that are encrypted before the first of them is sent.
const BATCH: usize = 17;
/// Bytes of memory for that.
pub(crate) const OUTGOING: usize = BATCH * (RECORD + OVERHEAD) + MAX_RECORD;

/// An encrypted connection. One thread receives and another sends at the same time;
/// each opens or closes records under a lock that is held for those alone.
pub struct Channel {
    inner: Mutex<Inner>,
    outgoing: Mutex<Outgoing>,
    incoming: Mutex<Receiving>,
    /// There are records that the socket has not taken.
    unsent: AtomicBool,
    peer: Option<Peer>,
}

struct Inner {
    side: Side,
    /// Records of rustls' own that go out before anything else.
    control: Vec<u8>,
    /// Nothing can be sent or received any more but the last words about that.
    broken: bool,
}

struct Outgoing {
    /// Memory for records, of which those from `start` to `end` are unsent.
    records: Vec<u8>,
    start: usize,
    end: usize,
    /// Small pieces that become one record.
    gathered: Vec<u8>,
}

struct Receiving {
    incoming: Incoming,
    /// Plaintext that did not fit where the rest went.
    over: Vec<u8>,
    start: usize,
    closed: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Channel {
    pub(crate) fn new(side: Side, incoming: Incoming, over: Vec<u8>, peer: Option<Peer>) -> Self {
        Self {
            inner: Mutex::new(Inner {
                side,
                control: Vec::new(),
                broken: false,
            }),
            outgoing: Mutex::new(Outgoing {
                records: vec![0; OUTGOING],
                start: 0,
                end: 0,
                gathered: Vec::with_capacity(RECORD),
            }),
            incoming: Mutex::new(Receiving {
                incoming,
                over,
                start: 0,
                closed: false,
            }),
            unsent: AtomicBool::new(false),
            peer,
        }
    }

    /// Who is at the other end, if that has shown a certificate, which was verified.
    pub fn peer(&self) -> Option<&Peer> {
        self.peer.as_ref()
    }

    /// The cipher, for the log.
    pub fn cipher(&self) -> &'static str {
        let suite = lock(&self.inner).side.negotiated_cipher_suite();
        suite
            .and_then(|suite| suite.suite().as_str())
            .unwrap_or("unknown")
    }

    /// Encrypts what `slices` hold, or the beginning of it, and hands the records to `to`, which says how
    /// many bytes it took. Returns the bytes that were encrypted; these are on their
    /// way even if the socket takes no more now: then [`Channel::has_unsent`], and the next call sends them
    /// first.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if records from before are still waiting, and nothing of `slices` was
    /// looked at. Anything else ends the channel.
    pub fn send(
        &self,
        slices: &[IoSlice<'_>],
        mut to: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut outgoing = lock(&self.outgoing);
        let result = self.encrypt_and_send(&mut outgoing, slices, &mut to);
        self.unsent.store(!outgoing.is_empty(), Ordering::Release);
        result
    }

    fn encrypt_and_send(
        &self,
        outgoing: &mut Outgoing,
        slices: &[IoSlice<'_>],
        to: &mut impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        if !outgoing.flush(to)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let taken = self.encrypt(outgoing, slices)?;
        outgoing.flush(to)?;
        Ok(taken)
    }

    /// Asks the peer for new keys, too.
    #[cfg(test)]
    pub(crate) fn refresh_keys(&self) {
        lock(&self.inner).side.refresh_keys();
    }

    /// Whether there are records that the socket has not taken.
    pub fn has_unsent(&self) -> bool {
        self.unsent.load(Ordering::Acquire)
    }

    /// Encrypts while there is room. `outgoing` is empty.
    fn encrypt(&self, outgoing: &mut Outgoing, slices: &[IoSlice<'_>]) -> Result<usize, Error> {
        let mut inner = lock(&self.inner);
        let inner = &mut *inner;
        if inner.broken {
            return Err(Error::new(ErrorKind::Protocol, "TLS has ended"));
        }
        inner.side.settle(&mut inner.control)?;
        outgoing.append(&mut inner.control);
        let mut taken = 0;
        outgoing.gathered.clear();
        'slices: for slice in slices {
            let mut rest = &slice[..];
            while !rest.is_empty() {
                let free = outgoing.free_records();
                if free == 0 {
                    break 'slices;
                }
                let gathered = outgoing.gathered.len();
                if gathered == 0 && rest.len() >= RECORD {
                    // Whole records are encrypted from where they lie.
                    let (now, later) = rest.split_at((rest.len() / RECORD).min(free) * RECORD);
                    outgoing.encrypt(&mut inner.side, now)?;
                    taken += now.len();
                    rest = later;
                } else if gathered + rest.len() <= RECORD {
                    outgoing.gathered.extend_from_slice(rest);
                    rest = &[];
                } else {
                    taken += outgoing.encrypt_gathered(&mut inner.side)?;
                }
            }
        }
        taken += outgoing.encrypt_gathered(&mut inner.side)?;
        Ok(taken)
    }

    /// Receives plaintext into `space`, calling `from` once at most, and only if nothing is
    /// there that came before. 0 is the peer's own end of the stream.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if more has to come first: nothing waits here then, so that it is safe
    /// to wait for the socket. [`io::ErrorKind::UnexpectedEof`] if the stream was cut off.
    pub fn receive(
        &self,
        space: &mut [u8],
        mut from: impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut receiving = lock(&self.incoming);
        let receiving = &mut *receiving;
        let mut filled = receiving.take_over(space);
        let mut has_received = false;
        while filled < space.len() && !receiving.closed {
            let room = &mut space[filled..];
            if let Some(n) = self.open_next(receiving, room)? {
                filled += n;
                continue;
            }
            if filled > 0 || has_received {
                break;
            }
            let n = from(receiving.incoming.room())?;
            if n == 0 {
                let what = "the peer cut the connection off without ending TLS";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
            }
            receiving.incoming.received(n);
            has_received = true;
        }
        match filled {
            0 if !receiving.closed && !space.is_empty() => Err(io::ErrorKind::WouldBlock.into()),
            filled => Ok(filled),
        }
    }

    /// Opens a record into `room`, and what does not fit beside; [`None`] if there is none.
    fn open_next(
        &self,
        receiving: &mut Receiving,
        room: &mut [u8],
    ) -> Result<Option<usize>, Error> {
        let Receiving { incoming, over, .. } = receiving;
        let mut filled = 0;
        let mut data = |bytes: &[u8]| {
            let here = bytes.len().min(room.len() - filled);
            room[filled..filled + here].copy_from_slice(&bytes[..here]);
            over.extend_from_slice(&bytes[here..]);
            filled += here;
        };
        let opened = {
            let mut inner = lock(&self.inner);
            let inner = &mut *inner;
            if inner.broken {
                return Err(Error::new(ErrorKind::Protocol, "TLS has ended"));
            }
            let opened = inner
                .side
                .open_next(incoming, &mut inner.control, &mut data);
            let opened = match opened {
                Ok(_) if incoming.keeps() => Err(split()),
                opened => opened,
            };
            inner.broken = opened.is_err();
            opened?
        };
        match opened {
            None => return Ok(None),
            Some(Stands::Closed | Stands::Over) => receiving.closed = true,
            Some(_) => {}
        }
        Ok(Some(filled))
    }

    /// Whether [`Channel::receive`] would go on without receiving: poll says nothing of that.
    pub fn has_more(&self) -> bool {
        let receiving = lock(&self.incoming);
        receiving.start < receiving.over.len() || receiving.incoming.has_record()
    }

    /// Bytes that have come and were not returned, as records or plaintext.
    pub fn buffered(&self) -> usize {
        let receiving = lock(&self.incoming);
        receiving.over.len() - receiving.start + receiving.incoming.len()
    }

    /// Tells the peer that nothing follows, or what was wrong; as far as `to` takes it.
    pub fn close(&self, mut to: impl FnMut(&[u8]) -> io::Result<usize>) {
        let mut outgoing = lock(&self.outgoing);
        {
            let mut inner = lock(&self.inner);
            let inner = &mut *inner;
            let is_open = !inner.broken && inner.side.settle(&mut inner.control).is_ok();
            outgoing.append(&mut inner.control);
            if is_open {
                let Outgoing { records, end, .. } = &mut *outgoing;
                *end += inner.side.close(&mut records[*end..]).unwrap_or(0);
            }
            inner.broken = true;
        }
        // Whoever is gone hears nothing.
        let _ = outgoing.flush(&mut to);
        self.unsent.store(!outgoing.is_empty(), Ordering::Release);
    }
}

impl Outgoing {
    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Sends; false if the socket is full.
    fn flush(&mut self, to: &mut impl FnMut(&[u8]) -> io::Result<usize>) -> io::Result<bool> {
        while !self.is_empty() {
            match to(&self.records[self.start..self.end]) {
                Ok(n) => self.start = (self.start + n).min(self.end),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        (self.start, self.end) = (0, 0);
        Ok(true)
    }

    /// Full records that there is room for, beside one with what is gathered and rustls' own.
    fn free_records(&self) -> usize {
        let own = match self.gathered.is_empty() {
            true => MAX_RECORD,
            false => MAX_RECORD + RECORD + OVERHEAD,
        };
        (OUTGOING - self.end).saturating_sub(own) / (RECORD + OVERHEAD)
    }

    /// Adds records as they are; empties them. There are some hundred bytes at most: more than
    /// there is room for ends the channel when the peer finds them missing.
    fn append(&mut self, control: &mut Vec<u8>) {
        let n = control.len().min(OUTGOING - self.end);
        self.records[self.end..self.end + n].copy_from_slice(&control[..n]);
        self.end += n;
        control.clear();
    }

    fn encrypt(&mut self, side: &mut Side, data: &[u8]) -> Result<(), Error> {
        self.end += side.encrypt(data, &mut self.records[self.end..])?;
        Ok(())
    }

    fn encrypt_gathered(&mut self, side: &mut Side) -> Result<usize, Error> {
        let n = self.gathered.len();
        if n > 0 {
            self.end += side.encrypt(&self.gathered, &mut self.records[self.end..])?;
            self.gathered.clear();
        }
        Ok(n)
    }
}

impl Receiving {
    /// Gives what is left over.
    fn take_over(&mut self, space: &mut [u8]) -> usize {
        let left = &self.over[self.start..];
        let here = left.len().min(space.len());
        space[..here].copy_from_slice(&left[..here]);
        self.start += here;
        if self.start == self.over.len() {
            self.over.clear();
            self.start = 0;
        }
        here
    }
}
