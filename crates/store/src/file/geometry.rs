//! What a file or device is like: its type, and the sizes that matter.

use std::fs::{File, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use crate::{Act, Error, ErrorKind, Limits, block};

/// A block device's number, and the unit of its addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockDevice {
    pub(super) number: u64,
    pub(super) logical_block: u64,
}

pub(super) fn is_in_memory(file: &File) -> bool {
    // From linux/magic.h.
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58F6;
    rustix::fs::fstatfs(file)
        .ok()
        .and_then(|fs| u64::try_from(fs.f_type).ok())
        .is_some_and(|kind| kind == TMPFS || kind == RAMFS)
}

pub(super) fn check_type(metadata: &Metadata, path: &Path) -> Result<(), Error> {
    let kind = metadata.file_type();
    if kind.is_file() || kind.is_block_device() {
        return Ok(());
    }
    let what = if kind.is_dir() {
        "it is a directory"
    } else if kind.is_char_device() {
        "it is a character device"
    } else if kind.is_fifo() {
        "it is a FIFO"
    } else {
        "it is neither a file nor a block device"
    };
    Err(Error {
        kind: ErrorKind::Unsupported,
        act: Act::Open,
        place: path.into(),
        offset: None,
        source: Some(std::io::Error::other(what)),
    })
}

pub(super) fn file_limits(metadata: &Metadata) -> Limits {
    let discard = u32::try_from(metadata.blksize()).ok().and_then(plausible);
    Limits {
        atomic: block::queue_value(metadata.dev(), "physical_block_size")
            .and_then(plausible)
            .unwrap_or(512),
        discard: discard.unwrap_or(4096),
        block: 1,
    }
}

pub(super) fn block_geometry(file: &File, number: u64) -> (Option<BlockDevice>, Limits) {
    let logical = rustix::fs::ioctl_blksszget(file).ok().and_then(plausible);
    let logical = logical.unwrap_or(512);
    let atomic = rustix::fs::ioctl_blkpbszget(file).ok().and_then(plausible);
    let discard = block::queue_value(number, "discard_granularity").and_then(plausible);
    let device = BlockDevice {
        number,
        logical_block: logical.into(),
    };
    let limits = Limits {
        atomic: atomic.unwrap_or(512),
        discard: discard.unwrap_or(logical).max(logical),
        block: 1,
    };
    (Some(device), limits)
}

/// The size, if it is one that a disk can have: a power of two from 512 on.
pub(super) fn plausible(bytes: u32) -> Option<u32> {
    (bytes >= 512 && bytes.is_power_of_two()).then_some(bytes)
}
