//! Tokens of clevis (Tang, TPM2, combinations of them): `clevis decrypt` does all of it.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use xtent_token::{Outcome, Request};

use crate::Failure;

/// Where distributions put the command. Not `$PATH`: the caller may be root.
const PROGRAM: &str = "/usr/bin/clevis";

/// Has clevis write the passphrase to this process's standard output.
pub(crate) fn open(request: &Request) -> Result<(), Failure> {
    let jwe = xtent_token::clevis_jwe(request.json.get()).map_err(Failure::failed)?;
    if !Path::new(PROGRAM).exists() {
        return Err(Failure::new(
            Outcome::Unsupported,
            format!("{PROGRAM} is not installed (Debian package clevis, or clevis-tpm2)"),
        ));
    }
    let mut command = Command::new(PROGRAM);
    command.arg("decrypt").stdin(Stdio::piped());
    if let Some(device) = &request.tpm2_device {
        command.env("TPM2TOOLS_TCTI", device);
    }
    let mut child = command
        .spawn()
        .map_err(|e| Failure::failed(format!("cannot start {PROGRAM}: {e}")))?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that ends early says itself why.
        let _ = stdin.write_all(jwe.as_bytes());
    }
    let status = child
        .wait()
        .map_err(|e| Failure::failed(format!("cannot wait for {PROGRAM}: {e}")))?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::failed(
        "clevis could not open it: its Tang server cannot be reached, or its TPM refuses",
    ))
}
