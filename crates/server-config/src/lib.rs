//! The configuration file of `xtent serve --config`: a TOML document with a table for the
//! server, and one for each volume under its export's name.
//!
//! ```toml
//! [server]
//! nbd = ["unix:/run/xtent/gateway.sock"]
//!
//! [volume.root]
//! device = "/srv/disks/root.img"
//! key-file = "/etc/xtent/root.key"
//! ```
//!
//! Whatever is not known is refused by name, with its line: a misspelt `read-only` must not
//! become a volume that is written to.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::Deserialize;

/// Longest file that is read.
pub const LONGEST: usize = 4 << 20;
/// Longest name of an export, in bytes.
const LONGEST_NAME: usize = 4096;

/// All that the file says.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The server itself.
    #[serde(default)]
    pub server: Server,
    /// The volumes, by their exports' names.
    #[serde(default, rename = "volume")]
    pub volumes: BTreeMap<String, Volume>,
}

/// How the server is reached, and what it becomes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Server {
    /// Addresses to listen on, as of `--nbd`.
    #[serde(default)]
    pub nbd: Vec<String>,
    /// Addresses for metrics, as of `--metrics`.
    #[serde(default)]
    pub metrics: Vec<String>,
    /// Whether other machines may connect.
    pub allow_remote: Option<bool>,
    /// Clients at a time.
    pub connections: Option<u16>,
    /// The user that the server becomes.
    pub user: Option<String>,
    /// Where its process id is written.
    pub pid_file: Option<PathBuf>,
    /// Folder with its certificates.
    pub tls_certificates: Option<PathBuf>,
    /// "require", "allow" or "off".
    pub tls: Option<String>,
    /// Whether clients have to have certificates.
    pub tls_verify_peer: Option<bool>,
}

/// A volume, its key, and how it is served; what is not said is as without the option of
/// that name.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Volume {
    /// Device, image or NBD URI.
    pub device: String,
    /// Detached header.
    pub header: Option<String>,
    /// What the header has to be: pins, or `@` and a file of them.
    #[serde(default)]
    pub expect_header: Vec<String>,
    /// Partition of the image.
    pub partition: Option<u32>,
    /// Name of the export, where it is not the table's.
    pub export: Option<String>,
    /// File with the passphrase.
    pub key_file: Option<PathBuf>,
    /// Bytes of the key file to skip.
    pub keyfile_offset: Option<u64>,
    /// Bytes of the key file to use.
    pub keyfile_size: Option<u64>,
    /// systemd credential with the passphrase.
    pub credential: Option<String>,
    /// Program and arguments that print the passphrase.
    pub key_command: Option<Vec<String>>,
    /// File with the volume key.
    pub volume_key_file: Option<PathBuf>,
    /// The keyslot to try.
    pub key_slot: Option<u32>,
    /// Whether tokens are left alone.
    pub no_tokens: Option<bool>,
    /// Back-end of the cipher.
    pub cpu: Option<String>,
    /// Threads for a large request: a number, or "auto".
    pub cipher_threads: Option<Threads>,
    /// The address of a cipher engine.
    pub engine: Option<String>,
    /// How engine and CPU share the work.
    pub engine_model: Option<String>,
    /// Who encrypts tweaks: "engine" or "cpu".
    pub engine_tweaks: Option<String>,
    /// Bytes from which on requests go to it: a number, or one with a unit.
    pub engine_threshold: Option<Bytes>,
    /// What becomes of requests that it fails: "cpu" or "error".
    pub engine_failure: Option<String>,
    /// "never", "allow" or "zero".
    pub discard: Option<String>,
    /// "noise" or "zero".
    pub holes: Option<String>,
    /// Whether writes are refused.
    pub read_only: Option<bool>,
    /// Whether the page cache is passed by.
    pub direct_io: Option<bool>,
    /// Seconds that a lost connection to a server may stay lost.
    pub reconnect: Option<u32>,
    /// Names of the TLS certificates of clients that may have it.
    pub clients: Option<Vec<String>>,
}

/// A number of threads.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Threads {
    /// So many.
    Count(u16),
    /// By its name.
    Named(String),
}

impl fmt::Display for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => count.fmt(f),
            Self::Named(name) => f.write_str(name),
        }
    }
}

