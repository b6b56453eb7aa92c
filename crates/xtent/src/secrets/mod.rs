//! Where passphrases come from: terminal, key file, descriptor, standard
//! input, systemd credential, a program that asks, a command. Never the command line's words nor the
//! environment's values, which other processes can see.

mod command;
mod program;
mod read;
mod terminal;

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use xtent_secret::SecretBytes;

use crate::failure::{Exit, Failure, Result};
use crate::fds::InheritedFd;
use crate::output::Output;
pub(crate) use command::Asked;
use read::{read_line, read_whole};
pub(crate) use terminal::ask_line;

/// Longest passphrase that is typed or comes as a line, as in cryptsetup.
pub(crate) const LINE_LIMIT: usize = 512;
/// Largest key file, as in cryptsetup.
pub(crate) const FILE_LIMIT: usize = 8 << 20;

/// Where one passphrase comes from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// A file, or standard input for `-`: every byte counts, line ends too.
    File {
        path: PathBuf,
        offset: u64,
        size: Option<u64>,
    },
    /// An inherited descriptor, read as a file.
    Descriptor {
        fd: InheritedFd,
        offset: u64,
        size: Option<u64>,
    },
    /// A file in `$CREDENTIALS_DIRECTORY`.
    Credential(String),
    /// The terminal, whatever standard input is.
    Terminal,
    /// A program that asks a person.
    Program(PathBuf),
    /// A command whose output it is, by program and arguments.
    Command(Vec<OsString>),
    /// Nothing was asked for: a credential of one of these names if there is
    /// one, else the terminal if standard input is one, else a line of
    /// standard input.
    Default(&'static [&'static str]),
}

/// A command by program and arguments, for the command line.
#[derive(Clone, Debug)]
pub(crate) struct CommandLine(pub(crate) Vec<OsString>);

/// Parses one text as a shell splits it, without the rest of a shell.
pub(crate) fn parse_command(text: impl AsRef<OsStr>) -> std::result::Result<CommandLine, String> {
    command::parse(text.as_ref()).map(CommandLine)
}

/// A file or disk that something secret is read from, and that could be overwritten; no pipe,
/// socket or terminal.
pub(crate) struct Stored {
    /// For messages.
    pub(crate) name: String,
    pub(crate) metadata: Metadata,
}

impl Stored {
    /// What a path leads to; `-` is standard input.
    pub(crate) fn at(path: &Path) -> Option<Self> {
        if path == Path::new("-") {
            return Self::stdin();
        }
        Self::new(path.display().to_string(), path.metadata().ok())
    }

    fn stdin() -> Option<Self> {
        let copy = stdin().try_clone_to_owned().ok()?;
        let metadata = File::from(copy).metadata().ok();
        Self::new("standard input".to_owned(), metadata)
    }

    fn new(name: String, metadata: Option<Metadata>) -> Option<Self> {
        let metadata = metadata.filter(|m| m.is_file() || m.file_type().is_block_device())?;
        Some(Self { name, metadata })
    }
}

/// Names of the credentials that hold the passphrase if nothing else is given.
pub(crate) const CREDENTIALS: &[&str] = &["xtent.passphrase", "cryptsetup.passphrase"];
/// Names of the credentials that hold a new passphrase if nothing else is given.
pub(crate) const NEW_CREDENTIALS: &[&str] = &["xtent.new-passphrase"];

impl Source {
    /// Whether a person types it and so may try again.
    pub(crate) fn is_interactive(&self) -> bool {
        match self {
            Source::Default(names) => {
                default_credential(names).is_none() && std::io::stdin().is_terminal()
            }
            Source::Terminal => true,
            Source::Program(_) => true,
            _ => false,
        }
    }

    /// Whether no option named it.
    pub(crate) fn is_default(&self) -> bool {
        matches!(self, Source::Default(_))
    }

    /// Whether no option named it and there is a credential for it.
    pub(crate) fn has_credential(&self) -> bool {
        matches!(self, Source::Default(names) if default_credential(names).is_some())
    }

