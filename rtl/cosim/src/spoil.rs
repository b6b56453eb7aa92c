//! Faults on the wires around the co-processor, for drivers to be tried with: of its memory bus, its
//! interrupt lines and its registers. The model itself is always right.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use crate::memory_port::Memory;
use crate::registers::{
    CQE_BYTES, CQE_PHASE, CQE_STATUS, CQE_UNITS_DONE, CTRL_RESET_LOW, REG_CTRL, RING_CQ_HI,
    RING_CQ_LO, RING_SIZE, RING_SIZE_LOG2_BITS, RING_SQ_HI, RING_SQ_LO, RINGS_OFFSET, RINGS_STRIDE,
    SQE_BYTES,
};

/// Cycles after which a late interrupt comes.
const LATE: u64 = 100_000;
/// Cycles after which a double interrupt comes again.
const AGAIN: u64 = 1000;

/// What can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    ReadError,
    WriteError,
    LostInterrupt,
    LateInterrupt,
    DoubleInterrupt,
    LostCompletion,
    DoubleCompletion,
    WrongCookie,
    WrongUnits,
    BadStatus,
    Hang,
    Vanish,
}

const KINDS: [(&str, Kind); 12] = [
    ("read-error", Kind::ReadError),
    ("write-error", Kind::WriteError),
    ("lost-interrupt", Kind::LostInterrupt),
    ("late-interrupt", Kind::LateInterrupt),
    ("double-interrupt", Kind::DoubleInterrupt),
    ("lost-completion", Kind::LostCompletion),
    ("double-completion", Kind::DoubleCompletion),
    ("wrong-cookie", Kind::WrongCookie),
    ("wrong-units", Kind::WrongUnits),
    ("bad-status", Kind::BadStatus),
    ("hang", Kind::Hang),
    ("vanish", Kind::Vanish),
];

/// A fault, and the how-manyth of what it happens to is hit each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    kind: Kind,
    every: NonZeroU32,
}

/// A fault that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoFault;

impl fmt::Display for NoFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WHAT:EVERY is wanted, EVERY 1 or more, and WHAT one of")?;
        KINDS.iter().try_for_each(|(name, _)| write!(f, " {name}"))
    }
}

impl std::error::Error for NoFault {}

impl FromStr for Fault {
    type Err = NoFault;

    fn from_str(text: &str) -> Result<Self, NoFault> {
        let (name, every) = text.split_once(':').ok_or(NoFault)?;
        let (_, kind) = KINDS.into_iter().find(|it| it.0 == name).ok_or(NoFault)?;
        let every = every.parse().map_err(|_| NoFault)?;
        Ok(Self { kind, every })
    }
}

/// Where a ring is, as its registers were written.
#[derive(Clone, Copy, Debug, Default)]
struct Ring {
    submissions: u64,
    completions: u64,
    log2: u32,
}

/// All faults, and how far they are.
#[derive(Debug, Default)]
pub struct Spoil {
    /// With how many have gone by since the last.
    faults: Vec<(Fault, u32)>,
    rings: [Ring; 8],
    hung: bool,
    vanished: bool,
    /// Lines that are still to be signalled, and in which cycle.
    late: VecDeque<(u64, u16)>,
}

impl Spoil {
    /// With these faults.
    pub fn new(faults: &[Fault]) -> Self {
        Self {
            faults: faults.iter().map(|fault| (*fault, 0)).collect(),
            ..Self::default()
        }
    }

    /// One more of what this fault happens to; whether it does.
    fn hits(&mut self, kind: Kind) -> bool {
        let mut hits = false;
        for (fault, count) in self.faults.iter_mut().filter(|it| it.0.kind == kind) {
            *count += 1;
            if *count == fault.every.get() {
                *count = 0;
                hits = true;
            }
        }
        hits
    }

    /// Whether nothing answers on the memory bus.
    pub fn is_hung(&self) -> bool {
        self.hung || self.vanished
    }

    /// Whether nothing answers at all.
    pub fn has_vanished(&self) -> bool {
        self.vanished
    }

    /// Whether interrupts are to come of themselves.
    pub fn is_late(&self) -> bool {
        !self.late.is_empty()
    }

    /// A reset, which ends what can end.
    pub fn reset(&mut self) {
        self.hung = false;
        self.late.clear();
    }

    /// Sees a register write that starts: where rings are, and resets.
    pub fn watch(&mut self, at: u16, value: u32) {
        let at = u32::from(at);
        if at == REG_CTRL && value >> CTRL_RESET_LOW & 1 != 0 {
            self.reset();
        }
        let Some(place) = at.checked_sub(RINGS_OFFSET) else {
            return;
        };
        let Some(ring) = self.rings.get_mut((place / RINGS_STRIDE) as usize) else {
            return;
        };
        let low = |place: u64| place >> 32 << 32 | u64::from(value);
        let high = |place: u64| place & u64::from(u32::MAX) | u64::from(value) << 32;
        match place % RINGS_STRIDE {
            RING_SQ_LO => ring.submissions = low(ring.submissions),
            RING_SQ_HI => ring.submissions = high(ring.submissions),
            RING_CQ_LO => ring.completions = low(ring.completions),
            RING_CQ_HI => ring.completions = high(ring.completions),
            RING_SIZE => ring.log2 = value & ((1 << RING_SIZE_LOG2_BITS) - 1),
            _ => {}
        }
    }

