//! A file system in a new volume.
#![allow(clippy::unwrap_used, reason = "a panic is how tests fail")]

mod common;

use std::process::Command;

use common::Bed;

const CHEAP: &str = "--key-file key --pbkdf pbkdf2 --pbkdf-force-iterations 1000";

#[test]
fn a_new_volume_gets_its_file_system() {
    for (kind, sector) in [("ext4", 4096), ("ext2", 512), ("ext3", 4096)] {
        let bed = Bed::new();
        let said = bed
            .run(&format!(
                "format --json --size 64M --sector-size {sector} --mkfs {kind} {CHEAP} disk.img"
            ))
            .ok();
        assert_eq!(said.json()["file_system"], kind);
        bed.run("decrypt --key-file key disk.img plain").ok();
        let check = Command::new("/usr/sbin/fsck.ext4")
            .args(["-f", "-n", "plain"])
            .current_dir(bed.dir())
            .output()
            .expect("fsck.ext4, of package e2fsprogs");
        assert!(check.status.success(), "{check:?}");
        let plain = std::fs::read(bed.path("plain")).unwrap();
        // The superblock's magic number, and blocks of 1024 << 2 bytes.
        assert_eq!(plain[1024 + 56..1024 + 58], [0x53, 0xef]);
        assert_eq!(plain[1024 + 24..1024 + 28], [2, 0, 0, 0]);
    }
}

#[test]
fn with_a_detached_header_and_on_standard_input() {
    let bed = Bed::new();
    let cheap = CHEAP.replace("--key-file key ", "");
    bed.run_with(
        &format!("format --header head --size 16M --mkfs ext4 {cheap} disk.img"),
        "typed once\n",
    )
    .ok();
    bed.run_with("decrypt --header head disk.img plain", "typed once\n")
        .ok();
    let plain = std::fs::read(bed.path("plain")).unwrap();
    assert_eq!(plain[1024 + 56..1024 + 58], [0x53, 0xef]);
}

#[test]
fn a_mkfs_that_fails_leaves_a_volume_and_no_mount() {
    let bed = Bed::new();
    // Too small for any file system.
    bed.run(&format!("format --size 4K --mkfs ext4 {CHEAP} disk.img"))
        .failed(
            4,
            &[
                "mkfs.ext4 failed",
                "The volume itself is made",
                "xtent umount",
            ],
        );
    bed.run("key test --key-file key disk.img").ok();
    bed.run("decrypt --key-file key disk.img out").ok();
    bed.run(&format!(
        "format --header head --size 4K --mkfs ext4 {CHEAP} data.img"
    ))
    .failed(4, &["xtent mount --file-only --header head "]);
}

#[test]
fn a_mkfs_that_is_missing_is_named_before_anything_is_made() {
    let bed = Bed::new();
    if std::path::Path::new("/usr/sbin/mkfs.btrfs").exists() {
        bed.run(&format!("format --size 1M --mkfs zfs {CHEAP} disk.img"))
            .failed(1, &["btrfs"]);
    } else {
        bed.run(&format!("format --size 1M --mkfs btrfs {CHEAP} disk.img"))
            .failed(4, &["mkfs.btrfs was not found", "btrfs-progs"]);
    }
    assert!(!bed.path("disk.img").exists());
}
