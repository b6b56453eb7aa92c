//! An open image, and who has its lock.

use std::ffi::{CStr, c_char, c_int};
use std::io;
use std::ptr::{null, null_mut};

use rustix::io::Errno;

use super::cluster::Pool;
use crate::fence::is;

use super::{Api, Cluster, ConfigOption, Opaque, Watcher, check, text};

/// `RBD_LOCK_MODE_EXCLUSIVE`.
const EXCLUSIVE: c_int = 0;
/// Clients of one image that are looked at.
const MANY: usize = 256;

/// An option of librbd's, as it is for an image.
pub(crate) struct Setting {
    pub(crate) name: String,
    pub(crate) value: String,
    pub(crate) source: Source,
}

/// Where an option is from: the image's word goes before the pool's, and that before the client's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Client,
    Pool,
    Image,
}

/// An image that is open; closed when dropped, which must not happen on one of the library's
/// threads: closing waits for those.
pub(crate) struct Handle {
    pub(super) raw: Opaque,
    // Last, so that it outlives the rest.
    pool: Pool,
}

// SAFETY: librbd takes calls on one image from any thread, and has no thread of its own in mind
// for any of them.
unsafe impl Send for Handle {}
// SAFETY: as above; several at once as well.
unsafe impl Sync for Handle {}

impl Handle {
    /// Opens an image of a pool, or one of its snapshots.
    pub(crate) fn open(
        pool: Pool,
        image: &str,
        snapshot: Option<&str>,
        read_only: bool,
    ) -> io::Result<Self> {
        let (image, snapshot) = (text(image)?, snapshot.map(text).transpose()?);
        let snapshot = snapshot.as_ref().map_or(null(), |name| name.as_ptr());
        let api = pool.cluster.api;
        let open = match read_only {
            true => api.rbd_open_read_only,
            false => api.rbd_open,
        };
        let mut raw = null_mut();
        // SAFETY: the pool's handle is good, the texts end with a NUL or there is none, and the
        // place for the image's handle is good for the call.
        check(unsafe { open(pool.raw, image.as_ptr(), &raw mut raw, snapshot) })?;
        Ok(Self { raw, pool })
    }

