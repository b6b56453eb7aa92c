//! `xtent header`: the metadata as a whole.

use std::path::{Path, PathBuf};

use xtent_luks::{Device, Header};
use xtent_store::{Access, FileStore, Store};

use crate::args::{ConfirmArgs, DeviceArgs, PassphraseArgs};
use crate::cli::Global;
use crate::confirm::confirm;
use crate::disk::{Disk, is_uri};
use crate::failure::{Exit, Failure, Result};
use crate::open::{metadata, open_device_alone, read_header};
use crate::output::{Output, text_of};
use crate::partition;
use crate::probe::{self, shell_word};
use crate::same::share_storage;

mod pin;
mod volume_key;

const MANUAL: &str = "\
EXAMPLES:
  See what a volume is:
    xtent header dump disk.img
  Save the header, after every change of a key, and put it back:
    xtent header backup disk.img disk.header
    xtent header restore disk.img disk.header

NOTES:
  Without its header nobody can open a volume. A backup opens with the
  passphrases of the time it was made: keep it safe, and destroy old ones.";

const DUMP_MANUAL: &str = "\
EXAMPLES:
  xtent header dump disk.img
  xtent header dump --json disk.img | jq .
  Save the volume key, to open the volume when every passphrase is lost:
    xtent header dump --volume-key-file volume.key disk.img

NOTES:
  Needs no passphrase and shows no secrets. It works for ciphers that this
  version cannot open, too.

  That changes with --volume-key-file and --volume-key: whoever has the volume key
  reads the data for ever, whatever happens to passphrases. Both ask for a
  passphrase and for a confirmation. --volume-key-file of the other commands
  unlocks with the file; cryptsetup reads and writes the same.";

const BACKUP_MANUAL: &str = "\
EXAMPLES:
  xtent header backup disk.img disk.header

NOTES:
  DEVICE comes first, as with cryptsetup's luksHeaderBackup.

  The file is in cryptsetup's format (luksHeaderBackup) and readable for its
  owner only. An existing file is never overwritten.";

const RESTORE_MANUAL: &str = "\
EXAMPLES:
  xtent header restore disk.img disk.header

NOTES:
  DEVICE comes first, as with cryptsetup's luksHeaderRestore. A DEVICE that is
  itself a header without data, as a backup is, is refused. To replace a detached
  header, name it with --header, and the device with the data as DEVICE; if the file
  is lost, --header makes it anew. Without --header, the backup of a detached header
  is refused: it would overwrite the data.

  Where there is no LUKS header, the question names what is there instead. A disk
  with LUKS volumes in its partitions is refused without --partition.

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
  from the other and says so; this writes both anew. Where something else has been
  written over the damaged one, such as a partition table or a file system, it asks.

  LUKS1 keeps one. Damage to its UUID or to a keyslot that is not in use keeps
  nobody from opening the volume; this mends it. Salts stay as they are, so no
  key is lost; a UUID that cannot be read becomes a new one. A keyslot whose flag
  is lost counts as in use where it has the salt and cost of one.";

/// Show, pin, save, restore, repair and erase the header of a volume
#[derive(clap::Args, Debug)]
#[command(after_long_help = MANUAL)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    Dump(Dump),
    Pin(pin::Args),
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
    /// Write the volume key to this new file, readable for its owner only
    #[arg(long, value_name = "FILE")]
    volume_key_file: Option<PathBuf>,
    /// Print the volume key instead of the header
    #[arg(long, conflicts_with = "volume_key_file")]
    volume_key: bool,
    #[command(flatten)]
    confirm: ConfirmArgs,
    #[command(flatten)]
    unlock: PassphraseArgs,
}

/// Save header and keyslots to a new file
#[derive(clap::Args, Debug)]
#[command(after_long_help = BACKUP_MANUAL)]
struct Backup {
    #[command(flatten)]
    device: DeviceArgs,
    /// The new file
    file: PathBuf,
}

