//! Options that several commands share, written once.

mod device;
mod engine;
mod kdf;
mod passphrase;
mod tls;
mod unlock;

use std::num::NonZeroUsize;

use clap::{Args, ValueEnum};
use xtent_volume::{CipherThreads, Holes};

pub(crate) use device::{DeviceArgs, DirectArgs, HeaderArgs, RECONNECT};
pub(crate) use engine::{EngineArgs, EngineChoice};
pub(crate) use kdf::{KdfArgs, Pbkdf};
pub(crate) use passphrase::{KeyArgs, NewKeyArgs};
pub(crate) use tls::TlsArgs;
pub(crate) use unlock::{PassphraseArgs, TokenArgs, UnlockArgs};

/// How many cores one request may use.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct ThreadsArgs {
    /// Threads that encrypt or decrypt one large request: a number up to 16, or auto
    ///
    /// With auto, large requests are cut over all cores where the cipher is slow
    /// enough on this CPU that it pays; where it is fast no thread is started.
    /// Neither is a request cut while the cores are busy with others.
    #[arg(long, value_name = "N", default_value = "auto", value_parser = parse_threads)]
    pub(crate) cipher_threads: CipherThreads,
}

/// What a sector reads as that was never written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum HolesAre {
    /// What its zeros decrypt to, as with dm-crypt
    Noise,
    /// Zeros, as with librbd: a sector whose ciphertext is all zeros
    Zero,
}

/// What is never written is read as.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct HolesArgs {
    /// What sectors read as that were never written, or were discarded
    ///
    /// zero: a sector reads as zeros if all its ciphertext is zeros, as sparse files and thin
    /// storage show what was never written. It costs security: whoever owns the storage can make
    /// any sector read as zeros, unnoticed, where otherwise it becomes noise.
    #[arg(long, value_name = "AS", default_value = "noise")]
    holes: HolesAre,
}

impl HolesArgs {
    /// What the volume is to do.
    pub(crate) fn holes(self) -> Holes {
        match self.holes {
            HolesAre::Noise => Holes::Noise,
            HolesAre::Zero => Holes::Zero,
        }
    }
}

/// Parses the number of a keyslot or token, of which LUKS2 has 32 each.
pub(crate) fn parse_slot(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| *number < 32);
    number.ok_or_else(|| "it is no number from 0 to 31".to_owned())
}

pub(crate) fn parse_threads(text: &str) -> Result<CipherThreads, String> {
    if text == "auto" {
        return Ok(CipherThreads::Auto);
    }
    text.parse()
        .ok()
        .filter(|&count: &NonZeroUsize| count.get() <= 16)
        .map(CipherThreads::Count)
        .ok_or_else(|| "possible are 1 to 16 and auto".to_owned())
}

/// Progress for programs.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct ProgressArgs {
    /// Report progress on standard error, as lines of JSON, instead of a bar
    ///
    /// At most two lines a second and one at the end, each an object with `bytes`
    /// (done), `total` (null if nobody knows) and `seconds` (since the start).
    #[arg(long)]
    pub(crate) progress_json: bool,
}

/// For commands that ask before they destroy something.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct ConfirmArgs {
    /// Do not ask for a confirmation
    ///
    /// Where the command would ask for one and there is no terminal, it fails
    /// without this.
    #[arg(short = 'q', long)]
    pub(crate) batch_mode: bool,
}
