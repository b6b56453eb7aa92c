//! Rings against a driver in memory.

mod resumed;

use std::sync::Arc;

use sector_cipher::{SectorCount, SectorSize};
use xtent_secret::SecretBytes;
use xtent_store::Store;
use xtent_store::testing::{Fault, FaultStore, LaterStore, MemStore, Operation};
use xtent_volume::{Config, DiscardPolicy, Holes, Volume};

use super::config;
use super::dirty::Log;
use super::testing::{Descriptor, ENTRIES, Rig};

const SIZE: usize = 8 << 20;
/// Where the driver has its memory.
const HEADER: u64 = 0x8000;
const STATUS: u64 = 0x9000;
const DATA: u64 = 0x10_0000;
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

const IN: u32 = 0;
const OUT: u32 = 1;
const FLUSH: u32 = 4;
const GET_ID: u32 = 8;
const DISCARD: u32 = 11;
const WRITE_ZEROES: u32 = 13;

pub(super) fn volume(store: Arc<dyn Store>, sector: u32, read_only: bool) -> Arc<Volume> {
    let config = Config {
        cipher: "aes-xts-plain64".parse().unwrap(),
        sector_size: SectorSize::new(sector).unwrap(),
        sector_count: SectorCount::Units512,
        offset: 4096,
        length: store.size() - 4096,
        iv_offset: 0,
        read_only,
        discard: DiscardPolicy::Zero,
        holes: Holes::Noise,
        backend: None,
    };
    let key = SecretBytes::copy_of(&[7; 64]).unwrap();
    Arc::new(Volume::open(store, &key, &config).unwrap())
}

fn header(rig: &Rig, kind: u32, sector: u64) {
    let mut bytes = kind.to_le_bytes().to_vec();
    bytes.extend([0; 4]);
    bytes.extend(sector.to_le_bytes());
    rig.put(HEADER, &bytes);
    rig.put(STATUS, &[0xff]);
}

fn descriptor(at: u64, len: u32, flags: u16, next: u16) -> Descriptor {
    Descriptor {
        at,
        len,
        flags,
        next,
    }
}

/// Header, pieces, status.
fn chain(pieces: &[(u64, u32)], is_read: bool) -> Vec<Descriptor> {
    let flags = if is_read { WRITE } else { 0 };
    let mut all = vec![descriptor(HEADER, 16, NEXT, 1)];
    for (index, &(at, len)) in (2..).zip(pieces) {
        all.push(descriptor(at, len, flags | NEXT, index));
    }
    all.push(descriptor(STATUS, 1, WRITE, 0));
    all
}

fn status(rig: &Rig) -> u8 {
    rig.get(STATUS, 1)[0]
}

/// One request, to its end.
fn ask(rig: &mut Rig, kind: u32, sector: u64, pieces: &[(u64, u32)]) -> (u8, u32) {
    header(rig, kind, sector);
    let is_read = matches!(kind, IN | GET_ID);
    rig.describe(Rig::TABLE, 0, &chain(pieces, is_read));
    let before = rig.used();
    rig.submit(0);
    let (head, len) = rig.wait_for(before.wrapping_add(1));
    assert_eq!(head, 0);
    (status(rig), len)
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    #[expect(clippy::cast_possible_truncation, reason = "any byte will do")]
    (0..len)
        .map(|at| (((at + seed) * 0x9E37_79B9) >> 11) as u8)
        .collect()
}

/// Runs in one piece and in many odd ones, in a table of its own, aligned to sectors or not.
fn round_trips(store: Arc<dyn Store>, sector: u32) {
    let volume = volume(store, sector, false);
    let mut rig = Rig::new(Arc::clone(&volume)).with_event_index();
    rig.start(0, None);
    for (seed, (at, pieces)) in [
        (0, vec![(DATA, 4096)]),
        (1, vec![(DATA + 3, 512)]),
        (9, vec![(DATA, 1), (DATA + 7, 0), (DATA + 5000, 2559)]),
        (512, vec![(DATA, 1 << 20)]),
        (3, vec![(DATA + 1, 300_001), (DATA + 400_000, 1_299_999)]),
    ]
    .into_iter()
    .enumerate()
    {
        let len: u32 = pieces.iter().map(|piece| piece.1).sum();
        let data = pattern(len as usize, seed);
        let mut from = 0;
        for &(place, len) in &pieces {
            rig.put(place, &data[from..from + len as usize]);
            from += len as usize;
        }
        assert_eq!(ask(&mut rig, OUT, at, &pieces), (0, 1));
        let mut found = vec![0; len as usize];
        volume.read_at(&mut found, at * 512).unwrap();
        assert!(found == data, "{at} {pieces:?}");
        for &(place, len) in &pieces {
            rig.put(place, &vec![0; len as usize]);
        }
        assert_eq!(ask(&mut rig, IN, at, &pieces), (0, len + 1));
        let found: Vec<u8> = pieces
            .iter()
            .flat_map(|&(place, len)| rig.get(place, len as usize))
            .collect();
        assert!(found == data, "{at} {pieces:?}");
    }
    assert_eq!(ask(&mut rig, FLUSH, 0, &[]), (0, 1));
}

