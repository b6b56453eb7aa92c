//! `FileStore` with operations that complete later, by io_uring.
//!
//! Without io_uring, and some without root, the tests say so on standard error.
#![allow(clippy::unwrap_used, reason = "tests may")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::future::Future;
use std::io::Write;
use std::path::Path;
use std::pin::pin;
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use proptest::prelude::*;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use xtent_store::testing::MemStore;
use xtent_store::{
    Access, AlignedBuffer, Buffer, Completed, Error, ErrorKind, FileStore, Operation, Store,
    Submitted, block_on, chain,
};

const BLOCK: usize = 4096;

fn say_skipped(what: &str) {
    let mut stderr = std::io::stderr().lock();
    writeln!(stderr, "NOT TESTED: {what}").unwrap();
}

/// With a ring, where the kernel has them.
fn with_ring(store: FileStore) -> Option<Arc<dyn Store>> {
    let store = Arc::new(store).complete_later();
    if !store.completes_later() {
        say_skipped("operations that complete later, without io_uring");
        return None;
    }
    Some(store)
}

fn filled(len: usize, byte: u8) -> Buffer {
    let mut buffer = AlignedBuffer::zeroed(len).unwrap();
    buffer.fill(byte);
    buffer.into()
}

fn read(store: &dyn Store, offset: u64, len: usize) -> Submitted {
    store.submit(Operation::Read {
        buffer: filled(len, 0xee),
        offset,
    })
}

fn write(store: &dyn Store, offset: u64, buffer: Buffer, durably: bool) -> Submitted {
    store.submit(Operation::Write {
        buffer,
        offset,
        durably,
    })
}

fn failure(submitted: Submitted) -> Error {
    let error = block_on(submitted).result.unwrap_err();
    assert!(
        chain(&error).to_string().contains(". "),
        "no advice: {error}"
    );
    error
}

/// What one operation of a round does with its blocks, which no other one touches.
#[derive(Clone, Copy, Debug)]
enum Act {
    Read,
    Write(u8),
    WriteDurably(u8),
    Flush,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => Just(Act::Read),
        8 => any::<u8>().prop_map(Act::Write),
        1 => any::<u8>().prop_map(Act::WriteDurably),
        1 => Just(Act::Flush),
    ]
}

/// Rounds of operations, each of one to eight blocks.
fn rounds() -> impl Strategy<Value = Vec<Vec<(Act, usize)>>> {
    prop::collection::vec(prop::collection::vec((act(), 1..8_usize), 1..700), 1..4)
}

