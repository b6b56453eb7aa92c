//! What a guest asks of the volume. The guest may change its memory at any time: the cipher works on it where it can do so
//! with one look at each byte, and all else passes through memory of this process.

use std::sync::Arc;

use rustix::io::Errno;
use xtent_store::AlignedBuffer;
use xtent_volume::{Foreign, Volume};

use super::request::{Chain, Command, ID_LENGTH, Status};
use super::ring::Shared;
use crate::request::{Asked, Carrier, Client, Failed};

/// What all rings share.
pub(super) struct Work {
    pub(super) carrier: Arc<Carrier>,
    /// What the guest knows the disk by, padded with zeros.
    pub(super) id: [u8; ID_LENGTH],
    /// [`Options::is_resumed`](super::Options::is_resumed).
    pub(super) is_resumed: bool,
}

/// A ring's memory for what does not wait.
pub(super) struct Scratch(AlignedBuffer);

impl Scratch {
    pub(super) fn new(volume: &Volume) -> Option<Self> {
        AlignedBuffer::zeroed(volume.preferred_piece())
            .ok()
            .map(Self)
    }
}

impl Work {
    /// Carries a request out, or has it carried out; the bytes that were moved here.
    pub(super) fn carry_out(
        &self,
        ring: &Arc<Shared>,
        chain: Chain,
        command: Command,
        scratch: &mut Scratch,
    ) -> u64 {
        let fua = ring.writes_through;
        let asked = match command {
            Command::Read { offset, len } => Asked::Read { offset, len },
            Command::Write { offset, len } => Asked::Write { offset, len, fua },
            Command::Flush => Asked::Flush,
            Command::Discard(ranges) => Asked::Discard { ranges, fua },
            Command::WriteZeroes(ranges) => Asked::WriteZeroes { ranges, fua },
            Command::Identify => {
                self.identify(ring, &chain);
                return 0;
            }
        };
        let request = GuestRequest {
            ring: Arc::clone(ring),
            written: match asked {
                Asked::Read { len, .. } => len,
                _ => 0,
            },
            chain,
        };
        self.carrier.carry_out(request, asked, &mut scratch.0)
    }

    /// Tells the guest its disk's name.
    fn identify(&self, ring: &Shared, chain: &Chain) {
        let room = super::guest::total(&chain.room);
        let len = usize::try_from(room).unwrap_or(ID_LENGTH).min(ID_LENGTH);
        match ring.guest.write(&chain.room, 0, &self.id[..len]) {
            true => ring.end(chain, Status::Ok, len as u64),
            false => ring.end(chain, Status::IoError, 0),
        }
    }
}

/// A guest's request: its descriptors, and the ring that they came in.
struct GuestRequest {
    ring: Arc<Shared>,
    chain: Chain,
    /// Bytes that are written for the guest if all goes well.
    written: u64,
}

impl GuestRequest {
    /// Memory that the guest has named is not there.
    fn lost(&self) -> Failed {
        self.ring.complain("its data is in no memory");
        Failed::With(Errno::FAULT)
    }
}

impl Client for GuestRequest {
    fn put(&mut self, from: u64, data: &[u8]) -> Result<(), Failed> {
        match self.ring.guest.write(&self.chain.room, from, data) {
            true => Ok(()),
            false => Err(self.lost()),
        }
    }

    fn get(&mut self, from: u64, data: &mut [u8]) -> Result<(), Failed> {
        match self.ring.guest.read(&self.chain.data, from, data) {
            true => Ok(()),
            false => Err(self.lost()),
        }
    }

    fn foreign(&self, from: u64, len: usize) -> Option<Vec<Foreign<'_>>> {
        let segments = match self.written {
            0 => &self.chain.data,
            _ => &self.chain.room,
        };
        self.ring.guest.pieces(segments, from, len)
    }

    fn end(&mut self, result: Result<(), Failed>, later: bool) {
        if self.written > 0 {
            // By the cipher, which nobody sees write, or not at all.
            self.ring.guest.has_written(&self.chain.room);
        }
        match result {
            Ok(()) => self.ring.end(&self.chain, Status::Ok, self.written),
            // An error would be the end of the guest's file system.
            Err(failed) if failed.is_fenced() => self.ring.leave(),
            Err(_) => self.ring.end(&self.chain, Status::IoError, 0),
        }
        if later {
            self.ring.tell();
        }
    }
}
