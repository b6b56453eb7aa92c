//! Whole images, keys from every source, and what the results say.
#![allow(clippy::unwrap_used, reason = "a panic is how tests fail")]

mod common;

use std::os::unix::fs::PermissionsExt;

use common::{Bed, SECRET, image};

#[test]
fn an_image_goes_in_and_comes_out() {
    for bed in [Bed::with_luks1(), Bed::with_luks2()] {
        std::fs::write(bed.path("plain"), image()).unwrap();
        bed.run("encrypt --key-file key plain disk.img").ok();
        let said = bed.run("decrypt --json --key-file key disk.img out").ok();
        assert_eq!(said.json()["bytes"], 1 << 20);
        assert!(std::fs::read(bed.path("out")).unwrap() == image());
        let mode = bed.path("out").metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let (disk, sector) = (
            std::fs::read(bed.path("disk.img")).unwrap(),
            &image()[..512],
        );
        assert!(
            disk.chunks(512).all(|c| c != sector),
            "plaintext on the disk"
        );
    }
}

#[test]
fn every_back_end_decrypts_the_same() {
    let bed = Bed::with_luks2();
    std::fs::write(bed.path("plain"), image()).unwrap();
    bed.run("encrypt --cpu portable --key-file key plain disk.img")
        .ok();
    for backend in sector_cipher::Backend::available() {
        bed.run(&format!(
            "decrypt --force --cpu {} --key-file key disk.img out",
            backend.name()
        ))
        .ok();
        assert!(
            std::fs::read(bed.path("out")).unwrap() == image(),
            "{backend:?}"
        );
    }
}

/// Whoever destroys the plaintext afterwards has been told that the volume has all of it.
#[test]
fn an_image_that_gets_another_size_is_no_success() {
    for options in [&[][..], &["--skip-holes"]] {
        for change in ["truncate -s 4096 plain", "truncate -s +512 plain"] {
            let bed = Bed::with_luks2();
            std::fs::write(bed.path("plain"), &image()[..512 << 10]).unwrap();
            let command = format!("sh -c '{change}; cat key'");
            let mut words = vec!["encrypt", "--key-command", &command];
            words.extend(options);
            words.extend(["plain", "disk.img"]);
            let said = bed.run_words(&words);
            assert_eq!(said.code, Some(4), "{said:?}");
            assert!(!said.out.contains("Encrypted"), "{said:?}");
        }
    }
}

#[test]
fn a_smaller_image_leaves_the_rest_alone() {
    let bed = Bed::with_luks2();
    std::fs::write(bed.path("plain"), image()).unwrap();
    bed.run("encrypt --key-file key plain disk.img").ok();
    std::fs::write(bed.path("short"), [7; 1001]).unwrap();
    let said = bed.run("encrypt --key-file key short disk.img").ok();
    assert!(said.err.contains("stay as they are"), "{said:?}");
    bed.run("decrypt --key-file key disk.img out").ok();
    let out = std::fs::read(bed.path("out")).unwrap();
    assert!(out[..1001] == [7; 1001] && out[1001..] == image()[1001..]);
}

#[test]
fn a_forced_target_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let bed = Bed::with_luks2();
    std::fs::write(bed.path("out"), "old").unwrap();
    for (before, after) in [(0o644, 0o600), (0o666, 0o600), (0o700, 0o700)] {
        let mode = std::fs::Permissions::from_mode(before);
        std::fs::set_permissions(bed.path("out"), mode).unwrap();
        bed.run("decrypt --force --key-file key disk.img out").ok();
        let mode = bed.path("out").metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, after);
    }
}

#[test]
fn a_detached_header() {
    let bed = Bed::new();
    let cheap = "--key-file key --pbkdf pbkdf2 --pbkdf-force-iterations 1000";
    let said = bed
        .run(&format!(
            "format --json --header head --size 1M {cheap} disk.img"
        ))
        .ok();
    assert_eq!(said.json()["data_offset"], 0);
    assert_eq!(bed.path("disk.img").metadata().unwrap().len(), 1 << 20);
    std::fs::write(bed.path("plain"), image()).unwrap();
    bed.run("encrypt --header head --key-file key plain disk.img")
        .ok();
    bed.run("decrypt --header head --key-file key disk.img out")
        .ok();
    assert!(std::fs::read(bed.path("out")).unwrap() == image());
    bed.run("decrypt --key-file key disk.img out2")
        .failed(4, &["--header"]);
    bed.run("decrypt --force --header head --key-file key disk.img head")
        .failed(1, &["the same"]);
}

