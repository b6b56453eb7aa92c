//! What the serving process gives up once the volume is open: privileges, the
//! file system, the network, most system calls. A client that took it over
//! would find the one volume it is connected to, and nothing else.
//!
//! Enter it before any thread is started: every step but the last is inherited
//! by new threads only.

mod files;
mod privileges;
mod syscalls;

use std::path::PathBuf;

use nix::unistd::User;
use rustix::fs::{Mode, OFlags};

use crate::failure::{Failure, Result};

/// What the process still needs inside.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    /// Folders with files that it removes at the end.
    pub(crate) remove_in: Vec<PathBuf>,
    /// Whether its end is a signal to a child, which the kernel sends in its name.
    pub(crate) signals_child: bool,
    /// The user it becomes; as it is if absent.
    pub(crate) user: Option<User>,
}

/// Enters the sandbox; says what is in force. What the kernel does not have is
/// logged and done without; a user that cannot be had is an error.
pub(crate) fn enter(needs: &Needs) -> Result<Vec<&'static str>> {
    let mut in_force = Vec::new();
    // What a person types on the terminal is nothing to the server any more.
    let null = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    null.and_then(rustix::stdio::dup2_stdin)
        .map_err(|e| Failure::system("cannot leave standard input", e))?;
    rustix::thread::set_no_new_privs(true)
        .map_err(|e| Failure::system("cannot give up new privileges", e))?;
    in_force.push("no-new-privileges");
    // Before the user changes, who may not look into these folders.
    let rules = files::rules(needs);
    privileges::drop_all(needs.user.as_ref())?;
    // A change of user takes it back.
    if let Err(error) = xtent_secret::harden_process() {
        tracing::warn!(%error, "this user's processes may look into this one");
    }
    in_force.push("no-capabilities");
    match rules.and_then(files::close) {
        Ok(how) => in_force.push(how),
        Err(error) => tracing::warn!(
            error = &*error as &dyn std::error::Error,
            "serving without landlock"
        ),
    }
    match syscalls::filter() {
        Ok(()) => in_force.push("seccomp"),
        Err(error) => tracing::warn!(
            error = &*error as &dyn std::error::Error,
            "serving without a system call filter: the kernel does not have it"
        ),
    }
    tracing::info!(in_force = in_force.join(", "), "sandboxed");
    Ok(in_force)
}

/// Why a part of the sandbox could not be had.
type Missing = Box<dyn std::error::Error + Send + Sync>;
