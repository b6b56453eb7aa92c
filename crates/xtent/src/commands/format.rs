//! `xtent format`: makes a volume.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clap::ValueEnum;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sector_cipher::{CipherSpec, SectorSize};
use xtent_luks::{Device, FormatOptions, Header, Version};
use xtent_secret::SecretBytes;
use xtent_store::{Access, FileStore, Store};
use xtent_volume::DiscardPolicy;

use super::encrypt::{refuse_key, refuse_same};
use crate::args::{ConfirmArgs, HeaderArgs, KdfArgs, KeyArgs, Pbkdf};
use crate::cipher;
use crate::cli::Global;
use crate::confirm::confirm;
use crate::failure::{Exit, Failure, Result};
use crate::mkfs::{self, FileSystem};
use crate::open::{Container, refuse_dash, while_deriving};
use crate::output::{Output, text_of};
use crate::probe;
use crate::secrets::{Stored, read_key};
use crate::signals;
use crate::size::{parse_size, show_size};

/// How often a new passphrase may be typed until its repetition is the same.
const TRIES: u32 = 3;

const MANUAL: &str = "\
EXAMPLES:
  A volume of 10 GiB in a new image file:
    xtent format --size 10G disk.img
  With a file system in it, ready to be mounted:
    xtent format --size 10G --mkfs ext4 disk.img
  On a disk, with a label; asks before anything is lost:
    xtent format --label backup /dev/sdX
  For scripts: no questions, the passphrase from a file:
    xtent format --batch-mode --key-file key --size 1G disk.img
  LUKS1, for old systems:
    xtent format --type luks1 --size 1G disk.img
  With a header of 1 MiB, room for three keys, instead of 16 MiB:
    xtent format --offset 2048 --size 10M small.img
  The header in a file of its own, kept elsewhere:
    xtent format --header disk.header /dev/sdX
  With a wide-block cipher, under which a sector is one block:
    xtent format --cipher 'capi:fast(aes)-plain64' --size 10G disk.img

DEFAULTS:
  LUKS2, aes-xts-plain64 with a key of 512 bits, argon2id at 2 seconds with at
  most 1 GiB of memory, sha256, data from 16 MiB on (LUKS1: pbkdf2, from 2 MiB on).

  The sector size is 4096 if the target is an image file, or a disk whose
  physical blocks are that large, and its size is a multiple; else 512. Do not
  choose it above what the disk writes atomically: a sector torn by a power
  failure loses the 16-byte blocks at the tear, and under a wide-block cipher
  all of itself.

CIPHERS:
  Names as in dm-crypt, with the bits of key that each takes. Where it says
  \"wide-block\" every bit of a sector's ciphertext depends on every bit of the
  sector; these need LUKS2. docs/volumes.md says how to choose.

    aes-xts-plain64                 256, 512       XTS: the default
    aes-xts-plain                   256, 512       XTS, numbers wrap at 2^32
    aes-xts-plain64be               256, 512       XTS, numbers big endian
    aes-cbc-essiv:sha256            128, 192, 256  CBC, for old containers
    aes-cbc-plain64                 128, 192, 256  CBC with predictable IVs
    aes-cbc-plain                   128, 192, 256  CBC, the same, wraps at 2^32
    aes-cbc-plain64be               128, 192, 256  CBC, the same, big endian
    capi:fast(aes)-plain64          128, 256       FAST, BRW hash; wide-block
    capi:fast_horner(aes)-plain64   128, 256       FAST, Horner hash; wide-block
    aes-hctr2-plain64               128, 256       HCTR2; wide-block
    xchacha12,aes-adiantum-plain64  256            Adiantum; wide-block
    xchacha20,aes-adiantum-plain64  256            Adiantum, 20 rounds; wide-block
    capi:eme2(aes)-plain64          384, 512       EME2; wide-block
    capi:aez10(aes)-plain64         128, 256       AEZ10; wide-block
    capi:xcb(aes)-plain64           128, 256       XCB; wide-block, BROKEN

  HCTR2 and Adiantum are the kernel's own. Volumes with names that begin with
  \"capi:\" are opened by Xtent alone; cryptsetup still manages their keys and
  headers. FAST and AEZ10 are specified for keys of 128 bits; with 256 bits
  they use AES-256 in the same place.

