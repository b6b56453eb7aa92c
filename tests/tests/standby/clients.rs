//! Clients that connect again by themselves, under fio's verifying load, while the gateways at
//! their one address come and go.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::process::Signal;
use xtent_tests::luks::Container;
use xtent_tests::process::{Background, Finished};
use xtent_tests::random::Random;
use xtent_tests::{Cmd, Scratch, ceph, soak_rounds};

use crate::gateway::{Standby, wait_until};
use crate::{container, image};

/// What fio writes and reads.
const SIZE: u64 = 8 << 20;

/// A client of the gateways, which serves what it has there to fio.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Client {
    /// QEMU's, one connection.
    Qemu,
    /// libnbd's in nbdkit, four connections.
    Nbdkit,
}

impl Client {
    fn start(self, gateway: &Path, socket: &Path) -> Background {
        let client = match self {
            Self::Qemu => Cmd::peer("qemu-nbd")
                .args(["--persistent", "--shared=8", "--socket"])
                .arg(socket)
                .arg("--image-opts")
                .arg(format!(
                    "driver=nbd,server.type=unix,server.path={},reconnect-delay=300",
                    gateway.display()
                )),
            Self::Nbdkit => Cmd::peer("nbdkit")
                .args(["--foreground", "--filter=retry", "--unix"])
                .args([socket, Path::new("nbd")])
                .arg(format!("socket={}", gateway.display()))
                .args(["retries=3000", "retry-delay=1", "retry-exponential=no"])
                // For clients of its own that come while nobody serves.
                .arg("retry=300"),
        };
        let mut client = client.spawn();
        wait_until("a client does not get ready", || {
            assert!(client.is_running());
            std::os::unix::net::UnixStream::connect(socket).is_ok()
        });
        client
    }

    /// Connections of it to the gateway.
    fn connections(self) -> u64 {
        match self {
            Self::Qemu => 1,
            Self::Nbdkit => 4,
        }
    }
}

/// fio over and over: it writes every block once, with flushes in between, and reads all of them.
struct Load {
    uri: String,
    jobs: u64,
    stop: Arc<AtomicBool>,
    passes: JoinHandle<(u64, f64)>,
}

impl Load {
    fn start(socket: &Path, jobs: u64) -> Self {
        let uri = format!("nbd+unix:///?socket={}", socket.display());
        let stop = Arc::<AtomicBool>::default();
        let (whence, until) = (uri.clone(), Arc::clone(&stop));
        let passes = std::thread::spawn(move || {
            let (mut number, mut longest) = (0, 0.0);
            while !until.load(Ordering::Relaxed) {
                number += 1;
                let done = pass(&whence, jobs, number).arg("--do_verify=1").ok();
                longest = slowest(&done).max(longest);
            }
            (number, longest)
        });
        Self {
            uri,
            jobs,
            stop,
            passes,
        }
    }

    /// Waits until this server has answered so many requests.
    fn is_served_by(&self, server: &Standby, requests: u64) {
        wait_until("nothing goes on", || {
            assert!(!self.passes.is_finished(), "fio has failed");
            server.requests_and_clients().0 >= requests
        });
    }

    /// Ends it after the pass that it is at, and reads all of that again; says how long a request took.
    fn end(self, of: &str) {
        self.stop.store(true, Ordering::Relaxed);
        let (passes, longest) = self.passes.join().unwrap();
        pass(&self.uri, self.jobs, passes).arg("--verify_only").ok();
        // An earlier pass would be told from it.
        let other = pass(&self.uri, self.jobs, passes - 1).arg("--verify_only");
        let other = other.run();
        assert!(!other.status.success(), "{}", other.text());
        other.says(&["verify failed"]);
        println!("{of}: {passes} passes of fio, {longest:.1} seconds without service at most");
    }
}

/// fio, of which every block says where and in which pass it was written.
fn pass(uri: &str, jobs: u64, number: u64) -> Cmd {
    let size = SIZE / jobs;
    Cmd::peer("fio")
        .args(["--name=load", "--ioengine=nbd", "--rw=randwrite", "--bs=4k"])
        .args(["--iodepth=16", "--fsync=32", "--thread", "--verify=pattern"])
        .args(["--verify_fatal=1", "--verify_state_save=0"])
        .arg("--output-format=json")
        .arg(format!("--verify_pattern=%o\"pass {number:08}\""))
        .args([format!("--numjobs={jobs}"), format!("--size={size}")])
        .arg(format!("--offset_increment={size}"))
        .arg(format!("--uri={uri}"))
}

