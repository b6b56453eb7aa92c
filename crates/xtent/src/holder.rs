//! Who has a device or image, for the error that somebody has.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use xtent_store::Place;

use crate::output::text_of;
use crate::probe::shell_word;
use crate::registry::{self, Entry, Kind, Listed};

/// How many are named.
const NAMED: usize = 3;

/// What uses the file or export, or the partition that begins at byte `start` of it, and what
/// to do about it, where that can be found out: users see their own processes only.
pub(crate) fn of(place: &Place, start: Option<u64>) -> Option<(String, String)> {
    // Who is connected to a server or cluster is known of our own processes only.
    let (pids, device) = match place {
        Place::Path(path) => {
            let path = path.canonicalize().ok()?;
            (processes_with(&path), text_of(&path))
        }
        Place::Uri(name) | Place::Image(name) => (Vec::new(), name.to_string()),
    };
    let is_named = |entry: &Entry| entry.device == device;
    // Root sees every process, and what other users say of theirs; others see only what
    // they have said themselves, and of their own servers not the descriptors.
    let knows_all = place.path().is_some() && rustix::process::geteuid().is_root();
    let is_it = |listed: &Listed| {
        let Entry { pid, partition, .. } = listed.entry;
        let has_it = pids.contains(&pid);
        // Another partition is not in the way.
        let is_in_the_way =
            start.is_none() || partition.is_none() || start == Some(listed.entry.start);
        // Who waits for it has it not.
        let has_any = listed.is_alive && listed.entry.kind != Kind::Standby;
        has_any && is_in_the_way && (has_it || !knows_all && is_named(&listed.entry))
    };
    let mut known: Vec<Listed> = registry::list().into_iter().filter(is_it).collect();
    // A server has others, too.
    known.sort_by_key(|listed| !is_named(&listed.entry));
    let is_one_of_many = known.len() > 1 && !known.iter().any(|it| is_named(&it.entry));
    let known = known.into_iter().next();
    if let Some(listed) = known.as_ref().filter(|_| is_one_of_many) {
        let pid = listed.entry.pid;
        return Some((
            format!("`xtent serve` (process {pid})"),
            format!(
                "`xtent status` shows what it serves, and `xtent detach --server {pid} NAME` \
                 ends that, after a flush."
            ),
        ));
    }
    if let Some(listed) = known {
        return Some(of_ours(&listed.entry));
    }
    let mut names = named(&pids);
    let more = names.len().saturating_sub(NAMED);
    names.truncate(NAMED);
    if names.is_empty() {
        return None;
    }
    let mut users = names.join(", ");
    if more > 0 {
        users += &format!(" and {more} more");
    }
    Some((users, "End that first.".to_owned()))
}

fn of_ours(entry: &Entry) -> (String, String) {
    let pid = entry.pid;
    let (who, end) = match (entry.kind, &entry.mount_point, entry.uris.first()) {
        (Kind::Mount, Some(dir), _) => (
            format!("`xtent mount` on {dir} (process {pid})"),
            format!("`xtent umount {}` ends that", shell_word(Path::new(dir))),
        ),
        (Kind::Ublk, ..) => {
            let name = entry.name.as_deref().unwrap_or_default();
            (
                format!("`xtent open --ublk {name}` (process {pid})"),
                format!("`xtent close {name}` ends that"),
            )
        }
        (_, _, Some(uri)) => (
            format!("`xtent serve` at {uri} (process {pid})"),
            match entry.export.as_deref() {
                None | Some("") => format!("`kill {pid}` ends that, after a flush"),
                Some(name) => format!(
                    "`xtent detach --server {pid} {}` ends that, after a flush",
                    shell_word(Path::new(name))
                ),
            },
        ),
        _ => (
            format!("xtent (process {pid})"),
            format!("`kill {pid}` ends that"),
        ),
    };
    if entry.read_only {
        // Two readers are no conflict: here somebody wants to write.
        (
            format!("{who}, which only reads"),
            format!("{end}; or read only here as well (--read-only), where the command can."),
        )
    } else {
        (who, format!("{end}."))
    }
}

/// Processes as a person is told of them.
pub(crate) fn named(pids: &[u32]) -> Vec<String> {
    let name = |pid: &u32| {
        let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        format!("{} (process {pid})", comm.trim())
    };
    pids.iter().map(name).collect()
}

/// Processes, other than this one, that have it open.
pub(crate) fn processes_with(path: &Path) -> Vec<u32> {
    let Ok(wanted) = path.metadata() else {
        return Vec::new();
    };
    let is_same = |found: std::fs::Metadata| {
        if wanted.file_type().is_block_device() {
            found.file_type().is_block_device() && found.rdev() == wanted.rdev()
        } else {
            (found.dev(), found.ino()) == (wanted.dev(), wanted.ino())
        }
    };
    let entries = |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten();
    entries(Path::new("/proc"))
        .filter_map(|process| {
            let pid: u32 = process.file_name().to_str()?.parse().ok()?;
            let has_it = pid != std::process::id()
                && entries(&process.path().join("fd"))
                    .filter_map(|fd| std::fs::metadata(fd.path()).ok())
                    .any(is_same);
            has_it.then_some(pid)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_another_process_but_not_this() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(of(&file.path().into(), None), None);
        let mut other = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .stdout(file.reopen().unwrap())
            .spawn()
            .unwrap();
        let found = of(&file.path().into(), None);
        drop(other.stdin.take());
        other.wait().unwrap();
        // The name it has before it becomes `cat` is this process's.
        let (who, advice) = found.unwrap();
        assert!(who.ends_with(&format!("(process {})", other.id())), "{who}");
        assert_eq!(advice, "End that first.");
    }
}