NOTES:
  Nothing is written before everything has been checked and the passphrase is
  known. Of an existing device only the header is written: what else was on it
  stays readable until it is overwritten. To hide which sectors are in use,
  fill the volume with zeros once.

  Save the header: without it the data is lost for good. `xtent header backup`.";

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
    /// Block device or image file
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
    if !overwritten.is_empty() {
        confirm(args.confirm, &overwritten.join("\n"))?;
    }
    let volume_key = args.volume_key_file.as_deref().map(read_key).transpose()?;
    if let Some(key) = &volume_key {
        check_volume_key(args, key, &options)?;
    }
    let passphrase = args.key.source().read_new(
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
    let device = Device::new(metadata.clone());
    let header = while_deriving(&output, || match &volume_key {
        Some(key) => device.format_with_volume_key(&options, &passphrase, key),
        None => device.format(&options, &passphrase),
    })?;
    new_files.keep();
    if let Some((kind, program)) = mkfs {
        let container = Container::formatted(data.clone(), metadata, header.clone());
        let config = container.plan(false, DiscardPolicy::Never, global.cpu)?;
        let volume = while_deriving(&output, || container.volume_by(&passphrase, &config))?;
        mkfs::make(
            kind,
            &program,
            volume,
            config.sector_size,
            (&args.device, args.detached.header.as_deref()),
            |command| new_files.fill(command),
        )?;
    }
    report(args, &data, &header, &options, &output)
}

/// Where something will be written: it exists and is locked, or will be made.
enum Target<'a> {
    Existing(Arc<FileStore>),
    New(&'a Path),
}

impl<'a> Target<'a> {
    fn look(path: &'a Path, may_be_new: bool) -> Result<Self> {
        refuse_dash(path)?;
        let exists = path
            .try_exists()
            .map_err(|e| Failure::system(format!("cannot look at {}", path.display()), e))?;
        if !exists {
            if may_be_new {
                return Ok(Self::New(path));
            }
            return Err(
                Failure::new(Exit::Device, format!("{} does not exist", path.display()))
                    .advise("Give --size to make a new image file."),
            );
        }
        let store = FileStore::open(path, Access::ReadWrite)?;
        store.lock_for_serving()?;
        Ok(Self::Existing(Arc::new(store)))
    }

    /// What would be lost, as a sentence.
    fn loss(&self) -> Option<String> {
        match self {
            Target::New(_) => None,
            Target::Existing(store) if store.size() == 0 => None,
            Target::Existing(store) => Some(format!(
                "This will overwrite data on {} irrevocably.{}",
                store.path().display(),
                probe::describe(&**store)
                    .map_or(String::new(), |found| format!(" It holds {found} now."))
            )),
        }
    }

    /// Makes a new file of `size` bytes if it is to be new.
    fn ready(self, size: u64, new_files: &NewFiles) -> Result<Arc<FileStore>> {
        match self {
            Target::Existing(store) => Ok(store),
            Target::New(path) => {
                let store = new_files.make(path, size)?;
                store.lock_for_serving()?;
                Ok(Arc::new(store))
            }
        }
    }
}

/// Files made by a format that may still fail or be interrupted; removed
/// unless it succeeds.
struct NewFiles(Arc<Mutex<Stage>>);

/// What a signal has to undo.
enum Stage {
    /// Remove these files, and end.
    Making(Vec<PathBuf>),
    /// End this program, which makes the file system; this one then undoes the
    /// mount and ends by itself.
    Filling(Option<Pid>),
}

impl NewFiles {
    /// None yet. From now on SIGINT, SIGTERM and SIGHUP remove them and end the
    /// process. Call it before any thread exists.
    fn removed_on_signals() -> Result<Self> {
        let files = Self(Arc::new(Mutex::new(Stage::Making(Vec::new()))));
        let stage = Arc::clone(&files.0);
        signals::hold()?;
        signals::on_ending(move |signal| {
            // Locked until the end, so that nothing is made or kept any more.
            match &*stage.lock().unwrap_or_else(PoisonError::into_inner) {
                Stage::Making(files) => {
                    remove(files);
                    signals::end(signal);
                }
                Stage::Filling(Some(program)) => {
                    let _ = kill(*program, Signal::SIGTERM);
                }
                Stage::Filling(None) => {}
            }
        })?;
        Ok(files)
    }

    fn make(&self, path: &Path, size: u64) -> Result<FileStore> {
        let mut stage = self.stage();
        let store = FileStore::create(path, size)?;
        if let Stage::Making(files) = &mut *stage {
            files.push(path.to_owned());
        }
        Ok(store)
    }

    fn keep(&self) {
        if let Stage::Making(files) = &mut *self.stage() {
            files.clear();
        }
    }

