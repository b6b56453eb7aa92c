//! The registry of what is served and mounted, for `xtent status`: one file per
//! process, `status/PID.json` in the user's runtime folder, mode 0600, with its volume, or a
//! list of them.
//!
//! A process holds a lock (flock) on its file for as long as it lives, so that
//! the file of one that was killed is known by its missing lock, not by a process
//! id that another may have by now. A file gets its name when it is complete and
//! locked.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use xtent_volume::Volume;

use crate::output::text_of;
use crate::runtime;

/// Where block devices have their names that processes serve. It goes with the system, as the devices do.
pub(crate) const BLOCK_DEVICES: &str = "/dev/xtent";
/// Longest file that is read: nobody writes a longer one.
const LONGEST: u64 = 4 << 20;
/// How often a file is read that is being written meanwhile.
const LOOKS: usize = 5;
/// Most processes of one user that are looked at, and bytes of all their files.
const MOST: usize = 1024;
const MOST_BYTES: u64 = 8 << 20;

/// How a volume is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// By `xtent serve`.
    Server,
    /// Not yet: `xtent serve --standby` waits for it.
    Standby,
    /// By the daemon of `xtent mount`.
    Mount,
    /// As a block device, by the process of `xtent open --ublk`.
    Ublk,
}

/// A process and one of its volumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// How the volume is used.
    pub(crate) kind: Kind,
    /// Absolute path of the device or image.
    pub(crate) device: String,
    /// Partition of the image, where that was asked for, and its first byte.
    #[serde(default)]
    pub(crate) partition: Option<u32>,
    #[serde(default)]
    pub(crate) start: u64,
    /// UUID of the volume, where it has one.
    pub(crate) uuid: Option<String>,
    /// Name of a block device that a process serves.
    #[serde(default)]
    pub(crate) name: Option<String>,
    /// Name of a server's export.
    #[serde(default)]
    pub(crate) export: Option<String>,
    /// Where clients of a server connect.
    pub(crate) uris: Vec<String>,
    /// Folder of a mount.
    pub(crate) mount_point: Option<String>,
    /// Loop device of a mount, where there is one.
    pub(crate) loop_device: Option<String>,
    /// Block device of a mount by ublk.
    #[serde(default)]
    pub(crate) ublk_device: Option<String>,
    /// Bytes of plaintext.
    pub(crate) size: u64,
    /// Bytes in a sector.
    pub(crate) sector_size: u64,
    /// As the header names it.
    pub(crate) cipher: String,
    /// The engine that does some of the work, if there is one.
    #[serde(default)]
    pub(crate) engine: Option<String>,
    /// Whether writes are refused.
    pub(crate) read_only: bool,
    /// When it began, in seconds since 1970.
    pub(crate) since: u64,
    /// Number of the process.
    pub(crate) pid: u32,
    /// Of the user who started it: the owner of the file when listed.
    pub(crate) uid: u32,
}

impl Entry {
    /// This process, from now on, with this volume; neither URIs nor mount yet.
    pub(crate) fn new(
        kind: Kind,
        device: &Path,
        uuid: Option<String>,
        cipher: String,
        volume: &Volume,
    ) -> Self {
        let sector_size = volume.sector_size().bytes() as u64;
        Self {
            read_only: volume.is_read_only(),
            ..Self::of(kind, device, uuid, cipher, volume.size(), sector_size)
        }
    }

    /// The block device that a process serves, by its name.
    pub(crate) fn block_device(&self) -> Option<PathBuf> {
        let name = self.name.as_ref().filter(|_| self.kind == Kind::Ublk)?;
        Some(Path::new(BLOCK_DEVICES).join(name))
    }

