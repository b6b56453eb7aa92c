//! `xtent mount`: the volume as a file, and as a mounted file system.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use xtent_tests::luks::{Container, Maker, Shape};
use xtent_tests::mount::{
    Cleaner, loops_under, make_ext4, mount, mounts_under, processes_naming, umount,
};
use xtent_tests::scratch::assert_same;
use xtent_tests::xtent::xtent;
use xtent_tests::{Cmd, PATIENCE, Scratch, bed, pattern};

/// The daemon that serves an image.
fn daemon(container: &Container) -> Pid {
    let found = processes_naming(&container.image);
    assert_eq!(found.len(), 1, "one daemon: {found:?}");
    found[0]
}

/// No mount, loop device or daemon is left. The daemon's last moments may
/// still be under way when `umount` has returned; the rest may not.
fn assert_nothing_left(scratch: &Scratch) {
    assert_eq!(mounts_under(scratch.path()), Vec::<PathBuf>::new());
    assert_eq!(loops_under(scratch.path()), Vec::<PathBuf>::new());
    wait_for_end(scratch.path());
}

/// Waits for the daemon that names `path`; it is no child of this process.
fn wait_for_end(path: &Path) {
    let end = Instant::now() + PATIENCE;
    while !processes_naming(path).is_empty() {
        assert!(Instant::now() < end, "the daemon does not end");
        std::thread::yield_now();
    }
}

/// A volume with an ext4 file system on it, made through the FUSE file.
fn with_ext4(shape: Shape, scratch: &Scratch) -> Container {
    let container = shape.image(Maker::Xtent, scratch, 32 << 20);
    make_ext4(&container, scratch, &["-b", "4096"]);
    container
}

/// Files of many sizes, in folders.
fn fill(folder: &Path, seed: u64) -> Vec<(PathBuf, Vec<u8>)> {
    let sizes = [0, 1, 511, 4096, 4097, 65_536, 100_001, 3 << 20];
    sizes
        .iter()
        .zip(seed..)
        .map(|(size, seed)| {
            let path = folder.join(format!("folder-{}/file-{size}", size % 3));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let data = pattern(*size, seed);
            let mut file = File::create(&path).unwrap();
            file.write_all(&data).unwrap();
            (path, data)
        })
        .collect()
}

fn assert_files(files: &[(PathBuf, Vec<u8>)]) {
    for (path, data) in files {
        assert_same(&fs::read(path).unwrap(), data, &path.display().to_string());
    }
}

#[test]
fn a_file_system_survives_umount_and_remount() {
    if !bed::has_fuse("a_file_system_survives_umount_and_remount")
        || !bed::has_loop("a_file_system_survives_umount_and_remount")
    {
        return;
    }
    for shape in [Shape::LUKS1, Shape::LUKS2, Shape::LUKS2_4096] {
        let scratch = Scratch::new();
        let _cleaner = Cleaner::new(scratch.path());
        let container = with_ext4(shape, &scratch);
        assert_nothing_left(&scratch);
        let folder = scratch.folder("mnt");
        mount(&container, &folder, &[]).ok();
        assert!(mounts_under(scratch.path()).contains(&folder));
        let files = fill(&folder, 71);
        umount(&folder).ok();
        assert_nothing_left(&scratch);
        assert!(fs::read_dir(&folder).unwrap().next().is_none());

        mount(&container, &folder, &[]).ok();
        assert_files(&files);
        let more = fill(&folder.join("more"), 171);
        umount(&folder).ok();
        mount(&container, &folder, &["--read-only"]).ok();
        assert_files(&files);
        assert_files(&more);
        assert!(File::create(folder.join("new")).is_err());
        umount(&folder).ok();
        assert_nothing_left(&scratch);
        // A consistent file system, in e2fsck's opinion.
        let plain = scratch.file("plain", &container.decrypt());
        Cmd::peer("e2fsck").args(["-f", "-n"]).arg(plain).ok();
    }
}

