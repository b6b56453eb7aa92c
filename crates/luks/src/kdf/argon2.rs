//! Argon2 (RFC 9106) with its lanes on threads and its memory in pages of its
//! own: refused, never aborted on, when there is not enough, left out of core
//! dumps, and wiped.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use argon2::{Algorithm, Argon2, Block, Params, Version};
use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::{Argon2Cost, free_memory, mebibytes};
use crate::{Error, ErrorKind};

/// The variants that LUKS2 has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Variant {
    I,
    Id,
}

/// Whether `cost` is a valid one (RFC 9106, section 3.1).
pub(super) fn check(cost: Argon2Cost, key_length: usize) -> Result<(), Error> {
    let lanes = u64::from(cost.cpus);
    let fault = if cost.time == 0 {
        "no passes"
    } else if lanes == 0 || cost.cpus > Params::MAX_P_COST {
        "an impossible number of lanes"
    } else if u64::from(cost.memory) < 8 * lanes {
        "less than 8 KiB for each lane"
    } else if key_length < Params::MIN_OUTPUT_LEN {
        "less than 4 bytes of output"
    } else {
        return Ok(());
    };
    Err(Error::corrupt(format!(
        "argon2 with {fault} (time {}, memory {} KiB, cpus {})",
        cost.time, cost.memory, cost.cpus
    )))
}

/// Whether `cost`'s memory is free.
pub(super) fn check_free_memory(cost: Argon2Cost) -> Result<(), Error> {
    let needed = u64::from(cost.memory);
    match free_memory::free_kib() {
        Some(free) if free < needed => Err(no_memory(needed)),
        _ => Ok(()),
    }
}

fn no_memory(needed_kib: u64) -> Error {
    let free = match free_memory::free_kib() {
        Some(kib) if kib < needed_kib => format!("but {} MiB are free", kib / 1024),
        Some(kib) => format!(
            "which the system refuses although {} MiB are free (a limit on this process?)",
            kib / 1024
        ),
        None => "which the system refuses".into(),
    };
    Error::new(
        ErrorKind::NoMemory,
        format!(
            "argon2 needs {} of memory for this key, {free}; \
             free some memory, or use a key with a smaller memory cost or pbkdf2",
            mebibytes(needed_kib)
        ),
    )
}

/// Fills `key` from `passphrase` and `salt`. `cost` has passed [`check`].
pub(super) fn derive(
    variant: Variant,
    cost: Argon2Cost,
    passphrase: &[u8],
    salt: &[u8],
    key: &mut [u8],
) -> Result<(), Error> {
    let invalid =
        |error: argon2::Error| Error::corrupt("argon2 cannot derive the key").caused_by(error);
    let params =
        Params::new(cost.memory, cost.time, cost.cpus, Some(key.len())).map_err(invalid)?;
    let mut memory = Memory::new(params.block_count(), u64::from(cost.memory))?;
    let algorithm = match variant {
        Variant::I => Algorithm::Argon2i,
        Variant::Id => Algorithm::Argon2id,
    };
    let argon2 = Argon2::new(algorithm, Version::V0x13, params);
    let blocks = memory.blocks();

    // Threads of our own, gone on return: a global pool would outlive this
    // call and get in the way of a later fork or sandbox.
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let lanes = usize::try_from(cost.cpus).unwrap_or(usize::MAX);
    rayon::ThreadPoolBuilder::new()
        .num_threads(lanes.min(cpus))
        .thread_name(|number| format!("argon2-{number}"))
        .build_scoped(rayon::ThreadBuilder::run, |pool| {
            pool.install(|| argon2.hash_password_into_with_memory(passphrase, salt, key, blocks))
        })
        .map_err(|error| {
            Error::new(ErrorKind::NoMemory, "cannot start threads for argon2").caused_by(error)
        })?
        .map_err(invalid)
}

/// Argon2's block memory: anonymous pages, wiped when dropped. Not locked:
/// limits on locked memory are far smaller.
struct Memory {
    start: NonNull<Block>,
    blocks: usize,
}

impl Memory {
    fn new(blocks: usize, needed_kib: u64) -> Result<Self, Error> {
        let length = blocks
            .checked_mul(size_of::<Block>())
            .filter(|&length| isize::try_from(length).is_ok() && length > 0)
            .ok_or_else(|| no_memory(needed_kib))?;
        // SAFETY: a fresh private mapping at an address of the kernel's choice
        // touches no existing memory.
        let mapped = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        let start = mapped
            .ok()
            .and_then(|start| NonNull::new(start.cast::<Block>()))
            .ok_or_else(|| no_memory(needed_kib))?;
        let memory = Self { start, blocks };
        for advice in [Advice::LinuxDontDump, Advice::LinuxHugepage] {
            // SAFETY: advises exactly the mapping made above. Both are
            // improvements only; a kernel without one goes on without.
            let _ = unsafe { rustix::mm::madvise(start.as_ptr().cast(), length, advice) };
        }
        Ok(memory)
    }

    fn blocks(&mut self) -> &mut [Block] {
        // SAFETY: `blocks` blocks are mapped at `start`, page aligned (a block
        // needs 64 bytes), zero-filled by the kernel, and any bit pattern is a
        // valid `Block` (an array of u64). `&mut self` is the only access.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.blocks) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let length = self.blocks * size_of::<Block>();
        // One memset, not volatile stores: a gibibyte of those is slow.
        // `black_box` keeps it from being dropped as a dead store.
        // SAFETY: the mapping is writable and `length` bytes long.
        unsafe { std::ptr::write_bytes(self.start.as_ptr().cast::<u8>(), 0, length) };
        std::hint::black_box(self.start);
        // SAFETY: unmaps exactly what `new` mapped; nothing borrows it any more.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), length) };
        debug_assert!(unmapped.is_ok());
    }
}
