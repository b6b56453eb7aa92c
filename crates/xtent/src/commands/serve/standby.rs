//! `xtent serve --standby`: waits for a volume that another server has.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::control::StandbyControl;
use crate::disk::{is_uri, rbd};
use crate::failure::{Exit, Failure, Result};
use crate::listen::Bound;
use crate::notify::Notifier;
use crate::output::{Output, in_one_line};
use crate::registry;
use crate::wanted::{Opened, Wanted};

/// How often it is looked whether the other one is gone.
const LOOK: Duration = Duration::from_secs(1);

/// How long the one who had the volume may take to leave an address that both were given.
const LEAVE: Duration = Duration::from_secs(30);
/// How often it is looked whether it has.
const LOOK_FOR_ADDRESS: Duration = Duration::from_millis(200);

/// Gets to know the volume, passphrase and all, and opens it once nobody else has it. Ends at a
/// signal like any command, since there is nothing yet to put in order.
pub(super) fn wait(wanted: &Wanted, notifier: &Notifier, output: &Output) -> Result<Opened> {
    refuse(wanted)?;
    let known = wanted.get_to_know(output)?;
    let _registration = registry::register(std::slice::from_ref(&known.entry));
    let control = StandbyControl::bind()
        .inspect_err(|e| tracing::info!(error = %e, "this standby cannot be told to take over"))
        .ok();
    let mut said = String::new();
    loop {
        match wanted.prepare(output) {
            Ok(prepared) => {
                if !said.is_empty() {
                    output.note("The volume is free: taking over.");
                    notifier.tell("STATUS=Taking over");
                }
                return prepared.open_by(known);
            }
            Err(failure) if is_passing(&failure, !said.is_empty()) => {
                let why = [vec![failure.message.clone()], failure.causes()].concat();
                let why = in_one_line(&why.join(": "));
                if why != said {
                    output.warn(format!("standing by: {why}"));
                    notifier.tell(&format!("STATUS=Standing by: {why}"));
                    said = why;
                }
            }
            Err(failure) => return Err(failure),
        }
        match &control {
            Some(control) => control.wait(LOOK, || take_over(&wanted.args.device.device)),
            None => std::thread::sleep(LOOK),
        }
    }
}

/// How a server gets its addresses.
pub(super) struct Addresses<'a> {
    /// It waits for one that is in use: on the same machine the one who had the volume may listen
    /// there still. It was shut out a moment ago, and parts from its clients.
    pub(super) waits: bool,
    pub(super) notifier: &'a Notifier,
    pub(super) output: &'a Output,
}

impl Addresses<'_> {
    /// Listens by `listen`.
    pub(super) fn bind(&self, listen: impl Fn() -> Result<Bound>) -> Result<Bound> {
        let start = Instant::now();
        let mut said = false;
        loop {
            match listen() {
                Err(failure)
                    if self.waits && failure.exit == Exit::Busy && start.elapsed() < LEAVE =>
                {
                    if !said {
                        let why = [vec![failure.message.clone()], failure.causes()].concat();
                        let why = in_one_line(&why.join(": "));
                        let output = self.output;
                        output.warn(format!("the volume is here, its address not yet: {why}"));
                        let status = format!("STATUS=Waiting for the address: {why}");
                        self.notifier.tell(&status);
                        said = true;
                    }
                    std::thread::sleep(LOOK_FOR_ADDRESS);
                }
                listening => return listening,
            }
        }
    }
}

/// Takes the lock away from whoever has it, who is shut out from then on, and lets it go: the next
/// look finds it free.
fn take_over(device: &Path) -> Result<()> {
    if !rbd::is_image(device) {
        return Err(Failure::parameters(format!(
            "{} cannot be taken over by force: nothing would keep the other server from writing on",
            device.display()
        ))
        .advise(
            "End the other server, with SIGKILL if need be, or its machine: the lock is free then, and \
             this one serves.",
        ));
    }
    rbd::Image::take_over(device).map(drop)
}

/// Whether it is worth to wait: somebody has the volume or, for one who has waited for that, it
/// cannot be reached for now.
fn is_passing(failure: &Failure, waits: bool) -> bool {
    let source = failure.source.as_deref();
    let is_of_system = source.is_some_and(|source| source.is::<std::io::Error>());
    failure.exit == Exit::Busy || waits && failure.exit == Exit::Device && is_of_system
}

/// Refuses what cannot be taken over without two servers writing at a time, or not be known again.
fn refuse(wanted: &Wanted) -> Result<()> {
    let device = &wanted.args.device.device;
    if is_uri(device) && !rbd::is_image(device) {
        return Err(Failure::parameters(format!(
            "--standby: {} is behind an NBD server, and nothing tells whether another machine writes to it",
            device.display()
        ))
        .advise("NBD has no lock and no way to shut a client out. Let whatever runs the servers see to it that one runs."));
    }
    if wanted.args.is_plain() {
        return Err(Failure::parameters(
            "--standby: a volume without a header cannot be known again after the wait",
        ));
    }
    Ok(())
}
