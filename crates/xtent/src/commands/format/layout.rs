//! What the options ask for, fitted to what is formatted.

use std::path::Path;

use sector_cipher::CipherSpec;
use xtent_luks::{FormatOptions, Version};
use xtent_secret::SecretBytes;

use super::target::Target;
use super::{Args, Type};
use crate::args::Pbkdf;
use crate::cipher;
use crate::failure::{Exit, Failure, Result};
use crate::output::Output;
use crate::size::show_size;

/// Everything that follows from the options alone.
pub(super) fn options(args: &Args, output: &Output) -> Result<FormatOptions> {
    let version = match args.luks {
        Type::Luks1 => Version::Luks1,
        Type::Luks2 => Version::Luks2,
    };
    let cipher: CipherSpec = args
        .cipher
        .parse()
        .map_err(|_| cipher::unknown(&args.cipher))?;
    if version == Version::Luks1 {
        refuse_in_luks1(args, &cipher)?;
    }
    if cipher.mode().is_broken() && !args.insecure_broken_cipher {
        return Err(Failure::parameters(format!(
            "{cipher} is broken: with two chosen queries an attacker reads all but 16 bytes \
             of a sector (ePrint 2024/1554)"
        ))
        .advise(
            "Choose another cipher. For tests with data that is no secret, \
             --insecure-broken-cipher makes the volume all the same.",
        ));
    }
    let mut options = FormatOptions {
        version,
        encryption: cipher.to_string(),
        key_length: key_length(args, &cipher)?,
        sector_size: 512,
        kdf: args.kdf.choice(),
        hash: args.kdf.hash.clone().unwrap_or_else(|| "sha256".into()),
        uuid: args.uuid.clone(),
        label: args.label.clone(),
        subsystem: args.subsystem.clone(),
        data_offset: None,
        detached: args.detached.header.is_some(),
        metadata_size: args.luks2_metadata_size,
        keyslots_size: args.luks2_keyslots_size,
    };
    let beyond = || Failure::parameters("the data would start beyond the end of any device");
    let in_bytes = |sectors: u64| sectors.checked_mul(512).ok_or_else(beyond);
    let data_offset = match args.offset {
        Some(sectors) => in_bytes(sectors)?,
        None => options.default_data_offset(args.align_payload.map(in_bytes).transpose()?)?,
    };
    if i64::try_from(data_offset).is_err() {
        return Err(beyond());
    }
    options.data_offset = Some(data_offset);
    cut_keyslots(&mut options, output);
    Ok(options)
}

/// As cryptsetup: an offset that is given counts for more than the size of the keyslots area.
fn cut_keyslots(options: &mut FormatOptions, output: &Output) {
    let (Ok(header), Some(wanted), Some(offset)) = (
        options.header_size(),
        options.keyslots_size,
        options.data_offset,
    ) else {
        return;
    };
    if options.detached || header <= offset {
        return;
    }
    let room = wanted.saturating_sub(header - offset) / 4096 * 4096;
    if room == 0 {
        // Refused when the layout is made.
        return;
    }
    output.warn(format!(
        "the keyslots area is made {} large, not {}: no more fits before --offset",
        show_size(room),
        show_size(wanted)
    ));
    options.keyslots_size = Some(room);
}

fn refuse_in_luks1(args: &Args, cipher: &CipherSpec) -> Result<()> {
    if cipher.mode().is_wide_block() {
        return Err(Failure::parameters(format!(
            "{cipher} needs LUKS2: LUKS1 encrypts its keyslots with the data's cipher, \
             which has to be XTS or CBC"
        )));
    }
    let needs_luks2 = if args.label.is_some() {
        "--label"
    } else if args.subsystem.is_some() {
        "--subsystem"
    } else if args.luks2_metadata_size.is_some() {
        "--luks2-metadata-size"
    } else if args.luks2_keyslots_size.is_some() {
        "--luks2-keyslots-size"
    } else if args.sector_size.is_some_and(|s| s.bytes() != 512) {
        "--sector-size above 512"
    } else if args.kdf.pbkdf.is_some_and(|kind| kind != Pbkdf::Pbkdf2) {
        "--pbkdf argon2"
    } else {
        return Ok(());
    };
    Err(Failure::parameters(format!(
        "{needs_luks2} needs LUKS2; LUKS1 has no place for it"
    )))
}

