//! Whether two paths lead to the same storage: by another name, a hard link, a
//! loop device over the file, or a disk and its partition.

use std::fs::Metadata;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use xtent_export::mountinfo::{self, Entry};
use xtent_store::loopdev::{Attached, attached};

use crate::disk::{rbd, uri};
use crate::failure::{Exit, Failure, Result};

/// Devices stacked on each other, at most; ends a loop that cannot be.
const DEEPEST: u32 = 16;
/// The kernel's number for loop devices.
#[cfg(feature = "device-mapper")]
const LOOP_MAJOR: u32 = 7;

/// A file or block device, whatever path leads to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Identity {
    File { device: u64, inode: u64 },
    BlockDevice { number: u64 },
}

impl Identity {
    fn of(metadata: &Metadata) -> Self {
        if metadata.file_type().is_block_device() {
            Self::BlockDevice {
                number: metadata.rdev(),
            }
        } else {
            Self::File {
                device: metadata.dev(),
                inode: metadata.ino(),
            }
        }
    }
}

/// Whether writing to one of them changes the other, as far as the system
/// tells. Two partitions of one disk do not; what cannot be looked at is
/// nothing that could be opened either. Two URIs are one export if they say the same, two
/// names of images one image if they differ only in how to get there.
pub(crate) fn share_storage(a: &Path, b: &Path) -> bool {
    if let (Ok(Some(a)), Ok(Some(b))) = (uri(a), uri(b)) {
        return a == b;
    }
    if rbd::are_same(a, b) {
        return true;
    }
    match (a.metadata(), b.metadata()) {
        (Ok(a), Ok(b)) => is_shared(&a, &b),
        _ => false,
    }
}

/// The same of what has been looked at already.
pub(crate) fn is_shared(a: &Metadata, b: &Metadata) -> bool {
    let (a, b) = (Identity::of(a), Identity::of(b));
    lies_on(a, b, DEEPEST) || lies_on(b, a, DEEPEST)
}

/// Whether `upper` is `lower`, or is made of it.
fn lies_on(upper: Identity, lower: Identity, depth: u32) -> bool {
    upper == lower
        || depth > 0
            && below(upper)
                .into_iter()
                .any(|next| lies_on(next, lower, depth - 1))
}

/// Whether the file system of `path` lies on the block device `number`, as far as its number tells: btrfs and
/// others have numbers of no device.
#[cfg(feature = "device-mapper")]
pub(crate) fn lies_on_device(path: &Path, number: u64) -> bool {
    let on = |metadata: Metadata| Identity::BlockDevice {
        number: metadata.dev(),
    };
    let lower = Identity::BlockDevice { number };
    path.metadata()
        .is_ok_and(|metadata| lies_on(on(metadata), lower, DEEPEST))
}

/// Whether `path` is the block device `number`, or one that is made of it.
#[cfg(feature = "device-mapper")]
pub(crate) fn is_made_of(path: &Path, number: u64) -> bool {
    path.metadata().is_ok_and(|metadata| {
        let lower = Identity::BlockDevice { number };
        lies_on(Identity::of(&metadata), lower, DEEPEST)
    })
}

/// Whether `path` is the block device `number`, or the image of that if it is a loop device.
#[cfg(feature = "device-mapper")]
pub(crate) fn is_device(path: &Path, number: u64) -> bool {
    let device = Identity::BlockDevice { number };
    let is_loop = rustix::fs::major(number) == LOOP_MAJOR;
    path.metadata().is_ok_and(|metadata| {
        let found = Identity::of(&metadata);
        found == device || is_loop && below(device).contains(&found)
    })
}

/// What a block device is made of; a file is made of nothing that matters here.
fn below(upper: Identity) -> Vec<Identity> {
    let Identity::BlockDevice { number } = upper else {
        return Vec::new();
    };
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let place = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    let mut found = Vec::new();
    // A loop device's file.
    if let Ok(file) = std::fs::read(place.join("loop/backing_file")) {
        let file = file.strip_suffix(b"\n").unwrap_or(&file);
        let file: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(file);
        found.extend(Path::new(file).metadata().ok().map(|m| Identity::of(&m)));
    }
    // A partition's disk.
    if place.join("partition").exists()
        && let Ok(place) = place.canonicalize()
    {
        found.extend(place.parent().and_then(number_in));
    }
    // What the device mapper, or an array, made it of.
    if let Ok(parts) = std::fs::read_dir(place.join("slaves")) {
        found.extend(parts.flatten().filter_map(|part| number_in(&part.path())));
    }
    found
}

