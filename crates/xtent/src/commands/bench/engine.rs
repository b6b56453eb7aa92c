//! A cipher engine beside the CPU.

use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sector_cipher::{Cipher, CipherSpec, SectorCount, SectorSize};
use serde::Serialize;
use serde_json::json;
use xtent_coprocessor::{
    Address, Counters, Direction, Engine, Facts, Keyed, Model, OnFailure, Options, RequestSize,
    Tweaks,
};
use xtent_store::block_on;

use super::ciphers::speed;
use super::{Args, rate};
use crate::cli::Global;
use crate::engine;
use crate::failure::{Exit, Failure, Result};
use crate::size::show_size;

/// Where no cipher is named.
const CIPHER: &str = "aes-xts-plain64";
/// Sizes of requests, where none is named.
const SIZES: [usize; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Requests under way at a time.
const UNDER_WAY: [usize; 2] = [1, 8];
/// Time for each figure, at least.
const LONG_ENOUGH: Duration = Duration::from_millis(250);
/// Where one request takes so long, there are none of larger sizes.
const TOO_LONG: Duration = Duration::from_millis(500);
const SECTOR_SIZES: [u32; 2] = [512, 4096];

/// One sector size.
#[derive(Debug, Serialize)]
struct Figures {
    sector_size: u32,
    /// How engine and CPU share the work.
    model: String,
    sizes: Vec<OfSize>,
}

/// Megabytes per second of requests of one size.
#[derive(Debug, Serialize)]
struct OfSize {
    bytes: usize,
    engine: Vec<Rate>,
    cpu_encrypt_mb_s: f64,
    cpu_decrypt_mb_s: f64,
}

#[derive(Debug, Serialize)]
struct Rate {
    under_way: usize,
    encrypt_mb_s: f64,
    decrypt_mb_s: f64,
}

/// The cipher in the engine and on the CPU, and who they are.
struct Bed<'a> {
    address: &'a Address,
    keyed: Keyed,
    cipher: Cipher,
}

pub(super) fn run(
    address: &Address,
    args: &Args,
    cipher: Option<CipherSpec>,
    global: &Global,
) -> Result<()> {
    let output = global.output();
    let spec = match cipher {
        Some(spec) => spec,
        None => super::parse_cipher(CIPHER)?,
    };
    let options = Options {
        // Or the CPU would be measured.
        on_failure: OnFailure::Fail,
        ..Options::default()
    };
    let engine = engine::open(address, options)?;
    output.note("Measuring the engine, some seconds ...");
    let counters = || {
        let counters = engine.counters();
        counters.map_err(|error| engine::failure(address, error))
    };
    let before = counters()?;
    let mut all = Vec::new();
    let mut refused = None;
    for sector_size in SECTOR_SIZES {
        match of_sectors(&engine, address, args, spec, sector_size, global) {
            Ok(figures) => all.push(figures),
            // It may have the other size.
            Err(failure) if failure.exit == Exit::Parameters => refused = Some(failure),
            Err(failure) => return Err(failure),
        }
    }
    if let (Some(failure), true) = (refused, all.is_empty()) {
        return Err(failure);
    }
    let (facts, spent) = (engine.facts(), cycles(&before, &counters()?));
    if output.json {
        let spent: serde_json::Map<_, _> = spent
            .iter()
            .map(|(name, count)| ((*name).to_owned(), json!(count)))
            .collect();
        return output.object(&json!({
            "engine": address.to_string(),
            "level": facts.level,
            "cipher": spec.to_string(),
            "figures": all,
            "counters": spent,
        }));
    }
    output.line(table(&all, address, facts, spec))?;
    output.line(spent_on(&spent))
}

fn of_sectors(
    engine: &std::sync::Arc<Engine>,
    address: &Address,
    args: &Args,
    spec: CipherSpec,
    sector_size: u32,
    global: &Global,
) -> Result<Figures> {
    let broken = || Failure::new(Exit::Device, format!("{spec} is missing in this build"));
    let size = SectorSize::new(sector_size).map_err(|_| broken())?;
    let length = spec.key_lengths().iter().max().copied();
    // XTS takes no key of two equal halves; any other will do.
    let key: Vec<u8> = (0..=u8::MAX).take(length.unwrap_or_default()).collect();
    let count = SectorCount::Units512;
    let cipher = Cipher::new(spec, size, count, &key, global.cpu).map_err(|_| broken())?;
    let model = args.engine.model(spec.mode(), size, engine.facts());
    let keyed = engine
        .key(spec, &key, size, count, model)
        .map_err(|error| engine::failure(address, error))?;
    let bed = Bed {
        address,
        keyed,
        cipher,
    };
    let mut sizes = Vec::new();
    let chosen = args.size.map_or_else(|| SIZES.to_vec(), |size| vec![size]);
    for bytes in chosen {
        let took = bed.compare(bytes)?;
        let mut rates = Vec::new();
        for under_way in UNDER_WAY {
            rates.push(Rate {
                under_way,
                encrypt_mb_s: bed.rate(Direction::Encrypt, bytes, under_way)?,
                decrypt_mb_s: bed.rate(Direction::Decrypt, bytes, under_way)?,
            });
        }
        let one = NonZeroUsize::MIN;
        sizes.push(OfSize {
            bytes,
            engine: rates,
            cpu_encrypt_mb_s: speed(bytes, one, |data| bed.cipher.encrypt(0, data)),
            cpu_decrypt_mb_s: speed(bytes, one, |data| bed.cipher.decrypt(0, data)),
        });
        if took > TOO_LONG {
            break;
        }
    }
    Ok(Figures {
        sector_size,
        model: name(model),
        sizes,
    })
}

