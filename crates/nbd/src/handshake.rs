//! The handshake: greeting, client flags, option haggling, until a client has
//! chosen an export. Fixed newstyle.

mod option_data;
mod options;

use self::option_data::length32;
use crate::constants::*;
use crate::{be32, be64};

/// Longest option data that is looked at, in bytes; a longer option is skipped
/// and answered with `NBD_REP_ERR_TOO_BIG`.
const MAX_OPTION: u32 = 64 << 10;
/// Bytes from one client before it has chosen an export; then the connection
/// ends.
const MAX_HANDSHAKE: u64 = 1 << 20;
/// Options from one client before it has chosen an export.
const MAX_OPTIONS: u32 = 1000;
/// Bytes before the data of an option.
const OPTION_HEADER: usize = 16;
/// An export as the handshake sees it.
#[derive(Clone, Debug)]
pub struct ExportInfo {
    /// The name clients ask for.
    pub name: String,
    /// Free text.
    pub description: String,
    /// Size in bytes.
    pub size: u64,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Bytes per sector: what clients that ask are told to keep to.
    pub minimum_block: u32,
    /// Clients that may open it, by a name that TLS has verified; everybody if empty. To others
    /// it does not exist.
    pub allowed: Vec<String>,
}

/// What a server makes of `NBD_OPT_STARTTLS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tls {
    /// It has no TLS.
    Off,
    /// Clients may have it (the standard's SELECTIVETLS, without an export that needs it).
    Allowed,
    /// Nothing else is answered before (FORCEDTLS).
    Required,
}

/// What a finished handshake has settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// Index of the export among those set last.
    pub export: usize,
    /// Its size in bytes.
    pub size: u64,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether reads are answered in chunks.
    pub structured_replies: bool,
    /// Whether `base:allocation` was selected.
    pub allocation_context: bool,
}

/// Where the handshake stands after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Go on: the step may have produced output; an unchanged count of
    /// consumed bytes means that more input is needed.
    Continue,
    /// Once the output is sent, bytes from here on are TLS; go on with [`Handshake::secured`].
    StartTls,
    /// Bytes from here on are requests.
    Transmission(Session),
    /// Close the connection once the output is sent, for this reason.
    Close(&'static str),
}

enum State {
    ClientFlags,
    Options,
    /// Dropping the data of an oversized option.
    Skip {
        left: u32,
        option: u32,
    },
}

/// The server's side of one handshake.
pub struct Handshake {
    exports: Vec<ExportInfo>,
    tls: Tls,
    is_secured: bool,
    /// The client, by the names that TLS has verified.
    names: Vec<String>,
    state: State,
    no_zeroes: bool,
    structured_replies: bool,
    /// Export for which `base:allocation` was selected.
    allocation_context: Option<String>,
    shutting_down: bool,
    options: u32,
    taken: u64,
    output: Vec<u8>,
}

impl Handshake {
    /// Begins: the greeting is waiting in the output.
    pub fn new(exports: &[ExportInfo], tls: Tls) -> Self {
        let mut output = Vec::new();
        output.extend(INIT_PASSWD.to_be_bytes());
        output.extend(OPTION_MAGIC.to_be_bytes());
        output.extend((FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).to_be_bytes());
        Self {
            exports: exports.to_vec(),
            tls,
            is_secured: false,
            names: Vec::new(),
            state: State::ClientFlags,
            no_zeroes: false,
            structured_replies: false,
            allocation_context: None,
            shutting_down: false,
            options: 0,
            taken: 0,
            output,
        }
    }

    /// Replaces the exports: they come and go while clients make up their minds. A
    /// [`Session`] gives an index of what was set last.
    pub fn set_exports(&mut self, exports: Vec<ExportInfo>) {
        self.exports = exports;
    }

    /// Bytes of input that always suffice for the next step.
    pub const fn input_capacity() -> usize {
        OPTION_HEADER + MAX_OPTION as usize
    }

    /// Answers every further option with `NBD_REP_ERR_SHUTDOWN`.
    pub fn shut_down(&mut self) {
        self.shutting_down = true;
    }

