//! A cipher engine: volumes that are served with one, which is a process at the other end of a socket. Here it is the
//! driver's model of the device.
#![allow(clippy::unwrap_used, reason = "a panic is how tests fail")]

mod common;

use std::io::{Read, Write};
use std::ops::Deref;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::server::Server;
use common::{Bed, image};
use rustix::process::Signal;
use xtent_coprocessor::testing::{Build, Device, Flaw, Pace, serve};

/// An engine at a socket in the folder, for one process.
struct Engine {
    device: Device,
    address: String,
}

impl Deref for Engine {
    type Target = Device;
    fn deref(&self) -> &Device {
        &self.device
    }
}

fn engine(bed: &Bed, level: u32) -> Engine {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let build = Build {
        level,
        ..Build::default()
    };
    let device = Device::new(build, Pace::Thread);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let socket = bed.path(&format!("engine-{number}"));
    std::thread::spawn(serve(&device, &socket).unwrap());
    Engine {
        device,
        address: format!("vfio-user:{}", socket.display()),
    }
}

impl Engine {
    fn option(&self) -> String {
        format!("--engine {}", self.address)
    }
}

/// A client in transmission, the oldest way.
struct Client(UnixStream);

impl Client {
    fn connect(bed: &Bed) -> Self {
        let mut socket = UnixStream::connect(bed.path("s")).unwrap();
        socket.read_exact(&mut [0; 18]).unwrap();
        // With neither zeros after the handshake nor anything else that is new.
        socket.write_all(b"\0\0\0\x03IHAVEOPT").unwrap();
        socket.write_all(&[0, 0, 0, 1, 0, 0, 0, 0]).unwrap();
        socket.read_exact(&mut [0; 10]).unwrap();
        Self(socket)
    }

    fn ask(&mut self, command: u16, offset: u64, len: usize, data: &[u8]) -> u32 {
        let mut message = 0x2560_9513_u32.to_be_bytes().to_vec();
        message.extend(u32::from(command).to_be_bytes());
        message.extend([0; 8]);
        message.extend(offset.to_be_bytes());
        message.extend(u32::try_from(len).unwrap().to_be_bytes());
        message.extend(data);
        self.0.write_all(&message).unwrap();
        let mut reply = [0; 16];
        self.0.read_exact(&mut reply).unwrap();
        u32::from_be_bytes([reply[4], reply[5], reply[6], reply[7]])
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> u32 {
        self.ask(1, offset, data.len(), data)
    }

    fn read(&mut self, offset: u64, len: usize) -> Result<Vec<u8>, u32> {
        match self.ask(0, offset, len, &[]) {
            0 => {
                let mut data = vec![0; len];
                self.0.read_exact(&mut data).unwrap();
                Ok(data)
            }
            error => Err(error),
        }
    }
}

/// What a server without an engine reads.
fn read_by_cpu(bed: &Bed, len: usize) -> Vec<u8> {
    let server = Server::start(bed, "--nbd unix:s");
    let data = Client::connect(bed).read(0, len).unwrap();
    server.end(Signal::TERM);
    data
}

fn status(bed: &Bed) -> serde_json::Value {
    bed.run("status --json disk.img").ok().json()["volumes"][0].clone()
}

#[test]
fn what_an_engine_encrypts_the_cpu_decrypts_in_every_model() {
    for (level, options) in [
        (3, ""),
        (3, "--engine-model runs --discard zero"),
        (2, "--engine-model units --engine-tweaks cpu"),
        (1, ""),
        (1, "--engine-model mixed:512"),
        (3, "--engine-model mixed:4096 --cipher-threads 2"),
    ] {
        let bed = Bed::new();
        let size = match level {
            2 => "--sector-size 512",
            _ => "--sector-size 4096",
        };
        bed.run(&format!(
            "format --size 4M {size} --key-file key --pbkdf pbkdf2 --pbkdf-force-iterations 1000 disk.img"
        ))
        .ok();
        let device = engine(&bed, level);
        let all = format!(
            "--nbd unix:s -v {} --engine-threshold 0 {options}",
            device.option()
        );
        let server = Server::start(&bed, &all);
        assert_eq!(status(&bed)["engine"], device.address);
        let before = device.requests();
        let mut client = Client::connect(&bed);
        let data = image();
        assert_eq!(client.write(0, &data), 0, "{options}");
        assert_eq!(client.write(1_000_001, &data[..99_999]), 0);
        let mut expected = data;
        expected.resize(2 << 20, 0);
        let patch = expected[..99_999].to_vec();
        expected[1_000_001..1_100_000].copy_from_slice(&patch);
        assert!(client.read(0, 1 << 20).unwrap() == expected[..1 << 20]);
        assert!(device.requests() > before, "{options}");
        let engine = status(&bed)["metrics"]["engine"].clone();
        assert!(engine["bytes"].as_u64().unwrap() > 2 << 20, "{engine}");
        assert_eq!(
            (&engine["errors"], &engine["from_bytes"]),
            (&0.into(), &0.into())
        );
        let text = bed.run("status disk.img").ok().out;
        assert!(text.contains("\n  engine   vfio-user:"), "{text}");
        drop(client);
        let (code, said) = server.end(Signal::TERM);
        assert_eq!(code, Some(0), "{said}");
        // The sandbox forbids nothing that the driver needs, and key and memory are gone.
        assert!(!said.contains("WARN"), "{said}");
        assert!(!device.is_mapped());
        assert_eq!(device.loaded(), 0);
        assert!(read_by_cpu(&bed, 1 << 20) == expected[..1 << 20]);
    }
}

#[test]
fn every_thread_of_a_server_with_an_engine_is_confined() {
    let bed = Bed::with_luks2();
    let device = engine(&bed, 3);
    let server = Server::start(&bed, &format!("--nbd unix:s {}", device.option()));
    let mut names = Vec::new();
    for status in server.threads() {
        let of = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name));
            line.unwrap()[name.len()..].trim().to_owned()
        };
        assert_eq!(of("CapPrm:"), "0000000000000000", "{status}");
        assert_eq!(
            (of("NoNewPrivs:"), of("Seccomp:")),
            ("1".into(), "2".into())
        );
        names.push(of("Name:"));
    }
    for name in ["xtent-engine", "xtent-vfio-user"] {
        assert!(names.iter().any(|it| it == name), "{name} among {names:?}");
    }
    assert_eq!(server.end(Signal::TERM).0, Some(0));
}

