//! `xtent encrypt`: copies a plain image into a volume.

use std::path::{Path, PathBuf};

use xtent_store::{Access, FileStore, Store};
use xtent_volume::{CipherThreads, DiscardPolicy};

use crate::args::{DeviceArgs, UnlockArgs};
use crate::cli::Global;
use crate::copy::{catch_interruptions, copy};
use crate::failure::{Exit, Failure, Result};
use crate::open::Container;
use crate::same::share_storage;
use crate::size::show_size;

const MANUAL: &str = "\
EXAMPLES:
  Make a volume just large enough for an image and fill it:
    xtent format --size $(stat -c %s disk.raw) secret.img
    xtent encrypt disk.raw secret.img

NOTES:
  The source is only read, and stays as it is: destroying the plaintext
  afterwards is left to you (on flash storage overwriting does not do it).

  If it stops half way the volume holds part of the image; run it again.
  While it runs the volume cannot be served or mounted.";

/// Copy a plain image or device into a volume
///
/// The volume must exist (see `xtent format`) and be at least as large as the
/// source. Whatever it held is overwritten; if it is larger, the rest of it
/// stays as it is. The data is on the disk when the command ends.
#[derive(clap::Args, Debug)]
#[command(after_long_help = MANUAL)]
pub(crate) struct Args {
    /// Plain image file or block device to read
    source: PathBuf,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    unlock: UnlockArgs,
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    let output = global.output();
    args.unlock.key.source().check()?;
    let source = FileStore::open(&args.source, Access::ReadOnly)?;
    refuse_same(&args.source, &args.device.device)?;
    let container = Container::open(&args.device, Access::ReadWrite, true, &output)?;
    let config = container.plan(false, DiscardPolicy::Never, global.cpu)?;
    let size = source.size();
    if size > config.length {
        return Err(Failure::new(
            Exit::Device,
            format!(
                "{} has {size} bytes, but the volume on {} holds only {}",
                args.source.display(),
                args.device.device.display(),
                config.length
            ),
        )
        .advise("Nothing was changed. Make a larger volume with `xtent format --size`."));
    }
    if size < config.length {
        output.warn(format!(
            "the source is smaller than the volume: its last {} stay as they are",
            show_size(config.length - size)
        ));
    }
    let volume = container
        .volume(&args.unlock, &config, &output)?
        .with_cipher_threads(CipherThreads::Auto);
    catch_interruptions()?;
    let moved = copy(
        size,
        &output,
        "The volume is incomplete; run it again.",
        |piece, offset| Ok(source.read_at(piece, offset)?),
        |piece, offset| Ok(volume.write_at_in_place(piece, offset, false)?),
        || Ok(volume.flush()?),
    )?;
    output.result(
        &serde_json::json!({
            "bytes": moved.bytes,
            "seconds": moved.elapsed.as_secs_f64(),
        }),
        format!("Encrypted {}.", moved.summary()),
    )
}

/// Refuses to read and write the same storage, by whatever names.
pub(super) fn refuse_same(source: &Path, target: &Path) -> Result<()> {
    if share_storage(source, target) {
        return Err(Failure::parameters(format!(
            "{} and {} are the same, or one is part of the other; nothing was changed",
            source.display(),
            target.display()
        )));
    }
    Ok(())
}
