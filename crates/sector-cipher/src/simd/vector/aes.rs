//! Rounds of AES on vectors side by side.

use super::Lanes;
use crate::simd::{RoundKeys, fresh};

/// The key schedule of AES and its rounds. Round keys are read from memory, each for all vectors
/// side by side: beside those there are no registers for them.
///
/// A round has the number of its key in [`RoundKeys`]: those from 5 to 13, and the last, are every
/// key's. Rounds before them come with the start, behind a branch on the key's length: so there is one kernel
/// for all lengths, which takes half of the time to compile. XTS, of whose time the branch would
/// be a fortieth, has one for each.
///
/// Rounds are `aesenc` and `aesdec` of AES-NI or VAES on x86-64, and `aese` with `aesmc`,
/// `aesd` with `aesimc` on 64-bit ARM.
pub(crate) trait Aes: Lanes {
    /// Expands an AES key of 16, 24 or 32 bytes.
    fn expand(key: &[u8], keys: &mut RoundKeys);
    /// Round keys for decryption, from those for encryption.
    fn invert(encrypt: &RoundKeys, decrypt: &mut RoundKeys);
    /// What precedes all rounds: on most CPUs adds the first round key.
    fn aes_before<const N: usize>(x: &mut [Self; N], keys: &RoundKeys);
    /// The rounds before the last ten.
    #[inline(always)]
    fn aes_early<const N: usize, const ENCRYPT: bool>(x: &mut [Self; N], keys: &RoundKeys) {
        // Asked each time: for an answer that holds the compiler would make a loop of its own.
        let first = fresh(keys).first();
        if first < RoundKeys::LAST_TEN {
            if first == 0 {
                Self::aes_round::<N, ENCRYPT, 1>(x, keys);
                Self::aes_round::<N, ENCRYPT, 2>(x, keys);
            }
            Self::aes_round::<N, ENCRYPT, 3>(x, keys);
            Self::aes_round::<N, ENCRYPT, 4>(x, keys);
        }
    }
    /// What precedes round 5: both of these.
    #[inline(always)]
    fn aes_start<const N: usize, const ENCRYPT: bool>(x: &mut [Self; N], keys: &RoundKeys) {
        Self::aes_before(x, keys);
        Self::aes_early::<N, ENCRYPT>(x, keys);
    }
    /// What precedes round `FIRST` + 1 of keys whose first round key is number `FIRST`, after adding `masks`.
    fn aes_start_from<const N: usize, const FIRST: usize>(
        x: &mut [Self; N],
        keys: &RoundKeys,
        masks: &[Self; N],
    );
    /// [`Self::aes_start`] after adding `masks`.
    fn aes_start_with<const N: usize, const ENCRYPT: bool>(
        x: &mut [Self; N],
        keys: &RoundKeys,
        masks: &[Self; N],
    );
    /// Round `ROUND`, not the last.
    fn aes_round<const N: usize, const ENCRYPT: bool, const ROUND: usize>(
        x: &mut [Self; N],
        keys: &RoundKeys,
    );
    /// The last round, and then adds `masks`.
    fn aes_finish<const N: usize, const ENCRYPT: bool>(
        x: &mut [Self; N],
        keys: &RoundKeys,
        masks: &[Self; N],
    );
}
