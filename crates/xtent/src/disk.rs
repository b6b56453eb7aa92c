//! What DEVICE names, opened.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use xtent_luks::Device;
use xtent_store::{Access, FileStore, Store};

use crate::failure::{Failure, Result};

/// What holds ciphertext or metadata, opened; clones are the same one.
#[derive(Clone)]
pub(crate) enum Disk {
    /// A regular file or block device of this machine.
    File(Arc<FileStore>),
}

impl Disk {
    /// Opens what `name` leads to; refuses `-`.
    pub(crate) fn open(name: &Path, access: Access) -> Result<Self> {
        refuse_dash(name)?;
        Ok(FileStore::open(name, access)?.into())
    }

    /// Its name on the command line.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::File(file) => file.path(),
        }
    }

    /// The file or block device, if it is one of this machine.
    pub(crate) fn file(&self) -> Option<&Arc<FileStore>> {
        match self {
            Self::File(file) => Some(file),
        }
    }

    /// Whether it is a block device of this machine.
    pub(crate) fn is_block_device(&self) -> bool {
        self.file().is_some_and(|file| file.is_block_device())
    }

    /// First byte of the partition in the image; 0 without one.
    pub(crate) fn window_start(&self) -> u64 {
        self.file().map_or(0, |file| file.window_start())
    }

    /// Makes it this process's alone (shared among readers if it was opened for reading) for as
    /// long as a clone of it exists.
    pub(crate) fn lock_for_serving(&self) -> Result<()> {
        match self {
            Self::File(file) => Ok(file.lock_for_serving()?),
        }
    }

    /// The metadata on it.
    pub(crate) fn metadata(&self) -> Device {
        match self {
            Self::File(file) => Device::new(Arc::clone(file)),
        }
    }

    /// The store, with operations that complete later where the kernel has a way.
    pub(crate) fn complete_later(&self) -> Arc<dyn Store> {
        match self {
            Self::File(file) => Arc::clone(file).complete_later(),
        }
    }

    /// The store itself.
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::File(file) => Arc::clone(file) as Arc<dyn Store>,
        }
    }
}

impl From<FileStore> for Disk {
    fn from(file: FileStore) -> Self {
        Self::File(Arc::new(file))
    }
}

impl Deref for Disk {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::File(file) => &**file,
        }
    }
}

/// Refuses `-` as a volume: it is read here and there, which no stream allows.
pub(crate) fn refuse_dash(path: &Path) -> Result<()> {
    if path == Path::new("-") {
        return Err(Failure::parameters(
            "a volume has to be a file or block device; it cannot be standard input or output",
        )
        .advise("A file of that name is `./-`."));
    }
    Ok(())
}
