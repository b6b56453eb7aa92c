//! Options that several commands share, written once.

mod tls;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use xtent_luks::kdf::{KdfKind, pbkdf2_hashes};
use xtent_luks::{Device, KdfChoice, KdfLimits, Pin};
use xtent_secret::SecretBytes;
use xtent_volume::{CipherThreads, Holes};

use crate::disk::Disk;
use crate::failure::{Failure, Result};
use crate::fds::{InheritedFd, parse_inherited};
use crate::pins::{self, Expected};
use crate::secrets::{Asked, CREDENTIALS, CommandLine, NEW_CREDENTIALS, Source, parse_command};
use crate::size::parse_size;

pub(crate) use tls::TlsArgs;

/// A stored key derivation that would take longer is refused with its
/// estimate, unless the user insists.
const LONGEST_DERIVATION: Duration = Duration::from_secs(10 * 60);

/// Seconds that a lost connection to a server may stay lost, unless `--reconnect` says otherwise.
pub(crate) const RECONNECT: u32 = 10;

/// The device and where its metadata is.
#[derive(Args, Clone, Debug)]
pub(crate) struct DeviceArgs {
    /// Block device, image file, NBD URI or rbd:POOL/IMAGE with the encrypted data
    pub(crate) device: PathBuf,
    /// The volume is partition N of the disk image (GPT or DOS table)
    ///
    /// The others may be in use meanwhile. Of a disk, give its partition's device instead:
    /// whoever writes to a part of it this way has all of it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) partition: Option<u32>,
    #[command(flatten)]
    pub(crate) detached: HeaderArgs,
    /// Refuse a header that is not the one that was pinned: PIN or @FILE (repeatable)
    ///
    /// PIN is what `xtent header pin` prints; a file has one on each line. It is looked at
    /// each time that the header is read, and first before a passphrase is asked for, so that storage that
    /// somebody else may write to cannot come with an older header, or one of theirs.
    #[arg(long, value_name = "PIN", value_parser = pins::parse)]
    pub(crate) expect_header: Vec<Expected>,
    /// Of an NBD server: seconds that a lost connection may stay lost before requests fail
    ///
    /// Until then they wait, and go on where they were once the server is there again. A server that
    /// says nothing to requests for 60 seconds, or for as long as this if it is longer, counts as lost.
    #[arg(long, value_name = "SECONDS", default_value_t = RECONNECT, value_parser = clap::value_parser!(u32).range(..=86400))]
    pub(crate) reconnect: u32,
    /// Whether to go past the page cache; set by commands with that option.
    #[arg(skip)]
    pub(crate) direct_io: bool,
}

impl DeviceArgs {
    /// How long a lost connection may stay lost.
    pub(crate) fn reconnect(&self) -> Duration {
        Duration::from_secs(self.reconnect.into())
    }

    /// The metadata on a disk, which has to be what is expected.
    pub(crate) fn metadata_on(&self, disk: &Disk) -> Result<Device> {
        let pins: Vec<Pin> = self.pins().cloned().collect();
        Ok(disk.metadata()?.expecting(&pins))
    }

    /// What its header is expected to be.
    pub(crate) fn pins(&self) -> impl Iterator<Item = &Pin> {
        self.expect_header.iter().flat_map(|expected| &expected.0)
    }

    /// What holds the metadata, for messages.
    pub(crate) fn metadata_name(&self) -> String {
        match (&self.detached.header, self.partition) {
            (Some(header), _) => header.display().to_string(),
            (None, Some(number)) => format!("partition {number} of {}", self.device.display()),
            (None, None) => self.device.display().to_string(),
        }
    }
}

/// The detached header.
#[derive(Args, Clone, Debug)]
pub(crate) struct HeaderArgs {
    /// Detached LUKS header: a file, device or NBD export of its own holds the metadata
    #[arg(long, value_name = "FILE")]
    pub(crate) header: Option<PathBuf>,
}

