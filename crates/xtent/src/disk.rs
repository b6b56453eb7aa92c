//! What DEVICE names, opened: a file or block device, an export of an NBD server, or an image in a
//! Ceph cluster.

#[cfg_attr(not(feature = "rbd"), path = "disk/no_rbd.rs")]
pub(crate) mod rbd;

use std::fs::File;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use xtent_luks::Device;
use xtent_store::{Access, Act, Error, ErrorKind, FileStore, Place, Store};
use xtent_upstream::{Options, Upstream, Uri};

use crate::failure::{Failure, Result};
use crate::{runtime, signals, waiting};

/// What holds ciphertext or metadata, opened; clones are the same one.
#[derive(Clone, Debug)]
pub(crate) enum Disk {
    /// A regular file or block device of this machine.
    File(Arc<FileStore>),
    /// An export of an NBD server.
    Export(Arc<Export>),
    /// An image in a Ceph cluster.
    Image(Arc<rbd::Image>),
}

/// An export of an NBD server.
#[derive(Debug)]
pub(crate) struct Export {
    upstream: Arc<Upstream>,
    /// The URI, in the one form that all that mean the same have.
    name: PathBuf,
    /// Held by the one whose alone it is.
    lock: Option<File>,
}

impl Disk {
    /// Opens what `name` leads to; refuses `-`. A lost connection to a server may stay lost for
    /// `reconnect`.
    pub(crate) fn open(name: &Path, access: Access, reconnect: Duration) -> Result<Self> {
        refuse_dash(name)?;
        if rbd::is_image(name) {
            return Self::open_image(name, access);
        }
        match is_uri(name) {
            true => Self::connect(name, access, reconnect),
            false => Ok(FileStore::open(name, access)?.into()),
        }
    }

    /// Connects to the server of a URI, for a volume that somebody else has locked.
    pub(crate) fn connect(name: &Path, access: Access, reconnect: Duration) -> Result<Self> {
        match uri(name)? {
            Some(uri) => Ok(Self::Export(Arc::new(Export::open(
                &uri, access, reconnect,
            )?))),
            None => Err(Failure::parameters(format!("{} is no URI", name.display()))),
        }
    }

    /// As [`Disk::open`], and makes it this process's alone (shared among readers if it is opened
    /// for reading) for as long as a clone of it exists. Of an export, among the processes of
    /// this user on this machine: what keeps others away is the server's affair. An image that is
    /// opened for writing is always that, in all of its cluster.
    pub(crate) fn open_alone(name: &Path, access: Access, reconnect: Duration) -> Result<Self> {
        refuse_dash(name)?;
        if rbd::is_image(name) {
            return Self::open_image(name, access);
        }
        match uri(name)? {
            Some(uri) => {
                // First: a server that takes one client lets the next wait.
                let lock = lock(&uri, access)?;
                let mut export = Export::open(&uri, access, reconnect)?;
                export.lock = Some(lock);
                Ok(Self::Export(Arc::new(export)))
            }
            None => {
                let file = FileStore::open(name, access)?;
                file.lock_for_serving()?;
                Ok(file.into())
            }
        }
    }

    fn open_image(name: &Path, access: Access) -> Result<Self> {
        Ok(Self::Image(Arc::new(rbd::Image::open(name, access)?)))
    }

