//! The client's handshake: extended headers, else structured replies, then the
//! export by `NBD_OPT_GO`, or by `NBD_OPT_EXPORT_NAME` where the server does not
//! know that. Fixed newstyle; TLS before anything else, where it is wanted.

use std::fmt;

use super::{Form, cleaned};
use crate::constants::*;
use crate::{MAX_PAYLOAD, be16, be32, be64};

/// Bytes of the server's greeting.
const GREETING: usize = 18;
/// Bytes before the data of an option's reply.
const REPLY_HEADER: usize = 20;
/// Longest data of an option's reply that is read, in bytes: a string and what
/// goes with it.
const MAX_REPLY: u32 = 8 << 10;
/// Replies to one option.
const MAX_REPLIES: u32 = 64;
/// Bytes that answer `NBD_OPT_EXPORT_NAME`, and the zeros after them for clients that want them.
const EXPORT_REPLY: usize = 10;
const EXPORT_ZEROES: usize = 124;

/// The sizes that requests keep to, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    /// Offsets and lengths are multiples of it; a power of two up to 64 KiB.
    pub minimum: u32,
    /// Where requests are efficient; a power of two, not below the minimum.
    pub preferred: u32,
    /// Most payload of one request; a multiple of the minimum, and 512 or more.
    pub maximum: u32,
}

impl BlockSizes {
    /// What the standard advises where a server says nothing.
    pub const DEFAULT: Self = Self {
        minimum: 512,
        preferred: 4096,
        maximum: MAX_PAYLOAD,
    };

    fn checked(minimum: u32, preferred: u32, maximum: u32) -> Option<Self> {
        // Below a disk's sector a large read would come to millions of requests.
        let possible = minimum.is_power_of_two()
            && minimum <= 1 << 16
            && maximum >= minimum.max(Self::DEFAULT.minimum);
        possible.then(|| Self {
            minimum,
            // A hint: what it cannot be is put right.
            preferred: match preferred.is_power_of_two() {
                true => preferred.max(minimum),
                false => minimum.max(4096),
            },
            maximum: maximum & !(minimum - 1),
        })
    }
}

/// What a finished handshake has settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Size of the export in bytes.
    pub size: u64,
    /// Transmission flags: `FLAG_READ_ONLY` and so on.
    pub flags: u16,
    /// The layout of messages from here on.
    pub form: Form,
    /// What requests keep to.
    pub blocks: BlockSizes,
}

impl Negotiated {
    /// Whether the server set this transmission flag.
    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// Why there is no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeErrorKind {
    /// The peer does not keep to the protocol, or speaks none that is known here.
    Protocol,
    /// There is no such export.
    UnknownExport,
    /// The server does not want this client.
    Policy,
    /// The server wants TLS first.
    TlsRequired,
    /// TLS is wanted, and the server does not want it.
    NoTls,
    /// The server refused for another reason.
    Refused,
}

/// A handshake that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandshakeError {
    /// What kind of failure.
    pub kind: HandshakeErrorKind,
    /// What happened, with the server's words if it had any.
    pub message: String,
}

impl HandshakeError {
    fn protocol(message: impl Into<String>) -> Self {
        Self {
            kind: HandshakeErrorKind::Protocol,
            message: message.into(),
        }
    }

    fn refused(kind: u32, text: &[u8]) -> Self {
        let (kind, what) = match kind {
            REP_ERR_UNKNOWN => (
                HandshakeErrorKind::UnknownExport,
                "the server has no such export".to_owned(),
            ),
            REP_ERR_POLICY => (
                HandshakeErrorKind::Policy,
                "the server's policy forbids it".to_owned(),
            ),
            REP_ERR_TLS_REQD => (
                HandshakeErrorKind::TlsRequired,
                "the server wants TLS".to_owned(),
            ),
            REP_ERR_SHUTDOWN => (
                HandshakeErrorKind::Refused,
                "the server is shutting down".to_owned(),
            ),
            other => (
                HandshakeErrorKind::Refused,
                format!("the server refused with {other:#x}"),
            ),
        };
        let text = cleaned(text);
        Self {
            kind,
            message: match text.is_empty() {
                true => what,
                false => format!("{what}: {text}"),
            },
        }
    }
}

/// Where the handshake stands after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Go on: an unchanged count of consumed bytes means that more input is needed.
    Continue,
    /// Bytes from here on are TLS; go on with [`Handshake::secured`].
    StartTls,
    /// It is over.
    Done(Negotiated),
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for HandshakeError {}

