//! Against servers that others wrote.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod common;

use std::io::Write;
use std::time::Duration;

use common::Program;
use xtent_store::{Access, AlignedBuffer, ErrorKind, Operation, Store, block_on, chain};
use xtent_upstream::{Options, Upstream};

fn nbdkit(args: &[&str]) -> Program {
    Program::start(
        "nbdkit",
        &[&["-f", "--exit-with-parent"], args].concat(),
        "-U",
    )
}

fn open(server: &Program) -> Upstream {
    Upstream::open(&server.uri(), Access::ReadWrite, Options::default()).unwrap()
}

/// Bytes that are different everywhere.
fn pattern(offset: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|n| u8::try_from((offset + n).wrapping_mul(0x9e37_79b9) >> 13 & 0xff).unwrap())
        .collect()
}

fn write_operation(offset: u64, len: usize, durably: bool) -> Operation {
    let mut buffer = AlignedBuffer::zeroed(len).unwrap();
    buffer.copy_from_slice(&pattern(offset, len));
    Operation::Write {
        buffer: buffer.into(),
        offset,
        durably,
    }
}

/// Writes and reads all of the first `size` bytes with everything under way at once, and of
/// all sizes.
fn exercise(upstream: &Upstream, size: u64) {
    let block = upstream.limits().block.max(512) as usize;
    let mut submitted = Vec::new();
    let mut offset = 0;
    for n in 0.. {
        let len = block * (1 + n * 7 % 61);
        let len = len.min(usize::try_from(size - offset).unwrap());
        if len == 0 {
            break;
        }
        submitted.push((
            offset,
            len,
            upstream.submit(write_operation(offset, len, n % 5 == 0)),
        ));
        offset += len as u64;
    }
    assert!(submitted.len() > 300);
    let ranges: Vec<_> = submitted
        .into_iter()
        .map(|(offset, len, submitted)| {
            let completed = block_on(submitted);
            completed.result.unwrap();
            assert_eq!(completed.buffer.unwrap()[..], pattern(offset, len));
            (offset, len)
        })
        .collect();
    block_on(upstream.submit(Operation::Flush)).result.unwrap();
    let reads: Vec<_> = ranges
        .into_iter()
        .map(|(offset, len)| {
            let buffer = AlignedBuffer::zeroed(len).unwrap().into();
            (
                offset,
                len,
                upstream.submit(Operation::Read { buffer, offset }),
            )
        })
        .collect();
    for (offset, len, submitted) in reads {
        let completed = block_on(submitted);
        completed.result.unwrap();
        assert!(
            completed.buffer.unwrap()[..] == pattern(offset, len),
            "at {offset}"
        );
    }
}

/// Ranges of any alignment, by the calls that wait.
fn exercise_borrowed(upstream: &Upstream) {
    let mut model = vec![0; 64 << 10];
    upstream.read_at(&mut model, 0).unwrap();
    for (offset, len) in [
        (0, 1),
        (511, 2),
        (4095, 4098),
        (5000, 0),
        (100, 9000),
        (8192, 4096),
        (12345, 1),
    ] {
        let data: Vec<u8> = pattern(offset ^ 77, len);
        upstream.write_at(&data, offset).unwrap();
        let start = usize::try_from(offset).unwrap();
        model[start..start + len].copy_from_slice(&data);
        let mut part = vec![0; len + 5];
        upstream.read_at(&mut part, offset).unwrap();
        assert_eq!(part, model[start..start + len + 5]);
    }
    upstream.write_at_durably(&[1; 700], 20_000).unwrap();
    model[20_000..20_700].fill(1);
    let mut all = vec![0; model.len()];
    upstream.read_at(&mut all, 0).unwrap();
    assert!(all == model);
    upstream.flush().unwrap();
    let size = upstream.size();
    for (offset, len) in [(size, 1), (u64::MAX, 2), (size - 1, 2)] {
        let error = upstream.read_at(&mut vec![0; len], offset).unwrap_err();
        assert_eq!(error.kind, ErrorKind::OutOfRange);
        let error = upstream.write_at(&vec![0; len], offset).unwrap_err();
        assert_eq!(error.kind, ErrorKind::OutOfRange);
    }
}

