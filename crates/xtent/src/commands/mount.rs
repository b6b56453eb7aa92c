//! `xtent mount`: the volume as a mounted file system, or as one file.

#[cfg(feature = "device-mapper")]
mod by_ublk;
mod told;
mod way;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;
use xtent_control::FixedSize;
use xtent_export::mounts::{self, FILE_NAME, Mount, Served};
use xtent_store::Access;
use xtent_volume::{Config, Volume};

use crate::args::{DeviceArgs, DirectArgs, EngineArgs, HolesArgs, ThreadsArgs, UnlockArgs};
use crate::cli::Global;
use crate::control::Control;
use crate::daemon::{self, Ready};
use crate::disk::place;
use crate::engine::{self, Engine};
use crate::failure::{Failure, Result};
use crate::growth::{Changes, Growth, follow_one, resizing};
use crate::headerless::{Closed, PlainArgs};
use crate::output::{Output, text_of};
use crate::registry::{self, Entry, Kind};
use crate::signals;

use way::{By, Way};

const MANUAL: &str = "\
EXAMPLES:
  Mount the file system on the volume (as root):
    xtent mount disk.img /mnt
    xtent umount /mnt
  Without root, have the plaintext as the file DIR/volume, for a file system:
    mkdir dir && xtent mount --file-only disk.img dir
    mkfs.ext4 -b 4096 dir/volume
    xtent umount dir
  Without root, use an ext2, ext3 or ext4 file system (Debian package fuse2fs):
    mkdir dir files && xtent mount --file-only disk.img dir
    fuse2fs -o fakeroot dir/volume files
    fusermount3 -u files && xtent umount dir
  Mount read-only, with options for the file system:
    xtent mount --read-only -o noatime,nosuid disk.img /mnt

NOTES:
  The command asks for the passphrase, and returns when the mount is usable; a
  daemon in the background then serves it until `xtent umount` (or a plain
  umount). While it is mounted nobody else can serve, mount or overwrite the
  volume; its keys can be changed.

  A file system is mounted from a block device of the kernel's that the daemon serves (ublk),
  where the driver is there: Linux 6.1 or newer, `modprobe ublk_drv`. Elsewhere, and with --by
  fuse, it is mounted from a loop device on a file by FUSE. -v says which it is, and why.

  A file system needs root; without root it is an error to leave out --file-only, and fusermount3
  (Debian package fuse3) has to be there. The blocks of a file system must not
  be smaller than the volume's sectors, hence mkfs.ext4 -b 4096 above.

  By ublk, a daemon that was killed leaves the file system mounted, and its users wait: the
  same command goes on with it, and nothing is lost (`xtent umount --force DIR` gives it up).
  Without a header, and on an NBD server, they see errors, as they do by FUSE.

  By ublk, discards (fstrim) reach the disk where the header allows them. By FUSE a file system
  is not offered any.

  The volume grows while it is mounted, by ublk on Linux 6.16 and newer: make the image larger,
  and then grow the file system, for example by resize2fs /dev/loopN (/dev/ublkbN) or, of XFS,
  xfs_growfs DIR. In between it takes about 20 seconds until the larger image is noticed;
  `xtent resize DIR` (or SIGHUP to the daemon, which `xtent status` names) has it noticed at once.
  It never becomes smaller. By ublk on an older kernel it keeps its size until it is mounted again.";

/// Mount a volume: its file system, or its plaintext as one file
///
/// As root the file system on the volume is mounted on DIR, by way of a block device that
/// the daemon serves (ublk), or of FUSE and a loop device with direct I/O. With --file-only,
/// which everybody may, DIR gets one file, `volume`, which is the plaintext.
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
    /// What the file system is mounted from [default: ublk where the kernel has it, else fuse]
    #[arg(long, value_name = "WAY", conflicts_with = "file_only")]
    by: Option<By>,
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
    holes: HolesArgs,
    #[command(flatten)]
    direct: DirectArgs,
    #[command(flatten)]
    threads: ThreadsArgs,
    #[command(flatten)]
    unlock: UnlockArgs,
    #[command(flatten)]
    plain: PlainArgs,
    #[command(flatten)]
    engine: EngineArgs,
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    // A script that wants a file system must not go on with a folder that has none.
    if !args.file_only && !mounts::may_mount() {
        return Err(told::requires_root(args));
    }
    daemon::run(args.foreground, |ready| serve(args, global, ready))
}

