//! Replies held against the request that they answer: each byte of a read comes
//! exactly once, from inside the request, and everything ends.

use std::collections::BTreeMap;
use std::ops::Range;

use super::Form;
use super::reply::{Content, Reply, Violation};
use crate::Request;
use crate::constants::CMD_READ;

/// Error chunks in one answer, and separate ranges of data that it may have come in at a time: what
/// a server can make a client remember.
const MAX_ERRORS: u32 = 4096;
const MAX_RANGES: usize = 1 << 10;

/// A request that the server could not carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The error value: [`NbdError::code`](crate::NbdError::code) has the known ones.
    pub error: u32,
    /// The server's words, cleaned; may be empty.
    pub message: String,
}

/// What to do with the buffer of a read, as ranges of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Nothing.
    Nothing,
    /// The bytes that follow in the stream go here.
    Data(Range<usize>),
    /// Zeros go here.
    Zeros(Range<usize>),
}

/// How far the answer to one request has come.
#[derive(Clone, Debug)]
pub struct Answer {
    is_read: bool,
    offset: u64,
    len: u64,
    /// Disjoint ranges that have come, start to end, relative to the request;
    /// those that touch are one.
    come: BTreeMap<u64, u64>,
    errors: u32,
    failure: Option<Failure>,
    ended: bool,
}

impl Answer {
    /// Nothing has come yet.
    pub fn to(request: &Request) -> Self {
        Self {
            is_read: request.kind == CMD_READ,
            offset: request.offset,
            len: u64::from(request.length),
            come: BTreeMap::new(),
            errors: 0,
            failure: None,
            ended: false,
        }
    }

    /// Takes a reply with the request's cookie.
    pub fn take(&mut self, form: Form, reply: Reply) -> Result<Fill, Violation> {
        if self.ended {
            return Err(Violation("a second answer to a request"));
        }
        if reply
            .request_offset
            .is_some_and(|offset| offset != self.offset)
        {
            return Err(Violation("a reply with the offset of another request"));
        }
        let fill = match reply.content {
            Content::Simple if !self.is_read => Fill::Nothing,
            Content::Simple if form != Form::Simple => {
                return Err(Violation("a read answered by a simple reply"));
            }
            Content::Simple => Fill::Data(self.cover(self.offset, self.len)?),
            Content::Nothing => Fill::Nothing,
            Content::Data { offset, len } => Fill::Data(self.cover(offset, len)?),
            Content::Hole { offset, len } => Fill::Zeros(self.cover(offset, len)?),
            Content::Error {
                error,
                offset,
                message,
            } => {
                self.fail(error, offset, message)?;
                Fill::Nothing
            }
        };
        self.ended = reply.done;
        if self.ended && self.is_read && self.failure.is_none() && self.missing() {
            return Err(Violation("a read answered in part"));
        }
        Ok(fill)
    }

    /// How the request ended, once the last [`Fill`] is done; [`None`] if there is more to come.
    pub fn result(&self) -> Option<Result<(), &Failure>> {
        self.ended
            .then(|| self.failure.as_ref().map_or(Ok(()), Err))
    }

    fn missing(&self) -> bool {
        self.len != 0 && self.come.get(&0) != Some(&self.len)
    }

    fn fail(&mut self, error: u32, at: Option<u64>, message: String) -> Result<(), Violation> {
        self.errors += 1;
        if self.errors > MAX_ERRORS {
            return Err(Violation("errors without end"));
        }
        let inside = |at: u64| at >= self.offset && at - self.offset < self.len;
        if at.is_some_and(|at| !inside(at)) {
            return Err(Violation("an error outside the request"));
        }
        // The first says most.
        self.failure.get_or_insert(Failure { error, message });
        Ok(())
    }

    /// Notes that these bytes of the export come now.
    fn cover(&mut self, offset: u64, len: u64) -> Result<Range<usize>, Violation> {
        if !self.is_read {
            return Err(Violation("data for a request that is no read"));
        }
        let outside = Violation("data outside the request");
        let start = offset.checked_sub(self.offset).ok_or(outside)?;
        let end = start.checked_add(len).ok_or(outside)?;
        if end > self.len {
            return Err(outside);
        }
        let before = self.come.range(..end).next_back().map(|(&s, &e)| (s, e));
        if before.is_some_and(|(_, before)| before > start) {
            return Err(Violation("the same data twice"));
        }
        let (mut from, mut to) = (start, end);
        if let Some((s, e)) = before
            && e == start
        {
            from = s;
        }
        if let Some(next) = self.come.remove(&end) {
            to = next;
        }
        self.come.insert(from, to);
        if self.come.len() > MAX_RANGES {
            return Err(Violation("data in too many pieces"));
        }
        match (usize::try_from(start), usize::try_from(end)) {
            (Ok(start), Ok(end)) => Ok(start..end),
            _ => Err(outside),
        }
    }
}
