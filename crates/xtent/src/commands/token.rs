//! `xtent token`: LUKS2's notes on how a program gets at a passphrase.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use xtent_store::Access;

use crate::args::{DeviceArgs, parse_slot};
use crate::cli::Global;
use crate::failure::{Exit, Failure, Result};
use crate::open::{metadata, read_header};
use crate::output::Output;

/// Bytes that no token has: those of the largest header.
const LARGEST: u64 = 4 << 20;

const MANUAL: &str = "\
EXAMPLES:
  Which tokens there are, and for which keyslots:
    xtent token list disk.img
  Copy token 0 from one header to another:
    xtent token export --token-id 0 old.img | xtent token import new.img
  Have the passphrase of keyslot 1 taken from the kernel's keyring:
    xtent token add --key-description backup --key-slot 1 disk.img

NOTES:
  A token says how some program gets at the passphrase of a keyslot: from the
  kernel's keyring (luks2-keyring), a TPM (systemd-tpm2), a network (clevis). It
  opens nothing by itself. Xtent keeps what is in one byte by byte, and
  `cryptsetup token` reads and writes the same. Removing a keyslot takes it off
  every token; removing a token leaves its keyslots. LUKS2 only.";

const ADD_MANUAL: &str = "\
EXAMPLES:
  xtent token add --key-description backup disk.img
  xtent token add --key-description backup --key-slot 1 --token-id 3 disk.img";

const LIST_MANUAL: &str = "\
EXAMPLES:
  xtent token list disk.img
  xtent token list --json disk.img | jq '.tokens[].type'";

const IMPORT_MANUAL: &str = "\
EXAMPLES:
  xtent token import --json-file token.json disk.img
  echo '{\"type\":\"mine\",\"keyslots\":[\"0\"]}' | xtent token import disk.img";

const EXPORT_MANUAL: &str = "\
EXAMPLES:
  xtent token export --token-id 0 disk.img
  xtent token export --token-id 0 --json-file token.json disk.img";

const REMOVE_MANUAL: &str = "\
EXAMPLES:
  xtent token remove --token-id 0 disk.img";

const ASSIGN_MANUAL: &str = "\
EXAMPLES:
  xtent token assign --token-id 0 --key-slot 2 disk.img";

const UNASSIGN_MANUAL: &str = "\
EXAMPLES:
  xtent token unassign --token-id 0 --key-slot 2 disk.img";

/// Add, list, import, export and remove LUKS2 tokens
#[derive(clap::Args, Debug)]
#[command(after_long_help = MANUAL)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    Add(Add),
    List(List),
    Import(Import),
    Export(Export),
    Remove(Remove),
    Assign(Assign),
    Unassign(Unassign),
}

/// Add a token of type luks2-keyring
///
/// It says that the passphrase is a key in the kernel's keyring.
#[derive(clap::Args, Debug)]
#[command(after_long_help = ADD_MANUAL)]
struct Add {
    #[command(flatten)]
    device: DeviceArgs,
    /// Description of the key in the kernel's keyring
    #[arg(long, value_name = "TEXT")]
    key_description: String,
    /// The keyslot that the token is for [default: all in use]
    #[arg(short = 'S', long, value_name = "N", value_parser = parse_slot)]
    key_slot: Option<u32>,
    /// Number of the token [default: the first free one]
    #[arg(long, value_name = "N", value_parser = parse_slot)]
    token_id: Option<u32>,
}

/// List the tokens
#[derive(clap::Args, Debug)]
#[command(after_long_help = LIST_MANUAL)]
struct List {
    #[command(flatten)]
    device: DeviceArgs,
}

/// Store a token from JSON
///
/// The object needs a "type" and "keyslots", an array of numbers as texts,
/// all of them in use. It is stored as it is.
#[derive(clap::Args, Debug)]
#[command(after_long_help = IMPORT_MANUAL)]
struct Import {
    #[command(flatten)]
    device: DeviceArgs,
    /// The file with the JSON object; `-` is standard input
    #[arg(long, value_name = "FILE", default_value = "-")]
    json_file: PathBuf,
    /// Number of the token [default: the first free one]
    #[arg(long, value_name = "N", value_parser = parse_slot)]
    token_id: Option<u32>,
    /// Replace the token that has the number
    #[arg(long, requires = "token_id")]
    token_replace: bool,
}

/// Write a token as JSON
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXPORT_MANUAL)]
struct Export {
    #[command(flatten)]
    device: DeviceArgs,
    /// Number of the token
    #[arg(long, value_name = "N", value_parser = parse_slot)]
    token_id: u32,
    /// New file, readable for its owner only; `-` is standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    json_file: PathBuf,
}

/// Remove a token; its keyslots stay
#[derive(clap::Args, Debug)]
#[command(after_long_help = REMOVE_MANUAL)]
struct Remove {
    #[command(flatten)]
    device: DeviceArgs,
    /// Number of the token
    #[arg(long, value_name = "N", value_parser = parse_slot)]
    token_id: u32,
}

/// Make a token be for one more keyslot
#[derive(clap::Args, Debug)]
#[command(after_long_help = ASSIGN_MANUAL)]
struct Assign {
    #[command(flatten)]
    device: DeviceArgs,
    /// Number of the token
    #[arg(long, value_name = "N", value_parser = parse_slot)]
    token_id: u32,
    /// The keyslot
    #[arg(short = 'S', long, value_name = "N", value_parser = parse_slot)]
    key_slot: u32,
}

