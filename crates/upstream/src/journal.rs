//! What the server has acknowledged and may still lose: the bytes of writes
//! since the last flush, as they have to be there.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes that were acknowledged and not flushed, as disjoint ranges. Each byte is the
/// newest that was acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    /// By first byte in the store.
    entries: BTreeMap<u64, Entry>,
    /// Bytes in all entries.
    bytes: usize,
    /// What is acknowledged now belongs to this generation; a flush begins the next.
    generation: u64,
}

#[derive(Debug)]
struct Entry {
    data: Arc<Vec<u8>>,
    /// Of its newest byte.
    generation: u64,
}

impl Journal {
    /// Bytes kept.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// A flush begins, which will cover all generations up to the one returned.
    pub(crate) fn begin_flush(&mut self) -> u64 {
        let covered = self.generation;
        self.generation += 1;
        covered
    }

    /// A flush has succeeded that covers the generations up to this one.
    pub(crate) fn forget(&mut self, covered: u64) {
        let bytes = &mut self.bytes;
        self.entries.retain(|_, entry| {
            let keep = entry.generation > covered;
            if !keep {
                *bytes -= entry.data.len();
            }
            keep
        });
    }

    /// Gives up everything.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.bytes = 0;
    }

    /// A write of `data` at `offset` was acknowledged.
    pub(crate) fn insert(&mut self, offset: u64, data: Vec<u8>) {
        let gaps = self.overwrite(offset, &data);
        if gaps.first() == Some(&(0, data.len())) {
            self.add(offset, data);
            return;
        }
        for (start, end) in gaps {
            self.add(offset + start as u64, data[start..end].to_vec());
        }
    }

    fn add(&mut self, offset: u64, data: Vec<u8>) {
        self.bytes += data.len();
        let entry = Entry {
            data: Arc::new(data),
            generation: self.generation,
        };
        self.entries.insert(offset, entry);
    }

    /// A write is there for good: older bytes of the same range must not come back. Returns the ranges
    /// of `data` that no entry holds, in order.
    pub(crate) fn overwrite(&mut self, offset: u64, data: &[u8]) -> Vec<(usize, usize)> {
        let end = offset + data.len() as u64;
        let first = self.entries.range(..=offset).next_back();
        let first = first.map_or(offset, |(&start, _)| start);
        let mut gaps = Vec::new();
        let mut covered = 0;
        for (&start, entry) in self.entries.range_mut(first..end) {
            let entry_end = start + entry.data.len() as u64;
            let (from, to) = (start.max(offset), entry_end.min(end));
            if from >= to {
                continue;
            }
            // Both lie in memory: what is counted here fits.
            let at = |byte: u64, base: u64| usize::try_from(byte - base).unwrap_or(usize::MAX);
            let (in_data, data_end) = (at(from, offset), at(to, offset));
            if in_data > covered {
                gaps.push((covered, in_data));
            }
            covered = data_end;
            let (in_entry, in_entry_end) = (at(from, start), at(to, start));
            // A connection that was lost may have it still, for no more than a moment.
            Arc::make_mut(&mut entry.data)[in_entry..in_entry_end]
                .copy_from_slice(&data[in_data..data_end]);
            entry.generation = self.generation;
        }
        if covered < data.len() {
            gaps.push((covered, data.len()));
        }
        gaps
    }

    /// Everything, by offset.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (u64, Arc<Vec<u8>>)> {
        self.entries
            .iter()
            .map(|(&offset, entry)| (offset, Arc::clone(&entry.data)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Write(u64, usize),
        Durable(u64, usize),
        Begin,
        End,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0_u64..40, 1_usize..20).prop_map(|(offset, len)| Step::Write(offset, len)),
            1 => (0_u64..40, 1_usize..20).prop_map(|(offset, len)| Step::Durable(offset, len)),
            1 => Just(Step::Begin),
            1 => Just(Step::End),
        ]
    }

    proptest! {
        /// Over a disk that keeps only what was flushed or written durably, the entries make the
        /// disk that was acknowledged.
        #[test]
        fn replayed_over_the_oldest_disk_it_makes_the_newest(
            steps in proptest::collection::vec(step(), 0..60),
        ) {
            let mut journal = Journal::default();
            let mut newest = vec![0_u8; 64];
            let mut oldest = newest.clone();
            let mut begun: Option<(u64, Vec<u8>)> = None;
            let mut durable = Vec::new();
            for (n, step) in steps.into_iter().enumerate() {
                let value = u8::try_from(n + 1).unwrap();
                match step {
                    Step::Write(offset, len) => {
                        journal.insert(offset, vec![value; len]);
                        newest[usize::try_from(offset).unwrap()..][..len].fill(value);
                    }
                    Step::Durable(offset, len) => {
                        journal.overwrite(offset, &vec![value; len]);
                        let range = usize::try_from(offset).unwrap()..usize::try_from(offset).unwrap() + len;
                        newest[range.clone()].fill(value);
                        oldest[range.clone()].fill(value);
                        durable.push((range, value));
                    }
                    Step::Begin => {
                        begun = Some((journal.begin_flush(), newest.clone()));
                        durable.clear();
                    }
                    Step::End => {
                        if let Some((covered, mut disk)) = begun.take() {
                            journal.forget(covered);
                            for (range, value) in durable.drain(..) {
                                disk[range].fill(value);
                            }
                            oldest = disk;
                        }
                    }
                }
                let mut disk = oldest.clone();
                let mut last = 0;
                for (offset, data) in journal.entries() {
                    prop_assert!(offset >= last);
                    last = offset + data.len() as u64;
                    disk[usize::try_from(offset).unwrap()..][..data.len()].copy_from_slice(&data);
                }
                prop_assert_eq!(&disk, &newest);
                prop_assert_eq!(journal.bytes(), journal.entries().map(|(_, data)| data.len()).sum::<usize>());
            }
            let covered = journal.begin_flush();
            journal.forget(covered);
            prop_assert_eq!((journal.bytes(), journal.entries().count()), (0, 0));
        }
    }
}
