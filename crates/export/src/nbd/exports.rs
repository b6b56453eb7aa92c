//! The exports of a server: a set that changes while clients are connected.
//!
//! Each export has what its requests need for itself, threads and memory, so that one whose
//! store is slow, or stands still, holds up nobody but its own clients.

mod end;

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Instant;

use xtent_store::{Memory, chain};
use xtent_volume::Volume;

use super::Export;
use super::link::Link;
use super::proto::ExportInfo;
use super::proto::constants::MAX_STRING;
use crate::executor::Executor;
use crate::metrics::Exported;
use crate::{Error, ErrorKind};

/// Most exports of a server.
const MOST: usize = 1024;
/// Bytes for zeros on their way and for reading ahead, of all clients of an export.
const BULK_MEMORY: usize = 4 << 20;
/// Bytes for requests that every export with clients may have, however many there are.
const LEAST_MEMORY: usize = 4 << 20;

/// The exports of a server; clones are the same set.
#[derive(Clone, Default)]
pub struct Exports(Arc<Inner>);

#[derive(Default)]
struct Inner {
    set: Mutex<Set>,
    /// One of those that are being removed is gone.
    removed: Condvar,
}

#[derive(Default)]
struct Set {
    /// In the order in which they came.
    all: Vec<Arc<Served>>,
    /// Bytes for the requests of all of them.
    memory: usize,
    /// The server ends: nothing comes any more.
    closed: bool,
    /// How many are being removed, and what could not be flushed of those that still were at the server's end.
    removing: usize,
    failed: Vec<(String, Error)>,
}

/// What an export is at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The name clients ask for.
    pub name: String,
    /// Bytes of plaintext.
    pub size: u64,
    /// Clients that have chosen it and are connected.
    pub clients: usize,
    /// It is being removed, and takes no more clients.
    pub is_ending: bool,
}

impl Exports {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Offers a volume from now on. [`ErrorKind::Busy`] if its name is taken.
    pub fn add(&self, export: Export) -> Result<(), Error> {
        check(&export)?;
        let mut set = self.set();
        if set.closed {
            return Err(error(ErrorKind::Busy, "the server is ending".into()));
        }
        if set.all.len() >= MOST {
            let message = format!("a server has at most {MOST} exports");
            return Err(error(ErrorKind::Argument, message));
        }
        if set.all.iter().any(|served| served.name == export.name) {
            return Err(error(
                ErrorKind::Busy,
                format!(
                    "there is an export named {:?} already; give each its own name",
                    export.name
                ),
            ));
        }
        set.all.push(Arc::new(Served::new(export)));
        Ok(())
    }