    /// As [`Entry::new`], of a volume that is not open.
    pub(crate) fn of(
        kind: Kind,
        device: &Path,
        uuid: Option<String>,
        cipher: String,
        size: u64,
        sector_size: u64,
    ) -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let device = std::fs::canonicalize(device).unwrap_or_else(|_| device.to_owned());
        Self {
            kind,
            device: text_of(&device),
            partition: None,
            start: 0,
            uuid,
            name: None,
            export: None,
            uris: Vec::new(),
            mount_point: None,
            loop_device: None,
            ublk_device: None,
            size,
            sector_size,
            cipher,
            engine: None,
            read_only: false,
            since: since.unwrap_or_default().as_secs(),
            pid: std::process::id(),
            uid: rustix::process::geteuid().as_raw(),
        }
    }
}

/// This process's place in the registry; given up when dropped.
#[derive(Debug)]
pub(crate) struct Registration(Mutex<Option<Place>>);

#[derive(Debug)]
struct Place {
    /// Open and locked.
    file: File,
    path: PathBuf,
}

/// Registers this process. Nobody is served worse without, so where it cannot be
/// done (no folder, a full one) that is logged and all there is to it.
///
/// Call it before the sandbox; what removes the file needs
/// [`Registration::folder`] there.
pub(crate) fn register(entries: &[Entry]) -> Registration {
    let registered = runtime::folder()
        .map_err(|failure| failure.message)
        .and_then(|dir| {
            let pid = std::process::id();
            register_in(&dir, pid, entries).map_err(|error| error.to_string())
        });
    let place = registered
        .inspect_err(|error| tracing::info!(error, "xtent status will not show this process"));
    Registration(Mutex::new(place.ok()))
}

impl Registration {
    /// The folder in which a file is removed at the end.
    pub(crate) fn folder(&self) -> Option<PathBuf> {
        Some(self.place().as_ref()?.path.parent()?.to_owned())
    }

    /// Writes the entries anew: a volume has grown, has come or gone.
    pub(crate) fn update(&self, entries: &[Entry]) {
        if let Some(place) = &*self.place()
            && let Err(error) = place.write(entries)
        {
            tracing::info!(%error, "xtent status shows old entries for this process");
        }
    }

    /// Gives the place up now, whoever else has this value.
    pub(crate) fn end(&self) {
        *self.place() = None;
    }

    fn place(&self) -> MutexGuard<'_, Option<Place>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// In place, padded with blanks over all that was there: a sandbox may forbid to
    /// make files and to cut them.
    fn write(&self, entries: &[Entry]) -> std::io::Result<()> {
        let mut text = match entries {
            [one] => serde_json::to_vec(one)?,
            others => serde_json::to_vec(others)?,
        };
        let before = usize::try_from(self.file.metadata()?.len()).unwrap_or_default();
        text.resize(text.len().next_multiple_of(4096).max(before), b' ');
        self.file.write_all_at(&text, 0)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A process that has become another user may not remove it. The file is
        // empty then, and the next one that registers takes it away.
        if std::fs::remove_file(&self.path).is_err()
            && let Ok(metadata) = self.file.metadata()
        {
            let blanks = vec![b' '; usize::try_from(metadata.len()).unwrap_or_default()];
            let _ = self.file.write_all_at(&blanks, 0);
        }
    }
}

fn register_in(runtime: &Path, pid: u32, entries: &[Entry]) -> std::io::Result<Place> {
    let dir = runtime.join("status");
    runtime::make_private(&dir).map_err(|failure| std::io::Error::other(failure.message))?;
    // One at a time, so that nobody's new file is taken for a dead one's.
    let turn = File::open(&dir)?;
    flock(&turn, FlockOperation::LockExclusive)?;
    for path in files(&dir) {
        if open(&path).is_ok_and(|file| !is_locked(&file)) {
            let _ = std::fs::remove_file(path);
        }
    }
    let path = dir.join(format!("{pid}.json"));
    let unfinished = dir.join(format!("{pid}.new"));
    let _ = std::fs::remove_file(&unfinished);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&unfinished)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    let place = Place { file, path };
    place.write(entries)?;
    place.file.sync_data().ok();
    std::fs::rename(&unfinished, &place.path)?;
    Ok(place)
}

