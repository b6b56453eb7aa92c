//! The co-processor with its clock, which runs in a thread of its own: however slow the model is,
//! nobody waits for it but who reads a register.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::interrupts::Interrupts;
use crate::lite::{Access, Lite};
use crate::mappings::Mappings;
use crate::memory_port::{Latency, MemoryPort};
use crate::model::{Inputs, Model, Outputs};
use crate::registers::{
    CAP0_RINGS_BITS, CAP0_RINGS_LOW, CAP3_CYCLES_PER_US_BITS, CAP3_CYCLES_PER_US_LOW, ID, REG_CAP0,
    REG_CAP3, REG_ID, REG_INT_STATUS, REG_STATUS, RING_COALESCE, RING_COALESCE_US_LOW,
    RINGS_OFFSET, RINGS_STRIDE, STATUS_IDLE_LOW, STATUS_READY_LOW,
};

/// Writes that wait for the model at most; more wait in the client's socket.
const QUEUE: usize = 256;
/// Cycles of a reset.
const RESET_CYCLES: u32 = 16;
/// Cycles that a register access, or getting ready, may take: far beyond what the slowest needs.
const PATIENCE: u64 = 1_000_000;
/// Cycles without any traffic after which the clock may stop. Timers come on top of that.
const QUIET_CYCLES: u64 = 1024;

/// What the clock's thread is asked to do, in order.
#[derive(Debug)]
enum Command {
    Write(u16, u32),
    Read(u16, SyncSender<u32>),
    Reset(SyncSender<Ran>),
    Stop,
}

/// How long the model ran since the last reset.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ran {
    /// Cycles, while the clock ran.
    pub cycles: u64,
    /// The time that it ran.
    pub time: Duration,
}

/// How the model broke.
#[derive(Debug)]
pub struct Broken {
    /// What it did.
    pub what: String,
    /// In which cycle, counted from the first.
    pub cycle: u64,
}

/// A co-processor that runs.
#[derive(Clone, Debug)]
pub struct Device {
    commands: SyncSender<Command>,
    /// Rings that are built.
    pub rings: u8,
    /// Where its memory accesses go.
    pub mappings: Arc<Mappings>,
    /// Where its interrupts go.
    pub interrupts: Arc<Interrupts>,
}

impl Device {
    /// Resets a model, asks what it is, and starts its clock. The thread ends after
    /// [`Device::stop`], or gives why the model cannot go on.
    ///
    /// # Errors
    /// [`Broken`]: the model is no co-processor.
    pub fn start(
        model: Model,
        latency: Latency,
    ) -> Result<(Self, JoinHandle<Result<(), Broken>>), Broken> {
        let mappings = Arc::new(Mappings::default());
        let mut clock = Clock {
            model,
            inputs: Inputs::default(),
            lite: Lite::default(),
            port: MemoryPort::new(latency),
            mappings: Arc::clone(&mappings),
            interrupts: Arc::new(Interrupts::new(0)),
            cycle: 0,
            quiet: 0,
            timers: [0; 8],
            cycles_per_us: 0,
            ran: Ran::default(),
        };
        clock.reset()?;
        let id = clock.read(REG_ID)?;
        if id != ID {
            return Err(clock.broken(format!("register ID reads {id:#010x}, not {ID:#010x}")));
        }
        let rings = field(clock.read(REG_CAP0)?, CAP0_RINGS_LOW, CAP0_RINGS_BITS);
        if !(1..=8).contains(&rings) {
            return Err(clock.broken(format!("it says that it has {rings} rings")));
        }
        clock.cycles_per_us = field(
            clock.read(REG_CAP3)?,
            CAP3_CYCLES_PER_US_LOW,
            CAP3_CYCLES_PER_US_BITS,
        )
        .into();
        let interrupts = Arc::new(Interrupts::new(rings as usize + 1));
        clock.interrupts = Arc::clone(&interrupts);
        let (commands, receiver) = sync_channel(QUEUE);
        let thread = thread::Builder::new()
            .name("clock".into())
            .spawn(move || clock.run(&receiver))
            .map_err(|error| Broken {
                what: format!("there is no thread for its clock: {error}"),
                cycle: 0,
            })?;
        let device = Self {
            commands,
            #[allow(clippy::cast_possible_truncation)]
            rings: rings as u8,
            mappings,
            interrupts,
        };
        Ok((device, thread))
    }

    /// Writes a register, in its turn: nobody waits for it.
    ///
    /// # Errors
    /// The model has stopped.
    pub fn write(&self, offset: u16, value: u32) -> io::Result<()> {
        self.commands
            .send(Command::Write(offset, value))
            .map_err(|_| stopped())
    }

    /// Reads a register, after all that was written before.
    ///
    /// # Errors
    /// The model has stopped.
    pub fn read(&self, offset: u16) -> io::Result<u32> {
        let (reply, answer) = sync_channel(1);
        self.commands
            .send(Command::Read(offset, reply))
            .map_err(|_| stopped())?;
        answer.recv().map_err(|_| stopped())
    }

    /// Resets the model, as power-on does, after all that was written before.
    ///
    /// # Errors
    /// The model has stopped.
    pub fn reset(&self) -> io::Result<Ran> {
        let (reply, answer) = sync_channel(1);
        self.commands
            .send(Command::Reset(reply))
            .map_err(|_| stopped())?;
        answer.recv().map_err(|_| stopped())
    }

