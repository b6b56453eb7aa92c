//! Clients of the control socket that attack, or are killed.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use xtent_control::{Attach, Link, Listener, Reply, Request, Source, sample};
use xtent_tests::far::Far;
use xtent_tests::gateway::Gateway;
use xtent_tests::luks::{Container, Shape};
use xtent_tests::nbd::{nbdsh, write_all};
use xtent_tests::scratch::assert_same;
use xtent_tests::xtent::xtent;
use xtent_tests::{Cmd, Scratch, pattern};

use super::{SIZE, container, usize_of};

/// The request of an attach as ours is.
fn attach_request(container: &Container, name: &str) -> Attach {
    sample(name, container.image.to_str().unwrap(), SIZE)
}

/// What the server says to these messages; nothing if it just hangs up.
pub(super) fn said(
    gateway: &Gateway,
    request: &[u8],
    files: &[BorrowedFd<'_>],
    key: Option<&[u8]>,
) -> Option<Reply> {
    said_of_keys(gateway, request, files, key.as_slice())
}

/// The same of several keys.
pub(super) fn said_of_keys(
    gateway: &Gateway,
    request: &[u8],
    files: &[BorrowedFd<'_>],
    keys: &[&[u8]],
) -> Option<Reply> {
    let link = Link::connect(&gateway.control()).unwrap();
    link.set_patience(Duration::from_secs(300)).unwrap();
    let _ = link.send(request, files);
    for key in keys {
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
                has_header: false,
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
    // What the last one asked for may have been done, or may be being done. Then all of that is closed,
    // and the volume can be had.
    loop {
        let detached = gateway.detach("b").run();
        assert!(
            [Some(0), Some(4)].contains(&detached.code()),
            "{}",
            detached.text()
        );
        let attached = gateway.attach(&b).run();
        match attached.code() {
            Some(0) => break,
            code => assert_eq!(code, Some(5), "{}", attached.text()),
        }
    }
    gateway.detach("b.img").ok();
    let after = gateway.files();
    assert!(
        after <= before + 3,
        "{before} descriptors before, {after} after"
    );
    assert_eq!(gateway.exports(), ["a.img", "c.img"]);
    gateway.stop();
}

/// The header is read by the attach's own connection, the data by the server's.
#[test]
fn an_attached_disk_that_is_another_one_is_not_written_to() {
    let scratch = Scratch::new();
    let [a, b, c] = ["a.img", "b.img", "c.img"].map(|it| container(&scratch, it, Shape::LUKS2));
    let far = Far::qemu(&b.image, &["--format=raw", "--shared=8"]);
    let gateway = Gateway::start(&[&a], &["--allow-connect"]);
    let uuid = |of: &Container| {
        xtent()
            .arg("uuid")
            .arg(&of.image)
            .ok()
            .out()
            .trim()
            .to_owned()
    };
    let [of_b, of_c] = [&b, &c].map(uuid);
    let attach = |options: &[&str]| {
        let command = gateway.attach(&far.container(&b.key));
        command.args(["--export", "far"]).args(options)
    };
    attach(&["--reconnect", "300"]).ok();
    nbdsh(&gateway.uri("far"), "h.pwrite(b'x' * 4096, 0)\nh.flush()");
    // The server comes back with another disk.
    far.kill();
    let aside = scratch.join("aside");
    std::fs::rename(&b.image, &aside).unwrap();
    std::fs::copy(&c.image, &b.image).unwrap();
    far.start_again();
    nbdsh(
        &gateway.uri("far"),
        "try:\n h.pwrite(b'y' * 4096, 0)\n h.flush()\nexcept nbd.Error as e:\n \
         assert e.errno == 'EIO', e\nelse:\n assert False",
    );
    far.kill();
    assert_same(
        &std::fs::read(&b.image).unwrap(),
        &std::fs::read(&c.image).unwrap(),
        "the other disk",
    );
    gateway
        .detach("far")
        .fails(4)
        .says(&["another disk", &of_b, &of_c]);

    // It had another one already when it was connected to.
    far.start_again();
    let mut request = attach_request(&b, "far");
    request.files = Vec::new();
    request.uuid = Some(of_b.clone());
    request.source = Source::Export {
        uri: far.uri(),
        reconnect: 0,
        has_header: true,
    };
    let request = Request::Attach(Box::new(request)).to_bytes().unwrap();
    let reply = said(&gateway, &request, &[], Some(&[7; 64]));
    let Some(Reply::Failed { message, .. }) = reply else {
        panic!("{reply:?}");
    };
    assert!(message.contains("another disk"), "{message}");
    // By TLS it needs files, which its sandbox does not open.
    let mut request = attach_request(&b, "far");
    request.files = Vec::new();
    request.source = Source::Export {
        uri: far.secure_uri(scratch.path()),
        reconnect: 0,
        has_header: false,
    };
    let request = Request::Attach(Box::new(request)).to_bytes().unwrap();
    let Some(Reply::Failed { message, .. }) = said(&gateway, &request, &[], Some(&[7; 64])) else {
        panic!("it is not refused");
    };
    assert!(message.contains("in its sandbox"), "{message}");
    assert_eq!(gateway.exports(), [""]);
    gateway.stop();
}

/// A socket that another process has put where a server's would be gets no key.
#[test]
fn a_process_that_poses_as_a_server_gets_no_key() {
    let scratch = Scratch::new();
    let [a, b] = ["a.img", "b.img"].map(|name| container(&scratch, name, Shape::LUKS2));
    let gateway = Gateway::start(&[&a], &[]);
    let other = Cmd::new("/bin/sleep").arg("600").spawn();
    let path = gateway
        .control()
        .with_file_name(format!("{}.sock", other.id()));
    let listener = Listener::bind(&path).unwrap();
    let attach = xtent()
        .args(["attach", "--server", &other.id().to_string()])
        .arg("--key-file")
        .arg(&b.key)
        .arg(&b.image)
        .run();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(attach.code(), Some(2), "{}", attach.text());
    attach.says(&["has the control socket of process"]);
    drop(listener);
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

/// One of another user is told nothing, whatever its place and process.
#[test]
fn another_users_process_gets_no_key() {
    assert!(
        rustix::process::geteuid().is_root(),
        "it becomes another user"
    );
    let scratch = Scratch::new();
    let a = container(&scratch, "a.img", Shape::LUKS2);
    let gateway = Gateway::start(&[&a], &[]);
    let folder = gateway.control().parent().unwrap().to_owned();
    // Whose it is counts when it begins to listen. It prints what comes.
    let program = "
import os, socket, sys
path = f'{sys.argv[1]}/{os.getpid()}.sock'
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.bind(path)
os.setuid(65534)
s.listen(9)
print('ready', flush=True)
while True:
    c, _ = s.accept()
    print('heard', c.recv(65536), flush=True)
";
    let mut other = Cmd::new("/usr/bin/python3")
        .args(["-c", program])
        .arg(&folder)
        .spawn();
    other.wait_for_line(|line| line == "ready");
    let id = other.id().to_string();
    let path = folder.join(format!("{id}.sock"));
    let b = container(&scratch, "b.img", Shape::LUKS2);
    let key = b.key.to_str().unwrap();
    let image = b.image.to_str().unwrap();
    let commands: [&[&str]; 4] = [
        &["attach", "--server", &id, "--key-file", key, image],
        &["detach", "--server", &id, "x"],
        &["resize", "--server", &id, "x"],
        &["takeover", "--server", &id, "-q"],
    ];
    for command in commands {
        let refused = xtent().args(command).fails(2);
        refused.says(&["of another user (UID 65534)", "it is told nothing"]);
    }
    // Root may mean it.
    let socket = path.to_str().unwrap().to_owned();
    let named = xtent().args(["detach", "--server", &socket, "x"]).spawn();
    let silent = std::cell::Cell::new(0);
    let line = other.wait_for_line(|line| {
        silent.set(silent.get() + usize::from(line == "heard b''"));
        line.starts_with("heard") && line != "heard b''"
    });
    assert_eq!(line, r#"heard b'"status"'"#);
    assert_eq!(silent.get(), commands.len(), "each hangs up without a word");
    other.kill();
    named.finish();
    std::fs::remove_file(&path).unwrap();
    gateway.stop();
}

#[test]
fn a_standby_says_that_it_takes_no_volume() {
    let scratch = Scratch::new();
    let [a, b] = ["a.img", "b.img"].map(|name| container(&scratch, name, Shape::LUKS2));
    let gateway = Gateway::start(&[&a], &[]);
    let socket = format!("unix:{}", scratch.join("standby.sock").display());
    let standby = xtent()
        .args(["serve", "--standby", "--nbd", &socket, "--key-file"])
        .args([&a.key, &a.image])
        .spawn();
    let control = gateway
        .control()
        .with_file_name(format!("{}.sock", standby.id()));
    while Link::connect(&control).is_err() {
        std::thread::sleep(Duration::from_millis(10));
    }
    xtent()
        .args([
            "attach",
            "--server",
            &standby.id().to_string(),
            "--key-file",
        ])
        .args([&b.key, &b.image])
        .fails(5)
        .says(&["this server stands by, and has no volume yet"]);
    standby.kill();
    gateway.stop();
}
