//! Commands: run to their end with a time limit, or in the background until
//! dropped. Each leads a process group of its own, which goes with it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

/// Far more than anything takes here, on a busy machine too: only what hangs waits so long.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Where peers are looked for: Debian's own, not what a user put before them.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Peers and the Debian packages that have them.
const PACKAGES: &[(&str, &str)] = &[
    ("bash", "bash"),
    ("clevis", "clevis-luks"),
    ("ceph", "ceph-common"),
    ("cryptsetup", "cryptsetup-bin"),
    ("env", "coreutils"),
    ("e2fsck", "e2fsprogs"),
    ("fio", "fio"),
    ("fuse2fs", "fuse2fs"),
    ("fusermount3", "fuse3"),
    ("keyctl", "keyutils"),
    ("ldd", "libc-bin"),
    ("losetup", "mount"),
    ("mke2fs", "e2fsprogs"),
    ("mkfifo", "coreutils"),
    ("mount", "mount"),
    ("nbdcopy", "libnbd-bin"),
    ("nbdfuse", "libnbd-bin"),
    ("nbdinfo", "libnbd-bin"),
    ("nbdkit", "nbdkit"),
    ("nbdsh", "python3-libnbd"),
    ("prlimit", "util-linux"),
    ("qemu-img", "qemu-utils"),
    ("qemu-io", "qemu-utils"),
    ("qemu-nbd", "qemu-utils"),
    ("setpriv", "util-linux"),
    ("setsid", "util-linux"),
    ("swtpm", "swtpm"),
    ("swtpm_ioctl", "swtpm-tools"),
    ("systemd-cryptenroll", "systemd"),
    ("tpm2_flushcontext", "tpm2-tools"),
    ("tpm2_pcrextend", "tpm2-tools"),
    ("rbd", "ceph-common"),
    ("resize2fs", "e2fsprogs"),
    ("udevadm", "udev"),
    ("umount", "mount"),
    ("unshare", "util-linux"),
];

/// Where an installed peer is; fails with the name of its Debian package.
pub fn peer(name: &str) -> PathBuf {
    for folder in PATH.split(':') {
        let path = Path::new(folder).join(name);
        if path.exists() {
            return path;
        }
    }
    let package = PACKAGES
        .iter()
        .find(|(tool, _)| *tool == name)
        .map_or(name, |(_, package)| package);
    panic!("{name} is missing: install the Debian package {package} (scripts/setup.sh test)");
}

/// A command to be run.
#[derive(Clone)]
pub struct Cmd {
    program: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    stdin: Vec<u8>,
    folder: Option<PathBuf>,
    limit: Duration,
}

/// A command that has ended.
pub struct Finished {
    /// The command line, for messages.
    pub line: String,
    /// How it ended.
    pub status: ExitStatus,
    /// What it printed.
    pub stdout: Vec<u8>,
    /// What it complained about.
    pub stderr: String,
}

/// A command that is running; killed with its process group when dropped.
pub struct Background {
    line: String,
    child: Child,
    lines: Receiver<String>,
    stdout: String,
    stderr: File,
}

/// What the kernel says of each thread of a process, as /proc has it. One that ends meanwhile is not among them.
pub fn threads(process: u32) -> impl Iterator<Item = String> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    threads.filter_map(|thread| std::fs::read_to_string(thread.unwrap().path().join("status")).ok())
}

