//! The device: what it is built with, its state, and how it is made to fail.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use sector_cipher::{Cipher, CipherSpec, IvMode, Mode, SectorCount, SectorSize};

use crate::facts::cipher_of;
use crate::memory::Memory;
use crate::port::Port;
use crate::registers as reg;
use crate::{Error, ErrorKind};

/// What a device is built with.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    /// 1 to 3.
    pub level: u32,
    /// Rings.
    pub rings: usize,
    /// Key slots.
    pub slots: usize,
    /// A bit for each cipher, by its number.
    pub ciphers: u32,
    /// Bit 0: AES-128, bit 1: AES-256.
    pub key_bits: u32,
    /// Of the most bytes in a request.
    pub log2_bytes: u32,
    /// Of the most entries in a ring.
    pub log2_ring: u32,
    /// Interrupt vectors.
    pub vectors: usize,
}

impl Default for Build {
    /// All there is.
    fn default() -> Self {
        Self {
            level: 3,
            rings: 2,
            slots: 32,
            ciphers: 0x7f,
            key_bits: 3,
            log2_bytes: 20,
            log2_ring: 8,
            vectors: 16,
        }
    }
}

/// When the device works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As soon as it hears of a request, before the doorbell's write returns.
    AtOnce,
    /// On a thread of its own.
    Thread,
    /// When it is told to.
    Held,
}

/// What the device does wrong, with one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// It fails the request with this status, after half of its units, which it leaves in the destination.
    Status(u8),
    /// It tells a status that there is not.
    UnknownStatus,
    /// It forgets to interrupt.
    NoInterrupt,
    /// It interrupts several times.
    ManyInterrupts,
    /// It does nothing any more until it is reset.
    Hangs,
    /// It does nothing any more, and a reset does not end.
    HangsForGood,
    /// Its registers read all ones, and writes are lost.
    Vanishes,
    /// It cannot be reached at all.
    Unplugged,
    /// It writes the completion twice.
    Twice,
    /// With another cookie.
    Cookie,
    /// With a phase that is none.
    Phase,
    /// It says that more units are done than there are.
    TooManyUnits,
    /// It says that all is done with a unit less.
    TooFewUnits,
    /// It says that it is done with submissions that do not exist.
    Head,
    /// Its ring faults, with this code.
    Fault(u8),
    /// One bit of the result is wrong.
    WrongBit,
    /// It says that all is done, and has left the destination as it was.
    NothingDone,
}

/// A key slot.
pub(super) struct Key {
    pub(super) cipher: u8,
    pub(super) bytes: Vec<u8>,
    /// By the logarithm of the unit.
    pub(super) ciphers: BTreeMap<u8, Cipher>,
}

impl Key {
    /// The cipher of runs in units of 2^`log2` bytes.
    pub(super) fn cipher(&mut self, log2: u8) -> &Cipher {
        let (number, key) = (self.cipher, &self.bytes);
        self.ciphers.entry(log2).or_insert_with(|| {
            let mut modes = Mode::ALL.iter().copied();
            let mode = modes
                .find(|mode| cipher_of(*mode) == Some(number))
                .expect("a cipher of runs");
            let spec = CipherSpec::new(mode, IvMode::Plain64).expect("a cipher");
            let size = SectorSize::new(1 << log2).expect("a sector size");
            Cipher::new(spec, size, SectorCount::Units512, key, None).expect("a key of its length")
        })
    }
}

/// A ring's registers.
#[derive(Clone, Default)]
pub(super) struct RingState {
    pub(super) submissions: u64,
    pub(super) completions: u64,
    pub(super) log2: u32,
    pub(super) control: u32,
    pub(super) tail: u16,
    pub(super) fetched: u16,
    pub(super) completed: u16,
    pub(super) cq_head: u16,
    pub(super) coalesce: u32,
    pub(super) fault: u8,
    /// Completions that have not interrupted.
    pub(super) untold: u32,
}

/// All that a reset wipes.
#[derive(Default)]
pub(super) struct Inside {
    pub(super) is_enabled: bool,
    pub(super) int_status: u32,
    pub(super) int_mask: u32,
    pub(super) fault: u32,
    pub(super) key_data: Vec<u8>,
    pub(super) key_result: u8,
    pub(super) slots: Vec<Option<Key>>,
    pub(super) rings: Vec<RingState>,
}

pub(super) struct State {
    pub(super) build: Build,
    pub(super) pace: Pace,
    pub(super) inside: Inside,
    pub(super) memory: Option<Arc<Memory>>,
    pub(super) counters: Vec<OwnedFd>,
    pub(super) counts: [u64; reg::COUNTERS],
    pub(super) snapshot: [u64; reg::COUNTERS],
    /// What goes wrong, by the number of the request since the device was made, counted from those that come next.
    pub(super) flaws: BTreeMap<u64, Flaw>,
    /// Requests so far.
    pub(super) requests: u64,
    pub(super) is_hung: bool,
    pub(super) is_stuck: bool,
    pub(super) is_vanished: bool,
    pub(super) is_unplugged: bool,
    pub(super) resets: u64,
    is_dropped: bool,
}

