//! An open image, from its name.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use xtent_store::{Access, Act, Error, ErrorKind, Place};

use crate::fence::Fence;
use crate::ffi::{Changes, Cluster, Handle, Way};
use crate::lock::{self, Watch};
use crate::settings::{self, OBJECTS};
use crate::{Client, Name, ffi};

/// How long opening an image waits for what the cluster does not answer, unless
/// `client_mount_timeout`, `rados_mon_op_timeout` and `rados_osd_op_timeout` say otherwise: for
/// each question so long.
pub const LONGEST_OPEN: Duration = Duration::from_secs(30);

/// An image of a Ceph cluster, or a snapshot of one. Dropped, it waits for what is under way and
/// gives the lock back; one that is lost is left to a thread of its own.
pub struct Image {
    /// Present until dropped.
    way: Option<Way>,
    /// Looks at the lock; none for an image that is only read.
    watch: Option<Watch>,
    /// Who is told of changes.
    changes: Mutex<Vec<Changes>>,
    name: Name,
    pub(crate) shared: Arc<Shared>,
    pub(crate) read_only: bool,
    /// Bytes that the cluster writes in one go.
    pub(crate) atomic: u32,
}

/// What operations under way need to know of their image.
pub(crate) struct Shared {
    pub(crate) place: Place,
    pub(crate) fence: Fence,
    /// Bytes, when it was last looked.
    pub(crate) size: AtomicU64,
}

/// Why an image cannot be opened.
#[derive(Debug)]
pub(crate) struct Trouble {
    kind: ErrorKind,
    act: Act,
    source: io::Error,
}

impl Trouble {
    /// An error of the library's, with what it means.
    pub(crate) fn new(what: impl Into<String>, error: io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::Unsupported => ErrorKind::Unsupported,
            _ => ErrorKind::of(&error),
        };
        Self {
            kind,
            act: Act::Open,
            source: io::Error::new(error.kind(), format!("{}: {error}", what.into())),
        }
    }

    /// What was found here.
    pub(crate) fn said(kind: ErrorKind, what: impl Into<String>) -> Self {
        Self {
            kind,
            act: Act::Open,
            source: io::Error::other(what.into()),
        }
    }

    /// The same, of the lock.
    pub(crate) fn of_lock(self) -> Self {
        Self {
            act: Act::Lock,
            ..self
        }
    }

    /// The same as an error of the image.
    fn at(self, place: &Place) -> Error {
        Error {
            source: Some(self.source),
            ..Error::new(self.kind, self.act, place.clone(), None)
        }
    }
}

impl Image {
    /// Connects to the cluster and opens the image; for writing, it takes its lock. The library's
    /// threads, which stay until it is closed, begin with what this thread may do.
    ///
    /// # Errors
    /// Have the image as their place, and a source that says what is missing:
    /// [`ErrorKind::NotFound`], [`ErrorKind::Permission`], [`ErrorKind::Busy`] with the address
    /// of the client that has the lock, [`ErrorKind::ReadOnly`] if a snapshot is to be written to,
    /// [`ErrorKind::Unsupported`] for an image without a lock and where there is no library.
    pub fn open(name: &Name, access: Access) -> Result<Self, Error> {
        Self::prepare(name, access, || settings::client(name), lock::take)
    }

    /// As [`Image::open`], by what another process has found to be a client of the cluster: no file is
    /// opened, and no name looked up. The library has to be loaded ([`load`](crate::load)).
    ///
    /// # Errors
    /// As [`Image::open`], and [`ErrorKind::Unsupported`] if the name says how to get to
    /// the cluster or the settings have what is not of [`Client::SETTINGS`].
    pub fn open_as(name: &Name, client: &Client, access: Access) -> Result<Self, Error> {
        let cluster = || match *name == name.bare() {
            true => client.cluster(),
            false => Err(Trouble::said(
                ErrorKind::Unsupported,
                "the name has options beside those that were given",
            )),
        };
        Self::prepare(name, access, cluster, lock::take)
    }

