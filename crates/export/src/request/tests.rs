//! Requests against volumes of all kinds of stores, by clients with all kinds of memory.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use proptest::prelude::*;
use sector_cipher::{SectorCount, SectorSize};
use xtent_secret::SecretBytes;
use xtent_store::testing::{Fault, FaultStore, LaterStore, MemStore, Operation};
use xtent_store::{Limits, Store};
use xtent_volume::testing::LaterEngine;
use xtent_volume::{Config, Direction, DiscardPolicy, Holes, Threshold};

use super::*;
use crate::executor::Executor;

const SIZE: usize = 6 << 20;

/// Requests from here on go to the engine, where there is one.
const LONG: usize = 100_000;

fn volume(store: Arc<dyn Store>, has_engine: bool) -> (Arc<Volume>, Option<Arc<LaterEngine>>) {
    let config = Config {
        cipher: "aes-xts-plain64".parse().unwrap(),
        sector_size: SectorSize::new(4096).unwrap(),
        sector_count: SectorCount::Units512,
        offset: 4096,
        length: store.size() - 4096,
        iv_offset: 0,
        read_only: false,
        discard: DiscardPolicy::Zero,
        holes: Holes::Noise,
        backend: None,
    };
    let key = SecretBytes::copy_of(&[7; 64]).unwrap();
    let volume = Volume::open(store, &key, &config).unwrap();
    if !has_engine {
        return (Arc::new(volume), None);
    }
    let engine = LaterEngine::new(&config, &[7; 64], 9);
    let volume = volume.with_engine(Arc::clone(&engine) as _, Threshold::Bytes(LONG));
    engine.take_done();
    (Arc::new(volume.unwrap()), Some(engine))
}

/// How a request ended: its data, the error, and whether it was later.
type End = (Vec<u8>, Result<(), Failed>, bool);

/// Where a client has its data, for all that the carrier knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lies {
    Here,
    Elsewhere,
    /// Where others see it: in pieces of 4096 bytes.
    Foreign,
    /// The same, but the pieces are no whole sectors.
    ForeignOdd,
    /// It does not.
    Nowhere,
}

struct Tester {
    data: Vec<Cell<u8>>,
    lies: Lies,
    ended: Sender<End>,
}

fn cells(data: &[u8]) -> Vec<Cell<u8>> {
    data.iter().copied().map(Cell::new).collect()
}

impl Client for Tester {
    fn put(&mut self, from: u64, data: &[u8]) -> Result<(), Failed> {
        if self.lies == Lies::Nowhere {
            return Err(Failed::With(Errno::FAULT));
        }
        let from = usize::try_from(from).unwrap();
        for (to, from) in self.data[from..].iter().zip(data) {
            to.set(*from);
        }
        Ok(())
    }

    fn get(&mut self, from: u64, data: &mut [u8]) -> Result<(), Failed> {
        if self.lies == Lies::Nowhere {
            return Err(Failed::With(Errno::FAULT));
        }
        let from = usize::try_from(from).unwrap();
        for (from, to) in self.data[from..].iter().zip(data) {
            *to = from.get();
        }
        Ok(())
    }

    fn own(&mut self, from: u64, len: usize) -> Option<&mut [u8]> {
        let from = usize::try_from(from).unwrap();
        let data = &mut self.data[from..from + len];
        // SAFETY: a cell is its value, and these are borrowed mutably.
        let data = unsafe { &mut *(std::ptr::from_mut(data) as *mut [u8]) };
        (self.lies == Lies::Here).then_some(data)
    }

    fn foreign(&self, from: u64, len: usize) -> Option<Vec<Foreign<'_>>> {
        let step = match self.lies {
            Lies::Foreign => 4096,
            Lies::ForeignOdd => 1000,
            _ => return None,
        };
        let from = usize::try_from(from).unwrap();
        let pieces = self.data[from..from + len].chunks(step);
        // SAFETY: cells may be written to by their address; nobody has a reference to their values.
        let foreign = |piece: &[Cell<u8>]| unsafe {
            Foreign::new(piece.as_ptr().cast_mut().cast(), piece.len())
        };
        Some(pieces.map(foreign).collect())
    }

    fn end(&mut self, result: Result<(), Failed>, later: bool) {
        let data = self.data.iter().map(Cell::get).collect();
        let _ = self.ended.send((data, result, later));
    }
}

