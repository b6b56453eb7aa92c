//! Servers that are programs of their own.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use xtent_upstream::Uri;

use super::uri;

/// A program that serves a socket in a directory, killed when dropped.
pub(crate) struct Program {
    child: std::process::Child,
    pub(crate) directory: tempfile::TempDir,
}

impl Program {
    /// Runs it with the path of its socket; waits until it listens.
    pub(crate) fn start(command: &str, args: &[&str], socket_option: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let child = Self::run(command, args, socket_option, &directory.path().join("s"));
        Self { child, directory }
    }

    fn run(
        command: &str,
        args: &[&str],
        option: &str,
        socket: &std::path::Path,
    ) -> std::process::Child {
        let mut child = std::process::Command::new(command)
            .args([option, socket.to_str().unwrap()])
            .args(args)
            .spawn()
            .unwrap_or_else(|error| panic!("{command}: {error}"));
        while UnixStream::connect(socket).is_err() {
            assert!(child.try_wait().unwrap().is_none(), "{command} has ended");
            std::thread::yield_now();
        }
        child
    }

    /// As after a crash, with the same files.
    pub(crate) fn restart(&mut self, command: &str, args: &[&str], option: &str) {
        self.kill();
        let socket = self.socket();
        let _ = std::fs::remove_file(&socket);
        self.child = Self::run(command, args, option, &socket);
    }

    /// Waits until it ends by itself.
    pub(crate) fn wait(&mut self) {
        self.child.wait().unwrap();
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("s")
    }

    pub(crate) fn uri(&self) -> Uri {
        uri(&self.socket())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}
