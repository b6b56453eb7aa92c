//! An engine in use.

use std::future::Future;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use sector_cipher::{CipherSpec, SectorCount, SectorSize};

use crate::keyed::Purpose;
use crate::port::{self, Port, Work};
use crate::reset::EVERY_INTERRUPT;
use crate::shared::{Cause, Life, Shared};
use crate::{Address, Counters, Error, ErrorKind, Facts, Keyed, Model, Options, Wait};

/// An engine: opened, reset and tested. It is attended to by a thread of its own, until the last of its users and its
/// keys is gone; then it is reset, so that it has no key and none of this process's memory any more.
pub struct Engine {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Engine {
    /// Opens an engine: looks what it is, resets it, and tests each of its ciphers and operations against the CPU.
    ///
    /// # Errors
    /// [`ErrorKind::Open`] or [`ErrorKind::Unknown`] if there is no engine that this driver knows, [`ErrorKind::Unsupported`] if it
    /// lacks what the options want, [`ErrorKind::Memory`], or [`ErrorKind::Dead`] if it does not work as it has to.
    pub fn open(address: &Address, options: Options) -> Result<Arc<Self>, Error> {
        let port = port::open(address, options.watchdog)?;
        let engine = Self::start(port, options, None)?;
        crate::selftest::run(&engine)?;
        Ok(engine)
    }

    /// Starts a device; without a thread if there is a time that is not the clock's.
    pub(crate) fn start(
        port: Box<dyn Port>,
        options: Options,
        clock: Option<Instant>,
    ) -> Result<Arc<Self>, Error> {
        let facts = Facts::read(|register| port.read(register))?;
        let shared = Arc::new(Shared::new(port, facts, options, clock)?);
        // Whoever had it before may have left it at work: it gets no memory before it is at rest.
        shared.reset()?;
        shared.port.map(&shared.memory)?;
        let counters = match shared.options.wait {
            Wait::Interrupts if clock.is_none() => wire(&shared)?,
            _ => Vec::new(),
        };
        let engine = Arc::new(Self {
            shared: Arc::clone(&shared),
            thread: Mutex::new(None),
        });
        // From here on the engine's drop takes the memory away again.
        shared.start(&shared.keys())?;
        shared.lock().life = Life::Up;
        if clock.is_none() {
            let thread = thread::Builder::new()
                .name("xtent-engine".into())
                .spawn(move || attend(&shared, &counters))
                .map_err(|e| Error::by(ErrorKind::Memory, "cannot start a thread", e))?;
            *engine.thread() = Some(thread);
        }
        Ok(engine)
    }

    fn thread(&self) -> std::sync::MutexGuard<'_, Option<JoinHandle<()>>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// What it can do.
    pub fn facts(&self) -> &Facts {
        &self.shared.facts
    }

    /// Runs `work` once in each of the driver's threads and returns what came of it: for what a thread can only do to
    /// itself, such as giving up privileges. A thread that has ended gives nothing. Requests wait meanwhile.
    ///
    /// # Errors
    /// [`ErrorKind::Dead`] if a thread does not come to it for as long as the [watchdog](Options::watchdog) waits, since it
    /// waits for the device; it does the work when it ever goes on.
    pub fn in_each_thread<T, F>(&self, work: F) -> Result<Vec<T>, Error>
    where
        T: Send + 'static,
        F: Fn() -> T + Send + Sync + 'static,
    {
        let (sender, results) = std::sync::mpsc::channel();
        let work = Arc::new(work);
        let one = || -> Work {
            let (work, sender) = (Arc::clone(&work), sender.clone());
            Box::new(move || {
                // There is a receiver until every sender has gone.
                let _ = sender.send(work());
            })
        };
        self.shared.port.in_thread(one());
        if self.thread().as_ref().is_some_and(|it| !it.is_finished()) {
            self.shared.errands().push(one());
            self.shared.kick();
        }
        drop(sender);
        let mut all = Vec::new();
        loop {
            match results.recv_timeout(self.shared.options.watchdog) {
                Ok(result) => all.push(result),
                Err(RecvTimeoutError::Disconnected) => return Ok(all),
                Err(RecvTimeoutError::Timeout) => {
                    let message =
                        "a thread of the engine's driver is stuck: the device does not answer";
                    return Err(Error::new(ErrorKind::Dead, message));
                }
            }
        }
    }

    /// For a process that is about to end: from now on nobody waits longer than a second for the device to answer, also
    /// who waits already. One that takes longer is out of service. Requests have their time as before, as long as
    /// it answers.
    pub fn hurry(&self) {
        self.shared.patience.hurry();
        self.shared.port.hurry();
    }

    /// Why it is out of service, if it is.
    pub fn failure(&self) -> Option<String> {
        self.shared.death().map(|reason| reason.to_string())
    }

