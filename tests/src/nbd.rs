//! A client that speaks NBD by hand, to stop in the middle of things, and the
//! real clients.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::process::Finished;
use crate::{Cmd, PATIENCE};

/// `NBD_CMD_READ` and the like.
pub mod command {
    #![allow(missing_docs, reason = "the protocol's names")]
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const DISCONNECT: u16 = 2;
    pub const FLUSH: u16 = 3;
    pub const TRIM: u16 = 4;
    pub const WRITE_ZEROES: u16 = 6;
}

/// A connection.
pub struct Raw {
    stream: UnixStream,
}

impl std::os::fd::AsFd for Raw {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl From<UnixStream> for Raw {
    fn from(stream: UnixStream) -> Self {
        Self { stream }
    }
}

impl Raw {
    /// Connects; nothing is sent or read.
    pub fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self { stream }
    }

    /// The connection itself, for clients that expect it to break.
    pub fn into_stream(self) -> UnixStream {
        self.stream
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Reads exactly `len` bytes.
    pub fn receive(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// Whether the server has closed the connection (waits for it).
    pub fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }

    /// Reads the greeting and answers with the client's flags.
    pub fn greet(&mut self) {
        let greeting = self.receive(18);
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        // Fixed newstyle, no zeroes.
        self.send(&3u32.to_be_bytes());
    }

    /// Chooses the default export with `NBD_OPT_GO`; returns its size.
    pub fn go(&mut self) -> u64 {
        self.go_to("")
    }

    /// The same with the export of this name.
    pub fn go_to(&mut self, export: &str) -> u64 {
        self.send(&go_to(export));
        let mut size = 0;
        loop {
            let head = self.receive(20);
            let kind = u32::from_be_bytes(head[12..16].try_into().unwrap());
            let len = u32::from_be_bytes(head[16..20].try_into().unwrap());
            let body = self.receive(usize::try_from(len).unwrap());
            match kind {
                1 => return size,
                3 if body[..2] == [0, 0] => {
                    size = u64::from_be_bytes(body[2..10].try_into().unwrap());
                }
                3 => {}
                _ => panic!("NBD_OPT_GO answered with {kind:#x}"),
            }
        }
    }

    /// Sends a request without payload.
    pub fn request(&mut self, command: u16, offset: u64, len: u32) {
        self.send(&request(command, offset, len));
    }

    /// Reads a simple reply; returns its error.
    pub fn reply(&mut self) -> u32 {
        let reply = self.receive(16);
        assert_eq!(reply[..4], 0x6744_6698_u32.to_be_bytes());
        u32::from_be_bytes(reply[4..8].try_into().unwrap())
    }
}

/// `NBD_OPT_GO` for the default export, without information requests.
pub fn go() -> Vec<u8> {
    go_to("")
}

/// The same for the export of this name.
pub fn go_to(export: &str) -> Vec<u8> {
    let len = u32::try_from(export.len()).unwrap();
    let mut bytes = b"IHAVEOPT".to_vec();
    bytes.extend(7u32.to_be_bytes());
    bytes.extend((len + 6).to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes.extend(export.as_bytes());
    bytes.extend([0; 2]);
    bytes
}

/// A request's header.
pub fn request(command: u16, offset: u64, len: u32) -> Vec<u8> {
    Request::new(command, offset, len).bytes()
}

/// A request's header with anything in it.
#[derive(Clone, Copy)]
pub struct Request {
    command: u16,
    flags: u16,
    cookie: u64,
    offset: u64,
    len: u32,
}

impl Request {
    /// Without flags.
    pub fn new(command: u16, offset: u64, len: u32) -> Self {
        Self {
            command,
            flags: 0,
            cookie: 0x1122_3344_5566_7788,
            offset,
            len,
        }
    }

    /// With these flags; 1 is FUA.
    pub fn flags(self, flags: u16) -> Self {
        Self { flags, ..self }
    }

    /// With this cookie, which comes back in the reply.
    pub fn cookie(self, cookie: u64) -> Self {
        Self { cookie, ..self }
    }

    /// As it is sent.
    pub fn bytes(self) -> Vec<u8> {
        let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
        bytes.extend(self.flags.to_be_bytes());
        bytes.extend(self.command.to_be_bytes());
        bytes.extend(self.cookie.to_be_bytes());
        bytes.extend(self.offset.to_be_bytes());
        bytes.extend(self.len.to_be_bytes());
        bytes
    }
}

/// Runs Python in `nbdsh`, with `h` connected to `uri` and libnbd's own
/// objections to unaligned and impossible requests switched off.
pub fn nbdsh(uri: &str, script: &str) -> Finished {
    Cmd::peer("nbdsh")
        .args(["-u", uri, "-c", "h.set_strict_mode(0)", "-c", script])
        .ok()
}

/// Everything behind `uri`, by `nbdcopy`.
pub fn read_all(uri: &str) -> Vec<u8> {
    let scratch = crate::Scratch::new();
    let target = scratch.join("all");
    Cmd::peer("nbdcopy").arg(uri).arg(&target).ok();
    std::fs::read(target).unwrap()
}

/// Writes `data` to the beginning of the export, by `nbdcopy`, and flushes.
pub fn write_all(uri: &str, data: &[u8]) {
    let scratch = crate::Scratch::new();
    let source = scratch.file("all", data);
    Cmd::peer("nbdcopy")
        .args(["--flush"])
        .arg(&source)
        .arg(uri)
        .ok();
}