#[derive(Clone, Copy)]
enum State {
    Greeting,
    /// Waiting for replies to this option.
    Option(u32),
    ExportName,
}

/// The client's side of one handshake.
pub struct Handshake {
    export: Vec<u8>,
    wants_tls: bool,
    state: State,
    no_zeroes: bool,
    form: Form,
    /// Replies to the present option so far.
    replies: u32,
    /// Size and flags, once they were told.
    told: Option<(u64, u16)>,
    blocks: BlockSizes,
    output: Vec<u8>,
}

impl Handshake {
    /// Begins; the server speaks first. A name longer than [`MAX_STRING`] is unknown
    /// to any server. With `tls` the server is told nothing, the name included, before TLS has begun,
    /// and one that does without is refused.
    pub fn new(export: &str, tls: bool) -> Self {
        Self {
            export: export.into(),
            wants_tls: tls,
            state: State::Greeting,
            no_zeroes: false,
            form: Form::Simple,
            replies: 0,
            told: None,
            blocks: BlockSizes::DEFAULT,
            output: Vec::new(),
        }
    }

    /// Bytes of input that always suffice for the next step.
    pub const fn input_capacity() -> usize {
        REPLY_HEADER + MAX_REPLY as usize
    }

    /// What has to be sent now; empties it.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// TLS has begun, with the server that was meant.
    pub fn secured(&mut self) {
        self.ask(OPT_EXTENDED_HEADERS, &[]);
    }

    /// Takes at most one message from `input`; returns the bytes used and what comes next.
    pub fn step(&mut self, input: &[u8]) -> Result<(usize, Step), HandshakeError> {
        match self.state {
            State::Greeting => self.greeting(input),
            State::Option(option) => self.reply(input, option),
            State::ExportName => Ok(self.export_name(input)),
        }
    }

    fn greeting(&mut self, input: &[u8]) -> Result<(usize, Step), HandshakeError> {
        // What is no NBD server shows before a whole greeting is there.
        if input.len() >= 8 && be64(input, 0) != INIT_PASSWD {
            return Err(HandshakeError::protocol("it is no NBD server"));
        }
        if input.len() < GREETING {
            return Ok((0, Step::Continue));
        }
        let flags = be16(input, 16);
        if be64(input, 8) != OPTION_MAGIC || flags & FLAG_FIXED_NEWSTYLE == 0 {
            return Err(HandshakeError::protocol(
                "the server does not speak the fixed newstyle protocol",
            ));
        }
        if self.export.len() > MAX_STRING {
            return Err(HandshakeError::refused(
                REP_ERR_UNKNOWN,
                b"its name is too long",
            ));
        }
        self.no_zeroes = flags & FLAG_NO_ZEROES != 0;
        let mut client = FLAG_C_FIXED_NEWSTYLE;
        if self.no_zeroes {
            client |= FLAG_C_NO_ZEROES;
        }
        self.output.extend(client.to_be_bytes());
        match self.wants_tls {
            true => self.ask(OPT_STARTTLS, &[]),
            false => self.ask(OPT_EXTENDED_HEADERS, &[]),
        }
        Ok((GREETING, Step::Continue))
    }

    fn ask(&mut self, option: u32, data: &[u8]) {
        self.output.extend(OPTION_MAGIC.to_be_bytes());
        self.output.extend(option.to_be_bytes());
        self.output.extend(length32(data).to_be_bytes());
        self.output.extend(data);
        self.state = State::Option(option);
        self.replies = 0;
    }

    fn ask_for_export(&mut self) {
        let mut data = Vec::with_capacity(self.export.len() + 8);
        data.extend(length32(&self.export).to_be_bytes());
        data.extend(&self.export);
        data.extend(1_u16.to_be_bytes());
        data.extend(INFO_BLOCK_SIZE.to_be_bytes());
        self.ask(OPT_GO, &data);
    }

