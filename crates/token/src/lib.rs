//! Protocol between `xtent` and the helper programs that open LUKS2 tokens.
//!
//! A helper gets one [`Request`] on standard input: a line of JSON, and after its line end,
//! if the request has a PIN, the PIN's bytes up to the end of the input. It writes the
//! passphrase, byte by byte as it is, to standard output and ends with the exit code of an
//! [`Outcome`]. What it writes to standard error is shown to the person.
//!
//! A helper inherits no descriptor but these three, no environment but `PATH` and
//! `LC_ALL`, and works in `/`. It leads a process group of its own, which is killed when
//! the helper has ended, takes too long or is not wanted any more.

mod json;
mod said;

pub use json::{CLEVIS, KEYRING, clevis_jwe, key_description};
pub use said::Said;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Name of the helper for tokens that have no helper of their own.
pub const PLUGIN_HELPER: &str = "xtent-token-plugin";

/// The protocol's version.
pub const VERSION: u32 = 1;

/// Name of the helper that is for one type of token only: `xtent-token-TYPE`. `None` for
/// types with other characters than cryptsetup allows in a plugin's name (`A-Z`, `a-z`,
/// `0-9`, `-`, `_`, at most 64), which could be paths.
pub fn helper_for(kind: &str) -> Option<String> {
    is_plugin_name(kind).then(|| format!("xtent-token-{kind}"))
}

/// Whether a token of this type can have a plugin, by libcryptsetup's rule.
pub fn is_plugin_name(kind: &str) -> bool {
    (1..=64).contains(&kind.len())
        && kind
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

/// What a helper is asked to open.
#[derive(Debug, Serialize, Deserialize)]
pub struct Request {
    /// [`VERSION`]; a helper refuses others.
    pub version: u32,
    /// The token's number.
    pub token: u32,
    /// The token's type: `systemd-tpm2`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The token as it stands in the metadata, but for ends of lines between its values.
    pub json: Box<RawValue>,
    /// The volume's LUKS2 metadata, without key material, in base64: for libraries that
    /// want a header.
    pub header: String,
    /// The TPM, in the words of tpm2-tss: `device:/dev/tpmrm0`, `swtpm:path=…`; the
    /// machine's own if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpm2_device: Option<String>,
    /// Whether a PIN follows.
    #[serde(default)]
    pub pin: bool,
    /// Whether the person asked for details on standard error.
    #[serde(default)]
    pub verbose: bool,
}

impl Request {
    /// The line for the helper, with its end.
    ///
    /// # Errors
    /// None in practice: everything in a request can be written as JSON.
    pub fn to_line(&self) -> serde_json::Result<Vec<u8>> {
        let mut line = serde_json::to_vec(self)?;
        // In a string of JSON no line ends; between values of the token one may.
        for byte in line.iter_mut().filter(|byte| **byte == b'\n') {
            *byte = b' ';
        }
        line.push(b'\n');
        Ok(line)
    }

    /// Bytes as they go into [`Request::header`].
    pub fn encode(bytes: &[u8]) -> String {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(bytes)
    }

    /// The bytes of [`Request::header`]; `None` if it is no base64.
    pub fn header_bytes(&self) -> Option<Vec<u8>> {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD
            .decode(&self.header)
            .ok()
    }
}

/// How it went, by the helper's exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The passphrase is on standard output.
    Opened = 0,
    /// Something else than what follows; standard error says what.
    Failed = 1,
    /// The token wants a PIN, and the request had none.
    PinNeeded = 10,
    /// The PIN is wrong.
    PinWrong = 11,
    /// The device is not there: security token not plugged in, no TPM, no network.
    Absent = 12,
    /// The device refuses: a policy does not hold (the TPM's PCRs), or it is not the
    /// device that the token was made with.
    Refused = 13,
    /// There is nothing here that opens tokens of this type.
    Unsupported = 14,
}

impl Outcome {
    /// The outcome for an exit code; every other code is [`Outcome::Failed`].
    pub fn of_code(code: i32) -> Self {
        [
            Self::Opened,
            Self::PinNeeded,
            Self::PinWrong,
            Self::Absent,
            Self::Refused,
            Self::Unsupported,
        ]
        .into_iter()
        .find(|&outcome| outcome as i32 == code)
        .unwrap_or(Self::Failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_never_a_path() {
        assert_eq!(
            helper_for("systemd-tpm2").as_deref(),
            Some("xtent-token-systemd-tpm2")
        );
        for kind in ["", "../x", "a/b", "a b", "é", &"x".repeat(65)] {
            assert_eq!(helper_for(kind), None, "{kind}");
        }
    }

    #[test]
    fn codes_lead_back_and_unknown_ones_are_failures() {
        for outcome in [
            Outcome::Opened,
            Outcome::Failed,
            Outcome::PinNeeded,
            Outcome::PinWrong,
            Outcome::Absent,
            Outcome::Refused,
            Outcome::Unsupported,
        ] {
            assert_eq!(Outcome::of_code(outcome as i32), outcome);
        }
        assert_eq!(Outcome::of_code(127), Outcome::Failed);
    }

    #[test]
    fn a_request_is_one_line_whatever_the_token_contains() {
        let text = "{\"type\":\"t\",\n\"x\":\"line\\nend\",\r\n\"n\":1.50}";
        let request = Request {
            version: VERSION,
            token: 3,
            kind: "t".into(),
            json: RawValue::from_string(text.into()).unwrap_or_default(),
            header: Request::encode(b"LUKS"),
            tpm2_device: None,
            pin: true,
            verbose: false,
        };
        let line = request.to_line().unwrap_or_default();
        assert_eq!(line.iter().filter(|&&byte| byte == b'\n').count(), 1);
        let again: Request = serde_json::from_slice(&line).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(again.json.get(), text.replace('\n', " "));
        assert_eq!(again.header_bytes().as_deref(), Some(&b"LUKS"[..]));
    }
}
