//! `xtent format`: makes a volume.

mod layout;
mod manual;
mod target;

use std::path::PathBuf;

use clap::ValueEnum;
use sector_cipher::SectorSize;
use xtent_luks::{FormatOptions, Header, Version};
use xtent_volume::DiscardPolicy;

use super::encrypt::{refuse_key, refuse_same};
use crate::args::{ConfirmArgs, HeaderArgs, KdfArgs, KeyArgs};
use crate::cli::Global;
use crate::confirm::confirm;
use crate::disk::Disk;
use crate::failure::{Failure, Result};
use crate::mkfs::{self, FileSystem};
use crate::open::{Container, while_deriving};
use crate::output::{Output, text_of};
use crate::secrets::{Asked, Stored, read_key};
use crate::size::{parse_size, show_size};
use layout::{check_volume_key, data_size, options, sector_size, warn_about};
use manual::MANUAL;
use target::{NewFiles, Target};

/// How often a new passphrase may be typed until its repetition is the same.
const TRIES: u32 = 3;

/// LUKS versions by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Type {
    Luks2,
    Luks1,
}

/// Make a new volume
///
/// Writes a LUKS header with one keyslot. What is on an existing DEVICE is lost:
/// the command says what it finds there, and asks. An image file that does not
/// exist is made with --size. Refused while a server has the device open.
#[derive(clap::Args, Debug)]
#[command(after_long_help = MANUAL)]
pub(crate) struct Args {
    /// Block device, image file, NBD URI or rbd:POOL/IMAGE
    device: PathBuf,
    #[command(flatten)]
    detached: HeaderArgs,
    /// Make a new image file that holds this much plaintext (K, M, G, T: powers of 1024)
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    size: Option<u64>,
    /// Format of the metadata
    #[arg(long = "type", value_name = "TYPE", default_value = "luks2")]
    luks: Type,
    /// Cipher, mode and IV by dm-crypt's names: see CIPHERS
    #[arg(short, long, value_name = "SPEC", default_value = "aes-xts-plain64")]
    cipher: String,
    /// Bits of key: XTS takes 256 (AES-128) or 512 (AES-256) [default: the longest]
    #[arg(short = 's', long, value_name = "BITS")]
    key_size: Option<u32>,
    /// Encrypt with the volume key in this file instead of a random one
    ///
    /// For data that is encrypted with it already, and whose header is lost. The
    /// file holds the key's bytes and nothing else. Two volumes with one key are
    /// less safe than each with its own.
    #[arg(long, value_name = "FILE")]
    volume_key_file: Option<PathBuf>,
    /// Make a volume with a broken cipher (XCB) all the same
    ///
    /// For tests and comparisons with data that is no secret: whoever can have
    /// two chosen sectors encrypted or decrypted learns all but 16 bytes of
    /// another one (ePrint 2024/1554). Existing volumes open without it, with a
    /// warning.
    #[arg(long)]
    insecure_broken_cipher: bool,
    /// Bytes per sector: 512, 1024, 2048 or 4096 [default: see DEFAULTS]
    #[arg(long, value_name = "BYTES", value_parser = parse_sector_size)]
    sector_size: Option<SectorSize>,
    /// Label (LUKS2)
    #[arg(long)]
    label: Option<String>,
    /// Subsystem label (LUKS2)
    #[arg(long)]
    subsystem: Option<String>,
    /// UUID [default: random]
    #[arg(long)]
    uuid: Option<String>,
    /// Start of the data in 512-byte sectors
    #[arg(short, long, value_name = "SECTORS", conflicts_with = "align_payload")]
    offset: Option<u64>,
    /// Start the data at a multiple of so many 512-byte sectors
    #[arg(long, value_name = "SECTORS", value_parser = clap::value_parser!(u64).range(1..))]
    align_payload: Option<u64>,
    /// Room for keyslots' and tokens' descriptions (LUKS2): 16K, 32K, 64K ... 4M [default: 16K]
    ///
    /// The header has it twice. 4096 bytes of it are taken; a volume with many tokens, or
    /// large ones, needs more than the default.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    luks2_metadata_size: Option<u64>,
    /// Room for key material (LUKS2): a multiple of 4096 up to 128M
    ///
    /// A key of 512 bits takes 252 KiB, one of 256 bits 128 KiB. Without --offset the data
    /// begin behind it, at a multiple of 1 MiB or of --align-payload; with --offset it is
    /// cut off there, with a warning. [default: all that is there before the data, which
    /// begin at 16 MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    luks2_keyslots_size: Option<u64>,
    /// Make a file system in the new volume too, with blocks that fit its sectors
    ///
    /// Runs mkfs.TYPE on the volume by way of FUSE (/dev/fuse, and without root
    /// fusermount3); the passphrase is not asked for again. If mkfs fails the
    /// volume stays.
    #[arg(long, value_name = "TYPE")]
    mkfs: Option<FileSystem>,
    /// Overwrite a LUKS volume, or what is left of one
    ///
    /// Without it the command asks for the UUID of the volume that would be lost, and fails
    /// where it cannot ask, or with --batch-mode.
    #[arg(long)]
    overwrite_luks: bool,
    #[command(flatten)]
    confirm: ConfirmArgs,
    #[command(flatten)]
    key: KeyArgs,
    #[command(flatten)]
    kdf: KdfArgs,
}

