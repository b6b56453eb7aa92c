//! Derivations with much memory, one at a time: with cryptsetup's own lock.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::FlockOperation;
use xtent_tests::xtent::xtent;
use xtent_tests::{Cmd, Scratch, bed};

const LOCK: &str = "/run/cryptsetup/LN_memory-hard-access";

/// Whoever wants the lock while this test has it waits, and goes on afterwards.
#[test]
fn xtent_and_cryptsetup_wait_for_the_same_lock() {
    if !bed::is_root("xtent_and_cryptsetup_wait_for_the_same_lock") {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.image("volume", 17 << 20);
    let key = scratch.file("key", b"secret");
    // With 32 MiB or less nobody waits.
    Cmd::peer("cryptsetup")
        .args(["luksFormat", "--batch-mode", "--type", "luks2"])
        .args(["--pbkdf-memory", "65536", "--pbkdf-force-iterations", "4"])
        .args([&image, &key])
        .ok();
    let ours = xtent().args(["key", "test", "--serialize-memory-hard-pbkdf", "--key-file"]);
    let theirs = Cmd::peer("cryptsetup").args([
        "open",
        "--test-passphrase",
        "--serialize-memory-hard-pbkdf",
        "--key-file",
    ]);
    for command in [ours, theirs] {
        let held = hold();
        let inode = held.metadata().unwrap().ino();
        let mut waiting = command.args([&key, &image]).spawn();
        // The kernel lists who waits.
        while !waits_for(inode, waiting.id()) {
            if !waiting.is_running() {
                panic!("does not wait: {}", waiting.finish().text());
            }
            std::thread::yield_now();
        }
        drop(held);
        let done = waiting.finish();
        assert!(done.status.success(), "{}", done.text());
        if done.line.contains("key test") {
            done.says(&["waiting for another key derivation"]);
        }
    }
}

/// The lock as cryptsetup takes it: on the file that the name leads to.
fn hold() -> File {
    let folder = Path::new(LOCK).parent().unwrap();
    let _ = fs::create_dir(folder);
    loop {
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(LOCK)
            .unwrap();
        rustix::fs::flock(&file, FlockOperation::LockExclusive).unwrap();
        let named = fs::metadata(LOCK).map(|named| named.ino()).ok();
        if named == Some(file.metadata().unwrap().ino()) {
            return file;
        }
    }
}

fn waits_for(inode: u64, pid: u32) -> bool {
    fs::read_to_string("/proc/locks")
        .unwrap()
        .lines()
        .any(|line| {
            line.contains("-> FLOCK")
                && line.contains(&format!(" {pid} "))
                && line.contains(&format!(":{inode} "))
        })
}
