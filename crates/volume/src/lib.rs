//! An open volume: byte-range reads, writes, flush, discard and zeroes over a
//! cipher and a store. Runs stay whole; partial sectors are read, modified and
//! written under a range lock.
//!
//! A request is cut only into pieces that stay in a CPU's second-level cache
//! between the store's copy and the cipher ([`Volume::preferred_piece`]): still
//! runs of hundreds of sectors, and faster than passing over main memory twice.
//! Each thread that writes keeps one buffer of that size; there is no other
//! memory per request.
//!
//! Requests that overlap are ordered against each other sector by sector, so
//! that no reader ever decrypts a sector that is half old and half new, and no
//! partial write loses another's bytes. Ordering and durability are those of
//! block devices: a write is durable when a flush that began after it has
//! returned, or at once with `fua`.

mod config;
mod engine;
mod error;
mod piece;
mod pool;
mod range_lock;
mod volume;
mod write;

pub use config::{CipherThreads, Config, DiscardPolicy};
pub use error::{Error, ErrorKind};
pub use volume::Volume;
