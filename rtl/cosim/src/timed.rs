//! Serves a guest whose time is simulated: this process is its calendar, and the co-processor's clock
//! counts the same nanoseconds. The guest's work takes no time; while it waits, whatever is first
//! goes on: the guest at the time it asked for, or the device at its next interrupt.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::calendar::{Calendar, NEVER};
use crate::guest::{COMMANDS, Guest, INTERRUPTS, Pending};
use crate::machine::{Broken, Machine};
use crate::paced::{Paced, Reached};
use crate::vhost_user::Event;

/// What takes how long, in nanoseconds, and how fast the clock is.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The co-processor's clock.
    pub mhz: u64,
    /// From an interrupt line to the guest.
    pub interrupt: u64,
    /// A register's read, there and back.
    pub register: u64,
}

/// Ends a server from another thread.
#[derive(Debug)]
pub struct Stop {
    stop: AtomicBool,
    wake: File,
}

impl Stop {
    /// Nobody has asked for it.
    ///
    /// # Errors
    /// The system's.
    pub fn new() -> io::Result<Self> {
        let wake: OwnedFd = eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Self {
            stop: AtomicBool::new(false),
            wake: wake.into(),
        })
    }

    /// Asks for it.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        // It cannot fail: nobody else writes it.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    fn is_set(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Why the server cannot go on.
#[derive(Debug)]
pub enum Error {
    /// The model has broken.
    Broken(Broken),
    /// Clients cannot be accepted any more.
    Accept(io::Error),
}

/// The device, and the guest that uses it.
#[derive(Debug)]
pub struct Timed<'a> {
    device: Paced,
    pace: Pace,
    stop: &'a Stop,
    calendar: Option<Calendar>,
    guest: Option<Guest>,
    /// A command whose answer is on its way, and when it is there.
    held: Option<(Pending, u64)>,
    /// Somebody was told that the guest sleeps for ever.
    told: bool,
    since: Instant,
    cycles: u64,
}

impl<'a> Timed<'a> {
    /// A device at time 0, without a guest.
    pub fn new(machine: Machine, pace: Pace, stop: &'a Stop) -> Self {
        Self {
            cycles: machine.cycle(),
            device: Paced::new(machine, pace.mhz),
            pace,
            stop,
            calendar: None,
            guest: None,
            held: None,
            told: false,
            since: Instant::now(),
        }
    }