#[test]
fn passphrases_from_everywhere() {
    let bed = Bed::with_luks2();
    // A line of standard input, without its end; all of it as a key file.
    bed.run_with("key test disk.img", &format!("{SECRET}\n"))
        .ok();
    bed.run_with("key test --key-file - disk.img", SECRET).ok();
    bed.run_with("key test --key-file - disk.img", &format!("{SECRET}\n"))
        .failed(2, &[]);
    // A part of a file.
    std::fs::write(bed.path("long"), format!("xx{SECRET}yy")).unwrap();
    bed.run("key test --key-file long --keyfile-offset 2 --keyfile-size 13 disk.img")
        .ok();
    // A credential, named and by default.
    for (args, file) in [
        (&["key", "test", "disk.img"][..], "xtent.passphrase"),
        (&["key", "test", "disk.img"][..], "cryptsetup.passphrase"),
        (
            &["key", "test", "--credential", "mine", "disk.img"][..],
            "mine",
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(file), SECRET).unwrap();
        let said = bed
            .command(args)
            .env("CREDENTIALS_DIRECTORY", dir.path())
            .output()
            .unwrap();
        assert_eq!(said.status.code(), Some(0), "{file}: {said:?}");
    }
}

#[test]
fn an_inherited_descriptor() {
    let bed = Bed::with_luks2();
    // The shell opens it.
    let status = std::process::Command::new("sh")
        .arg("-c")
        .arg(format!(
            "{} key test --key-fd 5 disk.img 5<key",
            env!("CARGO_BIN_EXE_xtent")
        ))
        .current_dir(bed.dir())
        .output()
        .unwrap();
    assert_eq!(status.status.code(), Some(0), "{status:?}");
}

#[test]
fn old_and_new_key_from_one_standard_input() {
    let bed = Bed::with_luks1();
    let cheap = "--pbkdf-force-iterations 1000";
    bed.run_with(
        &format!("key add {cheap} disk.img"),
        &format!("{SECRET}\nsecond\n"),
    )
    .ok();
    bed.run_with(&format!("key change {cheap} disk.img"), "second\nthird\n")
        .ok();
    bed.run_with("key test disk.img", "second\n").failed(2, &[]);
    let said = bed.run_with("key test --json disk.img", "third\n").ok();
    assert!(said.json()["keyslot"].is_u64());
    bed.run_with("key remove disk.img", "third\n").ok();
    let said = bed.run("key list --json disk.img").ok();
    assert_eq!(said.json()["keyslots"].as_array().unwrap().len(), 1);
}

#[test]
fn format_says_what_it_made() {
    let bed = Bed::new();
    let said = bed
        .run("format --json --size 1M --label mine --key-size 256 --sector-size 512 --key-file key --pbkdf pbkdf2 --pbkdf-force-iterations 1000 disk.img")
        .ok();
    let made = said.json();
    assert_eq!(made["version"], 2);
    assert_eq!(made["key_bits"], 256);
    assert_eq!(made["sector_size"], 512);
    assert_eq!(made["size"], 1 << 20);
    let dump = bed.run("header dump disk.img").ok().out;
    assert!(
        dump.contains("mine") && dump.contains(made["uuid"].as_str().unwrap()),
        "{dump}"
    );
}

#[test]
fn completions_and_manual_pages() {
    let bed = Bed::new();
    for shell in ["bash", "zsh", "fish"] {
        assert!(
            bed.run(&format!("completions {shell}"))
                .ok()
                .out
                .contains("xtent")
        );
    }
    bed.run("man .").ok();
    assert!(bed.path("xtent-header-restore.8").exists());
    bed.run("man no-such-folder").failed(4, &["no-such-folder"]);
}

#[test]
fn a_named_pipe_as_key_file() {
    let bed = Bed::with_luks2();
    let status = std::process::Command::new("sh")
        .arg("-c")
        .arg(format!(
            "mkfifo pipe && (cat key >pipe &) && {} key test --key-file pipe disk.img",
            env!("CARGO_BIN_EXE_xtent")
        ))
        .current_dir(bed.dir())
        .output()
        .unwrap();
    assert_eq!(status.status.code(), Some(0), "{status:?}");
}

#[test]
fn an_interrupted_format_leaves_no_new_file() {
    use rustix::process::Signal;
    // Derives for minutes, unless interrupted.
    let line = "format --size 1M --key-file key --pbkdf pbkdf2 \
                --pbkdf-force-iterations 4000000000 disk.img";
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let bed = Bed::new();
        let mut format = bed
            .command(line.split_whitespace())
            .stdin(std::process::Stdio::null())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        while !bed.path("disk.img").exists() {
            assert!(format.try_wait().unwrap().is_none(), "ended early");
            std::thread::yield_now();
        }
        let pid = rustix::process::Pid::from_child(&format);
        rustix::process::kill_process(pid, signal).unwrap();
        let output = format.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("interrupted"), "{said}");
        assert!(!bed.path("disk.img").exists());
    }
}