fn begin(store: &dyn Store, act: Act, offset: u64, len: usize) -> Submitted {
    match act {
        Act::Read => read(store, offset, len),
        Act::Write(byte) => write(store, offset, filled(len, byte), false),
        Act::WriteDurably(byte) => write(store, offset, filled(len, byte), true),
        Act::Flush => store.submit(Operation::Flush),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    /// Hundreds of operations at a time, begun by several threads that end before their
    /// operations do, come to what they come to in memory.
    #[test]
    fn agrees_with_memory(rounds in rounds()) {
        const SIZE: usize = 5000 * BLOCK;
        let dir = tempfile::tempdir().unwrap();
        let store = FileStore::create(&dir.path().join("image"), SIZE as u64).unwrap();
        let Some(store) = with_ring(store) else {
            return Ok(());
        };
        let model = MemStore::new(SIZE);
        for round in rounds {
            let mut end = 0;
            let placed: Vec<_> = round.into_iter().map(|(act, blocks)| {
                let offset = end as u64;
                end += blocks * BLOCK;
                (act, offset, blocks * BLOCK)
            }).collect();
            let submitted: Vec<Completed> = std::thread::scope(|scope| {
                let submitters: Vec<_> = placed.chunks(200).map(|part| {
                    let store = &store;
                    scope.spawn(move || -> Vec<_> {
                        part.iter().map(|&(act, at, len)| begin(&**store, act, at, len)).collect()
                    })
                }).collect();
                submitters.into_iter().flat_map(|one| one.join().unwrap()).map(block_on).collect()
            });
            for (&(act, at, len), ended) in placed.iter().zip(submitted) {
                prop_assert!(ended.result.is_ok());
                let expected = block_on(begin(&model, act, at, len));
                if let Act::Read = act {
                    prop_assert_eq!(&*ended.buffer.unwrap(), &*expected.buffer.unwrap());
                }
            }
        }
        drop(store);
        prop_assert!(fs::read(dir.path().join("image")).unwrap() == model.contents());
    }
}

#[test]
fn a_file_that_shrinks_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let Some(store) = with_ring(FileStore::create(&path, 100_000).unwrap()) else {
        return;
    };
    let other = File::options().write(true).open(&path).unwrap();
    other.set_len(50_000).unwrap();
    let error = failure(read(&*store, 40_000, 20_000));
    assert_eq!(
        (error.kind, error.offset),
        (ErrorKind::OutOfRange, Some(50_000))
    );
    for durably in [false, true] {
        let error = failure(write(&*store, 60_000, filled(BLOCK, 1), durably));
        assert_eq!(error.kind, ErrorKind::OutOfRange);
    }
    let error = failure(store.submit(Operation::Discard {
        offset: 40_000,
        len: 20_000,
    }));
    assert_eq!(error.kind, ErrorKind::OutOfRange);
    assert_eq!(fs::metadata(&path).unwrap().len(), 50_000);
    assert!(block_on(read(&*store, 30_000, 20_000)).result.is_ok());
    assert!(block_on(read(&*store, 50_000, 0)).result.is_ok());
}

#[test]
fn a_window_is_all_there_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    drop(FileStore::create(&path, 1 << 20).unwrap());
    let store = FileStore::open(&path, Access::ReadWrite).unwrap();
    let Some(store) = with_ring(store.window(65_536, 65_536).unwrap()) else {
        return;
    };
    let all = filled(65_536, 7);
    assert!(block_on(write(&*store, 0, all, false)).result.is_ok());
    let discarded = block_on(store.submit(Operation::Discard {
        offset: 8192,
        len: 4096,
    }));
    for offset in [65_536, u64::MAX - 100, (1 << 63) - 100] {
        assert_eq!(
            failure(read(&*store, offset, 512)).kind,
            ErrorKind::OutOfRange
        );
        let error = failure(write(&*store, offset, filled(512, 1), false));
        assert_eq!(error.kind, ErrorKind::OutOfRange);
    }
    let found = fs::read(&path).unwrap();
    assert!(
        found[..65_536]
            .iter()
            .chain(&found[131_072..])
            .all(|b| *b == 0)
    );
    assert!(found[65_536..65_536 + 8192].iter().all(|b| *b == 7));
    match discarded.result {
        Ok(()) => assert!(found[65_536 + 8192..][..4096].iter().all(|b| *b == 0)),
        // A file system without holes.
        Err(error) => assert_eq!(error.kind, ErrorKind::Unsupported),
    }
}

#[test]
fn what_is_read_only_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    fs::write(&path, [5; BLOCK]).unwrap();
    let Some(store) = with_ring(FileStore::open(&path, Access::ReadOnly).unwrap()) else {
        return;
    };
    assert!(store.is_read_only());
    for durably in [false, true] {
        let error = failure(write(&*store, 0, filled(512, 1), durably));
        assert_eq!(error.kind, ErrorKind::ReadOnly);
    }
    let discard = Operation::Discard { offset: 0, len: 1 };
    assert_eq!(failure(store.submit(discard)).kind, ErrorKind::ReadOnly);
    assert!(block_on(store.submit(Operation::Flush)).result.is_ok());
    assert_eq!(
        *block_on(read(&*store, 0, BLOCK)).buffer.unwrap(),
        [5; BLOCK]
    );
}

