//! What a server tells systemd's journal: entries with fields, from inside its sandbox too.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use rustix::process::Signal;
use xtent_tests::luks::{Maker, Shape};
use xtent_tests::nbd::Raw;
use xtent_tests::xtent::Server;
use xtent_tests::{Cmd, PATIENCE, Scratch, bed};

/// Has a command find `folder` where the journal's sockets are, and standard error be the
/// journal if `is_journal`.
fn beside(folder: &Path, is_journal: bool) -> Cmd {
    let script = r#"
        mount -t tmpfs none /run && mkdir -p /run/systemd/journal && mount --bind "$1" /run/systemd/journal || exit
        JOURNAL_STREAM=$(stat -L -c %d:%i /dev/stderr)
        [ "$2" = true ] || JOURNAL_STREAM=${JOURNAL_STREAM}0
        export JOURNAL_STREAM
        shift 2
        exec "$@""#;
    Cmd::peer("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", script])
        .args(["sh".as_ref(), folder])
        .arg(is_journal.to_string())
}

/// An entry's fields (systemd.io/JOURNAL_NATIVE_PROTOCOL).
fn fields(mut rest: &[u8]) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| *byte == b'\n').unwrap();
        let (len, behind) = rest[end + 1..].split_first_chunk::<8>().unwrap();
        let len = usize::try_from(u64::from_le_bytes(*len)).unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        fields.insert(text(&rest[..end]), text(&behind[..len]));
        rest = &behind[len + 1..];
    }
    fields
}

struct Journal(UnixDatagram);

impl Journal {
    /// The next entry with this text in its message.
    fn wait_for(&self, message: &str) -> BTreeMap<String, String> {
        let mut datagram = vec![0; 64 << 10];
        loop {
            let len = self.0.recv(&mut datagram).unwrap();
            let entry = fields(&datagram[..len]);
            let found = entry.get("MESSAGE");
            if found.is_some_and(|found| found.contains(message)) {
                return entry;
            }
        }
    }
}

#[test]
fn a_client_has_fields() {
    if !bed::is_root("a_client_has_fields") {
        return;
    }
    let scratch = Scratch::new();
    let container = Shape::LUKS2.image(Maker::Xtent, &scratch, 1 << 20);
    let folder = scratch.folder("journal");
    let journal = Journal(UnixDatagram::bind(folder.join("socket")).unwrap());
    journal.0.set_read_timeout(Some(PATIENCE)).unwrap();
    let socket = scratch.join("nbd.sock");
    let serve = Server::command(&container, &socket, &["-v", "--export", "web"]);
    let mut server = beside(&folder, true).wrapping(serve).spawn();
    server.wait_for_line(|line| line.contains("nbd+unix"));

    let open = journal.wait_for("volume open");
    assert_eq!(open["XTENT_DEVICE"], container.image.to_str().unwrap());
    let sandboxed = journal.wait_for("sandboxed");
    assert!(
        sandboxed["XTENT_IN_FORCE"].contains("seccomp"),
        "{sandboxed:?}"
    );

    let mut client = Raw::connect(&socket);
    client.greet();
    client.go_to("web");
    let peer = format!("pid {}, uid 0", std::process::id());
    let opened = journal.wait_for("connection opened");
    assert_eq!(opened["XTENT_CLIENT"], "0");
    assert_eq!(opened["XTENT_PEER"], peer);
    assert_eq!(opened["PRIORITY"], "6");
    assert_eq!(opened["SYSLOG_IDENTIFIER"], "xtent");
    drop(client);
    let closed = journal.wait_for("connection closed");
    assert_eq!(closed["XTENT_EXPORT"], "web");
    assert_eq!(closed["XTENT_PEER"], peer);
    assert!(
        closed["MESSAGE"].contains("export=\"web\" reason="),
        "{closed:?}"
    );

    server.signal(Signal::TERM);
    let done = server.finish();
    assert_eq!(done.code(), Some(0), "{}", done.text());
    // Each event once.
    assert!(!done.stderr.contains("connection"), "{}", done.text());
}

#[test]
fn without_its_socket_lines_have_a_priority() {
    if !bed::is_root("without_its_socket_lines_have_a_priority") {
        return;
    }
    let scratch = Scratch::new();
    let container = Shape::LUKS2.image(Maker::Xtent, &scratch, 1 << 20);
    let folder = scratch.folder("journal");
    for is_journal in [true, false] {
        let command = Cmd::new(xtent_tests::xtent::binary())
            .args(["-v", "decrypt", "--key-file"])
            .args([&container.key, &container.image])
            .arg("/dev/null");
        let done = beside(&folder, is_journal).wrapping(command).run();
        let line = done.stderr.lines().find(|line| line.contains("INFO"));
        assert_eq!(
            line.unwrap().starts_with("<6>"),
            is_journal,
            "{}",
            done.text()
        );
    }
}
