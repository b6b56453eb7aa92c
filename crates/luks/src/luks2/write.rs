//! Writing a header so that at every instant one copy is whole and valid, and
//! everything that it names is on the disk.

use xtent_store::Store;

use super::binary::Which;
use super::document;
use super::model::{Area, Metadata};
use super::read::{Header, OtherCopy};
use crate::{Error, ErrorKind};

/// Bytes written at a time where an area is filled.
const PIECE: usize = 1 << 20;

impl Header {
    /// The same header with another text, validated as when it is read.
    pub(crate) fn with_text(&self, text: String) -> Result<Self, Error> {
        let metadata = Metadata::parse(&document::parse(&text)?)?;
        metadata.validate(self.binary.size)?;
        Ok(Self {
            text,
            metadata,
            ..self.clone()
        })
    }

    /// Writes this header over the one it was read as, as the next update.
    ///
    /// The copy that was not chosen goes first: if only one is good, it stays
    /// until the other one is good too. A cut leaves the old header or the
    /// new one, whatever happens to the 512-byte blocks of the copy that is
    /// being written, because its checksum is wrong until it is whole.
    pub(crate) fn write(&mut self, store: &dyn Store) -> Result<(), Error> {
        self.binary.seqid = self.next_seqid();
        let first = match (self.chosen, self.other) {
            // Both are good and the same: the order is cryptsetup's.
            (_, OtherCopy::Same) => Which::Primary,
            (chosen, OtherCopy::Stale | OtherCopy::Bad) => chosen.other(),
        };
        let copies = [first, first.other()].map(|which| {
            self.binary
                .encode(which, &self.text)
                .map(|copy| (which, copy))
        });
        for copy in copies {
            let (which, copy) = copy?;
            self.write_copy(store, which, &copy)?;
        }
        self.chosen = Which::Primary;
        self.other = OtherCopy::Same;
        Ok(())
    }

    /// The number of the next update. After the highest comes 1, so that nobody who once
    /// wrote to the disk can keep keys from being removed: until the last copy with the
    /// highest is written over, that is the one which counts, and it is whole.
    pub(crate) fn next_seqid(&self) -> u64 {
        self.binary.seqid.checked_add(1).unwrap_or(1)
    }

    /// Makes the copy that was not chosen the same as the chosen one.
    pub(crate) fn repair(&mut self, store: &dyn Store) -> Result<(), Error> {
        let which = self.chosen.other();
        let copy = self.binary.encode(which, &self.text)?;
        self.write_copy(store, which, &copy)?;
        self.other = OtherCopy::Same;
        Ok(())
    }

    /// Writes a whole copy, durably.
    pub(crate) fn write_copy(
        &self,
        store: &dyn Store,
        which: Which,
        copy: &[u8],
    ) -> Result<(), Error> {
        let offset = match which {
            Which::Primary => 0,
            Which::Secondary => self.binary.size,
        };
        store.write_at(copy, offset)?;
        store.flush()?;
        Ok(())
    }
}

/// Fills `area` with random bytes, durably; after an error the rest of it all the same.
pub(crate) fn wipe(store: &dyn Store, area: Area) -> Result<(), Error> {
    let mut buffer = vec![0; PIECE];
    let mut offset = area.offset;
    let mut written = Ok(());
    while offset < area.end() {
        let piece = usize::try_from(area.end() - offset).map_or(PIECE, |left| left.min(PIECE));
        xtent_secret::fill_random(&mut buffer[..piece])?;
        written = written.and(store.write_at(&buffer[..piece], offset));
        offset += piece as u64;
    }
    written.and(store.flush())?;
    Ok(())
}

/// Fills `area` with zeros.
pub(crate) fn zero(store: &dyn Store, area: Area) -> Result<(), Error> {
    let buffer = vec![0; PIECE];
    let mut offset = area.offset;
    while offset < area.end() {
        let piece = usize::try_from(area.end() - offset).map_or(PIECE, |left| left.min(PIECE));
        store.write_at(&buffer[..piece], offset)?;
        offset += piece as u64;
    }
    Ok(())
}

/// Reads an area; its size was validated.
pub(crate) fn read_area(store: &dyn Store, area: Area, length: usize) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; length];
    if length as u64 > area.size {
        return Err(Error::new(
            ErrorKind::Corrupt,
            format!(
                "{length} bytes do not fit the keyslot area of {} bytes",
                area.size
            ),
        ));
    }
    store.read_at(&mut bytes, area.offset)?;
    Ok(bytes)
}
