//! Both sides against each other, and against what hostile ones send.

use std::fs;
use std::io::{self, IoSlice};
use std::path::Path;

use tempfile::TempDir;

use crate::channel::OUTGOING;
use crate::testing::{Authority, Wanted};
use crate::{Channel, Client, Error, ErrorKind, Handshake, Next, Server};

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// A server and a client that trust each other.
fn pair() -> (TempDir, Server, Client) {
    let dir = folder();
    Authority::new("ours")
        .trusted_in(dir.path())
        .certify(dir.path(), &Wanted::server(&["localhost", "127.0.0.1"]))
        .certify(dir.path(), &Wanted::client("alice"));
    let server = Server::open(dir.path(), true).unwrap();
    let client = Client::open(Some(dir.path()), "localhost").unwrap();
    (dir, server, client)
}

/// Moves bytes, `at_a_time` at most at once; true if there were some.
fn pass(output: &mut Vec<u8>, to: &mut Handshake, at_a_time: usize) -> bool {
    let n = output.len().min(at_a_time).min(to.room().len());
    to.room()[..n].copy_from_slice(&output[..n]);
    to.received(n);
    output.drain(..n);
    n > 0
}

/// Runs both handshakes to their end, or the first failure of either.
fn meet(
    server: &Server,
    client: &Client,
    at_a_time: usize,
) -> (Result<Channel, Error>, Result<Channel, Error>) {
    let mut sides = [
        Handshake::server(server).unwrap(),
        Handshake::client(client).unwrap(),
    ];
    let mut output = [Vec::new(), Vec::new()];
    let mut ended = [None, None];
    loop {
        let mut moved = false;
        for at in [0, 1] {
            if ended[at].is_none() {
                let next = sides[at].step();
                output[at].extend(sides[at].take_output());
                match next {
                    Ok(Next::Receive) => {}
                    Ok(Next::Done) => ended[at] = Some(Ok(())),
                    Err(error) => ended[at] = Some(Err(error)),
                }
            }
            if ended[1 - at].is_none() {
                moved |= pass(&mut output[at], &mut sides[1 - at], at_a_time);
            }
        }
        if !moved && output.iter().all(Vec::is_empty) || ended.iter().all(Option::is_some) {
            break;
        }
        if !moved && ended.iter().any(Option::is_some) {
            break;
        }
    }
    let [server, client] = sides;
    let [server_end, client_end] = ended;
    let is = |side: Handshake, end: Option<Result<(), Error>>| match end {
        Some(Ok(())) => Ok(side.into_channel()),
        Some(Err(error)) => Err(error),
        None => Err(Error::new(ErrorKind::Protocol, "it waits")),
    };
    (is(server, server_end), is(client, client_end))
}

/// What one channel sends until all of `slices` is taken.
fn send(channel: &Channel, slices: &[&[u8]]) -> Vec<u8> {
    let mut all: Vec<u8> = slices.concat();
    let mut wire = Vec::new();
    let taking = |wire: &mut Vec<u8>, bytes: &[u8]| {
        wire.extend(bytes);
        Ok(bytes.len())
    };
    let slices: Vec<_> = slices.iter().map(|slice| IoSlice::new(slice)).collect();
    let n = channel
        .send(&slices, |bytes| taking(&mut wire, bytes))
        .unwrap();
    all.drain(..n);
    while !all.is_empty() {
        let n = channel
            .send(&[IoSlice::new(&all)], |bytes| taking(&mut wire, bytes))
            .unwrap();
        assert!(n > 0);
        all.drain(..n);
    }
    assert!(!channel.has_unsent());
    wire
}

/// What the other makes of it, with spaces of so many bytes.
fn receive(channel: &Channel, mut wire: &[u8], space: usize) -> io::Result<Vec<u8>> {
    let mut got = Vec::new();
    let mut room = vec![0; space];
    loop {
        let received = channel.receive(&mut room, |into| {
            if wire.is_empty() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let n = wire.len().min(into.len()).min(30_000);
            into[..n].copy_from_slice(&wire[..n]);
            wire = &wire[n..];
            Ok(n)
        });
        match received {
            Ok(0) => return Ok(got),
            Ok(n) => got.extend(&room[..n]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // The rule that keeps poll from waiting for ever.
                assert!(!channel.has_more());
                if wire.is_empty() {
                    return Ok(got);
                }
            }
            Err(error) => return Err(error),
        }
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..=250).cycle().take(len).collect()
}

