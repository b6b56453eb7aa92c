//! cryptsetup's metadata locks: `flock` on image files, a lock file in
//! `/run/cryptsetup` for block devices. Held only while metadata is read or
//! written; held longer they hang cryptsetup.

use std::sync::Arc;
use xtent_store::FileStore;

/// What a lock is taken on.
#[derive(Clone)]
pub enum Target {
    /// Nothing: a store without locks, in tests.
    None,
    /// A file or block device.
    File(Arc<FileStore>),
}

/// A held lock; released when dropped.
pub struct Guard {
    _todo: (),
}

impl Target {
    /// Waits for a shared lock, to read metadata.
    pub fn shared(&self) -> Result<Guard, crate::Error> {
        todo!()
    }
    /// Waits for the exclusive lock, to write metadata.
    pub fn exclusive(&self) -> Result<Guard, crate::Error> {
        todo!()
    }
}
