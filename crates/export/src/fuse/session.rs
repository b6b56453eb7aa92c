//! A FUSE session: the mounted directory and the threads that serve it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fuser::{Config, Session, SessionACL};
use xtent_store::chain;
use xtent_volume::Volume;

use super::data::{Data, Shared, WORKERS};
use super::file::{Holes, VolumeFile};
use super::{FILE_NAME, connection, fail};
use crate::executor::Executor;
use crate::request::Failed;
use crate::{Error, ErrorKind, mountinfo};

/// Requests served at a time. Each waits for the disk in a thread of its own,
/// so this is the queue depth that the store sees, and with two requests' worth
/// of buffers in each (1 MiB for what comes in, 1 MiB for what goes out) the
/// bound on memory: 32 MiB. Where the store completes later, requests leave these threads
/// for [`Data`]'s executor, whose memory comes on top.
const THREADS: usize = 16;

/// What a mount's waiting thread is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// [`crate::mounts::Stop::request`].
    Stop,
    /// The last opener closed the file.
    Closed,
    /// FUSE is unmounted and every request answered.
    Ended,
}

/// Serves a volume as `dir/volume`. Unmounted on drop.
pub(crate) struct FuseMount {
    dir: PathBuf,
    /// Tells our mount from one that took its place.
    mount_id: u64,
    volume: Arc<Volume>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl FuseMount {
    /// Mounts on `dir` and starts to serve. `source` shows in `/proc/mounts`.
    pub(crate) fn new(
        volume: Arc<Volume>,
        dir: &Path,
        source: &Path,
        holes: Holes,
        events: &Sender<Event>,
    ) -> Result<Self, Error> {
        let failed = |e| {
            fail(
                ErrorKind::Io,
                format!("cannot start FUSE on {}", dir.display()),
                e,
            )
        };
        let shared = Arc::<Shared>::default();
        let closed = events.clone();
        let data = Data::new(&volume, &shared);
        let executor = data.executor();
        let on_close = move || {
            let _ = closed.send(Event::Closed);
        };
        let file = VolumeFile::new(data, holes, shared.clone(), on_close);
        let descriptor = connection::mount(dir, source, volume.is_read_only())?;
        let unmount = |e| {
            let _ = connection::unmount(dir, true);
            failed(e)
        };
        let mount_id = mountinfo::at(dir)
            .and_then(|entry| entry.ok_or_else(|| io::ErrorKind::NotFound.into()))
            .map_err(unmount)?
            .id;
        let mut config = Config::default();
        config.n_threads = Some(THREADS);
        // The kernel itself lets nobody in but this user: `fuser` need not
        // look, and must not, since loop devices ask in the kernel's name.
        let session =
            Session::from_fd(file, descriptor, SessionACL::All, config).map_err(unmount)?;
        let ended = events.clone();
        let thread = std::thread::Builder::new()
            .name("fuse".into())
            .spawn(move || {
                // The threads of the session inherit it.
                crate::expect_writeback();
                let result = match executor {
                    None => session.run(),
                    Some(executor) => run_with_workers(session, &executor),
                };
                let _ = ended.send(Event::Ended);
                unless_unmounted(result)
            })
            .map_err(unmount)?;
        Ok(Self {
            dir: dir.to_owned(),
            mount_id,
            volume,
            shared,
            thread: Some(thread),
        })
    }

    /// The file.
    pub(crate) fn file(&self) -> PathBuf {
        self.dir.join(FILE_NAME)
    }

    /// What it serves.
    pub(crate) fn volume(&self) -> &Volume {
        &self.volume
    }

    /// How many have the file open.
    pub(crate) fn openers(&self) -> usize {
        self.shared.openers.load(Ordering::SeqCst)
    }

    /// Runs `attach`, which attaches a loop device to the file, such that the
    /// device offers neither discards nor "write zeroes".
    pub(crate) fn without_discards<T>(&self, attach: impl FnOnce() -> T) -> T {
        self.shared.statfs_fails.store(true, Ordering::SeqCst);
        let attached = attach();
        self.shared.statfs_fails.store(false, Ordering::SeqCst);
        attached
    }

    /// Unmounts; the session ends when the last user is gone. Without `lazy`
    /// [`io::ErrorKind::ResourceBusy`] if the file is in use. Nothing to do
    /// if somebody else has unmounted it.
    pub(crate) fn unmount(&self, lazy: bool) -> io::Result<()> {
        match self.is_mounted()? {
            true => connection::unmount(&self.dir, lazy),
            false => Ok(()),
        }
    }

    fn is_mounted(&self) -> io::Result<bool> {
        Ok(mountinfo::at(&self.dir)?.is_some_and(|entry| entry.id == self.mount_id))
    }

    /// As [`FuseMount::unmount`], patient with those that are just about to
    /// close the file (the kernel's own work after an unmount).
    pub(crate) fn unmount_soon(&self) -> io::Result<()> {
        let deadline = Instant::now() + Duration::from_secs(2);
        while self.is_mounted()? {
            match connection::unmount_once(&self.dir, false) {
                Err(e) if e.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                other => return other,
            }
        }
        Ok(())
    }

    /// Waits for the session's end, then flushes the volume.
    pub(crate) fn finish(mut self) -> Result<(), Error> {
        let result = self.thread.take().map(JoinHandle::join);
        self.flush()?;
        match result {
            None | Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(e))) => Err(fail(
                ErrorKind::Io,
                format!("FUSE on {} ended with an error", self.dir.display()),
                e,
            )),
            Some(Err(_)) => Err(Error {
                kind: ErrorKind::Io,
                message: format!("serving FUSE on {} panicked", self.dir.display()),
                source: None,
            }),
        }
    }

    /// Flushes the volume and lets go of a session that does not end, because
    /// its file is still in use: it lives on until the process ends.
    pub(crate) fn abandon(mut self) -> Result<(), Error> {
        self.thread = None;
        self.flush()
    }

    /// Flushes, and reports what had not even been written.
    fn flush(&self) -> Result<(), Error> {
        self.volume.flush().map_err(|e| Error {
            kind: ErrorKind::Volume(e.kind),
            message: format!(
                "the last flush of {} failed, written data may be lost",
                self.dir.display()
            ),
            source: Some(Box::new(e)),
        })?;
        let lost = std::mem::take(
            &mut *self
                .shared
                .lost
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        let Some(first) = lost.first else {
            return Ok(());
        };
        let writes = match lost.count {
            1 => "a write".to_owned(),
            count => format!("{count} writes"),
        };
        let (kind, source): (_, Box<dyn std::error::Error + Send + Sync>) = match first {
            Failed::Volume(error) => (ErrorKind::Volume(error.kind), Box::new(error)),
            Failed::With(errno) => (ErrorKind::Io, Box::new(io::Error::from(errno))),
        };
        Err(Error {
            kind,
            message: format!(
                "{writes} failed while it was mounted, and not every program can have been told: what \
                 was written since it was mounted may be lost, so check it and the file system. The \
                 first failure"
            ),
            source: Some(source),
        })
    }
}

