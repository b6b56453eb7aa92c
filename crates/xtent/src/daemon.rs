//! Into the background: the process that the user started waits in the
//! foreground until the one that does the work is ready, or passes on why it
//! is not.
//!
//! The work happens in the child from the start, so that secrets are read into
//! memory that stays with the process. Until it is ready the child belongs to
//! the foreground: it may ask on the terminal, and Ctrl-C and Ctrl-Z reach it.
#![allow(unsafe_code)]

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use nix::sys::signal::{SigSet, Signal, kill, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use rustix::event::{PollFd, PollFlags};
use rustix::pipe::PipeFlags;

use crate::failure::{Failure, Result};

/// The child's word when it is ready; anything else is its exit code, after it
/// has shown the error itself.
const READY: u8 = b'+';

/// Which of the two processes this is.
enum Side {
    /// The one that does the work.
    Worker(Ready),
    /// The one the user waits for: end with this exit code.
    Front(u8),
}

/// The worker's line to the front.
pub(crate) struct Ready {
    /// None of a worker that stays in the foreground: nobody waits.
    pipe: Option<OwnedFd>,
}

impl Ready {
    /// Leaves the terminal and lets the front end with success.
    pub(crate) fn ready(self) -> Result<()> {
        let Some(pipe) = self.pipe else {
            return Ok(());
        };
        let fail = |e| Failure::system("cannot go into the background", e);
        rustix::process::setsid().map_err(fail)?;
        let null = rustix::fs::open(
            "/dev/null",
            rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        )
        .map_err(fail)?;
        // A daemon must not keep a folder busy.
        rustix::process::chdir("/").map_err(fail)?;
        rustix::stdio::dup2_stdin(&null).map_err(fail)?;
        rustix::stdio::dup2_stdout(&null).map_err(fail)?;
        rustix::stdio::dup2_stderr(&null).map_err(fail)?;
        // The front may be gone (killed): the work goes on without it.
        let _ = std::fs::File::from(pipe).write_all(&[READY]);
        Ok(())
    }
}

/// Has `work` done by this process, or by another in the background: then this one ends when that is ready,
/// with its exit code. Must be called before any thread exists.
pub(crate) fn run(in_foreground: bool, work: impl FnOnce(Ready) -> Result<()>) -> Result<()> {
    if in_foreground {
        return work(Ready { pipe: None });
    }
    match split()? {
        Side::Worker(ready) => work(ready),
        Side::Front(code) => std::process::exit(i32::from(code)),
    }
}

/// Splits in two. Must be called before any thread exists.
fn split() -> Result<Side> {
    let fail = |e: std::io::Error| Failure::system("cannot start a background process", e);
    let (reader, writer) =
        rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(|e| fail(e.into()))?;
    // The front must outlive the worker's prompt: were it to die of Ctrl-C
    // first, the shell would take the terminal back while echo is still off.
    let held: SigSet = [
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGTSTP,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGCHLD,
    ]
    .into_iter()
    .collect();
    let before = held
        .thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK)
        .map_err(|e| fail(e.into()))?;
    // SAFETY: the process has one thread (the caller's duty, met by calling
    // this before anything that starts one), so no lock is held by another
    // thread that the child would wait for.
    match unsafe { fork() }.map_err(|e| fail(e.into()))? {
        ForkResult::Child => {
            drop(reader);
            before.thread_set_mask().map_err(|e| fail(e.into()))?;
            Ok(Side::Worker(Ready { pipe: Some(writer) }))
        }
        ForkResult::Parent { child } => {
            drop(writer);
            let code = wait(child, reader, &held, before).map_err(fail)?;
            Ok(Side::Front(code))
        }
    }
}

/// Waits for the worker's word, and shares its fate until then.
fn wait(child: Pid, pipe: OwnedFd, held: &SigSet, before: SigSet) -> std::io::Result<u8> {
    let signals = SignalFd::with_flags(held, SfdFlags::SFD_CLOEXEC)?;
    let mut pipe = std::fs::File::from(pipe);
    loop {
        let mut ready = [
            PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
        ];
        match rustix::event::poll(&mut ready, None) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other?,
        };
        if !ready[0].revents().is_empty() {
            let mut word = [0];
            if pipe.read(&mut word)? == 1 && word[0] == READY {
                return Ok(0);
            }
            // It ended without a word: its exit status says the rest.
            return Ok(fate(waitpid(child, None)?, before));
        }
        let Some(info) = signals.read_signal()? else {
            continue;
        };
        let signal = i32::try_from(info.ssi_signo)
            .ok()
            .and_then(|n| Signal::try_from(n).ok());
        match signal {
            Some(Signal::SIGCHLD) => {
                let flags = WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED;
                match waitpid(child, Some(flags))? {
                    WaitStatus::Stopped(..) => {
                        raise(Signal::SIGSTOP)?;
                        // Continued, by the shell or by hand; the worker with it.
                        kill(child, Signal::SIGCONT)?;
                    }
                    status @ (WaitStatus::Exited(..) | WaitStatus::Signaled(..)) => {
                        // It may have said that it was ready just before.
                        let mut word = [0];
                        if pipe.read(&mut word)? == 1 && word[0] == READY {
                            return Ok(0);
                        }
                        return Ok(fate(status, before));
                    }
                    _ => {}
                }
            }
            // From the terminal they have reached the worker too; from
            // elsewhere they have not.
            Some(
                signal @ (Signal::SIGINT | Signal::SIGTERM | Signal::SIGHUP | Signal::SIGQUIT),
            ) => {
                kill(child, signal)?;
            }
            _ => {}
        }
    }
}

/// The exit code for the worker's end; dies as it died of a signal.
fn fate(status: WaitStatus, before: SigSet) -> u8 {
    match status {
        WaitStatus::Exited(_, code) => u8::try_from(code).unwrap_or(1),
        WaitStatus::Signaled(_, signal, _) => {
            let _ = before.thread_set_mask();
            let _ = raise(signal);
            u8::try_from(128 + signal as i32).unwrap_or(1)
        }
        _ => 1,
    }
}
