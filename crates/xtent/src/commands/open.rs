//! `xtent open`: the volume as a mapping of the kernel's device mapper, or a device that a process
//! serves.

mod manual;
mod ublk;

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use clap::ValueEnum;
use sector_cipher::{Mode, SectorCount};
use xtent_luks::{Header, Version};
use xtent_mapping::{
    Choice, Format, Mapper, Name, Opened, Options, Place, Table, Target, Wanted, uuid,
};
use xtent_store::loopdev::LoopDevice;
use xtent_store::{Access, FileStore};
use xtent_volume::DiscardPolicy;

use crate::args::{DeviceArgs, UnlockArgs};
use crate::cli::Global;
use crate::disk::Disk;
use crate::failure::{Exit, Failure, Result};
use crate::headerless::{Closed, PlainArgs, VolumeKey};
use crate::output::{Output, text_of};
use crate::partition;
use crate::same::refuse_attached;
use crate::signals::Held;

/// The target, on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TargetArg {
    /// dm-xtent if it is loaded, else dm-crypt
    Auto,
    /// The kernel's dm-crypt
    Crypt,
    /// dm-xtent
    Xtent,
}

impl From<TargetArg> for Choice {
    fn from(arg: TargetArg) -> Self {
        match arg {
            TargetArg::Auto => Self::Auto,
            TargetArg::Crypt => Self::Only(Target::Crypt),
            TargetArg::Xtent => Self::Only(Target::Xtent),
        }
    }
}

/// Open a volume as a block device of the kernel (root)
///
/// Asks for the passphrase and makes /dev/mapper/NAME, by dm-xtent if that is
/// loaded, else by dm-crypt. `xtent close NAME` undoes it; of dm-crypt, so does
/// `cryptsetup close NAME`. With --ublk a process of this program serves the device, as
/// /dev/xtent/NAME.
#[derive(clap::Args, Debug)]
#[command(after_long_help = manual::MANUAL)]
#[command(mut_args(with_ublk))]
pub(crate) struct Args {
    /// The mapping will be /dev/mapper/NAME, with --ublk /dev/xtent/NAME
    name: Name,
    #[command(flatten)]
    device: DeviceArgs,
    /// Who encrypts
    #[arg(
        long,
        value_name = "TARGET",
        default_value = "auto",
        conflicts_with = "ublk"
    )]
    target: TargetArg,
    /// Refuse writes, and open the device read-only
    #[arg(short = 'r', long, alias = "readonly")]
    read_only: bool,
    /// Pass discards (trim) to the device, where they show which sectors are in use
    #[arg(long)]
    allow_discards: bool,
    /// Encrypt on the CPU that submits the request
    #[arg(long = "perf-same_cpu_crypt", conflicts_with = "ublk")]
    same_cpu_crypt: bool,
    /// Do not collect encrypted writes in a thread of their own
    #[arg(long = "perf-submit_from_crypt_cpus", conflicts_with = "ublk")]
    submit_from_crypt_cpus: bool,
    /// Decrypt reads without a work queue
    #[arg(long = "perf-no_read_workqueue", conflicts_with = "ublk")]
    no_read_workqueue: bool,
    /// Encrypt writes without a work queue
    #[arg(long = "perf-no_write_workqueue", conflicts_with = "ublk")]
    no_write_workqueue: bool,
    /// Let work queues go before others of the kernel's
    #[arg(long = "perf-high_priority", conflicts_with = "ublk")]
    high_priority: bool,
    #[command(flatten)]
    served: ublk::ServedArgs,
    #[command(flatten)]
    plain: PlainArgs,
    #[command(flatten)]
    unlock: UnlockArgs,
    /// Ask for the passphrase if the key file is missing or does not open the volume
    ///
    /// By PROGRAM as with --ask-with, or without one on the terminal.
    #[arg(long, value_name = "PROGRAM", num_args = 0..=1, require_equals = true, requires = "key_file", help_heading = "Passphrase")]
    or_ask: Option<Option<PathBuf>>,
}

