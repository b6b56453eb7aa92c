//! `xtent header dump --volume-key-file`: the key itself, for escrow.

use xtent_secret::SecretBytes;
use xtent_store::Access;

use super::Dump;
use crate::confirm::confirm;
use crate::failure::{Exit, Failure, Result};
use crate::open::{metadata, passphrase_and_unlock, read_header};
use crate::output::{Output, stdout, text_of};
use crate::secrets::write_key;

/// Asks first, and needs a passphrase.
pub(super) fn dump(args: &Dump, output: &Output) -> Result<()> {
    if args.volume_key && output.json {
        return Err(
            Failure::parameters("--volume-key and --json do not go together")
                .advise("--volume-key-file writes the key to a file."),
        );
    }
    args.unlock.key.source().check()?;
    let (file, device) = metadata(&args.device, Access::ReadOnly)?;
    read_header(&device, &file, output)?;
    if let Some(path) = &args.volume_key_file
        && path.symlink_metadata().is_ok()
    {
        return Err(
            Failure::new(Exit::Busy, format!("{} exists already", path.display()))
                .advise("Give another name; a key never overwrites a file."),
        );
    }
    let what = match &args.volume_key_file {
        Some(path) => format!("write the volume key to {}", path.display()),
        None => "print the volume key".to_owned(),
    };
    confirm(
        args.confirm,
        &format!(
            "This will {what}: whoever gets it can read {} without a passphrase, for ever.",
            args.device.device.display()
        ),
    )?;
    let (_, unlocked) = passphrase_and_unlock(&device, &args.device.device, &args.unlock, output)?;
    match &args.volume_key_file {
        Some(path) => {
            write_key(path, &unlocked.key)?;
            output.done(
                &serde_json::json!({ "file": text_of(path), "key_bits": unlocked.key.len() * 8 }),
                format!("Volume key saved to {}.", path.display()),
            )
        }
        None => print(&unlocked.key),
    }
}

/// In hexadecimal, from secret memory straight to the descriptor.
fn print(key: &SecretBytes) -> Result<()> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = SecretBytes::zeroed(key.len() * 2 + 1).map_err(xtent_luks::Error::from)?;
    for (pair, byte) in text.chunks_exact_mut(2).zip(key.iter()) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    if let Some(end) = text.last_mut() {
        *end = b'\n';
    }
    let _held = stdout()?;
    let mut rest = &text[..];
    while !rest.is_empty() {
        match rustix::io::write(rustix::stdio::stdout(), rest) {
            Ok(written) => rest = &rest[written..],
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(Failure::system("cannot write to standard output", e)),
        }
    }
    Ok(())
}
