//! Where a store is, for errors and messages.

use std::fmt;
use std::path::{Path, PathBuf};

/// Where a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A file or block device of this machine.
    Path(PathBuf),
    /// An export of a server, by its URI.
    Uri(Box<str>),
    /// An image of a Ceph cluster, by its name.
    Image(Box<str>),
}

impl Place {
    /// The path, unless it is not of this machine.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Path(path) => Some(path),
            Self::Uri(_) | Self::Image(_) => None,
        }
    }

    /// What it is called: the path, or the other's name in the form of one.
    pub fn name(&self) -> &Path {
        match self {
            Self::Path(path) => path,
            Self::Uri(name) | Self::Image(name) => Path::new(&**name),
        }
    }
}

impl From<&Path> for Place {
    fn from(path: &Path) -> Self {
        Self::Path(path.to_owned())
    }
}

impl From<&PathBuf> for Place {
    fn from(path: &PathBuf) -> Self {
        Self::Path(path.clone())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(f),
            Self::Uri(name) | Self::Image(name) => name.fmt(f),
        }
    }
}
