//! A Ceph cluster of this machine's own, one for each test program.

use std::path::PathBuf;
use std::sync::{OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::luks::Container;
use crate::process::{Background, Finished, threads};
use crate::{Cmd, bed};

/// What clients of the cluster begin with.
const PRELUDE: &str = "
import os, sys, rados, rbd
cluster = rados.Rados(conffile=sys.argv[1])
cluster.connect()
io = cluster.open_ioctx('rbd')
";

/// A running cluster with a pool `rbd`; it ends with this process.
pub struct Bed {
    folder: PathBuf,
    /// Tests share it, but for those that take something of it away.
    whole: RwLock<()>,
}

/// The cluster, started for the first who asks; where it cannot be, says so as [`bed::not_run`].
pub fn cluster(test: &str) -> Option<&'static Bed> {
    static BED: OnceLock<Option<Bed>> = OnceLock::new();
    for tool in ["ceph-mon", "ceph-osd", "ceph", "rbd"] {
        let folders = crate::process::PATH.split(':');
        if !folders
            .into_iter()
            .any(|folder| PathBuf::from(folder).join(tool).exists())
        {
            bed::not_run(test, &format!("{tool} is missing (scripts/setup.sh ceph)"));
            return None;
        }
    }
    BED.get_or_init(|| Some(Bed::start())).as_ref()
}

impl Bed {
    fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("xtent-ceph-").tempdir();
        // What ends the cluster removes it.
        let folder = folder.unwrap().keep();
        script("start")
            .arg(&folder)
            .arg(std::process::id().to_string())
            .ok();
        Self {
            folder,
            whole: RwLock::new(()),
        }
    }

    /// A share of the cluster.
    pub fn share(&self) -> RwLockReadGuard<'_, ()> {
        self.whole.read().unwrap_or_else(|e| e.into_inner())
    }

    /// All of it, for a test that takes something of it away.
    pub fn alone(&self) -> RwLockWriteGuard<'_, ()> {
        self.whole.write().unwrap_or_else(|e| e.into_inner())
    }

    /// The settings for clients.
    pub fn conf(&self) -> PathBuf {
        self.folder.join("ceph.conf")
    }

    /// How an image is called for Xtent; `image` may be one of its snapshots.
    pub fn name(&self, image: &str) -> PathBuf {
        format!("rbd:rbd/{image}:conf={}", self.conf().display()).into()
    }

    /// A new image of `size` bytes, and its name.
    pub fn image(&self, image: &str, size: u64) -> PathBuf {
        self.rbd(&["create", image, "--size", &format!("{size}B")])
            .ok();
        self.name(image)
    }

    /// The same for a container that `key` will open.
    pub fn container(&self, image: &str, size: u64, key: &std::path::Path) -> Container {
        Container {
            image: self.image(image, size),
            key: key.to_owned(),
        }
    }

    /// Ceph's command for images.
    pub fn rbd(&self, arguments: &[&str]) -> Cmd {
        Cmd::peer("rbd").arg("-c").arg(self.conf()).args(arguments)
    }

    /// Ceph's command for everything else.
    pub fn ceph(&self, arguments: &[&str]) -> Cmd {
        Cmd::peer("ceph").arg("-c").arg(self.conf()).args(arguments)
    }

    /// Python with `cluster` and `io` of the pool; `arguments` are `sys.argv[2:]`.
    pub fn python(&self, program: &str, arguments: &[&std::path::Path]) -> Finished {
        self.python_command(program, arguments).ok()
    }

    /// The same, running beside the test.
    pub fn python_beside(&self, program: &str, arguments: &[&std::path::Path]) -> Background {
        self.python_command(program, arguments).spawn()
    }

    fn python_command(&self, program: &str, arguments: &[&std::path::Path]) -> Cmd {
        Cmd::new("/usr/bin/python3")
            .arg("-c")
            .arg(format!("{PRELUDE}{program}"))
            .arg(self.conf())
            .args(arguments)
    }

    /// Sends a daemon (`osd.0`, `mon.a`) a signal, and waits for the end of one that it ends.
    pub fn kill(&self, daemon: &str, signal: &str) {
        script("kill").arg(&self.folder).args([daemon, signal]).ok();
    }

    /// Starts a daemon that was killed again.
    pub fn revive(&self, daemon: &str) {
        script("revive").arg(&self.folder).arg(daemon).ok();
    }
}

/// No thread of a server, librados' own included, has more than it needs.
pub fn assert_confined(id: u32) {
    let mut of_ceph = 0;
    for status in threads(id) {
        let is_of_ceph =
            status.contains("Name:\tmsgr-worker") || !status.contains("CapEff:\t0000000000000000");
        of_ceph += usize::from(is_of_ceph);
        for line in ["NoNewPrivs:\t1", "Seccomp:\t2"] {
            assert!(status.contains(line), "{line:?} is not in {status}");
        }
        // To read files, and to become another user, for neither of which there is a call.
        let capabilities = status
            .lines()
            .find_map(|line| line.strip_prefix("CapEff:\t"));
        let capabilities = u64::from_str_radix(capabilities.unwrap(), 16).unwrap();
        assert_eq!(capabilities & !0xc4, 0, "{status}");
    }
    assert!(of_ceph > 2, "there is no thread of librados");
}

fn script(verb: &str) -> Cmd {
    Cmd::new(bed::root_folder().join("scripts/ceph-bed.sh")).arg(verb)
}
