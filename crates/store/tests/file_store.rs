//! `FileStore` on real files and block devices.
//!
//! Some tests need root, for a small file system to fill and for loop devices.
//! Without it they say so on standard error and check what is left.
#![allow(clippy::unwrap_used, reason = "tests may")]

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use xtent_store::{Access, Error, ErrorKind, FileStore, Store, chain};

fn pattern(len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| u8::try_from((i * 7 + i / 256) % 251).unwrap())
        .collect()
}

fn kind<T>(result: Result<T, Error>) -> ErrorKind {
    match result {
        Ok(_) => panic!("succeeded"),
        Err(error) => {
            assert!(
                chain(&error).to_string().contains(". "),
                "no advice: {error}"
            );
            error.kind
        }
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .unwrap_or_else(|e| panic!("{program}: {e}; install the packages mount and e2fsprogs"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn creates_sparse_private_files_and_never_overwrites() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let store = FileStore::create(&path, 1 << 40).unwrap();
    assert_eq!(store.size(), 1 << 40);
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    assert_eq!(metadata.blocks(), 0);
    assert_eq!(kind(FileStore::create(&path, 1)), ErrorKind::Exists);
    let too_large = dir.path().join("too-large");
    assert_eq!(
        kind(FileStore::create(&too_large, u64::MAX)),
        ErrorKind::NoSpace
    );
    assert!(!too_large.exists());
    let nowhere = dir.path().join("no/image");
    assert_eq!(kind(FileStore::create(&nowhere, 1)), ErrorKind::NotFound);
}

#[test]
fn refuses_what_is_neither_file_nor_block_device() {
    let dir = tempfile::tempdir().unwrap();
    let open = |path: &Path| kind(FileStore::open(path, Access::ReadWrite));
    assert_eq!(open(dir.path()), ErrorKind::Unsupported);
    assert_eq!(open(Path::new("/dev/null")), ErrorKind::Unsupported);
    assert_eq!(open(&dir.path().join("none")), ErrorKind::NotFound);
    let fifo = dir.path().join("fifo");
    run("mkfifo", &[fifo.to_str().unwrap()]);
    // And it does not wait for the other end.
    assert_eq!(open(&fifo), ErrorKind::Unsupported);
    let socket = dir.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    assert_eq!(open(&socket), ErrorKind::Unsupported);
}

#[test]
fn reads_what_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let store = FileStore::create(&path, 1 << 20).unwrap();
    let data = pattern(100_000);
    store.write_at(&data[..50_000], 1001).unwrap();
    store.write_at_durably(&data[50_000..], 51_001).unwrap();
    store.flush().unwrap();
    let mut found = vec![0; data.len()];
    store.read_at(&mut found, 1001).unwrap();
    assert_eq!(found, data);
    found.fill(0);
    // Whether it had to wait depends on the file system.
    if store.try_read_at(&mut found, 1001).unwrap() {
        assert_eq!(found, data);
    }
    found.fill(0);
    let in_memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let store_in_memory = FileStore::create(&in_memory.path().join("image"), 1 << 20).unwrap();
    store_in_memory.write_at(&data, 1001).unwrap();
    assert!(store_in_memory.try_read_at(&mut found, 1001).unwrap());
    assert_eq!(found, data);
    assert_eq!(fs::read(&path).unwrap()[1001..101_001], data);
    assert!(!store.is_block_device());
    assert_eq!(store.path(), path);
    let limits = store.limits();
    assert!(limits.atomic.is_power_of_two() && limits.atomic >= 512);
    assert!(limits.discard.is_power_of_two() && limits.discard >= 512);
}

#[test]
fn ranges_outside_are_errors_and_nothing_grows() {
    let dir = tempfile::tempdir().unwrap();
    let store = FileStore::create(&dir.path().join("image"), 10_000).unwrap();
    let mut buf = [1; 100];
    let outside = ErrorKind::OutOfRange;
    for offset in [
        9901,
        10_000,
        20_000,
        1 << 62,
        (1 << 63) - 50,
        u64::MAX - 50,
        u64::MAX,
    ] {
        assert_eq!(kind(store.read_at(&mut buf, offset)), outside);
        assert!(!store.try_read_at(&mut buf, offset).unwrap_or(false));
        assert_eq!(kind(store.write_at(&buf, offset)), outside);
        assert_eq!(kind(store.write_at_durably(&buf, offset)), outside);
        assert_eq!(kind(store.discard(offset, 100)), outside);
    }
    assert_eq!(kind(store.discard(0, u64::MAX)), outside);
    assert_eq!(store.size(), 10_000);
}

#[test]
fn a_file_truncated_or_grown_under_us_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let store = FileStore::create(&path, 100_000).unwrap();
    store.write_at(&pattern(100_000), 0).unwrap();
    let other = File::options().write(true).open(&path).unwrap();
    other.set_len(50_000).unwrap();
    let mut buf = vec![0; 20_000];
    let error = store.read_at(&mut buf, 40_000).unwrap_err();
    assert_eq!(error.kind, ErrorKind::OutOfRange);
    assert_eq!(error.offset, Some(50_000));
    assert!(!store.try_read_at(&mut buf, 40_000).unwrap_or(false));
    assert_eq!(
        kind(store.write_at(&buf, 60_000)),
        ErrorKind::OutOfRange,
        "a write must not extend the file"
    );
    assert_eq!(fs::metadata(&path).unwrap().len(), 50_000);
    store.read_at(&mut buf, 30_000).unwrap();
    other.set_len(200_000).unwrap();
    assert_eq!(store.size(), 200_000);
    store.write_at(&buf, 180_000).unwrap();
}

#[test]
fn read_only_stores_refuse_writes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    File::create(&path).unwrap().write_all(&[5; 4096]).unwrap();
    let store = FileStore::open(&path, Access::ReadOnly).unwrap();
    assert!(store.is_read_only());
    assert_eq!(kind(store.write_at(&[1], 0)), ErrorKind::ReadOnly);
    assert_eq!(kind(store.write_at_durably(&[1], 0)), ErrorKind::ReadOnly);
    assert_eq!(kind(store.discard(0, 4096)), ErrorKind::ReadOnly);
    store.flush().unwrap();
    assert_eq!(fs::read(&path).unwrap(), [5; 4096]);
}

