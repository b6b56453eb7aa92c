//! `xtent decrypt`: copies a volume's plaintext out.

use std::path::{Path, PathBuf};

use xtent_store::{Access, FileStore, Store};
use xtent_volume::{CipherThreads, DiscardPolicy};

use super::encrypt::refuse_same;
use crate::args::{ConfirmArgs, DeviceArgs, UnlockArgs};
use crate::cli::Global;
use crate::confirm::confirm;
use crate::copy::{catch_interruptions, copy};
use crate::failure::{Exit, Failure, Result};
use crate::open::Container;
use crate::output::text_of;
use crate::probe;

const MANUAL: &str = "\
EXAMPLES:
  Get the plaintext as an image file:
    xtent decrypt secret.img disk.raw
  Write it to a disk, which loses what is on it:
    xtent decrypt secret.img /dev/sdX

NOTES:
  The target is as secret as the volume; a new file is readable for its owner
  only. If it stops half way the target is incomplete, and is left there.
  The volume must not be served or mounted for writing meanwhile.";

/// Copy a volume's plaintext to a file or device
///
/// A new file is made, or an existing block device overwritten after a
/// question. The volume is opened read-only. The data is on the disk when the
/// command ends.
#[derive(clap::Args, Debug)]
#[command(after_long_help = MANUAL)]
pub(crate) struct Args {
    #[command(flatten)]
    device: DeviceArgs,
    /// New file, or block device to overwrite
    target: PathBuf,
    /// Overwrite an existing regular file
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    confirm: ConfirmArgs,
    #[command(flatten)]
    unlock: UnlockArgs,
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    let output = global.output();
    args.unlock.key.source().check()?;
    let container = Container::open(&args.device, Access::ReadOnly, true, &output)?;
    let config = container.plan(true, DiscardPolicy::Never, global.cpu)?;
    refuse_same(&args.device.device, &args.target)?;
    if let Some(header) = &args.device.detached.header {
        refuse_same(header, &args.target)?;
    }
    let existing = existing_target(args, config.length)?;

    let volume = container
        .volume(&args.unlock, &config, &output)?
        .with_cipher_threads(CipherThreads::Auto);
    let size = volume.size();
    let is_new = existing.is_none();
    let target = match existing {
        Some(store) => overwritten(store, &args.target, size)?,
        None => FileStore::create(&args.target, size)?,
    };
    reserve(&target, size).inspect_err(|_| {
        if is_new {
            let _ = std::fs::remove_file(&args.target);
        }
    })?;
    catch_interruptions()?;
    let moved = copy(
        size,
        &output,
        &format!("{} is incomplete.", args.target.display()),
        |piece, offset| Ok(volume.read_at(piece, offset)?),
        |piece, offset| Ok(target.write_at(piece, offset)?),
        || Ok(target.flush()?),
    )?;
    output.result(
        &serde_json::json!({
            "target": text_of(&args.target),
            "bytes": moved.bytes,
            "seconds": moved.elapsed.as_secs_f64(),
        }),
        format!("Decrypted {}.", moved.summary()),
    )
}

/// Decides what to do with a target that exists; nothing is changed yet.
fn existing_target(args: &Args, size: u64) -> Result<Option<FileStore>> {
    let path = &args.target;
    if !path
        .try_exists()
        .map_err(|e| Failure::system(format!("cannot look at {}", path.display()), e))?
    {
        return Ok(None);
    }
    let is_file = path.is_file();
    if is_file && !args.force {
        return Err(
            Failure::new(Exit::Busy, format!("{} exists already", path.display()))
                .advise("Give another name, or --force to overwrite it."),
        );
    }
    let store = FileStore::open(path, Access::ReadWrite)?;
    store.lock_for_serving()?;
    if !is_file {
        if store.size() < size {
            return Err(Failure::new(
                Exit::Device,
                format!(
                    "{} has {} bytes, too few for the volume's {size}",
                    path.display(),
                    store.size()
                ),
            ));
        }
        let found =
            probe::describe(&store).map_or(String::new(), |w| format!(" It holds {w} now."));
        confirm(
            args.confirm,
            &format!(
                "This will overwrite data on {} irrevocably.{found}",
                path.display()
            ),
        )?;
    }
    Ok(Some(store))
}

/// Brings an existing regular file to `size`; a block device stays as it is.
fn overwritten(store: FileStore, path: &Path, size: u64) -> Result<FileStore> {
    if store.is_block_device() {
        return Ok(store);
    }
    let file = store.file();
    file.set_len(0)
        .and_then(|()| file.set_len(size))
        .map_err(|e| Failure::system(format!("cannot resize {}", path.display()), e))?;
    let resized = FileStore::open(path, Access::ReadWrite)?;
    drop(store);
    resized.lock_for_serving()?;
    Ok(resized)
}

/// Makes sure that there is room for everything before anything is copied.
/// File systems that cannot reserve are taken at their word.
fn reserve(target: &FileStore, size: u64) -> Result<()> {
    use rustix::io::Errno;
    if size == 0 || target.is_block_device() {
        return Ok(());
    }
    match rustix::fs::fallocate(target.file(), rustix::fs::FallocateFlags::empty(), 0, size) {
        Err(e @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => Err(Failure::system(
            format!(
                "{}: there is no room for {size} bytes",
                target.path().display()
            ),
            e,
        )),
        _ => Ok(()),
    }
}
