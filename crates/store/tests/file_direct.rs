//! `FileStore` with direct I/O.
//!
//! Where the temporary files' system has none, and some without root, the tests say so on
//! standard error.
#![allow(clippy::unwrap_used, reason = "tests may")]

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use proptest::prelude::*;
use xtent_store::testing::MemStore;
use xtent_store::{
    Access, AlignedBuffer, Error, ErrorKind, FileStore, Operation, Store, block_on, chain,
};

fn say_skipped(what: &str) {
    let mut stderr = std::io::stderr().lock();
    writeln!(stderr, "NOT TESTED: {what}").unwrap();
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|e| panic!("{program}: {e}; install the package mount"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn kind<T>(result: Result<T, Error>) -> ErrorKind {
    result.err().unwrap().kind
}

/// None where there is no direct I/O.
fn direct(store: FileStore) -> Option<FileStore> {
    match store.direct() {
        Ok(store) => Some(store),
        Err(error) => {
            assert_eq!(error.kind, ErrorKind::Unsupported, "{error}");
            say_skipped(&format!("direct I/O: {error}"));
            None
        }
    }
}

/// A disk with blocks of 4096 bytes, on a loop device; none without root.
struct Disk {
    device: String,
    _dir: tempfile::TempDir,
}

impl Disk {
    fn new(size: u64) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            say_skipped("direct I/O with blocks of 4096 bytes, without root");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("backing");
        File::create(&file).unwrap().set_len(size).unwrap();
        let arguments = [
            "--find",
            "--show",
            "--sector-size",
            "4096",
            file.to_str().unwrap(),
        ];
        Some(Self {
            device: run("losetup", &arguments),
            _dir: dir,
        })
    }

    fn open(&self) -> FileStore {
        FileStore::open(Path::new(&self.device), Access::ReadWrite).unwrap()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("losetup")
            .args(["--detach", &self.device])
            .status();
    }
}

#[derive(Clone, Debug)]
enum Act {
    Read(usize, usize),
    Write(usize, usize, u8, bool),
    /// An operation on whole blocks.
    Submit(usize, usize, Option<u8>),
}

const SIZE: usize = 1 << 16;

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let at = || prop_oneof![0..SIZE, (0..SIZE / 4096).prop_map(|block| block * 4096)];
    let len = || prop_oneof![0..9000_usize, 0..600_usize];
    let range = || (at(), len()).prop_map(|(at, len)| (at, len.min(SIZE - at)));
    let act = prop_oneof![
        range().prop_map(|(at, len)| Act::Read(at, len)),
        (range(), any::<u8>(), any::<bool>())
            .prop_map(|((at, len), byte, durably)| Act::Write(at, len, byte, durably)),
        (range(), any::<Option<u8>>()).prop_map(|((at, len), byte)| Act::Submit(at, len, byte)),
    ];
    prop::collection::vec(act, 1..40)
}

fn agrees(store: &dyn Store, acts: &[Act]) {
    let model = MemStore::new(SIZE);
    store.write_at(&model.contents(), 0).unwrap();
    let block = store.limits().block as usize;
    for act in acts {
        match *act {
            Act::Read(at, len) => {
                let mut found = vec![0xee; len];
                store.read_at(&mut found, at as u64).unwrap();
                assert_eq!(found, model.contents()[at..at + len]);
            }
            Act::Write(at, len, byte, durably) => {
                let data = vec![byte; len];
                model.write_at(&data, at as u64).unwrap();
                match durably {
                    true => store.write_at_durably(&data, at as u64).unwrap(),
                    false => store.write_at(&data, at as u64).unwrap(),
                }
            }
            Act::Submit(at, len, byte) => {
                let (at, len) = (at / block * block, len / block * block);
                let mut buffer = AlignedBuffer::zeroed(len).unwrap();
                buffer.fill(byte.unwrap_or_default());
                let (buffer, offset) = (buffer.into(), at as u64);
                let operation = match byte {
                    None => Operation::Read { buffer, offset },
                    Some(byte) => {
                        model.write_at(&vec![byte; len], offset).unwrap();
                        let durably = byte == 0;
                        Operation::Write {
                            buffer,
                            offset,
                            durably,
                        }
                    }
                };
                let ended = block_on(store.submit(operation));
                ended.result.unwrap();
                assert_eq!(*ended.buffer.unwrap(), model.contents()[at..at + len]);
            }
        }
    }
    let mut found = vec![0; SIZE];
    store.read_at(&mut found, 0).unwrap();
    assert!(found == model.contents());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// Any range, in a file and on a disk with large blocks, by calls that wait and
    /// others.
    #[test]
    fn agrees_with_memory(acts in acts()) {
        let dir = tempfile::tempdir().unwrap();
        let file = FileStore::create(&dir.path().join("image"), SIZE as u64 + 8192).unwrap();
        let disk = Disk::new(SIZE as u64 + 8192);
        let on_disk = disk.as_ref().map(Disk::open);
        for store in [Some(file), on_disk].into_iter().flatten() {
            let store = store.window(4096, SIZE as u64 + 4096).unwrap();
            let Some(store) = direct(store) else {
                continue;
            };
            let store = Arc::new(store);
            agrees(&*store, &acts);
            agrees(&*store.complete_later(), &acts);
        }
    }
}

