//! A volume that grows with its device while it is served.

use std::sync::Arc;

use xtent_luks::Header;
use xtent_store::{FileStore, Store};
use xtent_volume::Volume;

use crate::output::Output;
use crate::size::show_size;

/// What it takes to find out how large a volume could be by now.
pub(crate) struct Growth {
    pub(crate) data: Arc<FileStore>,
    pub(crate) header: Header,
    pub(crate) volume: Arc<Volume>,
    pub(crate) output: Output,
}

impl Growth {
    /// Looks at the size of the device and lets the volume grow to it, where the
    /// header does not fix its size; whether it has grown. It never becomes
    /// smaller: somebody may be using what would be cut off.
    pub(crate) fn look(&self) -> bool {
        let before = self.volume.size();
        let now = match self.header.segment(self.data.size()) {
            Ok(segment) => segment.length,
            Err(error) => {
                tracing::warn!(%error, "the device has become too short for the volume; its size stays");
                return false;
            }
        };
        if now < before {
            tracing::warn!(
                size = before,
                device_has = now,
                "the device has become smaller; the volume's size stays, and what is missing fails"
            );
            return false;
        }
        match self.volume.grow(now) {
            Ok(true) => {
                tracing::info!(before, now, "the volume has grown");
                self.output.note(format!(
                    "The volume has grown from {} to {}. Clients that connect from now on see that; \
                     NBD has no way to tell the others.",
                    show_size(before),
                    show_size(now)
                ));
                true
            }
            Ok(false) => {
                tracing::info!(size = before, "the volume's size is as it was");
                false
            }
            Err(error) => {
                tracing::warn!(%error, "the volume cannot grow");
                false
            }
        }
    }
}