/// Put a saved header back
///
/// Says what speaks against it, and asks.
#[derive(clap::Args, Debug)]
#[command(after_long_help = RESTORE_MANUAL)]
struct Restore {
    #[command(flatten)]
    device: DeviceArgs,
    /// The backup
    file: PathBuf,
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

/// Write a damaged header anew from what is good of it
#[derive(clap::Args, Debug)]
#[command(after_long_help = REPAIR_MANUAL)]
struct Repair {
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    confirm: ConfirmArgs,
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    let output = global.output();
    match &args.action {
        Action::Dump(args) => dump(args, &output),
        Action::Pin(args) => pin::run(args, &output),
        Action::Backup(args) => backup(args, &output),
        Action::Restore(args) => restore(args, &output),
        Action::Erase(args) => erase(args, &output),
        Action::Repair(args) => repair(args, &output),
    }
}

fn dump(args: &Dump, output: &Output) -> Result<()> {
    if args.volume_key || args.volume_key_file.is_some() {
        return volume_key::dump(args, output);
    }
    let (file, device) = metadata(&args.device, Access::ReadOnly)?;
    let dump = read_header(&device, &file, output)?.dump();
    output.result(&dump, dump.to_string().trim_end())
}

fn backup(args: &Backup, output: &Output) -> Result<()> {
    if args.file == Path::new("-") {
        return Err(
            Failure::parameters("a header backup is a file, not a stream")
                .advise("A file of that name is `./-`."),
        );
    }
    let source = args.device.detached.header.as_ref();
    let source = source.unwrap_or(&args.device.device);
    if !is_uri(source) && !source.exists() && args.file.exists() {
        return Err(
            Failure::new(Exit::Device, format!("{} does not exist", source.display()))
                .advise(device_first("backup", &args.file, source)),
        );
    }
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
    output.done(
        &serde_json::json!({ "file": text_of(&args.file) }),
        format!("Header saved to {}.", args.file.display()),
    )
}

/// Metadata to change while nobody serves the data. The first two values hold
/// the locks.
fn metadata_alone(args: &DeviceArgs) -> Result<(Disk, Disk, Device)> {
    let data = open_device_alone(args, Access::ReadWrite)?;
    let reconnect = args.reconnect();
    let file = match &args.detached.header {
        // Another volume that has the same header may be in use.
        Some(path) if !share_storage(data.path(), path) => {
            Disk::open_alone(path, Access::ReadWrite, reconnect)?
        }
        Some(path) => Disk::open(path, Access::ReadWrite, reconnect)?,
        None => data.clone(),
    };
    let device = args.metadata_on(&file)?;
    Ok((data, file, device))
}

fn restore(args: &Restore, output: &Output) -> Result<()> {
    let new = match &args.device.detached.header {
        Some(path) => NewHeader::make(path, &args.file)?,
        None => None,
    };
    // What is expected is the backup, not what it replaces.
    let device = DeviceArgs {
        expect_header: Vec::new(),
        ..args.device.clone()
    };
    let (data, file, device) = metadata_alone(&device)?;
    if args.device.detached.header.is_none() {
        refuse_backup_as_device(&file, &device, &args.file)?;
    }
    pin::expect_backup(&args.device, &args.file)?;
    let plan = device
        .plan_restore(&args.file)
        .map_err(|e| Failure::of_metadata(e, &args.file))?;
    if plan.is_detached && share_storage(data.path(), file.path()) {
        return Err(onto_the_data(data.path(), &args.file));
    }
    if new.is_none() {
        if !plan.replaces_header() && args.device.partition.is_none() {
            refuse_partitions(&file)?;
        }
        for warning in &plan.warnings {
            output.warn(warning);
        }
        let found = probe::describe(&*file).filter(|_| !plan.replaces_header());
        confirm(
            args.confirm,
            &format!(
                "This will replace the header and all keyslots of {} by those of {}.{}",
                args.device.metadata_name(),
                args.file.display(),
                found.map_or(String::new(), |found| format!(" It holds {found} now."))
            ),
        )?;
    }
    device.restore(plan)?;
    if let Some(new) = new {
        new.keep();
    }
    output.done(
        &serde_json::json!({ "restored": text_of(file.path()) }),
        format!("Header of {} restored.", args.device.metadata_name()),
    )
}

/// Bytes of header and keyslots, at most: two LUKS2 copies of 4 MiB and 128 MiB of keyslots.
const LARGEST_BACKUP: u64 = (8 + 128) << 20;

/// A file that is made for a detached header, and removed again unless it gets one.
struct NewHeader<'a>(Option<&'a Path>);

