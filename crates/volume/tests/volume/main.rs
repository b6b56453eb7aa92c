//! The volume as its users see it.

#![allow(clippy::unwrap_used, reason = "tests may")]

mod concurrency;
mod durability;
mod engine;
mod faults;
mod holes;
mod model;
mod open;
mod support;
mod threads;
