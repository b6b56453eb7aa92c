//! Holes: ranges of a file that read as zeros and take no room.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;

use clap::ValueEnum;
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;
use xtent_store::{FileStore, Store};

use crate::failure::{Failure, Result};

/// Zeros become a hole from this many bytes on: a page, and the block of most
/// file systems.
const BLOCK: usize = 4096;

/// When zeros are left out of what is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sparse {
    /// In files, for which room is reserved first; not on block devices
    Auto,
    /// In files, without reserving room; on block devices zeros become zeroed ranges
    Always,
    /// Never
    Never,
}

/// Writes a piece without its zeros to a target that holds zeros there (a new
/// file), or that can be told to (a block device).
pub(crate) fn write(target: &FileStore, piece: &[u8], offset: u64) -> Result<()> {
    for (run, is_zero) in runs(piece) {
        let (at, data) = (offset + run.start as u64, &piece[run]);
        if !is_zero || !zero(target, at, data.len() as u64)? {
            target.write_at(data, at)?;
        }
    }
    Ok(())
}

/// Makes a range a hole. `false` if zeros have to be written.
fn zero(target: &FileStore, offset: u64, len: u64) -> Result<bool> {
    // On a block device this is the request that makes zeros, and fails where
    // the device has none that is faster than writing them.
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match rustix::fs::fallocate(target.file(), flags, offset, len) {
        Ok(()) => Ok(true),
        // The range of a new file is a hole already, unless room is reserved.
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(!target.is_block_device()),
        Err(e) => Err(Failure::system(
            format!("{}: cannot make a hole", target.path().display()),
            e,
        )),
    }
}

/// The parts of a piece that are zeros and those that are not, in order; both
/// of whole blocks but for the last.
fn runs(piece: &[u8]) -> Vec<(Range<usize>, bool)> {
    let mut runs: Vec<(Range<usize>, bool)> = Vec::new();
    for (index, block) in piece.chunks(BLOCK).enumerate() {
        let range = index * BLOCK..index * BLOCK + block.len();
        let is_zero = is_zero(block);
        match runs.last_mut() {
            Some((last, kind)) if *kind == is_zero => last.end = range.end,
            _ => runs.push((range, is_zero)),
        }
    }
    runs
}

/// Ends with the first 64 bytes that are not all zero; those are looked at
/// together, for vector instructions.
fn is_zero(block: &[u8]) -> bool {
    block
        .chunks(64)
        .all(|part| part.iter().fold(0, |all, byte| all | byte) == 0)
}

/// The parts of a range of a file that hold data, in order. A file system that
/// knows no holes says that all of it does.
pub(crate) fn data_in(file: &File, range: Range<u64>) -> Result<Vec<Range<u64>>> {
    let failed = |e| Failure::system("cannot look for holes", e);
    let mut found = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) if start < range.end => start,
            // No data up to the end.
            Ok(_) | Err(Errno::NXIO) => break,
            Err(Errno::INVAL) => {
                found.push(at..range.end);
                break;
            }
            Err(e) => return Err(failed(e)),
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(start)).map_err(failed)?;
        at = end.min(range.end);
        found.push(start..at);
    }
    Ok(found)
}

/// Bytes that a regular file takes on the disk, if it has holes of a megabyte
/// at least.
pub(crate) fn taken_if_sparse(file: &File) -> Option<u64> {
    let metadata = file.metadata().ok().filter(|m| m.is_file())?;
    let taken = metadata.blocks() * 512;
    (taken + (1 << 20) <= metadata.len()).then_some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_found_by_blocks() {
        let mut piece = vec![0; 5 * BLOCK + 7];
        assert_eq!(runs(&piece), [(0..5 * BLOCK + 7, true)]);
        piece[BLOCK - 1] = 1;
        piece[2 * BLOCK] = 1;
        piece[5 * BLOCK + 6] = 1;
        assert_eq!(
            runs(&piece),
            [
                (0..BLOCK, false),
                (BLOCK..2 * BLOCK, true),
                (2 * BLOCK..3 * BLOCK, false),
                (3 * BLOCK..5 * BLOCK, true),
                (5 * BLOCK..5 * BLOCK + 7, false),
            ]
        );
        for at in 0..BLOCK {
            let mut block = [0; BLOCK];
            block[at] = 0x80;
            assert!(!is_zero(&block), "{at}");
        }
    }

    #[test]
    fn data_between_holes_is_found() {
        use std::os::unix::fs::FileExt;
        let file = tempfile::tempfile().unwrap();
        file.set_len(4 << 20).unwrap();
        assert_eq!(data_in(&file, 0..4 << 20).unwrap(), []);
        file.write_all_at(&[1; 4096], 1 << 20).unwrap();
        let written = 1 << 20..(1 << 20) + 4096;
        assert_eq!(
            data_in(&file, 0..4 << 20).unwrap(),
            std::slice::from_ref(&written)
        );
        // Only the part asked for.
        let inside = (1 << 20) + 1..(1 << 20) + 5;
        assert_eq!(
            data_in(&file, inside.clone()).unwrap(),
            std::slice::from_ref(&inside)
        );
        assert!(taken_if_sparse(&file).is_some());
    }
}
