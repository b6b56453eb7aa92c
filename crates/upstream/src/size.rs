//! An export that has grown while it is in use: a connection has the size of its handshake
//! for ever, so it takes new ones.

use std::io;
use std::time::{Duration, Instant};

use xtent_store::{Act, AlignedBuffer, Error, ErrorKind, Operation, Store, block_on};

use crate::connect::connect;
use crate::connection::Connection;
use crate::shared::Shared;
use crate::state::Phase;
use crate::wake::Wake;
use crate::{Upstream, lane, lock, say_goodbye};

/// How long a server may take to answer one more client; some take one at a time.
const LONGEST_LOOK: Duration = Duration::from_secs(5);

impl Upstream {
    /// Finds out how large the export is by now, by one connection more. Has it grown, all others are
    /// given up for new ones, as after a loss: requests wait for moments, and none is lost. Returns
    /// when the store has its new size.
    ///
    /// # Errors
    /// If the server takes no connection more, if the export is not the same, or if there is
    /// no connection any more to those that were given up.
    pub fn look_at_size(&self) -> Result<(), Error> {
        let terms = &self.shared.terms;
        let failed = |kind, source: io::Error| Error {
            source: Some(source),
            ..Error::new(kind, Act::Size, terms.place.clone(), None)
        };
        let system = |error: io::Error| failed(ErrorKind::of(&error), error);
        // One at a time: a second one finds what the first one has.
        let _looking = lock(&self.looking);
        let wake = Wake::new().map_err(system)?;
        let longest = LONGEST_LOOK.min(lane::longest_try(self.shared.reconnect));
        let deadline = Instant::now() + longest;
        let (wire, found) = connect(&self.shared.addresses, &self.shared.export, &wake, deadline)
            .map_err(|error| {
            let (kind, source) = error.into_parts();
            failed(kind, source)
        })?;
        // Kept until the others are there: some servers end with their last client.
        let connection = Connection::new(lane::next_id(), 0, found.form, wire);
        let result = match terms.check(&found) {
            Err(why) => Err(failed(ErrorKind::Io, io::Error::other(why))),
            Ok(size) if size > terms.size() => {
                self.shared.connect_anew();
                self.wait_for_connection()
            }
            Ok(_) => Ok(()),
        };
        say_goodbye(&connection);
        result
    }

    /// Waits until a request has been answered.
    fn wait_for_connection(&self) -> Result<(), Error> {
        let block = u64::from(self.limits().block);
        let Some(len) = usize::try_from(block.min(self.size()))
            .ok()
            .filter(|len| *len > 0)
        else {
            return Ok(());
        };
        let place = self.shared.terms.place.clone();
        let buffer = AlignedBuffer::zeroed(len)
            .map_err(|error| Error::from_io(error, Act::Size, place, None))?
            .into();
        block_on(self.submit(Operation::Read { buffer, offset: 0 })).result
    }
}

impl Shared {
    /// Gives all connections up, for new ones that have the export's new size.
    fn connect_anew(&self) {
        {
            let mut state = lock(&self.state);
            let has_connections = matches!(
                state.phase,
                Phase::Serving | Phase::Asking | Phase::Replaying(_)
            );
            // Whoever connects anyway finds the new size.
            if !has_connections {
                return;
            }
            tracing::info!(device = %self.terms.place, "the export has grown: connecting anew");
            state.lost("the export has grown".to_owned());
        }
        for wake in &self.wakes {
            wake.wake();
        }
    }
}
