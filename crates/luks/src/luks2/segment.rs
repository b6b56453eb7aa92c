//! What the rest of the program asks a header.

use sector_cipher::CipherSpec;

use super::keyslot::parse_encryption;
use super::model::{Crypt, SlotKdf};
use super::read::{Header, OtherCopy};
use crate::pin::Covered;
use crate::{Error, ErrorKind, Kdf, KeyslotInfo, Segment, null};

impl Header {
    /// Keyslots in use, of any type, ascending.
    pub(crate) fn keyslots(&self) -> Vec<u32> {
        self.metadata.keyslots.keys().copied().collect()
    }

    /// See [`crate::Header::keyslot_info`].
    pub(crate) fn keyslot_info(&self) -> Vec<KeyslotInfo> {
        let volume = self.metadata.volume_digest().map(|(id, _)| id).ok();
        self.metadata
            .keyslots
            .iter()
            .map(|(id, slot)| {
                let kdf = slot.luks2.as_ref().map(|luks2| &luks2.kdf);
                let kdf: Option<Kdf> = match kdf {
                    Some(SlotKdf::Known { kdf, .. }) => Some(kdf.clone()),
                    Some(SlotKdf::Unknown(_)) | None => None,
                };
                let opens_volume = slot.luks2.is_some()
                    && volume.is_some()
                    && self.metadata.digests_of_keyslot(*id).next() == volume;
                KeyslotInfo {
                    keyslot: *id,
                    kind: slot.kind.clone(),
                    priority: slot.priority,
                    kdf,
                    key_length: slot.key_size,
                    opens_volume,
                }
            })
            .collect()
    }

    /// Bytes of volume key, if a keyslot says so.
    pub(crate) fn key_length(&self) -> Option<usize> {
        let opener = *self.openers().ok()?.first()?;
        usize::try_from(self.metadata.keyslots[&opener].key_size).ok()
    }

    /// Whether the volume's cipher has keys of `length` bytes. Of one that is not known here every length is taken.
    pub(crate) fn takes_keys_of(&self, length: usize) -> bool {
        let segment = self.metadata.segments.get(&0);
        let crypt = segment.and_then(|segment| segment.crypt.as_ref());
        let cipher: Option<CipherSpec> = crypt.and_then(|crypt| crypt.encryption.parse().ok());
        cipher.is_none_or(|cipher| cipher.key_lengths().contains(&length))
    }

    pub(crate) fn persistent_flags(&self) -> &[String] {
        &self.metadata.config.flags
    }

    pub(crate) fn is_recovered(&self) -> bool {
        self.other != OtherCopy::Same
    }

    /// The one segment of an ordinary volume.
    pub(crate) fn crypt(&self) -> Result<(&super::model::Segment, &Crypt), Error> {
        self.requirements_met()?;
        let segments = &self.metadata.segments;
        if segments.values().any(|segment| {
            segment.is_backup() || segment.flags.iter().any(|flag| flag == "in-reencryption")
        }) {
            return Err(Error::unsupported(
                "the volume is being reencrypted: finish with `cryptsetup reencrypt --resume-only`",
            ));
        }
        let (Some(segment), 1) = (segments.get(&0), segments.len()) else {
            return Err(Error::unsupported(format!(
                "volumes of {} segments are not supported",
                segments.len()
            )));
        };
        let Some(crypt) = &segment.crypt else {
            return Err(Error::unsupported(format!(
                "segments of type \"{}\" are not supported",
                segment.kind.escape_debug()
            )));
        };
        if let Some(integrity) = &crypt.integrity {
            return Err(Error {
                advice: Some(
                    "That takes the kernel's dm-crypt and dm-integrity, which cryptsetup sets up: \
                     `cryptsetup open DEVICE NAME` opens it.",
                ),
                ..Error::unsupported(format!(
                    "the volume has integrity protection (\"{}\"), which Xtent does not have",
                    integrity.escape_debug()
                ))
            });
        }
        Ok((segment, crypt))
    }

    /// What a pin of the volume covers.
    pub(crate) fn covered(&self) -> Result<Covered, Error> {
        let (segment, crypt) = self.crypt()?;
        let (_, digest) = self.metadata.volume_digest()?;
        let Some(pbkdf2) = &digest.pbkdf2 else {
            return Err(Error::unsupported(format!(
                "digest type \"{}\" is not supported",
                digest.kind.escape_debug()
            )));
        };
        Ok(Covered {
            cipher: crypt.encryption.clone(),
            sector: crypt.sector_size,
            offset: segment.offset,
            size: segment.size,
            tweak: crypt.iv_tweak,
            hash: pbkdf2.hash.clone(),
            iterations: pbkdf2.iterations,
            salt: pbkdf2.salt.clone(),
            digest: pbkdf2.digest.clone(),
        })
    }

    /// Fails if data or a keyslot that opens the volume have the null cipher.
    fn refuse_null(&self, crypt: &Crypt) -> Result<(), Error> {
        null::refuse(&crypt.encryption, "the data")?;
        for id in self.openers()? {
            if let Some(luks2) = &self.metadata.keyslots[&id].luks2 {
                null::refuse(&luks2.encryption, &format!("the key in keyslot {id}"))?;
            }
        }
        Ok(())
    }

    /// See [`crate::Header::segment`].
    pub(crate) fn segment(&self, data_size: u64) -> Result<Segment, Error> {
        let (segment, crypt) = self.crypt()?;
        self.refuse_null(crypt)?;
        if sector_cipher::SectorSize::new(crypt.sector_size).is_err() {
            return Err(Error::unsupported(format!(
                "sectors of {} bytes are not supported",
                crypt.sector_size
            )));
        }
        match self.key_length() {
            Some(key_length) => parse_encryption(&crypt.encryption, key_length).map(drop)?,
            // Without a keyslot nothing says how long the key is.
            None => parse_encryption_name(&crypt.encryption)?,
        }
        let sector_size = u64::from(crypt.sector_size);
        let offset = segment.offset;
        let room = data_size.saturating_sub(offset);
        let length = match segment.size {
            Some(size) => size,
            None => room - room % sector_size,
        };
        let end = offset.checked_add(segment.size.unwrap_or(sector_size));
        let least = end.unwrap_or(u64::MAX);
        if end.is_none() || data_size < least {
            return Err(Error::new(
                ErrorKind::TooShort,
                format!(
                    "the volume needs at least {least} bytes, the device has {data_size}: \
                     it was cut off, or is not the right one"
                ),
            ));
        }
        // dm-crypt refuses a tweak that is not of whole sectors, too.
        if !crypt.iv_tweak.is_multiple_of(sector_size / 512)
            || crypt.iv_tweak.checked_add(length / 512).is_none()
        {
            return Err(Error::corrupt(format!(
                "LUKS2 metadata: iv_tweak {} is not possible with sectors of {sector_size} bytes",
                crypt.iv_tweak
            )));
        }
        Ok(Segment {
            encryption: crypt.encryption.clone(),
            sector_size: crypt.sector_size,
            offset,
            length,
            iv_tweak: crypt.iv_tweak,
        })
    }
}

fn parse_encryption_name(name: &str) -> Result<(), Error> {
    match name.parse::<CipherSpec>() {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::unsupported(format!(
            "cipher \"{}\" is not supported",
            name.escape_debug()
        ))),
    }
}