#[test]
fn a_store_that_is_let_go_ends_what_is_under_way() {
    const COUNT: usize = 3000;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let file = FileStore::create(&path, (COUNT * BLOCK) as u64).unwrap();
    file.lock_for_serving().unwrap();
    let Some(store) = with_ring(file) else {
        return;
    };
    let mut submitted = BTreeMap::new();
    for number in 0..COUNT {
        let byte = u8::try_from(number % 251).unwrap();
        let one = write(&*store, (number * BLOCK) as u64, filled(BLOCK, byte), false);
        // Of half of them nobody wants to know.
        if number % 2 == 0 {
            submitted.insert(number, one);
        }
    }
    drop(store);
    let found = fs::read(&path).unwrap();
    for (number, block) in found.chunks(BLOCK).enumerate() {
        assert!(
            block.iter().all(|b| usize::from(*b) == number % 251),
            "{number}"
        );
    }
    for (_, one) in submitted {
        assert!(block_on(one).result.is_ok());
    }
    let next = FileStore::open(&path, Access::ReadWrite).unwrap();
    next.lock_for_serving().unwrap();
}

/// Lets go of a store when it is woken.
struct LetGo(Mutex<Option<Arc<dyn Store>>>, Sender<()>);

impl Wake for LetGo {
    fn wake(self: Arc<Self>) {
        let store = self.0.lock().unwrap().take();
        drop(store);
        self.1.send(()).unwrap();
    }
}

#[test]
fn a_store_may_be_let_go_by_whoever_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let Some(store) = with_ring(FileStore::create(&dir.path().join("image"), 1 << 20).unwrap())
    else {
        return;
    };
    let (sender, receiver) = channel();
    let held = Arc::new(LetGo(Mutex::new(Some(Arc::clone(&store))), sender));
    let waker = Waker::from(Arc::clone(&held));
    // Until one has not ended before anybody asked.
    loop {
        let one = write(&*store, 0, filled(1 << 20, 3), true);
        let one = pin!(one);
        let guard = held.0.lock().unwrap();
        if one.poll(&mut Context::from_waker(&waker)).is_pending() {
            drop(store);
            assert!(guard.is_some());
            break;
        }
    }
    receiver.recv().unwrap();
}

/// This thread and those that it starts may not call this.
fn forbid(call: i64) {
    let filter = SeccompFilter::new(
        BTreeMap::from([(call, Vec::new())]),
        SeccompAction::Allow,
        SeccompAction::Errno(1),
        std::env::consts::ARCH.try_into().unwrap(),
    );
    let filter: BpfProgram = filter.unwrap().try_into().unwrap();
    seccompiler::apply_filter(&filter).unwrap();
}

#[test]
fn without_rings_operations_are_carried_out_at_once() {
    // Linux's numbers, the same on every architecture.
    const IO_URING_SETUP: i64 = 425;
    let dir = tempfile::tempdir().unwrap();
    let file = FileStore::create(&dir.path().join("image"), 1 << 20).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            forbid(IO_URING_SETUP);
            let store = Arc::new(file).complete_later();
            assert!(!store.completes_later());
            let written = write(&*store, 4096, filled(512, 9), true);
            assert!(block_on(written).result.is_ok());
            assert_eq!(
                *block_on(read(&*store, 4096, 512)).buffer.unwrap(),
                [9; 512]
            );
        });
    });
}

#[test]
fn a_ring_that_is_taken_away_fails_operations() {
    const IO_URING_ENTER: i64 = 426;
    let dir = tempfile::tempdir().unwrap();
    let file = FileStore::create(&dir.path().join("image"), 1 << 20).unwrap();
    let Some(store) = with_ring(file) else {
        return;
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The ring's thread starts with the first operation, and inherits this.
            forbid(IO_URING_ENTER);
            for _ in 0..300 {
                assert_eq!(failure(read(&*store, 0, 4096)).kind, ErrorKind::Io);
            }
        });
    });
}