impl Cmd {
    /// A command by its path.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: vec![("PATH".into(), PATH.into()), ("LC_ALL".into(), "C".into())],
            stdin: Vec::new(),
            folder: None,
            limit: PATIENCE,
        }
    }

    /// An installed peer, as [`peer`] finds it.
    pub fn peer(name: &str) -> Self {
        Self::new(peer(name))
    }

    /// Adds an argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args
            .extend(args.into_iter().map(|a| a.as_ref().to_owned()));
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// What the command reads from standard input; nothing by default.
    pub fn stdin(mut self, bytes: &[u8]) -> Self {
        self.stdin = bytes.to_vec();
        self
    }

    /// Where it runs; where the tests run by default.
    pub fn folder(mut self, folder: &Path) -> Self {
        self.folder = Some(folder.to_owned());
        self
    }

    /// How long it may take; [`PATIENCE`] by default.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// The same, as an argument of another command: `self` runs it.
    pub fn wrapping(mut self, inner: Self) -> Self {
        self.args.push(inner.program.into_os_string());
        self.args.extend(inner.args);
        self.env.extend(inner.env);
        self
    }

    /// The command line, for messages.
    pub fn line(&self) -> String {
        let mut line = self.program.display().to_string();
        for arg in &self.args {
            line.push(' ');
            line.push_str(&arg.to_string_lossy());
        }
        line
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args).process_group(0);
        for (name, value) in &self.env {
            command.env(name, value);
        }
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        let mut stdin = tempfile::tempfile().unwrap();
        stdin.write_all(&self.stdin).unwrap();
        stdin.seek(SeekFrom::Start(0)).unwrap();
        command.stdin(stdin);
        command
    }

    /// Runs it to its end, whatever that is.
    pub fn run(self) -> Finished {
        let line = self.line();
        let mut stdout = tempfile::tempfile().unwrap();
        let mut stderr = tempfile::tempfile().unwrap();
        let mut child = Group(
            self.command()
                .stdout(stdout.try_clone().unwrap())
                .stderr(stderr.try_clone().unwrap())
                .spawn()
                .unwrap_or_else(|error| panic!("{line}: {error}")),
        );
        let status = wait(&mut child.0, self.limit).unwrap_or_else(|| {
            panic!(
                "{line}: no end after {:?}\n{}{}",
                self.limit,
                String::from_utf8_lossy(&contents(&mut stdout)),
                String::from_utf8_lossy(&contents(&mut stderr))
            )
        });
        Finished {
            line,
            status,
            stdout: contents(&mut stdout),
            stderr: String::from_utf8_lossy(&contents(&mut stderr)).into_owned(),
        }
    }

    /// Runs it and fails unless it succeeds.
    pub fn ok(self) -> Finished {
        let done = self.run();
        assert!(done.status.success(), "{}", done.text());
        done
    }

    /// Runs it and fails unless it exits with `code`, having said why.
    pub fn fails(self, code: i32) -> Finished {
        let done = self.run();
        assert_eq!(done.status.code(), Some(code), "{}", done.text());
        assert!(
            !done.stderr.trim().is_empty(),
            "fails without a message: {}",
            done.line
        );
        done
    }

    /// Starts it.
    pub fn spawn(self) -> Background {
        let line = self.line();
        let stderr = tempfile::tempfile().unwrap();
        let mut child = self
            .command()
            .stdout(Stdio::piped())
            .stderr(stderr.try_clone().unwrap())
            .spawn()
            .unwrap_or_else(|error| panic!("{line}: {error}"));
        let stdout = child.stdout.take().unwrap();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Background {
            line,
            child,
            lines,
            stdout: String::new(),
            stderr,
        }
    }
}

impl Finished {
    /// The exit code; none if a signal ended it.
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// What it printed, as text.
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// What it printed, as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.stdout)
            .unwrap_or_else(|error| panic!("not JSON ({error}): {}", self.text()))
    }

    /// Everything about it, for messages.
    pub fn text(&self) -> String {
        format!(
            "{}\n{}\n--- stdout\n{}\n--- stderr\n{}",
            self.line,
            self.status,
            self.out(),
            self.stderr
        )
    }

    /// Fails if it panicked or was ended by a signal.
    pub fn assert_no_crash(&self) {
        assert!(
            self.status.signal().is_none() && self.code() != Some(101),
            "crashed: {}",
            self.text()
        );
        assert!(!self.stderr.contains("panicked at"), "{}", self.text());
    }

    /// Fails unless it complained with all of `words` (in any letter case).
    pub fn says(&self, words: &[&str]) -> &Self {
        let text = self.stderr.to_lowercase();
        for word in words {
            assert!(
                text.contains(&word.to_lowercase()),
                "message lacks \"{word}\": {}",
                self.text()
            );
        }
        self
    }
}

impl Background {
    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line on standard output for which `wanted` holds.
    pub fn wait_for_line(&mut self, wanted: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    self.stdout.push_str(&line);
                    self.stdout.push('\n');
                    if wanted(&line) {
                        return line;
                    }
                }
                Err(RecvTimeoutError::Timeout) => panic!("not ready in time: {}", self.text()),
                Err(RecvTimeoutError::Disconnected) => {
                    let status = wait(&mut self.child, PATIENCE);
                    panic!(
                        "ended instead of getting ready ({status:?}): {}",
                        self.text()
                    )
                }
            }
        }
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end.
    pub fn finish(mut self) -> Finished {
        let status = wait(&mut self.child, PATIENCE)
            .unwrap_or_else(|| panic!("does not end: {}", self.text()));
        // The reader thread ends with the process's last holder of the pipe.
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            self.stdout.push_str(&line);
            self.stdout.push('\n');
        }
        Finished {
            line: self.line.clone(),
            status,
            stdout: self.stdout.clone().into_bytes(),
            stderr: String::from_utf8_lossy(&contents(&mut self.stderr)).into_owned(),
        }
    }

    /// Kills it outright and waits for its end.
    pub fn kill(self) -> Finished {
        self.signal(Signal::KILL);
        self.finish()
    }

    fn text(&mut self) -> String {
        format!(
            "{}\n--- stdout\n{}\n--- stderr\n{}",
            self.line,
            self.stdout,
            String::from_utf8_lossy(&contents(&mut self.stderr))
        )
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        end(&mut self.0);
    }
}

/// Kills what is left of a child's process group.
fn end(child: &mut Child) {
    // After the leader is reaped its group may be gone, which is fine.
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ = child.wait();
}

fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    if let Some(status) = child.try_wait().unwrap() {
        return Some(status);
    }
    let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).unwrap();
    let end = Instant::now() + limit;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).unwrap();
        let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) => return None,
            Ok(_) => return Some(child.wait().unwrap()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("poll: {error}"),
        }
    }
}

fn contents(file: &mut File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}
