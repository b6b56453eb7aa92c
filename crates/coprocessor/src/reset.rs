//! What happens when something is wrong with the device.
//!
//! One that is silent, that reports a fault of its own, or that fails everything is reset and goes on, with its keys loaded again; one
//! that has carried out nothing since the last time, or hardly anything several times, is not given another chance. One that did what
//! cannot be is reset and not used again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::keys::Keys;
use crate::registers as reg;
use crate::ring::{Fault, Flight};
use crate::shared::{Life, Shared};
use crate::{Error, ErrorKind, Wait};

/// All bits of the interrupt registers that mean something.
pub(crate) const EVERY_INTERRUPT: u32 =
    ((1 << reg::INT_STATUS_RINGS_BITS) - 1) | (1 << reg::INT_STATUS_FAULT_LOW);

/// Bytes that a device has to encrypt or decrypt after a reset for the next one not to count.
pub(crate) const ENOUGH: u64 = 16 << 20;

/// Resets in a row that count, before it is out of service.
pub(crate) const MOST_RESETS: u32 = 8;

/// Something is wrong with the device.
#[derive(Clone, Debug)]
pub(crate) struct Trouble {
    reason: Arc<str>,
    /// Whether it may go on after a reset.
    may_go_on: bool,
}

impl Trouble {
    /// It cannot be reached.
    pub(crate) fn gone(error: Error) -> Self {
        Self {
            reason: with_cause(&error).into(),
            may_go_on: false,
        }
    }

    /// It did what cannot be.
    pub(crate) fn broken(what: String) -> Self {
        Self {
            reason: format!("the device is broken: {what}").into(),
            may_go_on: false,
        }
    }

    /// Nobody drives its bus.
    pub(crate) fn all_ones() -> Self {
        Self::broken("its registers read all ones".into())
    }

    pub(crate) fn reason(&self) -> &Arc<str> {
        &self.reason
    }

    /// Whether the device is not to be used again, whatever a reset may do.
    pub(crate) fn is_final(&self) -> bool {
        !self.may_go_on
    }

    /// Of two the worse one, or the first.
    pub(crate) fn worse(first: Option<Self>, second: Option<Self>) -> Option<Self> {
        match (&first, &second) {
            (Some(one), Some(other)) if other.is_final() && !one.is_final() => second,
            _ => first.or(second),
        }
    }

    /// It does nothing.
    pub(crate) fn late(limit: Duration) -> Self {
        Self {
            reason: format!("it completed nothing for {} ms", limit.as_millis()).into(),
            may_go_on: true,
        }
    }

    /// It fails what it is asked to do.
    pub(crate) fn failing(requests: u32) -> Self {
        Self {
            reason: format!("it failed {requests} requests in a row").into(),
            may_go_on: true,
        }
    }

    /// It did not carry out a key command: it is silent, or will not forget a key.
    pub(crate) fn of_key(error: &Error) -> Self {
        Self {
            reason: with_cause(error).into(),
            may_go_on: error.kind() == ErrorKind::Dead,
        }
    }

    fn fault(what: &str) -> Self {
        Self {
            reason: format!("it reports a fault: {what}").into(),
            may_go_on: true,
        }
    }
}

impl Shared {
    /// Reads a register until it says so, while there is patience.
    pub(crate) fn read_until(
        &self,
        register: u32,
        what: &str,
        is_done: impl Fn(u32) -> bool,
    ) -> Result<u32, Error> {
        let start = Instant::now();
        for attempt in 0_u32.. {
            let value = self.port.read(register)?;
            if value == u32::MAX {
                break;
            }
            if is_done(value) {
                return Ok(value);
            }
            if self.patience.left(start).is_zero() {
                let message = format!("the engine does not {what}");
                return Err(Error::new(ErrorKind::Dead, message));
            }
            std::thread::sleep(Duration::from_micros(10 << attempt.min(7)));
        }
        Err(Error::new(
            ErrorKind::Dead,
            "the engine is gone: its registers read all ones",
        ))
    }

