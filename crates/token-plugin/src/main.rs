//! Opens one LUKS2 token for `xtent`: with cryptsetup's plugin for its type, with clevis,
//! or from the kernel's keyring. It is a program of its own so that none of those libraries is ever in a process
//! that holds a volume key. The protocol is that of the crate `xtent-token`.

mod clevis;
mod keyring;
mod plugin;

use std::process::ExitCode;

use rustix::io::Errno;
use rustix::process::{Signal, set_parent_process_death_signal};
use xtent_secret::SecretBytes;
use xtent_token::{CLEVIS, KEYRING, Outcome, Request, VERSION};

/// Longest request: metadata has up to 4 MiB twice, in base64.
const LONGEST_REQUEST: usize = 16 << 20;
/// Longest PIN; libfido2 takes 255 bytes, a TPM takes the hash of any.
const LONGEST_PIN: usize = 4096;

/// Why a token did not open: what to tell the caller and the person.
struct Failure {
    outcome: Outcome,
    message: String,
}

impl Failure {
    fn new(outcome: Outcome, message: impl Into<String>) -> Self {
        Self {
            outcome,
            message: message.into(),
        }
    }

    fn failed(message: impl Into<String>) -> Self {
        Self::new(Outcome::Failed, message)
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.message.is_empty() {
                eprintln!("{}", failure.message);
            }
            ExitCode::from(failure.outcome as u8)
        }
    }
}

fn run() -> Result<(), Failure> {
    if std::env::args_os().len() > 1 {
        println!(
            "usage: {} <REQUEST\n\n\
             Started by xtent to open a LUKS2 token; xtent(8) says more. It takes no options.",
            xtent_token::PLUGIN_HELPER
        );
        return Ok(());
    }
    // Whoever asked is the only one who can use the answer.
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|e| Failure::failed(format!("cannot watch xtent: {e}")))?;
    let line = read_line()?;
    let request: Request = serde_json::from_slice(&line)
        .map_err(|e| Failure::failed(format!("the request is not understood: {e}")))?;
    if request.version != VERSION {
        return Err(Failure::failed(format!(
            "the request has version {}, this helper knows {VERSION}: \
             xtent and its helpers are not from the same package",
            request.version
        )));
    }
    if [CLEVIS, KEYRING].contains(&request.kind.as_str()) {
        harden()?;
        return match request.kind.as_str() {
            CLEVIS => clevis::open(&request),
            _ => keyring::open(&request),
        };
    }
    let plugin = plugin::load(&request)?;
    // Not before the header was opened: its path is below /proc/self, which an ordinary
    // user's undumpable process cannot enter. No secret was read until here.
    harden()?;
    let pin = if request.pin { Some(read_pin()?) } else { None };
    plugin.open(pin.as_deref())
}

fn harden() -> Result<(), Failure> {
    xtent_secret::harden_process()
        .map_err(|e| Failure::failed(format!("cannot forbid core dumps and tracing: {e}")))
}

/// The request. Byte by byte: what comes after it is secret, and belongs in memory for
/// secrets, which is not read into before this process is hardened.
fn read_line() -> Result<Vec<u8>, Failure> {
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() < LONGEST_REQUEST {
        if read(&mut byte)? == 0 || byte[0] == b'\n' {
            return Ok(line);
        }
        line.push(byte[0]);
    }
    Err(Failure::failed("the request is too long"))
}

/// The PIN, with a NUL behind it for C.
fn read_pin() -> Result<SecretBytes, Failure> {
    let mut pin = SecretBytes::zeroed(LONGEST_PIN + 1)
        .map_err(|e| Failure::failed(format!("cannot hold the PIN: {e}")))?;
    let mut filled = 0;
    loop {
        match read(&mut pin[filled..])? {
            0 => break,
            n => filled += n,
        }
    }
    if filled > LONGEST_PIN {
        return Err(Failure::new(
            Outcome::PinWrong,
            format!("the PIN has more than {LONGEST_PIN} bytes"),
        ));
    }
    pin.truncate(filled + 1);
    Ok(pin)
}

/// From standard input, without a buffer that would keep a copy.
fn read(buffer: &mut [u8]) -> Result<usize, Failure> {
    loop {
        match rustix::io::read(rustix::stdio::stdin(), &mut *buffer) {
            Err(Errno::INTR) => {}
            other => {
                return other.map_err(|e| Failure::failed(format!("cannot read the request: {e}")));
            }
        }
    }
}

/// Writes a passphrase to standard output; not through `std::io::stdout`, whose buffer
/// would keep a copy.
fn hand_over(mut passphrase: &[u8]) -> Result<(), Failure> {
    while !passphrase.is_empty() {
        match rustix::io::write(rustix::stdio::stdout(), passphrase) {
            Ok(n) => passphrase = &passphrase[n..],
            Err(Errno::INTR) => {}
            Err(e) => {
                return Err(Failure::failed(format!(
                    "cannot hand over the passphrase: {e}"
                )));
            }
        }
    }
    Ok(())
}