#[test]
fn bytes_arrive_however_they_are_cut() {
    let (_dir, server, client) = pair();
    for at_a_time in [1, 100, usize::MAX] {
        let (server, client) = meet(&server, &client, at_a_time);
        let (server, client) = (server.unwrap(), client.unwrap());
        let peer = server.peer().unwrap();
        assert_eq!(peer.subject, "CN=alice");
        assert_eq!(peer.names, ["alice"]);
        assert_eq!(client.peer().unwrap().subject, "CN=the server");
        for (from, to) in [(&server, &client), (&client, &server)] {
            for lens in [
                &[1][..],
                &[32, 16 << 10],
                &[32, 256 << 10, 1],
                &[100; 300],
                &[12_000, 12_000, 12_000],
                &[0, 3 << 20, 0, 16_383, 16_385],
            ] {
                let data: Vec<_> = lens.iter().map(|&len| pattern(len)).collect();
                let slices: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
                for space in [7, 16 << 10, 1 << 20] {
                    if space == 7 && lens.contains(&(3 << 20)) {
                        continue;
                    }
                    let wire = send(from, &slices);
                    assert!(
                        receive(to, &wire, space).unwrap() == data.concat(),
                        "{lens:?}"
                    );
                }
            }
        }
        let mut wire = Vec::new();
        client.close(|bytes| {
            wire.extend(bytes);
            Ok(bytes.len())
        });
        assert_eq!(receive(&server, &wire, 100).unwrap(), b"");
        let again = server.receive(&mut [0; 9], |_| panic!("nothing follows"));
        assert_eq!(again.unwrap(), 0);
        // The other direction is still open.
        assert!(!send(&server, &[b"late"]).is_empty());
        assert!(
            client
                .send(&[IoSlice::new(b"x")], |bytes| Ok(bytes.len()))
                .is_err()
        );
    }
}

/// One system call carries many records, and nothing is kept back.
#[test]
fn records_go_out_together() {
    let (_dir, server, client) = pair();
    let (server, _) = meet(&server, &client, usize::MAX);
    let server = server.unwrap();
    let data = pattern(256 << 10);
    let mut calls = Vec::new();
    let taken = server.send(&[IoSlice::new(&[1; 32]), IoSlice::new(&data)], |bytes| {
        calls.push(bytes.len());
        Ok(bytes.len())
    });
    assert_eq!(taken.unwrap(), 32 + data.len());
    assert_eq!(calls, [32 + data.len() + 17 * 22]);
}

