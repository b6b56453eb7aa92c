//! The machine with a clock of so many megahertz, in somebody else's time: it is run up to a moment,
//! and not beyond, or to its next interrupt.

use std::collections::VecDeque;
use std::io;

use crate::calendar::NEVER;
use crate::function::Registers;
use crate::lite::Access;
use crate::machine::{Broken, Machine};
use crate::registers::{
    COUNTER_CTRL_CLEAR_LOW, COUNTER_CTRL_SNAPSHOT_LOW, CTRL_RESET_LOW, REG_COUNTER_CTRL,
    REG_COUNTER_IDLE, REG_COUNTER_INTERRUPT, REG_COUNTER_TOTAL, REG_CTRL,
};

/// Writes that wait for the machine at most, before it runs ahead of the guest to take them.
const QUEUE: usize = 256;
/// Cycles that looking whether the machine rests may take, and more.
const LOOK: u64 = 64;

/// A machine and its clock.
#[derive(Debug)]
pub struct Paced {
    /// What it steps.
    pub machine: Machine,
    mhz: u64,
    /// Added to the machine's cycles, it gives those of the clock: cycle n is at n * 1000 / mhz ns.
    skew: u64,
    /// Register writes that have not started.
    writes: VecDeque<(u16, u32)>,
    /// Nothing happens any more before the next register access.
    resting: bool,
    /// Lines in the last cycle.
    lines: u16,
    /// When lines were to be signalled, in order; each line once at most.
    signals: VecDeque<(u64, u16)>,
    skipped: Skipped,
    shown: Skipped,
    /// Cycles skipped, of all kinds.
    pub skipped_cycles: u64,
    broken: Option<Broken>,
}

/// Cycles that were skipped, and that the co-processor's counters have not counted.
#[derive(Clone, Copy, Debug, Default)]
struct Skipped {
    idle: u64,
    /// While an interrupt stood.
    interrupt: u64,
}

/// How far the machine came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// The moment that was asked for; or it rests, and that was never.
    Moment,
    /// Lines were signalled before.
    Signal,
}

impl Paced {
    /// A machine that was reset, at time 0.
    pub fn new(machine: Machine, mhz: u64) -> Self {
        let mut paced = Self {
            machine,
            mhz,
            skew: 0,
            writes: VecDeque::new(),
            resting: false,
            lines: 0,
            signals: VecDeque::new(),
            skipped: Skipped::default(),
            shown: Skipped::default(),
            skipped_cycles: 0,
            broken: None,
        };
        paced.set_time(0);
        paced
    }

    /// Resets the machine, which takes no time here. It is now this moment.
    ///
    /// # Errors
    /// The model has broken.
    pub fn reset(&mut self, now: u64) -> io::Result<()> {
        self.writes.clear();
        self.signals.clear();
        (self.skipped, self.shown) = Default::default();
        self.resting = false;
        let result = self.machine.reset();
        self.set_time(now);
        result.map_err(|broken| self.stopped(broken))
    }

    fn set_time(&mut self, now: u64) {
        self.skew = self.cycle_at(now).wrapping_sub(self.machine.cycle());
    }

    /// The first cycle that is not before a moment.
    fn cycle_at(&self, time: u64) -> u64 {
        let cycle = (u128::from(time) * u128::from(self.mhz)).div_ceil(1000);
        u64::try_from(cycle).unwrap_or(u64::MAX)
    }

    fn cycle(&self) -> u64 {
        self.machine.cycle().wrapping_add(self.skew)
    }

    /// When the next cycle is.
    pub fn time(&self) -> u64 {
        let time = u128::from(self.cycle()) * 1000 / u128::from(self.mhz);
        u64::try_from(time).unwrap_or(u64::MAX)
    }

    /// Why the model cannot go on, if an error was about that.
    pub fn take_broken(&mut self) -> Option<Broken> {
        self.broken.take()
    }

    fn stopped(&mut self, broken: Broken) -> io::Error {
        self.broken = Some(broken);
        io::Error::other("the model has stopped")
    }

    /// The next lines that were to be signalled, and when.
    pub fn next_signal(&self) -> Option<(u64, u16)> {
        self.signals.front().copied()
    }

    /// Forgets that.
    pub fn take_signal(&mut self) {
        self.signals.pop_front();
    }

    /// Whether nothing happens any more before the next register access.
    pub fn rests(&self) -> bool {
        self.resting
    }

