//! The client's memory, as it has shown it to the device.
//!
//! It is read and written by `pread` and `pwrite` on the client's files and never mapped here: a
//! client that truncates its file then gets an error, and not this process SIGBUS.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::fs::{OFlags, fcntl_getfl};

use crate::memory_port::Memory;

/// Mappings at most, as many as Linux's VFIO allows: with an IOMMU each page may be one.
pub const MOST: usize = 65535;

/// Files at most, however many mappings each has: they are kept open.
const FILES: usize = 512;

/// A range of the device's addresses.
#[derive(Debug)]
struct Mapping {
    start: u64,
    /// Its last address: a range may reach to the end of all addresses.
    last: u64,
    offset: u64,
    /// A client may have memory that it cannot show: nothing reaches it.
    file: Option<Arc<File>>,
    read: bool,
    write: bool,
}

/// All mappings of a client, for the thread of its messages and that of the model.
#[derive(Debug, Default)]
pub struct Mappings {
    list: Mutex<List>,
}

/// Device, inode and flags: descriptors for which these are equal are one file, opened alike.
type Identity = (u64, u64, OFlags);

#[derive(Debug, Default)]
struct List {
    mappings: Vec<Mapping>,
    files: Vec<(Identity, Weak<File>)>,
    /// PCI's bus mastering: a device without it reaches nothing.
    master: bool,
    /// Somebody was told that it is off.
    told: bool,
}

impl Mappings {
    fn list(&self) -> MutexGuard<'_, List> {
        // Whoever panics leaves a list that is whole.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds `size` bytes at `address`: those of the file from `offset` on.
    ///
    /// # Errors
    /// `InvalidInput` for what cannot be (a file that appends, too), or is mapped already; `OutOfMemory` for too many.
    pub fn add(
        &self,
        address: u64,
        size: u64,
        offset: u64,
        file: Option<File>,
        (read, write): (bool, bool),
    ) -> io::Result<()> {
        let invalid = |text| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        let Some(last) = size
            .checked_sub(1)
            .and_then(|more| address.checked_add(more))
        else {
            return invalid("a mapping is empty, or goes beyond the last address");
        };
        if offset
            .checked_add(size)
            .is_none_or(|end| i64::try_from(end).is_err())
        {
            return invalid("a mapping goes beyond what a file can have");
        }
        if let Some(file) = &file
            && !file.metadata()?.is_file()
        {
            return invalid("a mapping's file is no regular file");
        }
        // What is written there is not where it should be, but at the end.
        if let Some(file) = &file
            && fcntl_getfl(file)?.contains(OFlags::APPEND)
        {
            return invalid("a mapping's file is open for appending");
        }
        let mut list = self.list();
        if list.mappings.len() >= MOST {
            return Err(io::Error::new(
                io::ErrorKind::OutOfMemory,
                "too many mappings",
            ));
        }
        let at = list.mappings.partition_point(|it| it.last < address);
        if list.mappings.get(at).is_some_and(|it| it.start <= last) {
            return invalid("a mapping lies upon another");
        }
        let file = file.map(|file| list.share(file)).transpose()?;
        let mapping = Mapping {
            start: address,
            last,
            offset,
            file,
            read,
            write,
        };
        list.mappings.insert(at, mapping);
        Ok(())
    }

    /// Removes the mappings in a range; after that nothing reaches their memory. A range without
    /// any is no error: Linux's VFIO has none either.
    ///
    /// # Errors
    /// `InvalidInput` if the range cuts a mapping.
    pub fn remove(&self, address: u64, size: u64) -> io::Result<()> {
        let invalid = |text| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        let Some(last) = size
            .checked_sub(1)
            .and_then(|more| address.checked_add(more))
        else {
            return invalid("a range to unmap is empty, or goes beyond the last address");
        };
        let touched = |it: &Mapping| it.start <= last && it.last >= address;
        let mut list = self.list();
        if list
            .mappings
            .iter()
            .any(|it| touched(it) && (it.start < address || it.last > last))
        {
            return invalid("a range to unmap cuts a mapping");
        }
        list.mappings.retain(|it| !touched(it));
        Ok(())
    }

    /// Removes all of them.
    pub fn clear(&self) {
        self.list().mappings.clear();
    }

    /// Reads all of a range for the client itself, whose rings are no accesses of the device: bus
    /// mastering does not matter. Whether that is memory that may be read.
    pub fn peek(&self, address: u64, bytes: &mut [u8]) -> bool {
        self.list().read(address, bytes)
    }

