//! Volumes that somebody else has taken over: what they were served for is over at once.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};

use xtent_export::Shutdown;

use crate::failure::{Failure, Result};
use crate::signals;
use crate::volumes::{Loss, Volumes};

/// The losses to come.
pub(super) struct Losses(Option<Receiver<Loss>>);

impl Losses {
    /// With where they are told; nobody listens there where none can be.
    pub(super) fn new(may_be: bool) -> (Sender<Loss>, Self) {
        let (tell, told) = channel();
        (tell, Self(may_be.then_some(told)))
    }

    /// Parts from the clients of each that is lost, and ends a server that has nothing left; the
    /// first device that was lost, once one is.
    pub(super) fn act(
        self,
        volumes: &Arc<Volumes>,
        shutdown: &Shutdown,
    ) -> Result<Arc<OnceLock<String>>> {
        let first = Arc::<OnceLock<String>>::default();
        let Self(Some(told)) = self else {
            return Ok(first);
        };
        let (volumes, shutdown, lost) = (Arc::clone(volumes), shutdown.clone(), Arc::clone(&first));
        let act = move || {
            for loss in told {
                let Loss { export, device, .. } = &loss;
                tracing::error!(
                    export,
                    device,
                    "taken over by another client: its clients are disconnected"
                );
                let _ = lost.set(device.clone());
                if let Err(failure) = volumes.remove_lost(&loss) {
                    tracing::debug!(export, %failure, "nothing is flushed of what is lost");
                }
                if volumes.list().is_empty() {
                    shutdown.trigger();
                }
            }
        };
        signals::held_back(|| {
            std::thread::Builder::new()
                .name("fenced".to_owned())
                .spawn(act)
        })?
        .map_err(|e| Failure::system("cannot start a thread", e))?;
        Ok(first)
    }
}
