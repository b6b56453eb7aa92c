//! The buffer in which ciphertext is made before it goes to the store: one per
//! thread, so that it stays in that CPU's cache and needs no lock.

use std::cell::Cell;

use xtent_store::AlignedBuffer;

use crate::Error;
use crate::plan::PIECE;

thread_local! {
    static BUFFER: Cell<Option<AlignedBuffer>> = const { Cell::new(None) };
}

/// Calls `work` with this thread's buffer of [`PIECE`] bytes (contents
/// undefined).
pub(super) fn with_buffer<T>(work: impl FnOnce(&mut [u8]) -> Result<T, Error>) -> Result<T, Error> {
    let mut buffer = match BUFFER.take() {
        Some(buffer) => buffer,
        None => AlignedBuffer::zeroed(PIECE).map_err(|_| Error::no_memory("a write buffer"))?,
    };
    let result = work(&mut buffer);
    BUFFER.set(Some(buffer));
    result
}
