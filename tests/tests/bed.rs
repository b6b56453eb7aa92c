//! The test bed itself: what the other tests lean on does what they think.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::{Duration, Instant};

use xtent_tests::luks::{KEY, Maker, Shape, cryptsetup_opens};
use xtent_tests::scratch::{assert_same, read_range};
use xtent_tests::uml::Job;
use xtent_tests::{Cmd, PATIENCE, Scratch, pattern};

/// User Mode Linux has its own dm-crypt, sees disks and files, and hands back
/// results: the kernel reads back what it wrote, and the image holds
/// something else.
#[test]
fn user_mode_linux_encrypts() {
    let scratch = Scratch::new();
    let container = Shape::LUKS2.image(Maker::Cryptsetup, &scratch, 1 << 20);
    let data = pattern(1 << 20, 1);
    let outcome = Job::new(
        "open_luks vol key
         dd if=/in/data of=/dev/mapper/vol bs=64k conv=fsync
         cryptsetup close vol
         open_luks vol key
         cat /dev/mapper/vol >read
         echo done",
    )
    .disk("vol", &container.image)
    .file("key", KEY)
    .file("data", &data)
    .run();
    assert!(outcome.console.contains("done"), "{}", outcome.console);
    assert_same(&outcome.file("read"), &data, "the kernel's own data");
    let ciphertext = read_range(&container.image, Shape::LUKS2.data_offset(), 1 << 20);
    assert!(ciphertext != data && ciphertext != vec![0; 1 << 20]);
}

#[test]
#[should_panic(expected = "cannot open nonsense")]
fn user_mode_linux_shows_a_failed_script() {
    Job::new("cat nonsense || { echo cannot open nonsense; exit 7; }").run();
}

#[test]
#[should_panic(expected = "no end after")]
fn a_command_that_hangs_is_killed() {
    Cmd::new("/bin/sleep")
        .arg("1000")
        .limit(Duration::from_millis(200))
        .run();
}

#[test]
#[should_panic(expected = "Debian package")]
fn a_missing_peer_is_named() {
    Cmd::peer("no-such-tool");
}

#[test]
fn a_background_process_goes_with_its_guard() {
    let mut process = Cmd::new("/bin/sh")
        .args(["-c", "sleep 1000 & echo $!; wait"])
        .spawn();
    let child = process.wait_for_line(|line| !line.is_empty());
    drop(process);
    let end = Instant::now() + PATIENCE;
    // Killed, but its new parent may not have reaped it yet.
    while let Ok(status) = std::fs::read_to_string(format!("/proc/{child}/stat")) {
        if status.contains(") Z ") {
            break;
        }
        assert!(Instant::now() < end, "process {child} is left over");
        std::thread::yield_now();
    }
}

#[test]
fn cryptsetup_tells_right_from_wrong() {
    let scratch = Scratch::new();
    let wrong = scratch.file("wrong", b"wrong");
    for shape in Shape::all() {
        let container = shape.image(Maker::Cryptsetup, &scratch, 4096);
        assert!(cryptsetup_opens(&container.image, &container.key));
        assert!(!cryptsetup_opens(&container.image, &wrong));
    }
}

/// The faulty store works, fails as told, and works again.
#[test]
fn a_faulty_store_fails_on_demand() {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use xtent_tests::faulty::{Fault, FaultyStore};

    if !xtent_tests::bed::has_fuse("a_faulty_store_fails_on_demand") {
        return;
    }
    let scratch = Scratch::new();
    let data = pattern(1 << 20, 2);
    let store = FaultyStore::new(&scratch.file("image", &data));
    let file = File::options()
        .read(true)
        .write(true)
        .open(&store.path)
        .unwrap();
    let mut bytes = [0; 4096];
    store.break_it(Fault::Read);
    let error = file.read_exact_at(&mut bytes, 512 << 10).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(5), "{error}");
    store.mend_it(Fault::Read);
    file.read_exact_at(&mut bytes, 512 << 10).unwrap();
    assert_same(&bytes, &data[512 << 10..][..4096], "read");

    store.break_it(Fault::Write);
    let error = file.write_all_at(&[1; 4096], 8192).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(28), "{error}");
    store.mend_it(Fault::Write);
    file.write_all_at(&[1; 4096], 8192).unwrap();

    store.break_it(Fault::Flush);
    assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(5));
    store.mend_it(Fault::Flush);
    file.sync_all().unwrap();
    drop(file);
    drop(store);
    assert_eq!(read_range(&scratch.join("image"), 8192, 4096), [1; 4096]);
}
