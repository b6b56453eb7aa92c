//! File systems mounted from volumes: FUSE, loop device, ext4; daemons that
//! are killed. Needs root; says so on standard error where that is missing.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

mod fuse_common;

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;

use fuse_common::{Fixture, SIZE, file_only, is_unprivileged, options, volume_over};
use rustix::fs::FallocateFlags;
use xtent_export::ErrorKind;
use xtent_export::mounts::{self, FILE_NAME, Mount, Options, Served, UmountOptions};
use xtent_store::testing::MemStore;
use xtent_store::{Access, FileStore};
use xtent_volume::{DiscardPolicy, Volume};

fn run(package: &str, program: &str, arguments: &[&str]) -> Output {
    Command::new(program)
        .args(arguments)
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .output()
        .unwrap_or_else(|e| panic!("cannot run {program} (Debian package {package}): {e}"))
}

fn mkfs(file: &Path) {
    let file = file.to_str().unwrap();
    let output = run("e2fsprogs", "mkfs.ext4", &["-q", "-b", "4096", file]);
    assert!(output.status.success(), "{output:?}");
}

/// Makes an ext4 file system through the file.
fn with_ext4(fixture: &Fixture, volume: &Arc<Volume>) {
    let served = fixture.serve(Mount::new(volume.clone(), &file_only(fixture)).unwrap());
    mkfs(&fixture.dir().join(FILE_NAME));
    fixture.umount();
    served.ended().unwrap();
}

fn memory_volume(discard: DiscardPolicy, sector_size: u32) -> Arc<Volume> {
    volume_over(
        Arc::new(MemStore::new(2 * SIZE)),
        discard,
        sector_size,
        false,
    )
}

fn loop_device(what: &Served) -> PathBuf {
    match what {
        Served::FileSystem { loop_device, .. } => loop_device.clone(),
        other => panic!("no loop device: {other:?}"),
    }
}

fn contents(i: usize) -> Vec<u8> {
    (0..i * 791).map(|n| (n * n + i) as u8).collect()
}

#[test]
fn files_survive_unmount_and_remount() {
    if is_unprivileged() {
        return;
    }
    for sector_size in [512, 4096] {
        let fixture = Fixture::new();
        let volume = memory_volume(DiscardPolicy::Never, sector_size);
        with_ext4(&fixture, &volume);

        let served = fixture.serve(Mount::new(volume.clone(), &options(&fixture)).unwrap());
        for i in 0..100 {
            std::fs::write(fixture.dir().join(format!("f{i}")), contents(i)).unwrap();
        }
        assert_eq!(fixture.umount(), Vec::<String>::new());
        served.ended().unwrap();
        fixture.assert_clean();
        assert!(!fixture.dir().join("f1").exists());

        let served = fixture.serve(Mount::new(volume.clone(), &options(&fixture)).unwrap());
        for i in 0..100 {
            let seen = std::fs::read(fixture.dir().join(format!("f{i}"))).unwrap();
            assert!(seen == contents(i), "file {i}, {sector_size}-byte sectors");
        }
        fixture.umount();
        served.ended().unwrap();

        let served = fixture.serve(Mount::new(volume, &file_only(&fixture)).unwrap());
        let file = fixture.dir().join(FILE_NAME);
        let output = run("e2fsprogs", "e2fsck", &["-fn", file.to_str().unwrap()]);
        assert!(output.status.success(), "{output:?}");
        fixture.umount();
        served.ended().unwrap();
    }
}

