//! The device's registers.

use std::collections::BTreeMap;

use super::device::{Inside, Key, RingState, State};
use crate::registers as reg;

/// Unit sizes of runs: all four.
const UNITS: u32 = 0xf;
/// Of the most entries in a list.
const LOG2_ENTRIES: u32 = 8;

impl State {
    /// As after power-on.
    pub(super) fn reset(&mut self) {
        let (rings, slots) = (self.build.rings, self.build.slots);
        self.inside = Inside {
            key_data: vec![0; 128],
            slots: (0..slots).map(|_| None).collect(),
            rings: vec![RingState::default(); rings],
            ..Inside::default()
        };
        self.is_hung = false;
    }

    pub(super) fn read(&self, register: u32) -> u32 {
        if self.is_vanished {
            return u32::MAX;
        }
        let (build, inside) = (&self.build, &self.inside);
        let has_fault = inside.rings.iter().any(|ring| ring.fault != 0);
        match register {
            reg::REG_ID => reg::ID,
            reg::REG_VERSION => u32::from(reg::MAJOR) << 16 | u32::from(reg::MINOR),
            reg::REG_CAP0 => {
                build.level | small(build.rings) << 4 | small(build.slots) << 8 | 8 << 16 | 48 << 24
            }
            reg::REG_CAP1 => build.ciphers | build.key_bits << 16 | UNITS << 20 | UNITS << 24,
            reg::REG_CAP2 => {
                build.log2_bytes | LOG2_ENTRIES << 8 | build.log2_ring << 16 | 32 << 20
            }
            reg::REG_CAP3 => 100,
            reg::REG_CTRL => u32::from(inside.is_enabled),
            reg::REG_STATUS => {
                u32::from(!self.is_stuck) | 1 << 1 | u32::from(has_fault) << reg::STATUS_FAULT_LOW
            }
            reg::REG_INT_STATUS => inside.int_status,
            reg::REG_INT_SET | reg::REG_INT_CLEAR => inside.int_mask,
            reg::REG_FAULT => inside.fault,
            reg::REG_KEY_STATUS => u32::from(inside.key_result) << reg::KEY_STATUS_RESULT_LOW,
            reg::REG_KEY_SLOTS => self.key_slots(),
            reg::REG_COUNTER_TOTAL.. => {
                let index = (register - reg::REG_COUNTER_TOTAL) as usize;
                let count = self.snapshot.get(index / 8).copied().unwrap_or_default();
                let bytes = count.to_le_bytes();
                let half = &bytes[index % 8 / 4 * 4..][..4];
                half.iter()
                    .rev()
                    .fold(0, |word, byte| word << 8 | u32::from(*byte))
            }
            _ => self.ring_register(register).map_or(0, |(ring, register)| {
                let ring = &inside.rings[ring];
                match register {
                    reg::RING_SQ_LO => low(ring.submissions),
                    reg::RING_SQ_HI => low(ring.submissions >> 32),
                    reg::RING_CQ_LO => low(ring.completions),
                    reg::RING_CQ_HI => low(ring.completions >> 32),
                    reg::RING_SIZE => ring.log2,
                    reg::RING_CONTROL => ring.control,
                    reg::RING_TAIL => ring.tail.into(),
                    reg::RING_CQ_HEAD => ring.cq_head.into(),
                    reg::RING_COALESCE => ring.coalesce,
                    reg::RING_STATE => {
                        ring.control & 1
                            | u32::from(ring.fault != 0) << 1
                            | u32::from(ring.fault) << 8
                            | u32::from(ring.fetched) << 16
                    }
                    reg::RING_COMPLETED => ring.completed.into(),
                    _ => 0,
                }
            }),
        }
    }

    /// Which ring a register belongs to, and which of its registers it is.
    fn ring_register(&self, register: u32) -> Option<(usize, u32)> {
        let offset = register.checked_sub(reg::RINGS_OFFSET)?;
        let ring = (offset / reg::RINGS_STRIDE) as usize;
        (ring < self.inside.rings.len()).then_some((ring, offset % reg::RINGS_STRIDE))
    }

    pub(super) fn key_slots(&self) -> u32 {
        let slots = self.inside.slots.iter().enumerate();
        slots.fold(0, |bits, (slot, key)| {
            bits | u32::from(key.is_some()) << slot
        })
    }

    pub(super) fn write(&mut self, register: u32, value: u32) {
        if self.is_vanished {
            return;
        }
        match register {
            reg::REG_CTRL => {
                if value >> reg::CTRL_RESET_LOW & 1 != 0 {
                    self.resets += 1;
                    self.reset();
                    return;
                }
                self.inside.is_enabled = value & 1 != 0;
                if value >> reg::CTRL_ZEROIZE_LOW & 1 != 0 {
                    self.inside.slots.iter_mut().for_each(|slot| *slot = None);
                    for ring in 0..self.inside.rings.len() {
                        self.fault(ring, reg::FAULT_WIPED);
                    }
                }
            }
            reg::REG_INT_STATUS => self.inside.int_status &= !value,
            reg::REG_INT_SET => self.inside.int_mask |= value,
            reg::REG_INT_CLEAR => self.inside.int_mask &= !value,
            reg::REG_FAULT => self.inside.fault = 0,
            reg::REG_KEY_DATA..reg::REG_KEY_CMD => {
                let at = (register - reg::REG_KEY_DATA) as usize;
                self.inside.key_data[at..at + 4].copy_from_slice(&value.to_le_bytes());
            }
            reg::REG_KEY_CMD => {
                self.inside.key_result = self.key_command(value);
                self.inside.key_data.fill(0);
            }
            reg::REG_COUNTER_CTRL => {
                if value & 1 != 0 {
                    self.counts[0] += 1000;
                    self.counts[7] = self.counts[0];
                    self.snapshot = self.counts;
                }
                if value & 2 != 0 {
                    self.counts = [0; reg::COUNTERS];
                }
            }
            _ => {
                if let Some((ring, register)) = self.ring_register(register) {
                    self.write_ring(ring, register, value);
                }
            }
        }
    }

