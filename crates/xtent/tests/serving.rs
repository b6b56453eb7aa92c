//! The server as a process: its sandbox, its locks, its end.
#![allow(clippy::unwrap_used, reason = "a panic is how tests fail")]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use common::Bed;
use common::server::Server;
use rustix::process::{Pid, Signal, kill_process};

/// Serves `disk.img` on the socket `s`.
fn start(bed: &Bed, options: &str) -> Server {
    Server::start(bed, &format!("--nbd unix:s {options}"))
}

/// Where a server registers itself.
fn registered(bed: &Bed, server: &Server) -> std::path::PathBuf {
    let runtime = match rustix::process::geteuid().is_root() {
        true => "/run/xtent".into(),
        false => bed.path("xtent"),
    };
    runtime.join(format!("status/{}.json", server.child.id()))
}

#[test]
fn prints_its_uri_and_ends_cleanly() {
    let bed = Bed::with_luks2();
    for signal in [Signal::INT, Signal::TERM] {
        let server = start(&bed, "");
        assert!(
            server.uri.starts_with("nbd+unix:///?socket=/"),
            "{}",
            server.uri
        );
        let registered = registered(&bed, &server);
        let text = std::fs::read_to_string(&registered).unwrap();
        let entry: serde_json::Value = serde_json::from_str(&text).unwrap();
        let image = bed.path("disk.img").canonicalize().unwrap();
        assert_eq!(entry["device"], image.to_str().unwrap());
        assert_eq!(entry["uris"][0], server.uri.trim_end());
        assert_eq!(entry["size"], 1 << 20);
        assert_eq!(entry["pid"], server.child.id());
        let mut client = UnixStream::connect(bed.path("s")).unwrap();
        let mut greeting = [0; 8];
        client.read_exact(&mut greeting).unwrap();
        assert_eq!(&greeting, b"NBDMAGIC");
        drop(client);
        assert_eq!(server.end(signal), (Some(0), String::new()));
        assert!(
            !bed.path("s").exists(),
            "the socket is removed inside the sandbox"
        );
        assert!(!registered.exists(), "and its place in the registry");
    }
}

#[test]
fn nobody_is_served_as_root_in_place_of_the_user_that_was_named() {
    let bed = Bed::with_luks2();
    let what = "cannot become another user";
    bed.run("serve --key-file key --nbd unix:s --user nobody --no-sandbox disk.img")
        .failed(1, &[what, "Leave out --no-sandbox"]);
    assert!(!bed.path("s").exists());
}

/// In transmission, the oldest way; the export's size.
fn connect(bed: &Bed) -> (UnixStream, u64) {
    let mut client = UnixStream::connect(bed.path("s")).unwrap();
    client.read_exact(&mut [0; 18]).unwrap();
    client.write_all(b"\0\0\0\x03IHAVEOPT").unwrap();
    client.write_all(&[0, 0, 0, 1, 0, 0, 0, 0]).unwrap();
    let mut answer = [0; 10];
    client.read_exact(&mut answer).unwrap();
    let [size @ .., _, _] = answer;
    (client, u64::from_be_bytes(size))
}

#[test]
fn looks_at_the_device_again_at_sighup() {
    let bed = Bed::with_luks2();
    let mut server = start(&bed, "");
    let size = std::fs::metadata(bed.path("disk.img")).unwrap().len();
    let (_old, before) = connect(&bed);
    assert_eq!(before, 1 << 20);
    // Neither of them ends it; the first line is the one after the growth.
    server.signal(Signal::USR1);
    server.signal(Signal::USR2);
    bed.truncate("disk.img", size + (1 << 20) + 100);
    server.signal(Signal::HUP);
    let line = server.line();
    assert!(line.contains("1 MiB to 2 MiB"), "{line}");
    let (_new, after) = connect(&bed);
    assert_eq!(after, 2 << 20);
    let text = std::fs::read_to_string(registered(&bed, &server)).unwrap();
    let entry: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(entry["size"], 2 << 20);
    // It never becomes smaller.
    bed.truncate("disk.img", size);
    server.signal(Signal::HUP);
    let line = server.line();
    assert!(line.contains("has become smaller"), "{line}");
    assert_eq!(connect(&bed).1, 2 << 20);
    assert_eq!(server.end(Signal::TERM), (Some(0), String::new()));
    assert!(!bed.path("s").exists());
}