    /// Its counters, of one moment.
    ///
    /// # Errors
    /// [`ErrorKind::Dead`] if the device does not answer.
    pub fn counters(&self) -> Result<Counters, Error> {
        // There is one snapshot: nobody else takes one before it is read.
        let _one = self.shared.keys();
        if let Some(reason) = self.shared.death() {
            return Err(crate::shared::dead(&reason));
        }
        let port = &self.shared.port;
        Counters::read(
            |register| port.read(register),
            |register, value| port.write(register, value),
        )
    }

    /// Loads a key, for sectors of one size whose tweaks are counted as `count` says.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] or [`ErrorKind::Slots`] where a CPU has to do it, [`ErrorKind::Request`] for a key that the cipher does
    /// not take, [`ErrorKind::Memory`], [`ErrorKind::Dead`] if the engine is out of service.
    pub fn key(
        self: &Arc<Self>,
        spec: CipherSpec,
        key: &[u8],
        size: SectorSize,
        count: SectorCount,
        model: Model,
    ) -> Result<Keyed, Error> {
        let purpose = Purpose {
            spec,
            size,
            count,
            model,
            on_failure: self.shared.options.on_failure,
        };
        Keyed::new(self, purpose, key)
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("facts", self.facts())
            .field("failure", &self.failure())
            .finish_non_exhaustive()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.hurry();
        self.shared.stopped.store(true, Ordering::Release);
        self.shared.kick();
        if let Some(thread) = self.thread().take()
            // The thread itself may have dropped the last future.
            && thread.thread().id() != thread::current().id()
        {
            // A panic there has been told already.
            let _ = thread.join();
        }
        self.shared.close();
    }
}

/// Event counters for the device's interrupts: as many as it uses.
fn wire(shared: &Shared) -> Result<Vec<OwnedFd>, Error> {
    let fail = |e: rustix::io::Errno| {
        let message = "cannot make an event counter";
        Error::by(ErrorKind::Memory, message, std::io::Error::from(e))
    };
    let mut counters = (0..=shared.facts.rings)
        .map(|_| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK))
        .collect::<Result<Vec<_>, _>>()
        .map_err(fail)?;
    let used = shared.port.interrupts(&counters)?;
    counters.truncate(used);
    Ok(counters)
}

/// Takes the count out of an event counter.
fn drain(counter: &OwnedFd) {
    // It fails only when there is none.
    let _ = rustix::io::read(counter, &mut [0; 8]);
}

/// Attends to the device until it is stopped.
fn attend(shared: &Arc<Shared>, counters: &[OwnedFd]) {
    let mut last_seen = Instant::now();
    let mut last_doubt = last_seen;
    loop {
        let pause = shared.next_look(last_seen, Instant::now());
        let pause = pause.and_then(|pause| Timespec::try_from(pause).ok());
        // A device that is not used any more cannot have this thread's time.
        let counters = match shared.death() {
            None => counters,
            Some(_) => &[],
        };
        let all = std::iter::once(&shared.kick).chain(counters);
        let mut fds: Vec<_> = all
            .map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN))
            .collect();
        // A signal comes to the same as a look for nothing.
        let _ = poll(&mut fds, pause.as_ref());
        let heard: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        if heard[0] {
            drain(&shared.kick);
        }
        let errands = std::mem::take(&mut *shared.errands());
        errands.into_iter().for_each(|work| work());
        if shared.stopped.load(Ordering::Acquire) {
            return;
        }
        let mut bits = 0;
        let mut is_fault = false;
        for (number, counter) in counters.iter().enumerate() {
            if heard[number + 1] {
                drain(counter);
                // One for all, or one each.
                is_fault |= counters.len() == 1 || number == shared.facts.rings;
                bits |= if counters.len() == 1 || number == shared.facts.rings {
                    EVERY_INTERRUPT
                } else {
                    1 << number
                };
            }
        }
        let now = Instant::now();
        if bits != 0 {
            last_seen = now;
            shared.attend(now, Cause::Interrupt(bits));
        }
        let is_silent = bits == 0 && now.saturating_duration_since(last_doubt) >= shared.tick();
        if is_fault || is_silent {
            last_doubt = now;
            shared.attend(now, Cause::Doubt);
        } else if bits == 0 {
            if heard[0] {
                last_seen = now;
            }
            shared.attend(now, Cause::Time);
        }
    }
}

impl Engine {
    /// Runs a future to its end, on this thread.
    pub(crate) fn finish<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
                return result;
            }
            match &self.shared.clock {
                None => thread::park(),
                // Nobody else attends to the device.
                Some(_) => self.pass(self.shared.tick()),
            }
        }
    }

    /// Lets time pass, where it is not the clock's, and attends to the device.
    pub(crate) fn pass(&self, time: std::time::Duration) {
        if let Some(clock) = &self.shared.clock {
            *clock.lock().unwrap_or_else(PoisonError::into_inner) += time;
        }
        self.shared.attend(self.shared.now(), Cause::Doubt);
    }
}

/// Wakes a thread.
struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
