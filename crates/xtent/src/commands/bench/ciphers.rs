//! The ciphers in memory: by the CPU time of one thread, or by the clock with several.

use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use sector_cipher::{Backend, Cipher, CipherSpec, IvMode, Mode, SectorCount, SectorSize};
use serde::Serialize;

use super::{cpu_time, rate};
use crate::failure::{Exit, Failure, Result};
use crate::size::show_size;

/// CPU time per figure, and per thread.
const LONG_ENOUGH: Duration = Duration::from_millis(25);
/// Sectors per run, unless its size is given.
const RUN: usize = 64;
const SECTOR_SIZES: [u32; 2] = [512, 4096];

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub(super) struct What {
    pub(super) backend: Backend,
    /// All of them otherwise.
    pub(super) cipher: Option<CipherSpec>,
    /// Bytes per run; [`RUN`] sectors otherwise.
    pub(super) run: Option<usize>,
    pub(super) threads: NonZeroUsize,
}

impl What {
    /// Sectors per call: one by one, and in runs.
    fn runs(&self, sector_size: u32) -> [usize; 2] {
        let run = self.run.map_or(RUN, |bytes| bytes / sector_size as usize);
        [1, run]
    }
}

/// One cipher at one sector size.
#[derive(Debug, Serialize)]
pub(super) struct Figures {
    cipher: String,
    key_bits: usize,
    /// Nobody should make a new volume with it.
    broken: bool,
    backend: &'static str,
    sector_size: u32,
    threads: usize,
    runs: Vec<Run>,
}

/// Megabytes per second for runs of one length.
#[derive(Debug, Serialize)]
struct Run {
    sectors: usize,
    encrypt_mb_s: f64,
    decrypt_mb_s: f64,
}

/// Every mode once, with the IVs that volumes have it with.
fn ciphers() -> impl Iterator<Item = CipherSpec> {
    CipherSpec::all().filter(|spec| {
        spec.iv()
            == match spec.mode() {
                Mode::AesCbc => IvMode::EssivSha256,
                _ => IvMode::Plain64,
            }
    })
}

/// Measures, cipher by cipher.
pub(super) fn measure(what: &What) -> Result<Vec<Figures>> {
    let backend = what.backend;
    let mut all = Vec::new();
    let chosen: Vec<CipherSpec> = what
        .cipher
        .map_or_else(|| ciphers().collect(), |it| vec![it]);
    for spec in chosen {
        for &key_len in spec.key_lengths() {
            for sector_size in SECTOR_SIZES {
                let broken =
                    || Failure::new(Exit::Device, format!("{spec} is missing in this build"));
                let size = SectorSize::new(sector_size).map_err(|_| broken())?;
                // XTS refuses keys of two equal halves elsewhere; any key will do here.
                let key: Vec<u8> = (0..=u8::MAX).take(key_len).collect();
                let cipher = Cipher::new(spec, size, SectorCount::Units512, &key, Some(backend))
                    .map_err(|_| broken())?;
                let runs = what.runs(sector_size);
                let runs = runs
                    .iter()
                    .map(|&sectors| one(&cipher, sectors, what.threads))
                    .collect();
                all.push(Figures {
                    cipher: spec.to_string(),
                    key_bits: key_len * 8,
                    broken: spec.mode().is_broken(),
                    backend: backend.name(),
                    sector_size,
                    threads: what.threads.get(),
                    runs,
                });
            }
        }
    }
    Ok(all)
}

fn one(cipher: &Cipher, sectors: usize, threads: NonZeroUsize) -> Run {
    let len = sectors * cipher.sector_size().bytes();
    Run {
        sectors,
        encrypt_mb_s: speed(len, threads, |data| cipher.encrypt(0, data)),
        decrypt_mb_s: speed(len, threads, |data| cipher.decrypt(0, data)),
    }
}

/// Megabytes per second of calls for `len` bytes each, by one thread's CPU time or several's clock.
pub(super) fn speed(len: usize, threads: NonZeroUsize, call: impl Fn(&mut [u8]) + Sync) -> f64 {
    if threads.get() == 1 {
        let (bytes, used) = repeat(&mut vec![0; len], call, || (), cpu_time);
        return rate(bytes, used);
    }
    let together = Barrier::new(threads.get());
    let clock = Instant::now();
    // Each by the same clock from the same moment: their rates add up.
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads.get())
            .map(|_| {
                scope.spawn(|| {
                    let start = || {
                        together.wait();
                    };
                    let (bytes, used) = repeat(&mut vec![0; len], &call, start, || clock.elapsed());
                    rate(bytes, used)
                })
            })
            .collect();
        running
            .into_iter()
            .map(|thread| thread.join().unwrap_or_default())
            .sum()
    })
}

