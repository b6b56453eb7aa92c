//! A helper program that opens one token: what it is told, and what its end means.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use xtent_secret::SecretBytes;
use xtent_token::Outcome;

use crate::failure::Result;
pub(super) use crate::watched::Patience;
use crate::watched::{self, Ended};

/// The only folders that a helper finds programs in.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// What came of a helper.
pub(super) enum Answer {
    /// The passphrase.
    Passphrase(SecretBytes),
    /// Why there is none.
    No(Outcome),
    /// It took longer than it may.
    TimedOut,
}

/// Runs `program` with `request` (and the PIN behind it); calls `say` with each line that it
/// writes to standard error.
pub(super) fn run(
    program: &Path,
    request: &[u8],
    pin: Option<&SecretBytes>,
    patience: &Patience<'_>,
    say: &mut dyn FnMut(&str),
) -> Result<Answer> {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", PATH)
        .env("LC_ALL", "C.UTF-8")
        .current_dir("/");
    let said: Vec<&[u8]> = [request].into_iter().chain(pin.map(|pin| &**pin)).collect();
    let (status, passphrase) = match watched::run(&mut command, &said, patience, say)? {
        Ended::So(status, passphrase) => (status, passphrase),
        Ended::TimedOut => return Ok(Answer::TimedOut),
    };
    Ok(match status.code() {
        Some(code) => match Outcome::of_code(code) {
            Outcome::Opened => Answer::Passphrase(passphrase),
            other => Answer::No(other),
        },
        None => {
            say(&format!(
                "the helper was ended by signal {}",
                status.signal().unwrap_or_default()
            ));
            Answer::No(Outcome::Failed)
        }
    })
}