/// The device number in sysfs' folder of a device.
fn number_in(place: &Path) -> Option<Identity> {
    let text = std::fs::read_to_string(place.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(Identity::BlockDevice {
        number: rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?),
    })
}

/// Refuses an image with a loop device over some of these bytes, which may be in use: two openers of one
/// file would not know of each other. Of something else than a file nothing is said.
pub(crate) fn refuse_attached(image: &Path, bytes: Range<u64>) -> Result<()> {
    let Ok(file) = image.metadata() else {
        return Ok(());
    };
    if !file.is_file() {
        return Ok(());
    }
    let all = match attached() {
        // Nobody sees a device there.
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        all => all.map_err(|e| Failure::system("cannot look for loop devices in /sys/block", e))?,
    };
    let overlaps = |it: &Attached| it.bytes.start < bytes.end && bytes.start < it.bytes.end;
    let found = all.iter().find(|it| overlaps(it) && has_file(it, &file));
    let Some(Attached { number, .. }) = found else {
        return Ok(());
    };
    Err(Failure::new(
        Exit::Busy,
        format!(
            "{} is attached to /dev/loop{number} already",
            image.display()
        ),
    )
    .advise(format!(
        "`lsblk /dev/loop{number}` shows what uses it. Close that, or give /dev/loop{number}."
    )))
}

/// Whether the loop device is attached to this file.
fn has_file(attached: &Attached, file: &Metadata) -> bool {
    let device = file.dev();
    let device = format!(
        "{}:{}",
        rustix::fs::major(device),
        rustix::fs::minor(device)
    );
    // A server that does not answer would be waited for, and be it for a file that nobody has asked for.
    let is_elsewhere = |it: Entry| waits_for_others(&it.fstype) && it.device != device;
    let mount = mountinfo::holding(&attached.backing).ok().flatten();
    if mount.is_some_and(is_elsewhere) {
        return false;
    }
    match attached.file() {
        Ok(numbers) => numbers == (file.dev(), file.ino()),
        // Another user's: its name tells.
        Err(_) => attached
            .backing
            .metadata()
            .is_ok_and(|backing| Identity::of(&backing) == Identity::of(file)),
    }
}

/// Whether file systems of this type answer when some process, or another machine, does.
fn waits_for_others(fstype: &str) -> bool {
    [
        "fuse", "nfs", "cifs", "smb3", "9p", "ceph", "afs", "virtiofs",
    ]
    .iter()
    .any(|kind| fstype.starts_with(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_names_are_the_same_and_other_files_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("a"), "").unwrap();
        std::fs::write(path("b"), "").unwrap();
        std::fs::hard_link(path("a"), path("hard")).unwrap();
        std::os::unix::fs::symlink(path("a"), path("soft")).unwrap();
        for name in ["a", "hard", "soft"] {
            assert!(share_storage(&path("a"), &path(name)), "{name}");
        }
        for name in ["b", "none"] {
            assert!(!share_storage(&path("a"), &path(name)), "{name}");
        }
        #[cfg(feature = "device-mapper")]
        {
            let device = path("a").metadata().unwrap().dev();
            assert!(lies_on_device(&path("a"), device));
            assert!(!lies_on_device(&path("a"), device + 1));
            assert!(!lies_on_device(&path("none"), device));
            // No image of a loop device that there is not.
            let loop_device = rustix::fs::makedev(LOOP_MAJOR, 0xf_ffff);
            assert!(!is_device(&path("a"), loop_device));
        }
        let share = |a: &str, b: &str| share_storage(Path::new(a), Path::new(b));
        assert!(share("nbd://host/disk", "NBD://host:10809/disk"));
        assert!(!share("nbd://host/disk", "nbd://host/other"));
    }
}
