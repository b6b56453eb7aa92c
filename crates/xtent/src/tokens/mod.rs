//! Unlocking by LUKS2 tokens. Each is opened by a helper program: the libraries for TPMs,
//! security keys and networks are never in a process that holds a volume key.

mod helper;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use xtent_luks::{Device, ErrorKind, Token};
use xtent_secret::SecretBytes;
use xtent_token::{Outcome, PLUGIN_HELPER, Request, VERSION};

use crate::args::{TokenArgs, UnlockArgs};
use crate::failure::{Exit, Failure, Result};
use crate::open::{Found, PATIENCE, while_deriving};
use crate::output::Output;
use crate::trust::open_to_others;
use helper::{Answer, Patience};

/// Not opened by machines: the passphrase is on somebody's paper.
const RECOVERY: &str = "systemd-recovery";

/// Tries the tokens that `args` allows. `None` if a passphrase is to be asked for.
///
/// # Errors
/// If only tokens may be used and none opens the volume, or the one that is named does not
/// exist.
pub(crate) fn unlock(
    device: &Device,
    path: &Path,
    args: &UnlockArgs,
    output: &Output,
) -> Result<Option<Found>> {
    let tokens = &args.tokens;
    if tokens.no_tokens || !(tokens.is_asked_for() || args.key.source().is_nobodys()) {
        return Ok(None);
    }
    let header = device.read()?;
    let openers: Vec<Token> = header
        .openers(tokens.token_id, args.key_slot)?
        .into_iter()
        .filter(|opener| tokens.token_type.as_ref().is_none_or(|t| *t == opener.kind))
        .filter(|opener| opener.kind != RECOVERY)
        .collect();
    if openers.is_empty() {
        return if tokens.is_asked_for() {
            Err(no_such_token(path, args))
        } else {
            Ok(None)
        };
    }
    let mut session = Session {
        device,
        path,
        args,
        output,
        metadata: Request::encode(&header.without_key_material()?.unwrap_or_default()),
        reasons: Vec::new(),
        spent: Duration::ZERO,
    };
    let mut with_pin = Vec::new();
    for opener in &openers {
        match session.attempt(opener, None)? {
            Attempt::Opened(opened) => return Ok(Some(opened)),
            Attempt::PinNeeded => with_pin.push(opener),
            Attempt::PinWrong | Attempt::Failed => {}
        }
    }
    for opener in with_pin {
        if let Some(opened) = session.with_pin(opener)? {
            return Ok(Some(opened));
        }
    }
    if !tokens.token_only {
        return Ok(None);
    }
    Err(Failure::new(
        Exit::Permission,
        format!(
            "no token opens {}: {}",
            path.display(),
            session.reasons.join("; ")
        ),
    )
    .advise("Without --token-only a passphrase is asked for."))
}

fn no_such_token(path: &Path, args: &UnlockArgs) -> Failure {
    let tokens = &args.tokens;
    let mut what = match tokens.token_id {
        Some(id) => format!("no token {id}"),
        None => "no token".to_owned(),
    };
    if let Some(kind) = &tokens.token_type {
        what.push_str(&format!(" of type {kind}"));
    }
    let slot = match args.key_slot {
        Some(slot) => format!("keyslot {slot} of "),
        None => String::new(),
    };
    Failure::parameters(format!("{slot}{} has {what} that can open it", path.display()))
        .advise("`xtent header dump` lists tokens and their keyslots. A systemd-recovery key is typed as a passphrase.")
}

/// What came of one attempt.
enum Attempt {
    Opened(Found),
    PinNeeded,
    PinWrong,
    Failed,
}

/// The tokens of one volume being tried.
struct Session<'a> {
    device: &'a Device,
    path: &'a Path,
    args: &'a UnlockArgs,
    output: &'a Output,
    /// For [`Request::header`].
    metadata: String,
    /// Why no token has opened the volume so far.
    reasons: Vec<String>,
    /// What deriving keys has taken so far.
    spent: Duration,
}

