//! What Linux says about block devices: sizes from sysfs, discards by ioctl.
#![allow(unsafe_code)]

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use rustix::fs::{major, minor};
use rustix::ioctl::{Getter, Opcode, Setter, ioctl, opcode};

/// `BLKDISCARD` of `linux/fs.h`: discards the range given as start and length
/// in bytes.
const BLKDISCARD: Opcode = opcode::none(0x12, 119);

/// Discards a range of a block device; both numbers are multiples of its
/// logical block.
pub(crate) fn discard(device: impl AsFd, start: u64, len: u64) -> rustix::io::Result<()> {
    // SAFETY: BLKDISCARD reads two u64 through its argument, which is what
    // the input is, and writes nothing.
    unsafe { ioctl(device, Setter::<BLKDISCARD, [u64; 2]>::new([start, len])) }
}

/// `BLKROGET` of `linux/fs.h`: whether the device refuses writes, as an int.
const BLKROGET: Opcode = opcode::none(0x12, 94);

/// Whether the device refuses writes. Linux opens it for writing all the same.
pub(crate) fn is_read_only(device: impl AsFd) -> rustix::io::Result<bool> {
    // SAFETY: BLKROGET writes an int through its argument, and nothing else.
    unsafe { ioctl(device, Getter::<BLKROGET, i32>::new()) }.map(|flag| flag != 0)
}

/// A number from the request queue of the disk with device number `device`,
/// or of the disk that holds the partition of that number.
pub(crate) fn queue_value(device: u64, name: &str) -> Option<u32> {
    let base = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    ["queue", "../queue"].iter().find_map(|queue| {
        let text = std::fs::read_to_string(format!("{base}/{queue}/{name}")).ok()?;
        text.trim().parse().ok()
    })
}

/// The part of a file that a block device is made of.
pub(crate) struct Backing {
    pub(crate) path: PathBuf,
    /// First byte.
    pub(crate) start: u64,
    /// Bytes; none for all the rest.
    pub(crate) len: Option<u64>,
}

/// What the loop device of this number, or this partition of one, is made of.
pub(crate) fn backing(device: u64) -> Option<Backing> {
    let base = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    let number = |name: &str| -> Option<u64> {
        let text = std::fs::read_to_string(format!("{base}/{name}")).ok()?;
        text.trim().parse().ok()
    };
    ["loop", "../loop"].iter().find_map(|place| {
        let mut path = std::fs::read(format!("{base}/{place}/backing_file")).ok()?;
        if path.last() == Some(&b'\n') {
            path.pop();
        }
        let path = PathBuf::from(OsString::from_vec(path));
        let loop_start = number(&format!("{place}/offset")).unwrap_or(0);
        // A partition's place is in sectors of 512 bytes, whatever those of the disk are.
        let (first, len) = match (*place, number("start"), number("size")) {
            ("../loop", Some(first), Some(sectors)) => (first * 512, Some(sectors * 512)),
            _ => {
                let limit = number(&format!("{place}/sizelimit"));
                (0, limit.filter(|&limit| limit > 0))
            }
        };
        let start = loop_start.saturating_add(first);
        Some(Backing { path, start, len })
    })
}
