//! How much memory there is to take, from `/proc/meminfo` and the control
//! groups that this process is in.

use std::fs;
use std::path::{Path, PathBuf};

/// KiB of physical memory.
pub(super) fn physical_kib() -> Option<u64> {
    meminfo_field(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal")
}

/// KiB that can be had now: what the kernel calls available, and free swap,
/// within the limits of the control groups. `None` if nobody knows.
pub(super) fn free_kib() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok();
    let system = meminfo.as_deref().and_then(|meminfo| {
        let swap = meminfo_field(meminfo, "SwapFree").unwrap_or(0);
        Some(meminfo_field(meminfo, "MemAvailable")?.saturating_add(swap))
    });
    [system, control_group_kib()].into_iter().flatten().min()
}

/// KiB of memory, not swap, that can be had now.
pub(super) fn free_ram_kib() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok();
    let system = meminfo
        .as_deref()
        .and_then(|meminfo| meminfo_field(meminfo, "MemAvailable"));
    [system, control_group_kib()].into_iter().flatten().min()
}

/// A field of `/proc/meminfo`, in KiB.
fn meminfo_field(meminfo: &str, name: &str) -> Option<u64> {
    meminfo
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

/// The least that any of this process's control groups leaves.
fn control_group_kib() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mut least = None;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let (mount, files) = if controllers.is_empty() {
            ("/sys/fs/cgroup", VERSION_2)
        } else if controllers.split(',').any(|name| name == "memory") {
            ("/sys/fs/cgroup/memory", VERSION_1)
        } else {
            continue;
        };
        // Every ancestor limits too. Inside a container the path may not
        // exist; then the mount itself is the container's own group.
        let mut group = PathBuf::from(mount);
        group.extend(Path::new(path).components().skip(1));
        for group in group
            .ancestors()
            .take_while(|group| group.starts_with(mount))
        {
            if let Some(left) = left_in_group(group, &files) {
                least = Some(least.map_or(left, |least: u64| least.min(left)));
            }
        }
    }
    least.map(|bytes| bytes / 1024)
}

/// The files of a control group that matter here.
struct Files {
    limit: &'static str,
    usage: &'static str,
    /// Page cache that the kernel gives up first, in `memory.stat`.
    cache: &'static str,
}

const VERSION_2: Files = Files {
    limit: "memory.max",
    usage: "memory.current",
    cache: "inactive_file ",
};

const VERSION_1: Files = Files {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    cache: "total_inactive_file ",
};

/// Bytes left in one group; `None` without a limit.
fn left_in_group(group: &Path, files: &Files) -> Option<u64> {
    let number = |name: &str| -> Option<u64> {
        fs::read_to_string(group.join(name))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    // "max" does not parse: no limit.
    let limit = number(files.limit)?;
    let usage = number(files.usage)?;
    let cache = fs::read_to_string(group.join("memory.stat"))
        .ok()
        .and_then(|stat| {
            stat.lines()
                .find_map(|line| line.strip_prefix(files.cache)?.parse().ok())
        })
        .unwrap_or(0);
    Some(limit.saturating_sub(usage.saturating_sub(cache)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_read_by_whole_names() {
        let meminfo = "MemTotal:       24683000 kB\nSwapFreeX: 1 kB\nSwapFree:   7 kB\nBroken:\n";
        assert_eq!(meminfo_field(meminfo, "MemTotal"), Some(24_683_000));
        assert_eq!(meminfo_field(meminfo, "SwapFree"), Some(7));
        assert_eq!(meminfo_field(meminfo, "Mem"), None);
        assert_eq!(meminfo_field(meminfo, "Broken"), None);
    }

    #[test]
    fn a_group_leaves_its_limit_less_what_is_used_and_not_cache() {
        let group = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| fs::write(group.path().join(name), text).unwrap();
        put("memory.max", "max\n");
        put("memory.current", "3000\n");
        assert_eq!(left_in_group(group.path(), &VERSION_2), None);
        put("memory.max", "10000\n");
        assert_eq!(left_in_group(group.path(), &VERSION_2), Some(7000));
        put("memory.stat", "anon 1\ninactive_file 500\n");
        assert_eq!(left_in_group(group.path(), &VERSION_2), Some(7500));
        put("memory.max", "1000\n");
        assert_eq!(left_in_group(group.path(), &VERSION_2), Some(0));
    }

    #[test]
    fn this_machine_has_memory() {
        let physical = physical_kib().unwrap();
        let free = free_ram_kib().unwrap();
        assert!(free > 0 && free <= physical);
        assert!(free_kib().unwrap() > 0);
    }
}
