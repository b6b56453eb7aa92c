//! Stores that fail, servers that die, clients that vanish.
//!
//! What a cut of power leaves behind is tested where a store can present every
//! legal survivor, in the crates; here the failures are those that a whole
//! process meets.
#![allow(clippy::unwrap_used, reason = "tests")]

use rustix::process::Signal;
use xtent_tests::faulty::{Fault, FaultyStore};
use xtent_tests::luks::{Container, Maker, Shape, add_key};
use xtent_tests::mount::Cleaner;
use xtent_tests::nbd::{Raw, command, go, nbdsh, read_all, request, write_all};
use xtent_tests::scratch::assert_same;
use xtent_tests::xtent::Server;
use xtent_tests::{Cmd, Scratch, bed, pattern};

/// Python that expects an error and checks that the connection lives on.
const FAILS: &str = r#"
def fails(wanted, call, *arguments):
    try:
        call(*arguments)
    except nbd.Error as error:
        assert error.errno == wanted, (error.errno, wanted)
    else:
        assert False, "no error"
"#;

#[test]
fn a_failing_store_fails_one_request_at_a_time() {
    if !bed::has_fuse("a_failing_store_fails_one_request_at_a_time") {
        return;
    }
    let scratch = Scratch::new();
    for shape in [Shape::LUKS2, Shape::LUKS2_4096] {
        let container = shape.image(Maker::Xtent, &scratch, 8 << 20);
        let data = pattern(8 << 20, 61);
        container.encrypt(&data);
        let store = FaultyStore::new(&container.image);
        let faulty = Container {
            image: store.path.clone(),
            key: container.key.clone(),
        };
        let server = Server::start(&faulty);

        store.break_it(Fault::Read);
        nbdsh(
            &server.uri,
            &format!(
                "{FAILS}fails('EIO', h.pread, 4096, 4 << 20)\nfails('EIO', h.pread, 1 << 20, 5 << 20)"
            ),
        );
        store.mend_it(Fault::Read);
        assert_same(&read_all(&server.uri), &data, "reads work again");

        store.break_it(Fault::Write);
        nbdsh(
            &server.uri,
            &format!(
                "{FAILS}fails('ENOSPC', h.pwrite, b'x' * 8192, 0)\nassert len(h.pread(4096, 0)) == 4096"
            ),
        );
        store.mend_it(Fault::Write);
        write_all(&server.uri, &data);
        assert_same(&read_all(&server.uri), &data, "writes work again");

        // A flush that failed once can never be believed again.
        store.break_it(Fault::Flush);
        nbdsh(
            &server.uri,
            &format!("{FAILS}h.pwrite(b'y' * 4096, 0)\nfails('EIO', h.flush)"),
        );
        store.mend_it(Fault::Flush);
        nbdsh(&server.uri, &format!("{FAILS}fails('EIO', h.flush)"));
        // ... and the server's end says so.
        let done = server.terminate(Signal::TERM);
        assert_eq!(done.code(), Some(4), "{}", done.text());
        done.says(&["flush"]);
    }
}

/// Errors while a container is opened or changed: the right exit code, no
/// crash, and the keys that were there still open it.
#[test]
fn a_failing_store_under_key_management() {
    if !bed::has_fuse("a_failing_store_under_key_management") {
        return;
    }
    let scratch = Scratch::new();
    let new = scratch.file("new", b"new");
    for shape in [Shape::LUKS1, Shape::LUKS2] {
        for fault in [Fault::Read, Fault::Write, Fault::Flush] {
            let folder = Scratch::new();
            let container = shape.image(Maker::Cryptsetup, &folder, 4096);
            let store = FaultyStore::new(&container.image);
            store.break_it(fault);
            let done = add_key(shape.version, &store.path, &container.key, &new).run();
            done.assert_no_crash();
            assert_eq!(done.code(), Some(4), "{fault:?}: {}", done.text());
            drop(store);
            assert!(
                xtent_tests::luks::cryptsetup_opens(&container.image, &container.key),
                "{shape}: {fault:?} lost the key"
            );
        }
    }
}

