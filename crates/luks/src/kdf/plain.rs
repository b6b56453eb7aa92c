//! The key of a volume without a header: what cryptsetup makes of a passphrase
//! for plain dm-crypt, after hashalot. Fast to try: only as safe as the passphrase.

use xtent_secret::SecretBytes;

use super::hash::Hash;
use crate::Error;

/// The key of `length` bytes. `hash` is a name, `sha256`, or one with a number of
/// bytes behind which there are zeros, `sha512:32`; `plain` takes the passphrase
/// itself. A hash shorter than the key goes on with the hash of `A` and
/// the passphrase, then of `AA` and the passphrase, and so on.
///
/// # Errors
/// [`crate::ErrorKind::Unsupported`] for an unknown hash, [`crate::ErrorKind::Options`] for
/// a number that is none or longer than the key, or a passphrase shorter than what
/// `plain` takes of it.
pub fn plain_key(
    hash: &str,
    passphrase: &SecretBytes,
    length: usize,
) -> Result<SecretBytes, Error> {
    let (name, number) = match hash.split_once(':') {
        None => (hash, None),
        Some((name, number)) => (name, Some(number)),
    };
    let hashed = match number {
        None => length,
        Some(number) => number
            .parse()
            .ok()
            .filter(|&number| (1..=length).contains(&number))
            .ok_or_else(|| {
                Error::options(format!(
                    "'{}': behind the colon goes a number of bytes up to the key's {length}",
                    hash.escape_debug()
                ))
            })?,
    };
    let mut key = SecretBytes::zeroed(length)?;
    if name == "plain" {
        if number.is_some() && passphrase.len() < hashed {
            return Err(Error::options(format!(
                "the passphrase has {} bytes, {hash} takes {hashed}",
                passphrase.len()
            )));
        }
        // Without a number cryptsetup pads a short passphrase with zeros.
        let taken = passphrase.len().min(hashed);
        key[..taken].copy_from_slice(&passphrase[..taken]);
        return Ok(key);
    }
    let hash = Hash::from_name(name)?;
    for (round, block) in key[..hashed].chunks_mut(hash.len()).enumerate() {
        hash.fill(&vec![b'A'; round], passphrase, block);
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::Digest;

    fn key(hash: &str, passphrase: &[u8], length: usize) -> Vec<u8> {
        let passphrase = SecretBytes::copy_of(passphrase).unwrap();
        plain_key(hash, &passphrase, length).unwrap().to_vec()
    }

    #[test]
    fn a_key_is_the_hash_and_goes_on_with_a_prefix() {
        let sha = |text: &[u8]| sha2::Sha256::digest(text).to_vec();
        assert_eq!(key("sha256", b"word", 32), sha(b"word"));
        assert_eq!(key("sha256", b"word", 16), sha(b"word")[..16]);
        let long = [sha(b"word"), sha(b"Aword"), sha(b"AAword")[..6].to_vec()].concat();
        assert_eq!(key("sha256", b"word", 70), long);
        let padded = [&sha(b"word")[..20], &[0; 12]].concat();
        assert_eq!(key("sha256:20", b"word", 32), padded);
    }

    #[test]
    fn plain_takes_the_passphrase() {
        assert_eq!(key("plain", b"0123456789", 4), b"0123");
        assert_eq!(key("plain", b"01", 4), b"01\0\0");
        assert_eq!(key("plain:2", b"0123", 4), b"01\0\0");
        let short = SecretBytes::copy_of(b"0").unwrap();
        for wrong in ["plain:2", "sha256:x", "sha256:5", "sha256:", "md4"] {
            assert!(plain_key(wrong, &short, 4).is_err(), "{wrong}");
        }
    }
}
