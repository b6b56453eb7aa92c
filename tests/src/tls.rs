//! NBD over TLS: folders of certificates, a client of one's own, and whoever is in between.

use std::io::{self, IoSlice, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use xtent_tls::testing::{Authority, Wanted};
use xtent_tls::{Channel, Client, Error, Handshake, Next};

use crate::{PATIENCE, Scratch};

/// An authority, and folders with what it has signed.
pub struct Certificates {
    /// The authority.
    pub authority: Authority,
    scratch: Scratch,
}

impl Default for Certificates {
    fn default() -> Self {
        Self::new()
    }
}

impl Certificates {
    /// An authority of its own.
    pub fn new() -> Self {
        Self {
            authority: Authority::new("tests"),
            scratch: Scratch::new(),
        }
    }

    /// A folder that trusts the authority and has one certificate.
    pub fn folder(&self, name: &str, wanted: &Wanted) -> PathBuf {
        let folder = self.empty(name);
        self.authority.certify(&folder, wanted);
        folder
    }

    /// A folder that trusts the authority.
    pub fn empty(&self, name: &str) -> PathBuf {
        let folder = self.scratch.folder(name);
        self.authority.trusted_in(&folder);
        folder
    }

    /// The usual server's.
    pub fn server(&self) -> PathBuf {
        self.folder("server", &Wanted::server(&["localhost", "127.0.0.1"]))
    }

    /// A client's, of this common name.
    pub fn client(&self, name: &str) -> PathBuf {
        self.folder(name, &Wanted::client(name))
    }
}

/// A URI with the certificates that a client has.
pub fn with(uri: &str, certificates: &Path) -> String {
    let separator = if uri.contains('?') { '&' } else { '?' };
    format!(
        "{uri}{separator}tls-certificates={}",
        certificates.display()
    )
}

/// The client's side of a connection, after `NBD_OPT_STARTTLS`.
pub struct RawTls {
    stream: UnixStream,
    channel: Channel,
}

/// `NBD_OPT_STARTTLS`.
pub const START_TLS: &[u8] = b"IHAVEOPT\0\0\0\x05\0\0\0\0";

impl RawTls {
    /// Connects and begins TLS.
    pub fn connect(socket: &Path, certificates: &Path) -> Result<Self, Error> {
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).unwrap();
        stream
            .write_all(&[&[0, 0, 0, 3], START_TLS].concat())
            .unwrap();
        let mut reply = [0; 20];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(reply[12..], [0, 0, 0, 1, 0, 0, 0, 0]);
        let client = Client::open(Some(certificates), "localhost").unwrap();
        let mut handshake = Handshake::client(&client)?;
        loop {
            let next = handshake.step();
            stream.write_all(&handshake.take_output()).unwrap();
            if next? == Next::Done {
                let channel = handshake.into_channel();
                return Ok(Self { stream, channel });
            }
            let n = stream.read(handshake.room()).unwrap();
            assert!(n > 0, "the server closed the connection");
            handshake.received(n);
        }
    }

    /// Sends bytes, encrypted.
    pub fn send(&mut self, bytes: &[u8]) {
        let stream = &mut self.stream;
        let n = self
            .channel
            .send(&[IoSlice::new(bytes)], |records| stream.write(records))
            .unwrap();
        assert_eq!(n, bytes.len());
    }

    /// Receives exactly so many bytes.
    pub fn receive(&mut self, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        let mut at = 0;
        while at < len {
            let stream = &mut self.stream;
            match self
                .channel
                .receive(&mut bytes[at..], |room| stream.read(room))
            {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => at += n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(bytes)
    }

    /// The connection below.
    pub fn stream(&mut self) -> &mut UnixStream {
        &mut self.stream
    }
}

/// What somebody in between does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tamper {
    /// Answers the wish for TLS as a server that has none.
    Strip,
    /// Puts an answer in the clear behind the server's consent to TLS.
    InjectAnswer,
    /// Puts an option in the clear behind the client's wish for TLS.
    InjectOption,
    /// Cuts the connection that brings the server's bytes to so many, over all connections.
    Cut(usize),
    /// Changes the server's byte after so many, over all connections.
    Change(usize),
}

/// Somebody between clients and the server at a socket.
pub struct Between {
    socket: PathBuf,
    heard: Arc<Mutex<Vec<u8>>>,
    _scratch: Scratch,
}

impl Between {
    /// Stands there from now on, to the end of the test.
    pub fn new(server: &Path, tamper: Tamper) -> Self {
        let scratch = Scratch::new();
        let socket = scratch.join("between.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let heard = Arc::<Mutex<Vec<u8>>>::default();
        let (server, ears) = (server.to_owned(), Arc::clone(&heard));
        // Which connection has how many of them is the client's affair.
        let passed = Arc::<AtomicUsize>::default();
        thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, UnixStream::connect(&server)) else {
                    return;
                };
                let (ears, passed) = (Arc::clone(&ears), Arc::clone(&passed));
                // The ends of either are nothing to report.
                thread::spawn(move || serve(client, server, tamper, &passed, &ears));
            }
        });
        Self {
            socket,
            heard,
            _scratch: scratch,
        }
    }

    /// Where clients find it.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// For a client with these certificates.
    pub fn uri(&self, certificates: &Path) -> String {
        let uri = format!("nbds+unix:///?socket={}", self.socket.display());
        with(&uri, certificates)
    }

    /// What clients said in the clear after their wish for TLS was refused.
    pub fn heard(&self) -> Vec<u8> {
        self.heard.lock().unwrap().clone()
    }
}