#[test]
fn what_a_guest_writes_is_in_the_volume_and_comes_back() {
    for sector in [512, 4096] {
        round_trips(Arc::new(MemStore::new(SIZE)), sector);
        let later = LaterStore::new(Arc::new(MemStore::new(SIZE)), 1);
        round_trips(Arc::new(later), sector);
    }
}

#[test]
fn zeros_discards_and_the_id() {
    let volume = volume(Arc::new(MemStore::new(SIZE)), 512, false);
    let mut rig = Rig::new(Arc::clone(&volume));
    rig.start(0, None);
    volume.write_at(&[7; 8192], 0, false).unwrap();
    let ranges = |ranges: &[(u64, u32, u32)]| {
        let mut bytes = Vec::new();
        for &(sector, sectors, flags) in ranges {
            bytes.extend(sector.to_le_bytes());
            bytes.extend(sectors.to_le_bytes());
            bytes.extend(flags.to_le_bytes());
        }
        bytes
    };
    for range in [(0, 2, 0), (4, 1, 1)] {
        rig.put(DATA, &ranges(&[range]));
        assert_eq!(ask(&mut rig, WRITE_ZEROES, 0, &[(DATA, 16)]), (0, 1));
    }
    rig.put(DATA, &ranges(&[(8, 8, 0)]));
    assert_eq!(ask(&mut rig, DISCARD, 0, &[(DATA, 16)]), (0, 1));
    let mut found = [1; 8192];
    volume.read_at(&mut found, 0).unwrap();
    let is_zero = |at: usize| matches!(at / 512, 0 | 1 | 4 | 8..16);
    assert!((0..8192).all(|at| found[at] == if is_zero(at) { 0 } else { 7 }));
    // A flag that discards have not got, more than a range may have, none, too many, half a one.
    rig.put(DATA, &ranges(&[(8, 8, 1)]));
    assert_eq!(ask(&mut rig, DISCARD, 0, &[(DATA, 16)]).0, 2);
    rig.put(DATA, &ranges(&[(0, (4 << 11) + 1, 0), (0, 1, 0)]));
    for len in [16, 0, 2 * 16, 8] {
        assert_eq!(ask(&mut rig, WRITE_ZEROES, 0, &[(DATA, len)]).0, 1);
    }
    assert_eq!(ask(&mut rig, GET_ID, 0, &[(DATA, 20)]), (0, 21));
    assert_eq!(rig.get(DATA, 20), b"0123456789abcdefghij");
    assert_eq!(ask(&mut rig, 99, 0, &[]).0, 2);
}

#[test]
fn what_cannot_be_fails_and_the_next_request_is_served() {
    let volume = volume(Arc::new(MemStore::new(SIZE)), 512, false);
    let last = volume.size() / 512 - 1;
    let mut rig = Rig::new(Arc::clone(&volume));
    rig.start(0, None);
    for (sector, pieces) in [
        (last + 1, vec![(DATA, 512)]),
        (last, vec![(DATA, 1024)]),
        (u64::MAX, vec![(DATA, 512)]),
        (u64::MAX / 512, vec![(DATA, 512)]),
        (0, vec![(DATA, 511)]),
        // In no memory, and in memory with a hole.
        (0, vec![(0x9_0000, 512)]),
        (0, vec![(u64::MAX - 100, 512)]),
        (0, vec![(DATA, 512), (0xff00, 512)]),
        (0, vec![(DATA, u32::MAX - 511)]),
    ] {
        for kind in [IN, OUT] {
            assert_eq!(
                ask(&mut rig, kind, sector, &pieces).0,
                1,
                "{sector} {pieces:?}"
            );
        }
    }
    assert_eq!(ask(&mut rig, OUT, last, &[(DATA, 512)]).0, 0);
}

