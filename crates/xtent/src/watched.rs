//! A program whose output is a secret: started, fed, watched and ended.

use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, kill_process_group};
use xtent_secret::SecretBytes;
use xtent_token::Said;

use crate::failure::{Failure, Result};
use crate::fds;
use crate::secrets::FILE_LIMIT;
use crate::signals::is_ending;

/// What came of a program.
pub(crate) enum Ended {
    /// It ended so, after it had written this.
    So(ExitStatus, SecretBytes),
    /// It took longer than it may, and was killed.
    TimedOut,
}

/// How long a program may take.
pub(crate) struct Patience<'a> {
    /// Then it is ended.
    pub(crate) limit: Duration,
    /// Until `note` is called, once.
    pub(crate) silent: Duration,
    /// Tells that it is waited for.
    pub(crate) note: &'a dyn Fn(),
}

/// Runs a command with `said` on its standard input, one after the other, and calls `say` with
/// each line that it writes to standard error. Signals that ask this process to end kill it
/// first, and all that it has started. It gets no descriptors but the three.
pub(crate) fn run(
    command: &mut Command,
    said: &[&[u8]],
    patience: &Patience<'_>,
    say: &mut dyn FnMut(&str),
) -> Result<Ended> {
    let name = command.get_program().to_owned();
    let failed = |e: std::io::Error| Failure::system(format!("cannot run {}", name.display()), e);
    fds::keep_from_children().map_err(failed)?;
    let watch = Watch::new()?;
    let mut child = Group(
        command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?,
    );
    let mut talk = Talk::new(&mut child.0, said)?;
    let start = Instant::now();
    let mut is_noted = false;
    loop {
        let elapsed = start.elapsed();
        let Some(left) = patience.limit.checked_sub(elapsed) else {
            return Ok(Ended::TimedOut);
        };
        if !is_noted && elapsed >= patience.silent {
            (patience.note)();
            is_noted = true;
        }
        let next = match patience.silent.checked_sub(elapsed) {
            Some(silence) if !is_noted => silence.min(left),
            _ => left,
        };
        match watch.wait(&talk, next)? {
            Event::Talk => talk.go_on(say)?,
            Event::Child => {}
            // The drop of `child` ends it.
            Event::End(signal) => return Err(Failure::interrupted(signal)),
        }
        if let Some(status) = child.0.try_wait().map_err(failed)? {
            // What it wrote last, not what somebody else still holds open.
            talk.go_on(say)?;
            talk.said.end_line(say);
            return Ok(Ended::So(status, talk.written()?));
        }
    }
}

/// A child that leads a process group; all of it is killed when dropped.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        // Before the leader is reaped its number is nobody else's; afterwards the group
        // may live on without it, and if it does not there is nobody to kill.
        let _ = kill_process_group(Pid::from_child(&self.0), rustix::process::Signal::KILL);
        let _ = self.0.wait();
    }
}

/// The three pipes, none of which blocks.
struct Talk<'a> {
    stdin: Option<std::process::ChildStdin>,
    stdout: Option<std::process::ChildStdout>,
    stderr: Option<std::process::ChildStderr>,
    /// What is left to be said.
    unsent: Vec<&'a [u8]>,
    answer: SecretBytes,
    filled: usize,
    said: Said,
}