fn serve(
    mut client: UnixStream,
    mut server: UnixStream,
    tamper: Tamper,
    passed: &AtomicUsize,
    ears: &Mutex<Vec<u8>>,
) -> io::Result<()> {
    let mut greeting = [0; 18];
    server.read_exact(&mut greeting)?;
    client.write_all(&greeting)?;
    let mut wish = [0; 20];
    client.read_exact(&mut wish)?;
    assert_eq!(&wish[4..], START_TLS);
    let reply = |option: u8, kind: u32| {
        let mut reply = vec![0, 3, 0xe8, 0x89, 4, 0x55, 0x65, 0xa9, 0, 0, 0, option];
        reply.extend(kind.to_be_bytes());
        reply.extend([0; 4]);
        reply
    };
    if tamper == Tamper::Strip {
        client.write_all(&reply(5, 0x8000_0001))?;
        let mut rest = Vec::new();
        let _ = client.read_to_end(&mut rest);
        ears.lock().unwrap().extend(rest);
        return Ok(());
    }
    match tamper {
        Tamper::InjectOption => {
            let list = b"IHAVEOPT\0\0\0\x03\0\0\0\0";
            server.write_all(&[&wish[..], list].concat())?;
        }
        _ => server.write_all(&wish)?,
    }
    let mut consent = vec![0; 20];
    server.read_exact(&mut consent)?;
    if tamper == Tamper::InjectAnswer {
        consent.extend(reply(11, 0x8000_0001));
    }
    client.write_all(&consent)?;
    let (mut from, mut to) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Write);
    });
    let mut buffer = vec![0; 64 << 10];
    loop {
        let n = server.read(&mut buffer)?;
        let bytes = &mut buffer[..n];
        let before = passed.fetch_add(n, Ordering::Relaxed);
        match tamper {
            Tamper::Cut(at) if (before..before + n).contains(&at) => {
                client.write_all(&bytes[..at - before])?;
                // It may go on writing, or it could hear of the cut that way first.
                return client.shutdown(std::net::Shutdown::Write);
            }
            Tamper::Change(at) if (before..before + n).contains(&at) => {
                bytes[at - before] ^= 1;
            }
            _ => {}
        }
        client.write_all(bytes)?;
        if n == 0 {
            return client.shutdown(std::net::Shutdown::Write);
        }
    }
}