/// Options of the process that serves a device are for that alone.
fn with_ublk(arg: clap::Arg) -> clap::Arg {
    match arg.get_id().as_str() {
        "holes" | "direct_io" | "cipher_threads" | "engine" => arg.requires("ublk"),
        _ => arg,
    }
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    let output = global.output();
    if args.or_ask.is_none() {
        args.unlock.key.source().check()?;
    }
    if args.served.ublk {
        return ublk::run(args, global);
    }
    let mapper = Mapper::connect()?;
    mapper.refuse_taken(&args.name)?;
    refuse_taken_by_ublk(&args.name)?;
    let closed = open_closed(args, &output)?;
    let mut table = plan(args, &closed, global)?;
    let (target, why) = mapper.choose(args.target.into(), &table)?;
    let found = unlock(args, &closed, &output)?;
    output.note(format!("Opening with {}: {why}.", target.module()));

    // From here on a signal leaves all of the mapping or nothing.
    let held = Held::all()?;
    let format = match closed.header().map(Header::version) {
        Some(Version::Luks1) => Format::Luks1,
        Some(Version::Luks2) => Format::Luks2,
        None => Format::Plain,
    };
    let uuid = uuid(format, closed.uuid(), &args.name);
    let below = Below::of(closed, args.read_only)?;
    table.device = below.number()?;
    let wanted = Wanted {
        name: &args.name,
        uuid: &uuid,
        target,
        table: &table,
        read_only: args.read_only,
    };
    let opened = mapper.open(&wanted, &found.key, || held.ended())?;
    announce(&opened, args, target, &why, &found, &table, &output)
}

/// The volume's key, by whatever way it is to be come by.
fn unlock(args: &Args, closed: &Closed, output: &Output) -> Result<VolumeKey> {
    match (closed.key(&args.unlock, output), &args.or_ask) {
        (Err(failure), Some(program)) if !failure.is_interruption() => {
            output.warn(format!("{failure}\n  Asking for the passphrase instead."));
            let asking = args.unlock.asking(program.as_deref());
            asking.key.source().check()?;
            closed.key(&asking, output)
        }
        (other, _) => other,
    }
}

/// Refuses what is served or mounted by somebody else already.
fn open_closed(args: &Args, output: &Output) -> Result<Closed> {
    let access = if args.read_only {
        Access::ReadOnly
    } else {
        Access::ReadWrite
    };
    if let Some(number) = args.device.partition {
        return Err(partition::refuse_mapping(&args.device.device, number));
    }
    let closed = Closed::open(&args.device, &args.plain, &args.unlock, access, output)?;
    refuse_asking_for_plain(args, &closed)?;
    if !args.read_only {
        closed.refuse_waited_for()?;
    }
    if !closed.data().is_block_device() && !args.read_only {
        refuse_attached(closed.data().path(), 0..u64::MAX)?;
    }
    Ok(closed)
}

fn refuse_asking_for_plain(args: &Args, closed: &Closed) -> Result<()> {
    match args.or_ask.is_some() && closed.header().is_none() {
        true => Err(Failure::parameters(
            "--or-ask is for LUKS: a plain volume cannot tell that the key file is wrong",
        )),
        false => Ok(()),
    }
}

/// Names are for both kinds of devices: `xtent close` has nothing else.
fn refuse_taken_by_ublk(name: &Name) -> Result<()> {
    match crate::ublk::number(name) {
        Some(_) => Err(Failure::new(
            Exit::Busy,
            format!("{} is there already", crate::ublk::path(name).display()),
        )
        .advise(format!(
            "Choose another name, or close it: `xtent close {name}`."
        ))),
        None => Ok(()),
    }
}

fn no_room(path: &std::path::Path) -> Failure {
    Failure::new(
        Exit::Device,
        format!("{}: the volume has no room for data", path.display()),
    )
}

/// The device or image, which the kernel can use.
fn of_the_kernel(data: &Disk) -> Result<Arc<FileStore>> {
    data.file().cloned().ok_or_else(|| {
        Failure::parameters(format!(
            "{} is no device that the kernel could use",
            data.path().display()
        ))
        .advise("`xtent serve` and `xtent mount` open it; nbd-client(8) makes a device of it.")
    })
}

