//! Volumes that grow while they are served.

use std::sync::Arc;

use crate::failure::Result;
use crate::growth::{Changes, Grown, Told};
use crate::output::Output;
use crate::registry::Entry;
use crate::size::show_size;
use crate::volumes::Volumes;
use crate::wanted::Opened;

/// What may have grown: an export, or all of them.
pub(super) type Which = Option<String>;

/// Where the volumes' devices tell, under the names of their exports.
pub(super) fn changes(opened: &[Opened]) -> (Changes<Which>, Told<Which>) {
    let (changes, told) = Changes::new();
    for one in opened {
        if let Some(image) = &one.image {
            changes.of(image, Some(one.name.clone()));
        }
    }
    (changes, told)
}

/// Lets volumes grow with the devices that tell.
pub(super) fn follow(told: Told<Which>, volumes: &Arc<Volumes>, output: Output) -> Result<()> {
    let (asked, volumes) = (Arc::clone(volumes), Arc::clone(volumes));
    let changed = move || asked.changed().into_iter().map(Some).collect();
    told.follow(changed, move |names| {
        let is_meant = |name: &str| names.contains(&None) || names.contains(&Some(name.to_owned()));
        tell(volumes.look_at(is_meant), &output);
    })
}

/// Says what has grown.
fn tell(grown: Vec<(Entry, Grown)>, output: &Output) {
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
