//! What all users of an engine share: rings, memory, and who waits for what.

use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::keys::Keys;
use crate::line::{Line, Turn};
use crate::memory::{Memory, Places};
use crate::patience::Patience;
use crate::port::{Port, Work};
use crate::registers as reg;
use crate::reset::{EVERY_INTERRUPT, Trouble};
use crate::ring::{Fault, Flight, Request, Requests, Ring, Ticket};
use crate::slab::{Slab, Slot};
use crate::{Error, ErrorKind, Facts, Options};

/// Times that interrupts are cleared before a look, if they come as fast: the next look is not far then.
const ACKNOWLEDGEMENTS: usize = 4;

/// Requests that fail in a row before that is the device's fault.
pub(crate) const FAILURES: u32 = 64;

/// Whether requests are taken.
#[derive(Clone, Debug)]
pub(crate) enum Life {
    /// Yes.
    Up,
    /// Not before the reset that is under way has ended.
    Resetting,
    /// No, for this reason.
    Dead(Arc<str>),
}

/// What an engine's users share.
pub(crate) struct Shared {
    // Dropped before the memory that the device sees.
    pub(crate) port: Box<dyn Port>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) facts: Facts,
    pub(crate) options: Options,
    pub(crate) patience: Patience,
    /// Bytes of memory for data.
    pub(crate) data_bytes: usize,
    /// Wakes the thread that attends to the device.
    pub(crate) kick: OwnedFd,
    pub(crate) stopped: AtomicBool,
    /// What the thread is to do besides.
    pub(crate) errands: Mutex<Vec<Work>>,
    /// The time, where it is not the clock's: in tests.
    pub(crate) clock: Option<Mutex<Instant>>,
    /// Taken before `core` where both are.
    pub(crate) keys: Mutex<Keys>,
    core: Mutex<Core>,
}

pub(crate) struct Core {
    pub(crate) life: Life,
    pub(crate) rings: Vec<Ring>,
    pub(crate) places: Places,
    /// Who waits for memory, and who for room in a ring.
    pub(crate) memory_line: Line,
    ring_line: Line,
    /// The next request's cookie.
    cookie: u64,
    /// What was found where it could not be dealt with.
    pub(crate) trouble: Option<Trouble>,
    /// Bytes that the device has encrypted or decrypted since it was started.
    pub(crate) carried_out: u64,
    /// Resets in a row before which it had hardly carried out anything.
    pub(crate) lean_resets: u32,
    /// Whether the thread looks by itself before long.
    is_watched: bool,
    /// Requests whose memory a device that could not be stopped may write to, for ever.
    pub(crate) lost: Vec<Flight>,
}

/// What a look at the device is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Completions are there, by these bits of `INT_STATUS`.
    Interrupt(u32),
    /// Nothing has been heard for a while, or of a fault.
    Doubt,
    /// It is time.
    Time,
}

