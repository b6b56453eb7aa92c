//! The end of a device: `xtent close` of what `xtent open --ublk` has made.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::libc::O_EXCL;
use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};
use xtent_export::ublk::{Control, Info, State};
use xtent_mapping::Name;

use super::{
    SILENCE, delete, device, find, has_ended, is_served, number, path, process, unlink, waited_for,
};
use crate::failure::{Exit, Failure, Result};
use crate::output::Output;
use crate::registry::{self, Kind};
use crate::turn::{self, Turn};
use crate::{holder, output};

/// How long one who merely looks may have it open: udev does, after a device was written to.
const LOOKS: Duration = Duration::from_secs(5);
/// How long a killed server may take to end, which waits for its storage in the kernel, perhaps. Linux 6.1
/// takes five seconds to see it.
const PATIENCE: Duration = Duration::from_secs(30);
const AGAIN: Duration = Duration::from_millis(100);

/// Closes the device of a name. Refuses one that is in use; with `force` it is taken away from its users, and
/// false if there are some still, or the server does not end: then its number stays taken.
pub(crate) fn close(name: &Name, force: bool, output: &Output) -> Result<bool> {
    let turn = match force {
        false => Some(Turn::wait_for(name, turn::Kind::Served, output)?),
        // One who waits for the server may have it, whom this is to let go.
        true => Turn::at_once(name, turn::Kind::Served)?,
    };
    if turn.is_none() {
        output.note(format!(
            "Another command that opens or closes {name} is under way: it is not waited for."
        ));
    }
    let Some(number) = number(name) else {
        // Somebody else has closed it meanwhile.
        return Ok(true);
    };
    let mut control = Control::open()?;
    let Some(info) = find(&mut control, name)? else {
        output.note(format!("{} was gone already.", device(number).display()));
        unlink(name, number);
        return Ok(true);
    };
    // The driver keeps the number of a server that is gone, which may be another process's by now.
    let server = match info.state {
        State::Live => info.pid.and_then(process),
        State::Waits | State::Dead => None,
    };
    match info.state {
        State::Dead => {}
        _ if force => {
            if let Some(left) = stop_by_force(&mut control, name, &info, server.as_ref(), output)? {
                output.note(format!(
                    "{} gives its users errors from now on. {left}, `xtent close {name}` once more takes \
                     it away.",
                    path(name).display()
                ));
                return Ok(false);
            }
        }
        _ => control = stop_in_order(control, name, &info, output)?,
    }
    if let Some(server) = &server
        && !has_ended(server, SILENCE)
    {
        output.note(format!(
            "Waiting for process {}, which writes everything to the disk.",
            info.pid.unwrap_or_default()
        ));
        while !has_ended(server, Duration::from_secs(3600)) {}
    }
    delete(control, info.number, output)?;
    unlink(name, number);
    Ok(true)
}

/// Stops a device that nobody uses. Who opens it between the look and the stop sees errors.
fn stop_in_order(
    mut control: Control,
    name: &Name,
    info: &Info,
    output: &Output,
) -> Result<Control> {
    // Until it is stopped.
    let claim = claim(info, name)?;
    let began = Instant::now();
    loop {
        let users = users(info.number);
        match users.is_empty() {
            true => break,
            false if began.elapsed() < LOOKS => std::thread::sleep(AGAIN),
            false => return Err(in_use(name, info.number, &users)),
        }
    }
    let (number, is_served) = (info.number, is_served(info));
    let what = match is_served {
        true => format!(
            "process {}, which writes everything to the disk; `xtent close --force {name}` does not",
            info.pid.unwrap_or_default()
        ),
        false => format!("the kernel to stop {}", device(number).display()),
    };
    // The server may wait for its storage.
    let stopped = waited_for(output, what, move || -> std::io::Result<_> {
        if is_served {
            // Whatever was written without a file system: the driver would let it go.
            claim.sync_all()?;
        }
        Ok(control.stop(number).map(|()| control))
    })?;
    let stopped = stopped.map_err(|error| {
        Failure::system(format!("{} cannot be flushed", path(name).display()), error)
            .advise("`xtent close --force` closes it all the same; what was not written is lost.")
    })?;
    Ok(stopped?)
}