#[test]
fn nothing_stays_in_the_page_cache() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let Some(store) = direct(FileStore::create(&path, 4 << 20).unwrap()) else {
        return;
    };
    assert!((512..=4096).contains(&store.limits().block));
    let data: Vec<u8> = (0..3 << 20)
        .map(|i: u32| u8::try_from(i / 700 % 251).unwrap())
        .collect();
    store.write_at(&data, 100).unwrap();
    let mut found = vec![0; data.len()];
    store.read_at(&mut found, 100).unwrap();
    assert!(found == data);
    assert!(!store.try_read_at(&mut found, 0).unwrap());
    assert!(store.try_read_at(&mut [], 0).unwrap());
    assert!(!store.takes_write_at_once(0, 1 << 20).unwrap());
    store.flush().unwrap();
    store.discard(0, 65_536).unwrap_or_default();
    let path = path.to_str().unwrap();
    let cached = run(
        "fincore",
        &["--bytes", "--noheadings", "--output", "RES", path],
    );
    if dir.path().starts_with("/dev/shm") {
        say_skipped("that direct I/O leaves no pages in the cache, in memory");
    } else {
        assert_eq!(cached, "0");
    }
}

#[test]
fn parts_of_one_block_may_be_written_at_once() {
    let Some(disk) = Disk::new(1 << 20) else {
        return;
    };
    let store = disk.open().direct().unwrap();
    assert_eq!(store.limits().block, 4096);
    std::thread::scope(|scope| {
        for thread in 0..8_u8 {
            let store = &store;
            scope.spawn(move || {
                for block in 0..8 {
                    let at = block * 4096 + u64::from(thread) * 512;
                    store.write_at(&[thread + 1; 512], at).unwrap();
                }
            });
        }
    });
    let mut found = vec![0; 8 * 4096];
    store.read_at(&mut found, 0).unwrap();
    for (number, part) in found.chunks(512).enumerate() {
        assert!(
            part.iter().all(|b| usize::from(*b) == number % 8 + 1),
            "{number}"
        );
    }
}

#[test]
fn a_file_that_shrinks_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let Some(store) = direct(FileStore::create(&path, 4 * 4096).unwrap()) else {
        return;
    };
    let store = Arc::new(store);
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(4096 + 100)
        .unwrap();
    assert_eq!(store.size(), 4096);
    assert_eq!(
        kind(store.read_at(&mut [0; 4096], 4096)),
        ErrorKind::OutOfRange
    );
    assert_eq!(
        kind(store.read_at(&mut [0; 10], 5000)),
        ErrorKind::OutOfRange
    );
    assert_eq!(kind(store.write_at(&[0; 10], 4096)), ErrorKind::OutOfRange);
    store.read_at(&mut [0; 10], 4000).unwrap();
    for store in [
        Arc::clone(&store) as Arc<dyn Store>,
        Arc::clone(&store).complete_later(),
    ] {
        let buffer = AlignedBuffer::zeroed(8192).unwrap().into();
        let ended = block_on(store.submit(Operation::Read { buffer, offset: 0 }));
        let error = ended.result.unwrap_err();
        assert_eq!(
            (error.kind, error.offset),
            (ErrorKind::OutOfRange, Some(4196))
        );
    }
    assert_eq!(fs::metadata(&path).unwrap().len(), 4196);
}

#[test]
fn what_cannot_be_direct_says_so() {
    let refused = |store: FileStore| {
        let error = store.direct().unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unsupported);
        assert!(
            chain(&error).to_string().contains("--direct-io"),
            "{}",
            chain(&error)
        );
    };
    // A file that is made as it is read.
    match FileStore::open(Path::new("/sys/kernel/notes"), Access::ReadOnly) {
        Ok(store) => refused(store),
        Err(error) => say_skipped(&format!("a file without direct I/O: {error}")),
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    drop(FileStore::create(&path, 65_536 + 100).unwrap());
    let open = || FileStore::open(&path, Access::ReadWrite).unwrap();
    refused(open());
    refused(open().window(100, 4096).unwrap());
    refused(open().window(0, 4100).unwrap());
    let _ = direct(open().window(4096, 8192).unwrap());
}
