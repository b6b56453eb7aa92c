//! What is said to the kernel's driver, as `include/uapi/linux/ublk_cmd.h` has it.

/// Sectors of the protocol, whatever the volume's are.
pub(super) const SECTOR: u64 = 512;

/// A command to the driver: its number, and which way what it points to goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Command {
    number: u32,
    direction: u32,
    /// Bytes of the command's own structure.
    size: u32,
}

const READ: u32 = 2;
const READ_WRITE: u32 = 3;

const fn control(number: u32, direction: u32) -> Command {
    Command {
        number,
        direction,
        size: 32,
    }
}

const fn io(number: u32) -> Command {
    Command {
        number,
        direction: READ_WRITE,
        size: 16,
    }
}

pub(super) const GET_DEV_INFO: Command = control(0x02, READ);
pub(super) const ADD_DEV: Command = control(0x04, READ_WRITE);
pub(super) const DEL_DEV: Command = control(0x05, READ_WRITE);
pub(super) const START_DEV: Command = control(0x06, READ_WRITE);
pub(super) const STOP_DEV: Command = control(0x07, READ_WRITE);
pub(super) const SET_PARAMS: Command = control(0x08, READ_WRITE);
pub(super) const GET_PARAMS: Command = control(0x09, READ);
pub(super) const START_USER_RECOVERY: Command = control(0x10, READ_WRITE);
pub(super) const END_USER_RECOVERY: Command = control(0x11, READ_WRITE);
/// Linux 6.5 and newer.
pub(super) const GET_FEATURES: Command = control(0x13, READ);
/// Linux 6.16 and newer.
pub(super) const UPDATE_SIZE: Command = control(0x15, READ_WRITE);
pub(super) const FETCH: Command = io(0x20);
pub(super) const COMMIT_AND_FETCH: Command = io(0x21);

impl Command {
    /// As the driver wants it: Linux 6.4 and newer know commands by the numbers of ioctls, and may
    /// be built without the others; older ones know only those.
    pub(super) const fn code(self, is_encoded: bool) -> u32 {
        match is_encoded {
            true => self.direction << 30 | self.size << 16 | (b'u' as u32) << 8 | self.number,
            false => self.number,
        }
    }
}

/// Requests wait for the next server when one is gone, and those under way are carried out again.
pub(super) const F_USER_RECOVERY: u64 = 1 << 3;
pub(super) const F_USER_RECOVERY_REISSUE: u64 = 1 << 4;

/// The size of a device can be changed while it is there.
pub(super) const F_UPDATE_SIZE: u64 = 1 << 10;

/// `ublksrv_ctrl_cmd`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct ControlCommand {
    pub(super) device: u32,
    /// -1: of none.
    pub(super) queue: u16,
    /// Bytes at `address`.
    pub(super) length: u16,
    pub(super) address: u64,
    pub(super) data: u64,
    pub(super) path_length: u16,
    pub(super) padding: u16,
    pub(super) reserved: u32,
}

impl ControlCommand {
    pub(super) fn bytes(&self) -> [u8; 80] {
        let mut bytes = [0; 80];
        let mut at = 0;
        let mut put = |field: &[u8]| {
            bytes[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        };
        put(&self.device.to_ne_bytes());
        put(&self.queue.to_ne_bytes());
        put(&self.length.to_ne_bytes());
        put(&self.address.to_ne_bytes());
        put(&self.data.to_ne_bytes());
        put(&self.path_length.to_ne_bytes());
        put(&self.padding.to_ne_bytes());
        put(&self.reserved.to_ne_bytes());
        bytes
    }
}

/// `ublksrv_ctrl_dev_info`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct DeviceInfo {
    pub(super) queues: u16,
    pub(super) depth: u16,
    pub(super) state: u16,
    pub(super) padding: u16,
    pub(super) max_io_bytes: u32,
    pub(super) number: u32,
    pub(super) pid: i32,
    pub(super) padding2: u32,
    pub(super) flags: u64,
    /// The driver keeps this for the server.
    pub(super) own: u64,
    pub(super) owner_uid: u32,
    pub(super) owner_gid: u32,
    pub(super) reserved: [u64; 2],
}

/// Of [`DeviceInfo`]: it has a server; one that was killed just now, perhaps.
pub(super) const STATE_LIVE: u16 = 1;
/// Its server is gone, and requests wait for the next one.
pub(super) const STATE_QUIESCED: u16 = 2;

