//! The size of a device, while it is served.

use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;

use super::abi::{self, SECTOR};
use super::control::{Control, failed};
use crate::Error;

/// Lets a device grow while it is served: Linux 6.16 and newer.
///
/// The driver wants `CAP_SYS_ADMIN` with the command, and a server has given its privileges up by then. So the
/// ring of this one keeps them, of the thread that made it (a *personality* of io_uring). It takes commands to
/// the driver and nothing else: who takes the server over could do as they like with this machine's ublk
/// devices, and with nothing else that takes privileges.
pub struct Growth {
    number: u32,
    told: Mutex<Told>,
}

struct Told {
    control: Control,
    /// What the device has.
    sectors: u64,
}

impl Control {
    /// For a device that was made. Call it before privileges are given up. Nothing where the kernel has no way
    /// to change the size of a device.
    pub fn growth(&self, number: u32) -> Result<Option<Growth>, Error> {
        if !self.has(abi::F_UPDATE_SIZE) {
            return Ok(None);
        }
        let mut control = Self::with_kept_privileges()?;
        let sectors = control.params_of(number)?.sectors;
        let told = Mutex::new(Told { control, sectors });
        Ok(Some(Growth { number, told }))
    }
}

impl Growth {
    /// Tells the kernel that the volume of a device that was started has so many bytes. A device never becomes
    /// smaller. Users of the device that look at its size see it at once, and udev is told.
    pub fn tell(&self, bytes: u64) -> Result<(), Error> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let sectors = bytes / SECTOR;
        if sectors <= told.sectors {
            return Ok(());
        }
        let changed: Result<(), Errno> = told.control.update_size(self.number, sectors);
        changed.map_err(|error| failed("enlarge", self.number, error))?;
        told.sectors = sectors;
        Ok(())
    }
}
