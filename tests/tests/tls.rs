//! NBD over TLS: this server with others' clients, others' servers behind it, and those who are refused.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use xtent_tests::far::Far;
use xtent_tests::luks::{Container, Maker, Shape};
use xtent_tests::nbd::{self, Raw, command, read_all, write_all};
use xtent_tests::scratch::assert_same;
use xtent_tests::tls::{Between, Certificates, RawTls, START_TLS, Tamper, with};
use xtent_tests::xtent::{Server, xtent};
use xtent_tests::{Cmd, Scratch, pattern};
use xtent_tls::testing::{Authority, Wanted};

const SIZE: usize = 4 << 20;

fn container(scratch: &Scratch) -> Container {
    Shape::LUKS2.image(Maker::Xtent, scratch, SIZE as u64)
}

/// With TLS, and with a log of who comes and goes.
fn serve(container: &Container, certificates: &Path, options: &[&str]) -> Server {
    let folder = certificates.display().to_string();
    let mut all = vec!["-v", "--tls-certificates", &folder];
    all.extend(options);
    Server::start_with(container, &all)
}

/// What the log says, once the server has ended.
fn log_of(server: Server) -> String {
    server.stop().stderr
}

/// Runs Python in `nbdsh`; libnbd wants to be told that the URI may name files.
fn nbdsh(uri: &str, script: &str) {
    let connect = format!("h.set_uri_allow_local_file(True); h.connect_uri({uri:?})");
    let command = Cmd::peer("nbdsh").args(["-c", "h.set_strict_mode(0)", "-c", &connect]);
    command.args(["-c", script]).ok();
}

/// `nbdinfo`, to fail.
fn refused_info(uri: &str) -> String {
    let done = Cmd::peer("nbdinfo").args(["--size", uri]).run();
    assert!(!done.status.success(), "{}", done.text());
    done.stderr
}

/// What QEMU's programs take for the server at a Unix socket.
fn qemu(program: &str, socket: &Path, certificates: &Path, args: &[&str]) -> Cmd {
    let credentials = format!(
        "tls-creds-x509,id=tls,endpoint=client,dir={}",
        certificates.display()
    );
    let image = format!(
        "driver=nbd,server.type=unix,server.path={},tls-creds=tls,tls-hostname=localhost",
        socket.display()
    );
    let (first, rest) = args.split_first().unwrap();
    let command = Cmd::peer(program);
    let command = match program {
        "qemu-img" => command.arg(first),
        _ => command.args(["-c", first]),
    };
    command
        .args(["--object", &credentials, "--image-opts", &image])
        .args(rest)
}

#[test]
fn others_clients_read_and_write() {
    let (scratch, certificates) = (Scratch::new(), Certificates::new());
    let container = container(&scratch);
    let alice = certificates.client("alice");
    let folder = certificates.server();
    let server = serve(&container, &folder, &["--tls-verify-peer"]);
    let uri = with(&server.uri, &alice);
    assert!(uri.starts_with("nbds+unix:///"), "{uri}");

    let data = pattern(SIZE, 1);
    write_all(&uri, &data);
    assert_same(&read_all(&uri), &data, "by nbdcopy");
    nbdsh(
        &uri,
        "assert h.get_tls_negotiated(); \
         h.pwrite(b'x' * 70001, 4095); h.flush(); \
         assert h.pread(70003, 4094)[1:-1] == b'x' * 70001",
    );
    let mut expected = data;
    expected[4095..4095 + 70001].fill(b'x');
    let target = scratch.join("copy");
    qemu(
        "qemu-img",
        &server.socket,
        &alice,
        &["convert", "-O", "raw"],
    )
    .arg(&target)
    .ok();
    assert_same(&std::fs::read(&target).unwrap(), &expected, "by qemu-img");
    qemu(
        "qemu-io",
        &server.socket,
        &alice,
        &["write -P 7 1048576 1M"],
    )
    .ok();
    qemu("qemu-io", &server.socket, &alice, &["read -P 7 1048576 1M"]).ok();
    expected[1 << 20..2 << 20].fill(7);
    assert_same(&read_all(&uri), &expected, "after qemu-io");
    let log = log_of(server);
    assert!(log.contains("CN=alice") && log.contains("TLS13_"), "{log}");
    assert_same(&container.decrypt(), &expected, "on the disk");
}

