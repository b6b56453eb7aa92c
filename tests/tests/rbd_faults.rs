//! Volumes in a Ceph cluster that somebody takes over, and a cluster that fails.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::process::Signal;
use xtent_rbd::{Image, Name};
use xtent_store::{Access, ErrorKind, Store};
use xtent_tests::ceph::{Bed, assert_confined, cluster};
use xtent_tests::gateway::Gateway;
use xtent_tests::luks::{Container, KEY, Maker, Shape, add_key};
use xtent_tests::process::{Background, PATIENCE};
use xtent_tests::scratch::assert_same;
use xtent_tests::xtent::{Server, xtent};
use xtent_tests::{Cmd, Scratch};

/// Writes until it is told that it has lost the volume; the server parts from it then.
const WRITES_UNTIL_FENCED: &str = "
print('writes', flush=True)
at, error = 0, None
while error is None:
    try:
        h.pwrite(bytes([at % 251]) * 65536, at % 128 * 65536)
    except nbd.Error as e:
        error = e.errno
    if at == 20:
        print('far', flush=True)
    at += 1
assert error in ('ESHUTDOWN', 'ENOTCONN'), error
try:
    h.flush()
except nbd.Error as e:
    # EINVAL is libnbd's own: it knows that nobody is there.
    assert e.errno in ('ESHUTDOWN', 'ENOTCONN', 'EINVAL'), e
else:
    assert False
";

#[test]
fn a_server_whose_image_is_taken_over_writes_nothing_any_more() {
    let Some(bed) = cluster("a_server_whose_image_is_taken_over_writes_nothing_any_more") else {
        return;
    };
    let _share = bed.share();
    let scratch = Scratch::new();
    let key = scratch.file("key", KEY);
    let shape = Shape::LUKS2_4096;
    let size = shape.data_offset() + (8 << 20);
    let container = bed.container("taken", size, &key);
    shape.format(Maker::Xtent, &container.image, &key);
    let server = Server::start(&container);
    let mut client = Cmd::peer("nbdsh")
        .args(["-u", &server.uri, "-c", WRITES_UNTIL_FENCED])
        .spawn();
    client.wait_for_line(|line| line == "far");
    let name: Name = container.image.to_str().unwrap().parse().unwrap();
    let busy = Image::open(&name, Access::ReadWrite).unwrap_err();
    assert_eq!(busy.kind, ErrorKind::Busy, "{busy}");
    let image = Image::take_over(&name).unwrap();
    let contents = |image: &Image| {
        let mut bytes = vec![0; usize::try_from(size).unwrap()];
        image.read_at(&mut bytes, 0).unwrap();
        bytes
    };
    let then = contents(&image);
    let done = client.finish();
    assert_eq!(done.code(), Some(0), "{}", done.text());
    assert_same(
        &contents(&image),
        &then,
        "what the first server wrote later",
    );
    image.write_at_durably(&[7; 4096], size - 4096).unwrap();
    // It ends by itself, and takes nothing back when the image is free again.
    let ended = server.wait();
    drop(image);
    assert_eq!(ended.code(), Some(5), "{}", ended.text());
    ended.says(&["lock", "somebody else has taken the volume over"]);
    let image = Image::open(&name, Access::ReadWrite).unwrap();
    // Of a client that is not on this machine there is an address.
    let owner = bed.rbd(&["lock", "ls", "--format", "json", "taken"]).ok();
    let owner = owner.json()[0]["address"].as_str().unwrap().to_owned();
    add_key(2, &container.image, &key, &key).fails(5).says(&[
        "open for writing",
        &owner,
        "let go 30 seconds later",
    ]);
    let mut last = then;
    let end = last.len() - 4096;
    last[end..].fill(7);
    assert_same(&contents(&image), &last, "nobody else has written");
}

/// What an image, its pool or the client says of options goes over what this program asks for.
#[test]
fn an_image_whose_old_owner_could_write_on_is_not_written_to() {
    let Some(bed) = cluster("an_image_whose_old_owner_could_write_on_is_not_written_to") else {
        return;
    };
    let _share = bed.share();
    let name = bed.image("unfenced", 8 << 20);
    let name: Name = name.to_str().unwrap().parse().unwrap();
    for (option, value) in [
        ("rbd_blocklist_on_break_lock", "false"),
        ("rbd_blocklist_expire_seconds", "5"),
    ] {
        bed.rbd(&["config", "image", "set", "unfenced", option, value])
            .ok();
        for opened in [
            Image::open(&name, Access::ReadWrite),
            Image::take_over(&name),
        ] {
            let error = opened.unwrap_err();
            assert_eq!(error.kind, ErrorKind::Unsupported, "{error}");
            let text = xtent_store::chain(&error).to_string();
            let mend = format!("rbd config image remove rbd/unfenced {option}");
            assert!(text.contains(&mend), "{text}");
        }
        drop(Image::open(&name, Access::ReadOnly).unwrap());
        bed.rbd(&["config", "image", "remove", "unfenced", option])
            .ok();
        drop(Image::open(&name, Access::ReadWrite).unwrap());
    }
}

