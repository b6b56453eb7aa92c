//! The null cipher, which encrypts nothing. Nobody has it by accident, and whoever can write a
//! header gets the data, or the key, in the clear by it: it is refused by name.

use crate::Error;

/// Fails if a cipher by dm-crypt's or the kernel's name is the null cipher; `what` would not
/// be encrypted.
pub(crate) fn refuse(encryption: &str, what: &str) -> Result<(), Error> {
    let lower = encryption.to_ascii_lowercase();
    let mut words = lower.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    if !words.any(|word| word == "cipher_null" || word == "null") {
        return Ok(());
    }
    Err(Error {
        advice: Some(
            "Whoever can write to the storage can make such a header, to get at what is written \
             from now on. Compare it with a backup of the header.",
        ),
        ..Error::unsupported(format!(
            "{what} would not be encrypted at all: its cipher is \"{}\", the null cipher, \
             which is refused",
            encryption.escape_debug()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::refuse;

    #[test]
    fn the_null_cipher_by_all_its_names() {
        for name in [
            "cipher_null-ecb",
            "CIPHER_NULL-ecb-plain",
            "null",
            "null-ecb",
            "capi:ecb(cipher_null)-plain",
            "cipher_null",
        ] {
            let error = refuse(name, "the data").unwrap_err();
            assert!(error.message.contains("null cipher"), "{error}");
        }
        for name in ["aes-xts-plain64", "aes-cbc-null_iv", "nullify-xts", ""] {
            refuse(name, "the data").unwrap();
        }
    }
}