impl Bed<'_> {
    fn crypt(&self, direction: Direction, data: Vec<u8>) -> Result<Vec<u8>> {
        let (data, result) = block_on(self.keyed.crypt(direction, 0, data));
        result.map_err(|error| engine::failure(self.address, error))?;
        Ok(data)
    }

    /// Fails if the engine does not do what the CPU does; how long it takes for a request.
    fn compare(&self, bytes: usize) -> Result<Duration> {
        let mut expected: Vec<u8> = (0..=u8::MAX).cycle().take(bytes).collect();
        let plain = expected.clone();
        self.cipher.encrypt(0, &mut expected);
        let begun = Instant::now();
        let encrypted = self.crypt(Direction::Encrypt, plain.clone())?;
        let took = begun.elapsed();
        if encrypted != expected || self.crypt(Direction::Decrypt, encrypted)? != plain {
            let message = format!(
                "the cipher engine {} does not do what the CPU does with the same key",
                self.address
            );
            return Err(Failure::new(Exit::Device, message));
        }
        Ok(took)
    }

    /// Megabytes per second by the clock, with so many requests under way.
    fn rate(&self, direction: Direction, bytes: usize, under_way: usize) -> Result<f64> {
        let together = Barrier::new(under_way);
        let done = AtomicU64::new(0);
        let one = || -> Result<()> {
            together.wait();
            let begun = Instant::now();
            let mut data = vec![0; bytes];
            while begun.elapsed() < LONG_ENOUGH {
                data = self.crypt(direction, data)?;
                done.fetch_add(bytes as u64, Ordering::Relaxed);
            }
            Ok(())
        };
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let running: Vec<_> = (0..under_way).map(|_| scope.spawn(one)).collect();
            running
                .into_iter()
                .try_for_each(|thread| thread.join().unwrap_or(Ok(())))
        })?;
        Ok(rate(done.into_inner(), begun.elapsed()))
    }
}

/// What the engine counted between two moments.
fn cycles(before: &Counters, after: &Counters) -> Vec<(&'static str, u64)> {
    let of = |counters: &Counters| {
        [
            ("total", counters.total),
            ("fetch", counters.fetch),
            ("source", counters.source),
            ("cipher", counters.cipher),
            ("destination", counters.destination),
            ("completion", counters.completion),
            ("interrupt", counters.interrupt),
            ("idle", counters.idle),
            ("requests", counters.requests),
            ("bytes", counters.bytes),
        ]
    };
    let pairs = of(before).into_iter().zip(of(after));
    // Counters begin anew if the engine was reset meanwhile.
    pairs
        .map(|((name, before), (_, after))| (name, after.saturating_sub(before)))
        .collect()
}

fn spent_on(spent: &[(&'static str, u64)]) -> String {
    let of = |name: &str| spent.iter().find(|it| it.0 == name).map_or(0, |it| it.1);
    let busy = of("total").saturating_sub(of("idle"));
    let mut text = format!(
        "\nThe engine's counters: {} requests, {}, {busy} cycles not idle",
        of("requests"),
        show_size(of("bytes"))
    );
    for name in [
        "fetch",
        "source",
        "cipher",
        "destination",
        "completion",
        "interrupt",
    ] {
        let percent = 100.0 * of(name) as f64 / busy.max(1) as f64;
        let _ = write!(text, "\n  {name:<12}{percent:>6.1} %");
    }
    text
}

/// A model by the words of the options.
fn name(model: Model) -> String {
    let by = |tweaks| match tweaks {
        Tweaks::Engine => "tweaks by the engine",
        Tweaks::Cpu => "tweaks by the CPU",
    };
    match model {
        Model::Runs => "runs".into(),
        Model::Units(tweaks) => format!("units, {}", by(tweaks)),
        Model::Mixed(tweaks, size) => {
            let size = match size {
                RequestSize::Bytes512 => ":512",
                RequestSize::Bytes4096 => ":4096",
                RequestSize::Run => "",
            };
            format!("mixed{size}, {}", by(tweaks))
        }
    }
}

/// Engines are simulated, too, and are slow then.
fn show(mb_s: f64) -> String {
    match mb_s < 10.0 {
        true => format!("{mb_s:.2}"),
        false => format!("{mb_s:.0}"),
    }
}

/// A line for each size of requests.
fn table(all: &[Figures], address: &Address, facts: &Facts, spec: CipherSpec) -> String {
    let mut text = format!(
        "{spec} in the engine {address} (level {}) and on one core, MB/s (encrypt / decrypt)",
        facts.level
    );
    for figures in all {
        let _ = write!(
            text,
            "\n{}-byte sectors, model {}\n{:<12}",
            figures.sector_size, figures.model, "requests"
        );
        for under_way in UNDER_WAY {
            let _ = write!(text, "{:>20}", format!("{under_way} under way"));
        }
        let _ = write!(text, "{:>20}", "CPU");
        for size in &figures.sizes {
            let _ = write!(text, "\n{:<12}", show_size(size.bytes as u64));
            let engine = size.engine.iter();
            let pairs = engine.map(|rate| (rate.encrypt_mb_s, rate.decrypt_mb_s));
            let cpu = (size.cpu_encrypt_mb_s, size.cpu_decrypt_mb_s);
            for (encrypt, decrypt) in pairs.chain([cpu]) {
                let pair = format!("{} / {}", show(encrypt), show(decrypt));
                let _ = write!(text, "{pair:>20}");
            }
        }
    }
    text
}
