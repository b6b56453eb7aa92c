//! Partition tables of disk images, which anybody may have written: a GPT, read by the
//! crate `gpt`, else a DOS table.

mod dos;
mod guid;
mod reader;

use xtent_store::Store;

/// A partition. Its end, `start + len`, is a number too, but may lie beyond the disk's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// As the kernel numbers it: logical ones of a DOS table from 5 on.
    pub number: u32,
    /// Bytes from the start of the disk.
    pub start: u64,
    /// Length in bytes.
    pub len: u64,
}

impl Partition {
    /// The partition of a range of sectors, if its bytes can be counted.
    fn of_sectors(number: u32, first: u64, count: u64, sector: u64) -> Option<Self> {
        let (start, len) = (first.checked_mul(sector)?, count.checked_mul(sector)?);
        start.checked_add(len)?;
        Some(Self { number, start, len })
    }
}

/// The partitions of a disk: of its GPT, else of its DOS table. Empty if there is none.
/// `is_wanted` tells which of two readings of a DOS table is right: the one that finds
/// such a partition.
pub fn find(disk: &dyn Store, is_wanted: impl Fn(&Partition) -> bool) -> Vec<Partition> {
    // Sectors of an image are 512 bytes unless its table makes sense only with 4096.
    let sectors = [512, 4096];
    // As for the kernel, a GPT is in force where the table in the first sector says so: one that was left behind by
    // whoever made a DOS table later is not.
    for sector in sectors.into_iter().filter(|_| dos::is_protective(disk)) {
        let found = guid::partitions(disk, sector);
        if !found.is_empty() {
            return found;
        }
    }
    let [small, large] = sectors.map(|sector| dos::partitions(disk, sector));
    if !small.iter().any(&is_wanted) && large.iter().any(&is_wanted) {
        large
    } else {
        small
    }
}
