//! The command line's grammar: the root of what help, completions and manual
//! pages are made of.

use clap::{Parser, Subcommand};

use crate::commands;
use crate::failure::Result;
use crate::output::Output;

/// Fast disk encryption in user space
///
/// Makes, opens and serves LUKS1 and LUKS2 volumes without the kernel's
/// dm-crypt and without root: over NBD to any client that speaks it, or through
/// FUSE as a mounted file system. On disk everything is byte for byte what
/// cryptsetup and dm-crypt read and write.
#[derive(Debug, Parser)]
#[command(
    name = "xtent",
    version,
    max_term_width = 100,
    after_long_help = ABOUT_ALL,
    disable_help_subcommand = true,
    args_override_self = true,
    propagate_version = true,
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Common options")]
pub(crate) struct Global {
    /// Results on standard output and errors on standard error as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Log more to standard error: once for what happens, twice for every step
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Nothing but answers, warnings, errors and questions
    ///
    /// An answer is what a command is for: the URI of `serve`, a dump, a list, JSON where
    /// that was asked for. That something was done is told by the exit code.
    #[arg(long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Force one implementation of the ciphers, of keyslots too, for support and comparisons
    #[arg(long, global = true, value_name = "BACKEND", value_parser = crate::open::parse_backend)]
    pub(crate) cpu: Option<sector_cipher::Backend>,
}

impl Global {
    pub(crate) fn output(&self) -> Output {
        Output {
            json: self.json,
            quiet: self.quiet,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Format(commands::format::Args),
    Serve(Box<commands::serve::Args>),
    Attach(Box<commands::attach::Args>),
    Detach(commands::attach::Detach),
    Resize(commands::resize::Args),
    Takeover(commands::takeover::Args),
    Mount(commands::mount::Args),
    Umount(commands::umount::Args),
    #[cfg(feature = "device-mapper")]
    Open(commands::open::Args),
    #[cfg(feature = "device-mapper")]
    Close(commands::close::Args),
    #[cfg(feature = "device-mapper")]
    Suspend(commands::suspend::Args),
    #[cfg(feature = "device-mapper")]
    Resume(Box<commands::resume::Args>),
    Status(commands::status::Args),
    Key(commands::key::Args),
    Header(commands::header::Args),
    Convert(commands::convert::Args),
    Token(commands::token::Args),
    Config(commands::config::Args),
    IsLuks(commands::identify::IsLuks),
    Uuid(commands::identify::Uuid),
    Encrypt(commands::encrypt::Args),
    Decrypt(commands::decrypt::Args),
    Bench(commands::bench::Args),
    Completions(commands::completions::Args),
    Help(commands::help::Args),
    #[cfg(feature = "device-mapper")]
    #[command(hide = true)]
    Crypttab(commands::crypttab::Args),
    #[command(hide = true)]
    Man(commands::man::Args),
}

impl Command {
    pub(crate) fn run(&self, global: &Global) -> Result<()> {
        match self {
            Command::Format(args) => commands::format::run(args, global),
            Command::Serve(args) => commands::serve::run(args, global),
            Command::Attach(args) => commands::attach::run(args, global),
            Command::Detach(args) => commands::attach::detach(args, global),
            Command::Resize(args) => commands::resize::run(args, global),
            Command::Takeover(args) => commands::takeover::run(args, global),
            Command::Mount(args) => commands::mount::run(args, global),
            Command::Umount(args) => commands::umount::run(args, global),
            #[cfg(feature = "device-mapper")]
            Command::Open(args) => commands::open::run(args, global),
            #[cfg(feature = "device-mapper")]
            Command::Close(args) => commands::close::run(args, global),
            #[cfg(feature = "device-mapper")]
            Command::Suspend(args) => commands::suspend::run(args, global),
            #[cfg(feature = "device-mapper")]
            Command::Resume(args) => commands::resume::run(args, global),
            Command::Status(args) => commands::status::run(args, global),
            Command::Key(args) => commands::key::run(args, global),
            Command::Header(args) => commands::header::run(args, global),
            Command::Convert(args) => commands::convert::run(args, global),
            Command::Token(args) => commands::token::run(args, global),
            Command::Config(args) => commands::config::run(args, global),
            Command::IsLuks(args) => commands::identify::is_luks(args),
            Command::Uuid(args) => commands::identify::uuid(args, global),
            Command::Encrypt(args) => commands::encrypt::run(args, global),
            Command::Decrypt(args) => commands::decrypt::run(args, global),
            Command::Bench(args) => commands::bench::run(args, global),
            Command::Completions(args) => commands::completions::run(args),
            Command::Help(args) => commands::help::run(args),
            #[cfg(feature = "device-mapper")]
            Command::Crypttab(args) => match commands::crypttab::run(args, global)? {
                Some(words) => Cli::try_parse_from(words)
                    .map_err(|e| {
                        crate::failure::Failure::parameters(
                            e.render().to_string().trim().to_owned(),
                        )
                    })?
                    .command
                    .run(global),
                None => Ok(()),
            },
            Command::Man(args) => commands::man::run(args),
        }
    }
}

const ABOUT_ALL: &str = "\
EXAMPLES:
  Make a volume of 10 GiB in a new image file:
    xtent format --size 10G disk.img
  Serve it to NBD clients on this machine:
    xtent serve --nbd unix:/tmp/disk.sock disk.img
  Make a file system on it, and mount that (as root):
    xtent mount --file-only disk.img /mnt
    mkfs.ext4 -b 4096 /mnt/volume
    xtent umount /mnt
    xtent mount disk.img /mnt
  Give it a second passphrase:
    xtent key add disk.img
  Save its header, without which the data is lost for good:
    xtent header backup disk.img disk.header

FILES:
  /run/cryptsetup
      Lock files for LUKS2 metadata on block devices, shared with cryptsetup.
  $XDG_RUNTIME_DIR/xtent, /run/xtent
      Default places of server sockets, of users and of root; status/PID.json in
      there says what each server serves. Where $XDG_RUNTIME_DIR is not set,
      users have /run/user/UID/xtent or /tmp/xtent-UID.
  $CREDENTIALS_DIRECTORY/xtent.passphrase
      The passphrase, where systemd passes one.

EXIT STATUS:
  0  success
  1  wrong parameters, or the options forbid it
  2  no permission, or no key for this passphrase
  3  out of memory (Argon2 needs more than is free)
  4  wrong device: missing, not LUKS, damaged, too short, or I/O error
  5  it exists already, or somebody else is using it
  129, 130, 143  ended by SIGHUP, SIGINT (Ctrl-C) or SIGTERM";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::EXIT_STATUS;
    use clap::CommandFactory;

    #[test]
    fn the_grammar_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_names_every_exit_code() {
        assert!(ABOUT_ALL.ends_with(EXIT_STATUS));
    }
}
