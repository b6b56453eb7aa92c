//! The driver in user space for the co-processor of `rtl/engine`: keys in its slots, runs of sectors through its rings.
//!
//! An [`Address`] says where it is: `vfio-user:PATH`, a process that is the device, or `vfio:0000:03:00.0`, a PCI device.
//! [`Engine::open`] tests it; [`Engine::key`] loads a key, or says what the engine cannot do, and then the work is the CPU's;
//! [`Keyed::crypt`] takes a run of sectors and its memory, and gives it back when it is done.
//!
//! # Sharing the work
//!
//! [`Model`] says what is left to the CPU, from nothing ([`Model::Runs`]) to tweaks and both exclusive-ors of XTS
//! ([`Model::Mixed`]). The bytes are the same.
//!
//! # Memory
//!
//! The data of a request is copied into memory that the device sees, and out of it when the device says that it is done;
//! never out of it after a failed request. There is a bounded amount of it ([`Options::memory`]), and of room in rings:
//! futures wait their turn, in order. Memory belongs to a request until the device is done with it, also when nobody
//! waits for it any more; after a fault until the device has been reset, or has lost its access to all of it.
//!
//! # Trust
//!
//! A device gets keys and plaintext; so does the process behind a socket. Beyond that it is not trusted: whatever
//! it writes and whatever its registers read, each request ends once, and no memory but what was shared is touched. A
//! completion that does not go with what was asked for ends the use of the device, and so does one of data that is as it was
//! (the last block of each 512 bytes is compared). It can, of course, return wrong data.
//!
//! # Failures
//!
//! A request that the device fails ends with an error, or is carried out by the CPU ([`OnFailure`]). A device that
//! completes nothing for [`Options::watchdog`], does not end a key command, reports a fault or fails 64 requests in a row is reset, and goes on with
//! its keys loaded again, once; one that then works may be reset again, eight times in a row if it does less than 16 MiB each time.
//! Anything else ends its use: [`ErrorKind::Dead`].

mod address;
mod engine;
mod error;
mod facts;
mod job;
mod keyed;
mod keys;
mod line;
#[cfg_attr(
    not(any(test, feature = "testing")),
    allow(
        unreachable_pub,
        clippy::len_without_is_empty,
        reason = "public by `testing`"
    )
)]
mod memory;
mod options;
mod patience;
#[cfg_attr(
    not(any(test, feature = "testing")),
    allow(
        unreachable_pub,
        clippy::len_without_is_empty,
        reason = "public by `testing`"
    )
)]
mod port;
pub mod registers;
mod reset;
mod ring;
mod selftest;
mod shared;
mod slab;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod tweak;

pub use address::Address;
pub use engine::Engine;
pub use error::{Error, ErrorKind};
pub use facts::{Counters, Facts};
pub use keyed::Keyed;
pub use options::{Direction, Model, OnFailure, Options, RequestSize, Tweaks, Wait};
