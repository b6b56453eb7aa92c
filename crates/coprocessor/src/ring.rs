//! A ring of requests and the ring of their completions: what is under way, and whether what the device says of it can
//! be.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Instant;

use zeroize::{Zeroize, Zeroizing};

use crate::memory::Memory;
use crate::registers as reg;
use crate::slab::{Slab, Slot};

/// What the device is asked to do, in place. Its tweak may be encrypted, which is nobody else's to know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) op: u8,
    pub(crate) decrypt: bool,
    pub(crate) log2_unit: u8,
    pub(crate) step: u16,
    pub(crate) units: u32,
    pub(crate) tweak: u128,
    /// Where the data is in its slab.
    pub(crate) at: usize,
}

/// What is submitted: wiped when dropped, since it may have encrypted tweaks.
pub(crate) type Requests = Zeroizing<Vec<Request>>;

impl Request {
    /// Writes it where there are zeros.
    fn encode(&self, entry: &mut [u8; reg::SQE_BYTES], slot: u8, address: u64, cookie: u64) {
        let tweak = Zeroizing::new(self.tweak.to_le_bytes());
        entry[reg::SQE_OP] = self.op;
        entry[reg::SQE_FLAGS] =
            u8::from(self.decrypt) << reg::FLAG_DECRYPT | 1 << reg::FLAG_IN_PLACE;
        entry[reg::SQE_SLOT] = slot;
        entry[reg::SQE_LOG2_UNIT] = self.log2_unit;
        put(entry, reg::SQE_STEP, &self.step.to_le_bytes());
        put(entry, reg::SQE_UNITS, &self.units.to_le_bytes());
        put(entry, reg::SQE_TWEAK, &*tweak);
        put(entry, reg::SQE_SOURCE, &address.to_le_bytes());
        put(entry, reg::SQE_COOKIE, &cookie.to_le_bytes());
    }
}

impl Zeroize for Request {
    fn zeroize(&mut self) {
        self.tweak.zeroize();
    }
}

