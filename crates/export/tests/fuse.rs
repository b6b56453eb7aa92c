//! Real mounts through FUSE and loop devices. Each test needs `/dev/fuse`, and
//! most need root; where that is missing they say so on standard error.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

mod fuse_common;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Barrier};

use fuse_common::{
    Fixture, SIZE, file_only, is_unprivileged, volume, volume_over, volume_with_engine,
};
use rustix::fs::{FallocateFlags, OFlags, SeekFrom};
use rustix::io::Errno;
use xtent_export::ErrorKind;
use xtent_export::mounts::{self, FILE_NAME, Mount, Served, UmountOptions};
use xtent_store::testing::{Fault, FaultStore, LaterStore, MemStore, Operation};
use xtent_store::{Limits, Store, chain};
use xtent_volume::{DiscardPolicy, Volume};

fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> Option<Errno> {
    Errno::from_io_error(&result.unwrap_err())
}

/// The store, and one that completes its operations later.
fn near_and_far<S: Store + 'static>(store: &Arc<S>) -> [Arc<dyn Store>; 2] {
    let later = LaterStore::new(Arc::clone(store), 11);
    [Arc::clone(store) as _, Arc::new(later)]
}

#[test]
fn the_file_is_the_volume() {
    if is_unprivileged() {
        return;
    }
    for store in near_and_far(&Arc::new(MemStore::new(SIZE))) {
        the_file_is(&volume_over(store, DiscardPolicy::Never, 4096, false));
    }
}

#[test]
fn an_engine_takes_the_long_requests() {
    if is_unprivileged() {
        return;
    }
    for store in near_and_far(&Arc::new(MemStore::new(SIZE))) {
        let (volume, engine) = volume_with_engine(store, 100_000);
        the_file_is(&volume);
        let done = engine.take_done();
        assert!(!done.is_empty() && done.iter().all(|len| *len >= 100_000));
    }
}

fn the_file_is(volume: &Arc<Volume>) {
    let fixture = Fixture::new();
    let served = fixture.serve(Mount::new(volume.clone(), &file_only(&fixture)).unwrap());
    let path = fixture.dir().join(FILE_NAME);
    assert_eq!(served.what, Served::File(path.clone()));
    let metadata = path.metadata().unwrap();
    assert_eq!(
        (metadata.len(), metadata.mode() & 0o777),
        (volume.size(), 0o600)
    );

    let buffered = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let direct = OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::DIRECT.bits().cast_signed())
        .open(&path)
        .unwrap();
    // Ranges of any alignment, up to several requests long, against a model.
    let mut model = vec![0; SIZE];
    volume.read_at(&mut model, 0).unwrap();
    let mut random = 1_u64;
    let mut next = |below: usize| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(random >> 33).unwrap() % below
    };
    for round in 0..200 {
        let longest = if round % 10 == 0 { 3 << 20 } else { 20_000 };
        let start = next(SIZE);
        let end = SIZE.min(start + 1 + next(longest));
        if round % 2 == 0 {
            let data: Vec<u8> = (start..end).map(|_| next(256) as u8).collect();
            buffered.write_all_at(&data, start as u64).unwrap();
            model[start..end].copy_from_slice(&data);
        }
        let mut seen = vec![0; end - start];
        buffered.read_exact_at(&mut seen, start as u64).unwrap();
        assert!(seen == model[start..end], "{start}..{end} through the file");
        volume.read_at(&mut seen, start as u64).unwrap();
        assert!(seen == model[start..end], "{start}..{end} in the volume");
        // Direct and buffered openers see the same.
        let start = start & !4095;
        let mut page = vec![0; 8192];
        let aligned = page.as_ptr().align_offset(4096);
        direct
            .read_exact_at(&mut page[aligned..aligned + 4096], start as u64)
            .unwrap();
        assert!(page[aligned..aligned + 4096] == model[start..start + 4096]);
    }
    let names: Vec<_> = std::fs::read_dir(fixture.dir())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(names, [FILE_NAME]);
    drop((buffered, direct));
    assert_eq!(fixture.umount(), Vec::<String>::new());
    served.ended().unwrap();
}

