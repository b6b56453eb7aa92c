//! The guest's memory, as the front-end shares it. What is in it may change at any time, so
//! nothing is read from it twice and believed both times.

#![allow(unsafe_code)]

use std::fs::File;
use std::sync::Arc;

use rustix::mm::{MapFlags, ProtFlags};
use vm_memory::mmap::MmapRegionBuilder;
use vm_memory::{
    Bytes, FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestRegionMmap,
};
use xtent_volume::Foreign;

use super::dirty::{Dirty, Pages};

/// The memory, as `virtio_queue` sees it.
pub(super) type Map = GuestMemoryMmap<Pages>;

/// All regions, mapped.
pub(super) struct Guest {
    map: Arc<Map>,
    regions: Vec<Region>,
    dirty: Arc<Dirty>,
}

/// Where a region is, for the guest, and for the front-end itself: it gives the rings' places by
/// that.
pub(super) struct Region {
    pub(super) user: u64,
    pub(super) guest: u64,
    pub(super) size: u64,
}

/// A piece of a request's memory: one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) at: GuestAddress,
    pub(super) len: u32,
}

/// Why memory cannot be had.
#[derive(Debug)]
pub(super) struct BadMemory(pub(super) String);

impl Guest {
    /// Maps the regions, each from a byte of its file on. It must be inside of that: beyond, an
    /// access would end the process. What is written there is noted in `dirty`.
    pub(super) fn new(
        wanted: Vec<(Region, u64)>,
        files: Vec<File>,
        dirty: Arc<Dirty>,
    ) -> Result<Self, BadMemory> {
        let bad = |what: String| BadMemory(what);
        let (mut mapped, mut regions) = (Vec::new(), Vec::new());
        if wanted.len() != files.len() {
            return Err(bad("not one file for each region".into()));
        }
        for ((region, start), file) in wanted.into_iter().zip(files) {
            let Region { user, guest, size } = region;
            let end = start.checked_add(size);
            let length = file.metadata().map_err(|e| bad(e.to_string()))?.len();
            if size == 0 || end.is_none_or(|end| end > length) {
                return Err(bad("a region goes beyond its file".into()));
            }
            if user.checked_add(size).is_none() {
                return Err(bad("a region beyond the address space".into()));
            }
            let bytes = usize::try_from(size).map_err(|e| bad(e.to_string()))?;
            let pages = Pages::new(Arc::clone(&dirty), guest);
            let map = MmapRegionBuilder::new_with_bitmap(bytes, pages)
                .with_file_offset(FileOffset::new(file, start))
                .with_mmap_prot((ProtFlags::READ | ProtFlags::WRITE).bits() as i32)
                .with_mmap_flags((MapFlags::SHARED | MapFlags::NORESERVE).bits() as i32)
                .build()
                .map_err(|e| bad(e.to_string()))?;
            let map = GuestRegionMmap::new(map, GuestAddress(guest));
            mapped.push(map.ok_or_else(|| bad("a region beyond the address space".into()))?);
            regions.push(region);
        }
        mapped.sort_by_key(vm_memory::GuestMemoryRegion::start_addr);
        let map = GuestMemoryMmap::from_regions(mapped).map_err(|e| bad(e.to_string()))?;
        Ok(Self {
            map: Arc::new(map),
            regions,
            dirty,
        })
    }

    pub(super) fn map(&self) -> &Arc<Map> {
        &self.map
    }

    /// Where it is noted what was written.
    pub(super) fn dirty(&self) -> &Dirty {
        &self.dirty
    }

    /// The end of the last region.
    pub(super) fn end(&self) -> u64 {
        let ends = self
            .regions
            .iter()
            .map(|it| it.guest.saturating_add(it.size));
        ends.max().unwrap_or(0)
    }

    /// Where something is for the guest that is here for the front-end.
    pub(super) fn place(&self, user: u64) -> Option<GuestAddress> {
        self.regions.iter().find_map(|region| {
            let inside = user.checked_sub(region.user)?;
            (inside < region.size).then_some(GuestAddress(region.guest + inside))
        })
    }

    /// Copies out of the segments, which are taken as one run of bytes, from its byte `from` on;
    /// false if that is not all there.
    #[must_use]
    pub(super) fn read(&self, segments: &[Segment], from: u64, buf: &mut [u8]) -> bool {
        each(segments, from, buf.len(), |at, range| {
            self.map.read_slice(&mut buf[range], at).is_ok()
        })
    }

    /// Copies into the segments; see [`Guest::read`].
    #[must_use]
    pub(super) fn write(&self, segments: &[Segment], from: u64, data: &[u8]) -> bool {
        each(segments, from, data.len(), |at, range| {
            self.map.write_slice(&data[range], at).is_ok()
        })
    }
}

