//! One test per failure: the exit code, what it says, and that nothing is
//! lost.
#![allow(clippy::unwrap_used, reason = "a panic is how tests fail")]

mod common;

use common::{Bed, SECRET};

#[test]
fn a_device_that_is_not_luks() {
    let bed = Bed::new();
    std::fs::write(bed.path("disk.img"), vec![0; 1 << 20]).unwrap();
    for command in ["serve", "key test", "key list", "header dump"] {
        bed.run(&format!("{command} disk.img"))
            .failed(4, &["disk.img", "no LUKS header"]);
    }
    bed.damage("disk.img", 0x438, b"\x53\xef");
    bed.run("serve disk.img")
        .failed(4, &["looks like an ext2, ext3 or ext4 file system"]);
}

#[test]
fn a_device_that_is_missing_or_no_device() {
    let bed = Bed::new();
    bed.run("serve disk.img")
        .failed(4, &["disk.img", "No such file"]);
    bed.run("serve .").failed(4, &["directory"]);
    bed.run("serve /dev/null").failed(4, &["character device"]);
    bed.run("format disk.img")
        .failed(4, &["does not exist", "--size"]);
    bed.run("format --size 1M --key-file key new/")
        .failed(4, &["Is a directory", "the name of a file"]);
    bed.run("header repair key").failed(4, &["key: no LUKS"]);
    let bed = Bed::with_luks2();
    bed.run("header restore -q disk.img key")
        .failed(4, &["key: the backup is not usable"]);
    bed.run_words(&["serve", "--run", "", "disk.img"])
        .failed(1, &["--run"]);
}

#[test]
fn a_wrong_passphrase() {
    for bed in [Bed::with_luks1(), Bed::with_luks2()] {
        for command in ["serve", "key test", "key remove"] {
            bed.run_with(&format!("{command} disk.img"), "wrong\n")
                .failed(2, &["no keyslot opens with this passphrase"]);
        }
        bed.run("key test --key-file other disk.img").failed(2, &[]);
        bed.run_with("key test disk.img", SECRET).ok();
    }
}

#[test]
fn no_passphrase_at_all() {
    let bed = Bed::with_luks2();
    bed.run("key test disk.img")
        .failed(1, &["no passphrase on standard input", "--key-file"]);
    bed.run("key test --key-file nokey disk.img")
        .failed(4, &["cannot open key file nokey"]);
    bed.run("key test --key-file . disk.img")
        .failed(1, &["directory"]);
    for offset in [SECRET.len(), SECRET.len() + 1] {
        for (key, input) in [("key", ""), ("-", SECRET)] {
            bed.run_with(
                &format!("key test --key-file {key} --keyfile-offset {offset} disk.img"),
                input,
            )
            .failed(4, &[&format!("nothing after the {offset} bytes"), "offset"]);
        }
    }
    for size in ["0", "9M"] {
        let line = format!("key test --key-file key --keyfile-size {size} disk.img");
        bed.run(&line)
            .failed(1, &["--keyfile-size", "1 to 8388608 bytes"]);
    }
    std::fs::write(bed.path("empty"), "").unwrap();
    bed.run("key test --key-file empty disk.img")
        .failed(1, &["it is empty"]);
    bed.run("key test --key-fd 77 disk.img")
        .failed(1, &["descriptor 77 is not open"]);
    bed.run("key test --key-fd 0 disk.img")
        .failed(1, &["--key-file -"]);
    bed.run("key test --credential x disk.img")
        .failed(1, &["$CREDENTIALS_DIRECTORY is not set"]);
    bed.run("key test --credential ../x disk.img")
        .failed(1, &["not a credential's name"]);
}

#[test]
fn one_good_header_copy() {
    let bed = Bed::with_luks2();
    bed.damage("disk.img", 4096, b"damage");
    bed.run("key test --key-file key disk.img")
        .ok()
        .err
        .find("xtent header repair disk.img")
        .expect("it says how to repair");
    bed.run("header repair disk.img").ok();
    assert_eq!(bed.run("key test --key-file key disk.img").ok().err, "");
}

