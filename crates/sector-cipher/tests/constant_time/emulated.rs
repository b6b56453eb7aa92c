//! Traces on an emulated CPU: QEMU, with the plug-in `trace_plugin.c`, tells
//! the program a digest of the instructions that it ran between two marks and of
//! the addresses that they touched. `scripts/test-aarch64.sh` does that.
//!
//! All is run in one process, in place, so that nothing but the secrets differs.

use super::{Case, LONGEST, RUNS, Run, Secrets, leaks_a_branch, leaks_an_address};
use crate::common::Random;
use sector_cipher::{Backend, Cipher};
use std::hint::black_box;
use std::mem::MaybeUninit;

/// What the plug-in has seen between the marks.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Trace {
    /// How many instructions and accesses.
    len: u64,
    digest: u64,
}

#[inline(never)]
fn trace(work: &mut dyn FnMut()) -> Trace {
    let (mut digest, mut len) = (0_u64, 0_u64);
    // SAFETY: hints that no CPU has a meaning for are no-ops. At the second the
    // plug-in writes the two registers.
    unsafe { std::arch::asm!("hint #96", options(nostack)) };
    work();
    // SAFETY: as above.
    unsafe { std::arch::asm!("hint #97", inout("x0") digest, inout("x1") len, options(nostack)) };
    assert_ne!(
        len, 0,
        "QEMU's plug-in is not there: this test is run by scripts/test-aarch64.sh"
    );
    Trace { len, digest }
}

/// How the traces of `work` with several sets of secrets differ; how long they
/// are if they do not.
fn compare(mut work: impl FnMut(&mut Secrets)) -> Result<u64, String> {
    let mut random = Random::new(17);
    let mut secrets = Secrets {
        key: vec![0; 64],
        data: vec![0; LONGEST],
    };
    // What is done once, such as mapping the stack, is done before.
    trace(&mut || work(&mut secrets));
    secrets.data.fill(0);
    let first = trace(&mut || work(&mut secrets));
    for _ in 0..2 {
        // The places stay where they are.
        secrets.key.copy_from_slice(&random.bytes(64));
        secrets.data.copy_from_slice(&random.bytes(LONGEST));
        let other = trace(&mut || work(&mut secrets));
        if other.len != first.len {
            return Err(format!("a secret branch: {} or {}", first.len, other.len));
        }
        if other != first {
            return Err(format!("a secret branch or address among {}", first.len));
        }
    }
    Ok(first.len)
}

fn check_backend(backend: Backend, runs: &[Run]) {
    assert!(backend.is_supported(), "{backend}: this CPU lacks it");
    let mut place = MaybeUninit::<Cipher>::uninit();
    for case in Case::all(backend, runs) {
        let compared = compare(|secrets| {
            case.run(&mut place, secrets);
            // SAFETY: the cipher is there. Its drop wipes the schedule.
            unsafe { place.assume_init_drop() };
        });
        match compared {
            Ok(len) => println!("{}: {len} instructions and accesses", case.name()),
            Err(difference) => panic!("{}: {difference}", case.name()),
        }
    }
}

#[test]
#[ignore = "needs QEMU's plug-in: make test-aarch64"]
fn portable_traces_do_not_depend_on_secrets() {
    // Software has one way for a sector alone and one for several.
    check_backend(Backend::Portable, &[(512, 1), (512, 2), (4096, 1)]);
}

#[test]
#[ignore = "needs QEMU's plug-in: make test-aarch64"]
fn armv8_traces_do_not_depend_on_secrets() {
    check_backend(Backend::Armv8, &RUNS);
}

/// A division whose divisor is secret.
#[inline(never)]
fn divides(secrets: &Secrets) -> u8 {
    black_box(200) / (secrets.key[0] | 1)
}

/// Asks for a cache line at a secret place.
#[inline(never)]
fn prefetches(secrets: &Secrets) {
    let at = secrets.data.as_ptr().wrapping_add(secrets.key[0].into());
    // SAFETY: a hint, without any effect on the program.
    unsafe { std::arch::asm!("prfm pldl1keep, [{}]", in(reg) at, options(nostack)) };
}

#[test]
#[ignore = "needs QEMU's plug-in: make test-aarch64"]
fn a_trace_shows_a_secret_address_branch_divisor_and_prefetch() {
    let difference = compare(|secrets| {
        black_box(leaks_an_address(secrets));
    });
    assert!(difference.unwrap_err().contains("address"));
    let difference = compare(|secrets| {
        black_box(leaks_a_branch(secrets));
    });
    assert!(difference.unwrap_err().contains("a secret branch:"));
    let difference = compare(|secrets| {
        black_box(divides(secrets));
    });
    assert!(difference.is_err());
    assert!(compare(|secrets| prefetches(secrets)).is_err());
    // And nothing where there is nothing.
    let difference = compare(|secrets| {
        black_box(secrets.key[0] ^ secrets.data[5]);
    });
    assert!(difference.is_ok());
}