fn key_length(args: &Args, cipher: &CipherSpec) -> Result<usize> {
    let lengths = cipher.key_lengths();
    let length = match args.key_size {
        None => lengths.last().copied(),
        Some(bits) => lengths
            .iter()
            .copied()
            .find(|&length| u32::try_from(length * 8) == Ok(bits)),
    };
    length.ok_or_else(|| {
        let bits: Vec<String> = lengths.iter().map(|l| (l * 8).to_string()).collect();
        Failure::parameters(format!(
            "{cipher} takes keys of {} bits, not {}",
            bits.join(", "),
            args.key_size.unwrap_or_default()
        ))
    })
}

/// A volume key from a file has the length that was asked for.
pub(super) fn check_volume_key(
    args: &Args,
    key: &SecretBytes,
    options: &FormatOptions,
) -> Result<()> {
    if key.len() == options.key_length {
        return Ok(());
    }
    let advice = "Give --cipher and --key-size as they are of that key.";
    Err(Failure::parameters(format!(
        "{} holds {} bytes, the key of {} has {}",
        args.volume_key_file
            .as_deref()
            .unwrap_or(Path::new(""))
            .display(),
        key.len(),
        options.encryption,
        options.key_length
    ))
    .advise(advice))
}

/// Bytes of plaintext that there will be room for: of an existing target as
/// many as make whole units of 512.
pub(super) fn data_size(
    args: &Args,
    data: &Target<'_>,
    options: &FormatOptions,
    output: &Output,
) -> Result<u64> {
    let offset = options.data_offset.unwrap_or(0);
    let size = match (data, args.size) {
        (Target::New(_), Some(size)) if size < 4096 => {
            return Err(Failure::parameters(format!(
                "--size {size} is too small: it counts the plaintext, of which a volume holds at least 4096 bytes"
            ))
            .advise("K, M, G and T are powers of 1024, as in `--size 10G`."));
        }
        (Target::New(_), size) => size.unwrap_or(0),
        (Target::Existing(store), Some(_)) if store.file().is_none() => {
            return Err(Failure::parameters(format!(
                "--size is for new image files: how large {} is, its server decides",
                store.path().display()
            ))
            .advise("Leave --size out."));
        }
        (Target::Existing(store), Some(_)) => {
            return Err(Failure::new(
                Exit::Busy,
                format!(
                    "{} exists already; --size is for new image files",
                    store.path().display()
                ),
            )
            .advise("Leave --size out to overwrite it, or give another name."));
        }
        (Target::Existing(store), None) => {
            let room = store.size().saturating_sub(offset);
            let odd = room % 512;
            if odd > 0 && room >= 4096 {
                output.note(format!(
                    "The last {odd} bytes of {} stay unused: they are no whole sector.",
                    store.path().display()
                ));
            }
            room - odd
        }
    };
    if size < 4096 {
        return Err(Failure::new(
            Exit::Device,
            format!(
                "{} is too small: header and data start need {}, and at least 4096 bytes must be left",
                args.device.display(),
                show_size(offset)
            ),
        ));
    }
    Ok(size)
}

pub(super) fn sector_size(
    args: &Args,
    data: &Target<'_>,
    size: u64,
    options: &FormatOptions,
) -> Result<u32> {
    let offset = options.data_offset.unwrap_or(0);
    let fits = |bytes: u64| size.is_multiple_of(bytes) && offset.is_multiple_of(bytes);
    let chosen: u32 = match args.sector_size {
        Some(size) => u32::try_from(size.bytes()).unwrap_or(512),
        None if options.version == Version::Luks1 || !fits(4096) => 512,
        None => match data {
            Target::Existing(store) if store.is_block_device() && store.limits().atomic < 4096 => {
                512
            }
            _ => 4096,
        },
    };
    if !fits(u64::from(chosen)) {
        let advice = match data {
            Target::New(_) => "Give a --size and --offset that are multiples of it.",
            Target::Existing(_) => {
                "Give a smaller --sector-size, or another --offset; or make the file longer with truncate(1)."
            }
        };
        return Err(Failure::parameters(format!(
            "{} has room for {size} bytes of data from byte {offset} on: not whole sectors of {chosen}",
            args.device.display()
        ))
        .advise(advice));
    }
    Ok(chosen)
}

pub(super) fn warn_about(data: &Target<'_>, options: &FormatOptions, output: &Output) {
    if let Target::Existing(store) = data
        && store.is_block_device()
        && options.sector_size > store.limits().atomic
    {
        output.warn(format!(
            "sectors of {} bytes on a disk that writes {} atomically: one torn by a power failure is damaged",
            options.sector_size,
            store.limits().atomic
        ));
    }
}
