//! An engine in use.

use std::sync::Arc;

use sector_cipher::{CipherSpec, SectorCount, SectorSize};

use crate::{Address, Counters, Error, ErrorKind, Facts, Keyed, Model, Options};

/// An engine, opened, reset and tested.
pub struct Engine {
    facts: Facts,
}

impl Engine {
    /// Opens an engine: checks what it is, resets it, and tests each of its ciphers and operations.
    ///
    /// # Errors
    /// [`ErrorKind::Open`], [`ErrorKind::Unknown`], [`ErrorKind::Memory`], or [`ErrorKind::Dead`] if a test fails.
    pub fn open(address: &Address, _options: Options) -> Result<Arc<Self>, Error> {
        Err(Error::new(
            ErrorKind::Open,
            format!("cannot open {address}"),
        ))
    }

    /// What it can do.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Its counters.
    ///
    /// # Errors
    /// [`ErrorKind::Dead`] if the device does not answer.
    pub fn counters(&self) -> Result<Counters, Error> {
        Counters::read(|_| Ok(0), |_, _| Ok(()))
    }

    /// Loads a key, for sectors of one size, counted as `count` says.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] or [`ErrorKind::Slots`] where only a CPU can do it, [`ErrorKind::Request`] for a key that the cipher does
    /// not take, [`ErrorKind::Dead`] if the engine is out of service.
    pub fn key(
        self: &Arc<Self>,
        spec: CipherSpec,
        _key: &[u8],
        _size: SectorSize,
        _count: SectorCount,
        _model: Model,
    ) -> Result<Keyed, Error> {
        let _ = Facts::read(|_| Ok(0));
        Err(Error::new(
            ErrorKind::Unsupported,
            format!("the engine has no {spec}"),
        ))
    }
}
