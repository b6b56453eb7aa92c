//! What several targets need to get past checksums.

use sha2::{Digest as _, Sha256};

/// Puts the checksum of a copy of a LUKS2 header right: no input would get past it.
pub fn put_right(copy: &mut [u8]) {
    copy[448..512].fill(0);
    let sum = Sha256::digest(&*copy);
    copy[448..480].copy_from_slice(&sum);
}

/// A valid text with pieces replaced: where, how much, by how much, by what.
pub fn edited(text: &[u8], mut edits: &[u8]) -> Vec<u8> {
    let mut text = text.to_vec();
    while let [high, low, cut, insert, rest @ ..] = edits {
        let start = usize::from(u16::from_be_bytes([*high, *low])) % text.len().max(1);
        let end = (start + usize::from(*cut)).min(text.len());
        let (new, rest) = rest.split_at(usize::from(*insert).min(rest.len()));
        text.splice(start..end, new.iter().copied());
        edits = rest;
    }
    text
}
