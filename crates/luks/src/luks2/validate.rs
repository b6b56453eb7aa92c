//! Whether the parts of the metadata fit each other and the header they are
//! in. Run on everything that is read, and again on everything before it is
//! written.

use super::binary::{BINARY_SIZE, COPY_SIZES};
use super::model::{Area, Digest, Keyslot, Metadata, Segment};
use crate::Error;

/// Areas of keyslots start and end at multiples of this.
pub(crate) const AREA_ALIGNMENT: u64 = 4096;

/// Largest keyslots area, as cryptsetup has it.
pub(crate) const MAX_KEYSLOTS_SIZE: u64 = 128 << 20;

/// Where the keyslots' areas lie.
pub(crate) fn keyslots_area(copy_size: u64, keyslots_size: u64) -> Area {
    Area {
        offset: 2 * copy_size,
        size: keyslots_size,
    }
}

impl Metadata {
    /// Checks everything against everything. `copy_size` is the size in the
    /// binary header.
    pub(crate) fn validate(&self, copy_size: u64) -> Result<(), Error> {
        self.validate_config(copy_size)?;
        self.validate_references()?;
        self.validate_segments()?;
        self.validate_areas(copy_size)?;
        self.validate_reencryption()
    }

    fn validate_config(&self, copy_size: u64) -> Result<(), Error> {
        let config = &self.config;
        if !COPY_SIZES.contains(&copy_size) || copy_size - BINARY_SIZE as u64 != config.json_size {
            return Err(bad(format_args!(
                "config.json_size is {}, but the header has {copy_size} bytes",
                config.json_size
            )));
        }
        if !config.keyslots_size.is_multiple_of(AREA_ALIGNMENT)
            || config.keyslots_size > MAX_KEYSLOTS_SIZE
        {
            return Err(bad(format_args!(
                "config.keyslots_size is {}, not a multiple of 4096 up to 128 MiB",
                config.keyslots_size
            )));
        }
        // At offset 0 the data lies on another device.
        let end = keyslots_area(copy_size, config.keyslots_size).end();
        if let Some(data) = self.data_offset()
            && data != 0
            && data < end
        {
            return Err(bad(format_args!(
                "the data begins at byte {data}, inside the keyslots area that ends at {end}"
            )));
        }
        Ok(())
    }

    /// The lowest offset of a segment that is part of the volume.
    pub(crate) fn data_offset(&self) -> Option<u64> {
        self.segments
            .values()
            .filter(|segment| !segment.is_backup())
            .map(|segment| segment.offset)
            .min()
    }

    fn validate_references(&self) -> Result<(), Error> {
        for (
            id,
            Digest {
                keyslots, segments, ..
            },
        ) in &self.digests
        {
            for keyslot in keyslots {
                if !self.keyslots.contains_key(keyslot) {
                    return Err(bad(format_args!(
                        "digest {id} names keyslot {keyslot}, which does not exist"
                    )));
                }
            }
            for segment in segments {
                if !self.segments.contains_key(segment) {
                    return Err(bad(format_args!(
                        "digest {id} names segment {segment}, which does not exist"
                    )));
                }
            }
        }
        for (id, token) in &self.tokens {
            for keyslot in &token.keyslots {
                if !self.keyslots.contains_key(keyslot) {
                    return Err(bad(format_args!(
                        "token {id} names keyslot {keyslot}, which does not exist"
                    )));
                }
            }
        }
        for (id, keyslot) in &self.keyslots {
            let digests = self.digests_of_keyslot(*id).count();
            if keyslot.luks2.is_some() && digests != 1 {
                return Err(bad(format_args!(
                    "keyslot {id} belongs to {digests} digests instead of one"
                )));
            }
        }
        for (id, segment) in &self.segments {
            let assigned = self
                .digests
                .values()
                .any(|digest| digest.segments.contains(id));
            if segment.crypt.is_some() && !assigned {
                return Err(bad(format_args!("segment {id} belongs to no digest")));
            }
        }
        Ok(())
    }

    /// The digests that name `keyslot`.
    pub(crate) fn digests_of_keyslot(&self, keyslot: u32) -> impl Iterator<Item = u32> {
        self.digests
            .iter()
            .filter(move |(_, digest)| digest.keyslots.contains(&keyslot))
            .map(|(id, _)| *id)
    }

