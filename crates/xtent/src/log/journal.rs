//! Events for systemd's journal, with their fields, by its own protocol
//! (systemd.io/JOURNAL_NATIVE_PROTOCOL): a datagram for each.
//!
//! `tracing-journald` would send messages without their values, which is all that `journalctl`
//! shows, and its socket waits without end for a journal that has stopped reading.

use std::fmt::{self, Write as _};
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{SendFlags, SocketAddrUnix, sendto};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use super::priority;
use crate::output::{complain, in_one_line};

/// Where the journal listens.
const SOCKET: &str = "/run/systemd/journal/socket";
/// How long an event waits for a journal that is slow. Those after it do not, until it takes one.
const PATIENCE: Duration = Duration::from_secs(1);

/// The journal.
pub(super) struct Journal {
    socket: UnixDatagram,
    address: SocketAddrUnix,
    /// Events that it has not taken since it took one.
    lost: AtomicU64,
    /// Whether messages begin with the module that they come from.
    with_target: bool,
}

impl Journal {
    /// Of this machine; an error if there is none.
    pub(super) fn new(with_target: bool) -> io::Result<Self> {
        Self::at(Path::new(SOCKET), PATIENCE, with_target)
    }

    fn at(path: &Path, patience: Duration, with_target: bool) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(patience))?;
        let address = SocketAddrUnix::new(path)?;
        // Nothing, which the journal ignores: whether it can be reached.
        match sendto(&socket, &[], SendFlags::DONTWAIT, &address) {
            Ok(_) | Err(Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Self {
            socket,
            address,
            lost: AtomicU64::new(0),
            with_target,
        })
    }

    /// Sends an entry; what the journal does not listen to goes to standard error, as it would have
    /// without this.
    fn send(&self, entry: &Entry) {
        let flags = match self.lost.load(Ordering::Relaxed) {
            0 => SendFlags::empty(),
            _ => SendFlags::DONTWAIT,
        };
        match self.put(entry, flags) {
            Ok(()) => match self.lost.swap(0, Ordering::Relaxed) {
                0 => {}
                lost => {
                    let message =
                        format!("{lost} messages were lost: the journal did not take them");
                    let _ = self.put(&Entry::new(4, &message), SendFlags::DONTWAIT);
                }
            },
            Err(Errno::AGAIN) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => complain(&format!("<{}>{}", entry.priority, entry.message)),
        }
    }

    fn put(&self, entry: &Entry, flags: SendFlags) -> rustix::io::Result<()> {
        let bytes = entry.bytes();
        rustix::io::retry_on_intr(|| {
            let flags = flags | SendFlags::NOSIGNAL;
            sendto(&self.socket, &bytes, flags, &self.address)
        })?;
        Ok(())
    }
}

impl<S: Subscriber> Layer<S> for Journal {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let mut found = Found::default();
        event.record(&mut found);
        let mut message = found.message;
        if self.with_target {
            message.insert_str(0, &format!("{}: ", metadata.target()));
        }
        message.push_str(&found.values);
        let mut entry = Entry::new(priority(*metadata.level()), &message);
        entry.fields = found.fields;
        self.send(&entry);
    }
}

/// What the journal gets.
struct Entry {
    priority: u8,
    message: String,
    fields: Vec<(String, String)>,
}

impl Entry {
    fn new(priority: u8, message: &str) -> Self {
        Self {
            priority,
            message: message.to_owned(),
            fields: Vec::new(),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(256);
        let mut put = |name: &str, value: &str| {
            bytes.extend_from_slice(name.as_bytes());
            bytes.push(b'\n');
            bytes.extend_from_slice(&(value.len() as u64).to_le_bytes());
            bytes.extend_from_slice(value.as_bytes());
            bytes.push(b'\n');
        };
        put("PRIORITY", &self.priority.to_string());
        put("SYSLOG_IDENTIFIER", "xtent");
        put("MESSAGE", &self.message);
        for (name, value) in &self.fields {
            put(name, value);
        }
        bytes
    }
}

/// An event's values: for people behind its message, as on standard error, and as fields.
#[derive(Default)]
struct Found {
    message: String,
    values: String,
    fields: Vec<(String, String)>,
}

impl Found {
    fn add(&mut self, field: &Field, shown: &str, value: &str) {
        let shown = in_one_line(shown);
        match field.name() {
            "message" => self.message.push_str(&shown),
            name => {
                let _ = write!(self.values, " {name}={shown}");
                let name = name.to_ascii_uppercase().replace('.', "_");
                self.fields
                    .push((format!("XTENT_{name}"), in_one_line(value)));
            }
        }
    }
}

impl Visit for Found {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        self.add(field, &text, &text);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, &format!("{value:?}"), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use tracing_subscriber::layer::SubscriberExt;

