//! A store on its way to another process: its open files, and what that cannot find out itself.
//!
//! A server in a sandbox can neither open files nor look into `/sys`. Another process opens
//! and locks for it; the locks are those of the open files, and go with them.

use std::fs::File;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use rustix::fs::{OFlags, fcntl_getfl};

use super::geometry::{check_type, plausible};
use super::lock::{Part, lock_part};
use super::{Access, FileStore};
use crate::{Act, Error, ErrorKind};

/// What a [`FileStore`] is made of.
#[derive(Debug)]
pub struct FileParts {
    /// The file or block device.
    pub file: File,
    /// The exclusive claim on a block device.
    pub claim: Option<File>,
    /// The file under a loop device, locked.
    pub backing: Option<File>,
    /// Its path, for people.
    pub path: PathBuf,
    /// What it is opened for.
    pub access: Access,
    /// First byte of the window, and its length if it does not go to the end.
    pub window: Option<(u64, u64)>,
    /// Whether it goes past the page cache.
    pub is_direct: bool,
    /// [`Limits::atomic`](crate::Limits::atomic).
    pub atomic: u32,
    /// [`Limits::discard`](crate::Limits::discard).
    pub discard: u32,
}

impl FileStore {
    /// What it is made of, for another process: from now on its locks end with the last
    /// descriptor of its files, not with this value.
    pub fn hand_over(&self) -> Result<FileParts, Error> {
        let copy = |file: &File| {
            file.try_clone()
                .map_err(|e| Error::from_io(e, Act::Open, &self.path, None))
        };
        self.handed_over.store(true, Ordering::Relaxed);
        Ok(FileParts {
            file: copy(&self.file)?,
            claim: self.claim.get().map(copy).transpose()?,
            backing: self.backing.get().map(copy).transpose()?,
            path: self.path.clone(),
            access: self.access,
            window: self.span.map(|span| (self.start, span)),
            is_direct: self.is_direct(),
            atomic: self.limits.atomic,
            discard: self.limits.discard,
        })
    }

    /// The store of these parts, with the server lock. What the parts say is not trusted:
    /// the files are looked at, and locked if they are not yet.
    pub fn from_parts(parts: FileParts) -> Result<Self, Error> {
        let FileParts {
            file,
            claim,
            backing,
            path,
            access,
            window,
            is_direct,
            atomic,
            discard,
        } = parts;
        let fail = |e: std::io::Error| Error::from_io(e, Act::Open, &path, None);
        let metadata = file.metadata().map_err(fail)?;
        check_type(&metadata, &path)?;
        let refuse = |what: &'static str| Error {
            source: Some(std::io::Error::other(what)),
            ..Error::new(ErrorKind::Unsupported, Act::Open, &path, None)
        };
        let flags = fcntl_getfl(&file).map_err(|e| fail(e.into()))?;
        let mode = flags & OFlags::RWMODE;
        if flags.contains(OFlags::PATH) || mode == OFlags::WRONLY {
            return Err(refuse("the descriptor is not open for reading"));
        }
        if access == Access::ReadWrite && mode != OFlags::RDWR {
            return Err(refuse("the descriptor is not open for writing"));
        }
        // Every write would go to the end, wherever it belongs.
        if flags.contains(OFlags::APPEND) {
            return Err(refuse("the descriptor is open for appending"));
        }
        if flags.contains(OFlags::DIRECT) != is_direct {
            return Err(refuse("the descriptor is for another kind of I/O"));
        }
        if access == Access::ReadWrite && metadata.file_type().is_block_device() {
            let number = |file: &File| {
                use std::os::unix::fs::MetadataExt;
                file.metadata().map(|m| m.rdev())
            };
            let claimed = claim.as_ref().map(number).transpose().map_err(fail)?;
            if claimed != Some(number(&file).map_err(fail)?) {
                return Err(refuse("the block device is not claimed"));
            }
        }
        let mut store = Self::from_file(file, &path, access)?;
        if let Some(value) = plausible(atomic) {
            store.limits.atomic = value;
        }
        if let Some(value) = plausible(discard) {
            store.limits.discard = value.max(store.limits.discard);
        }
        if let Some((start, len)) = window {
            store = store.window(start, len)?;
        }
        if is_direct {
            store = store.direct()?;
        }
        let part = Part {
            start: store.start,
            len: store.span,
        };
        lock_part(&store.file, access, &path, part)?;
        if let Some(claim) = claim {
            let _ = store.claim.set(claim);
        }
        if let Some(backing) = backing {
            let _ = store.backing.set(backing);
        }
        Ok(store)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::path::Path;

