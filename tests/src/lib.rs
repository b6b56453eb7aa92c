//! Harness for the end-to-end tests: the `xtent` command and its peers as
//! processes, scratch files, the User Mode Linux bed.
//!
//! A harness fails by panicking with everything that helps to find out why.
//! Whatever it starts, mounts or attaches is undone when its guard is dropped,
//! on a panic as well.
#![allow(clippy::unwrap_used, reason = "a test harness fails by panicking")]

pub mod bed;
pub mod ceph;
pub mod far;
pub mod faulty;
pub mod fido2;
pub mod gateway;
pub mod header;
pub mod luks;
pub mod mappings;
pub mod mount;
pub mod nbd;
pub mod process;
pub mod random;
pub mod scratch;
pub mod suspended;
pub mod terminal;
pub mod tls;
pub mod tpm;
pub mod uml;
pub mod xtent;

pub use process::{Background, Cmd, Finished, PATIENCE};
pub use scratch::{Scratch, pattern};

/// How long a soak goes on: `$XTENT_SOAK_ROUNDS`, or 100.
pub fn soak_rounds() -> u64 {
    std::env::var("XTENT_SOAK_ROUNDS").map_or(100, |rounds| {
        rounds.parse().expect("XTENT_SOAK_ROUNDS=NUMBER")
    })
}
