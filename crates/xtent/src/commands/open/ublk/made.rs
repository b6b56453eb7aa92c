//! The device: made, or taken over from a server that is gone.

use xtent_export::ublk::{Control, Growth, Info, Ready as ReadyServer, Serving, State};
use xtent_mapping::Name;

use super::Opened;
use crate::failure::{Exit, Failure, Result};
use crate::output::Output;
use crate::turn::Turn;
use crate::ublk;

/// The device, if it waits for this volume's server.
pub(super) fn waiting(
    control: &mut Control,
    name: &Name,
    opened: &Opened,
    found: Option<&Info>,
) -> Result<Option<Info>> {
    let Some(info) = found.filter(|info| info.state == State::Waits) else {
        return Ok(None);
    };
    if info.identity != opened.identity || !opened.can_be_taken_over() {
        return Err(another_volume(name));
    }
    control.check(info, &opened.volume)?;
    Ok(Some(*info))
}

/// A device that this process is to serve. Dropped before it is [kept](Made::keep), it is gone again if it
/// is new, else it waits.
pub(super) struct Made<'a> {
    control: Control,
    pub(super) info: Info,
    pub(super) is_taken_over: bool,
    /// Whether it has a server.
    is_started: bool,
    is_kept: bool,
    name: &'a Name,
}

impl<'a> Made<'a> {
    /// The device that waits, untouched as yet, or a new one.
    pub(super) fn get(
        mut control: Control,
        name: &'a Name,
        opened: &Opened,
        waiting: Option<Info>,
    ) -> Result<Self> {
        let info = match waiting {
            Some(info) => info,
            None => {
                let waits = opened.can_be_taken_over();
                let info = control.add(&opened.volume, opened.identity, waits)?;
                if let Err(failure) = ublk::link(name, info.number) {
                    control.delete(info.number)?;
                    return Err(failure);
                }
                info
            }
        };
        Ok(Self {
            control,
            info,
            is_taken_over: waiting.is_some(),
            is_started: false,
            is_kept: false,
            name,
        })
    }

    /// Has the threads serve it. From then on it is there for everybody.
    pub(super) fn serve(
        &mut self,
        server: ReadyServer,
        turn: &Turn,
        output: &Output,
    ) -> Result<Serving> {
        let (name, number) = (self.name, self.info.number);
        if !self.is_taken_over {
            let serving = server.serve(&self.info)?;
            self.control.start(number, false)?;
            self.is_started = true;
            return Ok(serving);
        }
        turn.begin_takeover()?;
        if let Err(error) = ublk::hand_over(&mut self.control, number, output) {
            // The driver has all of the last server's still.
            turn.end_takeover()?;
            return Err(lost(name).because(error));
        }
        let served = server.serve(&self.info);
        let serving = served.map_err(|error| lost(name).because(error))?;
        // It has heard of all of this one's queues: the next one could have it again.
        turn.end_takeover()?;
        let started = self.control.start(number, true);
        started.map_err(|error| lost(name).because(error))?;
        self.is_started = true;
        Ok(serving)
    }

    /// What has it grow, where the kernel lets it.
    pub(super) fn growth(&self) -> Option<Growth> {
        let growth = self.control.growth(self.info.number);
        growth
            .inspect_err(|error| {
                tracing::warn!(error = %xtent_store::chain(error), "the device will keep its size");
            })
            .ok()
            .flatten()
    }

    /// Leaves it to `xtent close`.
    pub(super) fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        let path = ublk::path(self.name);
        match (self.is_kept, self.is_taken_over) {
            (true, _) => {}
            (false, true) if self.is_started => {
                tracing::warn!("{} waits for a server again", path.display());
            }
            (false, true) => {}
            (false, false) => match self.control.delete(self.info.number) {
                // Its threads end with it.
                Ok(()) => ublk::unlink(self.name, self.info.number),
                Err(error) => tracing::warn!(
                    error = %xtent_store::chain(&error),
                    "{} is left without a server: `xtent close {}` removes it",
                    path.display(),
                    self.name
                ),
            },
        }
    }
}

fn another_volume(name: &Name) -> Failure {
    Failure::new(
        Exit::Busy,
        format!(
            "{} waits for the server of another volume, or of one in another place",
            ublk::path(name).display()
        ),
    )
    .advise(format!(
        "Open that one by this name, from the device that it was opened from; or, if it is not used any \
         more, `xtent close {name}`."
    ))
}

/// A device whose last server, or this one, was lost while it took it over.
pub(super) fn lost(name: &Name) -> Failure {
    Failure::new(
        Exit::Device,
        format!(
            "{} cannot be taken over any more: a server was lost before the driver knew it",
            ublk::path(name).display()
        ),
    )
    .advise(format!(
        "`xtent close --force {name}` gives it up: its users see errors, and what they have written and \
         not flushed is lost. What they were told is flushed is on the disk."
    ))
}
