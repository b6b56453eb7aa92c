//! A client by libnbd that checks every block, and connects again at either of two addresses.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use xtent_tests::luks::Container;
use xtent_tests::process::Background;
use xtent_tests::xtent::{Server, xtent};
use xtent_tests::{Cmd, PATIENCE, Scratch, ceph, soak_rounds};

use crate::gateway::Standby;
use crate::{container, image};

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
            assert!(start.elapsed() < PATIENCE, "nothing goes on");
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
fn kill_in_turn(of: &str, container: &Container, rounds: u64) {
    let scratch = Scratch::new();
    let mut active = Standby::begin(container, &scratch, "a");
    active.serves();
    let sockets = [active.socket.clone(), scratch.join("b.sock")];
    let mut load = Load::start(&scratch, [&sockets[0], &sockets[1]]);
    load.says("flushed");
    for round in 0..rounds {
        let name = if round % 2 == 0 { "b" } else { "a" };
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
    active.end();
}

#[test]
fn no_flushed_byte_is_lost_when_gateways_of_a_file_are_killed_in_turn() {
    let scratch = Scratch::new();
    kill_in_turn("a file", &container(&scratch, 1 << 20), 3);
}

#[test]
#[ignore = "long: make soak"]
fn soak_gateways() {
    let scratch = Scratch::new();
    kill_in_turn("a file", &container(&scratch, 1 << 20), soak_rounds());
}

#[test]
fn a_standby_of_an_image_serves_when_the_first_was_killed() {
    let test = "a_standby_of_an_image_serves_when_the_first_was_killed";
    let Some(bed) = ceph::cluster(test) else {
        return;
    };
    let _share = bed.share();
    let scratch = Scratch::new();
    let container = image(bed, &scratch, "killed", 1 << 20);
    // How long a client counts as there that is silent; of those that come from now on.
    bed.ceph(&["config", "set", "osd", "osd_client_watch_timeout", "5"])
        .ok();
    kill_in_turn("an image", &container, 2);
}

#[test]
fn a_server_that_was_fenced_parts_from_its_clients_and_the_standby_serves() {
    let test = "a_server_that_was_fenced_parts_from_its_clients_and_the_standby_serves";
    let Some(bed) = ceph::cluster(test) else {
        return;
    };
    let _share = bed.share();
    let scratch = Scratch::new();
    let container = image(bed, &scratch, "fenced", 1 << 20);
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
    standby.take_over().ok();
    // By itself.
    let done = server.wait();
    assert_eq!(done.code(), Some(5), "{}", done.text());
    done.says(&["somebody else has taken the volume over"]);
    standby.serves();
    load.says_more("again", before);
    load.says("flushed");
    load.end("an image that was fenced");
    standby.end();
}