    /// Serves guests, one after the other; with `once` one only.
    ///
    /// # Errors
    /// [`Error`].
    pub fn serve(
        &mut self,
        devices: &UnixListener,
        calendars: &UnixListener,
        once: bool,
    ) -> Result<(), Error> {
        while !self.stop.is_set() {
            let ready = self.wait(devices, calendars).map_err(Error::Accept)?;
            if self.calendar.is_none() {
                if ready.device {
                    devices.accept().map_err(Error::Accept)?;
                    log::warn!("a guest without time-travel=ext: is turned away");
                }
                if ready.time {
                    let (stream, _) = calendars.accept().map_err(Error::Accept)?;
                    self.calendar = Some(Calendar::new(stream));
                    self.since = Instant::now();
                    self.cycles = self.device.machine.cycle();
                    self.device.skipped_cycles = 0;
                    self.renew(0)?;
                }
                continue;
            }
            if ready.device && self.guest.is_none() {
                let (stream, _) = devices.accept().map_err(Error::Accept)?;
                let machine = &self.device.machine;
                self.guest = Some(Guest::new(stream, machine.vectors(), &machine.mappings));
                continue;
            }
            let stays = self.go(ready);
            let ended = match stays {
                Ok(true) => continue,
                Ok(false) => None,
                Err(error) => Some(error),
            };
            if let Some(broken) = self.device.take_broken() {
                return Err(Error::Broken(broken));
            }
            if let Some(error) = ended {
                log::warn!("a guest is cut off: {error}");
            }
            self.left();
            self.calendar = None;
            self.renew(0)?;
            if once {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Whether the guest is still there.
    fn go(&mut self, ready: Ready) -> io::Result<bool> {
        if ready.time && !calendar(&mut self.calendar)?.receive()? {
            return Ok(false);
        }
        if ready.device && !self.receive()? {
            // The device is taken away; the guest, and its time, go on.
            let now = calendar(&mut self.calendar)?.now();
            self.forget();
            self.device.reset(now)?;
        }
        self.advance()?;
        Ok(true)
    }

    /// As after power-on.
    fn renew(&mut self, now: u64) -> Result<(), Error> {
        self.forget();
        match self.device.reset(now) {
            Ok(()) => Ok(()),
            Err(error) => Err(match self.device.take_broken() {
                Some(broken) => Error::Broken(broken),
                None => Error::Accept(error),
            }),
        }
    }

    fn forget(&mut self) {
        self.guest = None;
        self.held = None;
        self.told = false;
        self.device.machine.mappings.clear();
        self.device.machine.mappings.set_master(false);
    }

    fn left(&self) {
        log::info!(
            "a guest left at {} ns, after {} cycles in {:.3} s, and {} that were skipped",
            self.calendar.as_ref().map_or(0, Calendar::now),
            self.device.machine.cycle() - self.cycles,
            self.since.elapsed().as_secs_f64(),
            self.device.skipped_cycles
        );
    }

    fn wait(&self, devices: &UnixListener, calendars: &UnixListener) -> io::Result<Ready> {
        let calendar = self.calendar.as_ref().map(Calendar::stream);
        let guest = self.guest.as_ref().map(|guest| guest.session.stream());
        let mut files = [
            match calendar {
                Some(stream) => PollFd::new(stream, PollFlags::IN),
                None => PollFd::new(calendars, PollFlags::IN),
            },
            match guest {
                Some(stream) => PollFd::new(stream, PollFlags::IN),
                None => PollFd::new(devices, PollFlags::IN),
            },
            PollFd::new(&self.stop.wake, PollFlags::IN),
        ];
        match poll(&mut files, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [time, device, _] = files.map(|it| !it.revents().is_empty());
        Ok(Ready { time, device })
    }

    /// A message of the guest about its device; `false` at its end.
    fn receive(&mut self) -> io::Result<bool> {
        let Some(guest) = &mut self.guest else {
            return Ok(true);
        };
        let Some(event) = guest.session.receive()? else {
            return Ok(false);
        };
        // Its place for the answer is no longer the device's.
        if event == Event::Memory || !guest.session.queues[COMMANDS].enabled {
            self.held = None;
        }
        if event == Event::Kick(COMMANDS) {
            self.commands()?;
        }
        self.interrupts()?;
        if let Some(guest) = &mut self.guest {
            guest.session.done()?;
        }
        Ok(true)
    }

    /// Carries out commands, up to one whose answer takes time.
    fn commands(&mut self) -> io::Result<()> {
        let now = calendar(&mut self.calendar)?.now();
        let mut any = false;
        while self.held.is_none() {
            let Some(guest) = &mut self.guest else { break };
            let Some(pending) = guest.next_command()? else {
                break;
            };
            if pending.is_read() && self.pace.register > 0 {
                self.held = Some((pending, now.saturating_add(self.pace.register)));
            } else {
                guest.carry_out(&pending, &mut self.device)?;
                any = true;
            }
        }
        if any { self.call(COMMANDS) } else { Ok(()) }
    }

    /// Sends messages of interrupts that have come and are not masked.
    fn interrupts(&mut self) -> io::Result<()> {
        let Some(guest) = &mut self.guest else {
            return Ok(());
        };
        if guest.send_interrupts()? {
            self.call(INTERRUPTS)?;
        }
        Ok(())
    }

    /// Tells the guest to look at a queue, and waits until it has taken note, for which it asks what time
    /// it is.
    fn call(&mut self, queue: usize) -> io::Result<()> {
        let Some(guest) = &mut self.guest else {
            return Ok(());
        };
        if !guest.wants_call(queue)? {
            return Ok(());
        }
        let calendar = calendar(&mut self.calendar)?;
        guest.session.call_and_wait(queue, calendar)
    }

    /// While the guest waits: what is first, the device or the guest's time.
    fn advance(&mut self) -> io::Result<()> {
        while !self.stop.is_set() {
            let Some(request) = calendar(&mut self.calendar)?.request() else {
                return Ok(());
            };
            let held = self.held.as_ref().map(|(_, due)| *due);
            let latency = self.pace.interrupt;
            let interrupt = |device: &Paced| {
                let (time, _) = device.next_signal()?;
                Some(time.saturating_add(latency))
            };
            let first = |device: &Paced| {
                let others = [held, interrupt(device)];
                others.into_iter().flatten().fold(request, u64::min)
            };
            let stop = self.stop;
            if self.device.run(first(&self.device), || stop.is_set())? == Reached::Signal {
                continue;
            }
            let now = first(&self.device);
            if now >= NEVER {
                if !self.told {
                    log::warn!("the guest sleeps for ever, and the device rests");
                    self.told = true;
                }
                return Ok(());
            }
            let calendar = calendar(&mut self.calendar)?;
            calendar.advance(now);
            if interrupt(&self.device) == Some(now) {
                let (_, lines) = self.device.next_signal().unwrap_or_default();
                self.device.take_signal();
                if let Some(guest) = &mut self.guest {
                    (0..16)
                        .filter(|vector| lines >> vector & 1 != 0)
                        .for_each(|vector| guest.raise(vector));
                }
                self.interrupts()?;
            } else if let Some((pending, _)) = self.held.take_if(|(_, due)| *due == now) {
                if let Some(guest) = &mut self.guest {
                    guest.carry_out(&pending, &mut self.device)?;
                }
                self.call(COMMANDS)?;
                self.commands()?;
                // One of them may have unmasked what is pending.
                self.interrupts()?;
            } else {
                calendar.run()?;
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
struct Ready {
    time: bool,
    device: bool,
}

fn calendar(calendar: &mut Option<Calendar>) -> io::Result<&mut Calendar> {
    calendar
        .as_mut()
        .ok_or_else(|| io::Error::other("there is no guest"))
}