/// Where the passphrase comes from.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Passphrase")]
pub(crate) struct KeyArgs {
    /// Read the passphrase from this file; `-` is standard input
    ///
    /// The file is the passphrase byte by byte, line ends included, up to 8 MiB.
    /// Without any of the options of this section the passphrase is the systemd
    /// credential `xtent.passphrase` or `cryptsetup.passphrase` if there is one;
    /// else it is asked for on the terminal; else, when standard input is no
    /// terminal, it is one line of that, without the line end, up to 512 bytes.
    #[arg(short = 'd', long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// Skip so many bytes of the key file
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub(crate) keyfile_offset: Option<u64>,
    /// Use so many bytes of the key file, which must have them
    #[arg(short = 'l', long, value_name = "BYTES", value_parser = parse_size)]
    pub(crate) keyfile_size: Option<u64>,
    /// Read the passphrase from this inherited file descriptor, as a key file
    #[arg(long, value_name = "N", value_parser = parse_inherited, conflicts_with = "key_file")]
    pub(crate) key_fd: Option<InheritedFd>,
    /// Read the passphrase from this systemd credential, as a key file
    #[arg(long, value_name = "NAME", conflicts_with_all = ["key_file", "key_fd"])]
    pub(crate) credential: Option<String>,
    /// Read the passphrase from the output of this command, as a key file
    ///
    /// For clients of key servers: `--key-command 'vault kv get -field=pass kv/disk'`. It is
    /// one argument here, and split into words at blanks, as a shell does it with quotes and
    /// backslashes; no shell is run, and no variables are put in. The command finds the name of
    /// the device in XTENT_DEVICE and the UUID of its header in XTENT_UUID, has nothing on
    /// standard input, cannot ask on the terminal (--ask-with is for that), and may take
    /// 60 seconds, or --timeout. If it fails, so does this command.
    #[arg(long, value_name = "COMMAND", value_parser = OsStringValueParser::new().try_map(parse_command), conflicts_with_all = ["key_file", "key_fd", "credential", "keyfile_offset", "keyfile_size"])]
    pub(crate) key_command: Option<CommandLine>,
    /// Give up if nothing was typed for so long, on a terminal, or a command took longer
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) timeout: Option<u32>,
    /// Whether standard input is data, so that no passphrase comes from there.
    #[arg(skip)]
    stdin_is_data: bool,
    /// Ask by this program, instead of on the terminal
    ///
    /// It is run with the question as its only argument, and XTENT_ASK_TRY=1, 2, ... in the
    /// environment; what it prints is the passphrase, without one line end after it. If it
    /// fails, so does this command.
    #[arg(long, value_name = "PROGRAM", conflicts_with_all = ["key_file", "key_fd", "credential", "key_command"])]
    pub(crate) ask_with: Option<PathBuf>,
}

impl KeyArgs {
    pub(crate) fn source(&self) -> Source {
        if let Some(program) = &self.ask_with {
            return Source::Program(program.clone());
        }
        if let Some(command) = &self.key_command {
            return Source::Command(command.0.clone());
        }
        let source = source(
            self.key_file.as_ref(),
            self.key_fd.as_ref(),
            self.credential.as_ref(),
            self.keyfile_offset,
            self.keyfile_size,
            CREDENTIALS,
        );
        if self.stdin_is_data && source.is_default() && !source.has_credential() {
            return Source::Terminal;
        }
        source
    }
}

impl KeyArgs {
    /// Reads an existing passphrase for a volume; a terminal is asked with `prompt`.
    pub(crate) fn read(&self, prompt: &str, asked: &Asked) -> Result<SecretBytes> {
        self.source().read_for(asked, prompt, self.typing_time())
    }

    /// How long a person may take to type.
    pub(crate) fn typing_time(&self) -> Option<Duration> {
        self.timeout
            .map(|seconds| Duration::from_secs(seconds.into()))
    }
}