#[test]
fn descriptors_that_are_no_chain_are_given_back() {
    let volume = volume(Arc::new(MemStore::new(SIZE)), 512, false);
    let mut rig = Rig::new(volume);
    rig.start(0, None);
    header(&rig, IN, 0);
    let end = descriptor(STATUS, 1, WRITE, 0);
    let head = descriptor(HEADER, 16, NEXT, 1);
    let table = 0x5000;
    for (descriptors, indirect) in [
        // A loop; one beyond the table; no status; no header; half a one.
        (vec![descriptor(HEADER, 16, NEXT, 0)], vec![]),
        (vec![descriptor(HEADER, 16, NEXT, ENTRIES)], vec![]),
        (vec![descriptor(HEADER, 16, 0, 0)], vec![]),
        (vec![end], vec![]),
        (vec![descriptor(HEADER, 15, NEXT, 1), end], vec![]),
        // Its header or its status are in no memory.
        (vec![descriptor(0x9_0000, 16, NEXT, 1), end], vec![]),
        (vec![head, descriptor(0x9_0000, 1, WRITE, 0)], vec![]),
        (vec![head, descriptor(0, 1, WRITE, 0)], vec![]),
        (vec![head, descriptor(STATUS, 0, WRITE, 0)], vec![]),
        // Something to be read after what is written.
        (
            vec![
                head,
                descriptor(STATUS, 1, WRITE | NEXT, 2),
                descriptor(DATA, 512, 0, 0),
            ],
            vec![],
        ),
        // Tables: empty, of odd length, in no memory, with another one, one of several.
        (vec![descriptor(table, 0, INDIRECT, 0)], vec![]),
        (vec![descriptor(table, 17, INDIRECT, 0)], vec![head, end]),
        (vec![descriptor(0x9_0000, 32, INDIRECT, 0)], vec![]),
        (
            vec![descriptor(table, 32, INDIRECT, 0)],
            vec![descriptor(table, 32, INDIRECT, 0), end],
        ),
        (
            vec![descriptor(table, 32, INDIRECT | NEXT, 1), end],
            vec![head, end],
        ),
        (
            vec![descriptor(table, u32::MAX - 15, INDIRECT, 0)],
            vec![head, end],
        ),
        // One that is longer than its table.
        (vec![descriptor(table, 16, INDIRECT, 0)], vec![head, end]),
    ] {
        rig.describe(Rig::TABLE, 0, &descriptors);
        rig.describe(table, 0, &indirect);
        let before = rig.used();
        rig.submit(0);
        assert_eq!(rig.wait_for(before + 1), (0, 0), "{descriptors:?}");
    }
    rig.describe(Rig::TABLE, 0, &[descriptor(table, 32, INDIRECT, 0)]);
    header(&rig, FLUSH, 0);
    rig.describe(table, 0, &[head, end]);
    let before = rig.used();
    rig.submit(0);
    assert_eq!(rig.wait_for(before + 1), (0, 1));
    assert_eq!(status(&rig), 0);
}

#[test]
fn errors_of_the_disk_are_the_guest_s_too() {
    let store = Arc::new(FaultStore::new(MemStore::new(SIZE)));
    let volume = volume(Arc::clone(&store) as Arc<dyn Store>, 512, false);
    let mut rig = Rig::new(volume);
    rig.start(0, None);
    for (operation, kind) in [
        (Operation::Read, IN),
        (Operation::Write, OUT),
        (Operation::Flush, FLUSH),
    ] {
        store.inject(Fault::on(operation));
        let pieces = if kind == FLUSH {
            vec![]
        } else {
            vec![(DATA, 4096)]
        };
        assert_eq!(ask(&mut rig, kind, 0, &pieces).0, 1, "{operation:?}");
        store.heal();
    }
    assert_eq!(ask(&mut rig, OUT, 0, &[(DATA, 4096)]).0, 0);
}

