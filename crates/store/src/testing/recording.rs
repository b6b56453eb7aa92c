//! A store that records, and the power cuts that its records allow.
//!
//! # What may survive
//!
//! A disk keeps whole 512-byte sectors. When the power fails,
//!
//! * every write that a completed flush covers is there, and so is every
//!   durable (FUA) write that completed;
//! * every other write is there in any part: each of its sectors old or new,
//!   each on its own, in whatever order they were issued. A write or durable
//!   write that was under way at the cut is one of these.
//!
//! A sector that several pending writes touched holds what any one of them
//! left in it, or what was durable before them all.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::MemStore;
use super::memory::{DISCARDED, range};
use crate::{Act, Error, Limits, Store};

/// Bytes that a disk writes whole or not at all.
const SECTOR: usize = 512;

/// A store in memory that records its writes and flushes.
///
/// ```
/// # use xtent_store::{Store, testing::*};
/// let store = RecordingStore::new(vec![0; 4096]);
/// store.write_at(&[1; 1024], 0).unwrap();
/// store.flush().unwrap();
/// let acknowledged = store.position();
/// store.write_at(&[2; 1024], 1024).unwrap();
///
/// for survivor in store.survivors(Sampling::default()) {
///     if survivor.cut >= acknowledged {
///         assert_eq!(survivor.image[..1024], [1; 1024], "{survivor}");
///     }
///     let _after_reboot = MemStore::from(survivor);
/// }
/// ```
pub struct RecordingStore {
    state: Mutex<State>,
}

struct State {
    initial: Vec<u8>,
    current: Vec<u8>,
    events: Vec<Event>,
}

#[derive(Clone)]
enum Event {
    Write {
        offset: usize,
        data: Vec<u8>,
        durable: bool,
    },
    Flush,
}

/// How many survivors to look at, per cut.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    /// Where no more than this many survivors are possible, all of them.
    /// Otherwise the edge cases (nothing, everything, one sector missing, one
    /// sector alone, all prefixes, halves of writes) and a random sample.
    pub exhaustive: usize,
    /// Size of the random sample.
    pub random: usize,
    /// Up to how many pending sectors each is left out, alone and the last in
    /// turn; beyond, whole writes, their halves and first and last sectors are.
    pub single_sectors: usize,
    /// Seed of the random sample; the same seed gives the same survivors.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            exhaustive: 256,
            random: 32,
            single_sectors: 32,
            seed: 1,
        }
    }
}

/// A disk as it may be found after the cut.
pub struct Survivor {
    /// What the disk holds.
    pub image: Vec<u8>,
    /// Writes, discards and flushes that had completed before the cut: whatever
    /// was acknowledged when [`RecordingStore::position`] was not above this
    /// must be here.
    pub cut: usize,
    /// Which pending sectors made it, for the message of a failed assertion.
    pub description: String,
}

impl fmt::Display for Survivor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cut after event {}: {}", self.cut, self.description)
    }
}

impl fmt::Debug for Survivor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Survivor> for MemStore {
    fn from(survivor: Survivor) -> Self {
        survivor.image.into()
    }
}

impl RecordingStore {
    /// A store that holds `image`, durably.
    pub fn new(image: Vec<u8>) -> Self {
        Self {
            state: Mutex::new(State {
                initial: image.clone(),
                current: image,
                events: Vec::new(),
            }),
        }
    }

    /// Writes, discards and flushes recorded so far.
    pub fn position(&self) -> usize {
        self.state().events.len()
    }

    /// A copy of what it holds now.
    pub fn contents(&self) -> Vec<u8> {
        self.state().current.clone()
    }

    /// Forgets the record: what it holds now counts as durable.
    pub fn restart(&self) {
        let state = &mut *self.state();
        state.initial.clone_from(&state.current);
        state.events.clear();
    }

