//! Reads from a device, raw and through the volume, side by side.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use xtent_store::Access;
use xtent_volume::{DiscardPolicy, Volume};

use super::{cpu_time, rate};
use crate::args::{DeviceArgs, RECONNECT};
use crate::cli::Global;
use crate::disk::Disk;
use crate::failure::Result;
use crate::open::Container;

/// At most so much of the volume is read: it should fit into the page cache.
const RANGE: u64 = 512 << 20;
/// Wall time for each figure, at most.
const LONG_ENOUGH: Duration = Duration::from_secs(1);

/// The open volume, the store below it, and where the one starts in the other.
pub(super) struct Through {
    volume: Volume,
    store: Disk,
    offset: u64,
}

pub(super) fn open(path: &Path, args: &super::Args, global: &Global) -> Result<Through> {
    let output = global.output();
    let device = DeviceArgs {
        device: path.to_owned(),
        partition: args.partition,
        detached: args.detached.clone(),
        expect_header: Vec::new(),
        reconnect: RECONNECT,
        direct_io: false,
    };
    // Without the lock: it only reads, and a served volume may be measured.
    let container = Container::open(&device, Access::ReadOnly, false, &output)?;
    let config = container.plan(true, DiscardPolicy::Never, global.cpu)?;
    let store = container.data.clone();
    let offset = config.offset;
    let (volume, _) = container.volume_and_keyslot(&args.unlock, &config, &output)?;
    Ok(Through {
        volume,
        store,
        offset,
    })
}

/// One way of reading, raw and through the volume.
#[derive(Debug, Serialize)]
pub(super) struct Figures {
    pattern: &'static str,
    bytes_per_read: usize,
    raw_mb_s: f64,
    volume_mb_s: f64,
    raw_cpu_s_per_gb: f64,
    volume_cpu_s_per_gb: f64,
}

pub(super) fn measure(through: &Through) -> Result<Vec<Figures>> {
    let range = through.volume.size().min(RANGE);
    let mut all = Vec::new();
    for (pattern, piece, random) in [
        ("sequential", 1 << 20, false),
        ("sequential", 64 << 10, false),
        ("random", 4096, true),
    ] {
        let pieces = range / piece as u64;
        if pieces == 0 {
            continue;
        }
        let mut buf = vec![0; piece];
        let raw = |buf: &mut [u8], at: u64| Ok(through.store.read_at(buf, through.offset + at)?);
        let volume = |buf: &mut [u8], at: u64| Ok(through.volume.read_at(buf, at)?);
        pass(&mut buf, pieces, random, raw)?;
        let raw = pass(&mut buf, pieces, random, raw)?;
        let volume = pass(&mut buf, pieces, random, volume)?;
        all.push(Figures {
            pattern,
            bytes_per_read: piece,
            raw_mb_s: rate(raw.bytes, raw.wall),
            volume_mb_s: rate(volume.bytes, volume.wall),
            raw_cpu_s_per_gb: raw.cpu_per_gb(),
            volume_cpu_s_per_gb: volume.cpu_per_gb(),
        });
    }
    Ok(all)
}

struct Pass {
    bytes: u64,
    wall: Duration,
    cpu: Duration,
}

impl Pass {
    fn cpu_per_gb(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e9 / self.bytes as f64
    }
}

/// Reads pieces, each pass the same ones in the same order.
fn pass(
    buf: &mut [u8],
    pieces: u64,
    random: bool,
    read: impl Fn(&mut [u8], u64) -> Result<()>,
) -> Result<Pass> {
    let started = Instant::now();
    let cpu = cpu_time();
    let mut bytes = 0;
    let mut state = 1_u64;
    for i in 0..pieces {
        let piece = if random {
            // Knuth's MMIX generator: scattered, and the same every time.
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 16) % pieces
        } else {
            i
        };
        read(buf, piece * buf.len() as u64)?;
        bytes += buf.len() as u64;
        if started.elapsed() >= LONG_ENOUGH {
            break;
        }
    }
    Ok(Pass {
        bytes,
        wall: started.elapsed(),
        cpu: cpu_time().saturating_sub(cpu),
    })
}

pub(super) fn table(all: &[Figures]) -> String {
    let mut text = format!(
        "\nReads, one thread\n{:<24}{:>11}{:>13}{:>17}{:>19}",
        "", "raw MB/s", "volume MB/s", "raw CPU s/GB", "volume CPU s/GB"
    );
    for f in all {
        let name = format!("{} {} KiB", f.pattern, f.bytes_per_read / 1024);
        let _ = write!(
            text,
            "\n{name:<24}{:>11.0}{:>13.0}{:>17.3}{:>19.3}",
            f.raw_mb_s, f.volume_mb_s, f.raw_cpu_s_per_gb, f.volume_cpu_s_per_gb
        );
    }
    text
}
