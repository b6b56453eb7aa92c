//! Standard output: results, as text or as one JSON object. Everything else
//! (progress, questions, logs) goes to standard error.

use std::borrow::Cow;
use std::io::{ErrorKind, IsTerminal, StdoutLock, Write};
use std::path::Path;

use serde::Serialize;

use crate::failure::{Failure, Result, continued};

/// How results are shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    /// As JSON.
    pub(crate) json: bool,
    /// Nothing but answers, warnings and errors.
    pub(crate) quiet: bool,
}

impl Output {
    /// Writes `text` and a line end to standard output. A reader that has
    /// gone away (`| head`) is no error; a full disk is.
    pub(crate) fn line(&self, text: impl AsRef<str>) -> Result<()> {
        let mut text = visible(text.as_ref()).into_owned();
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

    /// What was done: the object with `--json`, else the text, and nothing with
    /// `--quiet`. Not for what was asked for, such as a list.
    pub(crate) fn done(&self, value: &impl Serialize, text: impl AsRef<str>) -> Result<()> {
        if self.quiet && !self.json {
            return Ok(());
        }
        self.result(value, continued(text.as_ref()))
    }

    /// A remark for people on standard error; not with `--json` or `--quiet`.
    pub(crate) fn note(&self, text: impl AsRef<str>) {
        if !self.json && !self.quiet {
            complain(&continued(text.as_ref()));
        }
    }

    /// A warning on standard error, with `--quiet` too.
    pub(crate) fn warn(&self, text: impl AsRef<str>) {
        if self.json {
            complain(&serde_json::json!({ "warning": text.as_ref() }).to_string());
        } else {
            complain(&format!("xtent: warning: {}", continued(text.as_ref())));
        }
    }

    /// Whether a person watches standard error.
    pub(crate) fn has_viewer(&self) -> bool {
        !self.json && !self.quiet && std::io::stderr().is_terminal()
    }
}

/// Writes a line to standard error; there is nobody to tell if that fails.
pub(crate) fn complain(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", visible(text));
}

/// A path as text, for JSON, which has no place for bytes that are not UTF-8:
/// those become replacement characters.
pub(crate) fn text_of(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The text with everything escaped that a terminal would obey instead of
/// showing it: names of files and texts of headers may come from somebody
/// else. Ends of lines stay. What the escapes look like is right in JSON, too.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    let obeyed = |c: char| {
        c.is_control() && c != '\n' && c != '\t'
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(obeyed) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if obeyed(c) {
            shown.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// The same in a table, where a line's end would begin what looks like another entry.
pub(crate) fn in_one_line(text: &str) -> String {
    visible(text).replace('\n', "\\u000a")
}

/// Writes bytes to standard output and flushes.
pub(crate) fn write_stdout(bytes: &[u8]) -> Result<()> {
    let mut out = stdout()?;
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(e) => Err(Failure::system("cannot write to standard output", e)),
        Ok(()) => Ok(()),
    }
}

/// Standard output, if the process was started with one.
pub(crate) fn stdout() -> Result<StdoutLock<'static>> {
    if crate::fds::has_stdout() {
        Ok(std::io::stdout().lock())
    } else {
        Err(Failure::system(
            "cannot write to standard output",
            rustix::io::Errno::BADF,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_nothing_to_obey() {
        assert_eq!(visible("a\n\tb\u{e9}"), "a\n\tb\u{e9}");
        assert_eq!(
            visible("\u{1b}[31m\r\u{7f}\u{9b}2J\u{202e}"),
            "\\u001b[31m\\u000d\\u007f\\u009b2J\\u202e"
        );
    }

    #[test]
    fn escapes_are_right_in_json() {
        let text = serde_json::json!({ "label": "\u{9b}31m\u{2066}" }).to_string();
        let shown = visible(&text);
        assert!(shown.is_ascii());
        let again: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(again["label"], "\u{9b}31m\u{2066}");
    }
}
