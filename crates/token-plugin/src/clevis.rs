//! Tokens of clevis (Tang, TPM2, combinations of them): `clevis decrypt` does all of it.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::Deserialize;
use xtent_token::{Outcome, Request};

use crate::Failure;

/// The token's type.
pub(crate) const TYPE: &str = "clevis";

/// Where distributions put the command. Not `$PATH`: the caller may be root.
const PROGRAM: &str = "/usr/bin/clevis";

/// A token as `clevis luks bind` writes it.
#[derive(Deserialize)]
struct Token {
    jwe: Jwe,
}

/// An encrypted passphrase in flattened JSON form (RFC 7516, section 7.2.2).
#[derive(Deserialize)]
struct Jwe {
    protected: String,
    #[serde(default)]
    encrypted_key: String,
    iv: String,
    ciphertext: String,
    tag: String,
}

impl Jwe {
    /// The compact form (RFC 7516, section 7.1), which `clevis decrypt` takes.
    fn compact(&self) -> String {
        [
            &self.protected,
            &self.encrypted_key,
            &self.iv,
            &self.ciphertext,
            &self.tag,
        ]
        .map(String::as_str)
        .join(".")
    }
}

/// Has clevis write the passphrase to this process's standard output.
pub(crate) fn open(request: &Request) -> Result<(), Failure> {
    let token: Token = serde_json::from_str(request.json.get())
        .map_err(|e| Failure::failed(format!("it is not a token of clevis: {e}")))?;
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
        let _ = stdin.write_all(token.jwe.compact().as_bytes());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compact_form_is_five_parts_in_order() {
        let token: Token = serde_json::from_str(
            r#"{"type":"clevis","keyslots":["1"],"jwe":{"ciphertext":"c","encrypted_key":"",
                "iv":"i","protected":"p","tag":"t"}}"#,
        )
        .unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(token.jwe.compact(), "p..i.c.t");
    }
}
