//! Plain dm-crypt volumes, which have no header: the kernel and cryptsetup read
//! what Xtent writes and the reverse.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use xtent_tests::luks::{Maker, Shape};
use xtent_tests::scratch::{Unchanged, assert_same, read_range};
use xtent_tests::uml::Job;
use xtent_tests::xtent::xtent;
use xtent_tests::{Cmd, Scratch, pattern};

/// Of plaintext.
const DATA: usize = (1 << 20) + 3 * 4096;
/// Of the image: more than the data, at an offset.
const IMAGE: u64 = 2 << 20;

/// A line, of which the end does not count where it is typed.
const PASSPHRASE: &[u8] = b"correct horse battery staple\n";

/// Options that both programs take, and where the passphrase comes from.
const CASES: [(&str, &str, &str); 7] = [
    (
        "old_defaults",
        "--cipher aes-cbc-essiv:sha256 --key-size 256 --hash ripemd160",
        "",
    ),
    (
        "new_defaults",
        "--cipher aes-xts-plain64 --key-size 256 --hash sha256",
        "",
    ),
    (
        "longer_than_the_hash",
        "--cipher aes-xts-plain64 --key-size 512 --hash sha256 --offset 100 --skip 7",
        "",
    ),
    (
        "hash_of_a_length",
        "--cipher aes-cbc-plain64 --key-size 256 --hash sha512:16",
        "",
    ),
    (
        "all_of_standard_input",
        "--cipher aes-xts-plain64 --key-size 512 --hash sha512",
        "--key-file -",
    ),
    (
        "key_file_and_large_sectors",
        "--cipher aes-xts-plain64 --key-size 512 --sector-size 4096 --iv-large-sectors --skip 16",
        "--key-file KEY",
    ),
    (
        "key_file_and_sectors",
        "--cipher aes-cbc-essiv:sha256 --key-size 128 --sector-size 4096 --offset 8 --skip 8",
        "--key-file KEY",
    ),
];

/// Longer than any key: the rest does not count.
fn key() -> Vec<u8> {
    pattern(100, 91)
}

fn words(text: &str, key: &Path) -> Vec<String> {
    text.split_whitespace()
        .map(|word| match word {
            "KEY" => key.display().to_string(),
            word => word.to_owned(),
        })
        .collect()
}

#[test]
fn the_kernel_and_xtent_read_each_other() {
    let scratch = Scratch::new();
    let key_file = scratch.file("key", &key());
    let mut script = String::new();
    let mut job_files = Vec::new();
    let mut volumes = Vec::new();
    for ((name, options, from), seed) in CASES.into_iter().zip(81..) {
        let ours = scratch.image(&format!("{name}-ours"), IMAGE);
        let theirs = scratch.image(&format!("{name}-theirs"), IMAGE);
        let data = pattern(DATA, seed);
        let source = scratch.file(&format!("{name}-data"), &data);
        let sectors = format!("{options} --size {}", DATA / 512);
        xtent()
            .args(["encrypt", "--type", "plain"])
            .args(words(&sectors, &key_file))
            .args(words(from, &key_file))
            .args([&source, &ours])
            .stdin(PASSPHRASE)
            .ok();
        let from = from.replace("KEY", "/in/key");
        script.push_str(&format!(
            "open_plain() {{ cat /in/word | cryptsetup open --batch-mode --type plain {sectors} {from} $1 plain; }}
             open_plain /d/{name}-ours
             cat /dev/mapper/plain >{name}
             cryptsetup close plain
             open_plain /d/{name}-theirs
             dd if=/in/data-{name} of=/dev/mapper/plain bs=64k conv=fsync 2>/dev/null
             cryptsetup close plain\n"
        ));
        job_files.push((format!("data-{name}"), data.clone()));
        volumes.push((name, sectors, from, ours, theirs, data));
    }
    let mut job = Job::new(&script)
        .file("word", PASSPHRASE)
        .file("key", &key());
    for (name, bytes) in &job_files {
        job = job.file(name, bytes);
    }
    for (name, _, _, ours, theirs, _) in &volumes {
        job = job
            .disk(&format!("{name}-ours"), ours)
            .disk(&format!("{name}-theirs"), theirs);
    }
    let outcome = job.run();
    for (name, sectors, from, ours, theirs, data) in &volumes {
        assert_same(&outcome.file(name), data, &format!("{name}, by the kernel"));
        let target = scratch.join(&format!("{name}-plain"));
        let from = from.replace("/in/key", "KEY");
        xtent()
            .args(["decrypt", "--type", "plain"])
            .args(words(sectors, &key_file))
            .args(words(&from, &key_file))
            .args([theirs, &target])
            .stdin(PASSPHRASE)
            .ok();
        assert_same(&std::fs::read(target).unwrap(), data, name);
        // The same bytes, and none outside.
        let length = usize::try_from(IMAGE).unwrap();
        let (ours, theirs) = (read_range(ours, 0, length), read_range(theirs, 0, length));
        assert_same(&ours, &theirs, name);
    }
}