    /// Whether neither an option nor a credential says where the passphrase comes from.
    pub(crate) fn is_nobodys(&self) -> bool {
        match self {
            Source::Default(names) => default_credential(names).is_none(),
            // Both ask a person.
            Source::Terminal | Source::Program(_) => true,
            _ => false,
        }
    }

    /// Reads the PIN of a token, beside this passphrase: the first line of `file`, or of the
    /// credential `name` if there is one, or what a person types on the terminal, who may
    /// try again (`true`). `None` if there is nobody to ask.
    pub(crate) fn pin(
        &self,
        file: Option<&Path>,
        name: Option<&str>,
        prompt: &str,
        typing: Option<Duration>,
    ) -> Result<Option<(SecretBytes, bool)>> {
        let credential = || name.and_then(|name| default_credential(&[name]));
        if let Some(path) = file.map(Path::to_owned).or_else(credential) {
            let mut pin = read_credential(&path)?;
            if let Some(end) = pin.iter().position(|&byte| byte == b'\n') {
                pin.truncate(end);
            }
            return Ok(Some((pin, false)));
        }
        if let Source::Program(path) = self {
            return Ok(Some((program::ask_anew(path, prompt)?, true)));
        }
        let is_watched = match self {
            Source::Terminal => terminal::check().is_ok(),
            _ => std::io::stdin().is_terminal(),
        };
        if is_watched {
            return Ok(Some((terminal::ask_secret(prompt, typing)?, true)));
        }
        Ok(None)
    }

    /// What it will be read from, if that is a file or disk.
    pub(crate) fn stored(&self) -> Option<Stored> {
        match self {
            Source::File { path, .. } => Stored::at(path),
            Source::Descriptor { fd, .. } => {
                Stored::new("the descriptor of the key".to_owned(), fd.metadata())
            }
            Source::Credential(name) => Stored::at(&credential_path(name).ok()?),
            Source::Default(names) => match default_credential(names) {
                Some(path) => Stored::at(&path),
                None => Stored::stdin(),
            },
            Source::Terminal | Source::Program(_) | Source::Command(_) => None,
        }
    }

    /// Checks, before anything is opened or written, that the source exists.
    pub(crate) fn check(&self) -> Result<()> {
        match self {
            Source::File { path, .. } if path != Path::new("-") => check_file(path),
            Source::Credential(name) => check_file(&credential_path(name)?),
            Source::Terminal => terminal::check(),
            Source::Program(path) => program::check(path),
            Source::Command(command) => command::check(command),
            _ => Ok(()),
        }
    }

    /// Reads a passphrase or a key; a terminal is asked with `prompt`.
    pub(crate) fn read(&self, prompt: &str) -> Result<SecretBytes> {
        self.read_for(&Asked::default(), prompt, None)
    }

    /// The same for a volume; a person may take so long to type, and a command to answer.
    pub(crate) fn read_for(
        &self,
        asked: &Asked,
        prompt: &str,
        typing: Option<Duration>,
    ) -> Result<SecretBytes> {
        match self {
            Source::File { path, offset, size } if path == Path::new("-") => {
                read_whole(std::io::stdin().as_fd(), "standard input", *offset, *size)
            }
            Source::File { path, offset, size } => read_whole(
                open(path)?.as_fd(),
                &path.display().to_string(),
                *offset,
                *size,
            ),
            Source::Descriptor { fd, offset, size } => {
                // Closed once it is read: a server must not keep its key at hand.
                let fd = fd.take().ok_or_else(|| {
                    Failure::parameters("two passphrases cannot come from the same descriptor")
                })?;
                read_whole(fd.as_fd(), "the given descriptor", *offset, *size)
            }
            Source::Credential(name) => read_credential(&credential_path(name)?),
            Source::Terminal => terminal::ask_secret(prompt, typing),
            Source::Program(path) => program::ask(path, prompt),
            Source::Command(command) => command::ask(command, asked, typing),
            Source::Default(names) => {
                if let Some(path) = default_credential(names) {
                    tracing::info!(path = %path.display(), "passphrase from a credential");
                    read_credential(&path)
                } else if std::io::stdin().is_terminal() {
                    terminal::ask_secret(prompt, typing)
                } else {
                    read_line(stdin(), LINE_LIMIT)
                }
            }
        }
    }