/// What has nothing to put in order ends at once, with the exit code and the
/// message of every interrupted command.
#[test]
fn an_interrupted_command_says_so() {
    use rustix::process::Signal;
    let bed = Bed::new();
    let line = "format --size 1M --key-file key --pbkdf pbkdf2 \
                --pbkdf-force-iterations 1000 disk.img";
    bed.run(&line.split_whitespace().collect::<Vec<_>>().join(" "))
        .ok();
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        // It waits for the rest of its passphrase.
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        let mut test = bed
            .command(["key", "test", "--json", "--key-file", "-", "disk.img"])
            .stdin(std::process::Stdio::from(reader))
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let pid = rustix::process::Pid::from_child(&test);
        let caught = || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", test.id())).unwrap();
            let line = status.lines().find(|l| l.starts_with("SigCgt:")).unwrap();
            let mask = u64::from_str_radix(line[7..].trim(), 16).unwrap();
            mask & (1 << (signal.as_raw() - 1)) != 0
        };
        while !caught() {
            std::thread::yield_now();
        }
        rustix::process::kill_process(pid, signal).unwrap();
        let mut said = String::new();
        std::io::Read::read_to_string(&mut test.stderr.take().unwrap(), &mut said).unwrap();
        assert_eq!(test.wait().unwrap().code(), Some(code));
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        assert_eq!(said["error"]["exit"], code);
        assert_eq!(said["error"]["message"], "interrupted");
    }
}

/// 32 MiB of which 8 KiB are data, in two places.
fn sparse_image(bed: &Bed) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::create_new(bed.path("plain")).unwrap();
    file.set_len(32 << 20).unwrap();
    file.write_all_at(&[1; 4096], 4096).unwrap();
    file.write_all_at(&[2; 4096], 20 << 20).unwrap();
}

fn taken(bed: &Bed, name: &str) -> u64 {
    use std::os::unix::fs::MetadataExt;
    bed.path(name).metadata().unwrap().blocks() * 512
}

fn with_volume_of_32_mib() -> Bed {
    let bed = Bed::new();
    let cheap = "--key-file key --pbkdf pbkdf2 --pbkdf-force-iterations 1000";
    bed.run(&format!("format --size 32M {cheap} disk.img")).ok();
    bed
}

#[test]
fn zeros_come_out_as_holes() {
    let bed = with_volume_of_32_mib();
    sparse_image(&bed);
    let said = bed.run("encrypt --key-file key plain disk.img").ok();
    assert!(said.err.contains("--skip-holes"), "{said:?}");
    assert!(taken(&bed, "disk.img") >= 32 << 20);
    let plain = std::fs::read(bed.path("plain")).unwrap();
    for (sparse, most) in [
        ("", 1 << 20),
        ("--sparse ", 1 << 20),
        ("--sparse=always ", 1 << 20),
        ("--sparse=never ", u64::MAX),
    ] {
        // A file that is overwritten may have had other data there.
        std::fs::write(bed.path("out"), vec![7; 33 << 20]).unwrap();
        bed.run(&format!(
            "decrypt --force {sparse}--key-file key disk.img out"
        ))
        .ok();
        assert!(std::fs::read(bed.path("out")).unwrap() == plain, "{sparse}");
        assert!(taken(&bed, "out") <= most, "{sparse}");
        if sparse.contains("never") {
            assert!(taken(&bed, "out") >= 32 << 20);
        }
    }
}

#[test]
fn holes_are_skipped_on_request_only() {
    let bed = with_volume_of_32_mib();
    sparse_image(&bed);
    let before = taken(&bed, "disk.img");
    let said = bed
        .run("encrypt --skip-holes --json --key-file key plain disk.img")
        .ok();
    assert_eq!(said.json()["bytes"], 32 << 20);
    assert!(taken(&bed, "disk.img") <= before + (1 << 20));
    bed.run("decrypt --key-file key disk.img out").ok();
    let out = std::fs::read(bed.path("out")).unwrap();
    assert!(out[4096..8192] == [1; 4096]);
    assert!(out[20 << 20..(20 << 20) + 4096] == [2; 4096]);
    assert!(out[..4096] != [0; 4096], "a hole decrypts to noise");
    bed.run_with("encrypt --skip-holes --key-file key - disk.img", "x")
        .failed(1, &["no holes to skip"]);
}