    fn reply(&mut self, input: &[u8], option: u32) -> Result<(usize, Step), HandshakeError> {
        if input.len() >= 8 && be64(input, 0) != OPTION_REPLY_MAGIC {
            return Err(HandshakeError::protocol(
                "the server answered an option with something else",
            ));
        }
        if input.len() < REPLY_HEADER {
            return Ok((0, Step::Continue));
        }
        if be32(input, 8) != option {
            return Err(HandshakeError::protocol(
                "the server answered an option that was not asked",
            ));
        }
        let (kind, len) = (be32(input, 12), be32(input, 16));
        if len > MAX_REPLY {
            return Err(HandshakeError::protocol(format!(
                "the server answered an option with {len} bytes"
            )));
        }
        let end = REPLY_HEADER + len as usize;
        let Some(data) = input.get(REPLY_HEADER..end) else {
            return Ok((0, Step::Continue));
        };
        self.replies += 1;
        if self.replies > MAX_REPLIES {
            return Err(HandshakeError::protocol(
                "the server does not stop answering an option",
            ));
        }
        Ok((end, self.answered(option, kind, data)?))
    }

    fn answered(&mut self, option: u32, kind: u32, data: &[u8]) -> Result<Step, HandshakeError> {
        let failed = kind & (1 << 31) != 0;
        match (option, kind) {
            (OPT_STARTTLS, REP_ACK) => return Ok(Step::StartTls),
            // No bit more is said in the clear: who refuses may be anybody in between.
            (OPT_STARTTLS, _) if failed => {
                let mut error = HandshakeError::refused(kind, data);
                error.kind = HandshakeErrorKind::NoTls;
                error.message = format!(
                    "the server refuses TLS, or somebody in between keeps it away: {}",
                    error.message
                );
                return Err(error);
            }
            // Without TLS or at all, nothing more is to be had.
            (_, REP_ERR_TLS_REQD | REP_ERR_SHUTDOWN | REP_ERR_POLICY) => {
                return Err(HandshakeError::refused(kind, data));
            }
            (OPT_EXTENDED_HEADERS, REP_ACK) => {
                self.form = Form::Extended;
                self.ask_for_export();
            }
            (OPT_EXTENDED_HEADERS, _) if failed => self.ask(OPT_STRUCTURED_REPLY, &[]),
            (OPT_STRUCTURED_REPLY, REP_ACK) => {
                self.form = Form::Structured;
                self.ask_for_export();
            }
            (OPT_STRUCTURED_REPLY, _) if failed => self.ask_for_export(),
            (OPT_GO, REP_INFO) => self.info(data)?,
            (OPT_GO, REP_ACK) => {
                return match self.told {
                    Some(told) => Ok(Step::Done(self.negotiated(told))),
                    None => Err(HandshakeError::protocol(
                        "the server did not say how large the export is",
                    )),
                };
            }
            (OPT_GO, REP_ERR_UNSUP) => {
                let name = self.export.clone();
                self.ask(OPT_EXPORT_NAME, &name);
                self.state = State::ExportName;
            }
            (_, _) if failed => return Err(HandshakeError::refused(kind, data)),
            _ => {
                return Err(HandshakeError::protocol(format!(
                    "the server answered option {option} with {kind:#x}"
                )));
            }
        }
        Ok(Step::Continue)
    }

    fn info(&mut self, data: &[u8]) -> Result<(), HandshakeError> {
        let wrong = || HandshakeError::protocol("the server described the export wrongly");
        if data.len() < 2 {
            return Err(wrong());
        }
        match (be16(data, 0), data.len()) {
            (INFO_EXPORT, 12) => self.told = Some((be64(data, 2), be16(data, 10))),
            (INFO_BLOCK_SIZE, 14) => {
                let sizes = BlockSizes::checked(be32(data, 2), be32(data, 6), be32(data, 10));
                self.blocks = sizes.ok_or_else(|| {
                    HandshakeError::protocol("the server announced impossible block sizes")
                })?;
            }
            (INFO_EXPORT | INFO_BLOCK_SIZE, _) => return Err(wrong()),
            _ => {}
        }
        Ok(())
    }

    fn export_name(&self, input: &[u8]) -> (usize, Step) {
        let end = match self.no_zeroes {
            true => EXPORT_REPLY,
            false => EXPORT_REPLY + EXPORT_ZEROES,
        };
        if input.len() < end {
            return (0, Step::Continue);
        }
        let told = (be64(input, 0), be16(input, 8));
        (end, Step::Done(self.negotiated(told)))
    }

    fn negotiated(&self, (size, flags): (u64, u16)) -> Negotiated {
        Negotiated {
            size,
            flags,
            form: self.form,
            blocks: self.blocks,
        }
    }
}

/// Lengths on this side are those of strings up to [`MAX_STRING`].
fn length32(data: &[u8]) -> u32 {
    u32::try_from(data.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