/// A listed process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Listed {
    /// What it said of itself.
    #[serde(flatten)]
    pub(crate) entry: Entry,
    /// Whether it still runs; if not it was killed.
    pub(crate) is_alive: bool,
}

/// Everything that is registered, oldest first: of every user for root, else this
/// user's.
pub(crate) fn list() -> Vec<Listed> {
    list_in(&runtime::folders())
}

fn list_in(runtimes: &[PathBuf]) -> Vec<Listed> {
    let mut found: Vec<Listed> = runtimes
        .iter()
        .flat_map(|runtime| {
            let dir = runtime.join("status");
            // A folder has the files of the user that it belongs to.
            let owner = dir.symlink_metadata().ok().map(|found| found.uid());
            let files = files(&dir).into_iter().take(MOST);
            // Others may have written anything.
            let own = rustix::process::geteuid().as_raw();
            let mut left = match owner {
                Some(owner) if owner == own => u64::MAX,
                _ => MOST_BYTES,
            };
            files.flat_map(move |path| {
                owner
                    .and_then(|it| read(&path, it, &mut left))
                    .unwrap_or_default()
            })
        })
        .collect();
    found.sort_by_key(|listed| (listed.entry.since, listed.entry.pid));
    found
}

/// Nothing if it is none of ours, that of a process that has ended, not
/// `owner`'s, or longer than what is `left` of the bytes that they may have.
fn read(path: &Path, owner: u32, left: &mut u64) -> Option<Vec<Listed>> {
    let file = open(path).ok()?;
    let metadata = file.metadata().ok()?;
    if !metadata.is_file() || metadata.len() > LONGEST || metadata.uid() != owner {
        return None;
    }
    *left = left.checked_sub(metadata.len())?;
    // The process may be writing just now, which is soon over.
    let entries = (0..LOOKS).find_map(|_| {
        let mut text = Vec::new();
        (&file).rewind().ok()?;
        (&file).take(LONGEST).read_to_end(&mut text).ok()?;
        parse(&text)
    })?;
    let is_alive = is_locked(&file);
    let listed = entries.into_iter().map(|entry| Listed {
        // Whatever it says itself.
        entry: Entry {
            uid: owner,
            ..entry
        },
        is_alive,
    });
    Some(listed.collect())
}

/// What another user may have written: an entry, or a list of them. Nothing if it is neither;
/// without those that hold what would be more than one line when it is shown.
pub(crate) fn parse(text: &[u8]) -> Option<Vec<Entry>> {
    let one = || serde_json::from_slice(text).map(|one: Entry| vec![one]);
    let entries: Vec<Entry> = serde_json::from_slice(text).or_else(|_| one()).ok()?;
    let is_plain = |entry: &Entry| {
        let mut texts = [&entry.device, &entry.cipher]
            .into_iter()
            .chain(&entry.uuid)
            .chain(&entry.name)
            .chain(&entry.export)
            .chain(&entry.uris)
            .chain(&entry.mount_point)
            .chain(&entry.loop_device)
            .chain(&entry.ublk_device);
        !texts.any(|text| text.contains(char::is_control))
    };
    Some(entries.into_iter().filter(is_plain).collect())
}

/// The registry's files in a folder.
fn files(dir: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|it| it == "json"))
        .collect()
}

/// For reading; a folder of another user's may hold links and FIFOs.
fn open(path: &Path) -> std::io::Result<File> {
    use nix::libc::{O_NOFOLLOW, O_NONBLOCK};
    OpenOptions::new()
        .read(true)
        .custom_flags(O_NOFOLLOW | O_NONBLOCK)
        .open(path)
}

