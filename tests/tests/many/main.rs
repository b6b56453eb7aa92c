//! One server, many volumes: they come and go while clients are at work.
#![allow(clippy::unwrap_used, reason = "tests")]

mod control;
mod cost;
mod images;

use std::fs::File;
use std::io::Write;
use std::os::unix::net::UnixStream;

use xtent_tests::far::Far;
use xtent_tests::faulty::{Fault, FaultyStore};
use xtent_tests::gateway::Gateway;
use xtent_tests::luks::{Container, KEY, Maker, Shape};
use xtent_tests::nbd::{Raw, command, nbdsh, read_all, write_all};
use xtent_tests::scratch::assert_same;
use xtent_tests::xtent::xtent;
use xtent_tests::{Cmd, Scratch, bed, pattern};

const SIZE: u64 = 4 << 20;

/// A container by cryptsetup in a file of this name; all have one key.
fn container(scratch: &Scratch, name: &str, shape: Shape) -> Container {
    let image = scratch.image(name, shape.data_offset() + SIZE);
    let key = scratch.join("key");
    if !key.exists() {
        scratch.file("key", KEY);
        Cmd::new("/bin/chmod").args(["600"]).arg(&key).ok();
    }
    shape.format(Maker::Cryptsetup, &image, &key);
    Container { image, key }
}

fn usize_of(n: u64) -> usize {
    usize::try_from(n).unwrap()
}

#[test]
fn each_volume_is_an_export_of_its_own() {
    let scratch = Scratch::new();
    let shapes = [Shape::LUKS1, Shape::LUKS2, Shape::LUKS2_4096];
    let names = ["one.img", "two.img", "three.img"];
    let containers: Vec<Container> = names
        .iter()
        .zip(shapes)
        .map(|(name, shape)| container(&scratch, name, shape))
        .collect();
    let all: Vec<&Container> = containers.iter().collect();
    let gateway = Gateway::start(&all, &[]);
    assert_eq!(gateway.exports(), ["one.img", "three.img", "two.img"]);
    for (seed, name) in (0..).zip(names) {
        write_all(&gateway.uri(name), &pattern(usize_of(SIZE), seed));
    }
    // A client counts until the server has seen its end.
    let is_idle = |volume: &serde_json::Value| volume["clients"] == 0;
    let start = std::time::Instant::now();
    while !gateway.status().iter().all(is_idle) {
        assert!(start.elapsed() < xtent_tests::PATIENCE);
    }
    assert_eq!(gateway.status().len(), 3);
    let image = scratch.file("expected", &pattern(usize_of(SIZE), 1));
    Cmd::peer("qemu-img")
        .args(["compare", "-f", "raw", "-F", "raw"])
        .arg(&image)
        .arg(gateway.uri("two.img"))
        .ok();
    gateway.stop();
    for (seed, container) in (0..).zip(&containers) {
        assert_same(
            &container.decrypt(),
            &pattern(usize_of(SIZE), seed),
            "what was written",
        );
    }
}

#[test]
fn what_is_meant_for_one_volume_is_refused_for_several() {
    let scratch = Scratch::new();
    let [a, b] = ["a.img", "b.img"].map(|name| container(&scratch, name, Shape::LUKS2));
    let serve = || xtent().arg("serve").arg("--key-file").arg(&a.key);
    for option in ["--header=x", "--partition=1", "--key-slot=1", "--export=x"] {
        let refused = serve().arg(option).args([&a.image, &b.image]).fails(1);
        refused.says(&["is for one DEVICE", "--config"]);
    }
    let folder = scratch.folder("f");
    let same = folder.join("a.img");
    serve()
        .args([&a.image, &same])
        .fails(1)
        .says(&["both be exported"]);
    // All or none, and the one that is to blame is named.
    let gone = scratch.join("gone.img");
    serve().args([&a.image, &gone]).fails(4).says(&["gone.img"]);
    let other = scratch.file("other", b"wrong");
    let wrong = xtent().arg("serve").arg("--key-file").arg(other);
    wrong.args([&a.image, &b.image]).fails(2).says(&["a.img"]);
}

