//! What a daemon that was killed left behind: found, and undone.

use std::path::{Path, PathBuf};

use xtent_store::chain;
use xtent_store::loopdev;

use super::file_system::{FileSystem, busy, mountinfo_failed};
use super::state::{Claim, State};
use super::{FILE_NAME, refuse};
use crate::fuse::{connection, fail};
use crate::{Error, ErrorKind, mountinfo};

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

/// Undoes what a daemon that is gone left behind. By what is really mounted
/// and attached, not by what it last wrote down.
pub(super) fn clean(state: &State, claim: Claim) -> Result<Vec<String>, Error> {
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
        // Also where it was mounted a second time: nothing can be read there.
        while let Some(entry) = mountinfo::all()
            .map_err(mountinfo_failed)?
            .into_iter()
            .rfind(|e| e.is_on_loop(number))
        {
            let file_system = FileSystem {
                dir: entry.point,
                number,
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
        warnings.insert(
            0,
            format!(
                "the daemon that served {} on {} had died: what was not synced then may be lost; \
                 check the file system",
                state.device.display(),
                state.dir.display()
            ),
        );
    }
    Ok(warnings)
}
