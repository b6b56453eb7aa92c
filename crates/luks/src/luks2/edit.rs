//! The operations on keyslots. Each derives keys first, without a lock, then
//! takes the exclusive lock, reads afresh, makes sure that what it relied on
//! still stands, and writes.

use std::collections::BTreeMap;

use xtent_secret::SecretBytes;

use super::keyslot::NewKeyslot;
use super::model::{Area, MAX_OBJECTS, Pbkdf2Digest, SlotKdf};
use super::read::{Foreign, Header, OtherCopy, read};
use super::validate::keyslots_area;
use super::{document, write};
use crate::{Device, Error, ErrorKind, KdfChoice, KdfLimits, Priority, Unlocked};

/// Bytes of the longest key that an unbound keyslot takes, as cryptsetup has it.
const LONGEST_UNBOUND: usize = 512;

/// The hash of the AF splitter where the user names none.
const DEFAULT_HASH: &str = "sha256";

/// See [`Device::unlock`].
pub(crate) fn unlock(
    device: &Device,
    passphrase: &SecretBytes,
    keyslot: Option<u32>,
    limits: &KdfLimits,
) -> Result<Unlocked, Error> {
    let (header, materials) = snapshot(device, keyslot)?;
    open(
        &header,
        materials,
        passphrase,
        Wanted::volume(keyslot),
        limits,
    )
}

/// See [`Device::unlock_any`].
pub(crate) fn unlock_any(
    device: &Device,
    passphrase: &SecretBytes,
    keyslot: Option<u32>,
    limits: &KdfLimits,
) -> Result<Unlocked, Error> {
    let (header, materials) = snapshot(device, keyslot)?;
    let wanted = Wanted {
        only: keyslot,
        unbound_too: true,
    };
    open(&header, materials, passphrase, wanted, limits)
}

/// See [`Device::unlock_with_volume_key`].
pub(crate) fn is_volume_key(
    device: &Device,
    key: &SecretBytes,
    limits: &KdfLimits,
) -> Result<bool, Error> {
    let header = read_shared(device)?;
    header.requirements_met()?;
    let (_, digest) = header.metadata.volume_digest()?;
    Ok(header.key_length().is_none_or(|length| length == key.len())
        && digest.verify(key, limits)?)
}

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
/// tokens; its new area is in use before the old one is wiped.
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
    let header = read(&*device.store, Foreign::Refuse)?;
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
    let mut header = header.with_text(text)?;
    header.check_writable()?;
    device.store.write_at(&new.material, area.offset)?;
    device.store.flush()?;
    header.write(&*device.store)?;
    write::wipe(&*device.store, before.area)?;
    Ok(keyslot)
}

