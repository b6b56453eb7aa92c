//! ChaCha in vectors: a vector holds the same word of `4 * V::BLOCKS` ChaCha
//! blocks, so that no round shuffles anything.
//!
//! Word `i` of lane `l` belongs to block `4 l + i`.

use super::super::Vector;

/// A round: a quarter round on every column.
#[inline(always)]
pub(super) fn columns<V: Vector>(x: &mut [V; 16]) {
    quarter_rounds(
        x,
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9, 10, 11],
        [12, 13, 14, 15],
    );
}

/// A round: a quarter round on every diagonal.
#[inline(always)]
pub(super) fn diagonals<V: Vector>(x: &mut [V; 16]) {
    quarter_rounds(
        x,
        [0, 1, 2, 3],
        [5, 6, 7, 4],
        [10, 11, 8, 9],
        [15, 12, 13, 14],
    );
}

/// Four quarter rounds side by side.
#[inline(always)]
fn quarter_rounds<V: Vector>(
    x: &mut [V; 16],
    a: [usize; 4],
    b: [usize; 4],
    c: [usize; 4],
    d: [usize; 4],
) {
    macro_rules! half {
        ($a:ident, $b:ident, $d:ident, $n:literal) => {
            unroll!(I in 0 1 2 3, x[$a[I]] = x[$a[I]].add32(x[$b[I]]));
            unroll!(I in 0 1 2 3, x[$d[I]] = x[$d[I]].xor(x[$a[I]]).rotl32::<$n>());
        };
    }
    half!(a, b, d, 16);
    half!(c, d, b, 12);
    half!(a, b, d, 8);
    half!(c, d, b, 7);
}

/// Words that are the same in all blocks of a lane: word `i` is word `i` of the row.
#[inline(always)]
pub(super) fn words<V: Vector>(row: V) -> [V; 4] {
    [
        row.shuffle32::<0x00>(),
        row.shuffle32::<0x55>(),
        row.shuffle32::<0xaa>(),
        row.shuffle32::<0xff>(),
    ]
}

/// Exchanges words and vectors: word `j` of vector `i`, in each lane, becomes
/// word `i` of vector `j`.
#[inline(always)]
pub(super) fn transpose<V: Vector>(x: [V; 4]) -> [V; 4] {
    let (a, b) = (x[0].unpack32_low(x[1]), x[2].unpack32_low(x[3]));
    let (c, d) = (x[0].unpack32_high(x[1]), x[2].unpack32_high(x[3]));
    [
        a.low_halves(b),
        a.high_halves(b),
        c.low_halves(d),
        c.high_halves(d),
    ]
}
