//! By what a volume's disk behind a server is known again after a lost connection.

use std::ops::Range;

use xtent_luks::Header;
use xtent_upstream::Identity;

use crate::disk::Disk;

/// What both versions of LUKS begin with.
const MAGIC: &[u8] = b"LUKS\xba\xbe";
/// Where both have the UUID; zeros follow it.
const UUID: Range<usize> = 168..208;

/// Has the disk known by the header on it. Not by a header that is elsewhere, nor by one that the
/// volume's own data overwrite or that is damaged: such a disk is not told from others.
pub(crate) fn register(data: &Disk, header: &Header) {
    let Some(upstream) = data.upstream() else {
        return;
    };
    let segment = header.segment(data.size());
    let stays = segment.is_ok_and(|segment| segment.offset >= UUID.end as u64);
    let mut start = [0; UUID.end];
    let uuid = header.uuid().to_owned();
    if !stays || data.read_at(&mut start, 0).is_err() || uuid_in(&start) != Some(&uuid) {
        tracing::debug!(
            path = %data.path().display(),
            "there is nothing by which the disk can be known again"
        );
        return;
    }
    upstream.identify(Identity {
        offset: 0,
        len: UUID.end,
        check: Box::new(move |found| match uuid_in(found) {
            Some(other) if other == uuid => Ok(()),
            Some(other) => Err(format!(
                "there was the volume {uuid}, and now there is {other}"
            )),
            None => Err(format!(
                "there was the volume {uuid}, and now there is no LUKS header"
            )),
        }),
    });
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
