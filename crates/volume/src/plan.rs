//! What a request comes to, as values: the units that it holds, the edges that it covers
//! in part, and the runs between. A driver carries a plan out: [`now`](crate::now) on
//! memory that is lent for a call, [`later`](crate::later) on memory that its operations own.

use std::ops::Range;

/// Bytes that a run is worked on at a time, so that it stays in a CPU's second-level cache
/// between the store's copy and the cipher; a multiple of every sector size.
pub(crate) const PIECE: usize = 256 << 10;

/// The whole units (sectors, or the store's larger blocks) around a range: the memory
/// that an operation on the range needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hull {
    /// Where it begins in the volume, in bytes.
    pub start: u64,
    /// Its bytes.
    pub len: usize,
    /// Bytes of it before the range.
    pub skip: usize,
}

/// A request for a range of the volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    offset: u64,
    len: usize,
    /// Bytes that are read and written whole; a power of two.
    unit: usize,
}

/// A unit that the request covers in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edge {
    /// Where the unit begins in the volume, in bytes.
    pub(crate) position: u64,
    /// The request's bytes in the unit.
    pub(crate) in_unit: Range<usize>,
    /// The unit's bytes in the request.
    pub(crate) in_request: Range<usize>,
}

/// Whole sectors that are crypted at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Where it begins in the volume, in bytes.
    pub(crate) position: u64,
    /// Its bytes in the memory that the plan is carried out on.
    pub(crate) bytes: Range<usize>,
}

impl Plan {
    /// For `len` bytes from `offset` on, which lie inside the volume.
    pub(crate) fn new(offset: u64, len: usize, unit: usize) -> Self {
        Self { offset, len, unit }
    }

    /// The units that the range touches.
    pub(crate) fn hull(&self) -> Hull {
        let (skip, len) = match self.len {
            0 => (0, 0),
            len => (self.skip(), (self.skip() + len).next_multiple_of(self.unit)),
        };
        Hull {
            start: self.offset - skip as u64,
            len,
            skip,
        }
    }

    /// The first unit and the last one, as far as they are covered in part. A range inside
    /// one unit has one edge.
    pub(crate) fn edges(&self) -> [Option<Edge>; 2] {
        let Range { start, end } = self.middle();
        let head = (start > 0).then(|| {
            let skip = self.skip();
            Edge {
                position: self.offset - skip as u64,
                in_unit: skip..skip + start,
                in_request: 0..start,
            }
        });
        let tail = (end < self.len).then(|| Edge {
            position: self.offset + end as u64,
            in_unit: 0..self.len - end,
            in_request: end..self.len,
        });
        [head, tail]
    }

    /// The bytes of the request that are whole units. All before them is the first edge,
    /// all behind them the second.
    pub(crate) fn middle(&self) -> Range<usize> {
        let to_unit = match self.skip() {
            0 => 0,
            skip => self.unit - skip,
        };
        let head = to_unit.min(self.len);
        head..self.len - (self.len - head) % self.unit
    }

    /// Pieces of `len` bytes of memory that hold whole sectors from `position` on.
    pub(crate) fn runs(position: u64, len: usize) -> impl Iterator<Item = Run> {
        (0..len).step_by(PIECE).map(move |start| Run {
            position: position + start as u64,
            bytes: start..len.min(start + PIECE),
        })
    }

    fn skip(&self) -> usize {
        // Below the unit.
        usize::try_from(self.offset % self.unit as u64).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn edges_and_middle_are_the_request(
            offset in 0_u64..1 << 20, len in 0_usize..1 << 20, shift in 9_u32..14,
        ) {
            let unit = 1_usize << shift;
            let plan = Plan::new(offset, len, unit);
            let (middle, [head, tail]) = (plan.middle(), plan.edges());
            prop_assert_eq!(head.as_ref().map_or(0, |e| e.in_request.end), middle.start);
            prop_assert_eq!(tail.as_ref().map_or(len, |e| e.in_request.start), middle.end);
            prop_assert!(middle.len().is_multiple_of(unit));
            if !middle.is_empty() {
                prop_assert!((offset + middle.start as u64).is_multiple_of(unit as u64));
            }
            let hull = plan.hull();
            prop_assert!(len == 0 || hull.start.is_multiple_of(unit as u64));
            prop_assert!(hull.len.is_multiple_of(unit));
            prop_assert_eq!(hull.start + hull.skip as u64, offset);
            prop_assert!(hull.skip + len <= hull.len);
            prop_assert!(hull.len < len + 2 * unit);
            for edge in [head, tail].into_iter().flatten() {
                prop_assert!(edge.position.is_multiple_of(unit as u64));
                prop_assert_eq!(edge.in_unit.len(), edge.in_request.len());
                prop_assert!(edge.in_unit.len() < unit && edge.in_unit.end <= unit);
                prop_assert_eq!(
                    edge.position + edge.in_unit.start as u64,
                    offset + edge.in_request.start as u64
                );
            }
        }
    }

    #[test]
    fn runs_are_pieces_in_order() {
        let runs: Vec<_> = Plan::runs(512, 2 * PIECE + 512).collect();
        assert_eq!(runs.len(), 3);
        assert_eq!(
            runs[2],
            Run {
                position: 512 + 2 * PIECE as u64,
                bytes: 2 * PIECE..2 * PIECE + 512,
            }
        );
        assert_eq!(Plan::runs(0, 0).count(), 0);
    }
}