#[test]
fn the_file_ends_like_a_block_device() {
    if is_unprivileged() {
        return;
    }
    let fixture = Fixture::new();
    let _served =
        fixture.serve(Mount::new(volume(DiscardPolicy::Never, 512), &file_only(&fixture)).unwrap());
    let path = fixture.dir().join(FILE_NAME);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let end = SIZE as u64;

    assert_eq!(file.write_at(&[1; 100], end - 10).unwrap(), 10);
    assert_eq!(errno(file.write_at(&[1; 100], end)), Some(Errno::NOSPC));
    assert_eq!(file.read_at(&mut [0; 100], end - 10).unwrap(), 10);
    assert_eq!(file.read_at(&mut [0; 100], end + 5).unwrap(), 0);

    file.set_len(end).unwrap();
    assert_eq!(errno(file.set_len(end + 1)), Some(Errno::PERM));
    assert_eq!(errno(file.set_len(0)), Some(Errno::PERM));
    assert_eq!(errno(File::create(&path)), Some(Errno::PERM));
    file.set_modified(std::time::SystemTime::UNIX_EPOCH)
        .unwrap();
    let other = fixture.dir().join("other");
    assert_eq!(errno(File::create(&other)), Some(Errno::PERM));
    assert_eq!(errno(std::fs::create_dir(&other)), Some(Errno::PERM));
    assert_eq!(errno(std::fs::remove_file(&path)), Some(Errno::PERM));
    assert_eq!(errno(std::fs::rename(&path, &other)), Some(Errno::PERM));
    assert_eq!(errno(File::open(&other)), Some(Errno::NOENT));

    // All data, no holes.
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(5)), Ok(5));
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(5)), Ok(end));
    assert_eq!(
        rustix::fs::seek(&file, SeekFrom::Data(end)),
        Err(Errno::NXIO)
    );
}

#[test]
fn allocation_leaves_zeros_or_is_refused() {
    if is_unprivileged() {
        return;
    }
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for policy in [
        DiscardPolicy::Never,
        DiscardPolicy::Allow,
        DiscardPolicy::Zero,
    ] {
        let fixture = Fixture::new();
        let _served =
            fixture.serve(Mount::new(volume(policy, 4096), &file_only(&fixture)).unwrap());
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(fixture.dir().join(FILE_NAME))
            .unwrap();
        file.write_all_at(&[7; 100_000], 0).unwrap();
        let bytes = |start, len| {
            let mut bytes = vec![1; len];
            file.read_exact_at(&mut bytes, start).unwrap();
            bytes
        };

        let zero = FallocateFlags::ZERO_RANGE;
        rustix::fs::fallocate(&file, zero, 1000, 9000).unwrap();
        assert_eq!(bytes(999, 9002), [&[7][..], &[0; 9000], &[7]].concat());
        let end = SIZE as u64;
        assert!(rustix::fs::fallocate(&file, zero, end - 10, 20).is_err());
        rustix::fs::fallocate(&file, zero | FallocateFlags::KEEP_SIZE, end - 10, 20).unwrap();

        let punched = rustix::fs::fallocate(&file, hole, 20_000, 9000);
        if policy == DiscardPolicy::Zero {
            punched.unwrap();
            assert_eq!(bytes(19_999, 9002), [&[7][..], &[0; 9000], &[7]].concat());
        } else {
            assert_eq!(punched, Err(Errno::OPNOTSUPP));
            assert_eq!(bytes(20_000, 9000), [7; 9000]);
        }
        let plain = rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 4096);
        assert_eq!(plain, Err(Errno::OPNOTSUPP));
        let collapse = rustix::fs::fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096);
        assert_eq!(collapse, Err(Errno::OPNOTSUPP));
    }
}

