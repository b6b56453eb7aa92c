//! `xtent encrypt`: copies a plain image into a volume.

use std::fs::Metadata;
use std::path::Path;
use std::time::Duration;

use clap::ValueHint;
use clap::builder::{PathBufValueParser, TypedValueParser};
use xtent_store::{Access, FileStore};
use xtent_volume::{CipherThreads, DiscardPolicy};

use crate::args::{DeviceArgs, ProgressArgs, UnlockArgs};
use crate::cli::Global;
use crate::copy::{self, Progress};
use crate::disk::Disk;
use crate::failure::{Exit, Failure, Result};
use crate::headerless::{Closed, PlainArgs};
use crate::output::Output;
use crate::plain::{Place, Stream};
use crate::probe::{WRAPPING_SHOWS, Wrapping, shell_word};
use crate::same::{is_shared, share_storage};
use crate::secrets::Stored;
use crate::size::show_size;
use crate::sparse;

const MANUAL: &str = "\
EXAMPLES:
  Make a volume just large enough for an image and fill it:
    xtent format --size $(stat -c %s disk.raw) secret.img
    xtent encrypt disk.raw secret.img
  Fill it from a program, without a plain copy on the disk:
    zstd -dc disk.raw.zst | xtent encrypt - secret.img
    nbdcopy -- [ qemu-nbd -r -f qcow2 disk.qcow2 ] - | xtent encrypt - secret.img
  Fill it from a server:
    xtent encrypt nbd://host/disk secret.img

NOTES:
  SOURCE may be `-` (a file of that name is `./-`), a FIFO, /dev/fd/N, or <(...)
  of a shell. The volume must exist, so its size is up to you: a stream that is
  longer is an error when the volume is full. The passphrase is then asked for on
  the terminal, or comes from --key-file or --key-fd; never from standard input.

  A source that is a container (QCOW2, VMDK, VHDX, VDI ...) or compressed is refused
  with the command that gets the plain image out; --raw takes it as it is.

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
    /// Plain image file, block device, NBD URI or rbd:POOL/IMAGE to read; `-` is standard input
    #[arg(value_parser = PathBufValueParser::new().try_map(Place::source), value_hint = ValueHint::FilePath)]
    source: Place,
    /// Copy the source as it is, even if it is a container (QCOW2, VMDK ...) or compressed
    #[arg(long)]
    raw: bool,
    /// Leave out the source's holes: shows which parts are in use, and holes read as noise
    ///
    /// The volume keeps what it held there: in a new image file nothing, so that
    /// it stays as small as the source. Whoever sees the volume then sees where
    /// the data is and how much. And the copy differs from the source: what was
    /// zeros in a hole reads as noise. Only for images whose user does not read
    /// what was never written; some file systems do, for one where mkfs took
    /// holes for zeros.
    #[arg(long)]
    skip_holes: bool,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    unlock: UnlockArgs,
    #[command(flatten)]
    plain: PlainArgs,
    #[command(flatten)]
    progress: ProgressArgs,
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    let output = global.output();
    let mut unlock = args.unlock.clone();
    if args.source.is_stdin() {
        unlock.leave_stdin()?;
    }
    if !unlock.tokens.token_only && unlock.volume_key_file.is_none() {
        unlock.key.source().check()?;
    }
    refuse_shared(&args.source, &args.device.device)?;
    let container = Closed::open(
        &args.device,
        &args.plain,
        &unlock,
        Access::ReadWrite,
        &output,
    )?;
    container.refuse_waited_for()?;
    let config = container.plan(false, DiscardPolicy::Never, global.cpu)?;
    let source = Source::open(&args.source, args.device.reconnect())?;
    if let (Source::Stored(store), false) = (&source, args.raw)
        && let Some(wrapping) = Wrapping::in_store(&**store)
    {
        return Err(wrapped(args, wrapping));
    }
    let size = source.size();
    if size == Some(0) {
        return Err(nothing(args));
    }
    if let Some(size) = size {
        check_size(args, size, config.length, &output)?;
    }
    note_holes(args, &source, &output)?;
    let room = config.length;
    let volume = container
        .volume(&unlock, &config, &output)?
        .with_cipher_threads(CipherThreads::Auto);
    // What a stream is can be told only now: whoever sends it may ask for a passphrase, too.
    let mut head = [0; WRAPPING_SHOWS];
    let mut ahead = match &source {
        Source::Stored(_) => &[][..],
        Source::Stream(stream) => beginning(args, stream, &mut head)?,
    };
    let progress = Progress::start(
        size,
        args.progress.progress_json,
        &output,
        "The volume is incomplete; run it again.",
    );
    let write = |piece: &mut [u8], offset| Ok(volume.write_at_in_place(piece, offset, false)?);
    let flush = || Ok(volume.flush()?);
    let moved = match &source {
        Source::Stored(store) => {
            progress.stop_on_signals()?;
            // What was looked at above, before anybody was asked for a passphrase.
            let size = size.unwrap_or_default();
            let all = |piece: &mut [u8], offset| {
                store.read_at(piece, offset)?;
                write(piece, offset)
            };
            let data = |file: &FileStore, piece: &mut [u8], offset| {
                let end = offset + piece.len() as u64;
                for part in sparse::data_in(file.file(), offset..end)? {
                    let len = usize::try_from(part.end - part.start).unwrap_or(piece.len());
                    all(&mut piece[..len], part.start)?;
                }
                // Beyond its end a file has no data, as in a hole.
                unchanged(args, size, store.size())
            };
            copy::run(
                &progress,
                || match args.skip_holes.then(|| store.file()).flatten() {
                    Some(file) => copy::in_pieces(&progress, size, |p, at| data(file, p, at)),
                    None => copy::in_pieces(&progress, size, all),
                },
                flush,
            )
            .and_then(|moved| unchanged(args, size, store.size()).map(|()| moved))?
        }
        Source::Stream(stream) => {
            progress.exit_on_signals(output)?;
            let fill = |buf: &mut [u8]| {
                let len = ahead.len().min(buf.len());
                let (first, rest) = buf.split_at_mut(len);
                let (now, later) = ahead.split_at(len);
                first.copy_from_slice(now);
                ahead = later;
                Ok(len + stream.fill(rest)?)
            };
            copy::run(
                &progress,
                || copy::from_stream(&progress, room, fill, write),
                flush,
            )?
        }
    };
    match size {
        None => warn_about_rest(moved.bytes, room, &output),
        Some(size) if moved.bytes < size => unchanged(args, size, moved.bytes)?,
        Some(_) => {}
    }
    output.done(
        &serde_json::json!({
            "bytes": moved.bytes,
            "seconds": moved.elapsed.as_secs_f64(),
        }),
        format!("Encrypted {}.", moved.summary()),
    )
}

