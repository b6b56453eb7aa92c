//! A volume with a header or without, from the options to the open volume or its key.

use std::sync::Arc;

use sector_cipher::Backend;
use xtent_luks::Header;
use xtent_secret::SecretBytes;
use xtent_store::Access;
use xtent_upstream::Upstream;
use xtent_volume::{Config, DiscardPolicy, Volume};

use super::{Headerless, PlainArgs, VolumeType};
use crate::args::{DeviceArgs, UnlockArgs};
use crate::disk::Disk;
use crate::failure::Result;
use crate::open::Container;
use crate::open::{Found, unlock_with_retries};
use crate::output::Output;

/// A volume's key, and how it was come by.
pub(crate) struct VolumeKey {
    pub(crate) key: SecretBytes,
    pub(crate) keyslot: Option<u32>,
    #[cfg(feature = "device-mapper")]
    pub(crate) token: Option<u32>,
}

/// A volume to be opened, with a header or without, this process's alone (shared
/// among readers) until it ends.
pub(crate) enum Closed {
    Luks(Container),
    Plain(Headerless),
}

impl Closed {
    /// What the options say; fails on what this program cannot open, before anybody
    /// is asked for a passphrase.
    pub(crate) fn open(
        device: &DeviceArgs,
        plain: &PlainArgs,
        unlock: &UnlockArgs,
        access: Access,
        output: &Output,
    ) -> Result<Self> {
        match plain.kind {
            VolumeType::Plain => plain.open(device, access, unlock, output).map(Self::Plain),
            VolumeType::Luks => {
                plain.refuse_with_luks()?;
                Container::open(device, access, true, output).map(Self::Luks)
            }
        }
    }

    /// As [`Closed::open`], to look only: also at what somebody is using.
    pub(crate) fn look(
        device: &DeviceArgs,
        plain: &PlainArgs,
        unlock: &UnlockArgs,
        output: &Output,
    ) -> Result<Self> {
        match plain.kind {
            VolumeType::Plain => Self::open(device, plain, unlock, Access::ReadOnly, output),
            VolumeType::Luks => {
                plain.refuse_with_luks()?;
                Container::open(device, Access::ReadOnly, false, output).map(Self::Luks)
            }
        }
    }

    /// Fails if a block device of this volume waits for its server, for whoever is going to
    /// write to it in another way.
    #[cfg_attr(
        not(feature = "device-mapper"),
        allow(clippy::unused_self, clippy::unnecessary_wraps)
    )]
    pub(crate) fn refuse_waited_for(&self) -> Result<()> {
        #[cfg(feature = "device-mapper")]
        crate::ublk::refuse_waited_for_by_any(self)?;
        Ok(())
    }

    /// The device with the ciphertext.
    pub(crate) fn data(&self) -> Disk {
        match self {
            Self::Luks(container) => container.data.clone(),
            Self::Plain(headerless) => headerless.data.clone(),
        }
    }

    /// What has the header, where that is not the device with the ciphertext.
    pub(crate) fn detached_header(&self) -> Option<Disk> {
        match self {
            Self::Luks(container) => container.own_header_disk().cloned(),
            Self::Plain(_) => None,
        }
    }

    /// What is on servers of data and header.
    pub(crate) fn upstreams(&self) -> Vec<Arc<Upstream>> {
        self.disks().filter_map(Disk::upstream).cloned().collect()
    }

    /// Whether data or header is in a Ceph cluster.
    pub(crate) fn has_image(&self) -> bool {
        self.disks().any(Disk::is_image)
    }

    fn disks(&self) -> impl Iterator<Item = &Disk> {
        let (data, header) = match self {
            Self::Luks(container) => (&container.data, Some(&container.header_disk)),
            Self::Plain(headerless) => (&headerless.data, None),
        };
        [Some(data), header].into_iter().flatten()
    }

    /// Whether there is a header, and where the ciphertext is.
    pub(crate) fn has_header_on_data(&self) -> bool {
        self.header().is_some() && self.detached_header().is_none()
    }

    /// The header, if there is one.
    pub(crate) fn header(&self) -> Option<&Header> {
        match self {
            Self::Luks(container) => Some(&container.header),
            Self::Plain(_) => None,
        }
    }

    /// The header's UUID; empty without one.
    pub(crate) fn uuid(&self) -> &str {
        self.header().map_or("", Header::uuid)
    }

    /// The discard policy that the header asks for when no option does.
    pub(crate) fn stored_discard_policy(&self) -> DiscardPolicy {
        match self {
            Self::Luks(container) => container.stored_discard_policy(),
            Self::Plain(_) => DiscardPolicy::Never,
        }
    }

    /// What kind of volume it will be.
    pub(crate) fn plan(
        &self,
        read_only: bool,
        discard: DiscardPolicy,
        backend: Option<Backend>,
    ) -> Result<Config> {
        match self {
            Self::Luks(container) => container.plan(read_only, discard, backend),
            Self::Plain(headerless) => Ok(headerless.plan(read_only, discard, backend)),
        }
    }

    /// Asks for the passphrase and opens the volume.
    pub(crate) fn volume(
        self,
        unlock: &UnlockArgs,
        config: &Config,
        output: &Output,
    ) -> Result<Volume> {
        Ok(self.volume_and_keyslot(unlock, config, output)?.0)
    }

    /// Asks for the passphrase and gives the volume's key, for whoever encrypts elsewhere.
    pub(crate) fn key(&self, unlock: &UnlockArgs, output: &Output) -> Result<VolumeKey> {
        match self {
            Self::Luks(container) => {
                let path = container.data.path();
                let found = unlock_with_retries(&container.metadata, path, unlock, output)?;
                let Found { unlocked, .. } = found;
                Ok(VolumeKey {
                    key: unlocked.key,
                    keyslot: unlocked.keyslot,
                    #[cfg(feature = "device-mapper")]
                    token: found.token,
                })
            }
            Self::Plain(headerless) => Ok(VolumeKey {
                key: headerless.key(unlock, output)?,
                keyslot: None,
                #[cfg(feature = "device-mapper")]
                token: None,
            }),
        }
    }

    /// Says so if nobody should keep data under its cipher.
    pub(crate) fn warn_if_broken(&self, config: &Config, output: &Output) {
        if let Self::Luks(container) = self {
            container.warn_if_broken(config, output);
        }
    }

    /// Opens the volume with its key, if the header says that it is that.
    pub(crate) fn volume_by_key(self, key: SecretBytes, config: &Config) -> Result<Volume> {
        match self {
            Self::Luks(container) => container.volume_by_key(key, config),
            Self::Plain(headerless) => {
                let volume = Volume::open(headerless.data.for_volume(), &key, config)?;
                Ok(volume.holding(headerless.data))
            }
        }
    }

    /// As [`Closed::volume`], and gives the keyslot that opened it, if it has any.
    pub(crate) fn volume_and_keyslot(
        self,
        unlock: &UnlockArgs,
        config: &Config,
        output: &Output,
    ) -> Result<(Volume, Option<u32>)> {
        match self {
            Self::Luks(container) => container.volume_and_keyslot(unlock, config, output),
            Self::Plain(headerless) => {
                let key = headerless.key(unlock, output)?;
                let volume = Volume::open(headerless.data.for_volume(), &key, config)?;
                Ok((volume.holding(headerless.data), None))
            }
        }
    }
}
