//! The way to a device, whichever it is.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::memory::Memory;
use crate::{Address, Error};

mod vfio;
mod vfio_user;

/// The way to a device: its registers, memory that both see, and its interrupts.
///
/// Calls take a bounded time, also where the device does not answer.
pub trait Port: Send + Sync {
    /// What a register reads.
    ///
    /// # Errors
    /// If the device is gone.
    fn read(&self, register: u32) -> Result<u32, Error>;

    /// Writes a register. It may be on its way still when the call returns, but passes no other one, and no read.
    ///
    /// # Errors
    /// If the device is gone.
    fn write(&self, register: u32, value: u32) -> Result<(), Error>;

    /// Writes a register of a key: nothing of it is left on the way.
    ///
    /// # Errors
    /// If the device is gone.
    fn write_secret(&self, register: u32, value: &[u8; 4]) -> Result<(), Error>;

    /// Lets the device see the memory, at [`Memory::address`].
    ///
    /// # Errors
    /// If that cannot be.
    fn map(&self, memory: &Arc<Memory>) -> Result<(), Error>;

    /// Takes it away: the device has no access to it when this returns without an error.
    ///
    /// # Errors
    /// If it is not certain that it has not.
    fn unmap(&self, memory: &Memory) -> Result<(), Error>;

    /// Has the device's interrupts counted by event counters: one for each ring and one for faults, or the first for all.
    /// Gives how many are used.
    ///
    /// # Errors
    /// If the device has no interrupts of a kind that can be had.
    fn interrupts(&self, counters: &[OwnedFd]) -> Result<usize, Error>;

    /// An end was asked for: calls, also those that wait already, take a second from now on.
    fn hurry(&self) {}

    /// Has something done by the thread that the way has, if it has one, before anything else that it is given from now
    /// on; forgets it otherwise. A thread that is stuck keeps it.
    fn in_thread(&self, _work: Work) {}
}

/// Something for a thread to do.
pub type Work = Box<dyn FnOnce() + Send>;

/// Opens the way to a device.
pub(crate) fn open(
    address: &Address,
    patience: std::time::Duration,
) -> Result<Box<dyn Port>, Error> {
    Ok(match address {
        Address::VfioUser(path) => Box::new(vfio_user::Socket::connect(path, patience)?),
        Address::Vfio(device) => Box::new(vfio::Device::open(device)?),
    })
}

/// How many of a device's interrupt vectors are used, with one counter for each ring and one more: all, or one.
pub(crate) fn vectors(there_are: usize, counters: usize) -> usize {
    match there_are {
        0 => 0,
        n if n >= counters => counters,
        _ => 1,
    }
}

/// None are an error.
pub(crate) fn some_vectors(used: usize) -> Result<usize, Error> {
    match used {
        0 => Err(Error::new(
            crate::ErrorKind::Unsupported,
            "the engine has no interrupts that can be had: it has to be looked at from time to time (polling)",
        )),
        used => Ok(used),
    }
}