fn serve(args: &Args, global: &Global, ready: Ready) -> Result<()> {
    let output = global.output();
    args.unlock.key.source().check()?;
    let options = mounts::Options {
        // The daemon leaves its folder.
        device: place(&args.device.device)?,
        dir: absolute(&args.dir)?,
        file_only: args.file_only,
        fstype: args.fstype.clone(),
        mount_options: args.options.clone(),
    };
    let mut way = Way::choose(args, &options)?;
    let goes_on = way.goes_on();
    if !goes_on {
        for warning in mounts::check(&options)? {
            output.warn(warning);
        }
    }
    let access = if args.read_only {
        Access::ReadOnly
    } else {
        Access::ReadWrite
    };
    // A store's threads inherit it, and an engine's.
    xtent_export::expect_writeback();
    let engine = args.engine.open()?;
    let device = args.direct.device(&args.device);
    let container = Closed::open(&device, &args.plain, &args.unlock, access, &output)?;
    way.look_at(&container, &options)?;
    let uuid = container.uuid().to_owned();
    let discard = container.stored_discard_policy();
    let mut config = container.plan(args.read_only, discard, global.cpu)?;
    config.holes = args.holes.holes();
    let (data, header) = (container.data(), container.header().cloned());
    let (volume, keyslot) = engine::volume_and_keyslot(
        engine.as_ref(),
        container,
        &args.unlock,
        &config,
        args.threads.cipher_threads,
        &output,
    )?;
    let volume = Arc::new(volume);
    let is_plain = header.is_none();
    let growth = Growth::new(&data, header.as_ref(), &volume);
    signals::hold()?;
    let mount = way.mount((&volume, &data), &options, &output, |error| {
        let found = told::Found {
            volume: &volume,
            device: &*data,
            offset: config.offset,
            is_plain,
        };
        told::not_mounted(error, args, &found)
    })?;
    if goes_on {
        output.note(format!(
            "{} has a daemon again: what waited goes on.",
            options.dir.display()
        ));
    }
    let start = data.window_start();
    let (changes, told) = Changes::new();
    changes.of(&data, ());
    drop(data);
    for warning in mount.warnings() {
        output.warn(warning);
    }
    let opened = Opened {
        device: options.device.name(),
        uuid: &uuid,
        keyslot,
        config: &config,
        volume: &volume,
        goes_on,
    };
    let is_there = mount.is_there()?;
    if is_there {
        announce(&mount, &opened, &output)?;
    }
    let mut entry = entry(&mount, &opened);
    (entry.partition, entry.start) = (args.device.partition, start);
    entry.engine = engine.as_ref().map(Engine::address);
    let registration = Arc::new(registry::register(std::slice::from_ref(&entry)));
    drop(volume);
    let stop = mount.stop();
    let kernel = mount.growth();
    if let Some(Err(error)) = kernel.as_ref().map(|kernel| kernel.tell(entry.size)) {
        // What goes on may have been smaller when it was begun.
        tracing::warn!(error = %xtent_store::chain(&error), "the file system's device keeps its size");
    }
    let can_grow = kernel.is_some();
    let tell = move |size| match &kernel {
        Some(kernel) => Ok(kernel.tell(size)?),
        None => Ok(()),
    };
    let growth = Arc::new(growth);
    let resize = resizing(&growth, Arc::clone(&registration), entry, tell);
    let resize = Arc::new(move |fixed: Option<&FixedSize>| match can_grow {
        true => resize(fixed),
        false => Err(told::keeps_its_size()),
    });
    let (look, followed) = (Arc::clone(&resize), Arc::clone(&growth));
    // The threads come after the fork, as every thread.
    signals::on_ending_repeated(move || stop.request(), move || changes.tell(()))?;
    follow_one(
        told,
        move || can_grow && followed.has_changed(),
        move || look(None),
    )?;
    let control = Control::bind_mount()
        .inspect_err(|e| tracing::info!(error = %e, "nobody but SIGHUP can have this mount look at its size at once"))
        .ok();
    if let Some(control) = &control {
        control.start_mount(move |fixed| resize(fixed))?;
    }
    if is_there {
        ready.ready()?;
    }
    let result = mount.wait();
    engine::hurry();
    growth.end();
    registration.end();
    drop(control);
    result?;
    match is_there {
        true => Ok(()),
        // A script must not go on with a folder that has none.
        false => Err(told::not_there(&options.dir)),
    }
}

