//! What the CPU's ports can start beside AES rounds: see [`crate::Ports`].
//!
//! A short table says it for CPUs that have been measured (`bench/ports/ports.py` of the project
//! shows it in more detail). On others both ways are timed, once in a process. Nothing but speed
//! depends on it, and no secret has a part in it.

use crate::{Backend, Ports, PortsSource};
use core::arch::x86_64::{__cpuid, _mm256_zeroupper, _rdtsc};
use core::sync::atomic::{AtomicU8, Ordering};

/// Somebody has looked at the CPU.
const LOOKED: u8 = 1;
/// Both ways were timed.
const MEASURED: u8 = 2;
/// A test has set them.
const SET: u8 = 4;
/// For 64-byte vectors, shifts of bits and not `vpmultishiftqb`.
const SHIFTS: u8 = 8;
/// For vectors of 16, 32 and 64 bytes, three products for one and not four.
const THREE_128: u8 = 0x10;
const THREE_256: u8 = 0x20;
const THREE_512: u8 = 0x40;
/// For integers beside vectors of 16 bytes, those of 32, if the CPU has AVX2.
const LONG_INTEGERS: u8 = 0x80;
const WAYS: u8 = SHIFTS | THREE_128 | THREE_256 | THREE_512;

static PORTS: AtomicU8 = AtomicU8::new(0);

#[inline(always)]
fn has(way: u8) -> bool {
    PORTS.load(Ordering::Relaxed) & way != 0
}

/// Whether 64-byte vectors are multiplied by powers of x with shifts of bits.
#[inline(always)]
pub(super) fn shifts() -> bool {
    has(SHIFTS)
}

/// Whether vectors of `BYTES` bytes take three products for one.
#[inline(always)]
pub(super) fn three_products<const BYTES: usize>() -> bool {
    has(match BYTES {
        16 => THREE_128,
        32 => THREE_256,
        _ => THREE_512,
    })
}

/// Whether integers beside 16-byte vectors are in longer ones, where the CPU has them.
#[inline(always)]
pub(super) fn long_integers() -> bool {
    has(LONG_INTEGERS)
}

/// Looks at the CPU, once: in a virtual machine even that takes some ten microseconds.
///
/// # Safety
/// The CPU has the instructions of the back-end `aes-ni`.
pub(super) unsafe fn look() {
    if has(LOOKED) {
        return;
    }
    let ways = match known(&Cpu::this()) {
        Some((_, ways)) => ways,
        // SAFETY: the caller's promise, and asked for.
        None => MEASURED | unsafe { measured(super::has_vaes256(), super::has_vaes512()) },
    };
    // Somebody else may have come first, or have set them.
    let _ = PORTS.compare_exchange(
        0,
        LOOKED | LONG_INTEGERS | ways,
        Ordering::Relaxed,
        Ordering::Relaxed,
    );
}

/// Which CPU it is, by CPUID, leaves 0 and 1.
#[derive(Clone, Copy)]
struct Cpu {
    maker: [u8; 12],
    family: u32,
    model: u32,
}

impl Cpu {
    fn this() -> Self {
        // A safe function in later releases of Rust.
        #[allow(unused_unsafe)]
        // SAFETY: every x86-64 CPU has the instruction, and both leaves.
        let [zero, one] = unsafe { [__cpuid(0), __cpuid(1)] };
        let mut maker = [0; 12];
        maker[..4].copy_from_slice(&zero.ebx.to_le_bytes());
        maker[4..8].copy_from_slice(&zero.edx.to_le_bytes());
        maker[8..].copy_from_slice(&zero.ecx.to_le_bytes());
        // Older families have nothing in the upper bits of the model.
        let family = one.eax >> 8 & 0xf;
        Self {
            maker,
            family: family
                + if family == 0xf {
                    one.eax >> 20 & 0xff
                } else {
                    0
                },
            model: one.eax >> 4 & 0xf | one.eax >> 12 & 0xf0,
        }
    }
}