#[test]
fn the_loop_device_is_direct_and_zeroes_what_it_says() {
    if is_unprivileged() {
        return;
    }
    for policy in [
        DiscardPolicy::Never,
        DiscardPolicy::Allow,
        DiscardPolicy::Zero,
    ] {
        let fixture = Fixture::new();
        let volume = memory_volume(policy, 4096);
        with_ext4(&fixture, &volume);
        let mount = Mount::new(volume.clone(), &options(&fixture)).unwrap();
        assert_eq!(
            mount.warnings().len(),
            usize::from(policy == DiscardPolicy::Allow)
        );
        let served = fixture.serve(mount);
        let device = loop_device(&served.what);
        let name = device.file_name().unwrap().to_str().unwrap();
        let attribute = |path: &str| {
            let text = std::fs::read_to_string(format!("/sys/block/{name}/{path}")).unwrap();
            text.trim().to_owned()
        };
        assert_eq!(attribute("loop/dio"), "1");
        assert_eq!(attribute("loop/autoclear"), "1");
        assert_eq!(attribute("queue/logical_block_size"), "4096");
        assert_eq!(
            attribute("queue/discard_max_bytes") == "0",
            policy != DiscardPolicy::Zero
        );

        // The journal is not in the last megabyte, which nothing uses.
        let file = OpenOptions::new().write(true).open(&device).unwrap();
        let start = (2 * SIZE - (1 << 20)) as u64;
        file.write_all_at(&[7; 1 << 20], start).unwrap();
        file.sync_all().unwrap();
        let zero = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, zero, start, 65536).unwrap();
        // The kernel refuses this one where it would have to write.
        let punched = rustix::fs::fallocate(&file, hole, start + 65536, 65536);
        assert_eq!(
            punched.is_ok(),
            policy == DiscardPolicy::Zero,
            "{punched:?}"
        );
        let left = if policy == DiscardPolicy::Zero { 0 } else { 7 };
        let mut seen = vec![1; 3 << 16];
        volume.read_at(&mut seen, start).unwrap();
        assert!(seen[..1 << 16].iter().all(|&b| b == 0), "{policy:?}");
        assert!(
            seen[1 << 16..2 << 16].iter().all(|&b| b == left),
            "{policy:?}"
        );
        assert!(seen[2 << 16..].iter().all(|&b| b == 7), "{policy:?}");

        // A discard leaves zeros or is refused.
        let offset = (start + (2 << 16)).to_string();
        let arguments = [
            "--force",
            "-o",
            &offset,
            "-l",
            "65536",
            device.to_str().unwrap(),
        ];
        let output = run("util-linux", "blkdiscard", &arguments);
        assert_eq!(
            output.status.success(),
            policy == DiscardPolicy::Zero,
            "{output:?}"
        );
        volume.read_at(&mut seen, start).unwrap();
        assert!(seen[2 << 16..].iter().all(|&b| b == left), "{policy:?}");
        drop(file);
        fixture.umount();
        served.ended().unwrap();
    }
}

#[test]
fn read_only_down_to_the_store() {
    if is_unprivileged() {
        return;
    }
    let fixture = Fixture::new();
    let store = Arc::new(MemStore::new(2 * SIZE));
    let volume = volume_over(store.clone(), DiscardPolicy::Never, 4096, false);
    with_ext4(&fixture, &volume);
    let before = store.contents();
    let volume = volume_over(store.clone(), DiscardPolicy::Never, 4096, true);
    let served = fixture.serve(Mount::new(volume, &options(&fixture)).unwrap());
    assert!(fixture.dir().join("lost+found").is_dir());
    let error = File::create(fixture.dir().join("x")).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    fixture.umount();
    served.ended().unwrap();
    assert!(before == store.contents());
}

#[test]
fn a_volume_without_a_file_system_is_not_mounted() {
    if is_unprivileged() {
        return;
    }
    let fixture = Fixture::new();
    let volume = memory_volume(DiscardPolicy::Never, 4096);
    let error = Mount::new(volume.clone(), &options(&fixture))
        .err()
        .unwrap();
    assert_eq!(error.kind, ErrorKind::NotMountable);
    assert!(error.message.contains("wrong fs type"), "{error}");
    fixture.assert_clean();

    let mut hostile = options(&fixture);
    hostile.fstype = Some("no-such-type".into());
    hostile.mount_options = Some("no-such-option,,=".into());
    Mount::new(volume, &hostile).err().unwrap();
    fixture.assert_clean();
}

#[test]
fn mount_options_are_passed_on() {
    if is_unprivileged() {
        return;
    }
    let fixture = Fixture::new();
    let volume = memory_volume(DiscardPolicy::Never, 4096);
    with_ext4(&fixture, &volume);
    let mut with = options(&fixture);
    with.fstype = Some("ext4".into());
    with.mount_options = Some("noatime,nodev".into());
    let served = fixture.serve(Mount::new(volume, &with).unwrap());
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let dir = fixture.dir().to_str().unwrap();
    let line = mounts
        .lines()
        .find(|l| l.split(' ').nth(4) == Some(dir))
        .unwrap();
    assert!(line.contains("nodev") && line.contains("noatime"), "{line}");
    fixture.umount();
    served.ended().unwrap();
}

#[test]
fn a_busy_file_system_stays() {
    if is_unprivileged() {
        return;
    }
    let fixture = Fixture::new();
    let volume = memory_volume(DiscardPolicy::Never, 4096);
    with_ext4(&fixture, &volume);
    let mount = Mount::new(volume, &options(&fixture)).unwrap();
    let stop = mount.stop();
    let served = fixture.serve(mount);
    let mut file = File::create(fixture.dir().join("open")).unwrap();
    let error = mounts::umount(fixture.dir(), UmountOptions::default()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Busy);
    let process = format!("process {}", std::process::id());
    assert!(error.message.contains(&process), "{error}");
    // A request to stop is refused as well: the file goes on working.
    stop.request();
    file.write_all(b"still there").unwrap();
    file.sync_all().unwrap();
    drop(file);
    fixture.umount();
    served.ended().unwrap();
    fixture.assert_clean();
}

