//! ChaCha (RFC 8439, clause 2.3, with the original 64-bit counter) and HChaCha,
//! from which XChaCha is made. Blocks side by side, a word of each in an array:
//! compilers make vectors of that where the CPU has them.

use crate::here::{MapHere, from_fn};

/// Blocks side by side.
pub(crate) const LANES: usize = STEP as usize;
/// From a block's number to the one of the next that is made in its place.
pub(crate) const STEP: u32 = 4;

/// Bytes in a ChaCha block.
pub(crate) const CHACHA_BLOCK: usize = 64;

/// "expand 32-byte k".
pub(crate) const CONSTANTS: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

/// The same word of every block.
type Word = [u32; LANES];

#[inline(always)]
fn quarter_round(x: &mut [Word; 16], a: usize, b: usize, c: usize, d: usize) {
    #[inline(always)]
    fn add(a: Word, b: Word) -> Word {
        from_fn(|i| a[i].wrapping_add(b[i]))
    }
    #[inline(always)]
    fn xor_rotate<const N: u32>(a: Word, b: Word) -> Word {
        from_fn(|i| (a[i] ^ b[i]).rotate_left(N))
    }
    x[a] = add(x[a], x[b]);
    x[d] = xor_rotate::<16>(x[d], x[a]);
    x[c] = add(x[c], x[d]);
    x[b] = xor_rotate::<12>(x[b], x[c]);
    x[a] = add(x[a], x[b]);
    x[d] = xor_rotate::<8>(x[d], x[a]);
    x[c] = add(x[c], x[d]);
    x[b] = xor_rotate::<7>(x[b], x[c]);
}

#[inline(always)]
fn permute(x: &mut [Word; 16], rounds: usize) {
    for _ in 0..rounds / 2 {
        quarter_round(x, 0, 4, 8, 12);
        quarter_round(x, 1, 5, 9, 13);
        quarter_round(x, 2, 6, 10, 14);
        quarter_round(x, 3, 7, 11, 15);
        quarter_round(x, 0, 5, 10, 15);
        quarter_round(x, 1, 6, 11, 12);
        quarter_round(x, 2, 7, 8, 13);
        quarter_round(x, 3, 4, 9, 14);
    }
}

/// Words 0 to 11 of the state, the same in all blocks; the others are zero.
#[inline(always)]
fn state(key: &[u32; 8]) -> [Word; 16] {
    from_fn(|i| match i {
        0..4 => [CONSTANTS[i]; LANES],
        4..12 => [key[i - 4]; LANES],
        _ => [0; LANES],
    })
}

/// HChaCha: a subkey for each nonce.
pub(crate) fn subkeys(
    key: &[u32; 8],
    nonces: &[[u32; 4]; LANES],
    rounds: usize,
) -> [[u32; 8]; LANES] {
    let mut x = state(key);
    for i in 0..4 {
        x[12 + i] = nonces.map_here(|nonce| nonce[i]);
    }
    permute(&mut x, rounds);
    from_fn(|lane| from_fn(|i| x[if i < 4 { i } else { i + 8 }][lane]))
}

/// Keystream blocks `first` and following, as words.
#[inline]
pub(crate) fn keystream(
    key: &[u32; 8],
    nonce: [u32; 2],
    first: u32,
    rounds: usize,
) -> [[u32; 16]; LANES] {
    let mut start = state(key);
    start[12] = [first, first + 1, first + 2, first + 3];
    start[14] = [nonce[0]; LANES];
    start[15] = [nonce[1]; LANES];
    let mut x = start;
    permute(&mut x, rounds);
    from_fn(|lane| from_fn(|i| x[i][lane].wrapping_add(start[i][lane])))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8439, clause 2.3.2. Its counter has 32 bits and its nonce 96, so
    /// one word of the nonce stands where the counter's upper half does here.
    #[test]
    fn rfc_8439_block_function() {
        let key = from_fn(|i| u32::from_le_bytes(from_fn(|j| u8::try_from(4 * i + j).unwrap())));
        let mut x = state(&key);
        x[12] = [1; LANES];
        x[13] = [0x0900_0000; LANES];
        x[14] = [0x4a00_0000; LANES];
        permute(&mut x, 20);
        let expected = [0x8377_78ab, 0xe238_d763, 0xa67a_e21e, 0x5950_bb2f];
        for (word, expected) in x.iter().zip(expected) {
            assert_eq!(word, &[expected; LANES]);
        }
    }
}