fn put(entry: &mut [u8], at: usize, bytes: &[u8]) {
    entry[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Why a request was not carried out.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// The device says so, by this status.
    Status(u8),
    /// The device was reset, for this reason.
    Reset(Arc<str>),
}

/// What somebody holds who waits for a request.
#[derive(Default)]
pub(crate) struct Ticket {
    state: Mutex<TicketState>,
}

#[derive(Default)]
struct TicketState {
    outcome: Option<Result<(), Fault>>,
    waker: Option<Waker>,
}

impl Ticket {
    fn lock(&self) -> MutexGuard<'_, TicketState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says how the request ended. Once.
    pub(crate) fn settle(&self, outcome: Result<(), Fault>) {
        let mut state = self.lock();
        assert!(state.outcome.is_none(), "a request ends once");
        state.outcome = Some(outcome);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(crate) fn poll(&self, waker: &Waker) -> Poll<Result<(), Fault>> {
        let mut state = self.lock();
        match &state.outcome {
            Some(outcome) => Poll::Ready(outcome.clone()),
            None => {
                state.waker = Some(waker.clone());
                Poll::Pending
            }
        }
    }
}

/// A request under way. The device may write to its memory, so that is nobody else's until it is done.
pub(crate) struct Flight {
    pub(crate) ticket: Arc<Ticket>,
    _slab: Arc<Slab>,
    _slot: Arc<Slot>,
    cookie: u64,
    units: u32,
    pub(crate) bytes: u64,
}

/// A ring.
pub(crate) struct Ring {
    /// Where its halves are in the memory.
    pub(crate) submissions: usize,
    pub(crate) completions: usize,
    pub(crate) log2: u32,
    /// Requests submitted, and completions read, modulo 2^16.
    tail: u16,
    head: u16,
    flights: VecDeque<Flight>,
    /// When the device was last seen to do something, or got something to do.
    progress: Instant,
    /// Requests that failed in a row, though somebody waited for them: the slot of others may be empty.
    pub(crate) failures: u32,
}

impl Ring {
    /// Bytes of a ring with so many entries.
    pub(crate) const fn bytes(log2: u32) -> usize {
        (reg::SQE_BYTES + reg::CQE_BYTES) << log2
    }

    /// A ring at `start`, aligned to 64 bytes.
    pub(crate) fn new(start: usize, log2: u32, now: Instant) -> Self {
        Self {
            submissions: start,
            completions: start + (reg::SQE_BYTES << log2),
            log2,
            tail: 0,
            head: 0,
            flights: VecDeque::new(),
            progress: now,
            failures: 0,
        }
    }

    /// Entries that are free.
    pub(crate) fn room(&self) -> usize {
        (1 << self.log2) - self.flights.len()
    }

    pub(crate) fn under_way(&self) -> usize {
        self.flights.len()
    }

    pub(crate) fn tail(&self) -> u16 {
        self.tail
    }

    pub(crate) fn head(&self) -> u16 {
        self.head
    }

    /// The place of an entry in either half.
    fn index(&self, count: u16) -> usize {
        usize::from(count) & ((1 << self.log2) - 1)
    }

    /// Where a submission is.
    fn submission(&self, count: u16) -> usize {
        self.submissions + self.index(count) * reg::SQE_BYTES
    }

    /// Writes a request where there is room; the device does not know yet.
    pub(crate) fn put(
        &mut self,
        memory: &Memory,
        request: &Request,
        (slab, slot): (&Arc<Slab>, &Arc<Slot>),
        cookie: u64,
        now: Instant,
    ) -> Arc<Ticket> {
        let address = memory.address(slab.start() + request.at);
        let mut entry = Zeroizing::new([0; reg::SQE_BYTES]);
        request.encode(&mut entry, slot.number(), address, cookie);
        memory.write(self.submission(self.tail), &*entry);
        if self.flights.is_empty() {
            self.progress = now;
        }
        self.tail = self.tail.wrapping_add(1);
        let ticket = Arc::new(Ticket::default());
        self.flights.push_back(Flight {
            ticket: Arc::clone(&ticket),
            _slab: Arc::clone(slab),
            _slot: Arc::clone(slot),
            cookie,
            units: request.units,
            bytes: u64::from(request.units) << request.log2_unit,
        });
        ticket
    }

    /// Takes the completions that are there. What cannot be is an error, behind those that can.
    pub(crate) fn look(
        &mut self,
        memory: &Memory,
        now: Instant,
        done: &mut Vec<(Flight, Result<(), Fault>)>,
    ) -> Result<(), String> {
        loop {
            let place = self.completions + self.index(self.head) * reg::CQE_BYTES;
            // The half with the phase, at once and first: the device writes it last.
            let last = memory.load(place + reg::CQE_UNITS_DONE);
            let [u0, u1, u2, u3, status, phase, h0, h1] = last.to_le_bytes();
            let expected = u8::from(self.head >> self.log2 & 1 == 0);
            if phase == expected ^ 1 {
                return Ok(());
            }
            if phase != expected {
                return Err(format!("a completion has phase {phase}"));
            }
            let Some(flight) = self.flights.front() else {
                return Err("it completed what it was not asked to do".into());
            };
            let cookie = memory.load(place + reg::CQE_COOKIE);
            if cookie != flight.cookie {
                return Err(format!(
                    "it completed request {cookie:#x}, the oldest one is {:#x}",
                    flight.cookie
                ));
            }
            let head = self.head.wrapping_add(1);
            let fetched = u16::from_le_bytes([h0, h1]);
            if fetched.wrapping_sub(head) > self.tail.wrapping_sub(head) {
                return Err(format!(
                    "it says that it is done with {fetched} submissions, of {}, when {head} are completed",
                    self.tail
                ));
            }
            let units = u32::from_le_bytes([u0, u1, u2, u3]);
            let outcome = match status {
                reg::STATUS_DONE if units == flight.units => Ok(()),
                reg::STATUS_OP..=reg::STATUS_WRITE if units <= flight.units => {
                    Err(Fault::Status(status))
                }
                _ => {
                    return Err(format!(
                        "it completed a request of {} units with status {status}, {units} units done",
                        flight.units
                    ));
                }
            };
            // The device has read it, and nobody needs the tweak any more.
            memory.wipe(self.submission(self.head), reg::SQE_BYTES);
            self.head = head;
            self.progress = now;
            if let Some(flight) = self.flights.pop_front() {
                match &outcome {
                    Ok(()) => self.failures = 0,
                    Err(_) => self.failures += u32::from(Arc::strong_count(&flight.ticket) > 1),
                }
                done.push((flight, outcome));
            }
        }
    }

    /// Whether it has been waiting for so long.
    pub(crate) fn is_late(&self, now: Instant, limit: std::time::Duration) -> bool {
        !self.flights.is_empty() && now.saturating_duration_since(self.progress) >= limit
    }

    /// Starts anew: what was under way is the caller's.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Flight> {
        self.flights.drain(..)
    }

    /// As it was made, with memory of zeros: the device must be at rest.
    pub(crate) fn restart(&mut self, memory: &Memory) {
        memory.wipe(self.submissions, Self::bytes(self.log2));
        self.head = 0;
        self.tail = 0;
        self.failures = 0;
    }
}

/// What a status means.
pub(crate) fn meaning(status: u8) -> &'static str {
    match status {
        reg::STATUS_OP => "no such operation",
        reg::STATUS_UNITS => "no units, or too many",
        reg::STATUS_UNIT => "no such sector size",
        reg::STATUS_SLOT => "no key in its slot",
        reg::STATUS_CIPHER => "its key is for another operation",
        reg::STATUS_LIST => "a list that does not fit",
        reg::STATUS_ALIGNMENT => "an address that cannot be",
        reg::STATUS_RESERVED => "a reserved field that is not zero",
        reg::STATUS_TWEAK => "a tweak beyond the last one",
        reg::STATUS_READ => "the data could not be read",
        reg::STATUS_WRITE => "the data could not be written",
        _ => "an unknown status",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_is_wiped_has_no_tweak() {
        let mut request = Request {
            op: reg::OP_XTS,
            decrypt: false,
            log2_unit: 9,
            step: 0,
            units: 1,
            tweak: 0x0123_4567_89ab_cdef,
            at: 0,
        };
        request.zeroize();
        assert_eq!(request.tweak, 0);
    }
}
