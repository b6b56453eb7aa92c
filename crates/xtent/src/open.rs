//! From a device and a passphrase to an open volume.

mod unlock;

use std::path::Path;

use sector_cipher::{Backend, CipherSpec, SectorCount, SectorSize};
use xtent_luks::{Device, Header, KdfLimits, Segment, Unlocked};
use xtent_secret::SecretBytes;
use xtent_store::{Access, FileStore, Store as _};
use xtent_volume::{Config, DiscardPolicy, Holes, Volume};

pub(crate) use unlock::{
    Found, PATIENCE, passphrase_and_unlock, prompt, unlock_with_retries, while_deriving,
    with_retries,
};

use crate::args::{DeviceArgs, UnlockArgs};
use crate::disk::{Disk, is_uri, refuse_dash};
use crate::failure::{Exit, Failure, Result};
use crate::output::Output;
use crate::probe::{self, Wrapping};
use crate::same::{refuse_attached, share_storage};
use crate::{identity, partition};

/// A device whose metadata has been read and found usable.
pub(crate) struct Container {
    /// Where the ciphertext is.
    pub(crate) data: Disk,
    /// The metadata.
    pub(crate) metadata: Device,
    /// What it says.
    pub(crate) header: Header,
    /// Where the metadata is.
    pub(crate) header_disk: Disk,
}

/// The metadata alone, for key and header commands.
pub(crate) fn metadata(args: &DeviceArgs, access: Access) -> Result<(Disk, Device)> {
    let disk = match &args.detached.header {
        Some(path) => Disk::open(path, access, args.reconnect())?,
        None => open_device(args, access)?,
    };
    let device = args.metadata_on(&disk)?;
    Ok((disk, device))
}

/// As [`metadata`], to give it another UUID. Behind a server that is what whoever serves the volume
/// knows the disk by, so nobody may.
pub(crate) fn metadata_for_uuid(args: &DeviceArgs) -> Result<(Disk, Device)> {
    let access = Access::ReadWrite;
    let disk = match &args.detached.header {
        Some(path) if is_uri(path) => Disk::open_alone(path, access, args.reconnect())?,
        None if is_uri(&args.device) => open_device_alone(args, access)?,
        _ => return metadata(args, access),
    };
    let device = args.metadata_on(&disk)?;
    Ok((disk, device))
}

/// Whether what is under way when a volume's server is killed may wait for the next one, of a block device or of a
/// virtual machine's disk. `is_far`: over a server's export. Without a header nothing says that a passphrase is
/// the right one, and what waits would be written with any. A server's export is not this process's
/// alone, so that a killed one's last words may reach it after what the next one has written; and
/// what it had not been told to flush was known to that process only.
pub(crate) fn can_wait(uuid: &str, is_far: bool) -> bool {
    !uuid.is_empty() && !is_far
}

/// Opens the device, or its partition that was asked for.
pub(crate) fn open_device(args: &DeviceArgs, access: Access) -> Result<Disk> {
    if is_uri(&args.device) {
        refuse_file_options(args)?;
        return Disk::open(&args.device, access, args.reconnect());
    }
    Ok(open_file(args, access)?.into())
}

/// As [`open_device`], for this process alone (shared among readers if `access` is read-only).
pub(crate) fn open_device_alone(args: &DeviceArgs, access: Access) -> Result<Disk> {
    if is_uri(&args.device) {
        refuse_file_options(args)?;
        return Disk::open_alone(&args.device, access, args.reconnect());
    }
    let file = open_file(args, access)?;
    file.lock_for_serving()?;
    if access == Access::ReadWrite {
        let start = file.window_start();
        refuse_attached(&args.device, start..start.saturating_add(file.size()))?;
    }
    Ok(file.into())
}

fn open_file(args: &DeviceArgs, access: Access) -> Result<FileStore> {
    refuse_dash(&args.device)?;
    let file = match args.partition {
        Some(number) => partition::open(&args.device, number, access)?,
        None => FileStore::open(&args.device, access)?,
    };
    match args.direct_io {
        true => Ok(file.direct()?),
        false => Ok(file),
    }
}

/// Refuses the options that only files and devices of this machine have.
fn refuse_file_options(args: &DeviceArgs) -> Result<()> {
    if args.partition.is_some() {
        return Err(partition::refuse_export(&args.device));
    }
    if args.direct_io {
        return Err(Failure::parameters(format!(
            "--direct-io: {} is behind a server, and no page cache of this machine has it",
            args.device.display()
        ))
        .advise("Leave the option out. What the server caches is set there."));
    }
    Ok(())
}