#[test]
fn the_volume_as_one_file() {
    if !bed::has_fuse("the_volume_as_one_file") {
        return;
    }
    for shape in [Shape::LUKS1, Shape::LUKS2_4096] {
        let scratch = Scratch::new();
        let _cleaner = Cleaner::new(scratch.path());
        let container = shape.image(Maker::Cryptsetup, &scratch, 4 << 20);
        let folder = scratch.folder("mnt");
        mount(&container, &folder, &["--file-only"]).ok();
        let path = folder.join("volume");
        assert_eq!(fs::metadata(&path).unwrap().len(), 4 << 20);
        let mut data = pattern(4 << 20, 72);
        let file = File::options().read(true).write(true).open(&path).unwrap();
        file.write_all_at(&data, 0).unwrap();
        // Odd ranges.
        for (at, len) in [(0, 1), (511, 2), (4095, 8194), (1_000_001, 70_001)] {
            data[at..at + len].fill(0x5a);
            file.write_all_at(&data[at..at + len], at as u64).unwrap();
        }
        file.sync_all().unwrap();
        // It neither grows nor shrinks.
        assert!(file.write_all_at(b"x", 4 << 20).is_err());
        assert_eq!(fs::metadata(&path).unwrap().len(), 4 << 20);
        // Zeroed ranges are zero.
        rustix::fs::fallocate(
            &file,
            rustix::fs::FallocateFlags::ZERO_RANGE,
            2_000_001,
            100_000,
        )
        .unwrap();
        data[2_000_001..2_100_001].fill(0);
        assert_same(&fs::read(&path).unwrap(), &data, "through the file");
        drop(file);
        umount(&folder).ok();
        assert_nothing_left(&scratch);
        assert_same(&container.decrypt(), &data, "after umount");
    }
}

#[test]
fn a_killed_daemon_is_cleaned_up_after() {
    let test = "a_killed_daemon_is_cleaned_up_after";
    if !bed::has_fuse(test) || !bed::has_loop(test) {
        return;
    }
    for by_umount in [true, false] {
        let scratch = Scratch::new();
        let _cleaner = Cleaner::new(scratch.path());
        let container = with_ext4(Shape::LUKS2, &scratch);
        let folder = scratch.folder("mnt");
        mount(&container, &folder, &[]).ok();
        let files = fill(&folder, 73);
        for (path, _) in &files {
            File::open(path).unwrap().sync_all().unwrap();
        }
        let id = daemon(&container);
        // Its arguments vanish from /proc before its locks do: this waits for
        // the end of the process itself.
        let process = pidfd_open(id, PidfdFlags::empty()).unwrap();
        kill_process(id, Signal::KILL).unwrap();
        let limit = Timespec::try_from(PATIENCE).unwrap();
        let ended = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit));
        assert_eq!(ended, Ok(1), "the daemon does not end");
        // Either command takes the wreck away.
        if by_umount {
            umount(&folder).run().assert_no_crash();
            assert_nothing_left(&scratch);
        }
        mount(&container, &folder, &[]).ok();
        assert_files(&files);
        umount(&folder).ok();
        assert_nothing_left(&scratch);
    }
}

#[test]
fn mount_points_that_are_taken() {
    let test = "mount_points_that_are_taken";
    if !bed::has_fuse(test) || !bed::has_loop(test) {
        return;
    }
    let scratch = Scratch::new();
    let _cleaner = Cleaner::new(scratch.path());
    let container = with_ext4(Shape::LUKS2, &scratch);
    let folder = scratch.folder("mnt");
    let other = scratch.folder("other");
    mount(&container, &folder, &[]).ok();
    let files = fill(&folder, 74);

    // The same again, the same volume elsewhere, another volume here.
    mount(&container, &folder, &[]).fails(5);
    mount(&container, &other, &[]).fails(5);
    let second = Shape::LUKS1.image(Maker::Xtent, &scratch, 1 << 20);
    mount(&second, &folder, &["--file-only"]).fails(5);
    assert_files(&files);

    // In use: nothing is torn away.
    let open = File::open(&files[3].0).unwrap();
    umount(&folder).fails(5).says(&[folder.to_str().unwrap()]);
    assert_files(&files);
    drop(open);
    umount(&folder).ok();
    assert_nothing_left(&scratch);

    // Places that are none.
    for place in [scratch.join("missing"), container.key.clone()] {
        let done = mount(&container, &place, &[]).run();
        done.assert_no_crash();
        assert!(matches!(done.code(), Some(1 | 4)), "{}", done.text());
        done.says(&[place.to_str().unwrap()]);
    }
    // Nothing is mounted here.
    let done = umount(&other).run();
    assert!(matches!(done.code(), Some(1 | 4)), "{}", done.text());
    assert_nothing_left(&scratch);
}

