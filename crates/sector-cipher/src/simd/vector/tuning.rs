//! What CPUs do in ways of their own.

use super::{Aes, Clmul};
use crate::here::MapHere;
use crate::simd::{RoundKeys, WideKeys, fresh};

/// How a kernel is fitted to a CPU: a number, hints to the compiler, and operations in a form
/// that some CPUs do faster. It has no instructions of its own. Everything has a default, which
/// is right for every vector; one that has been measured replaces some.
pub(crate) trait Tuning: Clmul + Aes {
    /// How many vectors side by side keep the AES units busiest and leave
    /// registers for other work: 8 or 16.
    const ABREAST: usize = 8;
    /// Whether three products and some sums are faster than four products.
    #[inline(always)]
    fn three_products() -> bool {
        false
    }
    /// Itself, computed here: the compiler does not move it behind what follows.
    #[inline(always)]
    fn pin(self) -> Self {
        self
    }
    /// Tells the compiler that all of these depend on each other, so that it
    /// leaves what makes one of them on the same side of what uses another.
    #[inline(always)]
    fn order(_x: &mut [Self; 4], _y: &mut [Self; 3]) {}
    /// Leaves both as they are, but the compiler knows them only together from
    /// here on. Work that is spread over the rounds of AES stays there if its
    /// operands are tied to the AES state, and is collected in one place if not.
    #[inline(always)]
    fn tie(&mut self, _other: &mut Self) {}
    /// Whether [`SHIFT`](super::SHIFT) is faster than [`ROTATE`](super::ROTATE).
    #[inline(always)]
    fn shifts() -> bool {
        false
    }
    /// Step `step` of `COUNT` masks, eight or sixteen vectors: `first`, which has a
    /// mask times 1, x, x^2, ... in its lanes, and what follows it. They come in
    /// any order that leaves the even ones before the odd ones: with number 2 `step`
    /// at first. `first` is asked for in step 0, and `state` is kept from step to step. `more` is added
    /// to what is returned.
    #[inline(always)]
    fn mask<const COUNT: usize, const HOW: u8>(
        state: &mut [Self; 5],
        more: Self,
        first: impl FnOnce() -> Self,
        step: usize,
    ) -> Self {
        if step == 0 {
            state[0] = first();
            state[1] = state[0].swap_halves();
        }
        let [first, swapped, ..] = *state;
        Self::times_x_of_vectors(first, swapped, 2 * step % COUNT + 2 * step / COUNT).xor(more)
    }
    /// Adds to `sum`, which is the low, the middle and the high parts of
    /// carry-less products, those of `x[0]` and `y[0]` and of `x[1]` and `y[1]`.
    /// The middle parts are of sums of halves (Karatsuba): those of `y[0]` are
    /// in the low halves of `halves`, those of `y[1]` in the high ones.
    #[inline(always)]
    fn add_products(sum: &mut [Self; 3], x: [Self; 2], y: [Self; 2], halves: Self) {
        let [p, q] = x.map_here(
            #[inline(always)]
            |x| x.xor(x.swap_halves()),
        );
        sum[0] = sum[0].xor3(x[0].clmul::<0x00>(y[0]), x[1].clmul::<0x00>(y[1]));
        sum[1] = sum[1].xor3(p.clmul::<0x00>(halves), q.clmul::<0x11>(halves));
        sum[2] = sum[2].xor3(x[0].clmul::<0x11>(y[0]), x[1].clmul::<0x11>(y[1]));
    }
    /// [`Self::add_products`] with both of `x` from memory, one behind the other.
    ///
    /// # Safety
    /// They are readable.
    #[inline(always)]
    unsafe fn add_products_at(sum: &mut [Self; 3], src: *const u8, y: [Self; 2], halves: Self) {
        // SAFETY: the caller's promise.
        let x = unsafe { [Self::load(src), Self::load(src.add(Self::BYTES))] };
        Self::add_products(sum, x, y, halves);
    }
    /// [`Aes::aes_start_from`] from wide keys.
    #[inline(always)]
    fn wide_start_from<const N: usize, const FIRST: usize>(
        x: &mut [Self; N],
        keys: &WideKeys,
        masks: &[Self; N],
    ) {
        Self::aes_start_from::<N, FIRST>(x, &keys.narrow, masks);
    }
    /// [`Aes::aes_early`] from wide keys.
    #[inline(always)]
    fn wide_early<const N: usize, const ENCRYPT: bool>(x: &mut [Self; N], keys: &WideKeys) {
        // Asked each time: for an answer that holds the compiler would make a loop of its own.
        let first = fresh(keys).first();
        if first < RoundKeys::LAST_TEN {
            if first == 0 {
                Self::wide_round::<N, ENCRYPT, 1>(x, keys);
                Self::wide_round::<N, ENCRYPT, 2>(x, keys);
            }
            Self::wide_round::<N, ENCRYPT, 3>(x, keys);
            Self::wide_round::<N, ENCRYPT, 4>(x, keys);
        }
    }
    /// [`Aes::aes_round`] from wide keys.
    #[inline(always)]
    fn wide_round<const N: usize, const ENCRYPT: bool, const ROUND: usize>(
        x: &mut [Self; N],
        keys: &WideKeys,
    ) {
        Self::aes_round::<N, ENCRYPT, ROUND>(x, &keys.narrow);
    }
    /// [`Aes::aes_finish`] from wide keys.
    #[inline(always)]
    fn wide_finish<const N: usize, const ENCRYPT: bool>(
        x: &mut [Self; N],
        keys: &WideKeys,
        masks: &[Self; N],
    ) {
        Self::aes_finish::<N, ENCRYPT>(x, &keys.narrow, masks);
    }
    /// The last round key.
    #[inline(always)]
    fn last_key(keys: &WideKeys) -> Self {
        // SAFETY: as many bytes as the widest vectors have.
        unsafe { Self::load(fresh(keys).at(RoundKeys::LAST)) }
    }
    /// Masks from their sums with the last round key.
    #[inline(always)]
    fn without_last_key<const N: usize>(sums: &[Self; N], keys: &WideKeys) -> [Self; N] {
        let last = Self::last_key(keys);
        sums.map_here(
            #[inline(always)]
            |sum| sum.xor(last),
        )
    }
    /// [`Self::wide_start_from`] with masks to which the last round key has been added: it is taken
    /// away from the first one instead, which is one addition for all.
    #[inline(always)]
    fn start_from_sums<const N: usize, const FIRST: usize>(
        x: &mut [Self; N],
        keys: &WideKeys,
        sums: &[Self; N],
    ) {
        Self::wide_start_from::<N, FIRST>(x, keys, &Self::without_last_key(sums, keys));
    }
    /// [`Self::wide_finish`] with such masks, which are the keys of the last round then.
    #[inline(always)]
    fn finish_with_sums<const N: usize, const ENCRYPT: bool>(
        x: &mut [Self; N],
        keys: &WideKeys,
        sums: &[Self; N],
    ) {
        Self::wide_finish::<N, ENCRYPT>(x, keys, &Self::without_last_key(sums, keys));
    }
    /// [`Aes::aes_finish`] from wide keys, the masks from memory.
    ///
    /// # Safety
    /// They are readable.
    #[inline(always)]
    unsafe fn wide_finish_loading<const N: usize, const ENCRYPT: bool>(
        x: &mut [Self; N],
        keys: &WideKeys,
        masks: &[*const u8; N],
    ) {
        // SAFETY: the caller's promise.
        let masks = masks.map_here(
            #[inline(always)]
            |mask| unsafe { Self::load(mask) },
        );
        Self::aes_finish::<N, ENCRYPT>(x, &keys.narrow, &masks);
    }
    /// [`Aes::aes_finish`] with masks that are at `src`, one behind the other.
    /// Writes what it gives to `dst`, which is the same or apart, and returns it.
    ///
    /// # Safety
    /// `N` vectors are readable at `src` and writable at `dst`.
    #[inline(always)]
    unsafe fn aes_finish_between<const N: usize, const ENCRYPT: bool>(
        mut x: [Self; N],
        keys: &RoundKeys,
        src: *const u8,
        dst: *mut u8,
    ) -> [Self; N] {
        let mut masks = x;
        each!(I < N, {
            // SAFETY: the caller's promise.
            masks[I] = unsafe { Self::load(src.add(I * Self::BYTES)) };
        });
        Self::aes_finish::<N, ENCRYPT>(&mut x, keys, &masks);
        each!(I < N, {
            // SAFETY: the caller's promise.
            unsafe { x[I].store(dst.add(I * Self::BYTES)) };
        });
        x
    }
}
