//! Servers that lie: the connection is cut, and after three lies requests fail and say so.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod common;

use std::collections::HashSet;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use common::{handshake, uri};
use xtent_nbd::constants::*;
use xtent_nbd::{Head, NbdError, Request, no_data_reply, offset_data, simple_reply};
use xtent_store::{Access, AlignedBuffer, ErrorKind, Operation, Store, block_on, chain};
use xtent_upstream::{Options, Upstream};

/// A server that answers each request with what `answer` makes of it.
struct Liar {
    directory: tempfile::TempDir,
    connections: Arc<AtomicUsize>,
}

impl Liar {
    fn new(
        greet: impl Fn(&UnixStream) -> Option<()> + Send + 'static,
        answer: impl Fn(&Request) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("s")).unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        let answer = Arc::new(answer);
        // It ends with the process.
        std::thread::spawn(move || {
            for mut client in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::SeqCst);
                if greet(&client).is_none() {
                    continue;
                }
                let answer = Arc::clone(&answer);
                std::thread::spawn(move || {
                    while let Some(request) = next(&client) {
                        if client.write_all(&answer(&request)).is_err() {
                            break;
                        }
                    }
                });
            }
        });
        Self {
            directory,
            connections,
        }
    }

    fn open(&self) -> Upstream {
        self.open_with(Options {
            connections: 1,
            ..Options::default()
        })
    }

    fn open_with(&self, options: Options) -> Upstream {
        let uri = uri(&self.directory.path().join("s"));
        Upstream::open(&uri, Access::ReadWrite, options).unwrap()
    }
}

