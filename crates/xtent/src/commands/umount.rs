//! `xtent umount`: undoes `xtent mount`.

use std::path::PathBuf;

use xtent_export::fuse::{self, UmountOptions};

use crate::cli::Global;
use crate::failure::Result;

const MANUAL: &str = "\
EXAMPLES:
  Unmount, flush and close the volume:
    xtent umount /mnt
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
    /// The folder given to `xtent mount`
    dir: PathBuf,
    /// Detach a file system in use now, and close the volume when its last user is gone
    #[arg(short = 'l', long)]
    lazy: bool,
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    let output = global.output();
    for warning in fuse::umount(&args.dir, UmountOptions { lazy: args.lazy })? {
        output.warn(warning);
    }
    Ok(())
}