/// Memory of the guest's, for the cipher.
impl Guest {
    /// The parts of the segments that hold `len` bytes of the run from its byte `from` on, where they are; none if
    /// that is not all there. Whoever writes to them says [so](Guest::has_written) afterwards.
    pub(super) fn pieces(
        &self,
        segments: &[Segment],
        from: u64,
        len: usize,
    ) -> Option<Vec<Foreign<'_>>> {
        let mut pieces = Vec::new();
        let all = each(segments, from, len, |at, range| {
            let mut slices = GuestMemoryBackend::get_slices(&*self.map, at, range.len());
            slices.all(|slice| {
                let Ok(slice) = slice else {
                    return false;
                };
                let start = slice.ptr_guard_mut().as_ptr();
                // SAFETY: the slice is of the map, which lives as long as `self`, and which nothing reaches but
                // the cipher and volatile accesses by its address. Its file is trusted to stay as long as it was.
                pieces.push(unsafe { Foreign::new(start, slice.len()) });
                true
            })
        });
        all.then_some(pieces)
    }
}

impl Guest {
    /// The segments were written, perhaps in part: it is noted where a log is kept.
    pub(super) fn has_written(&self, segments: &[Segment]) {
        let ranges = segments.iter().map(|it| (it.at.0, u64::from(it.len)));
        self.dirty.mark_all(ranges);
    }
}

/// Bytes in all of them.
pub(super) fn total(segments: &[Segment]) -> u64 {
    segments.iter().map(|it| u64::from(it.len)).sum()
}

/// Calls `copy` with the place of each part of the run, and which of the `len` bytes it is.
fn each(
    segments: &[Segment],
    mut from: u64,
    len: usize,
    mut copy: impl FnMut(GuestAddress, std::ops::Range<usize>) -> bool,
) -> bool {
    let mut done = 0;
    for segment in segments {
        let size = u64::from(segment.len);
        if from >= size {
            from -= size;
            continue;
        }
        let here = usize::try_from(size - from).unwrap_or(usize::MAX);
        let here = here.min(len - done);
        let Some(at) = segment.at.0.checked_add(from) else {
            return false;
        };
        if here > 0 && !copy(GuestAddress(at), done..done + here) {
            return false;
        }
        (done, from) = (done + here, 0);
        if done == len {
            break;
        }
    }
    done == len
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_one_run_of_bytes() {
        let segments = [(0x1000, 3), (0x9000, 0), (0x5000, 4)].map(|(at, len)| Segment {
            at: GuestAddress(at),
            len,
        });
        assert_eq!(total(&segments), 7);
        let parts = |from, len| {
            let mut parts = Vec::new();
            let all = each(&segments, from, len, |at, range| {
                parts.push((at.0, range));
                true
            });
            (all, parts)
        };
        assert_eq!(parts(0, 7), (true, vec![(0x1000, 0..3), (0x5000, 3..7)]));
        assert_eq!(parts(2, 2), (true, vec![(0x1002, 0..1), (0x5000, 1..2)]));
        assert_eq!(parts(4, 3), (true, vec![(0x5001, 0..3)]));
        assert!(!parts(4, 4).0);
        assert_eq!(parts(7, 0), (true, vec![]));
        assert!(!parts(100, 1).0);
    }

    #[test]
    fn memory_outside_is_no_memory() {
        let regions = [(0x1000, 0x1000)];
        let files = super::super::testing::files(&regions);
        let mut guest = super::super::testing::guest(&regions, &files, Arc::default());
        guest.regions[0].user = 0x7000_0000;
        assert_eq!(guest.end(), 0x2000);
        assert_eq!(guest.place(0x7000_0fff), Some(GuestAddress(0x1fff)));
        assert_eq!(guest.place(0x7000_1000), None);
        assert_eq!(guest.place(0x6fff_ffff), None);
        let at = |at, len| {
            [Segment {
                at: GuestAddress(at),
                len,
            }]
        };
        let mut buf = [0; 16];
        assert!(guest.write(&at(0x1ff0, 16), 0, &[7; 16]));
        assert!(guest.read(&at(0x1ff0, 16), 0, &mut buf));
        assert_eq!(buf, [7; 16]);
        for outside in [0, 0xfff, 0x1ff1, 0x2000, u64::MAX - 3, u64::MAX] {
            assert!(!guest.read(&at(outside, 16), 0, &mut buf), "{outside:x}");
            assert!(!guest.write(&at(outside, 16), 0, &buf), "{outside:x}");
        }
    }
}
