//! The end of a device whose volume is lost.

use super::control::{Control, Info, State};
use crate::Error;

/// Takes a device away from its users later, when this process may have given its privileges up: the ring keeps
/// them, as that of a [`Growth`](super::Growth) does.
pub struct Stopper {
    control: Control,
    made: Info,
}

impl Control {
    /// For a device that was made. Call it before privileges are given up.
    pub fn stopper(made: &Info) -> Result<Stopper, Error> {
        Ok(Stopper {
            control: Self::with_kept_privileges()?,
            made: *made,
        })
    }
}

impl Stopper {
    /// As [`Control::stop`], unless the device is gone already. The driver waits for the answers to what is under
    /// way, so it is not for a thread that these need.
    pub fn stop(mut self) -> Result<(), Error> {
        let number = self.made.number;
        // Numbers are given again.
        let found = self.control.info(number)?;
        let found = found.filter(|info| info.identity == self.made.identity);
        match found {
            Some(info) if info.state != State::Dead => self.control.stop(number),
            _ => Ok(()),
        }
    }
}
