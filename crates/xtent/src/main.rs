//! The command line; thin: everything is called, nothing is computed here.

mod args;
mod cipher;
mod cli;
mod client;
mod commands;
mod config;
mod confirm;
mod control;
mod copy;
mod daemon;
mod disk;
mod elsewhere;
mod engine;
mod failure;
mod fds;
#[cfg(feature = "device-mapper")]
mod ground;
mod growth;
mod headerless;
mod holder;
mod identity;
mod listen;
mod log;
mod mkfs;
mod notify;
mod old_volume;
mod open;
mod output;
mod partition;
mod pid_file;
mod pins;
mod plain;
mod probe;
mod registry;
mod runtime;
mod same;
mod sandbox;
mod secrets;
mod signals;
mod size;
mod sparse;
mod tokens;
mod trust;
#[cfg(feature = "device-mapper")]
mod turn;
#[cfg(feature = "device-mapper")]
mod ublk;
mod volumes;
mod waiting;
mod wanted;
mod watched;

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::cli::Cli;
use crate::failure::{Exit, Failure};

fn main() -> ExitCode {
    let hardened = xtent_secret::harden_process();
    let cli = match Cli::try_parse_from(arguments()) {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    signals::start(cli.global.json);
    log::start(&cli.global);
    let unlimited = signals::file_size_limit_is_an_error();
    if let Some(backend) = cli.global.cpu {
        xtent_luks::force_backend(backend);
    }
    if let Err(error) = hardened {
        tracing::warn!(%error, "core dumps and tracing could not be forbidden");
    }
    let code = match unlimited.and_then(|()| cli.command.run(&cli.global)) {
        Ok(()) => 0,
        Err(failure) => {
            if !failure.message.is_empty() {
                show(&failure, cli.global.json);
            }
            failure.exit as u8
        }
    };
    if disk::rbd::has_clients() {
        // A lost image may never be closed.
        let _ = std::io::stdout().flush();
        signals::end_with(code.into());
    }
    ExitCode::from(code)
}

/// The command line. Under the name that systemd knows the generator by, its arguments.
fn arguments() -> Vec<OsString> {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    let called = arguments.first().map(Path::new).and_then(Path::file_name);
    if called.is_some_and(|name| name == "xtent-generator") {
        arguments.splice(..1, ["xtent", "crypttab", "generate"].map(OsString::from));
    }
    arguments
}

fn show(failure: &Failure, json: bool) {
    if json {
        output::complain(&failure.to_json().to_string());
    } else {
        output::complain(&format!("xtent: {failure}"));
    }
}

/// What was typed, and what to say to it, where people may have it from elsewhere.
fn habit(error: &clap::Error, name: &str) -> Option<(String, &'static str)> {
    // "Usage: xtent key [OPTIONS] <COMMAND>" names the group, wherever options stood.
    let usage = error.get(ContextKind::Usage)?.to_string();
    let mut words = usage.split_whitespace().skip_while(|word| *word != "xtent");
    match words.nth(1).filter(|word| !word.starts_with(['[', '<'])) {
        None => Some((name.to_owned(), elsewhere::advice(name)?)),
        Some(group) => Some((
            format!("{group} {name}"),
            elsewhere::advice_below(group, name)?,
        )),
    }
}

/// Prints what clap has to say, in colours where it may; help and version are answers. Whoever
/// does not read them to the end does not need them.
fn print(error: &clap::Error, is_answer: bool) -> failure::Result<()> {
    let held = is_answer.then(output::stdout).transpose()?;
    drop(held);
    match error.print() {
        Err(e) if is_answer && e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::system("cannot write to standard output", e))
        }
        _ => Ok(()),
    }
}

/// Help and version on standard output; a usage error on standard error, as
/// JSON if that was asked for. A command that is called otherwise here is named.
fn usage(error: &clap::Error) -> ExitCode {
    if error.kind() == ErrorKind::InvalidSubcommand
        && let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand)
        && let Some((command, advice)) = habit(error, name)
    {
        let failure = Failure::parameters(format!("there is no command `xtent {command}`"));
        let is_json = std::env::args_os().any(|arg| arg == "--json");
        show(&failure.advise(advice), is_json);
        return ExitCode::from(Exit::Parameters as u8);
    }
    let is_answer = matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    );
    if !is_answer && std::env::args_os().any(|arg| arg == "--json") {
        let text = error.render().to_string();
        let text = text.trim().trim_start_matches("error: ");
        show(&Failure::parameters(text), true);
    } else if let Err(failure) = print(error, is_answer) {
        show(&failure, false);
        return ExitCode::from(failure.exit as u8);
    }
    if is_answer {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(Exit::Parameters as u8)
    }
}