#[test]
fn without_a_threshold_the_faster_one_does_the_work() {
    let bed = Bed::with_luks2();
    let device = engine(&bed, 3);
    let server = Server::start(&bed, &format!("--nbd unix:s {}", device.option()));
    let mut client = Client::connect(&bed);
    assert_eq!(client.write(0, &image()), 0);
    assert!(client.read(0, 1 << 20).unwrap() == image());
    // Which one that is depends on the machine; that it was measured does not.
    let engine = status(&bed)["metrics"]["engine"].clone();
    let goes = engine["from_bytes"]
        .as_u64()
        .is_some_and(|from| from <= 1 << 20);
    assert_eq!(engine["runs"].as_u64().unwrap() > 0, goes, "{engine}");
    drop(client);
    assert_eq!(server.end(Signal::TERM).0, Some(0));
}

#[test]
fn what_becomes_of_failures_is_as_the_options_say() {
    for (option, error) in [
        ("", 0),
        ("--engine-failure cpu", 0),
        ("--engine-failure error", 5),
    ] {
        let bed = Bed::with_luks2();
        let device = engine(&bed, 3);
        let all = format!(
            "--nbd unix:s {} --engine-threshold 64K {option}",
            device.option()
        );
        let server = Server::start(&bed, &all);
        let mut client = Client::connect(&bed);
        assert_eq!(client.write(0, &image()), 0);
        // A write fails whole or not at all.
        device.spoil(0, Flaw::Status(xtent_coprocessor::registers::STATUS_READ));
        let data = [7; 128 << 10];
        assert_eq!(client.write(0, &data), error, "{option}");
        let expected = match error {
            0 => data.to_vec(),
            _ => image()[..128 << 10].to_vec(),
        };
        assert!(client.read(0, 128 << 10).unwrap() == expected);
        device.spoil(0, Flaw::Status(xtent_coprocessor::registers::STATUS_READ));
        match client.read(0, 128 << 10) {
            Ok(read) => assert!(error == 0 && read == expected),
            Err(found) => assert_eq!(found, error),
        }
        let by = |name| status(&bed)["metrics"]["engine"][name].clone();
        let (failed, replaced) = match error {
            0 => (0, 2),
            _ => (2, 0),
        };
        assert_eq!(by("errors"), failed);
        assert_eq!(by("cpu_runs")["failure"], replaced);
        assert!(by("runs").as_u64() > Some(0) && by("out_of_service").is_null());
        // From here on it is gone.
        device.spoil(0, Flaw::Vanishes);
        assert_eq!(client.write(0, &data), error);
        let reason = loop {
            if let Some(reason) = by("out_of_service").as_str() {
                break reason.to_owned();
            }
        };
        let runs = by("runs");
        assert_eq!(client.write(0, &data), error);
        assert_eq!(by("runs"), runs, "none of a dead engine's");
        let text = bed.run("status disk.img").ok().out;
        let shown = text.contains(&format!("; out of service: {reason}"));
        assert!(shown, "{text}");
        drop(client);
        let (code, said) = server.end(Signal::TERM);
        assert_eq!(code, Some(0));
        assert!(said.contains("engine"), "{said}");
    }
}

