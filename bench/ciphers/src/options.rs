//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use sector_cipher::{Backend, CipherSpec};

const MANUAL: &str = "\
Everyone works in memory, in one process, round by round: in each round every
back-end, every run length, every other library and the AES unit alone have a
turn, timed by the thread's CPU time. Figures are medians over the rounds, and
ratios are medians of the ratios within a round.

Other libraries have no call for a run of sectors: they get one sector per call,
keys set once. Every output is checked before anything is timed.

Into the output directory go ciphers.json (everything), ciphers.txt (every row),
ciphers.md (the best back-end, for documents), goals.md, and the plots
ciphers.svg, flows.svg and requests.svg.";

/// Compare the ciphers with other libraries and with the CPU's AES unit.
#[derive(Parser, Debug)]
#[command(name = "cipher-bench", version, after_long_help = MANUAL)]
pub(crate) struct Options {
    /// What to measure; all of it unless named
    #[arg(value_enum)]
    pub(crate) what: Vec<What>,
    /// Where the results go
    #[arg(long, default_value = "target/bench-ciphers")]
    pub(crate) output: PathBuf,
    /// A few seconds of measuring: shows that everything works
    #[arg(long)]
    pub(crate) quick: bool,
    /// Only this cipher, by dm-crypt's name, such as aes-xts-plain64 (repeatable)
    #[arg(long, value_name = "NAME")]
    pub(crate) cipher: Vec<CipherSpec>,
    /// Only this key length (repeatable)
    #[arg(long, value_name = "BITS")]
    pub(crate) key_bits: Vec<usize>,
    /// Only this back-end (repeatable)
    #[arg(long, value_name = "NAME")]
    pub(crate) cpu: Vec<Backend>,
    /// Sector sizes (repeatable) [default: 512 and 4096]
    #[arg(long, value_name = "BYTES", value_parser = sector_size)]
    pub(crate) sector_size: Vec<usize>,
    /// Sectors per call (repeatable) [default: 1, 8, 64 and 2048]
    #[arg(long, value_name = "SECTORS", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=16384))]
    pub(crate) run: Vec<usize>,
    /// Rounds [default: 11]
    #[arg(long, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1000))]
    rounds: Option<usize>,
    /// CPU time of a turn [default: 3]
    #[arg(long, value_name = "MILLISECONDS", value_parser = clap::value_parser!(u64).range(1..=1000))]
    slice: Option<u64>,
    /// Wait so long, in all, for a core that no other hardware thread slows down, and
    /// repeat readings until it did not; else repeating takes as long as measuring
    #[arg(long, value_name = "SECONDS")]
    patience: Option<u64>,
    /// Leave out the other libraries
    #[arg(long)]
    pub(crate) no_peers: bool,
    /// Fail unless the figures reach this
    #[arg(long, value_enum)]
    pub(crate) require: Option<Level>,
}

/// Parts of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum What {
    /// Every cipher, back-end, sector size and run length
    Ciphers,
    /// 1 to 16 independent sectors in flight, as in Intel's multi-buffer papers
    Flows,
    /// Requests of 512 bytes to 1 MiB, chopped into sectors or whole
    Requests,
}

/// How good is good enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Level {
    /// What must be reached
    Must,
    /// What is aimed at
    Goal,
}

fn sector_size(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(bytes @ (512 | 1024 | 2048 | 4096)) => Ok(bytes),
        _ => Err("sectors have 512, 1024, 2048 or 4096 bytes".to_owned()),
    }
}

fn or<T: Clone>(given: &[T], default: &[T]) -> Vec<T> {
    if given.is_empty() { default } else { given }.to_vec()
}

impl Options {
    pub(crate) fn wants(&self, what: What) -> bool {
        self.what.is_empty() || self.what.contains(&what)
    }

    pub(crate) fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.quick { 3 } else { 11 })
    }

    pub(crate) fn slice(&self) -> Duration {
        let quick = Duration::from_micros(300);
        match self.slice {
            Some(ms) => Duration::from_millis(ms),
            None if self.quick => quick,
            None => Duration::from_millis(3),
        }
    }

    pub(crate) fn patience(&self) -> Option<Duration> {
        self.patience.map(Duration::from_secs)
    }

    pub(crate) fn sector_sizes(&self) -> Vec<usize> {
        or(&self.sector_size, &[512, 4096])
    }

    /// Ascending, and one sector is always among them.
    pub(crate) fn runs(&self) -> Vec<usize> {
        let default: &[usize] = if self.quick {
            &[1, 8]
        } else {
            &[1, 8, 64, 2048]
        };
        let mut runs = or(&self.run, default);
        runs.push(1);
        runs.sort_unstable();
        runs.dedup();
        runs
    }

    /// The back-ends of this CPU, slowest first.
    pub(crate) fn backends(&self) -> Vec<Backend> {
        let mut backends = Backend::available().to_vec();
        backends.retain(|backend| self.cpu.is_empty() || self.cpu.contains(backend));
        backends
    }

    /// Whether a cipher is asked for.
    pub(crate) fn takes(&self, spec: CipherSpec, key_len: usize) -> bool {
        (self.cipher.is_empty() || self.cipher.contains(&spec))
            && (self.key_bits.is_empty() || self.key_bits.contains(&(key_len * 8)))
    }
}
