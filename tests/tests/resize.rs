//! Headers that fix a size, and get another one.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use xtent_tests::gateway::Gateway;
use xtent_tests::header::edit_json;
use xtent_tests::luks::{Container, KEY, Maker, Shape, assert_opens, detached_header};
use xtent_tests::mount::{Cleaner, mount, umount};
use xtent_tests::nbd::{Raw, write_all};
use xtent_tests::random::Random;
use xtent_tests::scratch::{Unchanged, assert_same};
use xtent_tests::xtent::{Server, xtent};
use xtent_tests::{Cmd, Scratch, bed, pattern};

const MIB: u64 = 1 << 20;

fn resize(volume: impl AsRef<std::ffi::OsStr>) -> Cmd {
    xtent().args(["--json", "resize"]).arg(volume)
}

/// Sizes before and after, and who was told.
fn sizes(told: &Value) -> (u64, u64, u64) {
    let number = |name: &str| told[name].as_u64().unwrap();
    (number("before"), number("size"), number("told"))
}

/// A volume whose header says so many bytes, on a device with room for `room`.
fn fixed(shape: Shape, scratch: &Scratch, size: u64, room: u64) -> Container {
    let container = shape.image(Maker::Cryptsetup, scratch, room);
    fix(&container.image, size);
    container
}

fn fix(image: &Path, size: u64) {
    edit_json(image, |header| {
        header["segments"]["0"]["size"] = json!(size.to_string());
    });
}

/// What cryptsetup says of the size, and whether it opens the volume.
fn fixed_size(container: &Container) -> u64 {
    let dump = Cmd::peer("cryptsetup")
        .args(["luksDump", "--dump-json-metadata"])
        .arg(&container.image)
        .ok()
        .json();
    let size = dump["segments"]["0"]["size"].as_str().unwrap();
    assert_opens(&container.image, &container.key, true, size);
    size.parse().unwrap()
}

fn export_size(socket: &Path) -> u64 {
    let mut client = Raw::connect(socket);
    client.greet();
    client.go()
}

#[test]
fn a_fixed_size_is_changed_where_it_is_open_too() {
    let scratch = Scratch::new();
    let container = fixed(Shape::LUKS2_4096, &scratch, MIB, 8 * MIB);
    let image = &container.image;
    // Nobody has it.
    let told = resize(image).args(["--size", "2M"]).ok().json();
    assert_eq!(sizes(&told), (MIB, 2 * MIB, 0));
    assert_eq!(fixed_size(&container), 2 * MIB);
    let server = Server::start(&container);
    write_all(&server.uri, &pattern(2 << 20, 1));
    // Only the header says its size: the device has had more all the time.
    assert_eq!(export_size(&server.socket), 2 * MIB);
    let told = resize(image).args(["--size", "3M"]).ok().json();
    assert_eq!(sizes(&told), (2 * MIB, 3 * MIB, 1));
    assert_eq!(export_size(&server.socket), 3 * MIB);
    assert_eq!(fixed_size(&container), 3 * MIB);
    // A name chooses no device to write to.
    let uuid = xtent().arg("uuid").arg(image).ok().out();
    resize(uuid.trim())
        .args(["--size", "4M"])
        .fails(4)
        .says(&["is no device"]);
    // The same again is told again.
    for before in [3 * MIB, 4 * MIB] {
        let told = resize(image).args(["--size", "4M"]).ok().json();
        assert_eq!(sizes(&told), (before, 4 * MIB, 1));
    }
    write_all(&server.uri, &pattern(4 << 20, 2));
    // Not smaller under its clients.
    resize(image)
        .args(["--size", "1M", "--shrink", "-q"])
        .fails(5)
        .says(&["is in use by `xtent serve`"]);
    assert_eq!(fixed_size(&container), 4 * MIB);
    // What would not be used.
    resize(image)
        .arg("--key-file")
        .arg(&container.key)
        .fails(1)
        .says(&["no mapping is meant"]);
    server.stop();
    assert_same(
        &container.decrypt(),
        &pattern(4 << 20, 2),
        "what was written",
    );
    let told = resize(image)
        .args(["--size", "1M", "--shrink", "-q"])
        .ok()
        .json();
    assert_eq!(sizes(&told), (4 * MIB, MIB, 0));
    assert_eq!(fixed_size(&container), MIB);
    let left = &pattern(4 << 20, 2)[..1 << 20];
    assert_same(&container.decrypt(), left, "what is left");
}