fn is_locked(file: &File) -> bool {
    flock(file, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn entry(pid: u32, size: u64) -> Entry {
        Entry {
            kind: Kind::Server,
            device: "/dev/sda".into(),
            partition: None,
            start: 0,
            uuid: None,
            name: None,
            export: None,
            uris: vec!["nbd://localhost:1/".into()],
            mount_point: None,
            loop_device: None,
            ublk_device: None,
            size,
            sector_size: 512,
            cipher: "aes-xts-plain64".into(),
            engine: None,
            read_only: false,
            since: u64::from(pid),
            pid,
            uid: rustix::process::geteuid().as_raw(),
        }
    }

    #[test]
    fn a_process_is_listed_while_it_lives() {
        let dir = tempfile::tempdir().unwrap();
        let runtimes = [dir.path().to_owned()];
        assert_eq!(list_in(&runtimes), []);
        let second = register_in(dir.path(), 2, &[entry(2, 10)]).unwrap();
        let first = register_in(dir.path(), 1, &[entry(1, 10)]).unwrap();
        let first = Registration(Mutex::new(Some(first)));
        let alive = |pid, size| Listed {
            entry: entry(pid, size),
            is_alive: true,
        };
        assert_eq!(list_in(&runtimes), [alive(1, 10), alive(2, 10)]);
        assert_eq!(first.folder().unwrap(), dir.path().join("status"));
        let mode = second.path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        first.update(&[entry(1, 200), entry(1, 300)]);
        let both = [alive(1, 200), alive(1, 300), alive(2, 10)];
        assert_eq!(list_in(&runtimes), both);
        // What is shorter leaves nothing of what was longer.
        first.update(&vec![entry(1, 10); 100]);
        assert_eq!(list_in(&runtimes).len(), 101);
        first.update(&[]);
        assert_eq!(list_in(&runtimes), [alive(2, 10)]);
        first.update(&[entry(1, 200)]);
        assert_eq!(list_in(&runtimes), [alive(1, 200), alive(2, 10)]);
        first.end();
        assert_eq!(list_in(&runtimes), [alive(2, 10)]);
        drop(second);
        assert_eq!(files(&dir.path().join("status")).len(), 0);
    }

    #[test]
    fn a_killed_process_is_known_by_its_lock() {
        let dir = tempfile::tempdir().unwrap();
        let runtimes = [dir.path().to_owned()];
        let mut killed = register_in(dir.path(), 1, &[entry(1, 10)]).unwrap();
        // The file stays, the lock goes.
        let path = std::mem::replace(&mut killed.path, dir.path().join("none"));
        killed.file = File::open("/dev/null").unwrap();
        drop(killed);
        let listed = list_in(&runtimes);
        assert_eq!(listed.len(), 1);
        assert!(!listed[0].is_alive);
        // The next one that registers takes it away, or its name.
        let other = register_in(dir.path(), 2, &[entry(2, 10)]).unwrap();
        assert!(!path.exists());
        assert_eq!(list_in(&runtimes).len(), 1);
        drop(other);
    }

    #[test]
    fn what_is_not_ours_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let ours = register_in(dir.path(), 1, &[entry(1, 10)]).unwrap();
        let status = dir.path().join("status");
        std::fs::write(status.join("x.json"), "{}").unwrap();
        std::fs::write(status.join("y.json"), "").unwrap();
        std::os::unix::fs::symlink(&ours.path, status.join("z.json")).unwrap();
        std::fs::create_dir(status.join("d.json")).unwrap();
        assert_eq!(list_in(&[dir.path().to_owned()]).len(), 1);
    }

    #[test]
    fn json_has_fields_for_programs() {
        let listed = Listed {
            entry: entry(7, 10),
            is_alive: true,
        };
        let json = serde_json::to_value(&listed).unwrap();
        assert_eq!(json["kind"], "server");
        assert_eq!(json["pid"], 7);
        assert_eq!(json["is_alive"], true);
        assert_eq!(json["mount_point"], serde_json::Value::Null);
    }
}
