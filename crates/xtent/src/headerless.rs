//! Volumes of plain dm-crypt: no header, only ciphertext. Everything that a
//! header would say comes from options, and the key from the passphrase.

mod closed;

use std::path::Path;

use clap::{Args, ValueEnum};
use sector_cipher::{Backend, CipherSpec, SectorCount, SectorSize};
use xtent_luks::kdf::plain_key;
use xtent_secret::SecretBytes;
use xtent_store::{Access, Store};
use xtent_volume::{Config, DiscardPolicy, Holes};

pub(crate) use closed::Closed;
pub(crate) use closed::VolumeKey;

use crate::args::{DeviceArgs, UnlockArgs};
use crate::cipher::unknown;
use crate::disk::Disk;
use crate::failure::{Exit, Failure, Result};
use crate::open::{open_device_alone, prompt};
use crate::output::Output;
use crate::probe;
use crate::secrets::{Asked, Source};

/// Bytes that offsets and sizes count in, as in dm-crypt's tables.
const UNIT: u64 = 512;

/// What has to be said where there is no header to ask.
const DEFAULTS: &str = "Nothing on the device tells, and a wrong guess shows noise. cryptsetup's own defaults were\n\
    up to 2.6:  --cipher aes-cbc-essiv:sha256 --key-size 256 --hash ripemd160\n\
    from 2.7:   --cipher aes-xts-plain64 --key-size 256 --hash sha256";

/// Format of the volume, by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum VolumeType {
    /// LUKS1 or LUKS2, as the header says
    #[default]
    Luks,
    /// Plain dm-crypt: no header, see the options for it
    Plain,
}

/// What a header would say.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Plain dm-crypt volumes")]
pub(crate) struct PlainArgs {
    /// Format of the volume; plain is cryptsetup's `open --type plain`
    ///
    /// A plain volume takes --cipher and --key-size and, unless the key comes from
    /// a key file, --hash: there is no header to ask, and no way to notice a wrong
    /// passphrase. A key file (other than `-`), --key-command or --key-fd is the key itself, its first
    /// --key-size bits; a passphrase is hashed.
    #[arg(
        long = "type",
        value_name = "TYPE",
        default_value = "luks",
        hide_default_value = true
    )]
    kind: VolumeType,
    /// Cipher, mode and IV by dm-crypt's names: aes-xts-plain64, aes-cbc-essiv:sha256
    #[arg(short, long, value_name = "SPEC")]
    cipher: Option<String>,
    /// Bits of key
    #[arg(short = 's', long, value_name = "BITS")]
    key_size: Option<u32>,
    /// Hash that makes the key of the passphrase: sha256, ripemd160, sha512:32, plain (none)
    #[arg(long, value_name = "HASH")]
    hash: Option<String>,
    /// First 512-byte sector of the device that is the volume's [default: 0]
    #[arg(long, value_name = "SECTORS")]
    offset: Option<u64>,
    /// Number that the volume's first 512-byte sector has for the IV [default: 0]
    #[arg(long, value_name = "SECTORS")]
    skip: Option<u64>,
    /// Length in 512-byte sectors [default: up to the device's end]
    #[arg(long, value_name = "SECTORS")]
    size: Option<u64>,
    /// Bytes per sector: 512, 1024, 2048 or 4096 [default: 512]
    #[arg(long, value_name = "BYTES")]
    sector_size: Option<u32>,
    /// Count sectors of --sector-size for the IV instead of 512 bytes
    #[arg(long)]
    iv_large_sectors: bool,
    /// Write to a device as plain although it has the signature of something else
    #[arg(long)]
    ignore_signature: bool,
}

/// A device to be opened as plain dm-crypt.
pub(crate) struct Headerless {
    data: Disk,
    hash: Option<String>,
    key_length: usize,
    cipher: CipherSpec,
    sector_size: SectorSize,
    sector_count: SectorCount,
    offset: u64,
    iv_offset: u64,
    length: u64,
}