/// Fails if the source has not the size any more that it had when it was looked at.
fn unchanged(args: &Args, size: u64, now: u64) -> Result<()> {
    if now == size {
        return Ok(());
    }
    let source = args.source.name();
    let message = format!("{source} had {size} bytes, and {now} while it was read");
    Err(Failure::new(Exit::Device, message).advise(
        "The volume is incomplete: keep the source. Run it again when nothing writes there.",
    ))
}

/// The first bytes of a stream, after a look at what they are: nothing is written before.
fn beginning<'a>(args: &Args, stream: &Stream, head: &'a mut [u8]) -> Result<&'a [u8]> {
    let filled = stream.fill(head)?;
    let head = &head[..filled];
    match Wrapping::of(head) {
        _ if head.is_empty() => Err(nothing(args)),
        Some(wrapping) if !args.raw => Err(wrapped(args, wrapping)),
        _ => Ok(head),
    }
}

/// The error for a source that is empty.
fn nothing(args: &Args) -> Failure {
    let advice = if args.source.is_stream() {
        "Nothing was changed. Did the program that should send the image fail?"
    } else {
        "Nothing was changed. Did the program that should write the image fail?"
    };
    let message = format!("{} ended before its first byte", args.source.name());
    Failure::new(Exit::Device, message).advise(advice)
}

/// The error for a source that holds the plain image in another form.
fn wrapped(args: &Args, wrapping: &Wrapping) -> Failure {
    let name = args.source.name();
    let path = if args.source.is_stream() {
        Path::new("FILE")
    } else {
        args.source.path()
    };
    Failure::parameters(format!(
        "{name} is no plain image: it is {}",
        wrapping.what()
    ))
    .advise(format!(
        "Nothing was changed. What is inside: `{} | {}`. To encrypt it as it is, give --raw.",
        wrapping.unwrapped(path),
        this_command(args)
    ))
}

/// This command with standard input as its source.
fn this_command(args: &Args) -> String {
    let header = args.device.detached.header.as_deref();
    let header = header.map_or(String::new(), |h| format!("--header {} ", shell_word(h)));
    format!(
        "xtent encrypt {header}- {}",
        shell_word(&args.device.device)
    )
}

