//! A cluster and one of its pools.

use std::ffi::CStr;
use std::io;
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

use std::os::unix::ffi::OsStrExt;

use xtent_secret::SecretBytes;

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
    user: String,
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
        let user = id.unwrap_or("admin").to_owned();
        let id = text(&user)?;
        let mut raw = null_mut();
        // SAFETY: both pointers are good for the call, and the text ends with a NUL.
        check(unsafe { (api.rados_create)(&raw mut raw, id.as_ptr()) })?;
        CLIENTS.fetch_add(1, Ordering::AcqRel);
        Ok(Self { api, raw, user })
    }

    /// `USER` of `client.USER`.
    pub(crate) fn user(&self) -> &str {
        &self.user
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

    /// Changes a setting whose value is a secret; librados has a copy of it then.
    pub(crate) fn set_secret(&self, option: &str, value: &SecretBytes) -> io::Result<()> {
        let option = text(option)?;
        // A NUL behind it.
        let mut ended = SecretBytes::zeroed(value.len() + 1).map_err(io::Error::other)?;
        ended[..value.len()].copy_from_slice(value);
        let value = CStr::from_bytes_with_nul(&ended)
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        // SAFETY: the handle is ours, and both texts end with a NUL.
        check(unsafe { (self.api.rados_conf_set)(self.raw, option.as_ptr(), value.as_ptr()) })
            .map(drop)
    }

    /// A setting's value.
    pub(crate) fn get(&self, option: &str) -> io::Result<String> {
        let mut value = vec![0_u8; LONGEST];
        let len = self.get_into(option, &mut value)?;
        Ok(String::from_utf8_lossy(&value[..len]).into_owned())
    }

    /// A setting's value, written to `value`; how long it is.
    pub(crate) fn get_into(&self, option: &str, value: &mut [u8]) -> io::Result<usize> {
        let option = text(option)?;
        // SAFETY: the handle is ours, the text ends with a NUL, and the buffer is as long as said.
        check(unsafe {
            (self.api.rados_conf_get)(
                self.raw,
                option.as_ptr(),
                value.as_mut_ptr().cast(),
                value.len(),
            )
        })?;
        let value = CStr::from_bytes_until_nul(value).map_err(io::Error::other)?;
        Ok(value.count_bytes())
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
