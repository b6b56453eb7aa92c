//! Plaintext through pipes: what comes in, what goes out, and what does not.
#![allow(clippy::unwrap_used, reason = "a panic is how tests fail")]

mod common;

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use common::{Bed, SECRET, Said, image};

const KEY: &str = "--key-file key";
const XTENT: &str = env!("CARGO_BIN_EXE_xtent");

/// A bed whose volume, and whose file `plain`, hold the image.
fn filled() -> Bed {
    let bed = Bed::with_luks2();
    std::fs::write(bed.path("plain"), image()).unwrap();
    bed.run("encrypt --key-file key plain disk.img").ok();
    bed
}

/// Runs a line of bash, in which `$X` is the command.
#[track_caller]
fn bash(bed: &Bed, line: &str) -> Said {
    let output = Command::new("bash")
        .args(["-c", &format!("set -o pipefail; X={XTENT}; {line}")])
        .current_dir(bed.dir())
        .env_remove("CREDENTIALS_DIRECTORY")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    Said {
        code: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

#[track_caller]
fn holds_image(bed: &Bed) {
    let _ = std::fs::remove_file(bed.path("check"));
    bed.run("decrypt --key-file key disk.img check").ok();
    assert!(std::fs::read(bed.path("check")).unwrap() == image());
}

#[test]
fn a_dash_is_standard_output_and_gets_nothing_but_the_plaintext() {
    let bed = filled();
    for json in ["", "--json ", "--quiet "] {
        let output = bed
            .command(format!("decrypt {json}{KEY} disk.img -").split(' '))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert!(output.stdout == image(), "{json}");
        let said = String::from_utf8(output.stderr).unwrap();
        match json {
            "" => assert!(said.starts_with("Decrypted 1 MiB"), "{said}"),
            "--json " => {
                let result: serde_json::Value = serde_json::from_str(&said).unwrap();
                assert_eq!(result["bytes"], 1 << 20);
            }
            _ => assert_eq!(said, ""),
        }
        assert!(!bed.path("-").exists(), "plaintext in a file");
    }
}

#[test]
fn a_dash_is_standard_input_whatever_files_there_are() {
    let bed = Bed::with_luks2();
    std::fs::write(bed.path("-"), vec![7; 1 << 20]).unwrap();
    std::fs::write(bed.path("plain"), image()).unwrap();
    let said = bash(&bed, "cat plain | $X encrypt --key-file key - disk.img").ok();
    assert!(said.out.starts_with("Encrypted 1 MiB"), "{said:?}");
    holds_image(&bed);
    // A file of that name has another name.
    bed.run("encrypt --key-file key ./- disk.img").ok();
    bed.run("decrypt --key-file key disk.img ./-")
        .failed(5, &["exists already"]);
    bed.run("decrypt --key-file key disk.img out").ok();
    assert!(std::fs::read(bed.path("out")).unwrap() == vec![7; 1 << 20]);
    // A volume is none of both.
    for line in [
        "decrypt - out",
        "encrypt plain -",
        "format --size 1M -",
        "header dump -",
    ] {
        bed.run(line).failed(1, &["`./-`"]);
    }
}

#[test]
fn every_kind_of_stream_goes_in() {
    for line in [
        "cat plain | $X encrypt --key-file key /dev/stdin disk.img",
        "cat plain | $X encrypt --key-file key /dev/fd/0 disk.img",
        "$X encrypt --key-file key <(cat plain) disk.img",
        "$X encrypt --key-file key /dev/fd/5 disk.img 5< <(cat plain)",
        "$X encrypt --key-file key - disk.img <plain",
        "mkfifo pipe; cat plain >pipe & $X encrypt --key-file key pipe disk.img",
        // In bits and pieces.
        "(head -c 70000; sleep 0; cat) <plain | $X encrypt --key-file key - disk.img",
        "zstd -q <plain | zstd -dc | $X encrypt --key-file key - disk.img",
        // The passphrase from elsewhere.
        "cat plain | $X encrypt --key-fd 3 - disk.img 3<key",
    ] {
        let bed = Bed::with_luks2();
        std::fs::write(bed.path("plain"), image()).unwrap();
        let said = bash(&bed, line);
        assert_eq!(said.code, Some(0), "{line}: {said:?}");
        holds_image(&bed);
    }
}

#[test]
fn every_kind_of_stream_comes_out() {
    let bed = filled();
    for line in [
        "$X decrypt --key-file key disk.img - | cat >out",
        "$X decrypt --key-file key disk.img /dev/stdout | cat >out",
        "$X decrypt --key-file key disk.img - >out",
        "mkfifo pipe; cat pipe >out & $X decrypt --key-file key disk.img pipe && wait",
        "$X decrypt --key-file key disk.img /dev/fd/4 4>out",
        "$X decrypt --key-file key disk.img - | zstd -q | zstd -dc >out",
        "$X decrypt disk.img - <key >out",
        // What is there already stays.
        "head -c 1000 plain >out; $X decrypt --key-file key disk.img - >>out; \
         tail -c +1001 out >all && mv all out",
    ] {
        let _ = std::fs::remove_file(bed.path("out"));
        let said = bash(&bed, line);
        assert_eq!(said.code, Some(0), "{line}: {said:?}");
        assert!(std::fs::read(bed.path("out")).unwrap() == image(), "{line}");
    }
    // With another place for the plaintext, standard output has the result.
    let said = bash(&bed, "$X decrypt --json --key-file key disk.img /dev/null").ok();
    assert_eq!(said.json()["bytes"], 1 << 20);
}

#[test]
fn a_stream_that_does_not_fit() {
    let bed = filled();
    let flood = "(cat plain; echo more) | $X encrypt --key-file key - disk.img";
    bash(&bed, flood).failed(4, &["longer than the volume", "1048576 bytes", "first"]);
    holds_image(&bed);
    // Of a file the length is known, and nothing is written.
    let said = bash(
        &bed,
        "head -c 2M /dev/zero >large; $X encrypt --key-file key - disk.img <large",
    );
    said.failed(4, &["has 2097152 bytes", "Nothing was changed"]);
    holds_image(&bed);
    bash(&bed, "$X encrypt --key-file key /dev/zero disk.img").failed(4, &["longer"]);
}

#[test]
fn a_short_stream_says_what_stays() {
    let bed = filled();
    let said = bash(
        &bed,
        "head -c 1001 /dev/zero | $X encrypt --key-file key - disk.img",
    )
    .ok();
    assert!(said.err.contains("stay as they are"), "{said:?}");
    bed.run("decrypt --key-file key disk.img out").ok();
    let out = std::fs::read(bed.path("out")).unwrap();
    assert!(out[..1001] == [0; 1001] && out[1001..] == image()[1001..]);
    bash(&bed, "false | $X encrypt --key-file key - disk.img")
        .failed(4, &["ended before its first byte"]);
}

#[test]
fn one_standard_input_for_one_thing() {
    let bed = filled();
    for key in ["--key-file -", "--key-file /dev/stdin"] {
        let line = format!("cat plain | $X encrypt {key} - disk.img");
        bash(&bed, &line).failed(1, &["cannot be both", "--key-fd"]);
    }
    // No terminal to ask on.
    bash(&bed, "cat plain | setsid --wait $X encrypt - disk.img")
        .failed(1, &["no terminal", "--key-file"]);
    // A credential will do.
    std::fs::write(bed.path("xtent.passphrase"), SECRET).unwrap();
    bash(
        &bed,
        "cat plain | CREDENTIALS_DIRECTORY=$PWD $X encrypt - disk.img",
    )
    .ok();
    holds_image(&bed);
}

#[test]
fn a_reader_that_goes_is_an_error_without_panic() {
    let bed = Bed::new();
    bed.run(
        "format --size 32M --key-file key --pbkdf pbkdf2 --pbkdf-force-iterations 1000 disk.img",
    )
    .ok();
    let said = bash(
        &bed,
        "$X decrypt --key-file key disk.img - | head -c 1 >/dev/null",
    );
    said.failed(4, &["standard output has gone", "of 32 MiB were copied"]);
}

#[test]
fn messages_do_not_mix_with_plaintext() {
    let bed = filled();
    let said = bash(&bed, "$X decrypt --key-file key disk.img - 2>&1 | cat");
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.out.contains("standard error as well"), "{said:?}");
    bash(&bed, "$X decrypt --key-file key disk.img - >/dev/null 2>&1").ok();
}

#[test]
fn a_volume_is_not_its_own_stream() {
    let bed = filled();
    let before = std::fs::read(bed.path("disk.img")).unwrap();
    bash(&bed, "$X encrypt --key-file key - disk.img <disk.img").failed(1, &["the same"]);
    bash(&bed, "$X decrypt --key-file key disk.img - >>disk.img").failed(1, &["the same"]);
    assert!(std::fs::read(bed.path("disk.img")).unwrap() == before);
}

#[test]
fn an_interruption_ends_a_copy_that_waits() {
    let bed = Bed::new();
    bed.run(
        "format --size 8M --key-file key --pbkdf pbkdf2 --pbkdf-force-iterations 1000 disk.img",
    )
    .ok();
    let mut encrypt = bed
        .command("encrypt --key-file key --progress-json - disk.img".split(' '))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // More than a pipe holds, so the copy has begun; and it waits for more.
    let mut stdin = encrypt.stdin.take().unwrap();
    stdin.write_all(&vec![1; 4 << 20]).unwrap();
    let pid = rustix::process::Pid::from_child(&encrypt);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let mut said = String::new();
    encrypt
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    let code = encrypt.wait().unwrap().code();
    assert_eq!(code, Some(130), "{said}");
    assert!(
        said.contains("interrupted") && said.contains("run it again"),
        "{said}"
    );
}

#[test]
fn progress_for_programs() {
    let bed = filled();
    for (line, total) in [
        (
            "$X encrypt --key-file key --progress-json plain disk.img",
            true,
        ),
        (
            "cat plain | $X encrypt --key-file key --progress-json - disk.img",
            false,
        ),
        (
            "$X decrypt --key-file key --progress-json disk.img - >out",
            true,
        ),
        (
            "$X decrypt --force --key-file key --progress-json disk.img out",
            true,
        ),
    ] {
        let said = bash(&bed, line).ok();
        let lines: Vec<serde_json::Value> = said
            .err
            .lines()
            .filter(|line| line.starts_with('{'))
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let last = lines.last().unwrap_or_else(|| panic!("{line}: {said:?}"));
        assert_eq!(last["bytes"], 1 << 20);
        assert_eq!(last["total"].as_u64(), total.then_some(1 << 20));
        assert!(last["seconds"].is_f64());
    }
}

/// Runs the command that an error's advice gives, with the key.
fn as_advised(bed: &Bed, said: &Said) -> Said {
    let line = said.err.split('`').nth(1).unwrap();
    let line = line.replace("xtent encrypt", "$X encrypt --key-file key");
    bash(
        bed,
        &line.replace("xtent decrypt", "$X decrypt --key-file key"),
    )
}

#[test]
fn a_container_is_refused_with_the_command_that_unpacks_it() {
    for format in [
        "qcow2",
        "vmdk",
        "vdi",
        "vhdx",
        "vpc",
        "parallels",
        "qed",
        "qcow",
    ] {
        let bed = Bed::new();
        bed.run(
            "format --size 8M --key-file key --pbkdf pbkdf2 --pbkdf-force-iterations 1000 disk.img",
        )
        .ok();
        std::fs::write(bed.path("plain"), image()).unwrap();
        let make = format!("qemu-img convert -f raw -O {format} plain 'the disk'");
        bash(&bed, &make).ok();
        let said = bed
            .run_words(&["encrypt", "--key-file", "key", "the disk", "disk.img"])
            .failed(1, &["is no plain image", "qemu-nbd", "--raw"]);
        as_advised(&bed, &said).ok();
        bed.run("decrypt --key-file key disk.img out").ok();
        let out = std::fs::read(bed.path("out")).unwrap();
        assert!(out[..image().len()] == image(), "{format}");
        bash(
            &bed,
            "cat 'the disk' | $X encrypt --key-file key - disk.img",
        )
        .failed(1, &["standard input is no plain image", "nbdcopy"]);
        bed.run_words(&["key", "test", "--key-file", "key", "the disk"])
            .failed(4, &["looks like", "qemu-img convert"]);
    }
}

#[test]
fn what_is_compressed_is_refused_with_the_command_that_unpacks_it() {
    let bed = filled();
    for program in ["gzip", "xz", "zstd", "bzip2"] {
        bash(&bed, &format!("{program} -c <plain >packed")).ok();
        let said = bed
            .run("encrypt --key-file key packed disk.img")
            .failed(1, &[&format!("compressed by {program}"), "--raw"]);
        bash(
            &bed,
            "head -c 1M /dev/zero | $X encrypt --key-file key - disk.img",
        )
        .ok();
        as_advised(&bed, &said).ok();
        holds_image(&bed);
    }
    // On purpose it goes in as it is.
    std::fs::write(bed.path("small"), b"\x1f\x8b\x08 and so on").unwrap();
    bed.run("encrypt --raw --key-file key small disk.img").ok();
    bash(&bed, "$X encrypt --raw --key-file key - disk.img <small").ok();
}

#[test]
fn what_is_refused_or_empty_leaves_the_volume_as_it_was() {
    let bed = filled();
    let before = std::fs::read(bed.path("disk.img")).unwrap();
    std::fs::write(bed.path("empty"), "").unwrap();
    for line in [
        "$X encrypt --key-file key empty disk.img",
        "$X encrypt --key-file key - disk.img <empty",
        "$X encrypt --key-file key - disk.img </dev/null",
        "true | $X encrypt --key-file key - disk.img",
    ] {
        let said = bash(&bed, line).failed(4, &["ended before its first byte", "Nothing was"]);
        assert_eq!(said.out, "", "{line}");
    }
    let said = bash(&bed, "gzip -c plain | $X encrypt --key-file key - disk.img")
        .failed(1, &["compressed by gzip", "Nothing was changed"]);
    assert!(!said.err.contains("incomplete"), "{said:?}");
    assert!(std::fs::read(bed.path("disk.img")).unwrap() == before);
}

#[test]
fn a_stream_of_any_length_comes_whole() {
    // Around what is looked at first.
    for len in [1, 511, 512, 513, 4096] {
        let bed = Bed::with_luks2();
        std::fs::write(bed.path("plain"), &image()[..len]).unwrap();
        bash(&bed, "cat plain | $X encrypt --key-file key - disk.img").ok();
        bed.run("decrypt --key-file key disk.img out").ok();
        assert!(
            std::fs::read(bed.path("out")).unwrap()[..len] == image()[..len],
            "{len}"
        );
    }
}

#[test]
fn the_key_is_not_overwritten_by_whatever_descriptor_it_comes() {
    let bed = Bed::with_luks2();
    for line in [
        "$X decrypt --force --key-fd 3 disk.img key 3<key",
        "$X decrypt --force --key-file - disk.img key <key",
        "$X decrypt --force --key-file /dev/stdin disk.img key <key",
        "$X decrypt --force disk.img key <key",
        "$X decrypt --force --credential key disk.img key",
        "$X decrypt --force --key-file key disk.img - >>key",
        "$X format -q --key-fd 3 key 3<key",
        "$X format -q key <key",
    ] {
        bash(&bed, &format!("export CREDENTIALS_DIRECTORY=$PWD; {line}"))
            .failed(1, &["the same", "nothing was changed"]);
        assert_eq!(std::fs::read(bed.path("key")).unwrap(), SECRET.as_bytes());
    }
}

#[test]
fn results_that_nobody_can_get_are_an_error() {
    let bed = Bed::with_luks2();
    for line in [
        "decrypt --key-file key disk.img -",
        "encrypt --key-file key key disk.img",
        "header dump disk.img",
        "header dump --json disk.img",
        "header dump -q --volume-key --key-file key disk.img",
        "key list disk.img",
        "uuid disk.img",
        "config --json --label x disk.img",
        "status --json",
        "serve --key-file key --nbd unix:s disk.img",
        "completions bash",
        "help key",
        "--help",
        "--version",
    ] {
        for place in ["/dev/full", "&-"] {
            let said = bash(&bed, &format!("$X {line} >{place}"));
            let is_said = said.err.contains("standard output");
            assert!(said.code != Some(0) && is_said, "{line} >{place}: {said:?}");
            assert!(!said.err.contains("panicked"), "{said:?}");
        }
        // What was not closed but thrown away, in either way to open it.
        for place in [">", "<>"] {
            if !line.starts_with("serve") {
                let said = bash(&bed, &format!("$X {line} 1{place}/dev/null"));
                assert_eq!(said.code, Some(0), "{line} {place}: {said:?}");
            }
        }
    }
    // Where nothing is to be said there is nothing to fail.
    bash(&bed, "$X --quiet config --label y disk.img >&-").ok();
}
