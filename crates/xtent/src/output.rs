//! Standard output: results, as text or as one JSON object. Everything else
//! (progress, questions, logs) goes to standard error.

use std::io::{ErrorKind, IsTerminal, Write};

use serde::Serialize;

use crate::failure::{Failure, Result};

/// How results are shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    /// As JSON.
    pub(crate) json: bool,
    /// Nothing but results and errors.
    pub(crate) quiet: bool,
}

impl Output {
    /// Writes `text` and a line end to standard output. A reader that has
    /// gone away (`| head`) is no error; a full disk is.
    pub(crate) fn line(&self, text: impl AsRef<str>) -> Result<()> {
        let mut text = text.as_ref().to_owned();
        text.push('\n');
        write_stdout(text.as_bytes())
    }

    /// Writes one JSON object to standard output.
    pub(crate) fn object(&self, value: &impl Serialize) -> Result<()> {
        let text = serde_json::to_string_pretty(value)
            .map_err(|e| Failure::parameters("cannot write the result as JSON").because(e))?;
        self.line(text)
    }

    /// The object with `--json`, the text otherwise.
    pub(crate) fn result(&self, value: &impl Serialize, text: impl AsRef<str>) -> Result<()> {
        if self.json {
            self.object(value)
        } else {
            self.line(text)
        }
    }

    /// A remark for people on standard error; not with `--json` or `--quiet`.
    pub(crate) fn note(&self, text: impl AsRef<str>) {
        if !self.json && !self.quiet {
            complain(text.as_ref());
        }
    }

    /// A warning on standard error, with `--quiet` too.
    pub(crate) fn warn(&self, text: impl AsRef<str>) {
        if self.json {
            complain(&serde_json::json!({ "warning": text.as_ref() }).to_string());
        } else {
            complain(&format!("xtent: warning: {}", text.as_ref()));
        }
    }

    /// Whether a person watches standard error.
    pub(crate) fn has_viewer(&self) -> bool {
        !self.json && !self.quiet && std::io::stderr().is_terminal()
    }
}

/// Writes a line to standard error; there is nobody to tell if that fails.
pub(crate) fn complain(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Writes bytes to standard output and flushes.
pub(crate) fn write_stdout(bytes: &[u8]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(e) => Err(Failure::system("cannot write to standard output", e)),
        Ok(()) => Ok(()),
    }
}
