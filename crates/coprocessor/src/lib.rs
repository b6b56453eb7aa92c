//! The driver in user space for the co-processor of `rtl/engine`.

mod address;
mod engine;
mod error;
mod facts;
mod job;
mod keyed;
mod line;
mod memory;
mod options;
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
