//! BAR 2: the table of MSI-X and its pending bits.

/// Bytes of BAR 2, which has the table, and from the middle on the pending bits.
pub const BAR2_BYTES: u32 = 0x1000;
/// Where the pending bits are.
pub const PENDING: u32 = 0x800;
/// Bytes of a vector.
const ENTRY: usize = 16;

/// A message that a vector sends: data, to be written to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Where to.
    pub address: u64,
    /// What is written there.
    pub data: u32,
}

/// The table and the pending bits.
#[derive(Debug)]
pub struct Msix {
    table: Vec<u8>,
    /// A bit for each vector that would have sent its message, were it not masked.
    pending: u64,
}

impl Msix {
    /// All vectors masked, none pending.
    pub fn new(vectors: u16) -> Self {
        Self {
            table: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0].repeat(vectors.into()),
            pending: 0,
        }
    }

    /// Reads bytes of BAR 2.
    pub fn read(&self, at: usize, data: &mut [u8]) {
        let pending = self.pending.to_le_bytes();
        for (i, byte) in (at..).zip(data) {
            let table = self.table.get(i);
            let pending = || pending.get(i.checked_sub(PENDING as usize)?);
            *byte = table.or_else(pending).copied().unwrap_or(0);
        }
    }

    /// Writes bytes of BAR 2: of the table all that can be written, which of the last word is the
    /// mask.
    pub fn write(&mut self, at: usize, data: &[u8]) {
        for (i, &byte) in (at..).zip(data) {
            if let Some(place) = self.table.get_mut(i) {
                *place = match i % ENTRY {
                    0 => byte & !3,
                    12 => byte & 1,
                    13.. => 0,
                    _ => byte,
                };
            }
        }
    }

    /// A vector's interrupt comes while MSI-X is on.
    pub fn raise(&mut self, vector: usize) {
        self.pending |= 1 << vector;
    }

    /// The next message that goes out, unless all are masked. Its vector is no longer pending.
    pub fn take_message(&mut self) -> Option<Message> {
        let (entries, _) = self.table.as_chunks::<ENTRY>();
        let (vector, entry) = (0..)
            .zip(entries)
            .find(|(vector, entry)| self.pending >> vector & 1 != 0 && entry[12] & 1 == 0)?;
        let word = |at: usize| u32::from_le_bytes([at, at + 1, at + 2, at + 3].map(|i| entry[i]));
        let message = Message {
            address: u64::from(word(4)) << 32 | u64::from(word(0)),
            data: word(8),
        };
        self.pending &= !(1_u64 << vector);
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(msix: &Msix) -> u8 {
        let mut bytes = [0];
        msix.read(PENDING as usize, &mut bytes);
        bytes[0]
    }

    #[test]
    fn messages_wait_while_they_are_masked() {
        let mut msix = Msix::new(2);
        msix.write(ENTRY, &[0x03, 0, 0x0a, 0, 5, 0, 0, 0, 9, 8, 0, 0]);
        msix.raise(0);
        msix.raise(1);
        assert_eq!((msix.take_message(), pending(&msix)), (None, 3));
        msix.write(ENTRY + 12, &[0xfe, 0xff, 0xff, 0xff]);
        let message = Message {
            address: 0x5_000a_0000,
            data: 0x809,
        };
        assert_eq!((msix.take_message(), pending(&msix)), (Some(message), 1));
        assert_eq!(msix.take_message(), None);
        let mut entry = [0; 16];
        msix.read(ENTRY, &mut entry);
        assert_eq!(entry, [0, 0, 0x0a, 0, 5, 0, 0, 0, 9, 8, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn only_the_table_can_be_written() {
        let mut msix = Msix::new(9);
        msix.raise(8);
        msix.write(0, &[0xff; BAR2_BYTES as usize]);
        let mut bytes = [0; BAR2_BYTES as usize];
        msix.read(0, &mut bytes);
        let entry = [[0xfc].as_slice(), &[0xff; 11], &[1, 0, 0, 0]].concat();
        assert_eq!(bytes[..9 * ENTRY], entry.repeat(9));
        assert!(bytes[9 * ENTRY..PENDING as usize].iter().all(|&it| it == 0));
        assert_eq!(bytes[PENDING as usize..][..8], [0, 1, 0, 0, 0, 0, 0, 0]);
        assert!(bytes[PENDING as usize + 8..].iter().all(|&it| it == 0));
    }
}