impl<'a> Talk<'a> {
    fn new(child: &mut Child, said: &[&'a [u8]]) -> Result<Self> {
        let talk = Self {
            stdin: child.stdin.take(),
            stdout: child.stdout.take(),
            stderr: child.stderr.take(),
            unsent: said.iter().rev().copied().collect(),
            answer: SecretBytes::zeroed(4096)?,
            filled: 0,
            said: Said::default(),
        };
        for fd in talk.fds().into_iter().flatten() {
            rustix::io::ioctl_fionbio(fd, true)
                .map_err(|e| Failure::system("cannot set up a pipe", e))?;
        }
        Ok(talk)
    }

    fn fds(&self) -> [Option<BorrowedFd<'_>>; 3] {
        [
            self.stdin.as_ref().map(AsFd::as_fd),
            self.stdout.as_ref().map(AsFd::as_fd),
            self.stderr.as_ref().map(AsFd::as_fd),
        ]
    }

    /// Writes and reads what can be without waiting.
    fn go_on(&mut self, say: &mut dyn FnMut(&str)) -> Result<()> {
        self.send();
        self.receive()?;
        self.listen(say);
        Ok(())
    }

    /// A program that does not want to hear all of it says how it went by its exit code.
    fn send(&mut self) {
        while let (Some(stdin), Some(next)) = (&mut self.stdin, self.unsent.last_mut()) {
            if next.is_empty() {
                self.unsent.pop();
                continue;
            }
            match stdin.write(next) {
                Ok(n) => *next = &next[n..],
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(_) => self.unsent.clear(),
            }
        }
        self.stdin = None;
    }

    fn receive(&mut self) -> Result<()> {
        while let Some(stdout) = &self.stdout {
            if self.filled == self.answer.len() {
                if self.filled > FILE_LIMIT {
                    return Err(Failure::parameters(
                        "the program writes without end: a passphrase has at most 8 MiB",
                    ));
                }
                let mut larger = SecretBytes::zeroed((self.filled * 2).min(FILE_LIMIT + 1))?;
                larger[..self.filled].copy_from_slice(&self.answer);
                self.answer = larger;
            }
            match rustix::io::read(stdout, &mut self.answer[self.filled..]) {
                Ok(0) => self.stdout = None,
                Ok(n) => self.filled += n,
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) => return Ok(()),
                Err(e) => return Err(Failure::system("cannot read from the program", e)),
            }
        }
        Ok(())
    }

    fn listen(&mut self, say: &mut dyn FnMut(&str)) {
        let mut bytes = [0; 1024];
        while let Some(stderr) = &mut self.stderr {
            let read = match stderr.read(&mut bytes) {
                Ok(0) => {
                    self.stderr = None;
                    return;
                }
                Ok(n) => n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.stderr = None;
                    return;
                }
            };
            self.said.hear(&bytes[..read], say);
        }
    }

    fn written(mut self) -> Result<SecretBytes> {
        if self.filled > FILE_LIMIT {
            return Err(Failure::parameters(
                "the program wrote more than a passphrase may have: 8 MiB",
            ));
        }
        self.answer.truncate(self.filled);
        Ok(self.answer)
    }
}

/// Signals, held back so that none parts this process from its child.
struct Watch {
    mask: SigSet,
    signals: SignalFd,
}

enum Event {
    /// A pipe is ready.
    Talk,
    /// A child ended, or a time did.
    Child,
    /// This signal asks for the end.
    End(Signal),
}

impl Watch {
    fn new() -> Result<Self> {
        let failed = |e| Failure::system("cannot hold signals back", e);
        let ignored = ignored_signals();
        let held: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]
            .into_iter()
            .filter(|&signal| is_ending(signal) && ignored >> (signal as i32 - 1) & 1 == 0)
            .chain([Signal::SIGCHLD])
            .collect();
        let mask = SigSet::thread_get_mask().map_err(failed)?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let signals = SignalFd::with_flags(&held, flags).map_err(failed)?;
        held.thread_block().map_err(failed)?;
        Ok(Self { mask, signals })
    }

    fn wait(&self, talk: &Talk<'_>, left: Duration) -> Result<Event> {
        let [stdin, stdout, stderr] = talk.fds();
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        fds.extend(stdin.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::OUT)));
        for fd in [stdout, stderr].into_iter().flatten() {
            fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
        }
        let timeout = Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(Failure::system("cannot wait for the program", e)),
        }
        if !fds[0].revents().is_empty() {
            while let Ok(Some(info)) = self.signals.read_signal() {
                let signal = i32::try_from(info.ssi_signo)
                    .ok()
                    .and_then(|number| Signal::try_from(number).ok());
                if let Some(signal) = signal.filter(|&signal| signal != Signal::SIGCHLD) {
                    return Ok(Event::End(signal));
                }
            }
            return Ok(Event::Child);
        }
        Ok(Event::Talk)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.mask.thread_set_mask();
    }
}

/// Signals that this process ignores (`nohup`, a shell's `&`), bit 0 for signal 1: an
/// ignored signal that is held back would still be seen.
fn ignored_signals() -> u64 {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("SigIgn:"))?;
            u64::from_str_radix(line.trim(), 16).ok()
        })
        .unwrap_or(0)
}