#[test]
fn without_certificates_of_clients_anybody_is_served_by_tcp_too() {
    let (scratch, certificates) = (Scratch::new(), Certificates::new());
    let container = container(&scratch);
    let nobody = certificates.empty("nobody");
    let mut server = xtent()
        .args(["serve", "--nbd", "tcp:127.0.0.1:0", "--tls-certificates"])
        .arg(certificates.server())
        .arg("--key-file")
        .args([&container.key, &container.image])
        .spawn();
    let uri = server.wait_for_line(|line| line.starts_with("nbds://127.0.0.1:"));
    let uri = with(&uri, &nobody);
    let size = Cmd::peer("nbdinfo").args(["--size", &uri]).ok().out();
    assert_eq!(size.trim(), SIZE.to_string());
    assert_eq!(read_all(&uri).len(), SIZE);
    server.signal(rustix::process::Signal::TERM);
    assert_eq!(server.finish().code(), Some(0));
}

#[test]
fn clients_that_are_not_to_be_trusted_get_nothing() {
    let (scratch, certificates) = (Scratch::new(), Certificates::new());
    let container = container(&scratch);
    let folder = certificates.server();
    certificates.authority.revoke(&folder, &[66]);
    let server = serve(&container, &folder, &["--tls-verify-peer"]);
    let other = Authority::new("tests");
    let stranger = certificates.empty("stranger");
    other.certify(&stranger, &Wanted::client("alice"));
    let wanted = |name: &str| Wanted::client(name);
    for client in [
        certificates.empty("nobody"),
        certificates.folder("late", &wanted("late").expired()),
        certificates.folder("early", &wanted("early").not_yet()),
        certificates.folder("revoked", &wanted("revoked").serial(66)),
        stranger,
    ] {
        let said = refused_info(&with(&server.uri, &client));
        assert!(!said.trim().is_empty());
        let image = qemu("qemu-img", &server.socket, &client, &["info"]).run();
        assert!(!image.status.success(), "{}", image.text());
    }
    // In the clear nothing is to be had at all.
    let plain = server.uri.replace("nbds", "nbd");
    refused_info(&plain);
    let mut raw = Raw::connect(&server.socket);
    raw.greet();
    raw.send(&nbd::go());
    assert_eq!(raw.receive(20)[12..16], [0x80, 0, 0, 5]);
    drop(raw);
    xtent()
        .args(["uuid", &plain])
        .fails(4)
        .says(&["wants TLS", "nbds+unix://"]);

    let alice = certificates.client("alice");
    nbdsh(
        &with(&server.uri, &alice),
        "assert len(h.pread(512, 0)) == 512",
    );
    let log = log_of(server);
    for word in [
        "no certificate",
        "expired",
        "not valid yet",
        "revoked",
        "not signed by",
    ] {
        assert!(log.contains(word), "the log lacks {word:?}: {log}");
    }
    assert_eq!(log.matches("requests=1 ").count(), 1, "{log}");
}

#[test]
fn an_export_is_there_for_the_clients_it_is_for() {
    let (scratch, certificates) = (Scratch::new(), Certificates::new());
    let container = container(&scratch);
    let options = [
        "--tls-verify-peer",
        "--export",
        "secret",
        "--tls-client",
        "alice",
    ];
    let more = ["--tls-client", "spiffe://example/bob"];
    let server = serve(
        &container,
        &certificates.server(),
        &[&options[..], &more].concat(),
    );
    let list = |client: &Path| {
        let uri = with(&server.uri.replace("/secret", "/"), client);
        Cmd::peer("nbdinfo").args(["--list", "--json", &uri]).run()
    };
    for client in [
        certificates.client("alice"),
        certificates.folder("bob", &Wanted::client("x").named("spiffe://example/bob")),
    ] {
        let size = Cmd::peer("nbdinfo").args(["--size", &with(&server.uri, &client)]);
        assert_eq!(size.ok().out().trim(), SIZE.to_string());
        assert!(list(&client).out().contains("secret"));
    }
    for client in [
        certificates.client("mallory"),
        certificates.folder("eve", &Wanted::client("alice").named("eve.example")),
        certificates.folder("prefix", &Wanted::client("alice2")),
    ] {
        let said = refused_info(&with(&server.uri, &client));
        assert!(
            said.contains("No such file") || said.contains("no such export"),
            "{said}"
        );
        assert!(!list(&client).out().contains("secret"));
    }
    server.stop();
}