/// A client is shut out for an hour only, and one that had nothing to do in that time would not know.
#[test]
#[ignore = "waits for ten seconds and more: make test-ceph"]
fn an_idle_server_notices_that_its_image_was_taken_over() {
    let Some(bed) = cluster("an_idle_server_notices_that_its_image_was_taken_over") else {
        return;
    };
    let _share = bed.share();
    let scratch = Scratch::new();
    let key = scratch.file("key", KEY);
    let shape = Shape::LUKS2_4096;
    let container = bed.container("idle", shape.data_offset() + (1 << 20), &key);
    shape.format(Maker::Xtent, &container.image, &key);
    let server = Server::start(&container);
    let name: Name = container.image.to_str().unwrap().parse().unwrap();
    drop(Image::take_over(&name).unwrap());
    let done = server.wait();
    assert_eq!(done.code(), Some(5), "{}", done.text());
    done.says(&["somebody else has taken the volume over"]);
}

/// Writes and reads pieces, several at a time, and knows what is where: a number for each round.
/// Ends after the round in which the file `sys.argv[1]` is there.
const VERIFYING_LOAD: &str = "
import os
pieces, piece, deep = 64, 65536, 16
content = [bytes(piece)] * pieces
h.pwrite(bytes(pieces * piece), 0)
number = 0
while not os.path.exists(sys.argv[1]):
    number += 1
    for first in range(0, pieces, deep):
        under_way = []
        for at in range(first, first + deep):
            if (at + number) % 3 == 0:
                buffer = nbd.Buffer(piece)
                under_way.append((h.aio_pread(buffer, at * piece), at, buffer))
            else:
                content[at] = number.to_bytes(4, 'big') * (piece // 4)
                buffer = nbd.Buffer.from_bytearray(bytearray(content[at]))
                under_way.append((h.aio_pwrite(buffer, at * piece), at, None))
        for cookie, at, buffer in under_way:
            while not h.aio_command_completed(cookie):
                h.poll(-1)
            assert buffer is None or bytes(buffer.to_bytearray()) == content[at], (number, at)
    if number % 4 == 0:
        h.flush()
    print('round', number, flush=True)
h.flush()
for at in range(pieces):
    assert h.pread(piece, at * piece) == content[at], at
open(sys.argv[2], 'wb').write(b''.join(content))
";

struct Load {
    client: Background,
    stop: PathBuf,
    content: PathBuf,
    rounds: u64,
}

impl Load {
    fn start(uri: &str, scratch: &Scratch) -> Self {
        let (stop, content) = (scratch.join("stop"), scratch.join("content"));
        let arguments = format!("import sys\nsys.argv = ['', {stop:?}, {content:?}]\n");
        let client = Cmd::peer("nbdsh")
            .args(["-u", uri, "-c"])
            .arg(arguments + VERIFYING_LOAD)
            .spawn();
        Self {
            client,
            stop,
            content,
            rounds: 0,
        }
    }

    /// Waits for some rounds more.
    fn goes_on(&mut self) {
        for _ in 0..3 {
            let wanted = format!("round {}", self.rounds + 1);
            self.client.wait_for_line(|line| line == wanted);
            self.rounds += 1;
        }
    }

    /// Ends it; gives what it has written.
    fn end(self) -> Vec<u8> {
        std::fs::write(&self.stop, "").unwrap();
        let done = self.client.finish();
        assert_eq!(done.code(), Some(0), "{}", done.text());
        std::fs::read(self.content).unwrap()
    }
}

#[test]
#[ignore = "kills and starts daemons, and fills the cluster: make test-ceph"]
fn requests_wait_for_what_comes_back_and_no_byte_is_wrong() {
    let Some(bed) = cluster("requests_wait_for_what_comes_back_and_no_byte_is_wrong") else {
        return;
    };
    let _alone = bed.alone();
    let scratch = Scratch::new();
    let key = scratch.file("key", KEY);
    let shape = Shape::LUKS2_4096;
    let container = bed.container("faults", shape.data_offset() + (8 << 20), &key);
    shape.format(Maker::Xtent, &container.image, &key);
    let server = Server::start(&container);
    assert_confined(server.id());
    let mut load = Load::start(&server.uri, &scratch);
    load.goes_on();
    // The disks die in the middle, with what they had acknowledged on them.
    bed.kill("osd.0", "KILL");
    bed.revive("osd.0");
    load.goes_on();
    bed.kill("mon.a", "KILL");
    load.goes_on();
    bed.revive("mon.a");
    load.goes_on();
    bed.rbd(&["snap", "create", "--no-progress", "faults@under-load"])
        .ok();
    load.goes_on();
    // A full cluster lets writes wait until there is room.
    fill(bed);
    empty(bed);
    load.goes_on();
    let written = load.end();
    server.stop();
    let data = container.decrypt();
    assert_same(&data[..written.len()], &written, "all that was written");
    let snapshot = Container {
        image: bed.name("faults@under-load"),
        key,
    };
    assert_eq!(snapshot.decrypt().len(), data.len());
}

fn set_ratios(bed: &Bed, ratios: [(&str, &str); 3]) {
    for (what, ratio) in ratios {
        bed.ceph(&["osd", &format!("set-{what}-ratio"), ratio]).ok();
    }
}

/// Has the cluster be full, whatever is in it.
fn fill(bed: &Bed) {
    let ratios = [
        ("nearfull", "0.00001"),
        ("backfillfull", "0.00002"),
        ("full", "0.00003"),
    ];
    set_ratios(bed, ratios);
    let health = || bed.ceph(&["health"]).ok().out();
    while !health().contains("1 pool(s) full") {}
}

/// Undoes [`fill`].
fn empty(bed: &Bed) {
    let ratios = [
        ("full", "0.95"),
        ("backfillfull", "0.9"),
        ("nearfull", "0.85"),
    ];
    set_ratios(bed, ratios);
    let health = || bed.ceph(&["health"]).ok().out();
    while health().contains("full") {}
}

/// Has 32 requests of every kind under way until one fails, and then waits for the end of all.
const DEEP_LOAD: &str = "
piece, deep = 65536, 32
data = nbd.Buffer.from_bytearray(bytearray(b'lost' * (piece // 4)))
under_way, errors, count = set(), [], 0
def begin():
    global count
    count += 1
    at = count % 64 * piece
    match count % 8:
        case 0: return h.aio_flush()
        case 1: return h.aio_zero(16 * piece, at // (16 * piece) * 16 * piece)
        case 2: return h.aio_pwrite(data, at, flags=nbd.CMD_FLAG_FUA)
        case 3 | 4: return h.aio_pread(nbd.Buffer(piece), at)
        case _: return h.aio_pwrite(data, at)
while under_way or not errors:
    try:
        while len(under_way) < deep and not errors:
            under_way.add(begin())
        h.poll(-1)
    except nbd.Error as e:
        errors.append(e.errno)
    for cookie in list(under_way):
        try:
            if not h.aio_command_completed(cookie):
                continue
        except nbd.Error as e:
            errors.append(e.errno)
        under_way.remove(cookie)
    if count == 200:
        print('far', flush=True)
print('errors', sorted(set(map(str, errors))), flush=True)
assert errors[0] in ('ESHUTDOWN', 'ENOTCONN'), errors
";

/// Returns when it is in full swing.
fn deep_load(uri: &str) -> Background {
    let mut client = Cmd::peer("nbdsh")
        .args(["-u", uri, "-c", DEEP_LOAD])
        .spawn();
    client.wait_for_line(|line| line == "far");
    client
}

/// An image of `size` bytes of plaintext that was formatted.
fn image(bed: &Bed, scratch: &Scratch, name: &str, size: u64) -> Container {
    let key = scratch.file("key", KEY);
    let shape = Shape::LUKS2_4096;
    let container = bed.container(name, shape.data_offset() + size, &key);
    shape.format(Maker::Xtent, &container.image, &key);
    container
}

/// An image and a file, served as `lost` and `kept`.
struct Two {
    gateway: Gateway,
    lost: Container,
    kept: Container,
}

impl Two {
    fn start(bed: &Bed, scratch: &Scratch, image: &str) -> Self {
        let lost = self::image(bed, scratch, image, 8 << 20);
        let kept = Shape::LUKS2_4096.image(Maker::Xtent, scratch, 8 << 20);
        let volume = |name: &str, container: &Container| {
            let (device, key) = (&container.image, &container.key);
            format!("[volume.{name}]\ndevice = {device:?}\nkey-file = {key:?}\n")
        };
        let config = volume("lost", &lost) + &volume("kept", &kept);
        let config = scratch.file("gateway.toml", config.as_bytes());
        let serve = xtent().args(["serve", "--config"]).arg(config);
        let gateway = Gateway::start_by(serve, [] as [&Path; 0]);
        Self {
            gateway,
            lost,
            kept,
        }
    }

    fn load_of_lost(&self) -> Background {
        deep_load(&self.gateway.uri("lost"))
    }

    /// The clients of the lost volume have had their answers, it is no volume of the server any more, and
    /// whoever has the other one has noticed nothing.
    fn end(self, lost: Vec<Background>, mut load: Load) {
        for client in lost {
            let done = client.finish();
            assert_eq!(done.code(), Some(0), "{}", done.text());
        }
        load.goes_on();
        let start = Instant::now();
        while self.gateway.exports() != ["kept"] || self.gateway.status().len() != 1 {
            assert!(start.elapsed() < PATIENCE, "{:?}", self.gateway.status());
        }
        assert_eq!(self.gateway.status()[0]["export"], "kept");
        load.goes_on();
        let written = load.end();
        let done = self.gateway.terminate(Signal::TERM);
        assert_eq!(done.code(), Some(5), "{}", done.text());
        done.assert_no_crash();
        done.says(&["lost", "taken over by another client"]);
        let data = self.kept.decrypt();
        assert_same(&data[..written.len()], &written, "the volume that was kept");
    }
}

#[test]
fn a_volume_that_is_lost_ends_for_its_clients_and_for_nobody_else() {
    let Some(bed) = cluster("a_volume_that_is_lost_ends_for_its_clients_and_for_nobody_else")
    else {
        return;
    };
    let _share = bed.share();
    let scratch = Scratch::new();
    let two = Two::start(bed, &scratch, "lost");
    let mut load = Load::start(&two.gateway.uri("kept"), &scratch);
    let clients = vec![two.load_of_lost(), two.load_of_lost()];
    load.goes_on();
    let name: Name = two.lost.image.to_str().unwrap().parse().unwrap();
    drop(Image::take_over(&name).unwrap());
    two.end(clients, load);
}

/// Of a full cluster librbd never ends the writes, lost or not.
#[test]
fn nobody_waits_for_what_the_library_never_ends() {
    let Some(bed) = cluster("nobody_waits_for_what_the_library_never_ends") else {
        return;
    };
    let _alone = bed.alone();
    let scratch = Scratch::new();
    let two = Two::start(bed, &scratch, "stuck");
    let single = image(bed, &scratch, "single", 8 << 20);
    let server = Server::start(&single);
    let load = Load::start(&two.gateway.uri("kept"), &scratch);
    let mut clients = vec![two.load_of_lost(), two.load_of_lost()];
    clients.push(deep_load(&server.uri));
    let owner = |image: &str| {
        let owner = bed.rbd(&["lock", "ls", "--format", "json", image]).ok();
        owner.json()[0]["address"].as_str().unwrap().to_owned()
    };
    let owners = [owner("stuck"), owner("single")];
    fill(bed);
    for owner in &owners {
        bed.ceph(&["osd", "blocklist", "add", owner]).ok();
    }
    let stuck = clients.pop().unwrap();
    let done = stuck.finish();
    assert_eq!(done.code(), Some(0), "{}", done.text());
    let done = server.wait();
    assert_eq!(done.code(), Some(5), "{}", done.text());
    done.assert_no_crash();
    two.end(clients, load);
    empty(bed);
}

/// Writes and reads until that fails; what is read is what was written.
const VERIFY_UNTIL_GONE: &str = "
at, error = 0, None
while error is None:
    data = bytes([at % 251]) * 65536
    try:
        h.pwrite(data, at % 64 * 65536)
        assert bytes(h.pread(65536, at % 64 * 65536)) == data, at
    except nbd.Error as e:
        error = e.errno
    if at == 20:
        print('far', flush=True)
    at += 1
assert error in ('ESHUTDOWN', 'ENOTCONN'), error
";

/// Without the object that has the lock there is no lock either.
#[test]
#[ignore = "waits for ten seconds and more: make test-ceph"]
fn an_image_that_is_deleted_under_its_server_is_lost() {
    let Some(bed) = cluster("an_image_that_is_deleted_under_its_server_is_lost") else {
        return;
    };
    let _share = bed.share();
    let scratch = Scratch::new();
    let container = image(bed, &scratch, "deleted", 8 << 20);
    let server = Server::start(&container);
    let mut client = Cmd::peer("nbdsh")
        .args(["-u", &server.uri, "-c", VERIFY_UNTIL_GONE])
        .spawn();
    client.wait_for_line(|line| line == "far");
    let info = bed.rbd(&["info", "--format", "json", "deleted"]).ok();
    let id = info.json()["id"].as_str().unwrap().to_owned();
    Cmd::peer("rados")
        .arg("-c")
        .arg(bed.conf())
        .args(["-p", "rbd", "rm", &format!("rbd_header.{id}")])
        .ok();
    let done = client.finish();
    assert_eq!(done.code(), Some(0), "{}", done.text());
    let ended = server.wait();
    assert_eq!(ended.code(), Some(5), "{}", ended.text());
    ended.assert_no_crash();
}