/// A repair would destroy what somebody has made in its place.
#[test]
fn a_partition_table_over_a_header_is_asked_about() {
    let bed = Bed::with_luks2();
    let mut table = [0; 512];
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    bed.damage("disk.img", 0, &table);
    let before = std::fs::read(bed.path("disk.img")).unwrap();
    bed.run("key test --key-file key disk.img")
        .failed(1, &["signature on the device"]);
    bed.run("header repair disk.img")
        .failed(1, &["signature where its LUKS2 header was", "--batch-mode"]);
    assert!(before == std::fs::read(bed.path("disk.img")).unwrap());
    bed.run("header repair -q disk.img").ok();
    bed.run("key test --key-file key disk.img").ok();
    // Nothing is asked where nothing is lost.
    bed.damage("disk.img", 0, &[0; 512]);
    bed.run("header repair disk.img").ok();
}

#[test]
fn no_good_header_copy() {
    let bed = Bed::with_luks2();
    bed.damage("disk.img", 4096, b"damage");
    bed.damage("disk.img", 16384 + 4096, b"damage");
    bed.run("key test --key-file key disk.img")
        .failed(4, &["disk.img"]);
    bed.run("header repair disk.img").failed(4, &[]);
}

#[test]
fn an_image_shorter_than_its_header() {
    for bed in [Bed::with_luks1(), Bed::with_luks2()] {
        bed.truncate("disk.img", 1 << 20);
        bed.run("serve --key-file key disk.img")
            .failed(4, &["disk.img", "1048576"]);
    }
}

#[test]
fn odd_sizes() {
    let bed = Bed::new();
    bed.run("format --sector-size 777 --size 1M disk.img")
        .failed(1, &["512, 1024, 2048 and 4096"]);
    bed.run("format --size 33001 --key-file key disk.img")
        .failed(1, &["not whole sectors of 512"]);
    bed.run("format --size 5632 --sector-size 4096 --key-file key disk.img")
        .failed(1, &["not whole sectors of 4096"]);
    bed.run("format --size 100 disk.img")
        .failed(1, &["too small"]);
    bed.run("format --size 1GB disk.img")
        .failed(1, &["ambiguous"]);
    bed.run("format --size 9999999T disk.img")
        .failed(1, &["larger than any file"]);
    bed.run("format --offset 99999999999999999 --size 1M disk.img")
        .failed(1, &["beyond the end"]);
    assert!(!bed.path("disk.img").exists());
}

#[test]
fn options_that_contradict_the_format() {
    let bed = Bed::new();
    for (options, text) in [
        ("--type luks1 --label x", "--label needs LUKS2"),
        ("--type luks1 --pbkdf argon2id", "needs LUKS2"),
        ("--type luks1 --sector-size 4096", "needs LUKS2"),
        ("--key-size 300", "256, 512 bits"),
        ("--cipher rot-13-plain", "aes-xts-plain64"),
        ("--hash md4", "md4"),
        ("--uuid xyz", "xyz"),
    ] {
        bed.run(&format!(
            "format {options} --size 1M --key-file key disk.img"
        ))
        .failed(1, &[text]);
        assert!(!bed.path("disk.img").exists(), "{options}");
    }
}

#[test]
fn formatting_something_that_exists() {
    let bed = Bed::with_luks2();
    let before = std::fs::read(bed.path("disk.img")).unwrap();
    bed.run("format --size 1M --key-file key disk.img")
        .failed(5, &["exists already"]);
    bed.run("format --key-file other disk.img")
        .failed(1, &["irrevocably", "holds a LUKS2 volume", "--batch-mode"]);
    assert_eq!(std::fs::read(bed.path("disk.img")).unwrap(), before);
    let format = "format -q --key-file other --pbkdf pbkdf2 --pbkdf-force-iterations 1000";
    bed.run(&format!("{format} disk.img"))
        .failed(1, &["has a LUKS2 header with the UUID", "--overwrite-luks"]);
    assert_eq!(std::fs::read(bed.path("disk.img")).unwrap(), before);
    bed.run(&format!("{format} --overwrite-luks disk.img")).ok();
    bed.run("key test --key-file other disk.img").ok();
}

