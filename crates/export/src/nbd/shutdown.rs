//! What a connection ends with.

use std::sync::Arc;
use std::time::Instant;

use super::exports::Served;
use crate::Shutdown;

/// What a connection ends with: the server, and its export once it has chosen one.
#[derive(Clone)]
pub(super) struct Ending {
    server: Shutdown,
    export: Option<Arc<Served>>,
}

impl Ending {
    /// With the server.
    pub(super) fn of_server(server: &Shutdown) -> Self {
        Self {
            server: server.clone(),
            export: None,
        }
    }

    /// And with this export, whichever is first.
    pub(super) fn or_of(&self, export: &Arc<Served>) -> Self {
        Self {
            server: self.server.clone(),
            export: Some(Arc::clone(export)),
        }
    }

    /// When it was told to end, if it was.
    pub(super) fn at(&self) -> Option<Instant> {
        let export = self.export.as_ref().and_then(|export| export.ended_at());
        let server = self.server.triggered_at();
        export.into_iter().chain(server).min()
    }

    /// Whether it was told to end.
    pub(super) fn is_here(&self) -> bool {
        self.at().is_some()
    }
}
