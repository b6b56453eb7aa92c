//! A split virtqueue, from the device's side.
//!
//! It lies in memory that its driver may change at any time: each field is read once, checked, and
//! used as it was read.

use std::sync::atomic::{Ordering, fence};

use crate::mappings::Mappings;

/// Entries at most.
const MOST: u16 = 1024;
/// Bytes of a descriptor.
const DESCRIPTOR: usize = 16;
// Flags of a descriptor, and of the ring of what is available.
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
const NO_INTERRUPT: u16 = 1;

/// Why a queue cannot be used any more.
pub type Wrong = &'static str;

/// Where a queue is, as far as its driver has said it.
#[derive(Debug, Default)]
pub struct Queue {
    /// Entries: a power of two, or 0 before it is known.
    size: u16,
    descriptors: u64,
    available: u64,
    used: u64,
    /// Chains taken, and given back, modulo 2^16.
    taken: u16,
    given: u16,
    /// Whether it may be looked at.
    pub enabled: bool,
}

/// Descriptors of a request: what the device reads, then what it writes.
#[derive(Debug, Default)]
pub struct Chain {
    head: u16,
    readable: Vec<(u64, u32)>,
    writable: Vec<(u64, u32)>,
}

impl Queue {
    /// Says how many entries it has.
    ///
    /// # Errors
    /// No power of two, or too many.
    pub fn set_size(&mut self, size: u32) -> Result<(), Wrong> {
        match u16::try_from(size) {
            Ok(size) if size.is_power_of_two() && size <= MOST => self.size = size,
            _ => return Err("a queue whose size is no power of two up to 1024"),
        }
        Ok(())
    }

    /// Says where its parts are.
    ///
    /// # Errors
    /// They are not aligned as they have to be.
    pub fn set_places(&mut self, descriptors: u64, available: u64, used: u64) -> Result<(), Wrong> {
        if !(descriptors.is_multiple_of(16)
            && available.is_multiple_of(2)
            && used.is_multiple_of(4))
        {
            return Err("a queue whose parts are not aligned");
        }
        (self.descriptors, self.available, self.used) = (descriptors, available, used);
        Ok(())
    }

    /// Says which chain is the next.
    ///
    /// # Errors
    /// It has more than 16 bits.
    pub fn set_base(&mut self, base: u32) -> Result<(), Wrong> {
        let base = u16::try_from(base).map_err(|_| "a queue's base of more than 16 bits")?;
        (self.taken, self.given) = (base, base);
        Ok(())
    }

    /// Which chain is the next.
    pub fn base(&self) -> u16 {
        self.taken
    }

    /// Chains that can be taken.
    ///
    /// # Errors
    /// The queue is not where its driver said it is, or not as it has to be.
    pub fn waiting(&self, memory: &Mappings) -> Result<u16, Wrong> {
        if !self.enabled {
            return Ok(0);
        }
        if self.size == 0 {
            return Err("a queue without a size is used");
        }
        // The driver may be writing it: a word of 8 bytes is copied whole, and the index alone is not.
        let mut word = [0; 8];
        peek(memory, self.available, 0, &mut word)?;
        match u16::from_le_bytes([word[2], word[3]]).wrapping_sub(self.taken) {
            waiting if waiting > self.size => Err("a queue has more available than its size"),
            waiting => Ok(waiting),
        }
    }

    /// Takes the next chain, if there is one.
    ///
    /// # Errors
    /// As for [`Queue::waiting`].
    pub fn pop(&mut self, memory: &Mappings) -> Result<Option<Chain>, Wrong> {
        if self.waiting(memory)? == 0 {
            return Ok(None);
        }
        // What the index stands for was written before it.
        fence(Ordering::Acquire);
        let at = 4 + 2 * u64::from(self.taken % self.size);
        let mut head = [0; 2];
        peek(memory, self.available, at, &mut head)?;
        let chain = self.chain(memory, u16::from_le_bytes(head))?;
        self.taken = self.taken.wrapping_add(1);
        Ok(Some(chain))
    }

