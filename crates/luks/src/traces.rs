//! Traces of LUKS metadata: what a format has to know of before it overwrites a device. A
//! volume with a damaged header is a volume still, and may be repaired.

use xtent_store::Store;

use crate::Error;
use crate::luks2::binary::{COPY_SIZES, Which};

/// Where both versions have the UUID.
const UUID: std::ops::Range<usize> = 168..208;

/// A place with the first bytes of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// `LUKS1 header`, `second LUKS2 header`, …
    pub what: &'static str,
    /// Byte where it begins.
    pub offset: u64,
    /// Its UUID, if that can be read.
    pub uuid: Option<String>,
}

/// Looks at every place where a header of a volume may be, be it a good one or not.
///
/// # Errors
/// [`ErrorKind::Store`](crate::ErrorKind::Store): a place that cannot be read may have one.
pub fn find_traces(store: &dyn Store) -> Result<Vec<Trace>, Error> {
    let mut traces = Vec::new();
    for offset in [0].into_iter().chain(COPY_SIZES) {
        let mut start = [0; UUID.end];
        if offset + start.len() as u64 > store.size() {
            continue;
        }
        store.read_at(&mut start, offset)?;
        let what = match (offset, &start[..6]) {
            (0, magic) if magic == Which::Primary.magic() => match start[6..8] {
                [0, 1] => "LUKS1 header",
                [0, 2] => "LUKS2 header",
                _ => "LUKS header",
            },
            (1.., magic) if magic == Which::Secondary.magic() => "second LUKS2 header",
            _ => continue,
        };
        let uuid = start[UUID].split(|&byte| byte == 0).next();
        let uuid = uuid.filter(|uuid| !uuid.is_empty() && uuid.iter().all(u8::is_ascii_graphic));
        traces.push(Trace {
            what,
            offset,
            uuid: uuid.map(|uuid| String::from_utf8_lossy(uuid).into_owned()),
        });
    }
    Ok(traces)
}

#[cfg(test)]
mod tests {
    use xtent_store::testing::{Fault, FaultStore, MemStore, Operation};

    use super::*;

    #[test]
    fn every_place_is_looked_at() {
        let at = |offset: usize, magic: &[u8], uuid: &[u8]| {
            let mut image = vec![0; 5 << 20];
            image[offset..offset + magic.len()].copy_from_slice(magic);
            image[offset + UUID.start..][..uuid.len()].copy_from_slice(uuid);
            find_traces(&MemStore::from(image)).unwrap()
        };
        let uuid = b"6f1d2a0c-4b0e-4b57-9d3f-0d9f5b1c2e3a";
        for (magic, what) in [
            (b"LUKS\xba\xbe\x00\x01", "LUKS1 header"),
            (b"LUKS\xba\xbe\x00\x02", "LUKS2 header"),
            (b"LUKS\xba\xbe\xff\x00", "LUKS header"),
        ] {
            let traces = at(0, magic, uuid);
            assert_eq!((traces.len(), traces[0].what), (1, what));
            assert_eq!(
                traces[0].uuid.as_deref(),
                Some(&*String::from_utf8_lossy(uuid))
            );
        }
        for place in COPY_SIZES {
            let traces = at(usize::try_from(place).unwrap(), b"SKUL\xba\xbe", b"a\nb");
            assert_eq!((traces.len(), traces[0].offset), (1, place));
            assert_eq!(traces[0].uuid, None);
        }
        assert_eq!(at(0x1000, b"SKUL\xba\xbe", uuid), []);
        assert_eq!(find_traces(&MemStore::new(100)).unwrap(), []);
    }

    #[test]
    fn what_cannot_be_read_is_no_empty_place() {
        for place in [&0].into_iter().chain(&COPY_SIZES[..7]) {
            let store = FaultStore::new(MemStore::new(1 << 20));
            store.inject(Fault::on(Operation::Read).within(*place..place + 512));
            assert_eq!(find_traces(&store).is_err(), *place < 1 << 20);
        }
    }
}
