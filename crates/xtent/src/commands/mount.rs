//! `xtent mount`: the volume as a mounted file system, or as one file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use xtent_export::fuse::{self, FILE_NAME, Mount, Served};
use xtent_store::Access;

use crate::args::{DeviceArgs, ThreadsArgs, UnlockArgs};
use crate::cli::Global;
use crate::daemon::{Ready, Side, split};
use crate::failure::{Failure, Result};
use crate::open::Container;
use crate::output::{Output, text_of};
use crate::signals;

const MANUAL: &str = "\
EXAMPLES:
  Mount the file system on the volume (as root):
    xtent mount disk.img /mnt
    xtent umount /mnt
  Without root, have the plaintext as the file DIR/volume, for a file system:
    mkdir dir && xtent mount --file-only disk.img dir
    mkfs.ext4 -b 4096 dir/volume
    xtent umount dir
  Mount read-only, with options for the file system:
    xtent mount --read-only -o noatime,nosuid disk.img /mnt

NOTES:
  The command asks for the passphrase, and returns when the mount is usable; a
  daemon in the background then serves it until `xtent umount` (or a plain
  umount). While it is mounted nobody else can serve, mount or overwrite the
  volume; its keys can be changed.

  A file system needs root, for the loop device between FUSE and the file
  system; without root the plaintext file is served alone, and fusermount3
  (Debian package fuse3) has to be there. The blocks of a file system must not
  be smaller than the volume's sectors, hence mkfs.ext4 -b 4096 above.

  A file system is not offered discards (fstrim says so): none reach the disk.";

/// Mount a volume: its file system, or its plaintext as one file
///
/// As root the file system on the volume is mounted on DIR, by way of FUSE and
/// a loop device with direct I/O. With --file-only, or without root, DIR gets
/// one file, `volume`, which is the plaintext.
#[derive(clap::Args, Debug)]
#[command(after_long_help = MANUAL)]
pub(crate) struct Args {
    #[command(flatten)]
    device: DeviceArgs,
    /// Where to mount: an existing folder
    dir: PathBuf,
    /// Only the file DIR/volume, no file system
    #[arg(long)]
    file_only: bool,
    /// Mount read-only, and open the device read-only
    #[arg(short = 'r', long)]
    read_only: bool,
    /// Options for the file system, as for mount(8)
    #[arg(short = 'o', value_name = "OPTIONS", conflicts_with = "file_only")]
    options: Option<String>,
    /// File system type, as for mount(8) [default: found out]
    #[arg(
        short = 't',
        long = "types",
        value_name = "TYPE",
        conflicts_with = "file_only"
    )]
    fstype: Option<String>,
    /// Stay in the foreground
    #[arg(short = 'f', long)]
    foreground: bool,
    #[command(flatten)]
    threads: ThreadsArgs,
    #[command(flatten)]
    unlock: UnlockArgs,
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    if args.foreground {
        return serve(args, global, Ready::in_foreground());
    }
    match split()? {
        Side::Worker(ready) => serve(args, global, ready),
        Side::Front(code) => std::process::exit(i32::from(code)),
    }
}

fn serve(args: &Args, global: &Global, ready: Ready) -> Result<()> {
    let output = global.output();
    args.unlock.key.source().check()?;
    let options = fuse::Options {
        // The daemon leaves its folder.
        device: absolute(&args.device.device)?,
        dir: absolute(&args.dir)?,
        file_only: args.file_only,
        fstype: args.fstype.clone(),
        mount_options: args.options.clone(),
    };
    for warning in fuse::check(&options)? {
        output.warn(warning);
    }
    let access = if args.read_only {
        Access::ReadOnly
    } else {
        Access::ReadWrite
    };
    let container = Container::open(&args.device, access, true, &output)?;
    let discard = container.stored_discard_policy();
    let config = container.plan(args.read_only, discard, global.cpu)?;
    let volume = container.volume(&args.unlock, &config, &output)?;
    let volume = Arc::new(volume.with_cipher_threads(args.threads.cipher_threads));
    signals::hold()?;
    let mount = Mount::new(volume, &options)?;
    for warning in mount.warnings() {
        output.warn(warning);
    }
    announce(&mount, &output)?;
    let stop = mount.stop();
    // The thread that acts on signals comes after the fork, as every thread.
    signals::on_ending_repeated(move || stop.request())?;
    ready.ready()?;
    Ok(mount.wait()?)
}

/// Not resolved further: a dead mount point, which a killed daemon has left
/// behind, cannot be looked into.
fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path)
        .map_err(|e| Failure::system(format!("cannot find {}", path.display()), e))
}

fn announce(mount: &Mount, output: &Output) -> Result<()> {
    match mount.served() {
        Served::File(path) => output.result(
            &serde_json::json!({ "file": text_of(path), "name": FILE_NAME }),
            format!("The plaintext is {}.", path.display()),
        ),
        Served::FileSystem { dir, loop_device } => output.result(
            &serde_json::json!({ "dir": text_of(dir), "loop_device": text_of(loop_device) }),
            format!(
                "Mounted on {} by way of {}.",
                dir.display(),
                loop_device.display()
            ),
        ),
    }
}
