//! `xtent close`: undoes `xtent open`.

use xtent_mapping::{Closed, Mapper, Name};

use crate::cli::Global;
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::signals::Held;
use crate::turn::{self, Turn};
use crate::ublk;

const MANUAL: &str = "\
EXAMPLES:
  Close a volume, whoever has opened it, `xtent open` or `cryptsetup open`:
    xtent close secret
  Close one that is in use as soon as it is not:
    xtent close --deferred secret
  Take a device of `xtent open --ublk` away from its users, whose storage is gone:
    xtent close --force secret && umount /mnt && xtent close secret

NOTES:
  Only mappings of encrypted volumes are closed, by the UUID that xtent and
  cryptsetup give to theirs. The kernel forgets the key with the mapping. `xtent resize` that is changing it is waited for.

  A device of `xtent open --ublk` is flushed, and its process waited for. One that a file
  system, a mapping, a process or a loop device has is refused. With --force its process
  is killed, nothing is flushed, and who uses the device sees errors: what was written to it
  and not flushed is lost. --json says `\"closed\": false` if somebody has it still.
  What it waits for longer than two seconds it names; --force does not wait for another close.

  Where udev runs, a mapping in use is tried again for five seconds: udev looks into
  a device that has been written to, and is in the way for that long.";

/// Close what `xtent open`, or cryptsetup, has opened (root)
#[derive(clap::Args, Debug)]
#[command(after_long_help = MANUAL)]
pub(crate) struct Args {
    /// Of /dev/mapper/NAME or /dev/xtent/NAME
    name: Name,
    /// If it is in use, close it when its last user is gone
    #[arg(long)]
    deferred: bool,
    /// Close a device of `xtent open --ublk` that is in use: its users see errors
    ///
    /// For one whose storage, or whose process, will not come back: whoever waits for it is let go. Its
    /// process is killed if there is one, and what was written and not flushed is lost.
    #[arg(long, conflicts_with = "deferred")]
    force: bool,
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    let output = global.output();
    if is_of_a_process(args)? {
        let is_gone = ublk::close(&args.name, args.force, &output)?;
        return report(args, is_gone, &output);
    }
    if args.force {
        return Err(
            Failure::parameters("--force is for devices of `xtent open --ublk`")
                .advise("A mapping in use: --deferred closes it when its last user is gone."),
        );
    }
    let mapper = Mapper::connect()?;
    let _turn = Turn::wait_for(&args.name, turn::Kind::Mapping, &output)?;
    // Not the mapping without its node, nor what udev is waited for with.
    let held = Held::all()?;
    let closed = mapper.close(&args.name, args.deferred, || held.ended())?;
    if closed == Closed::Deferred {
        output.note(format!(
            "{} is in use; it will be closed when its last user is gone.",
            args.name
        ));
    }
    report(args, closed == Closed::Now, &output)
}

/// Whether it is a device of `xtent open --ublk`.
fn is_of_a_process(args: &Args) -> Result<bool> {
    let is_one = ublk::number(&args.name).is_some();
    match is_one && args.deferred {
        true => Err(Failure::parameters(
            "--deferred is for mappings: a device of `xtent open --ublk` closes when nobody uses it",
        )),
        false => Ok(is_one),
    }
}

fn report(args: &Args, is_closed: bool, output: &Output) -> Result<()> {
    if output.json {
        output.object(&serde_json::json!({
            "name": args.name.to_string(),
            "closed": is_closed,
        }))?;
    }
    Ok(())
}