#[test]
fn where_tls_is_offered_only_either_is_served() {
    let (scratch, certificates) = (Scratch::new(), Certificates::new());
    let container = container(&scratch);
    let folder = certificates.server();
    let server = serve(&container, &folder, &["--tls", "allow"]);
    let client = certificates.empty("client");
    let data = pattern(SIZE, 3);
    write_all(&server.uri.replace("nbds", "nbd"), &data);
    assert_same(&read_all(&with(&server.uri, &client)), &data, "by TLS");
    server.stop();
    let server = serve(&container, &folder, &["--tls", "off"]);
    assert!(server.uri.starts_with("nbd+unix"), "{}", server.uri);
    assert_same(&read_all(&server.uri), &data, "without");
    server.stop();
}

#[test]
fn a_server_without_usable_certificates_does_not_start() {
    let (scratch, certificates) = (Scratch::new(), Certificates::new());
    let container = container(&scratch);
    let socket = scratch.join("s");
    let start = |folder: &Path, options: &[&str]| {
        let folder = folder.display().to_string();
        let all = [&["--tls-certificates", &folder], options].concat();
        Server::command(&container, &socket, &all)
    };
    let late = certificates.folder("late", &Wanted::server(&["localhost"]).expired());
    start(&late, &[])
        .fails(1)
        .says(&["server-cert.pem", "expired"]);
    start(&certificates.client("alice"), &[])
        .fails(4)
        .says(&["server-cert.pem", "cannot be read"]);
    let server = certificates.server();
    start(&server, &["--tls-client", "x"])
        .fails(1)
        .says(&["--tls-verify-peer"]);
    for policy in ["allow", "off"] {
        start(&server, &["--tls-verify-peer", "--tls", policy])
            .fails(1)
            .says(&["--tls require"]);
    }
    assert!(!socket.exists());
}

/// By hand: what somebody in between could put into the stream, and what shows that it was cut.
#[test]
fn bytes_in_the_clear_and_streams_that_are_cut_end_the_connection() {
    let (scratch, certificates) = (Scratch::new(), Certificates::new());
    let container = container(&scratch);
    let (folder, alice) = (certificates.server(), certificates.client("alice"));
    let before = container.decrypt();
    let server = serve(&container, &folder, &["--tls-verify-peer"]);

    let mut raw = Raw::connect(&server.socket);
    raw.greet();
    raw.send(&[START_TLS, &nbd::go()].concat());
    raw.receive(20);
    assert!(raw.is_closed());

    let mut raw = Raw::connect(&server.socket);
    raw.greet();
    raw.send(START_TLS);
    raw.receive(20);
    raw.send(&nbd::go());
    assert!(raw.is_closed());

    // In the middle of a write; nothing of it is written.
    let mut client = RawTls::connect(&server.socket, &alice).unwrap();
    client.send(&nbd::go());
    client.receive(20 + 12 + 20).unwrap();
    client.send(&nbd::request(command::WRITE, 0, 4096));
    client.send(&[7; 1000]);
    drop(client);

    let between = Between::new(&server.socket, Tamper::InjectOption);
    refused_info(&between.uri(&alice));

    // All is well for others.
    let uri = with(&server.uri, &alice);
    nbdsh(&uri, "assert len(h.pread(4096, 0)) == 4096");
    let mut client = RawTls::connect(&server.socket, &alice).unwrap();
    client.send(&nbd::go());
    client.receive(20 + 12 + 20).unwrap();
    // Pipelined in one record: what TLS has opened already is not waited for.
    let read = |at: u64| nbd::request(command::READ, at * 512, 512);
    client.send(&[read(0), read(1), read(2)].concat());
    assert_eq!(client.receive(3 * (16 + 512)).unwrap().len(), 3 * 528);
    client.send(&nbd::request(command::DISCONNECT, 0, 0));
    assert!(client.receive(1).is_err());
    let log = log_of(server);
    assert_eq!(
        log.matches("data in the clear behind the wish for TLS")
            .count(),
        2,
        "{log}"
    );
    assert!(log.contains("no TLS"), "{log}");
    assert!(log.contains("cut off within"), "{log}");
    assert_same(&container.decrypt(), &before, "on the disk");
}

