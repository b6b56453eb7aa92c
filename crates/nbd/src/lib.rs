//! The NBD protocol without I/O: bytes in, events and bytes out. Nothing here
//! knows sockets, threads or volumes. The server's side is at the top, the
//! client's in [`client`].
//!
//! Source: `doc/proto.md` of the NetworkBlockDevice project, "The NBD
//! protocol". Constants carry the names used there.

pub mod client;
pub mod constants;
mod handshake;
mod reply;
mod request;

pub use handshake::{ExportInfo, Handshake, Progress, Session, Tls};
pub use reply::{
    Head, block_status, error_at, error_chunk, no_data_reply, offset_data, simple_reply,
};
pub use request::{Command, Refusal, Request, RequestError, Verdict};

/// Largest payload of one read or write, in bytes: what `NBD_INFO_BLOCK_SIZE`
/// says, and what the standard lets a client assume that never asked.
pub const MAX_PAYLOAD: u32 = 32 << 20;

/// Largest payload of a refused write that is read and dropped to stay in
/// step with the client, in bytes; the connection ends on a larger one.
/// Twice what is accepted, since clients that overlook the limit send 64 MiB.
pub const MAX_DRAIN: u32 = 64 << 20;

/// The metadata context id under which `base:allocation` is reported.
pub const ALLOCATION_CONTEXT_ID: u32 = 1;

/// An error value of the transmission phase ("Error values").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum NbdError {
    /// Operation not permitted: a write to a read-only export.
    Perm = 1,
    /// Input/output error.
    Io = 5,
    /// Out of memory.
    NoMem = 12,
    /// Invalid argument: malformed request, or a range beyond the end.
    Inval = 22,
    /// No space left, or a write beyond the end.
    NoSpc = 28,
    /// Value too large: an unfragmented read larger than is supported.
    Overflow = 75,
    /// Operation not supported.
    NotSup = 95,
    /// The server is shutting down.
    Shutdown = 108,
}

impl NbdError {
    /// The value on the wire.
    pub const fn code(self) -> u32 {
        self as u32
    }
}

/// The big-endian number at `at`; the caller has checked the length.
pub fn be16(bytes: &[u8], at: usize) -> u16 {
    let mut raw = [0; 2];
    raw.copy_from_slice(&bytes[at..at + 2]);
    u16::from_be_bytes(raw)
}

/// As [`be16`], of the bytes that it takes.
pub fn be32(bytes: &[u8], at: usize) -> u32 {
    let mut raw = [0; 4];
    raw.copy_from_slice(&bytes[at..at + 4]);
    u32::from_be_bytes(raw)
}

/// As [`be16`], of the bytes that it takes.
pub fn be64(bytes: &[u8], at: usize) -> u64 {
    let mut raw = [0; 8];
    raw.copy_from_slice(&bytes[at..at + 8]);
    u64::from_be_bytes(raw)
}
