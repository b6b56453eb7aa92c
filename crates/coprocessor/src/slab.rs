//! What requests use until the device is done with it: memory for their data, and key slots.

use std::sync::Arc;

use zeroize::Zeroizing;

use crate::shared::Shared;
use crate::tweak::BLOCK;

/// Memory for the data of requests; wiped and given back when its last user is done, which may be the device.
pub(crate) struct Slab {
    shared: Arc<Shared>,
    start: usize,
    len: usize,
}

impl Slab {
    /// Of a piece that was taken for it.
    pub(crate) fn new(shared: &Arc<Shared>, start: usize, len: usize) -> Self {
        Self {
            shared: Arc::clone(shared),
            start,
            len,
        }
    }

    /// Where it begins in the memory.
    pub(crate) fn start(&self) -> usize {
        self.start
    }

    /// Copies in.
    pub(crate) fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.len, "inside the slab");
        self.shared.memory.write(self.start + at, bytes);
    }

    /// Copies out.
    pub(crate) fn read(&self, at: usize, bytes: &mut [u8]) {
        assert!(at + bytes.len() <= self.len, "inside the slab");
        self.shared.memory.read(self.start + at, bytes);
    }

    /// The block there, as AES has it in a number.
    pub(crate) fn block(&self, at: usize) -> Zeroizing<u128> {
        let mut bytes = Zeroizing::new([0; BLOCK]);
        self.read(at, &mut *bytes);
        Zeroizing::new(u128::from_le_bytes(*bytes))
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        self.shared.memory.wipe(self.start, self.len);
        let mut core = self.shared.lock();
        core.places.give(self.start, self.len);
        let next = core.memory_line.first();
        drop(core);
        if let Some(waker) = next {
            waker.wake();
        }
    }
}

/// A key slot: free for other keys when its last user is done, which may be the device.
pub(crate) struct Slot {
    shared: Arc<Shared>,
    number: u8,
}

impl Slot {
    pub(crate) fn new(shared: &Arc<Shared>, number: u8) -> Self {
        Self {
            shared: Arc::clone(shared),
            number,
        }
    }

    pub(crate) fn number(&self) -> u8 {
        self.number
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.shared.keys().free(self.number);
    }
}
