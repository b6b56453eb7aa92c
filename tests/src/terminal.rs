//! A command on a terminal of its own, and whoever sits at it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::Child;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};

use crate::{Cmd, PATIENCE};

/// A running command; hung up when dropped.
pub struct Terminal {
    child: Child,
    near: File,
    far: File,
    unread: String,
}

impl Terminal {
    /// Starts it.
    pub fn start(command: Cmd) -> Self {
        let near = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&near).unwrap();
        unlockpt(&near).unwrap();
        let name = ptsname(&near, Vec::new()).unwrap();
        let far = File::options()
            .read(true)
            .write(true)
            .open(name.to_str().unwrap())
            .unwrap();
        // Standard input becomes the controlling terminal. Tests run in the background of a shell
        // have Ctrl-C ignored.
        let child = Cmd::peer("setsid")
            .args(["--ctty", "--wait"])
            .wrapping(
                Cmd::peer("env")
                    .arg("--default-signal=INT")
                    .wrapping(command),
            )
            .command()
            .stdin(far.try_clone().unwrap())
            .stdout(far.try_clone().unwrap())
            .stderr(far.try_clone().unwrap())
            .spawn()
            .unwrap();
        Self {
            child,
            near: File::from(near),
            far,
            unread: String::new(),
        }
    }

    /// Waits until `text` is shown.
    #[track_caller]
    pub fn expect(&mut self, text: &str) {
        while !self.unread.contains(text) {
            let limit = Timespec::try_from(PATIENCE).unwrap();
            let ready = poll(&mut [PollFd::new(&self.near, PollFlags::IN)], Some(&limit));
            assert_eq!(ready.unwrap(), 1, "no `{text}` in `{}`", self.unread);
            let mut bytes = [0; 256];
            let n = self.near.read(&mut bytes).unwrap_or(0);
            assert!(n > 0, "no `{text}` in `{}`", self.unread);
            self.unread.push_str(&String::from_utf8_lossy(&bytes[..n]));
        }
        let end = self.unread.find(text).unwrap() + text.len();
        self.unread.drain(..end);
    }

    /// Types a line where it is not shown.
    #[track_caller]
    pub fn type_secret(&mut self, line: &str) {
        assert!(!self.echoes(), "what is typed would be shown");
        self.near.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Types a line where it is shown.
    pub fn type_line(&mut self, line: &str) {
        self.near.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Presses Ctrl-C.
    pub fn interrupt(&mut self) {
        self.near.write_all(b"\x03").unwrap();
    }

    fn echoes(&self) -> bool {
        let modes = tcgetattr(&self.far).unwrap().local_modes;
        modes.contains(LocalModes::ECHO)
    }

    /// Waits for the end, and fails unless the terminal echoes again. The exit code, as a shell
    /// has it, and what was shown since the last [`Terminal::expect`].
    pub fn end(mut self) -> (i32, String) {
        let status = self.child.wait().unwrap();
        assert!(self.echoes(), "echo is still off");
        let limit = Timespec::default();
        while poll(&mut [PollFd::new(&self.near, PollFlags::IN)], Some(&limit)).unwrap() > 0 {
            let mut bytes = [0; 256];
            let n = self.near.read(&mut bytes).unwrap();
            self.unread.push_str(&String::from_utf8_lossy(&bytes[..n]));
        }
        let code = status
            .code()
            .unwrap_or_else(|| 128 + status.signal().unwrap());
        (code, std::mem::take(&mut self.unread))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The command itself is in another group, which closing the terminal ends.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}