#[test]
fn nbdkit_in_every_form() {
    for args in [
        &["memory", "size=16M"][..],
        &["--no-sr", "memory", "size=16M"],
        &["--mask-handshake=1", "memory", "size=16M"],
        &[
            "--filter=multi-conn",
            "memory",
            "size=16M",
            "multi-conn-mode=disable",
        ],
        &[
            "--filter=multi-conn",
            "memory",
            "size=16M",
            "multi-conn-mode=unsafe",
        ],
        &["--filter=fua", "memory", "size=16M"],
        &["--filter=fua", "memory", "size=16M", "fuamode=force"],
        &[
            "--filter=delay",
            "memory",
            "size=16M",
            "rdelay=1ms",
            "wdelay=1ms",
        ],
    ] {
        let server = nbdkit(args);
        let upstream = open(&server);
        assert_eq!(upstream.size(), 16 << 20, "{args:?}");
        assert_eq!(upstream.limits().block, 512);
        exercise(&upstream, 8 << 20);
        exercise_borrowed(&upstream);
        upstream.discard(1000, 1 << 20).unwrap();
    }
}

#[test]
fn what_is_larger_than_the_server_takes_is_split() {
    let server = nbdkit(&["memory", "size=100M"]);
    let upstream = open(&server);
    let len = 80 << 20;
    let completed = block_on(upstream.submit(write_operation(512, len, false)));
    completed.result.unwrap();
    let buffer = completed.buffer.unwrap();
    let read = Operation::Read {
        buffer: AlignedBuffer::zeroed(len).unwrap().into(),
        offset: 512,
    };
    let completed = block_on(upstream.submit(read));
    completed.result.unwrap();
    assert!(completed.buffer.unwrap()[..] == buffer[..]);
}

#[test]
fn the_servers_block_sizes_are_kept() {
    let server = nbdkit(&[
        "--filter=blocksize-policy",
        "memory",
        "size=4M",
        "blocksize-minimum=4096",
        "blocksize-preferred=64k",
        "blocksize-maximum=128k",
        "blocksize-error-policy=error",
    ]);
    let upstream = open(&server);
    let limits = upstream.limits();
    assert_eq!(
        (limits.block, limits.discard, limits.atomic),
        (4096, 65536, 4096)
    );
    exercise_borrowed(&upstream);
    let completed = block_on(upstream.submit(write_operation(4096, 1 << 20, false)));
    completed.result.unwrap();
    let odd = block_on(upstream.submit(write_operation(512, 512, false)));
    assert_eq!(odd.result.unwrap_err().kind, ErrorKind::Unsupported);
    assert!(odd.buffer.is_some());
}

#[test]
fn errors_of_the_server_are_told() {
    let server = nbdkit(&[
        "--filter=error",
        "memory",
        "size=1M",
        "error=ENOSPC",
        "error-pwrite-rate=100%",
    ]);
    let upstream = open(&server);
    let error = upstream.write_at(&[0; 512], 4096).unwrap_err();
    assert_eq!((error.kind, error.offset), (ErrorKind::NoSpace, Some(4096)));
    let text = chain(&error).to_string();
    for part in [
        "write of nbd+unix:///?socket=",
        "at byte 4096",
        "the server answered ENOSPC",
    ] {
        assert!(text.contains(part), "{text}");
    }
    upstream.read_at(&mut [0; 512], 4096).unwrap();
    upstream.flush().unwrap();

    let once = tempfile::NamedTempFile::new().unwrap();
    let file = format!("error-pread-file={}", once.path().display());
    let server = nbdkit(&[
        "--filter=error",
        "memory",
        "size=1M",
        "error-pread=EPERM",
        "error-pread-rate=1",
        &file,
    ]);
    let upstream = open(&server);
    let error = upstream.read_at(&mut [0; 512], 0).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Permission);
    drop(once);
    upstream.read_at(&mut [0; 512], 0).unwrap();
}

