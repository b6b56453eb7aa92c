//! What an administrator does to metadata, beside cryptsetup on the same files.
#![allow(clippy::unwrap_used, reason = "a panic is how tests fail")]

mod common;

use std::process::Command;

use common::{Bed, Said};

/// Runs cryptsetup in the bed's folder; standard input is empty.
fn cryptsetup(bed: &Bed, line: &str) -> Said {
    let output = Command::new("cryptsetup")
        .arg("-q")
        .args(line.split(' '))
        .current_dir(bed.dir())
        .stdin(std::process::Stdio::null())
        .output()
        .expect("cryptsetup, of package cryptsetup-bin");
    Said {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

#[test]
fn keyslots_of_priority_ignore_want_to_be_named() {
    let bed = Bed::with_luks2();
    cryptsetup(&bed, "config --priority ignore --key-slot 0 disk.img").ok();
    let cheap = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000";
    let add = format!("key add {cheap} --new-key-file other");
    for command in ["key test", "key remove", &add, "serve"] {
        let said = bed
            .run(&format!("{command} --key-file key disk.img"))
            .failed(1, &["keyslot 0 has priority \"ignore\"", "--key-slot N"]);
        assert!(!said.err.contains("backup"), "{said:?}");
    }
    let theirs = cryptsetup(&bed, "open --test-passphrase --key-file key disk.img");
    assert_eq!(theirs.code, Some(1), "{theirs:?}");
    bed.run(&format!("{add} --key-file key --key-slot 0 disk.img"))
        .ok();
    cryptsetup(&bed, "config --priority ignore --key-slot 1 disk.img").ok();
    bed.run("key test --key-file key disk.img")
        .failed(1, &["keyslots 0 and 1", "--key-slot N"]);
    bed.run("key test --key-file other --key-slot 1 disk.img")
        .ok();

    cryptsetup(&bed, "luksErase disk.img").ok();
    bed.run("key test --key-file key disk.img")
        .failed(1, &["restore the header from a backup"]);
}
