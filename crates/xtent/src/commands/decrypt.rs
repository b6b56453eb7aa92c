//! `xtent decrypt`: copies a volume's plaintext out.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use clap::ValueHint;
use clap::builder::{PathBufValueParser, TypedValueParser};
use xtent_store::{Access, FileStore};
use xtent_volume::{CipherThreads, DiscardPolicy, Volume};

use super::encrypt::{refuse_key, refuse_shared};
use crate::args::{ConfirmArgs, DeviceArgs, HolesArgs, ProgressArgs, UnlockArgs};
use crate::cli::Global;
use crate::confirm::confirm;
use crate::copy::{self, Moved, Progress};
use crate::disk::{Disk, is_uri};
use crate::failure::{Exit, Failure, Result};
use crate::headerless::{Closed, PlainArgs};
use crate::old_volume::OldVolume;
use crate::output::{Output, complain, text_of};
use crate::plain::{Place, Stream};
use crate::probe;
use crate::same::refuse_attached;
use crate::secrets::Stored;
use crate::sparse::{self, Sparse};

const MANUAL: &str = "\
EXAMPLES:
  Get the plaintext as an image file:
    xtent decrypt secret.img disk.raw
  Write it to a disk, which loses what is on it:
    xtent decrypt secret.img /dev/sdX
  Send it to another program, without a plain copy on the disk:
    xtent decrypt secret.img - | zstd >disk.raw.zst
  A volume of plain dm-crypt, by the defaults of old cryptsetup:
    xtent decrypt --type plain --cipher aes-cbc-essiv:sha256 --key-size 256 \\
      --hash ripemd160 old.img disk.raw

NOTES:
  TARGET may be `-` (a file of that name is `./-`), a FIFO, /dev/fd/N, or >(...)
  of a shell; it must not be a terminal. Standard output then gets the plaintext
  and nothing else: the summary, or with --json the result, goes to standard error.

  The target is as secret as the volume; the file is readable for its owner
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
    /// New file, or block device, NBD URI or rbd:POOL/IMAGE to overwrite; `-` is standard output
    #[arg(value_parser = PathBufValueParser::new().try_map(Place::target), value_hint = ValueHint::FilePath)]
    target: Place,
    /// When zeros of the plaintext are left as holes in TARGET
    ///
    /// With always, a block device is asked to zero those ranges, which thin and
    /// flash storage does without writing; where it cannot, zeros are written.
    #[arg(long, value_name = "WHEN", default_value = "auto", num_args = 0..=1, default_missing_value = "always", require_equals = true)]
    sparse: Sparse,
    /// Overwrite an existing regular file
    ///
    /// Its group and all others lose their permissions on it first; whoever has it open
    /// keeps that. A file that holds a LUKS volume is refused: remove it first.
    #[arg(long)]
    force: bool,
    /// Overwrite a LUKS volume on a TARGET that is no regular file
    ///
    /// Without it the command asks for the UUID of the volume that would be lost, and fails
    /// where it cannot ask, or with --batch-mode.
    #[arg(long)]
    overwrite_luks: bool,
    #[command(flatten)]
    holes: HolesArgs,
    #[command(flatten)]
    confirm: ConfirmArgs,
    #[command(flatten)]
    unlock: UnlockArgs,
    #[command(flatten)]
    plain: PlainArgs,
    #[command(flatten)]
    progress: ProgressArgs,
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    let output = global.output();
    args.unlock.key.source().check()?;
    let container = Closed::open(
        &args.device,
        &args.plain,
        &args.unlock,
        Access::ReadOnly,
        &output,
    )?;
    if let Err(failure) = container.refuse_waited_for() {
        output.warn(format!("{}: what waits there is not read", failure.message));
    }
    let mut config = container.plan(true, DiscardPolicy::Never, global.cpu)?;
    config.holes = args.holes.holes();
    refuse_shared(&args.target, &args.device.device)?;
    if let Some(header) = &args.device.detached.header {
        refuse_shared(&args.target, header)?;
    }
    for key in keys(&args.unlock) {
        refuse_key(&args.target.name(), args.target.metadata(), &key)?;
    }
    if args.target.is_stream() {
        let stream = args.target.open_target()?;
        let volume = container
            .volume(&args.unlock, &config, &output)?
            .with_cipher_threads(CipherThreads::Auto);
        return to_stream(args, &volume, &stream, &output);
    }
    let path = args.target.path();
    let existing = existing_target(args, config.length)?;

    let volume = container
        .volume(&args.unlock, &config, &output)?
        .with_cipher_threads(CipherThreads::Auto);
    let size = volume.size();
    let is_new = existing.is_none();
    // From here on there may be something that is incomplete, which is said.
    let progress = start(args, size, &output);
    progress.stop_on_signals()?;
    let target = match existing {
        Some(store) => overwritten(store, path, size).map_err(|it| progress.explain(it))?,
        None => FileStore::create(path, size)?.into(),
    };
    if args.sparse != Sparse::Always {
        reserve(&target, size, args.sparse).map_err(|failure| {
            if is_new {
                let _ = std::fs::remove_file(path);
                return failure;
            }
            progress.explain(failure)
        })?;
    }
    let with_holes = target.file().filter(|file| match args.sparse {
        Sparse::Auto => !file.is_block_device(),
        Sparse::Always => true,
        Sparse::Never => false,
    });
    let transfer = |piece: &mut [u8], offset| {
        volume.read_at(piece, offset)?;
        match with_holes {
            Some(file) => sparse::write(file, piece, offset),
            None => Ok(target.write_at(piece, offset)?),
        }
    };
    let moved = copy::run(
        &progress,
        || copy::in_pieces(&progress, size, transfer),
        || Ok(target.flush()?),
    )?;
    output.done(&result(args, &moved), summary(&moved))
}

