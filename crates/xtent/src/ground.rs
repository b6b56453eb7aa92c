//! What a system cannot do without while a block device keeps everybody waiting: its root, this program with the
//! libraries that it needs, swap space.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use xtent_export::mountinfo::{self, Entry};

use crate::same;

/// File systems stacked on each other, at most; ends a loop that cannot be.
const DEEPEST: u32 = 4;

/// What is on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needed {
    /// The file system of `/`.
    Root,
    /// This program, or a library that it was started with.
    Program,
    /// Swap space in use.
    Swap,
}

impl fmt::Display for Needed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Root => "the system's root",
            Self::Program => "this program, or a library of it,",
            Self::Swap => "swap space",
        })
    }
}

/// What lies on the block device `number`, as far as the system tells.
pub(crate) fn needed_on(number: u64) -> Option<Needed> {
    let program = || std::fs::read("/proc/self/maps").map(|maps| mapped(&maps));
    let swap = || std::fs::read("/proc/swaps").map(|swaps| swapped(&swaps));
    let is_on = |path: &PathBuf| stands_on(path, number, DEEPEST);
    if is_on(&PathBuf::from("/")) {
        Some(Needed::Root)
    } else if program().unwrap_or_default().iter().any(is_on) {
        Some(Needed::Program)
    } else if swap()
        .unwrap_or_default()
        .iter()
        .any(|path| same::is_made_of(path, number) || is_on(path))
    {
        Some(Needed::Swap)
    } else {
        None
    }
}

/// Whether the file system of `path` has the device below it.
fn stands_on(path: &Path, number: u64, depth: u32) -> bool {
    if same::lies_on_device(path, number) {
        return true;
    }
    let mount = path.canonicalize().and_then(|it| mountinfo::holding(&it));
    let Ok(Some(mount)) = mount else {
        return false;
    };
    devices(&mount)
        .iter()
        .any(|it| same::is_made_of(it, number))
        || depth > 0
            && folders(&mount)
                .iter()
                .any(|it| stands_on(it, number, depth - 1))
}

/// The block devices of a file system whose number is of none: its source, or several with colons between, and
/// what btrfs has beside that.
fn devices(mount: &Entry) -> Vec<PathBuf> {
    let source = Path::new(&mount.source);
    let mut found = match source.exists() {
        true => vec![source.to_owned()],
        false => parts(mount.source.as_bytes(), b':')
            .map(|it| Path::new(OsStr::from_bytes(it)).to_owned())
            .collect(),
    };
    if mount.fstype == "btrfs" {
        let all = std::fs::read_dir("/sys/fs/btrfs").into_iter().flatten();
        for one in all.flatten() {
            let devices = std::fs::read_dir(one.path().join("devices"));
            let nodes: Vec<PathBuf> = devices
                .into_iter()
                .flatten()
                .flatten()
                .map(|it| Path::new("/dev").join(it.file_name()))
                .collect();
            if nodes.iter().any(|it| same::share_storage(it, source)) {
                found.extend(nodes);
            }
        }
    }
    found
}

/// The folders that an overlay is made of.
fn folders(mount: &Entry) -> Vec<PathBuf> {
    if mount.fstype != "overlay" {
        return Vec::new();
    }
    parts(mount.options.as_bytes(), b',')
        .filter_map(|option| {
            let at = option.iter().position(|&byte| byte == b'=')?;
            let (name, value) = option.split_at(at);
            let is_folder = [&b"lowerdir"[..], b"lowerdir+", b"datadir+", b"upperdir"];
            is_folder.contains(&name).then_some(&value[1..])
        })
        .flat_map(|value| parts(value, b':'))
        .map(|it| Path::new(OsStr::from_bytes(it)).to_owned())
        .collect()
}

fn parts(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    text.split(move |&byte| byte == separator)
        .filter(|part| !part.is_empty())
}

/// The files in /proc/self/maps, behind five fields and blanks.
fn mapped(maps: &[u8]) -> BTreeSet<PathBuf> {
    let file = |line: &[u8]| {
        let at = line.iter().position(|&byte| byte == b'/')?;
        Some(Path::new(OsStr::from_bytes(&line[at..])).to_owned())
    };
    parts(maps, b'\n').filter_map(file).collect()
}

/// The devices and files in /proc/swaps, below its title.
fn swapped(swaps: &[u8]) -> BTreeSet<PathBuf> {
    let name = |line| {
        let name = parts(line, b' ').next()?;
        let name = parts(name, b'\t').next()?;
        let name = mountinfo::unescape(name);
        Some(Path::new(OsStr::from_bytes(&name)).to_owned())
    };
    parts(swaps, b'\n').skip(1).filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(names: &[&str]) -> BTreeSet<PathBuf> {
        names.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn libraries_and_swap_are_found() {
        let maps = b"55d0-55d1 r--p 00000000 fd:00 12 /usr/bin/xtent\n\
            55d1-55d2 rw-p 00000000 00:00 0 [heap]\n\
            7f00-7f01 r-xp 00000000 00:1f 77   /usr/lib/with blank.so\n\
            7f02-7f03 rw-p 00000000 00:00 0 \n";
        assert_eq!(
            mapped(maps),
            paths(&["/usr/bin/xtent", "/usr/lib/with blank.so"])
        );
        let swaps = b"Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
            /dev/dm-1                               partition\t8388604\t0\t-2\n\
            /swap\\040file\t\t\tfile\t\t4\t\t0\t\t-3\n";
        assert_eq!(swapped(swaps), paths(&["/dev/dm-1", "/swap file"]));
        // What runs this has libraries, and they lie somewhere.
        let maps = std::fs::read("/proc/self/maps").unwrap();
        assert!(mapped(&maps).contains(&std::env::current_exe().unwrap()));
    }

    #[test]
    fn file_systems_tell_what_they_are_made_of() {
        let mount = |fstype: &str, source: &str, options: &str| {
            let mut entry = mountinfo::holding(Path::new("/")).unwrap().unwrap();
            entry.fstype = fstype.to_owned();
            entry.source = source.into();
            entry.options = options.into();
            entry
        };
        let several = mount("bcachefs", "/dev/a:/dev/b", "rw");
        assert_eq!(
            devices(&several),
            [Path::new("/dev/a"), Path::new("/dev/b")]
        );
        assert!(folders(&several).is_empty());
        let overlay = mount(
            "overlay",
            "overlay",
            "rw,lowerdir=/a:/b,upperdir=/c,workdir=/d",
        );
        assert_eq!(folders(&overlay), ["/a", "/b", "/c"].map(Path::new));
    }

    #[test]
    fn a_file_stands_on_its_own_device() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let device = dir.path().metadata().unwrap().dev();
        assert!(stands_on(dir.path(), device, DEEPEST));
        assert!(!stands_on(&dir.path().join("none"), device, DEEPEST));
        assert_eq!(needed_on(u64::MAX), None);
    }
}
