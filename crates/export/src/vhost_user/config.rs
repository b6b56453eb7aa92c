//! What the device says of itself: features, and the configuration space of virtio 1.2, 5.2.4.

use xtent_volume::{DiscardPolicy, Volume};

use super::request::{LARGEST, LARGEST_ZEROES, MOST_RANGES, SECTOR, SEGMENTS, largest_discard};

/// Bytes of the configuration space, up to the limits of writing zeros.
pub(super) const LENGTH: usize = 60;
/// Most entries of a ring.
pub(super) const MOST_ENTRIES: u16 = 1024;

const VIRTIO_BLK_F_SIZE_MAX: u64 = 1 << 1;
const VIRTIO_BLK_F_SEG_MAX: u64 = 1 << 2;
const VIRTIO_BLK_F_RO: u64 = 1 << 5;
const VIRTIO_BLK_F_BLK_SIZE: u64 = 1 << 6;
pub(super) const VIRTIO_BLK_F_FLUSH: u64 = 1 << 9;
const VIRTIO_BLK_F_TOPOLOGY: u64 = 1 << 10;
const VIRTIO_BLK_F_MQ: u64 = 1 << 12;
const VIRTIO_BLK_F_DISCARD: u64 = 1 << 13;
const VIRTIO_BLK_F_WRITE_ZEROES: u64 = 1 << 14;
pub(super) const VHOST_F_LOG_ALL: u64 = 1 << 26;
const VIRTIO_RING_F_INDIRECT_DESC: u64 = 1 << 28;
pub(super) const VIRTIO_RING_F_EVENT_IDX: u64 = 1 << 29;
pub(super) const VHOST_USER_F_PROTOCOL_FEATURES: u64 = 1 << 30;
const VIRTIO_F_VERSION_1: u64 = 1 << 32;

/// What the device can do.
pub(super) fn features(volume: &Volume) -> u64 {
    let mut features = VIRTIO_F_VERSION_1
        | VIRTIO_RING_F_INDIRECT_DESC
        | VIRTIO_RING_F_EVENT_IDX
        | VHOST_USER_F_PROTOCOL_FEATURES
        | VHOST_F_LOG_ALL
        | VIRTIO_BLK_F_SIZE_MAX
        | VIRTIO_BLK_F_SEG_MAX
        | VIRTIO_BLK_F_BLK_SIZE
        | VIRTIO_BLK_F_FLUSH
        | VIRTIO_BLK_F_TOPOLOGY
        | VIRTIO_BLK_F_MQ;
    if volume.is_read_only() {
        return features | VIRTIO_BLK_F_RO;
    }
    features |= VIRTIO_BLK_F_WRITE_ZEROES;
    if volume.discard_policy() != DiscardPolicy::Never {
        features |= VIRTIO_BLK_F_DISCARD;
    }
    features
}

/// The configuration space.
pub(super) fn space(volume: &Volume, queues: u16) -> [u8; LENGTH] {
    let mut space = [0; LENGTH];
    let mut put = |at: usize, bytes: &[u8]| space[at..at + bytes.len()].copy_from_slice(bytes);
    let sector = u32::try_from(volume.sector_size().bytes()).unwrap_or(4096);
    let piece = u32::try_from(volume.preferred_piece()).unwrap_or(sector);
    let sectors = |bytes: u64| u32::try_from(bytes / SECTOR).unwrap_or(u32::MAX);
    put(0, &(volume.size() / SECTOR).to_le_bytes());
    // So that no request is larger than may be.
    let segment = (LARGEST / u64::from(SEGMENTS)).next_power_of_two() / 2;
    put(8, &u32::try_from(segment).unwrap_or(4096).to_le_bytes());
    put(12, &u32::from(SEGMENTS).to_le_bytes());
    put(20, &sector.to_le_bytes());
    // Topology, in blocks of that size: what is read and written at a time is one block; more at
    // a time is better.
    put(26, &1_u16.to_le_bytes());
    put(28, &(piece / sector).to_le_bytes());
    // Flushes are what makes writes durable.
    put(32, &[1]);
    put(34, &queues.to_le_bytes());
    // Discards and zeros: sectors, ranges, and for discards the alignment.
    let ranges = MOST_RANGES.to_le_bytes();
    put(36, &sectors(largest_discard(volume)).to_le_bytes());
    put(40, &ranges);
    let unit = volume.discard_unit() / SECTOR;
    put(44, &u32::try_from(unit.max(1)).unwrap_or(1).to_le_bytes());
    put(48, &sectors(LARGEST_ZEROES).to_le_bytes());
    put(52, &ranges);
    // Zeros may not deallocate: they are encrypted, and written.
    put(56, &[0]);
    space
}
