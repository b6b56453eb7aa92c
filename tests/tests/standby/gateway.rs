//! A server that stands by, and serves once the volume is free.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use xtent_tests::luks::Container;
use xtent_tests::process::Background;
use xtent_tests::xtent::{binary, xtent};
use xtent_tests::{Cmd, PATIENCE, Scratch};

/// A server that waits, with what it says in `log`.
pub(crate) struct Standby {
    pub(crate) process: Background,
    log: PathBuf,
    pub(crate) socket: PathBuf,
}

impl Standby {
    /// At a socket of its own; returns when it says that it waits.
    pub(crate) fn start(container: &Container, scratch: &Scratch, name: &str) -> Self {
        let mut standby = Self::begin(container, scratch, name);
        standby.waits();
        standby
    }

    /// At a socket of its own.
    pub(crate) fn begin(container: &Container, scratch: &Scratch, name: &str) -> Self {
        let socket = scratch.join(&format!("{name}.sock"));
        Self::begin_at(&socket, container, scratch, name)
    }

    /// At this socket, which may be that of another.
    pub(crate) fn begin_at(
        socket: &Path,
        container: &Container,
        scratch: &Scratch,
        name: &str,
    ) -> Self {
        let log = scratch.join(&format!("{name}.log"));
        // Of one of that name before.
        let _ = std::fs::remove_file(&log);
        let command = format!(
            "exec {} serve --standby --nbd unix:{} --key-file {} '{}' 2>{}",
            binary().display(),
            socket.display(),
            container.key.display(),
            container.image.display(),
            log.display()
        );
        Self {
            process: Cmd::peer("bash").args(["-c", &command]).spawn(),
            log,
            socket: socket.to_owned(),
        }
    }

    /// The process id, as options take it.
    pub(crate) fn id(&self) -> String {
        self.process.id().to_string()
    }

    /// Returns when it says that it waits.
    pub(crate) fn waits(&mut self) {
        self.wait_to_hear("standing by: ");
    }

    /// Its warnings and errors up to now.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Returns when it has said this.
    pub(crate) fn wait_to_hear(&mut self, words: &str) {
        let start = Instant::now();
        while !self.said().contains(words) {
            assert!(self.process.is_running(), "{}", self.said());
            assert!(start.elapsed() < PATIENCE, "{}", self.said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until it serves.
    pub(crate) fn serves(&mut self) -> String {
        self.process.wait_for_line(|line| line.contains("nbd+unix"));
        self.uri()
    }

    /// What it has answered, and how many clients it has; nothing before it serves.
    pub(crate) fn requests_and_clients(&self) -> (u64, u64) {
        let status = xtent().args(["status", "--json"]).run().json();
        let mut volumes = status["volumes"].as_array().unwrap().iter();
        let Some(volume) = volumes.find(|it| it["pid"] == self.process.id()) else {
            return (0, 0);
        };
        let requests = ["read", "write", "flush"]
            .map(|kind| volume["metrics"]["requests"][kind]["count"].as_u64());
        let requests = requests.into_iter().flatten().sum();
        (requests, volume["clients"].as_u64().unwrap_or(0))
    }

    /// Takes the volume away from whoever has it.
    pub(crate) fn take_over(&self) -> Cmd {
        xtent().args(["takeover", "-q", "--server", &self.id()])
    }

    /// Stops it where it is. Returns when all of it has stopped.
    pub(crate) fn stop(&self) {
        self.process.signal(Signal::STOP);
        wait_until("a server does not stop", || {
            let tasks = std::fs::read_dir(format!("/proc/{}/task", self.id())).unwrap();
            tasks.flatten().all(|task| {
                // A thread may end meanwhile.
                let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
                stat.rsplit_once(')')
                    .is_none_or(|(_, rest)| rest.starts_with(" T"))
            })
        });
    }

    /// Ends it in good order.
    pub(crate) fn end(self) {
        self.process.signal(Signal::TERM);
        let said = self.said();
        assert_eq!(self.process.finish().code(), Some(0), "{said}");
    }

    /// Waits for an end that it comes to by itself, since the volume was taken away.
    pub(crate) fn ends_fenced(self) {
        let log = self.log.clone();
        let code = self.process.finish().code();
        let said = std::fs::read_to_string(log).unwrap();
        assert_eq!(code, Some(5), "{said}");
        assert!(
            said.contains("somebody else has taken the volume over"),
            "{said}"
        );
    }

    pub(crate) fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }
}

/// Looks every few milliseconds whether it is so.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
