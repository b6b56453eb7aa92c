//! Several gateways of one volume: one serves, the next waits for it.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use xtent_tests::luks::{Container, KEY, Maker, OTHER_KEY, Shape, add_key};
use xtent_tests::nbd::nbdsh;
use xtent_tests::process::Background;
use xtent_tests::scratch::Unchanged;
use xtent_tests::xtent::{Server, binary, xtent};
use xtent_tests::{Cmd, Scratch};

/// A server that waits, with what it says in `log`.
struct Standby {
    process: Background,
    log: PathBuf,
    socket: PathBuf,
}

impl Standby {
    /// Returns when it says that it waits.
    fn start(container: &Container, scratch: &Scratch, name: &str) -> Self {
        let mut standby = Self::begin(container, scratch, name);
        standby.wait_to_hear("standing by: ");
        standby
    }

    fn begin(container: &Container, scratch: &Scratch, name: &str) -> Self {
        let log = scratch.join(&format!("{name}.log"));
        let socket = scratch.join(&format!("{name}.sock"));
        // Of one of that name before.
        let _ = std::fs::remove_file(&log);
        let command = format!(
            "exec {} serve --standby --nbd unix:{} --key-file {} '{}' 2>{}",
            binary().display(),
            socket.display(),
            container.key.display(),
            container.image.display(),
            log.display()
        );
        Self {
            process: Cmd::peer("bash").args(["-c", &command]).spawn(),
            log,
            socket,
        }
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn wait_to_hear(&mut self, words: &str) {
        let start = Instant::now();
        while !self.said().contains(words) {
            assert!(self.process.is_running(), "{}", self.said());
            assert!(start.elapsed() < xtent_tests::PATIENCE, "{}", self.said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until it serves.
    fn serves(&mut self) -> String {
        self.process.wait_for_line(|line| line.contains("nbd+unix"));
        self.uri()
    }

    fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }
}

fn container(scratch: &Scratch) -> Container {
    Shape::LUKS2.image(Maker::Xtent, scratch, 1 << 20)
}

#[test]
fn a_standby_asks_first_and_serves_when_the_first_is_gone() {
    let scratch = Scratch::new();
    let container = container(&scratch);
    let server = Server::start(&container);
    let mut standby = Standby::start(&container, &scratch, "standby");
    xtent()
        .args([
            "takeover",
            "-q",
            "--server",
            &standby.process.id().to_string(),
        ])
        .fails(1)
        .says(&["cannot be taken over by force", "End the other server"]);
    let who = format!("process {}", server.id());
    assert!(standby.said().contains(&who), "{}", standby.said());
    assert!(!standby.socket.exists(), "it listens already");
    let listed = || {
        let status = xtent()
            .args(["status", "--json"])
            .arg(&container.image)
            .run();
        let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
        let volumes = status["volumes"].as_array().unwrap().iter();
        let kind = |volume: &serde_json::Value| volume["kind"].as_str().unwrap().to_owned();
        let mut kinds: Vec<String> = volumes.map(kind).collect();
        kinds.sort();
        kinds
    };
    assert_eq!(listed(), ["server", "standby"]);
    // It has the key already, and knows the volume by that when all passphrases are others.
    let other = scratch.file("other", OTHER_KEY);
    add_key(2, &container.image, &container.key, &other).ok();
    Cmd::peer("cryptsetup")
        .args(["luksRemoveKey", "--batch-mode"])
        .args([&container.image, &container.key])
        .ok();
    nbdsh(&server.uri, "h.pwrite(b'kept' * 1024, 4096)\nh.flush()");
    server.terminate(Signal::KILL);
    let uri = standby.serves();
    nbdsh(
        &uri,
        "assert h.pread(4096, 4096) == b'kept' * 1024\nh.pwrite(b'next' * 1024, 0)",
    );
    standby.process.signal(Signal::TERM);
    assert_eq!(standby.process.finish().code(), Some(0));
    let container = Container {
        key: other,
        ..container
    };
    assert_eq!(&container.decrypt()[..4], b"next");
}

#[test]
fn a_standby_serves_no_other_volume_than_the_one_it_was_told_of() {
    let scratch = Scratch::new();
    let container = container(&scratch);
    let server = Server::start(&container);
    let mut standby = Standby::start(&container, &scratch, "standby");
    // Whoever formats it anew has to overlook that it is served: here it is put in its place.
    let other = Scratch::new();
    let new = self::container(&other);
    std::fs::copy(&new.image, scratch.join("new")).unwrap();
    std::fs::rename(scratch.join("new"), &container.image).unwrap();
    let unchanged = Unchanged::new(&container.image);
    standby.wait_to_hear("its key or layout is another");
    assert_eq!(standby.process.finish().code(), Some(4));
    unchanged.assert("another volume");
    server.stop();
}

#[test]
fn a_standby_ends_at_once_and_is_refused_where_nothing_is_locked() {
    let scratch = Scratch::new();
    let container = container(&scratch);
    let server = Server::start(&container);
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let standby = Standby::start(&container, &scratch, "standby");
        standby.process.signal(signal);
        assert_eq!(standby.process.finish().code(), Some(code));
    }
    // A wrong passphrase is told at once, not after years.
    let wrong = Container {
        key: scratch.file("wrong", OTHER_KEY),
        image: container.image.clone(),
    };
    Server::command(&wrong, &scratch.join("s"), &["--standby"]).fails(2);
    let far = Container {
        key: container.key.clone(),
        image: PathBuf::from(server.uri.clone()),
    };
    Server::command(&far, &scratch.join("s"), &["--standby"])
        .fails(1)
        .says(&["NBD server", "--standby"]);
    server.stop();
}

/// Writes blocks that say which turn they are of, and reports what was flushed: `N` on a line. A
/// connection that ends is made again, at either address, and what was flushed looked at.
const LOAD: &str = "
import os, sys, time, nbd
sockets, stop, log = sys.argv[1:3], sys.argv[3], sys.argv[4]
block, count = 4096, 64
def content(n, at): return (b'%08d %04d\\n' % (n, at)).ljust(block, b'.')
log = open(log, 'w', buffering=1)
flushed = [0] * count
written = [[] for _ in range(count)]
n, longest, lost = 0, 0.0, time.monotonic()
def connect():
    while True:
        for socket in sockets:
            h = nbd.NBD()
            try:
                h.connect_unix(socket)
                return h
            except nbd.Error:
                pass
        if os.path.exists(stop):
            sys.exit('nobody serves')
        time.sleep(0.01)
def look(h):
    for at in range(count):
        found = bytes(h.pread(block, at * block))
        n = int(found[:8]) if found.strip(b'\\0') else 0
        assert n == 0 or found == content(n, at), (at, found[:32])
        assert n == flushed[at] or n in written[at], ('LOST', at, n, flushed[at], written[at])
        flushed[at], written[at] = n, []
started = False
while not os.path.exists(stop):
    try:
        h = connect()
        if not started:
            h.pwrite(bytes(block * count), 0)
            h.flush()
        look(h)
        if started:
            gone = time.monotonic() - lost
            longest = max(longest, gone)
            log.write('again %.2f\\n' % gone)
        started = True
        while not os.path.exists(stop):
            n += 1
            for at in range(count):
                written[at].append(n)
                h.pwrite(content(n, at), at * block)
            h.flush()
            flushed, written = [n] * count, [[] for _ in range(count)]
            lost = time.monotonic()
            log.write('flushed %d\\n' % n)
    except nbd.Error as e:
        log.write('lost %s\\n' % e.errno)
h = connect()
look(h)
log.write('longest %.2f\\n' % longest)
";

struct Load {
    client: Background,
    stop: PathBuf,
    log: PathBuf,
}

impl Load {
    fn start(scratch: &Scratch, sockets: [&Path; 2]) -> Self {
        let (stop, log) = (scratch.join("stop"), scratch.join("load.log"));
        let client = Cmd::new("/usr/bin/python3")
            .args(["-c", LOAD])
            .args(sockets)
            .args([&stop, &log])
            .spawn();
        Self { client, stop, log }
    }

    fn count(&self, word: &str) -> usize {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        log.lines().filter(|line| line.starts_with(word)).count()
    }

    /// Waits until `word` was said once more.
    fn says(&mut self, word: &str) {
        self.says_more(word, self.count(word));
    }

    fn says_more(&mut self, word: &str, than: usize) {
        let start = Instant::now();
        while self.count(word) <= than {
            assert!(
                self.client.is_running(),
                "{}",
                std::fs::read_to_string(&self.log).unwrap()
            );
            assert!(start.elapsed() < xtent_tests::PATIENCE, "nothing goes on");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends it, without a byte lost; says how long nobody served at most.
    fn end(self, of: &str) {
        std::fs::write(&self.stop, "").unwrap();
        let done = self.client.finish();
        assert_eq!(done.code(), Some(0), "{}", done.text());
        let log = std::fs::read_to_string(&self.log).unwrap();
        println!(
            "{of}: {} seconds without service",
            log.lines().last().unwrap()
        );
    }
}

/// Kills one after the other under load, each time with the next one waiting.
fn kill_in_turn(of: &str, container: &Container, rounds: usize) {
    let scratch = Scratch::new();
    let mut active = Standby::begin(container, &scratch, "a");
    active.serves();
    let sockets = [active.socket.clone(), scratch.join("b.sock")];
    let mut load = Load::start(&scratch, [&sockets[0], &sockets[1]]);
    load.says("flushed");
    for round in 0..rounds {
        let name = ["b", "a"][round % 2];
        let mut next = Standby::start(container, &scratch, name);
        load.says("flushed");
        let before = load.count("again");
        active.process.signal(Signal::KILL);
        active.process.finish();
        next.serves();
        load.says_more("again", before);
        load.says("flushed");
        active = next;
    }
    load.end(of);
    active.process.signal(Signal::TERM);
    assert_eq!(active.process.finish().code(), Some(0));
}

#[test]
fn no_flushed_byte_is_lost_when_gateways_of_a_file_are_killed_in_turn() {
    let scratch = Scratch::new();
    kill_in_turn("a file", &container(&scratch), 3);
}

#[test]
#[ignore = "long: make soak"]
fn soak_gateways() {
    let rounds = std::env::var("XTENT_SOAK_ROUNDS").unwrap_or_default();
    let rounds = rounds.parse().unwrap_or(100);
    let scratch = Scratch::new();
    kill_in_turn("a file", &container(&scratch), rounds);
}

/// An image that was formatted.
fn image(bed: &xtent_tests::ceph::Bed, scratch: &Scratch, name: &str) -> Container {
    let key = scratch.file("key", KEY);
    let shape = Shape::LUKS2_4096;
    let container = bed.container(name, shape.data_offset() + (1 << 20), &key);
    shape.format(Maker::Xtent, &container.image, &key);
    container
}

#[test]
fn a_standby_of_an_image_serves_when_the_first_was_killed() {
    let test = "a_standby_of_an_image_serves_when_the_first_was_killed";
    let Some(bed) = xtent_tests::ceph::cluster(test) else {
        return;
    };
    let _share = bed.share();
    let scratch = Scratch::new();
    let container = image(bed, &scratch, "killed");
    // How long a client counts as there that is silent; of those that come from now on.
    bed.ceph(&["config", "set", "osd", "osd_client_watch_timeout", "5"])
        .ok();
    kill_in_turn("an image", &container, 2);
}

#[test]
fn a_server_that_was_fenced_parts_from_its_clients_and_the_standby_serves() {
    let test = "a_server_that_was_fenced_parts_from_its_clients_and_the_standby_serves";
    let Some(bed) = xtent_tests::ceph::cluster(test) else {
        return;
    };
    let _share = bed.share();
    let scratch = Scratch::new();
    let container = image(bed, &scratch, "fenced");
    let server = Server::start(&container);
    let mut standby = Standby::start(&container, &scratch, "b");
    let mut load = Load::start(&scratch, [&server.socket, &standby.socket]);
    load.says("flushed");
    let before = load.count("again");
    let takeover = |id: u32| xtent().args(["takeover", "--server", &id.to_string()]);
    takeover(standby.process.id()).fails(1).says(&["-q"]);
    takeover(server.id())
        .arg("-q")
        .fails(5)
        .says(&["does not stand by"]);
    load.says("flushed");
    takeover(standby.process.id()).arg("-q").ok();
    // By itself.
    let done = server.wait();
    assert_eq!(done.code(), Some(5), "{}", done.text());
    done.says(&["somebody else has taken the volume over"]);
    standby.serves();
    load.says_more("again", before);
    load.says("flushed");
    load.end("an image that was fenced");
    standby.process.signal(Signal::TERM);
    assert_eq!(standby.process.finish().code(), Some(0));
}