/// The files, as opposed to streams, that something secret is read from to unlock a volume.
fn keys(unlock: &UnlockArgs) -> impl Iterator<Item = Stored> {
    let named = [&unlock.volume_key_file, &unlock.tokens.token_pin_file];
    let named = named.into_iter().filter_map(Option::as_deref);
    let passphrase = unlock.key.source().stored();
    named.filter_map(Stored::at).chain(passphrase)
}

fn start(args: &Args, size: u64, output: &Output) -> Progress {
    Progress::start(
        Some(size),
        args.progress.progress_json,
        output,
        format!("{} is incomplete.", args.target.name()),
    )
}

fn result(args: &Args, moved: &Moved) -> serde_json::Value {
    serde_json::json!({
        "target": text_of(args.target.path()),
        "bytes": moved.bytes,
        "seconds": moved.elapsed.as_secs_f64(),
    })
}

fn summary(moved: &Moved) -> String {
    format!("Decrypted {}.", moved.summary())
}

/// Decrypts to a stream. If that is standard output it gets nothing else: the
/// result goes to standard error.
fn to_stream(args: &Args, volume: &Volume, stream: &Stream, output: &Output) -> Result<()> {
    let progress = start(args, volume.size(), output);
    progress.exit_on_signals(*output)?;
    let read = |piece: &mut [u8], offset| Ok(volume.read_at(piece, offset)?);
    let moved = copy::run(
        &progress,
        || copy::to_stream(&progress, volume.size(), read, |piece| stream.write(piece)),
        || stream.finish(),
    )?;
    let result = result(args, &moved);
    if !args.target.is_standard_output() && !stream.is_also(rustix::stdio::stdout()) {
        output.done(&result, summary(&moved))?;
    } else if output.json {
        complain(&result.to_string());
    } else {
        output.note(summary(&moved));
    }
    Ok(())
}

/// Decides what to do with a target that exists; nothing is changed yet.
fn existing_target(args: &Args, size: u64) -> Result<Option<Disk>> {
    let path = args.target.path();
    if !is_uri(path)
        && !path
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
    let store = Disk::open_alone(path, Access::ReadWrite, args.device.reconnect())?;
    if !is_uri(path) {
        refuse_attached(path, 0..u64::MAX)?;
    }
    if is_file && let Some(found) = probe::describe(&*store).filter(|what| what.contains("LUKS")) {
        return Err(Failure::new(
            Exit::Busy,
            format!("{} holds {found}; it is not overwritten", path.display()),
        )
        .advise("Give another name; or remove it first, if nobody needs it any more."));
    }
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
        let volume = OldVolume::find(&store)?;
        let found =
            probe::describe(&*store).map_or(String::new(), |w| format!(" It holds {w} now."));
        confirm(
            args.confirm,
            &format!(
                "This will overwrite data on {} irrevocably.{found}",
                path.display()
            ),
        )?;
        if let Some(volume) = volume {
            volume.give_up(args.overwrite_luks, args.confirm)?;
        }
    }
    Ok(Some(store))
}

/// Brings an existing regular file to `size`, and makes it readable for its owner only; what is no file stays as it is.
fn overwritten(store: Disk, path: &Path, size: u64) -> Result<Disk> {
    let Some(stored) = store.file().filter(|file| !file.is_block_device()) else {
        return Ok(store);
    };
    let file = stored.file();
    keep_to_owner(file).map_err(|e| {
        Failure::system(
            format!("cannot take others' permissions on {} away", path.display()),
            e,
        )
        .advise("Give the name of a new file, which is readable for its owner only.")
    })?;
    file.set_len(0)
        .and_then(|()| file.set_len(size))
        .map_err(|e| Failure::system(format!("cannot resize {}", path.display()), e))?;
    Ok(store)
}

/// Takes away the permissions that group and others have on a file.
fn keep_to_owner(file: &File) -> std::io::Result<()> {
    let mut permissions = file.metadata()?.permissions();
    let mode = permissions.mode();
    if mode & 0o077 != 0 {
        permissions.set_mode(mode & 0o7700);
        file.set_permissions(permissions)?;
    }
    Ok(())
}

/// Makes sure that there is room for everything before anything is copied.
/// File systems that cannot reserve are taken at their word.
fn reserve(target: &Disk, size: u64, sparse: Sparse) -> Result<()> {
    use rustix::io::Errno;
    let Some(target) = target
        .file()
        .filter(|file| size > 0 && !file.is_block_device())
    else {
        return Ok(());
    };
    match rustix::fs::fallocate(target.file(), rustix::fs::FallocateFlags::empty(), 0, size) {
        Err(e @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => {
            let failure = Failure::system(
                format!(
                    "{}: there is no room for {size} bytes",
                    target.path().display()
                ),
                e,
            );
            Err(match sparse {
                Sparse::Auto => failure.advise(
                    "If much of the volume is zeros, --sparse=always may fit: \
                     it reserves nothing, and fails when the disk is full.",
                ),
                _ => failure,
            })
        }
        _ => Ok(()),
    }
}