impl Shared {
    pub(crate) fn new(
        port: Box<dyn Port>,
        facts: Facts,
        options: Options,
        clock: Option<Instant>,
    ) -> Result<Self, Error> {
        let kick = rustix::event::eventfd(
            0,
            rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK,
        )
        .map_err(|e| {
            let message = "cannot make an event counter";
            Error::by(ErrorKind::Memory, message, std::io::Error::from(e))
        })?;
        let now = clock.unwrap_or_else(Instant::now);
        let count = options.rings.clamp(1, facts.rings);
        let entries = options.ring_entries.clamp(1, 1 << 15).next_power_of_two();
        let log2 = entries.min(facts.ring_entries).trailing_zeros();
        let rings: Vec<_> = (0..count)
            .map(|number| Ring::new(number * Ring::bytes(log2).next_multiple_of(64), log2, now))
            .collect();
        let before = (count * Ring::bytes(log2).next_multiple_of(64)).next_multiple_of(4096);
        let data_bytes = options
            .memory
            .clamp(64 << 10, 1 << 30)
            .next_multiple_of(4096);
        let memory = Arc::new(Memory::new(before + data_bytes)?);
        let end = memory.address(memory.len());
        if facts.address_bits < 64 && end > 1 << facts.address_bits {
            let message = format!(
                "the engine has {} address bits: too few to reach its memory",
                facts.address_bits
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        Ok(Self {
            port,
            memory,
            facts,
            patience: Patience::new(options.watchdog),
            options,
            data_bytes,
            kick,
            stopped: AtomicBool::new(false),
            errands: Mutex::default(),
            clock: clock.map(Mutex::new),
            keys: Mutex::new(Keys::new(facts.slots)),
            core: Mutex::new(Core {
                life: Life::Resetting,
                rings,
                places: Places::new(before, data_bytes),
                memory_line: Line::default(),
                ring_line: Line::default(),
                cookie: 1,
                trouble: None,
                carried_out: 0,
                lean_resets: 0,
                is_watched: false,
                lost: Vec::new(),
            }),
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> Instant {
        match &self.clock {
            None => Instant::now(),
            Some(clock) => *clock.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    pub(crate) fn errands(&self) -> MutexGuard<'_, Vec<Work>> {
        self.errands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the thread look.
    pub(crate) fn kick(&self) {
        // It fails only when it is full: then the thread is about to look anyway.
        let _ = rustix::io::write(&self.kick, &1_u64.to_ne_bytes());
    }

    /// Why requests are not taken, if they are not for good, or are about not to be.
    pub(crate) fn death(&self) -> Option<Arc<str>> {
        let core = self.lock();
        match (&core.life, &core.trouble) {
            (Life::Dead(reason), _) => Some(Arc::clone(reason)),
            (_, Some(trouble)) if trouble.is_final() => Some(Arc::clone(trouble.reason())),
            _ => None,
        }
    }

    /// A register of a ring.
    pub(crate) fn ring_register(number: usize, register: u32) -> u32 {
        let number = u32::try_from(number).unwrap_or_default();
        reg::RINGS_OFFSET + number * reg::RINGS_STRIDE + register
    }

    /// Memory for `len` bytes of data, once there is some; at most [`Shared::data_bytes`].
    pub(crate) async fn slab(self: &Arc<Self>, len: usize) -> Result<Arc<Slab>, Error> {
        let mut turn = Turn::new(self, |core| &mut core.memory_line);
        let start = poll_fn(|context| {
            turn.poll(context, |core, _| core.places.take(len))
                .map(|done| {
                    // In here, so that the piece has an owner whatever happens next.
                    done.map(|start| Arc::new(Slab::new(self, start, len)))
                })
        });
        start.await
    }

    /// Puts requests on data in `slab` into rings, as there is room.
    pub(crate) async fn submit(
        self: &Arc<Self>,
        slab: &Arc<Slab>,
        slot: &Arc<Slot>,
        requests: &Requests,
    ) -> Result<Vec<Arc<Ticket>>, Error> {
        let mut tickets = Vec::with_capacity(requests.len());
        let mut turn = Turn::new(self, |core| &mut core.ring_line);
        poll_fn(|context| {
            turn.poll(context, |core, shared| {
                let rest = &requests[tickets.len()..];
                core.put(shared, rest, (slab, slot), &mut tickets);
                (tickets.len() == requests.len()).then_some(())
            })
        })
        .await?;
        drop(turn);
        Ok(tickets)
    }

    /// Looks what the device has done, and whether it does anything.
    pub(crate) fn attend(self: &Arc<Self>, now: Instant, cause: Cause) {
        let mut done = Vec::new();
        let mut trouble = None;
        if let Cause::Interrupt(bits) = cause {
            trouble = self.acknowledge(bits).err();
        } else if cause == Cause::Doubt {
            // Were it not told of an interrupt, there would never be another one.
            trouble = self.acknowledge(EVERY_INTERRUPT).err();
        }
        let mut core = self.lock();
        if !matches!(core.life, Life::Up) {
            return;
        }
        trouble = Trouble::worse(core.trouble.take(), trouble);
        for number in 0..core.rings.len() {
            // What was done before any other trouble is done.
            if trouble.as_ref().is_some_and(Trouble::is_final) {
                break;
            }
            let ring = &mut core.rings[number];
            let before = ring.head();
            let seen = ring.look(&self.memory, now, &mut done);
            trouble = Trouble::worse(trouble, seen.err().map(Trouble::broken));
            if ring.failures >= FAILURES {
                trouble.get_or_insert(Trouble::failing(FAILURES));
            }
            let head = ring.head();
            if head != before {
                let register = Self::ring_register(number, reg::RING_CQ_HEAD);
                let rung = self.port.write(register, head.into());
                trouble = Trouble::worse(trouble, rung.err().map(Trouble::gone));
            }
        }
        let carried_out = done.iter().filter(|(_, outcome)| outcome.is_ok());
        core.carried_out += carried_out.map(|(flight, _)| flight.bytes).sum::<u64>();
        let limit = self.options.watchdog;
        let is_late = core.rings.iter().any(|ring| ring.is_late(now, limit));
        let next = (!done.is_empty()).then(|| core.ring_line.first()).flatten();
        drop(core);
        for (flight, outcome) in done {
            flight.ticket.settle(outcome);
        }
        if let Some(waker) = next {
            waker.wake();
        }
        if trouble.is_none() && (cause == Cause::Doubt || is_late) {
            trouble = self.doubt();
        }
        if trouble.is_none() && is_late {
            trouble = Some(Trouble::late(limit));
        }
        if let Some(trouble) = trouble {
            self.recover(&trouble);
        }
    }

    /// Clears interrupts, for certain: a write that is on its way still would clear those of completions that are not
    /// there yet when the rings are looked at. One that comes at the same moment stays, and does not interrupt again.
    fn acknowledge(&self, bits: u32) -> Result<(), Trouble> {
        for _ in 0..ACKNOWLEDGEMENTS {
            self.port
                .write(reg::REG_INT_STATUS, bits)
                .map_err(Trouble::gone)?;
            let left = self.port.read(reg::REG_INT_STATUS).map_err(Trouble::gone)?;
            if left == u32::MAX {
                return Err(Trouble::all_ones());
            }
            if left & bits == 0 {
                break;
            }
        }
        Ok(())
    }

    /// When the thread is to look next, if nothing is heard.
    pub(crate) fn next_look(&self, last_seen: Instant, now: Instant) -> Option<Duration> {
        let tick = self.tick();
        let mut core = self.lock();
        let is_busy = core.rings.iter().any(|ring| ring.under_way() > 0);
        // A little longer than there is something to do, so that whoever has one request after the other need not wake
        // the thread each time.
        let is_up = matches!(core.life, Life::Up);
        // Whoever polls is told of nothing meanwhile.
        let lingers = self.options.wait == crate::Wait::Interrupts
            && now.saturating_duration_since(last_seen) < tick;
        core.is_watched = is_up && (is_busy || lingers);
        let is_trouble = core.trouble.is_some();
        match (core.is_watched, self.options.wait) {
            (_, _) if is_trouble && is_up => Some(Duration::ZERO),
            (false, _) => None,
            (true, crate::Wait::Polling(pause)) if is_busy => {
                Some(pause.clamp(Duration::from_micros(1), tick))
            }
            (true, _) => Some(tick),
        }
    }

    /// Time after which the thread looks at a device that is silent.
    pub(crate) fn tick(&self) -> Duration {
        (self.options.watchdog / 4).clamp(Duration::from_millis(1), Duration::from_millis(100))
    }

    /// Has a device put out of service that says it is done with what it has left as it was.
    pub(crate) fn did_nothing(&self) -> Error {
        let what = "it says that a request is done, and has changed nothing";
        let trouble = Trouble::broken(what.into());
        let error = dead(trouble.reason());
        let mut core = self.lock();
        core.note(trouble);
        drop(core);
        self.kick();
        error
    }

    /// Has everybody look who waits.
    pub(crate) fn wake_all(&self) {
        let core = self.lock();
        let wakers: Vec<_> = core.memory_line.all().chain(core.ring_line.all()).collect();
        drop(core);
        for waker in wakers {
            waker.wake();
        }
    }

    /// The error of a request that ended with a fault.
    pub(crate) fn error(&self, fault: &Fault) -> Error {
        match fault {
            Fault::Status(status) => Error::new(
                ErrorKind::Failed,
                format!(
                    "the engine failed a request: {} (status {status})",
                    crate::ring::meaning(*status)
                ),
            ),
            Fault::Reset(reason) => match self.death() {
                Some(_) => dead(reason),
                None => Error::new(
                    ErrorKind::Failed,
                    format!("the engine was reset with a request under way: {reason}"),
                ),
            },
        }
    }
}

/// What requests end with once the engine is dead.
pub(crate) fn dead(reason: &str) -> Error {
    Error::new(
        ErrorKind::Dead,
        format!("the engine is out of service: {reason}"),
    )
}

impl Core {
    /// Something was found where it could not be dealt with.
    pub(crate) fn note(&mut self, trouble: Trouble) {
        self.trouble = Trouble::worse(self.trouble.take(), Some(trouble));
    }

    /// Submits as many of the requests as there is room for, and rings once for each ring.
    fn put(
        &mut self,
        shared: &Shared,
        requests: &[Request],
        owners: (&Arc<Slab>, &Arc<Slot>),
        tickets: &mut Vec<Arc<Ticket>>,
    ) {
        let mut rung = 0_u32;
        let now = shared.now();
        for request in requests {
            let rings = self.rings.iter().enumerate();
            let Some((number, _)) = rings
                .filter(|(_, ring)| ring.room() > 0)
                .min_by_key(|(_, ring)| ring.under_way())
            else {
                break;
            };
            let ticket = self.rings[number].put(&shared.memory, request, owners, self.cookie, now);
            self.cookie = self.cookie.wrapping_add(1);
            tickets.push(ticket);
            rung |= 1 << number;
        }
        // What was written is there before the device hears of it.
        fence(Ordering::SeqCst);
        let mut gone = None;
        for (number, ring) in self.rings.iter().enumerate() {
            if rung >> number & 1 != 0 {
                let register = Shared::ring_register(number, reg::RING_TAIL);
                if let Err(error) = shared.port.write(register, ring.tail().into()) {
                    gone = Some(Trouble::gone(error));
                }
            }
        }
        gone.into_iter().for_each(|trouble| self.note(trouble));
        if rung != 0 && (!self.is_watched || self.trouble.is_some()) {
            self.is_watched = true;
            shared.kick();
        }
    }
}
