//! `xtent umount`: undoes `xtent mount`.

use std::path::PathBuf;

use xtent_export::fuse::{self, UmountOptions};

use crate::cli::Global;
use crate::failure::{Failure, Result};
use crate::output::text_of;

const MANUAL: &str = "\
EXAMPLES:
  Unmount, flush and close the volume; either does:
    xtent umount /mnt
    xtent umount disk.img
  Get rid of a mount that programs still use:
    xtent umount --lazy /mnt

NOTES:
  A daemon that was killed leaves parts behind (a loop device, a dead mount);
  this cleans them up too.";

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
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    let output = global.output();
    let place = std::path::absolute(&args.place)
        .map_err(|e| Failure::system(format!("cannot find {}", args.place.display()), e))?;
    // Else this process, started in a folder of the mount, would itself be in the way.
    rustix::process::chdir("/").map_err(|e| Failure::system("cannot leave this folder", e))?;
    let unmounted = fuse::umount(&place, UmountOptions { lazy: args.lazy })?;
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
