//! The fast back-ends: kernels over a stream of sectors, written once for every
//! vector width and CPU. What differs from CPU to CPU is behind [`Vector`].
//!
//! A kernel is a function that is generic over the vector. It becomes code for
//! one CPU where [`Cpu::call`] runs it: everything below is inlined there
//! (`#[inline(always)]`), because only that function has the CPU's features.
//!
//! Constant time by construction: rounds and key expansion are the CPU's AES
//! instructions, arithmetic is shifts, sums and products, and branches and
//! addresses depend only on lengths, key sizes and sector counts.
#![allow(unsafe_code)]

mod adiantum;
mod aes;
mod aez10;
mod brw;
mod cbc;
mod counter;
mod eme2;
mod fast_brw;
mod fast_horner;
mod field;
mod hash_ctr_hash;
mod hctr2;
mod ivs;
mod powers;
mod two_pass;
mod vector;
#[cfg(test)]
pub(crate) mod vector_tests;
mod xcb;
mod xts;

use crate::row::{self, KeySource, Row};
use crate::run::Sectors;
use crate::{Backend, Mode};
pub(crate) use aes::{AesKeys, RoundKeys, WideKeys, expand, fresh};
pub(crate) use vector::{ASK, Aes, Clmul, Cpu, LAST_BYTES, Lanes, ROTATE, SHIFT, Tuning, Vector};

/// The row of a back-end with the vectors `V`, whose keys are made with the vectors `K`: all
/// have the same schedule. Its CPU has both.
pub(crate) const fn row<K: Vector, V: Vector>(backend: Backend) -> Row {
    Row {
        backend,
        detect: || K::detect() && V::detect(),
        set_keys: set_keys::<K>,
        crypt: crypt_row::<V>,
    }
}

/// # Safety
/// [`Vector::detect`] of `K` has been true.
unsafe fn set_keys<K: Vector>(keys: &mut row::Keys, from: &KeySource<'_>) {
    *keys = row::Keys::Vector(Keys::unset(from.spec.mode()));
    if let row::Keys::Vector(keys) = keys {
        // SAFETY: the caller's promise.
        let cpu = unsafe { Cpu::<K>::detected() };
        keys.set(cpu, from.key, from.size.bytes(), from.essiv);
    }
}

/// # Safety
/// [`Vector::detect`] of `V` has been true.
unsafe fn crypt_row<V: Vector>(keys: &row::Keys, sectors: &mut Sectors<'_, '_>, encrypt: bool) {
    // SAFETY: the caller's promise.
    let cpu = unsafe { Cpu::<V>::detected() };
    match keys {
        row::Keys::Vector(keys) => crypt(cpu, keys, sectors, encrypt),
        _ => unreachable!("the keys are of the same row"),
    }
}

/// The key schedule of a mode, the same for every CPU.
#[allow(clippy::large_enum_variant, reason = "in one place, never indirect")]
pub(crate) enum Keys {
    Xts(xts::Keys),
    Cbc(AesKeys),
    FastBrw(fast_brw::Keys),
    FastHorner(fast_horner::Keys),
    Hctr2(hctr2::Keys),
    Adiantum(adiantum::Keys),
    Eme2(eme2::Keys),
    Aez10(aez10::Keys),
    Xcb(xcb::Keys),
}

impl Keys {
    /// A schedule without a key, to be set in place.
    pub(crate) fn unset(mode: Mode) -> Self {
        match mode {
            Mode::AesXts => Self::Xts(xts::Keys::UNSET),
            Mode::AesCbc => Self::Cbc(AesKeys::UNSET),
            Mode::FastBrw => Self::FastBrw(fast_brw::Keys::UNSET),
            Mode::FastHorner => Self::FastHorner(fast_horner::Keys::UNSET),
            Mode::Hctr2 => Self::Hctr2(hctr2::Keys::UNSET),
            Mode::Adiantum12 => Self::Adiantum(adiantum::Keys::unset(12)),
            Mode::Adiantum20 => Self::Adiantum(adiantum::Keys::unset(20)),
            Mode::Eme2 => Self::Eme2(eme2::Keys::UNSET),
            Mode::Aez10 => Self::Aez10(aez10::Keys::UNSET),
            Mode::Xcb => Self::Xcb(xcb::Keys::UNSET),
        }
    }

