//! The command that `xtent serve --run` serves.
#![allow(unsafe_code)]

use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, set_parent_process_death_signal};
use xtent_export::Shutdown;

use crate::failure::{Failure, Result};
use crate::fds;

/// A running command.
pub(crate) struct Client {
    child: Child,
    /// Readable from its end on.
    ended: Option<OwnedFd>,
}

impl Client {
    /// Starts `command` in a shell, with `$uri`, `$exportname` and, where there is
    /// a Unix socket, `$unixsocket` in its environment. It is asked to end
    /// (SIGTERM) when this process does. Call it before the sandbox, which lets
    /// nobody start anything, and from the main thread.
    pub(crate) fn start(
        command: &str,
        uri: &str,
        export: &str,
        socket: Option<&Path>,
    ) -> Result<Self> {
        let failed = |e| Failure::system("cannot start the command of --run", e);
        fds::keep_from_children().map_err(failed)?;
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", command]);
        shell.env("uri", uri).env("exportname", export);
        if let Some(socket) = socket {
            shell.env("unixsocket", socket);
        }
        // SAFETY: between fork and exec only a system call is made.
        unsafe {
            shell.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::TERM))?));
        }
        let child = shell.spawn().map_err(failed)?;
        let ended = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())
            .map_err(|e| failed(e.into()))?;
        Ok(Self {
            child,
            ended: Some(ended),
        })
    }

    /// Stops the server when the command has ended.
    pub(crate) fn watch(&mut self, shutdown: Shutdown) -> Result<()> {
        let Some(ended) = self.ended.take() else {
            return Ok(());
        };
        std::thread::Builder::new()
            .name("client".to_owned())
            .spawn(move || {
                let mut fds = [PollFd::new(&ended, PollFlags::IN)];
                while poll(&mut fds, None) == Err(rustix::io::Errno::INTR) {}
                tracing::info!("the command has ended");
                shutdown.trigger();
            })
            .map(drop)
            .map_err(|e| Failure::system("cannot start a thread", e))
    }

    /// Its exit code, 128 and the signal's number if one ended it; none while it
    /// runs.
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        let status = self.child.try_wait().ok()??;
        status.code().or(status.signal().map(|signal| 128 + signal))
    }
}