    /// Looks at the state of a device that is silent.
    pub(crate) fn doubt(&self) -> Option<Trouble> {
        let read = |register| self.port.read(register).map_err(Trouble::gone);
        let look = || {
            let status = read(reg::REG_STATUS)?;
            if status == u32::MAX {
                return Err(Trouble::all_ones());
            }
            if status >> reg::STATUS_FAULT_LOW & 1 == 0 {
                return Ok(());
            }
            let fault = read(reg::REG_FAULT)?;
            Err(Trouble::fault(fault_meaning(fault)))
        };
        look().err()
    }

    /// Resets the device. It is at rest when this returns without an error.
    pub(crate) fn reset(&self) -> Result<(), Error> {
        self.port.write(reg::REG_CTRL, 1 << reg::CTRL_RESET_LOW)?;
        self.read_until(reg::REG_STATUS, "end its reset", |status| {
            status >> reg::STATUS_READY_LOW & 1 != 0
        })?;
        // What has been reset is off.
        let rings = 0..self.facts.rings;
        let controls = rings.map(|number| Self::ring_register(number, reg::RING_CONTROL));
        for register in controls.chain([reg::REG_CTRL]) {
            let value = self.port.read(register)?;
            if value & 1 != 0 {
                let message = "the engine does not let itself be reset";
                return Err(Error::new(ErrorKind::Dead, message));
            }
        }
        Ok(())
    }

    /// Sets a device that was reset to work: rings, interrupts, keys.
    pub(crate) fn start(&self, keys: &Keys) -> Result<(), Error> {
        let mut core = self.lock();
        for number in 0..core.rings.len() {
            let ring = &mut core.rings[number];
            ring.restart(&self.memory);
            let write = |register, value| {
                self.port
                    .write(Self::ring_register(number, register), value)
            };
            let halves = [
                (reg::RING_SQ_LO, reg::RING_SQ_HI, ring.submissions),
                (reg::RING_CQ_LO, reg::RING_CQ_HI, ring.completions),
            ];
            for (low, high, offset) in halves {
                let [low_half, high_half] = halves_of(self.memory.address(offset));
                write(low, low_half)?;
                write(high, high_half)?;
            }
            write(reg::RING_SIZE, ring.log2)?;
            let count = self.options.coalesce;
            let us = match (count, self.options.coalesce_us) {
                // Without a timer the last completions would never be told.
                (2.., 0) => 1,
                (_, us) => us,
            };
            write(
                reg::RING_COALESCE,
                u32::from(count) | u32::from(us) << reg::RING_COALESCE_US_LOW,
            )?;
            let when_empty = u32::from(count > 1) << reg::RING_CONTROL_WHEN_EMPTY_LOW;
            write(
                reg::RING_CONTROL,
                1 << reg::RING_CONTROL_ENABLE_LOW | when_empty,
            )?;
        }
        core.carried_out = 0;
        // What else was found before the reset has ended with it.
        core.trouble = core.trouble.take().filter(Trouble::is_final);
        drop(core);
        self.port.write(reg::REG_INT_STATUS, EVERY_INTERRUPT)?;
        if self.options.wait == Wait::Interrupts {
            self.port.write(reg::REG_INT_SET, EVERY_INTERRUPT)?;
        }
        self.port.write(reg::REG_CTRL, 1 << reg::CTRL_ENABLE_LOW)?;
        self.load_again(keys)?;
        match self.doubt() {
            None => Ok(()),
            Some(trouble) => Err(Error::new(ErrorKind::Dead, &*trouble.reason)),
        }
    }

