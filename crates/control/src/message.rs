//! What is asked and answered, and the parser of it.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{Error, MAX_MESSAGE};

/// Longest text in a message: a path, a URI, a name.
const LONGEST_TEXT: usize = 4096;
/// Most settings of a cluster's client.
const MOST_SETTINGS: usize = 64;
/// Most files of a volume: data, claim, backing file, and what is held for its lock.
pub const MOST_FILES: usize = 8;

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// A [`Reply::Served`] for each export.
    Status,
    /// Take the volume that is waited for away from whoever has it. Of a standby.
    Takeover,
    /// Serve a volume. Its files come with this message, its key is the next, and of an image in a
    /// cluster whose users have keys the user's is the one after that.
    Attach(Box<Attach>),
    /// Part from an export's clients, flush it and let go of it.
    Detach {
        /// The export.
        name: String,
    },
    /// Look at the size of an export's device.
    Resize {
        /// The export; empty of a mount.
        name: String,
        /// What its header says by now, where that fixes the size and was changed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fixed: Option<FixedSize>,
    },
}

/// The size that a header fixes: the server does not read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FixedSize {
    /// Of which volume. Others may be on the same device.
    pub uuid: String,
    /// Bytes of it.
    pub size: u64,
}

/// A volume, as its header and the options say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attach {
    /// The export's name.
    pub name: String,
    /// Names in certificates, of the clients that may have it; everybody if empty.
    pub clients: Vec<String>,
    /// The device, for people.
    pub device: String,
    /// Partition of the image.
    pub partition: Option<u32>,
    /// UUID of the volume.
    pub uuid: Option<String>,
    /// Where the ciphertext is.
    pub source: Source,
    /// What each file is that comes with the message.
    pub files: Vec<Role>,
    /// Bytes of the key.
    pub key_length: usize,
    /// By dm-crypt's name.
    pub cipher: String,
    /// Bytes per sector.
    pub sector_size: u32,
    /// Sectors are counted for the IV, not 512 bytes.
    pub large_sectors: bool,
    /// First byte of the volume.
    pub offset: u64,
    /// Bytes of plaintext.
    pub length: u64,
    /// Added to every sector number.
    pub iv_offset: u64,
    /// It grows with its device.
    pub grows: bool,
    /// Writes are refused.
    pub read_only: bool,
    /// The device has the plaintext, and the ciphertext is served.
    pub encrypt: bool,
    /// What discards do.
    pub discard: Discard,
    /// Sectors whose ciphertext is all zeros read as zeros.
    pub zero_holes: bool,
    /// Back-end of the cipher, or the fastest.
    pub backend: Option<String>,
    /// Threads for a large request, or as it pays.
    pub cipher_threads: Option<usize>,
}

/// What discards do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Discard {
    /// Nothing.
    Never,
    /// They are passed down.
    Allow,
    /// Encrypted zeros are written.
    Zero,
}

/// Where the ciphertext is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Source {
    /// In the file that comes with the message.
    File {
        /// First byte and length of the part that is used.
        window: Option<(u64, u64)>,
        /// Past the page cache.
        direct: bool,
        /// Bytes that the disk writes atomically.
        atomic: u32,
        /// Bytes that it discards at a time.
        discard: u32,
    },
    /// With a server that is connected to.
    Export {
        /// Its URI.
        uri: String,
        /// Seconds that a lost connection may stay lost.
        reconnect: u32,
        /// The header is on that disk, which is known by the volume's UUID in it.
        has_header: bool,
    },
    /// In an image of a Ceph cluster, which is connected to.
    Image {
        /// Its name, without how to get there.
        name: String,
        /// `USER` of the cluster's `client.USER`.
        user: String,
        /// Options of Ceph and their values.
        settings: Vec<(String, String)>,
        /// Bytes of that user's key; 0 where the cluster asks for none.
        secret_length: usize,
        /// The header is on that image. It has to be as it was read when the image is open.
        has_header: bool,
    },
}

/// What a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The ciphertext.
    Data,
    /// The exclusive claim on a block device.
    Claim,
    /// The file under a loop device.
    Backing,
    /// Held open for its lock, for as long as the volume is.
    Held,
}

/// What a server answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// One of the exports.
    Served(Served),
    /// The end: it was done.
    Done {
        /// Where clients connect, after an attach.
        #[serde(default)]
        uris: Vec<String>,
        /// Bytes before and after, of a volume that was looked at.
        #[serde(default)]
        sizes: Option<(u64, u64)>,
    },
    /// The end: it was not done.
    Failed {
        /// The exit code for it.
        exit: u8,
        /// Why.
        message: String,
        /// What to do.
        advice: Option<String>,
    },
}

