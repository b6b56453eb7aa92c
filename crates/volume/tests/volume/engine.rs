//! A cipher engine that completes later: what goes to it, and what becomes of its failures.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use rustix::io::Errno;
use sector_cipher::SectorCount;
use xtent_store::testing::{Fault, FaultStore, LaterStore, MemStore, Operation};
use xtent_store::{AlignedBuffer, Buffer, block_on, chain};
use xtent_volume::testing::LaterEngine;
use xtent_volume::{
    CipherEngine, Crypted, Direction, DiscardPolicy, ErrorKind, Holes, Phase, Threshold, Volume,
};

use crate::support::{CBC, OFFSET, XTS, config, engine, image, open, pattern, plaintext};

const LENGTH: usize = 1 << 20;
/// Where runs begin to go to the engine.
const LONG: usize = 64 << 10;

struct Bench {
    store: Arc<MemStore>,
    engine: Arc<LaterEngine>,
    volume: Volume,
    config: xtent_volume::Config,
    before: Vec<u8>,
}

fn bench(cipher: &str) -> Bench {
    let config = config(cipher, 512, LENGTH as u64);
    let before = pattern(LENGTH, 3);
    let store = Arc::new(MemStore::from(image(&before, &config)));
    let engine = engine(&config, 5);
    let volume = open(Arc::clone(&store) as _, &config)
        .with_engine(Arc::clone(&engine) as _, Threshold::Bytes(LONG))
        .unwrap();
    // It has been compared with the CPU.
    assert_eq!(engine.take_done().len(), 4);
    Bench {
        store,
        engine,
        volume,
        config,
        before,
    }
}

fn memory(volume: &Volume, data: &[u8], offset: u64) -> Buffer {
    let hull = volume.hull(offset, data.len());
    let mut buffer = Buffer::from(AlignedBuffer::zeroed(hull.len).unwrap());
    buffer[hull.skip..hull.skip + data.len()].copy_from_slice(data);
    buffer
}

fn read(volume: &Volume, offset: u64, len: usize) -> Result<Vec<u8>, xtent_volume::Error> {
    let buffer = memory(volume, &vec![0; len], offset);
    let skip = volume.hull(offset, len).skip;
    block_on(volume.read_async(buffer, offset, len)).map(|read| read[skip..skip + len].to_vec())
}

#[test]
fn long_runs_go_there_whole_and_all_else_stays_on_the_cpu() {
    for cipher in [XTS, CBC] {
        let b = bench(cipher);
        assert_eq!(b.volume.engine_threshold(), Some(LONG));
        for (offset, len, runs) in [
            (0, LENGTH, vec![LENGTH]),
            (0, LONG, vec![LONG]),
            // Whole sectors around it.
            (700, LONG, vec![LONG + 512]),
            (0, LONG - 1, vec![]),
            (4096, 512, vec![]),
            (5000, 10, vec![]),
            (0, 0, vec![]),
        ] {
            let is_long = !runs.is_empty();
            assert_eq!(b.volume.goes_to_engine(len), is_long);
            assert_eq!(b.volume.takes_at_once(len), !is_long);
            let start = usize::try_from(offset).unwrap();
            let end = start + len;
            assert!(read(&b.volume, offset, len).unwrap() == b.before[start..end]);
            assert_eq!(b.engine.take_done(), runs, "read of {len} at {offset}");
            let data = memory(&b.volume, &b.before[start..end], offset);
            block_on(b.volume.write_async(data, offset, len, false)).unwrap();
            assert_eq!(b.engine.take_done(), runs, "write of {len} at {offset}");
            // Who cannot wait is told so, and who lends memory is served by the CPU.
            let mut lent = b.before[start..end].to_vec();
            assert_eq!(b.volume.try_read_at(&mut lent, offset).unwrap(), !is_long);
            let mut lent = b.before[start..end].to_vec();
            assert_eq!(b.volume.try_write_at(&lent, offset).unwrap(), !is_long);
            let is_written = b.volume.try_write_at_in_place(&mut lent, offset).unwrap();
            assert_eq!(is_written, !is_long);
            b.volume
                .write_at(&b.before[start..end], offset, false)
                .unwrap();
            b.volume.read_at(&mut lent, offset).unwrap();
            assert!(lent == b.before[start..end]);
            assert!(b.engine.take_done().is_empty());
        }
        assert!(plaintext(&b.store.contents(), &b.config) == b.before);
    }
}

