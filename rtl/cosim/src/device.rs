//! The co-processor with its clock, which runs in a thread of its own: however slow the model is,
//! nobody waits for it but who reads a register.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::interrupts::Interrupts;
use crate::lite::Access;
use crate::machine::{Broken, Machine};
use crate::mappings::Mappings;

/// Writes that wait for the model at most; more wait in the client's socket.
const QUEUE: usize = 256;

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

/// A co-processor that runs.
#[derive(Clone, Debug)]
pub struct Device {
    commands: SyncSender<Command>,
    stop: Arc<AtomicBool>,
    /// Rings that are built.
    pub rings: u8,
    /// Where its memory accesses go.
    pub mappings: Arc<Mappings>,
    /// Where its interrupts go.
    pub interrupts: Arc<Interrupts>,
}

impl Device {
    /// Starts a machine's clock. The thread ends after [`Device::stop`], or gives why the model
    /// cannot go on.
    ///
    /// # Errors
    /// There is no thread for it.
    pub fn start(machine: Machine) -> io::Result<(Self, JoinHandle<Result<(), Broken>>)> {
        let interrupts = Arc::new(Interrupts::new(machine.vectors().into()));
        let (commands, receiver) = sync_channel(QUEUE);
        let stop = Arc::new(AtomicBool::new(false));
        let device = Self {
            commands,
            stop: Arc::clone(&stop),
            rings: machine.rings,
            mappings: Arc::clone(&machine.mappings),
            interrupts: Arc::clone(&interrupts),
        };
        let clock = Clock {
            since: machine.cycle(),
            machine,
            stop,
            interrupts,
            lines: 0,
            time: Duration::ZERO,
        };
        let thread = thread::Builder::new()
            .name("clock".into())
            .spawn(move || clock.run(&receiver))?;
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

    /// After a client: forgets its memory and its interrupts, and resets the model. How long it ran.
    ///
    /// # Errors
    /// The model has stopped.
    pub fn leave(&self) -> io::Result<Ran> {
        self.mappings.clear();
        self.interrupts.clear();
        let ran = self.reset()?;
        self.mappings.set_master(false);
        Ok(ran)
    }

    /// Lets the clock's thread end, and does not wait for it.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        // That wakes it. Where there is no room it is awake.
        let _ = self.commands.try_send(Command::Stop);
    }
}

fn stopped() -> io::Error {
    io::Error::other("the model has stopped")
}

/// The thread that steps the machine.
#[derive(Debug)]
struct Clock {
    machine: Machine,
    /// Somebody wants its end.
    stop: Arc<AtomicBool>,
    interrupts: Arc<Interrupts>,
    /// Interrupt lines, as told to `interrupts`.
    lines: u16,
    /// The cycle of the last reset, and the time that the clock ran since.
    since: u64,
    time: Duration,
}

impl Clock {
    fn run(mut self, commands: &Receiver<Command>) -> Result<(), Broken> {
        let mut answer: Option<SyncSender<u32>> = None;
        let mut since = Instant::now();
        while !self.stop.load(Ordering::Relaxed) {
            if self.machine.is_idle() {
                let command = match commands.try_recv() {
                    Err(TryRecvError::Empty)
                        if self.machine.is_quiet() && self.machine.rests()? =>
                    {
                        self.time += since.elapsed();
                        let command = commands.recv().map_err(|_| TryRecvError::Disconnected);
                        since = Instant::now();
                        command
                    }
                    command => command,
                };
                match command {
                    Ok(Command::Write(at, value)) => {
                        self.machine.start(Access::Write(at, value));
                    }
                    Ok(Command::Read(at, reply)) => {
                        self.machine.start(Access::Read(at));
                        answer = Some(reply);
                    }
                    Ok(Command::Reset(reply)) => {
                        let ran = Ran {
                            cycles: self.machine.cycle() - self.since,
                            time: self.time + since.elapsed(),
                        };
                        self.machine.reset()?;
                        self.see(0, 0);
                        self.since = self.machine.cycle();
                        self.time = Duration::ZERO;
                        since = Instant::now();
                        // Who asked may be gone.
                        let _ = reply.send(ran);
                    }
                    Err(TryRecvError::Empty) => {}
                    Ok(Command::Stop) | Err(TryRecvError::Disconnected) => break,
                }
            }
            let tick = self.machine.tick()?;
            self.see(tick.lines, tick.signals);
            if let Some((Access::Read(_), value)) = tick.done
                && let Some(reply) = answer.take()
            {
                // Who asked may be gone.
                let _ = reply.send(value);
            }
        }
        Ok(())
    }

    fn see(&mut self, lines: u16, signals: u16) {
        if lines != self.lines || signals != 0 {
            self.lines = lines;
            self.interrupts.see(lines, signals);
        }
    }
}
