//! Rounds of AES on vectors side by side.

use super::Lanes;
use crate::simd::RoundKeys;

/// The key schedule of AES and its rounds. Round keys are read from memory, each for all vectors
/// side by side: beside those there are no registers for them.
///
/// Rounds are `aesenc` and `aesdec` of AES-NI or VAES on x86-64, and `aese` with `aesmc`,
/// `aesd` with `aesimc` on 64-bit ARM.
pub(crate) trait Aes: Lanes {
    /// Expands an AES key of 16, 24 or 32 bytes and returns the rounds.
    fn expand(key: &[u8], keys: &mut RoundKeys) -> usize;
    /// Round keys for decryption, from those for encryption.
    fn invert(encrypt: &RoundKeys, decrypt: &mut RoundKeys, rounds: usize);
    /// What precedes round 1: on most CPUs adds the first round key.
    fn aes_start<const N: usize>(x: &mut [Self; N], keys: &RoundKeys);
    /// [`Self::aes_start`] after adding `masks`.
    fn aes_start_with<const N: usize>(x: &mut [Self; N], keys: &RoundKeys, masks: &[Self; N]);
    /// Round `ROUND`, from 1 on, not the last.
    fn aes_round<const N: usize, const ENCRYPT: bool, const ROUND: usize>(
        x: &mut [Self; N],
        keys: &RoundKeys,
    );
    /// The last round, and then adds `masks`.
    fn aes_finish<const N: usize, const ENCRYPT: bool, const ROUNDS: usize>(
        x: &mut [Self; N],
        keys: &RoundKeys,
        masks: &[Self; N],
    );
}
