//! The handshake: greeting, client flags, option haggling, until a client has
//! chosen an export. Fixed newstyle.

use crate::constants::*;
use crate::{ALLOCATION_CONTEXT_ID, MAX_PAYLOAD, be16, be32, be64};

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
/// The one metadata context.
const ALLOCATION: &[u8] = b"base:allocation";

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

impl ExportInfo {
    fn transmission_flags(&self, structured_replies: bool) -> u16 {
        let mut flags = FLAG_HAS_FLAGS
            | FLAG_SEND_FLUSH
            | FLAG_SEND_FUA
            | FLAG_CAN_MULTI_CONN
            | FLAG_SEND_CACHE;
        flags |= match self.read_only {
            true => FLAG_READ_ONLY,
            false => FLAG_SEND_TRIM | FLAG_SEND_WRITE_ZEROES,
        };
        if structured_replies {
            flags |= FLAG_SEND_DF;
        }
        flags
    }
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

    fn answer(&mut self, option: u32, data: &[u8]) -> Progress {
        if self.shutting_down && option != OPT_ABORT {
            if option == OPT_EXPORT_NAME {
                return Progress::Close("shutting down");
            }
            self.reply_text(option, REP_ERR_SHUTDOWN, "the server is shutting down");
            return Progress::Continue;
        }
        if self.tls == Tls::Required
            && !self.is_secured
            && !matches!(option, OPT_STARTTLS | OPT_ABORT)
        {
            if option == OPT_EXPORT_NAME {
                return Progress::Close("the client did without TLS, which is required");
            }
            self.reply_text(option, REP_ERR_TLS_REQD, "TLS is required");
            return Progress::Continue;
        }
        match option {
            OPT_EXPORT_NAME => return self.export_name(data),
            OPT_STARTTLS => return self.start_tls(data),
            OPT_ABORT => {
                self.reply(option, REP_ACK, &[]);
                return Progress::Close("client aborted the handshake");
            }
            OPT_LIST if data.is_empty() => {
                let entry = |export: &ExportInfo| {
                    let mut entry = string32(&export.name);
                    entry.extend(export.description.as_bytes());
                    entry
                };
                let entries: Vec<_> = self
                    .exports
                    .iter()
                    .filter(|it| self.may_open(it))
                    .map(entry)
                    .collect();
                for entry in entries {
                    self.reply(option, REP_SERVER, &entry);
                }
                self.reply(option, REP_ACK, &[]);
            }
            OPT_STRUCTURED_REPLY if data.is_empty() => {
                self.structured_replies = true;
                self.reply(option, REP_ACK, &[]);
            }
            OPT_LIST | OPT_STRUCTURED_REPLY => {
                self.reply_text(option, REP_ERR_INVALID, "this option takes no data");
            }
            OPT_INFO | OPT_GO => return self.info(option, data),
            OPT_LIST_META_CONTEXT | OPT_SET_META_CONTEXT => self.meta_context(option, data),
            OPT_EXTENDED_HEADERS => self.reply_text(option, REP_ERR_UNSUP, ""),
            _ => self.reply_text(option, REP_ERR_UNSUP, "unknown option"),
        }
        Progress::Continue
    }

    fn start_tls(&mut self, data: &[u8]) -> Progress {
        let (kind, text) = match (self.tls, data) {
            (Tls::Off, _) => (REP_ERR_UNSUP, "this server has no TLS"),
            _ if self.is_secured => (REP_ERR_INVALID, "TLS has begun already"),
            (_, [_, ..]) => (REP_ERR_INVALID, "this option takes no data"),
            _ => {
                self.reply(OPT_STARTTLS, REP_ACK, &[]);
                return Progress::StartTls;
            }
        };
        self.reply_text(OPT_STARTTLS, kind, text);
        Progress::Continue
    }

