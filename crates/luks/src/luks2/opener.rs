//! Tokens as ways to open the volume: which to try, and the metadata for those who do.

use std::cmp::Reverse;

use super::binary::Which;
use super::read::Header;
use crate::{Error, Priority, Token};

impl Header {
    /// See [`crate::Header::without_key_material`].
    pub(crate) fn without_key_material(&self) -> Result<Vec<u8>, Error> {
        let mut copies = self.binary.encode(Which::Primary, &self.text)?;
        copies.extend(self.binary.encode(Which::Secondary, &self.text)?);
        Ok(copies)
    }

    /// See [`crate::Header::openers`].
    pub(crate) fn opening_tokens(
        &self,
        token: Option<u32>,
        keyslot: Option<u32>,
    ) -> Result<Vec<Token>, Error> {
        let openers = self.openers()?;
        let is_named = token.is_some() || keyslot.is_some();
        let priority = |id: &u32| self.metadata.keyslots[id].priority;
        let mut tokens = self.tokens()?;
        tokens.retain_mut(|candidate| {
            candidate.keyslots.retain(|slot| {
                openers.contains(slot)
                    && keyslot.is_none_or(|only| only == *slot)
                    && (is_named || priority(slot) != Priority::Ignore)
            });
            candidate
                .keyslots
                .sort_by_key(|slot| (Reverse(priority(slot)), *slot));
            !candidate.keyslots.is_empty() && token.is_none_or(|only| only == candidate.id)
        });
        // Stable: by number within a priority.
        tokens.sort_by_key(|token| Reverse(token.keyslots.first().map(priority)));
        Ok(tokens)
    }
}
