//! What volumes have done, for Prometheus: its text format, over HTTP.

mod http;
mod json;
mod text;

pub use http::{Answer, answer, serve};
pub use json::json;
pub use text::text;

use std::sync::Arc;

use xtent_volume::Volume;

/// A volume that is exported, for metrics.
#[derive(Clone, Debug)]
pub struct Exported {
    /// Name of the export; the label `export`.
    pub name: String,
    /// The volume.
    pub volume: Arc<Volume>,
    /// Clients that have chosen it.
    pub connections: u64,
}
