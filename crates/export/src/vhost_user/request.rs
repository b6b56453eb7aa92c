//! A request, as its descriptor chain says it: virtio 1.2, 5.2.6.

use vm_memory::{Bytes, GuestAddress};
use xtent_volume::{DiscardPolicy, Volume};

use super::guest::{Guest, Segment, total};

/// Sectors of the protocol, whatever the volume's are.
pub(super) const SECTOR: u64 = 512;
/// Most ranges that one request discards or zeroes.
pub(super) const MOST_RANGES: u32 = 1;
/// Pieces of a request: what QEMU's default ring of 128 has room for, beside header and status.
pub(super) const SEGMENTS: u16 = 126;
/// Most descriptors of a request that is carried out.
const MOST_DESCRIPTORS: usize = SEGMENTS as usize + 2;
/// Most descriptors that are looked at.
const LONGEST_CHAIN: u16 = 1024;
/// Most bytes of a request that reads or writes.
pub(super) const LARGEST: u64 = 64 << 20;
/// Most bytes of a range that is discarded.
const LARGEST_DISCARD: u64 = 64 << 20;
/// Most bytes of a range that is zeroed: they are written, and a server that ends waits for them.
pub(super) const LARGEST_ZEROES: u64 = 4 << 20;
/// Bytes of the answer to [`Command::Identify`].
pub(super) const ID_LENGTH: usize = 20;
/// Bytes of a request's header: type, reserved, sector.
const HEADER: usize = 16;
/// Bytes of a range: sector, sectors, flags.
const RANGE: usize = 16;

const VIRTIO_BLK_T_IN: u32 = 0;
const VIRTIO_BLK_T_OUT: u32 = 1;
const VIRTIO_BLK_T_FLUSH: u32 = 4;
const VIRTIO_BLK_T_GET_ID: u32 = 8;
const VIRTIO_BLK_T_DISCARD: u32 = 11;
const VIRTIO_BLK_T_WRITE_ZEROES: u32 = 13;
/// A range may be deallocated.
const UNMAP: u32 = 1;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Status {
    Ok = 0,
    IoError = 1,
    Unsupported = 2,
}

/// What is asked for. Bytes, inside the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Read { offset: u64, len: u64 },
    Write { offset: u64, len: u64 },
    Flush,
    Identify,
    Discard(Vec<(u64, u64)>),
    WriteZeroes(Vec<(u64, u64)>),
}

/// The memory of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chain {
    /// By which it is given back.
    pub(super) head: u16,
    /// What the guest has written, without the header.
    pub(super) data: Vec<Segment>,
    /// What is written for the guest, without the status.
    pub(super) room: Vec<Segment>,
    /// One byte.
    status: Segment,
}

impl Chain {
    /// Has the guest know how it ended; the bytes that were written for it, `written` before
    /// included.
    pub(super) fn end(&self, guest: &Guest, status: Status, written: u64) -> u32 {
        // It was there when the chain was looked at; memory does not go away.
        let _ = guest.write(&[self.status], 0, &[status as u8]);
        u32::try_from(written).unwrap_or(u32::MAX).saturating_add(1)
    }
}

/// A request that was understood.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Request {
    Serve(Chain, Command),
    Refuse(Chain, Status),
}

/// Reads the request whose first descriptor is `head` of a table, once. None if it has no room for
/// an answer, or the descriptors are no chain.
pub(super) fn parse(
    (table, entries, head): (GuestAddress, u16, u16),
    guest: &Guest,
    volume: &Volume,
) -> Option<Request> {
    let Descriptors {
        mut data,
        mut room,
        is_too_long,
    } = descriptors(table, entries, head, guest)?;
    let mut header = [0; HEADER];
    if !guest.read(&data, 0, &mut header) {
        return None;
    }
    skip(&mut data, HEADER as u64);
    let status = last_byte(&mut room)?;
    // Where the answer goes has to be memory, or whatever is done would not be known.
    if !guest.write(&[status], 0, &[Status::IoError as u8]) {
        return None;
    }
    let chain = Chain {
        head,
        data,
        room,
        status,
    };
    if is_too_long {
        return Some(Request::Refuse(chain, Status::IoError));
    }
    let [kind, _, low, high] = words(&header);
    let sector = u64::from(high) << 32 | u64::from(low);
    Some(match command(kind, sector, &chain, guest, volume) {
        Ok(command) => Request::Serve(chain, command),
        Err(status) => Request::Refuse(chain, status),
    })
}