/// A carrier with its threads, and a piece of memory.
struct Bed {
    carrier: Arc<Carrier>,
    scratch: Vec<u8>,
    lies: Lies,
    engine: Option<Arc<LaterEngine>>,
    sender: Sender<End>,
    ended: Receiver<End>,
}

impl Bed {
    fn new(store: Arc<dyn Store>, threads: Threads, lies: Lies) -> Self {
        Self::of(volume(store, false), threads, lies)
    }

    fn with_engine(store: Arc<dyn Store>, threads: Threads, lies: Lies) -> Self {
        Self::of(volume(store, true), threads, lies)
    }

    fn of(
        (volume, engine): (Arc<Volume>, Option<Arc<LaterEngine>>),
        threads: Threads,
        lies: Lies,
    ) -> Self {
        let executor = Executor::with_own_threads();
        executor.open(2).unwrap();
        let scratch = match lies {
            Lies::Here => Vec::new(),
            _ => vec![0; volume.preferred_piece()],
        };
        let (sender, ended) = channel();
        Self {
            carrier: Carrier::new(&volume, executor, 8 << 20, threads),
            scratch,
            lies,
            engine,
            sender,
            ended,
        }
    }

    fn ask(&mut self, asked: Asked, data: &[u8]) -> End {
        let tester = Tester {
            data: cells(data),
            lies: self.lies,
            ended: self.sender.clone(),
        };
        self.carrier.carry_out(tester, asked, &mut self.scratch);
        let end = self.ended.recv().unwrap();
        assert!(self.ended.try_recv().is_err(), "it ends once");
        end
    }

    fn write(&mut self, offset: u64, data: &[u8], fua: bool) -> End {
        let len = data.len() as u64;
        self.ask(Asked::Write { offset, len, fua }, data)
    }

    fn read(&mut self, offset: u64, len: usize) -> End {
        let asked = Asked::Read {
            offset,
            len: len as u64,
        };
        self.ask(asked, &vec![0xee; len])
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.carrier.executor().close();
    }
}

/// A store that has to be waited for now and then, and has scribbled over the memory by then.
struct Sometimes {
    inner: MemStore,
    calls: AtomicU64,
    /// Each read and write panics.
    panics: AtomicBool,
}

impl Sometimes {
    fn new() -> Self {
        Self {
            inner: MemStore::new(SIZE),
            calls: AtomicU64::new(1),
            panics: AtomicBool::new(false),
        }
    }

    fn look_out(&self) {
        assert!(!self.panics.load(Ordering::Relaxed), "as the test wants it");
    }

    fn is_ready(&self) -> bool {
        let calls = self.calls.fetch_add(1, Ordering::Relaxed);
        calls.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 62 != 0
    }
}

impl Store for Sometimes {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), xtent_store::Error> {
        self.look_out();
        self.inner.read_at(buf, offset)
    }

    fn try_read_at(&self, buf: &mut [u8], offset: u64) -> Result<bool, xtent_store::Error> {
        self.look_out();
        if self.is_ready() {
            return self.inner.read_at(buf, offset).map(|()| true);
        }
        buf.fill(0xab);
        Ok(false)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<(), xtent_store::Error> {
        self.look_out();
        self.inner.write_at(data, offset)
    }

    fn takes_write_at_once(&self, _offset: u64, _len: u64) -> Result<bool, xtent_store::Error> {
        Ok(self.is_ready())
    }

    fn flush(&self) -> Result<(), xtent_store::Error> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), xtent_store::Error> {
        self.inner.discard(offset, len)
    }
}

