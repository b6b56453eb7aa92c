//! By what a volume's disk behind a server is known again after a lost connection.

use std::ops::Range;

use xtent_luks::Header;
use xtent_upstream::{Identity, Upstream};

use crate::disk::Disk;
use crate::failure::{Exit, Failure, Result};

/// What both versions of LUKS begin with.
const MAGIC: &[u8] = b"LUKS\xba\xbe";
/// Where both have the UUID; zeros follow it.
const UUID: Range<usize> = 168..208;

/// Has the disk known by the header on it, if [`tells`] says that it can be.
pub(crate) fn register(data: &Disk, header: &Header) -> Result<()> {
    if let Some(upstream) = data.upstream()
        && tells(data, header)?
    {
        identify(upstream, header.uuid().to_owned());
    }
    Ok(())
}

/// Whether a disk behind a server is told from others by the header on it. Not by a header that is
/// elsewhere, nor by one that the volume's own data overwrite or that is damaged.
pub(crate) fn tells(data: &Disk, header: &Header) -> Result<bool> {
    if data.upstream().is_none() {
        return Ok(false);
    }
    let segment = header.segment(data.size());
    let stays = segment.is_ok_and(|segment| segment.offset >= UUID.end as u64);
    let mut start = [0; UUID.end];
    if stays {
        // Else no later connection would be held against anything.
        data.read_at(&mut start, 0)?;
    }
    let is_told = stays && uuid_in(&start) == Some(header.uuid());
    if !is_told {
        tracing::debug!(
            path = %data.path().display(),
            "there is nothing by which the disk can be known again"
        );
    }
    Ok(is_told)
}

/// Has a disk known by the UUID that somebody else has found on it by another connection: it has
/// to be there now, and whenever the server is connected to again.
pub(crate) fn expect(data: &Disk, uuid: &str) -> Result<()> {
    let Some(upstream) = data.upstream() else {
        return Ok(());
    };
    let mut start = [0; UUID.end];
    data.read_at(&mut start, 0)?;
    is_of(&start, uuid).map_err(|what| {
        let path = data.path().display();
        Failure::new(Exit::Device, format!("{path}: it is another disk: {what}"))
            .advise("Have the server export the right one, and attach the volume again.")
    })?;
    identify(upstream, uuid.to_owned());
    Ok(())
}

fn identify(upstream: &Upstream, uuid: String) {
    upstream.identify(Identity {
        offset: 0,
        len: UUID.end,
        check: Box::new(move |found| is_of(found, &uuid)),
    });
}

/// Whether a disk that begins so has the volume of this UUID.
fn is_of(start: &[u8], uuid: &str) -> std::result::Result<(), String> {
    match uuid_in(start) {
        Some(other) if other == uuid => Ok(()),
        Some(other) => Err(format!(
            "there was the volume {uuid}, and now there is {other}"
        )),
        None => Err(format!(
            "there was the volume {uuid}, and now there is no LUKS header"
        )),
    }
}

/// The UUID in a header that begins so; others' bytes are not passed on.
fn uuid_in(start: &[u8]) -> Option<&str> {
    let field = start.starts_with(MAGIC).then(|| start.get(UUID))??;
    let uuid = std::str::from_utf8(field.split(|byte| *byte == 0).next()?).ok()?;
    uuid.bytes()
        .all(|byte| byte.is_ascii_graphic())
        .then_some(uuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_plain_text_behind_the_magic() {
        let mut start = [0; UUID.end];
        assert_eq!(uuid_in(&start), None);
        start[..6].copy_from_slice(MAGIC);
        assert_eq!(uuid_in(&start), Some(""));
        start[168..172].copy_from_slice(b"1234");
        assert_eq!(uuid_in(&start), Some("1234"));
        assert_eq!(uuid_in(&start[..207]), None);
        start[170] = b'\n';
        assert_eq!(uuid_in(&start), None);
        start[168..].fill(b'x');
        assert_eq!(uuid_in(&start), Some(&*"x".repeat(40)));
        start[168] = 0xff;
        assert_eq!(uuid_in(&start), None);
    }
}