    /// Whether the two are clones.
    pub(crate) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::File(one), Self::File(other)) => Arc::ptr_eq(one, other),
            (Self::Export(one), Self::Export(other)) => Arc::ptr_eq(one, other),
            (Self::Image(one), Self::Image(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// The file that is held so that an export is this process's alone.
    pub(crate) fn lock_file(&self) -> Option<&File> {
        match self {
            Self::File(_) | Self::Image(_) => None,
            Self::Export(export) => export.lock.as_ref(),
        }
    }

    /// Its name: a path, or a URI.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::File(file) => file.path(),
            Self::Export(export) => &export.name,
            Self::Image(image) => image.name(),
        }
    }

    /// The file or block device, if it is one of this machine.
    pub(crate) fn file(&self) -> Option<&Arc<FileStore>> {
        match self {
            Self::File(file) => Some(file),
            Self::Export(_) | Self::Image(_) => None,
        }
    }

    /// The client of the server, if it is on one.
    pub(crate) fn upstream(&self) -> Option<&Arc<Upstream>> {
        match self {
            Self::File(_) | Self::Image(_) => None,
            Self::Export(export) => Some(&export.upstream),
        }
    }

    /// Whether it is in a Ceph cluster.
    pub(crate) fn is_image(&self) -> bool {
        matches!(self, Self::Image(_))
    }

    /// Has `hear` called, on a thread that others wait for, when somebody else has taken it over.
    /// Only a cluster tells.
    pub(crate) fn on_loss(&self, hear: impl FnOnce() + Send + 'static) {
        if let Self::Image(image) = self {
            image.on_loss(hear);
        }
    }

    /// Has `hear` called, on a thread that others wait for, when it may have another size. Only a
    /// cluster tells, and only who writes.
    pub(crate) fn on_change(&self, hear: impl Fn() + Send + Sync + 'static) {
        if let Self::Image(image) = self {
            image.on_change(hear);
        }
    }

    /// Whether it is a block device of this machine.
    pub(crate) fn is_block_device(&self) -> bool {
        self.file().is_some_and(|file| file.is_block_device())
    }

    /// What tells its place from every other one on this machine, for as long as the system runs: an inode, a
    /// device's number, or a name.
    #[cfg(feature = "device-mapper")]
    pub(crate) fn told_apart(&self) -> Result<String> {
        use std::os::unix::fs::MetadataExt;

        let start = self.window_start();
        Ok(match self {
            Self::File(file) => {
                let metadata = file.file().metadata();
                let metadata = metadata.map_err(|e| {
                    Failure::system(format!("cannot look at {}", file.path().display()), e)
                })?;
                match file.is_block_device() {
                    true => format!("device {} from {start}", metadata.rdev()),
                    false => format!("file {} {} from {start}", metadata.dev(), metadata.ino()),
                }
            }
            Self::Export(export) => name_for_locks(export.upstream.uri()),
            Self::Image(image) => image.bare_name().to_string_lossy().into_owned(),
        })
    }

    /// First byte of the partition in the image; 0 without one.
    pub(crate) fn window_start(&self) -> u64 {
        self.file().map_or(0, |file| file.window_start())
    }

    /// The metadata on it.
    pub(crate) fn metadata(&self) -> Result<Device> {
        match self {
            Self::File(file) => Ok(Device::new(Arc::clone(file))),
            Self::Export(export) => {
                let name = format!(
                    "{}.metadata",
                    lock_name(&name_for_locks(export.upstream.uri()))
                );
                let of = &export.name;
                Ok(Device::with_lock_file(self.store(), &locks()?, &name, of))
            }
            // Writers have the image's lock. This keeps them and the readers of this machine apart.
            Self::Image(image) => {
                let name = format!(
                    "{}.metadata",
                    lock_name(&image.bare_name().to_string_lossy())
                );
                let of = image.name();
                Ok(Device::with_lock_file(self.store(), &locks()?, &name, of))
            }
        }
    }

    /// The store for a volume: past the page cache, with operations that complete later if the
    /// kernel has a way. Through the cache threads of ours wait: most of what the kernel takes
    /// there it hands to threads of its own, which are further from where the bytes are needed.
    pub(crate) fn for_volume(&self) -> Arc<dyn Store> {
        match self {
            Self::File(file) if file.is_direct() => Arc::clone(file).complete_later(),
            _ => self.store(),
        }
    }

    /// The store itself.
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::File(file) => Arc::clone(file) as Arc<dyn Store>,
            Self::Export(export) => Arc::clone(&export.upstream) as Arc<dyn Store>,
            Self::Image(image) => image.store(),
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
            Self::Export(export) => &*export.upstream,
            Self::Image(image) => image.as_store(),
        }
    }
}

impl Export {
    fn open(uri: &Uri, access: Access, reconnect: Duration) -> Result<Self> {
        let default = Options::default();
        let options = Options {
            reconnect,
            // Who may be away so long may be silent so long.
            silence: default.silence.max(reconnect),
            ..default
        };
        // Its threads are not the ones that act on signals.
        let upstream = signals::held_back(|| Upstream::open(uri, access, options))??;
        let upstream = Arc::new(upstream);
        waiting::may_wait_for(&upstream);
        Ok(Self {
            upstream,
            name: uri.to_string().into(),
            lock: None,
        })
    }
}