/// A device. It is in two hands: the driver's, as a [`Port`], and the test's.
#[derive(Clone)]
pub struct Device {
    state: Arc<(Mutex<State>, Condvar)>,
}

impl Device {
    /// A device that works as it has to.
    pub fn new(build: Build, pace: Pace) -> Self {
        let mut state = State {
            build,
            pace,
            inside: Inside::default(),
            memory: None,
            counters: Vec::new(),
            counts: [0; reg::COUNTERS],
            snapshot: [0; reg::COUNTERS],
            flaws: BTreeMap::new(),
            requests: 0,
            is_hung: false,
            is_stuck: false,
            is_vanished: false,
            is_unplugged: false,
            resets: 0,
            is_dropped: false,
        };
        state.reset();
        let device = Self {
            state: Arc::new((Mutex::new(state), Condvar::new())),
        };
        if pace == Pace::Thread {
            let state = Arc::clone(&device.state);
            std::thread::spawn(move || {
                let (state, more) = &*state;
                let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                while !state.is_dropped {
                    if !state.work_once() {
                        state = more.wait(state).unwrap_or_else(PoisonError::into_inner);
                    }
                }
            });
        }
        device
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The driver's hand.
    pub fn port(&self) -> Box<dyn Port> {
        Box::new(Hand(self.clone()))
    }

    /// Interrupt vectors that it has.
    pub(super) fn vectors(&self) -> usize {
        self.lock().build.vectors
    }

    /// Does `flaw` to a request: 0 is the next one.
    pub fn spoil(&self, ahead: u64, flaw: Flaw) {
        let mut state = self.lock();
        let number = state.requests + ahead;
        state.flaws.insert(number, flaw);
    }

    /// Carries out up to `most` requests; gives how many.
    pub fn work(&self, most: usize) -> usize {
        let mut state = self.lock();
        (0..most).take_while(|_| state.work_once()).count()
    }

    /// Says nothing as long as this is kept: who reads a register waits.
    pub fn silence(&self) -> impl Drop + '_ {
        self.lock()
    }

    /// Interrupts, for no reason.
    pub fn interrupt(&self) {
        self.lock().raise(0);
    }

    /// Requests that it has begun.
    pub fn requests(&self) -> u64 {
        self.lock().requests
    }

    /// Times that it was reset.
    pub fn resets(&self) -> u64 {
        self.lock().resets
    }

    /// Slots that have a key, a bit each.
    pub fn loaded(&self) -> u32 {
        self.lock().key_slots()
    }

    /// Whether it has memory.
    pub fn is_mapped(&self) -> bool {
        self.lock().memory.is_some()
    }

    /// Bytes of its memory that are not zero, past the rings' `skip` bytes.
    pub fn used(&self, skip: usize) -> usize {
        let state = self.lock();
        let Some(memory) = &state.memory else {
            return 0;
        };
        let mut bytes = vec![0; memory.len().saturating_sub(skip)];
        memory.read(skip.min(memory.len()), &mut bytes);
        bytes.iter().filter(|byte| **byte != 0).count()
    }
}

struct Hand(Device);

impl Hand {
    fn reach(&self) -> Result<MutexGuard<'_, State>, Error> {
        let state = self.0.lock();
        match state.is_unplugged {
            true => Err(Error::new(ErrorKind::Dead, "the model is unplugged")),
            false => Ok(state),
        }
    }
}

impl Port for Hand {
    fn read(&self, register: u32) -> Result<u32, Error> {
        Ok(self.reach()?.read(register))
    }

    fn write(&self, register: u32, value: u32) -> Result<(), Error> {
        let mut state = self.reach()?;
        state.write(register, value);
        if state.pace == Pace::AtOnce {
            while state.work_once() {}
        }
        drop(state);
        self.0.state.1.notify_all();
        Ok(())
    }

    fn write_secret(&self, register: u32, value: &[u8; 4]) -> Result<(), Error> {
        self.write(register, u32::from_le_bytes(*value))
    }

    fn map(&self, memory: &Arc<Memory>) -> Result<(), Error> {
        self.reach()?.memory = Some(Arc::clone(memory));
        Ok(())
    }

    fn unmap(&self, _: &Memory) -> Result<(), Error> {
        self.reach()?.memory = None;
        Ok(())
    }

    fn interrupts(&self, counters: &[OwnedFd]) -> Result<usize, Error> {
        let mut state = self.reach()?;
        let used = crate::port::vectors(state.build.vectors, counters.len());
        state.counters = counters[..used]
            .iter()
            .map(OwnedFd::try_clone)
            .collect::<Result<_, _>>()
            .map_err(|e| Error::by(ErrorKind::Memory, "no event counter", e))?;
        crate::port::some_vectors(used)
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_dropped = true;
        state.memory = None;
        drop(state);
        self.0.state.1.notify_all();
    }
}