/// A sparse image on a file system that is full.
#[test]
fn a_full_disk() {
    if !bed::is_root("a_full_disk") {
        return;
    }
    let scratch = Scratch::new();
    let _cleaner = Cleaner::new(scratch.path());
    let folder = scratch.folder("small");
    Cmd::peer("mount")
        .args(["-t", "tmpfs", "-o", "size=20m", "tmpfs"])
        .arg(&folder)
        .ok();
    let container = Container {
        image: folder.join("image"),
        key: scratch.file("key", xtent_tests::luks::KEY),
    };
    std::fs::File::create_new(&container.image)
        .unwrap()
        .set_len(64 << 20)
        .unwrap();
    Shape::LUKS2.format(Maker::Xtent, &container.image, &container.key);
    let server = Server::start(&container);
    nbdsh(
        &server.uri,
        &format!(
            r#"{FAILS}
h.pwrite(b'first' * 1000, 0)
h.flush()
written = 0
try:
    for i in range(1, 40):
        h.pwrite(bytes([i]) * (1 << 20), i << 20)
        written = i
except nbd.Error as error:
    assert error.errno == "ENOSPC", error.errno
else:
    assert False, "the disk is not full"
assert h.pread(5000, 0) == b'first' * 1000
for i in range(1, written + 1):
    assert h.pread(1 << 20, i << 20) == bytes([i]) * (1 << 20)
fails('ENOSPC', h.zero, 8 << 20, 32 << 20)
h.pwrite(b'again' * 1000, 0)
h.flush()
"#
        ),
    );
    server.stop();
    let server = Server::start(&container);
    assert_eq!(&read_all(&server.uri)[..5], b"again");
    server.stop();
}

/// A limit on the size of files (`ulimit -f`, systemd's `LimitFSIZE=`): an error
/// like that of a full disk, which the server survives.
#[test]
fn a_file_size_limit() {
    let scratch = Scratch::new();
    let container = Shape::LUKS2.image(Maker::Xtent, &scratch, 8 << 20);
    let limit = Shape::LUKS2.data_offset() + (4 << 20);
    let socket = scratch.join("socket");
    let mut server = Cmd::peer("prlimit")
        .arg(format!("--fsize={limit}"))
        .wrapping(Server::command(&container, &socket, &[]))
        .spawn();
    server.wait_for_line(|line| line.contains("nbd+unix"));
    let uri = format!("nbd+unix:///?socket={}", socket.display());
    nbdsh(
        &uri,
        &format!(
            r#"{FAILS}
h.pwrite(b'first' * 1000, 0)
fails('ENOSPC', h.pwrite, b'x' * 4096, 6 << 20)
fails('ENOSPC', h.pwrite, b'x' * 4096, 6 << 20, nbd.CMD_FLAG_FUA)
fails('ENOSPC', h.zero, 1 << 20, 5 << 20)
h.flush()
h.pwrite(b'again' * 1000, 0, nbd.CMD_FLAG_FUA)
h.flush()
"#
        ),
    );
    server.signal(Signal::TERM);
    let done = server.finish();
    // What was acknowledged is on the disk.
    assert_eq!(done.code(), Some(0), "{}", done.text());
    done.says(&["request failed", "file"]);
    assert!(!socket.exists());
    assert_eq!(&container.decrypt()[..5], b"again");
}

