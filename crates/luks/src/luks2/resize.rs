//! The size of the volume, where the header fixes it.

use super::document;
use super::edit::json;
use super::read::{Foreign, read_expected};
use crate::{Device, Error, ErrorKind};

/// See [`Device::resize`].
pub(crate) fn resize(
    device: &Device,
    length: u64,
    data_size: u64,
    may_shrink: bool,
) -> Result<u64, Error> {
    let _lock = device.lock.exclusive()?;
    let header = read_expected(device, Foreign::Refuse)?;
    let (segment, crypt) = header.crypt()?;
    let Some(before) = segment.size else {
        return Err(Error::options(
            "the header fixes no size: the volume ends with its device",
        ));
    };
    let sector = u64::from(crypt.sector_size);
    if length == 0 || !length.is_multiple_of(sector) {
        return Err(Error::options(format!(
            "a volume of {length} bytes is not possible: it has whole sectors of {sector}, at least one"
        )));
    }
    if length < before && !may_shrink {
        return Err(Error::options(format!(
            "the volume has {before} bytes, and would lose what is behind {length}"
        )));
    }
    let room = data_size.saturating_sub(segment.offset);
    if length > room {
        return Err(Error::new(
            ErrorKind::TooShort,
            format!(
                "the device has {data_size} bytes, which is room for a volume of {}, not of {length}",
                room - room % sector
            ),
        ));
    }
    if length == before {
        return Ok(before);
    }
    let size = json(&length.to_string())?;
    let text = document::set(&header.text, &["segments", "0"], "size", size)?;
    let mut header = header.with_text(text)?;
    // What else the header has to be for a volume to open.
    header.segment(data_size)?;
    header.check_writable()?;
    header.write(&*device.store)?;
    Ok(before)
}