/// How a volume is unlocked: by a token, by a passphrase, or by its key itself.
#[derive(Args, Clone, Debug)]
pub(crate) struct UnlockArgs {
    #[command(flatten)]
    pub(crate) passphrase: PassphraseArgs,
    #[command(flatten)]
    pub(crate) tokens: TokenArgs,
    /// Unlock with the volume key in this file instead of a passphrase
    ///
    /// The key itself, byte for byte, as `xtent header dump --volume-key-file` and
    /// cryptsetup write it; `-` is standard input. It is checked against the
    /// header's digest, and opens the volume even if no keyslot is left.
    #[arg(long, value_name = "FILE", help_heading = "Passphrase", conflicts_with_all = ["key_file", "key_fd", "credential", "key_command", "key_slot", "token_id", "token_type", "token_only", "token_pin_file"])]
    pub(crate) volume_key_file: Option<PathBuf>,
}

impl UnlockArgs {
    /// The same without the key file: a person is asked, by `program` or on the terminal.
    #[cfg(feature = "device-mapper")]
    pub(crate) fn asking(&self, program: Option<&std::path::Path>) -> Self {
        let mut asking = self.clone();
        let key = &mut asking.passphrase.key;
        key.key_file = None;
        key.key_command = None;
        key.keyfile_offset = None;
        key.keyfile_size = None;
        key.ask_with = program.map(Into::into);
        // A key file was to be used, and tokens were not.
        asking.tokens.no_tokens = true;
        asking
    }

    /// Leaves standard input to the data: what unlocks comes from elsewhere, a
    /// passphrase by default from the terminal all the same.
    pub(crate) fn leave_stdin(&mut self) -> Result<()> {
        let files = [
            &self.passphrase.key.key_file,
            &self.volume_key_file,
            &self.tokens.token_pin_file,
        ];
        let is_stdin = |path: &PathBuf| crate::plain::descriptor(path, 0) == Some(0);
        if files.into_iter().flatten().any(is_stdin) {
            return Err(Failure::parameters(
                "standard input cannot be both the data and what unlocks the volume",
            )
            .advise("Give a file instead of `-`, or --key-fd N."));
        }
        self.passphrase.key.stdin_is_data = true;
        Ok(())
    }
}

/// What holds for a passphrase holds for whoever may use a token instead.
impl std::ops::Deref for UnlockArgs {
    type Target = PassphraseArgs;

    fn deref(&self) -> &PassphraseArgs {
        &self.passphrase
    }
}

/// Tokens: ways in the LUKS2 header to a passphrase that nobody has to know.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Tokens")]
pub(crate) struct TokenArgs {
    /// Try this LUKS2 token only, before a passphrase is asked for
    ///
    /// Without any option of this section, and none for a passphrase, all tokens of the
    /// volume are tried first: systemd-tpm2, systemd-fido2, clevis, and every other type
    /// for which cryptsetup has a plugin. A token with a PIN asks for it on the terminal.
    #[arg(long, value_name = "N", value_parser = parse_slot, conflicts_with_all = KEY_OPTIONS)]
    pub(crate) token_id: Option<u32>,
    /// Try tokens of this type only: systemd-tpm2, clevis, ...
    #[arg(long, value_name = "TYPE", conflicts_with_all = KEY_OPTIONS)]
    pub(crate) token_type: Option<String>,
    /// Fail when no token opens the volume, instead of asking for a passphrase
    #[arg(long, conflicts_with_all = KEY_OPTIONS)]
    pub(crate) token_only: bool,
    /// Try no tokens: ask for the passphrase at once
    #[arg(long, conflicts_with_all = ["token_id", "token_type", "token_only"])]
    pub(crate) no_tokens: bool,
    /// Read the token's PIN from the first line of this file
    ///
    /// Without, it is the systemd credential `cryptsetup.tpm2-pin`, `cryptsetup.fido2-pin`
    /// or `cryptsetup.pkcs11-pin` by the token's type if there is one; else it is asked for
    /// on the terminal.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_pin_file: Option<PathBuf>,
    /// TPM to use: device:/dev/tpmrm0, for example [default: this machine's]
    #[arg(long, value_name = "DEVICE")]
    pub(crate) tpm2_device: Option<String>,
    /// Seconds that a token may take, to be touched or to reach its server
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) token_timeout: u32,
    /// Folder of the programs that open tokens [default: PREFIX/libexec/xtent]
    #[arg(long, value_name = "DIR")]
    pub(crate) token_helpers: Option<PathBuf>,
}

