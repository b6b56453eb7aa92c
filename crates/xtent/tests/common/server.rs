//! A server as a process.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::Bed;

/// `xtent serve`, killed on drop.
pub struct Server {
    pub child: Child,
    pub uri: String,
}

impl Server {
    /// Serves `disk.img` with these options; ready on return.
    pub fn start(bed: &Bed, options: &str) -> Self {
        Self::start_with(bed, &format!("serve {options} --key-file key disk.img"))
    }

    /// Serves as the whole line says; ready on return.
    pub fn start_with(bed: &Bed, line: &str) -> Self {
        let mut child = bed
            .command(line.split(' ').filter(|word| !word.is_empty()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut uri = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut uri)
            .unwrap();
        let mut server = Self { child, uri };
        if !server.uri.contains("nbd+unix:") && !server.uri.starts_with("nbd") {
            let said = server.rest();
            panic!("not ready: {}{said}", server.uri);
        }
        server
    }

    /// A line of `/proc/PID/status`.
    pub fn status(&self, name: &str) -> String {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|l| l.starts_with(name)).unwrap();
        line[name.len() + 1..].trim().to_owned()
    }

    /// What /proc has of each of its threads as `status`. One that ends meanwhile is not among them.
    pub fn threads(&self) -> impl Iterator<Item = String> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        threads.filter_map(|thread| {
            std::fs::read_to_string(thread.unwrap().path().join("status")).ok()
        })
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// The next line that it says.
    pub fn line(&mut self) -> String {
        let mut line = Vec::new();
        let err = self.child.stderr.as_mut().unwrap();
        while line.last() != Some(&b'\n') {
            let mut byte = [0];
            err.read_exact(&mut byte).unwrap();
            line.push(byte[0]);
        }
        String::from_utf8(line).unwrap()
    }

    /// What it says until its end.
    pub fn rest(&mut self) -> String {
        let mut rest = String::new();
        let mut err = self.child.stderr.take().unwrap();
        err.read_to_string(&mut rest).unwrap();
        rest
    }

    /// Ends it; its exit code, and what it has said.
    pub fn end(mut self, signal: Signal) -> (Option<i32>, String) {
        self.signal(signal);
        let said = self.rest();
        (self.child.wait().unwrap().code(), said)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