/// Locks an export for its one user, or the readers that share it; never waits.
fn lock(uri: &Uri, access: Access) -> Result<File> {
    let name = uri.to_string();
    let path = locks()?.join(format!("{}.lock", lock_name(&name_for_locks(uri))));
    let failed = |e| Failure::system(format!("cannot lock {}", path.display()), e);
    let file = runtime::file_to_lock(&path).map_err(failed)?;
    let operation = match access {
        Access::ReadOnly => FlockOperation::NonBlockingLockShared,
        Access::ReadWrite => FlockOperation::NonBlockingLockExclusive,
    };
    match flock(&file, operation) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => {
            let place = Place::Uri(name.into());
            Err(Error::new(ErrorKind::Busy, Act::Lock, place, None).into())
        }
        Err(e) => Err(failed(e.into())),
    }
}

/// What an export is known by to those that lock it: the same with TLS and without.
fn name_for_locks(uri: &Uri) -> String {
    uri.without_tls().to_string()
}

/// A name for the lock files of an export or image that no other has.
fn lock_name(name: &str) -> String {
    format!("{:016x}", number_of(name))
}

/// A number for a text, by chance no other's, and the same in every version: FNV-1a.
pub(crate) fn number_of(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The folder of lock files for exports.
fn locks() -> Result<PathBuf> {
    let folder = runtime::folder()?.join("exports");
    runtime::make_private(&folder)?;
    Ok(folder)
}

/// Whether a name is meant as that of something which is no file, be it a right one or not: a URI,
/// or an image's name.
pub(crate) fn is_uri(name: &Path) -> bool {
    rbd::is_image(name) || name.to_str().is_some_and(Uri::looks_like)
}

/// The URI of an NBD server that a name is, if it is one.
pub(crate) fn uri(name: &Path) -> Result<Option<Uri>> {
    let Some(text) = name.to_str().filter(|text| Uri::looks_like(text)) else {
        return Ok(None);
    };
    let uri: Uri = text.parse().map_err(|e| {
        Failure::parameters(format!("{text}: {e}")).advise(
            "Known are nbd://HOST[:PORT]/EXPORT and nbd+unix:///EXPORT?socket=PATH, with TLS \
             nbds:// and nbds+unix://. A file of such a name is `./nbd:...`.",
        )
    })?;
    // A daemon is in another folder when it connects again.
    uri.absolute()
        .map(Some)
        .map_err(|e| Failure::system(format!("cannot find {text}"), e))
}

/// Where a name leads to, whatever folder this process is in later. Not resolved further: a dead
/// mount point, which a killed daemon has left behind, cannot be looked into.
pub(crate) fn place(name: &Path) -> Result<Place> {
    if let Some(place) = rbd::place(name)? {
        return Ok(place);
    }
    if let Some(uri) = uri(name)? {
        return Ok(Place::Uri(uri.to_string().into()));
    }
    std::path::absolute(name)
        .map(Place::Path)
        .map_err(|e| Failure::system(format!("cannot find {}", name.display()), e))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_uris_by_their_scheme() {
        assert!(matches!(uri(Path::new("disk.img")), Ok(None)));
        assert!(matches!(uri(Path::new("./nbd://host/x")), Ok(None)));
        assert!(matches!(uri(Path::new("nbd://host/x")), Ok(Some(_))));
        let lock = |text| lock_name(&name_for_locks(&uri(Path::new(text)).unwrap().unwrap()));
        assert_eq!(lock("nbd://host/x"), lock("nbds://host/x?tls-hostname=h"));
        assert_ne!(lock("nbd://host/x"), lock("nbd://host/y"));
        for text in ["nbds+vsock://2/x", "nbd+unix:///x", "nbd://user@host/"] {
            let failure = uri(Path::new(text)).unwrap_err();
            assert!(failure.message.starts_with(text), "{failure}");
        }
    }
}
