//! Key material stays where it belongs.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;

use rustix::process::Signal;
use xtent_tests::luks::{Maker, Shape};
use xtent_tests::nbd::nbdsh;
use xtent_tests::xtent::{Server, xtent};
use xtent_tests::{Cmd, Scratch, bed};

const PASSPHRASE: &[u8] = b"a passphrase nobody else would have typed 0123456789";

/// The volume key in cryptsetup's words.
fn volume_key(container: &xtent_tests::luks::Container) -> Vec<u8> {
    let dump = Cmd::peer("cryptsetup")
        .args([
            "luksDump",
            "--batch-mode",
            "--dump-volume-key",
            "--key-file",
        ])
        .args([&container.key, &container.image])
        .ok()
        .out();
    let (_, hex) = dump
        .split_once("MK dump:")
        .or_else(|| dump.split_once("Volume key:"))
        .unwrap();
    let bytes: Vec<u8> = hex
        .split_whitespace()
        .map_while(|byte| u8::from_str_radix(byte, 16).ok())
        .collect();
    assert_eq!(bytes.len(), 64, "{dump}");
    bytes
}

#[test]
fn nothing_secret_is_visible_from_outside() {
    let scratch = Scratch::new();
    let container = Shape::LUKS2.image_with_key(Maker::Xtent, &scratch, 1 << 20, PASSPHRASE);
    let server = Server::start_with(&container, &["-vv"]);
    nbdsh(&server.uri, "h.pwrite(b'x' * 4096, 0)");
    let folder = format!("/proc/{}", server.id());
    let key = volume_key(&container);
    for file in ["cmdline", "environ"] {
        let bytes = match fs::read(format!("{folder}/{file}")) {
            // Not dumpable: not even its owner may look.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => continue,
            read => read.unwrap(),
        };
        assert!(find(&bytes, PASSPHRASE).is_empty());
        assert!(find(&bytes, &key[..32]).is_empty());
    }
    let limits = fs::read_to_string(format!("{folder}/limits")).unwrap();
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"))
        .unwrap();
    let numbers: Vec<&str> = core.split_whitespace().skip(4).take(2).collect();
    assert_eq!(numbers, ["0", "0"], "{core}");

    let done = server.stop();
    let said = format!("{}{}", done.out(), done.stderr);
    assert!(!said.contains(std::str::from_utf8(PASSPHRASE).unwrap()));
    let hex: String = key[..8].iter().map(|b| format!("{b:02x}")).collect();
    assert!(!said.to_lowercase().contains(&hex));
}

/// A crash leaves no core, even where the system would write one.
#[test]
fn a_crash_leaves_no_core() {
    let scratch = Scratch::new();
    let container = Shape::LUKS2.image_with_key(Maker::Xtent, &scratch, 1 << 20, PASSPHRASE);
    let folder = scratch.folder("crash");
    let dumps = |command: Cmd, wait: Option<&str>| {
        let mut process = Cmd::peer("prlimit")
            .args(["--core=unlimited", "--"])
            .wrapping(command)
            .folder(&folder)
            .spawn();
        if let Some(word) = wait {
            process.wait_for_line(|line| line.contains(word));
        }
        // Not SIGQUIT, which the background jobs of a script ignore.
        process.signal(Signal::ABORT);
        process.finish().status.core_dumped()
    };
    let socket = scratch.join("socket");
    let server = Server::command(&container, &socket, &[]);
    assert!(!dumps(server, Some("nbd+unix")), "the server dumped core");
    // The control: this machine does write cores of others.
    let other = Cmd::new("/bin/sh").args(["-c", "echo ready; exec sleep 1000"]);
    if !dumps(other, Some("ready")) {
        bed::not_run(
            "a_crash_leaves_no_core",
            "this machine writes no cores at all",
        );
    }
}