#[test]
fn a_format_that_fails_leaves_no_file() {
    let bed = Bed::new();
    bed.run("format --size 1M --key-file nokey disk.img")
        .failed(4, &[]);
    bed.run("format --size 1M disk.img")
        .failed(1, &["no passphrase"]);
    bed.run_with("format --size 1M disk.img", "\n")
        .failed(1, &["empty"]);
    assert!(!bed.path("disk.img").exists());
}

#[test]
fn a_stored_derivation_that_would_run_for_hours() {
    let bed = Bed::with_luks1();
    // Iterations of keyslot 0, after its state; big endian.
    bed.damage("disk.img", 208 + 4, &u32::MAX.to_be_bytes());
    bed.run("key test --key-file key disk.img")
        .failed(1, &["--allow-expensive-kdf"]);
}

#[test]
fn the_last_key() {
    let bed = Bed::with_luks2();
    bed.run("key remove --key-file key disk.img")
        .failed(1, &["last one", "--even-last"]);
    bed.run("key kill --batch-mode disk.img 0")
        .failed(1, &["last one", "--even-last"]);
    bed.run("key kill --even-last disk.img 0")
        .failed(1, &["nobody will be able", "--batch-mode"]);
    bed.run("key test --key-file key disk.img").ok();
    bed.run("key kill --even-last --batch-mode disk.img 0").ok();
    bed.run("key list disk.img").ok();
    bed.run("key test --key-file key disk.img")
        .failed(1, &["no keyslot", "--volume-key-file"]);
}

#[test]
fn keyslots_that_are_not_there() {
    let bed = Bed::with_luks2();
    bed.run("key kill --batch-mode disk.img 5")
        .failed(1, &["keyslot 5", "not in use"]);
    bed.run("key kill disk.img 99")
        .failed(1, &["99", "0 to 31"]);
    bed.run("key kill 0 disk.img")
        .failed(1, &["<SLOT>", "0 to 31"]);
    bed.run("key test --key-slot 5 --key-file key disk.img")
        .failed(1, &["5"]);
    bed.run("key add --key-file key --new-key-file other --new-key-slot 0 disk.img")
        .failed(1, &["keyslot 0 is in use"]);
}

#[test]
fn killing_a_keyslot_by_its_own_key() {
    let bed = Bed::with_luks2();
    bed.run("key add --key-file key --new-key-file other --pbkdf pbkdf2 --pbkdf-force-iterations 1000 disk.img").ok();
    bed.run("key kill --key-file other disk.img 1")
        .failed(2, &["would stay"]);
    bed.run("key kill --key-file key disk.img 1").ok();
    bed.run("key test --key-file other disk.img").failed(2, &[]);
}

#[test]
fn backups_do_not_overwrite_and_restores_ask() {
    let bed = Bed::with_luks2();
    bed.run("header backup disk.img saved").ok();
    bed.run("header backup disk.img saved")
        .failed(5, &["exists already"]);
    bed.run("header restore disk.img saved")
        .failed(1, &["replace the header", "--batch-mode"]);
    bed.run("header erase disk.img")
        .failed(1, &["--batch-mode"]);
    bed.run("header erase -q disk.img").ok();
    bed.run("key test --key-file key disk.img")
        .failed(1, &["no keyslot"]);
    bed.run("header restore -q disk.img saved").ok();
    bed.run("key test --key-file key disk.img").ok();
    bed.run("header restore -q disk.img key").failed(4, &[]);
}