fn parse_sector_size(text: &str) -> std::result::Result<SectorSize, String> {
    text.parse()
        .ok()
        .and_then(|bytes| SectorSize::new(bytes).ok())
        .ok_or_else(|| "possible are 512, 1024, 2048 and 4096".to_owned())
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    let output = global.output();
    let mut options = options(args, &output)?;
    args.key.source().check()?;
    let mkfs = match args.mkfs {
        Some(kind) => Some((kind, kind.find()?)),
        None => None,
    };

    if let Some(header) = &args.detached.header {
        refuse_same(header, &args.device)?;
    }
    for target in [Some(&args.device), args.detached.header.as_ref()]
        .into_iter()
        .flatten()
    {
        let volume_key = args.volume_key_file.as_deref().and_then(Stored::at);
        for key in volume_key.into_iter().chain(args.key.source().stored()) {
            refuse_key(&target.display().to_string(), target.metadata().ok(), &key)?;
        }
    }
    let data = Target::look(&args.device, args.size.is_some())?;
    let header = args
        .detached
        .header
        .as_deref()
        .map(|p| Target::look(p, true))
        .transpose()?;
    let size = data_size(args, &data, &options, &output)?;
    options.sector_size = sector_size(args, &data, size, &options)?;
    warn_about(&data, &options, &output);

    // With a header elsewhere nothing is written to the device, but for a file system.
    let is_written = header.is_none() || mkfs.is_some();
    let overwritten: Vec<String> = [is_written.then_some(&data), header.as_ref()]
        .into_iter()
        .flatten()
        .filter_map(Target::loss)
        .collect();
    let volumes = [is_written.then_some(&data), header.as_ref()]
        .into_iter()
        .flatten()
        .map(Target::volume)
        .collect::<Result<Vec<_>>>()?;
    if !overwritten.is_empty() {
        confirm(args.confirm, &overwritten.join("\n"))?;
    }
    for volume in volumes.iter().flatten() {
        volume.give_up(args.overwrite_luks, args.confirm)?;
    }
    let volume_key = args.volume_key_file.as_deref().map(read_key).transpose()?;
    if let Some(key) = &volume_key {
        check_volume_key(args, key, &options)?;
    }
    let passphrase = args.key.source().read_new(
        &Asked::of(&args.device, args.uuid.as_deref()),
        &format!("New passphrase for {}: ", args.device.display()),
        TRIES,
        args.key.typing_time(),
        &output,
    )?;

    let new_files = NewFiles::removed_on_signals()?;
    let data = data.ready(size + options.data_offset.unwrap_or(0), &new_files)?;
    let metadata = match header {
        Some(header) => header.ready(options.header_size()?, &new_files)?,
        None => data.clone(),
    };
    let device = metadata.metadata()?;
    let header = while_deriving(&output, || match &volume_key {
        Some(key) => device.format_with_volume_key(&options, &passphrase, key),
        None => device.format(&options, &passphrase),
    })?;
    new_files.keep();
    if let Some((kind, program)) = mkfs {
        let container = Container::formatted(data.clone(), metadata, header.clone())?;
        let config = container.plan(false, DiscardPolicy::Never, global.cpu)?;
        let volume = while_deriving(&output, || container.volume_by(&passphrase, &config))?;
        let folder = mkfs::Folder::new()?;
        new_files.filling(folder.path());
        mkfs::make(
            kind,
            &program,
            (volume, config.sector_size),
            (&args.device, args.detached.header.as_deref()),
            &folder,
            |command| new_files.fill(command),
        )
        .map_err(|failure| match new_files.ended_by() {
            Some(signal) => Failure {
                advice: failure.advice,
                ..Failure::interrupted(signal)
            },
            None => failure,
        })?;
    }
    report(args, &data, &header, &options, &output)
}

fn report(
    args: &Args,
    data: &Disk,
    header: &Header,
    options: &FormatOptions,
    output: &Output,
) -> Result<()> {
    let segment = header.segment(data.size())?;
    output.done(
        &serde_json::json!({
            "device": text_of(&args.device),
            "header": args.detached.header.as_deref().map(text_of),
            "uuid": header.uuid(),
            "version": match header.version() { Version::Luks1 => 1, Version::Luks2 => 2 },
            "cipher": segment.encryption,
            "key_bits": options.key_length * 8,
            "sector_size": segment.sector_size,
            "data_offset": segment.offset,
            "size": segment.length,
            "file_system": args.mkfs.map(FileSystem::name),
        }),
        format!(
            "{}: {} of {}, UUID {}",
            args.device.display(),
            show_size(segment.length),
            segment.encryption,
            header.uuid()
        ),
    )
}