/// Options that say where the passphrase comes from.
const KEY_OPTIONS: [&str; 4] = ["key_file", "key_fd", "credential", "key_command"];

impl TokenArgs {
    /// Whether an option asks for a token.
    pub(crate) fn is_asked_for(&self) -> bool {
        self.token_only || self.token_id.is_some() || self.token_type.is_some()
    }
}

/// How a passphrase unlocks a volume.
#[derive(Args, Clone, Debug)]
pub(crate) struct PassphraseArgs {
    #[command(flatten)]
    pub(crate) key: KeyArgs,
    /// Try this keyslot only
    #[arg(short = 'S', long, value_name = "N", help_heading = "Passphrase", value_parser = parse_slot)]
    pub(crate) key_slot: Option<u32>,
    /// How often a passphrase may be typed until it is right
    #[arg(short = 'T', long, value_name = "N", default_value_t = 3, help_heading = "Passphrase", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) tries: u32,
    /// Run a key derivation even if it takes more than ten minutes
    ///
    /// The header says how costly the derivation is. It is estimated first and
    /// refused with the estimate if it would take longer than that: such a
    /// header is broken or hostile more often than meant.
    #[arg(long, help_heading = "Passphrase")]
    pub(crate) allow_expensive_kdf: bool,
    /// Derive keys with Argon2 of more than 32 MiB one at a time, among all programs that do so
    ///
    /// For volumes that are unlocked at the same time, at boot for example: each derivation
    /// takes up to 1 GiB. Without it, those take turns that would need more than a
    /// quarter of the free memory. cryptsetup has the same option and the same lock, in
    /// /run/cryptsetup; users who may not use that do not take turns.
    #[arg(long, help_heading = "Passphrase")]
    pub(crate) serialize_memory_hard_pbkdf: bool,
}

impl PassphraseArgs {
    /// Has this process derive keys as `--serialize-memory-hard-pbkdf` says.
    pub(crate) fn take_turns(&self) {
        if self.serialize_memory_hard_pbkdf {
            xtent_luks::kdf::serialize_memory_hard();
        }
    }

    pub(crate) fn limits(&self) -> KdfLimits {
        KdfLimits {
            longest: (!self.allow_expensive_kdf).then_some(LONGEST_DERIVATION),
        }
    }
}

/// How many cores one request may use.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct ThreadsArgs {
    /// Threads that encrypt or decrypt one large request: a number up to 16, or auto
    ///
    /// With auto, large requests are cut over all cores where the cipher is slow
    /// enough on this CPU that it pays; where it is fast no thread is started.
    /// Neither is a request cut while the cores are busy with others.
    #[arg(long, value_name = "N", default_value = "auto", value_parser = parse_threads)]
    pub(crate) cipher_threads: CipherThreads,
}

/// What a sector reads as that was never written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum HolesAre {
    /// What its zeros decrypt to, as with dm-crypt
    Noise,
    /// Zeros, as with librbd: a sector whose ciphertext is all zeros
    Zero,
}