/// Both kinds of others' servers, asking for a client's certificate.
fn far_servers(image: &Path, folder: &Path) -> [Far; 2] {
    let certificates = format!("--tls-certificates={}", folder.display());
    let file = format!("file={}", image.display());
    let nbdkit = [
        "--tls=require",
        "--tls-verify-peer",
        &certificates,
        "file",
        &file,
    ];
    let object = format!(
        "tls-creds-x509,id=tls,endpoint=server,verify-peer=yes,dir={}",
        folder.display()
    );
    let qemu = [
        "--format=raw",
        "--shared=4",
        "--object",
        &object,
        "--tls-creds=tls",
    ];
    [Far::nbdkit(&nbdkit), Far::qemu(image, &qemu)]
}

#[test]
fn volumes_behind_others_servers_are_served() {
    let (scratch, certificates) = (Scratch::new(), Certificates::new());
    let container = container(&scratch);
    let (folder, alice) = (certificates.server(), certificates.client("alice"));
    let nobody = certificates.empty("nobody");
    for at in 0..2 {
        let far = far_servers(&container.image, &folder)
            .into_iter()
            .nth(at)
            .unwrap();
        let behind = Container {
            image: far.secure_uri(&alice).into(),
            key: container.key.clone(),
        };
        let server = Server::start_with(&behind, &["-v"]);
        let data = pattern(SIZE, 10 + at as u64);
        write_all(&server.uri, &data);
        assert_same(&read_all(&server.uri), &data, "through both");
        // A server that went away is connected to again, by TLS, from inside the sandbox.
        nbdsh(&server.uri, "h.pwrite(b'y' * 4096, 0)");
        far.kill();
        far.start_again();
        nbdsh(
            &server.uri,
            "assert h.pread(4096, 0) == b'y' * 4096; h.flush()",
        );
        let log = log_of(server);
        assert!(log.contains("again"), "{log}");
        let refused = xtent().args(["uuid", &far.secure_uri(&nobody)]).run();
        assert!(!refused.status.success(), "{}", refused.text());
        assert_eq!(refused.code(), Some(4), "{}", refused.text());
        far.stop();
        let mut expected = data;
        expected[..4096].fill(b'y');
        assert_same(&container.decrypt(), &expected, "on the disk");
    }
}

#[test]
fn a_volume_in_a_volume_is_served_by_tls_twice() {
    let (scratch, certificates) = (Scratch::new(), Certificates::new());
    let inner = container(&scratch);
    let image = std::fs::read(&inner.image).unwrap();
    let outer = Scratch::new();
    let container = Shape::LUKS2_4096.image(Maker::Xtent, &outer, image.len() as u64);
    container.encrypt(&image);
    let (folder, alice) = (certificates.server(), certificates.client("alice"));
    let options = ["--tls-verify-peer", "--tls-client", "alice"];
    let far = serve(&container, &folder, &options);
    let behind = Container {
        image: with(&far.uri, &alice).into(),
        key: inner.key.clone(),
    };
    let near = serve(&behind, &folder, &options);
    let uri = with(&near.uri, &alice);
    let data = pattern(SIZE, 20);
    write_all(&uri, &data);
    assert_same(&read_all(&uri), &data, "through both");
    near.stop();
    far.stop();
    std::fs::write(&inner.image, container.decrypt()).unwrap();
    assert_same(&inner.decrypt(), &data, "on the disk");
}

