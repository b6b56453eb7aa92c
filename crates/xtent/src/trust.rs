//! Whether only this user and root have a say in what a path leads to.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Symbolic links on the way to a file, at most: as many as the kernel follows.
const MOST_LINKS: u32 = 40;

/// What others could have made, or can change: the file itself, or a folder or symbolic link on the
/// way to it, from `/` on; none if there is nothing of that. What cannot be looked at counts.
///
/// Owners have to be root or this user; whoever has no number in this user namespace, and shows as
/// `nobody`, can be anybody. Rights of groups do not count: `/usr/local` is its group's on Debian.
pub(crate) fn open_to_others(path: &Path) -> Option<PathBuf> {
    let us = rustix::process::geteuid().as_raw();
    first_open(path, &[0, us])
}

fn first_open(path: &Path, owners: &[u32]) -> Option<PathBuf> {
    let Ok(path) = std::path::absolute(path) else {
        return Some(path.to_owned());
    };
    // Without symbolic links, and not open to others.
    let mut place = PathBuf::from("/");
    let mut ahead = reversed(&path);
    let mut links = 0;
    if !is_closed(&place, owners) {
        return Some(place);
    }
    while let Some(name) = ahead.pop() {
        if name == ".." {
            place.pop();
            continue;
        }
        let next = place.join(name);
        if !is_closed(&next, owners) {
            return Some(next);
        }
        if !next.is_symlink() {
            place = next;
            continue;
        }
        links += 1;
        match next.read_link() {
            Ok(target) if links <= MOST_LINKS => {
                if target.is_absolute() {
                    place = PathBuf::from("/");
                }
                ahead.extend(reversed(&target));
            }
            _ => return Some(next),
        }
    }
    None
}

/// The names in a path, last one first.
fn reversed(path: &Path) -> Vec<OsString> {
    path.components()
        .rev()
        .filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir))
        .map(|part| part.as_os_str().to_owned())
        .collect()
}

/// Whether nobody but its owner, one of `owners`, can change it or replace what is in it.
fn is_closed(path: &Path, owners: &[u32]) -> bool {
    path.symlink_metadata().is_ok_and(|found| {
        // A link has no mode; in a folder like /tmp only the owner of a file can replace it.
        let is_sticky = found.is_dir() && found.mode() & 0o1000 != 0;
        let is_closed = found.is_symlink() || found.mode() & 0o002 == 0 || is_sticky;
        is_closed && owners.contains(&found.uid())
    })
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    struct Bed {
        _scratch: tempfile::TempDir,
        top: PathBuf,
        file: PathBuf,
    }

    /// A file, five folders below a temporary one.
    fn bed() -> Bed {
        let scratch = tempfile::tempdir().unwrap();
        let top = scratch.path().canonicalize().unwrap();
        let deep = top.join("a/b/c/d/e");
        std::fs::create_dir_all(&deep).unwrap();
        let file = deep.join("file");
        std::fs::write(&file, "").unwrap();
        Bed {
            _scratch: scratch,
            top,
            file,
        }
    }

    fn chmod(path: &Path, mode: u32) {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn every_folder_up_to_the_root_counts() {
        let Bed { top, file, .. } = &bed();
        assert_eq!(open_to_others(file), None);
        for name in ["a/b/c/d/e/file", "a/b/c/d/e", "a/b/c", "a"] {
            let open = top.join(name);
            let before = open.metadata().unwrap().mode();
            chmod(&open, 0o777);
            assert_eq!(open_to_others(file).as_deref(), Some(&*open));
            chmod(&open, before & 0o7777);
        }
        assert_eq!(open_to_others(file), None);
        // Whose nobody knows, from the root on.
        assert_eq!(first_open(file, &[u32::MAX]), Some("/".into()));
        let missing = top.join("a/none/file");
        assert_eq!(open_to_others(&missing), Some(top.join("a/none")));
    }

    #[test]
    fn what_is_in_a_sticky_folder_is_its_owners() {
        let Bed { top, file, .. } = &bed();
        chmod(&top.join("a"), 0o1777);
        assert_eq!(open_to_others(file), None);
        // The bit says nothing of a file.
        chmod(file, 0o1666);
        assert_eq!(open_to_others(file).as_deref(), Some(&**file));
    }

    #[test]
    fn links_are_followed_and_their_folders_count() {
        let Bed { top, file, .. } = &bed();
        let other = top.join("other");
        std::fs::create_dir(&other).unwrap();
        symlink(file, other.join("whole")).unwrap();
        symlink("../a/b/../b/c", other.join("part")).unwrap();
        symlink("round", other.join("round")).unwrap();
        let (whole, part) = (other.join("whole"), other.join("part/d/e/file"));
        for path in [&whole, &part] {
            assert_eq!(open_to_others(path), None);
        }
        let round = other.join("round");
        assert_eq!(open_to_others(&round), Some(round));
        // Who can change the link decides what is run.
        chmod(&other, 0o777);
        for path in [&whole, &part] {
            assert_eq!(open_to_others(path).as_deref(), Some(&*other));
        }
        chmod(&other, 0o755);
        chmod(&top.join("a/b"), 0o777);
        for path in [&whole, &part] {
            assert_eq!(open_to_others(path), Some(top.join("a/b")));
        }
    }
}
