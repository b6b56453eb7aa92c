//! What tokens say that no plugin opens. A token's JSON comes with the volume: anybody may
//! have written it.

use serde::Deserialize;

/// The type of clevis's tokens.
pub const CLEVIS: &str = "clevis";
/// The type of tokens that name a key in the kernel's keyrings.
pub const KEYRING: &str = "luks2-keyring";

/// A token as `clevis luks bind` writes it.
#[derive(Deserialize)]
struct ClevisToken {
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

/// The encrypted passphrase of a token of clevis in compact form (RFC 7516, section 7.1),
/// which `clevis decrypt` takes.
///
/// # Errors
/// Why it is no such token, in words.
pub fn clevis_jwe(json: &str) -> Result<String, String> {
    let ClevisToken { jwe } = read(json, "of clevis")?;
    let parts = [
        jwe.protected,
        jwe.encrypted_key,
        jwe.iv,
        jwe.ciphertext,
        jwe.tag,
    ];
    // The alphabet of RFC 4648, section 5: anything else would be other parts, or none.
    let is_base64 = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !parts.iter().all(|part| part.chars().all(is_base64)) {
        return Err("it is not a token of clevis: a part of its JWE is not base64".to_owned());
    }
    Ok(parts.join("."))
}

/// A token as cryptsetup writes it (LUKS2 on-disk format, "luks2-keyring").
#[derive(Deserialize)]
struct KeyringToken {
    key_description: String,
}

/// The description of the key that a token for a keyring names.
///
/// # Errors
/// Why it is no such token, in words.
pub fn key_description(json: &str) -> Result<String, String> {
    let KeyringToken { key_description } = read(json, "for a keyring")?;
    // No key has such a description: to the kernel it ends there.
    if key_description.contains('\0') {
        return Err("it is not a token for a keyring: its description has a NUL".to_owned());
    }
    Ok(key_description)
}

fn read<'a, T: Deserialize<'a>>(json: &'a str, of: &str) -> Result<T, String> {
    serde_json::from_str(json).map_err(|e| format!("it is not a token {of}: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compact_form_is_five_parts_in_order() {
        let token = r#"{"type":"clevis","keyslots":["1"],"jwe":{"ciphertext":"c",
            "encrypted_key":"","iv":"i","protected":"p","tag":"t"}}"#;
        assert_eq!(clevis_jwe(token).as_deref(), Ok("p..i.c.t"));
        for other in ["t.t", "t\\n", "t=", "t\\u0000"] {
            let token = token.replace("\"t\"", &format!("\"{other}\""));
            assert!(clevis_jwe(&token).is_err(), "{token}");
        }
    }

    /// The crate that asks the kernel panics on it.
    #[test]
    fn a_description_with_a_nul_is_refused() {
        let token = r#"{"type":"luks2-keyring","keyslots":["0"],"key_description":"a:b"}"#;
        assert_eq!(key_description(token).as_deref(), Ok("a:b"));
        assert!(key_description(&token.replace("a:b", "a\\u0000b")).is_err());
        assert!(key_description("{}").is_err());
    }
}