impl Session<'_> {
    /// Asks for the PIN, again after a wrong one if a person types.
    fn with_pin(&mut self, opener: &Token) -> Result<Option<Found>> {
        let Token { id, kind, .. } = opener;
        let prompt = format!("PIN of token {id} ({kind}) of {}: ", self.path.display());
        let file = self.args.tokens.token_pin_file.as_deref();
        for _ in 0..self.args.tries {
            let Some((pin, is_typed)) = self.args.key.source().pin(
                file,
                pin_credential(kind),
                &prompt,
                self.args.key.typing_time(),
            )?
            else {
                self.give_up(opener, "it needs a PIN, and nobody is there to type it: give --token-pin-file or a credential");
                return Ok(None);
            };
            match self.attempt(opener, Some(&pin))? {
                Attempt::Opened(opened) => return Ok(Some(opened)),
                Attempt::PinWrong if is_typed => {}
                _ => return Ok(None),
            }
        }
        Ok(None)
    }

    fn attempt(&mut self, opener: &Token, pin: Option<&SecretBytes>) -> Result<Attempt> {
        let Some(program) = find_helper(&opener.kind, &self.args.tokens) else {
            self.unsupported(
                opener,
                "there is no program for it: xtent's helpers are not installed (see --token-helpers)",
            );
            return Ok(Attempt::Failed);
        };
        let mut last_words = String::new();
        let answer = match self.ask(&program, opener, pin, &mut last_words) {
            Err(failure) if failure.is_interruption() => return Err(failure),
            // A helper that cannot be run must not keep a person from typing.
            Err(failure) => {
                self.give_up(opener, &one_line(&failure));
                return Ok(Attempt::Failed);
            }
            Ok(Answer::Passphrase(passphrase)) => {
                return Ok(self.try_keyslots(opener, &passphrase));
            }
            Ok(Answer::No(outcome)) => outcome,
            Ok(Answer::TimedOut) => {
                let seconds = self.args.tokens.token_timeout;
                self.give_up(
                    opener,
                    &format!("no answer in {seconds} s (--token-timeout)"),
                );
                return Ok(Attempt::Failed);
            }
        };
        match answer {
            Outcome::PinNeeded if pin.is_none() => return Ok(Attempt::PinNeeded),
            Outcome::PinNeeded | Outcome::PinWrong => {
                self.give_up(opener, "the PIN is wrong, or the device refuses it");
                return Ok(Attempt::PinWrong);
            }
            Outcome::Absent => {
                self.give_up_after(opener, "its device is not there", &last_words);
            }
            Outcome::Refused => self.give_up(
                opener,
                "the device refuses: it is not the one that the token was made with, or its \
                 policy does not hold (for a TPM: other PCR values, after an update of firmware, \
                 boot loader or kernel)",
            ),
            Outcome::Unsupported => self.unsupported(opener, "nothing here opens this type"),
            Outcome::Failed | Outcome::Opened => {
                self.give_up_after(opener, "it could not be opened", &last_words);
            }
        }
        Ok(Attempt::Failed)
    }

    /// Runs the helper. What it says last, which is the reason if it fails, goes to `last_words`.
    fn ask(
        &self,
        program: &Path,
        opener: &Token,
        pin: Option<&SecretBytes>,
        last_words: &mut String,
    ) -> Result<Answer> {
        let tokens = &self.args.tokens;
        let fail = |e| Failure::new(Exit::Device, "cannot write a token as JSON").because(e);
        let request = Request {
            version: VERSION,
            token: opener.id,
            kind: opener.kind.clone(),
            json: RawValue::from_string(opener.json.clone()).map_err(fail)?,
            header: self.metadata.clone(),
            tpm2_device: tokens.tpm2_device.clone(),
            pin: pin.is_some(),
            verbose: tracing::enabled!(tracing::Level::DEBUG),
        };
        tracing::info!(token = opener.id, kind = %opener.kind, program = %program.display(), "trying a token");
        let note = || {
            self.output.note(format!(
                "Waiting for token {} ({}), up to {} s ...",
                opener.id,
                opener.kind.escape_debug(),
                tokens.token_timeout
            ));
        };
        let patience = Patience {
            limit: Duration::from_secs(tokens.token_timeout.into()),
            silent: PATIENCE,
            note: &note,
        };
        helper::run(
            program,
            &request.to_line().map_err(fail)?,
            pin,
            &patience,
            &mut |line| {
                self.output.warn(format!("token {}: {line}", opener.id));
                line.clone_into(last_words);
            },
        )
    }

    fn try_keyslots(&mut self, opener: &Token, passphrase: &SecretBytes) -> Attempt {
        let mut trouble = None;
        for &keyslot in &opener.keyslots {
            let mut limits = self.args.limits();
            // As long as for one passphrase, whatever the header says of tokens.
            limits.longest = limits
                .longest
                .map(|longest| longest.saturating_sub(self.spent));
            let started = Instant::now();
            let tried = while_deriving(self.output, || {
                self.device.unlock(passphrase, Some(keyslot), &limits)
            });
            self.spent += started.elapsed();
            match tried {
                Ok(unlocked) => {
                    self.output.note(format!(
                        "Unlocked by token {} ({}), keyslot {keyslot}.",
                        opener.id,
                        opener.kind.escape_debug()
                    ));
                    return Attempt::Opened(Found {
                        unlocked,
                        token: Some(opener.id),
                    });
                }
                Err(e) if e.kind == ErrorKind::WrongPassphrase => {}
                // Another keyslot may cost less than there is.
                Err(e) => trouble = Some(xtent_store::chain(&e).to_string()),
            }
        }
        let why = trouble.unwrap_or_else(|| {
            "its passphrase opens none of its keyslots: they have been changed since".to_owned()
        });
        self.give_up(opener, &why);
        Attempt::Failed
    }

    /// Says why a token does not open the volume.
    fn give_up(&mut self, opener: &Token, why: &str) {
        self.give_up_after(opener, why, "");
    }

    /// As [`Self::give_up`], when the person has already been shown `said`.
    fn give_up_after(&mut self, opener: &Token, why: &str, said: &str) {
        let mut text = format!(
            "token {} ({}): {why}",
            opener.id,
            opener.kind.escape_debug()
        );
        // With --token-only it is the error that says so.
        if !self.args.tokens.token_only {
            self.output.warn(&text);
        }
        if !said.is_empty() {
            text.push_str(": ");
            text.push_str(said);
        }
        self.reasons.push(text);
    }

    /// As [`Self::give_up`]; no news on machines without helpers, unless tokens are wanted.
    fn unsupported(&mut self, opener: &Token, why: &str) {
        if self.args.tokens.is_asked_for() {
            self.give_up(opener, why);
        } else {
            tracing::info!(token = opener.id, kind = %opener.kind, why, "token not tried");
        }
    }
}