/// What has been measured: the maker's name, and the ways. Only the very models: their relatives may have
/// other ports, or fewer.
///
/// Intel's, on Emerald Rapids: AES rounds and shifts of 64-byte vectors share a port, and of
/// products one starts in each cycle. AMD's Zen 5: shifts start beside rounds,
/// `vpmultishiftqb` takes a round's turn, and of products one starts in two cycles. AMD's Zen 4:
/// as Zen 5, but 64-byte vectors take
/// two turns of everything, and beside as few rounds sums are as dear as a fourth product.
fn known(cpu: &Cpu) -> Option<(&'static str, u8)> {
    match (&cpu.maker, cpu.family, cpu.model) {
        (b"GenuineIntel", 6, 207) => Some(("Intel", 0)),
        (b"AuthenticAMD", 26, 2) => Some(("AMD", WAYS)),
        (b"AuthenticAMD", 25, 17) => Some(("AMD", SHIFTS | THREE_128 | THREE_256)),
        _ => None,
    }
}

/// The time of one call, in the time stamp counter's units.
fn ticks(of: impl Fn()) -> u64 {
    // SAFETY: every x86-64 CPU has the counter; where a program must not read it, it could
    // not run the C library's clock either.
    let start = unsafe { _rdtsc() };
    of();
    // SAFETY: as above.
    let end = unsafe { _rdtsc() };
    end.wrapping_sub(start)
}

/// Whether `way` takes less than nineteen twentieths of the time of `usual`. Of each the least time of some counts,
/// since whoever else uses the core only makes it longer; in turns, so that both meet what lasts. The
/// first turn is for the CPU, which may have to switch its longest vectors on.
fn saves(way: impl Fn(), usual: impl Fn()) -> bool {
    let [mut with, mut without] = [u64::MAX; 2];
    for turn in 0..=12 {
        let (one, other) = (ticks(&way), ticks(&usual));
        if turn > 0 {
            with = with.min(one);
            without = without.min(other);
        }
    }
    with.saturating_mul(20) < without.saturating_mul(19)
}

/// What loops over instructions on registers, none of which waits for another, beside four AES
/// rounds each time.
macro_rules! beside_rounds {
    ($features:literal, $size:literal: $($instruction:literal)*) => {{
        #[target_feature(enable = $features)]
        fn beside_rounds() {
            // SAFETY: computes on registers that it names.
            unsafe {
                core::arch::asm!(
                    "2:",
                    concat!("vaesenc ", $size, "mm2, ", $size, "mm0, ", $size, "mm1"),
                    concat!("vaesenc ", $size, "mm3, ", $size, "mm0, ", $size, "mm1"),
                    concat!("vaesenc ", $size, "mm4, ", $size, "mm0, ", $size, "mm1"),
                    concat!("vaesenc ", $size, "mm5, ", $size, "mm0, ", $size, "mm1"),
                    $(concat!($instruction, " ", $size, "mm6, ", $size, "mm0, ", $size, "mm1"),)*
                    "dec {count}",
                    "jnz 2b",
                    count = inout(reg) 256_u64 => _,
                    out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                    out("xmm4") _, out("xmm5") _, out("xmm6") _,
                    options(nomem, nostack),
                );
            }
            // Else older instructions that follow may wait for the upper halves, on some CPUs.
            _mm256_zeroupper();
        }
        // SAFETY: the caller of `measured` promises the features.
        || unsafe { beside_rounds() }
    }};
}

/// The ways that are faster here, by more than what two measurings differ.
///
/// # Safety
/// The CPU has the instructions of the back-end `aes-ni`, and of the other two as they say.
unsafe fn measured(vaes256: bool, vaes512: bool) -> u8 {
    // Four products and a sum against three, with what both factors' halves take.
    macro_rules! three_is_faster {
        ($features:literal, $size:literal, $xor:literal) => {
            saves(
                beside_rounds!($features, $size:
                    "vpclmullqlqdq" "vpclmullqhqdq" $xor $xor "vpunpcklqdq" "vpclmulhqhqdq" "vpunpckhqdq" $xor),
                beside_rounds!($features, $size:
                    "vpclmullqlqdq" "vpclmullqhqdq" "vpclmulhqlqdq" "vpclmulhqhqdq" $xor),
            )
        };
    }
    let mut ways = 0;
    if three_is_faster!("aes,avx,pclmulqdq", "x", "vpxor") {
        ways |= THREE_128;
    }
    if vaes256 && three_is_faster!("avx2,vaes,vpclmulqdq", "y", "vpxor") {
        ways |= THREE_256;
    }
    if vaes512 {
        if three_is_faster!("avx512f,vaes,vpclmulqdq", "z", "vpxorq") {
            ways |= THREE_512;
        }
        let by_shifts = beside_rounds!("avx512f,vaes", "z": "vpsllvq" "vpsrlvq");
        let without = beside_rounds!("avx512f,avx512vbmi,vaes", "z": "vpmultishiftqb" "vpxorq");
        if saves(by_shifts, without) {
            ways |= SHIFTS;
        }
    }
    ways
}

