//! Partitions of a disk image: where they are, and which are LUKS volumes.

use std::path::Path;

use gpt::GptConfig;
use gpt::disk::LogicalBlockSize;
use xtent_store::{Access, FileStore, Store};

use crate::failure::{Exit, Failure, Result};
use crate::probe::{self, shell_word};
use crate::size::show_size;

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Partition {
    /// As the kernel numbers it: logical ones of a DOS table from 5 on.
    pub(crate) number: u32,
    /// Bytes from the start of the disk.
    pub(crate) start: u64,
    /// Bytes.
    pub(crate) len: u64,
}

/// Logical partitions that a DOS table may have before it is taken for a loop.
const MOST_LOGICAL: u32 = 128;

/// The partitions of a disk in a file: of its GPT, else of its DOS table. Empty
/// if there is none.
pub(crate) fn find(disk: &FileStore) -> Vec<Partition> {
    // Sectors of an image are 512 bytes unless its table makes sense only with 4096.
    let sectors = [LogicalBlockSize::Lb512, LogicalBlockSize::Lb4096];
    for size in sectors {
        let found = from_gpt(disk, size);
        if !found.is_empty() {
            return found;
        }
    }
    let tables = [512, 4096].map(|sector| from_dos(disk, sector));
    let fits = |table: &&Vec<Partition>| table.iter().any(|p| is_luks(disk, p));
    let best = tables.iter().find(fits).unwrap_or(&tables[0]);
    best.clone()
}

/// Partition `number` of the disk that `path` names, as a store of its own.
pub(crate) fn open(path: &Path, number: u32, access: Access) -> Result<FileStore> {
    let disk = FileStore::open(path, access)?;
    let partitions = find(&disk);
    let Some(partition) = partitions.iter().find(|p| p.number == number) else {
        let message = format!("{} has no partition {number}", path.display());
        return Err(Failure::new(Exit::Device, message).advise(list(&disk, &partitions)));
    };
    disk.window(partition.start, partition.len).map_err(|_| {
        Failure::new(
            Exit::Device,
            format!(
                "partition {number} ends beyond the end of {}: it was cut off",
                path.display()
            ),
        )
    })
}

/// What to do about a disk that is no LUKS volume but has such partitions.
pub(crate) fn advice(disk: &FileStore) -> Option<String> {
    let partitions = find(disk);
    let has_luks = partitions.iter().any(|p| is_luks(disk, p));
    has_luks.then(|| list(disk, &partitions))
}

/// The refusal of `--partition` where the kernel opens the volume.
pub(crate) fn refuse_mapping(path: &Path, number: u32) -> Failure {
    let file = shell_word(path);
    Failure::parameters(
        "--partition works where Xtent itself reads the volume, not with the device mapper",
    )
    .advise(format!(
        "Let the kernel find the partition: `losetup --find --show --partscan {file}` prints \
             /dev/loopN; then open /dev/loopNp{number}. (Of a disk, open its partition's device.)"
    ))
}

fn list(disk: &FileStore, partitions: &[Partition]) -> String {
    let luks: Vec<String> = partitions
        .iter()
        .filter(|p| is_luks(disk, p))
        .map(|p| format!("--partition {} ({})", p.number, show_size(p.len)))
        .collect();
    match luks.as_slice() {
        [] if partitions.is_empty() => "It holds no partition table.".to_owned(),
        [] => format!(
            "None of its {} partitions is a LUKS volume.",
            partitions.len()
        ),
        _ => format!("LUKS volumes in its partitions: {}.", luks.join(", ")),
    }
}

fn is_luks(disk: &FileStore, partition: &Partition) -> bool {
    FileStore::open(disk.path(), Access::ReadOnly)
        .and_then(|file| file.window(partition.start, partition.len))
        .is_ok_and(|part| probe::describe(&part).is_some_and(|what| what.contains("LUKS")))
}

fn from_gpt(disk: &FileStore, size: LogicalBlockSize) -> Vec<Partition> {
    let sector = size.as_u64();
    if !gpt_is_ordinary(disk, sector) {
        return Vec::new();
    }
    let read = || {
        // Either copy will do: a cut off image has lost the second.
        let config = GptConfig::new().writable(false).logical_block_size(size);
        let config = config.only_valid_headers(false);
        config
            .open_from_device(std::fs::File::open(disk.path()).ok()?)
            .ok()
    };
    let Some(table) = read() else {
        return Vec::new();
    };
    table
        .partitions()
        .iter()
        .filter(|(_, entry)| entry.is_used() && entry.last_lba >= entry.first_lba)
        .filter_map(|(number, entry)| {
            let sectors = (entry.last_lba - entry.first_lba).checked_add(1)?;
            Some(Partition {
                number: *number,
                start: entry.first_lba.checked_mul(sector)?,
                len: sectors.checked_mul(sector)?,
            })
        })
        .collect()
}

