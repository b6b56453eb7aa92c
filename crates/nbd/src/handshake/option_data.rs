//! The data of options and of what answers them.

use crate::constants::MAX_STRING;

/// Lengths on this side are far below 4 GiB: names and descriptions are cut
/// to [`MAX_STRING`] by the server, options to [`MAX_OPTION`](super::MAX_OPTION).
pub(super) fn length32(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

pub(super) fn string32(text: &str) -> Vec<u8> {
    let mut out = Vec::from(length32(text.len()).to_be_bytes());
    out.extend(text.as_bytes());
    out
}

/// Splits a string with a 32-bit length off the front.
fn take_string(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = data.split_first_chunk::<4>()?;
    let len = u32::from_be_bytes(*len) as usize;
    (len <= MAX_STRING).then_some(())?;
    rest.split_at_checked(len)
}

/// Export name and info requests of `NBD_OPT_INFO` and `NBD_OPT_GO`.
pub(super) fn parse_info(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (name, rest) = take_string(data)?;
    let (count, requests) = rest.split_first_chunk::<2>()?;
    (requests.len() == 2 * usize::from(u16::from_be_bytes(*count))).then_some((name, requests))
}

/// Export name and queries of the metadata context options.
pub(super) fn parse_meta_context(data: &[u8]) -> Option<(&[u8], Vec<&[u8]>)> {
    let (name, rest) = take_string(data)?;
    let (count, mut rest) = rest.split_first_chunk::<4>()?;
    // Each query takes four bytes at least, so the count cannot lie far.
    let count = u32::from_be_bytes(*count) as usize;
    (count <= rest.len() / 4).then_some(())?;
    let mut queries = Vec::with_capacity(count);
    for _ in 0..count {
        let (query, after) = take_string(rest)?;
        // "namespace:leaf"
        query.contains(&b':').then_some(())?;
        queries.push(query);
        rest = after;
    }
    rest.is_empty().then_some((name, queries))
}