/// The next request in either layout; its payload is dropped.
fn next(mut client: &UnixStream) -> Option<Request> {
    let mut header = [0; 32];
    client.read_exact(&mut header[..28]).ok()?;
    if header[..4] == EXTENDED_REQUEST_MAGIC.to_be_bytes() {
        client.read_exact(&mut header[28..]).ok()?;
        assert_eq!(header[24..28], [0; 4]);
        header.copy_within(28..32, 24);
        header[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        header[5] &= !0x20;
    }
    let request = Request::parse(header[..28].try_into().unwrap()).unwrap();
    client
        .read_exact(&mut vec![0; request.payload_len()])
        .ok()?;
    (request.kind != CMD_DISC).then_some(request)
}

fn greet(client: &UnixStream) -> Option<()> {
    handshake(client, 512)
}

/// A data chunk with its data.
fn data(cookie: u64, offset: u64, len: u32, last: bool) -> Vec<u8> {
    let head = offset_data(cookie, offset, len, last);
    [head.as_bytes(), &vec![7; len as usize]].concat()
}

fn bytes(head: Head) -> Vec<u8> {
    head.as_bytes().to_vec()
}

type Answer = fn(&Request) -> Vec<u8>;

/// Every lie, with a word of what is said about it.
const LIES: [(&str, Answer); 10] = [
    ("not asked", |r| {
        data(r.cookie + 1, r.offset, r.length, true)
    }),
    ("in part", |r| data(r.cookie, r.offset, r.length - 1, true)),
    ("outside", |r| data(r.cookie, r.offset, r.length + 1, true)),
    ("twice", |r| {
        let half = r.length / 2;
        [
            data(r.cookie, r.offset, half, false),
            data(r.cookie, r.offset, r.length, true),
        ]
        .concat()
    }),
    ("errors without end", |r| {
        bytes(xtent_nbd::error_at(
            r.cookie,
            NbdError::Io,
            r.offset,
            "again",
            false,
        ))
        .repeat(5000)
    }),
    ("simple reply", |r| bytes(simple_reply(r.cookie, None))),
    ("does not begin as one", |_| vec![0; 64]),
    ("impossible length", |r| {
        let mut head = bytes(xtent_nbd::error_chunk(r.cookie, NbdError::Io, ""));
        head[16..20].copy_from_slice(&u32::MAX.to_be_bytes());
        head
    }),
    ("without data", |r| {
        let mut head = bytes(offset_data(r.cookie, r.offset, 1, true));
        head[16..20].copy_from_slice(&8_u32.to_be_bytes());
        head
    }),
    ("no bytes", |r| {
        let mut head = bytes(offset_data(r.cookie, r.offset, 4, true));
        head[7] = 2;
        [&head[..], &[0; 4]].concat()
    }),
];

#[test]
fn lies_in_answers_to_reads_end_the_connection() {
    std::thread::scope(|scope| {
        for (word, answer) in LIES {
            scope.spawn(move || {
                let liar = Liar::new(greet, move |request| match request.kind {
                    CMD_READ => answer(request),
                    _ => bytes(no_data_reply(request.cookie)),
                });
                let upstream = liar.open();
                let error = upstream.read_at(&mut [0; 4096], 8192).unwrap_err();
                assert_eq!(error.kind, ErrorKind::Io);
                let text = chain(&error).to_string();
                assert!(
                    text.contains("broke the protocol") && text.contains(word),
                    "{text}: {word}"
                );
                assert_eq!(liar.connections.load(Ordering::SeqCst), 3, "{word}");
            });
        }
    });
}

/// Each in its turn is told from the others by a good answer between them.
#[test]
fn one_request_that_is_lied_about_does_not_go_on_for_ever() {
    let liar = Liar::new(greet, |request| match (request.kind, request.offset) {
        (CMD_READ, 0) => [
            data(request.cookie, 0, 512, false),
            data(request.cookie, 0, 512, true),
        ]
        .concat(),
        (CMD_READ, offset) => data(request.cookie, offset, request.length, true),
        _ => bytes(no_data_reply(request.cookie)),
    });
    let upstream = liar.open();
    std::thread::scope(|scope| {
        let others = scope.spawn(|| {
            for n in 0..200 {
                let _ = upstream.read_at(&mut [0; 512], 512 * (1 + n % 8));
            }
        });
        assert!(upstream.read_at(&mut [0; 512], 0).is_err());
        others.join().unwrap();
    });
}

/// Others that are answered in between prolong nothing.
#[test]
fn a_request_that_is_never_answered_fails_after_some_lost_connections() {
    let is_writing = AtomicBool::new(false);
    let liar = Liar::new(greet, move |request| match request.kind {
        CMD_WRITE => {
            is_writing.store(true, Ordering::SeqCst);
            Vec::new()
        }
        CMD_READ => {
            let right = data(request.cookie, request.offset, request.length, true);
            match is_writing.load(Ordering::SeqCst) {
                true => [right, vec![0; 64]].concat(),
                false => right,
            }
        }
        _ => bytes(no_data_reply(request.cookie)),
    });
    let upstream = liar.open_with(Options {
        connections: 1,
        reconnect: common::SHORT,
        ..Options::default()
    });
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                let _ = upstream.read_at(&mut [0; 512], 4096);
            }
        });
        let error = upstream.write_at(&[1; 512], 0).unwrap_err();
        is_over.store(true, Ordering::SeqCst);
        assert_eq!(error.kind, ErrorKind::Io);
    });
}

/// Whether the server is the same is asked by a flush, for which no thread must be missing.
#[test]
fn a_flush_without_an_answer_stops_no_thread() {
    let liar = Liar::new(greet, |request| match request.kind {
        CMD_FLUSH => Vec::new(),
        _ => bytes(no_data_reply(request.cookie)),
    });
    let upstream = liar.open_with(Options::default());
    while liar.connections.load(Ordering::SeqCst) < 4 {
        std::thread::yield_now();
    }
    assert_eq!(upstream.in_each_thread(|| ()).len(), 4);
    upstream.write_at(&[1; 512], 0).unwrap();
}

