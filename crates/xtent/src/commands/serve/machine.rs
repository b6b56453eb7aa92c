//! `xtent serve --vhost-user`: the volume as the disk of a virtual machine.

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use xtent_export::Shutdown;
use xtent_export::nbd::Listener;
use xtent_export::vhost_user::{self, Growth, Options};

use crate::failure::{Failure, Result};
use crate::listen::{self, Bound, Spec};
use crate::open::can_wait;
use crate::volumes::Volumes;

/// Where a virtual machine finds its disk.
pub(super) fn bind(path: &Path) -> Result<Bound> {
    listen::bind(&Spec::Unix(PathBuf::from(path)), false)
}

/// Ends the server when dropped.
struct End(Shutdown);

impl Drop for End {
    fn drop(&mut self) {
        self.0.trigger();
    }
}

/// The thread that serves it.
pub(super) struct Machine(JoinHandle<std::result::Result<(), xtent_export::Error>>);

impl Machine {
    /// Serves the one volume there is until `shutdown`, which it triggers itself if it cannot go on. `is_far`: over a
    /// server's export.
    pub(super) fn start(
        listener: Listener,
        volumes: &Volumes,
        is_far: bool,
        shutdown: &Shutdown,
    ) -> Result<Option<Self>> {
        let Some((volume, uuid)) = volumes.first() else {
            return Ok(None);
        };
        let options = Options {
            is_resumed: can_wait(uuid.as_deref().unwrap_or_default(), is_far),
            id: uuid.unwrap_or("xtent".into()),
            ..Options::default()
        };
        if !options.is_resumed {
            tracing::warn!(
                "if this server is killed, the next one carries out nothing that was under way: the guest waits for it"
            );
        }
        let growth = Growth::new().map_err(|e| Failure::system("cannot prepare to serve", e))?;
        let (shutdown, told) = (shutdown.clone(), growth.clone());
        volumes.on_growth(move || told.tell());
        let serve = move || {
            // Nothing goes on without it, whatever its end.
            let _end = End(shutdown.clone());
            vhost_user::serve(&listener, &volume, &options, &shutdown, &growth)
        };
        std::thread::Builder::new()
            .name("vhost-user".into())
            .spawn(serve)
            .map(|thread| Some(Self(thread)))
            .map_err(|e| Failure::system("cannot start a thread for virtual machines", e))
    }

    /// Waits for the end; the error is that of the last flush.
    pub(super) fn end(self) -> Result<()> {
        match self.0.join() {
            Ok(served) => Ok(served?),
            Err(_) => Err(Failure::parameters("serving a virtual machine panicked")),
        }
    }
}
