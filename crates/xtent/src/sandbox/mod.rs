//! What the serving process gives up once the volume is open: privileges, the
//! file system, the network, most system calls. A client that took it over
//! would find the one volume it is connected to, and nothing else.
//!
//! Enter it before any thread is started: every step but the last is inherited
//! by new threads only. The threads that receive from servers, and those of cipher engines, exist already,
//! and take each step themselves.

mod files;
mod privileges;
mod syscalls;

use std::path::PathBuf;
use std::sync::Arc;

use landlock::RulesetCreated;
use nix::unistd::User;
use rustix::fs::{Access, Mode, OFlags};
use xtent_upstream::Upstream;

use crate::engine::Engine;
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
    /// Clients of servers, which connect again when a connection is lost.
    pub(crate) upstreams: Vec<Arc<Upstream>>,
    /// Engines, each of which a thread attends to.
    pub(crate) engines: Vec<Engine>,
    /// Whether clients of a Ceph cluster are among the threads, or may be later: they connect by
    /// themselves.
    pub(crate) has_image: bool,
    /// Whether it makes memory for others, and keeps them from cutting it.
    pub(crate) makes_memory: bool,
    /// Whether it connects to any server that it is asked to.
    pub(crate) connects: bool,
}

/// Enters the sandbox; says what is in force, and gives what `start` gives. What the kernel does not
/// have is logged and done without; a user that cannot be had is an error.
///
/// `start` is called when privileges are gone and before Landlock is in force: the threads that it
/// starts, and theirs, can connect by TCP where the filter of system calls lets them.
pub(crate) fn enter<T>(
    needs: &Needs,
    start: impl FnOnce() -> Result<T>,
) -> Result<(Vec<&'static str>, T)> {
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
    warn_of_lost_sockets(needs);
    // A change of user takes it back.
    if let Err(error) = xtent_secret::harden_process() {
        tracing::warn!(%error, "this user's processes may look into this one");
    }
    in_force.push("no-capabilities");
    confine_threads(needs, rules.as_ref().ok())?;
    let started = start()?;
    match rules.and_then(files::close) {
        Ok(how) => in_force.push(how),
        Err(error) => tracing::warn!(
            error = &*error as &dyn std::error::Error,
            "serving without landlock"
        ),
    }
    let is_here = |upstream: &Arc<Upstream>| upstream.uri().socket().is_some();
    let wider = syscalls::Wider {
        connects_here: needs.connects || needs.upstreams.iter().any(is_here),
        connects_far: needs.connects || !needs.upstreams.iter().all(is_here),
        has_image: needs.has_image,
        makes_memory: needs.makes_memory,
        has_device: needs.engines.iter().any(Engine::is_device),
    };
    match syscalls::filter(wider) {
        Ok(()) => in_force.push("seccomp"),
        Err(error) => tracing::warn!(
            error = &*error as &dyn std::error::Error,
            "serving without a system call filter: the kernel does not have it"
        ),
    }
    tracing::info!(in_force = in_force.join(", "), "sandboxed");
    Ok((in_force, started))
}

/// Gives up what the threads of a Ceph client do not need, before they begin: they are the
/// library's, and cannot be asked to do it themselves. They keep the rights to read any file, since
/// the keyring may be another user's, and to become another user; the filter of system calls, which
/// all threads get, has no call to use them with.
#[cfg(feature = "rbd")]
pub(crate) fn confine_client() -> Result<()> {
    rustix::thread::set_no_new_privs(true)
        .map_err(|e| Failure::system("cannot give up new privileges", e))?;
    privileges::keep_what_comes_before()
}

/// Has the threads of clients of servers, and those of engines, give up what this one does.
fn confine_threads(needs: &Needs, rules: Option<&RulesetCreated>) -> Result<()> {
    let rules = rules.map(RulesetCreated::try_clone).transpose();
    let rules = Arc::new(rules.map_err(|e| Failure::system("cannot confine a thread", e))?);
    let confine = move || {
        rustix::thread::set_no_new_privs(true)
            .map_err(|e| Failure::system("cannot give up new privileges", e))?;
        privileges::drop_capabilities()?;
        // This thread's own attempt says what is in force.
        if let Some(Ok(rules)) = rules.as_ref().as_ref().map(RulesetCreated::try_clone) {
            let _ = files::close(rules);
        }
        Ok(())
    };
    let upstreams = needs.upstreams.iter();
    let mut confined: Vec<Result<()>> = upstreams
        .flat_map(|upstream| upstream.in_each_thread(confine.clone()))
        .collect();
    for engine in &needs.engines {
        // A thread that is stuck would be outside when it goes on.
        confined.extend(engine.in_each_thread(confine.clone())?);
    }
    confined.into_iter().collect()
}

/// Says so if a lost connection could not be made again as the user that this process is now.
fn warn_of_lost_sockets(needs: &Needs) {
    let sockets = needs.upstreams.iter().filter_map(|u| u.uri().socket());
    for socket in sockets {
        if let Err(error) = rustix::fs::access(socket, Access::WRITE_OK) {
            tracing::warn!(
                %error,
                "{} is closed to this user: a lost connection to it cannot be made again",
                socket.display()
            );
        }
    }
}

/// What [`enter`] does of all threads, before any of them is [confined](confine).
#[cfg(feature = "device-mapper")]
pub(crate) fn before_threads() {
    privileges::leave_groups();
}

/// Confines this thread and those that it starts, as far as a thread can be alone: [`enter`], on
/// another, completes it with the filter of system calls, and says what is not in force.
#[cfg(feature = "device-mapper")]
pub(crate) fn confine(needs: &Needs) -> Result<()> {
    rustix::thread::set_no_new_privs(true)
        .map_err(|e| Failure::system("cannot give up new privileges", e))?;
    let rules = files::rules(needs);
    privileges::drop_capabilities()?;
    // The thread that enters says it where it cannot be had.
    let _ = rules.and_then(files::close);
    Ok(())
}

/// Why a part of the sandbox could not be had.
type Missing = Box<dyn std::error::Error + Send + Sync>;
