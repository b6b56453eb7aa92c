//! `xtent key list`.

use xtent_luks::kdf::Argon2Cost;
use xtent_luks::{Kdf, KeyslotInfo, Priority};
use xtent_store::Access;

use crate::args::DeviceArgs;
use crate::failure::Result;
use crate::open::{metadata, read_header};
use crate::output::Output;

const LIST_MANUAL: &str = "\
EXAMPLES:
  xtent key list disk.img
  xtent key list --json disk.img | jq '.keyslots[].keyslot'

NOTES:
  With --json each keyslot's \"kdf\" has fields: type, and hash and iterations
  (pbkdf2) or time (passes), memory (KiB) and cpus (threads). `xtent header dump
  --json` has the same.";

/// List the keyslots in use
#[derive(clap::Args, Debug)]
#[command(after_long_help = LIST_MANUAL)]
pub(super) struct List {
    #[command(flatten)]
    device: DeviceArgs,
}

pub(super) fn run(args: &List, output: &Output) -> Result<()> {
    let (file, device) = metadata(&args.device, Access::ReadOnly)?;
    let header = read_header(&device, &file, output)?;
    let slots = header.keyslot_info();
    let text = match slots.len() {
        0 => format!("No keyslot is in use: {NO_PASSPHRASE}"),
        _ => slots.iter().map(line).collect::<Vec<_>>().join("\n"),
    };
    if !slots.is_empty() && slots.iter().all(|slot| !slot.opens_volume) {
        output.warn(format!("no keyslot opens the volume: {NO_PASSPHRASE}"));
    }
    let objects: Vec<_> = slots
        .iter()
        .map(|slot| {
            serde_json::json!({
                "keyslot": slot.keyslot,
                "type": slot.kind,
                "kdf": slot.kdf,
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

/// What is left where no passphrase opens the volume.
const NO_PASSPHRASE: &str = "no passphrase opens the volume. The volume key does \
    (--volume-key-file), if it was saved, and so does a backup of the header \
    (`xtent header restore`).";

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
        Kdf::Pbkdf2 { hash, iterations } => {
            format!("pbkdf2-{}, {iterations} iterations", hash.escape_debug())
        }
        Kdf::Argon2i(cost) => argon2("argon2i", cost),
        Kdf::Argon2id(cost) => argon2("argon2id", cost),
    }
}
