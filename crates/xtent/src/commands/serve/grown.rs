//! Volumes that grow while they are served.

use std::sync::Arc;

use crate::failure::Result;
use crate::growth::{Changes, Grown};
use crate::output::Output;
use crate::registry::Entry;
use crate::size::show_size;
use crate::volumes::Volumes;
use crate::wanted::Opened;

/// What the volumes' devices tell, under the names of their exports.
pub(super) fn changes(opened: &[Opened]) -> Changes<String> {
    let changes = Changes::new();
    for one in opened {
        if let Some(image) = &one.image {
            changes.of(image, one.name.clone());
        }
    }
    changes
}

/// Lets volumes grow with the devices that tell.
pub(super) fn follow(
    changes: Changes<String>,
    volumes: &Arc<Volumes>,
    output: Output,
) -> Result<()> {
    let volumes = Arc::clone(volumes);
    changes.follow(move |names| tell(volumes.look_at(|name| names.contains(name)), &output))
}

/// Says what has grown.
pub(super) fn tell(grown: Vec<(Entry, Grown)>, output: &Output) {
    for (entry, Grown { before, now }) in grown {
        let which = match entry.export.as_deref() {
            None | Some("") => "The volume".to_owned(),
            Some(name) => format!("The volume {name}"),
        };
        output.note(format!(
            "{which} has grown from {} to {}. NBD clients that connect from now on see that: the \
             protocol has no way to tell the others.",
            show_size(before),
            show_size(now)
        ));
    }
}
