//! `xtent help`: what `--help` shows, by the command's name.

use clap::CommandFactory;

use crate::cli::Cli;
use crate::elsewhere;
use crate::failure::{Failure, Result};
use crate::output::write_stdout;

const MANUAL: &str = "\
EXAMPLES:
  Of everything, and of one command:
    xtent help
    xtent help key add";

/// Show the help of a command
#[derive(clap::Args, Debug)]
#[command(after_long_help = MANUAL)]
pub(crate) struct Args {
    /// Its name, `key add` for instance
    #[arg(value_name = "COMMAND")]
    path: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut command = Cli::command();
    command.build();
    for (depth, name) in args.path.iter().enumerate() {
        command = command
            .find_subcommand(name)
            .cloned()
            .ok_or_else(|| unknown(&args.path[..=depth]))?;
    }
    write_stdout(command.render_long_help().to_string().as_bytes())
}

fn unknown(path: &[String]) -> Failure {
    let failure = Failure::parameters(format!("there is no command `xtent {}`", path.join(" ")));
    let habit = match path {
        [name] => elsewhere::advice(name),
        [group, name] => elsewhere::advice_below(group, name),
        _ => None,
    };
    failure.advise(habit.unwrap_or("`xtent help` lists the commands."))
}