/// What is never written is read as.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct HolesArgs {
    /// What sectors read as that were never written, or were discarded
    ///
    /// zero: a sector reads as zeros if all its ciphertext is zeros, as sparse files and thin
    /// storage show what was never written. It costs security: whoever owns the storage can make
    /// any sector read as zeros, unnoticed, where otherwise it becomes noise.
    #[arg(long, value_name = "AS", default_value = "noise")]
    holes: HolesAre,
}

impl HolesArgs {
    /// What the volume is to do.
    pub(crate) fn holes(self) -> Holes {
        match self.holes {
            HolesAre::Noise => Holes::Noise,
            HolesAre::Zero => Holes::Zero,
        }
    }
}

/// How the device is read and written.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct DirectArgs {
    /// Read and write past the page cache (O_DIRECT), for clients that cache themselves
    ///
    /// Without it what is read twice comes from memory, and the system writes when it
    /// sees fit or a client flushes; but a guest or a file system with a cache of its own then
    /// has everything in memory twice. The device or file system has to have it.
    #[arg(long)]
    direct_io: bool,
}

impl DirectArgs {
    /// The device, to be opened so.
    pub(crate) fn device(self, device: &DeviceArgs) -> DeviceArgs {
        DeviceArgs {
            direct_io: self.direct_io,
            ..device.clone()
        }
    }
}

/// Parses the number of a keyslot or token, of which LUKS2 has 32 each.
pub(crate) fn parse_slot(text: &str) -> std::result::Result<u32, String> {
    let number = text.parse().ok().filter(|number| *number < 32);
    number.ok_or_else(|| "it is no number from 0 to 31".to_owned())
}

pub(crate) fn parse_threads(text: &str) -> std::result::Result<CipherThreads, String> {
    if text == "auto" {
        return Ok(CipherThreads::Auto);
    }
    text.parse()
        .ok()
        .filter(|&count: &NonZeroUsize| count.get() <= 16)
        .map(CipherThreads::Count)
        .ok_or_else(|| "possible are 1 to 16 and auto".to_owned())
}

/// Where a new passphrase comes from, next to the existing one.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "New passphrase")]
pub(crate) struct NewKeyArgs {
    /// Read the new passphrase from this file
    ///
    /// As --key-file. Without any of the options of this section the new
    /// passphrase is the systemd credential `xtent.new-passphrase` if there is
    /// one; else it is asked for twice on the terminal; else it is the next
    /// line of standard input.
    #[arg(long, value_name = "FILE")]
    pub(crate) new_key_file: Option<PathBuf>,
    /// Skip so many bytes of the new key file
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub(crate) new_keyfile_offset: Option<u64>,
    /// Use so many bytes of the new key file, which must have them
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub(crate) new_keyfile_size: Option<u64>,
    /// Read the new passphrase from this inherited file descriptor
    #[arg(long, value_name = "N", value_parser = parse_inherited, conflicts_with = "new_key_file")]
    pub(crate) new_key_fd: Option<InheritedFd>,
    /// Read the new passphrase from this systemd credential
    #[arg(long, value_name = "NAME", conflicts_with_all = ["new_key_file", "new_key_fd"])]
    pub(crate) new_credential: Option<String>,
    /// Read the new passphrase from the output of this command, as --key-command does
    #[arg(long, value_name = "COMMAND", value_parser = OsStringValueParser::new().try_map(parse_command), conflicts_with_all = ["new_key_file", "new_key_fd", "new_credential", "new_keyfile_offset", "new_keyfile_size"])]
    pub(crate) new_key_command: Option<CommandLine>,
}

impl NewKeyArgs {
    pub(crate) fn source(&self) -> Source {
        if let Some(command) = &self.new_key_command {
            return Source::Command(command.0.clone());
        }
        source(
            self.new_key_file.as_ref(),
            self.new_key_fd.as_ref(),
            self.new_credential.as_ref(),
            self.new_keyfile_offset,
            self.new_keyfile_size,
            NEW_CREDENTIALS,
        )
    }
}