/// Writes and verifies until told to end; how often it did.
const LOAD: &str = r#"
import os, random
rng = random.Random(7)
blocks = [None] * 256
rounds = 0
while not os.path.exists(STOP):
    for _ in range(32):
        at = rng.randrange(256)
        data = bytes([rng.randrange(256)]) * 8192
        h.pwrite(data, at * 8192)
        blocks[at] = data
    h.flush()
    for at in range(256):
        if blocks[at] is not None:
            assert h.pread(8192, at * 8192) == blocks[at], at
    rounds += 1
print(rounds)
"#;

#[test]
fn volumes_come_and_go_beside_a_load_that_verifies() {
    let scratch = Scratch::new();
    let [a, b] = ["a.img", "b.img"].map(|name| container(&scratch, name, Shape::LUKS2));
    let gateway = Gateway::start(&[&a], &[]);
    // Of one it is the empty name.
    let uri = gateway.uri("");
    let stop = scratch.join("stop");
    let script = format!("STOP = {:?}\n{LOAD}", stop.to_str().unwrap());
    let before = gateway.files();
    std::thread::scope(|scope| {
        let load = scope.spawn(|| nbdsh(&uri, &script));
        for round in 0..8 {
            gateway.attach(&b).ok();
            let data = pattern(usize_of(SIZE), round);
            write_all(&gateway.uri("b.img"), &data);
            let client = gateway.connect("b.img");
            gateway.detach(&b.image).ok();
            drop(client);
            // Its lock is free, and everything is there.
            assert_same(&b.decrypt(), &data, "what was written");
        }
        std::fs::write(&stop, "").unwrap();
        let rounds = load.join().unwrap().stdout;
        let rounds: u32 = String::from_utf8(rounds).unwrap().trim().parse().unwrap();
        assert!(rounds > 0);
    });
    assert!(gateway.files() <= before + 2, "descriptors are left");
    assert_eq!(gateway.exports(), [""]);
    gateway.stop();
}

#[test]
fn clients_of_a_detached_export_see_an_orderly_end() {
    let scratch = Scratch::new();
    let [a, b] = ["a.img", "b.img"].map(|name| container(&scratch, name, Shape::LUKS2));
    let gateway = Gateway::start(&[&a, &b], &[]);
    let mut idle = gateway.connect("b.img");
    let mut busy = gateway.connect("b.img");
    let mut other = gateway.connect("a.img");
    const COUNT: usize = 40;
    let data = pattern(65_536, 3);
    for at in 0..COUNT as u64 {
        busy.request(command::WRITE, at * 65_536, 65_536);
        busy.send(&data);
    }
    busy.request(command::FLUSH, 0, 0);
    // All of that had arrived when the first is answered, or it is not begun.
    gateway.detach("b.img").ok();
    assert!(idle.is_closed());
    let mut answered = 0;
    let mut stream = busy.into_stream();
    let mut replies = Vec::new();
    std::io::Read::read_to_end(&mut stream, &mut replies).unwrap();
    for reply in replies.chunks(16) {
        assert_eq!(reply[4..8], [0; 4], "an error instead of an end");
        answered += 1;
    }
    assert!(answered <= COUNT + 1);
    let found = b.decrypt();
    for at in 0..answered.min(COUNT) {
        assert_same(&found[at * 65_536..][..65_536], &data, "what was written");
    }
    other.request(command::READ, 0, 512);
    assert_eq!(other.reply(), 0);
    let mut late = Raw::connect(&gateway.socket);
    late.greet();
    late.send(&xtent_tests::nbd::go_to("b.img"));
    let reply = late.receive(20);
    assert_eq!(reply[12..16], 0x8000_0006_u32.to_be_bytes(), "unknown");
    gateway.stop();
}