    /// Takes an export away: no client can choose it any more, those that had are parted from
    /// as when a server stops, and then it is flushed. Returns when nothing of the volume is in
    /// use here; with the error if the flush failed.
    ///
    /// It waits for what the volume's store is at work on, however long that takes.
    /// [`ErrorKind::Argument`] if there is no such export, [`ErrorKind::Busy`] if somebody is
    /// removing it.
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        let served = {
            let mut set = self.set();
            let served = set.find(name)?;
            if set.closed {
                return Err(error(ErrorKind::Busy, "the server is ending".into()));
            }
            if served.ended.set(Instant::now()).is_err() {
                let message = format!("the export {name:?} is being removed already");
                return Err(error(ErrorKind::Busy, message));
            }
            set.removing += 1;
            served
        };
        tracing::info!(export = name, "ending: finishing requests and flushing");
        served.wake_clients();
        served.wait_until_left();
        let result = served.flush();
        // Its locks are free before anybody is told.
        let volume = served.volume().take();
        // It may take its time, and every handshake looks at all exports.
        drop(volume);
        let mut set = self.set();
        set.all.retain(|other| !Arc::ptr_eq(other, &served));
        set.removing -= 1;
        if let (true, Err(failure)) = (set.closed, &result) {
            let failure = error(failure.kind, chain(failure).to_string());
            set.failed.push((served.name.clone(), failure));
        }
        drop(set);
        self.0.removed.notify_all();
        tracing::info!(export = name, "export removed");
        result
    }

    /// All of them, in the order in which they came.
    pub fn list(&self) -> Vec<Listing> {
        let all = self.set().all.clone();
        all.iter().map(|served| served.listing()).collect()
    }

    /// Their volumes, for metrics; without those that are gone.
    pub fn exported(&self) -> Vec<Exported> {
        let all = self.set().all.clone();
        all.iter().filter_map(|served| served.exported()).collect()
    }

    /// What the export of this name is.
    pub fn listing(&self, name: &str) -> Result<Listing, Error> {
        let served = self.set().find(name)?;
        Ok(served.listing())
    }

    /// Those that a client can choose, and what the protocol says of them.
    pub(super) fn offered(&self) -> (Vec<Arc<Served>>, Vec<ExportInfo>) {
        let all = self.set().all.clone();
        let offered = all.into_iter().filter(|served| !served.is_ending());
        offered
            .filter_map(|served| {
                let info = served.info()?;
                Some((served, info))
            })
            .unzip()
    }

    /// Bytes for the requests of all of them, shared by those that have clients.
    pub(super) fn set_memory(&self, bytes: usize) {
        let mut set = self.set();
        set.memory = bytes;
        set.share_memory();
    }

    /// Nothing comes or goes by request any more.
    pub(super) fn stop_changing(&self) {
        self.set().closed = true;
    }

    fn set(&self) -> MutexGuard<'_, Set> {
        self.0.set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Set {
    fn find(&self, name: &str) -> Result<Arc<Served>, Error> {
        let found = self.all.iter().find(|it| it.name == name).cloned();
        found.ok_or_else(|| {
            let message = format!("there is no export named {name:?}");
            error(ErrorKind::Argument, message)
        })
    }

    /// Those that have clients get equal shares.
    fn share_memory(&self) {
        let with_clients = || self.all.iter().filter(|served| !served.links().is_empty());
        let share = self.memory / with_clients().count().max(1);
        let share = share.max(LEAST_MEMORY.min(self.memory));
        for served in with_clients() {
            served.memory.set_limit(share);
        }
    }
}

fn error(kind: ErrorKind, message: String) -> Error {
    Error {
        kind,
        message,
        source: None,
    }
}

fn check(export: &Export) -> Result<(), Error> {
    let texts = [&export.name, &export.description];
    if texts.iter().any(|text| text.len() > MAX_STRING) {
        let message = format!("names and descriptions of exports have at most {MAX_STRING} bytes");
        return Err(error(ErrorKind::Argument, message));
    }
    if texts.iter().any(|text| text.contains('\0')) {
        let message = "an export's name or description contains a NUL".into();
        return Err(error(ErrorKind::Argument, message));
    }
    Ok(())
}

/// An export, and all that it has for itself.
pub(super) struct Served {
    pub(super) name: String,
    description: String,
    /// Names in certificates, of the clients that may open it; everybody if empty.
    allowed: Vec<String>,
    /// None once it has been removed.
    volume: Mutex<Option<Arc<Volume>>>,
    /// When it was told to end.
    ended: OnceLock<Instant>,
    /// Connections of clients that have chosen it.
    links: Mutex<HashMap<u64, Arc<Link>>>,
    /// A client has left.
    left: Condvar,
    /// Threads for requests that have to wait.
    pub(super) executor: Arc<Executor>,
    /// For requests that outlive their turn on a connection's thread.
    pub(super) memory: Arc<Memory>,
    /// For work of which a small message can ask any amount.
    pub(super) bulk: Arc<Memory>,
}

impl Served {
    pub(super) fn new(export: Export) -> Self {
        Self {
            name: export.name,
            description: export.description,
            allowed: export.allowed,
            volume: Mutex::new(Some(export.volume)),
            ended: OnceLock::new(),
            links: Mutex::default(),
            left: Condvar::new(),
            executor: Executor::with_own_threads(),
            memory: Memory::new(0),
            bulk: Memory::new(BULK_MEMORY),
        }
    }

