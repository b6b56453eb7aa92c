//! NBD servers of others, with a container behind them.

use std::path::{Path, PathBuf};

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use crate::luks::Container;
use crate::{Cmd, Scratch};

/// A server in the background; killed when dropped.
pub struct Far {
    command: Cmd,
    pid_file: PathBuf,
    socket: PathBuf,
    // Last, so that it outlives the process.
    _scratch: Scratch,
}

impl Far {
    /// `qemu-nbd`, with these options besides; it takes one client at a time unless they say
    /// otherwise.
    pub fn qemu(image: &Path, options: &[&str]) -> Self {
        let scratch = Scratch::new();
        let (pid_file, socket) = (scratch.join("pid"), scratch.join("far.sock"));
        let command = Cmd::peer("qemu-nbd")
            .args(["--fork", "--persistent", "--pid-file"])
            .arg(&pid_file)
            .arg("--socket")
            .arg(&socket)
            .args(options)
            .arg(image);
        Self::start(command, pid_file, socket, scratch)
    }

    /// `nbdkit` with these options, its plugin among them.
    pub fn nbdkit(options: &[&str]) -> Self {
        let scratch = Scratch::new();
        let (pid_file, socket) = (scratch.join("pid"), scratch.join("far.sock"));
        // In a session of its own, it outlives the command that started it.
        let command = Cmd::peer("setsid")
            .args(["--wait", "nbdkit"])
            .arg("--pidfile")
            .arg(&pid_file)
            .arg("--unix")
            .arg(&socket)
            .args(options);
        Self::start(command, pid_file, socket, scratch)
    }

    fn start(command: Cmd, pid_file: PathBuf, socket: PathBuf, scratch: Scratch) -> Self {
        command.clone().ok();
        Self {
            command,
            pid_file,
            socket,
            _scratch: scratch,
        }
    }

    /// The default export.
    pub fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }

    /// The default export, by TLS with the certificates in this folder.
    pub fn secure_uri(&self, certificates: &Path) -> String {
        format!(
            "nbds+unix:///?socket={}&tls-certificates={}",
            self.socket.display(),
            certificates.display()
        )
    }

    /// The socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The default export as a container that `key` opens.
    pub fn container(&self, key: &Path) -> Container {
        Container {
            image: self.uri().into(),
            key: key.to_owned(),
        }
    }

    /// Ends it without warning; whatever it had not made durable is in doubt.
    pub fn kill(&self) {
        self.end(Signal::KILL);
    }

    /// Ends it in good order.
    pub fn stop(&self) {
        self.end(Signal::TERM);
    }

    /// Starts it anew at the same place.
    pub fn start_again(&self) {
        let _ = std::fs::remove_file(&self.socket);
        self.command.clone().ok();
    }

    /// Lets it be silent: it is there, and does nothing.
    pub fn pause(&self) {
        kill_process(self.pid().unwrap(), Signal::STOP).unwrap();
    }

    fn pid(&self) -> Option<Pid> {
        let pid = std::fs::read_to_string(&self.pid_file).ok()?;
        Pid::from_raw(pid.trim().parse().ok()?)
    }

    /// Sends a signal and waits for the end.
    fn end(&self, signal: Signal) {
        let Some(pid) = self.pid() else {
            return;
        };
        let _ = std::fs::remove_file(&self.pid_file);
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else {
            return;
        };
        let _ = kill_process(pid, signal);
        let mut ended = [rustix::event::PollFd::new(
            &process,
            rustix::event::PollFlags::IN,
        )];
        let _ = rustix::event::poll(&mut ended, None);
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        self.end(Signal::KILL);
    }
}
