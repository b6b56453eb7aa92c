//! What the tests of FUSE mounts share.
#![allow(dead_code, reason = "each test program uses some of it")]
#![allow(unreachable_pub)]

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use sector_cipher::{SectorCount, SectorSize};
use xtent_export::Error;
use xtent_export::mounts::{self, Mount, Options, Served, UmountOptions};
use xtent_secret::SecretBytes;
use xtent_store::Store;
use xtent_store::testing::MemStore;
use xtent_volume::testing::LaterEngine;
use xtent_volume::{Config, DiscardPolicy, Holes, Threshold, Volume};

/// Bytes in the volumes of these tests.
pub const SIZE: usize = 16 << 20;

/// Whether this process lacks what these tests need; then says so where the
/// test program cannot swallow it.
pub fn is_unprivileged() -> bool {
    let missing = if !rustix::process::geteuid().is_root() {
        "root"
    } else if !Path::new("/dev/fuse").exists() {
        "/dev/fuse"
    } else if !Path::new("/dev/loop-control").exists() {
        "/dev/loop-control"
    } else {
        return false;
    };
    let name = std::thread::current().name().unwrap_or("?").to_owned();
    let _ = writeln!(std::io::stderr(), "NOT RUN: {name}: it needs {missing}");
    true
}

/// A mount point and a file that stands for the device. Unmounts on drop, also
/// when the test fails.
pub struct Fixture {
    root: tempfile::TempDir,
    dir: std::path::PathBuf,
    pub device: std::path::PathBuf,
}

impl Fixture {
    pub fn new() -> Self {
        let root = tempfile::Builder::new()
            .prefix("xtent-fuse-")
            .tempdir()
            .unwrap();
        let base = root.path().canonicalize().unwrap();
        let (dir, device) = (base.join("mnt"), base.join("image"));
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(&device, "").unwrap();
        Self { root, dir, device }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// Waits for `mount` in a thread, as the daemon's main thread does.
    pub fn serve(&self, mount: Mount) -> Daemon {
        let what = mount.served();
        let thread = std::thread::spawn(move || mount.wait());
        Daemon { what, thread }
    }

    pub fn umount(&self) -> Vec<String> {
        mounts::umount(&self.dir, UmountOptions::default())
            .unwrap()
            .warnings
    }

    /// Nothing mounted, no loop device, no state.
    pub fn assert_clean(&self) {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let name = self.root.path().to_str().unwrap();
        assert!(!mounts.contains(name), "{mounts}");
        for state in states() {
            assert!(!state.contains(name), "{state}");
        }
    }
}

fn states() -> Vec<String> {
    std::fs::read_dir("/run/xtent/mounts")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|e| std::fs::read_to_string(e.path().join("state.json")).ok())
        .collect()
}

impl Drop for Fixture {
    fn drop(&mut self) {
        for _ in 0..2 {
            let _ = mounts::umount(
                &self.dir,
                UmountOptions {
                    lazy: true,
                    ..UmountOptions::default()
                },
            );
        }
    }
}

/// A mount being waited for.
pub struct Daemon {
    pub what: Served,
    thread: JoinHandle<Result<(), Error>>,
}

impl Daemon {
    /// How its wait ended.
    pub fn ended(self) -> Result<(), Error> {
        self.thread.join().unwrap()
    }
}

pub fn options(fixture: &Fixture) -> Options {
    Options {
        device: (&fixture.device).into(),
        dir: fixture.dir().to_owned(),
        file_only: false,
        fstype: None,
        mount_options: None,
    }
}

pub fn file_only(fixture: &Fixture) -> Options {
    Options {
        file_only: true,
        ..options(fixture)
    }
}

/// A volume in memory.
pub fn volume(discard: DiscardPolicy, sector_size: u32) -> Arc<Volume> {
    volume_over(Arc::new(MemStore::new(SIZE)), discard, sector_size, false)
}

pub fn volume_over(
    store: Arc<dyn Store>,
    discard: DiscardPolicy,
    sector_size: u32,
    read_only: bool,
) -> Arc<Volume> {
    Arc::new(opened(store, discard, sector_size, read_only).0)
}

/// The same with an engine that takes requests from so many bytes on.
pub fn volume_with_engine(store: Arc<dyn Store>, least: usize) -> (Arc<Volume>, Arc<LaterEngine>) {
    let (volume, config, key) = opened(store, DiscardPolicy::Never, 4096, false);
    let engine = LaterEngine::new(&config, &key, 9);
    let volume = volume.with_engine(Arc::clone(&engine) as _, Threshold::Bytes(least));
    engine.take_done();
    (Arc::new(volume.unwrap()), engine)
}

fn opened(
    store: Arc<dyn Store>,
    discard: DiscardPolicy,
    sector_size: u32,
    read_only: bool,
) -> (Volume, Config, Vec<u8>) {
    let config = Config {
        cipher: "aes-xts-plain64".parse().unwrap(),
        sector_size: SectorSize::new(sector_size).unwrap(),
        sector_count: SectorCount::Units512,
        offset: 0,
        length: store.size(),
        iv_offset: 0,
        read_only,
        discard,
        holes: Holes::Noise,
        backend: None,
    };
    let key: Vec<u8> = (0..64).collect();
    let secret = SecretBytes::copy_of(&key).unwrap();
    (Volume::open(store, &secret, &config).unwrap(), config, key)
}