fn source(
    file: Option<&PathBuf>,
    fd: Option<&InheritedFd>,
    credential: Option<&String>,
    offset: Option<u64>,
    size: Option<u64>,
    names: &'static [&'static str],
) -> Source {
    let offset = offset.unwrap_or(0);
    if let Some(path) = file {
        Source::File {
            path: path.clone(),
            offset,
            size,
        }
    } else if let Some(fd) = fd {
        Source::Descriptor {
            fd: fd.clone(),
            offset,
            size,
        }
    } else if let Some(name) = credential {
        Source::Credential(name.clone())
    } else {
        Source::Default(names)
    }
}

/// Key derivations by cryptsetup's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pbkdf {
    Argon2id,
    Argon2i,
    Pbkdf2,
}

impl From<Pbkdf> for KdfKind {
    fn from(kind: Pbkdf) -> Self {
        match kind {
            Pbkdf::Argon2id => KdfKind::Argon2id,
            Pbkdf::Argon2i => KdfKind::Argon2i,
            Pbkdf::Pbkdf2 => KdfKind::Pbkdf2,
        }
    }
}

/// How a new keyslot's key is derived.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Key derivation")]
pub(crate) struct KdfArgs {
    /// Key derivation of the new keyslot [default: argon2id; LUKS1 has pbkdf2 only]
    #[arg(long, value_name = "KIND")]
    pub(crate) pbkdf: Option<Pbkdf>,
    /// Milliseconds that the derivation should take on this machine
    #[arg(short = 'i', long, value_name = "MS", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub(crate) iter_time: u64,
    /// Fixed cost instead of a benchmark: passes (Argon2) or iterations (PBKDF2)
    ///
    /// For Argon2 the memory is then that of --pbkdf-memory, or its default.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "iter_time")]
    pub(crate) pbkdf_force_iterations: Option<u32>,
    /// Memory for Argon2 in KiB, at most [default: 1048576, less if less is free]
    #[arg(long, value_name = "KIB", value_parser = clap::value_parser!(u32).range(32..=4_194_304))]
    pub(crate) pbkdf_memory: Option<u32>,
    /// Threads for Argon2, at most [default: 4, less if there are fewer CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4))]
    pub(crate) pbkdf_parallel: Option<u32>,
    /// Hash of PBKDF2 (and, when formatting, of the anti-forensic splitter and the digest)
    #[arg(long, value_name = "HASH", default_value = "sha256", value_parser = parse_hash)]
    pub(crate) hash: String,
}

/// One of the hashes that key derivation knows, by cryptsetup's names.
fn parse_hash(text: &str) -> std::result::Result<String, String> {
    let name = text.to_ascii_lowercase();
    if pbkdf2_hashes().any(|known| known == name) {
        Ok(name)
    } else {
        let known: Vec<&str> = pbkdf2_hashes().collect();
        Err(format!("known are {}", known.join(", ")))
    }
}

impl KdfArgs {
    pub(crate) fn choice(&self) -> KdfChoice {
        KdfChoice {
            kind: self.pbkdf.map(KdfKind::from),
            hash: Some(self.hash.clone()),
            target: Duration::from_millis(self.iter_time),
            force_iterations: self.pbkdf_force_iterations,
            memory: self.pbkdf_memory,
            parallel: self.pbkdf_parallel,
        }
    }
}

/// Progress for programs.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct ProgressArgs {
    /// Report progress on standard error, as lines of JSON, instead of a bar
    ///
    /// At most two lines a second and one at the end, each an object with `bytes`
    /// (done), `total` (null if nobody knows) and `seconds` (since the start).
    #[arg(long)]
    pub(crate) progress_json: bool,
}

/// For commands that ask before they destroy something.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct ConfirmArgs {
    /// Do not ask for a confirmation
    ///
    /// Where the command would ask for one and there is no terminal, it fails
    /// without this.
    #[arg(short = 'q', long)]
    pub(crate) batch_mode: bool,
}