/// Undone when dropped.
struct Undo(&'static str, Vec<String>);

impl Drop for Undo {
    fn drop(&mut self) {
        let _ = Command::new(self.0).args(&self.1).status();
    }
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|e| panic!("{program}: {e}; install the package mount"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A file system with room for 256 KiB; none without root.
fn small_file_system(dir: &Path) -> Option<Undo> {
    if !rustix::process::geteuid().is_root() {
        say_skipped("a full file system, without root");
        return None;
    }
    let mount = dir.to_str().unwrap();
    run(
        "mount",
        &["-t", "tmpfs", "-o", "size=256k", "xtent-test", mount],
    );
    Some(Undo("umount", vec![mount.to_owned()]))
}

#[test]
fn a_full_file_system_is_a_clean_error() {
    let dir = tempfile::tempdir().unwrap();
    let Some(_undo) = small_file_system(dir.path()) else {
        return;
    };
    let file = FileStore::create(&dir.path().join("image"), 1 << 20).unwrap();
    let Some(store) = with_ring(file) else {
        return;
    };
    for durably in [false, true] {
        let error = failure(write(&*store, 0, filled(1 << 20, 1), durably));
        assert_eq!(error.kind, ErrorKind::NoSpace);
        assert!(error.offset > Some(0), "{error}");
    }
    // Nothing was promised and broken, so flushes go on working.
    assert!(block_on(store.submit(Operation::Flush)).result.is_ok());
    let written = write(&*store, 0, filled(BLOCK, 2), true);
    assert!(block_on(written).result.is_ok());
}

/// A loop device over a file on a full file system takes writes into the page
/// cache and loses them on the way to the disk.
#[test]
fn a_failed_flush_is_never_followed_by_a_success() {
    for durably in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let Some(_unmount) = small_file_system(dir.path()) else {
            return;
        };
        let file = dir.path().join("backing");
        File::create(&file).unwrap().set_len(4 << 20).unwrap();
        let device = run("losetup", &["--find", "--show", file.to_str().unwrap()]);
        let _detach = Undo("losetup", vec!["--detach".into(), device.clone()]);
        let store = FileStore::open(Path::new(&device), Access::ReadWrite).unwrap();
        let Some(store) = with_ring(store) else {
            return;
        };
        let written = write(&*store, 0, filled(1 << 20, 1), durably);
        if durably {
            assert_eq!(failure(written).act, xtent_store::Act::DurableWrite);
        } else {
            assert!(block_on(written).result.is_ok());
        }
        for _ in 0..3 {
            assert_eq!(failure(store.submit(Operation::Flush)).kind, ErrorKind::Io);
            store.flush().unwrap_err();
        }
        let error = failure(write(&*store, 0, filled(512, 1), true));
        assert_eq!(error.kind, ErrorKind::Io);
    }
}

#[test]
fn block_devices_are_written_and_discarded() {
    if !rustix::process::geteuid().is_root() {
        say_skipped("block devices, without root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("backing");
    File::create(&file).unwrap().set_len(4 << 20).unwrap();
    let device = run("losetup", &["--find", "--show", file.to_str().unwrap()]);
    let _detach = Undo("losetup", vec!["--detach".into(), device.clone()]);
    let store = FileStore::open(Path::new(&device), Access::ReadWrite).unwrap();
    store.lock_for_serving().unwrap();
    let Some(store) = with_ring(store) else {
        return;
    };
    assert!(
        block_on(write(&*store, 1 << 20, filled(1 << 20, 6), true))
            .result
            .is_ok()
    );
    assert!(
        fs::read(&file).unwrap()[1 << 20..2 << 20]
            .iter()
            .all(|b| *b == 6)
    );
    let discarded = block_on(store.submit(Operation::Discard {
        offset: 1 << 20,
        len: 65_536,
    }));
    if let Err(error) = discarded.result {
        assert_eq!(error.kind, ErrorKind::Unsupported, "{error}");
    }
    let found = block_on(read(&*store, (1 << 20) + 65_536, 65_536)).buffer;
    assert!(found.unwrap().iter().all(|b| *b == 6));
    let error = failure(read(&*store, (4 << 20) - 512, 1024));
    assert_eq!(error.kind, ErrorKind::OutOfRange);
}
