//! What is formatted: an existing device or file, or one that is made, and removed again
//! unless all goes well.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use xtent_store::{Access, FileStore};

use crate::args::RECONNECT;
use crate::disk::{Disk, is_uri, refuse_dash};
use crate::failure::{Exit, Failure, Result};
use crate::old_volume::OldVolume;
use crate::same::refuse_attached;
use crate::{mkfs, probe, signals};

/// Where something will be written: it exists and is locked, or will be made.
pub(super) enum Target<'a> {
    Existing(Disk),
    New(&'a Path),
}

impl<'a> Target<'a> {
    pub(super) fn look(path: &'a Path, may_be_new: bool) -> Result<Self> {
        refuse_dash(path)?;
        if is_uri(path) {
            let reconnect = Duration::from_secs(RECONNECT.into());
            let disk = Disk::open_alone(path, Access::ReadWrite, reconnect)?;
            return Ok(Self::Existing(disk));
        }
        let exists = path
            .try_exists()
            .map_err(|e| Failure::system(format!("cannot look at {}", path.display()), e))?;
        if !exists {
            if may_be_new {
                return Ok(Self::New(path));
            }
            return Err(
                Failure::new(Exit::Device, format!("{} does not exist", path.display()))
                    .advise("Give --size to make a new image file."),
            );
        }
        let store = FileStore::open(path, Access::ReadWrite)?;
        store.lock_for_serving()?;
        refuse_attached(path, 0..u64::MAX)?;
        Ok(Self::Existing(store.into()))
    }

    /// What would be lost, as a sentence.
    pub(super) fn loss(&self) -> Option<String> {
        match self {
            Target::New(_) => None,
            Target::Existing(store) if store.size() == 0 => None,
            Target::Existing(store) => Some(format!(
                "This will overwrite data on {} irrevocably.{}",
                store.path().display(),
                probe::describe(&**store)
                    .map_or(String::new(), |found| format!(" It holds {found} now."))
            )),
        }
    }

    /// The LUKS volume that would be lost, if there is one or what is left of one.
    ///
    /// # Errors
    /// If a place cannot be read where one might be.
    pub(super) fn volume(&self) -> Result<Option<OldVolume>> {
        let Target::Existing(store) = self else {
            return Ok(None);
        };
        OldVolume::find(store)
    }

    /// Makes a new file of `size` bytes if it is to be new.
    pub(super) fn ready(self, size: u64, new_files: &NewFiles) -> Result<Disk> {
        match self {
            Target::Existing(store) => Ok(store),
            Target::New(path) => {
                let store = new_files.make(path, size)?;
                store.lock_for_serving()?;
                Ok(store.into())
            }
        }
    }
}

/// Files made by a format that may still fail or be interrupted; removed
/// unless it succeeds.
pub(super) struct NewFiles(Arc<Mutex<Stage>>);

/// What a signal has to undo.
enum Stage {
    /// Remove these files, and end.
    Making(Vec<PathBuf>),
    /// End the program that makes the file system; this one then undoes the mount and ends by
    /// itself.
    Filling(Filling),
}

/// A file system being made on the finished volume.
#[derive(Default)]
struct Filling {
    /// What makes it.
    program: Option<Pid>,
    /// Where the volume is mounted for that, or will be.
    folder: PathBuf,
    /// The signal that has asked for the end.
    ended_by: Option<Signal>,
}

impl NewFiles {
    /// None yet. From now on SIGINT, SIGTERM and SIGHUP remove them and end the
    /// process. Call it before any thread exists.
    pub(super) fn removed_on_signals() -> Result<Self> {
        let files = Self(Arc::new(Mutex::new(Stage::Making(Vec::new()))));
        let (stage, last) = (Arc::clone(&files.0), Arc::clone(&files.0));
        signals::hold()?;
        signals::on_ending_or_force(
            move |signal| {
                // Locked until the end, so that nothing is made or kept any more.
                match &mut *lock(&stage) {
                    Stage::Making(files) => {
                        remove(files);
                        signals::end(signal);
                    }
                    Stage::Filling(filling) => {
                        filling.ended_by = Some(signal);
                        if let Some(program) = filling.program {
                            let _ = kill(program, Signal::SIGTERM);
                        }
                    }
                }
            },
            move || {
                if let Stage::Filling(filling) = &*lock(&last) {
                    mkfs::abandon(&filling.folder);
                }
            },
        )?;
        Ok(files)
    }

    fn make(&self, path: &Path, size: u64) -> Result<FileStore> {
        let mut stage = self.stage();
        let store = FileStore::create(path, size)?;
        if let Stage::Making(files) = &mut *stage {
            files.push(path.to_owned());
        }
        Ok(store)
    }

    pub(super) fn keep(&self) {
        if let Stage::Making(files) = &mut *self.stage() {
            files.clear();
        }
    }

    /// From now on the finished volume is, or will be, mounted on that folder, which no signal leaves
    /// behind.
    pub(super) fn filling(&self, folder: &Path) {
        *self.stage() = Stage::Filling(Filling {
            folder: folder.to_owned(),
            ..Filling::default()
        });
    }

    /// Runs a program on the mounted volume; signals end that, or keep it from being run.
    pub(super) fn fill(&self, command: &mut Command) -> std::io::Result<std::process::Output> {
        let child = {
            let mut stage = self.stage();
            let Stage::Filling(filling) = &mut *stage else {
                return Err(std::io::ErrorKind::Unsupported.into());
            };
            if filling.ended_by.is_some() {
                return Err(std::io::ErrorKind::Interrupted.into());
            }
            let child = command
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()?;
            filling.program = i32::try_from(child.id()).ok().map(Pid::from_raw);
            child
        };
        let output = child.wait_with_output();
        if let Stage::Filling(filling) = &mut *self.stage() {
            filling.program = None;
        }
        output
    }

    /// The signal that has asked for the end while a file system was made.
    pub(super) fn ended_by(&self) -> Option<Signal> {
        match &*self.stage() {
            Stage::Making(_) => None,
            Stage::Filling(filling) => filling.ended_by,
        }
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        lock(&self.0)
    }
}

impl Drop for NewFiles {
    fn drop(&mut self) {
        if let Stage::Making(files) = &*self.stage() {
            remove(files);
        }
    }
}

fn lock(stage: &Mutex<Stage>) -> MutexGuard<'_, Stage> {
    stage.lock().unwrap_or_else(PoisonError::into_inner)
}

fn remove(files: &[PathBuf]) {
    for path in files {
        let _ = std::fs::remove_file(path);
    }
}