#[test]
fn a_read_only_disk_says_so_and_is_not_written_to() {
    let store = Arc::new(MemStore::new(SIZE));
    let volume = volume(Arc::clone(&store) as Arc<dyn Store>, 512, true);
    assert_ne!(config::features(&volume) & 1 << 5, 0);
    let mut rig = Rig::new(volume);
    rig.start(0, None);
    for kind in [OUT, DISCARD, WRITE_ZEROES] {
        assert_eq!(ask(&mut rig, kind, 0, &[(DATA, 512)]).0, 1);
    }
    assert_eq!(ask(&mut rig, FLUSH, 0, &[]).0, 0);
    assert_eq!(store.writes(), 0);
}

#[test]
fn the_configuration_says_what_there_is() {
    let volume = volume(Arc::new(MemStore::new(SIZE)), 4096, false);
    let space = config::space(&volume, 3);
    let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| space[at + i]));
    assert_eq!(u64::from(word(0)), volume.size() / 512);
    assert_eq!(word(4), 0);
    assert_eq!(word(20), 4096);
    assert_eq!((space[32], space[34]), (1, 3));
    assert_eq!(word(44), 8, "discards: sectors of 4096 bytes");
}

#[test]
fn a_chain_that_is_too_long_is_refused_and_not_left_without_an_answer() {
    let volume = volume(Arc::new(MemStore::new(SIZE)), 512, false);
    let mut rig = Rig::new(volume);
    rig.start(0, None);
    let table = 0x40_0000;
    for (pieces, wanted) in [(126, 0), (127, 1), (300, 1)] {
        header(&rig, IN, 0);
        let all = chain(&vec![(DATA, 512); pieces], true);
        let length = u32::try_from(16 * all.len()).unwrap();
        rig.describe(table, 0, &all);
        rig.describe(Rig::TABLE, 0, &[descriptor(table, length, INDIRECT, 0)]);
        let before = rig.used();
        rig.submit(0);
        rig.wait_for(before.wrapping_add(1));
        assert_eq!(status(&rig), wanted, "{pieces}");
    }
}

#[test]
fn a_ring_that_is_stopped_has_nothing_under_way() {
    let store = Arc::new(LaterStore::new(Arc::new(MemStore::new(SIZE)), 3));
    let volume = volume(Arc::clone(&store) as Arc<dyn Store>, 512, false);
    let mut rig = Rig::new(volume);
    rig.start(0, None);
    header(&rig, OUT, 0);
    rig.describe(Rig::TABLE, 0, &chain(&[(DATA, 1 << 20)], false));
    for _ in 1..ENTRIES {
        rig.offer(0);
    }
    rig.submit(0);
    let next = rig.stop();
    // Whatever was taken was given back.
    assert_eq!(rig.used(), next);
    assert_eq!(store.waiting(), 0);
}

#[test]
fn a_ring_that_counts_wrong_is_left_alone() {
    let volume = volume(Arc::new(MemStore::new(SIZE)), 512, false);
    let mut rig = Rig::new(volume);
    rig.start(0, None);
    header(&rig, FLUSH, 0);
    rig.describe(Rig::TABLE, 0, &chain(&[], false));
    // More than it has room for.
    rig.claim(ENTRIES * 2 + 1);
    assert_eq!(rig.stop(), 0);
    assert_eq!(rig.used(), 0);
}

