//! The back-ends in one table: what the CPU needs for each, how it makes its keys, and its
//! kernels. A back-end is added by its name in [`Backend`] and a row of its architecture.
#![allow(unsafe_code)]

use crate::arch::{ROWS, VectorKeys};
use crate::run::Sectors;
use crate::{Backend, CipherSpec, SectorSize, portable};

/// The key schedule, in the form that the kernel of a mode and back-end wants.
/// None of them owns anything or has a destructor. All bytes zero is `Unset`:
/// [`Keys::wipe`] depends on that.
#[allow(clippy::large_enum_variant, reason = "keys have no indirection")]
#[repr(u8)]
pub(crate) enum Keys {
    /// Before a key is set.
    Unset = 0,
    /// Of the portable back-end.
    Portable(portable::Keys),
    /// Of a back-end with vectors.
    #[allow(dead_code, reason = "not where there are none")]
    Vector(VectorKeys),
}

const _: () = assert!(!core::mem::needs_drop::<Keys>());

impl Keys {
    /// Overwrites it with zeros.
    pub(crate) fn wipe(&mut self) {
        // SAFETY: the type has no destructor and refers to nothing outside
        // itself; all bytes zero is its value `Unset`.
        unsafe { zeroize::zeroize_flat_type(self) }
    }
}

/// What a key schedule is made of.
pub(crate) struct KeySource<'a> {
    /// The cipher.
    pub(crate) spec: CipherSpec,
    /// The key, whose length has been checked.
    pub(crate) key: &'a [u8],
    /// The sectors that the keys will be used on.
    #[allow(dead_code, reason = "not used by the portable back-end")]
    pub(crate) size: SectorSize,
    /// The IVs' key, for ESSIV.
    pub(crate) essiv: Option<&'a [u8; 32]>,
}

/// Makes a key schedule in place.
///
/// # Safety
/// The row's `detect` has been true.
pub(crate) type SetKeys = unsafe fn(&mut Keys, &KeySource<'_>);

/// Runs the kernel of the keys' mode over a stream: encrypts it, or decrypts it.
///
/// # Safety
/// The row's `detect` has been true.
pub(crate) type Crypt = unsafe fn(&Keys, &mut Sectors<'_, '_>, encrypt: bool);

/// A back-end.
pub(crate) struct Row {
    /// Its name.
    pub(crate) backend: Backend,
    /// Whether the CPU, and the operating system, let us use it.
    pub(crate) detect: fn() -> bool,
    /// Makes its key schedules.
    pub(crate) set_keys: SetKeys,
    /// Encrypts and decrypts.
    pub(crate) crypt: Crypt,
}

impl Row {
    /// The one that every CPU has.
    pub(crate) const PORTABLE: Self = Self {
        backend: Backend::Portable,
        detect: || true,
        set_keys: set_portable,
        crypt: crypt_portable,
    };
}

/// Evidence that the CPU, and the operating system, let us use the back-end of a row.
#[derive(Clone, Copy)]
pub(crate) struct Detected(&'static Row);

impl Detected {
    /// The row of a back-end, if this CPU can run it.
    pub(crate) fn of(backend: Backend) -> Option<Self> {
        ROWS.iter()
            .find(|row| row.backend == backend)
            .filter(|row| (row.detect)())
            .map(Self)
    }

    /// Its name.
    pub(crate) fn backend(self) -> Backend {
        self.0.backend
    }

    /// Makes a key schedule in place.
    #[inline(always)]
    pub(crate) fn set_keys(self, keys: &mut Keys, from: &KeySource<'_>) {
        // SAFETY: `self` is the evidence.
        unsafe { (self.0.set_keys)(keys, from) };
    }

    /// Runs the kernel of the keys' mode over a stream. The keys were set by the same row.
    #[inline(always)]
    pub(crate) fn crypt(self, keys: &Keys, sectors: &mut Sectors<'_, '_>, encrypt: bool) {
        // SAFETY: `self` is the evidence.
        unsafe { (self.0.crypt)(keys, sectors, encrypt) };
    }
}

fn set_portable(keys: &mut Keys, from: &KeySource<'_>) {
    *keys = Keys::Portable(portable::Keys::new(from.spec, from.key, from.essiv));
}

fn crypt_portable(keys: &Keys, sectors: &mut Sectors<'_, '_>, encrypt: bool) {
    match keys {
        Keys::Portable(keys) => keys.crypt(sectors, encrypt),
        _ => unreachable!("the keys are of the same row"),
    }
}

/// Every choice of rows, by the number whose bits say which are in it.
static CHOICES: [Choice; 1 << ROWS.len()] = {
    let mut choices = [const {
        Choice {
            backends: [Backend::Portable; ROWS.len()],
            len: 0,
        }
    }; 1 << ROWS.len()];
    let mut number = 0;
    while number < choices.len() {
        let mut row = 0;
        while row < ROWS.len() {
            if number >> row & 1 == 1 {
                let choice = &mut choices[number];
                choice.backends[choice.len] = ROWS[row].backend;
                choice.len += 1;
            }
            row += 1;
        }
        number += 1;
    }
    choices
};

/// Some of the rows' back-ends, in their order.
struct Choice {
    backends: [Backend; ROWS.len()],
    len: usize,
}

/// The back-ends that are detected, in the rows' order.
pub(crate) fn detected() -> &'static [Backend] {
    let bits = ROWS
        .iter()
        .enumerate()
        .map(|(i, row)| usize::from((row.detect)()) << i);
    let choice = &CHOICES[bits.sum::<usize>()];
    &choice.backends[..choice.len]
}
