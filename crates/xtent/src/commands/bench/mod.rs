//! `xtent bench`: what this machine does, in memory and through a volume.

mod ciphers;
mod derivations;
mod device;
mod engine;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use sector_cipher::{Backend, CipherSpec};

use crate::args::{EngineChoice, HeaderArgs, UnlockArgs};
use crate::cli::Global;
use crate::failure::{Failure, Result};
use crate::size::parse_size;

const MANUAL: &str = "\
EXAMPLES:
  Ciphers and key derivations of this machine:
    xtent bench
  One cipher, in runs of 1 MiB, on four cores at once:
    xtent bench --cipher aes-xts-plain64 --size 1M --threads 4
  A cipher engine, beside the CPU:
    xtent bench --engine vfio-user:/run/engine.sock --cipher aes-xts-plain64
  How much of a disk's speed remains through the volume on it:
    xtent bench /dev/sdX

NOTES:
  Ciphers are measured in memory on one core by its CPU time, one sector per call
  and in runs of 64 sectors: a run is what one request hands over. The back-end
  is the best one that the CPU has; --cpu forces another. Where CPUs differ in what is faster, the line below the
  table says what was chosen, and whether this kind of CPU is known or both ways were timed. With --threads each thread
  has data of its own, and the figure is what all of them do by the clock on the wall.
  Key derivations are measured as cryptsetup benchmark does.
  With --engine one cipher is measured (--cipher, else aes-xts-plain64) in the engine and on the CPU, with requests of
  several sizes, one at a time and eight. Rates of the engine are by the clock on the wall; below them is what
  the engine's own counters say its cycles went into. A simulated engine has few cycles in a second: what its figures
  are good for is those counters.
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
    #[arg(conflicts_with = "engine")]
    device: Option<PathBuf>,
    /// The volume is partition N of the disk image (GPT or DOS table)
    #[arg(long, value_name = "N", requires = "device", value_parser = clap::value_parser!(u32).range(1..))]
    partition: Option<u32>,
    #[command(flatten)]
    detached: HeaderArgs,
    /// Only this cipher, and no key derivations
    #[arg(short = 'c', long, value_name = "CIPHER")]
    cipher: Option<String>,
    /// Bytes per run, a multiple of 4096 [default: 64 sectors]
    #[arg(long, value_name = "BYTES", value_parser = parse_run)]
    size: Option<usize>,
    /// Threads that encrypt or decrypt at once
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_threads)]
    threads: NonZeroUsize,
    /// Leave out the key derivations, which take some seconds each
    #[arg(long)]
    no_kdf: bool,
    #[command(flatten)]
    unlock: UnlockArgs,
    #[command(flatten)]
    engine: EngineChoice,
}

/// Larger runs than any request.
const LARGEST_RUN: u64 = 256 << 20;

fn parse_run(text: &str) -> std::result::Result<usize, String> {
    let bytes = parse_size(text)?;
    if bytes == 0 || bytes > LARGEST_RUN || bytes % 4096 != 0 {
        return Err("possible are multiples of 4096 up to 256M".to_owned());
    }
    usize::try_from(bytes).map_err(|e| e.to_string())
}

fn parse_threads(text: &str) -> std::result::Result<NonZeroUsize, String> {
    let count = text.parse().ok().filter(|n: &NonZeroUsize| n.get() <= 1024);
    count.ok_or_else(|| "possible are 1 to 1024".to_owned())
}

fn parse_cipher(name: &str) -> Result<CipherSpec> {
    name.parse().map_err(|e| {
        Failure::parameters(format!("unknown cipher {name}"))
            .because(e)
            .advise("`xtent bench` without --cipher measures all that there are.")
    })
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    let output = global.output();
    // First what can fail.
    let cipher = args.cipher.as_deref().map(parse_cipher).transpose()?;
    if let Some(address) = &args.engine.engine {
        return engine::run(address, args, cipher, global);
    }
    let through = match &args.device {
        Some(path) => {
            args.unlock.key.source().check()?;
            Some(device::open(path, args, global)?)
        }
        None => None,
    };
    output.note("Measuring ciphers, some seconds ...");
    let what = ciphers::What {
        backend: global.cpu.unwrap_or_else(Backend::best),
        cipher,
        run: args.size,
        threads: args.threads,
    };
    let ciphers = ciphers::measure(&what)?;
    if !output.json {
        output.line(ciphers::table(&ciphers, &what))?;
    }
    let derivations = if args.no_kdf || cipher.is_some() {
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
            "ports": ciphers::ports(what.backend),
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