/// Not resolved further, as in [`place`].
fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path)
        .map_err(|e| Failure::system(format!("cannot find {}", path.display()), e))
}

/// What is told of a volume that is mounted.
struct Opened<'a> {
    device: &'a Path,
    uuid: &'a str,
    keyslot: Option<u32>,
    config: &'a Config,
    volume: &'a Volume,
    /// Whether a killed daemon's mount goes on.
    goes_on: bool,
}

/// For `xtent status`.
fn entry(mount: &Mount, opened: &Opened<'_>) -> Entry {
    let uuid = Some(opened.uuid.to_owned()).filter(|uuid| !uuid.is_empty());
    let cipher = opened.config.cipher.to_string();
    let mut entry = Entry::new(Kind::Mount, opened.device, uuid, cipher, opened.volume);
    match mount.served() {
        Served::File(path) => entry.mount_point = path.parent().map(text_of),
        Served::FileSystem { dir, loop_device } => {
            entry.mount_point = Some(text_of(&dir));
            entry.loop_device = Some(text_of(&loop_device));
        }
        Served::ByUblk { dir, device } => {
            entry.mount_point = Some(text_of(&dir));
            entry.ublk_device = Some(text_of(&device));
        }
    }
    entry
}

fn announce(mount: &Mount, opened: &Opened<'_>, output: &Output) -> Result<()> {
    let (dir, file, device) = match mount.served() {
        Served::File(path) => {
            let dir = path.parent().unwrap_or(&path).to_owned();
            (dir, Some(path), None)
        }
        Served::FileSystem { dir, loop_device } => (dir, None, Some((By::Fuse, loop_device))),
        Served::ByUblk { dir, device } => (dir, None, Some((By::Ublk, device))),
    };
    let by = |wanted: By| {
        let device = device.as_ref().filter(|(by, _)| *by == wanted);
        device.map(|(_, device)| text_of(device))
    };
    let text = match (&file, &device) {
        (Some(file), _) => format!("The plaintext is {}.", file.display()),
        (None, Some((_, device))) => {
            format!(
                "Mounted on {} by way of {}.",
                dir.display(),
                device.display()
            )
        }
        (None, None) => format!("Mounted on {}.", dir.display()),
    };
    output.done(
        &json!({
            "device": text_of(opened.device),
            "dir": text_of(&dir),
            "file": file.as_deref().map(text_of),
            "name": file.is_some().then_some(FILE_NAME),
            "loop_device": by(By::Fuse),
            "ublk_device": by(By::Ublk),
            "uuid": opened.uuid,
            "keyslot": opened.keyslot,
            "cipher": opened.config.cipher.to_string(),
            "sector_size": opened.volume.sector_size().bytes(),
            "size": opened.volume.size(),
            "read_only": opened.volume.is_read_only(),
            "taken_over": opened.goes_on,
            "pid": std::process::id(),
        }),
        text,
    )?;
    if file.is_some()
        && let Some(hint) = told::use_of_file(&dir, opened.volume)
    {
        output.note(hint);
    }
    Ok(())
}