/// By the device mapper: table with key, UUID, data; and each closes what the other has opened.
#[test]
fn mappings_are_those_of_cryptsetup() {
    let scratch = Scratch::new();
    let disk = scratch.image("disk", IMAGE);
    let luks = Shape::LUKS2.image(Maker::Xtent, &scratch, DATA as u64);
    let data = pattern(DATA, 71);
    let mut script = String::from(
        "seen() {
             dmsetup table --showkeys plain >$1
             dmsetup info -c --noheadings -o uuid plain >>$1
             blockdev --getro /dev/mapper/plain >>$1
         }
         ours() {
             cat /in/word | xtent open --type plain \"$@\" plain $on
             seen ours
         }
         theirs() {
             cat /in/word | cryptsetup open --batch-mode --type plain \"$@\" $on plain
             seen theirs
         }
         on=/d/disk\n",
    );
    for (name, options, from) in CASES {
        let options = format!("{options} {from} --size {}", DATA / 512).replace("KEY", "/in/key");
        script.push_str(&format!(
            "theirs {options}
             xtent close plain
             ours {options}
             cmp ours theirs
             cat ours >>tables
             no_key
             dd if=/in/data of=/dev/mapper/plain bs=64k conv=fsync 2>/dev/null
             cryptsetup close plain
             theirs {options}
             cat /dev/mapper/plain >{name}
             xtent close plain\n"
        ));
    }
    let (_, xts, _) = CASES[1];
    script.push_str(&format!(
        "more='{xts} --readonly --allow-discards --perf-no_read_workqueue'
         theirs $more
         cryptsetup close plain
         ours $more
         cmp ours theirs
         cat ours >>tables
         xtent status /d/disk
         xtent close plain
         # An image file, to its end.
         cp /in/data /tmp/image
         on=/tmp/image
         ours {xts}
         cmp -n 4096 /dev/mapper/plain /in/data >/dev/null || echo 'is not the ciphertext'
         xtent close plain
         [ ! -e /sys/block/loop0/loop ]
         open=\"xtent open --type plain --key-file /in/key --cipher aes-xts-plain64\"
         fails 4 $open --key-size 512 plain /d/luks
         fails 1 $open --key-size 512 --sector-size 4096 --skip 7 plain /d/disk
         fails 1 $open --key-size 512 --sector-size 4096 --size 7 plain /d/disk
         fails 4 $open --key-size 512 --size 99999 plain /d/disk
         fails 1 $open --key-size 512 --header /d/luks plain /d/disk
         fails 1 xtent open --key-file /in/key --cipher aes-xts-plain64 plain /d/luks
         [ \"$(dmsetup ls)\" = 'No devices found' ]"
    ));
    let outcome = Job::new(&script)
        .with_xtent()
        .disk("disk", &disk)
        .disk("luks", &luks.image)
        .file("word", PASSPHRASE)
        .file("key", &key())
        .file("data", &data)
        .run();
    for (name, ..) in CASES {
        assert_same(&outcome.file(name), &data, name);
    }
    let tables = String::from_utf8(outcome.file("tables")).unwrap();
    for part in [
        " crypt aes-cbc-essiv:sha256 ",
        " 7 98:",
        "2 sector_size:4096 iv_large_sectors",
        "1 sector_size:4096",
        "2 allow_discards no_read_workqueue",
        "\nCRYPT-PLAIN-plain\n",
    ] {
        assert!(tables.contains(part), "no {part:?} in\n{tables}");
    }
    // The key itself, as cryptsetup has it there.
    let digits: String = key()[..64].iter().map(|b| format!("{b:02x}")).collect();
    assert!(tables.contains(&digits), "{tables}");
    for told in [
        "is not the ciphertext",
        "is mapped\n  as       /dev/mapper/plain",
        "--ignore-signature",
        "a multiple of 8 with --sector-size 4096",
        "neither a header nor keyslots",
    ] {
        assert!(
            outcome.console.contains(told),
            "{told:?} is not in\n{}",
            outcome.console
        );
    }
}

