//! `xtent key`: the passphrases of a volume.

use xtent_luks::kdf::Argon2Cost;
use xtent_luks::{ChangeOptions, Device, Kdf, KeyslotInfo, Priority, Unlocked};
use xtent_store::{Access, FileStore};

use crate::args::{ConfirmArgs, DeviceArgs, KdfArgs, NewKeyArgs, PassphraseArgs, UnlockArgs};
use crate::cli::Global;
use crate::confirm::confirm;
use crate::failure::{Exit, Failure, Result};
use crate::open::{
    metadata, passphrase_and_unlock, prompt, read_header, unlock_with_retries, with_retries,
};
use crate::output::Output;

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
    xtent key add --key-file old --new-key-file new disk.img";

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

const KILL_MANUAL: &str = "\
EXAMPLES:
  Destroy keyslot 1, whose passphrase is lost; asks for one that stays:
    xtent key kill disk.img 1
  Destroy it without asking for anything:
    xtent key kill --batch-mode disk.img 1";

const TEST_MANUAL: &str = "\
EXAMPLES:
  Find out whether a passphrase is right, and which keyslot it opens:
    xtent key test disk.img
  In a script; exit code 0 or 2 is the answer:
    xtent key test --key-file key disk.img";

const LIST_MANUAL: &str = "\
EXAMPLES:
  xtent key list disk.img
  xtent key list --json disk.img | jq '.keyslots[].keyslot'";

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
    Remove(Remove),
    Kill(Kill),
    Test(Test),
    List(List),
}