/// Entries of 128 bytes that a GPT may have; all programs make tables of 128.
const MOST_ENTRIES: u32 = 1024;

/// Whether both copies of a GPT's header, where there are any, are of the one shape that
/// the library reads: it panics on other sizes of entries, and takes memory for as many as
/// the header claims (UEFI specification, table 5-5: bytes 80 and 84).
fn gpt_is_ordinary(disk: &FileStore, sector: u64) -> bool {
    let last = (disk.size() / sector).saturating_sub(1);
    [1, last].into_iter().all(|at| {
        let mut header = [0; 92];
        if disk.read_at(&mut header, at * sector).is_err() || !header.starts_with(b"EFI PART") {
            return true;
        }
        let word = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        word(80) <= MOST_ENTRIES && word(84) == 128
    })
}

/// An entry of a DOS table: type, first sector, count of sectors.
struct Entry {
    kind: u8,
    first: u64,
    count: u64,
}

/// The four entries of a table in sector `at`: at byte 446, of 16 bytes each, with the
/// type at byte 4, first sector and count at 8 and 12; 55 AA at the end of the first 512
/// bytes.
fn entries(disk: &FileStore, sector: u64, at: u64) -> Option<[Entry; 4]> {
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
/// partition, counted from the link, and the next link, counted from the first.
fn from_dos(disk: &FileStore, sector: u64) -> Vec<Partition> {
    let is_extended = |entry: &Entry| matches!(entry.kind, 0x05 | 0x0f | 0x85);
    let mut found = Vec::new();
    let mut extended = None;
    let partition = |number: u32, base: u64, entry: &Entry| Partition {
        number,
        start: (base + entry.first) * sector,
        len: entry.count * sector,
    };
    let Some(primary) = entries(disk, sector, 0) else {
        return found;
    };
    for (number, entry) in (1..).zip(&primary) {
        if is_extended(entry) {
            extended.get_or_insert(entry.first);
        } else if entry.kind != 0 && entry.count > 0 {
            found.push(partition(number, 0, entry));
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
        if data.kind != 0 && data.count > 0 {
            found.push(partition(number, link, &data));
        }
        if !is_extended(&next) || next.count == 0 {
            break;
        }
        link = first + next.first;
    }
    found
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// CRC-32 as in Ethernet, which the UEFI specification wants.
    fn crc32(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!0, |crc, &byte| {
            (0..8).fold(crc ^ u32::from(byte), |crc: u32, _| {
                crc >> 1 ^ (0xedb8_8320 * (crc & 1))
            })
        })
    }

    /// An image of 1 MiB whose one header of a GPT, in sector `at`, is valid and
    /// claims entries that are all zeros.
    fn image(at: usize, entries: u32, entry_size: u32) -> tempfile::NamedTempFile {
        let mut image = vec![0; 1 << 20];
        let mut header = [0; 92];
        header[..8].copy_from_slice(b"EFI PART");
        header[8..16].copy_from_slice(&[0, 0, 1, 0, 92, 0, 0, 0]);
        header[72] = 2;
        header[80..84].copy_from_slice(&entries.to_le_bytes());
        header[84..88].copy_from_slice(&entry_size.to_le_bytes());
        header[88..].copy_from_slice(&crc32(&[0; 128 * 128]).to_le_bytes());
        let sum = crc32(&header);
        header[16..20].copy_from_slice(&sum.to_le_bytes());
        image[at * 512..][..92].copy_from_slice(&header);
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&image).unwrap();
        file
    }

    #[test]
    fn a_hostile_table_is_no_table() {
        for at in [1, 2047] {
            // This shape the library reads.
            let file = image(at, 128, 128);
            let config = GptConfig::new().only_valid_headers(false);
            let disk = config.open_from_device(file.reopen().unwrap()).unwrap();
            assert_eq!(disk.partitions().len(), 0);
            // These would be a panic, or more memory than there is.
            for (entries, size) in [(128, 4096), (128, 0), (u32::MAX, 128)] {
                let file = image(at, entries, size);
                let disk = FileStore::open(file.path(), Access::ReadOnly).unwrap();
                assert_eq!(find(&disk), [], "{entries} of {size}");
            }
        }
    }
}
