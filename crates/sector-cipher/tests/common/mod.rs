//! What the tests share: random bytes that are the same in every run, ciphers
//! by name, and the list of everything to go through.
#![allow(dead_code, reason = "no test file uses all of it")]
#![allow(clippy::unwrap_used, reason = "a test fails that way")]

use sector_cipher::{Backend, Cipher, CipherSpec, Mode, Run, SectorCount, SectorSize, hazmat};

/// The name of every cipher.
pub(crate) fn names() -> impl Iterator<Item = String> {
    CipherSpec::all().map(|spec| spec.to_string())
}

pub(crate) const SIZES: [usize; 4] = [512, 1024, 2048, 4096];

/// Whether a slow machine, an emulated one, has asked for fewer lengths and
/// sizes: `SECTOR_CIPHER_TESTS=quick`.
pub(crate) fn quick() -> bool {
    std::env::var_os("SECTOR_CIPHER_TESTS").is_some_and(|value| value == "quick")
}

/// Lengths of runs in sectors, up to 70: all, or those on either side of where
/// batches and groups end.
pub(crate) fn lengths() -> Vec<usize> {
    if quick() {
        vec![1, 2, 7, 8, 9, 17, 33]
    } else {
        (1..=70).collect()
    }
}

/// Random numbers (xorshift64*), the same in every run.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed ^ 0x9e37_79b9_7f4a_7c15)
    }
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from((self.next() >> 16) % end as u64).unwrap()
    }
    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
        bytes
    }
}

pub(crate) fn spec(name: &str) -> CipherSpec {
    name.parse().unwrap()
}

pub(crate) fn size(bytes: usize) -> SectorSize {
    SectorSize::new(u32::try_from(bytes).unwrap()).unwrap()
}

pub(crate) fn cipher(name: &str, bytes: usize, key: &[u8], backend: Backend) -> Cipher {
    Cipher::new(
        spec(name),
        size(bytes),
        SectorCount::Units512,
        key,
        Some(backend),
    )
    .unwrap()
}

/// Calls `test` for every cipher, key length and sector size, with a key.
pub(crate) fn for_all(mut test: impl FnMut(&str, &[u8], usize, &mut Random)) {
    for (i, name) in names().enumerate() {
        for &key_len in spec(&name).key_lengths() {
            for bytes in SIZES {
                if quick() && !matches!(bytes, 512 | 4096) {
                    continue;
                }
                let mut random = Random::new((i * 100_000 + key_len * 10_000 + bytes) as u64);
                let key = random.bytes(key_len);
                test(&name, &key, bytes, &mut random);
            }
        }
    }
}

/// Cuts `data` into runs at random sectors. The pieces' first sectors follow
/// from where they are, so that together they are the one run.
pub(crate) fn cut<'a>(
    first: u64,
    data: &'a mut [u8],
    bytes: usize,
    random: &mut Random,
) -> Vec<Run<'a>> {
    let mut runs = Vec::new();
    let (mut rest, mut first) = (data, first);
    while !rest.is_empty() {
        let sectors = random
            .below(rest.len() / bytes + 1)
            .min(1 + random.below(12));
        let (data, behind) = rest.split_at_mut(sectors * bytes);
        rest = behind;
        runs.push(Run { first, data });
        first = first.wrapping_add((sectors * bytes / 512) as u64);
    }
    // Order must not matter.
    if random.below(2) == 0 {
        runs.reverse();
    }
    runs
}

/// A way in which a back-end can do what depends on the CPU's ports: see [`hazmat::set_ports`].
#[derive(Clone, Copy)]
pub(crate) struct Way {
    shifts: bool,
    three_products: bool,
    long_integers: bool,
}

impl Way {
    const NONE: Self = Self {
        shifts: false,
        three_products: false,
        long_integers: false,
    };

    /// All that there are.
    pub(crate) fn every() -> impl Iterator<Item = Self> {
        (0..8).map(|ways| Self {
            shifts: ways & 1 != 0,
            three_products: ways & 2 != 0,
            long_integers: ways & 4 != 0,
        })
    }

    /// Both that the back-end has for a cipher; one where it does not ask. For tests that take long: what
    /// ciphers ask for is known here.
    pub(crate) fn all(backend: Backend, mode: Mode) -> Vec<Self> {
        let mut other = Self::NONE;
        let asks = backend.ports().is_some_and(|ports| match mode {
            Mode::AesXts | Mode::Eme2 => {
                other.shifts = true;
                ports.shifts.is_some()
            }
            Mode::FastBrw => {
                other.three_products = true;
                true
            }
            Mode::Adiantum12 | Mode::Adiantum20 => {
                other.long_integers = true;
                ports.long_integers.is_some()
            }
            _ => false,
        });
        if asks {
            vec![Self::NONE, other]
        } else {
            vec![Self::NONE]
        }
    }

    /// What it does otherwise than the first: to be behind a name.
    pub(crate) fn name(self) -> String {
        let parts = [
            (self.shifts, ", by shifts"),
            (self.three_products, ", three products"),
            (self.long_integers, ", AVX2"),
        ];
        parts
            .iter()
            .filter(|part| part.0)
            .map(|part| part.1)
            .collect()
    }

    /// From here on the whole process goes this way: a test that does so is the only one in its program,
    /// but for some that encrypt nothing.
    pub(crate) fn take(self) {
        hazmat::set_ports(self.shifts, self.three_products, self.long_integers);
    }
}

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2)
        .map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
        .collect()
}