#[test]
fn a_read_only_volume_is_a_read_only_file() {
    if is_unprivileged() {
        return;
    }
    let fixture = Fixture::new();
    let store = MemStore::new(SIZE).read_only();
    let volume = volume_over(Arc::new(store), DiscardPolicy::Never, 4096, true);
    let _served = fixture.serve(Mount::new(volume, &file_only(&fixture)).unwrap());
    let path = fixture.dir().join(FILE_NAME);
    assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o400);
    File::open(&path).unwrap();
    let writer = OpenOptions::new().write(true).open(&path);
    assert_eq!(errno(writer), Some(Errno::ROFS));
}

#[test]
fn a_failed_request_fails_alone() {
    if is_unprivileged() {
        return;
    }
    for far in [false, true] {
        let fixture = Fixture::new();
        let store = Arc::new(FaultStore::new(MemStore::new(SIZE)));
        let under = near_and_far(&store)[usize::from(far)].clone();
        let volume = volume_over(under, DiscardPolicy::Never, 4096, false);
        let served = fixture.serve(Mount::new(volume, &file_only(&fixture)).unwrap());
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(OFlags::DIRECT.bits().cast_signed())
            .open(fixture.dir().join(FILE_NAME))
            .unwrap();
        let mut memory = vec![5; 8192];
        let aligned = memory.as_ptr().align_offset(4096);
        let page = &mut memory[aligned..aligned + 4096];

        store.inject(Fault::on(Operation::Read).within(8192..12288));
        assert_eq!(errno(file.read_at(page, 8192)), Some(Errno::IO));
        file.read_exact_at(page, 4096).unwrap();
        store.inject(
            Fault::on(Operation::Write)
                .within(0..4096)
                .errno(Errno::NOSPC.raw_os_error()),
        );
        assert_eq!(errno(file.write_at(page, 0)), Some(Errno::NOSPC));
        file.write_all_at(page, 4096).unwrap();
        file.sync_all().unwrap();
        store.heal();
        file.write_all_at(page, 0).unwrap();
        store.inject(Fault::on(Operation::Flush));
        assert_eq!(errno(file.sync_data()), Some(Errno::IO));

        // The daemon's last flush fails as well: both sides hear of it.
        drop(file);
        let error = mounts::umount(fixture.dir(), UmountOptions::default()).unwrap_err();
        assert!(
            chain(&error).to_string().contains("last flush"),
            "{}",
            chain(&error)
        );
        let error = served.ended().unwrap_err();
        assert!(matches!(error.kind, ErrorKind::Volume(_)), "{error}");
        fixture.assert_clean();
    }
}

/// Who writes through the kernel's cache never hears of it otherwise.
#[test]
fn a_write_that_failed_is_told_at_the_end() {
    if is_unprivileged() {
        return;
    }
    for far in [false, true] {
        let fixture = Fixture::new();
        let store = Arc::new(FaultStore::new(MemStore::new(SIZE)));
        let under = near_and_far(&store)[usize::from(far)].clone();
        let volume = volume_over(under, DiscardPolicy::Never, 4096, false);
        let served = fixture.serve(Mount::new(volume, &file_only(&fixture)).unwrap());
        let file = OpenOptions::new()
            .write(true)
            .open(fixture.dir().join(FILE_NAME))
            .unwrap();
        store.inject(Fault::on(Operation::Write).errno(Errno::NOSPC.raw_os_error()));
        assert_eq!(errno(file.write_at(&[5; 4096], 0)), Some(Errno::NOSPC));
        store.heal();
        file.write_all_at(&[5; 4096], 4096).unwrap();
        drop(file);
        let error = mounts::umount(fixture.dir(), UmountOptions::default()).unwrap_err();
        assert!(
            chain(&error).to_string().contains("a write failed"),
            "{}",
            chain(&error)
        );
        assert!(
            chain(&error).to_string().contains("No space left"),
            "{}",
            chain(&error)
        );
        let error = served.ended().unwrap_err();
        assert!(matches!(error.kind, ErrorKind::Volume(_)), "{error}");
        fixture.assert_clean();
    }
}