    fn may_open(&self, export: &ExportInfo) -> bool {
        let allowed = &export.allowed;
        allowed.is_empty() || allowed.iter().any(|name| self.names.contains(name))
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

    fn find(&self, name: &[u8]) -> Option<usize> {
        self.exports
            .iter()
            .position(|export| export.name.as_bytes() == name && self.may_open(export))
    }

    fn export_name(&mut self, name: &[u8]) -> Progress {
        // This option has no error reply.
        let Some(index) = self.find(name) else {
            return Progress::Close("unknown export");
        };
        let export = &self.exports[index];
        let flags = export.transmission_flags(self.structured_replies);
        self.output.extend(export.size.to_be_bytes());
        self.output.extend(flags.to_be_bytes());
        if !self.no_zeroes {
            self.output.extend([0; 124]);
        }
        Progress::Transmission(self.session(index))
    }

    fn info(&mut self, option: u32, data: &[u8]) -> Progress {
        let Some((name, requests)) = parse_info(data) else {
            self.reply_text(
                option,
                REP_ERR_INVALID,
                "malformed export name or info requests",
            );
            return Progress::Continue;
        };
        let Some(index) = self.find(name) else {
            self.reply_text(option, REP_ERR_UNKNOWN, "no such export");
            return Progress::Continue;
        };
        let asked = |kind: u16| requests.chunks_exact(2).any(|raw| be16(raw, 0) == kind);
        let export = self.exports[index].clone();
        let mut info = Vec::with_capacity(16);
        info.extend(INFO_EXPORT.to_be_bytes());
        info.extend(export.size.to_be_bytes());
        info.extend(
            export
                .transmission_flags(self.structured_replies)
                .to_be_bytes(),
        );
        self.reply(option, REP_INFO, &info);
        if asked(INFO_NAME) {
            let info = [&INFO_NAME.to_be_bytes(), export.name.as_bytes()].concat();
            self.reply(option, REP_INFO, &info);
        }
        if asked(INFO_DESCRIPTION) {
            let info = [
                &INFO_DESCRIPTION.to_be_bytes(),
                export.description.as_bytes(),
            ]
            .concat();
            self.reply(option, REP_INFO, &info);
        }
        if asked(INFO_BLOCK_SIZE) {
            let mut info = Vec::with_capacity(14);
            info.extend(INFO_BLOCK_SIZE.to_be_bytes());
            info.extend(export.minimum_block.to_be_bytes());
            // The least that is efficient, of which clients are to send multiples: of an image in a
            // Ceph cluster no whole object either.
            info.extend(export.minimum_block.max(4096).to_be_bytes());
            info.extend(MAX_PAYLOAD.to_be_bytes());
            self.reply(option, REP_INFO, &info);
        }
        self.reply(option, REP_ACK, &[]);
        match option {
            OPT_GO => Progress::Transmission(self.session(index)),
            _ => Progress::Continue,
        }
    }

    fn meta_context(&mut self, option: u32, data: &[u8]) {
        let set = option == OPT_SET_META_CONTEXT;
        if set {
            // Whatever comes of it, an earlier selection is gone.
            self.allocation_context = None;
        }
        if !self.structured_replies {
            return self.reply_text(
                option,
                REP_ERR_INVALID,
                "negotiate structured replies first",
            );
        }
        let Some((name, queries)) = parse_meta_context(data) else {
            return self.reply_text(option, REP_ERR_INVALID, "malformed metadata context query");
        };
        let Some(index) = self.find(name) else {
            return self.reply_text(option, REP_ERR_UNKNOWN, "no such export");
        };
        let wanted = queries
            .iter()
            .any(|&query| query == ALLOCATION || (!set && query == b"base:"));
        if wanted || (!set && queries.is_empty()) {
            let id = if set { ALLOCATION_CONTEXT_ID } else { 0 };
            let context = [&id.to_be_bytes(), ALLOCATION].concat();
            self.reply(option, REP_META_CONTEXT, &context);
            if set {
                self.allocation_context = Some(self.exports[index].name.clone());
            }
        }
        self.reply(option, REP_ACK, &[]);
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

/// Lengths on this side are far below 4 GiB: names and descriptions are cut
/// to [`MAX_STRING`] by the server, options to [`MAX_OPTION`].
fn length32(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

fn string32(text: &str) -> Vec<u8> {
    let mut out = Vec::from(length32(text.len()).to_be_bytes());
    out.extend(text.as_bytes());
    out
}

/// Splits a string with a 32-bit length off the front.
fn take_string(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = data.split_first_chunk::<4>()?;
    let len = u32::from_be_bytes(*len) as usize;
    (len <= MAX_STRING).then_some(())?;
    rest.split_at_checked(len)
}

/// Export name and info requests of `NBD_OPT_INFO` and `NBD_OPT_GO`.
fn parse_info(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (name, rest) = take_string(data)?;
    let (count, requests) = rest.split_first_chunk::<2>()?;
    (requests.len() == 2 * usize::from(u16::from_be_bytes(*count))).then_some((name, requests))
}

/// Export name and queries of the metadata context options.
fn parse_meta_context(data: &[u8]) -> Option<(&[u8], Vec<&[u8]>)> {
    let (name, rest) = take_string(data)?;
    let (count, mut rest) = rest.split_first_chunk::<4>()?;
    // Each query takes four bytes at least, so the count cannot lie far.
    let count = u32::from_be_bytes(*count) as usize;
    (count <= rest.len() / 4).then_some(())?;
    let mut queries = Vec::with_capacity(count);
    for _ in 0..count {
        let (query, after) = take_string(rest)?;
        // "namespace:leaf"
        query.contains(&b':').then_some(())?;
        queries.push(query);
        rest = after;
    }
    rest.is_empty().then_some((name, queries))
}

#[cfg(test)]
mod tests;