    pub(super) fn api(&self) -> &'static Api {
        self.pool.cluster.api
    }

    /// The cluster that it is in.
    pub(crate) fn cluster(&self) -> &Cluster {
        &self.pool.cluster
    }

    /// Bytes of it now.
    pub(crate) fn size(&self) -> io::Result<u64> {
        self.number(self.api().rbd_get_size)
    }

    /// Bits of `RBD_FEATURE_*`.
    pub(crate) fn features(&self) -> io::Result<u64> {
        self.number(self.api().rbd_get_features)
    }

    /// Bytes that lie together in one object.
    pub(crate) fn stripe_unit(&self) -> io::Result<u64> {
        self.number(self.api().rbd_get_stripe_unit)
    }

    fn number(&self, get: unsafe extern "C" fn(Opaque, *mut u64) -> c_int) -> io::Result<u64> {
        let mut value = 0;
        // SAFETY: the handle is ours, and the place for the number is good for the call; all
        // three functions are of this kind.
        check(unsafe { get(self.raw, &raw mut value) })?;
        Ok(value)
    }

    /// The options of librbd's that are in force for it.
    pub(crate) fn settings(&self) -> io::Result<Vec<Setting>> {
        let none = ConfigOption {
            name: null_mut(),
            value: null_mut(),
            source: 0,
        };
        let mut options = vec![none; MANY];
        let mut count = c_int::try_from(MANY).unwrap_or(0);
        let list = |options: &mut Vec<ConfigOption>, count: &mut c_int| {
            // SAFETY: the handle is ours, and the array is as long as said.
            check(unsafe {
                (self.api().rbd_config_image_list)(self.raw, options.as_mut_ptr(), count)
            })
        };
        match list(&mut options, &mut count) {
            Err(error) if is(&error, Errno::RANGE) => {
                options.resize(usize::try_from(count).unwrap_or(MANY), none);
                list(&mut options, &mut count)?
            }
            other => other?,
        };
        let filled = usize::try_from(count).unwrap_or(0).min(options.len());
        let filled = &mut options[..filled];
        let settings = filled.iter().map(|option| Setting {
            name: own(option.name),
            value: own(option.value),
            source: match option.source {
                0 => Source::Client,
                1 => Source::Pool,
                _ => Source::Image,
            },
        });
        let settings = settings.collect();
        // SAFETY: the library filled so many, and nobody has them after this.
        unsafe { (self.api().rbd_config_image_list_cleanup)(filled.as_mut_ptr(), count) };
        Ok(settings)
    }

    /// Takes the exclusive lock. From others who have it without insisting it is taken away,
    /// and from those who are gone.
    pub(crate) fn acquire_lock(&self) -> io::Result<()> {
        // SAFETY: the handle is ours.
        check(unsafe { (self.api().rbd_lock_acquire)(self.raw, EXCLUSIVE) }).map(drop)
    }

    /// Whether the lock is this handle's, by what the cluster says now.
    pub(crate) fn has_lock(&self) -> io::Result<bool> {
        let mut is_owner = 0;
        // SAFETY: the handle is ours, and the place for the answer is good for the call.
        check(unsafe { (self.api().rbd_is_exclusive_lock_owner)(self.raw, &raw mut is_owner) })?;
        Ok(is_owner != 0)
    }

    /// The addresses of those who have the lock.
    pub(crate) fn lock_owners(&self) -> io::Result<Vec<String>> {
        let mut owners = [null_mut::<c_char>(); MANY];
        let (mut mode, mut count) = (EXCLUSIVE, owners.len());
        // SAFETY: the handle is ours, and the array is as long as said.
        let returned = unsafe {
            (self.api().rbd_lock_get_owners)(
                self.raw,
                &raw mut mode,
                owners.as_mut_ptr(),
                &raw mut count,
            )
        };
        match check(returned) {
            Err(e) if is_none(&e) => return Ok(Vec::new()),
            other => other?,
        };
        let filled = &mut owners[..count.min(MANY)];
        let names = filled.iter().map(|&owner| own(owner)).collect();
        // SAFETY: the library filled so many, and nobody has them after this.
        unsafe { (self.api().rbd_lock_get_owners_cleanup)(filled.as_mut_ptr(), filled.len()) };
        Ok(names)
    }

    /// The addresses of the clients that have it open for writing.
    pub(crate) fn watchers(&self) -> io::Result<Vec<String>> {
        let none = Watcher {
            address: null_mut(),
            id: 0,
            cookie: 0,
        };
        let mut watchers = [none; MANY];
        let mut count = watchers.len();
        // SAFETY: the handle is ours, and the array is as long as said.
        check(unsafe {
            (self.api().rbd_watchers_list)(self.raw, watchers.as_mut_ptr(), &raw mut count)
        })?;
        let filled = &mut watchers[..count.min(MANY)];
        let addresses = filled.iter().map(|watcher| own(watcher.address)).collect();
        // SAFETY: the library filled so many, and nobody has them after this.
        unsafe { (self.api().rbd_watchers_list_cleanup)(filled.as_mut_ptr(), filled.len()) };
        Ok(addresses)
    }

    /// Takes the lock away from its owner, whose client the cluster listens to no more.
    pub(crate) fn break_lock(&self, owner: &str) -> io::Result<()> {
        let owner = text(owner)?;
        // SAFETY: the handle is ours, and the text ends with a NUL.
        check(unsafe { (self.api().rbd_lock_break)(self.raw, EXCLUSIVE, owner.as_ptr()) }).map(drop)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle is ours, nobody has it after this, and nothing is under way: every
        // operation has its image.
        let returned = unsafe { (self.api().rbd_close)(self.raw) };
        if let Err(error) = check(returned) {
            tracing::warn!(%error, "an image could not be closed in good order");
        }
    }
}

/// A copy of the library's text.
fn own(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the library's texts end with a NUL, and this one is freed later.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}

/// Whether a question about locks was answered with "there is none".
fn is_none(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}
