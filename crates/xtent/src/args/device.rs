//! Where a volume and its metadata are, and how its device is read and written.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use xtent_luks::{Device, Pin};

use crate::disk::Disk;
use crate::failure::Result;
use crate::pins::{self, Expected};

/// Seconds that a lost connection to a server may stay lost, unless `--reconnect` says otherwise.
pub(crate) const RECONNECT: u32 = 10;

/// The device and where its metadata is.
#[derive(Args, Clone, Debug)]
pub(crate) struct DeviceArgs {
    /// Block device, image file, NBD URI or rbd:POOL/IMAGE with the encrypted data
    pub(crate) device: PathBuf,
    /// The volume is partition N of the disk image (GPT or DOS table)
    ///
    /// The others may be in use meanwhile. Of a disk, give its partition's device instead:
    /// whoever writes to a part of it this way has all of it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) partition: Option<u32>,
    #[command(flatten)]
    pub(crate) detached: HeaderArgs,
    /// Refuse a header that is not the one that was pinned: PIN or @FILE (repeatable)
    ///
    /// PIN is what `xtent header pin` prints; a file has one on each line. It is looked at
    /// each time that the header is read, and first before a passphrase is asked for, so that storage that
    /// somebody else may write to cannot come with an older header, or one of theirs.
    #[arg(long, value_name = "PIN", value_parser = pins::parse)]
    pub(crate) expect_header: Vec<Expected>,
    /// Of an NBD server: seconds that a lost connection may stay lost before requests fail
    ///
    /// Until then they wait, and go on where they were once the server is there again. A server that
    /// says nothing to requests for 60 seconds, or for as long as this if it is longer, counts as lost.
    #[arg(long, value_name = "SECONDS", default_value_t = RECONNECT, value_parser = clap::value_parser!(u32).range(..=86400))]
    pub(crate) reconnect: u32,
    /// Whether to go past the page cache; set by commands with that option.
    #[arg(skip)]
    pub(crate) direct_io: bool,
}

impl DeviceArgs {
    /// How long a lost connection may stay lost.
    pub(crate) fn reconnect(&self) -> Duration {
        Duration::from_secs(self.reconnect.into())
    }

    /// The metadata on a disk, which has to be what is expected.
    pub(crate) fn metadata_on(&self, disk: &Disk) -> Result<Device> {
        let pins: Vec<Pin> = self.pins().cloned().collect();
        Ok(disk.metadata()?.expecting(&pins))
    }

    /// What its header is expected to be.
    pub(crate) fn pins(&self) -> impl Iterator<Item = &Pin> {
        self.expect_header.iter().flat_map(|expected| &expected.0)
    }

    /// What holds the metadata, for messages.
    pub(crate) fn metadata_name(&self) -> String {
        match (&self.detached.header, self.partition) {
            (Some(header), _) => header.display().to_string(),
            (None, Some(number)) => format!("partition {number} of {}", self.device.display()),
            (None, None) => self.device.display().to_string(),
        }
    }
}

/// The detached header.
#[derive(Args, Clone, Debug)]
pub(crate) struct HeaderArgs {
    /// Detached LUKS header: a file, device or NBD export of its own holds the metadata
    #[arg(long, value_name = "FILE")]
    pub(crate) header: Option<PathBuf>,
}

/// How the device is read and written.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct DirectArgs {
    /// Read and write past the page cache (O_DIRECT), for clients that cache themselves
    ///
    /// Without it what is read twice comes from memory, and the system writes when it
    /// sees fit or a client flushes; but a guest or a file system with a cache of its own then
    /// has everything in memory twice. The device or file system has to have it.
    #[arg(long)]
    direct_io: bool,
}

impl DirectArgs {
    /// The device, to be opened so.
    pub(crate) fn device(self, device: &DeviceArgs) -> DeviceArgs {
        DeviceArgs {
            direct_io: self.direct_io,
            ..device.clone()
        }
    }
}
