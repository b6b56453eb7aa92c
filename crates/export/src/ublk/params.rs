//! What the block layer is told of a volume, and whether a device was made for one.

use xtent_volume::{DiscardPolicy, Volume};

use super::abi::{self, Params, SECTOR};
use super::control::{Control, Info};
use super::{DEPTH, LARGEST, LARGEST_RANGE, MOST_QUEUES};
use crate::{Error, ErrorKind};

impl Control {
    /// Fails unless a device that [waits](super::State::Waits) could be served with the volume: where it is larger
    /// than the volume, or its sectors are others, or it was made with larger requests, or more, than are served
    /// here. Changes nothing.
    pub fn check(&mut self, info: &Info, volume: &Volume) -> Result<(), Error> {
        let number = info.number;
        let found = self.params_of(number)?;
        let wanted = params(volume);
        if info.queues > MOST_QUEUES
            || info.depth > DEPTH
            || info.max_io_bytes > LARGEST
            || found.max_sectors > wanted.max_sectors
        {
            return Err(Error {
                kind: ErrorKind::Unsupported,
                message: format!(
                    "/dev/ublkb{number} was made by another version of this program, which alone can \
                     take it over: {} queues of {} requests of up to {} bytes",
                    info.queues, info.depth, info.max_io_bytes
                ),
                source: None,
            });
        }
        let like = |it: &Params| (it.logical_shift, it.attributes & abi::READ_ONLY);
        // The volume may have grown since.
        if like(&found) != like(&wanted) || found.sectors > wanted.sectors {
            let shown = |it: &Params| {
                let access = match it.attributes & abi::READ_ONLY {
                    0 => "",
                    _ => ", read-only",
                };
                format!(
                    "{} bytes in sectors of {}{access}",
                    it.sectors * SECTOR,
                    1_u64 << it.logical_shift
                )
            };
            return Err(Error {
                kind: ErrorKind::Argument,
                message: format!(
                    "/dev/ublkb{number} was made for another volume, or opened otherwise: it has {}, \
                     and this one has {}",
                    shown(&found),
                    shown(&wanted)
                ),
                source: None,
            });
        }
        Ok(())
    }
}

pub(super) fn length_of_params() -> u32 {
    u32::try_from(size_of::<Params>()).unwrap_or_default()
}

/// What the block layer is told of the volume.
pub(super) fn params(volume: &Volume) -> Params {
    let shift = |bytes: u64| u8::try_from(bytes.max(SECTOR).ilog2()).unwrap_or(9);
    let sector = volume.sector_size().bytes() as u64;
    let sectors = |bytes: u64| u32::try_from(bytes / SECTOR).unwrap_or(u32::MAX);
    // What is written in parts is read first.
    let unit = volume.hull(
        0,
        usize::try_from(sector.min(volume.size())).unwrap_or_default(),
    );
    let unit = (unit.len as u64).max(sector);
    let has_discards = !volume.is_read_only() && volume.discard_policy() != DiscardPolicy::Never;
    let discard_unit = u32::try_from(volume.discard_unit()).unwrap_or(1 << 31);
    Params {
        length: length_of_params(),
        types: abi::PARAMS_BASIC_AND_DISCARD,
        attributes: match volume.is_read_only() {
            true => abi::READ_ONLY,
            // Flushes are what makes writes durable.
            false => abi::VOLATILE_CACHE | abi::FUA,
        },
        logical_shift: shift(sector),
        physical_shift: shift(unit),
        minimal_shift: shift(unit),
        optimal_shift: shift(volume.preferred_piece() as u64),
        max_sectors: sectors(LARGEST.into()),
        sectors: volume.size() / SECTOR,
        discard_alignment: 0,
        discard_granularity: discard_unit,
        max_discard_sectors: if has_discards {
            sectors(LARGEST_RANGE)
        } else {
            0
        },
        max_discard_segments: u16::from(has_discards),
        max_zeroes_sectors: match volume.is_read_only() {
            true => 0,
            false => sectors(LARGEST_RANGE),
        },
        ..Params::default()
    }
}