#[test]
fn discards_punch_holes_and_keep_the_size() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let store = FileStore::create(&path, 1 << 20).unwrap();
    store.write_at(&pattern(1 << 20), 0).unwrap();
    store.discard(4096, 0).unwrap();
    match store.discard(65_536, 131_072) {
        Ok(()) => {
            let found = fs::read(&path).unwrap();
            assert_eq!(found.len(), 1 << 20);
            assert!(found[65_536..196_608].iter().all(|b| *b == 0));
            assert_eq!(found[..65_536], pattern(1 << 20)[..65_536]);
            assert_eq!(found[196_608..], pattern(1 << 20)[196_608..]);
        }
        // A file system without holes.
        Err(error) => assert_eq!(error.kind, ErrorKind::Unsupported),
    }
}

#[test]
fn one_server_writes_or_several_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let open = |access| FileStore::open(&path, access).unwrap();
    let writer = FileStore::create(&path, 4096).unwrap();
    writer.lock_for_serving().unwrap();
    // Again, by the one who has it.
    writer.lock_for_serving().unwrap();
    let error = open(Access::ReadWrite).lock_for_serving().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Busy);
    assert!(
        chain(&error).to_string().contains("Stop the other server"),
        "{}",
        chain(&error)
    );
    assert_eq!(
        kind(open(Access::ReadOnly).lock_for_serving()),
        ErrorKind::Busy
    );
    // It is neither cryptsetup's flock nor in QEMU's way.
    assert!(open(Access::ReadWrite).file().try_lock().is_ok());
    drop(writer);
    let readers = [open(Access::ReadOnly), open(Access::ReadOnly)];
    for reader in &readers {
        reader.lock_for_serving().unwrap();
    }
    assert_eq!(
        kind(open(Access::ReadWrite).lock_for_serving()),
        ErrorKind::Busy
    );
    drop(readers);
    open(Access::ReadWrite).lock_for_serving().unwrap();
}

