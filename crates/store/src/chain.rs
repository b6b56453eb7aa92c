//! An error with its causes, for logs and for texts that contain it.

use std::fmt;

use crate::Error;

/// The error and its causes in one line, each after a colon, and at the end what to do
/// where a store is among them. An error's own `Display` is its message alone.
pub fn chain<'a>(error: &'a (dyn std::error::Error + 'static)) -> impl fmt::Display + 'a {
    Chain(error)
}

/// What to do about an error that a store's is the cause of.
pub fn advice(error: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    of(error).find_map(|error| error.downcast_ref().map(Error::advice))
}

struct Chain<'a>(&'a (dyn std::error::Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        for cause in of(self.0).skip(1) {
            write!(f, ": {cause}")?;
        }
        match advice(self.0) {
            Some(advice) => write!(f, ". {advice}"),
            None => Ok(()),
        }
    }
}

/// The error and its causes, outermost first.
fn of<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;

    use super::*;
    use crate::{Act, ErrorKind};

    #[derive(Debug)]
    struct Above(Error);

    impl fmt::Display for Above {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the request failed")
        }
    }

    impl std::error::Error for Above {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn the_line_has_every_message_once_and_the_advice_last() {
        let full = io::Error::other("it is full");
        let error = Above(Error {
            source: Some(full),
            ..Error::new(ErrorKind::NoSpace, Act::Write, Path::new("/img"), Some(512))
        });
        assert_eq!(
            chain(&error).to_string(),
            format!(
                "the request failed: write of /img at byte 512 failed: it is full. {}",
                error.0.advice()
            )
        );
        assert_eq!(advice(&error), Some(error.0.advice()));
    }

    #[test]
    fn an_error_without_a_store_has_no_advice() {
        let error = io::Error::other("it is full");
        assert_eq!(chain(&error).to_string(), "it is full");
        assert_eq!(advice(&error), None);
    }
}
