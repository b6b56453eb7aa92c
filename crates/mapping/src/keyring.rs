//! The volume key on its way to the target: in this thread's keyring, as a key of
//! type `logon`, which user space cannot read back. The keyring goes with
//! the thread, also when the process is killed.

use std::borrow::Cow;
use std::io;

use keyutils::keytypes::Logon;
use keyutils::keytypes::logon::Description;
use keyutils::{Key, Keyring, SpecialKeyring};
use xtent_secret::SecretBytes;

use crate::{Error, ErrorKind};

const ENOSYS: i32 = 38;

/// A key in this thread's keyring; taken out again when dropped.
pub(crate) struct LoadedKey {
    ring: Keyring,
    key: Key,
}

impl LoadedKey {
    /// Puts `key` there under `name`, which is `prefix:rest`.
    pub(crate) fn new(name: &str, key: &SecretBytes) -> Result<Self, Error> {
        let (prefix, rest) = name.split_once(':').unwrap_or(("cryptsetup", name));
        let description = Description {
            subtype: Cow::Owned(prefix.to_owned()),
            description: Cow::Owned(rest.to_owned()),
        };
        let mut ring = Keyring::attach_or_create(SpecialKeyring::Thread).map_err(failed)?;
        // Borrowed all the way to the system call: no copy of it is made.
        let key = ring
            .add_key::<Logon, _, &[u8]>(description, key)
            .map_err(failed)?;
        Ok(Self { ring, key })
    }
}

impl Drop for LoadedKey {
    fn drop(&mut self) {
        // Revoked first, so that it is gone even if a target still refers to it.
        let revoked = self.key.clone().revoke();
        let unlinked = self.ring.unlink_key(&self.key);
        if let (Err(error), _) | (_, Err(error)) = (revoked, unlinked) {
            // It goes with this thread.
            tracing::warn!(%error, "the key could not be taken out of the keyring at once");
        }
    }
}

fn failed(errno: keyutils::Error) -> Error {
    let source = io::Error::from_raw_os_error(errno.0);
    let error = match errno.0 {
        ENOSYS => Error::new(
            ErrorKind::Unsupported,
            "this kernel has no keyrings (CONFIG_KEYS)",
        )
        .advise(
            "`xtent serve` and `xtent mount` need none; `cryptsetup open --disable-keyring` \
                 shows the key to whoever may read the mapping's table.",
        ),
        _ => Error::new(
            ErrorKind::Io,
            "the volume key could not be put into this thread's keyring",
        )
        .advise(
            "A container may forbid keyrings; a quota may be used up (/proc/key-users). \
             `xtent serve` and `xtent mount` need none.",
        ),
    };
    error.because(source)
}