    /// What another process needs to open images of this one's cluster as the same client.
    ///
    /// # Errors
    /// If the key or a monitor cannot be found, or [`ErrorKind::Unsupported`] if the name has an
    /// option that is not of [`Client::SETTINGS`].
    pub fn client(&self) -> Result<Client, Error> {
        let found = match self.way() {
            Some(way) => Client::of(way.handle().cluster(), &self.name),
            None => Err(Trouble::said(ErrorKind::Io, "the image is closed")),
        };
        found.map_err(|trouble| trouble.at(&self.shared.place))
    }

    /// As [`Image::open`] for writing, but takes the lock away from whoever has it. The cluster does
    /// not listen to their client any more, so nothing that it writes arrives once this
    /// has returned.
    ///
    /// # Errors
    /// As [`Image::open`], without [`ErrorKind::Busy`] unless somebody else was faster.
    pub fn take_over(name: &Name) -> Result<Self, Error> {
        let cluster = || settings::client(name);
        Self::prepare(name, Access::ReadWrite, cluster, lock::take_away)
    }

    fn prepare(
        name: &Name,
        access: Access,
        cluster: impl FnOnce() -> Result<Cluster, Trouble>,
        lock: impl FnOnce(&Handle) -> Result<(), Trouble>,
    ) -> Result<Self, Error> {
        let place = Place::Image(name.to_string().into());
        let read_only = access == Access::ReadOnly;
        if name.is_snapshot() && !read_only {
            let text = "a snapshot never changes";
            return Err(Trouble::said(ErrorKind::ReadOnly, text).at(&place));
        }
        cluster()
            .and_then(|cluster| open(cluster, name, read_only))
            .and_then(|handle| {
                if !read_only {
                    lock(&handle).map_err(Trouble::of_lock)?;
                }
                Self::new(handle, name, place.clone(), read_only)
            })
            .map_err(|trouble| trouble.at(&place))
    }

    fn new(handle: Handle, name: &Name, place: Place, read_only: bool) -> Result<Self, Trouble> {
        let failed = |error| Trouble::new("cannot look at the image", error);
        let size = handle.size().map_err(failed)?;
        if i64::try_from(size).is_err() {
            let text = "the cluster says that the image has 8 EiB or more";
            return Err(Trouble::said(ErrorKind::Io, text));
        }
        let stripe = handle.stripe_unit().map_err(failed)?;
        // Longer writes than this lie in one object too, if they are aligned.
        let atomic = u32::try_from(stripe.min(4096)).unwrap_or(512);
        let shared = Arc::new(Shared {
            fence: Fence::new(place.clone()),
            place,
            size: AtomicU64::new(size),
        });
        let way = Way::new(handle);
        let watch = match read_only {
            true => None,
            false => Some(Watch::start(way.clone(), Arc::clone(&shared)).map_err(failed)?),
        };
        Ok(Self {
            way: Some(way),
            watch,
            changes: Mutex::default(),
            name: name.clone(),
            shared,
            read_only,
            atomic: atomic.max(512),
        })
    }

    /// Where it is.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Has `hear` called, once, when it is found that the lock is lost: at once if it is. It is called on a
    /// thread that others wait for, so it only passes that on.
    pub fn on_loss(&self, hear: impl FnOnce() + Send + 'static) {
        self.shared.fence.on_loss(Box::new(hear));
    }

    /// Has `hear` called when the image has another size, and when it has changed otherwise: it has a snapshot
    /// more, say. That is on a thread that others wait for, so it only passes that on. librbd starts one
    /// for it, which begins with what this thread may do. Of an image that was opened to read only
    /// nothing is told.
    ///
    /// # Errors
    /// What librbd says.
    pub fn on_change(&self, hear: impl Fn() + Send + Sync + 'static) -> io::Result<()> {
        if let (Some(way), false) = (self.way(), self.read_only) {
            let changes = Changes::tell(way.clone(), Box::new(hear))?;
            let mut all = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
            all.push(changes);
        }
        Ok(())
    }

    /// Has librbd decrypt and encrypt from now on, to measure against that.
    ///
    /// # Errors
    /// What librbd says.
    #[cfg(feature = "bench")]
    pub fn load_luks2(&self, passphrase: &str) -> io::Result<()> {
        match self.way() {
            Some(way) => way.handle().load_luks2(passphrase)?,
            None => return Err(io::ErrorKind::NotFound.into()),
        }
        self.look_at_size();
        Ok(())
    }

