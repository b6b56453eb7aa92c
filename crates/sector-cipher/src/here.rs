//! Loops over arrays that become a part of the function which has them.
//!
//! `core`'s own `map`, `zip` and `from_fn` end in functions that are not marked for inlining.
//! A program that is built with several codegen units per crate, Cargo's default, gets those
//! in a unit of their own, where they lack the CPU's features: every vector then takes the
//! way through memory, and XTS halves its speed. These are inlined whatever the profile.
#![allow(unsafe_code)]

use core::mem::MaybeUninit;

/// Repeats the body with a constant: loops over rounds must be straight code. A condition
/// on constants is `const`, here and elsewhere, so that what it leaves out is never made: the
/// compiler would inline everything there first.
macro_rules! unroll {
    ($i:ident in $($n:literal)*, if $a:ident < $b:ident $body:block) => {
        unroll!($i in $($n)*, if const { $a < $b } $body)
    };
    ($i:ident in $($n:literal)*, if $a:ident > $b:ident $body:block) => {
        unroll!($i in $($n)*, if const { $a > $b } $body)
    };
    ($i:ident in $($n:literal)*, if $a:ident == $f:ident + 1 + $b:ident * $c:tt / $d:tt $body:block) => {
        unroll!($i in $($n)*, if const { $a == $f + 1 + $b * $c / $d } $body)
    };
    ($i:ident in $($n:literal)*, $body:expr) => {
        $({
            const $i: usize = $n;
            $body
        })*
    };
}

/// [`unroll`] over the places of an array of `$count`, sixteen at most.
macro_rules! each {
    ($i:ident < $count:ident, $body:expr) => {
        unroll!($i in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15, if $i < $count { $body })
    };
}

/// The array of `make(0)`, `make(1)` and so on.
#[inline(always)]
pub(crate) fn from_fn<T, const N: usize>(mut make: impl FnMut(usize) -> T) -> [T; N] {
    let mut array = [const { MaybeUninit::uninit() }; N];
    if const { N <= 16 } {
        each!(I < N, array[I] = MaybeUninit::new(make(I)));
    } else {
        let mut i = 0;
        while i < N {
            array[i] = MaybeUninit::new(make(i));
            i += 1;
        }
    }
    // SAFETY: all of them have been written, and a value looks the same in its place.
    unsafe { core::mem::transmute_copy(&array) }
}

/// `map` of arrays, inlined.
pub(crate) trait MapHere<T, const N: usize> {
    /// The array of what `make` makes of each value.
    fn map_here<R>(self, make: impl FnMut(T) -> R) -> [R; N];
}

impl<T: Copy, const N: usize> MapHere<T, N> for [T; N] {
    #[inline(always)]
    fn map_here<R>(self, mut make: impl FnMut(T) -> R) -> [R; N] {
        from_fn(
            #[inline(always)]
            |i| make(self[i]),
        )
    }
}

/// `zip` of iterators, inlined.
pub(crate) trait ZipHere: Iterator + Sized {
    /// Pairs, until either side has no more.
    #[inline(always)]
    fn zip_here<B: IntoIterator>(self, other: B) -> Pairs<Self, B::IntoIter> {
        Pairs(self, other.into_iter())
    }
}

impl<I: Iterator> ZipHere for I {}

/// What [`ZipHere::zip_here`] gives.
pub(crate) struct Pairs<A, B>(A, B);

impl<A: Iterator, B: Iterator> Iterator for Pairs<A, B> {
    type Item = (A::Item, B::Item);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let first = self.0.next()?;
        Some((first, self.1.next()?))
    }

    #[inline(always)]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let (a, b) = (self.0.size_hint(), self.1.size_hint());
        let most = match (a.1, b.1) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (most, None) | (None, most) => most,
        };
        (a.0.min(b.0), most)
    }
}

impl<A: ExactSizeIterator, B: ExactSizeIterator> ExactSizeIterator for Pairs<A, B> {}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    #[test]
    fn as_cores_own() {
        let squares: [usize; 9] = from_fn(|i| i * i);
        assert_eq!(squares, core::array::from_fn(|i| i * i));
        assert_eq!(squares.map_here(|i| i + 1), squares.map(|i| i + 1));
        assert_eq!([0_u8; 0].map_here(|_| ()), []);
        for (a, b) in [(0, 0), (0, 3), (3, 0), (3, 5), (5, 3), (4, 4)] {
            let pairs = (0..a).zip_here(10..10 + b);
            assert_eq!(pairs.size_hint(), (a.min(b), Some(a.min(b))));
            assert_eq!(pairs.len(), a.min(b));
            let (ours, cores): (Vec<_>, Vec<_>) =
                (pairs.collect(), (0..a).zip(10..10 + b).collect());
            assert_eq!(ours, cores);
        }
        assert_eq!((0..).zip_here(0..).size_hint(), (0..).zip(0..).size_hint());
    }
}
