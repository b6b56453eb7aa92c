//! Requests of the transmission phase: header parsing, and the checks that
//! need only the session.

use crate::constants::*;
use crate::{MAX_DRAIN, MAX_PAYLOAD, NbdError, Session, be16, be32, be64};

/// A request header as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Command flags.
    pub flags: u16,
    /// Command type.
    pub kind: u16,
    /// Chosen by the client; comes back in every reply (the standard's "handle").
    pub cookie: u64,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub length: u32,
}

/// What the client asks for; ranges lie inside the export and payloads are at
/// most [`MAX_PAYLOAD`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "offset and length in bytes, and the flags, by the standard's names"
)]
pub enum Command {
    /// Send data; in one chunk if `whole`.
    Read { offset: u64, len: u32, whole: bool },
    /// Take the data that follows.
    Write { offset: u64, len: u32, fua: bool },
    /// Make everything that completed durable.
    Flush,
    /// Discard by the volume's policy.
    Trim { offset: u64, len: u32, fua: bool },
    /// Write zeros.
    WriteZeroes { offset: u64, len: u32, fua: bool },
    /// Read ahead.
    Cache { offset: u64, len: u32 },
    /// Report `base:allocation`.
    BlockStatus { len: u32 },
    /// Finish what is in flight and close; no reply.
    Disconnect,
}

/// A request that gets an error reply and goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The error value.
    pub error: NbdError,
    /// Why, for a person.
    pub message: &'static str,
    /// Bytes of payload that follow and have to be dropped.
    pub drain: u32,
}

/// What is to be done about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Carry it out.
    Serve(Command),
    /// Answer with an error.
    Refuse(Refusal),
    /// Close the connection.
    End(RequestError),
}

/// A stream that cannot be followed any longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// The header does not begin with the magic number.
    BadMagic(u32),
    /// A refused write with more payload than is worth draining.
    HugePayload(u32),
}

impl std::fmt::Display for RequestError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::BadMagic(magic) => write!(f, "bad request magic {magic:#010x}"),
            Self::HugePayload(len) => write!(f, "write request of {len} bytes"),
        }
    }
}

impl Request {
    /// Parses a header of [`REQUEST_LEN`] bytes.
    pub fn parse(header: &[u8; REQUEST_LEN]) -> Result<Self, RequestError> {
        let magic = be32(header, 0);
        if magic != REQUEST_MAGIC {
            return Err(RequestError::BadMagic(magic));
        }
        Ok(Self {
            flags: be16(header, 4),
            kind: be16(header, 6),
            cookie: be64(header, 8),
            offset: be64(header, 16),
            length: be32(header, 24),
        })
    }

    /// Bytes of payload that follow the header.
    pub fn payload_len(&self) -> usize {
        match self.kind {
            CMD_WRITE => self.length as usize,
            _ => 0,
        }
    }

    /// Checks the request against what was negotiated.
    pub fn check(&self, session: &Session) -> Verdict {
        match self.command(session) {
            Ok(command) => Verdict::Serve(command),
            Err((error, message)) => {
                let drain = if self.kind == CMD_WRITE {
                    self.length
                } else {
                    0
                };
                if drain > MAX_DRAIN {
                    return Verdict::End(RequestError::HugePayload(drain));
                }
                Verdict::Refuse(Refusal {
                    error,
                    message,
                    drain,
                })
            }
        }
    }