/// Other requests must not have a piece's place while it is being written still.
#[test]
fn zeros_that_fail_wait_for_the_pieces_under_way() {
    let config = config(XTS, 512, LENGTH as u64);
    let faulty = FaultStore::new(MemStore::from(image(&pattern(LENGTH, 3), &config)));
    let store = Arc::new(LaterStore::new(Arc::new(faulty), 7));
    let volume = open(Arc::clone(&store) as _, &config);
    let piece = volume.preferred_piece() as u64;
    store.hold(0..OFFSET + piece);
    let second = OFFSET + piece..OFFSET + 2 * piece;
    store
        .inner()
        .inject(Fault::on(Operation::Write).within(second));
    let memory = xtent_store::Memory::new(4 << 20);
    let mut zeros = Box::pin(volume.write_zeroes_async(&memory, 0, LENGTH as u64, false));
    let mut context = Context::from_waker(Waker::noop());
    while store.most_waiting() == 0 || store.waiting() != 1 {
        assert!(zeros.as_mut().poll(&mut context).is_pending());
    }
    for _ in 0..100 {
        assert!(zeros.as_mut().poll(&mut context).is_pending());
        std::thread::yield_now();
    }
    store.hold(0..0);
    let error = block_on(zeros).unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Store(_)), "{error}");
    assert_eq!(store.waiting(), 0);
}

/// What waits for a run that is with the engine leaves its thread to it: with every thread waiting
/// nobody would go on with the run.
#[test]
fn short_requests_wait_for_a_long_one_without_a_thread() {
    type Asked<'a> = Pin<Box<dyn Future<Output = Result<(), xtent_volume::Error>> + 'a>>;
    let mut b = bench(XTS);
    b.config.discard = DiscardPolicy::Allow;
    b.volume = open(Arc::clone(&b.store) as _, &b.config)
        .with_engine(Arc::clone(&b.engine) as _, Threshold::Bytes(LONG))
        .unwrap();
    let mut context = Context::from_waker(Waker::noop());
    b.engine.hold(true);
    let data = memory(&b.volume, &vec![1; LONG], 0);
    let mut long = Box::pin(b.volume.write_async(data, 0, LONG, false));
    assert!(long.as_mut().poll(&mut context).is_pending());
    let zeros = xtent_store::Memory::new(1 << 20);
    let (mut lent, mut read_back) = ([4; 512], [0; 512]);
    let short = memory(&b.volume, &[2; 512], 512);
    let mut requests: [Asked<'_>; 5] = [
        Box::pin(b.volume.write_async(short, 512, 512, false)),
        Box::pin(b.volume.write_zeroes_async(&zeros, 1024, 512, false)),
        Box::pin(b.volume.discard_async(&zeros, 1536, 512, false)),
        Box::pin(b.volume.write_lent_async(&mut lent, 2048, false)),
        Box::pin(b.volume.read_lent_async(&mut read_back, 512)),
    ];
    for request in &mut requests {
        assert!(request.as_mut().poll(&mut context).is_pending());
    }
    b.engine.hold(false);
    block_on(long).unwrap();
    for request in requests {
        block_on(request).unwrap();
    }
    assert_eq!(read_back, [2; 512]);
    let written = plaintext(&b.store.contents(), &b.config);
    assert!(written[..512] == [1; 512] && written[512..1024] == [2; 512]);
    assert!(written[1024..1536] == [0; 512] && written[2048..2560] == [4; 512]);
}

#[test]
fn zeros_go_there_in_pieces() {
    let b = bench(XTS);
    let memory = xtent_store::Memory::new(1 << 20);
    block_on(b.volume.write_zeroes_async(&memory, 0, LENGTH as u64, true)).unwrap();
    let piece = b.volume.preferred_piece();
    assert_eq!(b.engine.take_done(), vec![piece; LENGTH / piece]);
    assert!(plaintext(&b.store.contents(), &b.config) == vec![0; LENGTH]);
    block_on(b.volume.write_zeroes_async(&memory, 0, 4096, false)).unwrap();
    assert!(b.engine.take_done().is_empty());
}

#[test]
fn a_failed_encryption_writes_nothing() {
    let b = bench(XTS);
    let (contents, writes) = (b.store.contents(), b.store.writes());
    for offset in [0, 300] {
        b.engine.fail(Some(Direction::Encrypt));
        let data = memory(&b.volume, &pattern(LONG, 9), offset);
        let error = block_on(b.volume.write_async(data, offset, LONG, false)).unwrap_err();
        assert_eq!((error.kind, error.errno()), (ErrorKind::Engine, Errno::IO));
        let text = chain(&error).to_string();
        assert!(
            text.contains("the cipher engine failed") && text.contains("the engine"),
            "{text}"
        );
        assert_eq!(b.store.writes(), writes);
        assert!(b.store.contents() == contents);
    }
    // Neither a lock nor anything else is left behind.
    b.engine.fail(None);
    let data = memory(&b.volume, &pattern(LONG, 9), 0);
    block_on(b.volume.write_async(data, 0, LONG, false)).unwrap();
    assert!(read(&b.volume, 0, LONG).unwrap() == pattern(LONG, 9));
    let engine = b.volume.metrics().snapshot().engine;
    assert_eq!((engine.count, engine.failed, engine.replaced), (2, 2, 0));
    assert_eq!(engine.bytes, 2 * LONG as u64);
}

