//! What a sector reads as that was never written: where the store has zeros.

use std::ops::Range;

/// What a sector reads as whose ciphertext is all zeros, as storage shows what was never
/// written, or was discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Holes {
    /// What the zeros decrypt to, which is noise: as dm-crypt has it.
    #[default]
    Noise,
    /// Zeros. A sector that was written has zeros for ciphertext once in 2^4096 times, so
    /// nothing is lost; but whoever owns the storage can make any sector read as zeros, which
    /// under `Noise` takes the key.
    Zero,
}

/// The first run of sectors that are no holes, from byte `from` on, as long as it is: all of it
/// where there is no hole. Of a sector with data one word is looked at, as a rule.
pub(crate) fn next_run(bytes: &[u8], from: usize, sector: usize) -> Option<Range<usize>> {
    let count = |from: usize, is_in: fn(&[u8]) -> bool| {
        let sectors = bytes.get(from..).unwrap_or_default().chunks_exact(sector);
        sectors.take_while(|s| is_in(s)).count()
    };
    let start = from + count(from, is_hole) * sector;
    let end = start + count(start, |s| !is_hole(s)) * sector;
    (start < end).then_some(start..end)
}

/// Whether all is zeros, in lines of eight words: several at a time where the CPU can.
fn is_hole(sector: &[u8]) -> bool {
    let (words, rest) = sector.as_chunks::<8>();
    words.first().is_none_or(|word| *word == [0; 8])
        && words.chunks(8).all(|line| {
            let or = |sum, word: &[u8; 8]| sum | u64::from_ne_bytes(*word);
            line.iter().fold(0, or) == 0
        })
        && rest.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn runs_of_data(bytes: &[u8], sector: usize) -> impl Iterator<Item = Range<usize>> {
        std::iter::successors(next_run(bytes, 0, sector), move |run| {
            next_run(bytes, run.end, sector)
        })
    }

    #[test]
    fn where_nothing_is_zero_the_run_stays_whole() {
        let bytes = vec![1; 256 << 10];
        assert!(runs_of_data(&bytes, 512).eq(std::iter::once(0..bytes.len())));
        assert!(runs_of_data(&[], 512).next().is_none());
        assert!(runs_of_data(&[0; 4096], 512).next().is_none());
    }

    #[test]
    fn one_bit_anywhere_is_data() {
        let mut sector = [0; 512];
        assert!(is_hole(&sector));
        for byte in 0..sector.len() {
            sector[byte] = 0x10;
            assert!(!is_hole(&sector), "{byte}");
            sector[byte] = 0;
        }
    }

    proptest! {
        #[test]
        fn the_runs_are_all_but_the_holes(
            sectors in prop::collection::vec(any::<bool>(), 0..40), shift in 9_u32..13,
        ) {
            let size = 1_usize << shift;
            let mut bytes = vec![0; sectors.len() * size];
            for (index, _) in sectors.iter().enumerate().filter(|(_, data)| **data) {
                bytes[index * size + (index * 37) % size] = 1;
            }
            let mut found = vec![false; sectors.len()];
            let mut end = None;
            for run in runs_of_data(&bytes, size) {
                // No two that could be one.
                prop_assert!(end.is_none_or(|end| end < run.start));
                prop_assert!(run.start % size == 0 && run.end % size == 0 && !run.is_empty());
                found[run.start / size..run.end / size].fill(true);
                end = Some(run.end);
            }
            prop_assert_eq!(found, sectors);
        }
    }
}