    /// Ends what is under way, and resets the device: then it goes on, or it is dead.
    pub(crate) fn recover(self: &Arc<Self>, trouble: &Trouble) {
        let mut core = self.lock();
        if !matches!(core.life, Life::Up) {
            return;
        }
        let has_worked = core.carried_out > 0;
        core.lean_resets = match core.carried_out {
            ENOUGH.. => 0,
            _ => core.lean_resets + 1,
        };
        let is_worth_it = has_worked && core.lean_resets <= MOST_RESETS;
        core.life = Life::Resetting;
        let flights: Vec<Flight> = core.rings.iter_mut().flat_map(|r| r.take_all()).collect();
        drop(core);
        // Their memory stays theirs, but nobody has to wait for the reset.
        for flight in &flights {
            let reason = Arc::clone(&trouble.reason);
            flight.ticket.settle(Err(Fault::Reset(reason)));
        }
        // Whoever heard of it may have been the last user, and have closed the device here.
        if !matches!(self.lock().life, Life::Resetting) {
            return;
        }
        let mut keys = self.keys();
        let rest = self.reset();
        // Worse may have been found meanwhile.
        let found = Trouble::worse(Some(trouble.clone()), self.lock().trouble.take());
        let trouble = found.as_ref().unwrap_or(trouble);
        if rest.is_ok() {
            keys.wiped();
        }
        let may_go_on = rest.is_ok() && trouble.may_go_on && is_worth_it;
        // Whoever gets the keys next has to see what became of the device.
        let reason = match may_go_on.then(|| self.start(&keys)) {
            Some(Ok(())) => {
                self.lock().life = Life::Up;
                drop(keys);
                tracing::warn!(
                    "the engine was reset, with {} requests under way: {}",
                    flights.len(),
                    trouble.reason
                );
                drop(flights);
                self.wake_all();
                return;
            }
            Some(Err(error)) => {
                // Keys that were loaded again are not left there; if that fails, nothing else can be done about it.
                let _ = self.reset();
                let after = with_cause(&error);
                format!("{}; after a reset: {after}", trouble.reason).into()
            }
            None => Arc::clone(&trouble.reason),
        };
        self.lock().life = Life::Dead(Arc::clone(&reason));
        drop(keys);
        tracing::error!("the engine is out of service: {reason}");
        self.leave(flights, rest.is_ok());
    }

    /// Ends the use of the device: it is at rest then, or has no memory of ours.
    pub(crate) fn close(&self) {
        let mut core = self.lock();
        if !matches!(core.life, Life::Dead(_)) {
            core.life = Life::Resetting;
            let flights: Vec<Flight> = core.rings.iter_mut().flat_map(|r| r.take_all()).collect();
            drop(core);
            let reason: Arc<str> = "it was closed".into();
            for flight in &flights {
                flight.ticket.settle(Err(Fault::Reset(Arc::clone(&reason))));
            }
            let is_at_rest = self.reset().is_ok();
            self.lock().life = Life::Dead(reason);
            self.leave(flights, is_at_rest);
            core = self.lock();
        }
        // Nobody uses the memory again, so it may be given back to the system now, behind the way to the device.
        let lost = std::mem::take(&mut core.lost);
        drop(core);
        drop(lost);
    }

    /// Takes the memory away from a device that is out of service, at rest or not.
    fn leave(&self, flights: Vec<Flight>, is_at_rest: bool) {
        let is_away = self.port.unmap(&self.memory).is_ok();
        if is_at_rest || is_away {
            drop(flights);
        } else {
            self.lock().lost.extend(flights);
        }
        self.wake_all();
    }
}

/// An error and what caused it.
fn with_cause(error: &Error) -> String {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
    format!("{error}{}", cause.unwrap_or_default())
}

/// A 64-bit address as two registers have it: low, high.
#[allow(clippy::cast_possible_truncation, reason = "halves are wanted")]
fn halves_of(address: u64) -> [u32; 2] {
    [address as u32, (address >> 32) as u32]
}

/// What a fault register says.
fn fault_meaning(fault: u32) -> &'static str {
    match u8::try_from(fault >> reg::FAULT_CODE_LOW & 0xff).unwrap_or_default() {
        reg::FAULT_DESCRIPTOR => "a request could not be read",
        reg::FAULT_COMPLETION => "a completion could not be written",
        reg::FAULT_DOORBELL => "an index that cannot be",
        reg::FAULT_ERASE => "the data of a failed request could not be erased",
        reg::FAULT_WIPED => "its keys were wiped",
        reg::FAULT_RING => "a ring that cannot be",
        _ => "an unknown one",
    }
}
