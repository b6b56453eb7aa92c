//! The driver in user space for the co-processor of `rtl/engine`.

mod address;
mod engine;
mod error;
mod facts;
mod keyed;
mod options;
pub mod registers;

pub use address::Address;
pub use engine::Engine;
pub use error::{Error, ErrorKind};
pub use facts::{Counters, Facts};
pub use keyed::Keyed;
pub use options::{Direction, Model, OnFailure, Options, RequestSize, Tweaks, Wait};
