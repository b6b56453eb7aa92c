//! `xtent key`: the passphrases of a volume.

use xtent_luks::{ChangeOptions, Device, Header};
use xtent_secret::SecretBytes;
use xtent_store::Access;

use crate::args::{
    ConfirmArgs, DeviceArgs, KdfArgs, NewKeyArgs, PassphraseArgs, UnlockArgs, parse_slot,
};
use crate::cli::Global;
use crate::confirm::confirm;
use crate::disk::Disk;
use crate::failure::{Failure, Result};
use crate::open::{
    metadata, passphrase_and_unlock, prompt, read_header, unlock_with_retries, while_deriving,
    with_retries,
};
use crate::output::Output;
use crate::secrets::Asked;

mod convert;
mod kill;
mod list;
mod unbound;

const MANUAL: &str = "\
EXAMPLES:
  Which keyslots are in use:
    xtent key list disk.img
  Replace a passphrase:
    xtent key change disk.img
  Let a key file open the volume too:
    dd if=/dev/urandom of=key bs=64 count=1
    xtent key add --new-key-file key disk.img

NOTES:
  Each key opens the same volume key: changing a key does not re-encrypt
  anything. Whoever knew a key, and has a copy of the header from that time, can
  still open the volume.

  Keys can be changed while the volume is served or mounted. At every instant
  the old or the new key works, a power failure included.";

const ADD_MANUAL: &str = "\
EXAMPLES:
  A second passphrase, both asked for:
    xtent key add disk.img
  From scripts, both from files:
    xtent key add --key-file old --new-key-file new disk.img
  A passphrase where none is left, with the volume key that was saved:
    xtent key add --volume-key-file volume.key disk.img
  Keep another key of 256 bits in the header, under its own passphrase:
    xtent key add --unbound --key-size 256 disk.img

NOTES:
  An unbound key does not open the volume: what it is for is its owner's
  business. `cryptsetup luksDump --unbound` gives it out again.";

const CHANGE_MANUAL: &str = "\
EXAMPLES:
  Another passphrase:
    xtent key change disk.img
  The same passphrase with a cheaper derivation, for a slower machine:
    xtent key change --iter-time 500 disk.img

NOTES:
  LUKS1 with all eight keyslots in use has no room to write the new key before
  the old one goes. It is refused, unless --unsafe-in-place accepts that a power
  failure in between loses this key (the others stay).";

const REMOVE_MANUAL: &str = "\
EXAMPLES:
  Remove the passphrase that is asked for:
    xtent key remove disk.img
  Remove a key file's key:
    xtent key remove --key-file key disk.img";

const TEST_MANUAL: &str = "\
EXAMPLES:
  Find out whether a passphrase is right, and which keyslot it opens:
    xtent key test disk.img
  In a script; exit code 0 or 2 is the answer:
    xtent key test --key-file key disk.img";

/// Add, change, remove and test the passphrases of a volume
#[derive(clap::Args, Debug)]
#[command(after_long_help = MANUAL)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    Add(Add),
    Change(Change),
    Convert(convert::Convert),
    Remove(Remove),
    Kill(kill::Kill),
    Test(Test),
    List(list::List),
}

/// Add a key
///
/// Needs an existing passphrase (or key file, or the volume key) besides the new
/// one.
#[derive(clap::Args, Debug)]
#[command(after_long_help = ADD_MANUAL)]
struct Add {
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    unlock: UnlockArgs,
    /// Store a key that is not the volume's: random, or from --volume-key-file
    #[arg(long)]
    unbound: bool,
    /// Bits of the unbound key
    #[arg(short = 's', long, value_name = "BITS", requires = "unbound", value_parser = clap::value_parser!(u32).range(8..=4096))]
    key_size: Option<u32>,
    #[command(flatten)]
    new: NewKeyArgs,
    /// Keyslot for the new key [default: the first free one]
    #[arg(long, value_name = "N", help_heading = "New passphrase", value_parser = parse_slot)]
    new_key_slot: Option<u32>,
    #[command(flatten)]
    kdf: KdfArgs,
}

