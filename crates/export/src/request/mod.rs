//! Requests, by whatever protocol they came: what is asked for, where the data is, who is told of the end,
//! and how they are carried out. An export that has these needs nothing else of the volume.

mod carrier;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;
use xtent_store::chain;
use xtent_volume::{Foreign, RequestKind, Volume};

pub(crate) use carrier::{Carrier, Threads};

/// What is asked for, in bytes. Ranges may lie outside the volume: that is an error then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Read { offset: u64, len: u64 },
    Write { offset: u64, len: u64, fua: bool },
    Flush,
    Discard { ranges: Vec<Range>, fua: bool },
    WriteZeroes { ranges: Vec<Range>, fua: bool },
}

/// Where it begins, and its length.
pub(crate) type Range = (u64, u64);

impl Asked {
    fn kind(&self) -> RequestKind {
        match self {
            Self::Read { .. } => RequestKind::Read,
            Self::Write { .. } => RequestKind::Write,
            Self::Flush => RequestKind::Flush,
            Self::Discard { .. } => RequestKind::Discard,
            Self::WriteZeroes { .. } => RequestKind::WriteZeroes,
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::Read { len, .. } | Self::Write { len, .. } => *len,
            Self::Flush => 0,
            Self::Discard { ranges, .. } | Self::WriteZeroes { ranges, .. } => {
                ranges.iter().map(|range| range.1).sum()
            }
        }
    }
}

/// Whose request it is.
pub(crate) trait Client: Send + 'static {
    /// Takes what was read, from this byte of the request on.
    fn put(&mut self, from: u64, data: &[u8]) -> Result<(), Failed>;

    /// Gives what is to be written, from this byte of the request on.
    fn get(&mut self, from: u64, data: &mut [u8]) -> Result<(), Failed>;

    /// The request's data where it lies, if that is memory that nobody else sees: it is worked on there. What is
    /// written from it is undefined afterwards.
    fn own(&mut self, _from: u64, _len: usize) -> Option<&mut [u8]> {
        None
    }

    /// Where the request's data lies in memory that others see, piece by piece, if it does and all of it is there:
    /// the cipher works on it where it can do so safely, and nothing is copied.
    fn foreign(&self, _from: u64, _len: usize) -> Option<Vec<Foreign<'_>>> {
        None
    }

    /// Hears of the end, once: at once, on the thread that asked, or `later`.
    fn end(&mut self, result: Result<(), Failed>, later: bool);
}

/// Why a request failed.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The volume failed.
    Volume(xtent_volume::Error),
    /// Something else: the client's memory is not there, or none was to be had here.
    With(Errno),
}

impl Failed {
    /// For a client that knows these numbers.
    pub(crate) fn errno(&self) -> Errno {
        match self {
            Self::Volume(error) => error.errno(),
            Self::With(errno) => *errno,
        }
    }

    /// See [`is_fenced`].
    pub(crate) fn is_fenced(&self) -> bool {
        matches!(self, Self::Volume(error) if is_fenced(error))
    }
}

/// Somebody else has taken the volume over. A client that can go to whoever has it now (NBD, a virtual machine) is better left
/// without an answer: an error would be the end of its file system, which may go on there. One that cannot has the error.
pub(crate) fn is_fenced(error: &xtent_volume::Error) -> bool {
    use xtent_store::ErrorKind::Fenced;
    error.kind == xtent_volume::ErrorKind::Store(Fenced)
}

impl From<xtent_volume::Error> for Failed {
    fn from(error: xtent_volume::Error) -> Self {
        Self::Volume(error)
    }
}

/// A request under way, which is counted. Dropped without having ended it fails.
pub(crate) struct Request<C: Client> {
    pub(crate) client: C,
    kind: RequestKind,
    volume: Arc<Volume>,
    since: Instant,
    has_ended: bool,
}

impl<C: Client> Request<C> {
    /// Begins it.
    pub(crate) fn new(client: C, asked: &Asked, volume: &Arc<Volume>) -> Self {
        let kind = asked.kind();
        volume.metrics().asked(kind, asked.bytes());
        volume.metrics().begun();
        Self {
            client,
            kind,
            volume: Arc::clone(volume),
            since: Instant::now(),
            has_ended: false,
        }
    }

    /// Ends it on the thread that asked, before it asks for more.
    pub(crate) fn end(mut self, result: Result<(), Failed>) {
        self.finish(result, false);
    }

    /// Ends it on any thread, at any time.
    pub(crate) fn end_later(mut self, result: Result<(), Failed>) {
        self.finish(result, true);
    }

    fn finish(&mut self, result: Result<(), Failed>, later: bool) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        let metrics = self.volume.metrics();
        if let Err(failed) = &result {
            let operation = self.kind.name();
            match failed {
                Failed::Volume(error) => {
                    tracing::error!(operation, error = %chain(error), "a request failed");
                }
                Failed::With(Errno::NOMEM) => tracing::error!(operation, "no memory for a request"),
                // A client can have these made at will: who makes them says so once.
                Failed::With(_) => {}
            }
            metrics.failed(self.kind);
        }
        metrics.answered(self.kind, 1, self.since.elapsed());
        metrics.ended();
        self.client.end(result, later);
    }
}

impl<C: Client> Drop for Request<C> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.finish(Err(Failed::With(Errno::IO)), true);
        }
    }
}
