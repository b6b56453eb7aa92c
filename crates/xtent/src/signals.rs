//! Signals. SIGINT, SIGTERM and SIGHUP end a command: at once while there is
//! nothing to put in order, else in good order. Servers take SIGHUP as "look
//! again", since a closed terminal must not take away a disk that is in use.
//!
//! However a command is ended, its exit code is 128 and the signal's number.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction};
#[cfg(any(test, feature = "device-mapper"))]
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::failure::{Exit, Failure, Result};
use crate::output::complain;
use crate::waiting;

/// Signals that ask for an end.
const ENDINGS: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];
/// Signals that a server takes note of, and would die of otherwise.
const NOTED: [Signal; 3] = [Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2];

/// Whether the process was started to survive SIGHUP (nohup).
static HUP_IGNORED: AtomicBool = AtomicBool::new(false);
/// Whether messages are JSON, for [`end_at_once`].
static JSON: AtomicBool = AtomicBool::new(false);

/// From now on an ending signal that is not held back ends the process with a
/// message and its exit code. What was ignored stays ignored, as nohup wants it.
pub(crate) fn start(json: bool) {
    JSON.store(json, Ordering::Relaxed);
    let handler = SigHandler::Handler(interrupted);
    let action = SigAction::new(handler, SaFlags::empty(), SigSet::all());
    for signal in ENDINGS {
        // SAFETY: the handler only calls write and _exit, which are
        // async-signal-safe, and reads atomics.
        let before = unsafe { sigaction(signal, &action) };
        let Ok(before) = before else { continue };
        if matches!(before.handler(), SigHandler::SigIgn) {
            if signal == Signal::SIGHUP {
                HUP_IGNORED.store(true, Ordering::Relaxed);
            }
            // SAFETY: ignores the signal, as before; no handler runs.
            let _ = unsafe { sigaction(signal, &before) };
        }
    }
}

extern "C" fn interrupted(signal: libc::c_int) {
    end_at_once(signal)
}

/// Says so and ends, as a signal handler may.
fn end_at_once(signal: libc::c_int) -> ! {
    let code = 128 + signal;
    let say = |text: &[u8]| {
        // SAFETY: the bytes are a slice's; that nobody reads them is no harm.
        unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
    };
    if JSON.load(Ordering::Relaxed) {
        // The codes of the three signals have three digits.
        let digit = |power: libc::c_int| b'0' + (code / power % 10) as u8;
        say(b"{\"error\":{\"exit\":");
        say(&[digit(100), digit(10), digit(1)]);
        say(b",\"message\":\"interrupted\",\"causes\":[],\"advice\":null}}\n");
    } else {
        say(b"xtent: interrupted\n");
    }
    end_with(code)
}

/// Ends the process as it stands: nothing is run that libraries have for the end. What was printed
/// has been flushed with its line.
pub(crate) fn end_with(code: libc::c_int) -> ! {
    // SAFETY: ends the process without running anything of it.
    unsafe { libc::_exit(code) }
}

/// Says so and ends the process, by the signal's exit code.
pub(crate) fn end(signal: Signal) -> ! {
    end_at_once(signal as libc::c_int)
}

/// Holds the signals that are acted upon back from this thread and every thread
/// it starts from now on. Call it before any thread exists.
pub(crate) fn hold() -> Result<()> {
    set(ENDINGS.into_iter().chain(NOTED))
        .thread_block()
        .map_err(|e| Failure::system("cannot hold signals back", e))
}

/// Turns a write beyond the file size limit (`ulimit -f`) into an error, where the
/// system would end the process. Programs that this one starts have it as usual:
/// they start with no signal held back. Call it before any thread exists.
pub(crate) fn file_size_limit_is_an_error() -> Result<()> {
    let limit: SigSet = [Signal::SIGXFSZ].into_iter().collect();
    limit
        .thread_block()
        .map_err(|e| Failure::system("cannot hold signals back", e))
}

/// Runs `start` with every signal held back from this thread, and so from the threads that it
/// starts, for their whole life.
pub(crate) fn held_back<T>(start: impl FnOnce() -> T) -> Result<T> {
    let failed = |e| Failure::system("cannot hold signals back", e);
    let before = SigSet::all()
        .thread_swap_mask(SigmaskHow::SIG_BLOCK)
        .map_err(failed)?;
    let started = start();
    before.thread_set_mask().map_err(failed)?;
    Ok(started)
}

fn set(signals: impl IntoIterator<Item = Signal>) -> SigSet {
    signals.into_iter().collect()
}

/// Whether the signal ends this command.
pub(crate) fn is_ending(signal: Signal) -> bool {
    endings().contains(signal)
}

/// What ends a command: SIGHUP not where it was started to survive that.
fn endings() -> SigSet {
    let hup_ignored = HUP_IGNORED.load(Ordering::Relaxed);
    set(ENDINGS
        .into_iter()
        .filter(|&signal| signal != Signal::SIGHUP || !hup_ignored))
}

impl Failure {
    /// The end by a signal.
    pub(crate) fn interrupted(signal: Signal) -> Self {
        let exit = match signal {
            Signal::SIGHUP => Exit::HungUp,
            Signal::SIGTERM => Exit::Terminated,
            _ => Exit::Interrupted,
        };
        Self::new(exit, "interrupted")
    }

    /// Whether it is the end by a signal.
    pub(crate) fn is_interruption(&self) -> bool {
        matches!(
            self.exit,
            Exit::HungUp | Exit::Interrupted | Exit::Terminated
        )
    }
}

