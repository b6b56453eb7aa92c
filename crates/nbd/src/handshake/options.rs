//! What each option of a client is answered with.

use super::option_data::{parse_info, parse_meta_context, string32};
use super::{ExportInfo, Handshake, Progress, Tls};
use crate::constants::*;
use crate::{ALLOCATION_CONTEXT_ID, MAX_PAYLOAD, be16};

/// The one metadata context.
const ALLOCATION: &[u8] = b"base:allocation";

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

impl Handshake {
    pub(super) fn answer(&mut self, option: u32, data: &[u8]) -> Progress {
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
}