/// The end of a terminal: SIGHUP, and nowhere to write to.
#[test]
fn a_closed_terminal_takes_no_disk_away() {
    let bed = Bed::with_luks2();
    let mut server = start(&bed, "-vv");
    drop(server.child.stderr.take());
    server.signal(Signal::HUP);
    for _ in 0..2 {
        let (mut client, _) = connect(&bed);
        // A read, which is logged nowhere either.
        client.write_all(&[0x25, 0x60, 0x95, 0x13]).unwrap();
        client.write_all(&[0; 22]).unwrap();
        client.write_all(&[2, 0]).unwrap();
        client.read_exact(&mut [0; 16 + 512]).unwrap();
    }
    server.signal(Signal::TERM);
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    assert!(!bed.path("s").exists());
}

/// Who becomes somebody else is in the same sandbox as who stays.
#[test]
fn another_user_is_confined_as_well() {
    if !rustix::process::geteuid().is_root() {
        // Past the runner's capture: it has not run, whatever the summary says.
        let line = b"NOT RUN on this machine: another_user_is_confined_as_well: needs root\n";
        std::io::stderr().write_all(line).unwrap();
        return;
    }
    let bed = Bed::with_luks2();
    let confined = |options: &[&str]| {
        let mut server = bed
            .command(["serve", "--json", "--key-file", "key", "--nbd", "unix:s"])
            .args(options)
            .arg("disk.img")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(server.stdout.take().unwrap());
        let object: Vec<String> = BufRead::lines(out)
            .map(Result::unwrap)
            .take_while(|line| line != "}")
            .collect();
        let pid = Pid::from_child(&server);
        kill_process(pid, Signal::TERM).unwrap();
        server.wait().unwrap();
        let _ = std::fs::remove_file(bed.path("s"));
        let object = format!("{}}}", object.join("\n"));
        let object: serde_json::Value = serde_json::from_str(&object).unwrap();
        object["sandbox"].clone()
    };
    assert_eq!(confined(&["--user", "nobody"]), confined(&[]));
}

#[test]
fn serves_one_command() {
    let bed = Bed::with_luks2();
    let serve = |command: &str| {
        let start = ["serve", "--key-file", "key", "--nbd", "unix:s", "disk.img"];
        let output = bed
            .command(start)
            .args(["--export", "x y", "--run", command])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(!bed.path("s").exists());
        let out = String::from_utf8(output.stdout).unwrap();
        (output.status.code(), out)
    };
    let (code, out) = serve("echo \"$uri|$exportname|$unixsocket\"; test -S s; exit 7");
    let socket = bed.path("s");
    let socket = socket.to_str().unwrap();
    assert_eq!(
        (code, out),
        (
            Some(7),
            format!("nbd+unix:///x%20y?socket={socket}|x y|{socket}\n")
        )
    );
    assert_eq!(serve("true"), (Some(0), String::new()));
    assert_eq!(serve("kill -KILL $$"), (Some(137), String::new()));
    // Without --nbd the socket is its own, so that jobs on disks of one name do not meet.
    let own = || {
        let output = bed
            .command(["serve", "--read-only", "--key-file", "key", "--run"])
            .args(["echo $unixsocket", "disk.img"])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0));
        String::from_utf8(output.stdout).unwrap()
    };
    let (one, two) = (own(), own());
    assert!(one.contains("/disk.img.") && one != two, "{one}{two}");
    // A server that is asked to end asks it to.
    let mut server = bed
        .command(["serve", "--key-file", "key", "--nbd", "unix:s", "--run"])
        .args([
            "trap 'echo asked >told; kill $!; exit' TERM; sleep 100 & echo up; wait",
            "disk.img",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(server.stdout.take().unwrap());
    let mut line = String::new();
    BufRead::read_line(&mut out, &mut line).unwrap();
    assert_eq!(line, "up\n");
    // It runs a little earlier than the server is ready to be told.
    connect(&bed);
    let pid = Pid::from_child(&server);
    kill_process(pid, Signal::TERM).unwrap();
    // The command's own code is 0, but it was cut short.
    assert_eq!(server.wait().unwrap().code(), Some(143));
    while !bed.path("told").exists() {
        std::thread::yield_now();
    }
    // Signals are not held back from it.
    assert_eq!(serve("kill -TERM $$"), (Some(143), String::new()));
}

#[test]
fn ends_with_the_last_client() {
    let bed = Bed::with_luks2();
    let mut server = start(&bed, "--exit-with-last --pid-file pid -v");
    let pid = std::fs::read_to_string(bed.path("pid")).unwrap();
    assert_eq!(pid, format!("{}\n", server.child.id()));
    let (client, _) = connect(&bed);
    drop(client);
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    assert!(!bed.path("pid").exists() && !bed.path("s").exists());
    let log = server.rest();
    let uid = rustix::process::geteuid().as_raw();
    let client = format!("client=0 peer=pid {}, uid {uid}", std::process::id());
    for line in ["connection opened", "connection closed", "requests=0"] {
        assert!(
            log.lines().any(|l| l.contains(line) && l.contains(&client)),
            "{log}"
        );
    }
}

#[test]
fn gives_up_privileges() {
    let bed = Bed::with_luks2();
    let server = start(&bed, "-v");
    // Clients are still served once a connection needs threads and memory.
    UnixStream::connect(bed.path("s"))
        .unwrap()
        .write_all(b"garbage")
        .unwrap();
    assert_eq!(server.status("NoNewPrivs"), "1");
    for set in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
        assert_eq!(server.status(set), "0000000000000000", "{set}");
    }
    let seccomp = server.status("Seccomp");
    let (code, log) = server.end(Signal::TERM);
    assert_eq!(code, Some(0), "{log}");
    // A kernel without it says so.
    assert!(
        seccomp == "2" || log.contains("without a system call filter"),
        "{log}"
    );
    assert!(log.contains("sandboxed"), "{log}");
    assert!(!log.contains(common::SECRET), "{log}");
}

