//! `xtent bench`: what this machine does, in memory and through a volume.

mod ciphers;
mod derivations;
mod device;

use std::path::PathBuf;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::args::{HeaderArgs, UnlockArgs};
use crate::cli::Global;
use crate::failure::Result;

const MANUAL: &str = "\
EXAMPLES:
  Ciphers and key derivations of this machine:
    xtent bench
  How much of a disk's speed remains through the volume on it:
    xtent bench /dev/sdX

NOTES:
  Ciphers are measured in memory on one core by its CPU time, one sector per call
  and in runs of 64 sectors: a run is what one request hands over. The back-end
  is the best one that the CPU has; --cpu forces another. Key derivations are
  measured as cryptsetup benchmark does.
  With DEVICE ranges of it are read raw and through the volume, in turns, after
  a first read has brought them into the page cache as far as they fit. Nothing
  is ever written.";

/// Measure ciphers and key derivations, and a volume's reads
///
/// Without DEVICE nothing but memory is used, and no passphrase is needed.
#[derive(clap::Args, Debug)]
#[command(after_long_help = MANUAL)]
pub(crate) struct Args {
    /// Volume to read from as well (never written)
    device: Option<PathBuf>,
    #[command(flatten)]
    detached: HeaderArgs,
    /// Leave out the key derivations, which take some seconds each
    #[arg(long)]
    no_kdf: bool,
    #[command(flatten)]
    unlock: UnlockArgs,
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    let output = global.output();
    // First what can fail.
    let through = match &args.device {
        Some(path) => {
            args.unlock.key.source().check()?;
            Some(device::open(path, args, global)?)
        }
        None => None,
    };
    output.note("Measuring ciphers, some seconds ...");
    let ciphers = ciphers::measure(global.cpu)?;
    if !output.json {
        output.line(ciphers::table(&ciphers))?;
    }
    let derivations = if args.no_kdf {
        Vec::new()
    } else {
        output.note("Measuring key derivations ...");
        derivations::measure()?
    };
    if !output.json && !derivations.is_empty() {
        output.line(derivations::table(&derivations))?;
    }
    let reads = through
        .map(|t| device::measure(&t))
        .transpose()?
        .unwrap_or_default();
    if output.json {
        return output.object(&serde_json::json!({
            "ciphers": ciphers,
            "key_derivations": derivations,
            "reads": reads,
        }));
    }
    if !reads.is_empty() {
        output.line(device::table(&reads))?;
    }
    Ok(())
}

/// CPU time that this thread has used.
fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// Decimal megabytes per second.
fn rate(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / 1e6 / time.as_secs_f64().max(1e-9)
}