#[test]
fn a_header_backup_is_never_taken_for_the_device() {
    for format in ["", "--type luks1 ", "--header d.hdr "] {
        let bed = Bed::new();
        bed.run(&format!(
            "format {format}--size 32M --key-file key {}--pbkdf-force-iterations 1000 disk.img",
            if format.contains("luks1") {
                ""
            } else {
                "--pbkdf pbkdf2 "
            }
        ))
        .ok();
        let (named, source) = if format.contains("d.hdr") {
            ("--header d.hdr ", "d.hdr")
        } else {
            ("", "disk.img")
        };
        // The old order of backup, which finds no device.
        bed.run(&format!("header backup saved {source}")).failed(
            4,
            &[
                "does not exist",
                &format!("`xtent header backup {source} saved`"),
            ],
        );
        bed.run(&format!("header backup {named}disk.img saved"))
            .ok();
        let saved = std::fs::read(bed.path("saved")).unwrap();
        // The volume has another key by now.
        let change = "--key-file key --new-key-file other --pbkdf-force-iterations 1000";
        let pbkdf2 = if format.contains("luks1") {
            ""
        } else {
            "--pbkdf pbkdf2"
        };
        bed.run(
            format!("key change {named}{change} {pbkdf2} disk.img")
                .replace("  ", " ")
                .as_str(),
        )
        .ok();
        let header = std::fs::read(bed.path(source)).unwrap();
        // The old order of restore, whatever the backup is restored to.
        for device in ["disk.img", "saved"] {
            bed.run(&format!("header restore -q saved {device}"))
                .failed(
                    1,
                    &["no data", &format!("`xtent header restore {device} saved`")],
                );
        }
        // A copy that is longer than the header, and a device without one.
        let mut copy = saved.clone();
        copy.resize(20 << 20, 7);
        std::fs::write(bed.path("copy"), copy).unwrap();
        if named.is_empty() {
            bed.run("header restore -q copy disk.img").failed(
                1,
                &["larger than copy", "`xtent header restore disk.img copy`"],
            );
        } else {
            bed.run("header restore -q d.hdr saved")
                .failed(1, &["--header d.hdr"]);
        }
        assert!(std::fs::read(bed.path("saved")).unwrap() == saved);
        assert!(std::fs::read(bed.path(source)).unwrap() == header);
        bed.run(&format!("header restore -q {named}disk.img saved"))
            .ok();
        bed.run(&format!("key test {named}--key-file key disk.img"))
            .ok();
        assert!(std::fs::read(bed.path("saved")).unwrap() == saved);
    }
}

#[test]
fn images_that_do_not_fit() {
    let bed = Bed::with_luks2();
    std::fs::write(bed.path("large"), vec![1; (1 << 20) + 1]).unwrap();
    bed.run("encrypt --key-file key large disk.img")
        .failed(4, &["1048577", "1048576"]);
    bed.run("encrypt --key-file key disk.img disk.img")
        .failed(1, &["the same"]);
    bed.run("encrypt --key-file key missing disk.img")
        .failed(4, &["missing"]);
}

#[test]
fn a_target_that_exists() {
    let bed = Bed::with_luks2();
    std::fs::write(bed.path("target"), "precious").unwrap();
    bed.run("decrypt --key-file key disk.img target")
        .failed(5, &["exists already", "--force"]);
    bed.run("decrypt --key-file key --force disk.img disk.img")
        .failed(1, &["the same"]);
    bed.run("decrypt --key-file other --force disk.img target")
        .failed(2, &[]);
    assert_eq!(std::fs::read(bed.path("target")).unwrap(), b"precious");
    bed.run("decrypt --key-file key disk.img no/such/folder")
        .failed(4, &["no/such/folder"]);
}

#[test]
fn mount_points_that_cannot_be() {
    let bed = Bed::with_luks2();
    bed.run("mount --key-file key disk.img key")
        .failed(1, &["not a directory"]);
    bed.run("mount --key-file key disk.img nowhere")
        .failed(1, &["cannot find the directory", "nowhere"]);
    bed.run("mount --key-file key nodisk.img .")
        .failed(4, &["cannot find", "nodisk.img"]);
    bed.run("umount .").failed(1, &[]);
}