/// Holds a shared lock of one byte, as QEMU does.
fn hold(path: &Path, byte: i64) -> File {
    let file = File::open(path).unwrap();
    let lock = nix::libc::flock {
        l_type: i16::try_from(nix::libc::F_RDLCK).unwrap(),
        l_whence: i16::try_from(nix::libc::SEEK_SET).unwrap(),
        l_start: byte,
        l_len: 1,
        l_pid: 0,
    };
    nix::fcntl::fcntl(&file, nix::fcntl::FcntlArg::F_OFD_SETLK(&lock)).unwrap();
    file
}

#[test]
fn what_qemu_writes_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    drop(FileStore::create(&path, 4096).unwrap());
    let serve = |access| FileStore::open(&path, access).unwrap().lock_for_serving();
    // It reads; it may write; nobody else may.
    for (byte, is_refused) in [(100, false), (101, true), (201, true)] {
        let held = hold(&path, byte);
        match serve(Access::ReadWrite) {
            Err(error) if is_refused => {
                assert_eq!(error.kind, ErrorKind::Busy);
                let text = chain(&error).to_string();
                assert!(text.contains("QEMU"), "{text}");
            }
            result => assert!(result.is_ok() && !is_refused, "byte {byte}"),
        }
        serve(Access::ReadOnly).unwrap();
        drop(held);
        serve(Access::ReadWrite).unwrap();
    }
}

#[test]
fn windows_of_one_file_are_served_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    drop(FileStore::create(&path, 8192).unwrap());
    let whole = || FileStore::open(&path, Access::ReadWrite).unwrap();
    let window = |start, len| whole().window(start, len).unwrap();
    let [first, second] = [window(0, 4096), window(4096, 4096)];
    first.lock_for_serving().unwrap();
    second.lock_for_serving().unwrap();
    for other in [
        whole(),
        window(0, 8192),
        window(4095, 1),
        window(4096, 1),
        window(8191, 1),
    ] {
        assert_eq!(kind(other.lock_for_serving()), ErrorKind::Busy);
    }
    drop(second);
    let second = window(4096, 4096);
    second.lock_for_serving().unwrap();
    drop((first, second));
    let whole = whole();
    whole.lock_for_serving().unwrap();
    let error = window(4096, 512).lock_for_serving().unwrap_err();
    assert_eq!((error.kind, error.offset), (ErrorKind::Busy, Some(4096)));
}

