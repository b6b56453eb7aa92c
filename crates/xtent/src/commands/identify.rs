//! `xtent is-luks` and `xtent uuid`: for scripts.

use clap::ValueEnum;
use xtent_luks::{Device, Version};
use xtent_store::Access;

use crate::args::DeviceArgs;
use crate::cli::Global;
use crate::failure::{Failure, Result};
use crate::open::{metadata, read_header};
use crate::output::in_one_line;

const IS_LUKS_MANUAL: &str = "\
EXAMPLES:
  if xtent is-luks /dev/sdX; then echo encrypted; fi
  xtent is-luks --type luks2 disk.img

EXIT STATUS:
  0  it is a LUKS volume, of that type
  1  it is none, -v says why; or the arguments are wrong, which is said
  2  no permission
  4  it cannot be read";

const UUID_MANUAL: &str = "\
EXAMPLES:
  xtent uuid disk.img
  grep \"$(xtent uuid /dev/sdX)\" /etc/crypttab";

/// LUKS versions by name.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Type {
    Luks1,
    Luks2,
}

/// Find out by the exit code whether a device is a LUKS volume
///
/// Prints nothing. A LUKS2 header with one damaged copy counts as one.
#[derive(clap::Args, Debug)]
#[command(after_long_help = IS_LUKS_MANUAL)]
pub(crate) struct IsLuks {
    #[command(flatten)]
    device: DeviceArgs,
    /// Only this version counts
    #[arg(long = "type", value_name = "TYPE")]
    luks: Option<Type>,
}

/// Print the UUID of a volume
#[derive(clap::Args, Debug)]
#[command(after_long_help = UUID_MANUAL)]
pub(crate) struct Uuid {
    #[command(flatten)]
    device: DeviceArgs,
}

pub(crate) fn is_luks(args: &IsLuks) -> Result<()> {
    let (_file, device) = metadata(&args.device, Access::ReadOnly)?;
    let wanted = args.luks.map(|wanted| match wanted {
        Type::Luks1 => Version::Luks1,
        Type::Luks2 => Version::Luks2,
    });
    if is(&device, wanted)? {
        return Ok(());
    }
    Err(Failure::silent())
}

fn is(device: &Device, wanted: Option<Version>) -> Result<bool> {
    match device.read() {
        Ok(header) => Ok(wanted.is_none_or(|wanted| header.version() == wanted)),
        Err(error)
            if matches!(
                error.kind,
                xtent_luks::ErrorKind::Store(_) | xtent_luks::ErrorKind::Unexpected
            ) =>
        {
            Err(error.into())
        }
        Err(error) => {
            tracing::info!(error = %xtent_store::chain(&error), "no usable LUKS header");
            Ok(false)
        }
    }
}

pub(crate) fn uuid(args: &Uuid, global: &Global) -> Result<()> {
    let output = global.output();
    let (file, device) = metadata(&args.device, Access::ReadOnly)?;
    let header = read_header(&device, &file, &output)?;
    output.result(
        &serde_json::json!({ "uuid": header.uuid() }),
        in_one_line(header.uuid()),
    )
}