#[cfg(feature = "device-mapper")]
#[test]
fn mappings_that_cannot_be() {
    let bed = Bed::with_luks2();
    for name in ["a/b", "control", "\u{e9}"] {
        for line in [
            format!("open --key-file key {name} disk.img"),
            format!("close {name}"),
            format!("suspend {name}"),
            format!("resume --key-file key {name}"),
        ] {
            bed.run(&line).failed(1, &[name]);
        }
    }
    bed.run("open --key-file nokey v disk.img")
        .failed(4, &["nokey"]);
    bed.run("open --target other v disk.img")
        .failed(1, &["crypt", "xtent"]);
}

#[test]
fn errors_as_json() {
    let bed = Bed::with_luks2();
    for (line, code) in [
        ("key test --json disk.img --key-file other", 2),
        ("--json serve", 1),
        ("header dump --json nothing", 4),
    ] {
        let said = bed.run(line).failed(code, &[]);
        let error: serde_json::Value = serde_json::from_str(said.err.trim()).unwrap();
        assert_eq!(error["error"]["exit"], code);
        assert!(error["error"]["message"].as_str().unwrap().len() > 10);
        assert_eq!(said.out, "");
    }
}

#[test]
fn usage_errors_are_parameters() {
    let bed = Bed::new();
    for line in [
        "",
        "frobnicate",
        "serve",
        "serve --frobnicate x",
        "key",
        "bench --cpu z80",
    ] {
        bed.run(line).failed(1, &[]);
    }
    for line in ["--help", "-h", "--version", "key add --help"] {
        assert_ne!(bed.run(line).ok().out, "");
    }
}

#[test]
fn a_full_standard_output_is_an_error_and_a_closed_one_is_not() {
    let bed = Bed::with_luks2();
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let status = bed
        .command(["key", "list", "disk.img"])
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(status.status.code(), Some(4));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = bed
        .command(["key", "list", "disk.img"])
        .stdout(writer)
        .output()
        .unwrap();
    assert_eq!(status.status.code(), Some(0));
    assert_eq!(status.stderr, b"");
}

/// Whatever opens a volume says that this header's data is elsewhere, and
/// leaves the header as it was.
fn refuses_itself(bed: &Bed, header: &str, device: &str) {
    let before = std::fs::read(bed.path("d.hdr")).unwrap();
    let dir = bed.path("dir");
    for command in [
        format!("serve --key-file key{header} {device}"),
        format!("serve --read-only --key-file key{header} {device}"),
        format!(
            "mount --file-only --key-file key{header} {device} {}",
            dir.display()
        ),
        format!("encrypt --key-file key{header} plain {device}"),
        format!("decrypt --key-file key{header} {device} out"),
        format!("bench --key-file key{header} {device}"),
    ] {
        bed.run(&command)
            .failed(4, &["holds a detached header only", "--header"]);
    }
    assert!(!bed.path("out").exists());
    assert!(std::fs::read(bed.path("d.hdr")).unwrap() == before);
}

#[test]
fn a_detached_header_is_no_volume() {
    for kind in ["luks1", "luks2"] {
        let bed = Bed::new();
        std::fs::write(bed.path("plain"), vec![7; 4096]).unwrap();
        std::fs::create_dir(bed.path("dir")).unwrap();
        bed.run(&format!(
            "format --type {kind} --header d.hdr --size 1M --key-file key --pbkdf pbkdf2 \
             --pbkdf-force-iterations 1000 disk.img"
        ))
        .ok();
        std::fs::hard_link(bed.path("d.hdr"), bed.path("hard")).unwrap();
        std::os::unix::fs::symlink("d.hdr", bed.path("soft")).unwrap();
        refuses_itself(&bed, "", "d.hdr");
        refuses_itself(&bed, " --header d.hdr", "d.hdr");
        refuses_itself(&bed, " --header hard", "d.hdr");
        refuses_itself(&bed, " --header d.hdr", "soft");
        bed.run("decrypt --key-file key --header soft disk.img out")
            .ok();
    }
}

