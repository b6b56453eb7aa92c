//! Mounts and loop devices that tests make, and their removal.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::luks::Container;
use crate::xtent::xtent;
use crate::{Cmd, Scratch};

/// `xtent mount` of a container, by FUSE whatever the machine has.
pub fn mount(container: &Container, folder: &Path, options: &[&str]) -> Cmd {
    let by: &[&str] = match options.contains(&"--file-only") {
        true => &[],
        false => &["--by", "fuse"],
    };
    xtent()
        .arg("mount")
        .args(by)
        .args(options)
        .arg("--key-file")
        .args([&container.key, &container.image])
        .arg(folder)
}

/// `xtent umount` of a folder or a device.
pub fn umount(place: &Path) -> Cmd {
    xtent().arg("umount").arg(place)
}

/// Makes ext4 on the volume, with these options, through the FUSE file.
pub fn make_ext4(container: &Container, scratch: &Scratch, options: &[&str]) {
    let folder = scratch.folder("for-mkfs");
    mount(container, &folder, &["--file-only"]).ok();
    Cmd::peer("mke2fs")
        .args(["-q", "-F", "-t", "ext4"])
        .args(options)
        .arg(folder.join("volume"))
        .ok();
    umount(&folder).ok();
    fs::remove_dir(folder).unwrap();
}

/// Undoes what is left under a scratch folder when dropped: mounts, loop
/// devices on files there, processes that name it. Make it after the
/// [`crate::Scratch`], so that it is dropped first.
///
/// A test that lives longer than ten minutes hangs in a mount whose daemon does
/// not answer: then the daemon is killed, and the kernel fails what waits.
pub struct Cleaner {
    folder: PathBuf,
    _done: Sender<()>,
}

/// Far more than any test needs.
const LIMIT: Duration = Duration::from_secs(600);

impl Cleaner {
    /// Watches `folder`.
    pub fn new(folder: &Path) -> Self {
        let folder = fs::canonicalize(folder).unwrap();
        let (done, until) = channel();
        let watched = folder.clone();
        std::thread::spawn(move || {
            if until.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout) {
                for id in processes_naming(&watched) {
                    let _ = kill_process(id, Signal::KILL);
                }
            }
        });
        Self {
            folder,
            _done: done,
        }
    }
}

impl Drop for Cleaner {
    fn drop(&mut self) {
        // Innermost first: the latest mounts are last in the table.
        for point in mounts_under(&self.folder).iter().rev() {
            let _ = Cmd::peer("umount").arg("--lazy").arg(point).run();
        }
        for device in loops_under(&self.folder) {
            let _ = Cmd::peer("losetup").arg("--detach").arg(device).run();
        }
        for id in processes_naming(&self.folder) {
            let _ = kill_process(id, Signal::KILL);
        }
    }
}

/// Mount points under `folder`, in the order in which they were made.
pub fn mounts_under(folder: &Path) -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    table
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(PathBuf::from)
        .filter(|point| point.starts_with(folder))
        .collect()
}

/// Loop devices on files under `folder`.
pub fn loops_under(folder: &Path) -> Vec<PathBuf> {
    let Ok(devices) = fs::read_dir("/sys/block") else {
        return Vec::new();
    };
    devices
        .map(|entry| entry.unwrap())
        .filter(|entry| {
            fs::read_to_string(entry.path().join("loop/backing_file"))
                .is_ok_and(|file| Path::new(file.trim()).starts_with(folder))
        })
        .map(|entry| Path::new("/dev").join(entry.file_name()))
        .collect()
}

/// Processes with `folder` in an argument, apart from this one.
pub fn processes_naming(folder: &Path) -> Vec<Pid> {
    let needle = folder.to_str().unwrap();
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| {
            let id: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let arguments = fs::read(format!("/proc/{id}/cmdline")).ok()?;
            String::from_utf8_lossy(&arguments)
                .contains(needle)
                .then(|| Pid::from_raw(id))
                .flatten()
        })
        .filter(|id| *id != rustix::process::getpid())
        .collect()
}