/// The beginning of `ublk_params`: that of Linux 6.0, which newer ones take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Params {
    pub(super) length: u32,
    pub(super) types: u32,
    // Basic.
    pub(super) attributes: u32,
    pub(super) logical_shift: u8,
    pub(super) physical_shift: u8,
    pub(super) optimal_shift: u8,
    pub(super) minimal_shift: u8,
    pub(super) max_sectors: u32,
    pub(super) chunk_sectors: u32,
    pub(super) sectors: u64,
    pub(super) virt_boundary: u64,
    // Discards.
    pub(super) discard_alignment: u32,
    pub(super) discard_granularity: u32,
    pub(super) max_discard_sectors: u32,
    pub(super) max_zeroes_sectors: u32,
    pub(super) max_discard_segments: u16,
    pub(super) reserved: [u16; 3],
}

/// Of [`Params`]: both parts are there.
pub(super) const PARAMS_BASIC_AND_DISCARD: u32 = 1 | 2;
/// Attributes.
pub(super) const READ_ONLY: u32 = 1;
pub(super) const VOLATILE_CACHE: u32 = 1 << 2;
pub(super) const FUA: u32 = 1 << 3;

/// `ublksrv_io_desc`: a request, in memory that the driver writes.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Descriptor {
    pub(super) operation_and_flags: u32,
    pub(super) sectors: u32,
    pub(super) start: u64,
    pub(super) address: u64,
}

/// Most requests that a queue can have.
const MOST_REQUESTS: usize = 4096;

/// Where a queue's descriptors begin in the driver's memory.
pub(super) fn start_of_descriptors(queue: u16, page_size: usize) -> u64 {
    let bytes = (MOST_REQUESTS * size_of::<Descriptor>()).next_multiple_of(page_size);
    u64::from(queue) * bytes as u64
}

pub(super) const OPERATION_READ: u8 = 0;
pub(super) const OPERATION_WRITE: u8 = 1;
pub(super) const OPERATION_FLUSH: u8 = 2;
pub(super) const OPERATION_DISCARD: u8 = 3;
pub(super) const OPERATION_WRITE_ZEROES: u8 = 5;
/// Durable before it ends.
pub(super) const REQUEST_FUA: u32 = 1 << 13;

/// `ublksrv_io_cmd`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct IoCommand {
    pub(super) queue: u16,
    pub(super) tag: u16,
    pub(super) result: i32,
    pub(super) address: u64,
}

impl IoCommand {
    pub(super) fn bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..2].copy_from_slice(&self.queue.to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.tag.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.result.to_ne_bytes());
        bytes[8..].copy_from_slice(&self.address.to_ne_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use std::mem::size_of;

    use super::*;

    #[test]
    fn everything_has_the_headers_size() {
        assert_eq!(size_of::<ControlCommand>(), 32);
        assert_eq!(size_of::<DeviceInfo>(), 64);
        // Header, basic, discard: 8 + 32 + 20, and what fills up to 8.
        assert_eq!(size_of::<Params>(), 64);
        assert_eq!(size_of::<Descriptor>(), 24);
        assert_eq!(size_of::<IoCommand>(), 16);
    }

    #[test]
    fn every_queue_has_room_for_the_most_requests() {
        assert_eq!(start_of_descriptors(0, 4096), 0);
        assert_eq!(start_of_descriptors(3, 4096), 3 * 98_304);
        assert_eq!(start_of_descriptors(1, 65_536), 131_072);
    }

    #[test]
    fn commands_have_the_headers_numbers() {
        // By a C compiler, of the header of Linux 7.2.
        assert_eq!(GET_DEV_INFO.code(true), 0x8020_7502);
        assert_eq!(ADD_DEV.code(true), 0xc020_7504);
        assert_eq!(GET_FEATURES.code(true), 0x8020_7513);
        assert_eq!(UPDATE_SIZE.code(true), 0xc020_7515);
        assert_eq!(COMMIT_AND_FETCH.code(true), 0xc010_7521);
        assert_eq!(COMMIT_AND_FETCH.code(false), 0x21);
    }

    #[test]
    fn a_command_is_its_fields_in_order() {
        let command = ControlCommand {
            device: 1,
            queue: u16::MAX,
            length: 64,
            address: 2,
            data: 3,
            ..ControlCommand::default()
        };
        let bytes = command.bytes();
        assert_eq!(bytes[..8], [1, 0, 0, 0, 0xff, 0xff, 64, 0]);
        assert_eq!((bytes[8], bytes[16]), (2, 3));
        assert!(bytes[24..].iter().all(|byte| *byte == 0));
    }
}
