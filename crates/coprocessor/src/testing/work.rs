//! The device's work: requests, lists, ciphers, completions.

use std::sync::Arc;

use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Aes256, Block};
use sector_cipher::hazmat;

use super::device::{Flaw, State};
use crate::memory::Memory;
use crate::registers as reg;

/// A field of a submission.
fn number(entry: &[u8], at: usize, len: usize) -> u64 {
    let bytes = entry[at..at + len].iter().rev();
    bytes.fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Where data is, as pieces of the memory.
type Pieces = Vec<(usize, usize)>;

impl State {
    /// Carries out the next request of the first ring that has one.
    pub(super) fn work_once(&mut self) -> bool {
        let Some(memory) = self.memory.clone() else {
            return false;
        };
        if self.is_hung || self.is_vanished || self.is_unplugged || !self.inside.is_enabled {
            return false;
        }
        let mut rings = self.inside.rings.iter();
        let ready = rings.position(|ring| {
            ring.control & 1 != 0
                && ring.fault == 0
                && ring.fetched != ring.tail
                && usize::from(ring.fetched.wrapping_sub(ring.cq_head)) < 1 << ring.log2
        });
        let Some(ring) = ready else {
            return false;
        };
        let flaw = self.flaws.remove(&self.requests);
        self.requests += 1;
        match flaw {
            Some(Flaw::Hangs) => self.is_hung = true,
            Some(Flaw::HangsForGood) => (self.is_hung, self.is_stuck) = (true, true),
            Some(Flaw::Vanishes) => self.is_vanished = true,
            Some(Flaw::Unplugged) => self.is_unplugged = true,
            Some(Flaw::Fault(code)) => self.fault(ring, code),
            _ => {
                let state = &mut self.inside.rings[ring];
                let index = usize::from(state.fetched) & ((1 << state.log2) - 1);
                let address = state.submissions + (index * reg::SQE_BYTES) as u64;
                state.fetched = state.fetched.wrapping_add(1);
                let mut entry = [0; reg::SQE_BYTES];
                let Some(place) = memory.offset(address, entry.len()) else {
                    self.fault(ring, reg::FAULT_DESCRIPTOR);
                    return true;
                };
                memory.read(place, &mut entry);
                let (status, done) = self.carry_out(&memory, &entry, flaw);
                self.complete(&memory, ring, &entry, (status, done), flaw);
            }
        }
        true
    }

    /// Checks a request and does it; its status, and how many units are done.
    fn carry_out(&mut self, memory: &Memory, entry: &[u8], flaw: Option<Flaw>) -> (u8, u32) {
        let [op, flags, slot, log2] = [entry[0], entry[1], entry[2], entry[3]];
        let (decrypt, in_place) = (
            flags >> reg::FLAG_DECRYPT & 1 != 0,
            flags >> reg::FLAG_IN_PLACE & 1 != 0,
        );
        if u32::from(op) > self.build.level {
            return (reg::STATUS_OP, 0);
        }
        let field = |at, len| number(entry, at, len);
        let tweak =
            u128::from(field(reg::SQE_TWEAK + 8, 8)) << 64 | u128::from(field(reg::SQE_TWEAK, 8));
        let is_reserved = field(reg::SQE_ZERO0, 2) | field(reg::SQE_ZERO1, 4) != 0
            || flags >> 5 != 0
            || op != reg::OP_RUN && field(reg::SQE_STEP, 2) != 0
            || op == reg::OP_ECB && tweak != 0
            || in_place
                && field(reg::SQE_DESTINATION, 8) | field(reg::SQE_DESTINATION_ENTRIES, 4) != 0
            || op == reg::OP_NOP && entry[2..reg::SQE_COOKIE].iter().any(|byte| *byte != 0);
        if is_reserved {
            return (reg::STATUS_RESERVED, 0);
        }
        if op == reg::OP_NOP {
            return (reg::STATUS_DONE, 0);
        }
        let is_unit = match op {
            reg::OP_ECB => log2 == 4,
            reg::OP_XTS => log2 == 9,
            _ => (9..=12).contains(&log2),
        };
        if !is_unit {
            return (reg::STATUS_UNIT, 0);
        }
        let units = field(reg::SQE_UNITS, 4);
        let len = units << log2;
        if units == 0 || len > 1 << self.build.log2_bytes || op == reg::OP_XTS && units != 1 {
            return (reg::STATUS_UNITS, 0);
        }
        let len = usize::try_from(len).unwrap_or_default();
        let Some(Some(key)) = self.inside.slots.get_mut(usize::from(slot)) else {
            return (reg::STATUS_SLOT, 0);
        };
        if (op == reg::OP_RUN) != (key.cipher != reg::CIPHER_ECB) {
            return (reg::STATUS_CIPHER, 0);
        }
        let step = u128::from(field(reg::SQE_STEP, 2));
        if op == reg::OP_RUN && tweak.checked_add(step * u128::from(units - 1)).is_none() {
            return (reg::STATUS_TWEAK, 0);
        }
        let source = pieces(
            memory,
            field(reg::SQE_SOURCE, 8),
            field(reg::SQE_SOURCE_ENTRIES, 4),
            flags >> reg::FLAG_SOURCE_LIST & 1 != 0,
            len,
            reg::STATUS_READ,
        );
        let source = match source {
            Ok(source) => source,
            Err(status) => return (status, 0),
        };
        let destination = match in_place {
            true => Ok(source.clone()),
            false => pieces(
                memory,
                field(reg::SQE_DESTINATION, 8),
                field(reg::SQE_DESTINATION_ENTRIES, 4),
                flags >> reg::FLAG_DESTINATION_LIST & 1 != 0,
                len,
                reg::STATUS_WRITE,
            ),
        };
        let destination = match destination {
            Ok(destination) => destination,
            Err(status) => return (status, 0),
        };
        if flaw == Some(Flaw::NothingDone) {
            return (reg::STATUS_DONE, u32::try_from(units).unwrap_or_default());
        }
        let mut data = Vec::new();
        for (start, len) in source {
            let at = data.len();
            data.resize(at + len, 0);
            memory.read(start, &mut data[at..]);
        }
        match op {
            reg::OP_ECB => ecb(&key.bytes, decrypt, &mut data),
            reg::OP_XTS => {
                let mut buffer = data.clone();
                crate::tweak::mask(tweak, &data, &mut buffer);
                ecb(&key.bytes, decrypt, &mut buffer);
                crate::tweak::mask(tweak, &buffer, &mut data);
            }
            _ => {
                let cipher = key.cipher(log2);
                for (unit, bytes) in data.chunks_exact_mut(1 << log2).enumerate() {
                    let tweak = (tweak + step * unit as u128).to_le_bytes();
                    let crypt = if decrypt {
                        hazmat::decrypt_unit
                    } else {
                        hazmat::encrypt_unit
                    };
                    crypt(cipher, tweak, bytes).expect("a unit of its size");
                }
            }
        }
        let units = u32::try_from(units).unwrap_or_default();
        let (status, done) = match flaw {
            Some(Flaw::Status(status)) => (status, units / 2),
            _ => (reg::STATUS_DONE, units),
        };
        if flaw == Some(Flaw::WrongBit) {
            data[len / 3] ^= 4;
        }
        data[(done as usize) << log2..].fill(0);
        let mut rest = &data[..];
        for (start, len) in destination {
            let (piece, behind) = rest.split_at(len);
            memory.write(start, piece);
            rest = behind;
        }
        self.counts[10] += u64::from(done);
        self.counts[11] += u64::from(done) << log2;
        (status, done)
    }

    /// Writes a completion and interrupts.
    fn complete(
        &mut self,
        memory: &Arc<Memory>,
        ring: usize,
        entry: &[u8],
        (status, units): (u8, u32),
        flaw: Option<Flaw>,
    ) {
        let mut cookie = number(entry, reg::SQE_COOKIE, 8);
        let state = &mut self.inside.rings[ring];
        let mut phase = u8::from(state.completed >> state.log2 & 1 == 0);
        let (mut status, mut units, mut head) = (status, units, state.fetched);
        match flaw {
            Some(Flaw::UnknownStatus) => status = 77,
            Some(Flaw::Cookie) => cookie ^= 0x100,
            Some(Flaw::Phase) => phase |= 0x40,
            Some(Flaw::TooManyUnits) => units += 1,
            Some(Flaw::TooFewUnits) => units -= 1,
            Some(Flaw::Head) => head = head.wrapping_add(100),
            _ => {}
        }
        let times = if flaw == Some(Flaw::Twice) { 2 } else { 1 };
        for _ in 0..times {
            let index = usize::from(state.completed) & ((1 << state.log2) - 1);
            let address = state.completions + (index * reg::CQE_BYTES) as u64;
            let Some(place) = memory.offset(address, reg::CQE_BYTES) else {
                self.fault(ring, reg::FAULT_COMPLETION);
                return;
            };
            state.completed = state.completed.wrapping_add(1);
            let [h0, h1] = head.to_le_bytes();
            let [u0, u1, u2, u3] = units.to_le_bytes();
            memory.store(place, cookie);
            memory.store(
                place + 8,
                u64::from_le_bytes([u0, u1, u2, u3, status, phase, h0, h1]),
            );
        }
        state.untold += 1;
        let is_last = state.fetched == state.tail;
        let asked = entry[reg::SQE_FLAGS] >> reg::FLAG_INTERRUPT & 1 != 0;
        // The timer is as short as can be: it ends when there is nothing more to do.
        let is_told = asked || is_last || state.untold >= (state.coalesce & 0xff);
        self.counts[8] += 1;
        self.counts[9] += u64::from(status != reg::STATUS_DONE);
        if is_told && flaw != Some(Flaw::NoInterrupt) {
            state.untold = 0;
            let times = if flaw == Some(Flaw::ManyInterrupts) {
                5
            } else {
                1
            };
            for _ in 0..times {
                self.interrupt(u32::try_from(ring).unwrap_or_default());
            }
        }
    }
}

/// The pieces of `len` bytes at an address, or in a list at it.
fn pieces(
    memory: &Memory,
    address: u64,
    entries: u64,
    is_list: bool,
    len: usize,
    status: u8,
) -> Result<Pieces, u8> {
    if !address.is_multiple_of(16) {
        return Err(reg::STATUS_ALIGNMENT);
    }
    if !is_list {
        if entries != 0 {
            return Err(reg::STATUS_RESERVED);
        }
        return Ok(vec![(memory.offset(address, len).ok_or(status)?, len)]);
    }
    if !(1..=256).contains(&entries) {
        return Err(reg::STATUS_LIST);
    }
    let mut pieces = Vec::new();
    let mut rest = len;
    for index in 0..entries {
        let mut entry = [0; reg::ENTRY_BYTES];
        let place = memory.offset(address + index * reg::ENTRY_BYTES as u64, entry.len());
        memory.read(place.ok_or(reg::STATUS_READ)?, &mut entry);
        let length = usize::try_from(number(&entry, reg::ENTRY_LENGTH, 4)).unwrap_or_default();
        let start = number(&entry, reg::ENTRY_ADDRESS, 8);
        if !start.is_multiple_of(16) {
            return Err(reg::STATUS_ALIGNMENT);
        }
        if length == 0
            || length % 16 != 0
            || length > rest
            || number(&entry, reg::ENTRY_ZERO, 4) != 0
        {
            return Err(reg::STATUS_LIST);
        }
        pieces.push((memory.offset(start, length).ok_or(status)?, length));
        rest -= length;
    }
    match rest {
        0 => Ok(pieces),
        _ => Err(reg::STATUS_LIST),
    }
}

/// Blocks, each for itself.
fn ecb(key: &[u8], decrypt: bool, data: &mut [u8]) {
    let mut blocks: Vec<Block> = data
        .chunks_exact(16)
        .map(|block| Block::try_from(block).expect("sixteen bytes"))
        .collect();
    match (key.len(), decrypt) {
        (16, false) => aes::<Aes128>(key).encrypt_blocks(&mut blocks),
        (16, true) => aes::<Aes128>(key).decrypt_blocks(&mut blocks),
        (_, false) => aes::<Aes256>(key).encrypt_blocks(&mut blocks),
        (_, true) => aes::<Aes256>(key).decrypt_blocks(&mut blocks),
    }
    for (bytes, block) in data.chunks_exact_mut(16).zip(blocks) {
        bytes.copy_from_slice(&block);
    }
}

fn aes<A: KeyInit>(key: &[u8]) -> A {
    A::new_from_slice(key).expect("an AES key")
}
