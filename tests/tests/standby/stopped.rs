//! A gateway that is not dead: it stops in the middle of its work, and goes on after another has
//! been asked to serve.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use rustix::process::Signal;
use xtent_tests::nbd::{Raw, Request, command, nbdsh, read_all};
use xtent_tests::xtent::Server;
use xtent_tests::{PATIENCE, Scratch, ceph};

use crate::gateway::{Standby, wait_until};
use crate::{container, image};

const BLOCK: usize = 4096;
const BLOCKS: u64 = 256;
/// Requests that a server gets while it does nothing.
const LATE: u64 = 8;
const SIZE: u64 = BLOCKS * BLOCK as u64;

/// A client in transmission.
fn connect(socket: &Path) -> Raw {
    let mut client = Raw::connect(socket);
    client.greet();
    assert_eq!(client.go(), SIZE);
    client
}

/// A write of a block.
fn write(number: u64) -> Vec<u8> {
    let offset = number % BLOCKS * BLOCK as u64;
    let len = u32::try_from(BLOCK).unwrap();
    let mut bytes = Request::new(command::WRITE, offset, len).bytes();
    bytes.extend(b"old ".repeat(BLOCK / 4));
    bytes
}

/// A client that writes over and over, and waits for nothing but room to send.
struct Writer {
    /// Requests that were answered without an error.
    answered: Arc<AtomicU64>,
    threads: [JoinHandle<()>; 2],
}

impl Writer {
    fn start(socket: &Path) -> Self {
        let mut sender = connect(socket).into_stream();
        let mut receiver = sender.try_clone().unwrap();
        let answered = Arc::<AtomicU64>::default();
        let told = Arc::clone(&answered);
        let send = move || {
            for number in 0.. {
                if sender.write_all(&write(number)).is_err() {
                    return;
                }
            }
        };
        let receive = move || {
            while let Some(error) = reply(&mut receiver) {
                told.fetch_add(u64::from(error == 0), Ordering::SeqCst);
            }
        };
        Self {
            answered,
            threads: [std::thread::spawn(send), std::thread::spawn(receive)],
        }
    }

    /// Waits until so many more have been answered.
    fn goes_on(&self, requests: u64) {
        let before = self.answered.load(Ordering::SeqCst);
        wait_until("nothing is written", || {
            self.answered.load(Ordering::SeqCst) > before + requests
        });
    }

    /// Waits for the server to part.
    fn end(self) {
        for thread in self.threads {
            thread.join().unwrap();
        }
    }
}

/// The error of the next reply, 0 being none; nothing once the server has parted.
fn reply(stream: &mut UnixStream) -> Option<u32> {
    let mut reply = [0; 16];
    match stream.read_exact(&mut reply) {
        Ok(()) => Some(u32::from_be_bytes(reply[4..8].try_into().unwrap())),
        Err(error) => {
            let is_timeout = error.kind() == std::io::ErrorKind::WouldBlock;
            assert!(!is_timeout, "no answer and no end in {PATIENCE:?}");
            None
        }
    }
}

#[test]
fn nothing_of_a_stopped_server_of_an_image_arrives_after_the_takeover() {
    let test = "nothing_of_a_stopped_server_of_an_image_arrives_after_the_takeover";
    let Some(bed) = ceph::cluster(test) else {
        return;
    };
    let _share = bed.share();
    let scratch = Scratch::new();
    let container = image(bed, &scratch, "stopped", SIZE);
    let mut old = Standby::begin(&container, &scratch, "old");
    old.serves();
    let mut new = Standby::start(&container, &scratch, "new");
    let writer = Writer::start(&old.socket);
    let mut late = connect(&old.socket);
    writer.goes_on(2 * BLOCKS);
    // Of the writer's requests it has some under way, and others unread; of these it knows nothing.
    old.stop();
    for number in 0..LATE {
        late.send(&write(number));
    }
    new.take_over().ok();
    let uri = new.serves();
    let overwrite = format!("h.pwrite(b'new ' * {}, 0)\nh.flush()", SIZE / 4);
    nbdsh(&uri, &overwrite);
    old.process.signal(Signal::CONT);
    old.ends_fenced();
    writer.end();
    let mut late = late.into_stream();
    while let Some(error) = reply(&mut late) {
        assert_ne!(error, 0, "a write succeeded after the takeover");
    }
    let is_new = |uri: &str| read_all(uri).chunks(4).all(|word| word == b"new ");
    assert!(is_new(&uri), "the old server has written");
    new.end();
    // From the cluster, not from anything that the new one remembers.
    let third = Server::start(&container);
    assert!(is_new(&third.uri), "the old server has written");
    third.stop();
}

/// Nothing shuts the server of a file out, so its successor has to wait for as long as it lives.
#[test]
fn a_stopped_server_of_a_file_keeps_it() {
    let scratch = Scratch::new();
    let container = container(&scratch, SIZE);
    let mut old = Standby::begin(&container, &scratch, "old");
    old.serves();
    let mut new = Standby::start(&container, &scratch, "new");
    let writer = Writer::start(&old.socket);
    let mut late = connect(&old.socket);
    writer.goes_on(2 * BLOCKS);
    old.stop();
    for number in 0..LATE {
        late.send(&write(number));
    }
    // It answers between two looks at the volume.
    for _ in 0..3 {
        new.take_over()
            .fails(1)
            .says(&["cannot be taken over by force"]);
    }
    assert!(new.process.is_running(), "{}", new.said());
    assert!(!new.socket.exists(), "two servers of a file");
    old.process.signal(Signal::CONT);
    for _ in 0..LATE {
        assert_eq!(late.reply(), 0);
    }
    writer.goes_on(BLOCKS);
    assert!(!new.socket.exists(), "two servers of a file");
    assert_eq!(old.process.kill().code(), None);
    writer.end();
    let uri = new.serves();
    assert!(read_all(&uri).chunks(4).all(|word| word == b"old "));
    new.end();
}
