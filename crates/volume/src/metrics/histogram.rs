//! Histograms whose cells double.

use super::shard::{Adders, Counter};

/// Counters of values: cell `n` has those up to 2^n that no earlier cell has, the last one
/// all others.
pub(super) struct Cells<const N: usize> {
    counts: [Counter; N],
    sum: Counter,
}

impl<const N: usize> Default for Cells<N> {
    fn default() -> Self {
        Self {
            counts: std::array::from_fn(|_| Counter::default()),
            sum: Counter::default(),
        }
    }
}

impl<const N: usize> Cells<N> {
    /// Counts `value` so many times.
    pub(super) fn add(&self, adders: Adders, value: u64, count: u64) {
        let bits = u64::BITS - value.saturating_sub(1).leading_zeros();
        let cell = (bits as usize).min(N - 1);
        self.counts[cell].add(adders, count);
        self.sum.add(adders, value.wrapping_mul(count));
    }

    /// The counts, and the sum of all values.
    pub(super) fn read(&self) -> ([u64; N], u64) {
        (self.counts.each_ref().map(Counter::read), self.sum.read())
    }
}

/// The largest value of each cell but the last, which has none.
pub(super) fn doubling<const N: usize>() -> impl Iterator<Item = u64> {
    (0..N - 1).map(|cell| 1 << cell)
}

/// How often values of each size were counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// The largest value of a cell, and how many values it has that no earlier cell has;
    /// ascending.
    pub cells: Vec<(u64, u64)>,
    /// How many values are larger.
    pub larger: u64,
    /// The sum of all values.
    pub sum: u64,
}

impl Histogram {
    pub(super) fn total<const N: usize>(
        largest: impl Iterator<Item = u64>,
        shards: impl Iterator<Item = ([u64; N], u64)>,
    ) -> Self {
        let mut total = [0_u64; N];
        let mut sum = 0_u64;
        for (counts, of_shard) in shards {
            for (total, count) in total.iter_mut().zip(counts) {
                *total = total.wrapping_add(count);
            }
            sum = sum.wrapping_add(of_shard);
        }
        Self {
            larger: total[N - 1],
            cells: largest.zip(total).collect(),
            sum,
        }
    }

    /// How many values were counted.
    pub fn count(&self) -> u64 {
        self.cells.iter().map(|(_, count)| count).sum::<u64>() + self.larger
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_in_the_first_cell_that_has_them() {
        let cells = Cells::<4>::default();
        for value in [0, 1, 2, 3, 4, 5, u64::MAX - 15] {
            cells.add(Adders::Many, value, 1);
        }
        let histogram = Histogram::total(doubling::<4>(), [cells.read()].into_iter());
        assert_eq!(histogram.cells, [(1, 2), (2, 1), (4, 2)]);
        assert_eq!((histogram.larger, histogram.count()), (2, 7));
    }
}
