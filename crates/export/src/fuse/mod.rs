//! The volume as one file through FUSE, and from there a loop device and a
//! mounted file system.

use std::path::Path;
use std::sync::Arc;
use xtent_volume::Volume;

/// Name of the one file in the FUSE directory.
pub const FILE_NAME: &str = "volume";

/// A FUSE session that serves a volume as `dir/volume`. Unmounted on drop.
pub struct FuseMount {
    _todo: (),
}

impl FuseMount {
    /// Mounts and starts to serve in threads of its own.
    pub fn new(_volume: Arc<Volume>, _dir: &Path) -> Result<Self, crate::Error> {
        todo!()
    }
    /// Waits until it is unmounted (by `umount`, `fusermount3 -u` or a signal
    /// handler's call), then flushes the volume.
    pub fn wait(self) -> Result<(), crate::Error> {
        todo!()
    }
}
