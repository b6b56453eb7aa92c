//! Cache lines that are asked for before the bytes in them are worked on.

use crate::arch::{LINE, prefetch};
use core::ptr;

/// How many bytes before they are worked on cache lines are asked for. CPUs notice by themselves that
/// somebody goes through memory, but stop at each page's end, and begin anew when the program waits
/// for the next one. What AES does meanwhile, two sectors of 4096 bytes, outlasts the memory's latency,
/// some 100 ns, several times: memory that is busy takes longer (4096 bytes ahead cost XTS in such
/// sectors a fifth to a quarter of its speed over 64 MiB on Zen 5).
const AHEAD: usize = 8192;

/// Behind the last byte of a run.
#[derive(Clone, Copy)]
pub(crate) struct RunEnd(pub(super) *const u8);

impl RunEnd {
    /// Of no run: nothing but the bytes themselves is asked for.
    pub(crate) const NONE: Self = Self(ptr::null());

    /// What will be worked on a little after the bytes at `src`, or these themselves at the end of
    /// the run.
    #[inline(always)]
    pub(crate) fn ahead(self, src: *const u8) -> Ahead {
        let ahead = src.wrapping_add(AHEAD);
        Ahead(if ahead < self.0 { ahead } else { src })
    }
}

/// Bytes that will be worked on, to be asked for between the rounds of AES.
#[derive(Clone, Copy)]
pub(crate) struct Ahead(*const u8);

impl Ahead {
    /// Asks for line `i` of `bytes` bytes, if they have as many.
    #[inline(always)]
    pub(crate) fn ask(self, i: usize, bytes: usize) {
        if i * LINE < bytes {
            prefetch(self.0.wrapping_add(i * LINE));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_behind_the_run_is_asked_for() {
        let run = [0_u8; 2 * AHEAD];
        let start = run.as_ptr();
        let end = RunEnd(start.wrapping_add(run.len()));
        for (offset, ahead) in [(0, AHEAD), (AHEAD - LINE, run.len() - LINE), (AHEAD, AHEAD)] {
            let asked = end.ahead(start.wrapping_add(offset)).0;
            assert_eq!(asked, start.wrapping_add(ahead), "from {offset}");
        }
        assert_eq!(RunEnd::NONE.ahead(start).0, start);
    }
}
