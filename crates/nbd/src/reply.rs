//! Replies of the transmission phase. Heads are small byte strings on the
//! stack; data follows them from wherever it lies.

use crate::constants::*;
use crate::{ALLOCATION_CONTEXT_ID, NbdError};

/// Bytes of the longest head: an error chunk with its message.
const HEAD_CAPACITY: usize = 128;

/// The bytes of a reply or request before its data, or all of it without data.
#[derive(Clone, Copy)]
pub struct Head {
    bytes: [u8; HEAD_CAPACITY],
    len: u8,
}

impl Head {
    /// No bytes.
    pub fn empty() -> Self {
        Self {
            bytes: [0; HEAD_CAPACITY],
            len: 0,
        }
    }

    pub(crate) fn put(mut self, bytes: &[u8]) -> Self {
        let start = usize::from(self.len);
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "at most HEAD_CAPACITY, checked above"
        )]
        {
            self.len = (start + bytes.len()) as u8;
        }
        self
    }

    /// The bytes to send.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl std::fmt::Debug for Head {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Head").field(&self.as_bytes()).finish()
    }
}

fn chunk(flags: u16, kind: u16, cookie: u64, payload: u32) -> Head {
    Head::empty()
        .put(&STRUCTURED_REPLY_MAGIC.to_be_bytes())
        .put(&flags.to_be_bytes())
        .put(&kind.to_be_bytes())
        .put(&cookie.to_be_bytes())
        .put(&payload.to_be_bytes())
}

fn done(last: bool) -> u16 {
    if last { REPLY_FLAG_DONE } else { 0 }
}

/// A simple reply; data follows a successful read.
pub fn simple_reply(cookie: u64, error: Option<NbdError>) -> Head {
    Head::empty()
        .put(&SIMPLE_REPLY_MAGIC.to_be_bytes())
        .put(&error.map_or(0, NbdError::code).to_be_bytes())
        .put(&cookie.to_be_bytes())
}

/// The final chunk without content (`NBD_REPLY_TYPE_NONE`).
pub fn no_data_reply(cookie: u64) -> Head {
    chunk(REPLY_FLAG_DONE, REPLY_TYPE_NONE, cookie, 0)
}

/// The head of `len` bytes of data at `offset`; `len` is at most
/// [`crate::MAX_PAYLOAD`] and not 0.
pub fn offset_data(cookie: u64, offset: u64, len: u32, last: bool) -> Head {
    chunk(done(last), REPLY_TYPE_OFFSET_DATA, cookie, len + 8).put(&offset.to_be_bytes())
}

/// One descriptor of `base:allocation`: `len` bytes of allocated data.
///
/// Never `NBD_STATE_HOLE` or `NBD_STATE_ZERO`: a hole in the ciphertext
/// decrypts to noise.
pub fn block_status(cookie: u64, len: u32) -> Head {
    chunk(REPLY_FLAG_DONE, REPLY_TYPE_BLOCK_STATUS, cookie, 12)
        .put(&ALLOCATION_CONTEXT_ID.to_be_bytes())
        .put(&len.to_be_bytes())
        .put(&0_u32.to_be_bytes())
}

/// A message cut at a character boundary to what a head has room for.
fn cut(message: &str, fixed: usize) -> &str {
    let mut end = message.len().min(HEAD_CAPACITY - fixed);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    &message[..end]
}

fn error_payload(head: Head, error: NbdError, message: &str) -> Head {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "cut to less than HEAD_CAPACITY"
    )]
    let len = message.len() as u16;
    head.put(&error.code().to_be_bytes())
        .put(&len.to_be_bytes())
        .put(message.as_bytes())
}

/// The request failed as a whole; the message is for a person.
pub fn error_chunk(cookie: u64, error: NbdError, message: &str) -> Head {
    let message = cut(message, 26);
    #[expect(clippy::cast_possible_truncation, reason = "less than HEAD_CAPACITY")]
    let payload = (6 + message.len()) as u32;
    let head = chunk(REPLY_FLAG_DONE, REPLY_TYPE_ERROR, cookie, payload);
    error_payload(head, error, message)
}

/// A part of a read failed at `offset`.
pub fn error_at(cookie: u64, error: NbdError, offset: u64, message: &str, last: bool) -> Head {
    let message = cut(message, 34);
    #[expect(clippy::cast_possible_truncation, reason = "less than HEAD_CAPACITY")]
    let payload = (14 + message.len()) as u32;
    let head = chunk(done(last), REPLY_TYPE_ERROR_OFFSET, cookie, payload);
    error_payload(head, error, message).put(&offset.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{be16, be32, be64};

    #[test]
    fn simple_replies_have_the_documented_layout() {
        let head = simple_reply(0x0102_0304_0506_0708, Some(NbdError::NoSpc));
        assert_eq!(
            head.as_bytes(),
            [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 28, 1, 2, 3, 4, 5, 6, 7, 8]
        );
    }

    #[test]
    fn chunk_lengths_cover_their_payload() {
        let long = "ä".repeat(300);
        for head in [
            no_data_reply(1),
            block_status(1, 77),
            error_chunk(1, NbdError::Io, ""),
            error_chunk(1, NbdError::Io, &long),
            error_at(1, NbdError::Io, 5, "bad", false),
            error_at(1, NbdError::Io, 5, &long, true),
        ] {
            let bytes = head.as_bytes();
            assert_eq!(be32(bytes, 0), STRUCTURED_REPLY_MAGIC);
            assert_eq!(be32(bytes, 16) as usize, bytes.len() - 20, "{head:?}");
        }
    }

    #[test]
    fn data_heads_count_the_offset_in_the_length() {
        let head = offset_data(9, 4096, 512, true);
        let bytes = head.as_bytes();
        assert_eq!(bytes.len(), 28);
        assert_eq!(
            (be16(bytes, 4), be16(bytes, 6)),
            (REPLY_FLAG_DONE, REPLY_TYPE_OFFSET_DATA)
        );
        assert_eq!((be32(bytes, 16), be64(bytes, 20)), (520, 4096));
        assert_eq!(be16(offset_data(9, 0, 1, false).as_bytes(), 4), 0);
    }

    #[test]
    fn an_error_at_an_offset_ends_with_the_offset() {
        let head = error_at(3, NbdError::Io, 0x1234, "read failed", true);
        let bytes = head.as_bytes();
        assert_eq!(be32(bytes, 20), 5);
        assert_eq!(usize::from(be16(bytes, 24)), "read failed".len());
        assert_eq!(&bytes[26..37], b"read failed");
        assert_eq!(be64(bytes, 37), 0x1234);
    }
}
