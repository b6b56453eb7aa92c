//! What unlocks a volume: a passphrase, a token, or its key.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use xtent_luks::KdfLimits;

use super::parse_slot;
use super::passphrase::KeyArgs;
use crate::failure::{Failure, Result};

/// A stored key derivation that would take longer is refused with its
/// estimate, unless the user insists.
const LONGEST_DERIVATION: Duration = Duration::from_secs(10 * 60);

/// How a volume is unlocked: by a token, by a passphrase, or by its key itself.
#[derive(Args, Clone, Debug)]
pub(crate) struct UnlockArgs {
    #[command(flatten)]
    pub(crate) passphrase: PassphraseArgs,
    #[command(flatten)]
    pub(crate) tokens: TokenArgs,
    /// Unlock with the volume key in this file instead of a passphrase
    ///
    /// The key itself, byte for byte, as `xtent header dump --volume-key-file` and
    /// cryptsetup write it; `-` is standard input. It is checked against the
    /// header's digest, and opens the volume even if no keyslot is left.
    #[arg(long, value_name = "FILE", help_heading = "Passphrase", conflicts_with_all = ["key_file", "key_fd", "credential", "key_command", "key_slot", "token_id", "token_type", "token_only", "token_pin_file"])]
    pub(crate) volume_key_file: Option<PathBuf>,
}

impl UnlockArgs {
    /// The same without the key file: a person is asked, by `program` or on the terminal.
    #[cfg(feature = "device-mapper")]
    pub(crate) fn asking(&self, program: Option<&std::path::Path>) -> Self {
        let mut asking = self.clone();
        let key = &mut asking.passphrase.key;
        key.key_file = None;
        key.key_command = None;
        key.keyfile_offset = None;
        key.keyfile_size = None;
        key.ask_with = program.map(Into::into);
        // A key file was to be used, and tokens were not.
        asking.tokens.no_tokens = true;
        asking
    }

    /// Whether an option says what unlocks the volume.
    #[cfg(feature = "device-mapper")]
    pub(crate) fn is_given(&self) -> bool {
        let key = &self.passphrase.key;
        self.volume_key_file.is_some()
            || key.key_file.is_some()
            || key.key_fd.is_some()
            || key.credential.is_some()
            || key.key_command.is_some()
            || key.ask_with.is_some()
            || self.passphrase.key_slot.is_some()
            || self.tokens.is_asked_for()
    }

    /// Leaves standard input to the data: what unlocks comes from elsewhere, a
    /// passphrase by default from the terminal all the same.
    pub(crate) fn leave_stdin(&mut self) -> Result<()> {
        let files = [
            &self.passphrase.key.key_file,
            &self.volume_key_file,
            &self.tokens.token_pin_file,
        ];
        let is_stdin = |path: &PathBuf| crate::plain::descriptor(path, 0) == Some(0);
        if files.into_iter().flatten().any(is_stdin) {
            return Err(Failure::parameters(
                "standard input cannot be both the data and what unlocks the volume",
            )
            .advise("Give a file instead of `-`, or --key-fd N."));
        }
        self.passphrase.key.stdin_is_data = true;
        Ok(())
    }
}

/// What holds for a passphrase holds for whoever may use a token instead.
impl std::ops::Deref for UnlockArgs {
    type Target = PassphraseArgs;

    fn deref(&self) -> &PassphraseArgs {
        &self.passphrase
    }
}

/// Tokens: ways in the LUKS2 header to a passphrase that nobody has to know.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Tokens")]
pub(crate) struct TokenArgs {
    /// Try this LUKS2 token only, before a passphrase is asked for
    ///
    /// Without any option of this section, and none for a passphrase, all tokens of the
    /// volume are tried first: systemd-tpm2, systemd-fido2, clevis, and every other type
    /// for which cryptsetup has a plugin. A token with a PIN asks for it on the terminal.
    #[arg(long, value_name = "N", value_parser = parse_slot, conflicts_with_all = KEY_OPTIONS)]
    pub(crate) token_id: Option<u32>,
    /// Try tokens of this type only: systemd-tpm2, clevis, ...
    #[arg(long, value_name = "TYPE", conflicts_with_all = KEY_OPTIONS)]
    pub(crate) token_type: Option<String>,
    /// Fail when no token opens the volume, instead of asking for a passphrase
    #[arg(long, conflicts_with_all = KEY_OPTIONS)]
    pub(crate) token_only: bool,
    /// Try no tokens: ask for the passphrase at once
    #[arg(long, conflicts_with_all = ["token_id", "token_type", "token_only"])]
    pub(crate) no_tokens: bool,
    /// Read the token's PIN from the first line of this file
    ///
    /// Without, it is the systemd credential `cryptsetup.tpm2-pin`, `cryptsetup.fido2-pin`
    /// or `cryptsetup.pkcs11-pin` by the token's type if there is one; else it is asked for
    /// on the terminal.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_pin_file: Option<PathBuf>,
    /// TPM to use: device:/dev/tpmrm0, for example [default: this machine's]
    #[arg(long, value_name = "DEVICE")]
    pub(crate) tpm2_device: Option<String>,
    /// Seconds that a token may take, to be touched or to reach its server
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) token_timeout: u32,
    /// Folder of the programs that open tokens [default: PREFIX/libexec/xtent]
    #[arg(long, value_name = "DIR")]
    pub(crate) token_helpers: Option<PathBuf>,
}

/// Options that say where the passphrase comes from.
const KEY_OPTIONS: [&str; 4] = ["key_file", "key_fd", "credential", "key_command"];

impl TokenArgs {
    /// Whether an option asks for a token.
    pub(crate) fn is_asked_for(&self) -> bool {
        self.token_only || self.token_id.is_some() || self.token_type.is_some()
    }
}

/// How a passphrase unlocks a volume.
#[derive(Args, Clone, Debug)]
pub(crate) struct PassphraseArgs {
    #[command(flatten)]
    pub(crate) key: KeyArgs,
    /// Try this keyslot only
    #[arg(short = 'S', long, value_name = "N", help_heading = "Passphrase", value_parser = parse_slot)]
    pub(crate) key_slot: Option<u32>,
    /// How often a passphrase may be typed until it is right
    #[arg(short = 'T', long, value_name = "N", default_value_t = 3, help_heading = "Passphrase", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) tries: u32,
    /// Run a key derivation even if it takes more than ten minutes
    ///
    /// The header says how costly the derivation is. It is estimated first and
    /// refused with the estimate if it would take longer than that: such a
    /// header is broken or hostile more often than meant.
    #[arg(long, help_heading = "Passphrase")]
    pub(crate) allow_expensive_kdf: bool,
    /// Derive keys with Argon2 of more than 32 MiB one at a time, among all programs that do so
    ///
    /// For volumes that are unlocked at the same time, at boot for example: each derivation
    /// takes up to 1 GiB. Without it, those take turns that would need more than a
    /// quarter of the free memory. cryptsetup has the same option and the same lock, in
    /// /run/cryptsetup; users who may not use that do not take turns.
    #[arg(long, help_heading = "Passphrase")]
    pub(crate) serialize_memory_hard_pbkdf: bool,
}

impl PassphraseArgs {
    /// Has this process derive keys as `--serialize-memory-hard-pbkdf` says.
    pub(crate) fn take_turns(&self) {
        if self.serialize_memory_hard_pbkdf {
            xtent_luks::kdf::serialize_memory_hard();
        }
    }

    pub(crate) fn limits(&self) -> KdfLimits {
        KdfLimits {
            longest: (!self.allow_expensive_kdf).then_some(LONGEST_DERIVATION),
        }
    }
}
