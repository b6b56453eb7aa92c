//! `xtent completions`: shell completion scripts from the same grammar.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::failure::Result;
use crate::output::write_stdout;

const MANUAL: &str = "\
EXAMPLES:
  bash, for all users:
    xtent completions bash > /usr/share/bash-completion/completions/xtent
  zsh, for one user (the folder must be in $fpath):
    xtent completions zsh > ~/.zfunc/_xtent
  fish, for one user:
    xtent completions fish > ~/.config/fish/completions/xtent.fish";

/// Print the completion script for a shell
#[derive(clap::Args, Debug)]
#[command(after_long_help = MANUAL)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "xtent", &mut script);
    write_stdout(&script)
}