    /// Lets the clock's thread end.
    pub fn stop(&self) {
        // If it has, it needs not be told.
        let _ = self.commands.send(Command::Stop);
    }
}

fn stopped() -> io::Error {
    io::Error::other("the model has stopped")
}

fn field(value: u32, low: u32, bits: u32) -> u32 {
    value >> low & ((1 << bits) - 1)
}

/// A register's offset as its access has it.
fn offset(register: u32) -> u16 {
    register.try_into().unwrap_or(u16::MAX)
}

struct Clock {
    model: Model,
    inputs: Inputs,
    lite: Lite,
    port: MemoryPort,
    mappings: Arc<Mappings>,
    interrupts: Arc<Interrupts>,
    cycle: u64,
    /// Cycles without traffic.
    quiet: u64,
    /// Of each ring, the microseconds that its interrupts may wait.
    timers: [u32; 8],
    cycles_per_us: u64,
    ran: Ran,
}

impl Clock {
    fn run(mut self, commands: &Receiver<Command>) -> Result<(), Broken> {
        let mut answer: Option<SyncSender<u32>> = None;
        let mut since = Instant::now();
        loop {
            if self.lite.is_idle() {
                let command = match commands.try_recv() {
                    Err(TryRecvError::Empty)
                        if self.quiet >= self.patience() && self.rests()? =>
                    {
                        self.ran.time += since.elapsed();
                        let command = commands.recv().map_err(|_| TryRecvError::Disconnected);
                        since = Instant::now();
                        command
                    }
                    command => command,
                };
                match command {
                    Ok(Command::Write(at, value)) => {
                        self.watch(at, value);
                        self.lite.start(Access::Write(at, value));
                    }
                    Ok(Command::Read(at, reply)) => {
                        self.lite.start(Access::Read(at));
                        answer = Some(reply);
                    }
                    Ok(Command::Reset(reply)) => {
                        let mut ran = self.ran;
                        ran.time += since.elapsed();
                        self.reset()?;
                        since = Instant::now();
                        // Who asked may be gone.
                        let _ = reply.send(ran);
                    }
                    Err(TryRecvError::Empty) => {}
                    Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return Ok(()),
                }
            }
            match self.tick()? {
                Some((Access::Read(_), value)) => {
                    if let Some(reply) = answer.take() {
                        // Who asked may be gone.
                        let _ = reply.send(value);
                    }
                }
                Some((Access::Write(at, bits), _)) if u32::from(at) == REG_INT_STATUS => {
                    self.interrupts.acknowledged(bits);
                }
                _ => {}
            }
        }
    }

    /// One cycle; the register access that it ends.
    fn tick(&mut self) -> Result<Option<(Access, u32)>, Broken> {
        self.port.drive(&mut self.inputs, &*self.mappings);
        self.lite.drive(&mut self.inputs);
        let outputs = self.model.tick(&self.inputs);
        self.cycle += 1;
        self.ran.cycles += 1;
        self.port
            .see(&self.inputs, &outputs)
            .map_err(|what| self.broken(what))?;
        let done = self
            .lite
            .see(&self.inputs, &outputs)
            .map_err(|what| self.broken(what))?;
        self.interrupts.see(outputs.interrupt);
        self.quiet = if self.has_traffic(&outputs) {
            0
        } else {
            self.quiet + 1
        };
        Ok(done)
    }

    fn has_traffic(&self, outputs: &Outputs) -> bool {
        !self.lite.is_idle()
            || !self.port.is_idle()
            || outputs.m_axi_arvalid | outputs.m_axi_awvalid | outputs.m_axi_wvalid != 0
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

    /// Cycles without traffic after which nothing can happen of itself any more, if the model
    /// says that it is idle.
    fn patience(&self) -> u64 {
        let longest = self.timers.iter().max().copied().unwrap_or(0);
        QUIET_CYCLES + u64::from(longest) * self.cycles_per_us
    }

    /// Whether the model says that it has nothing to do.
    fn rests(&mut self) -> Result<bool, Broken> {
        let status = self.read(REG_STATUS)?;
        self.quiet = 0;
        Ok(status >> STATUS_READY_LOW & status >> STATUS_IDLE_LOW & 1 != 0)
    }

    /// A register, read here and now.
    fn read(&mut self, register: u32) -> Result<u32, Broken> {
        self.lite.start(Access::Read(offset(register)));
        for _ in 0..PATIENCE {
            if let Some((_, value)) = self.tick()? {
                return Ok(value);
            }
        }
        Err(self.broken(format!("register {register:#x} is not answered")))
    }

    /// Power-on, until the model is ready.
    fn reset(&mut self) -> Result<(), Broken> {
        self.lite.reset();
        self.port.reset();
        self.timers = [0; 8];
        self.inputs = Inputs::default();
        for _ in 0..RESET_CYCLES {
            self.model.tick(&self.inputs);
            self.cycle += 1;
        }
        self.interrupts.see(0);
        self.inputs.aresetn = true;
        let start = self.cycle;
        while self.read(REG_STATUS)? >> STATUS_READY_LOW & 1 == 0 {
            if self.cycle - start > PATIENCE {
                return Err(self.broken("it does not get ready after a reset".into()));
            }
        }
        self.quiet = 0;
        self.ran = Ran::default();
        Ok(())
    }

    fn broken(&self, what: String) -> Broken {
        Broken {
            what,
            cycle: self.cycle,
        }
    }
}
