//! Metrics: what a server counts of what real clients ask of it, and who may read them.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;

use xtent_tests::gateway::Gateway;
use xtent_tests::luks::{Container, KEY, Maker, Shape};
use xtent_tests::nbd::nbdsh;
use xtent_tests::xtent::xtent;
use xtent_tests::{Cmd, Scratch, bed};

const SIZE: u64 = 4 << 20;

fn container(scratch: &Scratch, name: &str) -> Container {
    let image = scratch.image(name, Shape::LUKS2.data_offset() + SIZE);
    let key = scratch.file("key", KEY);
    Cmd::new("/bin/chmod").args(["600"]).arg(&key).ok();
    Shape::LUKS2.format(Maker::Cryptsetup, &image, &key);
    Container { image, key }
}

/// The answer to a request of a scraper, head and body.
fn ask(mut socket: impl Read + Write, request: &str) -> (String, String) {
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

fn scrape(socket: &Path) -> String {
    let request = "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n";
    let (head, body) = ask(UnixStream::connect(socket).unwrap(), request);
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    body
}

/// The value of a line of a page.
fn value(page: &str, series: &str) -> f64 {
    let line = page.lines().find_map(|line| line.strip_prefix(series));
    let line = line.unwrap_or_else(|| panic!("{series} is not in\n{page}"));
    line.trim().parse().unwrap()
}

#[test]
fn what_clients_ask_for_is_counted_by_export() {
    let scratch = Scratch::new();
    let (a, b) = (container(&scratch, "a.img"), container(&scratch, "b.img"));
    let socket = scratch.join("metrics.sock");
    let listen = format!("unix:{}", socket.display());
    let gateway = Gateway::start(&[&a, &b], &["--metrics", &listen]);
    nbdsh(
        &gateway.uri("a.img"),
        "h.pwrite(b'x' * 1048576, 0); h.flush(); h.pread(1048576, 0)\n\
         for i in range(100): h.pread(4096, i * 4096)\n\
         h.shutdown()",
    );
    // The last client has gone when the server says so.
    let page = loop {
        let page = scrape(&socket);
        if value(&page, "xtent_connections{export=\"a.img\"}") == 0.0 {
            break page;
        }
        std::thread::yield_now();
    };
    let count = |operation: &str| {
        let labels = format!("{{export=\"a.img\",operation=\"{operation}\"}}");
        let count = value(
            &page,
            &format!("xtent_request_duration_seconds_count{labels}"),
        );
        (
            count,
            value(&page, &format!("xtent_request_bytes_total{labels}")),
        )
    };
    assert_eq!(count("write"), (1.0, 1_048_576.0));
    assert_eq!(count("read"), (101.0, 1_048_576.0 + 409_600.0));
    assert_eq!(count("flush"), (1.0, 0.0));
    let other = "xtent_request_bytes_total{export=\"b.img\",operation=\"read\"}";
    assert_eq!(value(&page, other), 0.0);
    // At least what was written and read went through the cipher, in sectors of 512 bytes.
    let sectors = value(&page, "xtent_cipher_run_sectors_sum{export=\"a.img\"}");
    assert!(sectors >= 4896.0, "{sectors}");
    assert_eq!(
        value(&page, "xtent_volume_bytes{export=\"b.img\"}"),
        4_194_304.0
    );

    // The same as JSON.
    let status = gateway.status();
    let of_a = status.iter().find(|it| it["export"] == "a.img").unwrap();
    let requests = &of_a["metrics"]["requests"];
    assert_eq!(requests["read"]["count"], 101);
    assert_eq!(requests["write"]["bytes"], 1_048_576);
    assert_eq!(of_a["metrics"]["run_sectors"]["sum"], sectors);

    // Whatever else is asked for is not there, and harms nothing.
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", "404"),
        ("DELETE /metrics HTTP/1.1\r\n\r\n", "405"),
        ("\0\0\0\r\n\r\n", "400"),
    ] {
        let (head, _) = ask(UnixStream::connect(&socket).unwrap(), request);
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
    }
    drop(UnixStream::connect(&socket).unwrap());
    scrape(&socket);
    gateway.detach("a.img").ok();
    assert!(!scrape(&socket).contains("a.img"));
    gateway.stop();
    assert!(!socket.exists());
}

#[test]
fn the_dashboard_asks_for_what_there_is() {
    let scratch = Scratch::new();
    let socket = scratch.join("metrics.sock");
    let listen = format!("unix:{}", socket.display());
    let container = container(&scratch, "a.img");
    let gateway = Gateway::start(&[&container], &["--metrics", &listen]);
    let page = scrape(&socket);
    let board = bed::root_folder().join("packaging/grafana/xtent.json");
    let board: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(board).unwrap()).unwrap();
    let mut names = 0;
    for panel in board["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            for name in words.filter(|word| word.starts_with("xtent_")) {
                let is_there = page.lines().any(|line| {
                    let rest = line.strip_prefix(name);
                    rest.is_some_and(|rest| rest.starts_with('{'))
                });
                assert!(is_there, "{name} is not in\n{page}");
                names += 1;
            }
        }
    }
    assert!(names > 8, "{names}");
    gateway.stop();
}

#[test]
fn metrics_are_for_this_machine_unless_told() {
    let scratch = Scratch::new();
    let container = container(&scratch, "a.img");
    let serve = |address: &str| {
        xtent()
            .args(["serve", "--metrics", address, "--key-file"])
            .arg(&container.key)
            .arg(&container.image)
    };
    let refused = serve("tcp:0.0.0.0:0").fails(1).stderr;
    assert!(refused.contains("--allow-remote"), "{refused}");
    // What does not help, and is not at stake.
    assert!(
        !refused.contains("--tls") && !refused.contains("NBD"),
        "{refused}"
    );
    let refused = serve("tcp:localhost").fails(1).stderr;
    assert!(refused.contains("PORT"), "{refused}");

    let socket = format!("unix:{}", scratch.join("nbd.sock").display());
    let mut server = serve("tcp:localhost:0")
        .args(["--json", "--nbd", &socket])
        .spawn();
    let line = server.wait_for_line(|line| line.contains("http://"));
    let address = line.split('/').nth(2).unwrap();
    let request = "HEAD /metrics HTTP/1.1\r\n\r\n";
    let (head, body) = ask(TcpStream::connect(address).unwrap(), request);
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert_eq!(body, "");
}