    /// The same, written.
    pub fn poke(&self, address: u64, bytes: &[u8]) -> bool {
        self.list().write(address, bytes)
    }

    /// Turns bus mastering on or off.
    pub fn set_master(&self, master: bool) {
        let mut list = self.list();
        list.master = master;
        list.told &= !master;
    }
}

impl List {
    /// That file, or the one that a mapping has already.
    fn share(&mut self, file: File) -> io::Result<Arc<File>> {
        let metadata = file.metadata()?;
        let identity = (metadata.dev(), metadata.ino(), fcntl_getfl(&file)?);
        self.files.retain(|(_, file)| file.strong_count() > 0);
        let known = self.files.iter().find(|(it, _)| *it == identity);
        if let Some(file) = known.and_then(|(_, file)| file.upgrade()) {
            return Ok(file);
        }
        if self.files.len() >= FILES {
            return Err(io::Error::new(
                io::ErrorKind::OutOfMemory,
                "mappings of too many files",
            ));
        }
        let file = Arc::new(file);
        self.files.push((identity, Arc::downgrade(&file)));
        Ok(file)
    }

    /// Calls `reach` with the file and its offset of each part of a range; whether all of the
    /// range is there, and it succeeded.
    fn each(
        &self,
        address: u64,
        bytes: usize,
        write: bool,
        mut reach: impl FnMut(&File, u64, usize, usize) -> io::Result<()>,
    ) -> bool {
        let mut done = 0;
        while done < bytes {
            let Some(at) = address.checked_add(done as u64) else {
                return false;
            };
            let index = self.mappings.partition_point(|it| it.last < at);
            let Some(mapping) = self.mappings.get(index).filter(|it| it.start <= at) else {
                return false;
            };
            let Some(file) = mapping
                .file
                .as_ref()
                .filter(|_| if write { mapping.write } else { mapping.read })
            else {
                return false;
            };
            // Less than what is left of a burst, or all of it.
            let length = usize::try_from(mapping.last - at).map_or(bytes - done, |more| {
                more.saturating_add(1).min(bytes - done)
            });
            if let Err(error) = reach(file, mapping.offset + (at - mapping.start), done, length) {
                log::info!("memory at {at:#x}: {error}");
                return false;
            }
            done += length;
        }
        true
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        self.each(address, bytes.len(), false, |file, offset, done, length| {
            file.read_exact_at(&mut bytes[done..done + length], offset)
        })
    }

    fn write(&self, address: u64, bytes: &[u8]) -> bool {
        self.each(address, bytes.len(), true, |file, offset, done, length| {
            // A file that was truncated is not made longer.
            if file.metadata()?.len() < offset + length as u64 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let bytes = &bytes[done..done + length];
            // A completion, which software may watch: its second half, with the phase, comes last.
            let part = if bytes.len() == 16 { 8 } else { bytes.len() };
            for (part, at) in bytes.chunks(part).zip((offset..).step_by(part)) {
                file.write_all_at(part, at)?;
            }
            Ok(())
        })
    }

    /// Whether the device may access memory; says once that it tried to.
    fn is_master(&mut self) -> bool {
        if !self.master && !self.told {
            log::warn!(
                "the co-processor accesses memory while bus mastering (bit 2 of PCI's command register) is off"
            );
            self.told = true;
        }
        self.master
    }
}

