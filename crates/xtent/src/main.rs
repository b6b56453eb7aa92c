//! The command line; thin: everything is called, nothing is computed here.

mod args;
mod cli;
mod commands;
mod confirm;
mod copy;
mod daemon;
mod failure;
mod fds;
mod listen;
mod log;
mod notify;
mod open;
mod output;
mod plain;
mod probe;
mod registry;
mod runtime;
mod same;
mod sandbox;
mod secrets;
mod signals;
mod size;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use crate::cli::Cli;
use crate::failure::{Exit, Failure};

fn main() -> ExitCode {
    let hardened = xtent_secret::harden_process();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    log::start(&cli.global);
    if let Some(backend) = cli.global.cpu {
        xtent_luks::force_backend(backend);
    }
    if let Err(error) = hardened {
        tracing::warn!(%error, "core dumps and tracing could not be forbidden");
    }
    match cli.command.run(&cli.global) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.message.is_empty() {
                show(&failure, cli.global.json);
            }
            ExitCode::from(failure.exit as u8)
        }
    }
}

fn show(failure: &Failure, json: bool) {
    if json {
        output::complain(&failure.to_json().to_string());
    } else {
        output::complain(&format!("xtent: {failure}"));
    }
}

/// Help and version on standard output; a usage error on standard error, as
/// JSON if that was asked for.
fn usage(error: &clap::Error) -> ExitCode {
    let is_answer = matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    );
    if !is_answer && std::env::args_os().any(|arg| arg == "--json") {
        let text = error.render().to_string();
        let text = text.trim().trim_start_matches("error: ");
        show(&Failure::parameters(text), true);
    } else {
        // A closed pipe is the only way to fail, and no reason to complain.
        let _ = error.print();
    }
    if is_answer {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(Exit::Parameters as u8)
    }
}