/// Each way that a request can go: near and far, on the caller's thread and not, with all kinds of memory.
fn beds() -> Vec<Bed> {
    let mut beds = Vec::new();
    for threads in [Threads::Callers, Threads::Executors] {
        for lies in [Lies::Here, Lies::Elsewhere, Lies::Foreign, Lies::ForeignOdd] {
            let near = Arc::new(MemStore::new(SIZE));
            beds.push(Bed::new(near, threads, lies));
            let far = Arc::new(LaterStore::new(Arc::new(MemStore::new(SIZE)), 5));
            beds.push(Bed::new(far, threads, lies));
            beds.push(Bed::new(Arc::new(Sometimes::new()), threads, lies));
            beds.push(Bed::with_engine(Arc::new(Sometimes::new()), threads, lies));
        }
    }
    beds
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    let bytes = (0..len).map(|i| (i / 7 + i / 512 * 31).to_le_bytes()[0] ^ seed);
    bytes.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn what_was_written_is_read_whatever_the_way(
        asked in proptest::collection::vec((0..5_u64 << 20, 0..700_000_usize, any::<bool>(), any::<u8>()), 1..6),
    ) {
        for mut bed in beds() {
            let mut model = bed.read(0, 5 << 20).0;
            for &(offset, len, fua, seed) in &asked {
                let start = usize::try_from(offset).unwrap();
                let len = len.min(model.len() - start);
                let data = pattern(len, seed);
                prop_assert!(bed.write(offset, &data, fua).1.is_ok());
                model[start..start + len].copy_from_slice(&data);
                let (read, result, _) = bed.read(offset, len);
                prop_assert!(result.is_ok() && read == data);
            }
            let (read, result, _) = bed.read(0, model.len());
            prop_assert!(result.is_ok() && read == model);
        }
    }
}

#[test]
fn zeros_and_discards_by_this_policy_read_as_zeros_and_nothing_around_them_does() {
    for mut bed in beds() {
        let data = pattern(1 << 20, 3);
        assert!(bed.write(0, &data, false).1.is_ok());
        let ranges = vec![(1000, 5000), (700_001, 1)];
        let fua = true;
        let zeroes = Asked::WriteZeroes { ranges, fua };
        assert!(bed.ask(zeroes, &[]).1.is_ok());
        let ranges = vec![(8192, 4096)];
        let discard = Asked::Discard { ranges, fua };
        assert!(bed.ask(discard, &[]).1.is_ok());
        assert!(bed.ask(Asked::Flush, &[]).1.is_ok());
        let mut expected = data;
        for range in [1000..6000, 700_001..700_002, 8192..12288] {
            expected[range].fill(0);
        }
        assert!(bed.read(0, expected.len()).0 == expected);
    }
}

#[test]
fn what_lies_outside_is_an_error_and_counted() {
    for mut bed in beds() {
        let size = bed.carrier.volume().size();
        for offset in [size, size - 4096, u64::MAX - 512] {
            assert!(bed.read(offset, 8192).1.is_err(), "{offset}");
            assert!(bed.write(offset, &[1; 8192], false).1.is_err(), "{offset}");
        }
        let snapshot = bed.carrier.volume().metrics().snapshot();
        let read = &snapshot.requests[RequestKind::Read as usize];
        assert_eq!((read.failed, read.latency.count()), (3, 3));
        assert_eq!((read.bytes, snapshot.under_way), (3 * 8192, 0));
    }
}

#[test]
fn memory_that_is_gone_is_an_error_and_nothing_is_written() {
    for mut bed in beds() {
        if bed.lies != Lies::Elsewhere {
            continue;
        }
        let before = bed.read(0, 1 << 20).0;
        bed.lies = Lies::Nowhere;
        for fua in [false, true] {
            let (_, result, _) = bed.write(0, &[1; 8192], fua);
            assert!(matches!(result, Err(Failed::With(Errno::FAULT))));
        }
        assert!(bed.read(0, 8192).1.is_err());
        bed.lies = Lies::Elsewhere;
        assert!(bed.read(0, 1 << 20).0 == before);
    }
}