/// It is named, and holds up nobody else's new size.
#[test]
fn a_process_that_does_not_answer_is_not_waited_for() {
    let scratch = Scratch::new();
    let container = fixed(Shape::LUKS2_4096, &scratch, MIB, 8 * MIB);
    let servers = [0, 1].map(|_| Server::start_with(&container, &["--read-only"]));
    let signal = |server: &Server, signal| {
        let process = i32::try_from(server.id()).unwrap();
        kill_process(Pid::from_raw(process).unwrap(), signal).unwrap();
    };
    signal(&servers[0], Signal::STOP);
    let process = format!("process {} does not answer", servers[0].id());
    resize(&container.image)
        .args(["--size", "2M"])
        .fails(4)
        .says(&["the header is changed, but", &process]);
    assert_eq!(export_size(&servers[1].socket), 2 * MIB);
    assert_eq!(fixed_size(&container), 2 * MIB);
    // It does what it was told once it goes on.
    signal(&servers[0], Signal::CONT);
    while export_size(&servers[0].socket) != 2 * MIB {
        std::thread::yield_now();
    }
    resize(&container.image).args(["--size", "2M"]).ok();
}

#[test]
fn an_attached_volume_with_a_detached_header_is_told() {
    let scratch = Scratch::new();
    let key = scratch.file("key", KEY);
    let data = scratch.image("data", 4 * MIB);
    let header_of_a_mib = |name: &str| {
        let header = detached_header(&scratch, name, &key, &data);
        fix(&header, MIB);
        header
    };
    let header = header_of_a_mib("header");
    let other = Shape::LUKS2.image(Maker::Xtent, &scratch, MIB);
    let gateway = Gateway::start(&[&other], &[]);
    let volume = Container {
        image: data.clone(),
        key: key.clone(),
    };
    gateway
        .attach(&volume)
        .args(["--export", "d", "--header"])
        .arg(&header)
        .ok();
    resize(&data)
        .args(["--size", "2M"])
        .fails(4)
        .says(&["--header"]);
    let told = resize(&data)
        .args(["--size", "2M", "--header"])
        .arg(&header)
        .ok()
        .json();
    assert_eq!(sizes(&told), (MIB, 2 * MIB, 1));
    write_all(&gateway.uri("d"), &pattern(2 << 20, 3));
    // Another volume's header, of the same device.
    let other = header_of_a_mib("other-header");
    let told = resize(&data)
        .args(["--size", "3M", "--header"])
        .arg(&other)
        .ok()
        .json();
    assert_eq!(sizes(&told), (MIB, 3 * MIB, 0));
    let listed = xtent().args(["--json", "status"]).ok().out();
    let has = |size: u64| listed.contains(&size.to_string());
    assert!(has(2 * MIB) && !has(3 * MIB), "{listed}");
    // The header alone is not the volume.
    let unchanged = Unchanged::new(&header);
    resize(&header).args(["--size", "3M"]).fails(4);
    unchanged.assert("a detached header");
    gateway.stop();
}