#[test]
fn header_and_data_are_two_files() {
    let bed = Bed::new();
    std::fs::write(bed.path("disk.img"), vec![7; 32 << 20]).unwrap();
    std::fs::hard_link(bed.path("disk.img"), bed.path("hard")).unwrap();
    bed.run("format -q --key-file key --header hard disk.img")
        .failed(1, &["hard", "disk.img", "the same"]);
    assert!(
        std::fs::read(bed.path("disk.img"))
            .unwrap()
            .iter()
            .all(|&b| b == 7)
    );
}

#[test]
fn names_that_are_not_text_are_names_all_the_same() {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let bed = Bed::new();
    let name = |end: &str| {
        let mut bytes = b"di\xffsk\x1b[31m".to_vec();
        bytes.extend(end.as_bytes());
        std::ffi::OsString::from_vec(bytes)
    };
    let run = |line: &str, last: &[std::ffi::OsString]| {
        let words = line
            .split(' ')
            .map(|word| std::ffi::OsStr::from_bytes(word.as_bytes()));
        let output = bed
            .command(words.chain(last.iter().map(|word| &**word)))
            .output()
            .unwrap();
        for text in [&output.stdout, &output.stderr] {
            let text = String::from_utf8(text.clone()).unwrap();
            assert!(
                !text.contains('\x1b') && !text.contains("panicked"),
                "{text}"
            );
        }
        output.status.code()
    };
    let (image, backup, plain) = (name(".img"), name(".bak"), name(".raw"));
    let both = [image.clone(), backup.clone()];
    let format = "format --size 1M --key-file key --pbkdf pbkdf2 --pbkdf-force-iterations 1000";
    assert_eq!(run(format, std::slice::from_ref(&image)), Some(0));
    assert_eq!(run("key list", std::slice::from_ref(&image)), Some(0));
    assert_eq!(run("header backup --json", &both), Some(0));
    assert_eq!(run("header restore -q", &both), Some(0));
    assert_eq!(run("decrypt --key-file key", &[image, plain]), Some(0));
    assert_eq!(run("key list", &[name("none")]), Some(4));
    assert_eq!(run("header dump", &[backup]), Some(0));
}

#[test]
fn a_name_that_leads_nowhere_exists_all_the_same() {
    let bed = Bed::with_luks2();
    std::os::unix::fs::symlink("nowhere", bed.path("link")).unwrap();
    bed.run("decrypt --key-file key disk.img link")
        .failed(5, &["link", "File exists"]);
    bed.run("format --size 1M --key-file key --pbkdf pbkdf2 --pbkdf-force-iterations 1000 link")
        .failed(5, &["link", "File exists"]);
    assert!(!bed.path("nowhere").exists());
}

#[test]
fn a_detached_header_is_not_restored_onto_the_data() {
    for kind in ["luks1", "luks2"] {
        let bed = Bed::new();
        bed.run(&format!(
            "format --type {kind} --header d.hdr --size 32M --key-file key --pbkdf pbkdf2 \
             --pbkdf-force-iterations 1000 disk.img"
        ))
        .ok();
        std::fs::write(bed.path("plain"), vec![7; 32 << 20]).unwrap();
        bed.run("encrypt --header d.hdr --key-file key plain disk.img")
            .ok();
        bed.run("header backup d.hdr saved").ok();
        let before = std::fs::read(bed.path("disk.img")).unwrap();
        for options in ["", "-q ", "-q --header disk.img "] {
            bed.run(&format!("header restore {options}disk.img saved"))
                .failed(
                    1,
                    &[
                        "detached header",
                        "destroy the data",
                        "`xtent header restore --header FILE disk.img saved`",
                    ],
                );
        }
        // Nor over a volume with its header inside, of either version.
        for other in ["luks1", "luks2"] {
            let name = format!("{other}.img");
            bed.run(&format!(
                "format --type {other} --size 32M --key-file key --pbkdf pbkdf2 \
                 --pbkdf-force-iterations 1000 {name}"
            ))
            .ok();
            let volume = std::fs::read(bed.path(&name)).unwrap();
            let said = bed.run(&format!("header restore -q {name} saved"));
            assert_ne!(said.code, Some(0), "{said:?}");
            assert!(std::fs::read(bed.path(&name)).unwrap() == volume);
        }
        // Where the header was, where nothing is, and where there is no file.
        std::fs::write(bed.path("empty"), vec![0; 20 << 20]).unwrap();
        for header in ["d.hdr", "empty", "new"] {
            bed.run(&format!(
                "header restore -q --header {header} disk.img saved"
            ))
            .ok();
            bed.run(&format!("key test --key-file key {header}")).ok();
        }
        bed.run("header restore -q --header newer disk.img key")
            .failed(4, &[]);
        assert!(!bed.path("newer").exists());
        assert!(std::fs::read(bed.path("disk.img")).unwrap() == before);
    }
}