/// Replace a key by another
///
/// The new key is written before the old one goes.
#[derive(clap::Args, Debug)]
#[command(after_long_help = CHANGE_MANUAL)]
struct Change {
    #[command(flatten)]
    device: DeviceArgs,
    /// LUKS1 with every keyslot in use: overwrite the key in place
    #[arg(long)]
    unsafe_in_place: bool,
    #[command(flatten)]
    unlock: PassphraseArgs,
    #[command(flatten)]
    new: NewKeyArgs,
    #[command(flatten)]
    kdf: KdfArgs,
}

/// Remove the key that a passphrase opens
#[derive(clap::Args, Debug)]
#[command(after_long_help = REMOVE_MANUAL)]
struct Remove {
    #[command(flatten)]
    device: DeviceArgs,
    /// Remove the last key too: the data is lost for good
    #[arg(long)]
    even_last: bool,
    #[command(flatten)]
    confirm: ConfirmArgs,
    #[command(flatten)]
    unlock: PassphraseArgs,
}

/// Find out whether a passphrase opens the volume, and by which keyslot
#[derive(clap::Args, Debug)]
#[command(after_long_help = TEST_MANUAL)]
struct Test {
    #[command(flatten)]
    device: DeviceArgs,
    /// Try unbound keyslots too, whose keys do not open the volume
    #[arg(long, conflicts_with = "volume_key_file")]
    unbound: bool,
    #[command(flatten)]
    unlock: UnlockArgs,
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    let output = global.output();
    match &args.action {
        Action::Add(args) if args.unbound => unbound::add(args, &output),
        Action::Add(args) => add(args, &output),
        Action::Change(args) => change(args, &output),
        Action::Convert(args) => convert::run(args, &output),
        Action::Remove(args) => remove(args, &output),
        Action::Kill(args) => kill::run(args, &output),
        Action::Test(args) => test(args, &output),
        Action::List(args) => list::run(args, &output),
    }
}

fn add(args: &Add, output: &Output) -> Result<()> {
    args.unlock.key.source().check()?;
    args.new.source().check()?;
    let (file, device) = metadata(&args.device, Access::ReadWrite)?;
    free(args, &read_header(&device, &file, output)?.keyslots())?;
    let found = unlock_with_retries(&device, &args.device.device, &args.unlock, output)?;
    let new = new_passphrase(args, &device, output)?;
    let kdf = args.kdf.choice();
    let slot = while_deriving(output, || {
        device.add_key(&found.unlocked, &new, args.new_key_slot, &kdf)
    })?;
    result(output, Some(slot), format!("Key added in keyslot {slot}."))
}

/// Whether the keyslot that was asked for can be had.
fn free(args: &Add, in_use: &[u32]) -> Result<()> {
    match args.new_key_slot {
        Some(slot) if in_use.contains(&slot) => Err(Failure::parameters(format!(
            "keyslot {slot} is in use already"
        ))
        .advise("Give another --new-key-slot, or none for the first free one.")),
        _ => Ok(()),
    }
}

fn new_passphrase(args: &Add, device: &Device, output: &Output) -> Result<SecretBytes> {
    let prompt = format!("New passphrase for {}: ", args.device.device.display());
    let typing = args.unlock.key.typing_time();
    let source = args.new.source();
    let asked = Asked::of_volume(&args.device.device, device, &source);
    source.read_new(&asked, &prompt, args.unlock.tries, typing, output)
}

fn change(args: &Change, output: &Output) -> Result<()> {
    args.unlock.key.source().check()?;
    args.new.source().check()?;
    let (file, device) = metadata(&args.device, Access::ReadWrite)?;
    read_header(&device, &file, output)?;
    // The old key is tried before the person has to invent a new one.
    let (old, unlocked) =
        passphrase_and_unlock(&device, &args.device.device, &args.unlock, output)?;
    let slot = unlocked.keyslot;
    drop(unlocked);
    let source = args.new.source();
    let new = source.read_new(
        &Asked::of_volume(&args.device.device, &device, &source),
        &format!("New passphrase for {}: ", args.device.device.display()),
        args.unlock.tries,
        args.unlock.key.typing_time(),
        output,
    )?;
    let options = ChangeOptions {
        allow_unsafe_in_place: args.unsafe_in_place,
    };
    let kdf = args.kdf.choice();
    let slot = while_deriving(output, || {
        device.change_key(&old, slot, &new, &kdf, options, &args.unlock.limits())
    })?;
    result(
        output,
        Some(slot),
        format!("Key changed; it is in keyslot {slot} now."),
    )
}

