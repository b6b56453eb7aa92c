//! A cipher engine for volumes: opened once for a process, and keyed for each volume.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use sector_cipher::{SectorCount, SectorSize};
use xtent_coprocessor::{self as coprocessor, Address, Keyed, OnFailure, Options};
use xtent_secret::SecretBytes;
use xtent_store::Buffer;
use xtent_volume::{Cause, CipherEngine, CipherThreads, Config, Crypted, Direction, Volume};

use crate::args::{EngineArgs, UnlockArgs};
use crate::failure::{Exit, Failure, Result};
use crate::headerless::Closed;
use crate::output::Output;
use crate::signals;
use crate::size::show_size;

/// The engines that are open. Several volumes share one, each with a key of its own.
static OPEN: Mutex<Vec<(Address, OnFailure, Weak<coprocessor::Engine>)>> = Mutex::new(Vec::new());

/// An engine that is open, and what volumes are to have done there.
#[derive(Clone)]
pub(crate) struct Engine {
    address: Address,
    args: EngineArgs,
    engine: Arc<coprocessor::Engine>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Engine").field(&self.address).finish()
    }
}

impl EngineArgs {
    /// Opens the engine, if there is to be one. Before the sandbox, and before anybody is asked for a
    /// passphrase.
    pub(crate) fn open(&self) -> Result<Option<Engine>> {
        let Some(address) = &self.choice.engine else {
            return Ok(None);
        };
        let options = Options {
            on_failure: self.on_failure(),
            ..Options::default()
        };
        Ok(Some(Engine {
            address: address.clone(),
            args: self.clone(),
            engine: open(address, options)?,
        }))
    }
}

/// Opens the engine at an address, unless it is open and works.
pub(crate) fn open(address: &Address, options: Options) -> Result<Arc<coprocessor::Engine>> {
    let mut all = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|(.., engine)| engine.upgrade().is_some_and(|it| it.failure().is_none()));
    let on_failure = options.on_failure;
    let found = all.iter().find(|(other, ..)| other == address);
    if let Some((engine, before)) = found.and_then(|(_, before, it)| Some((it.upgrade()?, before)))
    {
        if *before != on_failure {
            return Err(Failure::parameters(format!(
                "the cipher engine {address} is to do two things where it fails"
            ))
            .advise("Give all volumes that share an engine the same --engine-failure."));
        }
        return Ok(engine);
    }
    // Its thread does not act on signals.
    let opened = signals::held_back(|| coprocessor::Engine::open(address, options))?;
    let engine = opened.map_err(|error| failure(address, error))?;
    all.push((address.clone(), on_failure, Arc::downgrade(&engine)));
    Ok(engine)
}

/// Has nobody wait long any more for an engine that does not answer: the process is about to end.
pub(crate) fn hurry() {
    let all = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    for engine in all.iter().filter_map(|(.., engine)| engine.upgrade()) {
        engine.hurry();
    }
}

impl Engine {
    /// What opened it.
    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Whether it is a PCI device.
    pub(crate) fn is_device(&self) -> bool {
        matches!(self.address, Address::Vfio(_))
    }

    /// Runs `work` once in each of the driver's threads; fails if one is stuck.
    pub(crate) fn in_each_thread<T: Send + 'static>(
        &self,
        work: impl Fn() -> T + Send + Sync + 'static,
    ) -> Result<Vec<T>> {
        self.engine
            .in_each_thread(work)
            .map_err(|error| failure(&self.address, error))
    }

    /// Opens a volume by its key, which the engine is given, too.
    pub(crate) fn volume(
        &self,
        closed: Closed,
        key: SecretBytes,
        config: &Config,
        threads: CipherThreads,
    ) -> Result<Volume> {
        let keyed = self.key(config, &key)?;
        let volume = closed.volume_by_key(key, config)?;
        let volume = volume
            .with_cipher_threads(threads)
            .with_engine(Arc::new(keyed), self.args.threshold())
            .map_err(|error| {
                let failure = Failure::from(error);
                Failure {
                    message: format!("{}: {}", self.address, failure.message),
                    ..failure
                }
            })?;
        let address = self.address();
        // What it failed the CPU may have done, so that nothing was found wrong.
        if let Some(reason) = self.engine.failure() {
            let message = format!("{address}: the cipher engine is out of service: {reason}");
            return Err(Failure::new(Exit::Device, message));
        }
        match volume.engine_threshold() {
            Some(bytes) => {
                let from = show_size(bytes as u64);
                tracing::info!(engine = address, from, "long requests go to the engine");
            }
            None => tracing::warn!(
                engine = address,
                "the CPU is faster than the engine at every size, so nothing goes to it; --engine-threshold has it all \
                 the same"
            ),
        }
        Ok(volume)
    }

    fn key(&self, config: &Config, key: &[u8]) -> Result<InEngine> {
        let &Config {
            cipher,
            sector_size,
            sector_count,
            ..
        } = config;
        let facts = self.engine.facts();
        let model = self.args.choice.model(cipher.mode(), sector_size, facts);
        let keyed = self
            .engine
            .key(cipher, key, sector_size, sector_count, model)
            .map_err(|error| failure(&self.address, error))?;
        Ok(InEngine::new(keyed, sector_size, sector_count))
    }
}

