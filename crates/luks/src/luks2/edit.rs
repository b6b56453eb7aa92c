//! The operations that add and change keyslots. Each derives keys first, without a lock, then
//! takes the exclusive lock, reads afresh, makes sure that what it relied on
//! still stands, and writes.

use xtent_secret::SecretBytes;

use super::keyslot::NewKeyslot;
use super::model::{Area, MAX_OBJECTS, Pbkdf2Digest, SlotKdf};
use super::read::{Foreign, Header, OtherCopy, read_expected};
use super::unlock::{Wanted, open, snapshot};
use super::{document, remove, signature, write};
use crate::{Device, Error, ErrorKind, KdfChoice, KdfLimits, Unlocked};

/// Bytes of the longest key that an unbound keyslot takes, as cryptsetup has it.
const LONGEST_UNBOUND: usize = 512;

/// The hash of the AF splitter where the user names none.
const DEFAULT_HASH: &str = "sha256";

/// See [`Device::add_unbound_key`].
pub(crate) fn add_unbound_key(
    device: &Device,
    key: &SecretBytes,
    passphrase: &SecretBytes,
    keyslot: Option<u32>,
    kdf: &KdfChoice,
) -> Result<u32, Error> {
    if !(1..=LONGEST_UNBOUND).contains(&key.len()) {
        return Err(Error::options(format!(
            "a key of {} bytes: possible are 1 to {LONGEST_UNBOUND}",
            key.len()
        )));
    }
    let seen = read_shared(device)?;
    seen.requirements_met()?;
    seen.free_keyslot(keyslot)?;
    let new = NewKeyslot::new(key, passphrase, kdf, af_hash(kdf))?;
    let digest = Pbkdf2Digest::new(key, af_hash(kdf), kdf.force_iterations.is_none())?;
    update_with_material(device, &new.material, |header| {
        let keyslot = header.free_keyslot(keyslot)?;
        let area = header.find_gap(new.area_size())?;
        let digests = &header.metadata.digests;
        let id = (0..MAX_OBJECTS)
            .find(|id| !digests.contains_key(id))
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::Full,
                    "all 32 digests are in use: remove a keyslot first",
                )
            })?;
        let name = keyslot.to_string();
        let text = document::set(&header.text, &["keyslots"], &name, json(&new.json(area))?)?;
        let digest = json(&digest.json(keyslot, &[]))?;
        let text = document::set(&text, &["digests"], &id.to_string(), digest)?;
        Ok((header.with_text(text)?, area, keyslot))
    })
}

/// See [`Device::add_key`].
pub(crate) fn add_key(
    device: &Device,
    unlocked: &Unlocked,
    new: &SecretBytes,
    keyslot: Option<u32>,
    kdf: &KdfChoice,
) -> Result<u32, Error> {
    let seen = read_shared(device)?;
    seen.requirements_met()?;
    seen.free_keyslot(keyslot)?;
    let (digest_id, digest) = seen.metadata.volume_digest()?;
    // Unlocking has just paid the same cost.
    if !digest.verify(&unlocked.key, &KdfLimits { longest: None })? {
        return Err(Error::new(
            ErrorKind::Changed,
            "the key is not this volume's: the header was replaced, unlock again",
        ));
    }
    let new = NewKeyslot::new(&unlocked.key, new, kdf, af_hash(kdf))?;
    update_with_material(device, &new.material, |header| {
        header.still_has_digest_of(&seen)?;
        let keyslot = header.free_keyslot(keyslot)?;
        let area = header.find_gap(new.area_size())?;
        let name = keyslot.to_string();
        let text = document::set(&header.text, &["keyslots"], &name, json(&new.json(area))?)?;
        let text = document::push_item(
            &text,
            &["digests", &digest_id.to_string(), "keyslots"],
            &name,
        )?;
        Ok((header.with_text(text)?, area, keyslot))
    })
}

