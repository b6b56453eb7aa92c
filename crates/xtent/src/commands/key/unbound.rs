//! `xtent key add --unbound`: a keyslot for a key that is not the volume's.

use xtent_luks::{Device, Version};
use xtent_secret::SecretBytes;
use xtent_store::Access;

use super::Add;
use crate::failure::{Failure, Result};
use crate::open::{metadata, read_header, while_deriving};
use crate::output::Output;
use crate::secrets::read_key;

/// Stores a random key, or one from a file, under a new passphrase. No other
/// passphrase is needed, because the volume is not opened.
pub(super) fn add(args: &Add, output: &Output) -> Result<()> {
    args.new.source().check()?;
    let (file, device) = metadata(&args.device, Access::ReadWrite)?;
    let header = read_header(&device, &file, output)?;
    if header.version() == Version::Luks1 {
        return Err(Failure::parameters(
            "LUKS1 has no unbound keys; they need LUKS2",
        ));
    }
    super::free(args, &header.keyslots())?;
    let key = key(args, &device)?;
    let new = super::new_passphrase(args, &device, output)?;
    let kdf = args.kdf.choice();
    let slot = while_deriving(output, || {
        device.add_unbound_key(&key, &new, args.new_key_slot, &kdf)
    })?;
    super::result(
        output,
        Some(slot),
        format!(
            "Unbound key of {} bits added in keyslot {slot}.",
            key.len() * 8
        ),
    )
}

fn key(args: &Add, device: &Device) -> Result<SecretBytes> {
    let bytes = args.key_size.map(|bits| bits as usize / 8);
    if args.key_size.is_some_and(|bits| bits % 8 != 0) {
        return Err(Failure::parameters("--key-size is a multiple of 8 bits"));
    }
    let Some(path) = &args.unlock.volume_key_file else {
        let length = match bytes {
            Some(bytes) => bytes,
            None => {
                return Err(Failure::parameters("--unbound needs --key-size")
                    .advise("Or give the key itself with --volume-key-file."));
            }
        };
        return Ok(SecretBytes::random(length).map_err(xtent_luks::Error::from)?);
    };
    let key = read_key(path)?;
    if bytes.is_some_and(|bytes| bytes != key.len()) {
        return Err(Failure::parameters(format!(
            "{} holds {} bits, not the {} of --key-size",
            path.display(),
            key.len() * 8,
            args.key_size.unwrap_or_default()
        )));
    }
    // A second copy of the volume key would be taken for a key of another use.
    let limits = args.unlock.limits();
    let copy = SecretBytes::copy_of(&key).map_err(xtent_luks::Error::from)?;
    match device.unlock_with_volume_key(copy, &limits) {
        Ok(_) => Err(Failure::parameters(format!(
            "{} holds the key of the volume, which is no unbound key",
            path.display()
        ))
        .advise("Without --unbound a passphrase that opens the volume is added.")),
        Err(e) if e.kind == xtent_luks::ErrorKind::WrongPassphrase => Ok(key),
        Err(e) => Err(e.into()),
    }
}