    fn command(&self, session: &Session) -> Result<Command, (NbdError, &'static str)> {
        let &Self {
            offset,
            length: len,
            ..
        } = self;
        let fua = self.flags & CMD_FLAG_FUA != 0;

        let allowed = match self.kind {
            CMD_READ if session.structured_replies => CMD_FLAG_DF,
            CMD_WRITE_ZEROES => CMD_FLAG_NO_HOLE,
            CMD_BLOCK_STATUS => CMD_FLAG_REQ_ONE,
            CMD_READ | CMD_WRITE | CMD_DISC | CMD_FLUSH | CMD_TRIM | CMD_CACHE => 0,
            _ => return Err((NbdError::Inval, "unknown command")),
        };
        // FUA has to be accepted with every command.
        if self.flags & !(allowed | CMD_FLAG_FUA) != 0 {
            return Err((NbdError::Inval, "command flag not allowed here"));
        }
        match self.kind {
            CMD_DISC => return Ok(Command::Disconnect),
            CMD_FLUSH if offset != 0 || len != 0 => {
                return Err((NbdError::Inval, "flush with offset or length"));
            }
            CMD_FLUSH => return Ok(Command::Flush),
            _ => {}
        }

        let writes = matches!(self.kind, CMD_WRITE | CMD_TRIM | CMD_WRITE_ZEROES);
        if writes && session.read_only {
            return Err((NbdError::Perm, "the export is read-only"));
        }
        let inside = offset
            .checked_add(u64::from(len))
            .is_some_and(|end| end <= session.size);
        if !inside {
            let error = match self.kind {
                CMD_WRITE | CMD_WRITE_ZEROES => NbdError::NoSpc,
                _ => NbdError::Inval,
            };
            return Err((error, "range beyond the end of the export"));
        }
        let too_large = len > MAX_PAYLOAD;
        match self.kind {
            CMD_READ => {
                let whole = self.flags & CMD_FLAG_DF != 0;
                match too_large {
                    true if whole => Err((NbdError::Overflow, "unfragmented read above 32 MiB")),
                    true => Err((NbdError::Inval, "read above 32 MiB")),
                    false => Ok(Command::Read { offset, len, whole }),
                }
            }
            CMD_WRITE if too_large => Err((NbdError::Inval, "write above 32 MiB")),
            CMD_WRITE => Ok(Command::Write { offset, len, fua }),
            CMD_TRIM => Ok(Command::Trim { offset, len, fua }),
            CMD_WRITE_ZEROES => Ok(Command::WriteZeroes { offset, len, fua }),
            CMD_CACHE => Ok(Command::Cache { offset, len }),
            // CMD_BLOCK_STATUS; every other one has returned.
            _ if !session.allocation_context => {
                Err((NbdError::Inval, "no metadata context was negotiated"))
            }
            _ if len == 0 => Err((NbdError::Inval, "block status of nothing")),
            _ => Ok(Command::BlockStatus { len }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SESSION: Session = Session {
        export: 0,
        size: 1 << 30,
        read_only: false,
        structured_replies: true,
        allocation_context: true,
    };

    fn request(kind: u16, flags: u16, offset: u64, length: u32) -> Request {
        Request {
            flags,
            kind,
            cookie: 7,
            offset,
            length,
        }
    }

    fn refusal(request: Request, session: &Session) -> Refusal {
        match request.check(session) {
            Verdict::Refuse(refusal) => refusal,
            other => panic!("{other:?}"),
        }
    }

    fn is_served(request: &Request, session: &Session) -> bool {
        matches!(request.check(session), Verdict::Serve(_))
    }

    #[test]
    fn headers_parse_field_by_field() {
        let mut header = [0; REQUEST_LEN];
        header[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        header[4..8].copy_from_slice(&[0, 1, 0, 6]);
        header[8..16].copy_from_slice(&9_u64.to_be_bytes());
        header[16..24].copy_from_slice(&4096_u64.to_be_bytes());
        header[24..].copy_from_slice(&512_u32.to_be_bytes());
        let parsed = Request::parse(&header).unwrap();
        assert_eq!(parsed.cookie, 9);
        assert_eq!(
            parsed.check(&SESSION),
            Verdict::Serve(Command::WriteZeroes {
                offset: 4096,
                len: 512,
                fua: true
            })
        );
        header[0] ^= 1;
        assert!(matches!(
            Request::parse(&header),
            Err(RequestError::BadMagic(_))
        ));
    }

    #[test]
    fn ranges_beyond_the_end() {
        let end = SESSION.size;
        for (kind, error) in [
            (CMD_READ, NbdError::Inval),
            (CMD_WRITE, NbdError::NoSpc),
            (CMD_TRIM, NbdError::Inval),
            (CMD_WRITE_ZEROES, NbdError::NoSpc),
            (CMD_CACHE, NbdError::Inval),
            (CMD_BLOCK_STATUS, NbdError::Inval),
        ] {
            for offset in [end - 511, end, end + 1, u64::MAX, u64::MAX - 511] {
                let refused = refusal(request(kind, 0, offset, 512), &SESSION);
                assert_eq!(refused.error, error, "command {kind} at {offset}");
                assert_eq!(refused.drain, if kind == CMD_WRITE { 512 } else { 0 });
            }
            assert!(is_served(&request(kind, 0, end - 512, 512), &SESSION));
        }
    }

    #[test]
    fn read_only_exports_refuse_every_kind_of_write() {
        let session = Session {
            read_only: true,
            ..SESSION
        };
        for kind in [CMD_WRITE, CMD_TRIM, CMD_WRITE_ZEROES] {
            assert_eq!(
                refusal(request(kind, 0, 0, 512), &session).error,
                NbdError::Perm
            );
        }
        assert_eq!(
            request(CMD_FLUSH, 0, 0, 0).check(&session),
            Verdict::Serve(Command::Flush)
        );
    }

    #[test]
    fn flags_are_checked_per_command() {
        for (kind, flag) in [
            (CMD_WRITE, CMD_FLAG_DF),
            (CMD_READ, CMD_FLAG_REQ_ONE),
            (CMD_WRITE_ZEROES, 1 << 4),
            (CMD_TRIM, CMD_FLAG_NO_HOLE),
        ] {
            assert_eq!(
                refusal(request(kind, flag, 0, 512), &SESSION).error,
                NbdError::Inval
            );
        }
        let simple = Session {
            structured_replies: false,
            ..SESSION
        };
        assert_eq!(
            refusal(request(CMD_READ, CMD_FLAG_DF, 0, 1), &simple).error,
            NbdError::Inval
        );
        for kind in [
            CMD_READ,
            CMD_TRIM,
            CMD_CACHE,
            CMD_BLOCK_STATUS,
            CMD_WRITE_ZEROES,
        ] {
            assert!(is_served(&request(kind, CMD_FLAG_FUA, 0, 512), &SESSION));
        }
    }

    #[test]
    fn sizes_are_limited() {
        let session = Session {
            size: u64::MAX,
            ..SESSION
        };
        let large = MAX_PAYLOAD + 1;
        assert_eq!(
            refusal(request(CMD_READ, 0, 0, large), &session).error,
            NbdError::Inval
        );
        let whole = refusal(request(CMD_READ, CMD_FLAG_DF, 0, large), &session);
        assert_eq!(whole.error, NbdError::Overflow);
        assert_eq!(
            refusal(request(CMD_WRITE, 0, 0, large), &session).drain,
            large
        );
        assert_eq!(
            request(CMD_WRITE, 0, 0, MAX_DRAIN + 1).check(&session),
            Verdict::End(RequestError::HugePayload(MAX_DRAIN + 1))
        );
        assert!(is_served(
            &request(CMD_WRITE_ZEROES, 0, 0, u32::MAX),
            &session
        ));
    }

    #[test]
    fn odd_requests() {
        assert_eq!(
            refusal(request(99, 0, 0, 512), &SESSION).error,
            NbdError::Inval
        );
        assert_eq!(
            refusal(request(CMD_FLUSH, 0, 1, 0), &SESSION).error,
            NbdError::Inval
        );
        assert_eq!(
            refusal(request(CMD_BLOCK_STATUS, 0, 0, 0), &SESSION).error,
            NbdError::Inval
        );
        let plain = Session {
            allocation_context: false,
            ..SESSION
        };
        assert_eq!(
            refusal(request(CMD_BLOCK_STATUS, 0, 0, 9), &plain).error,
            NbdError::Inval
        );
        assert!(is_served(&request(CMD_READ, 0, 0, 0), &SESSION));
    }

    proptest! {
        #[test]
        fn accepted_ranges_lie_inside(
            kind in 0_u16..10, flags in 0_u16..32, offset: u64, length: u32, size: u64,
            read_only: bool, structured_replies: bool, allocation_context: bool,
        ) {
            let session = Session { export: 0, size, read_only, structured_replies, allocation_context };
            let request = request(kind, flags, offset, length);
            match request.check(&session) {
                Verdict::Serve(Command::Disconnect | Command::Flush) => {}
                Verdict::Serve(command) => {
                    prop_assert!(offset.checked_add(u64::from(length)).unwrap() <= size);
                    if matches!(command, Command::Read { .. } | Command::Write { .. }) {
                        prop_assert!(length <= MAX_PAYLOAD);
                    }
                }
                Verdict::Refuse(refusal) => {
                    prop_assert_eq!(refusal.drain, if kind == CMD_WRITE { length } else { 0 });
                }
                Verdict::End(_) => prop_assert!(kind == CMD_WRITE && length > MAX_DRAIN),
            }
        }
    }
}