#[test]
fn a_detach_whose_flush_fails_says_so() {
    if !bed::has_fuse("a_detach_whose_flush_fails_says_so") {
        return;
    }
    let scratch = Scratch::new();
    let [a, b] = ["a.img", "b.img"].map(|name| container(&scratch, name, Shape::LUKS2));
    let store = FaultyStore::new(&b.image);
    let faulty = Container {
        image: store.path.clone(),
        key: b.key.clone(),
    };
    let gateway = Gateway::start(&[&a], &[]);
    gateway.attach(&faulty).ok();
    nbdsh(&gateway.uri("store"), "h.pwrite(b'x' * 4096, 0)");
    store.break_it(Fault::Flush);
    gateway.detach("store").fails(4);
    assert_eq!(gateway.exports(), [""]);
    write_all(&gateway.uri(""), &pattern(4096, 1));
    store.mend_it(Fault::Flush);
    gateway.attach(&faulty).ok();
    gateway.detach("store").ok();
    gateway.stop();
}

#[test]
fn a_volume_that_stands_still_does_not_slow_the_others() {
    let scratch = Scratch::new();
    let [a, b] = ["a.img", "b.img"].map(|name| container(&scratch, name, Shape::LUKS2));
    let control = scratch.join("pause");
    let far = Far::nbdkit(&[
        "--filter=pause",
        "file",
        b.image.to_str().unwrap(),
        &format!("pause-control={}", control.display()),
    ]);
    let slow = far.container(&b.key);
    let config = scratch.file(
        "x.toml",
        format!(
            "[volume.fast]\ndevice = {:?}\nkey-file = \"key\"\n\
             [volume.slow]\ndevice = {:?}\nkey-file = \"key\"\nreconnect = 86400\n",
            a.image, slow.image
        )
        .as_bytes(),
    );
    let serve = xtent().arg("serve").arg("--config").arg(config);
    let gateway = Gateway::start_by(serve, [] as [&str; 0]);
    let mut stuck: Vec<Raw> = (0..3).map(|_| gateway.connect("slow")).collect();
    let mut pause = UnixStream::connect(&control).unwrap();
    pause.write_all(b"p").unwrap();
    std::io::Read::read_exact(&mut pause, &mut [0]).unwrap();
    for client in &mut stuck {
        for at in 0..64 {
            client.request(command::READ, at * 4096, 4096);
            client.request(command::WRITE_ZEROES, at * 4096, 4096);
        }
    }
    write_all(&gateway.uri("fast"), &pattern(usize_of(SIZE), 8));
    assert_same(
        &read_all(&gateway.uri("fast")),
        &pattern(usize_of(SIZE), 8),
        "what was written",
    );
    for client in &stuck {
        let mut waiting = [0];
        let peeked = rustix::net::recv(
            client,
            &mut waiting[..],
            rustix::net::RecvFlags::DONTWAIT | rustix::net::RecvFlags::PEEK,
        );
        assert_eq!(
            peeked,
            Err(rustix::io::Errno::AGAIN),
            "not slow: {waiting:?}"
        );
    }
    pause.write_all(b"r").unwrap();
    for client in &mut stuck {
        for _ in 0..64 {
            // A read's answer has data; each answers in its own time.
            client.receive(2 * 16 + 4096);
        }
    }
    gateway.stop();
}

