//! `xtent config`: what a header says besides its keys.

use clap::ValueEnum;
use clap::builder::PossibleValuesParser;
use xtent_luks::{Changes, PERSISTENT_FLAGS, Priority};
use xtent_store::Access;

use crate::args::{DeviceArgs, parse_slot};
use crate::cli::Global;
use crate::failure::{Failure, Result};
use crate::open::{metadata, metadata_for_uuid, read_header};

const MANUAL: &str = "\
EXAMPLES:
  Name a volume:
    xtent config --label backup /dev/sdX
  Let discards through whenever it is opened:
    xtent config --set-flags allow-discards disk.img
  Try keyslot 2 only when it is named:
    xtent config --key-slot 2 --priority ignore disk.img
  A copy of an image gets a UUID of its own:
    xtent config --uuid \"$(cat /proc/sys/kernel/random/uuid)\" copy.img

NOTES:
  All changes of one command are made in one update, which is there or not
  whenever the power fails. No key changes. LUKS1 has a UUID and none of the rest.

  Flags count for whoever opens the volume: allow-discards for all of Xtent and for
  the kernel's dm-crypt, the others for mappings (`xtent open`, `cryptsetup open`).
  Discards show which sectors are in use.";

/// In which order keyslots are tried.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum PriorityArg {
    /// Before the others
    Prefer,
    /// In their order
    Normal,
    /// Only when it is named
    Ignore,
}

/// Change label, UUID, flags and priorities of a header
#[derive(clap::Args, Debug)]
#[command(after_long_help = MANUAL)]
pub(crate) struct Args {
    #[command(flatten)]
    device: DeviceArgs,
    /// New label, up to 47 bytes; an empty one removes it
    #[arg(long)]
    label: Option<String>,
    /// New subsystem label, up to 47 bytes; an empty one removes it
    #[arg(long)]
    subsystem: Option<String>,
    /// New UUID
    #[arg(long)]
    uuid: Option<String>,
    /// When --key-slot is tried
    #[arg(long, requires = "key_slot")]
    priority: Option<PriorityArg>,
    /// The keyslot whose --priority changes
    #[arg(short = 'S', long, value_name = "N", requires = "priority", value_parser = parse_slot)]
    key_slot: Option<u32>,
    /// Persistent flags to set, separated by commas
    #[arg(long, value_name = "FLAGS", value_delimiter = ',', value_parser = PossibleValuesParser::new(PERSISTENT_FLAGS))]
    set_flags: Vec<String>,
    /// Persistent flags to clear, separated by commas
    #[arg(long, value_name = "FLAGS", value_delimiter = ',', value_parser = PossibleValuesParser::new(PERSISTENT_FLAGS))]
    clear_flags: Vec<String>,
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    let output = global.output();
    let priority = args.priority.map(|priority| match priority {
        PriorityArg::Prefer => Priority::Prefer,
        PriorityArg::Normal => Priority::Normal,
        PriorityArg::Ignore => Priority::Ignore,
    });
    let changes = Changes {
        uuid: args.uuid.clone(),
        label: args.label.clone(),
        subsystem: args.subsystem.clone(),
        priority: args.key_slot.zip(priority),
        set_flags: args.set_flags.clone(),
        clear_flags: args.clear_flags.clone(),
    };
    if changes == Changes::default() {
        return Err(Failure::parameters("there is nothing to change")
            .advise("Give --label, --subsystem, --uuid, --priority or flags; `xtent header dump` shows what there is."));
    }
    let (file, device) = match &changes.uuid {
        Some(_) => metadata_for_uuid(&args.device)?,
        None => metadata(&args.device, Access::ReadWrite)?,
    };
    read_header(&device, &file, &output)?;
    device.configure(&changes)?;
    // What it was expected to be was asked before it was changed.
    let header = device.expecting(&[]).read()?;
    output.done(
        &serde_json::json!({
            "uuid": header.uuid(),
            "label": header.label(),
            "subsystem": header.subsystem(),
            "flags": header.persistent_flags(),
        }),
        format!("Header of {} changed.", file.path().display()),
    )
}