/// Once served, the passphrase is nowhere in memory, and the volume key only
/// in pages that are locked and left out of dumps.
#[test]
fn memory_holds_the_key_where_it_should_and_nothing_else() {
    if !bed::is_root("memory_holds_the_key_where_it_should_and_nothing_else") {
        return;
    }
    let scratch = Scratch::new();
    let container = Shape::LUKS2.image_with_key(Maker::Xtent, &scratch, 1 << 20, PASSPHRASE);
    let key = volume_key(&container);
    let server = Server::start(&container);
    nbdsh(&server.uri, "h.pwrite(b'x' * 8192, 0)\nh.pread(8192, 0)");
    let mut key_found = false;
    for region in regions(server.id()) {
        for needle in [PASSPHRASE, &PASSPHRASE[..24]] {
            assert!(
                find(&region.bytes, needle).is_empty(),
                "the passphrase is in memory: {}",
                region.name
            );
        }
        // Either half of an XTS key is the beginning of a key schedule.
        for half in [&key[..32], &key[32..]] {
            if !find(&region.bytes, half).is_empty() {
                key_found = true;
                for flag in ["lo", "dd"] {
                    assert!(
                        region.flags.split(' ').any(|f| f == flag),
                        "the volume key is in {} with flags {}",
                        region.name,
                        region.flags
                    );
                }
            }
        }
    }
    // Otherwise the search above found nothing because it looked wrongly.
    assert!(key_found, "the volume key is nowhere");
    server.stop();
}

struct Region {
    name: String,
    flags: String,
    bytes: Vec<u8>,
}

/// What a process has in writable memory.
fn regions(id: u32) -> Vec<Region> {
    let maps = fs::read_to_string(format!("/proc/{id}/smaps")).unwrap();
    let memory = File::open(format!("/proc/{id}/mem")).unwrap();
    let mut regions = Vec::new();
    let mut head = String::new();
    for line in maps.lines() {
        let first = line.split(' ').next().unwrap();
        if let Some(flags) = line.strip_prefix("VmFlags: ") {
            let mut fields = head.split(' ');
            let (from, to) = fields.next().unwrap().split_once('-').unwrap();
            let from = u64::from_str_radix(from, 16).unwrap();
            let to = u64::from_str_radix(to, 16).unwrap();
            let is_writable = fields.next().unwrap().contains('w');
            let mut bytes = vec![0; usize::try_from(to - from).unwrap()];
            if is_writable && memory.read_exact_at(&mut bytes, from).is_ok() {
                regions.push(Region {
                    name: head.clone(),
                    flags: flags.trim().to_owned(),
                    bytes,
                });
            }
        } else if !first.ends_with(':') {
            line.clone_into(&mut head);
        }
    }
    regions
}

fn find(bytes: &[u8], needle: &[u8]) -> Vec<usize> {
    bytes
        .windows(needle.len())
        .enumerate()
        .filter(|(_, window)| *window == needle)
        .map(|(at, _)| at)
        .collect()
}

/// There is no option that takes a passphrase itself.
#[test]
fn passphrases_come_from_everywhere_but_the_command_line() {
    let scratch = Scratch::new();
    let container = Shape::LUKS2.image_with_key(Maker::Cryptsetup, &scratch, 4096, PASSPHRASE);
    let test = || xtent().args(["key", "test"]);
    let image = &container.image;
    // A file, a part of a file, standard input whole and as a line.
    test().arg("--key-file").args([&container.key, image]).ok();
    let mut inside = b"0123456789".to_vec();
    inside.extend(PASSPHRASE);
    inside.extend(b"tail");
    let part = scratch.file("part", &inside);
    test()
        .args(["--keyfile-offset", "10"])
        .args(["--keyfile-size", &PASSPHRASE.len().to_string()])
        .arg("--key-file")
        .args([&part, image])
        .ok();
    test()
        .args(["--key-file", "-"])
        .arg(image)
        .stdin(PASSPHRASE)
        .ok();
    let mut line = PASSPHRASE.to_vec();
    line.push(b'\n');
    test().arg(image).stdin(&line).ok();
    // A systemd credential.
    let credentials = scratch.folder("credentials");
    fs::write(credentials.join("xtent.passphrase"), PASSPHRASE).unwrap();
    test()
        .env("CREDENTIALS_DIRECTORY", &credentials)
        .arg(image)
        .ok();
    // A file descriptor, handed over by a shell.
    Cmd::peer("bash")
        .args(["-c", r#"exec "$0" key test --key-fd 9 "$1" 9<"$2""#])
        .arg(xtent_tests::xtent::binary())
        .args([image, &container.key])
        .ok();
}