#[test]
fn a_restore_names_what_it_overwrites() {
    let bed = Bed::with_luks2();
    bed.run("header backup disk.img saved").ok();
    std::fs::write(bed.path("ext4"), vec![0; 20 << 20]).unwrap();
    bed.damage("ext4", 0x438, b"\x53\xef");
    let before = std::fs::read(bed.path("ext4")).unwrap();
    bed.run("header restore ext4 saved")
        .failed(1, &["It holds an ext2, ext3 or ext4 file system now", "-q"]);
    assert!(std::fs::read(bed.path("ext4")).unwrap() == before);

    // A disk whose second partition is the volume: its DOS table's entry.
    let volume = std::fs::read(bed.path("disk.img")).unwrap();
    let mut disk = vec![0; 1 << 20];
    let sectors = u32::try_from(volume.len() / 512).unwrap();
    disk[462 + 4] = 0x83;
    disk[462 + 8..][..4].copy_from_slice(&2048_u32.to_le_bytes());
    disk[462 + 12..][..4].copy_from_slice(&sectors.to_le_bytes());
    disk[510..512].copy_from_slice(b"\x55\xaa");
    disk.extend(volume);
    std::fs::write(bed.path("disk"), &disk).unwrap();
    bed.run("header restore -q disk saved")
        .failed(1, &["holds a DOS partition table", "--partition 2"]);
    assert!(std::fs::read(bed.path("disk")).unwrap() == disk);
    bed.run("header restore -q --partition 2 disk saved").ok();
    bed.run("key test --partition 2 --key-file key disk").ok();
    assert!(std::fs::read(bed.path("disk")).unwrap()[..1 << 20] == disk[..1 << 20]);
}

#[test]
fn keys_and_volumes_are_not_overwritten() {
    let bed = Bed::with_luks2();
    bed.run("header dump -q --volume-key-file vk --key-file key disk.img")
        .ok();
    std::fs::write(bed.path("pin"), "1234").unwrap();
    std::fs::hard_link(bed.path("key"), bed.path("hard")).unwrap();
    let names = ["key", "vk", "pin", "disk.img"];
    let all = || names.map(|name| std::fs::read(bed.path(name)).unwrap());
    let before = all();
    for line in [
        "decrypt --force --key-file key disk.img key",
        "decrypt --force --key-file key disk.img hard",
        "decrypt --force --volume-key-file vk disk.img vk",
        "decrypt --force --key-file key --token-pin-file pin disk.img pin",
        "format -q --key-file key key",
        "format -q --key-file hard --header key disk.img",
        "format -q --key-file key --volume-key-file vk --header vk disk.img",
    ] {
        bed.run(line)
            .failed(1, &["the same", "nothing was changed"]);
    }
    bed.run(
        "format --size 1M --key-file key --pbkdf pbkdf2 --pbkdf-force-iterations 1000 other.img",
    )
    .ok();
    let other = std::fs::read(bed.path("other.img")).unwrap();
    bed.run("decrypt --force --key-file key disk.img other.img")
        .failed(5, &["other.img holds a LUKS2 volume", "remove it"]);
    assert!(std::fs::read(bed.path("other.img")).unwrap() == other);
    assert!(all() == before);
}