/// Add a key
///
/// Needs an existing passphrase (or key file) besides the new one.
#[derive(clap::Args, Debug)]
#[command(after_long_help = ADD_MANUAL)]
struct Add {
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    unlock: UnlockArgs,
    #[command(flatten)]
    new: NewKeyArgs,
    /// Keyslot for the new key [default: the first free one]
    #[arg(long, value_name = "N", help_heading = "New passphrase", value_parser = clap::value_parser!(u32).range(0..32))]
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

/// Destroy a keyslot by its number
///
/// Asks for a passphrase of another keyslot, so that no volume is locked up by a
/// typing error; with --batch-mode it does not.
#[derive(clap::Args, Debug)]
#[command(after_long_help = KILL_MANUAL)]
struct Kill {
    #[command(flatten)]
    device: DeviceArgs,
    /// The keyslot to destroy
    #[arg(value_name = "SLOT", value_parser = clap::value_parser!(u32).range(0..32))]
    slot: u32,
    /// Destroy the last keyslot too: the data is lost for good
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
    #[command(flatten)]
    unlock: UnlockArgs,
}

/// List the keyslots in use
#[derive(clap::Args, Debug)]
#[command(after_long_help = LIST_MANUAL)]
struct List {
    #[command(flatten)]
    device: DeviceArgs,
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    let output = global.output();
    match &args.action {
        Action::Add(args) => add(args, &output),
        Action::Change(args) => change(args, &output),
        Action::Remove(args) => remove(args, &output),
        Action::Kill(args) => kill(args, &output),
        Action::Test(args) => test(args, &output),
        Action::List(args) => list(args, &output),
    }
}

fn add(args: &Add, output: &Output) -> Result<()> {
    args.unlock.key.source().check()?;
    args.new.source().check()?;
    let (file, device) = metadata(&args.device, Access::ReadWrite)?;
    let in_use = read_header(&device, &file, output)?.keyslots();
    if let Some(slot) = args.new_key_slot
        && in_use.contains(&slot)
    {
        return Err(
            Failure::parameters(format!("keyslot {slot} is in use already"))
                .advise("Give another --new-key-slot, or none for the first free one."),
        );
    }
    let opened = unlock_with_retries(&device, &args.device.device, &args.unlock, output)?;
    let new = args.new.source().read_new(&format!(
        "New passphrase for {}: ",
        args.device.device.display()
    ))?;
    let slot = device.add_key(
        &opened.unlocked,
        &new,
        args.new_key_slot,
        &args.kdf.choice(),
    )?;
    result(output, slot, format!("Key added in keyslot {slot}."))
}

fn change(args: &Change, output: &Output) -> Result<()> {
    args.unlock.key.source().check()?;
    args.new.source().check()?;
    let (file, device) = metadata(&args.device, Access::ReadWrite)?;
    read_header(&device, &file, output)?;
    // The old key is tried before the person has to invent a new one.
    let (old, unlocked) =
        passphrase_and_unlock(&device, &args.device.device, &args.unlock, output)?;
    let slot = Some(unlocked.keyslot);
    drop(unlocked);
    let new = args.new.source().read_new(&format!(
        "New passphrase for {}: ",
        args.device.device.display()
    ))?;
    let options = ChangeOptions {
        allow_unsafe_in_place: args.unsafe_in_place,
    };
    let kdf = args.kdf.choice();
    let slot = device.change_key(&old, slot, &new, &kdf, options, &args.unlock.limits())?;
    result(
        output,
        slot,
        format!("Key changed; it is in keyslot {slot} now."),
    )
}

fn remove(args: &Remove, output: &Output) -> Result<()> {
    args.unlock.key.source().check()?;
    let (file, device) = metadata(&args.device, Access::ReadWrite)?;
    read_header(&device, &file, output)?;
    let (_, unlocked) = passphrase_and_unlock(&device, &args.device.device, &args.unlock, output)?;
    let slot = unlocked.keyslot;
    guard_last(&device, &file, slot, args.even_last, args.confirm, output)?;
    device.remove_key(&unlocked, args.even_last)?;
    result(output, slot, format!("Key of keyslot {slot} removed."))
}

fn kill(args: &Kill, output: &Output) -> Result<()> {
    args.unlock.key.source().check()?;
    let (file, device) = metadata(&args.device, Access::ReadWrite)?;
    let in_use = read_header(&device, &file, output)?.keyslots();
    if !in_use.contains(&args.slot) {
        return Err(Failure::parameters(format!(
            "keyslot {} of {} is not in use",
            args.slot,
            args.device.device.display()
        )));
    }
    let is_last = in_use == [args.slot];
    guard_last(
        &device,
        &file,
        args.slot,
        args.even_last,
        args.confirm,
        output,
    )?;
    let key_given = !args.unlock.key.source().is_default();
    if !is_last && (key_given || !args.confirm.batch_mode) {
        unlock_other(args, &device, &in_use, output)?;
    }
    device.kill_slot(args.slot, args.even_last)?;
    result(
        output,
        args.slot,
        format!("Keyslot {} destroyed.", args.slot),
    )
}

/// Refuses the last keyslot without its switch, and asks with it.
fn guard_last(
    device: &Device,
    file: &FileStore,
    slot: u32,
    even_last: bool,
    ask: ConfirmArgs,
    output: &Output,
) -> Result<()> {
    if read_header(
        device,
        file,
        &Output {
            quiet: true,
            ..*output
        },
    )?
    .keyslots()
        != [slot]
    {
        return Ok(());
    }
    if !even_last {
        return Err(Failure::parameters(format!(
            "keyslot {slot} is the last one; without it the data is lost for good"
        ))
        .advise("Give --even-last if that is wanted."));
    }
    confirm(
        ask,
        &format!(
            "Keyslot {slot} is the last one of {}: nobody will be able to read the data again.",
            file.path().display()
        ),
    )
}

/// A passphrase that will still open the volume afterwards.
fn unlock_other(args: &Kill, device: &Device, in_use: &[u32], output: &Output) -> Result<Unlocked> {
    let source = args.unlock.key.source();
    let question = format!(
        "{} (any but that of keyslot {}) ",
        prompt(&args.device.device),
        args.slot
    );
    if args.unlock.key_slot == Some(args.slot) {
        return Err(Failure::parameters(
            "--key-slot names the keyslot to be destroyed; name one that stays",
        ));
    }
    with_retries(args.unlock.tries, source.is_interactive(), output, || {
        let passphrase = source.read(&question)?;
        let mut wrong = None;
        for &slot in in_use {
            if slot == args.slot || args.unlock.key_slot.is_some_and(|only| only != slot) {
                continue;
            }
            match device.unlock(&passphrase, Some(slot), &args.unlock.limits()) {
                Err(e) if e.kind == xtent_luks::ErrorKind::WrongPassphrase => wrong = Some(e),
                other => return Ok(other?),
            }
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

fn test(args: &Test, output: &Output) -> Result<()> {
    args.unlock.key.source().check()?;
    let (file, device) = metadata(&args.device, Access::ReadOnly)?;
    read_header(&device, &file, output)?;
    let opened = unlock_with_retries(&device, &args.device.device, &args.unlock, output)?;
    let slot = opened.unlocked.keyslot;
    output.result(
        &serde_json::json!({ "keyslot": slot, "token": opened.token }),
        match opened.token {
            Some(token) => format!("Token {token} opens keyslot {slot}."),
            None => format!("The passphrase opens keyslot {slot}."),
        },
    )
}

fn list(args: &List, output: &Output) -> Result<()> {
    let (file, device) = metadata(&args.device, Access::ReadOnly)?;
    let header = read_header(&device, &file, output)?;
    let slots = header.keyslot_info();
    let text = match slots.len() {
        0 => "No keyslot is in use: nobody can open the volume.".to_owned(),
        _ => slots.iter().map(line).collect::<Vec<_>>().join("\n"),
    };
    let objects: Vec<_> = slots
        .iter()
        .map(|slot| {
            serde_json::json!({
                "keyslot": slot.keyslot,
                "type": slot.kind,
                "kdf": slot.kdf.as_ref().map(cost),
                "priority": slot.priority,
                "opens_volume": slot.opens_volume,
            })
        })
        .collect();
    output.result(
        &serde_json::json!({ "uuid": header.uuid(), "keyslots": objects }),
        text,
    )
}

/// `keyslot 0: argon2id, 4 passes, 1048576 KiB, 4 threads`
fn line(slot: &KeyslotInfo) -> String {
    let mut text = format!("keyslot {}: ", slot.keyslot);
    text.push_str(
        &slot
            .kdf
            .as_ref()
            .map_or_else(|| slot.kind.escape_debug().to_string(), cost),
    );
    match slot.priority {
        Priority::Normal => {}
        Priority::Prefer => text.push_str(", tried first"),
        Priority::Ignore => text.push_str(", tried only when named"),
    }
    if !slot.opens_volume {
        text.push_str(", does not open the volume");
    }
    text
}

fn cost(kdf: &Kdf) -> String {
    let argon2 = |name: &str, cost: &Argon2Cost| {
        format!(
            "{name}, {} passes, {} KiB, {} threads",
            cost.time, cost.memory, cost.cpus
        )
    };
    match kdf {
        Kdf::Pbkdf2 { hash, iterations } => format!("pbkdf2-{hash}, {iterations} iterations"),
        Kdf::Argon2i(cost) => argon2("argon2i", cost),
        Kdf::Argon2id(cost) => argon2("argon2id", cost),
    }
}

fn result(output: &Output, slot: u32, text: String) -> Result<()> {
    output.done(&serde_json::json!({ "keyslot": slot }), text)
}
