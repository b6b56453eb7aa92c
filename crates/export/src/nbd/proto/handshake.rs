//! The handshake: greeting, client flags, option haggling, until a client has
//! chosen an export. Fixed newstyle.

use super::constants::*;
use super::{ALLOCATION_CONTEXT_ID, MAX_PAYLOAD, be16, be32, be64};

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
    /// Bytes.
    pub size: u64,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Bytes per sector: what clients that ask are told to keep to.
    pub minimum_block: u32,
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
    /// Index of the export.
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
pub struct Handshake<'a> {
    exports: &'a [ExportInfo],
    state: State,
    no_zeroes: bool,
    structured_replies: bool,
    /// Export for which `base:allocation` was selected.
    allocation_context: Option<usize>,
    shutting_down: bool,
    options: u32,
    taken: u64,
    output: Vec<u8>,
}

impl<'a> Handshake<'a> {
    /// Begins: the greeting is waiting in the output.
    pub fn new(exports: &'a [ExportInfo]) -> Self {
        let mut output = Vec::new();
        output.extend(INIT_PASSWD.to_be_bytes());
        output.extend(OPTION_MAGIC.to_be_bytes());
        output.extend((FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).to_be_bytes());
        Self {
            exports,
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

    /// Bytes of input that always suffice for the next step.
    pub const fn input_capacity() -> usize {
        OPTION_HEADER + MAX_OPTION as usize
    }

    /// Answers every further option with `NBD_REP_ERR_SHUTDOWN`.
    pub fn shut_down(&mut self) {
        self.shutting_down = true;
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
        match option {
            OPT_EXPORT_NAME => return self.export_name(data),
            OPT_ABORT => {
                self.reply(option, REP_ACK, &[]);
                return Progress::Close("client aborted the handshake");
            }
            OPT_LIST if data.is_empty() => {
                for export in self.exports {
                    let mut entry = string32(&export.name);
                    entry.extend(export.description.as_bytes());
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
            OPT_STARTTLS => self.reply_text(option, REP_ERR_UNSUP, "TLS is not supported"),
            OPT_EXTENDED_HEADERS => self.reply_text(option, REP_ERR_UNSUP, ""),
            _ => self.reply_text(option, REP_ERR_UNSUP, "unknown option"),
        }
        Progress::Continue
    }

    fn session(&self, export: usize) -> Session {
        Session {
            export,
            size: self.exports[export].size,
            read_only: self.exports[export].read_only,
            structured_replies: self.structured_replies,
            // A selection counts for the export it was made for.
            allocation_context: self.allocation_context == Some(export),
        }
    }

    fn find(&self, name: &[u8]) -> Option<usize> {
        self.exports
            .iter()
            .position(|export| export.name.as_bytes() == name)
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
        let export = &self.exports[index];
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
                self.allocation_context = Some(index);
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn exports() -> Vec<ExportInfo> {
        let export = ExportInfo {
            name: String::new(),
            description: "first".into(),
            size: 1 << 20,
            read_only: false,
            minimum_block: 4096,
        };
        vec![
            export.clone(),
            ExportInfo {
                name: "ro".into(),
                size: 512,
                read_only: true,
                minimum_block: 512,
                ..export
            },
        ]
    }

    fn option(option: u32, data: &[u8]) -> Vec<u8> {
        let mut out = Vec::from(OPTION_MAGIC.to_be_bytes());
        out.extend(option.to_be_bytes());
        out.extend(length32(data.len()).to_be_bytes());
        out.extend(data);
        out
    }

    fn info_data(name: &str, requests: &[u16]) -> Vec<u8> {
        let mut data = string32(name);
        data.extend(u16::try_from(requests.len()).unwrap().to_be_bytes());
        data.extend(requests.iter().flat_map(|kind| kind.to_be_bytes()));
        data
    }

    fn context_data(name: &str, queries: &[&str]) -> Vec<u8> {
        let mut data = string32(name);
        data.extend(length32(queries.len()).to_be_bytes());
        data.extend(queries.iter().flat_map(|query| string32(query)));
        data
    }

    /// Replies as (option, type, data).
    fn replies(mut bytes: &[u8]) -> Vec<(u32, u32, Vec<u8>)> {
        let mut out = Vec::new();
        while !bytes.is_empty() {
            assert_eq!(be64(bytes, 0), OPTION_REPLY_MAGIC);
            let end = 20 + be32(bytes, 16) as usize;
            out.push((be32(bytes, 8), be32(bytes, 12), bytes[20..end].to_vec()));
            bytes = &bytes[end..];
        }
        out
    }

    fn begun(exports: &[ExportInfo]) -> Handshake<'_> {
        let mut handshake = Handshake::new(exports);
        let greeting = handshake.take_output();
        assert_eq!(greeting, b"NBDMAGICIHAVEOPT\0\x03");
        let flags = FLAG_C_FIXED_NEWSTYLE | FLAG_C_NO_ZEROES;
        assert_eq!(
            handshake.step(&flags.to_be_bytes()),
            (4, Progress::Continue)
        );
        handshake
    }

    fn ask(
        handshake: &mut Handshake<'_>,
        kind: u32,
        data: &[u8],
    ) -> (Progress, Vec<(u32, u32, Vec<u8>)>) {
        let message = option(kind, data);
        for cut in 0..message.len() {
            assert_eq!(handshake.step(&message[..cut]), (0, Progress::Continue));
        }
        let (used, progress) = handshake.step(&message);
        assert_eq!(used, message.len());
        let replies = replies(&handshake.take_output());
        assert!(replies.iter().all(|reply| reply.0 == kind));
        (progress, replies)
    }

    fn kinds(replies: &[(u32, u32, Vec<u8>)]) -> Vec<u32> {
        replies.iter().map(|reply| reply.1).collect()
    }

    #[test]
    fn go_tells_what_was_asked() {
        let exports = exports();
        let mut handshake = begun(&exports);
        let data = info_data("", &[INFO_NAME, INFO_BLOCK_SIZE, INFO_DESCRIPTION, 99]);
        let (progress, replies) = ask(&mut handshake, OPT_INFO, &data);
        assert_eq!(progress, Progress::Continue);
        assert_eq!(
            kinds(&replies),
            [REP_INFO, REP_INFO, REP_INFO, REP_INFO, REP_ACK]
        );
        let export = &replies[0].2;
        assert_eq!((be16(export, 0), be64(export, 2)), (INFO_EXPORT, 1 << 20));
        let block = &replies[3].2;
        assert_eq!(
            (be32(block, 2), be32(block, 6), be32(block, 10)),
            (4096, 4096, MAX_PAYLOAD)
        );

        let (progress, replies) = ask(&mut handshake, OPT_GO, &info_data("ro", &[]));
        assert_eq!(kinds(&replies), [REP_INFO, REP_ACK]);
        let flags = be16(&replies[0].2, 10);
        assert_eq!(
            flags & (FLAG_READ_ONLY | FLAG_SEND_TRIM | FLAG_SEND_DF),
            FLAG_READ_ONLY
        );
        let Progress::Transmission(session) = progress else {
            panic!("{progress:?}")
        };
        assert_eq!(
            (session.export, session.size, session.read_only),
            (1, 512, true)
        );
    }

    #[test]
    fn unknown_exports_and_options_leave_the_handshake_alive() {
        let exports = exports();
        let mut handshake = begun(&exports);
        for (kind, data, expected) in [
            (OPT_GO, info_data("nope", &[]), REP_ERR_UNKNOWN),
            (OPT_GO, vec![0, 0, 0, 9], REP_ERR_INVALID),
            (
                OPT_GO,
                [info_data("", &[3]), vec![1]].concat(),
                REP_ERR_INVALID,
            ),
            (OPT_LIST, vec![1], REP_ERR_INVALID),
            (OPT_STRUCTURED_REPLY, vec![1], REP_ERR_INVALID),
            (OPT_STARTTLS, vec![], REP_ERR_UNSUP),
            (OPT_EXTENDED_HEADERS, vec![], REP_ERR_UNSUP),
            (4, vec![], REP_ERR_UNSUP),
            (12345, vec![1, 2, 3], REP_ERR_UNSUP),
            (
                OPT_SET_META_CONTEXT,
                context_data("", &["base:allocation"]),
                REP_ERR_INVALID,
            ),
            (
                OPT_INFO,
                string32(&"x".repeat(MAX_STRING + 1)),
                REP_ERR_INVALID,
            ),
        ] {
            let (progress, replies) = ask(&mut handshake, kind, &data);
            assert_eq!(
                (progress, kinds(&replies)),
                (Progress::Continue, vec![expected])
            );
        }
        let (_, replies) = ask(&mut handshake, OPT_LIST, &[]);
        assert_eq!(kinds(&replies), [REP_SERVER, REP_SERVER, REP_ACK]);
        assert_eq!(replies[1].2, b"\0\0\0\x02rofirst");
    }

    #[test]
    fn export_name_enters_transmission_or_closes() {
        let exports = exports();
        let mut handshake = Handshake::new(&exports);
        handshake.take_output();
        handshake.step(&FLAG_C_FIXED_NEWSTYLE.to_be_bytes());
        let (_, progress) = handshake.step(&option(OPT_EXPORT_NAME, b""));
        assert!(matches!(progress, Progress::Transmission(_)));
        assert_eq!(handshake.take_output().len(), 8 + 2 + 124);

        let mut handshake = begun(&exports);
        let (_, progress) = handshake.step(&option(OPT_EXPORT_NAME, b"x"));
        assert!(matches!(progress, Progress::Close(_)));
        let mut handshake = begun(&exports);
        handshake.step(&option(OPT_EXPORT_NAME, b"ro"));
        assert_eq!(handshake.take_output().len(), 8 + 2);
    }

    #[test]
    fn metadata_contexts_count_for_their_export() {
        let exports = exports();
        let mut handshake = begun(&exports);
        ask(&mut handshake, OPT_STRUCTURED_REPLY, &[]);
        for (queries, found) in [(&[][..], true), (&["base:"], true), (&["x-y:z"], false)] {
            let (_, replies) = ask(
                &mut handshake,
                OPT_LIST_META_CONTEXT,
                &context_data("", queries),
            );
            assert_eq!(replies.len(), if found { 2 } else { 1 });
        }
        for bad in [&["base"][..], &[""]] {
            let (_, replies) = ask(&mut handshake, OPT_SET_META_CONTEXT, &context_data("", bad));
            assert_eq!(kinds(&replies), [REP_ERR_INVALID]);
        }
        let set = context_data("", &["qemu:dirty-bitmap:x", "base:allocation"]);
        let (_, replies) = ask(&mut handshake, OPT_SET_META_CONTEXT, &set);
        assert_eq!(kinds(&replies), [REP_META_CONTEXT, REP_ACK]);
        assert_eq!(be32(&replies[0].2, 0), ALLOCATION_CONTEXT_ID);
        assert!(!handshake.session(1).allocation_context);
        assert!(handshake.session(0).allocation_context);
        ask(&mut handshake, OPT_SET_META_CONTEXT, &context_data("", &[]));
        assert!(!handshake.session(0).allocation_context);
    }

    #[test]
    fn hostile_input_closes() {
        let exports = exports();
        let mut handshake = Handshake::new(&exports);
        assert!(matches!(
            handshake.step(&[0, 0, 0, 4]).1,
            Progress::Close(_)
        ));
        let mut handshake = begun(&exports);
        assert!(matches!(handshake.step(b"IHAVEOPS").1, Progress::Close(_)));
        let mut handshake = begun(&exports);
        let huge = [
            &OPTION_MAGIC.to_be_bytes()[..],
            &[0, 0, 0, 3, 255, 255, 255, 255],
        ]
        .concat();
        assert!(matches!(handshake.step(&huge).1, Progress::Close(_)));
        let mut handshake = begun(&exports);
        let closes = (0..=MAX_OPTIONS)
            .find(|_| matches!(handshake.step(&option(OPT_LIST, &[])).1, Progress::Close(_)));
        assert_eq!(closes, Some(MAX_OPTIONS));
    }

    #[test]
    fn oversized_options_are_skipped() {
        let exports = exports();
        let mut handshake = begun(&exports);
        let message = option(OPT_INFO, &vec![0; MAX_OPTION as usize + 1]);
        let (mut at, mut progress) = (0, Progress::Continue);
        while at < message.len() && progress == Progress::Continue {
            let (used, next) = handshake.step(&message[at..message.len().min(at + 1000)]);
            (at, progress) = (at + used, next);
        }
        assert_eq!((at, progress), (message.len(), Progress::Continue));
        assert_eq!(kinds(&replies(&handshake.take_output())), [REP_ERR_TOO_BIG]);
        let (_, replies) = ask(&mut handshake, OPT_LIST, &[]);
        assert_eq!(replies.len(), 3);
    }

    #[test]
    fn a_server_that_stops_says_so() {
        let exports = exports();
        let mut handshake = begun(&exports);
        handshake.shut_down();
        let (_, replies) = ask(&mut handshake, OPT_GO, &info_data("", &[]));
        assert_eq!(kinds(&replies), [REP_ERR_SHUTDOWN]);
        let (progress, replies) = ask(&mut handshake, OPT_ABORT, &[]);
        assert!(matches!(progress, Progress::Close(_)));
        assert_eq!(kinds(&replies), [REP_ACK]);
    }

    fn some_option() -> impl Strategy<Value = Vec<u8>> {
        let data = prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..64),
            Just(info_data("ro", &[INFO_BLOCK_SIZE])),
            Just(context_data("", &["base:allocation"])),
        ];
        (0_u32..14, data).prop_map(|(kind, data)| option(kind, &data))
    }

    /// Runs a handshake over `bytes`, handing over at most `at_a_time` new
    /// bytes before each step.
    fn run(exports: &[ExportInfo], bytes: &[u8], at_a_time: usize) -> (usize, Progress, Vec<u8>) {
        let mut handshake = Handshake::new(exports);
        let (mut start, mut end) = (0, 0);
        let mut output = Vec::new();
        loop {
            let (used, progress) = handshake.step(&bytes[start..end]);
            output.extend(handshake.take_output());
            start += used;
            if progress != Progress::Continue || (used == 0 && end == bytes.len()) {
                return (start, progress, output);
            }
            if used == 0 {
                end = bytes.len().min(end.saturating_add(at_a_time));
            }
        }
    }

    proptest! {
        #[test]
        fn how_bytes_arrive_makes_no_difference(
            options in proptest::collection::vec(some_option(), 0..8), at_a_time in 1_usize..40,
        ) {
            let exports = exports();
            let bytes = [&[0, 0, 0, 3][..], &options.concat()].concat();
            prop_assert_eq!(run(&exports, &bytes, at_a_time), run(&exports, &bytes, usize::MAX >> 1));
        }

        #[test]
        fn any_bytes_end_or_wait(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            run(&exports(), &bytes, 7);
        }
    }
}