/// A volume without a file system: a clear error, and nothing stays behind.
#[test]
fn a_volume_without_a_file_system() {
    let test = "a_volume_without_a_file_system";
    if !bed::has_fuse(test) || !bed::has_loop(test) {
        return;
    }
    let scratch = Scratch::new();
    let _cleaner = Cleaner::new(scratch.path());
    let container = Shape::LUKS2.image(Maker::Xtent, &scratch, 4 << 20);
    let folder = scratch.folder("mnt");
    let done = mount(&container, &folder, &[]).run();
    done.assert_no_crash();
    assert_ne!(done.code(), Some(0), "{}", done.text());
    assert!(!done.stderr.is_empty());
    assert_nothing_left(&scratch);
    // Nor is the lock kept.
    container.encrypt(&[1; 512]);
}

/// SIGHUP: the file and the loop device have the size that the image has by then,
/// while they are in use, and the file system can take it.
#[test]
fn a_mounted_volume_grows_with_its_image() {
    if !bed::has_loop("a_mounted_volume_grows_with_its_image") {
        return;
    }
    let scratch = Scratch::new();
    let _cleaner = Cleaner::new(scratch.path());
    let container = with_ext4(Shape::LUKS2_4096, &scratch);
    let grow = |size: u64| {
        let image = File::options().write(true).open(&container.image).unwrap();
        image
            .set_len(Shape::LUKS2_4096.data_offset() + size)
            .unwrap();
        kill_process(daemon(&container), Signal::HUP).unwrap();
    };
    let folder = scratch.folder("mnt");
    let told = mount(&container, &folder, &["--json"]).ok().json();
    let files = fill(&folder, 76);
    let device = told["loop_device"].as_str().unwrap();
    let sectors = Path::new("/sys/block").join(&device[5..]).join("size");
    let size = || {
        fs::read_to_string(&sectors)
            .unwrap()
            .trim()
            .parse::<u64>()
            .unwrap()
            * 512
    };
    assert_eq!(size(), 32 << 20);
    grow(63 << 20);
    while size() != 63 << 20 {
        std::thread::yield_now();
    }
    let image = File::options().write(true).open(&container.image).unwrap();
    image
        .set_len(Shape::LUKS2_4096.data_offset() + (64 << 20))
        .unwrap();
    let resized = xtent().arg("resize").arg(&folder).ok();
    resized.says(&[&format!("resize2fs {device}")]);
    assert_eq!(resized.out().trim(), "64 MiB instead of 63 MiB");
    assert_eq!(size(), 64 << 20);
    assert_files(&files);
    umount(&folder).ok();

    mount(&container, &folder, &["--file-only"]).ok();
    let file = folder.join("volume");
    assert_eq!(fs::metadata(&file).unwrap().len(), 64 << 20);
    grow(65 << 20);
    while fs::metadata(&file).unwrap().len() != 65 << 20 {
        std::thread::yield_now();
    }
    // Of the file: on the device in use it takes a capability that containers
    // do without.
    Cmd::peer("e2fsck").args(["-f", "-y"]).arg(&file).ok();
    Cmd::peer("resize2fs").arg(&file).ok();
    umount(&folder).ok();
    mount(&container, &folder, &[]).ok();
    assert_files(&files);
    let (large, data) = (folder.join("large"), pattern(40 << 20, 77));
    fs::write(&large, &data).unwrap();
    umount(&folder).ok();
    mount(&container, &folder, &[]).ok();
    assert_same(&fs::read(&large).unwrap(), &data, "in what is new");
    umount(&folder).ok();
    assert_nothing_left(&scratch);
}

/// The daemon told to end by a signal unmounts and flushes.
#[test]
fn a_signal_ends_the_daemon() {
    if !bed::has_fuse("a_signal_ends_the_daemon") {
        return;
    }
    let scratch = Scratch::new();
    let _cleaner = Cleaner::new(scratch.path());
    let container = Shape::LUKS2.image(Maker::Xtent, &scratch, 1 << 20);
    let folder = scratch.folder("mnt");
    mount(&container, &folder, &["--file-only"]).ok();
    let data = pattern(1 << 20, 75);
    let file = File::options()
        .write(true)
        .open(folder.join("volume"))
        .unwrap();
    file.write_all_at(&data, 0).unwrap();
    drop(file);
    kill_process(daemon(&container), Signal::TERM).unwrap();
    wait_for_end(&container.image);
    assert_nothing_left(&scratch);
    assert_same(&container.decrypt(), &data, "after the signal");
}