/// Bytes of a descriptor: address, length, flags, next.
const DESCRIPTOR: u32 = 16;
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

/// What a chain has for reading, and what for writing: 2.7.5. Of one that is too long, where it begins and ends.
struct Descriptors {
    data: Vec<Segment>,
    room: Vec<Segment>,
    is_too_long: bool,
}

fn descriptors(
    mut table: GuestAddress,
    mut entries: u16,
    head: u16,
    guest: &Guest,
) -> Option<Descriptors> {
    let (mut data, mut room) = (Vec::new(), Vec::new());
    let mut is_too_long = false;
    let (mut next, mut left) = (head, entries.min(LONGEST_CHAIN));
    let mut is_indirect = false;
    loop {
        // A chain that is longer than its table is a loop.
        left = left.checked_sub(1)?;
        if next >= entries {
            return None;
        }
        let at = table
            .0
            .checked_add(u64::from(next) * u64::from(DESCRIPTOR))?;
        let mut bytes = [0; DESCRIPTOR as usize];
        guest.map().read_slice(&mut bytes, GuestAddress(at)).ok()?;
        let [low, high, len, rest] = words(&bytes);
        let at = GuestAddress(u64::from(high) << 32 | u64::from(low));
        let (flags, after) = (rest.to_le_bytes(), rest >> 16);
        let flags = u16::from_le_bytes([flags[0], flags[1]]);
        if flags & INDIRECT != 0 {
            // A table instead of a descriptor: neither in another one, nor one of several.
            let is_table = len > 0 && len.is_multiple_of(DESCRIPTOR);
            if is_indirect || flags & NEXT != 0 || !is_table {
                return None;
            }
            (table, next, is_indirect) = (at, 0, true);
            entries = u16::try_from(len / DESCRIPTOR).ok()?;
            left = entries.min(LONGEST_CHAIN);
            continue;
        }
        let segment = Segment { at, len };
        is_too_long |= data.len() + room.len() == MOST_DESCRIPTORS;
        let all = match flags & WRITE != 0 {
            true => &mut room,
            // 2.7.4.2: what is written comes last.
            false if room.is_empty() => &mut data,
            false => return None,
        };
        // The guest may have many such under way.
        if is_too_long {
            all.pop();
        }
        all.push(segment);
        if flags & NEXT == 0 {
            return Some(Descriptors {
                data,
                room,
                is_too_long,
            });
        }
        next = u16::try_from(after).ok()?;
    }
}

fn command(
    kind: u32,
    sector: u64,
    chain: &Chain,
    guest: &Guest,
    volume: &Volume,
) -> Result<Command, Status> {
    let run = |segments: &[Segment]| {
        let len = total(segments);
        match len.is_multiple_of(SECTOR) && len <= LARGEST {
            true => inside(sector, len, volume),
            false => Err(Status::IoError),
        }
    };
    let may_write = || match volume.is_read_only() {
        true => Err(Status::IoError),
        false => Ok(()),
    };
    match kind {
        VIRTIO_BLK_T_IN => run(&chain.room).map(|(offset, len)| Command::Read { offset, len }),
        VIRTIO_BLK_T_OUT => {
            may_write()?;
            run(&chain.data).map(|(offset, len)| Command::Write { offset, len })
        }
        VIRTIO_BLK_T_FLUSH => Ok(Command::Flush),
        VIRTIO_BLK_T_GET_ID => Ok(Command::Identify),
        VIRTIO_BLK_T_DISCARD => {
            may_write()?;
            let largest = largest_discard(volume);
            ranges(chain, guest, volume, (0, largest)).map(Command::Discard)
        }
        VIRTIO_BLK_T_WRITE_ZEROES => {
            may_write()?;
            let most = (UNMAP, LARGEST_ZEROES);
            ranges(chain, guest, volume, most).map(Command::WriteZeroes)
        }
        _ => Err(Status::Unsupported),
    }
}