    fn volume(&self) -> MutexGuard<'_, Option<Arc<Volume>>> {
        self.volume.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn links(&self) -> MutexGuard<'_, HashMap<u64, Arc<Link>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When it was told to end, if it was.
    pub(super) fn ended_at(&self) -> Option<Instant> {
        self.ended.get().copied()
    }

    fn is_ending(&self) -> bool {
        self.ended.get().is_some()
    }

    fn wake_clients(&self) {
        for link in self.links().values() {
            link.wake();
        }
    }

    fn wait_until_left(&self) {
        let mut links = self.links();
        while !links.is_empty() {
            links = self
                .left
                .wait(links)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn flush(&self) -> Result<(), Error> {
        let volume = self.volume().clone();
        match volume.filter(|volume| !volume.is_read_only()) {
            Some(volume) => volume.flush().map_err(|error| {
                tracing::error!(export = self.name, error = %chain(&error), "flush failed");
                Error::from(error)
            }),
            None => Ok(()),
        }
    }

    fn listing(&self) -> Listing {
        // One lock after the other: who begins a visit takes both. And nothing keeps the volume
        // but visits: a removal lets go of it.
        let size = self.volume().as_ref().map_or(0, |volume| volume.size());
        let clients = self.links().len();
        Listing {
            name: self.name.clone(),
            size,
            clients,
            is_ending: self.is_ending(),
        }
    }

    fn exported(&self) -> Option<Exported> {
        // As in `listing`: of one expression the first lock would be there beside the second.
        let volume = self.volume().clone()?;
        let connections = self.links().len() as u64;
        Some(Exported {
            name: self.name.clone(),
            volume,
            connections,
        })
    }

    /// As it is now: a volume may have grown.
    fn info(&self) -> Option<ExportInfo> {
        let volume = self.volume();
        let volume = volume.as_ref()?;
        Some(ExportInfo {
            name: self.name.clone(),
            description: self.description.clone(),
            size: volume.size(),
            read_only: volume.is_read_only(),
            minimum_block: u32::try_from(volume.sector_size().bytes()).unwrap_or(4096),
            allowed: self.allowed.clone(),
        })
    }
}

/// A client's time with the export that it has chosen; over when dropped.
pub(super) struct Visit {
    exports: Exports,
    served: Arc<Served>,
    link: u64,
}

impl Visit {
    /// Begins; [`None`] if the export has been told to end meanwhile, or no thread can be had.
    /// Requests that wait hold up to `workers` threads.
    pub(super) fn begin(
        exports: &Exports,
        served: &Arc<Served>,
        link: &Arc<Link>,
        workers: usize,
    ) -> Option<Self> {
        let set = exports.set();
        // Whoever ends it looks at the links afterwards.
        let mut links = served.links();
        let threads = threads(served.volume().as_ref()?, workers);
        if served.is_ending() {
            return None;
        }
        if links.is_empty()
            && let Err(error) = served.executor.open(threads)
        {
            tracing::warn!(%error, "cannot start a worker thread");
            return None;
        }
        links.insert(link.id, Arc::clone(link));
        drop(links);
        set.share_memory();
        drop(set);
        Some(Self {
            exports: exports.clone(),
            served: Arc::clone(served),
            link: link.id,
        })
    }

    pub(super) fn served(&self) -> &Arc<Served> {
        &self.served
    }

    /// The volume, which is there for as long as there is a client.
    pub(super) fn volume(&self) -> Option<Arc<Volume>> {
        self.served.volume().clone()
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let set = self.exports.set();
        let mut links = self.served.links();
        links.remove(&self.link);
        let is_last = links.is_empty();
        if is_last {
            // An export without clients takes neither threads nor memory.
            self.served.executor.close();
            self.served.memory.trim();
            self.served.bulk.trim();
        }
        drop(links);
        if is_last {
            set.share_memory();
        }
        drop(set);
        self.served.left.notify_all();
    }
}

/// Threads for a volume's requests. Where requests leave their threads, more threads than cores
/// only wake each other.
fn threads(volume: &Volume, workers: usize) -> usize {
    match (volume.completes_later(), thread::available_parallelism()) {
        (true, Ok(cores)) => cores.get().max(2).min(workers),
        _ => workers,
    }
}