    /// TLS has begun, with a client that has these names. What was negotiated before is forgotten:
    /// anybody could have asked for it.
    pub fn secured(&mut self, names: Vec<String>) {
        self.is_secured = true;
        self.names = names;
        self.structured_replies = false;
        self.allocation_context = None;
    }

    /// What has to be sent now; empties it. Send it before the next
    /// [`Handshake::step`], so that it stays small.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Takes at most one message from `input`; returns the bytes used. With
    /// 0 used and [`Progress::Continue`], more input is needed.
    pub fn step(&mut self, input: &[u8]) -> (usize, Progress) {
        let (used, progress) = match self.state {
            State::ClientFlags => self.client_flags(input),
            State::Options => self.option(input),
            State::Skip { left, option } => self.skip(input, left, option),
        };
        self.taken += used as u64;
        if self.taken > MAX_HANDSHAKE && progress == Progress::Continue {
            return (used, Progress::Close("too many bytes in the handshake"));
        }
        (used, progress)
    }

    fn client_flags(&mut self, input: &[u8]) -> (usize, Progress) {
        if input.len() < 4 {
            return (0, Progress::Continue);
        }
        let flags = be32(input, 0);
        if flags & !(FLAG_C_FIXED_NEWSTYLE | FLAG_C_NO_ZEROES) != 0 {
            return (4, Progress::Close("unknown client flags"));
        }
        self.no_zeroes = flags & FLAG_C_NO_ZEROES != 0;
        self.state = State::Options;
        (4, Progress::Continue)
    }

    fn skip(&mut self, input: &[u8], left: u32, option: u32) -> (usize, Progress) {
        let here = u32::try_from(input.len()).unwrap_or(u32::MAX).min(left);
        if here < left {
            self.state = State::Skip {
                left: left - here,
                option,
            };
        } else {
            self.reply_text(option, REP_ERR_TOO_BIG, "option data above 64 KiB");
            self.state = State::Options;
        }
        (here as usize, Progress::Continue)
    }

    fn option(&mut self, input: &[u8]) -> (usize, Progress) {
        // A wrong magic number shows before a whole header is there.
        if input.len() >= 8 && be64(input, 0) != OPTION_MAGIC {
            return (0, Progress::Close("bad option magic"));
        }
        if input.len() < OPTION_HEADER {
            return (0, Progress::Continue);
        }
        let option = be32(input, 8);
        let len = be32(input, 12);
        if len > MAX_OPTION {
            if option == OPT_EXPORT_NAME || u64::from(len) > MAX_HANDSHAKE {
                return (OPTION_HEADER, Progress::Close("oversized option"));
            }
            self.state = State::Skip { left: len, option };
            return (OPTION_HEADER, self.count());
        }
        let end = OPTION_HEADER + len as usize;
        let Some(data) = input.get(OPTION_HEADER..end) else {
            return (0, Progress::Continue);
        };
        let progress = match self.count() {
            Progress::Continue => self.answer(option, data),
            close => close,
        };
        (end, progress)
    }

    fn count(&mut self) -> Progress {
        self.options += 1;
        match self.options > MAX_OPTIONS {
            true => Progress::Close("too many options"),
            false => Progress::Continue,
        }
    }

    fn session(&self, export: usize) -> Session {
        let ExportInfo {
            name,
            size,
            read_only,
            ..
        } = &self.exports[export];
        Session {
            export,
            size: *size,
            read_only: *read_only,
            structured_replies: self.structured_replies,
            // A selection counts for the export it was made for.
            allocation_context: self.allocation_context.as_ref() == Some(name),
        }
    }

    fn reply(&mut self, option: u32, kind: u32, data: &[u8]) {
        self.output.extend(OPTION_REPLY_MAGIC.to_be_bytes());
        self.output.extend(option.to_be_bytes());
        self.output.extend(kind.to_be_bytes());
        self.output.extend(length32(data.len()).to_be_bytes());
        self.output.extend(data);
    }

    fn reply_text(&mut self, option: u32, kind: u32, text: &str) {
        self.reply(option, kind, text.as_bytes());
    }
}

#[cfg(test)]
mod tests;
