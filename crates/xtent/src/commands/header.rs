//! `xtent header`: the metadata as a whole.

use std::path::PathBuf;
use std::sync::Arc;

use xtent_luks::Device;
use xtent_store::{Access, FileStore};

use crate::args::{ConfirmArgs, DeviceArgs};
use crate::cli::Global;
use crate::confirm::confirm;
use crate::failure::{Exit, Failure, Result};
use crate::open::{metadata, read_header};
use crate::output::{Output, text_of};

const MANUAL: &str = "\
EXAMPLES:
  See what a volume is:
    xtent header dump disk.img
  Save the header, after every change of a key, and put it back:
    xtent header backup disk.header disk.img
    xtent header restore disk.header disk.img

NOTES:
  Without its header nobody can open a volume. A backup opens with the
  passphrases of the time it was made: keep it safe, and destroy old ones.";

const DUMP_MANUAL: &str = "\
EXAMPLES:
  xtent header dump disk.img
  xtent header dump --json disk.img | jq .

NOTES:
  Needs no passphrase and shows no secrets. It works for ciphers that this
  version cannot open, too.";

const BACKUP_MANUAL: &str = "\
EXAMPLES:
  xtent header backup disk.header disk.img

NOTES:
  The file is in cryptsetup's format (luksHeaderBackup) and readable for its
  owner only. An existing file is never overwritten.";

const RESTORE_MANUAL: &str = "\
EXAMPLES:
  xtent header restore disk.header disk.img

NOTES:
  All keyslots are replaced: the passphrases of the time of the backup count
  again. Refused if the backup and the device's present header differ in data
  offset, key size or sector size: the data would not decrypt. Refused while a
  server has the device open.";

const ERASE_MANUAL: &str = "\
EXAMPLES:
  Make the data on a disk unreadable at once, before it is given away:
    xtent header erase /dev/sdX

NOTES:
  Backups of the header still open the data. Refused while a server has the
  device open.";

const REPAIR_MANUAL: &str = "\
EXAMPLES:
  xtent header repair disk.img

NOTES:
  LUKS2 keeps two copies of its metadata. If one is damaged, every command works
  from the other and says so; this writes both anew.";

/// Show, save, restore, repair and erase the header of a volume
#[derive(clap::Args, Debug)]
#[command(after_long_help = MANUAL)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    Dump(Dump),
    Backup(Backup),
    Restore(Restore),
    Erase(Erase),
    Repair(Repair),
}

/// Show the header, in the style of cryptsetup's luksDump or as JSON
#[derive(clap::Args, Debug)]
#[command(after_long_help = DUMP_MANUAL)]
struct Dump {
    #[command(flatten)]
    device: DeviceArgs,
}

/// Save header and keyslots to a new file
#[derive(clap::Args, Debug)]
#[command(after_long_help = BACKUP_MANUAL)]
struct Backup {
    /// The new file
    file: PathBuf,
    #[command(flatten)]
    device: DeviceArgs,
}

/// Put a saved header back
///
/// Says what speaks against it, and asks.
#[derive(clap::Args, Debug)]
#[command(after_long_help = RESTORE_MANUAL)]
struct Restore {
    /// The backup
    file: PathBuf,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    confirm: ConfirmArgs,
}

/// Destroy every keyslot: the data is lost for good
#[derive(clap::Args, Debug)]
#[command(after_long_help = ERASE_MANUAL)]
struct Erase {
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    confirm: ConfirmArgs,
}

/// Write both copies of a LUKS2 header anew from the good one
#[derive(clap::Args, Debug)]
#[command(after_long_help = REPAIR_MANUAL)]
struct Repair {
    #[command(flatten)]
    device: DeviceArgs,
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    let output = global.output();
    match &args.action {
        Action::Dump(args) => dump(args, &output),
        Action::Backup(args) => backup(args, &output),
        Action::Restore(args) => restore(args, &output),
        Action::Erase(args) => erase(args, &output),
        Action::Repair(args) => repair(args, &output),
    }
}

fn dump(args: &Dump, output: &Output) -> Result<()> {
    let (file, device) = metadata(&args.device, Access::ReadOnly)?;
    let dump = read_header(&device, &file, output)?.dump();
    output.result(&dump, dump.to_string().trim_end())
}

fn backup(args: &Backup, output: &Output) -> Result<()> {
    let (file, device) = metadata(&args.device, Access::ReadOnly)?;
    read_header(&device, &file, output)?;
    if args.file.symlink_metadata().is_ok() {
        return Err(Failure::new(
            Exit::Busy,
            format!("{} exists already", args.file.display()),
        )
        .advise("Give another name; a header backup never overwrites a file."));
    }
    device.backup(&args.file)?;
    output.result(
        &serde_json::json!({ "file": text_of(&args.file) }),
        format!("Header saved to {}.", args.file.display()),
    )
}

/// Metadata to change while nobody serves the data. The first value holds the
/// lock.
fn metadata_alone(args: &DeviceArgs) -> Result<(Arc<FileStore>, Arc<FileStore>, Device)> {
    let data = Arc::new(FileStore::open(&args.device, Access::ReadWrite)?);
    data.lock_for_serving()?;
    let file = match &args.detached.header {
        Some(path) => Arc::new(FileStore::open(path, Access::ReadWrite)?),
        None => data.clone(),
    };
    let device = Device::new(file.clone());
    Ok((data, file, device))
}

fn restore(args: &Restore, output: &Output) -> Result<()> {
    let (_locked, file, device) = metadata_alone(&args.device)?;
    let plan = device.plan_restore(&args.file)?;
    for warning in &plan.warnings {
        output.warn(warning);
    }
    confirm(
        args.confirm,
        &format!(
            "This will replace the header and all keyslots of {} by those of {}.",
            file.path().display(),
            args.file.display()
        ),
    )?;
    device.restore(plan)?;
    output.result(
        &serde_json::json!({ "restored": text_of(file.path()) }),
        format!("Header of {} restored.", file.path().display()),
    )
}

fn erase(args: &Erase, output: &Output) -> Result<()> {
    let (_locked, file, device) = metadata_alone(&args.device)?;
    let slots = read_header(&device, &file, output)?.keyslots();
    confirm(
        args.confirm,
        &format!(
            "This will erase all {} keyslots of {}: nobody will be able to read the data again.",
            slots.len(),
            file.path().display()
        ),
    )?;
    device.erase()?;
    output.result(
        &serde_json::json!({ "erased": slots }),
        format!("All keyslots of {} erased.", file.path().display()),
    )
}

fn repair(args: &Repair, output: &Output) -> Result<()> {
    let (_file, device) = metadata(&args.device, Access::ReadWrite)?;
    let repaired = device.repair()?;
    output.result(
        &serde_json::json!({ "repaired": repaired }),
        if repaired {
            "Both copies of the header were written anew."
        } else {
            "Both copies of the header are good; nothing to do."
        },
    )
}