    /// The lines to signal in this cycle, of those that the machine signals.
    pub fn interrupts(&mut self, mut signals: u16, cycle: u64) -> u16 {
        if signals == 0 && self.late.is_empty() {
            return 0;
        }
        if self.vanished {
            self.late.clear();
            return 0;
        }
        let mut due = 0;
        self.late.retain(|&(at, lines)| {
            if at <= cycle {
                due |= lines;
            }
            at > cycle
        });
        for line in (0..16).map(|line| 1 << line) {
            if signals & line == 0 {
                continue;
            }
            // Each counts all lines, whatever else hits them.
            let [lost, late, double] = [
                Kind::LostInterrupt,
                Kind::LateInterrupt,
                Kind::DoubleInterrupt,
            ]
            .map(|kind| self.hits(kind));
            if lost {
                signals &= !line;
            } else if late {
                signals &= !line;
                self.late.push_back((cycle + LATE, line));
            } else if double {
                self.late.push_back((cycle + AGAIN, line));
            }
        }
        signals | due
    }

    fn is_submission(&self, address: u64) -> bool {
        self.rings
            .iter()
            .any(|ring| within(address, ring.submissions, SQE_BYTES, ring.log2).is_some())
    }

    /// The ring of a completion, and which it is there.
    fn completion(&self, address: u64, bytes: usize) -> Option<(Ring, u64)> {
        if bytes != CQE_BYTES {
            return None;
        }
        self.rings.iter().find_map(|ring| {
            let index = within(address, ring.completions, CQE_BYTES, ring.log2)?;
            Some((*ring, index))
        })
    }
}

/// Which entry of a ring lies at an address, if one does.
fn within(address: u64, base: u64, entry: usize, log2: u32) -> Option<u64> {
    // A ring that was never set is nowhere.
    if base == 0 {
        return None;
    }
    let index = address.checked_sub(base)? / entry as u64;
    (index >> log2 == 0).then_some(index)
}

/// Memory behind a bus with faults.
#[derive(Debug)]
pub struct Spoiled<'a, M> {
    /// What is right.
    pub memory: &'a M,
    /// What is not.
    pub spoil: &'a RefCell<Spoil>,
}

impl<M: Memory> Memory for Spoiled<'_, M> {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        let mut spoil = self.spoil.borrow_mut();
        if !spoil.faults.is_empty() && !spoil.is_submission(address) && spoil.hits(Kind::ReadError)
        {
            return false;
        }
        self.memory.read(address, bytes)
    }

    fn refuses(&self, address: u64, bytes: usize) -> bool {
        let mut spoil = self.spoil.borrow_mut();
        !spoil.faults.is_empty()
            && spoil.completion(address, bytes).is_none()
            && spoil.hits(Kind::WriteError)
    }

    fn write(&self, address: u64, bytes: &[u8]) -> bool {
        let mut spoil = self.spoil.borrow_mut();
        let completion = if spoil.faults.is_empty() {
            None
        } else {
            spoil.completion(address, bytes.len())
        };
        let Some((ring, index)) = completion else {
            return self.memory.write(address, bytes);
        };
        // Each counts all completions, whatever else hits them.
        let [hang, vanish, cookie, units, status, lost, double] = [
            Kind::Hang,
            Kind::Vanish,
            Kind::WrongCookie,
            Kind::WrongUnits,
            Kind::BadStatus,
            Kind::LostCompletion,
            Kind::DoubleCompletion,
        ]
        .map(|kind| spoil.hits(kind));
        // The bus stops with this one's answer.
        spoil.hung |= hang;
        if vanish {
            spoil.vanished = true;
            log::warn!("the device vanishes");
        }
        let mut bytes = bytes.to_vec();
        if cookie {
            bytes[..8].iter_mut().for_each(|byte| *byte ^= 0xff);
        }
        if units {
            bytes[CQE_UNITS_DONE] ^= 1;
        }
        if status {
            bytes[CQE_STATUS] = 0xff;
        }
        if lost {
            return true;
        }
        let mut written = self.memory.write(address, &bytes);
        // The next place's phase is another at the end of the ring; a ring of one place has no next.
        if double && ring.log2 > 0 {
            let next = (index + 1) % (1 << ring.log2);
            bytes[CQE_PHASE] ^= u8::from(next == 0);
            written &= self
                .memory
                .write(ring.completions + next * CQE_BYTES as u64, &bytes);
        }
        written
    }
}

#[cfg(test)]
mod tests;