    /// What the disk may hold after a cut at any point from the first event
    /// to after the last, in order of the cuts.
    pub fn survivors(&self, sampling: Sampling) -> Survivors {
        let state = self.state();
        Survivors {
            events: state.events.clone(),
            durable: state.initial.clone(),
            current: state.initial.clone(),
            pending: Vec::new(),
            cut: 0,
            cases: None,
            sampling,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, act: Act, data: &[u8], offset: u64, durable: bool) -> Result<(), Error> {
        let state = &mut *self.state();
        let range = range(state.current.len(), act, offset, data.len() as u64)?;
        state.current[range.clone()].copy_from_slice(data);
        state.events.push(Event::Write {
            offset: range.start,
            data: data.to_vec(),
            durable,
        });
        Ok(())
    }
}

impl Store for RecordingStore {
    fn size(&self) -> u64 {
        self.state().current.len() as u64
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn limits(&self) -> Limits {
        Limits {
            atomic: 512,
            discard: 512,
            block: 1,
        }
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), Error> {
        let state = self.state();
        let range = range(state.current.len(), Act::Read, offset, buf.len() as u64)?;
        buf.copy_from_slice(&state.current[range]);
        Ok(())
    }

    fn try_read_at(&self, buf: &mut [u8], offset: u64) -> Result<bool, Error> {
        self.read_at(buf, offset).map(|()| true)
    }

    fn takes_write_at_once(&self, _offset: u64, _len: u64) -> Result<bool, Error> {
        Ok(true)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<(), Error> {
        self.record(Act::Write, data, offset, false)
    }

    fn write_at_durably(&self, data: &[u8], offset: u64) -> Result<(), Error> {
        self.record(Act::DurableWrite, data, offset, true)
    }

    fn flush(&self) -> Result<(), Error> {
        self.state().events.push(Event::Flush);
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), Error> {
        let size = usize::try_from(self.size()).unwrap_or(usize::MAX);
        let len = range(size, Act::Discard, offset, len)?.len();
        self.record(Act::Discard, &vec![DISCARDED; len], offset, false)
    }
}

/// Iterates over what a disk may hold; made by [`RecordingStore::survivors`].
pub struct Survivors {
    events: Vec<Event>,
    /// What is on the disk for certain.
    durable: Vec<u8>,
    /// What a reader of the live store saw.
    current: Vec<u8>,
    /// Sectors written and not flushed, in order.
    pending: Vec<Pending>,
    cut: usize,
    /// Survivors of this cut that are still to come; `None` before the first.
    cases: Option<VecDeque<Vec<usize>>>,
    sampling: Sampling,
}

/// One sector of one write.
#[derive(Clone)]
struct Pending {
    /// Index of the write among the events.
    event: usize,
    /// Start in the image.
    start: usize,
    /// What the sector held after the write.
    content: Vec<u8>,
}

impl Iterator for Survivors {
    type Item = Survivor;

    fn next(&mut self) -> Option<Survivor> {
        loop {
            if self.cut > self.events.len() {
                return None;
            }
            if self.cases.is_none() {
                self.begin_event();
                self.cases = Some(cases(&self.pending, &self.sampling, self.cut));
            }
            if let Some(chosen) = self.cases.as_mut().and_then(VecDeque::pop_front) {
                return Some(self.survivor(&chosen));
            }
            self.complete_event();
            self.cut += 1;
            self.cases = None;
        }
    }
}

impl Survivors {
    /// The event at the cut is under way: a write may be there in part.
    fn begin_event(&mut self) {
        let Some(Event::Write { offset, data, .. }) = self.events.get(self.cut) else {
            return;
        };
        self.current[*offset..*offset + data.len()].copy_from_slice(data);
        for start in sectors(*offset, data.len()) {
            let end = (start + SECTOR).min(self.current.len());
            self.pending.push(Pending {
                event: self.cut,
                start,
                content: self.current[start..end].to_vec(),
            });
        }
    }

    fn complete_event(&mut self) {
        match self.events.get(self.cut) {
            Some(Event::Flush) => {
                self.durable.clone_from(&self.current);
                self.pending.clear();
            }
            Some(Event::Write {
                offset,
                data,
                durable: true,
            }) => {
                let written: HashSet<_> = sectors(*offset, data.len()).collect();
                for start in &written {
                    let end = (start + SECTOR).min(self.current.len());
                    self.durable[*start..end].copy_from_slice(&self.current[*start..end]);
                }
                // What was pending below is overwritten for good.
                self.pending.retain(|p| !written.contains(&p.start));
            }
            Some(Event::Write { durable: false, .. }) | None => {}
        }
    }

    fn survivor(&self, chosen: &[usize]) -> Survivor {
        let mut image = self.durable.clone();
        for &index in chosen {
            let Pending { start, content, .. } = &self.pending[index];
            image[*start..*start + content.len()].copy_from_slice(content);
        }
        Survivor {
            image,
            cut: self.cut,
            description: self.describe(chosen),
        }
    }

    fn describe(&self, chosen: &[usize]) -> String {
        let total = self.pending.len();
        let mut text = format!("{} of {total} pending sectors", chosen.len());
        let some = &chosen[..chosen.len().min(8)];
        for &index in some {
            let Pending { event, start, .. } = &self.pending[index];
            text += &format!(", {start:#x} of write {event}");
        }
        if some.len() < chosen.len() {
            text += ", …";
        }
        text
    }
}

/// Starts of the sectors that a range touches.
fn sectors(offset: usize, len: usize) -> impl Iterator<Item = usize> {
    let end = if len == 0 { offset } else { offset + len };
    (offset / SECTOR * SECTOR..end).step_by(SECTOR)
}

/// The sets of pending sectors, as ascending indices, that are to survive.
/// Applied in order, such sets give every possible outcome: where a sector is
/// pending more than once, the last one in the set decides.
fn cases(pending: &[Pending], sampling: &Sampling, cut: usize) -> VecDeque<Vec<usize>> {
    let mut by_sector: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (index, p) in pending.iter().enumerate() {
        by_sector.entry(p.start).or_default().push(index);
    }
    let possible = by_sector.values().try_fold(1usize, |product, versions| {
        product.checked_mul(versions.len() + 1)
    });
    if possible.is_some_and(|possible| possible <= sampling.exhaustive) {
        return every_case(&by_sector);
    }
    let mut set = CaseSet::default();
    edge_cases(pending, sampling.single_sectors, &mut set);
    let mut random = SplitMix(sampling.seed ^ (cut as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    for _ in 0..sampling.random {
        // Mostly there, mostly not there, and evenly mixed.
        let weight = random.next() % 3 + 1;
        set.add(
            by_sector
                .values()
                .filter_map(|versions| {
                    let is_kept = random.next() % 4 < weight;
                    let which = random.next() % versions.len() as u64;
                    is_kept.then(|| versions[usize::try_from(which).unwrap_or_default()])
                })
                .collect(),
        );
    }
    set.cases
}

fn every_case(by_sector: &BTreeMap<usize, Vec<usize>>) -> VecDeque<Vec<usize>> {
    let mut cases = VecDeque::from([Vec::new()]);
    for versions in by_sector.values() {
        let shorter = cases.clone();
        for version in versions {
            cases.extend(shorter.iter().map(|case| {
                let mut case = case.clone();
                case.push(*version);
                case
            }));
        }
    }
    cases
}

fn edge_cases(pending: &[Pending], single_sectors: usize, set: &mut CaseSet) {
    let all = pending.len();
    set.add(Vec::new());
    set.add((0..all).collect());
    let mut parts: Vec<Range<usize>> = Vec::new();
    if all <= single_sectors {
        parts.extend((0..all).map(|index| index..index + 1));
    }
    let mut start = 0;
    while start < all {
        let event = pending[start].event;
        let len = pending[start..]
            .iter()
            .take_while(|p| p.event == event)
            .count();
        let end = start + len;
        parts.extend([
            start..end,
            start..start + 1,
            end - 1..end,
            start..start + len / 2,
            start + len / 2..end,
        ]);
        start = end;
    }
    for part in parts {
        set.add(part.clone().collect());
        set.add((0..all).filter(|index| !part.contains(index)).collect());
        set.add((0..part.end).collect());
    }
}

/// Cases without repetition, in the order in which they came.
#[derive(Default)]
struct CaseSet {
    cases: VecDeque<Vec<usize>>,
    seen: HashSet<Vec<usize>>,
}

impl CaseSet {
    fn add(&mut self, mut case: Vec<usize>) {
        case.sort_unstable();
        if self.seen.insert(case.clone()) {
            self.cases.push_back(case);
        }
    }
}

/// Steele, Lea and Flood's SplitMix64: enough for samples, the same everywhere.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn images(store: &RecordingStore, cut: usize) -> HashSet<Vec<u8>> {
        store
            .survivors(Sampling::default())
            .filter(|s| s.cut == cut)
            .map(|s| s.image)
            .collect()
    }

    /// First byte of each sector.
    fn marks(image: &[u8]) -> Vec<u8> {
        image.iter().step_by(SECTOR).copied().collect()
    }

    #[test]
    fn unflushed_writes_come_in_every_combination() {
        let store = RecordingStore::new(vec![0; 3 * SECTOR]);
        store.write_at(&[1; 2 * SECTOR], 0).unwrap();
        store.write_at(&[2; 2 * SECTOR], SECTOR as u64).unwrap();
        let found: HashSet<_> = images(&store, 2).iter().map(|i| marks(i)).collect();
        let mut expected = HashSet::new();
        for a in [0, 1] {
            for b in [0, 1, 2] {
                for c in [0, 2] {
                    expected.insert(vec![a, b, c]);
                }
            }
        }
        assert_eq!(found, expected);
        // Before the first write completed, only it can be there.
        let found: HashSet<_> = images(&store, 0).iter().map(|i| marks(i)).collect();
        assert_eq!(found.len(), 4);
    }

    #[test]
    fn flushed_and_durable_writes_are_there() {
        let store = RecordingStore::new(vec![0; 4 * SECTOR]);
        store.write_at(&[1; SECTOR], 0).unwrap();
        store.flush().unwrap();
        store.write_at(&[2; 2 * SECTOR], SECTOR as u64).unwrap();
        store
            .write_at_durably(&[3; SECTOR], 2 * SECTOR as u64)
            .unwrap();
        for survivor in store.survivors(Sampling::default()) {
            let m = marks(&survivor.image);
            assert!(survivor.cut < 2 || m[0] == 1, "{survivor}");
            assert!(survivor.cut < 4 || m[2] == 3, "{survivor}");
            assert!(m[2] != 3 || survivor.cut >= 3, "{survivor}");
        }
        // The durable write alone is no flush.
        assert!(images(&store, 4).iter().any(|i| marks(i)[1] == 0));
        // And until it has completed it may be lost.
        assert!(images(&store, 3).iter().any(|i| marks(i)[2] == 0));
        assert!(images(&store, 3).iter().any(|i| marks(i)[2] == 3));
    }

    #[test]
    fn unaligned_writes_keep_their_neighbours() {
        let store = RecordingStore::new(vec![9; 2 * SECTOR]);
        store.write_at(&[1; 10], SECTOR as u64 - 5).unwrap();
        let found = images(&store, 1);
        assert_eq!(found.len(), 4);
        for image in found {
            assert_eq!(image[..SECTOR - 5], [9; SECTOR - 5]);
            let left = &image[SECTOR - 5..SECTOR];
            assert!(left == [1; 5] || left == [9; 5]);
        }
    }

    #[test]
    fn large_writes_are_sampled_with_their_edges() {
        let sectors = 300;
        let store = RecordingStore::new(vec![0; sectors * SECTOR]);
        store.write_at(&vec![1; sectors * SECTOR], 0).unwrap();
        let counts: HashSet<usize> = images(&store, 1)
            .iter()
            .map(|i| marks(i).iter().filter(|m| **m == 1).count())
            .collect();
        for expected in [0, 1, sectors / 2, sectors - 1, sectors] {
            assert!(counts.contains(&expected), "{expected} sectors");
        }
        let again = || {
            store
                .survivors(Sampling::default())
                .map(|s| s.image)
                .collect::<Vec<_>>()
        };
        assert_eq!(again(), again());
        assert!(again().len() > 32);
    }

    #[test]
    fn discards_lose_their_range_and_stay_inside() {
        let store = RecordingStore::new(vec![1; 2 * SECTOR]);
        assert!(store.discard(0, u64::MAX).is_err());
        assert!(store.discard(1, 2 * SECTOR as u64).is_err());
        store.discard(0, SECTOR as u64).unwrap();
        let found: HashSet<_> = images(&store, 1).iter().map(|i| marks(i)).collect();
        assert_eq!(found, HashSet::from([vec![1, 1], vec![DISCARDED, 1]]));
        store.restart();
        assert_eq!(store.position(), 0);
        assert_eq!(store.survivors(Sampling::default()).count(), 1);
    }
}
