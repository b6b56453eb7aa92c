//! `xtent key convert`.

use xtent_luks::{ChangeOptions, Version};
use xtent_store::Access;

use crate::args::{DeviceArgs, KdfArgs, PassphraseArgs};
use crate::failure::{Failure, Result};
use crate::open::{metadata, passphrase_and_unlock, read_header, while_deriving};
use crate::output::Output;

const MANUAL: &str = "\
EXAMPLES:
  From PBKDF2, as an old volume has it, to Argon2id:
    xtent key convert disk.img
  A cheaper derivation, for a slower machine:
    xtent key convert --iter-time 500 disk.img

NOTES:
  The passphrase and the keyslot stay. As with every change the new key material
  is on the disk before the old one goes. LUKS2 only: LUKS1 has pbkdf2 and nothing
  else, and `xtent key change` with the same passphrase typed again gives it
  another cost, in another keyslot.";

/// Give a key another key derivation; passphrase and keyslot stay
#[derive(clap::Args, Debug)]
#[command(after_long_help = MANUAL)]
pub(super) struct Convert {
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    unlock: PassphraseArgs,
    #[command(flatten)]
    kdf: KdfArgs,
}

pub(super) fn run(args: &Convert, output: &Output) -> Result<()> {
    args.unlock.key.source().check()?;
    let (file, device) = metadata(&args.device, Access::ReadWrite)?;
    if read_header(&device, &file, output)?.version() == Version::Luks1 {
        return Err(Failure::parameters(
            "LUKS1 has pbkdf2 and nothing else; other key derivations need LUKS2",
        )
        .advise("`xtent key change` gives a key another cost."));
    }
    let (passphrase, unlocked) =
        passphrase_and_unlock(&device, &args.device.device, &args.unlock, output)?;
    let slot = unlocked.keyslot;
    drop(unlocked);
    let (kdf, limits) = (args.kdf.choice(), args.unlock.limits());
    let options = ChangeOptions::default();
    let slot = while_deriving(output, || {
        device.change_key(&passphrase, slot, &passphrase, &kdf, options, &limits)
    })?;
    super::result(
        output,
        Some(slot),
        format!("Key of keyslot {slot} converted."),
    )
}