/// Wherever in its handshake a server falls silent, the threads that wait for it do what they are given.
#[test]
fn a_silent_handshake_stops_no_thread() {
    let greeted = AtomicBool::new(false);
    let held = Mutex::new(Vec::new());
    let silent = move |client: &UnixStream| {
        if !greeted.swap(true, Ordering::SeqCst) {
            return greet(client);
        }
        let mut held = held.lock().unwrap();
        let mut stream = client.try_clone().unwrap();
        // Nothing, a part of the greeting, and all of it without an answer to what comes next.
        let said: &[u8] = match held.len() % 3 {
            0 => &[],
            1 => b"NBDMAGIC",
            _ => b"NBDMAGICIHAVEOPT\0\x03",
        };
        stream.write_all(said).unwrap();
        held.push(stream);
        None
    };
    let liar = Liar::new(silent, |request| bytes(no_data_reply(request.cookie)));
    let upstream = liar.open_with(Options::default());
    while liar.connections.load(Ordering::SeqCst) < 4 {
        std::thread::yield_now();
    }
    assert_eq!(upstream.in_each_thread(|| ()).len(), 4);
    upstream.write_at(&[1; 512], 0).unwrap();
}

#[test]
fn writes_have_no_data_and_one_answer() {
    std::thread::scope(|scope| {
        for (word, answer) in [
            (
                "no read",
                (|r| data(r.cookie, r.offset, r.length, true)) as Answer,
            ),
            ("not the last", |r| {
                let mut head = bytes(no_data_reply(r.cookie));
                head[5] = 0;
                head
            }),
            ("unknown type", |r| {
                let mut head = bytes(no_data_reply(r.cookie));
                head[7] = 5;
                head
            }),
        ] {
            scope.spawn(move || {
                let liar = Liar::new(greet, answer);
                let error = liar.open().write_at(&[1; 4096], 0).unwrap_err();
                let error = chain(&error).to_string();
                assert!(error.contains(word), "{error}");
            });
        }
        scope.spawn(|| {
            let liar = Liar::new(greet, |r| bytes(no_data_reply(r.cookie)).repeat(2));
            let upstream = liar.open();
            // The first answer is as good as any. What it acknowledged is written again on the
            // next connection, with two answers again.
            let error = (0..10_000).find_map(|_| upstream.write_at(&[1; 512], 0).err());
            let error = chain(&error.unwrap()).to_string();
            assert!(error.contains("not asked"), "{error}");
        });
    });
}

/// A server of extended headers, which says the right thing in chunks out of order.
#[test]
fn extended_headers_are_spoken() {
    fn greet_extended(mut client: &UnixStream) -> Option<()> {
        client.write_all(b"NBDMAGICIHAVEOPT\0\x03").ok()?;
        client.read_exact(&mut [0; 4]).ok()?;
        loop {
            let mut head = [0; 16];
            client.read_exact(&mut head).ok()?;
            let mut len = [0; 4];
            len.copy_from_slice(&head[12..]);
            client
                .read_exact(&mut vec![0; u32::from_be_bytes(len) as usize])
                .ok()?;
            let rep = |kind: u32, data: &[u8]| {
                let len = u32::try_from(data.len()).unwrap();
                [
                    &OPTION_REPLY_MAGIC.to_be_bytes()[..],
                    &head[8..12],
                    &kind.to_be_bytes(),
                    &len.to_be_bytes(),
                    data,
                ]
                .concat()
            };
            let info = [&[0, 0][..], &(1_u64 << 20).to_be_bytes(), &[0, 0x0d]].concat();
            match head[11] {
                7 => {
                    client
                        .write_all(&[rep(REP_INFO, &info), rep(REP_ACK, &[])].concat())
                        .ok()?;
                    return Some(());
                }
                11 => client.write_all(&rep(REP_ACK, &[])).ok()?,
                _ => return None,
            }
        }
    }
    fn chunk(request: &Request, done: u16, kind: u16, payload: &[u8]) -> Vec<u8> {
        [
            &EXTENDED_REPLY_MAGIC.to_be_bytes()[..],
            &done.to_be_bytes(),
            &kind.to_be_bytes(),
            &request.cookie.to_be_bytes(),
            &request.offset.to_be_bytes(),
            &(payload.len() as u64).to_be_bytes(),
            payload,
        ]
        .concat()
    }
    let server = Liar::new(greet_extended, |request| match request.kind {
        CMD_READ => {
            let (offset, half) = (request.offset, request.length / 2);
            let second = [
                &(offset + u64::from(half)).to_be_bytes()[..],
                &vec![9; half as usize],
            ]
            .concat();
            let hole = [&offset.to_be_bytes()[..], &half.to_be_bytes()].concat();
            [
                chunk(request, 0, 1, &second),
                chunk(request, 0, 2, &hole),
                chunk(request, 1, 0, &[]),
            ]
            .concat()
        }
        _ => chunk(request, 1, 0, &[]),
    });
    let upstream = server.open();
    let mut data = [1; 8192];
    upstream.read_at(&mut data, 4096).unwrap();
    assert!(data[..4096] == [0; 4096] && data[4096..] == [9; 4096]);
    upstream.write_at(&data, 0).unwrap();
    upstream.write_at_durably(&data, 512).unwrap();
    upstream.flush().unwrap();
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
}

