//! What a daemon writes down of its mount, for another process.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::mountinfo::Device;

/// `state.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    /// Number of this format.
    pub(super) version: u32,
    /// The user's mount point, absolute.
    pub(super) dir: PathBuf,
    /// The encrypted device or image, absolute.
    pub(super) device: PathBuf,
    /// The daemon.
    pub(super) pid: u32,
    /// FUSE is on `dir` itself; no loop device, no file system.
    pub(super) file_only: bool,
    /// Everything is in place.
    pub(super) ready: bool,
    /// Why the daemon's last flush failed.
    pub(super) failure: Option<String>,
    /// The kernel's device under the file system, where that is not FUSE's file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ublk: Option<Ublk>,
}

/// A device of the kernel's ublk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ublk {
    /// N of `/dev/ublkbN`.
    pub(super) number: u32,
    /// What it is known by again: numbers are given again.
    pub(super) identity: u64,
    /// As mounts of it show it, from its start on.
    pub(super) device: Option<Device>,
}

/// Version of the format with FUSE alone, which programs without ublk know.
const OF_FUSE: u32 = 1;
/// The same with ublk.
const OF_UBLK: u32 = 2;

impl State {
    /// Of this process, before anything is done; the names are absolute.
    pub(super) fn new(dir: PathBuf, device: PathBuf, file_only: bool) -> Self {
        Self {
            version: OF_FUSE,
            dir,
            device,
            pid: std::process::id(),
            file_only,
            ready: false,
            failure: None,
            ublk: None,
        }
    }

    /// From now on it is on this device.
    pub(super) fn is_on(&mut self, ublk: Ublk) {
        self.version = OF_UBLK;
        self.ublk = Some(ublk);
    }
}

/// Reads the state in a mount's directory, if a whole one is there.
pub(super) fn read(path: &Path) -> Option<State> {
    let state: State =
        serde_json::from_slice(&std::fs::read(path.join("state.json")).ok()?).ok()?;
    let version = match state.ublk {
        None => OF_FUSE,
        Some(_) => OF_UBLK,
    };
    (state.version == version).then_some(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_do_not_know_ublk_leave_its_records_alone() {
        let base = tempfile::tempdir().unwrap();
        let written = |state: &State| {
            let text = serde_json::to_vec(state).unwrap();
            std::fs::write(base.path().join("state.json"), text).unwrap();
            read(base.path())
        };
        let mut state = State::new("/mnt/a".into(), "/dev/sdz".into(), false);
        assert_eq!(state.version, 1);
        assert_eq!(written(&state).as_ref(), Some(&state));
        state.is_on(Ublk {
            number: 3,
            identity: u64::MAX,
            device: None,
        });
        assert_eq!(state.version, 2);
        assert_eq!(written(&state).as_ref(), Some(&state));
        // Nor is it one of FUSE's by mistake.
        state.version = 1;
        assert_eq!(written(&state), None);
    }

    #[test]
    fn hostile_states_are_no_states() {
        let base = tempfile::tempdir().unwrap();
        for text in [
            "",
            "[]",
            "{\"version\":2}",
            "{\"version\":1,\"dir\":3}",
            "\0",
        ] {
            std::fs::write(base.path().join("state.json"), text).unwrap();
            assert_eq!(read(base.path()), None, "{text}");
        }
    }
}
