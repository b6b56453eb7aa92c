//! Volumes past the page cache, and requests that wait in a ring.
#![allow(clippy::unwrap_used, reason = "a panic is how tests fail")]

mod common;

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

use common::server::Server;
use common::{Bed, Said, image};
use rustix::fs::Advice;
use rustix::process::Signal;

fn run_for(bed: &Bed, options: &str, command: &str) -> Said {
    let output = bed
        .command(["serve", "--key-file", "key", "--run", command])
        .args(options.split(' '))
        .arg("disk.img")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    Said {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Whether the folders of tests are on a disk; in memory there is no way past the cache.
fn is_on_disk(bed: &Bed) -> bool {
    let output = Command::new("stat")
        .args(["--file-system", "--format=%T"])
        .arg(bed.dir())
        .output()
        .unwrap();
    let is_on_disk = !String::from_utf8_lossy(&output.stdout).contains("tmpfs");
    if !is_on_disk {
        let mut stderr = std::io::stderr().lock();
        writeln!(stderr, "NOT TESTED: direct I/O, in memory").unwrap();
    }
    is_on_disk
}

/// Reads and writes of whole sectors, of parts, durable ones, zeros and flushes.
const REQUESTS: &str = r#"
import os
h.set_strict_mode(0)
model = bytearray(h.pread(h.get_size(), 0))
def check(): assert h.pread(len(model), 0) == model
def write(at, data, flags=0):
    h.pwrite(data, at, flags)
    model[at:at + len(data)] = data
check()
for number in range(200):
    at = number * 5003 % 1000000
    write(at, bytes([number]) * (number * 37 % 9000 + 1), nbd.CMD_FLAG_FUA if number % 10 == 0 else 0)
check()
h.zero(100000, 777)
model[777:100777] = bytes(100000)
# Many at a time.
buffers = [nbd.Buffer(4096) for _ in range(200)]
cookies = [h.aio_pread(buffer, n * 4096) for n, buffer in enumerate(buffers)]
for n, cookie in enumerate(cookies):
    while not h.aio_command_completed(cookie): h.poll(-1)
    assert buffers[n].to_bytearray() == model[n * 4096:n * 4096 + 4096]
cookies = [h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray([n]) * 4096), n * 4096) for n in range(200)]
for cookie in cookies:
    while not h.aio_command_completed(cookie): h.poll(-1)
for n in range(200): model[n * 4096:n * 4096 + 4096] = bytes([n]) * 4096
h.flush()
check()
open("model", "wb").write(model)
"#;

#[test]
fn every_kind_of_request() {
    for sector in [512, 4096] {
        let bed = Bed::new();
        let costs = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000";
        bed.run(&format!(
            "format --size 1M --sector-size {sector} --key-file key {costs} disk.img"
        ))
        .ok();
        std::fs::write(bed.path("requests"), REQUESTS).unwrap();
        let options = match is_on_disk(&bed) {
            true => "--direct-io --discard zero",
            false => "--discard zero",
        };
        // Debian's Python has the module.
        let client = "PATH=/usr/bin:/bin nbdsh -u \"$uri\" -c 'exec(open(\"requests\").read())'";
        run_for(&bed, options, client).ok();
        bed.run("decrypt --key-file key disk.img out").ok();
        let found = std::fs::read(bed.path("out")).unwrap();
        assert!(found == std::fs::read(bed.path("model")).unwrap());
    }
}

#[test]
fn goes_past_the_page_cache() {
    let bed = Bed::with_luks2();
    if !is_on_disk(&bed) {
        return;
    }
    std::fs::write(bed.path("plain"), image()).unwrap();
    let disk = File::open(bed.path("disk.img")).unwrap();
    disk.sync_all().unwrap();
    rustix::fs::fadvise(&disk, 0, None, Advice::DontNeed).unwrap();
    let cached = "fincore --bytes --noheadings --output RES disk.img";
    let copies = "nbdcopy plain \"$uri\" && nbdcopy \"$uri\" copy";
    let said = run_for(&bed, "--direct-io", &format!("{copies} && {cached}")).ok();
    assert_eq!(said.out.trim(), "0", "{said:?}");
    assert!(std::fs::read(bed.path("copy")).unwrap() == image());
    // Without the option there is something to find.
    let said = run_for(
        &bed,
        "--read-only",
        &format!("nbdcopy \"$uri\" copy && {cached}"),
    )
    .ok();
    assert_ne!(said.out.trim(), "0", "{said:?}");
    assert!(std::fs::read(bed.path("copy")).unwrap() == image());
}

/// In the sandbox, where rings cannot be made any more.
#[test]
fn what_waits_does_so_in_a_ring() {
    let bed = Bed::with_luks2();
    if !is_on_disk(&bed) {
        return;
    }
    let mut server = Server::start(&bed, "--nbd unix:s --direct-io -vv");
    let said = Command::new("nbdcopy")
        .args([server.uri.trim_end(), "copy"])
        .current_dir(bed.dir())
        .output()
        .unwrap();
    assert!(said.status.success(), "{said:?}");
    assert_eq!(std::fs::metadata(bed.path("copy")).unwrap().len(), 1 << 20);
    let has_ring = server
        .threads()
        .any(|status| status.contains("Name:\txtent-ring\n"));
    server.signal(Signal::TERM);
    let mut log = String::new();
    server
        .child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut log)
        .unwrap();
    // A kernel without rings says so.
    assert_ne!(has_ring, log.contains("no io_uring"), "{log}");
    assert!(log.contains("seccomp") || log.contains("without a system call filter"));
}

#[test]
fn a_mounted_file_is_written_directly() {
    let bed = Bed::with_luks2();
    if !is_on_disk(&bed) {
        return;
    }
    if File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .is_err()
    {
        let mut stderr = std::io::stderr().lock();
        writeln!(stderr, "NOT TESTED: mount --direct-io, without /dev/fuse").unwrap();
        return;
    }
    std::fs::create_dir(bed.path("dir")).unwrap();
    bed.run("mount --file-only --direct-io --key-file key disk.img dir")
        .ok();
    let volume = File::options()
        .read(true)
        .write(true)
        .open(bed.path("dir/volume"));
    let volume = volume.unwrap();
    volume.write_all_at(&image(), 0).unwrap();
    volume.write_all_at(b"a part of a sector", 5000).unwrap();
    volume.sync_all().unwrap();
    let mut found = vec![0; 1 << 20];
    volume.read_exact_at(&mut found, 0).unwrap();
    drop(volume);
    bed.run("umount dir").ok();
    let mut expected = image();
    expected[5000..5018].copy_from_slice(b"a part of a sector");
    assert!(found == expected);
    bed.run("decrypt --key-file key disk.img out").ok();
    assert!(std::fs::read(bed.path("out")).unwrap() == expected);
}

#[test]
fn what_is_not_in_whole_blocks_cannot_be_direct() {
    let bed = Bed::new();
    std::fs::write(bed.path("odd"), vec![0; 100_001]).unwrap();
    std::fs::write(bed.path("k"), [7; 64]).unwrap();
    let plain = "--type plain --cipher aes-xts-plain64 --key-size 512 --key-file k";
    bed.run(&format!("serve --direct-io {plain} --nbd unix:s odd"))
        .failed(4, &["direct I/O of odd failed", "--direct-io"]);
}
