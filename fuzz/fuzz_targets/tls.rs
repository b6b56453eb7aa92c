//! What a peer sends before it has been verified: records of the handshake, to either side, and a
//! certificate. Whatever comes must end, wait for more or be refused, in bounded memory.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use xtent_tls::testing::{Authority, Wanted};
use xtent_tls::{Client, Handshake, Next, Peer, Server};

/// Whether a server is spoken to, records as type and data, bytes that follow unframed, and how many come at
/// a time. The heads of records are put in here; a byte of 255 in place of the type stands for a record that
/// the other side made.
type Input<'a> = (bool, Vec<(u8, &'a [u8])>, &'a [u8], u16);

fn sides() -> &'static (Server, Client) {
    static SIDES: OnceLock<(Server, Client)> = OnceLock::new();
    SIDES.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("xtent-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Authority::new("fuzz")
            .trusted_in(&folder)
            .certify(&folder, &Wanted::server(&["localhost"]))
            .certify(&folder, &Wanted::client("alice"));
        let sides = (
            Server::open(&folder, true).unwrap(),
            Client::open(Some(&folder), "localhost").unwrap(),
        );
        std::fs::remove_dir_all(&folder).unwrap();
        sides
    })
}

fuzz_target!(|input: Input<'_>| {
    let (to_server, records, rest, at_a_time) = input;
    let peer = Peer::of(rest);
    assert!(peer.subject.chars().count() <= 200 && !peer.subject.contains(char::is_control));

    let (server, client) = sides();
    let mut server = Handshake::server(server).unwrap();
    let mut client = Handshake::client(client).unwrap();
    client.step().unwrap();
    let mut hello = client.take_output();
    let mut side = match to_server {
        true => server,
        false => {
            // To answer a client takes what a server makes of its hello.
            server.room()[..hello.len()].copy_from_slice(&hello);
            server.received(hello.len());
            server.step().unwrap();
            hello = server.take_output();
            client
        }
    };
    let mut bytes = Vec::new();
    for (kind, data) in records {
        if kind == 255 {
            bytes.extend(&hello);
            continue;
        }
        bytes.extend([20 + kind % 5, 3, 3]);
        bytes.extend(u16::try_from(data.len()).unwrap_or(u16::MAX).to_be_bytes());
        bytes.extend(data);
    }
    bytes.extend(rest);
    let mut left = &bytes[..];
    loop {
        let next = side.step();
        assert!(side.take_output().len() < 64 << 10);
        match next {
            Err(_) => return,
            // The client's server is a real one; the server has no client that knows the keys.
            Ok(Next::Done) => return assert!(!to_server),
            Ok(Next::Receive) if left.is_empty() => return,
            Ok(Next::Receive) => {}
        }
        let n = left
            .len()
            .min(usize::from(at_a_time) + 1)
            .min(side.room().len());
        assert!(n > 0);
        side.room()[..n].copy_from_slice(&left[..n]);
        side.received(n);
        left = &left[n..];
    }
});
