//! A server of many volumes, and what is done to it while it runs.

use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::luks::Container;
use crate::process::{Background, Cmd, Finished};
use crate::xtent::xtent;
use crate::{Scratch, nbd};

/// A running `xtent serve` of several volumes; killed when dropped.
pub struct Gateway {
    process: Background,
    /// The Unix socket of its exports.
    pub socket: PathBuf,
    _scratch: Scratch,
}

impl Gateway {
    /// Serves these containers, which one key opens, each under its file's name.
    pub fn start(containers: &[&Container], options: &[&str]) -> Self {
        let mut command = xtent().arg("serve").args(options);
        if let Some(first) = containers.first() {
            command = command.arg("--key-file").arg(&first.key);
        }
        let images = containers.iter().map(|it| &it.image);
        Self::start_by(command, images)
    }

    /// Serves what this command says.
    pub fn start_by<P: AsRef<Path>>(command: Cmd, devices: impl IntoIterator<Item = P>) -> Self {
        let scratch = Scratch::new();
        let socket = scratch.join("nbd.sock");
        let listen = format!("unix:{}", socket.display());
        let mut command = command.args(["--nbd", &listen]);
        for device in devices {
            command = command.arg(device.as_ref());
        }
        let mut process = command.spawn();
        process.wait_for_line(|line| line.starts_with("nbd+unix:"));
        Self {
            process,
            socket,
            _scratch: scratch,
        }
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.process.is_running()
    }

    /// Where clients find an export.
    pub fn uri(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.socket.display())
    }

    /// `xtent VERB`, for this server.
    pub fn command(&self, verb: &str) -> Cmd {
        xtent().args([verb, "--server", &self.id().to_string()])
    }

    /// One more volume, under its file's name.
    pub fn attach(&self, container: &Container) -> Cmd {
        self.command("attach")
            .arg("--key-file")
            .arg(&container.key)
            .arg(&container.image)
    }

    /// One less.
    pub fn detach(&self, name: impl AsRef<std::ffi::OsStr>) -> Cmd {
        self.command("detach").arg(name)
    }

    /// Its control socket, for clients that are none of ours.
    pub fn control(&self) -> PathBuf {
        let folder = Path::new("/run/xtent/control");
        folder.join(format!("{}.sock", self.id()))
    }

    /// The names of its exports, as clients see them.
    pub fn exports(&self) -> Vec<String> {
        let list = Cmd::peer("nbdinfo")
            .args(["--list", "--json", &self.uri("")])
            .run();
        // Of a server without exports that is an error.
        let Ok(list) = serde_json::from_slice::<serde_json::Value>(&list.stdout) else {
            return Vec::new();
        };
        let names = list["exports"].as_array().unwrap().iter();
        let mut names: Vec<String> = names
            .map(|export| export["export-name"].as_str().unwrap().to_owned())
            .collect();
        names.sort();
        names
    }

    /// What `xtent status` says of it.
    pub fn status(&self) -> Vec<serde_json::Value> {
        let status = xtent().args(["status", "--json"]).run();
        let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
        let volumes = status["volumes"].as_array().unwrap().iter();
        let ours = volumes.filter(|volume| volume["pid"] == self.id());
        ours.cloned().collect()
    }

    /// Its open files.
    pub fn files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.id()))
            .unwrap()
            .count()
    }

    /// A number of `/proc/PID/status`, such as `VmRSS`.
    pub fn number(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        let number = line.split_whitespace().nth(1).unwrap();
        number.parse().unwrap()
    }

    /// Ticks of the processor that it has used (`utime` and `stime`, 100 a second).
    pub fn ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id())).unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        let fields: Vec<&str> = fields.split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }

    /// A client in transmission.
    pub fn connect(&self, export: &str) -> nbd::Raw {
        let mut client = nbd::Raw::connect(&self.socket);
        client.greet();
        client.go_to(export);
        client
    }

    /// Sends a signal and waits for the end.
    pub fn terminate(self, signal: Signal) -> Finished {
        self.process.signal(signal);
        self.process.finish()
    }

    /// Asks it to stop, and fails unless it does so in good order.
    pub fn stop(self) -> Finished {
        let done = self.terminate(Signal::TERM);
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        done
    }
}
