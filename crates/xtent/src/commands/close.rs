//! `xtent close`: undoes `xtent open`.

use xtent_mapping::{Closed, Mapper, Name};

use crate::cli::Global;
use crate::failure::Result;
use crate::signals::Held;

const MANUAL: &str = "\
EXAMPLES:
  Close a volume, whoever has opened it, `xtent open` or `cryptsetup open`:
    xtent close secret
  Close one that is in use as soon as it is not:
    xtent close --deferred secret

NOTES:
  Only mappings of encrypted volumes are closed, by the UUID that xtent and
  cryptsetup give to theirs. The kernel forgets the key with the mapping.

  Where udev runs, a mapping in use is tried again for five seconds: udev looks into
  a device that has been written to, and is in the way for that long.";

/// Close what `xtent open`, or cryptsetup, has opened (root)
#[derive(clap::Args, Debug)]
#[command(after_long_help = MANUAL)]
pub(crate) struct Args {
    /// Of /dev/mapper/NAME
    name: Name,
    /// If it is in use, close it when its last user is gone
    #[arg(long)]
    deferred: bool,
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    let output = global.output();
    // Not the mapping without its node, nor what udev is waited for with.
    let held = Held::all()?;
    let closed = Mapper::connect()?.close(&args.name, args.deferred, || held.ended())?;
    if closed == Closed::Deferred {
        output.note(format!(
            "{} is in use; it will be closed when its last user is gone.",
            args.name
        ));
    }
    if output.json {
        output.object(&serde_json::json!({
            "name": args.name.to_string(),
            "closed": closed == Closed::Now,
        }))?;
    }
    Ok(())
}