    fn validate_segments(&self) -> Result<(), Error> {
        for (expected, id) in (0..).zip(self.segments.keys()) {
            if expected != *id {
                return Err(bad(format_args!("there is no segment {expected}")));
            }
        }
        let regular: Vec<&Segment> = self
            .segments
            .values()
            .take_while(|segment| !segment.is_backup())
            .collect();
        if regular.is_empty() {
            return Err(bad(format_args!("there is no segment of data")));
        }
        if self
            .segments
            .values()
            .skip(regular.len())
            .any(|segment| !segment.is_backup())
        {
            return Err(bad(format_args!(
                "a segment of data comes after a backup segment"
            )));
        }
        for (id, segment) in &self.segments {
            segment
                .validate()
                .map_err(|what| bad(format_args!("segment {id} {what}")))?;
        }
        for (id, segment) in regular.iter().enumerate() {
            if segment.size.is_none() && id + 1 != regular.len() {
                return Err(bad(format_args!(
                    "segment {id} has dynamic size, but is not the last one"
                )));
            }
            for other in &regular[id + 1..] {
                if segment.extent().overlaps(other.extent()) {
                    return Err(bad(format_args!("segment {id} overlaps another one")));
                }
            }
        }
        Ok(())
    }

    fn validate_areas(&self, copy_size: u64) -> Result<(), Error> {
        let room = keyslots_area(copy_size, self.config.keyslots_size);
        let areas: Vec<(u32, Area)> = self
            .keyslots
            .iter()
            .map(|(id, keyslot)| (*id, keyslot.area))
            .collect();
        for (position, (id, area)) in areas.iter().enumerate() {
            let end = area.offset.checked_add(area.size);
            if area.size == 0 || area.offset < room.offset || end.is_none_or(|end| end > room.end())
            {
                return Err(bad(format_args!(
                    "the area of keyslot {id} (byte {}, {} bytes) is not inside the keyslots area (bytes {} to {})",
                    area.offset,
                    area.size,
                    room.offset,
                    room.end()
                )));
            }
            for (other_id, other) in &areas[position + 1..] {
                if area.overlaps(*other) {
                    return Err(bad(format_args!(
                        "the areas of keyslots {id} and {other_id} overlap"
                    )));
                }
            }
        }
        for (id, keyslot) in &self.keyslots {
            keyslot
                .validate()
                .map_err(|what| bad(format_args!("keyslot {id} {what}")))?;
        }
        Ok(())
    }

    /// A `reencrypt` keyslot and the requirement belong together.
    fn validate_reencryption(&self) -> Result<(), Error> {
        let slots = self
            .keyslots
            .values()
            .filter(|keyslot| keyslot.kind == "reencrypt")
            .count();
        let flags = self
            .config
            .requirements
            .iter()
            .filter(|requirement| is_online_reencryption(requirement))
            .count();
        if slots > 1 || flags > 1 || (slots == 1 && flags == 0) {
            return Err(bad(format_args!(
                "there are {slots} reencryption keyslots and {flags} reencryption requirements"
            )));
        }
        Ok(())
    }
}

impl Segment {
    /// From its first byte to its last, or for ever.
    fn extent(&self) -> Area {
        Area {
            offset: self.offset,
            size: self.size.unwrap_or(u64::MAX),
        }
    }

    fn validate(&self) -> Result<(), String> {
        if !self.offset.is_multiple_of(512) {
            return Err(format!("begins at the odd byte {}", self.offset));
        }
        if let Some(size) = self.size
            && (size == 0 || !size.is_multiple_of(512))
        {
            return Err(format!("has the odd size of {size} bytes"));
        }
        let Some(crypt) = &self.crypt else {
            return Ok(());
        };
        if !crypt.sector_size.is_multiple_of(512) {
            return Err(format!("has sectors of {} bytes", crypt.sector_size));
        }
        if !self
            .size
            .unwrap_or(0)
            .is_multiple_of(crypt.sector_size.into())
        {
            return Err("is not made of whole sectors".to_owned());
        }
        Ok(())
    }
}

impl Keyslot {
    fn validate(&self) -> Result<(), String> {
        let Some(luks2) = &self.luks2 else {
            return Ok(());
        };
        if self.key_size == 0 {
            return Err("holds a key of no bytes".to_owned());
        }
        if !self.area.offset.is_multiple_of(AREA_ALIGNMENT)
            || !self.area.size.is_multiple_of(AREA_ALIGNMENT)
        {
            return Err("has an area that is not aligned to 4096 bytes".to_owned());
        }
        let needed = u64::from(self.key_size) * u64::from(luks2.stripes);
        if self.area.size < needed {
            return Err(format!(
                "has an area of {} bytes, but its key needs {needed}",
                self.area.size
            ));
        }
        Ok(())
    }
}

/// Whether a requirement says that reencryption is under way: `online-reencrypt`
/// or the same with `-v` and digits.
pub(crate) fn is_online_reencryption(requirement: &str) -> bool {
    requirement
        .strip_prefix("online-reencrypt")
        .is_some_and(|rest| {
            rest.is_empty()
                || rest.strip_prefix("-v").is_some_and(|version| {
                    !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit())
                })
        })
}

fn bad(what: std::fmt::Arguments<'_>) -> Error {
    Error::corrupt(format!("LUKS2 metadata: {what}"))
}
