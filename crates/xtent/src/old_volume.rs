//! A LUKS volume that would be overwritten.

use std::path::PathBuf;

use xtent_luks::find_traces;

use crate::args::ConfirmArgs;
use crate::confirm::confirm_by;
use crate::disk::Disk;
use crate::failure::{Failure, Result};

/// It, or what is left of one.
pub(crate) struct OldVolume {
    device: PathBuf,
    what: &'static str,
    offset: u64,
    uuid: Option<String>,
}

impl OldVolume {
    /// The one on `store`, if there is one or what is left of one.
    ///
    /// # Errors
    /// If a place cannot be read where one might be.
    pub(crate) fn find(store: &Disk) -> Result<Option<Self>> {
        let traces = find_traces(&**store).map_err(|e| {
            Failure::from(e).advise(
                "What cannot be read may be a volume, so nothing was written. If there is none \
                 that anybody needs, overwrite the start of the device with zeros first.",
            )
        })?;
        let Some(first) = traces.first() else {
            return Ok(None);
        };
        Ok(Some(Self {
            device: store.path().to_owned(),
            what: first.what,
            offset: first.offset,
            uuid: traces.iter().find_map(|trace| trace.uuid.clone()),
        }))
    }

    /// Asks for its UUID, unless an option says that it may go.
    pub(crate) fn give_up(&self, may_go: bool, confirm: ConfirmArgs) -> Result<()> {
        if may_go {
            return Ok(());
        }
        let (device, what) = (self.device.display(), self.what);
        let (name, word) = match &self.uuid {
            Some(uuid) => (format!(" with the UUID {uuid}"), uuid.as_str()),
            None => (String::new(), "DESTROY"),
        };
        let found = format!("{device} has a {what}{name} at byte {}.", self.offset);
        if confirm.batch_mode {
            return Err(Failure::parameters(format!("{found} Nothing was changed."))
                .advise("--batch-mode does not give a volume up; --overwrite-luks does."));
        }
        let what_to_type = match self.uuid {
            Some(_) => "its UUID",
            None => "DESTROY",
        };
        confirm_by(
            &format!("{found} Nobody will be able to read that volume again."),
            &format!("To destroy it type {what_to_type}: "),
            word,
        )
    }
}
