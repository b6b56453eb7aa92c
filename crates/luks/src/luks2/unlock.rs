//! Unlocking: which keyslots a passphrase is tried on, and what it says when none opens.

use std::collections::BTreeMap;

use xtent_secret::SecretBytes;

use super::edit::{not_in_use, read_shared};
use super::read::{Foreign, Header, read_expected};
use super::write;
use crate::tries::Tries;
use crate::{Device, Error, ErrorKind, KdfLimits, Priority, Unlocked};

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
    // HMAC takes a key and the same with zeros behind it for one (RFC 2104, section 2), so a digest does not tell these apart.
    let has_its_length = match header.key_length() {
        Some(length) => length == key.len(),
        None => header.takes_keys_of(key.len()),
    };
    Ok(has_its_length && digest.verify(key, limits)?)
}

/// Encrypted key material by keyslot. A bad sector in one keyslot's area is no
/// reason not to try the others.
pub(super) type Materials = BTreeMap<u32, Result<Vec<u8>, Error>>;

/// The header and the key material that it names, from one moment.
pub(super) fn snapshot(
    device: &Device,
    keyslot: Option<u32>,
) -> Result<(Header, Materials), Error> {
    let _lock = device.lock.shared()?;
    let header = read_expected(device, Foreign::Refuse)?;
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
pub(super) struct Wanted {
    /// This one only.
    only: Option<u32>,
    /// Those whose key is not the volume's, too.
    unbound_too: bool,
}

impl Wanted {
    pub(super) fn volume(only: Option<u32>) -> Self {
        Self {
            only,
            unbound_too: false,
        }
    }
}

/// Tries the keyslots that `passphrase` may open, by priority and number.
pub(super) fn open(
    header: &Header,
    mut materials: Materials,
    passphrase: &SecretBytes,
    wanted: Wanted,
    limits: &KdfLimits,
) -> Result<Unlocked, Error> {
    header.requirements_met()?;
    let budget = limits.start();
    let mut tries = Tries::default();
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
            Ok(None) => tries.does_not_open(),
            Err(error) => tries.failed(keyslot, error),
        }
    }
    match tries.end()? {
        true => Err(Error::new(
            ErrorKind::WrongPassphrase,
            match wanted.only {
                Some(keyslot) => format!("this passphrase does not open keyslot {keyslot}"),
                None => "no keyslot opens with this passphrase".to_owned(),
            },
        )),
        false => Err(header.nothing_to_try()?),
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
}
