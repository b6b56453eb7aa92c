//! Tokens that name a key in the kernel's keyrings, which cryptsetup has built in
//! (`cryptsetup token add --key-description`).

use keyutils::keytypes::User;
use keyutils::{Key, TargetKeyring};
use xtent_token::{Outcome, Request};
use zeroize::Zeroizing;

use crate::{Failure, hand_over};

/// Writes the key of type `user` with the token's description, from the keyrings of the
/// session and the user, to standard output.
pub(crate) fn open(request: &Request) -> Result<(), Failure> {
    let name = xtent_token::key_description(request.json.get()).map_err(Failure::failed)?;
    let no_key = |errno: keyutils::Error| {
        let error = std::io::Error::from_raw_os_error(errno.0);
        Failure::new(
            Outcome::Absent,
            format!(
                "no key `{}` of type user can be read from the keyrings: {error}",
                name.escape_debug()
            ),
        )
    };
    let key = Key::request::<User, _, _, Option<TargetKeyring<'_>>>(name.as_str(), None, None)
        .map_err(no_key)?;
    let payload = Zeroizing::new(key.read().map_err(no_key)?);
    hand_over(&payload)
}