/// Make a token be for a keyslot no longer
#[derive(clap::Args, Debug)]
#[command(after_long_help = UNASSIGN_MANUAL)]
struct Unassign {
    #[command(flatten)]
    device: DeviceArgs,
    /// Number of the token
    #[arg(long, value_name = "N", value_parser = parse_slot)]
    token_id: u32,
    /// The keyslot
    #[arg(short = 'S', long, value_name = "N", value_parser = parse_slot)]
    key_slot: u32,
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    let output = global.output();
    match &args.action {
        Action::Add(args) => add(args, &output),
        Action::List(args) => list(args, &output),
        Action::Import(args) => import(args, &output),
        Action::Export(args) => export(args, &output),
        Action::Remove(args) => remove(args, &output),
        Action::Assign(args) => assign(args, &output),
        Action::Unassign(args) => unassign(args, &output),
    }
}

fn add(args: &Add, output: &Output) -> Result<()> {
    let (file, device) = metadata(&args.device, Access::ReadWrite)?;
    read_header(&device, &file, output)?;
    let slots = args.key_slot.as_ref().map(std::slice::from_ref);
    let id = device.add_keyring_token(&args.key_description, slots, args.token_id)?;
    result(output, id, format!("Token {id} added."))
}

fn list(args: &List, output: &Output) -> Result<()> {
    let (file, device) = metadata(&args.device, Access::ReadOnly)?;
    let header = read_header(&device, &file, output)?;
    let tokens = header.tokens()?;
    let text = if tokens.is_empty() {
        "There is no token.".to_owned()
    } else {
        let line = |token: &xtent_luks::Token| {
            let slots: Vec<String> = token.keyslots.iter().map(u32::to_string).collect();
            let kind = token.kind.escape_debug();
            match slots.len() {
                0 => format!("token {}: {kind}, for no keyslot", token.id),
                1 => format!("token {}: {kind}, for keyslot {}", token.id, slots[0]),
                _ => format!(
                    "token {}: {kind}, for keyslots {}",
                    token.id,
                    slots.join(", ")
                ),
            }
        };
        tokens.iter().map(line).collect::<Vec<_>>().join("\n")
    };
    let objects: Vec<_> = tokens
        .iter()
        .map(|token| {
            serde_json::json!({
                "token": token.id,
                "type": token.kind,
                "keyslots": token.keyslots,
            })
        })
        .collect();
    output.result(
        &serde_json::json!({ "uuid": header.uuid(), "tokens": objects }),
        text,
    )
}

fn import(args: &Import, output: &Output) -> Result<()> {
    let (file, device) = metadata(&args.device, Access::ReadWrite)?;
    read_header(&device, &file, output)?;
    let json = read_json(&args.json_file)?;
    let id = device.import_token(&json, args.token_id, args.token_replace)?;
    result(output, id, format!("Token {id} stored."))
}

fn export(args: &Export, output: &Output) -> Result<()> {
    let (file, device) = metadata(&args.device, Access::ReadOnly)?;
    let tokens = read_header(&device, &file, output)?.tokens()?;
    let token = tokens
        .iter()
        .find(|token| token.id == args.token_id)
        .ok_or_else(|| Failure::parameters(format!("token {} is not in use", args.token_id)))?;
    if args.json_file == Path::new("-") {
        return output.line(&token.json);
    }
    let path = &args.json_file;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(|e| Failure::system(format!("cannot make {}", path.display()), e))?;
    file.write_all(token.json.as_bytes())
        .and_then(|()| file.write_all(b"\n"))
        .and_then(|()| file.sync_all())
        .map_err(|e| Failure::system(format!("cannot write {}", path.display()), e))?;
    result(
        output,
        token.id,
        format!("Token {} saved to {}.", token.id, path.display()),
    )
}

fn remove(args: &Remove, output: &Output) -> Result<()> {
    let (file, device) = metadata(&args.device, Access::ReadWrite)?;
    read_header(&device, &file, output)?;
    device.remove_token(args.token_id)?;
    let id = args.token_id;
    result(output, id, format!("Token {id} removed."))
}

fn assign(args: &Assign, output: &Output) -> Result<()> {
    let (file, device) = metadata(&args.device, Access::ReadWrite)?;
    read_header(&device, &file, output)?;
    let (id, slot) = (args.token_id, args.key_slot);
    device.assign_token(id, Some(slot))?;
    result(output, id, format!("Token {id} is for keyslot {slot} now."))
}

fn unassign(args: &Unassign, output: &Output) -> Result<()> {
    let (file, device) = metadata(&args.device, Access::ReadWrite)?;
    read_header(&device, &file, output)?;
    let (id, slot) = (args.token_id, args.key_slot);
    device.unassign_token(id, slot)?;
    result(
        output,
        id,
        format!("Token {id} is for keyslot {slot} no longer."),
    )
}

/// The whole of a file or standard input, which must be text.
fn read_json(path: &Path) -> Result<String> {
    let is_stdin = path == Path::new("-");
    let name = if is_stdin {
        "standard input".to_owned()
    } else {
        path.display().to_string()
    };
    let mut bytes = Vec::new();
    let read = if is_stdin {
        std::io::stdin()
            .lock()
            .take(LARGEST)
            .read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(LARGEST).read_to_end(&mut bytes))
    };
    read.map_err(|e| Failure::system(format!("cannot read {name}"), e))?;
    if bytes.is_empty() {
        return Err(Failure::parameters(format!("{name} is empty"))
            .advise("Give the token as a JSON object; `xtent token export` writes one."));
    }
    String::from_utf8(bytes)
        .map_err(|e| Failure::new(Exit::Parameters, format!("{name} is no UTF-8 text")).because(e))
}

fn result(output: &Output, id: u32, text: String) -> Result<()> {
    output.done(&serde_json::json!({ "token": id }), text)
}