/// More than the server receives at a time: it has to ask the kernel what else
/// has come, and its sandbox must let it.
#[test]
fn serves_what_had_arrived_before_the_end() {
    const WRITES: u64 = 5;
    const LEN: u32 = 60 << 10;
    let bed = Bed::with_luks2();
    let server = start(&bed, "");
    let mut client = UnixStream::connect(bed.path("s")).unwrap();
    rustix::net::sockopt::set_socket_send_buffer_size(&client, 1 << 20).unwrap();
    let timeout = Some(std::time::Duration::from_secs(300));
    client.set_write_timeout(timeout).unwrap();
    client.set_read_timeout(timeout).unwrap();
    // The oldest way to the default export: size and flags come back.
    client.read_exact(&mut [0; 18]).unwrap();
    client.write_all(b"\0\0\0\x03IHAVEOPT").unwrap();
    client.write_all(&[0, 0, 0, 1, 0, 0, 0, 0]).unwrap();
    client.read_exact(&mut [0; 10]).unwrap();

    let pid = Pid::from_child(&server.child);
    kill_process(pid, Signal::STOP).unwrap();
    for cookie in 0..WRITES {
        let mut request = vec![0x25, 0x60, 0x95, 0x13, 0, 0, 0, 1];
        request.extend(cookie.to_be_bytes());
        request.extend((cookie * u64::from(LEN)).to_be_bytes());
        request.extend(LEN.to_be_bytes());
        request.resize(request.len() + LEN as usize, 7);
        client
            .write_all(&request)
            .expect("room for 300 KiB in a socket (net.core.wmem_max)");
    }
    kill_process(pid, Signal::TERM).unwrap();
    kill_process(pid, Signal::CONT).unwrap();
    for _ in 0..WRITES {
        let mut reply = [0; 16];
        client.read_exact(&mut reply).unwrap();
        assert_eq!(reply[..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0]);
    }
    drop(client);
    assert_eq!(server.end(Signal::TERM), (Some(0), String::new()));
}

#[test]
fn has_the_device_for_itself() {
    let bed = Bed::with_luks2();
    bed.run("header backup disk.img saved").ok();
    let server = start(&bed, "");
    for line in [
        "serve --key-file key --nbd unix:s2 disk.img",
        "serve --read-only --key-file key --nbd unix:s2 disk.img",
        "format -q --key-file key disk.img",
        "header erase -q disk.img",
        "header restore -q disk.img saved",
        "encrypt --key-file key key disk.img",
        "decrypt --key-file key disk.img out",
    ] {
        bed.run(line).failed(5, &["disk.img"]);
    }
    // Keys can be changed meanwhile.
    bed.run("key add --key-file key --new-key-file other --pbkdf pbkdf2 --pbkdf-force-iterations 1000 disk.img")
        .ok();
    assert_eq!(server.end(Signal::TERM).0, Some(0));
    bed.run("header erase -q disk.img").ok();
}

