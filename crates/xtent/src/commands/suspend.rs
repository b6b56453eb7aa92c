//! `xtent suspend`: takes the key of a mapping away, while whoever uses it waits. `xtent resume` gives it back.

use rustix::mm::{MlockAllFlags, mlockall};
use sector_cipher::CipherSpec;
use serde_json::json;
use xtent_mapping::{Format, Mapper, Name, Seen};

use crate::cli::Global;
use crate::failure::{Exit, Failure, Result};
use crate::ground::{Needed, needed_on};
use crate::signals::Held;
use crate::turn::{self, Turn};
use crate::ublk;

const MANUAL: &str = "\
EXAMPLES:
  Have no key in memory while nobody is at the machine, and go on afterwards:
    xtent suspend secret
    xtent resume secret

NOTES:
  What is under way comes to its end, a file system on the mapping is written out and frozen, and the
  target (dm-xtent or dm-crypt) overwrites its key. (A file system on LVM or on another mapping above it is not
  frozen: it waits at its next read or write, and what it has not written out stays in memory.) Whoever reads or
  writes from then on waits, in the kernel, until `xtent resume`: nothing fails, and nothing is lost. The kernel's
  keyring has no key of `xtent open` in it: it was there only while the mapping was made.

  Only the key is gone. What programs and the kernel's cache have read before is in memory as plaintext still
  (`echo 3 >/proc/sys/vm/drop_caches`, before, lets go of what nobody uses).

  `sync` waits as well, and so does suspend to RAM, which begins with one unless /sys/power/sync_on_suspend
  has a 0. Then it fails while anybody waits (`Freezing of tasks failed` in the kernel's log): stop before
  `xtent suspend` who uses the volume (SIGSTOP, or the freezer of their cgroup).

  Volumes with a LUKS header only, whoever has opened them: without one nothing could tell at the resume
  whether a key is the right one. `cryptsetup luksSuspend` does the same for mappings of dm-crypt, and
  `cryptsetup luksResume` resumes those; it does not know dm-xtent.

  A mapping that was suspended otherwise (`dmsetup suspend`) stays so, and loses its key. One whose key is gone
  already is an error (5). If the target cannot wipe its key, the mapping goes on as
  before where it still has it, and else the error says that it stays suspended.

  A volume that has the system's root, this program, a library of it or swap space in use on it is refused (5):
  nothing could be started to resume it. What else you log in and resume with, such as your home, a key file or
  a header, is yours to keep elsewhere, or have a shell of root open.

  SIGINT and SIGTERM do not cut it short. SIGKILL leaves a mapping that runs, or one that is suspended and may
  have its key still: `xtent suspend` wipes that, `xtent resume` goes on.";

/// Take the key of a mapping out of memory; who uses it waits (root)
///
/// `xtent resume NAME` gives it back.
#[derive(clap::Args, Debug)]
#[command(after_long_help = MANUAL)]
pub(crate) struct Args {
    /// Of /dev/mapper/NAME
    name: Name,
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    let output = global.output();
    let name = &args.name;
    refuse_ublk(name)?;
    let mapper = Mapper::connect()?;
    let turn = Turn::wait_for(name, turn::Kind::Mapping, &output)?;
    let seen = mapper.look(name)?;
    luks_format(&seen)?;
    refuse_unknown_cipher(&seen)?;
    refuse_own_ground(&seen)?;
    // Swap space may be on what is going to wait, where the system does not tell.
    if let Err(error) = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE) {
        tracing::warn!(%error, "this program could not be kept in memory");
    }
    // Not a suspended mapping with its key.
    let _held = Held::all()?;
    mapper.suspend(&seen)?;
    // What is said from here on may go to a file on the mapping, and wait for `xtent resume`.
    drop(turn);
    let before = match seen.is_suspended() {
        true => "was suspended before, and its key is wiped now",
        false => "is suspended, and its key is wiped",
    };
    output.note(format!(
        "{name} {before}. Who uses it waits for `xtent resume {name}`."
    ));
    if output.json {
        output.object(&json!({
            "name": name.to_string(),
            "suspended": true,
            "was_suspended": seen.is_suspended(),
        }))?;
    }
    Ok(())
}

/// A process has the key of such a device.
pub(super) fn refuse_ublk(name: &Name) -> Result<()> {
    match ublk::number(name) {
        Some(_) => Err(Failure::parameters(format!(
            "{name} is a device of `xtent open --ublk`: its key is in the process that serves it"
        ))
        .advise(format!("`xtent close {name}` takes it away."))),
        None => Ok(()),
    }
}

/// The format of the volume, whose header can tell whether a key is the right one.
pub(super) fn luks_format(seen: &Seen) -> Result<Format> {
    let kind = seen.uuid().split('-').nth(1).unwrap_or_default();
    match kind {
        "LUKS1" => Ok(Format::Luks1),
        "LUKS2" => Ok(Format::Luks2),
        other => {
            let name = seen.name();
            Err(Failure::parameters(format!(
                "{name} is a mapping of the type {other}: no header of LUKS tells whether a key is the right one to resume it"
            ))
            .advise(format!(
                "`xtent close {name}` takes its key away, once nobody uses it."
            )))
        }
    }
}

/// Refuses what only cryptsetup could resume.
fn refuse_unknown_cipher(seen: &Seen) -> Result<()> {
    let cipher = &seen.layout().cipher;
    match cipher.parse::<CipherSpec>() {
        Ok(_) => Ok(()),
        Err(_) => {
            let name = seen.name();
            Err(Failure::parameters(format!(
                "{name} has the cipher {cipher}, with which this version opens and resumes no volume"
            ))
            .advise(format!(
                "`cryptsetup luksSuspend {name}` and `cryptsetup luksResume {name}` may do it."
            )))
        }
    }
}

/// Refuses what `xtent resume` could not be started without.
fn refuse_own_ground(seen: &Seen) -> Result<()> {
    let Some(what) = needed_on(seen.device()) else {
        return Ok(());
    };
    let name = seen.name();
    let (why, advice) = match what {
        Needed::Root | Needed::Program => (
            "nothing could be started to resume it",
            "Turn the machine off, or do it with all that it takes in memory (an initramfs).",
        ),
        Needed::Swap => (
            "whatever is swapped out would wait, with who is to resume it",
            "`swapoff` takes it out of use (`swapon --show` lists it).",
        ),
    };
    Err(Failure::new(Exit::Busy, format!("{name} has {what} on it: {why}")).advise(advice))
}