#[test]
fn fsync_flushes_and_synchronous_writes_are_durable() {
    if is_unprivileged() {
        return;
    }
    for far in [false, true] {
        let fixture = Fixture::new();
        let store = Arc::new(MemStore::new(SIZE));
        let under = near_and_far(&store)[usize::from(far)].clone();
        let volume = volume_over(under, DiscardPolicy::Never, 4096, false);
        let _served = fixture.serve(Mount::new(volume, &file_only(&fixture)).unwrap());
        let path = fixture.dir().join(FILE_NAME);
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&[1; 4096], 0).unwrap();
        assert_eq!(store.flushes(), 0);
        file.sync_data().unwrap();
        assert_eq!(store.flushes(), 1);
        let synchronous = OpenOptions::new()
            .write(true)
            .custom_flags(OFlags::DSYNC.bits().cast_signed())
            .open(&path)
            .unwrap();
        synchronous.write_all_at(&[1; 4096], 0).unwrap();
        assert!(store.flushes() > 1);
    }
}

/// Reads of the first two sectors wait for each other.
struct Rendezvous(MemStore, Barrier);

impl Store for Rendezvous {
    fn size(&self) -> u64 {
        self.0.size()
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn limits(&self) -> Limits {
        self.0.limits()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), xtent_store::Error> {
        if offset < 8192 {
            self.1.wait();
        }
        self.0.read_at(buf, offset)
    }
    fn write_at(&self, data: &[u8], offset: u64) -> Result<(), xtent_store::Error> {
        self.0.write_at(data, offset)
    }
    fn flush(&self) -> Result<(), xtent_store::Error> {
        self.0.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> Result<(), xtent_store::Error> {
        self.0.discard(offset, len)
    }
}

#[test]
fn requests_do_not_wait_for_each_other() {
    if is_unprivileged() {
        return;
    }
    let fixture = Fixture::new();
    let store = Rendezvous(MemStore::new(SIZE), Barrier::new(2));
    let volume = volume_over(Arc::new(store), DiscardPolicy::Never, 4096, false);
    let _served = fixture.serve(Mount::new(volume, &file_only(&fixture)).unwrap());
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::DIRECT.bits().cast_signed())
        .open(fixture.dir().join(FILE_NAME))
        .unwrap();
    let read = |offset| {
        let mut memory = vec![0; 8192];
        let aligned = memory.as_ptr().align_offset(4096);
        file.read_exact_at(&mut memory[aligned..aligned + 4096], offset)
            .unwrap();
    };
    std::thread::scope(|threads| {
        threads.spawn(|| read(0));
        threads.spawn(|| read(4096));
    });
}

/// More than there are threads, and none waits for another.
#[test]
fn requests_to_a_store_far_away_need_no_threads() {
    const COUNT: usize = 48;
    if is_unprivileged() {
        return;
    }
    let fixture = Fixture::new();
    let store = Arc::new(LaterStore::new(Arc::new(MemStore::new(SIZE)), 1));
    let volume = volume_over(store.clone(), DiscardPolicy::Never, 4096, false);
    let served = fixture.serve(Mount::new(volume, &file_only(&fixture)).unwrap());
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::DIRECT.bits().cast_signed())
        .open(fixture.dir().join(FILE_NAME))
        .unwrap();
    store.hold(0..u64::MAX);
    std::thread::scope(|threads| {
        for index in 0..COUNT {
            let file = &file;
            threads.spawn(move || {
                let mut memory = vec![0; 8192];
                let aligned = memory.as_ptr().align_offset(4096);
                let page = &mut memory[aligned..aligned + 4096];
                file.read_exact_at(page, index as u64 * 4096).unwrap();
            });
        }
        while store.waiting() < COUNT {
            std::thread::yield_now();
        }
        store.hold(0..0);
    });
    drop(file);
    fixture.umount();
    served.ended().unwrap();
}