#[test]
fn servers_that_are_not_to_be_trusted_are_told_nothing() {
    let (scratch, certificates) = (Scratch::new(), Certificates::new());
    let container = container(&scratch);
    let client = certificates.empty("client");
    let image = format!("file={}", container.image.display());
    let nbdkit = |folder: Option<&Path>| {
        let certificates = folder.map(|it| format!("--tls-certificates={}", it.display()));
        let mut options = Vec::new();
        if let Some(certificates) = &certificates {
            options.extend(["--tls=require", certificates]);
        }
        options.extend(["file", &image]);
        Far::nbdkit(&options)
    };
    let stranger = certificates.empty("stranger");
    Authority::new("tests").certify(&stranger, &Wanted::server(&["localhost"]));
    let localhost = Wanted::server(&["localhost"]);
    for (folder, word, advice) in [
        (
            certificates.folder("late", &localhost.clone().expired()),
            "has expired",
            "needs a new one",
        ),
        (
            certificates.folder("early", &localhost.not_yet()),
            "not valid yet",
            "clock",
        ),
        (
            certificates.folder("other", &Wanted::server(&["example.org"])),
            "another host",
            "tls-hostname=NAME",
        ),
        (stranger, "not signed by", "tls-certificates=DIR"),
    ] {
        let far = nbdkit(Some(&folder));
        let uri = far.secure_uri(&client);
        xtent().args(["uuid", &uri]).fails(4).says(&[word, advice]);
        if word == "another host" {
            xtent()
                .args(["uuid", &format!("{uri}&tls-hostname=example.org")])
                .ok();
        }
        // The system's authorities have not signed it.
        let system = format!("nbds+unix:///?socket={}", far.socket().display());
        let done = xtent().args(["uuid", &system]).run();
        assert!(!done.status.success(), "{}", done.text());
        if word == "not signed by" {
            done.says(&[word, advice]);
        }
        assert!(!done.stderr.contains("its log"), "{}", done.text());
        let plain = xtent().args(["uuid", &far.uri()]);
        plain.fails(4).says(&["wants TLS", "Write nbds"]);
    }
    let far = nbdkit(None);
    xtent()
        .args(["uuid", &far.secure_uri(&client)])
        .fails(4)
        .says(&["refuses TLS", "write nbd:"]);
    xtent().args(["uuid", &far.uri()]).ok();
    for (uri, word) in [
        (
            format!("{}&tls-verify-peer=false", far.secure_uri(&client)),
            "always verified",
        ),
        (
            format!("{}&tls-psk-file=/k", far.secure_uri(&client)),
            "pre-shared",
        ),
        (
            format!("{}&tls-certificates=/nowhere", far.uri()),
            "not supported",
        ),
        (
            far.secure_uri(Path::new("/nowhere")),
            "/nowhere/ca-cert.pem",
        ),
    ] {
        let done = xtent().args(["uuid", &uri]).run();
        assert!(!done.status.success(), "{}", done.text());
        done.says(&[word]);
        assert!(!done.stderr.contains("its log"), "{}", done.text());
    }
}

#[test]
fn somebody_in_between_gets_nothing() {
    let (scratch, certificates) = (Scratch::new(), Certificates::new());
    let container = container(&scratch);
    let data = pattern(SIZE, 30);
    container.encrypt(&data);
    let (folder, alice) = (certificates.server(), certificates.client("alice"));
    let [far, _] = far_servers(&container.image, &folder);
    let between = Between::new(far.socket(), Tamper::Strip);
    xtent()
        .args(["uuid", &between.uri(&alice)])
        .fails(4)
        .says(&["refuses TLS", "in between"]);
    assert_eq!(between.heard(), b"");
    let between = Between::new(far.socket(), Tamper::InjectAnswer);
    xtent()
        .args(["uuid", &between.uri(&alice)])
        .fails(4)
        .says(&["what was not asked"]);
    // What was cut off or changed is asked for again, and nothing of it is taken for data.
    for tamper in [Tamper::Cut(1 << 20), Tamper::Change(1 << 20)] {
        let between = Between::new(far.socket(), tamper);
        let behind = Container {
            image: between.uri(&alice).into(),
            key: container.key.clone(),
        };
        let server = Server::start(&behind);
        assert_same(&read_all(&server.uri), &data, "all the same");
        let log = log_of(server);
        assert!(log.contains("lost the connection"), "{log}");
        let why = match tamper {
            Tamper::Cut(_) => "without ending TLS",
            _ => "TLS failed",
        };
        assert!(log.contains(why), "{log}");
    }
}