#[test]
fn a_configuration_file_says_it_all_and_reload_follows_it() {
    let scratch = Scratch::new();
    let [a, b, c] = ["a.img", "b.img", "c.img"].map(|name| container(&scratch, name, Shape::LUKS2));
    let key = a.key.to_str().unwrap();
    let config = scratch.file(
        "gateway.toml",
        format!(
            "[server]\nconnections = 100\n\
             [volume.first]\ndevice = \"a.img\"\nkey-file = \"key\"\n\
             [volume.second]\ndevice = \"b.img\"\nread-only = true\n\
             key-command = [\"/bin/cat\", {key:?}]\n"
        )
        .as_bytes(),
    );
    let with = |verb: &str| xtent().arg(verb).arg("--config").arg(&config);
    let checked = with("serve").args(["--check", "--json"]).ok();
    let checked: serde_json::Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!(checked["volumes"][1]["export"], "second");
    let gateway = Gateway::start_by(with("serve"), [] as [&str; 0]);
    assert_eq!(gateway.exports(), ["first", "second"]);
    write_all(&gateway.uri("first"), &pattern(4096, 1));
    let refused = Cmd::peer("nbdinfo").args(["--is", "readonly", &gateway.uri("second")]);
    refused.ok();
    // A client of what stays sees nothing of what is changed.
    let mut client = gateway.connect("first");
    std::fs::write(
        &config,
        "[volume.first]\ndevice = \"a.img\"\nkey-file = \"key\"\n\
         [volume.third]\ndevice = \"c.img\"\nkey-file = \"key\"\n",
    )
    .unwrap();
    let reload = || gateway.command("attach").arg("--config").arg(&config);
    reload().ok();
    assert_eq!(gateway.exports(), ["first", "second", "third"]);
    reload().arg("--prune").ok();
    assert_eq!(gateway.exports(), ["first", "third"]);
    let again = reload().args(["--prune", "--json"]).ok();
    let again: serde_json::Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(again["attached"].as_array().unwrap().len(), 0);
    client.request(command::FLUSH, 0, 0);
    assert_eq!(client.reply(), 0);
    write_all(&gateway.uri("third"), &pattern(4096, 3));
    // One whose device is not there at the moment may be the one that is served.
    std::fs::write(
        &config,
        "[volume.first]\ndevice = \"gone.img\"\nkey-file = \"key\"\n\
         [volume.third]\ndevice = \"c.img\"\nkey-file = \"key\"\n",
    )
    .unwrap();
    reload().arg("--prune").fails(4).says(&["gone.img"]);
    assert_eq!(gateway.exports(), ["first", "third"]);
    client.request(command::FLUSH, 0, 0);
    assert_eq!(client.reply(), 0);
    // What is wrong is said, and nothing is changed.
    std::fs::write(
        &config,
        "[volume.first]\ndevice = \"a.img\"\nreadonly = true\n",
    )
    .unwrap();
    reload()
        .arg("--prune")
        .fails(1)
        .says(&["line 3", "readonly"]);
    assert_eq!(gateway.exports(), ["first", "third"]);
    Cmd::new("/bin/chmod").arg("666").arg(&config).ok();
    reload().fails(2).says(&["not trusted"]);
    gateway.stop();
    assert_same(&c.decrypt()[..4096], &pattern(4096, 3), "what was written");
    drop(b);
}

#[test]
fn a_device_that_grew_is_looked_at_on_demand() {
    let scratch = Scratch::new();
    let [a, b] = ["a.img", "b.img"].map(|name| container(&scratch, name, Shape::LUKS2));
    let gateway = Gateway::start(&[&a], &[]);
    gateway.attach(&b).ok();
    let file = File::options().write(true).open(&b.image).unwrap();
    file.set_len((16 << 20) + 2 * SIZE).unwrap();
    let json = |name: &str| -> serde_json::Value {
        let done = gateway.command("resize").args(["--json", name]).ok();
        serde_json::from_slice(&done.stdout).unwrap()
    };
    let grown = json("b.img");
    assert_eq!(
        (grown["before"].as_u64(), grown["size"].as_u64()),
        (Some(SIZE), Some(2 * SIZE))
    );
    let same = json(a.image.to_str().unwrap());
    assert_eq!(same["before"], same["size"]);
    let sizes: Vec<_> = gateway
        .status()
        .iter()
        .map(|it| it["size"].as_u64())
        .collect();
    assert_eq!(sizes, [Some(SIZE), Some(2 * SIZE)]);
    gateway.stop();
}
