//! What a helper writes to standard error, as lines for a person.

/// Longest line that is shown.
const LONGEST_LINE: usize = 1024;
/// Lines that are shown; a helper that says more has gone wrong.
const MOST_LINES: usize = 200;

/// A helper's lines: cut where they are too long, and no more than a person reads. They may
/// hold anything but a line's end; whoever shows them escapes what a terminal would obey.
#[derive(Debug, Default)]
pub struct Said {
    line: Vec<u8>,
    lines: usize,
}

impl Said {
    /// Takes the next bytes, and calls `say` with each line that they end.
    pub fn hear(&mut self, bytes: &[u8], say: &mut dyn FnMut(&str)) {
        for &byte in bytes {
            match byte {
                b'\n' => self.end_line(say),
                _ if self.line.len() < LONGEST_LINE => self.line.push(byte),
                _ => {}
            }
        }
    }

    /// Ends the line that was begun, if any.
    pub fn end_line(&mut self, say: &mut dyn FnMut(&str)) {
        let text = String::from_utf8_lossy(&self.line).trim().to_owned();
        self.line.clear();
        if !text.is_empty() && self.lines < MOST_LINES {
            self.lines += 1;
            say(&text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        let mut said = Said::default();
        let mut say = |line: &str| lines.push(line.to_owned());
        for piece in bytes.chunks(3) {
            said.hear(piece, &mut say);
        }
        said.end_line(&mut say);
        lines
    }

    #[test]
    fn lines_are_cut_and_counted() {
        assert_eq!(lines(b"one\n\n two \r\n\xff"), ["one", "two", "\u{fffd}"]);
        assert_eq!(lines(&[b'x'; 5000]), ["x".repeat(LONGEST_LINE)]);
        assert_eq!(lines(&b"x\n".repeat(1000)).len(), MOST_LINES);
    }
}