#[test]
fn a_detached_header_in_use_is_not_overwritten() {
    let bed = Bed::new();
    let cheap = "--key-file key --pbkdf pbkdf2 --pbkdf-force-iterations 1000";
    bed.run(&format!("format --header head --size 1M {cheap} disk.img"))
        .ok();
    bed.run("header backup --header head disk.img saved").ok();
    std::fs::copy(bed.path("disk.img"), bed.path("other.img")).unwrap();
    let server = start(&bed, "--header head --nbd unix:sock");
    for action in [
        "header erase -q head",
        // By way of another volume's data.
        "header erase -q --header head other.img",
        "header restore -q --header head other.img saved",
    ] {
        bed.run(action)
            .failed(5, &["head is in use by `xtent serve` at nbd"]);
    }
    bed.run(&format!(
        "key add --header head --new-key-file key {cheap} disk.img"
    ))
    .ok();
    assert_eq!(server.end(Signal::TERM).0, Some(0));
    bed.run("header erase -q head").ok();
}

#[test]
fn read_only_servers_share() {
    let bed = Bed::with_luks2();
    let server = start(&bed, "--read-only");
    bed.run("decrypt --key-file key disk.img out").ok();
    bed.run("format -q --key-file key disk.img").failed(5, &[]);
    assert_eq!(server.end(Signal::TERM).0, Some(0));
}

#[test]
fn announces_itself_as_json() {
    let bed = Bed::with_luks2();
    let mut child = bed
        .command([
            "serve",
            "--json",
            "--key-file",
            "key",
            "--nbd",
            "tcp:127.0.0.1:0",
            "--export",
            "a b",
            "disk.img",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut text = String::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        text.push_str(&line);
        if line == "}" {
            break;
        }
    }
    let said: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(said["size"], 1 << 20);
    assert_eq!(said["sector_size"], 4096);
    let uri = said["uris"][0].as_str().unwrap();
    assert!(
        uri.starts_with("nbd://127.0.0.1:") && uri.ends_with("/a%20b"),
        "{uri}"
    );
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_check_names_the_export_that_has_no_name() {
    let bed = Bed::with_luks2();
    let said = bed.run("serve --check disk.img").ok();
    assert!(
        said.out.starts_with("The export without a name: "),
        "{}",
        said.out
    );
    let said = bed.run("serve --check --export web disk.img").ok();
    assert!(said.out.starts_with("\"web\": "), "{}", said.out);
}

#[test]
fn options_of_volumes_beside_a_file_that_has_them() {
    let bed = Bed::new();
    std::fs::write(bed.path("x.toml"), "").unwrap();
    for option in [
        "--read-only",
        "--holes zero",
        "--key-file k",
        "--header h",
        "--discard zero",
    ] {
        for command in ["serve", "attach"] {
            bed.run(&format!("{command} {option} --config x.toml"))
                .failed(1, &["cannot be used with", "--config"]);
        }
    }
}

#[test]
fn sockets_that_cannot_be() {
    let bed = Bed::with_luks2();
    for (spec, code, text) in [
        ("unix:key", 5, "not a socket"),
        ("unix:no/such/folder", 4, "cannot listen"),
        ("tcp:0.0.0.0:0", 1, "--allow-remote"),
        ("tcp:nohost.invalid:1", 4, "nohost.invalid"),
        ("tcp:localhost:99999", 1, "not a port"),
        ("udp:localhost:1", 1, "unix:PATH"),
    ] {
        bed.run(&format!("serve --key-file key --nbd {spec} disk.img"))
            .failed(code, &[text]);
    }
    bed.run("serve --key-file key --user no-such-user disk.img")
        .failed(1, &["no-such-user"]);
    bed.run("serve --key-file key --user root disk.img")
        .failed(1, &["--user needs --nbd"]);
}

#[test]
fn what_is_for_one_device_is_refused_for_two() {
    let bed = Bed::with_luks2();
    for option in ["--standby", "--run true"] {
        let name = option.split(' ').next().unwrap();
        bed.run(&format!("serve --key-file key {option} disk.img other.img"))
            .failed(1, &[&format!("{name} is for one DEVICE, and there are 2")]);
    }
}
