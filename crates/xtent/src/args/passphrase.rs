//! Where passphrases come from, existing and new ones.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use xtent_secret::SecretBytes;

use crate::failure::Result;
use crate::fds::{InheritedFd, parse_inherited};
use crate::secrets::{Asked, CREDENTIALS, CommandLine, NEW_CREDENTIALS, Source, parse_command};
use crate::size::parse_size;

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
    pub(super) stdin_is_data: bool,
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