/// The open volume and the keyslot that opened it, if one did; the engine is given the key, if there is one.
pub(crate) fn volume_and_keyslot(
    engine: Option<&Engine>,
    closed: Closed,
    unlock: &UnlockArgs,
    config: &Config,
    threads: CipherThreads,
    output: &Output,
) -> Result<(Volume, Option<u32>)> {
    let Some(engine) = engine else {
        let (volume, keyslot) = closed.volume_and_keyslot(unlock, config, output)?;
        return Ok((volume.with_cipher_threads(threads), keyslot));
    };
    closed.warn_if_broken(config, output);
    let found = closed.key(unlock, output)?;
    let volume = engine.volume(closed, found.key, config, threads)?;
    Ok((volume, found.keyslot))
}

/// The same by a key that is known.
pub(crate) fn volume_by_key(
    engine: Option<&Engine>,
    closed: Closed,
    key: SecretBytes,
    config: &Config,
    threads: CipherThreads,
) -> Result<Volume> {
    match engine {
        Some(engine) => engine.volume(closed, key, config, threads),
        None => Ok(closed
            .volume_by_key(key, config)?
            .with_cipher_threads(threads)),
    }
}

/// What the driver has to say, with the engine's name.
pub(crate) fn failure(address: &Address, error: coprocessor::Error) -> Failure {
    use coprocessor::ErrorKind as K;
    let exit = match error.kind() {
        K::Address | K::Unsupported | K::Request => Exit::Parameters,
        K::Slots => Exit::Busy,
        K::Memory => Exit::Memory,
        _ => Exit::Device,
    };
    let advice = match error.kind() {
        K::Unsupported => Some("Leave --engine out: the CPU does it."),
        K::Slots => Some(
            "Where tweaks take a slot of their own, --engine-tweaks cpu frees it; without --engine the CPU does it all.",
        ),
        _ => error.advice(),
    };
    let failure = Failure::new(exit, format!("the cipher engine {address}"));
    let failure = failure.because(error);
    match advice {
        Some(advice) => failure.advise(advice),
        None => failure,
    }
}

/// A volume's key in an engine, for the volume.
pub(crate) struct InEngine {
    keyed: Keyed,
    /// 512-byte units from a tweak to the next.
    units: u64,
}

/// A run on its way.
struct Run(Buffer);

impl AsMut<[u8]> for Run {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl InEngine {
    pub(crate) fn new(keyed: Keyed, size: SectorSize, count: SectorCount) -> Self {
        let units = match count {
            SectorCount::Units512 => 1,
            SectorCount::Large => size.bytes() as u64 / 512,
        };
        Self { keyed, units }
    }
}

impl CipherEngine for InEngine {
    fn crypt(&self, direction: Direction, first: u64, run: Buffer) -> Crypted {
        let direction = match direction {
            Direction::Encrypt => coprocessor::Direction::Encrypt,
            Direction::Decrypt => coprocessor::Direction::Decrypt,
        };
        let tweak = u128::from(first / self.units);
        let crypted = self.keyed.crypt(direction, tweak, Run(run));
        Box::pin(async move {
            let (Run(run), result) = crypted.await;
            (run, result.map_err(Cause::from))
        })
    }

    fn failure(&self) -> Option<String> {
        self.keyed.failure()
    }
}