/// How many seconds the slowest request took.
fn slowest(done: &Finished) -> f64 {
    // Notes come first.
    let out = done.out();
    let report = out.find('{').map_or("", |start| &out[start..]);
    let report: serde_json::Value = serde_json::from_str(report)
        .unwrap_or_else(|error| panic!("not JSON ({error}): {}", done.text()));
    let jobs = report["jobs"].as_array().unwrap();
    let times = jobs.iter().flat_map(|job| {
        let kinds = [
            ("read", "clat_ns"),
            ("write", "clat_ns"),
            ("sync", "lat_ns"),
        ];
        kinds.map(|(kind, what)| job[kind][what]["max"].as_f64().unwrap_or(0.0))
    });
    times.fold(0.0, f64::max) / 1e9
}

/// How a gateway ends.
#[derive(Clone, Copy)]
enum End {
    Kill,
    /// In good order.
    Term,
    /// Of an image: the next one takes it away.
    Takeover,
    /// The same while it does nothing at all, and goes on afterwards.
    Stopped,
}

impl End {
    fn of(self, active: Standby, next: &mut Standby) {
        match self {
            Self::Kill => {
                assert_eq!(active.process.kill().code(), None);
            }
            Self::Term => active.end(),
            Self::Takeover => {
                next.take_over().ok();
                active.ends_fenced();
            }
            Self::Stopped => {
                active.stop();
                next.take_over().ok();
                // Its socket is still the other's.
                next.wait_to_hear("a server is listening there");
                active.process.signal(Signal::CONT);
                active.ends_fenced();
            }
        }
    }
}

/// One gateway after the other at one address, each ended under load with the next one waiting.
fn turns(of: &str, container: &Container, client: Client, ends: &[End]) {
    let scratch = Scratch::new();
    let gateway = scratch.join("gateway.sock");
    let start = |name| Standby::begin_at(&gateway, container, &scratch, name);
    let mut active = start("a");
    active.serves();
    let socket = scratch.join("client.sock");
    let process = client.start(&gateway, &socket);
    let load = Load::start(&socket, client.connections());
    let mut random = Random::new(ends.len() as u64);
    for (round, end) in ends.iter().enumerate() {
        let mut next = start(["b", "a"][round % 2]);
        next.waits();
        load.is_served_by(&active, 1 + random.below(1000));
        end.of(active, &mut next);
        next.serves();
        active = next;
    }
    wait_until("not all connections are there again", || {
        assert!(!load.passes.is_finished(), "fio has failed");
        active.requests_and_clients().1 == client.connections()
    });
    load.is_served_by(&active, 1);
    load.end(of);
    process.signal(Signal::TERM);
    process.finish();
    active.end();
}

#[test]
fn qemu_connects_again_and_sends_again_what_was_under_way() {
    let scratch = Scratch::new();
    let container = container(&scratch, SIZE);
    turns(
        "a file, QEMU",
        &container,
        Client::Qemu,
        &[End::Kill, End::Term],
    );
}

#[test]
fn all_connections_of_a_client_come_to_the_gateway_that_serves() {
    let scratch = Scratch::new();
    let container = container(&scratch, SIZE);
    turns(
        "a file, nbdkit",
        &container,
        Client::Nbdkit,
        &[End::Kill, End::Term],
    );
}

#[test]
#[ignore = "long: make soak"]
fn soak_gateways_of_a_file_under_fio() {
    for client in [Client::Qemu, Client::Nbdkit] {
        let scratch = Scratch::new();
        let container = container(&scratch, SIZE);
        let ends = vec![End::Kill; usize::try_from(soak_rounds()).unwrap()];
        turns(&format!("a file, {client:?}"), &container, client, &ends);
    }
}

#[test]
fn qemu_connects_again_to_the_gateway_that_took_an_image_over() {
    let test = "qemu_connects_again_to_the_gateway_that_took_an_image_over";
    let Some(bed) = ceph::cluster(test) else {
        return;
    };
    let _share = bed.share();
    let scratch = Scratch::new();
    let container = image(bed, &scratch, "taken", SIZE);
    let ends = [End::Takeover, End::Stopped];
    turns("an image, QEMU", &container, Client::Qemu, &ends);
}

#[test]
#[ignore = "long, with a Ceph cluster: make soak"]
fn soak_gateways_of_an_image_under_fio() {
    let Some(bed) = ceph::cluster("soak_gateways_of_an_image_under_fio") else {
        return;
    };
    let _share = bed.share();
    let scratch = Scratch::new();
    let container = image(bed, &scratch, "soak", SIZE);
    // How long a client counts as there that is silent; of those that come from now on.
    bed.ceph(&["config", "set", "osd", "osd_client_watch_timeout", "5"])
        .ok();
    let mut ends = Vec::new();
    for round in 0..soak_rounds() {
        ends.push(End::Kill);
        match round % 10 {
            4 => ends.push(End::Takeover),
            9 => ends.push(End::Stopped),
            _ => {}
        }
    }
    turns("an image, QEMU", &container, Client::Qemu, &ends);
}
