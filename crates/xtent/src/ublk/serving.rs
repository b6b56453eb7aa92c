//! The start of a server.

use std::time::{Duration, Instant};

use xtent_export::ublk::{Control, Ready, Server};
use xtent_export::{Error, ErrorKind};

use super::SILENCE;
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::sandbox;

/// How long the last server's files may stay open, and how often that is looked at.
const PATIENCE: Duration = Duration::from_secs(30);
const AGAIN: Duration = Duration::from_millis(20);

/// The driver may have files of the last server's still, which are closed a little after its end.
pub(crate) fn hand_over(
    control: &mut Control,
    number: u32,
    output: &Output,
) -> std::result::Result<(), Error> {
    let began = Instant::now();
    let mut is_told = false;
    loop {
        match control.hand_over(number) {
            Err(error) if error.kind == ErrorKind::Busy && began.elapsed() < PATIENCE => {
                if began.elapsed() > SILENCE && !is_told {
                    output.note("Waiting for the kernel to close the files of the last server.");
                    is_told = true;
                }
                std::thread::sleep(AGAIN);
            }
            other => return other,
        }
    }
}

/// Starts the threads that requests are carried out on in the sandbox, as far as it is a thread's. This
/// one has yet to start the device, which takes privileges.
pub(crate) fn spawn_confined(server: Server, needs: &sandbox::Needs) -> Result<Ready> {
    let spawn = || {
        sandbox::confine(needs)?;
        Ok(server.spawn()?)
    };
    sandbox::before_threads();
    let spawned = std::thread::scope(|scope| scope.spawn(spawn).join());
    spawned.unwrap_or_else(|_| Err(Failure::parameters("starting to serve panicked")))
}
