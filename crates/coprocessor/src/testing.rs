//! A model of the device in this process, for tests of this crate and of others: its registers, rings, lists and statuses
//! are those of `rtl/engine/README.md`, its ciphers those of the CPU, and it fails as it is told to.

mod device;
mod registers;
mod server;
mod work;

use std::sync::Arc;
use std::time::{Duration, Instant};

pub use crate::memory::Memory;
pub use crate::port::{Port, Work};
pub use device::{Build, Device, Flaw, Pace};

pub use server::serve;

use crate::{Engine, Error, Options};

impl Engine {
    /// Opens a device by the way to it, with its thread, and tests it.
    ///
    /// # Errors
    /// As of [`Engine::open`].
    pub fn by_port(port: Box<dyn Port>, options: Options) -> Result<Arc<Self>, Error> {
        let engine = Self::start(port, options, None)?;
        crate::selftest::run(&engine)?;
        Ok(engine)
    }

    /// Opens a device without a thread and without the clock: time passes when [`Engine::let_pass`] says so. It is tested if
    /// `is_tested`.
    ///
    /// # Errors
    /// As of [`Engine::open`].
    pub fn by_hand(
        port: Box<dyn Port>,
        options: Options,
        is_tested: bool,
    ) -> Result<Arc<Self>, Error> {
        let engine = Self::start(port, options, Some(Instant::now()))?;
        if is_tested {
            crate::selftest::run(&engine)?;
        }
        Ok(engine)
    }

    /// Lets time pass and attends to the device.
    pub fn let_pass(&self, time: Duration) {
        self.pass(time);
    }

    /// Runs a future to its end, attending to the device where no thread does.
    pub fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.finish(future)
    }
}