/// Reads the metadata; if it is none, says what is there instead.
pub(crate) fn read_header(device: &Device, disk: &Disk, output: &Output) -> Result<Header> {
    let header = device.read().map_err(|e| {
        let not_luks = e.kind == xtent_luks::ErrorKind::NotLuks;
        let failure = Failure::of_metadata(e, disk.path());
        if !not_luks || failure.advice.is_some() {
            return failure;
        }
        let is_new_file = disk.file().is_some_and(|file| !file.is_block_device());
        if !is_new_file && probe::reads_as_zeros(&**disk) {
            return failure.advise(
                "It reads as zeros where a header would be: is the storage there, and whole? \
                 Storage that has lost its volume for a while reads so, too: find out before \
                 anything is written to it. For a header kept elsewhere give --header FILE.",
            );
        }
        if let Some(wrapping) = Wrapping::in_store(&**disk) {
            return failure.advise(format!(
                "It looks like {}. To have what is inside as a plain file: `{}`.",
                wrapping.what(),
                wrapping.converted(disk.path())
            ));
        }
        if let Some(opener) = probe::opener(&**disk) {
            return failure.advise(opener);
        }
        if let Some(partitions) = disk.file().and_then(|file| partition::advice(file)) {
            return failure.advise(partitions);
        }
        match probe::describe(&**disk) {
            Some(found) => failure.advise(format!(
                "It looks like {found}. For a header kept elsewhere give --header FILE.",
            )),
            None if !is_new_file => failure.advise(
                "If its header is kept elsewhere give --header FILE.",
            ),
            None => failure.advise(
                "If its header is kept elsewhere give --header FILE; `xtent format` makes a new volume.",
            ),
        }
    })?;
    tracing::debug!(
        path = %disk.path().display(),
        version = ?header.version(),
        uuid = header.uuid(),
        recovered = header.is_recovered(),
        "header read"
    );
    if header.is_recovered() {
        output.warn(format!(
            "{}: one of the two header copies is damaged; the good one is used. \
             Run `xtent header repair {0}` to write both anew.",
            disk.path().display()
        ));
    }
    for damage in header.damage() {
        output.warn(format!(
            "{}: damaged header: {damage}. The volume opens, but no key can be changed before \
             `xtent header repair {0}`.",
            disk.path().display()
        ));
    }
    Ok(header)
}

impl Container {
    /// Opens device and metadata. With `lock` the device is this process's
    /// alone (shared among readers if `access` is read-only) until it ends.
    pub(crate) fn open(
        args: &DeviceArgs,
        access: Access,
        lock: bool,
        output: &Output,
    ) -> Result<Self> {
        let data = match lock {
            true => open_device_alone(args, access)?,
            false => open_device(args, access)?,
        };
        let header_disk = match &args.detached.header {
            // So that nobody erases or overwrites the header of a volume in use. Several
            // volumes may have one.
            Some(path) if lock && !share_storage(data.path(), path) => {
                Disk::open_alone(path, Access::ReadOnly, args.reconnect())?
            }
            Some(path) => Disk::open(path, Access::ReadOnly, args.reconnect())?,
            None => data.clone(),
        };
        let metadata = args.metadata_on(&header_disk)?;
        let header = read_header(&metadata, &header_disk, output)?;
        if lock {
            identity::register(&data, &header)?;
        }
        Ok(Self {
            data,
            metadata,
            header,
            header_disk,
        })
    }

    /// What has the metadata, where that is not what has the data.
    pub(crate) fn own_header_disk(&self) -> Option<&Disk> {
        (!self.header_disk.is(&self.data)).then_some(&self.header_disk)
    }

    /// A device that has just been formatted, and is locked.
    pub(crate) fn formatted(data: Disk, header_disk: Disk, header: Header) -> Result<Self> {
        identity::register(&data, &header)?;
        Ok(Self {
            data,
            metadata: header_disk.metadata()?,
            header,
            header_disk,
        })
    }

    /// Opens the volume with a passphrase that was given before.
    pub(crate) fn volume_by(self, passphrase: &SecretBytes, config: &Config) -> Result<Volume> {
        let unlocked = self
            .metadata
            .unlock(passphrase, None, &KdfLimits { longest: None })?;
        self.volume(&unlocked, config)
    }

    /// Opens the volume with its key, if the header says that it is that.
    pub(crate) fn volume_by_key(self, key: SecretBytes, config: &Config) -> Result<Volume> {
        let limits = KdfLimits { longest: None };
        let unlocked = self.metadata.unlock_with_volume_key(key, &limits)?;
        self.volume(&unlocked, config)
    }