    fn write_ring(&mut self, number: usize, register: u32, value: u32) {
        let log2_most = self.build.log2_ring;
        let ring = &mut self.inside.rings[number];
        let with = |place: &mut u64, shift: u32| {
            *place = *place & !(0xffff_ffff << shift) | u64::from(value) << shift;
        };
        match register {
            reg::RING_SQ_LO => with(&mut ring.submissions, 0),
            reg::RING_SQ_HI => with(&mut ring.submissions, 32),
            reg::RING_CQ_LO => with(&mut ring.completions, 0),
            reg::RING_CQ_HI => with(&mut ring.completions, 32),
            reg::RING_SIZE => ring.log2 = value & 0xf,
            reg::RING_COALESCE => ring.coalesce = value,
            reg::RING_CONTROL => {
                ring.control = value & 3;
                if value & 1 != 0 {
                    (ring.tail, ring.fetched, ring.completed, ring.cq_head) = (0, 0, 0, 0);
                    (ring.fault, ring.untold) = (0, 0);
                    if ring.log2 > log2_most
                        || !(ring.submissions | ring.completions).is_multiple_of(64)
                    {
                        self.fault(number, reg::FAULT_RING);
                    }
                }
            }
            reg::RING_TAIL => {
                let tail = low16(value);
                let is_back =
                    tail.wrapping_sub(ring.cq_head) < ring.tail.wrapping_sub(ring.cq_head);
                if usize::from(tail.wrapping_sub(ring.cq_head)) > 1 << ring.log2 || is_back {
                    self.fault(number, reg::FAULT_DOORBELL);
                } else {
                    ring.tail = tail;
                }
            }
            reg::RING_CQ_HEAD => {
                let head = low16(value);
                if head.wrapping_sub(ring.cq_head) > ring.completed.wrapping_sub(ring.cq_head) {
                    self.fault(number, reg::FAULT_DOORBELL);
                } else {
                    ring.cq_head = head;
                }
            }
            _ => {}
        }
    }

    /// A ring faults.
    pub(super) fn fault(&mut self, ring: usize, code: u8) {
        self.inside.rings[ring].fault = code;
        if self.inside.fault == 0 {
            self.inside.fault = u32::from(code) | small(ring) << 8;
        }
        self.interrupt(reg::INT_STATUS_FAULT_LOW);
    }

    /// Sets a bit of INT_STATUS, and interrupts if it may.
    pub(super) fn interrupt(&mut self, bit: u32) {
        self.inside.int_status |= 1 << bit;
        if self.inside.int_mask >> bit & 1 != 0 {
            self.raise(bit as usize);
        }
    }

    /// Counts one up on the vector of a bit.
    pub(super) fn raise(&mut self, bit: usize) {
        self.counts[12] += 1;
        let vector = bit.min(self.build.rings);
        if let Some(counter) = self.counters.get(vector).or(self.counters.first()) {
            // Full is full.
            let _ = rustix::io::write(counter, &1_u64.to_ne_bytes());
        }
    }

    fn key_command(&mut self, value: u32) -> u8 {
        let slot = (value >> reg::KEY_CMD_SLOT_LOW & 0xff) as usize;
        let cipher = (value >> reg::KEY_CMD_CIPHER_LOW & 0xf).to_le_bytes()[0];
        let bits = value >> reg::KEY_CMD_KEY_BITS_LOW & 1;
        let Some(place) = self.inside.slots.get_mut(slot) else {
            return reg::KEY_RESULT_SLOT;
        };
        match value >> reg::KEY_CMD_COMMAND_LOW & 3 {
            2 => {
                *place = None;
                return reg::KEY_RESULT_DONE;
            }
            1 => {}
            _ => return reg::KEY_RESULT_COMMAND,
        }
        if self.build.ciphers >> cipher & 1 == 0 || cipher > 0 && self.build.level < 3 {
            return reg::KEY_RESULT_CIPHER;
        }
        if self.build.key_bits >> bits & 1 == 0 {
            return reg::KEY_RESULT_LENGTH;
        }
        let aes = if bits == 0 { 16 } else { 32 };
        let len = match cipher {
            reg::CIPHER_XTS => 2 * aes,
            reg::CIPHER_EME2 => 32 + aes,
            _ => aes,
        };
        let bytes = self.inside.key_data[..len].to_vec();
        if cipher == reg::CIPHER_XTS && bytes[..aes] == bytes[aes..] {
            return reg::KEY_RESULT_EQUAL;
        }
        *place = Some(Key {
            cipher,
            bytes,
            ciphers: BTreeMap::new(),
        });
        reg::KEY_RESULT_DONE
    }
}

/// Counts of what there are few of.
fn small(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[allow(clippy::cast_possible_truncation, reason = "the low half is wanted")]
fn low(value: u64) -> u32 {
    value as u32
}

#[allow(clippy::cast_possible_truncation, reason = "the low half is wanted")]
fn low16(value: u32) -> u16 {
    value as u16
}
