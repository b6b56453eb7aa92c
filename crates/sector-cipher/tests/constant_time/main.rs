//! Constant time, checked on the machine code: no branch and no address
//! depends on a key or on data.
//!
//! Twice. `trace` runs every cipher on every back-end of this CPU instruction
//! by instruction, with two sets of secrets, and wants the same instructions at
//! the same addresses of memory. `memcheck` runs those back-ends whose
//! instructions Valgrind knows with secrets that count as undefined, which
//! shows all values of them at once. On 64-bit ARM `emulated` compares traces
//! that an emulator makes. All are shown to find a leak.
#![cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_os = "linux"
))]
#![allow(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test fails that way")]

#[path = "../common/mod.rs"]
mod common;
#[cfg(target_arch = "aarch64")]
mod emulated;
#[cfg(target_arch = "x86_64")]
mod memcheck;
#[cfg(target_arch = "x86_64")]
mod trace;

use common::{Way, size};
use sector_cipher::{Backend, Cipher, CipherSpec, IvMode, Mode, SectorCount};
use std::hint::black_box;
use std::mem::MaybeUninit;

/// What nobody may learn.
struct Secrets {
    key: Vec<u8>,
    data: Vec<u8>,
}

/// A run: how many bytes a sector has, and how many sectors there are.
type Run = (usize, usize);

/// What there is code of its own for: more than a batch, and a rest; a sector
/// with nothing beside it; sectors of several groups of blocks, chunks of a hash,
/// or masks.
const RUNS: [Run; 4] = [(512, 9), (512, 1), (4096, 1), (4096, 3)];

/// As many that FAST's BRW hash has a pass of nine, which `vaes512` takes through its middle by eight
/// vectors, where all of the above go by two.
const LONG_PASS: Run = (512, 17);

/// Bytes of the longest.
const LONGEST: usize = 3 * 4096;

/// A cipher with a key length, a back-end and a run, in one of the ways that it has for CPUs of
/// different kinds.
struct Case {
    spec: CipherSpec,
    key_len: usize,
    backend: Backend,
    run: Run,
    way: Way,
}

impl Case {
    /// Every cipher on a back-end, over each of `runs`. The generators of IVs do
    /// not see secrets, but for ESSIV: one other is enough.
    fn all(backend: Backend, runs: &[Run]) -> impl Iterator<Item = Self> {
        CipherSpec::all()
            .filter(|spec| matches!(spec.iv(), IvMode::Plain64 | IvMode::EssivSha256))
            .flat_map(|spec| spec.key_lengths().iter().map(move |&len| (spec, len)))
            .flat_map(move |(spec, key_len)| {
                let cases = move |way| {
                    let long = backend == Backend::Vaes512 && spec.mode() == Mode::FastBrw;
                    let long = long.then_some(LONG_PASS);
                    runs.iter().copied().chain(long).map(move |run| Self {
                        spec,
                        key_len,
                        backend,
                        run,
                        way,
                    })
                };
                Way::all(backend, spec.mode()).into_iter().flat_map(cases)
            })
    }

    #[cfg(target_arch = "x86_64")]
    fn has_longest_key(&self) -> bool {
        self.spec.key_lengths().last() == Some(&self.key_len)
    }

    /// Everything that is done with secrets: the key schedule, encryption and
    /// decryption. Does not allocate.
    fn run(&self, place: &mut MaybeUninit<Cipher>, secrets: &mut Secrets) {
        let (bytes, sectors) = self.run;
        // Of the process that is looked at, which is one for each case.
        self.way.take();
        let cipher = Cipher::new(
            self.spec,
            size(bytes),
            SectorCount::Units512,
            &secrets.key[..self.key_len],
            Some(self.backend),
        );
        let cipher = place.write(cipher.unwrap());
        let data = &mut secrets.data[..sectors * bytes];
        cipher.encrypt(1000, data);
        cipher.decrypt(2000, data);
    }

    fn name(&self) -> String {
        let (bytes, sectors) = self.run;
        format!(
            "{} {} {}, {sectors} of {bytes} bytes{}",
            self.spec,
            8 * self.key_len,
            self.backend,
            self.way.name()
        )
    }
}

/// A table look-up whose index is secret.
#[inline(never)]
fn leaks_an_address(secrets: &Secrets) -> u8 {
    static TABLE: [u8; 256] = [7; 256];
    black_box(&TABLE)[usize::from(secrets.key[0])]
}

/// A branch whose condition is secret.
#[inline(never)]
fn leaks_a_branch(secrets: &Secrets) -> u64 {
    let mut rounds = 1;
    if secrets.data[5] & 1 == 1 {
        rounds = black_box(rounds) + 1;
    }
    black_box(rounds)
}

/// All modes are in the list that the tests go through.
#[test]
fn every_mode_is_among_the_cases() {
    let modes: Vec<Mode> = Case::all(Backend::Portable, &RUNS)
        .map(|case| case.spec.mode())
        .collect();
    for spec in CipherSpec::all() {
        assert!(modes.contains(&spec.mode()), "{spec}");
    }
}
