//! When nobody uses a block device any more.
//!
//! A mounted file system has a claim on its device, wherever it is mounted: in another namespace, a second
//! time, or nowhere any more, while a program that was in it lives on. So have mappings and swap space. Who
//! gets a claim knows that there is none, and that what a file system had to write was written.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::mountinfo::{self, Device};

/// How often the device is looked at that is mounted nowhere in this namespace: at first, since the kernel
/// lets go of it just after it is unmounted, and later.
const SOON: Duration = Duration::from_millis(5);
const LATER: Duration = Duration::from_secs(1);

/// A device that nobody else uses.
pub(super) struct Claim {
    pub(super) file: File,
    /// Whether all that was written to it has reached the disk.
    pub(super) flushed: io::Result<()>,
}

/// Waits until nobody uses the device, nor has it open as far as `nobody_has_it` knows; None if it is gone.
pub(super) fn wait(device: &Device, nobody_has_it: impl Fn() -> bool) -> Option<Claim> {
    // Opened before it is read, so that no change is missed.
    let mounts = File::open("/proc/self/mountinfo").ok();
    let mut pause = SOON;
    loop {
        if let Some(mounts) = &mounts
            && is_mounted(device)
        {
            // The kernel says when mounts have changed.
            let mut changes = [PollFd::new(mounts, PollFlags::PRI)];
            if poll(&mut changes, None).is_ok() {
                pause = SOON;
                continue;
            }
        }
        match claim(&device.path) {
            Ok(file) if nobody_has_it() => {
                let flushed = file.sync_all();
                return Some(Claim { file, flushed });
            }
            Err(Errno::NXIO | Errno::NODEV) => return None,
            // The node alone may be gone.
            Err(Errno::NOENT) if !has_kernel(&device.path) => return None,
            Ok(_) | Err(_) => {}
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LATER);
    }
}

/// Whether the kernel has the device.
fn has_kernel(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    Path::new("/sys/class/block").join(name).exists()
}

fn is_mounted(device: &Device) -> bool {
    mountinfo::all().is_ok_and(|entries| entries.iter().any(|entry| entry.is_on(device)))
}

/// The device for this process alone; [`Errno::BUSY`] where a file system has it.
pub(super) fn claim(path: &Path) -> Result<File, Errno> {
    let flags = i32::try_from(OFlags::EXCL.bits()).unwrap_or_default();
    let opened = File::options().read(true).custom_flags(flags).open(path);
    opened.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}