/// An export of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// Its name.
    pub name: String,
    /// The device, for people.
    pub device: String,
    /// Partition of the image.
    pub partition: Option<u32>,
    /// UUID of the volume.
    pub uuid: Option<String>,
    /// Bytes of plaintext.
    pub size: u64,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Clients that have it.
    pub clients: usize,
    /// It is being detached.
    pub ending: bool,
    /// What it has done, for programs.
    #[serde(default)]
    pub metrics: serde_json::Value,
}

impl Request {
    /// Parses what a client has sent, which may be anything.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let request: Self = parse(bytes)?;
        match &request {
            Self::Status | Self::Takeover => Ok(()),
            Self::Detach { name } => check_text(name),
            Self::Resize { name, fixed } => check_text(name)
                .and_then(|()| fixed.as_ref().map_or(Ok(()), |it| check_text(&it.uuid))),
            Self::Attach(attach) => attach.check(),
        }?;
        Ok(request)
    }

    /// As it is sent.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        to_bytes(self)
    }
}

impl Reply {
    /// Parses what a server has sent.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        parse(bytes)
    }

    /// As it is sent.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        to_bytes(self)
    }
}

impl Attach {
    fn check(&self) -> Result<(), Error> {
        let texts = [&self.name, &self.device, &self.cipher];
        let optional = self.uuid.iter().chain(&self.backend).chain(&self.clients);
        for text in texts.into_iter().chain(optional) {
            check_text(text)?;
        }
        if self.clients.iter().any(String::is_empty) {
            return Err(Error::protocol("a client's name is empty"));
        }
        if self.key_length == 0 || self.key_length > crate::MAX_KEY {
            return Err(Error::protocol(format!(
                "a key has 1 to {} bytes, not {}",
                crate::MAX_KEY,
                self.key_length
            )));
        }
        let count = |role| self.files.iter().filter(|it| **it == role).count();
        let data = match &self.source {
            Source::File { .. } => 1,
            Source::Export {
                uri, has_header, ..
            } => {
                check_text(uri)?;
                if *has_header && self.uuid.is_none() {
                    return Err(Error::protocol("a volume with a header has a UUID"));
                }
                0
            }
            Source::Image {
                name,
                user,
                settings,
                secret_length,
                ..
            } => {
                if settings.len() > MOST_SETTINGS {
                    return Err(Error::protocol("there are too many settings"));
                }
                let settings = settings.iter().flat_map(|(option, value)| [option, value]);
                for text in [name, user].into_iter().chain(settings) {
                    check_text(text)?;
                }
                if *secret_length > crate::MAX_KEY {
                    return Err(Error::protocol("the user's key is too long"));
                }
                0
            }
        };
        if self.files.len() > MOST_FILES
            || count(Role::Data) != data
            || count(Role::Claim) > data
            || count(Role::Backing) > data
        {
            return Err(Error::protocol("these are not the files of a volume"));
        }
        Ok(())
    }
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(bytes).map_err(|error| Error {
        source: Some(error.into()),
        ..Error::protocol("the message is none of the control socket's")
    })
}

fn to_bytes(message: &impl Serialize) -> Result<Vec<u8>, Error> {
    let bytes = serde_json::to_vec(message).map_err(|error| Error {
        source: Some(error.into()),
        ..Error::protocol("the message cannot be written")
    })?;
    match bytes.len() <= MAX_MESSAGE {
        true => Ok(bytes),
        false => Err(Error::protocol("the message is too long")),
    }
}

/// It is shown in one line, and stored in the registry.
fn check_text(text: &str) -> Result<(), Error> {
    match text.len() <= LONGEST_TEXT && !text.contains(char::is_control) {
        true => Ok(()),
        false => Err(Error::protocol(
            "a text is too long, or has control characters",
        )),
    }
}

