//! A store that fails where and when a test says.

use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use super::memory::NAME;
use crate::{Act, Error, Limits, Store};

/// What a [`Fault`] waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `read_at` and `try_read_at`.
    Read,
    /// `write_at` and `write_at_durably`.
    Write,
    /// `flush`, and the flush within `write_at_durably`.
    Flush,
    /// `discard`.
    Discard,
}

impl Operation {
    fn act(self) -> Act {
        match self {
            Self::Read => Act::Read,
            Self::Write => Act::Write,
            Self::Flush => Act::Flush,
            Self::Discard => Act::Discard,
        }
    }
}

/// One failure, or a series of them. Made by [`Fault::on`] and narrowed by the
/// other methods:
///
/// ```
/// # use xtent_store::testing::*;
/// // The third write that touches the first megabyte fails, once, half done.
/// let fault = Fault::on(Operation::Write).within(0..1 << 20).after(2).times(1).torn();
/// ```
#[derive(Clone, Debug)]
pub struct Fault {
    operation: Operation,
    range: Range<u64>,
    skip: u64,
    times: u64,
    errno: i32,
    torn: bool,
}

impl Fault {
    /// Every call of `operation` fails with EIO.
    pub fn on(operation: Operation) -> Self {
        Self {
            operation,
            range: 0..u64::MAX,
            skip: 0,
            times: u64::MAX,
            errno: Errno::IO.raw_os_error(),
            torn: false,
        }
    }

    /// Only calls that touch these bytes count (flushes always do).
    pub fn within(mut self, range: Range<u64>) -> Self {
        self.range = range;
        self
    }

    /// The first `calls` calls that count succeed.
    pub fn after(mut self, calls: u64) -> Self {
        self.skip = calls;
        self
    }

    /// After `calls` failures all is well again.
    pub fn times(mut self, calls: u64) -> Self {
        self.times = calls;
        self
    }

    /// Fails with this errno instead.
    pub fn errno(mut self, errno: i32) -> Self {
        self.errno = errno;
        self
    }

    /// A write that fails has written its first half by then.
    pub fn torn(mut self) -> Self {
        self.torn = true;
        self
    }
}

/// A store that passes everything on to another one, except for the faults
/// that a test has injected.
pub struct FaultStore<S> {
    inner: S,
    state: Mutex<State>,
}

struct State {
    faults: Vec<Fault>,
    space: Option<u64>,
    size: Option<u64>,
    flush_failed: bool,
}

impl<S: Store> FaultStore<S> {
    /// Without faults as yet.
    pub fn new(inner: S) -> Self {
        Self {
            inner,
            state: Mutex::new(State {
                faults: Vec::new(),
                space: None,
                size: None,
                flush_failed: false,
            }),
        }
    }

    /// The store below.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Adds a fault to those in force.
    pub fn inject(&self, fault: Fault) {
        self.state().faults.push(fault);
    }

    /// From now on only `bytes` more can be written before ENOSPC; the write
    /// that does not fit is done in part.
    pub fn fill_up_after(&self, bytes: u64) {
        self.state().space = Some(bytes);
    }

    /// Makes the store end at `size`, as a file truncated under its users.
    pub fn truncate(&self, size: u64) {
        self.state().size = Some(size);
    }