#[test]
fn a_full_socket_gets_the_rest_later() {
    let (_dir, server, client) = pair();
    let (server, client) = meet(&server, &client, usize::MAX);
    let (server, client) = (server.unwrap(), client.unwrap());
    let data = pattern(1 << 20);
    let (mut wire, mut at) = (Vec::new(), 0);
    let mut turns = 0;
    while at < data.len() || server.has_unsent() {
        // 1000 bytes, then nothing.
        let mut room = 1000;
        let sent = server.send(&[IoSlice::new(&data[at..])], |bytes| {
            if room == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let n = bytes.len().min(room);
            room -= n;
            wire.extend(&bytes[..n]);
            Ok(n)
        });
        match sent {
            Ok(n) => at += n,
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
        turns += 1;
        assert!(turns < 2000);
    }
    assert!(receive(&client, &wire, 5000).unwrap() == data);
    const { assert!(OUTGOING < crate::FOOTPRINT) };
}

#[test]
fn a_stream_that_is_cut_off_has_no_end() {
    let (_dir, server, client) = pair();
    let (server, client) = meet(&server, &client, usize::MAX);
    let (server, client) = (server.unwrap(), client.unwrap());
    let wire = send(&client, &[b"hello"]);
    assert_eq!(receive(&server, &wire, 100).unwrap(), b"hello");
    let error = server.receive(&mut [0; 9], |_| Ok(0)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn what_was_changed_on_the_way_is_refused_for_good() {
    let (_dir, server, client) = pair();
    for change in 0..3 {
        let (server, client) = meet(&server, &client, usize::MAX);
        let (server, client) = (server.unwrap(), client.unwrap());
        let mut wire = send(&client, &[b"hello"]);
        let good = send(&client, &[b"again"]);
        match change {
            0 => wire[10] ^= 1,
            1 => wire = [&b"\x17\x03\x03\x00\x05hello"[..], &wire].concat(),
            _ => wire = good.clone(),
        }
        let error = receive(&server, &wire, 100).unwrap_err();
        assert!(error.to_string().contains("TLS failed"), "{error}");
        assert!(receive(&server, &good, 100).is_err());
        assert!(
            server
                .send(&[IoSlice::new(b"x")], |_| panic!("broken"))
                .is_err()
        );
        // The peer hears why.
        let mut alert = Vec::new();
        server.close(|bytes| {
            alert.extend(bytes);
            Ok(bytes.len())
        });
        let error = receive(&client, &alert, 100).unwrap_err();
        assert!(error.to_string().contains("ended TLS"), "{error}");
    }
}

/// Records that cost work and bring nothing.
#[test]
fn a_flood_of_key_updates_ends_the_channel() {
    let (_dir, server, client) = pair();
    let (server, client) = meet(&server, &client, usize::MAX);
    let (server, client) = (server.unwrap(), client.unwrap());
    let update = |wire: &mut Vec<u8>| {
        client.refresh_keys();
        client
            .send(&[], |bytes| {
                wire.extend(bytes);
                Ok(bytes.len())
            })
            .unwrap();
    };
    let mut wire = Vec::new();
    update(&mut wire);
    wire.extend(send(&client, &[b"new keys"]));
    assert_eq!(receive(&server, &wire, 100).unwrap(), b"new keys");
    // Its own are new, too, and understood.
    let answer = send(&server, &[b"yes"]);
    assert_eq!(receive(&client, &answer, 100).unwrap(), b"yes");
    wire.clear();
    for _ in 0..100 {
        update(&mut wire);
    }
    let error = receive(&server, &wire, 100).unwrap_err();
    assert!(format!("{error:?}").contains("KeyUpdate"), "{error:?}");
}

#[test]
fn what_is_no_tls_is_refused_in_words() {
    let (_dir, server, client) = pair();
    for (bytes, word) in [
        (&b"IHAVEOPT\0\0\0\x03\0\0\0\0"[..], "no TLS"),
        (b"GET / HTTP/1.1\r\n\r\n", "no TLS"),
        (b"\x16\x03\x01\xff\xff\x01\0\xff\xff\x03\x03", "TLS failed"),
        (b"\x15\x03\x03\0\x02\x02\x28", "knows no version"),
    ] {
        for mut side in [
            Handshake::server(&server).unwrap(),
            Handshake::client(&client).unwrap(),
        ] {
            side.step().unwrap();
            side.take_output();
            pass(&mut bytes.to_vec(), &mut side, usize::MAX);
            let error = side.step().unwrap_err();
            assert!(error.to_string().contains(word), "{error} lacks {word}");
        }
    }
    // A message of 64 KiB that never ends takes no more memory than there is.
    let mut side = Handshake::server(&server).unwrap();
    let mut message = vec![1, 0, 0xff, 0xf0];
    message.resize(16 << 10, 0);
    let mut failed = None;
    for _ in 0..100 {
        let mut record = vec![0x16, 3, 3, 0x40, 0];
        record.extend(&message);
        while !record.is_empty() && failed.is_none() {
            pass(&mut record, &mut side, usize::MAX);
            failed = side.step().err();
        }
    }
    assert!(failed.is_some());
}

/// Who is refused, and what either side says.
#[test]
fn certificates_that_are_not_to_be_trusted_are_refused() {
    let ours = Authority::new("ours");
    let good_server = Wanted::server(&["localhost"]);
    let good_client = Wanted::client("alice");
    let other = Authority::new("ours");
    let check = |server_by: &Authority,
                 server: &Wanted,
                 client: Option<(&Authority, &Wanted)>,
                 name: &str,
                 words: [&str; 2]| {
        let (here, there) = (folder(), folder());
        ours.trusted_in(here.path());
        ours.trusted_in(there.path());
        server_by.certify(here.path(), server);
        if let Some((by, client)) = client {
            by.certify(there.path(), client);
        }
        ours.revoke(here.path(), &[66]).revoke(there.path(), &[66]);
        let server = Server::open(here.path(), true).unwrap();
        let client = Client::open(Some(there.path()), name).unwrap();
        let (server, client) = meet(&server, &client, usize::MAX);
        // Of the client's certificate a client hears when it reads first.
        let told = |side: &Result<Channel, Error>| {
            side.as_ref()
                .map_or_else(ToString::to_string, |_| "done".to_owned())
        };
        for (side, word) in [told(&server), told(&client)].iter().zip(words) {
            assert!(side.contains(word), "{side} lacks {word}");
        }
    };
    let client = Some((&ours, &good_client));
    check(&ours, &good_server, client, "localhost", ["done", "done"]);
    check(
        &other,
        &good_server,
        client,
        "localhost",
        ["does not accept", "not signed by"],
    );
    check(
        &ours,
        &good_server,
        client,
        "example.org",
        ["does not accept", "another host"],
    );
    check(
        &ours,
        &good_server,
        client,
        "127.0.0.1",
        ["does not accept", "another host"],
    );
    let revoked = good_server.clone().serial(66);
    check(
        &ours,
        &revoked,
        client,
        "localhost",
        ["does not accept", "revoked"],
    );
    check(
        &ours,
        &good_server,
        None,
        "localhost",
        ["no certificate", "done"],
    );
    let by_other = Some((&other, &good_client));
    check(
        &ours,
        &good_server,
        by_other,
        "localhost",
        ["not signed by", "done"],
    );
    let revoked = good_client.clone().serial(66);
    check(
        &ours,
        &good_server,
        Some((&ours, &revoked)),
        "localhost",
        ["revoked", "done"],
    );
}

#[test]
fn a_client_goes_by_its_alternative_names_first() {
    let (ours, dir) = (Authority::new("ours"), folder());
    ours.trusted_in(dir.path());
    ours.certify(dir.path(), &Wanted::server(&["localhost"]));
    for (wanted, names) in [
        (Wanted::client("alice"), &["alice"][..]),
        (Wanted::client("alice").named("10.0.0.1"), &["alice"]),
        (
            Wanted::client("alice").named("bob.example"),
            &["bob.example"],
        ),
        (
            Wanted::client("alice").named("spiffe://x/bob").named("b"),
            &["spiffe://x/bob", "b"],
        ),
    ] {
        ours.certify(dir.path(), &wanted);
        let server = Server::open(dir.path(), true).unwrap();
        let client = Client::open(Some(dir.path()), "localhost").unwrap();
        let (server, _) = meet(&server, &client, usize::MAX);
        assert_eq!(server.unwrap().peer().unwrap().names, names);
    }
}

#[test]
fn folders_that_are_of_no_use_are_refused_with_the_file() {
    let dir = folder();
    let at = |name: &str| dir.path().join(name);
    let refused = |word: &str, kind: ErrorKind| {
        let error = Server::open(dir.path(), true).unwrap_err();
        assert!(error.to_string().contains(word), "{error} lacks {word}");
        assert_eq!(error.kind, kind, "{error}");
        error
    };
    refused("server-cert.pem: it cannot be read", ErrorKind::File);
    let ours = Authority::new("ours");
    ours.certify(dir.path(), &Wanted::server(&["localhost"]));
    refused("ca-cert.pem: it cannot be read", ErrorKind::File);
    assert!(Server::open(dir.path(), false).is_ok());
    ours.trusted_in(dir.path());
    assert!(Server::open(dir.path(), true).is_ok());
    fs::write(at("ca-crl.pem"), "nothing").unwrap();
    refused("ca-crl.pem: it has no revocation list", ErrorKind::Unusable);
    fs::remove_file(at("ca-crl.pem")).unwrap();
    let key = fs::read_to_string(at("server-key.pem")).unwrap();
    let line = key.lines().nth(1).unwrap();
    for text in [
        "",
        "nothing",
        &key.replace("PRIVATE", "ENCRYPTED PRIVATE"),
        &key.replace(line, "!"),
    ] {
        fs::write(at("server-key.pem"), text).unwrap();
        let error = refused("server-key.pem", ErrorKind::Unusable);
        // No line of a key in any text.
        assert!(!format!("{error:?}").contains(&line[..20]));
    }
    let elsewhere = folder();
    ours.certify(elsewhere.path(), &Wanted::server(&["localhost"]));
    fs::copy(
        elsewhere.path().join("server-key.pem"),
        at("server-key.pem"),
    )
    .unwrap();
    refused("cannot be used together", ErrorKind::Unusable);
    for (wanted, word) in [
        (Wanted::server(&["h"]).expired(), "expired"),
        (Wanted::server(&["h"]).not_yet(), "not valid yet"),
    ] {
        ours.certify(dir.path(), &wanted);
        refused(word, ErrorKind::Unusable);
    }
    fs::write(at("server-cert.pem"), vec![b'x'; (1 << 20) + 1]).unwrap();
    refused("longer than 1 MiB", ErrorKind::Unusable);
    let error = Client::open(Some(Path::new("/nowhere")), "localhost").unwrap_err();
    assert_eq!(
        error.place.as_deref(),
        Some(Path::new("/nowhere/ca-cert.pem"))
    );
    let error = Client::open(Some(dir.path()), "a b").unwrap_err();
    assert_eq!(error.kind, ErrorKind::Name);
}
