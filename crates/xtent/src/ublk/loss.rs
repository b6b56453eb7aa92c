//! The end of a device whose volume somebody else has been given.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;

use xtent_export::ublk::{Control, Info};

use crate::disk::Disk;
use crate::failure::{Failure, Result};
use crate::signals;

/// Has the device stopped once somebody else has been given `data`: what its users would write later, knowing nothing
/// of what was written meanwhile, would destroy that. So it does not wait for a server either.
/// Call it once the device is started, before privileges are given up. What it returns is true from then on.
pub(crate) fn stop_at_loss(data: &Disk, made: &Info) -> Result<Arc<AtomicBool>> {
    let is_lost = Arc::<AtomicBool>::default();
    if !data.is_image() {
        return Ok(is_lost);
    }
    let stopper = Control::stopper(made)?;
    let (tell, told) = channel();
    let (device, lost) = (data.path().display().to_string(), Arc::clone(&is_lost));
    let act = move || {
        if told.recv().is_err() {
            return;
        }
        lost.store(true, Ordering::Release);
        tracing::error!(
            device,
            "taken over by another client: the block device is stopped"
        );
        if let Err(error) = stopper.stop() {
            tracing::error!("{}", xtent_store::chain(&error));
        }
    };
    signals::held_back(|| {
        std::thread::Builder::new()
            .name("ublk-loss".to_owned())
            .spawn(act)
    })?
    .map_err(|e| Failure::system("cannot start a thread", e))?;
    data.on_loss(move || {
        // Nobody listens once the device has ended.
        let _ = tell.send(());
    });
    Ok(is_lost)
}