/// All signals, held back from this thread until the process ends: for a few steps
/// that none may part. Where a stop would count, too, since what waits for a
/// semaphore does not go on after it.
#[cfg(any(test, feature = "device-mapper"))]
pub(crate) struct Held(SignalFd);

#[cfg(any(test, feature = "device-mapper"))]
impl Held {
    /// Call it when no other thread exists that could take a signal.
    pub(crate) fn all() -> Result<Self> {
        let failed = |e| Failure::system("cannot hold signals back", e);
        SigSet::all().thread_block().map_err(failed)?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        SignalFd::with_flags(&endings(), flags)
            .map(Self)
            .map_err(failed)
    }

    /// Whether an ending signal has come since it was last asked.
    pub(crate) fn ended(&self) -> bool {
        matches!(self.0.read_signal(), Ok(Some(_)))
    }
}

/// Signals this soon after the first one are the same wish: a terminal, a
/// supervisor and `timeout` may each pass on theirs.
const SAME_WISH: Duration = Duration::from_secs(1);

/// Starts a thread that calls `first` on the first ending signal. Another one,
/// a second or more later, ends the process at once, with its exit code. Needs
/// [`hold`] before.
pub(crate) fn on_ending(first: impl Fn(Signal) + Send + 'static) -> Result<()> {
    on_ending_or_force(first, || {})
}

/// As [`on_ending`]; before the process ends at once, it calls `force`.
pub(crate) fn on_ending_or_force(
    first: impl Fn(Signal) + Send + 'static,
    force: impl Fn() + Send + 'static,
) -> Result<()> {
    spawn(endings(), once(first, force))
}

/// As [`on_ending`], for a server: SIGHUP calls `look_again` instead, and SIGUSR1
/// and SIGUSR2 nothing.
pub(crate) fn on_ending_of_server(
    first: impl Fn(Signal) + Send + 'static,
    look_again: impl Fn() + Send + 'static,
) -> Result<()> {
    spawn(
        set(ENDINGS.into_iter().chain(NOTED)),
        noting(look_again, once(first, || {})),
    )
}

/// As [`on_ending_of_server`], calling `each` on every ending signal: for what
/// decides itself when to use force.
pub(crate) fn on_ending_repeated(
    each: impl Fn() + Send + 'static,
    look_again: impl Fn() + Send + 'static,
) -> Result<()> {
    spawn(
        set(ENDINGS.into_iter().chain(NOTED)),
        noting(look_again, repeated(each)),
    )
}

fn noting(
    look_again: impl Fn() + Send + 'static,
    mut end: impl FnMut(Signal) + Send + 'static,
) -> impl FnMut(Signal) + Send + 'static {
    move |signal| match signal {
        Signal::SIGHUP => {
            tracing::info!("SIGHUP: looking at the device again");
            look_again();
        }
        Signal::SIGUSR1 | Signal::SIGUSR2 => tracing::info!(%signal, "signal ignored"),
        signal => end(signal),
    }
}

fn once(
    first: impl Fn(Signal) + Send + 'static,
    force: impl Fn() + Send + 'static,
) -> impl FnMut(Signal) + Send + 'static {
    let mut seen: Option<Instant> = None;
    move |signal| match seen {
        None => {
            seen = Some(Instant::now());
            first(signal);
            waiting::tell("second");
        }
        Some(when) if when.elapsed() < SAME_WISH => {}
        Some(_) => {
            force();
            end_without_the_disk(signal, "second")
        }
    }
}

fn end_without_the_disk(signal: Signal, which: &str) -> ! {
    complain(&format!(
        "xtent: {which} signal: ending at once, without waiting for the disk"
    ));
    // Whatever the disk's library is at work on, its threads go on meanwhile.
    end_with(128 + signal as libc::c_int)
}

/// Calls `each`, which knows about force; but where even that waits for a server, another signal
/// after the second ends the process.
fn repeated(each: impl Fn() + Send + 'static) -> impl FnMut(Signal) + Send + 'static {
    let (mut wishes, mut last): (u32, Option<Instant>) = (0, None);
    move |signal| {
        if last.is_none_or(|last| last.elapsed() >= SAME_WISH) {
            wishes += 1;
            last = Some(Instant::now());
        }
        if wishes > 2 && waiting::is_waiting() {
            end_without_the_disk(signal, "third");
        }
        each();
        if wishes == 1 {
            waiting::tell("third");
        }
    }
}

fn spawn(signals: SigSet, mut each: impl FnMut(Signal) + Send + 'static) -> Result<()> {
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            while let Ok(signal) = signals.wait() {
                each(signal);
            }
        })
        .map(drop)
        .map_err(|e| Failure::system("cannot start the signal thread", e))
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::raise;

    use super::*;

    #[test]
    fn a_held_signal_waits_to_be_asked_for() {
        // Of this thread, which ends with the test.
        let held = Held::all().unwrap();
        raise(Signal::SIGUSR1).unwrap();
        assert!(!held.ended());
        for signal in ENDINGS {
            raise(signal).unwrap();
            assert!(held.ended());
            assert!(!held.ended());
        }
    }

    #[test]
    fn exit_codes_are_those_of_the_signals() {
        for signal in ENDINGS {
            let failure = Failure::interrupted(signal);
            assert_eq!(i32::from(failure.exit as u8), 128 + signal as i32);
        }
    }
}