/// See [`Device::kill_slot`]. The key material is wiped before the slot goes from both
/// copies: what no header names any more has left nothing behind. After a cut in between
/// the slot is still there, opens no more, and can be killed again.
pub(crate) fn kill_slot(device: &Device, keyslot: u32, even_last: bool) -> Result<(), Error> {
    let _lock = device.lock.exclusive()?;
    let header = read(&*device.store, Foreign::Refuse)?;
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
    let header = read(&*device.store, Foreign::Refuse)?;
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
fn kill(device: &Device, header: &Header, keyslot: u32, even_last: bool) -> Result<(), Error> {
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
    let header = read(&*device.store, Foreign::Refuse)?;
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

/// As [`update`] with key material, which is on the disk before the header
/// names its area.
fn update_with_material<T>(
    device: &Device,
    material: &[u8],
    change: impl FnOnce(&Header) -> Result<(Header, Area, T), Error>,
) -> Result<T, Error> {
    let _lock = device.lock.exclusive()?;
    let header = read(&*device.store, Foreign::Refuse)?;
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
    let header = read(&*device.store, Foreign::Refuse)?;
    header.requirements_met()?;
    let (mut header, value) = change(&header)?;
    header.check_writable()?;
    header.write(&*device.store)?;
    Ok(value)
}

/// See [`Device::repair`].
pub(crate) fn repair(device: &Device) -> Result<bool, Error> {
    let _lock = device.lock.exclusive()?;
    let mut header = read(&*device.store, Foreign::Overwrite)?;
    if header.other == OtherCopy::Same {
        return Ok(false);
    }
    header.repair(&*device.store)?;
    Ok(true)
}

/// Reads the header under the shared lock.
pub(crate) fn read_shared(device: &Device) -> Result<Header, Error> {
    let _lock = device.lock.shared()?;
    read(&*device.store, Foreign::Refuse)
}

/// Encrypted key material by keyslot. A bad sector in one keyslot's area is no
/// reason not to try the others.
type Materials = BTreeMap<u32, Result<Vec<u8>, Error>>;

/// The header and the key material that it names, from one moment.
fn snapshot(device: &Device, keyslot: Option<u32>) -> Result<(Header, Materials), Error> {
    let _lock = device.lock.shared()?;
    let header = read(&*device.store, Foreign::Refuse)?;
    let mut materials = Materials::new();
    for (id, slot) in &header.metadata.keyslots {
        if slot.luks2.is_some() && keyslot.is_none_or(|only| only == *id) {
            let material = slot
                .material_size()
                .and_then(|size| write::read_area(&*device.store, slot.area, size));
            materials.insert(*id, material);
        }
    }
    Ok((header, materials))
}

/// Which keyslots to try.
#[derive(Clone, Copy)]
struct Wanted {
    /// This one only.
    only: Option<u32>,
    /// Those whose key is not the volume's, too.
    unbound_too: bool,
}

impl Wanted {
    fn volume(only: Option<u32>) -> Self {
        Self {
            only,
            unbound_too: false,
        }
    }
}

/// Tries the keyslots that `passphrase` may open, by priority and number.
fn open(
    header: &Header,
    mut materials: Materials,
    passphrase: &SecretBytes,
    wanted: Wanted,
    limits: &KdfLimits,
) -> Result<Unlocked, Error> {
    header.requirements_met()?;
    let budget = limits.start();
    // A slot that cannot be tried does not keep the others from being tried,
    // but if none opens, it is what the user must know about.
    let mut trouble = None;
    let mut tried = false;
    for keyslot in header.candidates(wanted)? {
        tracing::debug!(keyslot, "trying the passphrase on a keyslot");
        let mut attempt = || -> Result<_, Error> {
            let slot = &header.metadata.keyslots[&keyslot];
            slot.luks2()?;
            let digest = header
                .metadata
                .digests_of_keyslot(keyslot)
                .next()
                .and_then(|id| header.metadata.digests.get(&id))
                .ok_or_else(|| Error::corrupt("no digest"))?;
            let material = materials
                .remove(&keyslot)
                .ok_or_else(|| Error::corrupt("no key material"))??;
            let key = slot.open(&material, passphrase, &budget.left())?;
            Ok(digest.verify(&key, &budget.left())?.then_some(key))
        };
        match attempt() {
            Ok(Some(key)) => {
                let salt = header.salt(keyslot).unwrap_or_default().to_vec();
                let keyslot = Some(keyslot);
                return Ok(Unlocked { key, keyslot, salt });
            }
            Ok(None) => tried = true,
            Err(mut error) => {
                tracing::debug!(keyslot, %error, "the keyslot could not be tried");
                error.message = format!("keyslot {keyslot}: {}", error.message);
                trouble.get_or_insert(error);
            }
        }
    }
    match trouble {
        Some(mut error) => {
            if tried {
                error.message = format!(
                    "no keyslot that could be tried opens with this passphrase; {}",
                    error.message
                );
            }
            Err(error)
        }
        None if tried => Err(Error::new(
            ErrorKind::WrongPassphrase,
            match wanted.only {
                Some(keyslot) => format!("this passphrase does not open keyslot {keyslot}"),
                None => "no keyslot opens with this passphrase".to_owned(),
            },
        )),
        None => Err(header.nothing_to_try()?),
    }
}

impl Header {
    /// The error where no keyslot was tried and none was named: either those
    /// that open are tried only when named, or there are none.
    fn nothing_to_try(&self) -> Result<Error, Error> {
        let openers: Vec<String> = self.openers()?.iter().map(u32::to_string).collect();
        Ok(match &openers[..] {
            [] => Error::new(
                ErrorKind::Keyslot,
                "no keyslot of the volume opens it: restore the header from a backup, or give the \
                 volume key itself (--volume-key-file) if it was saved",
            ),
            [only] => Error::new(
                ErrorKind::OnlyNamed,
                format!(
                    "keyslot {only} has priority \"ignore\": it is tried only when it is named"
                ),
            ),
            [others @ .., last] => Error::new(
                ErrorKind::OnlyNamed,
                format!(
                    "keyslots {} and {last} have priority \"ignore\": they are tried only when named",
                    others.join(", ")
                ),
            ),
        })
    }

    /// The salt of a keyslot whose derivation is known.
    fn salt(&self, keyslot: u32) -> Option<&[u8]> {
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

    /// The keyslots to try, in order.
    fn candidates(&self, wanted: Wanted) -> Result<Vec<u32>, Error> {
        let openers: Vec<u32> = if wanted.unbound_too {
            let keyslots = &self.metadata.keyslots;
            keyslots
                .iter()
                .filter(|(_, slot)| slot.luks2.is_some())
                .map(|(id, _)| *id)
                .collect()
        } else {
            self.openers()?
        };
        if let Some(only) = wanted.only {
            let Some(slot) = self.metadata.keyslots.get(&only) else {
                return Err(not_in_use(only));
            };
            slot.luks2().map_err(|mut error| {
                error.message = format!("keyslot {only}: {}", error.message);
                error
            })?;
            if !openers.contains(&only) {
                return Err(Error::new(
                    ErrorKind::Keyslot,
                    format!("keyslot {only} holds a key that is not the volume's"),
                ));
            }
            return Ok(vec![only]);
        }
        let with = |priority| {
            openers
                .iter()
                .copied()
                .filter(move |id| self.metadata.keyslots[id].priority == priority)
        };
        Ok(with(Priority::Prefer)
            .chain(with(Priority::Normal))
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

    /// The text without `keyslots`, and without any mention of them.
    fn text_without(&self, keyslots: &[u32]) -> Result<String, Error> {
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

    /// Whether there can be another update, and its text fits its area: asked
    /// before anything is written.
    fn check_writable(&self) -> Result<(), Error> {
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
    serde_json::to_string(value).map_err(|error| {
        Error::options(format!("cannot write LUKS2 metadata: {error}")).caused_by(error)
    })
}
