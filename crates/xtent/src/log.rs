//! Logs for people who look for a fault, on standard error: what happened, with
//! its values as `name=value`. Never a secret.

use std::io::IsTerminal;

use tracing::level_filters::LevelFilter;

use crate::cli::Global;

/// Starts logging as `-v` and `--quiet` say.
pub(crate) fn start(global: &Global) {
    let level = match (global.quiet, global.verbose) {
        (true, _) => LevelFilter::ERROR,
        (false, 0) => LevelFilter::WARN,
        (false, 1) => LevelFilter::INFO,
        (false, 2) => LevelFilter::DEBUG,
        (false, _) => LevelFilter::TRACE,
    };
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(global.verbose > 1)
        .without_time()
        .finish();
    // Nothing else in this process sets one.
    let _ = tracing::subscriber::set_global_default(subscriber);
}
