//! The client's side: the handshake, request heads, and replies held against
//! what was asked. A server may be anybody: nothing that it says takes memory
//! without a bound or is believed unchecked.

mod answer;
mod handshake;
mod reply;
#[cfg(test)]
mod tests;

pub use answer::{Answer, Failure, Fill};
pub use handshake::{BlockSizes, Handshake, HandshakeError, HandshakeErrorKind, Negotiated, Step};
pub use reply::{Content, REPLY_CAPACITY, Reply, Violation, parse_reply, request_head};

/// The layout of messages after the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Compact requests, simple replies.
    Simple,
    /// Compact requests; reads are answered in chunks.
    Structured,
    /// Extended requests; everything is answered in chunks.
    Extended,
}

/// What a server wrote for a person, fit for a message: one line, cut to 200 characters,
/// without control characters.
fn cleaned(text: &[u8]) -> String {
    String::from_utf8_lossy(text)
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(200)
        .collect::<String>()
        .trim()
        .to_owned()
}