#[test]
fn what_no_header_says_has_to_be_said() {
    let scratch = Scratch::new();
    let image = scratch.image("image", IMAGE);
    let target = scratch.join("target");
    let decrypt = |options: &str| {
        xtent()
            .args(["decrypt", "--type", "plain"])
            .args(options.split_whitespace())
            .args([&image, &target])
            .stdin(PASSPHRASE)
    };
    for missing in [
        "",
        "--cipher aes-xts-plain64",
        "--key-size 256 --hash sha256",
    ] {
        decrypt(missing).fails(1).says(&[
            "--cipher aes-cbc-essiv:sha256 --key-size 256 --hash ripemd160",
            "--cipher aes-xts-plain64 --key-size 256 --hash sha256",
        ]);
    }
    let known = "--cipher aes-xts-plain64 --key-size 256";
    decrypt(known).fails(1).says(&["--hash"]);
    decrypt(&format!("{known} --hash md4"))
        .fails(4)
        .says(&["md4", "sha256"]);
    decrypt(&format!("{known} --hash sha256 --offset 99999"))
        .fails(4)
        .says(&["would go from byte"]);
    decrypt("--cipher aes-xts-plain64 --key-size 128 --hash sha256")
        .fails(1)
        .says(&["256, 512"]);
    assert!(!target.exists());
    let done = decrypt(&format!("{known} --hash sha256")).ok();
    done.says(&["cannot tell a wrong passphrase"]);
}

#[test]
fn what_is_something_else_is_not_overwritten_as_plain() {
    let scratch = Scratch::new();
    let container = Shape::LUKS2.image(Maker::Xtent, &scratch, 1 << 20);
    let source = scratch.file("source", &pattern(4096, 92));
    let plain = "--cipher aes-xts-plain64 --key-size 256 --hash sha256";
    let encrypt = |more: &str| {
        xtent()
            .arg("encrypt")
            .args(plain.split_whitespace())
            .args(more.split_whitespace())
            .args([&source, &container.image])
            .stdin(PASSPHRASE)
    };
    let before = Unchanged::new(&container.image);
    encrypt("--type plain")
        .fails(4)
        .says(&["LUKS2", "--ignore-signature"]);
    // Nor at an offset, since that may be its data.
    encrypt("--type plain --offset 34000").fails(4);
    encrypt("").fails(1).says(&["--cipher", "--type plain"]);
    before.assert("refused");
    encrypt("--type plain --ignore-signature --offset 34000").ok();

    let image = scratch.image("ext4", 8 << 20);
    Cmd::peer("mkfs.ext4").arg("-q").arg(&image).ok();
    let before = Unchanged::new(&image);
    xtent()
        .args(["serve", "--type", "plain", "--nbd"])
        .arg(format!("unix:{}", scratch.join("socket").display()))
        .args(plain.split_whitespace())
        .arg(&image)
        .stdin(PASSPHRASE)
        .fails(4)
        .says(&["ext4"]);
    before.assert("refused");
}