    /// Sets the key, whose length has been checked, for sectors of `bytes`
    /// bytes; `essiv` is the key for IVs.
    fn set<V: Vector>(&mut self, cpu: Cpu<V>, key: &[u8], bytes: usize, essiv: Option<&[u8; 32]>) {
        cpu.call(
            #[inline(always)]
            || match self {
                Self::Xts(keys) => keys.set::<V>(key),
                Self::Cbc(keys) => keys.set::<V>(key, essiv.map(|key| &key[..])),
                Self::FastBrw(keys) => keys.set::<V>(key),
                Self::FastHorner(keys) => keys.set::<V>(key, bytes),
                Self::Hctr2(keys) => keys.set::<V>(key, bytes),
                Self::Adiantum(keys) => keys.set::<V>(key),
                Self::Eme2(keys) => keys.set::<V>(key),
                Self::Aez10(keys) => keys.set::<V>(key),
                Self::Xcb(keys) => keys.set::<V>(key, bytes),
            },
        );
    }
}

/// Overwrites `bytes` bytes, a multiple of the vector's, with zeros.
///
/// # Safety
/// They are writable.
#[inline(always)]
unsafe fn wipe<V: Vector>(place: *mut u8, bytes: usize) {
    for offset in (0..bytes).step_by(V::BYTES) {
        let place = place.wrapping_add(offset);
        // SAFETY: the caller's promise, and an empty piece of assembly, that might read
        // what was written. It also keeps the loop from becoming a call of a function
        // that takes longer.
        unsafe {
            V::zero().store(place);
            core::arch::asm!("/* {} */", in(reg) place, options(nostack, preserves_flags));
        }
    }
}

/// Runs the kernel of a mode for `V`. The keys are set.
#[inline(always)]
fn crypt<V: Vector>(cpu: Cpu<V>, keys: &Keys, sectors: &mut Sectors<'_, '_>, encrypt: bool) {
    // `move`, since a kernel that takes the evidence would get the address of nothing otherwise.
    macro_rules! kernel {
        ($mode:ident $(<$($constant:literal),+>)? ($($argument:expr),+)) => {
            cpu.call(
                #[inline(always)]
                move || $mode::crypt::<V $($(, $constant)+)?>($($argument),+),
            )
        };
    }
    // One for each direction where it is that of most AES calls. Elsewhere the two
    // differ in a few blocks of a sector, and one kernel takes half the time to compile.
    macro_rules! directed {
        ($mode:ident $(<$first:literal>)? ($($argument:expr),+)) => {
            if encrypt {
                kernel!($mode<$($first,)? true>($($argument),+));
            } else {
                kernel!($mode<$($first,)? false>($($argument),+));
            }
        };
    }
    match keys {
        // One for each length of keys.
        Keys::Xts(keys) if keys.first() == 0 => directed!(xts<0>(keys, sectors)),
        Keys::Xts(keys) => directed!(xts<4>(keys, sectors)),
        // Serial inside a sector: vectors of one block do, whose code is there already.
        Keys::Cbc(keys) if encrypt => cpu.one().call(
            #[inline(always)]
            || cbc::crypt::<V::One, true>(keys, sectors),
        ),
        Keys::Cbc(keys) => kernel!(cbc<false>(keys, sectors)),
        Keys::FastBrw(keys) => directed!(fast_brw(cpu, keys, sectors)),
        Keys::FastHorner(keys) => kernel!(fast_horner(keys, sectors, encrypt)),
        Keys::Hctr2(keys) => kernel!(hctr2(keys, sectors, encrypt)),
        Keys::Adiantum(keys) => match cpu.for_integers() {
            Some(cpu) => adiantum(cpu, keys, sectors, encrypt),
            None => adiantum(cpu, keys, sectors, encrypt),
        },
        Keys::Eme2(keys) => directed!(eme2(keys, sectors)),
        Keys::Aez10(keys) => kernel!(aez10(keys, sectors, encrypt)),
        Keys::Xcb(keys) => kernel!(xcb(keys, sectors, encrypt)),
    }
}

/// The kernel of Adiantum, which has one AES call a sector.
fn adiantum<V: Vector>(
    cpu: Cpu<V>,
    keys: &adiantum::Keys,
    sectors: &mut Sectors<'_, '_>,
    encrypt: bool,
) {
    cpu.call(
        #[inline(always)]
        move || adiantum::crypt::<V>(keys, sectors, encrypt),
    );
}