impl<'a> NewHeader<'a> {
    /// Makes the file as long as the backup; nothing if there is one.
    fn make(path: &'a Path, backup: &Path) -> Result<Option<Self>> {
        if is_uri(path) || path.symlink_metadata().is_ok() {
            return Ok(None);
        }
        let size = FileStore::open(backup, Access::ReadOnly)?.size();
        FileStore::create(path, size.min(LARGEST_BACKUP))?;
        Ok(Some(Self(Some(path))))
    }

    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for NewHeader<'_> {
    fn drop(&mut self) {
        if let Some(path) = self.0 {
            // What went wrong before is the error to tell.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The refusal of a detached header's backup where the data would be overwritten.
fn onto_the_data(device: &Path, backup: &Path) -> Failure {
    let (device_word, backup_word) = (shell_word(device), shell_word(backup));
    Failure::parameters(format!(
        "{} is the backup of a detached header: restoring it onto {} would destroy the data there; \
         nothing was changed",
        backup.display(),
        device.display()
    ))
    .advise(format!(
        "Name the file that is to hold the header: `xtent header restore --header FILE \
         {device_word} {backup_word}`."
    ))
}

/// Refuses a disk without a LUKS header of its own that has LUKS volumes in its partitions:
/// one of those is meant.
fn refuse_partitions(disk: &Disk) -> Result<()> {
    if probe::describe(&**disk).is_some_and(|what| what.contains("LUKS")) {
        return Ok(());
    }
    let Some(partitions) = disk.file().and_then(|file| partition::advice(file)) else {
        return Ok(());
    };
    let what = probe::describe(&**disk).unwrap_or("a partition table");
    Err(Failure::parameters(format!(
        "{} holds {what}, which the header would overwrite; nothing was changed",
        disk.path().display()
    ))
    .advise(partitions))
}

/// Refuses to overwrite what looks like a header backup: arguments in the wrong
/// order would lose the very thing that is to be restored.
fn refuse_backup_as_device(file: &Disk, device: &Device, backup: &Path) -> Result<()> {
    if file.file().is_none_or(|file| file.is_block_device()) {
        return Ok(());
    }
    let path = file.path();
    let refused = |why: String| {
        let order = device_first("restore", backup, path);
        Err(
            Failure::parameters(format!("{why}; nothing was changed")).advise(format!(
                "{order} To replace a detached header: \
                 `xtent header restore --header {} DEVICE-WITH-DATA FILE`.",
                path.display()
            )),
        )
    };
    let is_header_only =
        |header: &Header| header.is_detached() || file.size() <= header.data_offset();
    if device.read().is_ok_and(|header| is_header_only(&header)) {
        return refused(format!(
            "{} holds a header and no data, as a header backup does",
            path.display()
        ));
    }
    let backup_size = FileStore::open(backup, Access::ReadOnly)?.size();
    if backup_size > file.size() {
        return refused(format!(
            "{} is larger than {}, and so no backup of its header",
            backup.display(),
            path.display()
        ));
    }
    Ok(())
}

fn device_first(action: &str, device: &Path, file: &Path) -> String {
    format!(
        "DEVICE comes first: is `xtent header {action} {} {}` meant?",
        shell_word(device),
        shell_word(file)
    )
}

fn erase(args: &Erase, output: &Output) -> Result<()> {
    let (_locked, file, device) = metadata_alone(&args.device)?;
    let slots = read_header(&device, &file, output)?.keyslots();
    confirm(
        args.confirm,
        &format!(
            "This will erase {} of {}: nobody will be able to read the data again.",
            match slots[..] {
                [_] => "the only keyslot".to_owned(),
                _ => format!("all {} keyslots", slots.len()),
            },
            args.device.metadata_name()
        ),
    )?;
    device.erase()?;
    output.done(
        &serde_json::json!({ "erased": slots }),
        format!("All keyslots of {} erased.", args.device.metadata_name()),
    )
}

fn repair(args: &Repair, output: &Output) -> Result<()> {
    let (file, device) = metadata(&args.device, Access::ReadWrite)?;
    // What cannot be read is repaired all the same, or the error tells.
    let damage = device.read().map_or(Vec::new(), |header| header.damage());
    if let Ok(Some(name)) = device.overwritten_by_repair() {
        confirm(
            args.confirm,
            &format!(
                "{} has a {name} signature where its LUKS2 header was. Writing the header anew destroys \
                 what that belongs to.",
                args.device.metadata_name()
            ),
        )?;
    }
    let repaired = device
        .repair()
        .map_err(|e| Failure::of_metadata(e, file.path()))?;
    let mut text = match repaired {
        true => "The header was repaired.".to_owned(),
        false => "The header is good; nothing to do.".to_owned(),
    };
    for damage in damage.iter().filter(|_| repaired) {
        text += &format!("\nIt was damaged: {damage}.");
    }
    output.done(
        &serde_json::json!({ "repaired": repaired, "damage": damage }),
        text,
    )
}
