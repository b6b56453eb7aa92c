//! `xtent key kill`.

use xtent_luks::{Device, Unlocked};
use xtent_store::Access;

use crate::args::{ConfirmArgs, DeviceArgs, PassphraseArgs, parse_slot};
use crate::confirm::confirm;
use crate::failure::{Exit, Failure, Result};
use crate::open::{metadata, read_header, while_deriving, with_retries};
use crate::output::Output;
use crate::secrets::Asked;

const KILL_MANUAL: &str = "\
EXAMPLES:
  Destroy keyslot 1, whose passphrase is lost; asks for one that stays:
    xtent key kill disk.img 1
  Destroy it without asking for anything:
    xtent key kill --batch-mode disk.img 1";

/// Destroy a keyslot by its number
///
/// Asks for a passphrase of another keyslot, so that no volume is locked up by a
/// typing error; with --batch-mode it does not.
#[derive(clap::Args, Debug)]
#[command(after_long_help = KILL_MANUAL)]
pub(super) struct Kill {
    #[command(flatten)]
    device: DeviceArgs,
    /// The keyslot to destroy
    #[arg(value_name = "SLOT", value_parser = parse_slot)]
    slot: u32,
    /// Destroy the last keyslot too: the data is lost for good
    #[arg(long)]
    even_last: bool,
    #[command(flatten)]
    confirm: ConfirmArgs,
    #[command(flatten)]
    unlock: PassphraseArgs,
}

pub(super) fn run(args: &Kill, output: &Output) -> Result<()> {
    args.unlock.key.source().check()?;
    let (file, device) = metadata(&args.device, Access::ReadWrite)?;
    let header = read_header(&device, &file, output)?;
    let in_use = header.keyslots();
    if !in_use.contains(&args.slot) {
        return Err(Failure::parameters(format!(
            "keyslot {} of {} is not in use",
            args.slot,
            args.device.device.display()
        )));
    }
    // Those after which the volume still opens.
    let others: Vec<u32> = super::openers(&header)
        .into_iter()
        .filter(|&slot| slot != args.slot)
        .collect();
    super::guard_last(
        &args.device,
        (&device, &file),
        args.slot,
        args.even_last,
        args.confirm,
        output,
    )?;
    if others.is_empty() && !super::openers(&header).contains(&args.slot) {
        confirm(
            args.confirm,
            &format!(
                "Keyslot {} of {} holds a key that is not the volume's: nobody will be able to \
                 read it again.",
                args.slot,
                args.device.metadata_name()
            ),
        )?;
    }
    let key_given = !args.unlock.key.source().is_default();
    if !others.is_empty() && (key_given || !args.confirm.batch_mode) {
        unlock_other(args, &device, &others, output)?;
    }
    device.kill_slot(args.slot, args.even_last)?;
    super::result(
        output,
        Some(args.slot),
        format!("Keyslot {} destroyed.", args.slot),
    )
}

/// A passphrase that will still open the volume afterwards.
fn unlock_other(args: &Kill, device: &Device, others: &[u32], output: &Output) -> Result<Unlocked> {
    let source = args.unlock.key.source();
    let question = format!(
        "Passphrase for {} (any but that of keyslot {}): ",
        args.device.device.display(),
        args.slot
    );
    if args.unlock.key_slot == Some(args.slot) {
        return Err(Failure::parameters(
            "--key-slot names the keyslot to be destroyed; name one that stays",
        ));
    }
    let asked = Asked::of_volume(&args.device.device, device, &source);
    with_retries(args.unlock.tries, source.is_interactive(), output, || {
        let passphrase = args.unlock.key.read(&question, &asked)?;
        let (mut wrong, mut untried) = (None, None);
        for &slot in others {
            if args.unlock.key_slot.is_some_and(|only| only != slot) {
                continue;
            }
            let limits = args.unlock.limits();
            match while_deriving(output, || device.unlock(&passphrase, Some(slot), &limits)) {
                Ok(unlocked) => return Ok(unlocked),
                Err(e) if e.kind == xtent_luks::ErrorKind::WrongPassphrase => wrong = Some(e),
                // The passphrase may be that of one that costs less, or can be read.
                Err(e) => untried = untried.or(Some(e)),
            }
        }
        if let Some(error) = untried {
            return Err(error.into());
        }
        let mut failure = Failure::new(
            Exit::Permission,
            "no keyslot that would stay opens with this passphrase; nothing was changed",
        );
        failure.is_wrong_passphrase = true;
        Err(match wrong {
            Some(e) => failure.because(e),
            None => failure,
        })
    })
}