/// Handshakes that hang or lie are no connection.
#[test]
fn what_is_no_server_is_not_opened() {
    let directory = tempfile::tempdir().unwrap();
    for (n, greeting) in [
        &b"SSH-2.0-OpenSSH_9.2p1\r\n"[..],
        b"NBDMAGIC",
        b"NBDMAGICIHAVEOPT\0\x03xxxxxxxxxxxxxxxxxxxx",
        b"",
    ]
    .into_iter()
    .enumerate()
    {
        let path = directory.path().join(n.to_string());
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            client.write_all(greeting).unwrap();
            client.shutdown(std::net::Shutdown::Write).unwrap();
            let _ = client.read_to_end(&mut Vec::new());
        });
        let error = Upstream::open(&uri(&path), Access::ReadOnly, Options::default()).unwrap_err();
        let text = chain(&error).to_string();
        let words = [
            "no NBD server",
            "closed the connection",
            "something else",
            "closed the connection",
        ];
        assert!(text.contains(words[n]), "{text}");
        server.join().unwrap();
    }
    // Accepted by the system, and never heard of again.
    let path = directory.path().join("silent");
    let _listener = UnixListener::bind(&path).unwrap();
    let options = Options {
        reconnect: common::SHORT,
        ..Options::default()
    };
    let error = Upstream::open(&uri(&path), Access::ReadOnly, options).unwrap_err();
    assert!(
        chain(&error).to_string().contains("timed out"),
        "{}",
        chain(&error)
    );
}

/// As many connections as three lies and one more.
const ALL: usize = 4;

/// What is wrong with all connections at once, such as a proxy, is wrong once.
#[test]
fn lies_on_all_connections_at_once_are_one() {
    let liars = Arc::new((Mutex::new(HashSet::new()), Condvar::new()));
    let flushes = Arc::new(AtomicUsize::new(0));
    let answer = {
        let (liars, flushes) = (Arc::clone(&liars), Arc::clone(&flushes));
        move |request: &Request| {
            let told = no_data_reply(request.cookie);
            if request.kind == CMD_FLUSH {
                flushes.fetch_add(1, Ordering::SeqCst);
                return bytes(told);
            }
            let (threads, changed) = &*liars;
            let mut threads = threads.lock().unwrap();
            if threads.len() == ALL {
                return data(request.cookie, request.offset, request.length, true);
            }
            // Each client has a thread. None lies before all can.
            threads.insert(std::thread::current().id());
            changed.notify_all();
            drop(changed.wait_while(threads, |it| it.len() < ALL).unwrap());
            data(request.cookie + 1, request.offset, request.length, true)
        }
    };
    let liar = Liar::new(greet, answer);
    let upstream = liar.open_with(Options {
        connections: ALL,
        ..Options::default()
    });
    // Each further one comes with a flush.
    while flushes.load(Ordering::SeqCst) < ALL - 1 {
        std::thread::yield_now();
    }
    let mut reads = Vec::new();
    while liars.0.lock().unwrap().len() < ALL {
        let buffer = AlignedBuffer::zeroed(512).unwrap().into();
        reads.push(upstream.submit(Operation::Read { buffer, offset: 0 }));
        std::thread::yield_now();
    }
    for read in reads {
        block_on(read).result.unwrap();
    }
}