/// The name that an export has if nobody says another: the device's, without its folder; of a
/// URI the export's name there, of an image in a Ceph cluster the image's, with its snapshot's.
pub fn export_name(device: &str) -> &str {
    if let Some(image) = device.strip_prefix("rbd:") {
        // Options begin at a colon that no backslash makes an ordinary one.
        let mut before = ' ';
        let end = image.find(|it| std::mem::replace(&mut before, it) != '\\' && it == ':');
        let image = &image[..end.unwrap_or(image.len())];
        return image.rsplit('/').next().unwrap_or(image);
    }
    let path = match device.split_once("://") {
        Some((_, rest)) => {
            let rest = rest.split(['?', '#']).next().unwrap_or_default();
            rest.split_once('/').map_or("", |(_, path)| path)
        }
        None => device,
    };
    let path = path.trim_end_matches('/');
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn attach() -> Attach {
        Attach {
            clients: vec!["a".into()],
            files: vec![Role::Data, Role::Held],
            ..crate::sample("a", "/a.img", 1 << 20)
        }
    }

    fn image(change: impl FnOnce(&mut String, &mut Vec<(String, String)>, &mut usize)) -> Attach {
        let (mut name, mut settings) = ("rbd:p/i".into(), vec![("mon_host".into(), "h".into())]);
        let mut secret_length = 40;
        change(&mut name, &mut settings, &mut secret_length);
        Attach {
            files: vec![],
            source: Source::Image {
                name,
                user: "admin".into(),
                settings,
                secret_length,
                has_header: true,
            },
            ..attach()
        }
    }

    fn round(attach: Attach) -> Result<Request, Error> {
        Request::parse(&Request::Attach(Box::new(attach)).to_bytes().unwrap())
    }

    #[test]
    fn what_is_sent_is_what_comes() {
        let request = Request::Attach(Box::new(attach()));
        assert_eq!(round(attach()).unwrap(), request);
        let image = image(|_, _, _| ());
        let request = Request::Attach(Box::new(image.clone()));
        assert_eq!(round(image).unwrap(), request);
        for text in [
            r#""status""#,
            r#""takeover""#,
            r#"{"detach":{"name":""}}"#,
            r#"{"resize":{"name":"a"}}"#,
            r#"{"resize":{"name":"a","fixed":{"uuid":"u","size":4096}}}"#,
        ] {
            let request = Request::parse(text.as_bytes()).unwrap();
            assert_eq!(request.to_bytes().unwrap(), text.as_bytes());
        }
        let reply = Reply::Done {
            uris: Vec::new(),
            sizes: Some((1, 2)),
        };
        assert_eq!(Reply::parse(&reply.to_bytes().unwrap()).unwrap(), reply);
    }

    #[test]
    fn what_no_client_sends_is_refused() {
        for change in [
            (|it| it.name = "a\nb".into()) as fn(&mut Attach),
            |it| it.device = "x".repeat(5000),
            |it| it.key_length = 0,
            |it| it.key_length = 1 << 40,
            |it| it.files = vec![],
            |it| it.files = vec![Role::Data, Role::Data],
            |it| it.files = vec![Role::Data, Role::Claim, Role::Claim],
            |it| it.files.resize(MOST_FILES + 1, Role::Held),
            |it| it.uuid = Some("\u{1b}".into()),
            |it| {
                it.files = vec![];
                it.source = Source::Export {
                    uri: "nbd://h/".into(),
                    reconnect: 0,
                    has_header: true,
                }
            },
        ] {
            let mut hostile = attach();
            change(&mut hostile);
            assert!(round(hostile.clone()).is_err(), "{hostile:?}");
        }
        for hostile in [
            image(|name, _, _| name.push('\n')),
            image(|name, _, _| *name = "x".repeat(5000)),
            image(|_, settings, _| settings[0].0 = "\0".into()),
            image(|_, settings, _| settings[0].1 = "x".repeat(5000)),
            image(|_, settings, _| settings.resize(65, settings[0].clone())),
            image(|_, _, secret| *secret = usize::MAX),
            Attach {
                files: vec![Role::Data],
                ..image(|_, _, _| ())
            },
        ] {
            assert!(round(hostile.clone()).is_err(), "{hostile:?}");
        }
        for text in ["", "{}", "\"attach\"", "{\"detach\":{}}", "[[[[", "\"x\""] {
            assert!(Request::parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn exports_are_named_after_their_devices() {
        for (device, name) in [
            ("a.img", "a.img"),
            ("/srv/disks/b.luks", "b.luks"),
            ("/dev/vg/root/", "root"),
            ("nbd://host:10809/disk", "disk"),
            ("nbd+unix:///far/away?socket=/tmp/a/b", "away"),
            ("nbd://host", ""),
            ("rbd:pool/disk", "disk"),
            (
                "rbd:pool/space/disk@before:conf=/etc/ceph/a.conf:id=x",
                "disk@before",
            ),
            (r"rbd:pool/d\:k:conf=/x", r"d\:k"),
        ] {
            assert_eq!(export_name(device), name, "{device}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_hurt(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Request::parse(&bytes);
            let _ = Reply::parse(&bytes);
        }
    }
}