/// The table, but for the device's number.
fn plan(args: &Args, closed: &Closed, global: &Global) -> Result<Table> {
    let config = closed.plan(args.read_only, DiscardPolicy::Never, global.cpu)?;
    let data = closed.data();
    let path = data.path();
    if matches!(config.cipher.mode(), Mode::Eme2 | Mode::Aez10 | Mode::Xcb) {
        return Err(Failure::new(
            Exit::Device,
            format!(
                "{}: the volume is encrypted with {}, which no kernel has",
                path.display(),
                config.cipher
            ),
        )
        .advise("`xtent serve` and `xtent mount` open it."));
    }
    if config.length == 0 {
        return Err(no_room(path));
    }
    let asked = Options {
        allow_discards: args.allow_discards,
        same_cpu_crypt: args.same_cpu_crypt,
        submit_from_crypt_cpus: args.submit_from_crypt_cpus,
        no_read_workqueue: args.no_read_workqueue,
        no_write_workqueue: args.no_write_workqueue,
        high_priority: args.high_priority,
    };
    let flags = closed.header().map_or(&[][..], Header::persistent_flags);
    Ok(Table {
        cipher: config.cipher.to_string(),
        key: match closed.header() {
            Some(header) => Place::Keyring {
                header_uuid: header.uuid().to_owned(),
            },
            None => Place::Line,
        },
        iv_offset: config.iv_offset,
        device: 0,
        offset: config.offset,
        length: config.length,
        sector_size: u32::try_from(config.sector_size.bytes()).unwrap_or(4096),
        iv_large_sectors: config.sector_count == SectorCount::Large,
        options: asked.or(stored(flags)),
    })
}

/// LUKS2's persistent flags. Others than these concern no table.
fn stored(flags: &[String]) -> Options {
    let has = |name: &str| flags.iter().any(|flag| flag == name);
    Options {
        allow_discards: has("allow-discards"),
        same_cpu_crypt: has("same-cpu-crypt"),
        submit_from_crypt_cpus: has("submit-from-crypt-cpus"),
        no_read_workqueue: has("no-read-workqueue"),
        no_write_workqueue: has("no-write-workqueue"),
        high_priority: has("high-priority"),
    }
}

/// What the mapping lies on.
enum Below {
    /// A block device, held open.
    Device(File),
    /// An image, with its server lock, through a loop device that goes with its
    /// last user.
    Image(
        #[allow(dead_code, reason = "holds the lock")] Arc<FileStore>,
        LoopDevice,
    ),
}

impl Below {
    fn of(closed: Closed, read_only: bool) -> Result<Self> {
        let data = of_the_kernel(&closed.data())?;
        // The exclusive claim on a device goes with the last reference: the
        // device mapper makes its own.
        drop(closed);
        let failed = |e| Failure::system(format!("cannot open {} again", data.path().display()), e);
        if data.is_block_device() {
            return Ok(Self::Device(data.file().try_clone().map_err(failed)?));
        }
        let attached = LoopDevice::attach(data.file(), 512, read_only).map_err(|e| {
            let path = data.path().display().to_string();
            Failure::from(e).advise(format!(
                "By hand: losetup --find --show {path}; then open the device that it prints."
            ))
        })?;
        Ok(Self::Image(data, attached))
    }

    /// Its device number.
    fn number(&self) -> Result<u64> {
        let file = match self {
            Self::Device(file) => file,
            Self::Image(_, attached) => attached.file(),
        };
        let metadata = file
            .metadata()
            .map_err(|e| Failure::system("cannot look at the device", e))?;
        Ok(metadata.rdev())
    }
}

fn announce(
    opened: &Opened,
    args: &Args,
    target: Target,
    why: &str,
    found: &VolumeKey,
    table: &Table,
    output: &Output,
) -> Result<()> {
    output.result(
        &serde_json::json!({
            "name": args.name.to_string(),
            "path": text_of(&opened.path),
            "target": target.name(),
            "why": why,
            "keyslot": found.keyslot,
            "token": found.token,
            "cipher": table.cipher,
            "sector_size": table.sector_size,
            "size": table.length,
            "read_only": args.read_only,
            "allow_discards": table.options.allow_discards,
        }),
        opened.path.display().to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn persistent_flags_are_those_of_tables() {
        let flags = ["no-read-workqueue", "allow-discards", "of-the-future"].map(str::to_owned);
        let options = stored(&flags);
        assert_eq!(
            options,
            Options {
                allow_discards: true,
                no_read_workqueue: true,
                ..Options::default()
            }
        );
    }
}