#[test]
fn umount_by_hand_ends_the_daemon() {
    if is_unprivileged() {
        return;
    }
    let fixture = Fixture::new();
    let volume = memory_volume(DiscardPolicy::Never, 4096);
    with_ext4(&fixture, &volume);
    let served = fixture.serve(Mount::new(volume, &options(&fixture)).unwrap());
    let output = run("mount", "umount", &[fixture.dir().to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    served.ended().unwrap();
    fixture.assert_clean();
}

/// A daemon in a process of its own, which is this test program; killed on drop.
struct Process(Child);

const IMAGE: &str = "XTENT_TEST_IMAGE";
const DIR: &str = "XTENT_TEST_DIR";
const FILE_ONLY: &str = "XTENT_TEST_FILE_ONLY";
const READY: &str = "the daemon is ready";

/// Serves until it is unmounted; each line on standard input asks it to stop.
#[test]
#[ignore = "not a test: the daemon that the tests start"]
fn daemon() {
    let store = FileStore::open(
        Path::new(&std::env::var_os(IMAGE).expect("only tests start it")),
        Access::ReadWrite,
    )
    .unwrap();
    store.lock_for_serving().unwrap();
    let volume = volume_over(Arc::new(store), DiscardPolicy::Never, 4096, false);
    let options = Options {
        device: Path::new(&std::env::var_os(IMAGE).unwrap()).into(),
        dir: std::env::var_os(DIR).unwrap().into(),
        file_only: std::env::var_os(FILE_ONLY).is_some(),
        fstype: None,
        mount_options: None,
    };
    let mount = Mount::new(volume, &options).unwrap();
    let stop = mount.stop();
    println!("\n{READY}");
    std::thread::spawn(move || {
        for _ in std::io::stdin().lines() {
            stop.request();
        }
    });
    mount.wait().unwrap();
}

/// `umount` in a process of its own.
#[test]
#[ignore = "not a test: what the tests run as another user"]
fn umount_for_another_process() {
    let dir = std::env::var_os(DIR).expect("only tests start it");
    mounts::umount(Path::new(&dir), UmountOptions::default()).unwrap();
}

impl Process {
    fn start(fixture: &Fixture, file_only: bool) -> Self {
        let program = std::env::current_exe().unwrap();
        Self::start_program(Command::new(program), fixture, file_only)
    }

    fn start_program(mut command: Command, fixture: &Fixture, file_only: bool) -> Self {
        command
            .args(["--exact", "--ignored", "--nocapture", "daemon"])
            .env(IMAGE, &fixture.device)
            .env(DIR, fixture.dir())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if file_only {
            command.env(FILE_ONLY, "yes");
        }
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let is_ready = lines.any(|line| line.unwrap() == READY);
        // Nobody reads on, but the test program writes its verdict.
        let process = Self(child);
        std::thread::spawn(move || lines.for_each(drop));
        assert!(is_ready, "the daemon did not start");
        process
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn with_image(fixture: &Fixture) {
    File::create(&fixture.device)
        .unwrap()
        .set_len(2 * SIZE as u64)
        .unwrap();
    let mut daemon = Process::start(fixture, true);
    mkfs(&fixture.dir().join(FILE_NAME));
    assert_eq!(fixture.umount(), Vec::<String>::new());
    // `umount` returned because it is done.
    assert!(daemon.0.wait().unwrap().success());
}

#[test]
fn umount_cleans_up_after_a_killed_daemon() {
    if is_unprivileged() {
        return;
    }
    let fixture = Fixture::new();
    with_image(&fixture);

    Process::start(&fixture, true).kill();
    assert!(File::open(fixture.dir().join(FILE_NAME)).is_err());
    let warnings = fixture.umount();
    assert!(warnings[0].contains("had died"), "{warnings:?}");
    fixture.assert_clean();

    Process::start(&fixture, false).kill();
    let warnings = fixture.umount();
    assert!(warnings[0].contains("had died"), "{warnings:?}");
    fixture.assert_clean();

    // With a user, who keeps a normal unmount from working.
    let daemon = Process::start(&fixture, false);
    let file = File::create(fixture.dir().join("open")).unwrap();
    daemon.kill();
    let warnings = fixture.umount();
    assert!(warnings[1].contains("detached"), "{warnings:?}");
    fixture.assert_clean();
    drop(file);
}

#[test]
fn the_next_mount_cleans_up_after_a_killed_daemon() {
    if is_unprivileged() {
        return;
    }
    let fixture = Fixture::new();
    with_image(&fixture);
    let daemon = Process::start(&fixture, false);
    let path = fixture.dir().join("file");
    std::fs::write(&path, contents(50)).unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    daemon.kill();

    let mut daemon = Process::start(&fixture, false);
    assert!(std::fs::read(&path).unwrap() == contents(50));

    // Alive, it is in the way; dead, on another directory, it is not.
    let error = mounts::check(&options(&fixture)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Busy);
    daemon.0.kill().unwrap();
    daemon.0.wait().unwrap();
    let mut elsewhere = options(&fixture);
    elsewhere.dir = fixture.root().join("elsewhere");
    std::fs::create_dir(&elsewhere.dir).unwrap();
    let warnings = mounts::check(&elsewhere).unwrap();
    assert!(warnings[0].contains("had died"), "{warnings:?}");
    fixture.assert_clean();
}

#[test]
fn a_loop_device_of_somebody_else_is_left_alone() {
    if is_unprivileged() {
        return;
    }
    let fixture = Fixture::new();
    with_image(&fixture);
    let daemon = Process::start(&fixture, false);
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let dir = fixture.dir().to_str().unwrap();
    let line = mounts
        .lines()
        .find(|l| l.split(' ').nth(4) == Some(dir))
        .unwrap();
    let device = line.split(" - ext4 ").nth(1).unwrap();
    let device = device.split(' ').next().unwrap().to_owned();
    daemon.kill();
    // The dead mount's device goes, and somebody else gets its number.
    assert!(run("mount", "umount", &[dir]).status.success());
    let other = fixture.root().join("other");
    File::create(&other).unwrap().set_len(1 << 20).unwrap();
    let other = other.to_str().unwrap();
    let output = run("mount", "losetup", &[&device, other]);
    let taken = output.status.success();
    fixture.umount();
    if taken {
        let backing = format!(
            "/sys/block/{}/loop/backing_file",
            device.trim_start_matches("/dev/")
        );
        let backing = std::fs::read_to_string(backing);
        run("mount", "losetup", &["-d", &device]);
        assert_eq!(backing.unwrap().trim(), other);
    } else {
        // Another test was faster; its device must have survived, which it checks.
        eprintln!("{device} was taken meanwhile");
    }
    fixture.assert_clean();
}

#[test]
fn two_requests_to_stop_end_a_daemon_with_users() {
    if is_unprivileged() {
        return;
    }
    let fixture = Fixture::new();
    with_image(&fixture);
    let mut daemon = Process::start(&fixture, false);
    let mut file = File::create(fixture.dir().join("open")).unwrap();
    file.write_all(b"written, not synced").unwrap();
    daemon.0.stdin.take().unwrap().write_all(b"\n\n").unwrap();
    assert!(daemon.0.wait().unwrap().success());
    drop(file);
    fixture.assert_clean();

    // What was written before the end is there.
    let daemon = Process::start(&fixture, false);
    let seen = std::fs::read(fixture.dir().join("open")).unwrap();
    assert_eq!(seen, b"written, not synced");
    fixture.umount();
    drop(daemon);
}

#[test]
fn an_ordinary_user_gets_the_file() {
    if is_unprivileged() {
        return;
    }
    let fixture = Fixture::new();
    File::create(&fixture.device)
        .unwrap()
        .set_len(SIZE as u64)
        .unwrap();
    // This program may lie where the other user cannot go.
    let program = fixture.root().join("program");
    // By another process: a command that another test starts just then would have the copy
    // open for writing, and such a program cannot be run.
    let copied = Command::new("cp")
        .args([&std::env::current_exe().unwrap(), &program])
        .status();
    assert!(copied.unwrap().success());
    let nobody = 65534;
    for path in [fixture.root(), fixture.dir(), &fixture.device] {
        std::os::unix::fs::chown(path, Some(nobody), Some(nobody)).unwrap();
    }
    let as_nobody = |program: &Path| {
        let mut command = Command::new(program);
        command
            .uid(nobody)
            .gid(nobody)
            .env("XDG_RUNTIME_DIR", fixture.root());
        command
    };

    let _daemon = Process::start_program(as_nobody(&program), &fixture, true);
    let file = fixture.dir().join(FILE_NAME);
    assert!(
        File::open(&file).is_err(),
        "root looks into another's mount"
    );
    let read = as_nobody(Path::new("/usr/bin/head"))
        .args(["-c", "10000"])
        .arg(&file)
        .output()
        .unwrap();
    assert_eq!(read.stdout.len(), 10_000, "{read:?}");

    let umount = as_nobody(&program)
        .args(["--exact", "--ignored", "umount_for_another_process"])
        .env(DIR, fixture.dir())
        .output()
        .unwrap();
    assert!(umount.status.success(), "{umount:?}");
    fixture.assert_clean();
}
