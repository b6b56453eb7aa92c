//! From a device to its volume key: by a token, a passphrase, or the key itself.

use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use xtent_luks::{Device, Unlocked};
use xtent_secret::SecretBytes;

use crate::args::{PassphraseArgs, UnlockArgs};
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::secrets::{Asked, read_key};
use crate::tokens;

/// A volume's key, and how it was come by.
pub(crate) struct Found {
    pub(crate) unlocked: Unlocked,
    /// The token that had the passphrase; typed or read from elsewhere without one.
    pub(crate) token: Option<u32>,
}

/// Tries the volume's tokens, unless another way is asked for; then asks for the passphrase,
/// again after a wrong one if a person types. Or takes the volume key from a file.
pub(crate) fn unlock_with_retries(
    device: &Device,
    path: &Path,
    args: &UnlockArgs,
    output: &Output,
) -> Result<Found> {
    if let Some(file) = &args.volume_key_file {
        return by_volume_key(device, path, file, args, output);
    }
    args.take_turns();
    if let Some(opened) = tokens::unlock(device, path, args, output)? {
        return Ok(opened);
    }
    let (_, unlocked) = passphrase_and_unlock(device, path, args, output)?;
    Ok(Found {
        unlocked,
        token: None,
    })
}

fn by_volume_key(
    device: &Device,
    path: &Path,
    file: &Path,
    args: &UnlockArgs,
    output: &Output,
) -> Result<Found> {
    let key = read_key(file)?;
    if let Some(length) = device.read()?.key_length()
        && key.len() != length
    {
        return Err(Failure::parameters(format!(
            "{} holds {} bytes, the key of {} has {length}",
            file.display(),
            key.len(),
            path.display()
        )));
    }
    let limits = args.limits();
    let unlocked = while_deriving(output, || device.unlock_with_volume_key(key, &limits))?;
    Ok(Found {
        unlocked,
        token: None,
    })
}

/// Asks for the passphrase, again after a wrong one if a person types; gives it too.
pub(crate) fn passphrase_and_unlock(
    device: &Device,
    path: &Path,
    args: &PassphraseArgs,
    output: &Output,
) -> Result<(SecretBytes, Unlocked)> {
    args.take_turns();
    let interactive = args.key.source().is_interactive();
    let asked = Asked::of_volume(path, device, &args.key.source());
    with_retries(args.tries, interactive, output, || {
        let passphrase = args.key.read(&prompt(path), &asked)?;
        let unlocked = while_deriving(output, || {
            device.unlock(&passphrase, args.key_slot, &args.limits())
        })?;
        Ok((passphrase, unlocked))
    })
}

/// Runs what derives a key; if that takes longer than a person waits without
/// wondering, says what goes on.
pub(crate) fn while_deriving<T>(output: &Output, derive: impl FnOnce() -> T) -> T {
    if !output.has_viewer() {
        return derive();
    }
    unless_done_within(PATIENCE, || output.note("Deriving the key ..."), derive)
}

/// How long nobody wonders.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// Runs `work`, and `note` beside it if it is not done in time.
fn unless_done_within<T>(
    patience: Duration,
    note: impl FnOnce() + Send,
    work: impl FnOnce() -> T,
) -> T {
    let (done, waits) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if waits.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
                note();
            }
        });
        let value = work();
        drop(done);
        value
    })
}

/// Runs `attempt` up to `tries` times while it fails for a wrong passphrase.
pub(crate) fn with_retries<T>(
    tries: u32,
    interactive: bool,
    output: &Output,
    mut attempt: impl FnMut() -> Result<T>,
) -> Result<T> {
    let tries = if interactive { tries } else { 1 };
    let mut left = tries;
    loop {
        left = left.saturating_sub(1);
        match attempt() {
            Err(failure) if failure.is_wrong_passphrase && left > 0 => {
                output.warn(format!("{}; try again", failure.message));
            }
            other => return other,
        }
    }
}

/// The question for the passphrase of `path`.
pub(crate) fn prompt(path: &Path) -> String {
    format!("Passphrase for {}: ", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_comes_only_to_those_who_wait() {
        // What waits for the note itself shows that it comes meanwhile.
        let (say, said) = mpsc::channel::<()>();
        let value = unless_done_within(Duration::ZERO, move || drop(say), || said.recv().is_err());
        assert!(value);
        let quick = unless_done_within(Duration::MAX, || panic!("a note"), || 7);
        assert_eq!(quick, 7);
    }
}