impl PlainArgs {
    /// Whether the volume has no header.
    pub(crate) fn is_plain(&self) -> bool {
        self.kind == VolumeType::Plain
    }

    /// Refuses options that a header would contradict.
    fn refuse_with_luks(&self) -> Result<()> {
        let given = [
            ("--cipher", self.cipher.is_some()),
            ("--key-size", self.key_size.is_some()),
            ("--hash", self.hash.is_some()),
            ("--offset", self.offset.is_some()),
            ("--skip", self.skip.is_some()),
            ("--size", self.size.is_some()),
            ("--sector-size", self.sector_size.is_some()),
            ("--iv-large-sectors", self.iv_large_sectors),
            ("--ignore-signature", self.ignore_signature),
        ];
        match given.iter().find(|(_, given)| *given) {
            Some((name, _)) => Err(Failure::parameters(format!(
                "{name} is for plain dm-crypt volumes; LUKS has it in its header"
            ))
            .advise("Leave it out, or give --type plain for a volume without a header.")),
            None => Ok(()),
        }
    }

    /// Opens the device and settles everything but the key.
    fn open(
        &self,
        device: &DeviceArgs,
        access: Access,
        unlock: &UnlockArgs,
        output: &Output,
    ) -> Result<Headerless> {
        let tokens = &unlock.tokens;
        let has_tokens =
            tokens.token_id.is_some() || tokens.token_type.is_some() || tokens.token_only;
        if device.detached.header.is_some() || unlock.key_slot.is_some() || has_tokens {
            return Err(Failure::parameters(
                "a plain dm-crypt volume has neither a header nor keyslots or tokens: leave the options for them out",
            ));
        }
        if device.pins().next().is_some() {
            return Err(Failure::parameters(
                "a plain dm-crypt volume has no header: leave --expect-header out",
            ));
        }
        if unlock.volume_key_file.is_some() {
            return Err(Failure::parameters(
                "the key of a plain dm-crypt volume comes from --key-file, not --volume-key-file",
            ));
        }
        let (cipher, key_length) = self.cipher()?;
        let hash = self.hash(&unlock.key.source(), output)?;
        let sector_size = SectorSize::new(self.sector_size.unwrap_or(512)).map_err(|_| {
            Failure::parameters("--sector-size: possible are 512, 1024, 2048 and 4096")
        })?;
        let data = open_device_alone(device, access)?;
        if access == Access::ReadWrite {
            self.refuse_signature(&*data, &device.device)?;
        }
        let units = sector_size.bytes() as u64 / UNIT;
        for (option, value) in [("--size", self.size), ("--skip", self.skip)] {
            if !value.unwrap_or(0).is_multiple_of(units) {
                return Err(Failure::parameters(format!(
                    "{option} counts 512 bytes, and has to be a multiple of {units} with \
                     --sector-size {}",
                    sector_size.bytes()
                )));
            }
        }
        let bytes = |sectors: Option<u64>| {
            sectors.unwrap_or(0).checked_mul(UNIT).ok_or_else(|| {
                Failure::parameters("--offset or --size is beyond the end of any device")
            })
        };
        let offset = bytes(self.offset)?;
        let room = data.size().saturating_sub(offset);
        let length = match self.size {
            Some(_) => bytes(self.size)?,
            None => room - room % sector_size.bytes() as u64,
        };
        if length == 0 || length > room {
            return Err(Failure::new(
                Exit::Device,
                format!(
                    "{} has {} bytes; the volume would go from byte {offset} to {}",
                    device.device.display(),
                    data.size(),
                    offset.saturating_add(length)
                ),
            ));
        }
        Ok(Headerless {
            data,
            hash,
            key_length,
            cipher,
            sector_size,
            sector_count: if self.iv_large_sectors {
                SectorCount::Large
            } else {
                SectorCount::Units512
            },
            offset,
            iv_offset: self.skip.unwrap_or(0),
            length,
        })
    }

