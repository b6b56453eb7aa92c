//! Whether the core is ours. On a virtual machine the other hardware thread of a core
//! may belong to somebody else. It takes the place of instructions, of which a
//! cipher needs many and the AES unit alone only a few: ratios to the latter
//! would tell how busy the neighbour is.
#![allow(unsafe_code)]

use std::time::Duration;

/// At this share of what it can begin in a cycle a core counts as ours.
pub(crate) const ALONE: f64 = 0.97;

/// So many rates tell what the core does alone.
const SOME: usize = 256;
/// Above this share a rate comes from an interruption.
const INTERRUPTED: f64 = 1.05;

/// A core, by what it has done so far.
pub(crate) struct Core {
    /// The newest, up to [`SOME`] of them.
    rates: Vec<f64>,
    /// What it does when it is ours.
    alone: f64,
}

impl Core {
    /// Looks for a while what it can do, since it may be shared just now.
    pub(crate) fn new() -> Self {
        let mut core = Self {
            rates: Vec::with_capacity(SOME),
            alone: 0.0,
        };
        for _ in 0..1000 {
            core.share();
            core.share();
            std::thread::sleep(Duration::from_millis(1));
        }
        core
    }

    /// Of the instructions that can begin in a cycle, how many do now: 1 is all.
    pub(crate) fn share(&mut self) -> f64 {
        // The middle one of three: an interruption makes one of them mean nothing.
        let mut rates = [(); 3].map(|()| per_cycle());
        rates.sort_by(f64::total_cmp);
        self.share_of(rates[1])
    }

    /// A rate as a share of what a twentieth of some others reach, as long as there never
    /// were better ones: single ones are too high because of interruptions, and a
    /// neighbour that is busy for long does not make the core smaller.
    fn share_of(&mut self, rate: f64) -> f64 {
        self.rates.push(rate);
        if self.rates.len() == SOME {
            self.rates.sort_by(f64::total_cmp);
            self.alone = self.alone.max(self.rates[SOME * 95 / 100]);
            self.rates.clear();
        }
        let share = rate / self.alone;
        if share > INTERRUPTED { 0.0 } else { share }
    }
}

/// Additions that do not depend on each other, in the time of a multiplication that
/// waits for the one before. Both take a fixed number of cycles on a core alone.
#[cfg(target_arch = "x86_64")]
fn per_cycle() -> f64 {
    use core::arch::asm;
    use core::arch::x86_64::{__rdtscp, _rdtsc};
    const CHAINED: usize = 200;
    const SIDE_BY_SIDE: usize = 1000;
    // SAFETY: reads the clock, and computes on registers that it says it changes.
    unsafe {
        let start = _rdtsc();
        for _ in 0..CHAINED {
            asm!(
                "imul {a}, {a}", "imul {a}, {a}", "imul {a}, {a}", "imul {a}, {a}",
                "imul {a}, {a}", "imul {a}, {a}", "imul {a}, {a}", "imul {a}, {a}",
                a = out(reg) _, options(nomem, nostack),
            );
        }
        let between = __rdtscp(&mut 0);
        for _ in 0..SIDE_BY_SIDE {
            asm!(
                "add {a}, {b}", "add {c}, {b}", "add {d}, {b}", "add {e}, {b}", "add {f}, {b}", "add {g}, {b}",
                "add {a}, {b}", "add {c}, {b}", "add {d}, {b}", "add {e}, {b}", "add {f}, {b}", "add {g}, {b}",
                "add {a}, {b}", "add {c}, {b}", "add {d}, {b}", "add {e}, {b}", "add {f}, {b}", "add {g}, {b}",
                "add {a}, {b}", "add {c}, {b}", "add {d}, {b}", "add {e}, {b}", "add {f}, {b}", "add {g}, {b}",
                a = out(reg) _, b = out(reg) _, c = out(reg) _, d = out(reg) _,
                e = out(reg) _, f = out(reg) _, g = out(reg) _,
                options(nomem, nostack),
            );
        }
        let end = __rdtscp(&mut 0);
        (between - start) as f64 / (end - between).max(1) as f64
    }
}

/// Nothing is known of other CPUs.
#[cfg(not(target_arch = "x86_64"))]
fn per_cycle() -> f64 {
    1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_is_shared_when_it_does_less_than_before() {
        let mut core = Core {
            rates: Vec::with_capacity(SOME),
            alone: 0.0,
        };
        // Alone a tenth of the time, and a few readings that mean nothing.
        for i in 0..512 {
            core.share_of(match i % 100 {
                0 => 50.0,
                1..=10 => 5.0,
                _ => 3.0,
            });
        }
        assert!(core.share_of(5.0) >= ALONE);
        assert!(core.share_of(3.0) < ALONE);
        assert!(core.share_of(50.0) < ALONE);
        // Not alone for long.
        for _ in 0..2048 {
            core.share_of(3.0);
        }
        assert!(core.share_of(5.0) >= ALONE);
        assert!(core.share_of(3.0) < ALONE);
    }
}
