//! The ciphers in memory, by the CPU time of one thread.

use std::fmt::Write as _;
use std::time::Duration;

use sector_cipher::{Backend, Cipher, CipherSpec, IvMode, Mode, SectorCount, SectorSize};
use serde::Serialize;

use super::{cpu_time, rate};
use crate::failure::{Exit, Failure, Result};

/// CPU time per figure.
const LONG_ENOUGH: Duration = Duration::from_millis(25);
/// Sectors per call.
const RUNS: [usize; 2] = [1, 64];
const SECTOR_SIZES: [u32; 2] = [512, 4096];

/// One cipher at one sector size.
#[derive(Debug, Serialize)]
pub(super) struct Figures {
    cipher: String,
    key_bits: usize,
    /// Nobody should make a new volume with it.
    broken: bool,
    backend: &'static str,
    sector_size: u32,
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
        spec.iv
            == match spec.mode {
                Mode::AesCbc => IvMode::EssivSha256,
                _ => IvMode::Plain64,
            }
    })
}

/// On the back-end given, or on the best one.
pub(super) fn measure(backend: Option<Backend>) -> Result<Vec<Figures>> {
    let backend = backend.unwrap_or_else(Backend::best);
    let mut all = Vec::new();
    for spec in ciphers() {
        for &key_len in spec.key_lengths() {
            for sector_size in SECTOR_SIZES {
                let broken =
                    || Failure::new(Exit::Device, format!("{spec} is missing in this build"));
                let size = SectorSize::new(sector_size).ok_or_else(broken)?;
                // XTS refuses keys of two equal halves elsewhere; any key will do here.
                let key: Vec<u8> = (0..=u8::MAX).take(key_len).collect();
                let cipher = Cipher::new(spec, size, SectorCount::Units512, &key, Some(backend))
                    .map_err(|_| broken())?;
                let runs = RUNS.iter().map(|&sectors| one(&cipher, sectors)).collect();
                all.push(Figures {
                    cipher: spec.to_string(),
                    key_bits: key_len * 8,
                    broken: spec.mode.is_broken(),
                    backend: backend.name(),
                    sector_size,
                    runs,
                });
            }
        }
    }
    Ok(all)
}

fn one(cipher: &Cipher, sectors: usize) -> Run {
    let mut data = vec![0_u8; sectors * cipher.sector_size().bytes()];
    Run {
        sectors,
        encrypt_mb_s: speed(&mut data, |data| cipher.encrypt(0, data)),
        decrypt_mb_s: speed(&mut data, |data| cipher.decrypt(0, data)),
    }
}

fn speed(data: &mut [u8], mut call: impl FnMut(&mut [u8])) -> f64 {
    call(data);
    // Small runs are over sooner than the clock is read: many per look.
    let calls = (128 * 1024 / data.len()).max(1);
    let started = cpu_time();
    let mut bytes = 0;
    loop {
        for _ in 0..calls {
            call(data);
        }
        bytes += (calls * data.len()) as u64;
        let used = cpu_time().saturating_sub(started);
        if used >= LONG_ENOUGH {
            return rate(bytes, used);
        }
    }
}

/// A line for each cipher and key length.
pub(super) fn table(all: &[Figures]) -> String {
    let backend = all.first().map_or("", |figures| figures.backend);
    let mut text = format!(
        "Ciphers in memory, one core, back-end {backend}, MB/s by CPU time (encrypt / decrypt)\n{:<37}",
        ""
    );
    for sector_size in SECTOR_SIZES {
        let _ = write!(text, "{:>30}", format!("{sector_size}-byte sectors"));
    }
    let _ = write!(text, "\n{:<32}{:>5}", "cipher", "bits");
    for _ in SECTOR_SIZES {
        for sectors in RUNS {
            let name = match sectors {
                1 => "one by one".to_owned(),
                _ => format!("runs of {sectors}"),
            };
            let _ = write!(text, "{name:>15}");
        }
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
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_is_measured_once() {
        let mut modes: Vec<Mode> = CipherSpec::all().map(|spec| spec.mode).collect();
        modes.dedup();
        assert_eq!(ciphers().map(|spec| spec.mode).collect::<Vec<_>>(), modes);
    }

    #[test]
    fn a_broken_cipher_is_marked() {
        let figures = |cipher: &str, broken, sector_size| Figures {
            cipher: cipher.to_owned(),
            key_bits: 128,
            broken,
            backend: "portable",
            sector_size,
            runs: RUNS
                .map(|sectors| Run {
                    sectors,
                    encrypt_mb_s: 1000.4,
                    decrypt_mb_s: 999.6,
                })
                .into(),
        };
        let rows = |cipher, broken| SECTOR_SIZES.map(|size| figures(cipher, broken, size));
        let mut all = Vec::from(rows("sound", false));
        let sound = table(&all);
        assert!(sound.ends_with("sound                             128    1000 / 1000    1000 / 1000    1000 / 1000    1000 / 1000"), "{sound}");
        assert!(!sound.contains('*'));
        all.extend(rows("weak", true));
        let text = table(&all);
        assert!(text.contains("\nweak *  "), "{text}");
        assert_eq!(text.lines().count(), 6);
    }
}