fn remove(args: &Remove, output: &Output) -> Result<()> {
    args.unlock.key.source().check()?;
    let (file, device) = metadata(&args.device, Access::ReadWrite)?;
    read_header(&device, &file, output)?;
    let (_, unlocked) = passphrase_and_unlock(&device, &args.device.device, &args.unlock, output)?;
    let Some(slot) = unlocked.keyslot else {
        return Err(Failure::parameters("no keyslot was opened"));
    };
    guard_last(
        &args.device,
        (&device, &file),
        slot,
        args.even_last,
        args.confirm,
        output,
    )?;
    device.remove_key(&unlocked, args.even_last)?;
    result(
        output,
        Some(slot),
        format!("Key of keyslot {slot} removed."),
    )
}

/// The keyslots that open the volume; unbound ones do not.
fn openers(header: &Header) -> Vec<u32> {
    let slots = header.keyslot_info().into_iter();
    slots
        .filter(|slot| slot.opens_volume)
        .map(|slot| slot.keyslot)
        .collect()
}

/// Refuses the last keyslot that opens the volume without its switch, and asks with it.
fn guard_last(
    args: &DeviceArgs,
    (device, file): (&Device, &Disk),
    slot: u32,
    even_last: bool,
    ask: ConfirmArgs,
    output: &Output,
) -> Result<()> {
    let quiet = Output {
        quiet: true,
        ..*output
    };
    let header = read_header(device, file, &quiet)?;
    if openers(&header) != [slot] {
        return Ok(());
    }
    let which = if header.keyslots().len() > 1 {
        "the last one that opens the volume (the others are unbound)"
    } else {
        "the last one"
    };
    if !even_last {
        return Err(Failure::parameters(format!(
            "keyslot {slot} is {which}; without it the data is lost for good"
        ))
        .advise("Give --even-last if that is wanted."));
    }
    confirm(
        ask,
        &format!(
            "Keyslot {slot} is {which} of {}: nobody will be able to read the data again.",
            args.metadata_name()
        ),
    )
}

fn test(args: &Test, output: &Output) -> Result<()> {
    args.unlock.key.source().check()?;
    let (file, device) = metadata(&args.device, Access::ReadOnly)?;
    read_header(&device, &file, output)?;
    let path = &args.device.device;
    if args.unbound {
        return test_unbound(args, &device, output);
    }
    let found = unlock_with_retries(&device, path, &args.unlock, output)?;
    let slot = found.unlocked.keyslot;
    let text = match (found.token, slot) {
        (_, None) => "The volume key is the right one.".to_owned(),
        (Some(token), Some(slot)) => format!("Token {token} opens keyslot {slot}."),
        (None, Some(slot)) => format!("The passphrase opens keyslot {slot}."),
    };
    output.done(
        &serde_json::json!({ "keyslot": slot, "token": found.token }),
        text,
    )
}

/// As cryptsetup's `open --test-passphrase --unbound`.
fn test_unbound(args: &Test, device: &Device, output: &Output) -> Result<()> {
    let key = &args.unlock.key;
    let asked = Asked::of_volume(&args.device.device, device, &key.source());
    let slot = with_retries(
        args.unlock.tries,
        key.source().is_interactive(),
        output,
        || {
            let passphrase = key.read(&prompt(&args.device.device), &asked)?;
            let limits = args.unlock.limits();
            let unlocked = while_deriving(output, || {
                device.unlock_any(&passphrase, args.unlock.key_slot, &limits)
            })?;
            Ok(unlocked.keyslot)
        },
    )?;
    let text = match slot {
        Some(slot) => format!("The passphrase opens keyslot {slot}."),
        None => "The passphrase opens a keyslot.".to_owned(),
    };
    output.done(&serde_json::json!({ "keyslot": slot, "token": null }), text)
}

/// The keyslot that it was about, if one was.
fn result(output: &Output, slot: Option<u32>, text: String) -> Result<()> {
    output.done(&serde_json::json!({ "keyslot": slot }), text)
}