impl Memory for Mappings {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        let mut list = self.list();
        list.is_master() && list.read(address, bytes)
    }

    fn write(&self, address: u64, bytes: &[u8]) -> bool {
        let mut list = self.list();
        list.is_master() && list.write(address, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bytes: u64) -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(bytes).unwrap();
        file
    }

    fn with(mappings: &[(u64, u64, u64, bool, bool)]) -> (Mappings, File) {
        let file = file(0x4000);
        let all = Mappings::default();
        all.set_master(true);
        for &(address, size, offset, read, write) in mappings {
            all.add(
                address,
                size,
                offset,
                Some(file.try_clone().unwrap()),
                (read, write),
            )
            .unwrap();
        }
        (all, file)
    }

    #[test]
    fn a_burst_may_lie_in_two_mappings() {
        let (all, file) = with(&[
            (0x1000, 0x1000, 0x2000, true, true),
            (0x2000, 0x1000, 0, true, true),
        ]);
        assert!(all.write(0x1ff0, &[7; 32]));
        let mut bytes = [0; 32];
        assert!(all.read(0x1ff0, &mut bytes));
        assert_eq!(bytes, [7; 32]);
        file.read_exact_at(&mut bytes[..16], 0x2ff0).unwrap();
        file.read_exact_at(&mut bytes[16..], 0).unwrap();
        assert_eq!(bytes, [7; 32]);
    }

    #[test]
    fn nothing_else_is_reached() {
        let (all, file) = with(&[
            (0x1000, 0x1000, 0, true, false),
            (0x3000, 0x1000, 0, false, true),
            (u64::MAX - 0xfff, 0x1000, 0x1000, true, true),
            (0x8000, 0x8000, 0, true, true),
        ]);
        let mut bytes = [0; 16];
        assert!(all.read(0x1000, &mut bytes));
        assert!(!all.write(0x1000, &bytes), "a mapping to read was written");
        assert!(!all.read(0x3000, &mut bytes), "a mapping to write was read");
        assert!(all.write(0x3000, &bytes));
        assert!(!all.read(0xff8, &mut bytes), "half below a mapping");
        assert!(!all.read(0x1ff8, &mut bytes), "half above a mapping");
        assert!(all.read(u64::MAX - 15, &mut bytes));
        assert!(
            !all.read(u64::MAX - 7, &mut bytes),
            "beyond the last address"
        );
        assert!(!all.read(0xc000, &mut bytes), "beyond the end of the file");
        assert!(!all.write(0xc000, &bytes), "the file was made longer");
        assert_eq!(file.metadata().unwrap().len(), 0x4000);
        file.set_len(0).unwrap();
        assert!(!all.read(0x1000, &mut bytes), "the file is gone");
        all.set_master(false);
        file.set_len(0x4000).unwrap();
        assert!(!all.read(0x1000, &mut bytes), "without bus mastering");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let (all, file) = with(&[(0x1000, 0x1000, 0, true, true)]);
        let add = |address, size, offset| {
            all.add(
                address,
                size,
                offset,
                Some(file.try_clone().unwrap()),
                (true, true),
            )
            .is_ok()
        };
        assert!(
            !add(0x1000, 0x1000, 0)
                && !add(0, 0x1001, 0)
                && !add(0x1fff, 1, 0)
                && !add(0, u64::MAX, 0)
        );
        assert!(!add(0x2000, 0, 0) && !add(u64::MAX, 2, 0) && !add(0x2000, 1, u64::MAX));
        assert!(!add(0x2000, 1 << 62, 1 << 62));
        let pipe = File::open("/dev/null").unwrap();
        assert!(all.add(0x2000, 16, 0, Some(pipe), (true, true)).is_err());
        let named = tempfile::NamedTempFile::new().unwrap();
        let appends = File::options().append(true).open(named.path()).unwrap();
        assert!(all.add(0x2000, 16, 0, Some(appends), (true, true)).is_err());
        assert!(add(0x2000, 1 << 62, 0) && add(0, 0x1000, 0));
        assert!(
            all.remove(0x1000, 0x800).is_err()
                && all.remove(0x800, 0x1000).is_err()
                && all.remove(0, 0).is_err()
        );
        all.remove(0, 0x2000).unwrap();
        all.remove(0, 0x2000).unwrap();
        assert!(add(0x1000, 0x1000, 0), "the range is not free");
    }

    #[test]
    fn a_file_is_kept_open_once() {
        let all = Mappings::default();
        let shown = file(0x1000);
        let add = |at: u64, file: &File| {
            all.add(at, 16, 0, Some(file.try_clone().unwrap()), (true, true))
        };
        for i in 0..1000 {
            add(i * 16, &shown).unwrap();
        }
        assert_eq!(all.list().files.len(), 1);
        for i in 1000..1000 + FILES as u64 - 1 {
            add(i * 16, &file(16)).unwrap();
        }
        assert!(add(1 << 20, &file(16)).is_err(), "too many files");
        add(1 << 20, &shown).unwrap();
        all.clear();
        add(0, &file(16)).unwrap();
        assert_eq!(all.list().files.len(), 1);
    }

    #[test]
    fn there_are_not_too_many() {
        let all = Mappings::default();
        for i in 0..MOST as u64 {
            all.add(i * 16, 16, 0, None, (true, true)).unwrap();
        }
        assert!(
            all.add(MOST as u64 * 16, 16, 0, None, (true, true))
                .is_err()
        );
        all.clear();
        all.add(0, 16, 0, None, (true, true)).unwrap();
        all.set_master(true);
        assert!(!all.read(0, &mut [0; 16]), "memory without a file");
    }
}
