//! Long ranges of zeros, for every export.

use std::sync::Arc;

use xtent_store::Memory;
use xtent_volume::{Error, Volume};

use crate::executor::give_way;

/// Bytes at a time: between two parts others get their turn.
const PART: u64 = 4 << 20;

/// Writes zeros, a part at a time, with memory for what is encrypted of them. Durable at the end if `fua`:
/// one flush for all the parts. Before each it asks whether to go on, with the bytes that are left; false
/// if it did not.
pub(crate) async fn write(
    volume: &Volume,
    memory: &Arc<Memory>,
    mut offset: u64,
    mut len: u64,
    fua: bool,
    goes_on: impl Fn(u64) -> bool,
) -> Result<bool, Error> {
    let mut is_first = true;
    loop {
        if !goes_on(len) {
            return Ok(false);
        }
        let here = len.min(PART - offset % PART);
        let is_all = is_first && here == len;
        volume
            .write_zeroes_async(memory, offset, here, fua && is_all)
            .await?;
        (offset, len, is_first) = (offset + here, len - here, false);
        if len == 0 {
            if fua && !is_all {
                volume.flush_async().await?;
            }
            return Ok(true);
        }
        give_way().await;
    }
}