#[test]
fn mount_points_that_cannot_be() {
    if is_unprivileged() {
        return;
    }
    let fixture = Fixture::new();
    let kind = |dir: &Path| {
        let mut options = file_only(&fixture);
        options.dir = dir.to_owned();
        mounts::check(&options).unwrap_err()
    };
    assert_eq!(kind(Path::new("/proc/no/such")).kind, ErrorKind::Argument);
    assert_eq!(kind(Path::new("/etc/passwd")).kind, ErrorKind::Argument);
    let error = kind(Path::new("/proc"));
    assert_eq!(error.kind, ErrorKind::Busy);
    assert!(error.message.contains("mount point already"), "{error}");
    let error = mounts::umount(fixture.dir(), UmountOptions::default()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotMounted);
    let mut options = file_only(&fixture);
    options.device = Path::new("/no/such/device").into();
    assert_eq!(mounts::check(&options).unwrap_err().kind, ErrorKind::Io);
    // What would be hidden.
    let file = fixture.dir().join("file");
    File::create(&file).unwrap();
    let warnings = mounts::check(&file_only(&fixture)).unwrap();
    assert!(warnings[0].contains("not empty"), "{warnings:?}");
    std::fs::remove_file(file).unwrap();

    let _served =
        fixture.serve(Mount::new(volume(DiscardPolicy::Never, 512), &file_only(&fixture)).unwrap());
    let error = kind(fixture.dir());
    assert_eq!(error.kind, ErrorKind::Busy);
    assert!(error.message.contains("umount"), "{error}");
}

#[test]
fn a_file_in_use_keeps_its_mount() {
    if is_unprivileged() {
        return;
    }
    let fixture = Fixture::new();
    let mount = Mount::new(volume(DiscardPolicy::Never, 512), &file_only(&fixture)).unwrap();
    let stop = mount.stop();
    let served = fixture.serve(mount);
    let path = fixture.dir().join(FILE_NAME);
    let file = File::open(&path).unwrap();
    let error = mounts::umount(fixture.dir(), UmountOptions::default()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Busy);
    let process = format!("process {}", std::process::id());
    assert!(error.message.contains(&process), "{error}");

    // A lazy unmount ends when the user is done.
    let warnings = mounts::umount(
        fixture.dir(),
        UmountOptions {
            lazy: true,
            ..UmountOptions::default()
        },
    )
    .unwrap()
    .warnings;
    assert!(warnings[0].contains(&process), "{warnings:?}");
    assert!(!path.exists());
    file.read_exact_at(&mut [0; 4096], 0).unwrap();
    drop(file);
    served.ended().unwrap();
    fixture.assert_clean();
    // The mount has ended; its handle has no effect any more.
    stop.request();
}

#[test]
fn the_second_request_to_stop_is_not_refused() {
    if is_unprivileged() {
        return;
    }
    let fixture = Fixture::new();
    let mount = Mount::new(volume(DiscardPolicy::Never, 512), &file_only(&fixture)).unwrap();
    let stop = mount.stop();
    let served = fixture.serve(mount);
    let file = File::open(fixture.dir().join(FILE_NAME)).unwrap();
    stop.request();
    file.read_exact_at(&mut [0; 4096], 0).unwrap();
    stop.request();
    served.ended().unwrap();
    fixture.assert_clean();
}

#[test]
fn a_request_to_stop_ends_an_idle_mount() {
    if is_unprivileged() {
        return;
    }
    let fixture = Fixture::new();
    let mount = Mount::new(volume(DiscardPolicy::Never, 512), &file_only(&fixture)).unwrap();
    let stop = mount.stop();
    let served = fixture.serve(mount);
    stop.request();
    served.ended().unwrap();
    fixture.assert_clean();
}

#[test]
fn dropping_undoes() {
    if is_unprivileged() {
        return;
    }
    let fixture = Fixture::new();
    drop(Mount::new(volume(DiscardPolicy::Never, 512), &file_only(&fixture)).unwrap());
    fixture.assert_clean();
}