    /// The open volume. It has the locks, so that nobody erases or overwrites the header
    /// of a volume in use either.
    fn volume(self, unlocked: &Unlocked, config: &Config) -> Result<Volume> {
        // Before a sandbox forbids to make a ring.
        let volume = Volume::open(self.data.for_volume(), &unlocked.key, config)?;
        Ok(volume.holding((self.data, self.header_disk)))
    }

    /// What kind of volume it will be; fails on what this program cannot open,
    /// before anybody is asked for a passphrase.
    pub(crate) fn plan(
        &self,
        read_only: bool,
        discard: DiscardPolicy,
        backend: Option<Backend>,
    ) -> Result<Config> {
        self.refuse_metadata_as_data()?;
        let segment = self.header.segment(self.data.size())?;
        let path = self.data.path();
        Ok(Config {
            cipher: cipher_of(&segment, path)?,
            sector_size: SectorSize::new(segment.sector_size).map_err(|_| {
                Failure::new(
                    Exit::Device,
                    format!(
                        "{}: the header says {} bytes per sector; possible are 512, 1024, 2048 and 4096",
                        path.display(),
                        segment.sector_size
                    ),
                )
            })?,
            sector_count: SectorCount::Units512,
            offset: segment.offset,
            length: segment.length,
            iv_offset: segment.iv_tweak,
            read_only,
            discard,
            holes: Holes::Noise,
            backend,
        })
    }

    /// Refuses a header whose data belongs on another device where that device
    /// is the one with the header: the first write would destroy it.
    fn refuse_metadata_as_data(&self) -> Result<()> {
        let (data, header) = (self.data.path(), self.header_disk.path());
        if !self.header.is_detached() || !share_storage(data, header) {
            return Ok(());
        }
        Err(Failure::new(
            Exit::Device,
            format!(
                "{} holds a detached header only: its volume's data is on another device",
                header.display()
            ),
        )
        .advise(format!(
            "Give the device with the data, and --header {} besides.",
            header.display()
        )))
    }

    /// The discard policy that the header asks for when no option does.
    pub(crate) fn stored_discard_policy(&self) -> DiscardPolicy {
        if self.header.allows_discards() {
            DiscardPolicy::Allow
        } else {
            DiscardPolicy::Never
        }
    }

    /// Says so if nobody should keep data under its cipher.
    pub(crate) fn warn_if_broken(&self, config: &Config, output: &Output) {
        if config.cipher.mode().is_broken() {
            output.warn(format!(
                "{}: {} is broken: an attacker who has two chosen sectors encrypted or \
                 decrypted reads all but 16 bytes of another (ePrint 2024/1554). \
                 Move the data to a volume with another cipher.",
                self.data.path().display(),
                config.cipher
            ));
        }
    }

    /// Asks for the passphrase and opens the volume; gives the keyslot that did, if one did.
    pub(crate) fn volume_and_keyslot(
        self,
        unlock: &UnlockArgs,
        config: &Config,
        output: &Output,
    ) -> Result<(Volume, Option<u32>)> {
        self.warn_if_broken(config, output);
        let Found { unlocked, token } =
            unlock_with_retries(&self.metadata, self.data.path(), unlock, output)?;
        let device = self.data.path().display().to_string();
        let volume = self.volume(&unlocked, config)?;
        tracing::info!(
            device,
            keyslot = unlocked.keyslot,
            token,
            cipher = %config.cipher,
            sector_size = config.sector_size.bytes(),
            size = volume.size(),
            "volume open"
        );
        Ok((volume, unlocked.keyslot))
    }
}

fn cipher_of(segment: &Segment, path: &Path) -> Result<CipherSpec> {
    segment.encryption.parse().map_err(|e| {
        Failure::new(
            Exit::Device,
            format!(
                "{}: the volume is encrypted with {}, which this version cannot open",
                path.display(),
                segment.encryption
            ),
        )
        .because(e)
    })
}

/// Parses `--cpu`: a back-end that this CPU has.
pub(crate) fn parse_backend(text: &str) -> std::result::Result<Backend, String> {
    let available = Backend::available();
    let found = available.iter().copied().find(|b| b.name() == text);
    found.ok_or_else(|| {
        let names: Vec<&str> = available.iter().map(|b| b.name()).collect();
        format!("this CPU has {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_ends_go_by_name() {
        for &backend in Backend::available() {
            assert_eq!(parse_backend(backend.name()), Ok(backend));
        }
        assert!(parse_backend("z80").is_err());
    }
}
