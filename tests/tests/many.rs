//! One server, many volumes: they come and go while clients are at work.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use xtent_control::{Attach, Discard, Link, Reply, Request, Role, Source};
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
    let status = gateway.status();
    assert_eq!(status.len(), 3);
    assert!(status.iter().all(|volume| volume["clients"] == 0));
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

/// The request of an attach as ours is.
fn attach_request(container: &Container, name: &str) -> Attach {
    Attach {
        clients: Vec::new(),
        zero_holes: false,
        name: name.to_owned(),
        device: container.image.to_str().unwrap().to_owned(),
        partition: None,
        uuid: None,
        source: Source::File {
            window: None,
            direct: false,
            atomic: 512,
            discard: 4096,
        },
        files: vec![Role::Data],
        key_length: 64,
        cipher: "aes-xts-plain64".to_owned(),
        sector_size: 512,
        large_sectors: false,
        offset: 16 << 20,
        length: SIZE,
        iv_offset: 0,
        grows: true,
        read_only: false,
        encrypt: false,
        discard: Discard::Never,
        backend: None,
        cipher_threads: None,
    }
}

/// What the server says to these messages; nothing if it just hangs up.
fn said(
    gateway: &Gateway,
    request: &[u8],
    files: &[BorrowedFd<'_>],
    key: Option<&[u8]>,
) -> Option<Reply> {
    let link = Link::connect(&gateway.control()).unwrap();
    link.set_patience(Duration::from_secs(300)).unwrap();
    let _ = link.send(request, files);
    if let Some(key) = key {
        let _ = link.send(key, &[]);
    }
    let (bytes, _) = link.receive().ok()?;
    Some(Reply::parse(&bytes).unwrap())
}

#[test]
fn hostile_control_clients_do_not_harm_the_server() {
    let scratch = Scratch::new();
    let [a, b] = ["a.img", "b.img"].map(|name| container(&scratch, name, Shape::LUKS2));
    let mut gateway = Gateway::start(&[&a, &container(&scratch, "c.img", Shape::LUKS2)], &[]);
    let good = attach_request(&b, "b");
    let bytes = |attach: &Attach| {
        Request::Attach(Box::new(attach.clone()))
            .to_bytes()
            .unwrap()
    };
    let open = |write| {
        File::options()
            .read(true)
            .write(write)
            .open(&b.image)
            .unwrap()
    };
    let (read_write, read_only) = (open(true), open(false));
    let (reader, _writer) = std::io::pipe().unwrap();
    let (socket, _peer) = UnixStream::pair().unwrap();
    let null = File::open("/dev/null").unwrap();
    let folder = File::open(scratch.path()).unwrap();
    let key = [7; 64];
    let before = gateway.files();
    let refused = |reply: Option<Reply>, what: &str| {
        assert!(
            !matches!(reply, Some(Reply::Done { .. })),
            "{what}: {reply:?}"
        );
    };
    // Messages that are none.
    for garbage in [
        &b"{"[..],
        b"\0",
        &[b'['; 60_000],
        br#"{"detach":{"name":"\u0000"}}"#,
    ] {
        refused(said(&gateway, garbage, &[], None), "garbage");
    }
    refused(said(&gateway, &bytes(&good)[..100], &[], None), "truncated");
    refused(said(&gateway, &vec![b' '; 100_000], &[], None), "huge");
    // Descriptors of other kinds.
    for fd in [
        reader.as_fd(),
        socket.as_fd(),
        null.as_fd(),
        folder.as_fd(),
        read_only.as_fd(),
    ] {
        refused(
            said(&gateway, &bytes(&good), &[fd], Some(&key)),
            "other descriptors",
        );
    }
    let file = read_write.as_fd();
    refused(
        said(&gateway, &bytes(&good), &[], Some(&key)),
        "no descriptor",
    );
    refused(
        said(&gateway, &bytes(&good), &[file; 8], Some(&key)),
        "too many",
    );
    // Keys.
    for len in [1, 32, 63, 65, 4000] {
        refused(
            said(&gateway, &bytes(&good), &[file], Some(&vec![7; len])),
            "key",
        );
    }
    // Numbers that cannot be, and names that are taken.
    for change in [
        (|it| it.offset = u64::MAX) as fn(&mut Attach),
        |it| it.offset = 1,
        |it| it.length = !511,
        |it| it.length = 0,
        |it| it.iv_offset = u64::MAX,
        |it| it.sector_size = 3,
        |it| it.sector_size = u32::MAX,
        |it| it.cipher = "null".into(),
        |it| it.cipher = "x".repeat(5000),
        |it| it.backend = Some("z80".into()),
        |it| it.cipher_threads = Some(usize::MAX),
        |it| it.name = "a.img".into(),
        |it| it.name = "n".repeat(4097),
        |it| {
            it.source = Source::File {
                window: Some((u64::MAX, 2)),
                direct: false,
                atomic: 3,
                discard: 7,
            }
        },
        |it| {
            it.source = Source::Export {
                uri: "nbd://127.0.0.1:1/x".into(),
                reconnect: 0,
            }
        },
    ] {
        let mut attach = good.clone();
        change(&mut attach);
        let Ok(bytes) = Request::Attach(Box::new(attach.clone())).to_bytes() else {
            continue;
        };
        refused(
            said(&gateway, &bytes, &[file], Some(&key)),
            &format!("{attach:?}"),
        );
    }
    // Clients that go away at every point.
    for step in 0..3 {
        let link = Link::connect(&gateway.control()).unwrap();
        if step > 0 {
            link.send(&bytes(&good), &[file]).unwrap();
        }
        if step > 1 {
            link.send(&[7; 64], &[]).unwrap();
        }
    }
    drop(read_write);
    assert!(gateway.is_running());
    // What the last one asked for may have been done.
    let detached = gateway.detach("b").run();
    assert!(
        [Some(0), Some(4)].contains(&detached.code()),
        "{}",
        detached.text()
    );
    // All of that is closed, and the volume can be had.
    gateway.attach(&b).ok();
    gateway.detach("b.img").ok();
    let after = gateway.files();
    assert!(
        after <= before + 3,
        "{before} descriptors before, {after} after"
    );
    assert_eq!(gateway.exports(), ["a.img", "c.img"]);
    gateway.stop();
}

#[test]
fn an_attach_that_is_killed_leaves_the_server_sane() {
    let scratch = Scratch::new();
    let [a, b] = ["a.img", "b.img"].map(|name| container(&scratch, name, Shape::LUKS2));
    let mut gateway = Gateway::start(&[&a], &[]);
    for round in 0..20_u64 {
        let attach = gateway.attach(&b).spawn();
        // Somewhere between its beginning and its end, wherever that is on this machine.
        std::thread::sleep(Duration::from_millis(round * 2));
        attach.kill();
        assert!(gateway.is_running());
        // Either it was attached, whole, or the device is free.
        if gateway.detach("b.img").run().code() != Some(0) {
            gateway.attach(&b).run();
            let _ = gateway.detach("b.img").run();
        }
    }
    gateway.attach(&b).ok();
    write_all(&gateway.uri("b.img"), &pattern(usize_of(SIZE), 5));
    gateway.stop();
    assert_same(
        &b.decrypt(),
        &pattern(usize_of(SIZE), 5),
        "what was written",
    );
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

/// 64 volumes and 1000 connections: what each costs. Prints it.
#[test]
#[ignore = "long; measures"]
fn soak_many_volumes_and_connections() {
    const VOLUMES: usize = 64;
    const CLIENTS: usize = 1000;
    let scratch = Scratch::new();
    let containers: Vec<Container> = (0..VOLUMES)
        .map(|n| container(&scratch, &format!("v{n}"), Shape::LUKS2))
        .collect();
    let gateway = Gateway::start(&[&containers[0]], &["--connections", "1024"]);
    let (memory, files) = (gateway.number("VmRSS"), gateway.files());
    for container in &containers[1..] {
        gateway.attach(container).ok();
    }
    let with_volumes = gateway.number("VmRSS");
    let volumes = VOLUMES as u64 - 1;
    println!(
        "a volume without clients: {} KiB, {:.1} descriptors, {} threads in all",
        with_volumes.saturating_sub(memory) / volumes,
        (gateway.files() - files) as f64 / volumes as f64,
        gateway.number("Threads")
    );
    let name = |n: usize| match n % VOLUMES {
        0 => String::new(),
        n => format!("v{n}"),
    };
    let mut clients: Vec<Raw> = (0..CLIENTS).map(|n| gateway.connect(&name(n))).collect();
    for client in &mut clients {
        client.request(command::READ, 0, 4096);
        assert_eq!(client.reply(), 0);
        client.receive(4096);
    }
    println!(
        "a connection after a read: {} KiB, {} threads in all",
        gateway.number("VmRSS").saturating_sub(with_volumes) / CLIENTS as u64,
        gateway.number("Threads")
    );
    let ticks = gateway.ticks();
    std::thread::sleep(Duration::from_secs(10));
    println!("idle for 10 s: {} ticks of 10 ms", gateway.ticks() - ticks);
    // All at work: each client its own sectors of its volume, verified.
    let (next, failed) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for part in clients.chunks_mut(CLIENTS / 16) {
            let (next, failed) = (&next, &failed);
            scope.spawn(move || {
                for client in part {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    let data = n.to_be_bytes().repeat(512);
                    let at = n / VOLUMES as u64 * 4096 + (n % 16) * 131_072;
                    client.request(command::WRITE, at, 4096);
                    client.send(&data);
                    let is_good = client.reply() == 0;
                    failed.fetch_or(!is_good, Ordering::Relaxed);
                }
            });
        }
    });
    assert!(!failed.load(Ordering::Relaxed));
    drop(clients);
    for n in 1..VOLUMES {
        gateway.detach(format!("v{n}")).ok();
    }
    println!(
        "after all have gone: {} KiB, {} threads",
        gateway.number("VmRSS"),
        gateway.number("Threads")
    );
    assert!(gateway.files() <= files + 2);
    gateway.stop();
}