/// Where the plaintext is.
enum Source {
    Stored(Disk),
    Stream(Stream),
}

impl Source {
    fn open(place: &Place, reconnect: Duration) -> Result<Self> {
        if place.is_stream() {
            place.open_source().map(Self::Stream)
        } else {
            let disk = Disk::open(place.path(), Access::ReadOnly, reconnect)?;
            if let Some(file) = disk.file() {
                file.warn_of_user();
            }
            match disk.upstream().map_or(0, |upstream| upstream.left_out()) {
                0 => Ok(Self::Stored(disk)),
                bytes => Err(refuse_part(&disk, bytes)),
            }
        }
    }

    /// Bytes of it, where that is known.
    fn size(&self) -> Option<u64> {
        match self {
            Self::Stored(store) => Some(store.size()),
            Self::Stream(stream) => stream.remaining(),
        }
    }
}

/// Refuses an export of which the last bytes cannot be asked for: a copy would lack them.
fn refuse_part(disk: &Disk, bytes: u64) -> Failure {
    let uri = shell_word(disk.path());
    Failure::new(
        Exit::Device,
        format!(
            "{}: its last {bytes} bytes are no whole block for its server, and cannot be read here",
            disk.path().display()
        ),
    )
    .advise(format!(
        "Nothing was changed. nbdcopy reads them: `nbdcopy {uri} - | xtent encrypt - DEVICE`."
    ))
}

/// Says what becomes of the source's holes; refuses `--skip-holes` where there
/// can be none.
fn note_holes(args: &Args, source: &Source, output: &Output) -> Result<()> {
    match source {
        Source::Stream(_) if args.skip_holes => Err(Failure::parameters(format!(
            "{} is a stream and has no holes to skip",
            args.source.name()
        ))
        .advise("Name the file itself, or leave --skip-holes out.")),
        Source::Stored(store) if args.skip_holes && store.file().is_none() => {
            Err(Failure::parameters(format!(
                "which parts of {} are holes is not known here",
                args.source.name()
            ))
            .advise("Leave --skip-holes out."))
        }
        Source::Stored(store) if !args.skip_holes => {
            let file = store.file();
            if let Some(taken) = file.and_then(|file| sparse::taken_if_sparse(file.file())) {
                output.note(format!(
                    "{} takes {} of its {}; its holes are encrypted as zeros, so that the volume \
                     takes all of it. See --skip-holes.",
                    args.source.name(),
                    show_size(taken),
                    show_size(store.size())
                ));
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Refuses a source that is too large, and warns about one that is too small.
fn check_size(args: &Args, size: u64, room: u64, output: &Output) -> Result<()> {
    if size > room {
        return Err(Failure::new(
            Exit::Device,
            format!(
                "{} has {size} bytes, but the volume on {} holds only {room}",
                args.source.name(),
                args.device.device.display(),
            ),
        )
        .advise("Nothing was changed. Make a larger volume with `xtent format --size`."));
    }
    warn_about_rest(size, room, output);
    Ok(())
}

fn warn_about_rest(size: u64, room: u64, output: &Output) {
    if size < room {
        output.warn(format!(
            "the source is smaller than the volume: its last {} stay as they are",
            show_size(room - size)
        ));
    }
}

/// Refuses to read and write the same storage, by whatever names.
pub(super) fn refuse_shared(place: &Place, other: &Path) -> Result<()> {
    let is_same = match (place.metadata(), other.metadata()) {
        (Some(a), Ok(b)) => is_shared(&a, &b),
        _ => !place.is_stream() && share_storage(place.path(), other),
    };
    match is_same {
        true => Err(same(&place.name(), &other.display().to_string())),
        false => Ok(()),
    }
}

/// The same of two paths.
pub(super) fn refuse_same(a: &Path, b: &Path) -> Result<()> {
    if share_storage(a, b) {
        return Err(same(&a.display().to_string(), &b.display().to_string()));
    }
    Ok(())
}

/// Refuses to overwrite what a key is read from, which may be no path but a descriptor.
pub(super) fn refuse_key(target: &str, metadata: Option<Metadata>, key: &Stored) -> Result<()> {
    match metadata {
        Some(target_is) if is_shared(&target_is, &key.metadata) => Err(same(target, &key.name)),
        _ => Ok(()),
    }
}

fn same(a: &str, b: &str) -> Failure {
    Failure::parameters(format!(
        "{a} and {b} are the same, or one is part of the other; nothing was changed"
    ))
}