    /// Runs until a moment, or lines are signalled.
    ///
    /// # Errors
    /// The model has broken.
    pub fn run(&mut self, until: u64, stop: impl Fn() -> bool) -> io::Result<Reached> {
        let end = self.cycle_at(until);
        while self.cycle() < end && !stop() {
            if self.resting {
                if until >= NEVER {
                    break;
                }
                self.skip(end - self.cycle());
                break;
            }
            if self.writes.is_empty()
                && self.machine.is_idle()
                && self.machine.is_quiet()
                && self.cycle() + LOOK < end
            {
                let rests = self.machine.rests();
                self.resting = rests.map_err(|broken| self.stopped(broken))?;
                continue;
            }
            let signals = self.signals.len();
            self.step()?;
            if self.signals.len() > signals {
                return Ok(Reached::Signal);
            }
        }
        Ok(Reached::Moment)
    }

    /// One cycle; what was read, if that ended with it.
    fn step(&mut self) -> io::Result<Option<u32>> {
        if self.machine.is_idle()
            && let Some((at, value)) = self.writes.pop_front()
        {
            self.watch(at, value);
            self.machine.start(Access::Write(at, value));
        }
        let tick = self.machine.tick().map_err(|broken| self.stopped(broken))?;
        self.lines = tick.lines;
        // A line that waits for the guest is not signalled twice, as on a bus that is slow: it would fill
        // the queue that never waits.
        let waiting = self.signals.iter().fold(0, |all, (_, lines)| all | lines);
        let fresh = tick.signals & !waiting;
        if fresh != 0 {
            self.signals.push_back((self.time(), fresh));
        }
        Ok(match tick.done {
            Some((Access::Read(_), value)) => Some(value),
            _ => None,
        })
    }

    /// Passes cycles in which nothing happens: they count as what the co-processor counts a cycle without
    /// requests as.
    fn skip(&mut self, cycles: u64) {
        self.skew = self.skew.wrapping_add(cycles);
        self.skipped_cycles += cycles;
        // Of a machine that hangs nobody knows what the co-processor would count.
        if self.machine.is_hung() {
            return;
        }
        if self.lines == 0 {
            self.skipped.idle += cycles;
        } else {
            self.skipped.interrupt += cycles;
        }
    }

    /// Sees what is written to where counters are copied and cleared.
    fn watch(&mut self, at: u16, value: u32) {
        match u32::from(at) {
            REG_COUNTER_CTRL => {
                if value >> COUNTER_CTRL_SNAPSHOT_LOW & 1 != 0 {
                    self.shown = self.skipped;
                }
                if value >> COUNTER_CTRL_CLEAR_LOW & 1 != 0 {
                    self.skipped = Skipped::default();
                }
            }
            REG_CTRL if value >> CTRL_RESET_LOW & 1 != 0 => {
                (self.skipped, self.shown) = Default::default();
            }
            _ => {}
        }
    }

    /// Carries all writes out: the machine runs ahead of the guest for that.
    fn drain(&mut self) -> io::Result<()> {
        while !(self.writes.is_empty() && self.machine.is_idle()) {
            self.step()?;
        }
        Ok(())
    }

    /// A register, after all writes.
    fn read_now(&mut self, at: u16) -> io::Result<u32> {
        self.drain()?;
        self.resting = false;
        self.machine.start(Access::Read(at));
        loop {
            if let Some(value) = self.step()? {
                return Ok(value);
            }
        }
    }
}

impl Registers for Paced {
    fn read(&mut self, at: u16) -> io::Result<u32> {
        // The last of them may be what copies the counters.
        self.drain()?;
        let counter = at & !4;
        let shown = self.shown;
        let skipped = match u32::from(counter) {
            REG_COUNTER_TOTAL => shown.idle + shown.interrupt,
            REG_COUNTER_INTERRUPT => shown.interrupt,
            REG_COUNTER_IDLE => shown.idle,
            _ => return self.read_now(at),
        };
        let (low, high) = (self.read_now(counter)?, self.read_now(counter + 4)?);
        if self.machine.has_vanished() {
            return Ok(u32::MAX);
        }
        let value = (u64::from(high) << 32 | u64::from(low)).wrapping_add(skipped);
        let [low, high] = [value, value >> 32].map(|half| {
            #[allow(clippy::cast_possible_truncation)]
            let half = half as u32;
            half
        });
        Ok(if at == counter { low } else { high })
    }

    fn write(&mut self, at: u16, value: u32) -> io::Result<()> {
        self.resting = false;
        self.writes.push_back((at, value));
        while self.writes.len() > QUEUE {
            self.step()?;
        }
        Ok(())
    }
}
