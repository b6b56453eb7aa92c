//! Ciphers whose key is nowhere but in secret memory (feature `cipher`).

use std::fmt;

use sector_cipher::{Backend, Cipher, CipherSpec, NewError, SectorCount, SectorSize};

use crate::{Error, SecretBox};

/// A cipher in secret memory, its key schedule inside.
pub type SecretCipher = SecretBox<Cipher>;

/// Why there is no [`SecretCipher`].
#[derive(Debug)]
pub enum KeyedError {
    /// The cipher takes no such key, or the CPU lacks the back-end.
    Cipher(NewError),
    /// There is no memory for the key schedule.
    Memory(Error),
}

impl fmt::Display for KeyedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cipher(_) => f.write_str("cannot make the cipher"),
            Self::Memory(_) => f.write_str("cannot keep the cipher's key"),
        }
    }
}

impl std::error::Error for KeyedError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(match self {
            Self::Cipher(error) => error,
            Self::Memory(error) => error,
        })
    }
}

impl From<NewError> for KeyedError {
    fn from(error: NewError) -> Self {
        Self::Cipher(error)
    }
}

impl From<Error> for KeyedError {
    fn from(error: Error) -> Self {
        Self::Memory(error)
    }
}

impl SecretCipher {
    /// A cipher as [`Cipher::new`] makes it, on the fastest back-end or the one given.
    /// Made with a key of zeros, it gets its key where it stays, so that no copy of the key
    /// schedule is left behind on the way there.
    ///
    /// # Errors
    /// [`KeyedError`]: what [`Cipher::new`] refuses, or that there is no memory.
    pub fn keyed(
        spec: CipherSpec,
        size: SectorSize,
        count: SectorCount,
        key: &[u8],
        backend: Option<Backend>,
    ) -> Result<Self, KeyedError> {
        // Any length will do: `rekey` checks that of the key.
        let zeros = vec![0; spec.key_lengths().first().copied().unwrap_or_default()];
        let mut cipher = Self::new(Cipher::new(spec, size, count, &zeros, backend)?)?;
        cipher.rekey(key).map_err(NewError::from)?;
        Ok(cipher)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sector_cipher::WrongKeyLength;

    #[test]
    fn it_is_the_cipher_of_its_key() {
        let size = SectorSize::ALL[3];
        for spec in CipherSpec::all() {
            for &len in spec.key_lengths() {
                let key = vec![7; len];
                let plain = vec![5; size.bytes() * 3];
                let (mut ours, mut expected) = (plain.clone(), plain.clone());
                SecretCipher::keyed(spec, size, SectorCount::Large, &key, None)
                    .unwrap()
                    .encrypt(8, &mut ours);
                Cipher::new(spec, size, SectorCount::Large, &key, None)
                    .unwrap()
                    .encrypt(8, &mut expected);
                assert!(ours == expected && ours != plain, "{spec} {len}");
            }
        }
    }

    #[test]
    fn what_the_cipher_refuses_is_refused() {
        let spec = CipherSpec::all().next().unwrap();
        let keyed = |key: &[u8], backend| {
            SecretCipher::keyed(
                spec,
                SectorSize::ALL[0],
                SectorCount::Units512,
                key,
                backend,
            )
        };
        let error = keyed(&[1; 5], None).unwrap_err();
        let takes = spec.key_lengths();
        let expected = NewError::KeyLength(WrongKeyLength { given: 5, takes });
        assert!(matches!(error, KeyedError::Cipher(error) if error == expected));
        let mut all = Backend::ALL.iter();
        let &foreign = all.find(|backend| !backend.is_supported()).unwrap();
        let error = keyed(&[1; 32], Some(foreign)).unwrap_err();
        assert!(matches!(error, KeyedError::Cipher(NewError::Backend(b)) if b == foreign));
    }
}
