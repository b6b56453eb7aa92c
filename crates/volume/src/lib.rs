//! An open volume: byte-range reads, writes, flush, discard and zeroes over a
//! cipher and a store. Runs stay whole; partial sectors are read, modified and
//! written under a range lock.
//!
//! A request is a plan (which units it holds, which edges it covers in part, which runs lie
//! between), and one of two drivers carries it out:
//!
//! * On memory that is lent for a call ([`Volume::read_at`] and its like), on the caller's
//!   thread. The request is cut only into pieces that stay in a CPU's second-level cache
//!   between the store's copy and the cipher ([`Volume::preferred_piece`]): still runs of
//!   hundreds of sectors, and faster than passing over main memory twice. Each thread that
//!   writes keeps one buffer of that size; there is no other memory per request.
//! * On memory that the operation owns until it completes ([`Volume::read_async`] and its
//!   like), for stores that complete later: a future for each request, and no thread. The
//!   memory is the caller's, but for two sectors (or blocks of the store) while a request that
//!   covers its edges in part is under way. Where there is a [`CipherEngine`], this is also the way to
//!   it, whatever the store.
//!
//! Requests that overlap are ordered against each other sector by sector, so
//! that no reader ever decrypts a sector that is half old and half new, and no
//! partial write loses another's bytes. Ordering and durability are those of
//! block devices: a write is durable when a flush that began after it has
//! returned, or at once with `fua`.

mod config;
mod discard;
mod engine;
mod error;
mod helpers;
mod holes;
mod later;
mod metrics;
mod now;
mod plan;
mod range_lock;
mod shared_cipher;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod volume;

/// Memory that others see: a guest's.
pub use sector_cipher::Foreign;

pub use config::{CipherThreads, Config, DiscardPolicy};
pub use engine::{CipherEngine, Crypted, Direction, Threshold};
pub use error::{Cause, Error, ErrorKind};
pub use holes::Holes;
pub use metrics::{
    EngineRuns, Histogram, Metrics, Phase, RequestKind, Requests, Snapshot, Watch, now_and_then,
};
pub use plan::Hull;
pub use volume::Volume;
