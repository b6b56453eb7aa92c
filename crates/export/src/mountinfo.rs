//! What is mounted where, from `/proc/self/mountinfo` (proc_pid_mountinfo(5)).

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Unique while it is mounted.
    pub(crate) id: u64,
    /// The mount under it.
    parent: u64,
    /// `major:minor` of the file system's device.
    pub device: String,
    /// The folder that it is mounted on.
    pub(crate) point: PathBuf,
    /// File system type, `fuse.xtent`.
    pub fstype: String,
    /// What `mount` was given as its source.
    pub source: OsString,
    /// The file system's own options, with commas between.
    pub options: OsString,
}

/// A block device, as mounts of it show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Device {
    /// Its node in `/dev`.
    pub(crate) path: PathBuf,
    /// `major:minor`.
    pub(crate) id: String,
}

impl Device {
    /// `/dev/loopN`.
    pub(crate) fn of_loop(number: u32) -> Self {
        Self {
            path: PathBuf::from(format!("/dev/loop{number}")),
            id: format!("7:{number}"),
        }
    }
}

/// Every mount in this process's namespace.
pub(crate) fn all() -> io::Result<Vec<Entry>> {
    Ok(parse(&std::fs::read("/proc/self/mountinfo")?))
}

/// The mount that a path lookup of `dir` ends in, if `dir` is a mount point.
pub(crate) fn at(dir: &Path) -> io::Result<Option<Entry>> {
    Ok(topmost(all()?, dir))
}

/// The mount that a file or folder lies on, by its path without symbolic links.
///
/// # Errors
/// There is no `/proc`.
pub fn holding(path: &Path) -> io::Result<Option<Entry>> {
    Ok(above(&all()?, path))
}

fn above(entries: &[Entry], path: &Path) -> Option<Entry> {
    path.ancestors()
        .find_map(|dir| topmost(entries.to_vec(), dir))
}

/// The one of several mounts on one point that no other lies upon.
fn topmost(entries: Vec<Entry>, dir: &Path) -> Option<Entry> {
    let here: Vec<Entry> = entries.into_iter().filter(|e| e.point == dir).collect();
    here.iter()
        .find(|e| !here.iter().any(|over| over.parent == e.id))
        .cloned()
}

fn parse(text: &[u8]) -> Vec<Entry> {
    text.split(|&b| b == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Entry> {
    let fields: Vec<&[u8]> = line.split(|&b| b == b' ').collect();
    // Optional fields end with a lone "-"; there are six fields before them.
    let dash = 6 + fields.get(6..)?.iter().position(|f| *f == b"-")?;
    let number = |i: usize| std::str::from_utf8(fields.get(i)?).ok()?.parse().ok();
    let text = |i: usize| Some(String::from_utf8_lossy(&unescape(fields.get(i)?)).into_owned());
    Some(Entry {
        id: number(0)?,
        parent: number(1)?,
        device: text(2)?,
        point: PathBuf::from(OsString::from_vec(unescape(fields.get(4)?))),
        fstype: text(dash + 1)?,
        source: OsString::from_vec(unescape(fields.get(dash + 2)?)),
        options: OsString::from_vec(unescape(fields.get(dash + 3)?)),
    })
}

/// Undoes the kernel's `\ooo` for blanks, newlines and backslashes.
pub fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let octal = tail
            .get(..3)
            .filter(|_| first == b'\\')
            .and_then(|d| std::str::from_utf8(d).ok())
            .and_then(|d| u8::from_str_radix(d, 8).ok());
        match octal {
            Some(byte) => {
                out.push(byte);
                rest = &tail[3..];
            }
            None => {
                out.push(first);
                rest = tail;
            }
        }
    }
    out
}

impl Entry {
    /// Whether it is a file system on the block device. File systems with
    /// anonymous devices (btrfs) show it only as their source.
    pub(crate) fn is_on(&self, device: &Device) -> bool {
        self.device == device.id || self.source == device.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_what_the_kernel_prints() {
        let text = b"36 35 98:0 / /mnt1 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n\
            40 36 0:53 / /mnt\\040with\\134odd\\012name rw - fuse.xtent /dev/sd\\040b rw\n\
            41 27 7:3 /sub /x rw shared:2 master:4 propagate_from:1 - ext4 /dev/loop3 rw\n\
            broken line\n\n";
        let entries = parse(text);
        assert_eq!(entries.len(), 3);
        assert_eq!((entries[0].id, entries[0].fstype.as_str()), (36, "ext3"));
        assert_eq!(entries[1].point, Path::new("/mnt with\\odd\nname"));
        assert_eq!(entries[1].source, "/dev/sd b");
        assert!(entries[2].is_on(&Device::of_loop(3)));
        assert!(!entries[2].is_on(&Device::of_loop(30)));
    }

    #[test]
    fn topmost_of_a_stack() {
        // Newer kernels list mounts by number, not in mounting order.
        let text = b"50 60 0:1 / /m rw - tmpfs upper rw\n\
            60 27 0:2 / /m rw - tmpfs lower rw\n\
            70 27 0:3 / /other rw - tmpfs x rw\n";
        assert_eq!(
            topmost(parse(text), Path::new("/m")).unwrap().source,
            "upper"
        );
        assert_eq!(topmost(parse(text), Path::new("/n")), None);
    }

    #[test]
    fn a_path_is_on_the_nearest_mount_above_it() {
        let text = b"20 1 0:1 / / rw - btrfs /dev/dm-0 rw,subvol=/\n\
            21 20 0:2 / /usr rw - overlay overlay rw,lowerdir=/a:/b\n";
        let of = |path: &str| above(&parse(text), Path::new(path)).unwrap();
        assert_eq!(of("/").source, "/dev/dm-0");
        assert_eq!(of("/usrx/lib").source, "/dev/dm-0");
        assert_eq!(of("/usr").options, "rw,lowerdir=/a:/b");
        assert_eq!(of("/usr/lib/x").fstype, "overlay");
    }

    #[test]
    fn unescape_keeps_what_is_no_escape() {
        assert_eq!(unescape(b"a\\04"), b"a\\04");
        assert_eq!(unescape(b"\\777\\x"), b"\\777\\x");
        assert_eq!(unescape(b"\\\\040"), b"\\ ");
    }

    #[test]
    fn reads_the_real_table() {
        assert!(at(Path::new("/proc")).unwrap().is_some());
    }
}