/// Calls for long enough by `clock`, after one call that counts for nothing: bytes, and
/// the time that they took.
fn repeat(
    data: &mut [u8],
    call: impl Fn(&mut [u8]),
    start: impl FnOnce(),
    clock: impl Fn() -> Duration,
) -> (u64, Duration) {
    call(data);
    start();
    // Small runs are over sooner than the clock is read: many per look.
    let calls = (128 * 1024 / data.len()).max(1);
    let started = clock();
    let mut bytes = 0;
    loop {
        for _ in 0..calls {
            call(data);
        }
        bytes += (calls * data.len()) as u64;
        let used = clock().saturating_sub(started);
        if used >= LONG_ENOUGH {
            return (bytes, used);
        }
    }
}

/// What the back-end does in a way that suits this CPU; `null` if it has one way only.
pub(super) fn ports(backend: Backend) -> serde_json::Value {
    let ports = backend.ports().map(|ports| {
        serde_json::json!({
            "shifts": ports.shifts,
            "three_products": ports.three_products,
            "long_integers": ports.long_integers,
            "source": ports.source.to_string(),
        })
    });
    ports.into()
}

/// A line for each cipher and key length.
pub(super) fn table(all: &[Figures], what: &What) -> String {
    let backend = what.backend;
    let how = match what.threads.get() {
        1 => format!("one core, back-end {backend}, MB/s by CPU time"),
        threads => format!("{threads} threads, back-end {backend}, MB/s of all by the clock"),
    };
    let mut text = format!("Ciphers in memory, {how} (encrypt / decrypt)\n{:<37}", "");
    for sector_size in SECTOR_SIZES {
        let _ = write!(text, "{:>30}", format!("{sector_size}-byte sectors"));
    }
    let _ = write!(text, "\n{:<32}{:>5}", "cipher", "bits");
    for _ in SECTOR_SIZES {
        let name = match what.run {
            None => format!("runs of {RUN}"),
            Some(bytes) => show_size(bytes as u64),
        };
        let _ = write!(text, "{:>15}{name:>15}", "one by one");
    }
    for sizes in all.chunks(SECTOR_SIZES.len()) {
        let Some(first) = sizes.first() else { continue };
        let mark = if first.broken { " *" } else { "" };
        let name = format!("{}{mark}", first.cipher);
        let _ = write!(text, "\n{name:<32}{:>5}", first.key_bits);
        for run in sizes.iter().flat_map(|figures| &figures.runs) {
            let pair = format!("{:.0} / {:.0}", run.encrypt_mb_s, run.decrypt_mb_s);
            let _ = write!(text, "{pair:>15}");
        }
    }
    if all.iter().any(|figures| figures.broken) {
        text += "\n* broken: an attack is known. Only to open what exists.";
    }
    if let Some(ports) = backend.ports() {
        let _ = write!(text, "\nChosen for this CPU: {ports}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_is_measured_once() {
        let mut modes: Vec<Mode> = CipherSpec::all().map(|spec| spec.mode()).collect();
        modes.dedup();
        assert_eq!(ciphers().map(|spec| spec.mode()).collect::<Vec<_>>(), modes);
    }

    #[test]
    fn a_broken_cipher_is_marked() {
        let figures = |cipher: &str, broken, sector_size| Figures {
            cipher: cipher.to_owned(),
            key_bits: 128,
            broken,
            backend: "portable",
            sector_size,
            threads: 1,
            runs: [1, RUN]
                .map(|sectors| Run {
                    sectors,
                    encrypt_mb_s: 1000.4,
                    decrypt_mb_s: 999.6,
                })
                .into(),
        };
        let rows = |cipher, broken| SECTOR_SIZES.map(|size| figures(cipher, broken, size));
        let mut all = Vec::from(rows("sound", false));
        let what = What {
            backend: Backend::Portable,
            cipher: None,
            run: None,
            threads: NonZeroUsize::MIN,
        };
        let sound = table(&all, &what);
        assert!(sound.ends_with("sound                             128    1000 / 1000    1000 / 1000    1000 / 1000    1000 / 1000"), "{sound}");
        assert!(!sound.contains('*'));
        all.extend(rows("weak", true));
        let text = table(&all, &what);
        assert!(text.contains("\nweak *  "), "{text}");
        assert_eq!(text.lines().count(), 6);
    }
}