    /// Reads a new passphrase; an empty one is refused. A terminal is asked
    /// twice, and again up to `tries` times in all where the two differ.
    pub(crate) fn read_new(
        &self,
        asked: &Asked,
        prompt: &str,
        tries: u32,
        typing: Option<Duration>,
        output: &Output,
    ) -> Result<SecretBytes> {
        let mut left = tries;
        loop {
            left = left.saturating_sub(1);
            let secret = self.read_for(asked, prompt, typing)?;
            if secret.is_empty() {
                return Err(Failure::parameters(
                    "the new passphrase is empty; nothing was changed",
                ));
            }
            if !self.is_interactive()
                || secret == terminal::ask_secret("Verify passphrase: ", typing)?
            {
                return Ok(secret);
            }
            if left == 0 {
                return Err(Failure::new(
                    Exit::Permission,
                    "the passphrases do not match; nothing was changed",
                ));
            }
            output.warn("the passphrases do not match; try again");
        }
    }
}

/// Reads a whole key from a file, or from standard input for `-`.
pub(crate) fn read_key(path: &Path) -> Result<SecretBytes> {
    let path = path.to_owned();
    let (offset, size) = (0, None);
    Source::File { path, offset, size }.read("")
}

/// Writes a key to a new file that its owner only can read, durably.
pub(crate) fn write_key(path: &Path, key: &SecretBytes) -> Result<()> {
    let cannot = |what: &str, e: std::io::Error| {
        Failure::system(format!("cannot {what} {}", path.display()), e)
    };
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(|e| cannot("make", e))?;
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let written = file
        .write_all(key)
        .and_then(|()| file.sync_all())
        .and_then(|()| File::open(folder)?.sync_all());
    written.map_err(|e| {
        // Half a key is of no use.
        let _ = std::fs::remove_file(path);
        cannot("write", e)
    })
}

fn stdin() -> BorrowedFd<'static> {
    rustix::stdio::stdin()
}

/// Whether it can be opened later. A pipe is only looked at: opening it would
/// take the writer's one reader away.
fn check_file(path: &Path) -> Result<()> {
    match path.metadata() {
        Ok(m) if !m.is_file() && !m.is_dir() => Ok(()),
        _ => open(path).map(drop),
    }
}

fn open(path: &Path) -> Result<File> {
    let file = File::open(path)
        .map_err(|e| Failure::system(format!("cannot open key file {}", path.display()), e))?;
    if file.metadata().is_ok_and(|m| m.is_dir()) {
        return Err(Failure::parameters(format!(
            "key file {} is a directory",
            path.display()
        )));
    }
    Ok(file)
}

fn read_credential(path: &Path) -> Result<SecretBytes> {
    read_whole(open(path)?.as_fd(), &path.display().to_string(), 0, None)
}

fn credential_path(name: &str) -> Result<PathBuf> {
    if name.is_empty() || name.contains('/') || name == "." || name == ".." {
        return Err(Failure::parameters(format!(
            "`{name}` is not a credential's name"
        )));
    }
    match std::env::var_os("CREDENTIALS_DIRECTORY") {
        Some(dir) => Ok(Path::new(&dir).join(name)),
        None => Err(Failure::parameters(format!(
            "--credential {name}: $CREDENTIALS_DIRECTORY is not set"
        ))
        .advise("systemd sets it for units with LoadCredential=, LoadCredentialEncrypted= or SetCredentialEncrypted=.")),
    }
}

fn default_credential(names: &[&str]) -> Option<PathBuf> {
    let dir = std::env::var_os("CREDENTIALS_DIRECTORY")?;
    names
        .iter()
        .map(|name| Path::new(&dir).join(name))
        .find(|path| path.is_file())
}