/// Runs a session, and beside it the threads that carry its requests on, until the last of
/// those has ended.
fn run_with_workers(session: Session<VolumeFile>, executor: &Executor) -> io::Result<()> {
    std::thread::scope(|scope| {
        for index in 0..WORKERS {
            let worker = std::thread::Builder::new()
                .name(format!("fuse-worker-{index}"))
                .spawn_scoped(scope, || executor.work());
            if let (Err(error), 0) = (worker, index) {
                // Nobody would answer; without the session it is unmounted.
                return Err(error);
            }
        }
        // Even if the session panics: the scope waits for its threads.
        let _close = Close(executor);
        session.run()
    })
}

/// Lets an executor's threads end when dropped.
struct Close<'a>(&'a Executor);

impl Drop for Close<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A session's result, where an unmount is no error.
///
/// The kernel reports the unmount as `ENODEV`, which `fuser` knows, but as
/// `ECONNABORTED` to a thread that had just taken a request off the queue
/// (`fuse_dev_do_read()`): the last user's close, mostly, which needs no
/// answer. Whoever waited for any other has been told by the kernel.
fn unless_unmounted(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => Ok(()),
        other => other,
    }
}

impl Drop for FuseMount {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        match self.unmount_soon() {
            Ok(()) => drop(thread.join()),
            // Joining could wait for ever for somebody who has the file open.
            Err(_) => {
                if let Err(e) = self.unmount(true) {
                    tracing::error!(dir = %self.dir.display(), error = %e, "cannot unmount FUSE");
                }
            }
        }
        if let Err(e) = self.flush() {
            tracing::error!("{}", chain(&e));
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::unless_unmounted;

    #[test]
    fn an_unmount_is_no_error_even_in_the_midst_of_a_request() {
        assert!(unless_unmounted(Ok(())).is_ok());
        assert!(unless_unmounted(Err(Errno::CONNABORTED.into())).is_ok());
        assert!(unless_unmounted(Err(Errno::IO.into())).is_err());
    }
}
