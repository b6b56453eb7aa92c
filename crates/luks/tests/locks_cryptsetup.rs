//! The metadata locks against the real `cryptsetup`: it waits while we hold
//! one, and nobody waits for ever.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use xtent_luks::lock::Target;
use xtent_store::{Access, FileStore};

fn cryptsetup(arguments: &[&str]) -> Child {
    let child = Command::new("cryptsetup")
        .arg("-q")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn();
    match child {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            panic!("this test needs cryptsetup: install the package cryptsetup-bin")
        }
        child => child.unwrap(),
    }
}

/// A LUKS2 image (cryptsetup locks no LUKS1), and a key file that opens it.
fn image() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let (image, key) = (directory.path().join("image"), directory.path().join("key"));
    let file = std::fs::File::create(&image).unwrap();
    file.set_len(20 << 20).unwrap();
    std::fs::write(&key, "passphrase").unwrap();
    let action = ["luksFormat", "--type", "luks2", text(&image), text(&key)];
    let mut format = cryptsetup(&[&CHEAP[..], &action].concat());
    assert!(format.wait().unwrap().success());
    (directory, image, key)
}

/// The cheapest keyslot there is.
const CHEAP: [&str; 4] = ["--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000"];

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn target(path: &Path) -> Target {
    Target::File(Arc::new(FileStore::open(path, Access::ReadWrite).unwrap()))
}

/// Waits until the kernel lists a waiter for a lock on the file.
fn await_waiter(path: &Path, child: &mut Child) {
    let inode = format!(":{} ", std::fs::metadata(path).unwrap().ino());
    let deadline = Instant::now() + Duration::from_secs(300);
    loop {
        let locks = std::fs::read_to_string("/proc/locks").unwrap();
        let waits = |line: &str| line.contains("-> FLOCK") && line.contains(&inode);
        if locks.lines().any(waits) {
            return;
        }
        assert!(
            child.try_wait().unwrap().is_none(),
            "cryptsetup did not wait for the lock"
        );
        assert!(
            Instant::now() < deadline,
            "cryptsetup never asked for the lock"
        );
        std::thread::yield_now();
    }
}

#[test]
fn cryptsetup_reads_beside_our_shared_lock_and_waits_for_our_exclusive_one() {
    let (_directory, image, _key) = image();
    let target = target(&image);
    let shared = target.shared().unwrap();
    let mut dump = cryptsetup(&["luksDump", text(&image)]);
    assert!(dump.wait().unwrap().success());
    // From shared to exclusive within one thread: no waiting for ourselves.
    let exclusive = target.exclusive().unwrap();
    let mut dump = cryptsetup(&["luksDump", text(&image)]);
    await_waiter(&image, &mut dump);
    drop((shared, exclusive));
    assert!(dump.wait().unwrap().success());
}

#[test]
fn cryptsetup_waits_with_its_writes_for_our_shared_lock() {
    let (directory, image, key) = image();
    let new = directory.path().join("new");
    std::fs::write(&new, "another").unwrap();
    let guard = target(&image).shared().unwrap();
    let action = [
        "luksAddKey",
        "--key-file",
        text(&key),
        text(&image),
        text(&new),
    ];
    let mut add = cryptsetup(&[&CHEAP[..], &action].concat());
    await_waiter(&image, &mut add);
    drop(guard);
    assert!(add.wait().unwrap().success());
    // And left nothing locked.
    drop(target(&image).exclusive().unwrap());
}