#[test]
fn without_flushes_what_is_written_is_durable_before_it_is_given_back() {
    let store = Arc::new(MemStore::new(SIZE));
    let volume = volume(Arc::clone(&store) as Arc<dyn Store>, 512, false);
    let mut rig = Rig::new(volume).without_flush();
    rig.start(0, None);
    rig.put(DATA, &[0; 16]);
    for kind in [OUT, WRITE_ZEROES, DISCARD] {
        let before = store.flushes();
        // A range of no sectors, or a sector.
        let len = if kind == OUT { 512 } else { 16 };
        if kind != OUT {
            rig.put(DATA, &[0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        }
        assert_eq!(ask(&mut rig, kind, 0, &[(DATA, len)]), (0, 1));
        assert!(store.flushes() > before, "{kind}");
    }
}

#[test]
fn a_guest_with_more_under_way_than_fits_is_left_alone_and_can_be_stopped() {
    let store = Arc::new(LaterStore::new(Arc::new(MemStore::new(SIZE)), 3));
    let volume = volume(Arc::clone(&store) as Arc<dyn Store>, 512, false);
    let mut rig = Rig::new(volume);
    rig.start(0, None);
    store.hold(0..SIZE as u64);
    header(&rig, IN, 0);
    rig.describe(Rig::TABLE, 0, &chain(&[(DATA, 512)], true));
    for _ in 0..ENTRIES {
        rig.submit(0);
    }
    while store.waiting() < usize::from(ENTRIES) {
        std::thread::yield_now();
    }
    rig.submit(0);
    while !rig.is_broken() {
        std::thread::yield_now();
    }
    store.hold(0..0);
    rig.stop();
    assert_eq!(rig.used(), ENTRIES);
}

#[test]
fn a_request_that_is_too_large_is_refused() {
    let volume = volume(Arc::new(MemStore::new(80 << 20)), 512, false);
    let mut rig = Rig::new(volume);
    rig.start(0, None);
    let pieces = [(DATA, 4 << 20); 13];
    assert_eq!(ask(&mut rig, IN, 0, &pieces).0, 0);
    let mut pieces = vec![(DATA, 4 << 20); 12];
    pieces.push((DATA, (17 << 20) + 512));
    assert_eq!(ask(&mut rig, IN, 0, &pieces).0, 1);
}

/// One bit for each page below the end of the guest's memory.
fn log_of(rig: &Rig) -> std::fs::File {
    use rustix::fs::{MemfdFlags, memfd_create};
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = std::fs::File::from(memfd_create("log", flags).unwrap());
    file.set_len(4096).unwrap();
    let log = Log::new(file.try_clone().unwrap(), 0, 4096).unwrap();
    rig.dirty().set(Some(log));
    rig.dirty().keep(true);
    file
}

/// The pages that are marked, which are not marked any more then.
fn take_pages(log: &std::fs::File) -> Vec<u64> {
    use std::os::unix::fs::FileExt;
    let mut bytes = [0; 4096];
    log.read_exact_at(&mut bytes, 0).unwrap();
    log.write_all_at(&[0; 4096], 0).unwrap();
    let has = |page: &u64| bytes[(page / 8) as usize] & 1 << (page % 8) != 0;
    (0..8 * 4096).filter(has).collect()
}

#[test]
fn the_log_has_what_was_written_for_the_guest_and_nothing_else() {
    let store = Arc::new(LaterStore::new(Arc::new(MemStore::new(SIZE)), 3));
    // At once, and by those who end what had to wait.
    for store in [Arc::new(MemStore::new(SIZE)) as Arc<dyn Store>, store] {
        let mut rig = Rig::new(volume(store, 512, false)).with_event_index();
        // Beyond the guest's memory, as it may be.
        rig.used_in_log = Some(0x600_0000 - 1);
        rig.start(0, None);
        let log = log_of(&rig);
        let (status, used, in_log) = (STATUS >> 12, 3, [0x5fff, 0x6000]);
        let data = DATA >> 12;
        let wanted = |rig: &mut Rig, kind, pieces: &[(u64, u32)], pages: &[u64]| {
            assert_eq!(ask(rig, kind, 0, pieces).0, 0);
            // The ring is written once more when there is nothing more to do.
            rig.stop();
            let mut all = [pages, &[status, used], &in_log].concat();
            all.sort_unstable();
            assert_eq!(take_pages(&log), all, "{kind}");
            rig.start(rig.used(), None);
        };
        wanted(&mut rig, OUT, &[(DATA, 8192)], &[]);
        wanted(&mut rig, FLUSH, &[], &[]);
        // Whole sectors, to which the cipher writes itself.
        wanted(
            &mut rig,
            IN,
            &[(DATA, 8192), (DATA + 0x5200, 512)],
            &[data, data + 1, data + 5],
        );
        // From the last byte of a page on.
        let pages = [data, data + 1, data + 2, data + 9];
        wanted(
            &mut rig,
            IN,
            &[(DATA + 4095, 4098), (DATA + 0x9000, 4094)],
            &pages,
        );
        wanted(&mut rig, GET_ID, &[(DATA, 20)], &[data]);
        rig.stop();
        take_pages(&log);
        rig.dirty().keep(false);
        rig.start(rig.used(), None);
        assert_eq!(ask(&mut rig, IN, 0, &[(DATA, 4096)]).0, 0);
        rig.stop();
        assert!(take_pages(&log).is_empty());
    }
}
