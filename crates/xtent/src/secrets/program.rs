//! A program that asks a person for a passphrase: where there is no terminal, but
//! systemd's agents, Plymouth, or a console.

use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use xtent_secret::SecretBytes;

use super::read::read_whole;
use crate::failure::{Exit, Failure, Result};
use crate::fds;

/// How often this process has asked: a program may answer the first time from memory.
static ASKED: AtomicU32 = AtomicU32::new(0);

/// Whether it could be run.
pub(super) fn check(program: &Path) -> Result<()> {
    rustix::fs::access(program, rustix::fs::Access::EXEC_OK)
        .map_err(|e| Failure::system(format!("cannot run {}", program.display()), e))
}

/// Runs it with the question as its argument; what it prints is the answer, without one
/// line end after it.
pub(super) fn ask(program: &Path, question: &str) -> Result<SecretBytes> {
    let failed = |e| Failure::system(format!("cannot run {}", program.display()), e);
    fds::keep_from_children().map_err(failed)?;
    let nth = ASKED.fetch_add(1, Ordering::Relaxed) + 1;
    let mut child = Command::new(program)
        .arg(question.trim_end())
        .env("XTENT_ASK_TRY", nth.to_string())
        .stdin(Stdio::inherit())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let answer = match child.stdout.take() {
        Some(pipe) => read_whole(pipe.as_fd(), "the program's answer", 0, None),
        None => Err(Failure::parameters("the program has no output")),
    };
    let status = child.wait().map_err(failed)?;
    if !status.success() {
        return Err(Failure::new(
            Exit::Permission,
            format!("no passphrase: {} has failed ({status})", program.display()),
        ));
    }
    let mut answer = answer?;
    if answer.last() == Some(&b'\n') {
        answer.truncate(answer.len() - 1);
    }
    Ok(answer)
}

/// As [`ask`], for something that no earlier answer fits: never what the program asks first.
pub(super) fn ask_anew(program: &Path, question: &str) -> Result<SecretBytes> {
    ASKED.fetch_add(1, Ordering::Relaxed);
    ask(program, question)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn program(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ask");
        // By another process: what another test starts just then would have the file open for
        // writing, and such a program cannot be run.
        let written = Command::new("sh")
            .args([
                "-c",
                "printf '#!/bin/sh\\n%s\\n' \"$1\" >\"$0\" && chmod 755 \"$0\"",
            ])
            .arg(&path)
            .arg(text)
            .status();
        assert!(written.unwrap().success());
        (folder, path)
    }

    #[test]
    fn one_line_end_is_taken_off() {
        let (_folder, path) = program("printf '%s:%s\\n\\n' \"$1\" \"$#\"");
        check(&path).unwrap();
        assert_eq!(&*ask(&path, "Which? ").unwrap(), b"Which?:1\n");
    }

    #[test]
    fn a_failure_is_no_answer() {
        let (_folder, path) = program("echo secret; exit 3");
        let failure = ask(&path, "Which? ").unwrap_err();
        assert_eq!(failure.exit, Exit::Permission);
        assert!(!failure.to_string().contains("secret"));
        assert!(check(Path::new("/nonexistent/ask")).is_err());
    }
}