    fn chain(&self, memory: &Mappings, head: u16) -> Result<Chain, Wrong> {
        let mut chain = Chain {
            head,
            ..Chain::default()
        };
        let mut next = head;
        for _ in 0..self.size {
            if next >= self.size {
                return Err("a descriptor beyond its queue");
            }
            let mut bytes = [0; DESCRIPTOR];
            peek(
                memory,
                self.descriptors,
                DESCRIPTOR as u64 * u64::from(next),
                &mut bytes,
            )?;
            let word = |at: usize| [at, at + 1, at + 2, at + 3].map(|i| bytes[i]);
            let (low, high) = (u32::from_le_bytes(word(0)), u32::from_le_bytes(word(4)));
            let part = (
                u64::from(high) << 32 | u64::from(low),
                u32::from_le_bytes(word(8)),
            );
            let flags = u16::from_le_bytes([bytes[12], bytes[13]]);
            if flags & INDIRECT != 0 {
                return Err("an indirect descriptor, which was not offered");
            }
            if flags & WRITE != 0 {
                chain.writable.push(part);
            } else if chain.writable.is_empty() {
                chain.readable.push(part);
            } else {
                return Err("a descriptor to read behind one to write");
            }
            if flags & NEXT == 0 {
                return Ok(chain);
            }
            next = u16::from_le_bytes([bytes[14], bytes[15]]);
        }
        Err("descriptors that go round")
    }

    /// Gives a chain back, into which so many bytes were written.
    ///
    /// # Errors
    /// The queue is not where its driver said it is.
    pub fn push(&mut self, memory: &Mappings, chain: &Chain, written: u32) -> Result<(), Wrong> {
        let at = 4 + 8 * u64::from(self.given % self.size);
        let entry = [u32::from(chain.head), written].map(u32::to_le_bytes);
        poke(memory, self.used, at, entry.as_flattened())?;
        self.given = self.given.wrapping_add(1);
        // The index comes last, and whole, as above. What stands beside it nobody else writes.
        fence(Ordering::Release);
        let mut word = [0; 8];
        peek(memory, self.used, 0, &mut word)?;
        word[2..4].copy_from_slice(&self.given.to_le_bytes());
        poke(memory, self.used, 0, &word)
    }

    /// Whether its driver wants to hear of chains that are given back.
    ///
    /// # Errors
    /// The queue is not where its driver said it is.
    pub fn wants_calls(&self, memory: &Mappings) -> Result<bool, Wrong> {
        let mut flags = [0; 2];
        peek(memory, self.available, 0, &mut flags)?;
        Ok(u16::from_le_bytes(flags) & NO_INTERRUPT == 0)
    }
}

impl Chain {
    /// Bytes that can be written.
    pub fn room(&self) -> u64 {
        self.writable.iter().map(|&(_, size)| u64::from(size)).sum()
    }

    /// What there is to read.
    ///
    /// # Errors
    /// It is more than so many bytes, or not memory.
    pub fn read(&self, memory: &Mappings, most: usize) -> Result<Vec<u8>, Wrong> {
        let size: u64 = self.readable.iter().map(|&(_, size)| u64::from(size)).sum();
        if size > most as u64 {
            return Err("a request is too long");
        }
        let mut bytes = Vec::new();
        for &(address, size) in &self.readable {
            let start = bytes.len();
            bytes.resize(start + size as usize, 0);
            peek(memory, address, 0, &mut bytes[start..])?;
        }
        Ok(bytes)
    }

    /// Writes all of this, for which there is room.
    ///
    /// # Errors
    /// There is no room, or no memory.
    pub fn write(&self, memory: &Mappings, mut bytes: &[u8]) -> Result<(), Wrong> {
        for &(address, size) in &self.writable {
            let size = bytes.len().min(size as usize);
            poke(memory, address, 0, &bytes[..size])?;
            bytes = &bytes[size..];
        }
        if bytes.is_empty() {
            Ok(())
        } else {
            Err("a request has no room for its answer")
        }
    }
}

const UNREACHED: Wrong = "a queue or a descriptor lies outside of the memory that was shown";

fn peek(memory: &Mappings, base: u64, offset: u64, bytes: &mut [u8]) -> Result<(), Wrong> {
    match base.checked_add(offset) {
        Some(at) if memory.peek(at, bytes) => Ok(()),
        _ => Err(UNREACHED),
    }
}

fn poke(memory: &Mappings, base: u64, offset: u64, bytes: &[u8]) -> Result<(), Wrong> {
    match base.checked_add(offset) {
        Some(at) if memory.poke(at, bytes) => Ok(()),
        _ => Err(UNREACHED),
    }
}
