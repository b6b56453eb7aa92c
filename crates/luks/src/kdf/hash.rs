//! The hash functions that headers name.

use digest::Digest;
use hmac::digest;

use crate::Error;

/// A hash function by cryptsetup's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Hash {
    Sha1,
    Sha224,
    Sha256,
    Sha384,
    Sha512,
    Ripemd160,
    Whirlpool,
    Sha3_224,
    Sha3_256,
    Sha3_384,
    Sha3_512,
    Blake2b,
    Blake2s,
    Sm3,
}

/// Every hash function with its name.
pub(crate) const ALL: [(Hash, &str); 14] = [
    (Hash::Sha1, "sha1"),
    (Hash::Sha224, "sha224"),
    (Hash::Sha256, "sha256"),
    (Hash::Sha384, "sha384"),
    (Hash::Sha512, "sha512"),
    (Hash::Ripemd160, "ripemd160"),
    (Hash::Whirlpool, "whirlpool"),
    (Hash::Sha3_224, "sha3-224"),
    (Hash::Sha3_256, "sha3-256"),
    (Hash::Sha3_384, "sha3-384"),
    (Hash::Sha3_512, "sha3-512"),
    (Hash::Blake2b, "blake2b-512"),
    (Hash::Blake2s, "blake2s-256"),
    (Hash::Sm3, "sm3"),
];

/// Runs an expression with `$D` as the hash's type; `$other` instead for
/// those that their crates do not let HMAC keep after the key's block.
macro_rules! with_type {
    ($hash:expr, $D:ident => $body:expr) => {
        with_type!($hash, $D => $body, else $body)
    };
    ($hash:expr, $D:ident => $body:expr, else $other:expr) => {
        match $hash {
            Hash::Sha1 => {
                type $D = sha1::Sha1;
                $body
            }
            Hash::Sha224 => {
                type $D = sha2::Sha224;
                $body
            }
            Hash::Sha256 => {
                type $D = sha2::Sha256;
                $body
            }
            Hash::Sha384 => {
                type $D = sha2::Sha384;
                $body
            }
            Hash::Sha512 => {
                type $D = sha2::Sha512;
                $body
            }
            Hash::Ripemd160 => {
                type $D = ripemd::Ripemd160;
                $body
            }
            Hash::Whirlpool => {
                type $D = whirlpool::Whirlpool;
                $body
            }
            Hash::Sm3 => {
                type $D = sm3::Sm3;
                $body
            }
            Hash::Sha3_224 => {
                type $D = sha3::Sha3_224;
                $other
            }
            Hash::Sha3_256 => {
                type $D = sha3::Sha3_256;
                $other
            }
            Hash::Sha3_384 => {
                type $D = sha3::Sha3_384;
                $other
            }
            Hash::Sha3_512 => {
                type $D = sha3::Sha3_512;
                $other
            }
            Hash::Blake2b => {
                type $D = blake2::Blake2b512;
                $other
            }
            Hash::Blake2s => {
                type $D = blake2::Blake2s256;
                $other
            }
        }
    };
}

impl Hash {
    /// The hash that a header or an option names. Old cryptsetup wrote
    /// whatever case the user typed.
    pub(crate) fn from_name(name: &str) -> Result<Self, Error> {
        ALL.iter()
            .find(|(_, known)| known.eq_ignore_ascii_case(name))
            .map(|&(hash, _)| hash)
            .ok_or_else(|| {
                let known: Vec<&str> = ALL.iter().map(|&(_, name)| name).collect();
                Error::unsupported(format!(
                    "hash '{}' is not supported; known are {}",
                    name.escape_debug(),
                    known.join(", ")
                ))
            })
    }

    /// Bytes in a digest.
    pub(crate) fn len(self) -> usize {
        with_type!(self, D => <D as Digest>::output_size())
    }

    /// Replaces `block`, at most one digest long, by the first bytes of
    /// H(`prefix` || `block`).
    pub(crate) fn replace(self, prefix: &[u8], block: &mut [u8]) {
        with_type!(self, D => {
            let mut digest = D::new_with_prefix(prefix).chain_update(&*block).finalize();
            block.copy_from_slice(&digest[..block.len()]);
            zeroize::Zeroize::zeroize(digest.as_mut_slice());
        });
    }

    /// Fills `out`, at most one digest long, with the first bytes of
    /// H(`prefix` || `data`).
    pub(crate) fn fill(self, prefix: &[u8], data: &[u8], out: &mut [u8]) {
        with_type!(self, D => {
            let mut digest = D::new_with_prefix(prefix).chain_update(data).finalize();
            out.copy_from_slice(&digest[..out.len()]);
            zeroize::Zeroize::zeroize(digest.as_mut_slice());
        });
    }

    /// PBKDF2-HMAC (RFC 8018, section 5.2).
    pub(crate) fn pbkdf2(self, passphrase: &[u8], salt: &[u8], iterations: u32, out: &mut [u8]) {
        with_type!(self, D => pbkdf2::pbkdf2_hmac::<D>(passphrase, salt, iterations, out), else {
            let made = pbkdf2::pbkdf2::<hmac::SimpleHmac<D>>(passphrase, salt, iterations, out);
            assert!(made.is_ok(), "HMAC takes keys of every length");
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways_whatever_their_case() {
        for (hash, name) in ALL {
            assert_eq!(Hash::from_name(name).unwrap(), hash);
            assert_eq!(Hash::from_name(&name.to_uppercase()).unwrap(), hash);
        }
        for name in ["", "md5", "stribog512", "sha256 ", "sha\n1"] {
            let error = Hash::from_name(name).unwrap_err();
            assert_eq!(error.kind, crate::ErrorKind::Unsupported);
            assert!(!error.message.contains('\n'));
        }
    }
}
