//! A program that prints the passphrase: a client of a key server, say.
//!
//! Unlike one that [asks a person](super::program) it asks nobody: it is given no question, is
//! not run again after a wrong answer, and may not take forever.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use xtent_secret::SecretBytes;

use super::FILE_LIMIT;
use super::read::read_some;
use crate::failure::{Exit, Failure, Result};
use crate::fds;

/// How long a program may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes for a first read.
const FIRST: usize = 4096;

/// Whether it could be run, as far as its path tells.
pub(super) fn check(command: &[OsString]) -> Result<()> {
    let program = program(command)?;
    if !program.as_encoded_bytes().contains(&b'/') {
        // Looked for when it is run.
        return Ok(());
    }
    rustix::fs::access(Path::new(program), rustix::fs::Access::EXEC_OK)
        .map_err(|e| Failure::system(format!("cannot run {}", program.display()), e))
}

/// Runs it, without a shell; what it prints is the passphrase, byte for byte. What it says on
/// standard error is shown.
pub(super) fn read(command: &[OsString]) -> Result<SecretBytes> {
    read_within(command, PATIENCE)
}

fn program(command: &[OsString]) -> Result<&OsStr> {
    let program = command.first().map(OsString::as_os_str);
    program.ok_or_else(|| Failure::parameters("the command for the key is empty"))
}

fn read_within(command: &[OsString], patience: Duration) -> Result<SecretBytes> {
    let program = program(command)?;
    let failed = |e| Failure::system(format!("cannot run {}", program.display()), e);
    fds::keep_from_children().map_err(failed)?;
    let mut child = Group(
        Command::new(program)
            .args(&command[1..])
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?,
    );
    let end = Instant::now() + patience;
    let too_long = || {
        Failure::new(
            Exit::Device,
            format!(
                "{} has printed no key within {} seconds",
                program.display(),
                patience.as_secs()
            ),
        )
    };
    let Some(pipe) = child.0.stdout.take() else {
        return Err(failed(ErrorKind::BrokenPipe.into()));
    };
    let mut answer = SecretBytes::zeroed(FIRST)?;
    let mut filled = 0;
    loop {
        wait(pipe.as_fd(), end)?.ok_or_else(too_long)?;
        if filled == answer.len() {
            if filled > FILE_LIMIT {
                return Err(Failure::parameters(format!(
                    "{} prints more than the {} MiB that a key can have",
                    program.display(),
                    FILE_LIMIT >> 20
                )));
            }
            let mut larger = SecretBytes::zeroed((filled * 2).min(FILE_LIMIT + 1))?;
            larger[..filled].copy_from_slice(&answer);
            answer = larger;
        }
        match read_some(pipe.as_fd(), "the key", &mut answer[filled..])? {
            0 => break,
            n => filled += n,
        }
    }
    let ended =
        pidfd_open(Pid::from_child(&child.0), PidfdFlags::empty()).map_err(|e| failed(e.into()))?;
    wait(ended.as_fd(), end)?.ok_or_else(too_long)?;
    let status = child.0.wait().map_err(failed)?;
    if !status.success() {
        return Err(Failure::new(
            Exit::Permission,
            format!("no key: {} has failed ({status})", program.display()),
        ));
    }
    if filled == 0 {
        return Err(Failure::new(
            Exit::Permission,
            format!("no key: {} has printed nothing", program.display()),
        ));
    }
    answer.truncate(filled);
    Ok(answer)
}

/// Waits until there is something to read; nothing if that is not before `end`.
fn wait(fd: std::os::fd::BorrowedFd<'_>, end: Instant) -> Result<Option<()>> {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).ok();
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], left.as_ref()) {
            Ok(0) => return Ok(None),
            Ok(_) => return Ok(Some(())),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(Failure::system("cannot wait for a program", e)),
        }
    }
}

/// A child that leads a process group; all of it is killed when dropped.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        // Before the leader is reaped its number is nobody else's; afterwards the group may
        // live on without it, and if it does not there is nobody to kill.
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(text: &str) -> Vec<OsString> {
        ["/bin/sh", "-c", text].map(OsString::from).to_vec()
    }

    #[test]
    fn what_it_prints_is_the_key_byte_for_byte() {
        check(&shell("")).unwrap();
        let key = read(&shell("printf 'a\\n\\0b\\n'")).unwrap();
        assert_eq!(&*key, b"a\n\0b\n");
        let long = read(&shell("head -c 100000 /dev/zero")).unwrap();
        assert_eq!(long.len(), 100_000);
    }

    #[test]
    fn failure_silence_and_too_much_are_no_key() {
        for (text, exit) in [
            ("echo secret; exit 3", Exit::Permission),
            ("true", Exit::Permission),
            ("head -c 9000000 /dev/zero", Exit::Parameters),
        ] {
            let failure = read(&shell(text)).unwrap_err();
            assert_eq!(failure.exit, exit, "{failure}");
            assert!(!failure.to_string().contains("secret"));
        }
        assert!(check(&["/nonexistent/key".into()]).is_err());
        assert!(read(&["/nonexistent/key".into()]).is_err());
        assert!(read(&[]).is_err());
    }

    #[test]
    fn nobody_waits_for_ever() {
        for text in ["sleep 600", "echo key; exec >&-; sleep 600"] {
            let failure = read_within(&shell(text), Duration::from_millis(50)).unwrap_err();
            assert!(failure.message.contains("within"), "{failure}");
        }
    }
}