/// Stops a device whatever uses it, and its server first: the driver would wait for an answer to all that
/// the server has been asked for. When what is left can be taken away, if not now.
fn stop_by_force(
    control: &mut Control,
    name: &Name,
    info: &Info,
    server: Option<&OwnedFd>,
    output: &Output,
) -> Result<Option<String>> {
    // Until it is stopped, so that it is not flushed to a server that is gone.
    let claim = claim(info, name);
    let has_users = claim.is_err() || !users(info.number).is_empty();
    let pid = info.pid.unwrap_or_default();
    if let Some(server) = server {
        // The process cannot have become another one if it has not ended afterwards.
        if is_ours(name, pid) && !has_ended(server, Duration::ZERO) {
            let killed = pidfd_send_signal(server, Signal::KILL);
            killed.map_err(|e| Failure::system(format!("cannot kill process {pid}"), e))?;
        }
    }
    let began = Instant::now();
    let mut is_told = false;
    while find(control, name)?.is_some_and(|it| it.state == State::Live) {
        if began.elapsed() > SILENCE && !is_told {
            output.note("Waiting for the kernel to see that the server has been killed.");
            is_told = true;
        }
        if began.elapsed() > PATIENCE {
            return Err(Failure::new(
                Exit::Busy,
                format!(
                    "the server of {}, process {pid}, does not end",
                    path(name).display()
                ),
            )
            .advise(
                "It waits for its storage in the kernel, or is not a process of this machine. Once it has \
                 ended, the same command closes the device.",
            ));
        }
        std::thread::sleep(AGAIN);
    }
    control.stop(info.number)?;
    let left = PATIENCE.saturating_sub(began.elapsed());
    Ok(match (has_users, server) {
        (true, _) => Some("When they are gone, for example by umount".to_owned()),
        (false, Some(server)) if !has_ended(server, left) => Some(format!(
            "When process {pid} has ended, which waits for its storage"
        )),
        (false, _) => None,
    })
}

/// Whether a process is the server of a device of this program's, by what it has said of itself, or by its
/// program.
fn is_ours(name: &Name, pid: u32) -> bool {
    let name = name.to_string();
    let is_registered = registry::list().iter().any(|listed| {
        let entry = &listed.entry;
        let is_it = entry.pid == pid && entry.name.as_ref() == Some(&name);
        listed.is_alive && entry.kind == Kind::Ublk && is_it
    });
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let file = program
        .file_name()
        .map(|file| output::text_of(Path::new(file)));
    // As it is called when it has been replaced.
    is_registered || file.is_some_and(|file| matches!(&*file, "xtent" | "xtent (deleted)"))
}

/// The device, for this process alone: no file system, mapping or swap space has it, nor gets it. Others may
/// have it open all the same.
fn claim(info: &Info, name: &Name) -> Result<File> {
    let device = device(info.number);
    let opened = File::options()
        .read(true)
        .custom_flags(O_EXCL)
        .open(&device);
    opened.map_err(
        |error| match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::BUSY) => Failure::new(
                Exit::Busy,
                format!("{} ({}) is in use", path(name).display(), device.display()),
            )
            .advise(format!(
                "Unmount what is on it: `lsblk {}` shows it. --force takes it away all the same: \
             whoever uses it sees errors.",
                device.display()
            )),
            _ => Failure::system(format!("cannot open {}", device.display()), error),
        },
    )
}

fn in_use(name: &Name, number: u32, users: &[String]) -> Failure {
    Failure::new(
        Exit::Busy,
        format!(
            "{} ({}) is in use by {}",
            path(name).display(),
            device(number).display(),
            users.join(", ")
        ),
    )
    .advise("End that first. --force takes it away all the same: whoever uses it sees errors.")
}

/// Who has a device open without a claim, which need not be respected: other processes, and loop devices.
pub(crate) fn users(number: u32) -> Vec<String> {
    let device = device(number);
    let mut users = holder::named(&holder::processes_with(&device));
    let Ok(wanted) = device.metadata() else {
        return users;
    };
    let is_it = |path: &str| {
        let found = Path::new(path).metadata();
        found.is_ok_and(|it| it.file_type().is_block_device() && it.rdev() == wanted.rdev())
    };
    let blocks = std::fs::read_dir("/sys/block");
    for block in blocks.into_iter().flatten().flatten() {
        let file = std::fs::read_to_string(block.path().join("loop/backing_file"));
        if file.is_ok_and(|file| is_it(file.trim_end())) {
            users.push(format!("/dev/{}", block.file_name().display()));
        }
    }
    users
}