    /// Runs a program on the finished volume; from now on signals end that.
    fn fill(&self, command: &mut Command) -> std::io::Result<std::process::Output> {
        let child = {
            let mut stage = self.stage();
            let child = command
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()?;
            *stage = Stage::Filling(i32::try_from(child.id()).ok().map(Pid::from_raw));
            child
        };
        let output = child.wait_with_output();
        *self.stage() = Stage::Filling(None);
        output
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for NewFiles {
    fn drop(&mut self) {
        if let Stage::Making(files) = &*self.stage() {
            remove(files);
        }
    }
}

fn remove(files: &[PathBuf]) {
    for path in files {
        let _ = std::fs::remove_file(path);
    }
}

/// Everything that follows from the options alone.
fn options(args: &Args, output: &Output) -> Result<FormatOptions> {
    let version = match args.luks {
        Type::Luks1 => Version::Luks1,
        Type::Luks2 => Version::Luks2,
    };
    let cipher: CipherSpec = args
        .cipher
        .parse()
        .map_err(|_| cipher::unknown(&args.cipher))?;
    if version == Version::Luks1 {
        refuse_in_luks1(args, &cipher)?;
    }
    if cipher.mode().is_broken() && !args.insecure_broken_cipher {
        return Err(Failure::parameters(format!(
            "{cipher} is broken: with two chosen queries an attacker reads all but 16 bytes \
             of a sector (ePrint 2024/1554)"
        ))
        .advise(
            "Choose another cipher. For tests with data that is no secret, \
             --insecure-broken-cipher makes the volume all the same.",
        ));
    }
    let mut options = FormatOptions {
        version,
        encryption: cipher.to_string(),
        key_length: key_length(args, &cipher)?,
        sector_size: 512,
        kdf: args.kdf.choice(),
        hash: args.kdf.hash.clone(),
        uuid: args.uuid.clone(),
        label: args.label.clone(),
        subsystem: args.subsystem.clone(),
        data_offset: None,
        detached: args.detached.header.is_some(),
        metadata_size: args.luks2_metadata_size,
        keyslots_size: args.luks2_keyslots_size,
    };
    let beyond = || Failure::parameters("the data would start beyond the end of any device");
    let in_bytes = |sectors: u64| sectors.checked_mul(512).ok_or_else(beyond);
    let data_offset = match args.offset {
        Some(sectors) => in_bytes(sectors)?,
        None => options.default_data_offset(args.align_payload.map(in_bytes).transpose()?)?,
    };
    if i64::try_from(data_offset).is_err() {
        return Err(beyond());
    }
    options.data_offset = Some(data_offset);
    cut_keyslots(&mut options, output);
    Ok(options)
}

/// As cryptsetup: an offset that is given counts for more than the size of the keyslots area.
fn cut_keyslots(options: &mut FormatOptions, output: &Output) {
    let (Ok(header), Some(wanted), Some(offset)) = (
        options.header_size(),
        options.keyslots_size,
        options.data_offset,
    ) else {
        return;
    };
    if options.detached || header <= offset {
        return;
    }
    let room = wanted.saturating_sub(header - offset) / 4096 * 4096;
    if room == 0 {
        // Refused when the layout is made.
        return;
    }
    output.warn(format!(
        "the keyslots area is made {} large, not {}: no more fits before --offset",
        show_size(room),
        show_size(wanted)
    ));
    options.keyslots_size = Some(room);
}

fn refuse_in_luks1(args: &Args, cipher: &CipherSpec) -> Result<()> {
    if cipher.mode().is_wide_block() {
        return Err(Failure::parameters(format!(
            "{cipher} needs LUKS2: LUKS1 encrypts its keyslots with the data's cipher, \
             which has to be XTS or CBC"
        )));
    }
    let needs_luks2 = if args.label.is_some() {
        "--label"
    } else if args.subsystem.is_some() {
        "--subsystem"
    } else if args.luks2_metadata_size.is_some() {
        "--luks2-metadata-size"
    } else if args.luks2_keyslots_size.is_some() {
        "--luks2-keyslots-size"
    } else if args.sector_size.is_some_and(|s| s.bytes() != 512) {
        "--sector-size above 512"
    } else if args.kdf.pbkdf.is_some_and(|kind| kind != Pbkdf::Pbkdf2) {
        "--pbkdf argon2"
    } else {
        return Ok(());
    };
    Err(Failure::parameters(format!(
        "{needs_luks2} needs LUKS2; LUKS1 has no place for it"
    )))
}

fn key_length(args: &Args, cipher: &CipherSpec) -> Result<usize> {
    let lengths = cipher.key_lengths();
    let length = match args.key_size {
        None => lengths.last().copied(),
        Some(bits) => lengths
            .iter()
            .copied()
            .find(|&length| u32::try_from(length * 8) == Ok(bits)),
    };
    length.ok_or_else(|| {
        let bits: Vec<String> = lengths.iter().map(|l| (l * 8).to_string()).collect();
        Failure::parameters(format!(
            "{cipher} takes keys of {} bits, not {}",
            bits.join(", "),
            args.key_size.unwrap_or_default()
        ))
    })
}

/// A volume key from a file has the length that was asked for.
fn check_volume_key(args: &Args, key: &SecretBytes, options: &FormatOptions) -> Result<()> {
    if key.len() == options.key_length {
        return Ok(());
    }
    let advice = "Give --cipher and --key-size as they are of that key.";
    Err(Failure::parameters(format!(
        "{} holds {} bytes, the key of {} has {}",
        args.volume_key_file
            .as_deref()
            .unwrap_or(Path::new(""))
            .display(),
        key.len(),
        options.encryption,
        options.key_length
    ))
    .advise(advice))
}

/// Bytes of plaintext that there will be room for: of an existing target as
/// many as make whole units of 512.
fn data_size(
    args: &Args,
    data: &Target<'_>,
    options: &FormatOptions,
    output: &Output,
) -> Result<u64> {
    let offset = options.data_offset.unwrap_or(0);
    let size = match (data, args.size) {
        (Target::New(_), Some(size)) if size < 4096 => {
            return Err(Failure::parameters(format!(
                "--size {size} is too small: it counts the plaintext, of which a volume holds at least 4096 bytes"
            ))
            .advise("K, M, G and T are powers of 1024, as in `--size 10G`."));
        }
        (Target::New(_), size) => size.unwrap_or(0),
        (Target::Existing(store), Some(_)) => {
            return Err(Failure::new(
                Exit::Busy,
                format!(
                    "{} exists already; --size is for new image files",
                    store.path().display()
                ),
            )
            .advise("Leave --size out to overwrite it, or give another name."));
        }
        (Target::Existing(store), None) => {
            let room = store.size().saturating_sub(offset);
            let odd = room % 512;
            if odd > 0 && room >= 4096 {
                output.note(format!(
                    "The last {odd} bytes of {} stay unused: they are no whole sector.",
                    store.path().display()
                ));
            }
            room - odd
        }
    };
    if size < 4096 {
        return Err(Failure::new(
            Exit::Device,
            format!(
                "{} is too small: header and data start need {}, and at least 4096 bytes must be left",
                args.device.display(),
                show_size(offset)
            ),
        ));
    }
    Ok(size)
}

fn sector_size(args: &Args, data: &Target<'_>, size: u64, options: &FormatOptions) -> Result<u32> {
    let offset = options.data_offset.unwrap_or(0);
    let fits = |bytes: u64| size.is_multiple_of(bytes) && offset.is_multiple_of(bytes);
    let chosen: u32 = match args.sector_size {
        Some(size) => u32::try_from(size.bytes()).unwrap_or(512),
        None if options.version == Version::Luks1 || !fits(4096) => 512,
        None => match data {
            Target::Existing(store) if store.is_block_device() && store.limits().atomic < 4096 => {
                512
            }
            _ => 4096,
        },
    };
    if !fits(u64::from(chosen)) {
        let advice = match data {
            Target::New(_) => "Give a --size and --offset that are multiples of it.",
            Target::Existing(_) => {
                "Give a smaller --sector-size, or another --offset; or make the file longer with truncate(1)."
            }
        };
        return Err(Failure::parameters(format!(
            "{} has room for {size} bytes of data from byte {offset} on: not whole sectors of {chosen}",
            args.device.display()
        ))
        .advise(advice));
    }
    Ok(chosen)
}

fn warn_about(data: &Target<'_>, options: &FormatOptions, output: &Output) {
    if let Target::Existing(store) = data
        && store.is_block_device()
        && options.sector_size > store.limits().atomic
    {
        output.warn(format!(
            "sectors of {} bytes on a disk that writes {} atomically: one torn by a power failure is damaged",
            options.sector_size,
            store.limits().atomic
        ));
    }
}

fn report(
    args: &Args,
    data: &FileStore,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_lists_every_cipher_with_its_keys() {
        for spec in CipherSpec::all() {
            let line = MANUAL
                .lines()
                .find(|line| line.split_whitespace().next() == Some(&spec.to_string()))
                .unwrap_or_else(|| panic!("no {spec}"));
            let bits: Vec<String> = spec
                .key_lengths()
                .iter()
                .map(|bytes| (bytes * 8).to_string())
                .collect();
            assert!(line.contains(&bits.join(", ")), "{line}");
            assert_eq!(line.contains("BROKEN"), spec.mode().is_broken(), "{line}");
            assert_eq!(
                line.contains("wide-block"),
                spec.mode().is_wide_block(),
                "{line}"
            );
        }
    }
}
