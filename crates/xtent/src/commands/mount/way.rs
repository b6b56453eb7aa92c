//! By what a volume is mounted.

use std::sync::Arc;

use clap::ValueEnum;
use xtent_export::mounts::{Mount, Options};
use xtent_volume::Volume;

use super::Args;
#[cfg(feature = "device-mapper")]
use super::by_ublk::Ublk;
use crate::disk::Disk;
use crate::failure::Result;
use crate::headerless::Closed;
use crate::output::Output;

/// What `--by` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum By {
    /// The kernel's block device, served by the daemon: Linux 6.1 or newer with `ublk_drv`
    Ublk,
    /// A file by FUSE, with a loop device on it
    Fuse,
}

/// How this mount is made.
pub(super) enum Way {
    Fuse,
    #[cfg(feature = "device-mapper")]
    Ublk(Box<Ublk>),
}

impl Way {
    /// What was asked for, else ublk where the kernel has it. Nothing is made yet.
    pub(super) fn choose(args: &Args, options: &Options) -> Result<Self> {
        if args.file_only || args.by == Some(By::Fuse) {
            return Ok(Self::Fuse);
        }
        Self::by_ublk(args, options)
    }

    #[cfg(feature = "device-mapper")]
    fn by_ublk(args: &Args, options: &Options) -> Result<Self> {
        let is_asked_for = args.by == Some(By::Ublk);
        match xtent_export::ublk::Control::open() {
            Ok(control) => {
                let ublk = Ublk::new(control, is_asked_for, options)?;
                Ok(Self::Ublk(Box::new(ublk)))
            }
            Err(error) if is_asked_for => Err(error.into()),
            Err(error) => {
                super::told::by_fuse(&error.into());
                Ok(Self::Fuse)
            }
        }
    }

    #[cfg(not(feature = "device-mapper"))]
    fn by_ublk(args: &Args, _: &Options) -> Result<Self> {
        match args.by {
            Some(By::Ublk) => Err(crate::failure::Failure::parameters(
                "this program was built without block devices (ublk)",
            )
            .advise("--by fuse goes without.")),
            _ => Ok(Self::Fuse),
        }
    }

    /// Whether what a killed daemon has left mounted goes on.
    pub(super) fn goes_on(&self) -> bool {
        match self {
            Self::Fuse => false,
            #[cfg(feature = "device-mapper")]
            Self::Ublk(ublk) => ublk.goes_on(),
        }
    }

    /// Takes note of the volume; fails if another one's file system would go on with it.
    pub(super) fn look_at(&mut self, container: &Closed, options: &Options) -> Result<()> {
        match self {
            Self::Fuse => {
                let _ = options;
                container.refuse_waited_for()
            }
            #[cfg(feature = "device-mapper")]
            Self::Ublk(ublk) => ublk.look_at(container, options),
        }
    }

    /// Mounts the volume. `failed` says more of an error of mount(8).
    pub(super) fn mount(
        self,
        (volume, data): (&Arc<Volume>, &Disk),
        options: &Options,
        output: &Output,
        failed: impl Fn(xtent_export::Error) -> crate::failure::Failure,
    ) -> Result<Mount> {
        match self {
            Self::Fuse => {
                let _ = (data, output);
                Mount::new(Arc::clone(volume), options).map_err(failed)
            }
            #[cfg(feature = "device-mapper")]
            Self::Ublk(ublk) => ublk.mount((volume, data), options, output, failed),
        }
    }
}
