//! What can be changed of a header apart from keys and tokens, all in one
//! update.

use super::binary::padded;
use super::document;
use super::edit::{json, not_in_use, update};
use super::read::Header;
use crate::{Changes, Device, Error, PERSISTENT_FLAGS, Priority};

/// See [`Device::configure`].
pub(crate) fn configure(device: &Device, changes: &Changes) -> Result<(), Error> {
    // Everything that the options alone decide, before a lock is taken.
    let uuid = changes
        .uuid
        .as_deref()
        .map(|uuid| crate::uuid::choose(Some(uuid)))
        .transpose()?;
    let (set, clear) = (&changes.set_flags, &changes.clear_flags);
    if let Some(unknown) = set
        .iter()
        .chain(clear)
        .find(|flag| !PERSISTENT_FLAGS.contains(&flag.as_str()))
    {
        return Err(Error::options(format!(
            "there is no flag '{}'; known are {}",
            unknown.escape_debug(),
            PERSISTENT_FLAGS.join(", ")
        )));
    }
    if let Some(both) = set.iter().find(|flag| clear.contains(flag)) {
        return Err(Error::options(format!(
            "flag {both} is to be set and to be cleared"
        )));
    }
    update(device, |header| {
        let mut header = header.with_text(text(header, changes)?)?;
        if let Some(uuid) = &uuid {
            header.binary.uuid =
                padded(uuid).ok_or_else(|| Error::options("the UUID is too long"))?;
        }
        for (what, text, field) in [
            ("label", &changes.label, &mut header.binary.label),
            (
                "subsystem",
                &changes.subsystem,
                &mut header.binary.subsystem,
            ),
        ] {
            if let Some(text) = text {
                *field = padded(text).ok_or_else(|| {
                    Error::options(format!("the {what} has more than 47 bytes, or a NUL"))
                })?;
            }
        }
        Ok((header, ()))
    })
}

/// The JSON text with the changes that are in it.
fn text(header: &Header, changes: &Changes) -> Result<String, Error> {
    let mut text = header.text.clone();
    if let Some((keyslot, priority)) = changes.priority {
        if !header.metadata.keyslots.contains_key(&keyslot) {
            return Err(not_in_use(keyslot));
        }
        let name = keyslot.to_string();
        let path = ["keyslots", name.as_str()];
        // As cryptsetup has it: normal is not written.
        text = match priority {
            Priority::Normal => document::remove(&text, &path, "priority")?,
            Priority::Ignore => document::set(&text, &path, "priority", "0".into())?,
            Priority::Prefer => document::set(&text, &path, "priority", "2".into())?,
        };
    }
    if !changes.set_flags.is_empty() || !changes.clear_flags.is_empty() {
        // Those that nobody here knows stay.
        let mut flags = header.metadata.config.flags.clone();
        flags.retain(|flag| !changes.clear_flags.contains(flag));
        for flag in &changes.set_flags {
            if !flags.contains(flag) {
                flags.push(flag.clone());
            }
        }
        text = document::set(&text, &["config"], "flags", json(&flags)?)?;
    }
    Ok(text)
}
