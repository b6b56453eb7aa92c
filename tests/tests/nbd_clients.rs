//! The NBD server against the clients that people use.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::time::Instant;

use xtent_tests::luks::{KEY, Maker, Shape};
use xtent_tests::nbd::{nbdsh, read_all, write_all};
use xtent_tests::process::Background;
use xtent_tests::scratch::assert_same;
use xtent_tests::xtent::Server;
use xtent_tests::{Cmd, PATIENCE, Scratch, pattern};

const SHAPES: [Shape; 3] = [Shape::LUKS1, Shape::LUKS2, Shape::LUKS2_4096];

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap()
}

/// Random writes and reads of mixed sizes, every block checked, from several
/// processes (and so connections) at once.
#[test]
fn fio_verifies_what_it_wrote() {
    let scratch = Scratch::new();
    for (shape, sizes, align) in [
        (Shape::LUKS1, "512-64k", "512"),
        (Shape::LUKS2, "512-256k", "512"),
        (Shape::LUKS2_4096, "4k-1m", "4k"),
    ] {
        let name = format!("{shape}_{align}");
        let folder = scratch.folder(&name);
        let container = {
            let image = folder.join("image");
            std::fs::File::create_new(&image)
                .unwrap()
                .set_len(shape.data_offset() + (32 << 20))
                .unwrap();
            let key = folder.join("key");
            std::fs::write(&key, KEY).unwrap();
            shape.format(Maker::Xtent, &image, &key);
            xtent_tests::luks::Container { image, key }
        };
        let server = Server::start(&container);
        // Four jobs on regions of their own, so that each can verify its writes.
        let done = Cmd::peer("fio")
            .args(["--name=verify", "--ioengine=nbd", "--rw=randrw"])
            .args(["--direct=0", "--group_reporting", "--output-format=terse"])
            .args([
                "--verify=crc32c",
                "--verify_fatal=1",
                "--do_verify=1",
                "--verify_state_save=0",
            ])
            .args([
                "--iodepth=16",
                "--numjobs=4",
                "--size=8m",
                "--offset_increment=8m",
            ])
            .args(["--fsync=64", "--thread"])
            .arg(format!("--bsrange={sizes}"))
            .arg(format!("--blockalign={align}"))
            .arg(format!("--uri={}", server.uri))
            .ok();
        assert!(!done.stderr.contains("verify"), "{}", done.text());
        server.stop();
    }
}

#[test]
fn nbdcopy_copies_both_ways() {
    let scratch = Scratch::new();
    for shape in SHAPES {
        let bytes = (8 << 20) + 4096;
        let container = shape.image(Maker::Cryptsetup, &scratch, bytes);
        let data = pattern(size(bytes), 21);
        let server = Server::start(&container);
        write_all(&server.uri, &data);
        assert_same(&read_all(&server.uri), &data, "same connection");
        server.stop();
        assert_same(&container.decrypt(), &data, &shape.to_string());
    }
}

#[test]
fn qemu_img_agrees() {
    let scratch = Scratch::new();
    for shape in SHAPES {
        let container = shape.image(Maker::Xtent, &scratch, 8 << 20);
        let data = pattern(8 << 20, 22);
        let raw = scratch.file(&format!("{shape}.raw"), &data);
        let server = Server::start(&container);
        let uri = &server.uri;
        let info = Cmd::peer("qemu-img")
            .args(["info", "--output=json", "--image-opts"])
            .arg(format!(
                "driver=raw,file.driver=nbd,file.server.type=unix,file.server.path={}",
                server.socket.display()
            ))
            .ok()
            .json();
        assert_eq!(info["virtual-size"], 8 << 20);
        Cmd::peer("qemu-img")
            .args(["convert", "-n", "-f", "raw", "-O", "raw"])
            .arg(&raw)
            .arg(uri)
            .ok();
        Cmd::peer("qemu-img")
            .args(["compare", "-f", "raw", "-F", "raw"])
            .arg(&raw)
            .arg(uri)
            .ok();
        let back = scratch.join(&format!("{shape}.back"));
        Cmd::peer("qemu-img")
            .args(["convert", "-f", "raw", "-O", "raw"])
            .arg(uri)
            .arg(&back)
            .ok();
        assert_same(&std::fs::read(back).unwrap(), &data, "converted back");
        // A hole in the ciphertext is noise, so nothing may be called zero.
        let map = Cmd::peer("qemu-img")
            .args(["map", "--output=json", "-f", "raw"])
            .arg(uri)
            .ok()
            .json();
        for extent in map.as_array().unwrap() {
            assert_eq!(extent["zero"], false, "{map}");
        }
        server.stop();
    }
}

