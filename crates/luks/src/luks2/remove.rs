//! Keyslots removed: their names from the header, then their key material.

use super::edit::not_in_use;
use super::read::{Foreign, Header, read_expected};
use super::validate::keyslots_area;
use super::{document, write};
use crate::{Device, Error, ErrorKind, Unlocked};

/// See [`Device::kill_slot`]. The key material is wiped before the slot goes from both
/// copies: what no header names any more has left nothing behind. After a cut in between
/// the slot is still there, opens no more, and can be killed again.
pub(crate) fn kill_slot(device: &Device, keyslot: u32, even_last: bool) -> Result<(), Error> {
    let _lock = device.lock.exclusive()?;
    let header = read_expected(device, Foreign::Refuse)?;
    kill(device, &header, keyslot, even_last)
}

/// See [`Device::remove_key`].
pub(crate) fn remove_key(
    device: &Device,
    unlocked: &Unlocked,
    even_last: bool,
) -> Result<(), Error> {
    let keyslot = unlocked.of_keyslot()?;
    let _lock = device.lock.exclusive()?;
    let header = read_expected(device, Foreign::Refuse)?;
    if header
        .salt(keyslot)
        .is_some_and(|salt| salt != unlocked.salt)
    {
        return Err(Error::new(
            ErrorKind::Changed,
            format!("keyslot {keyslot} holds another key by now: nothing was removed"),
        ));
    }
    kill(device, &header, keyslot, even_last)
}

/// Under the caller's lock.
pub(super) fn kill(
    device: &Device,
    header: &Header,
    keyslot: u32,
    even_last: bool,
) -> Result<(), Error> {
    header.requirements_met()?;
    let Some(slot) = header.metadata.keyslots.get(&keyslot) else {
        return Err(not_in_use(keyslot));
    };
    let area = slot.area;
    let openers = header.openers()?;
    if openers == [keyslot] && !even_last {
        return Err(Error::new(
            ErrorKind::LastKeyslot,
            format!(
                "keyslot {keyslot} is the last one that opens this volume: without it the data is gone for good"
            ),
        ));
    }
    let mut header = header.with_text(header.text_without(&[keyslot])?)?;
    header.check_writable()?;
    // Where that fails it is at least forgotten.
    let wiped = write::wipe(&*device.store, area);
    header.write(&*device.store)?;
    wiped
}

/// See [`Device::erase`]. The whole keyslots area is wiped, with whatever an
/// interrupted operation may have left there.
pub(crate) fn erase(device: &Device) -> Result<(), Error> {
    let _lock = device.lock.exclusive()?;
    let header = read_expected(device, Foreign::Refuse)?;
    header.requirements_met()?;
    let all: Vec<u32> = header.metadata.keyslots.keys().copied().collect();
    let mut header = header.with_text(header.text_without(&all)?)?;
    header.check_writable()?;
    let area = keyslots_area(header.binary.size, header.metadata.config.keyslots_size);
    // Where that fails they are at least forgotten.
    let wiped = write::wipe(&*device.store, area);
    header.write(&*device.store)?;
    wiped
}

impl Header {
    /// The text without `keyslots`, and without any mention of them.
    pub(super) fn text_without(&self, keyslots: &[u32]) -> Result<String, Error> {
        let mut text = self.text.clone();
        for keyslot in keyslots {
            let name = keyslot.to_string();
            for (id, token) in &self.metadata.tokens {
                if token.keyslots.contains(keyslot) {
                    text = document::remove_item(
                        &text,
                        &["tokens", &id.to_string(), "keyslots"],
                        &name,
                    )?;
                }
            }
            for id in self.metadata.digests_of_keyslot(*keyslot) {
                text =
                    document::remove_item(&text, &["digests", &id.to_string(), "keyslots"], &name)?;
            }
            text = document::remove(&text, &["keyslots"], &name)?;
        }
        // A digest that is left with nothing to belong to goes too.
        for (id, digest) in &self.metadata.digests {
            let left = digest.keyslots.iter().any(|id| !keyslots.contains(id));
            if !left && !digest.keyslots.is_empty() && digest.segments.is_empty() {
                text = document::remove(&text, &["digests"], &id.to_string())?;
            }
        }
        Ok(text)
    }
}