    /// Removes all faults, a failed flush included.
    pub fn heal(&self) {
        *self.state() = State {
            faults: Vec::new(),
            space: None,
            size: None,
            flush_failed: false,
        };
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fault that this call meets: its errno, and how many of the call's
    /// bytes are done all the same.
    fn check(&self, operation: Operation, offset: u64, len: u64) -> Result<(), (Error, u64)> {
        let state = &mut *self.state();
        let end = offset.saturating_add(len);
        let error = |errno, done| {
            let place = (operation != Operation::Flush).then_some(offset);
            let errno = Errno::from_raw_os_error(errno);
            (
                Error::from_io(errno, operation.act(), Path::new(NAME), place),
                done,
            )
        };
        if operation == Operation::Flush && state.flush_failed {
            return Err(error(Errno::IO.raw_os_error(), 0));
        }
        if let Some(size) = state.size
            && operation != Operation::Flush
            && end > size
        {
            let kind = crate::ErrorKind::OutOfRange;
            return Err((
                Error::new(kind, operation.act(), Path::new(NAME), Some(offset)),
                0,
            ));
        }
        for fault in &mut state.faults {
            let touched = operation == Operation::Flush
                || (offset < fault.range.end && end > fault.range.start);
            if fault.operation != operation || !touched || fault.times == 0 {
                continue;
            }
            if fault.skip > 0 {
                fault.skip -= 1;
                continue;
            }
            fault.times -= 1;
            state.flush_failed |= operation == Operation::Flush;
            return Err(error(fault.errno, if fault.torn { len / 2 } else { 0 }));
        }
        if operation == Operation::Write
            && let Some(space) = &mut state.space
        {
            if len > *space {
                let done = std::mem::take(space);
                return Err(error(Errno::NOSPC.raw_os_error(), done));
            }
            *space -= len;
        }
        Ok(())
    }
}

impl<S: Store> Store for FaultStore<S> {
    fn size(&self) -> u64 {
        let size = self.state().size;
        size.unwrap_or_else(|| self.inner.size())
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), Error> {
        self.check(Operation::Read, offset, buf.len() as u64)
            .map_err(|(error, _)| error)?;
        self.inner.read_at(buf, offset)
    }

    fn try_read_at(&self, buf: &mut [u8], offset: u64) -> Result<bool, Error> {
        self.check(Operation::Read, offset, buf.len() as u64)
            .map_err(|(error, _)| error)?;
        self.inner.try_read_at(buf, offset)
    }

    fn takes_write_at_once(&self, offset: u64, len: u64) -> Result<bool, Error> {
        self.inner.takes_write_at_once(offset, len)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<(), Error> {
        if let Err((error, done)) = self.check(Operation::Write, offset, data.len() as u64) {
            let done = usize::try_from(done).unwrap_or(data.len());
            self.inner.write_at(&data[..done], offset)?;
            return Err(error);
        }
        self.inner.write_at(data, offset)
    }

    fn flush(&self) -> Result<(), Error> {
        self.check(Operation::Flush, 0, 0)
            .map_err(|(error, _)| error)?;
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.check(Operation::Discard, offset, len)
            .map_err(|(error, _)| error)?;
        self.inner.discard(offset, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use crate::testing::MemStore;

    #[test]
    fn nth_call_in_a_range_fails() {
        let store = FaultStore::new(MemStore::new(4096));
        store.inject(
            Fault::on(Operation::Read)
                .within(1000..2000)
                .after(1)
                .times(1),
        );
        let mut buf = [0; 100];
        store.read_at(&mut buf, 900).unwrap();
        store.read_at(&mut buf, 1900).unwrap();
        store.read_at(&mut buf, 2000).unwrap();
        let error = store.read_at(&mut buf, 999).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Io);
        store.read_at(&mut buf, 999).unwrap();
    }

    #[test]
    fn space_runs_out_and_writes_tear() {
        let store = FaultStore::new(MemStore::new(4096));
        store.fill_up_after(1000);
        store.write_at(&[1; 600], 0).unwrap();
        let error = store.write_at(&[2; 600], 600).unwrap_err();
        assert_eq!(error.kind, ErrorKind::NoSpace);
        assert_eq!(store.inner().contents()[999], 2);
        assert_eq!(store.inner().contents()[1000], 0);
        store.heal();
        store.inject(Fault::on(Operation::Write).torn());
        assert!(store.write_at(&[3; 100], 0).is_err());
        assert_eq!(store.inner().contents()[49..51], [3, 1]);
    }

    #[test]
    fn failed_flush_sticks_and_durable_writes_meet_it() {
        let store = FaultStore::new(MemStore::new(4096));
        store.inject(Fault::on(Operation::Flush).times(1));
        assert!(store.write_at_durably(&[1], 0).is_err());
        assert!(store.flush().is_err());
        store.heal();
        store.flush().unwrap();
        store.truncate(100);
        assert_eq!(
            store.write_at(&[1], 100).unwrap_err().kind,
            ErrorKind::OutOfRange
        );
    }
}
