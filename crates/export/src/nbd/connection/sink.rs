//! Where the pieces of a large read go: the forms of its reply.

use std::io::IoSlice;
use std::sync::Arc;

use xtent_store::Buffer;
use xtent_volume::{Error as VolumeError, Phase, RequestKind, Watch};

use super::Connection;
use crate::nbd::errno;
use crate::nbd::job::{Reply, error_offset, payload_len};
use crate::nbd::link::{Message, PiecesLeft};
use crate::nbd::port::{Closed, Turn};
use crate::nbd::proto::{self, Head, NbdError};

/// The reply of a large read on its way.
pub(super) enum Sink {
    /// A chunk for each piece, in any order.
    Chunks {
        /// What is not answered yet, from the first piece on that is a job.
        left: Option<Arc<PiecesLeft>>,
    },
    /// One reply, with memory for all of it: an error is known before it begins.
    Whole {
        buffer: Buffer,
        /// Where in it the data begins.
        skip: usize,
        failure: Option<Head>,
    },
    /// One reply without memory for it: what is read is sent at once, and an error comes
    /// late. Structured replies allow that; after the beginning of a simple one the
    /// connection has to end.
    Stream {
        turn: Option<Turn>,
        failure: Option<(NbdError, u64)>,
        /// The error came before anything was sent.
        refused: Option<Head>,
        /// Bytes of the whole read.
        len: usize,
    },
}

/// A piece of a large read.
pub(super) struct Piece {
    /// Where in the volume.
    pub(super) offset: u64,
    /// Length in bytes.
    pub(super) len: usize,
    /// Nothing of the request comes after it.
    pub(super) is_last: bool,
}

impl Sink {
    /// For a read of `len` bytes; `whole` if the client wants the reply in one piece.
    pub(super) fn new(
        connection: &Connection<'_>,
        reply: Reply,
        offset: u64,
        len: usize,
        whole: bool,
    ) -> Self {
        if reply.structured && !whole {
            return Self::Chunks { left: None };
        }
        match connection.memory_for(offset, len) {
            Some(buffer) => Self::Whole {
                buffer,
                skip: connection.volume.hull(offset, len).skip,
                failure: None,
            },
            None => Self::Stream {
                turn: None,
                failure: None,
                refused: None,
                len,
            },
        }
    }

    /// Takes a piece that was read to where the sink wants it, or its failure.
    pub(super) fn put(
        &mut self,
        connection: &mut Connection<'_>,
        reply: Reply,
        piece: &Piece,
        result: Result<(), VolumeError>,
    ) -> Result<(), Closed> {
        if let Err(error) = &result {
            connection.end_if_fenced(reply, RequestKind::Read, error)?;
        }
        match self {
            Self::Chunks { left } => send_chunk(connection, reply, piece, result, left.as_deref()),
            Self::Whole { failure, .. } => {
                if let (Err(error), None) = (result, &failure) {
                    *failure = Some(reply.volume_failure(
                        connection.served,
                        connection.volume,
                        RequestKind::Read,
                        &error,
                    ));
                }
                Ok(())
            }
            Self::Stream {
                refused: Some(_), ..
            } => Ok(()),
            Self::Stream {
                turn,
                failure,
                refused,
                len,
            } => {
                if let (Err(error), None) = (result, &failure) {
                    if turn.is_none() {
                        *refused = Some(reply.volume_failure(
                            connection.served,
                            connection.volume,
                            RequestKind::Read,
                            &error,
                        ));
                        return Ok(());
                    }
                    let at = error_offset(&error, piece.offset, piece.len);
                    *failure = Some((
                        reply.report(
                            connection.served,
                            connection.volume,
                            RequestKind::Read,
                            &error,
                        ),
                        at,
                    ));
                    if !reply.structured {
                        connection.port.link.break_off();
                        return Err(Closed::ReadFailed);
                    }
                }
                let head = match turn {
                    None => reply.begin_whole_read(piece.offset, *len),
                    Some(_) => Head::empty(),
                };
                let turn = match turn {
                    Some(turn) => turn,
                    none => none.insert(connection.port.take_turn(|| ())?.0),
                };
                let data = &mut connection.replies.data[..piece.len];
                if failure.is_some() {
                    data.fill(0);
                }
                let slices = &mut [IoSlice::new(head.as_bytes()), IoSlice::new(data)];
                let mut watch = Watch::of_all(connection.volume.metrics());
                let sent = turn.send(connection.port, slices);
                watch.lap(Phase::Socket);
                sent
            }
        }
    }

    /// After the last piece.
    pub(super) fn end(
        self,
        connection: &mut Connection<'_>,
        reply: Reply,
        offset: u64,
        len: usize,
    ) -> Result<(), Closed> {
        match self {
            Self::Chunks { .. } => Ok(()),
            Self::Whole {
                failure: Some(head),
                ..
            }
            | Self::Stream {
                refused: Some(head),
                ..
            } => connection.answer(head),
            Self::Whole { buffer, skip, .. } => {
                let head = reply.whole_read(offset, len);
                let message = || Message::with_data(head, buffer, skip..skip + len);
                connection.port.link.reply(message);
                Ok(())
            }
            Self::Stream { turn, failure, .. } => {
                drop(turn);
                match failure {
                    Some((error, at)) => {
                        let text = errno::message(error);
                        connection.answer(proto::error_at(reply.cookie, error, at, text, true))
                    }
                    None if reply.structured => {
                        connection.answer(proto::no_data_reply(reply.cookie))
                    }
                    None => Ok(()),
                }
            }
        }
    }

    /// Its memory for the whole read, if it has some.
    pub(super) fn into_buffer(self) -> Option<Buffer> {
        match self {
            Self::Whole { buffer, .. } => Some(buffer),
            Self::Chunks { .. } | Self::Stream { .. } => None,
        }
    }
}

/// Sends a piece from the connection's own memory, or its failure.
fn send_chunk(
    connection: &mut Connection<'_>,
    reply: Reply,
    piece: &Piece,
    result: Result<(), VolumeError>,
    left: Option<&PiecesLeft>,
) -> Result<(), Closed> {
    let Piece { offset, len, .. } = *piece;
    let failure = result.err().map(|error| {
        let at = error_offset(&error, offset, len);
        (
            reply.report(
                connection.served,
                connection.volume,
                RequestKind::Read,
                &error,
            ),
            at,
        )
    });
    let head = |is_last| match failure {
        None => proto::offset_data(reply.cookie, offset, payload_len(len), is_last),
        Some((error, at)) => {
            let text = errno::message(error);
            proto::error_at(reply.cookie, error, at, text, is_last)
        }
    };
    let mut is_last = piece.is_last;
    let (mut turn, head) = connection.port.take_turn(|| {
        is_last = left.map_or(piece.is_last, PiecesLeft::answer_one);
        head(is_last)
    })?;
    let data = match failure {
        None => &connection.replies.data[..len],
        Some(_) => &[],
    };
    let slices = &mut [IoSlice::new(head.as_bytes()), IoSlice::new(data)];
    let metrics = connection.volume.metrics();
    let mut watch = Watch::of_all(metrics);
    let sent = turn.send(connection.port, slices);
    watch.lap(Phase::Socket);
    if is_last && left.is_some() {
        // Its other pieces were jobs; without any the connection counts the request.
        let latency = reply.since.map(|since| since.elapsed());
        metrics.answered(RequestKind::Read, 1, latency.unwrap_or_default());
    }
    sent
}