#[test]
fn what_cannot_be_is_refused_and_nothing_is_written() {
    let scratch = Scratch::new();
    let volume = fixed(Shape::LUKS2_4096, &scratch, 2 * MIB, 4 * MIB);
    let refused = |image: &Path, arguments: &[&str], code: i32, words: &[&str]| {
        let unchanged = Unchanged::new(image);
        let done = xtent().arg("resize").arg(image).args(arguments).fails(code);
        done.says(words);
        done.assert_no_crash();
        unchanged.assert(&arguments.join(" "));
    };
    let image = &volume.image;
    refused(image, &["--size", "5M"], 4, &["room", "4194304", "larger"]);
    refused(
        image,
        &["--size", "2M", "--shrink", "--server", "1"],
        1,
        &[],
    );
    refused(image, &["--size", "2097153"], 1, &["sectors of 4096"]);
    refused(image, &["--size", "1M"], 1, &["lose 1 MiB", "--shrink"]);
    // Nobody to ask.
    refused(image, &["--size", "1M", "--shrink"], 1, &["--batch-mode"]);
    refused(image, &["--shrink"], 1, &["--size"]);
    refused(image, &["--header", "x"], 1, &["--size"]);
    let dynamic = Scratch::new();
    let dynamic = Shape::LUKS2.image(Maker::Xtent, &dynamic, MIB).image;
    refused(
        &dynamic,
        &["--size", "1M"],
        1,
        &["fixes no size", "without --size"],
    );
    let luks1 = Scratch::new();
    let luks1 = Shape::LUKS1.image(Maker::Xtent, &luks1, MIB).image;
    refused(&luks1, &["--size", "1M"], 1, &["LUKS1 fixes no size"]);
    let busy = Scratch::new();
    let busy = fixed(Shape::LUKS2, &busy, MIB, 2 * MIB);
    edit_json(&busy.image, |header| {
        header["config"]["requirements"] = json!({"mandatory": ["online-reencrypt-v2"]});
    });
    refused(&busy.image, &["--size", "2M"], 4, &["being reencrypted"]);
    xtent()
        .args(["resize", "--size", "1M", "no-such-volume"])
        .fails(4)
        .says(&["xtent status"]);
}

/// Ended at any instant: the size is the old one or the new one, and the volume opens.
#[test]
fn a_resize_that_is_killed_has_happened_or_not() {
    let scratch = Scratch::new();
    let container = fixed(Shape::LUKS2_4096, &scratch, MIB, 40 * MIB);
    let mut server = Some(Server::start(&container));
    let mut random = Random::new(7);
    let start = Instant::now();
    resize(&container.image).args(["--size", "2M"]).ok();
    let usual = u64::try_from(start.elapsed().as_micros()).unwrap();
    let (mut known, mut told) = (2 * MIB, 2 * MIB);
    let mut killed = 0;
    for round in 3..=34 {
        let size = round * MIB;
        let process = resize(&container.image)
            .args(["--size", &size.to_string()])
            .spawn();
        let (start, instant) = (Instant::now(), Duration::from_micros(random.below(usual)));
        while start.elapsed() < instant {
            std::thread::yield_now();
        }
        // Every fourth time it is the server.
        let done = match round % 4 {
            0 => {
                drop(server.take());
                process.finish()
            }
            _ => process.kill(),
        };
        killed += u64::from(done.code() != Some(0));
        let found = fixed_size(&container);
        assert!([known, size].contains(&found), "round {round}: {found}");
        known = found;
        let served = server.get_or_insert_with(|| {
            told = known;
            Server::start(&container)
        });
        // Who was not told has what it had.
        let now = export_size(&served.socket);
        assert!([told, known].contains(&now), "round {round}: {now}");
        told = now;
    }
    assert!(killed > 0, "nothing was killed");
    // Both copies are whole after the next change.
    resize(&container.image).args(["--size", "36M"]).ok();
    let dump = xtent().args(["header", "dump"]).arg(&container.image).ok();
    assert!(!dump.text().contains("damaged"), "{}", dump.text());
    assert_eq!(fixed_size(&container), 36 * MIB);
}

#[test]
fn a_mount_takes_the_size_that_its_header_gets() {
    let test = "a_mount_takes_the_size_that_its_header_gets";
    if !bed::has_fuse(test) {
        return;
    }
    let scratch = Scratch::new();
    let _cleaner = Cleaner::new(scratch.path());
    let container = fixed(Shape::LUKS2_4096, &scratch, MIB, 3 * MIB);
    let folder = scratch.folder("mnt");
    let size = || std::fs::metadata(folder.join("volume")).unwrap().len();
    mount(&container, &folder, &["--file-only"]).ok();
    assert_eq!(size(), MIB);
    let told = resize(&container.image).args(["--size", "2M"]).ok().json();
    assert_eq!((sizes(&told), size()), ((MIB, 2 * MIB, 1), 2 * MIB));
    resize(&container.image)
        .args(["--size", "1M", "--shrink", "-q"])
        .fails(5)
        .says(&["xtent mount"]);
    umount(&folder).ok();
    assert_eq!(fixed_size(&container), 2 * MIB);
}
