//! No room for what a command writes, by a full file system or a limit on the
//! size of files: an error, no half of a file, and the old keys open as before.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};

use xtent_tests::luks::{Container, KEY, Maker, Pbkdf, Shape, add_key, assert_opens, cheap};
use xtent_tests::mount::Cleaner;
use xtent_tests::scratch::{Unchanged, assert_same};
use xtent_tests::xtent::xtent;
use xtent_tests::{Cmd, Scratch, bed, pattern};

/// A file system in memory of 24 MiB; unmounted when dropped.
struct Small {
    folder: PathBuf,
    _cleaner: Cleaner,
    scratch: Scratch,
}

impl Small {
    fn new() -> Self {
        let scratch = Scratch::new();
        let cleaner = Cleaner::new(scratch.path());
        let folder = scratch.folder("small");
        Cmd::peer("mount")
            .args(["-t", "tmpfs", "-o", "size=24m", "tmpfs"])
            .arg(&folder)
            .ok();
        Self {
            folder,
            _cleaner: cleaner,
            scratch,
        }
    }

    /// A LUKS2 volume on it, sparse behind its header.
    fn volume(&self, data: u64) -> Container {
        let container = Container {
            image: self.folder.join("image"),
            key: self.scratch.file("key", KEY),
        };
        let size = Shape::LUKS2.data_offset() + data;
        let file = std::fs::File::create_new(&container.image).unwrap();
        file.set_len(size).unwrap();
        Shape::LUKS2.format(Maker::Xtent, &container.image, &container.key);
        container
    }

    /// Leaves no room.
    fn fill(&self) {
        let mut file = std::fs::File::create_new(self.folder.join("ballast")).unwrap();
        let error = std::io::copy(&mut std::io::repeat(1), &mut file).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    }

    /// What is on it, apart from the ballast.
    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(&self.folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != "ballast")
            .collect();
        names.sort();
        names
    }
}

/// Every command that makes a file, as `run` runs it: in `folder` there is no room.
fn no_file_stays(run: &dyn Fn(Cmd) -> Cmd, folder: &Path, wanted: &str) {
    let scratch = Scratch::new();
    let luks1 = Shape::LUKS1.image(Maker::Cryptsetup, &scratch, 1 << 20);
    luks1.encrypt(&pattern(1 << 20, 31));
    let before = Unchanged::new(&luks1.image);
    let new = folder.join("new");
    let format = xtent()
        .args(["format", "-q", "--size", "4M"])
        .args(cheap(Pbkdf::Pbkdf2, 2))
        .arg("--key-file")
        .args([&luks1.key, &new]);
    let backup = xtent()
        .args(["header", "backup"])
        .args([&luks1.image, &new]);
    let decrypt = xtent()
        .args(["decrypt", "--key-file"])
        .args([&luks1.key, &luks1.image, &new]);
    let convert = xtent()
        .args(["convert", "-q", "--type", "luks2", "--backup"])
        .args([&new, &luks1.image]);
    for command in [format, backup, decrypt, convert] {
        let line = command.line();
        let done = run(command).run();
        done.assert_no_crash();
        assert_eq!(done.code(), Some(4), "{line}: {}", done.text());
        assert!(done.text().contains(wanted), "{line}: {}", done.text());
        assert!(!new.exists(), "{line} left a file");
        before.assert(&line);
    }
    assert_opens(&luks1.image, &luks1.key, true, "after all that");
}

#[test]
fn a_full_file_system_gets_no_half_files() {
    if !bed::is_root("a_full_file_system_gets_no_half_files") {
        return;
    }
    let small = Small::new();
    small.fill();
    no_file_stays(&|command| command, &small.folder, "No space left");
    assert_eq!(small.names(), [""; 0]);
}

#[test]
fn a_limit_on_file_sizes_leaves_no_half_files() {
    let scratch = Scratch::new();
    let limited = |command: Cmd| Cmd::peer("prlimit").arg("--fsize=65536").wrapping(command);
    no_file_stays(&limited, scratch.path(), "too large");
}

/// Keys and headers need no new room; data do.
#[test]
fn a_sparse_volume_on_a_full_file_system_keeps_its_keys() {
    if !bed::is_root("a_sparse_volume_on_a_full_file_system_keeps_its_keys") {
        return;
    }
    let small = Small::new();
    let container = small.volume(32 << 20);
    let data = pattern(1 << 20, 32);
    container.encrypt(&data);
    small.fill();
    let large = small.scratch.file("large", &pattern(16 << 20, 33));
    let done = xtent()
        .args(["encrypt", "--key-file"])
        .args([&container.key, &large, &container.image])
        .run();
    assert_eq!(done.code(), Some(4), "{}", done.text());
    done.says(&["No space left", "incomplete"]);
    assert_opens(&container.image, &container.key, true, "after encrypt");

    let other = small.scratch.file("other", b"other");
    add_key(2, &container.image, &container.key, &other).ok();
    assert_opens(&container.image, &other, true, "a new key");
    assert_opens(&container.image, &container.key, true, "the old key");
    xtent()
        .args(["key", "kill", "-q", "--key-file"])
        .arg(&container.key)
        .arg(&container.image)
        .arg("1")
        .ok();
    // The first key is pbkdf2: the header can be converted where it is.
    let backup = small.scratch.join("backup");
    xtent()
        .args(["convert", "-q", "--type", "luks1", "--backup"])
        .args([&backup, &container.image])
        .ok();
    assert_opens(&container.image, &container.key, true, "converted");
    // The copy had begun: what it wrote is there, and nothing else changed.
    let start = container.decrypt();
    assert_same(&start[..4096], &pattern(16 << 20, 33)[..4096], "the start");
}
