//! Requests against volumes of all kinds of stores, by clients with memory of their own and without.

use std::sync::mpsc::{Receiver, Sender, channel};

use proptest::prelude::*;
use sector_cipher::{SectorCount, SectorSize};
use xtent_secret::SecretBytes;
use xtent_store::Store;
use xtent_store::testing::{Fault, FaultStore, LaterStore, MemStore, Operation};
use xtent_volume::{Config, DiscardPolicy, Holes};

use super::*;
use crate::executor::Executor;

const SIZE: usize = 10 << 20;

fn volume(store: Arc<dyn Store>) -> Arc<Volume> {
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
    Arc::new(Volume::open(store, &key, &config).unwrap())
}

/// How a request ended: its data, the error, and whether it was later.
type End = (Vec<u8>, Result<(), Failed>, bool);

/// A client that has its data here or, for all that the carrier knows, elsewhere.
struct Tester {
    data: Vec<u8>,
    is_own: bool,
    is_gone: bool,
    ended: Sender<End>,
}

impl Client for Tester {
    fn put(&mut self, from: u64, data: &[u8]) -> Result<(), Failed> {
        if self.is_gone {
            return Err(Failed::With(Errno::FAULT));
        }
        let from = usize::try_from(from).unwrap();
        self.data[from..from + data.len()].copy_from_slice(data);
        Ok(())
    }

    fn get(&mut self, from: u64, data: &mut [u8]) -> Result<(), Failed> {
        if self.is_gone {
            return Err(Failed::With(Errno::FAULT));
        }
        let from = usize::try_from(from).unwrap();
        data.copy_from_slice(&self.data[from..from + data.len()]);
        Ok(())
    }

    fn own(&mut self, from: u64, len: usize) -> Option<&mut [u8]> {
        let from = usize::try_from(from).unwrap();
        self.is_own.then(|| &mut self.data[from..from + len])
    }

    fn end(&mut self, result: Result<(), Failed>, later: bool) {
        let data = std::mem::take(&mut self.data);
        let _ = self.ended.send((data, result, later));
    }
}

/// A carrier with its threads, and a piece of memory.
struct Bed {
    carrier: Arc<Carrier>,
    scratch: Vec<u8>,
    is_own: bool,
    is_gone: bool,
    sender: Sender<End>,
    ended: Receiver<End>,
}

impl Bed {
    fn new(store: Arc<dyn Store>, threads: Threads, is_own: bool) -> Self {
        let volume = volume(store);
        let executor = Executor::with_own_threads();
        executor.open(2).unwrap();
        let scratch = match is_own {
            true => Vec::new(),
            false => vec![0; volume.preferred_piece()],
        };
        let (sender, ended) = channel();
        Self {
            carrier: Carrier::new(&volume, executor, 8 << 20, threads),
            scratch,
            is_own,
            is_gone: false,
            sender,
            ended,
        }
    }

    fn ask(&mut self, asked: Asked, data: Vec<u8>) -> End {
        let tester = Tester {
            data,
            is_own: self.is_own,
            is_gone: self.is_gone,
            ended: self.sender.clone(),
        };
        self.carrier.carry_out(tester, asked, &mut self.scratch);
        let end = self.ended.recv().unwrap();
        assert!(self.ended.try_recv().is_err(), "it ends once");
        end
    }

    fn write(&mut self, offset: u64, data: &[u8], fua: bool) -> End {
        let len = data.len() as u64;
        self.ask(Asked::Write { offset, len, fua }, data.to_vec())
    }

    fn read(&mut self, offset: u64, len: usize) -> End {
        let asked = Asked::Read {
            offset,
            len: len as u64,
        };
        self.ask(asked, vec![0xee; len])
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.carrier.executor().close();
    }
}

/// Each way that a request can go: near and far, on the caller's thread and not, own memory and not.
fn beds() -> Vec<Bed> {
    let mut beds = Vec::new();
    for threads in [Threads::Callers, Threads::Executors] {
        for is_own in [false, true] {
            let near = Arc::new(MemStore::new(SIZE));
            beds.push(Bed::new(near, threads, is_own));
            let far = Arc::new(LaterStore::new(Arc::new(MemStore::new(SIZE)), 5));
            beds.push(Bed::new(far, threads, is_own));
        }
    }
    beds
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    let bytes = (0..len).map(|i| (i / 7 + i / 512 * 31).to_le_bytes()[0] ^ seed);
    bytes.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn what_was_written_is_read_whatever_the_way(
        asked in proptest::collection::vec((0..9_u64 << 20, 0..700_000_usize, any::<bool>(), any::<u8>()), 1..6),
    ) {
        for mut bed in beds() {
            let mut model = bed.read(0, 9 << 20).0;
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
        assert!(bed.ask(zeroes, Vec::new()).1.is_ok());
        let ranges = vec![(8192, 4096)];
        let discard = Asked::Discard { ranges, fua };
        assert!(bed.ask(discard, Vec::new()).1.is_ok());
        assert!(bed.ask(Asked::Flush, Vec::new()).1.is_ok());
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
    for mut bed in beds().into_iter().filter(|bed| !bed.is_own) {
        let before = bed.read(0, 1 << 20).0;
        bed.is_gone = true;
        for fua in [false, true] {
            let (_, result, _) = bed.write(0, &[1; 8192], fua);
            assert!(matches!(result, Err(Failed::With(Errno::FAULT))));
        }
        assert!(bed.read(0, 8192).1.is_err());
        bed.is_gone = false;
        assert!(bed.read(0, 1 << 20).0 == before);
    }
}

#[test]
fn where_nothing_is_waited_for_the_end_comes_at_once() {
    for threads in [Threads::Callers, Threads::Executors] {
        let mut bed = Bed::new(Arc::new(MemStore::new(SIZE)), threads, false);
        assert!(!bed.write(0, &[1; 8192], false).2);
        assert!(!bed.read(0, 1 << 20).2);
    }
}

#[test]
fn a_volume_s_failure_is_its_errno() {
    let store = Arc::new(FaultStore::new(MemStore::new(SIZE)));
    let faults = Arc::clone(&store);
    let mut bed = Bed::new(store, Threads::Executors, false);
    faults.inject(Fault::on(Operation::Write).errno(Errno::NOSPC.raw_os_error()));
    let (_, result, _) = bed.write(0, &[1; 8192], false);
    let failed = result.unwrap_err();
    assert_eq!((failed.errno(), failed.is_fenced()), (Errno::NOSPC, false));
    faults.heal();
    faults.inject(Fault::on(Operation::Flush));
    assert!(bed.ask(Asked::Flush, Vec::new()).1.is_err());
}

#[test]
fn a_request_that_is_dropped_fails() {
    let bed = Bed::new(Arc::new(MemStore::new(SIZE)), Threads::Executors, false);
    let tester = Tester {
        data: Vec::new(),
        is_own: false,
        is_gone: false,
        ended: bed.sender.clone(),
    };
    drop(Request::new(tester, &Asked::Flush, bed.carrier.volume()));
    let (_, result, later) = bed.ended.recv().unwrap();
    assert!(matches!(result, Err(Failed::With(Errno::IO))) && later);
    assert_eq!(bed.carrier.volume().metrics().snapshot().under_way, 0);
}