/// See [`Device::change_key`]. The slot keeps its number, its priority and its
/// tokens; its new area is in use before the old one is wiped. Until that is done the old
/// one has a number of its own and priority 0, so that after a cut the header says what is
/// left, and it can be killed.
pub(crate) fn change_key(
    device: &Device,
    old: &SecretBytes,
    keyslot: Option<u32>,
    new: &SecretBytes,
    kdf: &KdfChoice,
    limits: &KdfLimits,
) -> Result<u32, Error> {
    let (seen, materials) = snapshot(device, keyslot)?;
    seen.requirements_met()?;
    let unlocked = open(&seen, materials, old, Wanted::volume(keyslot), limits)?;
    let keyslot = unlocked.of_keyslot()?;
    let new = NewKeyslot::new(&unlocked.key, new, kdf, af_hash(kdf))?;

    let _lock = device.lock.exclusive()?;
    let header = read_expected(device, Foreign::Refuse)?;
    header.still_has_digest_of(&seen)?;
    let Some(before) = header
        .metadata
        .keyslots
        .get(&keyslot)
        .filter(|now| seen.metadata.keyslots.get(&keyslot) == Some(now))
        .cloned()
    else {
        return Err(Error::new(
            ErrorKind::Changed,
            format!("keyslot {keyslot} was changed by somebody else in the meantime; try again"),
        ));
    };
    let area = header.find_gap(new.area_size()).map_err(|mut error| {
        error.message = format!(
            "changing keyslot {keyslot} safely needs room for a second copy: {}",
            error.message
        );
        error
    })?;
    let name = keyslot.to_string();
    let path = ["keyslots", name.as_str()];
    let parts = new.json(area);
    let mut text = document::set(&header.text, &path, "key_size", json(&parts.key_size)?)?;
    text = document::set(&text, &path, "af", json(&parts.af)?)?;
    text = document::set(&text, &path, "area", json(&parts.area)?)?;
    text = document::set(&text, &path, "kdf", json(&parts.kdf)?)?;
    let old = document::raw(&header.text, &["keyslots"], &name)?;
    let mut header = header.with_text(text)?;
    header.check_writable()?;
    let named = header.with_spare(&old);
    device.store.write_at(&new.material, area.offset)?;
    device.store.flush()?;
    match named {
        Some((mut header, spare)) => {
            header.write(&*device.store)?;
            remove::kill(device, &header, spare, true).map_err(|mut error| {
                error.message = format!(
                    "the new key is in keyslot {keyslot}, but what the old one left, keyslot {spare} now, \
                     could not be removed, kill that keyslot: {}",
                    error.message
                );
                error
            })?;
        }
        None => {
            header.write(&*device.store)?;
            write::wipe(&*device.store, before.area)?;
        }
    }
    Ok(keyslot)
}

/// As [`update`] with key material, which is on the disk before the header
/// names its area.
fn update_with_material<T>(
    device: &Device,
    material: &[u8],
    change: impl FnOnce(&Header) -> Result<(Header, Area, T), Error>,
) -> Result<T, Error> {
    let _lock = device.lock.exclusive()?;
    let header = read_expected(device, Foreign::Refuse)?;
    header.requirements_met()?;
    let (mut header, area, value) = change(&header)?;
    header.check_writable()?;
    device.store.write_at(material, area.offset)?;
    device.store.flush()?;
    header.write(&*device.store)?;
    Ok(value)
}

/// Replaces the header by what `change` makes of it, in one update.
pub(crate) fn update<T>(
    device: &Device,
    change: impl FnOnce(&Header) -> Result<(Header, T), Error>,
) -> Result<T, Error> {
    let _lock = device.lock.exclusive()?;
    let header = read_expected(device, Foreign::Refuse)?;
    header.requirements_met()?;
    let (mut header, value) = change(&header)?;
    header.check_writable()?;
    header.write(&*device.store)?;
    Ok(value)
}

/// See [`Device::overwritten_by_repair`].
pub(crate) fn overwritten_by_repair(device: &Device) -> Result<Option<&'static str>, Error> {
    let _lock = device.lock.shared()?;
    let header = read_expected(device, Foreign::Overwrite)?;
    Ok(match header.other {
        OtherCopy::Bad => signature::find(&*device.store),
        OtherCopy::Same | OtherCopy::Stale => None,
    })
}

/// See [`Device::repair`].
pub(crate) fn repair(device: &Device) -> Result<bool, Error> {
    let _lock = device.lock.exclusive()?;
    let mut header = read_expected(device, Foreign::Overwrite)?;
    if header.other == OtherCopy::Same {
        return Ok(false);
    }
    header.repair(&*device.store)?;
    Ok(true)
}

/// Reads the header under the shared lock.
pub(crate) fn read_shared(device: &Device) -> Result<Header, Error> {
    let _lock = device.lock.shared()?;
    read_expected(device, Foreign::Refuse)
}