/// The bytes of so many from a sector on, if the volume has them.
fn inside(sector: u64, len: u64, volume: &Volume) -> Result<(u64, u64), Status> {
    let offset = sector.checked_mul(SECTOR).ok_or(Status::IoError)?;
    match offset.checked_add(len) {
        Some(end) if end <= volume.size() => Ok((offset, len)),
        _ => Err(Status::IoError),
    }
}

/// Most bytes of a range that is discarded, which may mean that it is zeroed.
pub(super) fn largest_discard(volume: &Volume) -> u64 {
    match volume.discard_policy() {
        DiscardPolicy::Zero => LARGEST_ZEROES,
        DiscardPolicy::Allow | DiscardPolicy::Never => LARGEST_DISCARD,
    }
}

/// The ranges of a request that has no data, each of so many bytes at most; `allowed` are the flags that may be set.
fn ranges(
    chain: &Chain,
    guest: &Guest,
    volume: &Volume,
    (allowed, largest): (u32, u64),
) -> Result<Vec<(u64, u64)>, Status> {
    let len = total(&chain.data);
    let is_known = len > 0 && len.is_multiple_of(RANGE as u64);
    if !is_known || len > u64::from(MOST_RANGES) * RANGE as u64 {
        return Err(Status::IoError);
    }
    let mut bytes = [0; MOST_RANGES as usize * RANGE];
    let bytes = &mut bytes[..usize::try_from(len).map_err(|_| Status::IoError)?];
    if !guest.read(&chain.data, 0, bytes) {
        return Err(Status::IoError);
    }
    let (ranges, _) = bytes.as_chunks::<RANGE>();
    ranges
        .iter()
        .map(|range| {
            let [low, high, sectors, flags] = words(range);
            if flags & !allowed != 0 {
                return Err(Status::Unsupported);
            }
            let sector = u64::from(high) << 32 | u64::from(low);
            match u64::from(sectors) * SECTOR {
                len if len <= largest => inside(sector, len, volume),
                _ => Err(Status::IoError),
            }
        })
        .collect()
}

fn words(bytes: &[u8; 16]) -> [u32; 4] {
    let (words, _) = bytes.as_chunks::<4>();
    std::array::from_fn(|i| u32::from_le_bytes(words[i]))
}

/// Takes bytes away at the front.
fn skip(segments: &mut Vec<Segment>, mut bytes: u64) {
    let gone = segments
        .iter()
        .take_while(|it| {
            let is_gone = u64::from(it.len) <= bytes;
            if is_gone {
                bytes -= u64::from(it.len);
            }
            is_gone
        })
        .count();
    segments.drain(..gone);
    if let (Some(first), Ok(bytes)) = (segments.first_mut(), u32::try_from(bytes)) {
        // They were read, so this stays in the address space.
        first.at.0 = first.at.0.saturating_add(u64::from(bytes));
        first.len -= bytes;
    }
}

/// Takes the last byte away.
fn last_byte(segments: &mut Vec<Segment>) -> Option<Segment> {
    while segments.last().is_some_and(|last| last.len == 0) {
        segments.pop();
    }
    let last = segments.last_mut()?;
    last.len -= 1;
    let mut at = last.at;
    at.0 = at.0.checked_add(u64::from(last.len))?;
    Some(Segment { at, len: 1 })
}
