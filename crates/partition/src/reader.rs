//! A store as the device that the crate `gpt` reads.

use std::fmt;
use std::io::{Error, ErrorKind, Read, Result, Seek, SeekFrom, Write};

use xtent_store::Store;

/// Reads at a place of its own; writes nothing.
pub(crate) struct Reader<'a> {
    disk: &'a dyn Store,
    at: u64,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(disk: &'a dyn Store) -> Self {
        Self { disk, at: 0 }
    }
}

impl Read for Reader<'_> {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        let left = self.disk.size().saturating_sub(self.at);
        let len = usize::try_from(left).map_or(buf.len(), |left| left.min(buf.len()));
        self.disk
            .read_at(&mut buf[..len], self.at)
            .map_err(Error::other)?;
        self.at += len as u64;
        Ok(len)
    }
}

impl Seek for Reader<'_> {
    fn seek(&mut self, to: SeekFrom) -> Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.disk.size().checked_add_signed(by),
        };
        self.at = at.ok_or(ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

impl Write for Reader<'_> {
    fn write(&mut self, _: &[u8]) -> Result<usize> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

impl fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("at", &self.at).finish()
    }
}
