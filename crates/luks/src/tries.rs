//! A passphrase on several keyslots: one that cannot be tried does not keep the others from being
//! tried, but if none opens, it is what the user must know about.

use crate::Error;

/// What came of those that did not open.
#[derive(Default)]
pub(crate) struct Tries {
    /// Another passphrase would have opened one.
    tried: bool,
    trouble: Option<Error>,
}

impl Tries {
    /// The passphrase does not open this one.
    pub(crate) fn does_not_open(&mut self) {
        self.tried = true;
    }

    /// This one could not be tried.
    pub(crate) fn failed(&mut self, keyslot: u32, mut error: Error) {
        tracing::debug!(keyslot, error = %xtent_store::chain(&error), "the keyslot could not be tried");
        error.message = format!("keyslot {keyslot}: {}", error.message);
        self.trouble.get_or_insert(error);
    }

    /// Whether any could be tried; the error where one could not.
    pub(crate) fn end(self) -> Result<bool, Error> {
        let Some(mut error) = self.trouble else {
            return Ok(self.tried);
        };
        if self.tried {
            error.message = format!(
                "no keyslot that could be tried opens with this passphrase; {}",
                error.message
            );
        }
        Err(error)
    }
}
