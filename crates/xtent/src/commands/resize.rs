//! `xtent resize`: a volume takes the size that its device has, or another one of its own.

#[cfg(feature = "device-mapper")]
mod mapping;

use std::path::{Path, PathBuf};

use clap::Arg;
use serde_json::json;
use xtent_control::FixedSize;
use xtent_luks::ErrorKind;
use xtent_store::Access;

use super::attach::ServerArgs;
#[cfg(feature = "device-mapper")]
use crate::args::UnlockArgs;
use crate::args::{ConfirmArgs, DeviceArgs};
use crate::cli::Global;
use crate::confirm::confirm;
use crate::control::Server;
use crate::disk::{Disk, is_uri};
use crate::failure::{Exit, Failure, Result};
use crate::open::{open_device, open_device_alone, read_header};
use crate::output::{Output, text_of};
use crate::probe::shell_word;
use crate::registry::{self, Entry, Kind};
use crate::same::{refuse_attached, share_storage};
use crate::size::{parse_size, show_size};

const MANUAL: &str = "\
EXAMPLES:
  After the device of a volume that is served has grown, by the export's name or by the device:
    lvextend --size +10G vg/db
    xtent resize /dev/vg/db
  The same of a mount, and its file system after that:
    truncate --size +10G disk.img
    xtent resize disk.img
    resize2fs /dev/loop0
  The same of a device of `open --ublk`:
    lvextend --size +10G vg/db
    xtent resize secret
    resize2fs /dev/xtent/secret
  A volume whose header fixes its size (of `header dump`, \"length: N [bytes]\"), in use or not:
    xtent resize --size 20G /dev/vg/db
  A mapping of `xtent open` or `cryptsetup open` whose device has grown (root):
    xtent resize secret && resize2fs /dev/mapper/secret

NOTES:
  Most volumes end with their device, and grow with it when whoever has them looks. Servers and
  mounts do that every 10 seconds, this command has one do it at once, and an image in a Ceph
  cluster tells of its growth. What is behind an NBD server is asked for by this command and
  SIGHUP only: connections are made anew for that, which requests wait for, and a server that
  takes no more clients than it has cannot be asked.
  Clients that are connected see the old size until they connect again; NBD has no
  way to tell them. The guest of `serve --vhost-user` is told, and so are the loop device of a
  mount and the block device of `open --ublk` and of a mount by ublk (Linux 6.16 or newer; with
  older ones it keeps its size until it is opened or mounted again). The file system is grown after that by its own
  tool (resize2fs, xfs_growfs).

  LUKS2 headers can fix a size; neither `xtent format` nor `cryptsetup luksFormat` does that.
  --size changes it in the header, for whoever opens the volume from now on, and tells the
  servers and mounts of this user that have it open. It is there or not whenever the power fails.
  `cryptsetup resize --size` does something else: it changes a mapping that is open, until it is
  closed, and nothing on the disk; and `cryptsetup open` (2.6) goes on to the end of the device,
  whatever the header fixes. No passphrase is needed.

  A volume becomes smaller with --shrink only, and only while nobody has it: make the file
  system smaller first (resize2fs SIZE; XFS cannot). What is behind the new end is not wiped,
  and out of reach for Xtent.

  A mapping (`xtent open` without --ublk) has the size with which it was opened until this
  command gives the kernel its table with another length: all that is under way ends before, and what comes
  meanwhile waits. That takes the passphrase once more: the key is in no table, except of what
  cryptsetup has opened as LUKS1. A size that the header fixes is kept to, and a mapping never
  becomes smaller. One that is suspended is refused, since its key may have been taken away (`xtent suspend`, `cryptsetup luksSuspend`),
  and so is one that has changed while the passphrase was asked for. `cryptsetup resize NAME` does the same, and more, for mappings of dm-crypt.

  A pin of the volume (--expect-header) covers its size: pin anew after --size.";

/// Have a volume that is open take its device's new size, or give it a size of its own
///
/// Without --size a server or mount looks at the volume's device, and grows with it where the
/// header does not fix a size. SIGHUP does the same for all volumes of a process. A mapping of
/// `xtent open` gets the size of its device, which takes the passphrase.
#[derive(clap::Args, Debug)]
#[command(after_long_help = MANUAL)]
#[command(mut_arg("device", name_or_device))]
#[command(mut_args(of_the_header))]
pub(crate) struct Args {
    #[command(flatten)]
    server: ServerArgs,
    /// Bytes that the volume is to have, where its header fixes them (suffixes K, M, G, T)
    #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with = "server")]
    size: Option<u64>,
    /// Let the volume become smaller: what is behind its new end is lost
    #[arg(long, requires = "size")]
    shrink: bool,
    #[command(flatten)]
    confirm: ConfirmArgs,
    #[command(flatten)]
    device: DeviceArgs,
    #[cfg(feature = "device-mapper")]
    #[command(flatten)]
    unlock: UnlockArgs,
}

fn name_or_device(device: Arg) -> Arg {
    device
        .value_name("NAME|DEVICE")
        .help("The volume's device; without --size also the name of an export, block device or mapping, the UUID, or the mount point")
}

/// What only counts where the header is written, and what where it is not.
fn of_the_header(arg: Arg) -> Arg {
    let counts = ["partition", "reconnect"];
    if counts.contains(&arg.get_id().as_str()) {
        return arg.requires("size");
    }
    match arg.get_help_heading() {
        Some("Passphrase") => arg.conflicts_with("size"),
        _ => arg,
    }
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    let output = global.output();
    match args.size {
        None => look(args, global, &output),
        Some(size) => set(args, size, &output),
    }
}

/// Has whoever has the volume look at its device.
fn look(args: &Args, global: &Global, output: &Output) -> Result<()> {
    let wanted = &args.device.device;
    let mut users = match args.server.is_named() {
        true => Vec::new(),
        false => users_of(wanted),
    };
    if users.is_empty() && !args.server.is_named() && resize_mapping(args, global, output)? {
        return Ok(());
    }
    if args.device.detached.header.is_some() || args.device.pins().next().is_some() {
        return Err(Failure::parameters(
            "--header and --expect-header are for --size and for mappings: a server has its header",
        ));
    }
    #[cfg(feature = "device-mapper")]
    if args.unlock.is_given() {
        return Err(Failure::parameters(format!(
            "no mapping is meant by {}, and a passphrase, key or token is for mappings: a server has its key",
            text_of(wanted)
        )));
    }
    let (name, (before, now)) = match (users.pop(), users.is_empty()) {
        (Some(user), true) => {
            let name = user.export.clone().unwrap_or_default();
            let sizes = Server::of(&user)?.resize(&name, None)?;
            hint(&user, sizes, output);
            (name, sizes)
        }
        (Some(_), false) => {
            return Err(Failure::parameters(format!(
                "{} is open more than once: give the name of the export with --server, the \
                 mount point, or the name of the block device",
                text_of(wanted)
            )));
        }
        (None, _) => {
            let server = args.server.find()?;
            let name = server.export(&text_of(wanted))?;
            let sizes = server.resize(&name, None)?;
            (name, sizes)
        }
    };
    output.result(
        &json!({ "export": name, "before": before, "size": now }),
        change(before, now),
    )
}

/// Resizes the mapping that is meant, if one is.
#[cfg(feature = "device-mapper")]
fn resize_mapping(args: &Args, global: &Global, output: &Output) -> Result<bool> {
    let Some(mapped) = mapping::find(&args.device.device)? else {
        return Ok(false);
    };
    mapping::resize(args, &mapped, global, output)?;
    Ok(true)
}

#[cfg(not(feature = "device-mapper"))]
fn resize_mapping(_: &Args, _: &Global, _: &Output) -> Result<bool> {
    Ok(false)
}

/// Says how the file system on a device becomes larger too.
fn hint(user: &Entry, (before, now): (u64, u64), output: &Output) {
    let of_mount = user.loop_device.as_ref().or(user.ublk_device.as_ref());
    let device = of_mount.map(PathBuf::from);
    let Some(device) = device.or_else(|| user.block_device()) else {
        return;
    };
    if now > before {
        let dir = user.mount_point.as_deref().unwrap_or("FOLDER");
        let (device, dir) = (shell_word(&device), shell_word(Path::new(dir)));
        output.note(format!(
            "The file system grows by its own tool: `resize2fs {device}`, or of XFS `xfs_growfs {dir}`."
        ));
    }
}

fn change(before: u64, now: u64) -> String {
    match before == now {
        true => format!("{} as before", show_size(now)),
        false => format!("{} instead of {}", show_size(now), show_size(before)),
    }
}

/// What is served or mounted by processes of this user's, of this name, device, UUID or mount point. What is
/// meant by a name is not looked for by device as well. What others say of theirs leads to no device.
fn users_of(wanted: &Path) -> Vec<Entry> {
    let text = text_of(wanted);
    let place = std::path::absolute(wanted).map_or_else(|_| text.clone(), |path| text_of(&path));
    let listed = registry::list().into_iter().filter(|it| it.is_alive);
    let own = rustix::process::geteuid().as_raw();
    let has_it = listed.filter(|it| it.entry.kind != Kind::Standby && it.entry.uid == own);
    let entries: Vec<Entry> = has_it.map(|it| it.entry).collect();
    let of = |is_meant: &dyn Fn(&Entry) -> bool| -> Vec<Entry> {
        entries.iter().filter(|it| is_meant(it)).cloned().collect()
    };
    let named = of(&|it| {
        it.export.as_ref().is_some_and(|name| *name == text)
            || it.name.as_ref().is_some_and(|name| *name == text)
            || it
                .block_device()
                .is_some_and(|path| path == Path::new(&place))
            || it.uuid.as_ref() == Some(&text)
            || it.mount_point.as_ref() == Some(&place)
    });
    match named.is_empty() {
        true => of(&|it| share_storage(Path::new(&it.device), wanted)),
        false => named,
    }
}

/// Changes the size in the header, and tells whoever has the volume open.
fn set(args: &Args, size: u64, output: &Output) -> Result<()> {
    let device = &args.device;
    if !is_uri(&device.device) && (!device.device.exists() || device.device.is_dir()) {
        // What processes say of their devices chooses none that is written to.
        return Err(Failure::new(
            Exit::Device,
            format!("{} is no device", text_of(&device.device)),
        )
        .advise("--size changes the header on a device: `xtent status` shows that of a name."));
    }
    let (data, header_disk) = open(device, args.shrink)?;
    let metadata = device.metadata_on(&header_disk)?;
    let header = read_header(&metadata, &header_disk, output)?;
    let name = device.metadata_name();
    if header.is_detached() && share_storage(data.path(), header_disk.path()) {
        return Err(Failure::new(
            Exit::Device,
            format!("{name} holds a detached header only: its volume's data is on another device"),
        )
        .advise(format!(
            "Give the device with the data, and --header {name} besides."
        )));
    }
    if let Some(before) = header.fixed_size().filter(|before| size < *before) {
        let lost = show_size(before - size);
        if !args.shrink {
            return Err(Failure::parameters(format!(
                "{name}: the volume has {} and would lose {lost} at its end",
                show_size(before)
            ))
            .advise(
                "Make the file system on it smaller first, then insist with --shrink, while nobody \
                 has the volume open.",
            ));
        }
        confirm(
            args.confirm,
            &format!(
                "{name}: the volume becomes {} instead of {}. The {lost} at its end are lost, and \
                 a file system that is not smaller already with them.",
                show_size(size),
                show_size(before)
            ),
        )?;
    }
    let before = metadata
        .resize(size, data.size(), args.shrink)
        .map_err(|error| {
            let kind = error.kind;
            let mut failure = Failure::from(error);
            failure.message = format!("{name}: {}", failure.message);
            match kind {
                ErrorKind::TooShort => failure.advise("Make the device larger first."),
                ErrorKind::Options if header.fixed_size().is_none() => failure.advise(
                    "Make the device larger (`lvextend`, `truncate --size`); `xtent resize` without \
                     --size then has a server or mount look at it.",
                ),
                _ => failure,
            }
        })?;
    let fixed = FixedSize {
        uuid: header.uuid().to_owned(),
        size,
    };
    // Others may be on the same device.
    let mut users = users_of(&device.device);
    users.retain(|it| it.uuid.as_ref() == Some(&fixed.uuid) && it.partition == device.partition);
    let mut failures = Vec::new();
    for user in &users {
        let export = user.export.as_deref().unwrap_or_default();
        match Server::of(user).and_then(|it| it.resize(export, Some(fixed.clone()))) {
            Ok(sizes) => hint(user, sizes, output),
            Err(failure) => failures.push((user.pid, failure)),
        }
    }
    let told = users.len() - failures.len();
    let uses = match told {
        0 => String::new(),
        1 => ", and so it is where it is open".to_owned(),
        _ => format!(", and so it is in {told} places where it is open"),
    };
    let result = json!({ "before": before, "size": size, "told": told });
    output.result(&result, format!("{}{uses}", change(before, size)))?;
    let Some((_, first)) = failures.first() else {
        return Ok(());
    };
    let exit = first.exit;
    let told: Vec<String> = failures
        .iter()
        .map(|(pid, failure)| format!("process {pid} may keep its size: {failure}"))
        .collect();
    Err(Failure::new(
        exit,
        format!("the header is changed, but {}", told.join("; ")),
    )
    .advise("Give the same command again, or close the volume there and open it again."))
}

/// Data and header; this process's alone where something may be lost.
fn open(device: &DeviceArgs, alone: bool) -> Result<(Disk, Disk)> {
    let data = match alone {
        true => {
            let data = open_device_alone(device, Access::ReadWrite)?;
            if data.file().is_some_and(|file| !file.is_block_device()) {
                refuse_attached(data.path(), 0..u64::MAX)?;
            }
            data
        }
        false if device.detached.header.is_some() => open_device(device, Access::ReadOnly)?,
        false => open_device(device, Access::ReadWrite)?,
    };
    let header_disk = match &device.detached.header {
        Some(path) if !share_storage(data.path(), path) => {
            Disk::open(path, Access::ReadWrite, device.reconnect())?
        }
        _ => data.clone(),
    };
    Ok((data, header_disk))
}
