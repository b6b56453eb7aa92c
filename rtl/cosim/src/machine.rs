//! The co-processor, cycle by cycle: its model, register accesses and memory on its pins, and its
//! interrupt lines. It runs as far as somebody steps it: `device` by a thread's clock, `timed` by
//! the guest's.

use std::cell::RefCell;
use std::sync::Arc;

use crate::lite::{Access, Lite};
use crate::mappings::Mappings;
use crate::memory_port::{Latency, MemoryPort};
use crate::model::{Inputs, Model, Outputs};
use crate::registers::{
    CAP0_RINGS_BITS, CAP0_RINGS_LOW, CAP3_CYCLES_PER_US_BITS, CAP3_CYCLES_PER_US_LOW, ID,
    INT_STATUS_FAULT_LOW, REG_CAP0, REG_CAP3, REG_ID, REG_INT_STATUS, REG_STATUS, RING_COALESCE,
    RING_COALESCE_US_LOW, RINGS_OFFSET, RINGS_STRIDE, STATUS_IDLE_LOW, STATUS_READY_LOW,
};
use crate::spoil::{Fault, Spoil, Spoiled};

/// Cycles of a reset.
const RESET_CYCLES: u32 = 16;
/// Cycles that a register access, or getting ready, may take: far beyond what the slowest needs.
const PATIENCE: u64 = 1_000_000;
/// Cycles without any traffic after which the clock may stop. Timers come on top of that.
const QUIET_CYCLES: u64 = 1024;

/// How the model broke.
#[derive(Debug)]
pub struct Broken {
    /// What it did.
    pub what: String,
    /// In which cycle, counted from the first.
    pub cycle: u64,
}

/// What came of a cycle.
#[derive(Clone, Copy, Debug)]
pub struct Tick {
    /// The register access that ended with it, and what was read.
    pub done: Option<(Access, u32)>,
    /// Interrupt lines that are up.
    pub lines: u16,
    /// Those of them that are to be signalled.
    pub signals: u16,
}

/// A model that was reset, and what it is connected to.
#[derive(Debug)]
pub struct Machine {
    model: Model,
    inputs: Inputs,
    lite: Lite,
    port: MemoryPort,
    lines: Lines,
    spoil: RefCell<Spoil>,
    /// Lines that rose while a register was read in between.
    missed: u16,
    cycle: u64,
    /// Cycles without traffic.
    quiet: u64,
    /// Of each ring, the microseconds that its interrupts may wait.
    timers: [u32; 8],
    /// Rings that are built.
    pub rings: u8,
    /// What its coalescing timer takes for a microsecond.
    pub cycles_per_us: u64,
    /// Where its memory accesses go.
    pub mappings: Arc<Mappings>,
}

impl Machine {
    /// Resets a model, and asks what it is. From then on there are these faults.
    ///
    /// # Errors
    /// [`Broken`]: the model is no co-processor.
    pub fn new(model: Model, latency: Latency, faults: &[Fault]) -> Result<Self, Broken> {
        let mut machine = Self {
            model,
            inputs: Inputs::default(),
            lite: Lite::default(),
            port: MemoryPort::new(latency),
            lines: Lines::default(),
            spoil: RefCell::default(),
            missed: 0,
            cycle: 0,
            quiet: 0,
            timers: [0; 8],
            rings: 1,
            cycles_per_us: 0,
            mappings: Arc::default(),
        };
        machine.reset()?;
        let id = machine.read(offset(REG_ID))?;
        if id != ID {
            return Err(machine.broken(format!("register ID reads {id:#010x}, not {ID:#010x}")));
        }
        let rings = field(
            machine.read(offset(REG_CAP0))?,
            CAP0_RINGS_LOW,
            CAP0_RINGS_BITS,
        );
        machine.rings = match u8::try_from(rings) {
            Ok(rings @ 1..=8) => rings,
            _ => return Err(machine.broken(format!("it says that it has {rings} rings"))),
        };
        machine.lines = Lines::new(machine.rings);
        machine.cycles_per_us = field(
            machine.read(offset(REG_CAP3))?,
            CAP3_CYCLES_PER_US_LOW,
            CAP3_CYCLES_PER_US_BITS,
        )
        .into();
        machine.spoil = RefCell::new(Spoil::new(faults));
        Ok(machine)
    }