/// A number of bytes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Bytes {
    /// So many.
    Count(u64),
    /// With a unit.
    Text(String),
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => count.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl Config {
    /// Parses the text of a file.
    pub fn parse(text: &str) -> Result<Self, Error> {
        if text.len() > LONGEST {
            return Err(Error {
                line: None,
                message: format!("the file has more than {LONGEST} bytes"),
            });
        }
        let config: Self = toml::from_str(text).map_err(|error| Error {
            line: error.span().map(|span| line_of(text, span.start)),
            message: error.message().to_owned(),
        })?;
        config.check()?;
        Ok(config)
    }

    /// The volumes, each with its export's name.
    pub fn exports(&self) -> impl Iterator<Item = (&str, &Volume)> {
        self.volumes
            .iter()
            .map(|(table, volume)| (volume.export.as_deref().unwrap_or(table), volume))
    }

    fn check(&self) -> Result<(), Error> {
        let refuse = |message: String| {
            Err(Error {
                line: None,
                message,
            })
        };
        let mut seen = BTreeMap::new();
        for ((name, volume), table) in self.exports().zip(self.volumes.keys()) {
            if name.len() > LONGEST_NAME || name.contains(char::is_control) {
                return refuse(format!(
                    "[volume.{}]: an export's name has at most {LONGEST_NAME} bytes, and no \
                     control characters",
                    table.escape_debug()
                ));
            }
            if let Some(other) = seen.insert(name, table) {
                return refuse(format!(
                    "[volume.{other}] and [volume.{table}] are both exported as {name:?}"
                ));
            }
            if volume.device.is_empty() {
                return refuse(format!("[volume.{table}]: `device` is empty"));
            }
            if volume.clients.as_ref().is_some_and(Vec::is_empty) {
                return refuse(format!(
                    "[volume.{table}]: `clients` names nobody; leave it out for everybody"
                ));
            }
            if volume.key_command.as_ref().is_some_and(Vec::is_empty) {
                return refuse(format!("[volume.{table}]: `key-command` is empty"));
            }
            let of_engine = [
                ("engine-model", volume.engine_model.is_some()),
                ("engine-tweaks", volume.engine_tweaks.is_some()),
                ("engine-threshold", volume.engine_threshold.is_some()),
                ("engine-failure", volume.engine_failure.is_some()),
            ];
            if let (None, Some((key, _))) = (
                &volume.engine,
                of_engine.into_iter().find(|(_, given)| *given),
            ) {
                return refuse(format!(
                    "[volume.{table}]: `{key}` says how to use an `engine`, and there is none"
                ));
            }
            let keys = [
                ("key-file", volume.key_file.is_some()),
                ("credential", volume.credential.is_some()),
                ("key-command", volume.key_command.is_some()),
                ("volume-key-file", volume.volume_key_file.is_some()),
            ];
            let given: Vec<&str> = keys
                .into_iter()
                .filter_map(|(key, given)| given.then_some(key))
                .collect();
            if let [one, other, ..] = given[..] {
                return refuse(format!(
                    "[volume.{table}]: `{one}` and `{other}` both say where the key is"
                ));
            }
        }
        Ok(())
    }
}

/// The line that a byte is in, counted from 1.
fn line_of(text: &str, byte: usize) -> usize {
    let before = text.as_bytes().get(..byte).unwrap_or_default();
    1 + before.iter().filter(|&&byte| byte == b'\n').count()
}

/// What is wrong with the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// In this line, where it is in one.
    pub line: Option<usize>,
    /// What it is.
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str = r#"
[server]
nbd = ["unix:/run/a.sock", "tcp:localhost:0"]
allow-remote = false
connections = 200
user = "nobody"
pid-file = "/run/a.pid"

[volume.a]
device = "/a.img"
header = "a.header"
partition = 2
export = "first"
key-file = "a.key"
keyfile-offset = 1
keyfile-size = 2
key-slot = 3
no-tokens = true
cpu = "portable"
cipher-threads = 2
engine = "vfio:0000:03:00.0"
engine-model = "runs"
engine-tweaks = "cpu"
engine-threshold = 65536
engine-failure = "error"
discard = "zero"
read-only = true
direct-io = true
reconnect = 5
clients = ["x"]

[volume."b c"]
device = "nbd://host/b"
cipher-threads = "auto"
key-command = ["/usr/bin/key", "b"]
"#;

    #[test]
    fn reads_all_that_there_is() {
        let config = Config::parse(ALL).unwrap();
        assert_eq!(config.server.connections, Some(200));
        let names: Vec<&str> = config.exports().map(|(name, _)| name).collect();
        assert_eq!(names, ["first", "b c"]);
        let volume = &config.volumes["a"];
        assert_eq!(volume.cipher_threads, Some(Threads::Count(2)));
        assert_eq!(volume.partition, Some(2));
        assert_eq!(volume.engine.as_deref(), Some("vfio:0000:03:00.0"));
        assert_eq!(volume.engine_threshold, Some(Bytes::Count(65536)));
        let command = config.volumes["b c"].key_command.as_ref().unwrap();
        assert_eq!(command, &["/usr/bin/key", "b"]);
        assert_eq!(Config::parse("").unwrap(), Config::default());
    }

    #[test]
    fn what_is_not_known_is_refused_with_its_line() {
        for (text, line, names) in [
            (
                "[volume.a]\ndevice = \"x\"\nread_only = true",
                3,
                "read_only",
            ),
            ("[server]\n\nuid = 3", 3, "uid"),
            ("volumes = 1", 1, "volumes"),
            ("[volume.a]\nread-only = true", 1, "device"),
            ("[volume.a]\ndevice = 7", 2, "integer"),
            (
                "[volume.a]\ndevice = \"x\"\ndevice = \"y\"",
                3,
                "duplicate key",
            ),
            ("[volume.a\n", 1, ""),
        ] {
            let error = Config::parse(text).unwrap_err();
            assert_eq!(error.line, Some(line), "{text}: {error}");
            assert!(error.message.contains(names), "{text}: {error}");
        }
    }

    #[test]
    fn contradictions_are_refused() {
        for (text, names) in [
            (
                "[volume.a]\ndevice=\"x\"\nexport=\"b\"\n[volume.b]\ndevice=\"y\"",
                "exported as",
            ),
            ("[volume.a]\ndevice=\"\"", "empty"),
            ("[volume.a]\ndevice=\"x\"\nkey-command=[]", "empty"),
            ("[volume.a]\ndevice=\"x\"\nclients=[]", "names nobody"),
            (
                "[volume.a]\ndevice=\"x\"\nengine-threshold=\"64K\"",
                "`engine-threshold` says how",
            ),
            (
                "[volume.a]\ndevice=\"x\"\nkey-file=\"k\"\ncredential=\"c\"",
                "both say",
            ),
            ("[volume.\"a\\n\"]\ndevice=\"x\"", "control"),
        ] {
            let error = Config::parse(text).unwrap_err();
            assert!(error.to_string().contains(names), "{text}: {error}");
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_hurts(text in "\\PC{0,200}", cut in 0_usize..700) {
            let _ = Config::parse(&text);
            let _ = Config::parse(&ALL[..cut.min(ALL.len())]);
            let _ = Config::parse(&format!("[volume.a]\n{text}"));
        }
    }
}