    fn cipher(&self) -> Result<(CipherSpec, usize)> {
        let (Some(name), Some(bits)) = (&self.cipher, self.key_size) else {
            return Err(Failure::parameters(
                "--type plain needs --cipher and --key-size, and --hash for a passphrase",
            )
            .advise(DEFAULTS));
        };
        let cipher: CipherSpec = name.parse().map_err(|_| unknown(name))?;
        let lengths = cipher.key_lengths();
        let length = lengths
            .iter()
            .copied()
            .find(|&length| u32::try_from(length * 8) == Ok(bits));
        length.map(|length| (cipher, length)).ok_or_else(|| {
            let bits: Vec<String> = lengths.iter().map(|l| (l * 8).to_string()).collect();
            Failure::parameters(format!(
                "{cipher} takes keys of {} bits, not {}",
                bits.join(", "),
                self.key_size.unwrap_or_default()
            ))
        })
    }

    /// The hash, or none where the key is given itself; cryptsetup's rule.
    fn hash(&self, source: &Source, output: &Output) -> Result<Option<String>> {
        let is_key = match source {
            Source::File { path, .. } => path != Path::new("-"),
            Source::Descriptor { .. } | Source::Credential(_) | Source::Command(_) => true,
            _ => false,
        };
        match (&self.hash, is_key) {
            (Some(hash), true) => {
                output.warn(format!(
                    "--hash {hash} does not count: a key file of a plain volume is the key itself"
                ));
                Ok(None)
            }
            (None, true) => Ok(None),
            (Some(hash), false) => Ok(Some(hash.clone())),
            (None, false) => Err(
                Failure::parameters("--type plain needs --hash for a passphrase").advise(DEFAULTS),
            ),
        }
    }

    /// Writing would destroy what the signature belongs to. As for cryptsetup,
    /// nothing but LUKS counts where the volume begins elsewhere.
    fn refuse_signature(&self, data: &dyn Store, path: &Path) -> Result<()> {
        let found = probe::describe(data)
            .filter(|found| self.offset.unwrap_or(0) == 0 || found.starts_with("a LUKS"));
        match found {
            Some(found) if !self.ignore_signature => Err(Failure::new(
                Exit::Device,
                format!(
                    "{} holds {found}: writing to it as a plain volume would destroy that",
                    path.display()
                ),
            )
            .advise(
                "Leave --type plain out for LUKS, look with --read-only, or insist with --ignore-signature.",
            )),
            _ => Ok(()),
        }
    }
}

impl Headerless {
    /// What kind of volume it will be.
    fn plan(&self, read_only: bool, discard: DiscardPolicy, backend: Option<Backend>) -> Config {
        Config {
            cipher: self.cipher,
            sector_size: self.sector_size,
            sector_count: self.sector_count,
            offset: self.offset,
            length: self.length,
            iv_offset: self.iv_offset,
            read_only,
            discard,
            holes: Holes::Noise,
            backend,
        }
    }

    /// Asks for the passphrase and makes the key of it.
    fn key(&self, unlock: &UnlockArgs, output: &Output) -> Result<SecretBytes> {
        let asked = Asked::of(self.data.path(), None);
        let secret = unlock.key.read(&prompt(self.data.path()), &asked)?;
        let key = match &self.hash {
            Some(hash) => plain_key(hash, &secret, self.key_length)?,
            None if secret.len() < self.key_length => {
                return Err(Failure::parameters(format!(
                    "the key file has {} bytes, the cipher's key {}",
                    secret.len(),
                    self.key_length
                )));
            }
            None => SecretBytes::copy_of(&secret[..self.key_length])?,
        };
        output.note(
            "A plain volume cannot tell a wrong passphrase or option: if what you see is noise, do not write.",
        );
        Ok(key)
    }
}
