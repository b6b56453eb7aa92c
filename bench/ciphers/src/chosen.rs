//! What a back-end does in a way that suits this CPU.

use std::fmt;

use sector_cipher::{Backend, hazmat};
use serde::Serialize;

/// Which ways a back-end takes that suit this CPU, and whether timing it would have found the same.
#[derive(Serialize)]
pub(crate) struct Chosen {
    backend: &'static str,
    ways: String,
    /// How often this CPU was timed for it, and how often that gave the same.
    timed: usize,
    alike: usize,
}

impl Chosen {
    /// Of a back-end; `None` if it has one way for everything.
    pub(crate) fn of(backend: Backend) -> Option<Self> {
        /// Some five milliseconds.
        const TIMED: usize = 100;
        let ports = backend.ports()?;
        let alike = (0..TIMED)
            .filter_map(|_| hazmat::timed_ports(backend))
            .filter(|timed| {
                (timed.shifts, timed.three_products) == (ports.shifts, ports.three_products)
            })
            .count();
        Some(Self {
            backend: backend.name(),
            ways: ports.to_string(),
            timed: TIMED,
            alike,
        })
    }
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Chosen for {}: {}; timing finds the same {} times of {}.",
            self.backend, self.ways, self.alike, self.timed
        )
    }
}