impl Header {
    /// The salt of a keyslot whose derivation is known.
    pub(super) fn salt(&self, keyslot: u32) -> Option<&[u8]> {
        match &self.metadata.keyslots.get(&keyslot)?.luks2.as_ref()?.kdf {
            SlotKdf::Known { salt, .. } => Some(salt),
            SlotKdf::Unknown(_) => None,
        }
    }

    /// Refuses what needs more than this crate has. Reading, dumps and
    /// backups need nothing.
    pub(crate) fn requirements_met(&self) -> Result<(), Error> {
        let Some(requirement) = self.metadata.config.requirements.first() else {
            return Ok(());
        };
        let name = requirement.escape_debug();
        let is_reencryption = super::validate::is_online_reencryption(requirement)
            || requirement == "offline-reencrypt";
        Err(Error::unsupported(if is_reencryption {
            format!(
                "the volume is being reencrypted (\"{name}\"): finish with `cryptsetup reencrypt --resume-only`"
            )
        } else {
            format!(
                "the volume requires \"{name}\", which is not supported: use the program that made it"
            )
        }))
    }

    /// Keyslots that can hold the volume key, ascending.
    pub(crate) fn openers(&self) -> Result<Vec<u32>, Error> {
        let (_, digest) = self.metadata.volume_digest()?;
        Ok(self
            .metadata
            .keyslots
            .iter()
            .filter(|(id, slot)| slot.luks2.is_some() && digest.keyslots.contains(id))
            .map(|(id, _)| *id)
            .collect())
    }

    /// `wanted` if it is free, or the first free keyslot.
    fn free_keyslot(&self, wanted: Option<u32>) -> Result<u32, Error> {
        let used = |id: &u32| self.metadata.keyslots.contains_key(id);
        match wanted {
            Some(wanted) if wanted >= MAX_OBJECTS => Err(Error::new(
                ErrorKind::Keyslot,
                format!(
                    "there is no keyslot {wanted}: LUKS2 has 0 to {}",
                    MAX_OBJECTS - 1
                ),
            )),
            Some(wanted) if used(&wanted) => Err(Error::new(
                ErrorKind::Keyslot,
                format!("keyslot {wanted} is in use: remove its key first, or choose another one"),
            )),
            Some(wanted) => Ok(wanted),
            None => (0..MAX_OBJECTS).find(|id| !used(id)).ok_or_else(|| {
                Error::new(
                    ErrorKind::Full,
                    "all 32 keyslots are in use: remove one first",
                )
            }),
        }
    }

    /// The same header with one keyslot of the volume more, which is tried by its number
    /// only, and that number; none if no number is free, or no room in the text.
    fn with_spare(&self, json: &str) -> Option<(Self, u32)> {
        let number = self.free_keyslot(None).ok()?;
        let name = number.to_string();
        let (digest, _) = self.metadata.volume_digest().ok()?;
        let json = document::set(json, &[], "priority", "0".to_owned()).ok()?;
        let text = document::set(&self.text, &["keyslots"], &name, json).ok()?;
        let digest = digest.to_string();
        let text = document::push_item(&text, &["digests", &digest, "keyslots"], &name).ok()?;
        let header = self.with_text(text).ok()?;
        header.check_writable().ok()?;
        Some((header, number))
    }

    /// Whether the volume key is still the one that was verified.
    fn still_has_digest_of(&self, seen: &Self) -> Result<(), Error> {
        self.requirements_met()?;
        let (now_id, now) = self.metadata.volume_digest()?;
        let (then_id, then) = seen.metadata.volume_digest()?;
        if self.binary.uuid == seen.binary.uuid
            && now_id == then_id
            && now.pbkdf2 == then.pbkdf2
            && now.segments == then.segments
        {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Changed,
            "the header was replaced by somebody else in the meantime; try again",
        ))
    }

    /// Whether there can be another update, and its text fits its area: asked
    /// before anything is written.
    pub(super) fn check_writable(&self) -> Result<(), Error> {
        self.binary
            .encode(super::binary::Which::Primary, &self.text)
            .map(drop)
    }
}

pub(crate) fn not_in_use(keyslot: u32) -> Error {
    Error::new(
        ErrorKind::Keyslot,
        format!("keyslot {keyslot} is not in use"),
    )
}

fn af_hash(kdf: &KdfChoice) -> &str {
    kdf.hash.as_deref().unwrap_or(DEFAULT_HASH)
}

pub(crate) fn json(value: &impl serde::Serialize) -> Result<String, Error> {
    serde_json::to_string(value)
        .map_err(|error| Error::options("cannot write LUKS2 metadata").caused_by(error))
}