#[test]
fn the_server_describes_itself() {
    let scratch = Scratch::new();
    for shape in SHAPES {
        let container = shape.image(Maker::Xtent, &scratch, 1 << 20);
        let server = Server::start(&container);
        let info = Cmd::peer("nbdinfo")
            .args(["--json"])
            .arg(&server.uri)
            .ok()
            .json();
        assert_eq!(info["protocol"], "newstyle-fixed");
        assert_eq!(info["structured"], true);
        let export = &info["exports"][0];
        assert_eq!(export["export-size"], 1 << 20);
        for feature in [
            "can_multi_conn",
            "can_flush",
            "can_fua",
            "can_trim",
            "can_zero",
            "can_cache",
        ] {
            assert_eq!(export[feature], true, "{feature}: {info}");
        }
        assert_eq!(export["is_read_only"], false);
        assert_eq!(export["contexts"], serde_json::json!(["base:allocation"]));
        assert_eq!(export["block_size_minimum"], shape.sector, "{info}");
        let list = Cmd::peer("nbdinfo")
            .arg("--list")
            .arg(&server.uri)
            .ok()
            .out();
        assert!(list.contains("export="), "{list}");
        server.stop();

        let server = Server::start_with(&container, &["--read-only", "--export", "vault"]);
        let uri = server.uri.clone();
        assert!(uri.contains("vault"), "{uri}");
        let info = Cmd::peer("nbdinfo").args(["--json", &uri]).ok().json();
        assert_eq!(info["exports"][0]["export-name"], "vault");
        assert_eq!(info["exports"][0]["is_read_only"], true);
        server.stop();
    }
}

/// Every command through libnbd, aligned and not, structured replies and
/// simple ones.
#[test]
fn commands_do_what_they_say() {
    let scratch = Scratch::new();
    for shape in SHAPES {
        let container = shape.image(Maker::Xtent, &scratch, 4 << 20);
        let server = Server::start(&container);
        nbdsh(
            &server.uri,
            r#"
h.set_strict_mode(0)
assert h.get_structured_replies_negotiated()
size = h.get_size()
assert size == 4 << 20
data = bytes(range(256)) * 4096
h.pwrite(data, 0)
assert h.pread(len(data), 0) == data
# Odd ranges, at every offset within a sector that is special.
model = bytearray(data)
for offset, length in [(1, 1), (511, 2), (513, 4095), (4095, 2), (4097, 8191), (65535, 131074)]:
    patch = bytes([(offset * 7 + i) & 255 for i in range(length)])
    h.pwrite(patch, offset)
    model[offset:offset + length] = patch
    assert h.pread(length, offset) == patch
    assert h.pread(len(model), 0) == model
# The very end.
h.pwrite(b"end", size - 3)
assert h.pread(4, size - 4)[1:] == b"end"
# Zeroes are zeroes, edges stay.
h.zero(100000, 33333)
model[33333:133333] = bytes(100000)
assert h.pread(len(model), 0) == model
# FUA and flush.
h.pwrite(b"durable", 12345, nbd.CMD_FLAG_FUA)
model[12345:12352] = b"durable"
h.flush()
assert h.pread(len(model), 0) == model
# A discard is accepted and changes nothing by default.
h.trim(1 << 20, 0)
assert h.pread(len(model), 0) == model
h.cache(1 << 20, 0)
# Many requests in flight at once, answered in any order.
buffers = []
cookies = []
for i in range(200):
    buffer = nbd.Buffer(8192)
    buffers.append(buffer)
    cookies.append(h.aio_pread(buffer, i * 4999))
while h.aio_in_flight() > 0:
    h.poll(-1)
for i, buffer in enumerate(buffers):
    assert h.aio_command_completed(cookies[i])
    wanted = model[i * 4999:i * 4999 + 8192]
    got = buffer.to_bytearray()
    assert got[:len(wanted)] == wanted, i
"#,
        );
        // Simple replies serve the same bytes.
        Cmd::peer("nbdsh")
            .args(["-c", "h.set_request_structured_replies(False)"])
            .args(["-c", &format!("h.connect_uri('{}')", server.uri)])
            .args([
                "-c",
                "assert not h.get_structured_replies_negotiated()",
                "-c",
                "h.set_strict_mode(0)",
                "-c",
                "assert h.pread(3, h.get_size() - 3) == b'end'",
            ])
            .ok();
        server.stop();
    }
}

