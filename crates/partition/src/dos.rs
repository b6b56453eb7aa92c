//! DOS partition tables: primary partitions, and a chain of logical ones.

use xtent_store::Store;

use crate::Partition;

/// Logical partitions that a table may have before it is taken for a loop.
const MOST_LOGICAL: u32 = 128;

/// An entry of a table: type, first sector, count of sectors.
struct Entry {
    kind: u8,
    first: u64,
    count: u64,
}

impl Entry {
    fn is_extended(&self) -> bool {
        matches!(self.kind, 0x05 | 0x0f | 0x85)
    }

    fn is_partition(&self) -> bool {
        self.kind != 0 && self.count > 0
    }
}

/// The four entries of a table in sector `at`: at byte 446, of 16 bytes each, with the
/// type at byte 4, first sector and count at 8 and 12; 55 AA at the end of the first 512
/// bytes.
fn entries(disk: &dyn Store, sector: u64, at: u64) -> Option<[Entry; 4]> {
    let mut table = [0; 512];
    disk.read_at(&mut table, at.checked_mul(sector)?).ok()?;
    if table[510..] != [0x55, 0xaa] {
        return None;
    }
    Some(std::array::from_fn(|index| {
        let entry = &table[446 + 16 * index..][..16];
        let word = |at: usize| {
            u64::from(u32::from_le_bytes([
                entry[at],
                entry[at + 1],
                entry[at + 2],
                entry[at + 3],
            ]))
        };
        Entry {
            kind: entry[4],
            first: word(8),
            count: word(12),
        }
    }))
}

/// Primary partitions, and the chain of logical ones: each link's table has the
/// partition, counted from the link, and the next link, counted from the first. Sums are
/// of two or three numbers of 32 bits, and so in range.
pub(crate) fn partitions(disk: &dyn Store, sector: u64) -> Vec<Partition> {
    let mut found = Vec::new();
    let mut extended = None;
    let partition = |number: u32, base: u64, entry: &Entry| {
        Partition::of_sectors(number, base + entry.first, entry.count, sector)
    };
    let Some(primary) = entries(disk, sector, 0) else {
        return found;
    };
    for (number, entry) in (1..).zip(&primary) {
        if entry.is_extended() {
            extended.get_or_insert(entry.first);
        } else if entry.is_partition() {
            found.extend(partition(number, 0, entry));
        }
    }
    let Some(first) = extended else {
        return found;
    };
    let mut link = first;
    for number in 5..5 + MOST_LOGICAL {
        let Some([data, next, ..]) = entries(disk, sector, link) else {
            break;
        };
        if data.is_partition() {
            found.extend(partition(number, link, &data));
        }
        if !next.is_extended() || next.count == 0 {
            break;
        }
        link = first + next.first;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use xtent_store::testing::MemStore;

    /// Writes a table with these types, first sectors and counts into sector `at`.
    fn table(image: &mut [u8], at: usize, entries: &[(u8, u32, u32)]) {
        let sector = &mut image[at * 512..][..512];
        sector[510..].copy_from_slice(&[0x55, 0xaa]);
        for (index, (kind, first, count)) in entries.iter().enumerate() {
            let entry = &mut sector[446 + 16 * index..][..16];
            entry[4] = *kind;
            entry[8..12].copy_from_slice(&first.to_le_bytes());
            entry[12..].copy_from_slice(&count.to_le_bytes());
        }
    }

    #[test]
    fn a_chain_that_goes_round_ends() {
        let mut image = vec![0; 8 * 512];
        table(&mut image, 0, &[(0x05, 2, 6)]);
        table(&mut image, 2, &[(0x83, 1, 1), (0x05, 0, 1)]);
        let found = partitions(&MemStore::from(image), 512);
        assert_eq!(found.len(), MOST_LOGICAL as usize);
        assert!(found.iter().all(|p| (p.start, p.len) == (3 * 512, 512)));
    }

    #[test]
    fn the_largest_numbers_can_be_counted() {
        for sector in [512, 4096] {
            let mut image = vec![0; 64 * 1024];
            let most = u32::MAX;
            table(&mut image, 0, &[(0x83, most, most), (0x0f, 8, most)]);
            let at = 8 * usize::try_from(sector).unwrap() / 512;
            table(&mut image, at, &[(0x83, most, most), (0x05, most, most)]);
            let found = partitions(&MemStore::from(image), sector);
            let most = u64::from(most);
            let expected = [(1, most), (5, most + 8)].map(|(number, first)| Partition {
                number,
                start: first * sector,
                len: most * sector,
            });
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn without_the_mark_at_its_end_it_is_no_table() {
        let mut image = vec![0; 512];
        table(&mut image, 0, &[(0x83, 1, 1)]);
        image[511] = 0;
        assert_eq!(partitions(&MemStore::from(image), 512), []);
        assert_eq!(partitions(&MemStore::new(100), 512), []);
    }
}