/// Somebody cuts the image while it is served: its lost part fails, the rest
/// does not, and it never grows again.
#[test]
fn an_image_that_becomes_shorter() {
    let scratch = Scratch::new();
    let container = Shape::LUKS2.image(Maker::Xtent, &scratch, 4 << 20);
    let data = pattern(4 << 20, 62);
    container.encrypt(&data);
    let server = Server::start(&container);
    let len = Shape::LUKS2.data_offset() + (1 << 20);
    std::fs::File::options()
        .write(true)
        .open(&container.image)
        .unwrap()
        .set_len(len)
        .unwrap();
    nbdsh(
        &server.uri,
        &format!(
            "{FAILS}
for call, argument in [(h.pread, 4096), (h.pwrite, b'x' * 4096)]:
    try:
        call(argument, 2 << 20)
    except nbd.Error as error:
        assert error.errno in ['EIO', 'EINVAL', 'ENOSPC'], error.errno
    else:
        assert False, 'no error behind the end'
h.pread(1 << 20, 0)
"
        ),
    );
    assert_same(
        &Cmd::peer("nbdsh")
            .args(["-u", &server.uri, "-c"])
            .arg("import sys; sys.stdout.buffer.write(h.pread(1 << 20, 0))")
            .ok()
            .stdout,
        &data[..1 << 20],
        "what is left",
    );
    assert_eq!(std::fs::metadata(&container.image).unwrap().len(), len);
    server.stop();
}

/// Clients that hang up, at every step of the protocol.
#[test]
fn clients_that_vanish() {
    let scratch = Scratch::new();
    let container = Shape::LUKS2.image(Maker::Xtent, &scratch, 8 << 20);
    let data = pattern(8 << 20, 63);
    container.encrypt(&data);
    let server = Server::start(&container);
    type Step = fn(&mut Raw);
    let steps: &[(&str, Step)] = &[
        ("connected", |_| {}),
        ("greeted", |c| {
            c.receive(18);
        }),
        ("half of the flags", |c| c.send(&[0, 0])),
        ("flags", Raw::greet),
        ("half of an option", |c| {
            c.greet();
            c.send(&go()[..10]);
        }),
        ("an option without its data", |c| {
            c.greet();
            c.send(&go()[..18]);
        }),
        ("an option, answer not read", |c| {
            c.greet();
            c.send(&go());
        }),
        ("negotiated", |c| {
            c.greet();
            c.go();
        }),
        ("half of a request", |c| {
            c.greet();
            c.go();
            c.send(&request(command::READ, 0, 4096)[..13]);
        }),
        ("a read, answer not read", |c| {
            c.greet();
            c.go();
            c.request(command::READ, 0, 8 << 20);
        }),
        ("a read, half of the answer read", |c| {
            c.greet();
            c.go();
            c.request(command::READ, 0, 8 << 20);
            c.receive(100_000);
        }),
        ("many reads, no answer read", |c| {
            c.greet();
            c.go();
            for i in 0..64 {
                c.request(command::READ, i * 4096, 1 << 20);
            }
        }),
        ("a write without data", |c| {
            c.greet();
            c.go();
            c.request(command::WRITE, 0, 1 << 20);
        }),
        ("a write with half of its data", |c| {
            c.greet();
            c.go();
            c.request(command::WRITE, 0, 1 << 20);
            c.send(&vec![0xee; 1 << 19]);
        }),
        ("flush and trim, answers not read", |c| {
            c.greet();
            c.go();
            c.request(command::FLUSH, 0, 0);
            c.request(command::TRIM, 0, 1 << 20);
        }),
        ("a request with a wrong magic", |c| {
            c.greet();
            c.go();
            c.send(&[0xaa; 28]);
        }),
        ("a goodbye", |c| {
            c.greet();
            c.go();
            c.request(command::DISCONNECT, 0, 0);
        }),
    ];
    for (what, step) in steps {
        // More often than the server takes connections: none may be kept.
        for _ in 0..20 {
            let mut client = Raw::connect(&server.socket);
            step(&mut client);
        }
        assert_eq!(
            read_all(&server.uri).len(),
            data.len(),
            "after a client vanished: {what}"
        );
    }
    // A write that was cut off changed whole sectors or none, and nothing
    // outside of it.
    let after = read_all(&server.uri);
    assert_same(&after[1 << 20..], &data[1 << 20..], "outside of the writes");
    for (n, sector) in after[..1 << 20].chunks(512).enumerate() {
        assert!(
            sector == &data[n * 512..][..512] || sector.iter().all(|b| *b == 0xee),
            "sector {n} is neither old nor new"
        );
    }
    server.stop();
}