    pub(crate) fn way(&self) -> Option<&Way> {
        self.way.as_ref()
    }

    /// Asks for the size; what was known stays if there is no answer.
    pub(crate) fn look_at_size(&self) -> u64 {
        let size = &self.shared.size;
        let way = self.way().filter(|_| !self.shared.fence.is_lost());
        match way.map(|way| way.handle().size()) {
            Some(Ok(now)) if i64::try_from(now).is_ok() => size.store(now, Ordering::Relaxed),
            Some(Err(error)) => {
                tracing::warn!(%error, "the size of {} cannot be found out", self.shared.place);
            }
            _ => {}
        }
        size.load(Ordering::Relaxed)
    }
}

/// Connects, and opens the image.
fn open(cluster: Cluster, name: &Name, read_only: bool) -> Result<Handle, Trouble> {
    cluster
        .connect()
        .map_err(|error| unreachable(error, &cluster))?;
    let asked = cluster.get(OBJECTS).ok();
    settings::bound(&cluster, OBJECTS, "0");
    let missing = |what: String| {
        move |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => Trouble::said(ErrorKind::NotFound, what),
            _ => Trouble::new("the cluster does not let it be opened", error),
        }
    };
    let (pool, space) = (&name.pool, name.namespace.as_deref());
    let pool = ffi::Pool::new(cluster, pool, space)
        .map_err(missing(format!("there is no pool {pool}")))?;
    let snapshot = name.snapshot.as_deref();
    let what = match snapshot {
        None => format!("there is no image {}", name.spec()),
        Some(snapshot) => format!(
            "there is no image {} with a snapshot {snapshot}",
            name.spec()
        ),
    };
    let handle = Handle::open(pool, &name.image, snapshot, read_only).map_err(missing(what))?;
    if !read_only {
        lock::check_feature(&handle, name)?;
        lock::check_fencing(&handle, name)?;
    }
    if let Some(asked) = asked {
        // It was that before.
        let _ = handle.cluster().set(OBJECTS, &asked);
    }
    Ok(handle)
}

/// Why there is no connection.
fn unreachable(error: io::Error, cluster: &Cluster) -> Trouble {
    let monitors = cluster.get("mon_host").unwrap_or_default();
    let monitors = match monitors.as_str() {
        "" => "without mon_host in a ceph.conf",
        known => known,
    };
    let keyring = || match cluster.get("keyring") {
        Ok(files) if !files.is_empty() => files,
        _ => "as it was given".to_owned(),
    };
    match error.kind() {
        io::ErrorKind::TimedOut => Trouble::new(
            format!("no monitor of the cluster answers ({monitors})"),
            error,
        ),
        io::ErrorKind::PermissionDenied => Trouble::new(
            format!("the cluster does not take this user's key ({})", keyring()),
            error,
        ),
        io::ErrorKind::NotFound => Trouble::new(
            format!(
                "cannot find the cluster ({monitors}) or the user's key ({})",
                keyring()
            ),
            error,
        ),
        _ => Trouble::new(format!("cannot connect to the cluster ({monitors})"), error),
    }
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Image")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Drop for Image {
    /// Another thread closes it, since that has no end where librbd does not end an operation. The loss of
    /// the image, before or meanwhile, is the end of waiting for it; it can also be on one of the library's
    /// own threads that the last user of the image goes, which closing it would have to wait for.
    fn drop(&mut self) {
        let (watch, way) = (self.watch.take(), self.way.take());
        let changes = std::mem::take(&mut self.changes);
        let (tell, told) = channel();
        let is_lost = tell.clone();
        self.shared.fence.on_loss(Box::new(move || {
            // Nobody listens any more if it was closed before.
            let _ = is_lost.send(());
        }));
        let close = move || {
            drop((watch, changes));
            if let Some(way) = way {
                way.end();
            }
            let _ = tell.send(());
        };
        let thread = std::thread::Builder::new().name("rbd close".into());
        match thread.spawn(close) {
            Ok(_) if !ffi::is_librarys_thread() => {
                let _ = told.recv();
            }
            Ok(_) => {}
            // It was closed with what could not be started.
            Err(error) => tracing::warn!(%error, "no thread to close an image"),
        }
    }
}