/// Block status covers the range and never says "zero"; two contexts and
/// unknown ones do no harm.
#[test]
fn block_status_is_honest() {
    let scratch = Scratch::new();
    let container = Shape::LUKS2.image(Maker::Xtent, &scratch, 4 << 20);
    let server = Server::start(&container);
    Cmd::peer("nbdsh")
        .args(["-c", "h.add_meta_context(nbd.CONTEXT_BASE_ALLOCATION)"])
        .args(["-c", "h.add_meta_context('x-nobody:knows')"])
        .args(["-c", &format!("h.connect_uri('{}')", server.uri)])
        .args([
            "-c",
            r#"
assert h.can_meta_context(nbd.CONTEXT_BASE_ALLOCATION)
assert not h.can_meta_context('x-nobody:knows')
for offset, length in [(0, 4 << 20), (512, 1024), (1 << 20, 1 << 20)]:
    extents = []
    def gather(context, at, entries, error):
        assert context == nbd.CONTEXT_BASE_ALLOCATION
        assert at == offset
        extents.extend(entries)
    h.block_status(length, offset, gather)
    assert sum(extents[0::2]) >= 1
    assert all(flags & nbd.STATE_ZERO == 0 for flags in extents[1::2])
"#,
        ])
        .ok();
    server.stop();
}

/// Requests that must fail do so alone: the right error, and the connection
/// lives on.
#[test]
fn errors_are_the_protocol_s() {
    let scratch = Scratch::new();
    let container = Shape::LUKS2.image(Maker::Xtent, &scratch, 1 << 20);
    let errors = r#"
import errno
size = h.get_size()
def fails(wanted, call, *arguments):
    try:
        call(*arguments)
    except nbd.Error as error:
        assert error.errno in wanted, (error.errno, wanted)
    else:
        assert False, arguments
fails(["EINVAL"], h.pread, 512, size)
fails(["EINVAL"], h.pread, 1024, size - 512)
fails(["EINVAL"], h.pread, 512, (1 << 64) - 512 - (1 << 63) if False else (1 << 62))
fails(WRITE, h.pwrite, b"x" * 1024, size - 512)
fails(WRITE, h.pwrite, b"x" * 512, 1 << 62)
fails(WRITE, h.zero, 1024, size - 512)
fails(TRIM, h.trim, 1024, size - 512)
assert len(h.pread(512, 0)) == 512
h.shutdown()
"#;
    let server = Server::start(&container);
    nbdsh(
        &server.uri,
        &format!("WRITE = ['ENOSPC', 'EINVAL']\nTRIM = ['EINVAL', 'ENOSPC']{errors}"),
    );
    server.stop();
    let server = Server::start_with(&container, &["--read-only"]);
    nbdsh(
        &server.uri,
        &format!("WRITE = TRIM = ['EPERM', 'EROFS', 'EINVAL']{errors}"),
    );
    nbdsh(
        &server.uri,
        r#"
for call, arguments in [(h.pwrite, (b"x" * 512, 0)), (h.zero, (512, 0)), (h.trim, (512, 0))]:
    try:
        call(*arguments)
    except nbd.Error as error:
        assert error.errno in ["EPERM", "EROFS"], error.errno
    else:
        assert False, "a write to a read-only export"
"#,
    );
    server.stop();
}

/// The three discard policies differ as documented.
#[test]
fn discard_follows_its_policy() {
    let scratch = Scratch::new();
    let container = Shape::LUKS2.image(Maker::Xtent, &scratch, 4 << 20);
    let data = pattern(4 << 20, 23);
    let allocated = |path: &Path| {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(path).unwrap().blocks()
    };
    for policy in ["never", "zero", "allow"] {
        let server = Server::start_with(&container, &["--discard", policy]);
        write_all(&server.uri, &data);
        let before = allocated(&container.image);
        nbdsh(&server.uri, "h.trim(2 << 20, 1 << 20)\nh.flush()");
        let after = read_all(&server.uri);
        assert_same(&after[..1 << 20], &data[..1 << 20], policy);
        assert_same(&after[3 << 20..], &data[3 << 20..], policy);
        let middle = &after[1 << 20..3 << 20];
        match policy {
            "never" => assert_same(middle, &data[1 << 20..3 << 20], policy),
            "zero" => assert_same(middle, &vec![0; 2 << 20], policy),
            _ => assert!(
                allocated(&container.image) + 4000 <= before,
                "nothing was deallocated"
            ),
        }
        server.stop();
    }
}

/// Data written over one connection and flushed over another is visible to
/// both: what "multi-conn" promises.
#[test]
fn connections_see_each_other() {
    let scratch = Scratch::new();
    let container = Shape::LUKS2_4096.image(Maker::Xtent, &scratch, 1 << 20);
    let server = Server::start(&container);
    nbdsh(
        &server.uri,
        &format!(
            r#"
other = nbd.NBD()
other.set_strict_mode(0)
other.connect_uri("{}")
for i in range(100):
    h.pwrite(bytes([i]) * 700, i * 700)
    other.flush()
    assert other.pread(700, i * 700) == bytes([i]) * 700
    other.pwrite(bytes([255 - i]) * 700, i * 700)
    assert h.pread(700, i * 700) == bytes([255 - i]) * 700
"#,
            server.uri
        ),
    );
    server.stop();
}