/// What a back-end does; `None` if it has one way only.
pub(crate) fn of(backend: Backend) -> Option<Ports> {
    if backend == Backend::Portable {
        return None;
    }
    let ways = PORTS.load(Ordering::Relaxed);
    let source = if ways & SET != 0 {
        PortsSource::Set
    } else if ways & MEASURED != 0 {
        PortsSource::Measured
    } else {
        let cpu = Cpu::this();
        let (maker, _) = known(&cpu)?;
        PortsSource::Table {
            maker,
            family: cpu.family,
            model: cpu.model,
        }
    };
    of_ways(backend, ways, source)
}

/// What it would do if the CPU were timed now.
#[cfg(any(test, feature = "hazmat"))]
pub(crate) fn timed(backend: Backend) -> Option<Ports> {
    if !super::has_aes_ni() {
        return None;
    }
    // SAFETY: asked for.
    let ways = unsafe { measured(super::has_vaes256(), super::has_vaes512()) };
    of_ways(backend, ways | LONG_INTEGERS, PortsSource::Measured)
}

fn of_ways(backend: Backend, ways: u8, source: PortsSource) -> Option<Ports> {
    let has = |way| ways & way != 0;
    let three = match backend {
        Backend::AesNi => THREE_128,
        Backend::Vaes256 => THREE_256,
        Backend::Vaes512 => THREE_512,
        _ => return None,
    };
    Some(Ports {
        shifts: (backend == Backend::Vaes512).then(|| has(SHIFTS)),
        three_products: has(three),
        long_integers: (backend == Backend::AesNi).then(|| has(LONG_INTEGERS) && super::has_avx2()),
        source,
    })
}

/// Sets the ways of all back-ends, whatever the CPU. Nothing but speed depends on it.
#[cfg(any(test, feature = "hazmat"))]
pub(crate) fn set(shifts: bool, three_products: bool, long_integers: bool) {
    let mut ways = LOOKED | SET;
    if shifts {
        ways |= SHIFTS;
    }
    if three_products {
        ways |= THREE_128 | THREE_256 | THREE_512;
    }
    if long_integers {
        ways |= LONG_INTEGERS;
    }
    PORTS.store(ways, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn makers_families_and_models() {
        let known_of = |maker: &[u8; 12], family, model| {
            let maker = *maker;
            known(&Cpu {
                maker,
                family,
                model,
            })
        };
        assert_eq!(known_of(b"GenuineIntel", 6, 207), Some(("Intel", 0)));
        assert_eq!(known_of(b"AuthenticAMD", 26, 2), Some(("AMD", WAYS)));
        let zen_4 = Some(("AMD", SHIFTS | THREE_128 | THREE_256));
        assert_eq!(known_of(b"AuthenticAMD", 25, 17), zen_4);
        // Gracemont, Strix Point, Milan, Hygon.
        assert_eq!(known_of(b"GenuineIntel", 6, 190), None);
        assert_eq!(known_of(b"AuthenticAMD", 26, 36), None);
        assert_eq!(known_of(b"AuthenticAMD", 25, 1), None);
        assert_eq!(known_of(b"HygonGenuine", 24, 0), None);
    }

    /// Whichever way is faster, measuring comes to an end and takes only what the CPU has.
    #[test]
    fn measuring_runs_what_the_cpu_has() {
        use crate::arch::x86::{has_aes_ni, has_vaes256, has_vaes512};
        if !has_aes_ni() {
            return;
        }
        let (vaes256, vaes512) = (has_vaes256(), has_vaes512());
        // SAFETY: asked for.
        let ways = unsafe { measured(vaes256, vaes512) };
        assert_eq!(ways & !WAYS, 0);
        assert!(vaes256 || ways & THREE_256 == 0);
        assert!(vaes512 || ways & (SHIFTS | THREE_512) == 0);
    }
}