    use super::*;
    use crate::Store;

    fn image(dir: &Path) -> PathBuf {
        let path = dir.join("image");
        std::fs::write(&path, vec![7; 1 << 20]).unwrap();
        path
    }

    fn parts(file: File, access: Access) -> FileParts {
        FileParts {
            file,
            claim: None,
            backing: None,
            path: "image".into(),
            access,
            window: None,
            is_direct: false,
            atomic: 0,
            discard: 3,
        }
    }

    #[test]
    fn locks_go_with_the_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = image(dir.path());
        let store = FileStore::open(&path, Access::ReadWrite).unwrap();
        store.lock_for_serving().unwrap();
        let parts = store.hand_over().unwrap();
        drop(store);
        let other = FileStore::open(&path, Access::ReadOnly).unwrap();
        assert_eq!(other.lock_for_serving().unwrap_err().kind, ErrorKind::Busy);
        let store = FileStore::from_parts(parts).unwrap();
        store.write_at(&[1; 512], 0).unwrap();
        assert_eq!(other.lock_for_serving().unwrap_err().kind, ErrorKind::Busy);
        drop(store);
        other.lock_for_serving().unwrap();
    }

    #[test]
    fn a_window_stays_one() {
        let dir = tempfile::tempdir().unwrap();
        let store = FileStore::open(&image(dir.path()), Access::ReadWrite).unwrap();
        let store = store.window(4096, 8192).unwrap();
        let store = FileStore::from_parts(store.hand_over().unwrap()).unwrap();
        assert_eq!((store.size(), store.window_start()), (8192, 4096));
        let mut beyond = store.hand_over().unwrap();
        beyond.window = Some((4096, 1 << 30));
        assert!(FileStore::from_parts(beyond).is_err());
    }

    #[test]
    fn what_is_not_locked_yet_is_locked() {
        let dir = tempfile::tempdir().unwrap();
        let path = image(dir.path());
        let file = File::open(&path).unwrap();
        let _store = FileStore::from_parts(parts(file, Access::ReadOnly)).unwrap();
        let writer = FileStore::open(&path, Access::ReadWrite).unwrap();
        assert_eq!(writer.lock_for_serving().unwrap_err().kind, ErrorKind::Busy);
    }

    #[test]
    fn other_descriptors_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = image(dir.path());
        let open = |options: &mut OpenOptions| options.open(&path).unwrap();
        let read = open(OpenOptions::new().read(true));
        let write = open(OpenOptions::new().write(true));
        let append = open(OpenOptions::new().read(true).append(true));
        let folder = File::open(dir.path()).unwrap();
        let null = File::open("/dev/null").unwrap();
        let (reader, _writer) = std::io::pipe().unwrap();
        let socket = std::os::unix::net::UnixDatagram::unbound().unwrap();
        let place = rustix::fs::open(&path, OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
        for (file, access) in [
            (read, Access::ReadWrite),
            (write, Access::ReadOnly),
            (append, Access::ReadWrite),
            (folder, Access::ReadOnly),
            (null, Access::ReadOnly),
            (
                File::from(std::os::fd::OwnedFd::from(reader)),
                Access::ReadOnly,
            ),
            (
                File::from(std::os::fd::OwnedFd::from(socket)),
                Access::ReadOnly,
            ),
            (File::from(place), Access::ReadOnly),
        ] {
            let error = FileStore::from_parts(parts(file, access)).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Unsupported, "{error:?}");
        }
    }
}
