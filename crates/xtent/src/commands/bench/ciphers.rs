//! The ciphers in memory, by the CPU time of one thread.

use std::fmt::Write as _;
use std::time::Duration;

use sector_cipher::{Backend, Cipher, CipherSpec, SectorCount, SectorSize};
use serde::Serialize;

use super::{cpu_time, rate};
use crate::failure::{Exit, Failure, Result};

/// CPU time per figure.
const LONG_ENOUGH: Duration = Duration::from_millis(25);
/// Sectors per call.
const RUNS: [usize; 3] = [1, 64, 2048];
const SECTOR_SIZES: [u32; 2] = [512, 4096];
/// Name and bits of key.
const CIPHERS: [(&str, usize); 3] = [
    ("aes-xts-plain64", 512),
    ("aes-xts-plain64", 256),
    ("aes-cbc-essiv:sha256", 256),
];

/// One cipher on one back-end at one sector size.
#[derive(Debug, Serialize)]
pub(super) struct Figures {
    cipher: &'static str,
    key_bits: usize,
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

pub(super) fn measure(only: Option<Backend>) -> Result<Vec<Figures>> {
    let mut all = Vec::new();
    for (name, key_bits) in CIPHERS {
        let broken = || Failure::new(Exit::Device, format!("{name} is missing in this build"));
        let spec: CipherSpec = name.parse().map_err(|_| broken())?;
        for &backend in Backend::available() {
            if only.is_some_and(|only| only != backend) {
                continue;
            }
            for sector_size in SECTOR_SIZES {
                let size = SectorSize::new(sector_size).ok_or_else(broken)?;
                // XTS refuses keys of two equal halves elsewhere; any key will do here.
                let key: Vec<u8> = (0..=u8::MAX).take(key_bits / 8).collect();
                let cipher = Cipher::new(spec, size, SectorCount::Units512, &key, Some(backend))
                    .map_err(|_| broken())?;
                let runs = RUNS.iter().map(|&sectors| one(&cipher, sectors)).collect();
                all.push(Figures {
                    cipher: name,
                    key_bits,
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

pub(super) fn table(all: &[Figures]) -> String {
    let mut text = format!(
        "Ciphers in memory, one core, MB/s by CPU time (encrypt / decrypt)\n{:<22}{:>5} {:<9}{:>7}",
        "cipher", "bits", "back-end", "sector"
    );
    for sectors in RUNS {
        let _ = write!(text, "{:>18}", format!("run of {sectors}"));
    }
    for f in all {
        let _ = write!(
            text,
            "\n{:<22}{:>5} {:<9}{:>7}",
            f.cipher, f.key_bits, f.backend, f.sector_size
        );
        for run in &f.runs {
            let pair = format!("{:.0} / {:.0}", run.encrypt_mb_s, run.decrypt_mb_s);
            let _ = write!(text, "{pair:>18}");
        }
    }
    text
}
