//! The kernel's dm-crypt, in User Mode Linux, reads what Xtent writes and the
//! reverse, byte for byte.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use xtent_tests::luks::{Container, KEY, Maker, Pbkdf, Shape};
use xtent_tests::scratch::{assert_same, read_range};
use xtent_tests::uml::Job;
use xtent_tests::xtent::Server;
use xtent_tests::{Scratch, nbd, pattern};

/// Of plaintext in each container: not a power of two, so that no rounding
/// hides.
const DATA: usize = (1 << 20) + 3 * 4096;

/// Every shape, and those of old containers.
fn shapes() -> Vec<Shape> {
    let mut shapes = Shape::all();
    for (cipher, key_bits, version) in [
        ("aes-cbc-essiv:sha256", 256, 1),
        ("aes-cbc-plain64", 256, 1),
        ("aes-cbc-essiv:sha256", 256, 2),
        ("aes-cbc-essiv:sha256", 128, 2),
    ] {
        shapes.push(Shape {
            version,
            cipher,
            key_bits,
            ..Shape::LUKS1
        });
    }
    shapes
}

/// Has the kernel write each container's own data.
fn kernel_writes(containers: &[(Shape, Container, Vec<u8>)]) {
    let mut job = Job::new(
        "for name in $(cat /in/names); do
             open_luks $name key
             dd if=/in/data-$name of=/dev/mapper/$name bs=64k conv=fsync 2>/dev/null
             cryptsetup close $name
         done",
    );
    let mut names = String::new();
    for (shape, container, data) in containers {
        let name = shape.to_string();
        names.push_str(&name);
        names.push('\n');
        job = job
            .disk(&name, &container.image)
            .file(&format!("data-{name}"), data);
    }
    job.file("names", names.as_bytes()).file("key", KEY).run();
}

/// Compares what the kernel reads with each container's own data.
fn assert_kernel_reads(containers: &[(Shape, Container, Vec<u8>)]) {
    let mut job = Job::new(
        "for name in $(cat /in/names); do
             open_luks $name key
             cat /dev/mapper/$name >$name
             cryptsetup close $name
         done",
    );
    let mut names = String::new();
    for (shape, container, _) in containers {
        names.push_str(&format!("{shape}\n"));
        job = job.disk(&shape.to_string(), &container.image);
    }
    let outcome = job.file("names", names.as_bytes()).file("key", KEY).run();
    for (shape, _, data) in containers {
        assert_same(&outcome.file(&shape.to_string()), data, &shape.to_string());
    }
}

fn containers(maker: Maker, scratch: &Scratch) -> Vec<(Shape, Container, Vec<u8>)> {
    shapes()
        .into_iter()
        .zip(1..)
        .map(|(shape, seed)| {
            let data = pattern(DATA, seed);
            (shape, shape.image(maker, scratch, DATA as u64), data)
        })
        .collect()
}

#[test]
fn xtent_reads_what_the_kernel_wrote() {
    let scratch = Scratch::new();
    let containers = containers(Maker::Cryptsetup, &scratch);
    kernel_writes(&containers);
    for (shape, container, data) in &containers {
        assert_same(&container.decrypt(), data, &shape.to_string());
    }
    // Through the server as well, which reads in other pieces.
    for (shape, container, data) in &containers {
        let server = Server::start_with(container, &["--read-only"]);
        assert_same(&nbd::read_all(&server.uri), data, &shape.to_string());
        server.stop();
    }
}

#[test]
fn the_kernel_reads_what_xtent_wrote() {
    let scratch = Scratch::new();
    let containers = containers(Maker::Xtent, &scratch);
    for (_, container, data) in &containers {
        container.encrypt(data);
    }
    assert_kernel_reads(&containers);
}

/// Writes of every alignment through the server, then the kernel's opinion.
#[test]
fn the_kernel_reads_what_nbd_clients_wrote() {
    let scratch = Scratch::new();
    let mut containers: Vec<_> = [Shape::LUKS1, Shape::LUKS2, Shape::LUKS2_4096]
        .into_iter()
        .map(|shape| {
            let container = shape.image(Maker::Xtent, &scratch, DATA as u64);
            (shape, container, pattern(DATA, 7))
        })
        .collect();
    for (_, container, data) in &mut containers {
        let server = Server::start(container);
        nbd::write_all(&server.uri, data);
        let script = edits(data);
        nbd::nbdsh(&server.uri, &format!("{script}\nh.flush()"));
        server.stop();
    }
    assert_kernel_reads(&containers);
}

/// Python that writes odd ranges, and the same to `data`.
fn edits(data: &mut [u8]) -> String {
    let mut script = String::new();
    for (at, len, fill) in [
        (0, 1, 0x11),
        (511, 2, 0x22),
        (4095, 4098, 0x33),
        (100_000, 70_000, 0x44),
        (DATA - 1, 1, 0x55),
    ] {
        data[at..at + len].fill(fill);
        script.push_str(&format!("h.pwrite(bytes([{fill}]) * {len}, {at})\n"));
    }
    data[200_001..330_003].fill(0);
    script.push_str("h.zero(130002, 200001)\n");
    script
}

/// Containers whose data does not begin where a fresh header ends, and a
/// header apart from its data.
#[test]
fn the_kernel_agrees_on_detached_headers() {
    let scratch = Scratch::new();
    let key = scratch.file("key", KEY);
    let shape = Shape {
        pbkdf: Pbkdf::Argon2id,
        ..Shape::LUKS2_4096
    };
    let header = scratch.image("header", 16 << 20);
    let data = scratch.image("data", DATA as u64);
    format_detached(&shape, &header, &data, &key);
    let plain = pattern(DATA, 9);
    let source = scratch.file("plain", &plain);
    xtent_tests::xtent::xtent()
        .args(["encrypt", "--header"])
        .arg(&header)
        .arg("--key-file")
        .args([&key, &source, &data])
        .ok();
    let outcome = Job::new(
        "cryptsetup open --disable-keyring --key-file /in/key --header /d/header /d/data v
         cat /dev/mapper/v >plain",
    )
    .disk("header", &header)
    .disk("data", &data)
    .file("key", KEY)
    .run();
    assert_same(&outcome.file("plain"), &plain, "detached header");
    // With the header elsewhere nothing but ciphertext is on the data device.
    assert_ne!(read_range(&data, 0, 4), b"LUKS");
}

fn format_detached(shape: &Shape, header: &Path, data: &Path, key: &Path) {
    xtent_tests::xtent::xtent()
        .args(["format", "--batch-mode", "--cipher", shape.cipher])
        .args(["--sector-size", &shape.sector.to_string()])
        .args(xtent_tests::luks::cheap(shape.pbkdf, 2))
        .arg("--header")
        .arg(header)
        .arg("--key-file")
        .args([key, data])
        .ok();
}
