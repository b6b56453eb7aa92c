//! The server with TLS: the same work, and the moments in which records are left over.

use xtent_tls::testing::{Authority, Wanted};

use super::client::{Message, Rig, header};
use super::{PATIENT, pattern, round_trips};
use crate::nbd::proto::constants::*;
use crate::nbd::{Options, Tls};

/// A server that requires TLS, and its clients' side.
fn secure(options: Options) -> Rig {
    let dir = tempfile::tempdir().unwrap();
    Authority::new("tests")
        .trusted_in(dir.path())
        .certify(dir.path(), &Wanted::server(&["localhost"]))
        .certify(dir.path(), &Wanted::client("alice"));
    let server = xtent_tls::Server::open(dir.path(), true).unwrap();
    let tls = Some(Tls {
        server,
        required: true,
    });
    let mut rig = Rig::with(Options { tls, ..options }, PATIENT);
    rig.tls = Some(xtent_tls::Client::open(Some(dir.path()), "localhost").unwrap());
    rig
}

#[test]
fn data_comes_back() {
    let rig = secure(Options::default());
    round_trips(&rig, true);
    round_trips(&rig, false);
    rig.stop().unwrap();
}

#[test]
fn without_memory_for_workers_everything_still_works() {
    let memory = 2 * Options::memory_per_connection(true);
    let rig = secure(Options {
        memory,
        ..Rig::tight(1)
    });
    round_trips(&rig, true);
    rig.stop().unwrap();
}

/// Far more than the socket takes waits for a client that asks first and reads later; some of
/// it was encrypted already when the socket was full. After a goodbye all of it still comes, and
/// an end that nobody else can have made.
#[test]
fn a_client_that_reads_late_gets_everything_and_an_end() {
    const LEN: usize = 1 << 20;
    let rig = secure(Options::default());
    let mut client = rig.connect("", false);
    let data = pattern(LEN, 9);
    assert_eq!(client.write(0, 0, &data), 0);
    let count = 16;
    let mut requests: Vec<u8> = (0..count)
        .flat_map(|cookie| header(CMD_READ, 0, cookie, 0, LEN))
        .collect();
    requests.extend(header(CMD_DISC, 0, 99, 0, 0));
    client.send(&requests);
    let mut cookies = Vec::new();
    for _ in 0..count {
        let Message::Simple { cookie, error: 0 } = client.message() else {
            panic!("no reply");
        };
        cookies.push(cookie);
        assert!(client.take(LEN) == data);
    }
    cookies.sort_unstable();
    assert!(cookies.into_iter().eq(0..count));
    let channel = client.tls.take().unwrap();
    let mut socket = &client.socket;
    loop {
        let received = channel.receive(&mut [0], |room| std::io::Read::read(&mut socket, room));
        match received {
            Ok(n) => break assert_eq!(n, 0),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}"),
        }
    }
    rig.stop().unwrap();
}

/// Workers and the connection's thread send by turns.
#[test]
fn what_waited_for_the_disk_comes_between() {
    let rig = secure(Options::default());
    let mut client = rig.connect("", true);
    let data = pattern(4 << 20, 5);
    assert_eq!(client.write(0, 0, &data), 0);
    rig.store.stop_disk(0..512);
    let mut requests = header(CMD_READ, 0, 1, 0, 300_000);
    for cookie in 2..6 {
        requests.extend(header(CMD_READ, 0, cookie, 1 << 20, 2 << 20));
    }
    client.send(&requests);
    rig.store.await_waiting(1);
    rig.store.stop_disk(0..0);
    let mut done = 0;
    let mut bytes = 0;
    while done < 5 {
        let Message::Chunk {
            kind: REPLY_TYPE_OFFSET_DATA,
            done: is_last,
            payload,
            ..
        } = client.message()
        else {
            panic!("no data");
        };
        let at = usize::try_from(super::be64(&payload, 0)).unwrap();
        assert!(payload[8..] == data[at..at + payload.len() - 8]);
        bytes += payload.len() - 8;
        done += usize::from(is_last);
    }
    assert_eq!(bytes, 300_000 + 4 * (2 << 20));
    rig.stop().unwrap();
}
