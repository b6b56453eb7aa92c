//! `xtent convert`: LUKS1 to LUKS2 and back, in place.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use xtent_luks::Version;
use xtent_store::Access;

use crate::args::{ConfirmArgs, RECONNECT};
use crate::cli::Global;
use crate::confirm::confirm;
use crate::disk::Disk;
use crate::failure::{Exit, Failure, Result};
use crate::open::read_header;
use crate::output::{Output, text_of};
use crate::same::refuse_attached;
use crate::signals;

const MANUAL: &str = "\
EXAMPLES:
  An old volume becomes LUKS2; its old header is saved first:
    xtent convert --type luks2 disk.img
  The backup somewhere else, no question:
    xtent convert -q --type luks2 --backup /root/sdb1.luks1 /dev/sdb1
  And back, from the backup or by converting again:
    xtent header restore disk.img disk.img.luks1-header
    xtent convert --type luks1 disk.img

NOTES:
  No passphrase is needed: the volume key, every passphrase with its keyslot's
  number, the UUID, the data and their place stay. Keyslots keep their derivation,
  too; afterwards `xtent key change --pbkdf argon2id` gives LUKS2's own to one.

  It takes a moment. If the power fails or the program is killed meanwhile, the
  volume opens as the one or the other, with every passphrase: run it again, if
  it is not what you wanted yet. One layout has no room for that: LUKS1 with keyslots 0 to 5 all in use and the data
  right behind the keyslots. There an interruption leaves neither, every command
  refuses the device, and the backup has to be restored; --no-backup is refused.

  LUKS1 can be made only of what LUKS1 can say: keyslots 0 to 7, all of them
  pbkdf2 and encrypted as the data are (cryptsetup luksFormat --pbkdf pbkdf2 makes
  such ones, xtent format encrypts them with aes-xts-plain64 and 512 bits), one
  hash for everything, sectors of 512 bytes, no tokens, no persistent flags.
  Everything else is refused by name, as by cryptsetup convert.

  Refused while anybody serves, mounts or maps the volume, and for a header apart
  from its data that says so (they begin at byte 0), or has no room.

FILES:
  DEVICE.luks1-header, DEVICE.luks2-header
      The backup, unless --backup names it: beside an image file; for a device
      in the present folder. It is in cryptsetup's format and never overwrites a
      file. The passphrases of today open the data with it even after you change
      them: destroy it once the new volume opens.";

/// The format to convert to, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Type {
    Luks2,
    Luks1,
}

/// Convert a volume between LUKS1 and LUKS2, in place
///
/// Only the header changes. Says what the other format cannot keep, saves the
/// old header to a file, and asks.
#[derive(clap::Args, Debug)]
#[command(after_long_help = MANUAL)]
pub(crate) struct Args {
    /// Block device, image file, NBD URI or rbd:POOL/IMAGE
    device: PathBuf,
    /// Format to convert to
    #[arg(long = "type", value_name = "TYPE", required = true)]
    to: Type,
    /// Save the old header to this new file [default: see FILES]
    #[arg(long, value_name = "FILE")]
    backup: Option<PathBuf>,
    /// Do not save the old header
    #[arg(long, conflicts_with = "backup")]
    no_backup: bool,
    #[command(flatten)]
    confirm: ConfirmArgs,
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    let output = global.output();
    let reconnect = Duration::from_secs(RECONNECT.into());
    let file = Disk::open_alone(&args.device, Access::ReadWrite, reconnect)?;
    if file.file().is_some_and(|file| !file.is_block_device()) {
        refuse_attached(&args.device, 0..u64::MAX)?;
    }
    let device = file.metadata()?;
    read_header(&device, &file, &output)?;
    let to = match args.to {
        Type::Luks1 => Version::Luks1,
        Type::Luks2 => Version::Luks2,
    };
    let plan = device.plan_conversion(to).map_err(|e| {
        let mut failure = Failure::from(e);
        failure.message = format!("{}: {}", args.device.display(), failure.message);
        failure
    })?;
    if plan.needs_backup && args.no_backup {
        return Err(Failure::parameters(format!(
            "{}: there is no room to move one keyslot at a time; an interruption would leave no \
             usable header. This conversion takes a backup: leave --no-backup out",
            args.device.display()
        )));
    }
    let backup = backup_file(args, &file)?;
    for warning in &plan.warnings {
        output.warn(warning);
    }
    confirm(args.confirm, &question(args, to, backup.as_ref()))?;
    // A moment that no signal should part where the layout has no room.
    signals::hold()?;
    // The first one only hears what is waited for.
    signals::on_ending(|_| {})?;
    let header = device.convert(plan, backup.as_deref()).map_err(|e| {
        let failure = Failure::from(e);
        match &backup {
            Some(path) if path.exists() => failure.advise(format!(
                "The old header is in {0}. Should the volume not open any more: \
                 xtent header restore {1} {0}",
                path.display(),
                args.device.display()
            )),
            _ => failure,
        }
    })?;
    report(args, to, header.uuid(), backup.as_ref(), &output)
}

/// Where the old header goes; never over anything.
fn backup_file(args: &Args, file: &Disk) -> Result<Option<PathBuf>> {
    if args.no_backup {
        return Ok(None);
    }
    let path = match &args.backup {
        Some(path) => path.clone(),
        None => {
            let extension = match args.to {
                Type::Luks2 => ".luks1-header",
                Type::Luks1 => ".luks2-header",
            };
            if file.file().is_none() {
                return Err(Failure::parameters(format!(
                    "{} says nothing of where the old header could be saved",
                    args.device.display()
                ))
                .advise("Name a file for it: --backup FILE."));
            }
            let mut name = if file.is_block_device() {
                args.device.file_name().unwrap_or_default().to_owned()
            } else {
                args.device.clone().into_os_string()
            };
            name.push(extension);
            PathBuf::from(name)
        }
    };
    if path.symlink_metadata().is_ok() {
        return Err(
            Failure::new(Exit::Busy, format!("{} exists already", path.display())).advise(
                "Nothing was changed. Give another name for the old header's backup: --backup FILE.",
            ),
        );
    }
    Ok(Some(path))
}

fn name_of(version: Version) -> &'static str {
    match version {
        Version::Luks1 => "LUKS1",
        Version::Luks2 => "LUKS2",
    }
}

fn question(args: &Args, to: Version, backup: Option<&PathBuf>) -> String {
    format!(
        "This will convert the header of {} to {}{}. Data and passphrases stay.",
        args.device.display(),
        name_of(to),
        match backup {
            Some(path) => format!(", after a backup to {}", path.display()),
            None => ", without a backup".to_owned(),
        }
    )
}

fn report(
    args: &Args,
    to: Version,
    uuid: &str,
    backup: Option<&PathBuf>,
    output: &Output,
) -> Result<()> {
    output.done(
        &serde_json::json!({
            "device": text_of(&args.device),
            "version": match to { Version::Luks1 => 1, Version::Luks2 => 2 },
            "uuid": uuid,
            "backup": backup.map(|path| text_of(path)),
        }),
        format!("{} is {} now.", args.device.display(), name_of(to)),
    )?;
    if let Some(path) = backup {
        output.note(format!(
            "The old header is in {0}; today's passphrases open the data with it. Destroy it once \
             the volume opens, or go back: xtent header restore {1} {0}",
            path.display(),
            args.device.display()
        ));
    }
    Ok(())
}
