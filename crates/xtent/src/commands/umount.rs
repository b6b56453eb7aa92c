//! `xtent umount`: undoes `xtent mount`.

use std::path::PathBuf;

use xtent_export::mounts::{self, UmountOptions};
use xtent_store::Place;

use crate::cli::Global;
use crate::disk;
use crate::failure::{Failure, Result};
use crate::output::text_of;
use crate::same::share_storage;

const MANUAL: &str = "\
EXAMPLES:
  Unmount, flush and close the volume; either does:
    xtent umount /mnt
    xtent umount disk.img
    xtent umount rbd:pool/disk
  Get rid of a mount that programs still use:
    xtent umount --lazy /mnt
  Give up a mount by ublk whose daemon was killed, with what was not yet written:
    xtent umount --force /mnt

NOTES:
  A daemon that was killed leaves parts behind (a loop device, a dead mount);
  this cleans them up too. A mount by ublk waits for the next daemon instead (`xtent mount`
  of the same device on the same folder), and is refused without --force. A plain umount
  of it waits, too, until there is one.";

/// Unmount what `xtent mount` has mounted, and close the volume
///
/// Ends when everything is on the disk, or says that it is not.
#[derive(clap::Args, Debug)]
#[command(after_long_help = MANUAL)]
pub(crate) struct Args {
    /// The folder given to `xtent mount`, or the device or image
    #[arg(value_name = "DIR|DEVICE")]
    place: PathBuf,
    /// Detach a file system in use now, and close the volume when its last user is gone
    #[arg(short = 'l', long)]
    lazy: bool,
    /// Give up a mount that waits for its next daemon: its users see errors
    ///
    /// For a mount by ublk whose daemon was killed and is not to come again. What was written and not synced
    /// is lost.
    #[arg(short = 'f', long)]
    force: bool,
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    let output = global.output();
    let place = disk::place(&args.place)?;
    // Else this process, started in a folder of the mount, would itself be in the way.
    rustix::process::chdir("/").map_err(|e| Failure::system("cannot leave this folder", e))?;
    let options = UmountOptions {
        lazy: args.lazy,
        force: args.force,
    };
    let name = place.name();
    let unmounted = match &place {
        Place::Path(path) => mounts::umount(path, options),
        // It may be mounted by another of its names.
        _ => mounts::umount_device(name, |device| share_storage(device, name), options),
    }?;
    for warning in &unmounted.warnings {
        output.warn(warning);
    }
    if output.json {
        output.object(&serde_json::json!({
            "dir": text_of(&unmounted.dir),
            "device": unmounted.device.as_deref().map(text_of),
            "closed": unmounted.is_closed,
        }))?;
    }
    Ok(())
}