/// A failure and its causes, to be told among others.
fn one_line(failure: &Failure) -> String {
    let mut text = failure.message.clone();
    for cause in failure.causes() {
        text.push_str(": ");
        text.push_str(&cause);
    }
    text
}

/// The systemd credential with the PIN for tokens of this type.
fn pin_credential(kind: &str) -> Option<&'static str> {
    match kind {
        "systemd-tpm2" => Some("cryptsetup.tpm2-pin"),
        "systemd-fido2" => Some("cryptsetup.fido2-pin"),
        "systemd-pkcs11" => Some("cryptsetup.pkcs11-pin"),
        _ => None,
    }
}

/// The program for tokens of this type, or the one for all types.
fn find_helper(kind: &str, args: &TokenArgs) -> Option<PathBuf> {
    let names = [
        xtent_token::helper_for(kind),
        Some(PLUGIN_HELPER.to_owned()),
    ];
    let found = helper_folders(args)
        .iter()
        .flat_map(|folder| names.iter().flatten().map(|name| folder.join(name)))
        .find(|path| path.is_file())?;
    // Whoever names a folder answers for it.
    if args.token_helpers.is_none()
        && let Some(place) = open_to_others(&found)
    {
        tracing::warn!(
            path = %found.display(),
            place = %place.display(),
            "token helper not run: others could have put it there, or can change it"
        );
        return None;
    }
    Some(found)
}

/// Where helpers are: `libexec/xtent` of the tree that this program is installed in, or beside
/// it where Cargo puts both. Neither `$PATH` nor any other variable has a say.
fn helper_folders(args: &TokenArgs) -> Vec<PathBuf> {
    if let Some(folder) = &args.token_helpers {
        // The helper works in another folder.
        return std::path::absolute(folder).into_iter().collect();
    }
    let Ok(program) = std::env::current_exe() else {
        return Vec::new();
    };
    let Some(folder) = program.parent() else {
        return Vec::new();
    };
    let installed = folder.parent().map(|prefix| prefix.join("libexec/xtent"));
    installed.into_iter().chain([folder.to_owned()]).collect()
}