#[test]
fn a_failed_decryption_gives_no_bytes() {
    let b = bench(XTS);
    b.engine.fail(Some(Direction::Decrypt));
    let error = read(&b.volume, 0, LONG).unwrap_err();
    assert_eq!((error.kind, error.offset), (ErrorKind::Engine, Some(0)));
    // What is short does not need the engine, nor what the CPU does.
    assert!(read(&b.volume, 0, 4096).unwrap() == b.before[..4096]);
    let mut lent = vec![0; LONG];
    b.volume.read_at(&mut lent, 0).unwrap();
    assert!(lent == b.before[..LONG]);
    b.engine.fail(None);
    assert!(read(&b.volume, 0, LONG).unwrap() == b.before[..LONG]);
}

/// An engine with another key, or at another place of the counting, would damage every sector.
#[test]
fn an_engine_that_does_something_else_gets_nothing() {
    let config = config(XTS, 4096, LENGTH as u64);
    let another = xtent_volume::Config {
        sector_count: SectorCount::Large,
        ..config.clone()
    };
    let wrong = engine(&config, 1);
    wrong.be_wrong(true);
    let failing = |direction| {
        let failing = engine(&config, 1);
        failing.fail(Some(direction));
        failing
    };
    for engine in [
        wrong,
        engine(&another, 1),
        failing(Direction::Encrypt),
        failing(Direction::Decrypt),
    ] {
        let store = Arc::new(MemStore::new(LENGTH + 4096));
        let result = open(store, &config).with_engine(engine, Threshold::Bytes(0));
        assert_eq!(result.unwrap_err().kind, ErrorKind::Engine);
    }
}

/// An engine that does not count on where numbers need more than 32 bits.
struct Short(Arc<LaterEngine>, Range<u64>);

impl CipherEngine for Short {
    fn crypt(&self, direction: Direction, first: u64, run: Buffer) -> Crypted {
        let crosses = first < self.1.start && first + run.len() as u64 / 512 > self.1.end;
        let crypted = self.0.crypt(direction, first, run);
        Box::pin(async move {
            let (mut run, result) = crypted.await;
            run[0] ^= u8::from(crosses);
            (run, result)
        })
    }

    fn failure(&self) -> Option<String> {
        None
    }
}

#[test]
fn runs_across_numbers_of_32_bits_are_compared() {
    for (count, units) in [(SectorCount::Units512, 1), (SectorCount::Large, 8)] {
        let mut config = config(XTS, 4096, LENGTH as u64);
        config.sector_count = count;
        for (at, is_found) in [(64, true), (8, true), (4096, false)] {
            config.iv_offset = (units << 32) - at;
            let short = Short(engine(&config, 1), units << 32..units << 32);
            let store = Arc::new(MemStore::new(LENGTH + 4096));
            let result = open(store, &config).with_engine(Arc::new(short), Threshold::Bytes(0));
            assert_eq!(result.is_err(), is_found, "{units} {at}");
        }
    }
}

#[test]
fn a_measured_threshold_is_found_in_time_or_there_is_none() {
    let config = config(XTS, 4096, LENGTH as u64);
    let image = image(&pattern(LENGTH, 1), &config);
    let volume = open(Arc::new(MemStore::from(image)), &config)
        .with_engine(engine(&config, 1), Threshold::Measured)
        .unwrap();
    // Which it is depends on the machine.
    match volume.engine_threshold() {
        Some(bytes) => assert!(volume.goes_to_engine(bytes) && !volume.goes_to_engine(bytes - 1)),
        None => assert!(!volume.goes_to_engine(usize::MAX - 1)),
    }
    assert!(read(&volume, 0, LENGTH).unwrap() == pattern(LENGTH, 1));
}

#[test]
fn runs_are_under_way_together_and_their_sectors_are_locked() {
    let b = bench(XTS);
    b.engine.hold(true);
    let mut context = Context::from_waker(Waker::noop());
    let mut reads: Vec<_> = (0..LENGTH / LONG)
        .map(|index| {
            let offset = (index * LONG) as u64;
            let buffer = memory(&b.volume, &[0; LONG], offset);
            Box::pin(b.volume.read_async(buffer, offset, LONG))
        })
        .collect();
    for read in &mut reads {
        assert!(read.as_mut().poll(&mut context).is_pending());
    }
    assert_eq!(b.engine.waiting(), reads.len());
    // Who would write to one of them waits; who reads it does not.
    assert!(!b.volume.try_write_at_in_place(&mut [1; 512], 512).unwrap());
    assert!(b.volume.try_read_at(&mut [0; 512], 512).unwrap());
    b.engine.hold(false);
    for (index, read) in reads.into_iter().enumerate() {
        let found = block_on(read).unwrap();
        assert!(found[..] == b.before[index * LONG..(index + 1) * LONG]);
    }
    assert!(b.engine.most_waiting() >= LENGTH / LONG);
}

