//! Asking on the terminal, without echo for secrets. However the prompt ends
//! (an answer, Ctrl-C, a signal from elsewhere, Ctrl-Z), the terminal gets its
//! settings back.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use xtent_secret::SecretBytes;

use super::LINE_LIMIT;
use super::read::read_some;
use crate::failure::{Failure, Result};
use crate::output::in_one_line;
use crate::signals;

/// Signals that would end or stop the process in the middle of a prompt.
const INTERRUPTIONS: [Signal; 8] = [
    Signal::SIGALRM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGTSTP,
];

/// Asks for a passphrase; what is typed is not shown. Fails if the line has no
/// end after `typing`.
pub(super) fn ask_secret(prompt: &str, typing: Option<Duration>) -> Result<SecretBytes> {
    ask(prompt, false, typing)
}

/// Asks a question; what is typed is shown.
pub(crate) fn ask_line(prompt: &str) -> Result<String> {
    let answer = ask(prompt, true, None)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Whether there is a terminal to ask on, whatever standard input is.
pub(super) fn check() -> Result<()> {
    open().map(drop).map_err(|_| {
        Failure::parameters(
            "standard input is the data, and there is no terminal to ask for the passphrase",
        )
        .advise("Give --key-file FILE, or --key-fd N with a descriptor above 2.")
    })
}

fn open() -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).open("/dev/tty")
}

fn ask(prompt: &str, echo: bool, typing: Option<Duration>) -> Result<SecretBytes> {
    let terminal = open().map_err(|e| Failure::system("cannot open the terminal to ask", e))?;
    loop {
        // The settings first: whoever sees the prompt can answer it.
        let mut held = Held::new(terminal.as_fd(), echo)?;
        (&terminal)
            .write_all(in_one_line(prompt).as_bytes())
            .map_err(|e| Failure::system("cannot write to the terminal", e))?;
        let answer = held.read_line(terminal.as_fd(), typing);
        if !echo || matches!(answer, Ok(Answer::Signal(_))) {
            // The person's Enter was not shown, or there was none.
            let _ = (&terminal).write_all(b"\n");
        }
        match answer? {
            Answer::Line(line) => return Ok(line),
            Answer::Signal(signal) if signals::is_ending(signal) => {
                held.keeps_mask = true;
                return Err(Failure::interrupted(signal));
            }
            // Acts when the mask is back; if the process still lives then, it
            // was stopped and goes on, or ignores the signal: ask again.
            Answer::Signal(signal) => {
                raise(signal).map_err(|e| Failure::system("cannot pass a signal on", e))?
            }
        }
    }
}

/// How a prompt ended.
enum Answer {
    /// By a line, without its end.
    Line(SecretBytes),
    /// By this signal, which has been taken.
    Signal(Signal),
}

/// The terminal in the state for a prompt, signals held back; both as before
/// when dropped.
struct Held<'a> {
    terminal: BorrowedFd<'a>,
    settings: Termios,
    mask: SigSet,
    signals: SignalFd,
    /// Signals stay held back: the process is ending, and says so once.
    keeps_mask: bool,
}

impl<'a> Held<'a> {
    fn new(terminal: BorrowedFd<'a>, echo: bool) -> Result<Self> {
        let no_terminal = |e| Failure::system("cannot set up the terminal to ask", e);
        let settings = tcgetattr(terminal).map_err(no_terminal)?;
        let mask =
            SigSet::thread_get_mask().map_err(|e| Failure::system("cannot hold signals", e))?;
        // One that is held back anyway would not act when it is passed on, but come again.
        let caught: SigSet = INTERRUPTIONS
            .into_iter()
            .filter(|&signal| signals::is_ending(signal) || !mask.contains(signal))
            .collect();
        let signals = SignalFd::with_flags(&caught, SfdFlags::SFD_CLOEXEC)
            .map_err(|e| Failure::system("cannot watch signals", e))?;
        caught
            .thread_block()
            .map_err(|e| Failure::system("cannot hold signals", e))?;
        let mut quiet = settings.clone();
        quiet.local_modes |= LocalModes::ICANON | LocalModes::ISIG;
        if !echo {
            quiet.local_modes -= LocalModes::ECHO | LocalModes::ECHONL;
        }
        let held = Self {
            terminal,
            settings,
            mask,
            signals,
            keeps_mask: false,
        };
        // Flush: what was typed before the question is no answer to it.
        tcsetattr(terminal, OptionalActions::Flush, &quiet).map_err(no_terminal)?;
        Ok(held)
    }

    fn read_line(&self, fd: BorrowedFd<'_>, typing: Option<Duration>) -> Result<Answer> {
        let started = Instant::now();
        let mut line = SecretBytes::zeroed(LINE_LIMIT + 1)?;
        let mut filled = 0;
        loop {
            let mut ready = [
                PollFd::new(&self.signals, PollFlags::IN),
                PollFd::new(&fd, PollFlags::IN),
            ];
            let left = typing
                .map(|typing| Timespec::try_from(typing.saturating_sub(started.elapsed())))
                .transpose()
                .map_err(|_| Failure::parameters("--timeout is too long"))?;
            match rustix::event::poll(&mut ready, left.as_ref()) {
                Ok(0) => {
                    return Err(Failure::parameters(format!(
                        "no passphrase was typed within {} seconds",
                        typing.unwrap_or_default().as_secs()
                    )));
                }
                Err(rustix::io::Errno::INTR) => continue,
                Err(e) => return Err(Failure::system("cannot wait for the terminal", e)),
                Ok(_) => {}
            }
            if !ready[0].revents().is_empty()
                && let Ok(Some(info)) = self.signals.read_signal()
                && let Ok(number) = i32::try_from(info.ssi_signo)
                && let Ok(signal) = Signal::try_from(number)
            {
                return Ok(Answer::Signal(signal));
            }
            if filled > LINE_LIMIT {
                return Err(Failure::parameters(format!(
                    "the passphrase is longer than {LINE_LIMIT} bytes; use a key file"
                )));
            }
            match read_some(fd, "the terminal", &mut line[filled..=filled])? {
                0 if filled == 0 => {
                    return Err(Failure::parameters("no answer: the terminal was closed"));
                }
                0 => break,
                _ if line[filled] == b'\n' => break,
                _ => filled += 1,
            }
        }
        line.truncate(filled);
        Ok(Answer::Line(line))
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let _ = tcsetattr(self.terminal, OptionalActions::Flush, &self.settings);
        if !self.keeps_mask {
            let _ = self.mask.thread_set_mask();
        }
    }
}
