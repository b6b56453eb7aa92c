//! What depends on the architecture: which back-ends it has, one row each, and three small
//! things that compilers would get wrong or do not do. Nothing outside asks what it is compiled for, but for
//! the crate's root, which leaves `simd` out where nobody has vectors for it: so does a target for x86-64 without
//! vector registers, as kernels and firmware have it.
#![allow(unsafe_code)]

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod aarch64;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod x86;

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
pub(crate) use aarch64::ROWS;
use core::mem::MaybeUninit;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
pub(crate) use x86::{ROWS, ports_of};
#[cfg(all(
    target_arch = "x86_64",
    target_feature = "sse2",
    any(test, feature = "hazmat")
))]
pub(crate) use x86::{set_ports, timed_ports};

/// A back-end has one way for everything here.
#[cfg(not(all(target_arch = "x86_64", target_feature = "sse2")))]
pub(crate) fn ports_of(_backend: crate::Backend) -> Option<crate::Ports> {
    None
}

/// There is nothing to set.
#[cfg(all(
    not(all(target_arch = "x86_64", target_feature = "sse2")),
    any(test, feature = "hazmat")
))]
pub(crate) fn set_ports(_shifts: bool, _three_products: bool, _long_integers: bool) {}

/// There is nothing to time.
#[cfg(all(
    not(all(target_arch = "x86_64", target_feature = "sse2")),
    any(test, feature = "hazmat")
))]
pub(crate) fn timed_ports(_backend: crate::Backend) -> Option<crate::Ports> {
    None
}

/// The back-ends of this architecture, slowest first.
#[cfg(not(any(
    all(target_arch = "x86_64", target_feature = "sse2"),
    all(target_arch = "aarch64", target_endian = "little")
)))]
pub(crate) static ROWS: [crate::row::Row; 1] = [crate::row::Row::PORTABLE];

/// The key schedules of the kernels for vectors.
#[cfg(any(
    all(target_arch = "x86_64", target_feature = "sse2"),
    all(target_arch = "aarch64", target_endian = "little")
))]
pub(crate) use crate::simd::Keys as VectorKeys;

/// No key schedule: there are no such kernels here.
#[cfg(not(any(
    all(target_arch = "x86_64", target_feature = "sse2"),
    all(target_arch = "aarch64", target_endian = "little")
)))]
pub(crate) use core::convert::Infallible as VectorKeys;

/// The same pointer, in a register of its own, of which the compiler does not know
/// how it has come about. Otherwise it reads two pointers as one vector, which
/// cannot be done before both have reached the cache, or works one out again and
/// again.
#[inline(always)]
#[allow(unused_mut, reason = "without vectors it stays as it is")]
pub(crate) fn settled(mut pointer: *const u8) -> *const u8 {
    #[cfg(any(
        all(target_arch = "x86_64", target_feature = "sse2"),
        all(target_arch = "aarch64", target_endian = "little")
    ))]
    // SAFETY: an empty piece of assembly, that hands the pointer through.
    unsafe {
        core::arch::asm!("/* {} */", inout(reg) pointer, options(pure, readonly, nostack, preserves_flags));
    }
    pointer
}

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;

/// Asks for the cache line at an address, which need not be readable: the CPU fetches it while it
/// does something else, or not at all.
#[inline(always)]
#[allow(unused_variables, reason = "without vectors nothing is asked for")]
pub(crate) fn prefetch(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    // SAFETY: a hint, without any effect on the program.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{}]", in(reg) at, options(readonly, nostack, preserves_flags));
    }
}

/// Writes an IV, all of it at once: one that is written in two halves cannot be
/// read as a whole before both have reached the cache.
#[inline(always)]
pub(crate) fn put(place: &mut MaybeUninit<u128>, iv: u128) {
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    {
        use core::arch::x86_64::{_mm_set_epi64x, _mm_storeu_si128};
        use core::ptr;

        #[allow(clippy::cast_possible_truncation, reason = "halves are wanted")]
        let [low, high] = [iv as i64, (iv >> 64) as i64];
        // SAFETY: sixteen bytes of plain data, and SSE2 is there.
        unsafe { _mm_storeu_si128(ptr::from_mut(place).cast(), _mm_set_epi64x(high, low)) };
    }
    #[cfg(not(all(target_arch = "x86_64", target_feature = "sse2")))]
    {
        place.write(iv);
    }
}