/// How soon is the driver's affair, and tested there.
#[test]
fn a_server_ends_though_its_engine_is_silent() {
    for has_request in [false, true] {
        let bed = Bed::with_luks2();
        let device = engine(&bed, 3);
        let all = format!("--nbd unix:s {} --engine-threshold 64K", device.option());
        let server = Server::start(&bed, &all);
        let mut client = Client::connect(&bed);
        assert_eq!(client.write(0, &image()), 0);
        let silence = device.silence();
        let answer = has_request.then(|| std::thread::spawn(move || client.write(0, &image())));
        while has_request && status(&bed)["metrics"]["waiting"] == 0 {
            std::thread::yield_now();
        }
        let (code, said) = server.end(Signal::TERM);
        drop(silence);
        assert_eq!(code, Some(0));
        assert!(said.contains("out of service"), "{said}");
        // The CPU did it.
        assert!(answer.is_none_or(|it| it.join().unwrap() == 0));
        assert!(read_by_cpu(&bed, 1 << 20) == image());
    }
}

#[test]
fn an_engine_that_is_not_there_is_an_error_before_the_passphrase() {
    let bed = Bed::with_luks2();
    let start = |options: &str| {
        bed.run(&format!(
            "serve --nbd unix:s {options} --key-file other disk.img"
        ))
    };
    let nowhere = "--engine vfio-user:nowhere";
    start(nowhere).failed(4, &["the cipher engine vfio-user:", "is the process"]);
    start("--engine /dev/null").failed(1, &["vfio-user:PATH"]);
    start("--engine vfio:ffff:ff:1f.7").failed(4, &["there is no PCI device"]);
    start("--engine-threshold 0").failed(1, &["--engine"]);
    start("--engine-model half --engine vfio-user:x").failed(1, &["mixed:4096"]);
    bed.run("bench --engine vfio-user:nowhere")
        .failed(4, &["vfio-user:nowhere"]);
    // Level 1 has no runs, and an engine no CBC.
    let here = engine(&bed, 1).option();
    bed.run(&format!(
        "serve --nbd unix:s {here} --engine-model runs --key-file key disk.img"
    ))
    .failed(1, &["the cipher engine", "Leave --engine out"]);
    let here = engine(&bed, 3).option();
    let cbc = "--cipher aes-cbc-essiv:sha256 --key-size 256";
    bed.run(&format!(
        "format --size 1M {cbc} --key-file key --pbkdf pbkdf2 --pbkdf-force-iterations 1000 cbc.img"
    ))
    .ok();
    bed.run(&format!("serve --nbd unix:s {here} --key-file key cbc.img"))
        .failed(1, &["the cipher engine", "Leave --engine out"]);
}

#[test]
fn several_volumes_share_an_engine_each_with_its_key() {
    let bed = Bed::with_luks2();
    bed.run("format --size 1M --key-file key --pbkdf pbkdf2 --pbkdf-force-iterations 1000 b.img")
        .ok();
    let device = engine(&bed, 3);
    let all = format!(
        "--nbd unix:s {} --engine-threshold 0 b.img",
        device.option()
    );
    let server = Server::start(&bed, &all);
    assert_eq!(device.loaded().count_ones(), 2);
    assert_eq!(server.end(Signal::TERM).0, Some(0));
    assert_eq!(device.loaded(), 0);
}

#[test]
fn a_configuration_file_gives_volumes_their_engine() {
    let bed = Bed::with_luks2();
    bed.run("format --size 1M --key-file key --pbkdf pbkdf2 --pbkdf-force-iterations 1000 b.img")
        .ok();
    let device = engine(&bed, 3);
    let socket = device.address.rsplit('/').next().unwrap();
    let volume = |name: &str, more: &str| {
        format!("[volume.{name}]\ndevice = \"{name}.img\"\nkey-file = \"key\"\n{more}")
    };
    let with = format!("engine = \"vfio-user:{socket}\"\nengine-threshold = 0\n");
    let write = |text: String| std::fs::write(bed.path("x.toml"), text).unwrap();
    let serve = "serve --nbd unix:s --config x.toml";
    // An engine has one way to fail.
    let another = format!("{with}engine-failure = \"error\"\n");
    write(volume("disk", &with) + &volume("b", &another));
    bed.run(serve).failed(1, &["--engine-failure"]);
    write(volume("disk", "engine-model = \"runs\"\n"));
    bed.run(serve).failed(1, &["`engine-model`"]);

    let device = engine(&bed, 3);
    let socket = device.address.rsplit('/').next().unwrap();
    let with = format!("engine = \"vfio-user:{socket}\"\nengine-threshold = 0\n");
    write(volume("disk", &with));
    let server = Server::start_with(&bed, serve);
    assert_eq!(status(&bed)["engine"], device.address);
    assert_eq!(device.loaded().count_ones(), 1);
    // Not while it runs, and the others all the same.
    write(volume("disk", &with) + &volume("b", &with));
    bed.run(&format!(
        "attach --server {} --config x.toml",
        server.child.id()
    ))
    .failed(1, &["b.img", "cipher engine", "restart"]);
    assert_eq!(server.end(Signal::TERM).0, Some(0));
}

