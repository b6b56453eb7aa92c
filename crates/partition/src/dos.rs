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

/// Whether the first sector keeps what knows no GPT from the disk that has one: UEFI specification, 5.2.3.
pub(crate) fn is_protective(disk: &dyn Store) -> bool {
    entries(disk, 512, 0).is_some_and(|all| all.iter().any(|entry| entry.kind == 0xee))
}

/// Primary partitions, and the chains of logical ones, numbered as by Linux (block/partitions/msdos.c): each
/// link's table has a partition, counted from the link, and the next link, counted from the first, in any order. Sums
/// are of two or three numbers of 32 bits, and so in range.
pub(crate) fn partitions(disk: &dyn Store, sector: u64) -> Vec<Partition> {
    let mut found = Vec::new();
    let Some(primary) = entries(disk, sector, 0) else {
        return found;
    };
    for (number, entry) in (1..).zip(&primary) {
        if entry.is_partition() && !entry.is_extended() {
            found.extend(Partition::of_sectors(
                number,
                entry.first,
                entry.count,
                sector,
            ));
        }
    }
    let mut number = 5;
    for chain in primary.iter().filter(|it| it.is_extended() && it.count > 0) {
        let (mut link, mut count) = (chain.first, chain.count);
        for _ in 0..MOST_LOGICAL {
            let Some(all) = entries(disk, sector, link) else {
                break;
            };
            for (index, entry) in all.iter().enumerate() {
                if entry.count == 0 || entry.is_extended() {
                    continue;
                }
                let (start, end) = (link + entry.first, link + entry.first + entry.count);
                // The third and the fourth may be anything.
                let is_inside = entry.first + entry.count <= count
                    && start >= chain.first
                    && end <= chain.first + chain.count;
                if index < 2 || is_inside {
                    found.extend(Partition::of_sectors(number, start, entry.count, sector));
                    number += 1;
                }
            }
            let mut links = all.iter().filter(|it| it.is_extended() && it.count > 0);
            let Some(next) = links.next() else {
                break;
            };
            (link, count) = (chain.first + next.first, next.count);
        }
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
    fn a_link_may_come_before_its_partition() {
        let mut image = vec![0; 16 * 512];
        table(&mut image, 0, &[(0x83, 1, 1), (0x05, 2, 14)]);
        // The last two are out of place.
        table(
            &mut image,
            2,
            &[(0x05, 4, 4), (0x83, 1, 1), (0x83, 9, 9), (0x83, 2, 1)],
        );
        table(&mut image, 6, &[(0x83, 1, 2)]);
        let found = partitions(&MemStore::from(image), 512);
        let found: Vec<_> = found.iter().map(|p| (p.number, p.start / 512)).collect();
        assert_eq!(found, [(1, 1), (5, 3), (6, 4), (7, 7)]);
    }

    #[test]
    fn a_link_without_a_partition_has_no_number() {
        let mut image = vec![0; 16 * 512];
        table(&mut image, 0, &[(0x05, 2, 14)]);
        table(&mut image, 2, &[(0, 0, 0), (0x05, 2, 4)]);
        table(&mut image, 4, &[(0x83, 1, 1), (0x05, 6, 4)]);
        table(&mut image, 8, &[(0x83, 1, 2)]);
        let found = partitions(&MemStore::from(image), 512);
        let found: Vec<_> = found.iter().map(|p| (p.number, p.start / 512)).collect();
        assert_eq!(found, [(5, 5), (6, 9)]);
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