#[test]
fn a_file_of_any_size_can_be_formatted() {
    let cheap = "--key-file key --pbkdf pbkdf2 --pbkdf-force-iterations 1000";
    let bed = Bed::new();
    for (size, sector) in [
        ((17 << 20) + 1, 4096),
        ((17 << 20) + 513, 512),
        (17 << 20, 4096),
    ] {
        std::fs::write(bed.path("odd"), vec![0; size]).unwrap();
        let said = bed.run(&format!("format -q --json {cheap} odd")).ok();
        let room = size - (16 << 20);
        assert_eq!(said.json()["size"], room / 512 * 512);
        assert_eq!(said.json()["sector_size"], sector);
        // It opens, and its last byte can be written.
        std::fs::write(bed.path("plain"), vec![9; room / 512 * 512]).unwrap();
        bed.run("encrypt --key-file key plain odd").ok();
        bed.run("decrypt --force --key-file key odd out").ok();
        assert!(std::fs::read(bed.path("out")).unwrap() == vec![9; room / 512 * 512]);
        assert_eq!(bed.path("odd").metadata().unwrap().len(), size as u64);
    }
    std::fs::write(bed.path("odd"), vec![0; (17 << 20) + 1]).unwrap();
    let said = bed.run(&format!("format -q {cheap} odd")).ok();
    assert!(
        said.err.contains("last 1 bytes of odd stay unused"),
        "{said:?}"
    );
    std::fs::write(bed.path("odd"), vec![0; (17 << 20) + 513]).unwrap();
    bed.run(&format!("format -q --sector-size 4096 {cheap} odd"))
        .failed(1, &["not whole sectors of 4096", "smaller --sector-size"]);
}

#[test]
fn sizes_and_ciphers_that_cannot_be() {
    let bed = Bed::new();
    for size in ["0", "10", "4095"] {
        bed.run(&format!("format --key-file key --size {size} z"))
            .failed(1, &["counts the plaintext", "4096"]);
    }
    bed.run("format --key-file key --size 1M --cipher aes-xts z")
        .failed(1, &["Did you mean aes-xts-plain64?"]);
    bed.run("format --key-file key --size 1M --cipher AES-XTS-PLAIN64 z")
        .failed(1, &["Did you mean aes-xts-plain64?"]);
    bed.run("format --key-file key --size 1M --cipher serpent-xts-plain64 z")
        .failed(1, &["serpent is not supported"]);
    assert!(!bed.path("z").exists());
}

/// A shell's `ulimit -f` counts KiB in bash.
#[test]
fn a_file_size_limit_is_an_error_and_not_the_end() {
    let bed = Bed::with_luks2();
    let run = |line: &str| {
        let script = format!(
            "ulimit -f 1024; exec {} {line}",
            env!("CARGO_BIN_EXE_xtent")
        );
        std::process::Command::new("bash")
            .args(["-c", &script])
            .current_dir(bed.dir())
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap()
    };
    for line in [
        "format --size 1M --key-file key --pbkdf pbkdf2 --pbkdf-force-iterations 1000 new",
        "header backup disk.img new",
        "encrypt --key-file key key disk.img",
        "decrypt --key-file key disk.img - >new",
    ] {
        let output = run(line);
        let said = String::from_utf8(output.stderr).unwrap();
        if line.ends_with(">new") {
            // Just as much as the limit allows.
            assert_eq!(output.status.code(), Some(0), "{line}: {said}");
            continue;
        }
        assert_eq!(output.status.code(), Some(4), "{line}: {said}");
        assert!(said.contains("File too large"), "{line}: {said}");
        assert!(!bed.path("new").exists(), "{line}");
    }
}
