//! `xtent header pin`: what a header is, in one word.

use std::path::Path;

use xtent_luks::{Pin, PinScope};
use xtent_store::Access;

use crate::args::{DeviceArgs, RECONNECT};
use crate::disk::Disk;
use crate::failure::{Failure, Result};
use crate::open::{metadata, read_header};
use crate::output::Output;

const MANUAL: &str = "\
EXAMPLES:
  Note what the header is, where the storage's owner cannot change it, and insist on that:
    xtent header pin nbd://storage/volume >/etc/volume.pin
    xtent serve --expect-header @/etc/volume.pin nbd://storage/volume
  After a key was removed: refuse the header that it still opens
    xtent header pin --metadata disk.img

NOTES:
  A pin of the volume covers UUID, cipher, sector size, where the data is, IV offset and
  the digest of the volume key: whatever decides how ciphertext becomes plaintext. It holds
  while keys, tokens and labels change, and through `xtent convert`. So it does not notice
  that an older header with a key that was removed is back, or a token that was added.

  A pin of the metadata (--metadata) covers all of it, and breaks with every change of
  a key: pin anew after each.

  A pin says no secret. It is a word with a digest in it; what follows its first comma
  serves to name what has changed and may be cut off. docs/volumes.md says what the digest
  is of, so that other programs can compute it.

  --expect-header of `xtent header restore` is about the backup.";

/// Print what to pin of a header, for --expect-header
#[derive(clap::Args, Debug)]
#[command(after_long_help = MANUAL)]
pub(super) struct Args {
    #[command(flatten)]
    device: DeviceArgs,
    /// Pin all of the metadata, and not the volume alone
    #[arg(long)]
    metadata: bool,
    /// Print the digest alone, without what names a change
    #[arg(long)]
    short: bool,
}

pub(super) fn run(args: &Args, output: &Output) -> Result<()> {
    let (file, device) = metadata(&args.device, Access::ReadOnly)?;
    let scope = match args.metadata {
        true => PinScope::Metadata,
        false => PinScope::Volume,
    };
    let pin = read_header(&device, &file, output)?
        .pin(scope)
        .map_err(|e| Failure::of_metadata(e, file.path()))?;
    let text = match args.short {
        true => pin.short(),
        false => pin.to_string(),
    };
    output.result(&serde_json::json!({ "pin": text }), &text)
}

/// Fails unless a backup of a header is what is expected.
pub(super) fn expect_backup(args: &DeviceArgs, backup: &Path) -> Result<()> {
    let pins: Vec<Pin> = args.pins().cloned().collect();
    if pins.is_empty() {
        return Ok(());
    }
    let reconnect = std::time::Duration::from_secs(RECONNECT.into());
    let disk = Disk::open(backup, Access::ReadOnly, reconnect)?;
    let device = disk.metadata()?.expecting(&pins);
    device
        .read()
        .map(drop)
        .map_err(|e| Failure::of_metadata(e, backup))
}
