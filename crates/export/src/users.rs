//! Who keeps a mount point busy.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::mountinfo;

/// How many are named; the rest is counted.
const NAMED: usize = 5;

/// Tries to unmount what is busy with somebody who is gone soon: nobody is seen (another
/// `umount` only looked in, asking who uses what), or somebody is and does not stay (a
/// process that was forked has every open file until it runs its program).
#[derive(Default)]
pub(crate) struct Patience {
    tries: u32,
    /// Looks in a row that found somebody.
    seen: u32,
}

impl Patience {
    const MOST: u32 = 20;
    const STAYS: u32 = 4;
    const PAUSE: Duration = Duration::from_millis(50);

    /// Whether to try again to unmount `dir`; waits a little before.
    pub(crate) fn is_worth_it(&mut self, dir: &Path) -> bool {
        self.tries += 1;
        self.seen = if of(dir).is_empty() { 0 } else { self.seen + 1 };
        if self.tries == Self::MOST || self.seen == Self::STAYS {
            return false;
        }
        std::thread::sleep(Self::PAUSE);
        true
    }
}

/// A text for people: the processes with files open, or working, under `dir`,
/// and file systems mounted there. Goes by the names in `/proc` alone, never
/// touches the file system itself, which may be dead. Empty if nobody is seen.
pub(crate) fn of(dir: &Path) -> String {
    let mut users = Vec::new();
    for mount in mountinfo::all().unwrap_or_default() {
        if mount.point != dir && mount.point.starts_with(dir) {
            users.push(format!("the mount on {}", mount.point.display()));
        }
    }
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let path = process.path();
        let pid = process.file_name();
        let is_number = pid.to_str().is_some_and(|p| p.parse::<u32>().is_ok());
        if is_number && uses(&path, dir) {
            let name = std::fs::read_to_string(path.join("comm")).unwrap_or_default();
            users.push(format!("{} (process {})", name.trim(), pid.display()));
        }
    }
    let more = users.len().saturating_sub(NAMED);
    users.truncate(NAMED);
    let mut text = users.join(", ");
    if more > 0 {
        text += &format!(" and {more} more");
    }
    text
}

fn uses(process: &Path, dir: &Path) -> bool {
    let links = ["cwd", "root", "exe"].map(|l| process.join(l));
    let open = std::fs::read_dir(process.join("fd"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.path());
    links
        .into_iter()
        .chain(open)
        .filter_map(|link| std::fs::read_link(link).ok())
        .any(|target: PathBuf| target.starts_with(dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_this_process() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        assert_eq!(of(&dir), "");
        let _file = std::fs::File::create(dir.join("f")).unwrap();
        let text = of(&dir);
        assert!(
            text.contains(&format!("(process {})", std::process::id())),
            "{text}"
        );
    }

    #[test]
    fn patience_is_for_those_who_do_not_stay() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let mut patience = Patience::default();
        assert!(patience.is_worth_it(&dir));
        for _ in 1..Patience::STAYS {
            let _file = std::fs::File::create(dir.join("f")).unwrap();
            assert!(patience.is_worth_it(&dir));
        }
        assert!(patience.is_worth_it(&dir), "nobody is there any more");
        let file = std::fs::File::create(dir.join("f")).unwrap();
        for _ in 1..Patience::STAYS {
            assert!(patience.is_worth_it(&dir));
        }
        assert!(!patience.is_worth_it(&dir));
        drop(file);
        // Nor is it without end.
        patience.tries = Patience::MOST - 1;
        assert!(!patience.is_worth_it(&dir));
    }
}