#[test]
fn what_a_server_does_not_take_for_its_engine_takes_nothing_away() {
    let bed = Bed::with_luks2();
    for name in ["b", "c", "d"] {
        bed.run(&format!(
            "format --size 1M --key-file key --pbkdf pbkdf2 --pbkdf-force-iterations 1000 {name}.img"
        ))
        .ok();
    }
    let volume = |name: &str, device: &str, more: &str| {
        format!("[volume.{name}]\ndevice = \"{device}.img\"\nkey-file = \"key\"\n{more}")
    };
    let write = |text: String| std::fs::write(bed.path("x.toml"), text).unwrap();
    write(
        ["disk", "b", "c"]
            .map(|name| volume(name, name, ""))
            .concat(),
    );
    let server = Server::start_with(&bed, "serve --nbd unix:s --config x.toml");
    // One gets another device, one another name, and one goes.
    let with = "engine = \"vfio-user:nowhere\"\n";
    write(volume("disk", "d", with) + &volume("other", "b", with));
    let pid = server.child.id();
    let said = bed.run(&format!("attach --server {pid} --config x.toml --prune"));
    let said = said.failed(1, &["d.img", "b.img", "cipher engine"]);
    assert!(said.out.contains("0 attached, 1 detached"), "{said:?}");
    let volumes = bed.run("status --json").ok().json();
    let all = volumes["volumes"].as_array().unwrap().iter();
    let mut exports: Vec<_> = all.filter_map(|it| it["export"].as_str()).collect();
    exports.sort_unstable();
    assert_eq!(exports, ["b", "disk"]);
    assert_eq!(server.end(Signal::TERM).0, Some(0));
}

#[test]
fn a_mount_has_an_engine_too() {
    if !std::path::Path::new("/dev/fuse").exists() {
        let _ = writeln!(
            std::io::stderr(),
            "NOT RUN: a_mount_has_an_engine_too: it needs /dev/fuse"
        );
        return;
    }
    let bed = Bed::with_luks2();
    let device = engine(&bed, 3);
    std::fs::create_dir(bed.path("dir")).unwrap();
    let here = device.option();
    bed.run(&format!(
        "mount --file-only {here} --engine-threshold 64K --key-file key disk.img dir"
    ))
    .ok();
    let (file, before) = (bed.path("dir/volume"), device.requests());
    let opened = std::fs::OpenOptions::new().write(true).open(&file);
    opened.unwrap().write_all(&image()).unwrap();
    assert!(std::fs::read(&file).unwrap() == image());
    assert!(device.requests() > before);
    assert_eq!(status(&bed)["engine"], device.address);
    bed.run("umount dir").ok();
    assert!(read_by_cpu(&bed, 1 << 20) == image());
}

#[test]
fn bench_has_the_engine_beside_the_cpu() {
    let bed = Bed::new();
    let device = engine(&bed, 3);
    let of = |device: &Engine| format!("bench {} --size 64K", device.option());
    let json = bed.run(&format!("{} --json", of(&device))).ok().json();
    assert_eq!(
        (&json["level"], &json["cipher"]),
        (&3.into(), &"aes-xts-plain64".into())
    );
    let figures = json["figures"].as_array().unwrap();
    assert_eq!(figures.len(), 2);
    for of_sector in figures {
        let size = &of_sector["sizes"][0];
        assert_eq!(size["bytes"], 64 << 10);
        assert!(size["cpu_decrypt_mb_s"].as_f64().unwrap() > 0.0);
        for rate in size["engine"].as_array().unwrap() {
            assert!(rate["encrypt_mb_s"].as_f64().unwrap() > 0.0, "{rate}");
        }
    }
    let device = engine(&bed, 3);
    let text = bed.run(&of(&device)).ok().out;
    assert!(
        text.contains("64 KiB") && text.contains("The engine's counters"),
        "{text}"
    );
}
