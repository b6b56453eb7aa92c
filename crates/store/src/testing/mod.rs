//! Stores for tests: in memory ([`MemStore`]), with injected faults
//! ([`FaultStore`]), one whose operations complete later ([`LaterStore`]), and one that records writes and flushes and presents
//! every legal survivor of a power cut ([`RecordingStore`]).
//!
//! Other crates switch this module on for their tests only:
//!
//! ```toml
//! [dev-dependencies]
//! xtent-store = { workspace = true, features = ["testing"] }
//! ```

mod fault;
mod later;
mod memory;
mod recording;

pub use fault::{Fault, FaultStore, Operation};
pub use later::LaterStore;
pub use memory::MemStore;
pub use recording::{RecordingStore, Sampling, Survivor, Survivors};
