//! One command at a time changes the block device of a name: makes, takes over, resizes or removes it.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use xtent_mapping::Name;

use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::runtime;

/// What a name is of: each kind has names of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A block device that a process serves.
    Served,
    /// A mapping of the device mapper.
    Mapping,
}

/// The folder of the locks.
fn folder(kind: Kind) -> Result<PathBuf> {
    let folder = runtime::folder()?.join(match kind {
        Kind::Served => "ublk",
        Kind::Mapping => "mappings",
    });
    runtime::make_private(&folder)?;
    Ok(folder)
}

/// The right to change the device of a name, and its link, until it is dropped.
///
/// It is a lock on a file in this user's runtime folder, which stays, and which notes a takeover that has
/// begun: the driver does not know how far that came if its process is killed meanwhile.
#[derive(Debug)]
pub(crate) struct Turn {
    file: File,
    path: PathBuf,
}

impl Turn {
    /// Waits until no other command has it, and says so.
    pub(crate) fn wait_for(name: &Name, kind: Kind, output: &Output) -> Result<Self> {
        let does = match kind {
            Kind::Served => "opens or closes",
            Kind::Mapping => "changes or closes",
        };
        let tell = || {
            output.note(format!("Waiting for another command that {does} {name}."));
        };
        Self::wait_in(&folder(kind)?, &name.to_string(), tell)
    }

    /// Nothing if another command has it.
    pub(crate) fn at_once(name: &Name, kind: Kind) -> Result<Option<Self>> {
        let turn = Self::open(&folder(kind)?, &name.to_string())?;
        Ok(turn
            .lock(FlockOperation::NonBlockingLockExclusive)?
            .then_some(turn))
    }

    fn wait_in(folder: &Path, name: &str, tell: impl FnOnce()) -> Result<Self> {
        let turn = Self::open(folder, name)?;
        if !turn.lock(FlockOperation::NonBlockingLockExclusive)? {
            tell();
            turn.lock(FlockOperation::LockExclusive)?;
        }
        Ok(turn)
    }

    fn open(folder: &Path, name: &str) -> Result<Self> {
        let path = folder.join(name);
        let file = runtime::file_to_lock(&path);
        let failed = |e| Failure::system(format!("cannot open {}", path.display()), e);
        Ok(Self {
            file: file.map_err(failed)?,
            path,
        })
    }

    /// Whether it was to be had.
    fn lock(&self, how: FlockOperation) -> Result<bool> {
        match rustix::io::retry_on_intr(|| flock(&self.file, how)) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(Failure::system(
                format!("cannot lock {}", self.path.display()),
                error,
            )),
        }
    }

    /// Notes that the device is being handed over to this process.
    pub(crate) fn begin_takeover(&self) -> Result<()> {
        let written = (&self.file).write_all(b"takeover\n");
        written.map_err(|error| self.not_written(error))
    }

    /// The takeover has come to its end, or nothing, or there is another device.
    pub(crate) fn end_takeover(&self) -> Result<()> {
        let emptied = self.file.set_len(0);
        emptied.map_err(|error| self.not_written(error))
    }

    fn not_written(&self, error: std::io::Error) -> Failure {
        Failure::system(format!("cannot write to {}", self.path.display()), error)
    }

    /// Whether a takeover was begun and has not come to its end.
    pub(crate) fn has_half_a_takeover(&self) -> bool {
        self.file.metadata().is_ok_and(|it| it.len() > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn one_has_a_name_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let wait = |name: &str, tell: &dyn Fn()| Turn::wait_in(dir.path(), name, tell).unwrap();
        let never = || panic!("nobody has it");
        let first = wait("a", &never);
        let other = wait("b", &never);
        let (tell, told) = channel();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| wait("a", &|| tell.send(()).unwrap()));
            told.recv().unwrap();
            assert!(!second.is_finished());
            drop(first);
            second.join().unwrap();
        });
        drop(other);
        wait("a", &never);
    }

    #[test]
    fn half_a_takeover_is_known_to_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let wait = || Turn::wait_in(dir.path(), "a", || panic!("nobody has it")).unwrap();
        let turn = wait();
        assert!(!turn.has_half_a_takeover());
        turn.begin_takeover().unwrap();
        drop(turn);
        let turn = wait();
        assert!(turn.has_half_a_takeover());
        turn.end_takeover().unwrap();
        drop(turn);
        assert!(!wait().has_half_a_takeover());
    }
}
