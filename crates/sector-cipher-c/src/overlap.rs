//! Whether the segments of a list overlap.

use crate::sector_cipher_segment;

/// Whether any two segments share a byte. A list in the order of the addresses, up or down,
/// which is what programs have, takes one look at each; any other is sorted first.
pub(crate) fn any(segments: &[sector_cipher_segment]) -> bool {
    let range = |segment: &sector_cipher_segment| {
        let start = segment.data.addr();
        (start, start.saturating_add(segment.len))
    };
    let up = |pair: &[sector_cipher_segment]| range(&pair[0]).1 <= range(&pair[1]).0;
    let down = |pair: &[sector_cipher_segment]| range(&pair[1]).1 <= range(&pair[0]).0;
    if segments.windows(2).all(up) || segments.windows(2).all(down) {
        return false;
    }
    let mut ranges: Vec<(usize, usize)> = segments
        .iter()
        .filter(|segment| segment.len != 0)
        .map(range)
        .collect();
    ranges.sort_unstable();
    ranges.windows(2).any(|pair| pair[1].0 < pair[0].1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    fn overlap(ranges: &[(usize, usize)]) -> bool {
        let segments: Vec<_> = ranges
            .iter()
            .map(|&(start, len)| sector_cipher_segment {
                first: 0,
                data: ptr::without_provenance_mut(start),
                len,
            })
            .collect();
        any(&segments)
    }

    #[test]
    fn overlaps_are_found_in_any_order() {
        assert!(!overlap(&[]));
        assert!(!overlap(&[(100, 50)]));
        assert!(!overlap(&[(100, 50), (150, 50), (300, 1)]));
        assert!(!overlap(&[(300, 1), (150, 50), (100, 50)]));
        assert!(!overlap(&[(150, 50), (300, 1), (100, 50)]));
        assert!(overlap(&[(100, 50), (100, 50)]));
        assert!(overlap(&[(100, 51), (150, 50)]));
        assert!(overlap(&[(150, 50), (100, 51)]));
        assert!(overlap(&[(150, 50), (300, 1), (100, 51)]));
        // A long one around short ones.
        assert!(overlap(&[(400, 10), (100, 500), (200, 1)]));
        // Empty ones are nowhere.
        assert!(!overlap(&[(100, 50), (120, 0), (0, 0)]));
    }
}