#[test]
fn what_cannot_be_opened_says_why() {
    let server = nbdkit(&["-r", "memory", "size=1000"]);
    let error = Upstream::open(&server.uri(), Access::ReadWrite, Options::default()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::ReadOnly);
    let upstream = Upstream::open(&server.uri(), Access::ReadOnly, Options::default()).unwrap();
    assert_eq!(
        (upstream.size(), upstream.is_read_only()),
        (512, true),
        "the last part is left out"
    );
    assert_eq!(
        upstream.write_at(&[0], 0).unwrap_err().kind,
        ErrorKind::ReadOnly
    );
    assert_eq!(
        upstream.discard(0, 512).unwrap_err().kind,
        ErrorKind::ReadOnly
    );
    upstream.flush().unwrap();
    upstream.read_at(&mut [0; 512], 0).unwrap();

    let gone = "nbd+unix:///?socket=/nonexistent/socket".parse().unwrap();
    let error = Upstream::open(&gone, Access::ReadOnly, Options::default()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotFound);
}

#[test]
fn goodbye_is_said() {
    let mut server = nbdkit(&["--filter=exitlast", "memory", "size=1M"]);
    let upstream = open(&server);
    upstream.write_at(&[1; 4096], 0).unwrap();
    drop(upstream);
    server.wait();
}

#[test]
fn tcp_works_by_name_and_address() {
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let mut server = std::process::Command::new("nbdkit")
        .args([
            "-f",
            "--exit-with-parent",
            "-i",
            "127.0.0.1",
            "-p",
            &port.to_string(),
            "memory",
            "size=16M",
        ])
        .spawn()
        .unwrap();
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        std::thread::yield_now();
    }
    for host in ["127.0.0.1", "localhost"] {
        let uri = format!("nbd://{host}:{port}/any").parse().unwrap();
        let upstream = Upstream::open(&uri, Access::ReadWrite, Options::default()).unwrap();
        exercise(&upstream, 8 << 20);
    }
    server.kill().unwrap();
    server.wait().unwrap();
    let uri = format!("nbd://127.0.0.1:{port}").parse().unwrap();
    let error = Upstream::open(&uri, Access::ReadOnly, Options::default()).unwrap_err();
    assert!(
        chain(&error).to_string().contains("refused"),
        "{}",
        chain(&error)
    );
}

#[test]
fn qemu_is_understood_and_may_be_restarted() {
    let mut image = tempfile::NamedTempFile::new().unwrap();
    image.write_all(&vec![0; 16 << 20]).unwrap();
    let path = image.path().to_str().unwrap();
    let args = [
        "-t",
        "-f",
        "raw",
        "--shared=0",
        "-x",
        "disk",
        "--discard=unmap",
        path,
    ];
    let mut server = Program::start("qemu-nbd", &args, "-k");
    let error = Upstream::open(&server.uri(), Access::ReadWrite, Options::default()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotFound, "{error}");

    let uri = format!("nbd+unix:///disk?socket={}", server.socket().display());
    let options = Options {
        reconnect: Duration::from_secs(60),
        ..Options::default()
    };
    let upstream = Upstream::open(&uri.parse().unwrap(), Access::ReadWrite, options).unwrap();
    exercise(&upstream, 8 << 20);
    exercise_borrowed(&upstream);
    upstream.discard(0, 4096).unwrap();
    for _ in 0..2 {
        let submitted = upstream.submit(write_operation(1 << 20, 1 << 20, false));
        server.restart("qemu-nbd", &args, "-k");
        block_on(submitted).result.unwrap();
        upstream.flush().unwrap();
        let mut data = vec![0; 1 << 20];
        upstream.read_at(&mut data, 1 << 20).unwrap();
        assert!(data == pattern(1 << 20, 1 << 20));
    }
}

#[test]
fn each_thread_does_what_it_is_given() {
    let server = nbdkit(&["memory", "1M"]);
    let upstream = open(&server);
    let names = || {
        let name = || std::thread::current().name().map(str::to_owned);
        let mut names = upstream.in_each_thread(name);
        names.sort();
        names
    };
    let all = ["upstream 0", "upstream 1", "upstream 2", "upstream 3"];
    assert_eq!(names(), all.map(|name| Some(name.to_owned())));
    upstream.write_at(&[1; 512], 0).unwrap();
    // One that has lost its connection does it as well.
    drop(server);
    assert_eq!(names().len(), all.len());
}
