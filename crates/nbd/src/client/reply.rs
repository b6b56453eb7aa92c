//! Request heads, and the heads of replies. What a reply means for its request
//! is [`Answer`](super::Answer)'s affair.

use std::fmt;

use super::{Form, cleaned};
use crate::constants::*;
use crate::{Head, Request, be16, be32, be64};

/// Bytes of input that always suffice for the next reply head: the longest one with an error
/// and its message.
pub const REPLY_CAPACITY: usize = EXTENDED + MAX_ERROR;
/// Bytes of the heads of replies.
const SIMPLE: usize = 16;
const STRUCTURED: usize = 20;
const EXTENDED: usize = 32;
/// Longest payload of an error chunk that is read, in bytes.
const MAX_ERROR: usize = 8 << 10;

/// What a server did that no server may; the connection cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation(pub &'static str);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server broke the protocol: {}", self.0)
    }
}

impl std::error::Error for Violation {}

/// The head of a reply, or of a chunk of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Which request it answers.
    pub cookie: u64,
    /// Offset of that request, if the reply repeats it.
    pub request_offset: Option<u64>,
    /// Whether it is the last for that request.
    pub done: bool,
    /// What it says.
    pub content: Content,
}

/// What the head of a reply says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A simple reply: all went well; after a read its data follow.
    Simple,
    /// All is said.
    Nothing,
    /// That many bytes of data follow, which lie at `offset` of the export.
    Data {
        /// First byte in the export.
        offset: u64,
        /// Length in bytes, not 0.
        len: u64,
    },
    /// That many bytes at `offset` of the export are zeros.
    Hole {
        /// First byte in the export.
        offset: u64,
        /// Length in bytes, not 0.
        len: u64,
    },
    /// The request failed.
    Error {
        /// The error value, not 0.
        error: u32,
        /// Where, if that was said.
        offset: Option<u64>,
        /// The server's words, cleaned; may be empty.
        message: String,
    },
}

/// The head of a request as it goes on the wire; a write's payload of
/// `request.length` bytes follows.
pub fn request_head(form: Form, request: &Request) -> Head {
    let extended = form == Form::Extended;
    let (magic, mut flags) = match extended {
        true => (EXTENDED_REQUEST_MAGIC, request.flags),
        false => (REQUEST_MAGIC, request.flags),
    };
    if extended && request.kind == CMD_WRITE {
        flags |= CMD_FLAG_PAYLOAD_LEN;
    }
    let head = Head::empty()
        .put(&magic.to_be_bytes())
        .put(&flags.to_be_bytes())
        .put(&request.kind.to_be_bytes())
        .put(&request.cookie.to_be_bytes())
        .put(&request.offset.to_be_bytes());
    match extended {
        true => head.put(&u64::from(request.length).to_be_bytes()),
        false => head.put(&request.length.to_be_bytes()),
    }
}

/// The head at the front of `input` and its bytes; [`None`] if more input is needed, never
/// more than [`REPLY_CAPACITY`].
pub fn parse_reply(form: Form, input: &[u8]) -> Result<Option<(usize, Reply)>, Violation> {
    if input.len() < 4 {
        return Ok(None);
    }
    match (be32(input, 0), form) {
        (SIMPLE_REPLY_MAGIC, Form::Simple | Form::Structured) => Ok(simple(input)),
        (STRUCTURED_REPLY_MAGIC, Form::Structured) if input.len() >= STRUCTURED => {
            let len = u64::from(be32(input, 16));
            chunk(input, STRUCTURED, len, None)
        }
        (EXTENDED_REPLY_MAGIC, Form::Extended) if input.len() >= EXTENDED => {
            chunk(input, EXTENDED, be64(input, 24), Some(be64(input, 16)))
        }
        (STRUCTURED_REPLY_MAGIC, Form::Structured) | (EXTENDED_REPLY_MAGIC, Form::Extended) => {
            Ok(None)
        }
        _ => Err(Violation("a reply that does not begin as one")),
    }
}

fn simple(input: &[u8]) -> Option<(usize, Reply)> {
    if input.len() < SIMPLE {
        return None;
    }
    let content = match be32(input, 4) {
        0 => Content::Simple,
        error => Content::Error {
            error,
            offset: None,
            message: String::new(),
        },
    };
    let reply = Reply {
        cookie: be64(input, 8),
        request_offset: None,
        done: true,
        content,
    };
    Some((SIMPLE, reply))
}

/// A chunk with `len` bytes of payload after a head of `head` bytes.
fn chunk(
    input: &[u8],
    head: usize,
    len: u64,
    request_offset: Option<u64>,
) -> Result<Option<(usize, Reply)>, Violation> {
    let (flags, kind) = (be16(input, 4), be16(input, 6));
    let done = flags & REPLY_FLAG_DONE != 0;
    // Bytes of payload that belong to the head.
    let own = match kind {
        REPLY_TYPE_NONE if len != 0 => return Err(Violation("a chunk of nothing with payload")),
        REPLY_TYPE_NONE if !done => {
            return Err(Violation("a chunk of nothing that is not the last"));
        }
        REPLY_TYPE_NONE => 0,
        REPLY_TYPE_OFFSET_DATA if len < 9 => return Err(Violation("a data chunk without data")),
        REPLY_TYPE_OFFSET_DATA => 8,
        REPLY_TYPE_OFFSET_HOLE if len != 12 => {
            return Err(Violation("a hole chunk of a wrong length"));
        }
        REPLY_TYPE_OFFSET_HOLE => 12,
        _ if kind & (1 << 15) == 0 => return Err(Violation("a chunk of an unknown type")),
        _ => usize::try_from(len)
            .ok()
            .filter(|len| (6..=MAX_ERROR).contains(len))
            .ok_or(Violation("an error chunk of an impossible length"))?,
    };
    let Some(payload) = input.get(head..head + own) else {
        return Ok(None);
    };
    let content = match kind {
        REPLY_TYPE_NONE => Content::Nothing,
        REPLY_TYPE_OFFSET_DATA => Content::Data {
            offset: be64(payload, 0),
            len: len - 8,
        },
        REPLY_TYPE_OFFSET_HOLE => match be32(payload, 8) {
            0 => return Err(Violation("a hole of no bytes")),
            len => Content::Hole {
                offset: be64(payload, 0),
                len: u64::from(len),
            },
        },
        _ => error(kind, payload)?,
    };
    let reply = Reply {
        cookie: be64(input, 8),
        request_offset,
        done,
        content,
    };
    Ok(Some((head + own, reply)))
}

fn error(kind: u16, payload: &[u8]) -> Result<Content, Violation> {
    let (error, end) = (be32(payload, 0), 6 + usize::from(be16(payload, 4)));
    if error == 0 {
        return Err(Violation("an error chunk without an error"));
    }
    let with_offset = kind == REPLY_TYPE_ERROR_OFFSET;
    let fixed = if with_offset { end + 8 } else { end };
    if fixed > payload.len() {
        return Err(Violation("an error message longer than its chunk"));
    }
    Ok(Content::Error {
        error,
        offset: with_offset.then(|| be64(payload, end)),
        message: cleaned(&payload[6..end]),
    })
}