#[test]
fn tcp_serves_on_loopback_only_unless_told() {
    let scratch = Scratch::new();
    let container = Shape::LUKS2.image(Maker::Xtent, &scratch, 1 << 20);
    let mut server = xtent_tests::xtent::xtent()
        .args(["serve", "--nbd", "tcp:127.0.0.1:0", "--key-file"])
        .args([&container.key, &container.image])
        .spawn();
    let line = server.wait_for_line(|line| line.contains("nbd://"));
    let at = line.find("nbd://").unwrap();
    let uri = line[at..].split_whitespace().next().unwrap();
    let info = Cmd::peer("nbdinfo").args(["--size", uri]).ok().out();
    assert_eq!(info.trim(), "1048576");
    server.signal(rustix::process::Signal::TERM);
    assert_eq!(server.finish().code(), Some(0));
    xtent_tests::xtent::xtent()
        .args(["serve", "--nbd", "tcp:0.0.0.0:0", "--key-file"])
        .args([&container.key, &container.image])
        .fails(1)
        .says(&["--allow-remote"]);
}

/// LUKS1 images, three implementations, each reading what each other wrote.
#[test]
fn luks1_images_are_the_same_to_qemu_and_nbdkit() {
    let scratch = Scratch::new();
    // nbdkit takes the first line of a file as the passphrase.
    let container = Shape::LUKS1.image_with_key(Maker::Xtent, &scratch, 4 << 20, b"one line");
    let mut expected = pattern(4 << 20, 24);
    container.encrypt(&expected);
    for (round, peer) in [qemu_nbd, nbdkit].into_iter().enumerate() {
        let folder = Scratch::new();
        let socket = folder.join("peer.sock");
        let server = peer(&container.image, &container.key, &socket);
        let uri = format!("nbd+unix:///?socket={}", socket.display());
        assert_same(&read_all(&uri), &expected, "a peer reads what we wrote");
        expected = pattern(4 << 20, 25 + round as u64);
        write_all(&uri, &expected);
        server.signal(rustix::process::Signal::TERM);
        server.finish();
        assert_same(&container.decrypt(), &expected, "we read what a peer wrote");
    }
}

/// An image that qemu-img made, with its own choice of everything.
#[test]
fn an_image_made_by_qemu_is_read() {
    let scratch = Scratch::new();
    let data = pattern(2 << 20, 27);
    let raw = scratch.file("raw", &data);
    let key = scratch.file("key", b"made by qemu");
    let image = scratch.join("qemu.luks");
    // It measures its key derivation, and gives up by chance where that ends
    // within a tick of the thread's clock.
    let made = (0..50).any(|_| {
        let done = Cmd::peer("qemu-img")
            .args(["convert", "-f", "raw", "-O", "luks", "--object"])
            .arg(format!("secret,id=s,file={}", key.display()))
            .args(["-o", "key-secret=s,iter-time=10"])
            .args([&raw, &image])
            .run();
        assert!(
            done.status.success() || done.stderr.contains("accurate CPU usage"),
            "{}",
            done.text()
        );
        done.status.success()
    });
    assert!(made, "qemu-img cannot measure here");
    let container = xtent_tests::luks::Container { image, key };
    assert_same(&container.decrypt(), &data, "an image made by qemu-img");
}

fn qemu_nbd(image: &Path, key: &Path, socket: &Path) -> Background {
    let process = Cmd::peer("qemu-nbd")
        .args(["--persistent", "--shared=8", "--socket"])
        .arg(socket)
        .arg("--object")
        .arg(format!("secret,id=s,file={}", key.display()))
        .arg("--image-opts")
        .arg(format!(
            "driver=luks,key-secret=s,file.driver=file,file.filename={}",
            image.display()
        ))
        .spawn();
    wait_for_socket(process, socket)
}

fn nbdkit(image: &Path, key: &Path, socket: &Path) -> Background {
    let process = Cmd::peer("nbdkit")
        .args(["--foreground", "--unix"])
        .arg(socket)
        .args(["--filter=luks", "file"])
        .arg(image)
        .arg(format!("passphrase=+{}", key.display()))
        .spawn();
    wait_for_socket(process, socket)
}

/// These say nothing when they are ready: the socket does.
fn wait_for_socket(mut process: Background, socket: &Path) -> Background {
    let end = Instant::now() + PATIENCE;
    while std::os::unix::net::UnixStream::connect(socket).is_err() {
        assert!(process.is_running(), "the peer ended at once");
        assert!(Instant::now() < end, "the peer does not listen");
        std::thread::yield_now();
    }
    process
}