#[test]
fn long_requests_go_to_the_engine_whole_and_short_ones_end_at_once() {
    for threads in [Threads::Callers, Threads::Executors] {
        for lies in [Lies::Here, Lies::Elsewhere, Lies::Foreign] {
            let mut bed = Bed::with_engine(Arc::new(MemStore::new(SIZE)), threads, lies);
            let engine = Arc::clone(bed.engine.as_ref().unwrap());
            let data = pattern(5 << 20, 2);
            assert!(bed.write(0, &data, false).1.is_ok());
            assert!(bed.read(4096, 300_000).0 == data[4096..304_096]);
            // What is longer than a piece of it goes there in such pieces.
            assert_eq!(engine.take_done(), [4 << 20, 1 << 20, 303_104]);
            let (read, _, later) = bed.read(4096, LONG - 1);
            assert!(read == data[4096..4095 + LONG] && !later);
            assert!(!bed.write(0, &data[..8192], false).2);
            assert!(engine.take_done().is_empty());
            engine.fail(Some(Direction::Decrypt));
            let (_, result, later) = bed.read(0, LONG);
            assert!(result.is_err_and(|failed| failed.errno() == Errno::IO) && later);
            engine.fail(Some(Direction::Encrypt));
            assert!(bed.write(0, &pattern(LONG, 3), false).1.is_err());
            engine.fail(None);
            assert!(bed.read(0, data.len()).0 == data);
        }
    }
}

#[test]
fn where_nothing_is_waited_for_the_end_comes_at_once() {
    for threads in [Threads::Callers, Threads::Executors] {
        let mut bed = Bed::new(Arc::new(MemStore::new(SIZE)), threads, Lies::Foreign);
        assert!(!bed.write(0, &[1; 8192], false).2);
        assert!(!bed.read(0, 1 << 20).2);
    }
}

#[test]
fn a_volume_s_failure_is_its_errno() {
    let store = Arc::new(FaultStore::new(MemStore::new(SIZE)));
    let faults = Arc::clone(&store);
    let mut bed = Bed::new(store, Threads::Executors, Lies::Elsewhere);
    faults.inject(Fault::on(Operation::Write).errno(Errno::NOSPC.raw_os_error()));
    let (_, result, _) = bed.write(0, &[1; 8192], false);
    let failed = result.unwrap_err();
    assert_eq!((failed.errno(), failed.is_fenced()), (Errno::NOSPC, false));
    faults.heal();
    faults.inject(Fault::on(Operation::Flush));
    assert!(bed.ask(Asked::Flush, &[]).1.is_err());
}

#[test]
fn a_request_that_is_dropped_fails() {
    let bed = Bed::new(
        Arc::new(MemStore::new(SIZE)),
        Threads::Executors,
        Lies::Elsewhere,
    );
    let tester = Tester {
        data: Vec::new(),
        lies: Lies::Here,
        ended: bed.sender.clone(),
    };
    drop(Request::new(tester, &Asked::Flush, bed.carrier.volume()));
    let (_, result, later) = bed.ended.recv().unwrap();
    assert!(matches!(result, Err(Failed::With(Errno::IO))) && later);
    assert_eq!(bed.carrier.volume().metrics().snapshot().under_way, 0);
}

#[test]
fn a_request_that_panics_ends_once_and_leaves_the_volume_fit() {
    for threads in [Threads::Callers, Threads::Executors] {
        for lies in [Lies::Here, Lies::Elsewhere, Lies::Foreign] {
            let store = Arc::new(Sometimes::new());
            let mut bed = Bed::new(Arc::clone(&store) as Arc<dyn Store>, threads, lies);
            store.panics.store(true, Ordering::Relaxed);
            for is_read in [true, false] {
                let (offset, len, fua) = (0, 700_000, false);
                let asked = match is_read {
                    true => Asked::Read { offset, len },
                    false => Asked::Write { offset, len, fua },
                };
                let tester = Tester {
                    data: cells(&[7; 700_000]),
                    lies,
                    ended: bed.sender.clone(),
                };
                let (carrier, scratch) = (&bed.carrier, &mut bed.scratch);
                // On this thread, or on another one, which survives it.
                let _ = catch_unwind(AssertUnwindSafe(|| {
                    carrier.carry_out(tester, asked, scratch);
                }));
                let (_, result, _) = bed.ended.recv().unwrap();
                assert!(matches!(result, Err(Failed::With(Errno::IO))));
                assert!(bed.ended.try_recv().is_err(), "it ends once");
            }
            store.panics.store(false, Ordering::Relaxed);
            assert!(bed.write(0, &[1; 8192], false).1.is_ok());
            assert!(bed.read(0, 8192).0 == [1; 8192]);
            assert_eq!(bed.carrier.volume().metrics().snapshot().under_way, 0);
        }
    }
}
