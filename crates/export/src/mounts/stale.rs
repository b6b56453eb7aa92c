//! What a daemon that was killed left behind: found, and undone.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use xtent_store::chain;
use xtent_store::loopdev;

use super::file_system::{FileSystem, busy, mountinfo_failed};
use super::record::{State, Ublk};
use super::state::Claim;
use super::{FILE_NAME, device, refuse, unused};
use crate::fuse::{connection, fail};
use crate::mountinfo::Device;
use crate::ublk::{self, Control, Info};
use crate::{Error, ErrorKind, mountinfo};

/// How long a killed daemon may take to end: it waits for its storage in the kernel, perhaps. Linux 6.1
/// takes five seconds to see it.
const PATIENCE: Duration = Duration::from_secs(30);
const AGAIN: Duration = Duration::from_millis(50);

/// Numbers of the loop devices attached to the file in the FUSE directory `fuse`.
pub(super) fn attached(fuse: &Path) -> Result<Vec<u32>, Error> {
    loopdev::attached_to(&fuse.join(FILE_NAME)).map_err(|e| {
        fail(
            ErrorKind::Io,
            "cannot look for loop devices in /sys/block",
            e,
        )
    })
}

/// The device of a daemon that is gone, as far as the driver has it; numbers are given again.
fn find(control: &mut Control, ublk: &Ublk) -> Result<Option<Info>, Error> {
    let info = control.info(ublk.number)?;
    Ok(info.filter(|info| info.identity == ublk.identity))
}

/// The same, once the driver has seen that the daemon is gone.
fn without_server(control: &mut Control, ublk: &Ublk) -> Result<Option<Info>, Error> {
    let began = Instant::now();
    loop {
        match find(control, ublk)? {
            Some(info) if info.state != ublk::State::Live => return Ok(Some(info)),
            None => return Ok(None),
            Some(_) if began.elapsed() < PATIENCE => std::thread::sleep(AGAIN),
            Some(info) => {
                return Err(refuse(
                    ErrorKind::Busy,
                    format!(
                        "the process that served /dev/ublkb{} was killed and does not end: it waits for \
                         its storage, perhaps; try again when it has ended",
                        info.number
                    ),
                ));
            }
        }
    }
}

/// The device of a daemon that is gone, if somebody uses it who waits for the next one.
pub(super) fn waiting(control: &mut Control, ublk: &Ublk) -> Result<Option<Info>, Error> {
    let found = without_server(control, ublk)?;
    Ok(found.filter(|info| info.state == ublk::State::Waits && claim_on(info).is_none()))
}

/// None if a file system has the device, else a claim on it.
fn claim_on(info: &Info) -> Option<File> {
    unused::claim(&path(info.number)).ok()
}

fn path(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/ublkb{number}"))
}

/// Undoes what a daemon that is gone left behind. By what is really mounted
/// and attached, not by what it last wrote down. A file system that waits for the next daemon is given up
/// with `force` only: else [`ErrorKind::Busy`].
pub(super) fn clean(state: &State, claim: Claim, force: bool) -> Result<Vec<String>, Error> {
    match &state.ublk {
        Some(ublk) => clean_ublk(state, ublk, claim, force),
        None => clean_fuse(state, claim),
    }
}

fn clean_ublk(state: &State, ublk: &Ublk, claim: Claim, force: bool) -> Result<Vec<String>, Error> {
    let mut control = Control::open()?;
    let mut warnings = Vec::new();
    // All that used one that is gone is gone, too.
    let Some(info) = without_server(&mut control, ublk)? else {
        claim.remove();
        return Ok(warnings);
    };
    let claimed = claim_on(&info);
    let mut had_died = false;
    if info.state == ublk::State::Waits {
        had_died = claimed.is_none();
        if had_died && !force {
            return Err(waits(state));
        }
        // Who waits sees errors from now on, as what unmounts it would.
        control.stop(info.number)?;
    }
    drop(claimed);
    if let Some(device) = &ublk.device {
        had_died |= unmount_all(device, &mut warnings)?;
    }
    if !device::delete(control, info.number)? {
        warnings.push(format!(
            "{} is still open: it goes when its users end",
            path(info.number).display()
        ));
    }
    claim.remove();
    if had_died {
        warnings.insert(0, lost(state));
    }
    Ok(warnings)
}

fn waits(state: &State) -> Error {
    let (device, dir) = (state.device.display(), state.dir.display());
    refuse(
        ErrorKind::Busy,
        format!(
            "{device} on {dir} waits: its daemon was killed. `xtent mount {device} {dir}`, with the options \
             of before, goes on with it, and nothing is lost; `xtent umount --force {dir}` gives it up, with \
             what was not yet written"
        ),
    )
}

/// Unmounts what is on a device that nobody serves, wherever it is; says whether there was anything.
fn unmount_all(device: &Device, warnings: &mut Vec<String>) -> Result<bool, Error> {
    let mut was_mounted = false;
    // Also where it was mounted a second time: nothing can be read there.
    while let Some(entry) = mountinfo::all()
        .map_err(mountinfo_failed)?
        .into_iter()
        .rfind(|e| e.is_on(device))
    {
        was_mounted = true;
        let file_system = FileSystem {
            dir: entry.point,
            device: device.clone(),
        };
        if !file_system.is_mounted().map_err(mountinfo_failed)? {
            return Err(refuse(
                ErrorKind::Busy,
                format!(
                    "something is mounted over the file system on {}; unmount that first",
                    file_system.dir.display()
                ),
            ));
        }
        if let Err(e) = file_system.unmount(false) {
            if e.kind != ErrorKind::Busy {
                return Err(e);
            }
            warnings.push(format!(
                "{}, but its daemon is gone: detached it; end them, they cannot read or write",
                chain(&e)
            ));
            file_system.unmount(true)?;
        }
    }
    Ok(was_mounted)
}

/// What a daemon that was killed leaves to be said.
pub(super) fn lost(state: &State) -> String {
    format!(
        "the daemon that served {} on {} had died: what was not synced then may be lost; \
         check the file system",
        state.device.display(),
        state.dir.display()
    )
}

fn clean_fuse(state: &State, claim: Claim) -> Result<Vec<String>, Error> {
    let fuse = claim.fuse_dir();
    let mut warnings = Vec::new();
    let mut killed = false;
    let loops = if state.file_only {
        Vec::new()
    } else {
        attached(&fuse)?
    };
    for number in loops {
        killed = true;
        unmount_all(&Device::of_loop(number), &mut warnings)?;
        loopdev::detach(number, &fuse.join(FILE_NAME))
            .map_err(|e| fail(ErrorKind::Io, format!("cannot detach /dev/loop{number}"), e))?;
    }
    let fuse: PathBuf = if state.file_only {
        state.dir.clone()
    } else {
        fuse
    };
    while connection::is_mounted(&fuse, &state.device).map_err(mountinfo_failed)? {
        killed = true;
        connection::unmount(&fuse, true).map_err(|e| busy(e, &fuse))?;
    }
    claim.remove();
    if killed {
        warnings.insert(0, lost(state));
    }
    Ok(warnings)
}