/// Undone when dropped.
struct Undo(&'static str, Vec<String>);

impl Drop for Undo {
    fn drop(&mut self) {
        let _ = Command::new(self.0).args(&self.1).status();
    }
}

fn say_skipped(what: &str) {
    let mut stderr = std::io::stderr().lock();
    writeln!(stderr, "NOT TESTED without root: {what}").unwrap();
}

#[test]
fn a_full_file_system_is_a_clean_error() {
    if !is_root() {
        say_skipped("ENOSPC on a small tmpfs");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mount = dir.path().to_str().unwrap();
    run(
        "mount",
        &["-t", "tmpfs", "-o", "size=256k", "xtent-test", mount],
    );
    let _undo = Undo("umount", vec![mount.to_owned()]);
    let path = dir.path().join("image");
    let store = FileStore::create(&path, 1 << 20).unwrap();
    let data = pattern(1 << 20);
    let error = store.write_at(&data, 0).unwrap_err();
    assert_eq!(error.kind, ErrorKind::NoSpace);
    assert!(error.offset > Some(0), "{error}");
    assert_eq!(kind(store.write_at_durably(&data, 0)), ErrorKind::NoSpace);
    // Nothing was promised and broken, so flushes go on working.
    store.flush().unwrap();
    store.write_at_durably(&data[..4096], 0).unwrap();
    let mut found = vec![0; 1 << 20];
    store.read_at(&mut found, 0).unwrap();
    assert_eq!(found[..65_536], data[..65_536]);
}

/// A loop device over a new file, detached when dropped.
fn loop_device(dir: &Path, size: u64) -> (PathBuf, PathBuf, Undo) {
    let file = dir.join("backing");
    File::create(&file).unwrap().set_len(size).unwrap();
    let device = run("losetup", &["--find", "--show", file.to_str().unwrap()]);
    let undo = Undo("losetup", vec!["--detach".into(), device.clone()]);
    (device.into(), file, undo)
}

#[test]
fn block_devices_read_write_and_discard() {
    if !is_root() {
        say_skipped("block devices, through a loop device");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (device, file, _undo) = loop_device(dir.path(), 4 << 20);
    let store = FileStore::open(&device, Access::ReadWrite).unwrap();
    assert!(store.is_block_device());
    assert_eq!(store.size(), 4 << 20);
    assert!(store.limits().atomic >= 512);
    store.lock_for_serving().unwrap();
    let other = FileStore::open(&device, Access::ReadWrite).unwrap();
    assert_eq!(kind(other.lock_for_serving()), ErrorKind::Busy);
    drop(other);
    let data = pattern(1 << 20);
    store.write_at(&data, 1 << 20).unwrap();
    store.write_at_durably(&data, 2 << 20).unwrap();
    store.flush().unwrap();
    assert_eq!(fs::read(&file).unwrap()[1 << 20..2 << 20], data);
    let mut found = vec![0; 1 << 20];
    store.read_at(&mut found, 1 << 20).unwrap();
    assert_eq!(found, data);
    if store.try_read_at(&mut found, 2 << 20).unwrap() {
        assert_eq!(found, data);
    }
    let outside = (4 << 20) - 1000;
    assert_eq!(
        kind(store.read_at(&mut found, outside)),
        ErrorKind::OutOfRange
    );
    assert_eq!(kind(store.write_at(&data, outside)), ErrorKind::OutOfRange);
    // Partial blocks at the edges stay.
    match store.discard((1 << 20) + 100, 65_536) {
        Ok(()) => {
            store.read_at(&mut found, 1 << 20).unwrap();
            assert_eq!(found[..512], data[..512]);
            assert_eq!(found[65_536..], data[65_536..]);
        }
        Err(error) => assert_eq!(error.kind, ErrorKind::Unsupported, "{error}"),
    }
    // Also while the page cache holds data that is not on the device yet.
    store.write_at(&data, 1 << 20).unwrap();
    if let Err(error) = store.discard(1 << 20, 65_536) {
        assert_eq!(error.kind, ErrorKind::Unsupported, "{error}");
    }
    // Shrunk under us.
    File::options()
        .write(true)
        .open(&file)
        .unwrap()
        .set_len(2 << 20)
        .unwrap();
    run("losetup", &["--set-capacity", device.to_str().unwrap()]);
    assert_eq!(store.size(), 2 << 20);
    assert_eq!(kind(store.write_at(&data, 2 << 20)), ErrorKind::OutOfRange);
    assert_eq!(
        kind(store.read_at(&mut found, 2 << 20)),
        ErrorKind::OutOfRange
    );
}

#[test]
fn a_loop_device_over_a_part_has_that_part_only() {
    if !is_root() {
        say_skipped("the lock on the part of a file under a loop device");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("backing");
    File::create(&file).unwrap().set_len(4 << 20).unwrap();
    let name = file.to_str().unwrap();
    let part = ["--offset", "1048576", "--sizelimit", "1048576"];
    let device = run(
        "losetup",
        &[&["--find", "--show"][..], &part, &[name]].concat(),
    );
    let _undo = Undo("losetup", vec!["--detach".into(), device.clone()]);
    let held = FileStore::open(Path::new(&device), Access::ReadWrite).unwrap();
    held.lock_for_serving().unwrap();
    let lock = |start, len| {
        let store = FileStore::open(&file, Access::ReadWrite).unwrap();
        let store = store.window(start, len).unwrap();
        store.lock_for_serving()
    };
    lock(0, 1 << 20).unwrap();
    lock(2 << 20, 2 << 20).unwrap();
    assert_eq!(kind(lock(1 << 20, 512)), ErrorKind::Busy);
    assert_eq!(kind(lock(0, 4 << 20)), ErrorKind::Busy);
}

#[test]
fn a_block_device_that_refuses_writes_is_not_opened_for_them() {
    if !is_root() {
        say_skipped("a read-only block device, through a loop device");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("backing");
    File::create(&file).unwrap().set_len(1 << 20).unwrap();
    let arguments = ["--find", "--show", "--read-only", file.to_str().unwrap()];
    let device = run("losetup", &arguments);
    let _undo = Undo("losetup", vec!["--detach".into(), device.clone()]);
    let device = Path::new(&device);
    assert_eq!(
        kind(FileStore::open(device, Access::ReadWrite)),
        ErrorKind::ReadOnly
    );
    assert!(
        FileStore::open(device, Access::ReadOnly)
            .unwrap()
            .is_read_only()
    );
}

#[test]
fn a_file_and_the_loop_device_over_it_have_one_server() {
    if !is_root() {
        say_skipped("the lock on the file under a loop device");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (device, file, _undo) = loop_device(dir.path(), 1 << 20);
    let lock = |path: &Path, access| {
        let store = FileStore::open(path, access).unwrap();
        store.lock_for_serving().map(|()| store)
    };
    for (first, second) in [(&device, &file), (&file, &device)] {
        let held = lock(first, Access::ReadWrite).unwrap();
        for access in [Access::ReadWrite, Access::ReadOnly] {
            assert_eq!(kind(lock(second, access)), ErrorKind::Busy, "{second:?}");
        }
        held.lock_for_serving().unwrap();
        drop(held);
        let _held = lock(first, Access::ReadOnly).unwrap();
        lock(second, Access::ReadOnly).unwrap();
    }
}

/// A loop device over a file on a full file system takes writes into the page
/// cache and loses them on the way to the disk.
#[test]
fn a_failed_flush_is_never_followed_by_a_success() {
    if !is_root() {
        say_skipped("write-back errors, through a loop device");
        return;
    }
    for is_durable_write in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let mount = dir.path().to_str().unwrap();
        run(
            "mount",
            &["-t", "tmpfs", "-o", "size=256k", "xtent-test", mount],
        );
        let _unmount = Undo("umount", vec![mount.to_owned()]);
        let (device, _, _detach) = loop_device(dir.path(), 4 << 20);
        let store = FileStore::open(&device, Access::ReadWrite).unwrap();
        let data = pattern(1 << 20);
        if is_durable_write {
            store.write_at_durably(&data, 0).unwrap_err();
        } else {
            store.write_at(&data, 0).unwrap();
            store.flush().unwrap_err();
        }
        for _ in 0..2 {
            let error = store.flush().unwrap_err();
            assert!(
                chain(&error).to_string().contains("may be lost"),
                "{}",
                chain(&error)
            );
            store.write_at_durably(&data[..512], 0).unwrap_err();
        }
        // Other requests go on.
        store.write_at(&data[..512], 0).unwrap();
        store.read_at(&mut [0; 512], 0).unwrap();
    }
}

#[test]
fn a_mounted_device_is_not_served_for_writing() {
    if !is_root() {
        say_skipped("the refusal of mounted devices");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (device, _, _undo) = loop_device(dir.path(), 8 << 20);
    assert!(fs::metadata(&device).unwrap().file_type().is_block_device());
    let name = device.to_str().unwrap();
    run("mkfs.ext4", &["-q", name]);
    let mount = dir.path().join("mounted");
    fs::create_dir(&mount).unwrap();
    run("mount", &[name, mount.to_str().unwrap()]);
    let undo = Undo("umount", vec![mount.to_str().unwrap().to_owned()]);
    let store = FileStore::open(&device, Access::ReadWrite).unwrap();
    let error = store.lock_for_serving().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Busy);
    assert!(
        chain(&error).to_string().contains("Unmount"),
        "{}",
        chain(&error)
    );
    // Reading along is possible, as with cryptsetup --readonly.
    drop(store);
    let reader = FileStore::open(&device, Access::ReadOnly).unwrap();
    reader.lock_for_serving().unwrap();
    drop(reader);
    drop(undo);
    let store = FileStore::open(&device, Access::ReadWrite).unwrap();
    store.lock_for_serving().unwrap();
    // And the other way round.
    let mounted = Command::new("mount")
        .args([name, mount.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(!mounted.status.success(), "mounted under a server");
}

/// Nothing waits there, so all is read at once.
#[test]
fn a_window_of_a_file_in_memory_is_read_where_it_is() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("image");
    fs::write(&path, pattern(16_384)).unwrap();
    let store = FileStore::open(&path, Access::ReadOnly).unwrap();
    let window = store.window(4096, 8192).unwrap();
    for offset in [0, 1000, 7680] {
        let mut found = [0; 512];
        assert!(window.try_read_at(&mut found, offset).unwrap());
        let at = 4096 + usize::try_from(offset).unwrap();
        assert_eq!(found, pattern(16_384)[at..at + 512]);
    }
}

#[test]
fn a_window_is_all_that_can_be_reached() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), [1; 8192]).unwrap();
    let open = || FileStore::open(file.path(), Access::ReadWrite).unwrap();
    let window = open().window(1024, 2048).unwrap();
    assert_eq!(window.size(), 2048);
    window.write_at(&[2; 512], 0).unwrap();
    window.write_at_durably(&[3; 512], 1536).unwrap();
    window.discard(512, 512).unwrap();
    let mut buf = [0; 512];
    window.read_at(&mut buf, 1536).unwrap();
    assert_eq!(buf, [3; 512]);
    for offset in [2048, 1537, u64::MAX, u64::MAX - 1024] {
        let kind = |e: Error| e.kind;
        assert_eq!(
            window.read_at(&mut buf, offset).map_err(kind),
            Err(ErrorKind::OutOfRange)
        );
        assert_eq!(
            window.try_read_at(&mut buf, offset).map_err(kind),
            Err(ErrorKind::OutOfRange)
        );
        assert_eq!(
            window.write_at(&buf, offset).map_err(kind),
            Err(ErrorKind::OutOfRange)
        );
        assert_eq!(
            window.write_at_durably(&buf, offset).map_err(kind),
            Err(ErrorKind::OutOfRange)
        );
        assert_eq!(
            window.discard(offset, 512).map_err(kind),
            Err(ErrorKind::OutOfRange)
        );
    }
    let content = fs::read(file.path()).unwrap();
    assert_eq!(content[..1024], [1; 1024]);
    assert_eq!(content[1024..1536], [2; 512]);
    assert_eq!(content[2560..3072], [3; 512]);
    assert_eq!(content[3072..], [1; 8192 - 3072]);
    assert!(open().window(1024, 8192 - 1023).is_err());
    assert!(open().window(u64::MAX, 2).is_err());
    assert_eq!(open().window(8192, 0).unwrap().size(), 0);
}