#[test]
fn a_volume_turned_round_has_its_plaintext_encrypted_there() {
    let config = config(XTS, 512, LENGTH as u64);
    let plain = pattern(LENGTH, 3);
    let mut store = vec![0; usize::try_from(OFFSET).unwrap()];
    store.extend_from_slice(&plain);
    let engine = engine(&config, 5);
    let volume = open(Arc::new(MemStore::from(store)), &config)
        .turned()
        .with_engine(Arc::clone(&engine) as _, Threshold::Bytes(0))
        .unwrap();
    let start = usize::try_from(OFFSET).unwrap();
    assert!(read(&volume, 0, LENGTH).unwrap() == image(&plain, &config)[start..]);
    assert!(engine.take_done().contains(&LENGTH));
}

#[test]
fn what_is_all_holes_needs_no_engine() {
    let mut config = config(XTS, 512, LENGTH as u64);
    config.holes = Holes::Zero;
    let engine = engine(&config, 5);
    let store = MemStore::new(LENGTH + usize::try_from(OFFSET).unwrap());
    let volume = open(Arc::new(store), &config)
        .with_engine(Arc::clone(&engine) as _, Threshold::Bytes(0))
        .unwrap();
    engine.take_done();
    assert!(read(&volume, 0, LENGTH).unwrap() == vec![0; LENGTH]);
    assert!(engine.take_done().is_empty());
}

/// A far store and an engine: each is waited for in its turn, and its time is told apart.
#[test]
fn the_time_is_that_of_the_cipher() {
    let config = config(XTS, 512, LENGTH as u64);
    let image = image(&pattern(LENGTH, 3), &config);
    let store = Arc::new(LaterStore::new(Arc::new(MemStore::from(image)), 3));
    let engine = engine(&config, 5);
    let volume = open(store, &config)
        .with_engine(engine, Threshold::Bytes(LONG))
        .unwrap();
    let time = |phase| volume.metrics().snapshot().time[phase as usize];
    assert!(read(&volume, 0, LENGTH).unwrap() == pattern(LENGTH, 3));
    let (store, cipher) = (time(Phase::Store), time(Phase::Cipher));
    assert!(!store.is_zero() && !cipher.is_zero());
    let runs = volume.metrics().snapshot().runs;
    assert_eq!((runs.count(), runs.sum), (1, LENGTH as u64 / 512));
    assert_eq!(volume.metrics().snapshot().engine.count, 1);
}

/// An engine in whose place the CPU does so many bytes of each run, since it is out of service.
struct Replaced(Arc<LaterEngine>, usize);

impl CipherEngine for Replaced {
    fn crypt(&self, direction: Direction, first: u64, run: Buffer) -> Crypted {
        let (by_cpu, crypted) = (self.1, self.0.crypt(direction, first, run));
        Box::pin(async move {
            let (run, result) = crypted.await;
            (run, result.map(|_| by_cpu))
        })
    }

    fn failure(&self) -> Option<String> {
        (self.1 > 0).then(|| "it is tired".into())
    }
}

#[test]
fn who_did_a_run_is_counted() {
    for by_cpu in [0, 512, LONG] {
        let config = config(XTS, 512, LENGTH as u64);
        let engine = Arc::new(Replaced(engine(&config, 5), by_cpu));
        let store = MemStore::from(image(&pattern(LENGTH, 3), &config));
        let volume = open(Arc::new(store), &config)
            .with_engine(engine, Threshold::Bytes(LONG))
            .unwrap();
        read(&volume, 0, LONG).unwrap();
        read(&volume, 0, 4096).unwrap();
        let data = memory(&volume, &pattern(4096, 9), 0);
        block_on(volume.write_async(data, 0, 4096, false)).unwrap();
        let found = volume.metrics().snapshot().engine;
        assert_eq!(found.bytes, (LONG - by_cpu) as u64);
        let is_engine = by_cpu == 0;
        assert_eq!(found.count, u64::from(is_engine));
        assert_eq!(found.replaced, u64::from(!is_engine));
        assert_eq!((found.beside, found.failed), (2, 0));
        assert_eq!(volume.engine_failure().is_some(), !is_engine);
    }
}