    /// Interrupt lines: one a ring, and one for faults.
    pub fn vectors(&self) -> u16 {
        u16::from(self.rings) + 1
    }

    /// Cycles since the first.
    pub fn cycle(&self) -> u64 {
        self.cycle
    }

    /// Whether the next register access may start.
    pub fn is_idle(&self) -> bool {
        self.lite.is_idle()
    }

    /// Starts a register access; the one before is done. Cycles carry it out.
    pub fn start(&mut self, mut access: Access) {
        if let Access::Write(at, value) = &mut access {
            let spoil = self.spoil.get_mut();
            spoil.watch(*at, *value);
            if spoil.has_vanished() {
                // Where nothing is written.
                *at = offset(REG_ID);
            }
            self.watch(*at, *value);
        }
        self.lite.start(access);
    }

    /// One cycle.
    ///
    /// # Errors
    /// [`Broken`]: the model did what a bus does not allow.
    pub fn tick(&mut self) -> Result<Tick, Broken> {
        let mut tick = self.cycle_of_model()?;
        tick.signals |= std::mem::take(&mut self.missed);
        let spoil = self.spoil.get_mut();
        tick.signals = spoil.interrupts(tick.signals, self.cycle);
        if spoil.has_vanished() {
            tick.lines = 0;
            if let Some((Access::Read(_), value)) = &mut tick.done {
                *value = u32::MAX;
            }
        }
        Ok(tick)
    }

    /// One cycle, without faults but those of the memory bus.
    fn cycle_of_model(&mut self) -> Result<Tick, Broken> {
        let memory = Spoiled {
            memory: &*self.mappings,
            spoil: &self.spoil,
        };
        self.port.drive(&mut self.inputs, &memory);
        if self.is_hung() {
            self.port.hold(&mut self.inputs);
        }
        self.lite.drive(&mut self.inputs);
        let outputs = self.model.tick(&self.inputs);
        self.cycle += 1;
        self.port
            .see(&self.inputs, &outputs)
            .map_err(|what| self.broken(what))?;
        let done = self
            .lite
            .see(&self.inputs, &outputs)
            .map_err(|what| self.broken(what))?;
        let signals = self.lines.see(outputs.interrupt);
        if let Some((Access::Write(at, bits), _)) = done
            && u32::from(at) == REG_INT_STATUS
        {
            self.lines.acknowledged(bits);
        }
        self.quiet = if self.has_traffic(&outputs) {
            0
        } else {
            self.quiet + 1
        };
        Ok(Tick {
            done,
            lines: outputs.interrupt,
            signals,
        })
    }

    /// Whether nothing answers on the memory bus, which is one of the faults.
    pub fn is_hung(&self) -> bool {
        self.spoil.borrow().is_hung()
    }

    /// Whether all registers read as ones, which is another of them.
    pub fn has_vanished(&self) -> bool {
        self.spoil.borrow().has_vanished()
    }

    fn has_traffic(&self, outputs: &Outputs) -> bool {
        let spoil = self.spoil.borrow();
        if !self.lite.is_idle() || spoil.is_late() {
            return true;
        }
        !spoil.is_hung()
            && (!self.port.is_idle()
                || outputs.m_axi_arvalid | outputs.m_axi_awvalid | outputs.m_axi_wvalid != 0)
    }

    /// Sees what is written to where the time is that interrupts may wait: it has to pass before
    /// the clock stops.
    fn watch(&mut self, at: u16, value: u32) {
        for (ring, timer) in (0..).zip(&mut self.timers) {
            if u32::from(at) == RINGS_OFFSET + ring * RINGS_STRIDE + RING_COALESCE {
                *timer = value >> RING_COALESCE_US_LOW;
            }
        }
    }