    struct Bed {
        _scratch: tempfile::TempDir,
        journal: UnixDatagram,
        path: std::path::PathBuf,
    }

    fn bed() -> Bed {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("socket");
        Bed {
            journal: UnixDatagram::bind(&path).unwrap(),
            _scratch: scratch,
            path,
        }
    }

    impl Bed {
        fn layer(&self) -> Journal {
            let layer = Journal::at(&self.path, Duration::from_millis(1), false).unwrap();
            assert!(self.next().unwrap().is_empty(), "asks whether it is there");
            layer
        }

        /// The next entry, if there is one.
        fn next(&self) -> Option<BTreeMap<String, String>> {
            self.journal.set_nonblocking(true).unwrap();
            let mut datagram = [0; 4096];
            let len = self.journal.recv(&mut datagram).ok()?;
            let mut rest = &datagram[..len];
            let mut entry = BTreeMap::new();
            while !rest.is_empty() {
                let end = rest.iter().position(|b| *b == b'\n').unwrap();
                let name = std::str::from_utf8(&rest[..end]).unwrap();
                let (size, behind) = rest[end + 1..].split_first_chunk::<8>().unwrap();
                let size = usize::try_from(u64::from_le_bytes(*size)).unwrap();
                let value = std::str::from_utf8(&behind[..size]).unwrap();
                entry.insert(name.to_owned(), value.to_owned());
                assert_eq!(behind[size], b'\n');
                rest = &behind[size + 1..];
            }
            Some(entry)
        }
    }

    #[test]
    fn an_event_has_its_fields() {
        let bed = bed();
        let subscriber = tracing_subscriber::registry().with(bed.layer());
        let none: Option<&str> = None;
        tracing::subscriber::with_default(subscriber, || {
            let peer = "10.0.0.3:4711";
            tracing::warn!(client = 7, peer = %peer, export = "web\nMESSAGE=x", none, "it failed");
        });
        let wanted = [
            (
                "MESSAGE",
                r#"it failed client=7 peer=10.0.0.3:4711 export="web\nMESSAGE=x""#,
            ),
            ("PRIORITY", "4"),
            ("SYSLOG_IDENTIFIER", "xtent"),
            ("XTENT_CLIENT", "7"),
            ("XTENT_EXPORT", r"web\u000aMESSAGE=x"),
            ("XTENT_PEER", "10.0.0.3:4711"),
        ];
        let wanted = wanted.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(bed.next().unwrap(), BTreeMap::from(wanted));
        assert!(bed.next().is_none());
    }

    #[test]
    fn a_journal_that_does_not_read_holds_nobody_up() {
        let bed = bed();
        let layer = bed.layer();
        let entry = Entry::new(6, "again");
        while layer.lost.load(Ordering::Relaxed) < 3 {
            layer.send(&entry);
        }
        while bed.next().is_some() {}
        layer.send(&entry);
        assert_eq!(bed.next().unwrap()["MESSAGE"], "again");
        let told = bed.next().unwrap();
        assert!(
            told["MESSAGE"].starts_with("3 messages were lost"),
            "{told:?}"
        );
        layer.send(&entry);
        assert_eq!(bed.next().unwrap()["MESSAGE"], "again");
        assert!(bed.next().is_none());
    }

    #[test]
    fn without_a_journal_there_is_none() {
        let path = tempfile::tempdir().unwrap().path().join("socket");
        assert!(Journal::at(&path, PATIENCE, false).is_err());
    }
}