/// Raw requests that no library sends: the server answers or hangs up.
#[test]
fn clients_that_talk_nonsense() {
    let scratch = Scratch::new();
    let container = Shape::LUKS2.image(Maker::Xtent, &scratch, 1 << 20);
    let server = Server::start(&container);
    // An option longer than anything sensible.
    let mut client = Raw::connect(&server.socket);
    client.greet();
    let mut option = b"IHAVEOPT".to_vec();
    option.extend(7u32.to_be_bytes());
    option.extend(u32::MAX.to_be_bytes());
    client.send(&option);
    assert!(client.is_closed());
    // HTTP.
    let mut client = Raw::connect(&server.socket);
    client.send(b"GET / HTTP/1.1\r\n\r\n");
    assert!(client.is_closed());
    // A request longer than the server allows is refused or ends the
    // connection, and takes no memory.
    let mut client = Raw::connect(&server.socket);
    client.greet();
    assert_eq!(client.go(), 1 << 20);
    client.request(command::READ, 0, u32::MAX);
    assert_ne!(client.reply(), 0);
    client.request(command::READ, u64::MAX, 512);
    assert_ne!(client.reply(), 0);
    client.request(command::WRITE_ZEROES, u64::MAX - 511, 512);
    assert_ne!(client.reply(), 0);
    client.request(0x7777, 0, 0);
    assert_ne!(client.reply(), 0);
    client.request(command::READ, 0, 512);
    assert_eq!(client.reply(), 0);
    client.receive(512);
    server.stop();
}

#[test]
fn a_killed_server_starts_again() {
    let scratch = Scratch::new();
    let container = Shape::LUKS2_4096.image(Maker::Xtent, &scratch, 4 << 20);
    let data = pattern(4 << 20, 64);
    let socket = scratch.join("socket");
    let uri = format!("nbd+unix:///?socket={}", socket.display());
    let start = || {
        let mut process = Server::command(&container, &socket, &[]).spawn();
        process.wait_for_line(|line| line.contains("nbd+unix"));
        process
    };
    let process = start();
    write_all(&uri, &data);
    let done = process.kill();
    assert_eq!(done.code(), None);
    // Its socket is still there, and in nobody's way.
    assert!(socket.exists());
    let process = start();
    assert_same(&read_all(&uri), &data, "after the kill");
    process.signal(Signal::TERM);
    assert_eq!(process.finish().code(), Some(0));
    assert!(!socket.exists(), "a socket without a server");
}

/// The signals that end a server, with a client in the middle of things.
#[test]
fn signals_end_it_after_a_flush() {
    let scratch = Scratch::new();
    for signal in [Signal::TERM, Signal::INT] {
        let folder = Scratch::new();
        let container = Shape::LUKS2.image(Maker::Xtent, &folder, 4 << 20);
        let data = pattern(1 << 20, 65);
        let server = Server::start(&container);
        let mut idle = Raw::connect(&server.socket);
        idle.greet();
        idle.go();
        let mut client = Raw::connect(&server.socket);
        client.greet();
        client.go();
        client.send(&request(command::WRITE, 0, 1 << 20));
        client.send(&data);
        assert_eq!(client.reply(), 0);
        let done = server.terminate(signal);
        assert_eq!(done.code(), Some(0), "{}", done.text());
        assert!(idle.is_closed() && client.is_closed());
        assert_same(&container.decrypt()[..1 << 20], &data, "acknowledged");
    }
    drop(scratch);
}