    /// Whether it has been quiet for so long that nothing can happen of itself any more, if the
    /// model says that it is idle, which [`Machine::rests`] asks.
    pub fn is_quiet(&self) -> bool {
        let longest = self.timers.iter().max().copied().unwrap_or(0);
        self.quiet >= QUIET_CYCLES + u64::from(longest) * self.cycles_per_us
    }

    /// Whether the model says that it has nothing to do; or it can do nothing.
    ///
    /// # Errors
    /// [`Broken`].
    pub fn rests(&mut self) -> Result<bool, Broken> {
        let status = self.read(offset(REG_STATUS))?;
        self.quiet = 0;
        let rests = status >> STATUS_READY_LOW & status >> STATUS_IDLE_LOW & 1 != 0;
        Ok((rests || self.is_hung()) && self.missed == 0)
    }

    /// A register, read here and now, while no other access is under way.
    fn read(&mut self, at: u16) -> Result<u32, Broken> {
        self.start(Access::Read(at));
        for _ in 0..PATIENCE {
            let tick = self.cycle_of_model()?;
            self.missed |= tick.signals;
            if let Some((_, value)) = tick.done {
                return Ok(value);
            }
        }
        Err(self.broken(format!("register {at:#x} is not answered")))
    }

    /// Power-on, until the model is ready.
    ///
    /// # Errors
    /// [`Broken`]: it does not get ready.
    pub fn reset(&mut self) -> Result<(), Broken> {
        self.lite.reset();
        self.port.reset();
        self.timers = [0; 8];
        self.inputs = Inputs::default();
        for _ in 0..RESET_CYCLES {
            self.model.tick(&self.inputs);
            self.cycle += 1;
        }
        self.lines.see(0);
        self.missed = 0;
        self.spoil.get_mut().reset();
        self.inputs.aresetn = true;
        let start = self.cycle;
        while self.read(offset(REG_STATUS))? >> STATUS_READY_LOW & 1 == 0 {
            if self.cycle - start > PATIENCE {
                return Err(self.broken("it does not get ready after a reset".into()));
            }
        }
        self.quiet = 0;
        Ok(())
    }

    fn broken(&self, what: String) -> Broken {
        Broken {
            what,
            cycle: self.cycle,
        }
    }
}

/// The interrupt lines as they were in the cycle before: what rises is signalled.
#[derive(Debug, Default)]
struct Lines {
    up: u16,
    fault: u8,
}

impl Lines {
    /// Of so many rings, and the one for faults behind them.
    fn new(rings: u8) -> Self {
        Self {
            up: 0,
            fault: rings,
        }
    }

    /// Sees the lines of a cycle: those that rise.
    fn see(&mut self, lines: u16) -> u16 {
        let rising = lines & !self.up;
        self.up = lines;
        rising
    }

    /// After these bits were written to `INT_STATUS`: their lines, if they are up, count as ones
    /// that rise. Where an interrupt comes in the cycle of the write, its line never falls.
    fn acknowledged(&mut self, bits: u32) {
        let fault = self.fault;
        let bits = bits & !(1 << fault) | (bits >> INT_STATUS_FAULT_LOW & 1) << fault;
        #[allow(clippy::cast_possible_truncation)]
        let lines = bits as u16;
        self.up &= !lines;
    }
}

fn field(value: u32, low: u32, bits: u32) -> u32 {
    value >> low & ((1 << bits) - 1)
}

/// A register's offset as its access has it.
fn offset(register: u32) -> u16 {
    register.try_into().unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rising_lines_are_signalled() {
        let mut lines = Lines::new(2);
        let signals = [1, 1, 3, 2, 3, 7, 0].map(|cycle| lines.see(cycle));
        assert_eq!(signals, [1, 0, 2, 0, 1, 4, 0]);
    }

    #[test]
    fn lines_that_stay_up_are_signalled_again_when_acknowledged() {
        let mut lines = Lines::new(1);
        assert_eq!(lines.see(3), 3);
        // Ring 0, nothing that is there, faults.
        let signals = [1, 1 << 1, 1 << 31].map(|bits| {
            lines.acknowledged(bits);
            lines.see(3)
        });
        assert_eq!(signals, [1, 0, 2]);
    }
}
