//! A cluster and one of its pools.

use std::io;
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

use std::os::unix::ffi::OsStrExt;

use super::{Api, Opaque, api, check, text};

/// Longest value of a setting that is asked for.
const LONGEST: usize = 4096;

/// Clients that are not shut down yet.
static CLIENTS: AtomicUsize = AtomicUsize::new(0);

/// Whether there are clients of clusters, with librados' threads: those of images that are open, and
/// of images that were lost and that librbd may never close. A process that ends then must do so by
/// `_exit`: at `exit`, C++ destroys what those threads use.
pub fn has_clients() -> bool {
    CLIENTS.load(Ordering::Acquire) > 0
}

/// A client of a cluster: its settings, and once connected its connections. Shut down when
/// dropped.
pub(crate) struct Cluster {
    pub(super) api: &'static Api,
    raw: Opaque,
}

// SAFETY: librados takes calls on one handle from any thread, and has no thread of its own in
// mind for any of them.
unsafe impl Send for Cluster {}
// SAFETY: as above; several at once as well.
unsafe impl Sync for Cluster {}

impl Cluster {
    /// A client that is not connected yet; `client.admin` without a name.
    pub(crate) fn new(id: Option<&str>) -> io::Result<Self> {
        let api = api()?;
        let id = id.map(text).transpose()?;
        let id = id.as_ref().map_or(null(), |id| id.as_ptr());
        let mut raw = null_mut();
        // SAFETY: both pointers are good for the call; the text ends with a NUL, or there is none.
        check(unsafe { (api.rados_create)(&raw mut raw, id) })?;
        CLIENTS.fetch_add(1, Ordering::AcqRel);
        Ok(Self { api, raw })
    }

    /// Reads a file of settings: this one, or the first where Ceph looks for them.
    pub(crate) fn read_conf(&self, file: Option<&Path>) -> io::Result<()> {
        let file = file.map(|file| std::ffi::CString::new(file.as_os_str().as_bytes()));
        let file = file.transpose()?;
        let file = file.as_ref().map_or(null(), |file| file.as_ptr());
        // SAFETY: the handle is ours; the text ends with a NUL, or there is none.
        check(unsafe { (self.api.rados_conf_read_file)(self.raw, file) }).map(drop)
    }

    /// Takes the settings in `CEPH_ARGS`.
    pub(crate) fn read_environment(&self) -> io::Result<()> {
        // SAFETY: the handle is ours; no text asks for the usual variable.
        check(unsafe { (self.api.rados_conf_parse_env)(self.raw, null()) }).map(drop)
    }

    /// Changes a setting.
    pub(crate) fn set(&self, option: &str, value: &str) -> io::Result<()> {
        let (option, value) = (text(option)?, text(value)?);
        // SAFETY: the handle is ours, and both texts end with a NUL.
        check(unsafe { (self.api.rados_conf_set)(self.raw, option.as_ptr(), value.as_ptr()) })
            .map(drop)
    }

    /// A setting's value.
    pub(crate) fn get(&self, option: &str) -> io::Result<String> {
        let option = text(option)?;
        let mut value = vec![0_u8; LONGEST];
        // SAFETY: the handle is ours, the text ends with a NUL, and the buffer is as long as said.
        check(unsafe {
            (self.api.rados_conf_get)(
                self.raw,
                option.as_ptr(),
                value.as_mut_ptr().cast(),
                value.len(),
            )
        })?;
        let value = std::ffi::CStr::from_bytes_until_nul(&value).map_err(io::Error::other)?;
        Ok(value.to_string_lossy().into_owned())
    }

    /// Connects, and waits for that as long as the settings say.
    pub(crate) fn connect(&self) -> io::Result<()> {
        // SAFETY: the handle is ours.
        check(unsafe { (self.api.rados_connect)(self.raw) }).map(drop)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SAFETY: the handle is ours, nobody has it after this, and what was made of it is gone:
        // a pool has its cluster.
        unsafe { (self.api.rados_shutdown)(self.raw) };
        CLIENTS.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A pool of a cluster that is connected, or a namespace in it.
pub(crate) struct Pool {
    pub(super) raw: Opaque,
    // Last, so that it outlives the rest.
    pub(crate) cluster: Cluster,
}

// SAFETY: as for a cluster.
unsafe impl Send for Pool {}
// SAFETY: as for a cluster.
unsafe impl Sync for Pool {}

impl Pool {
    pub(crate) fn new(cluster: Cluster, name: &str, namespace: Option<&str>) -> io::Result<Self> {
        let (name, namespace) = (text(name)?, namespace.map(text).transpose()?);
        let api = cluster.api;
        let mut raw = null_mut();
        // SAFETY: the cluster's handle is good, the text ends with a NUL, and the place for the
        // pool's handle is good for the call.
        check(unsafe { (api.rados_ioctx_create)(cluster.raw, name.as_ptr(), &raw mut raw) })?;
        let pool = Self { raw, cluster };
        if let Some(namespace) = namespace {
            // SAFETY: the handle is ours, and the text ends with a NUL.
            unsafe { (api.rados_ioctx_set_namespace)(pool.raw, namespace.as_ptr()) };
        }
        Ok(pool)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the handle is ours, and nobody has it after this: an image has its pool.
        unsafe { (self.cluster.api.rados_ioctx_destroy)(self.raw) };
    }
}
