//! A key in an engine, and how requests of a volume become requests of the engine.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;

use sector_cipher::{CipherSpec, IvMode, Mode, SectorCount, SectorSize};
use xtent_secret::SecretCipher;

use crate::facts::cipher_of;
use crate::registers as reg;
use crate::shared::Shared;
use crate::slab::Slot;
use crate::tweak::{TweakKey, burn_stack};
use crate::{Direction, Engine, Error, ErrorKind, Model, OnFailure, Tweaks};

/// A key in an engine. Its slots are wiped when it and all futures of [`Keyed::crypt`] are dropped.
pub struct Keyed {
    inner: Arc<Inner>,
}

/// Slots of a key, and what the CPU needs for its part.
pub(crate) struct Inner {
    pub(crate) spec: CipherSpec,
    pub(crate) size: SectorSize,
    /// From the tweak of a sector to that of the next.
    pub(crate) step: u16,
    pub(crate) model: Model,
    /// Of the run's or the data key.
    pub(crate) slot: Arc<Slot>,
    pub(crate) tweaks: TweakMaker,
    /// For requests that the engine fails, where the CPU is to carry them out.
    pub(crate) cpu: Option<SecretCipher>,
    pub(crate) shared: Arc<Shared>,
    /// Ends last: while there are keys the engine is attended to.
    engine: Arc<Engine>,
}

/// Who encrypts tweaks.
pub(crate) enum TweakMaker {
    /// The engine, as a part of runs.
    Runs,
    /// The engine's ECB, by a slot of its own.
    Engine(Arc<Slot>),
    /// The CPU.
    Cpu(TweakKey),
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.clear_key(self.slot.number());
        if let TweakMaker::Engine(slot) = &self.tweaks {
            self.shared.clear_key(slot.number());
        }
    }
}

/// What a key is for.
#[derive(Clone, Copy)]
pub(crate) struct Purpose {
    pub(crate) spec: CipherSpec,
    pub(crate) size: SectorSize,
    pub(crate) count: SectorCount,
    pub(crate) model: Model,
    pub(crate) on_failure: OnFailure,
}

/// What an engine cannot do with a key, if there is something.
fn obstacle(engine: &Engine, purpose: &Purpose, key: &[u8]) -> Option<Error> {
    let (facts, spec) = (engine.facts(), purpose.spec);
    let unsupported = |what: String| Some(Error::new(ErrorKind::Unsupported, what));
    if !spec.key_lengths().contains(&key.len()) {
        let given = key.len();
        let takes = spec.key_lengths();
        let error = sector_cipher::WrongKeyLength { given, takes };
        return Some(Error::new(ErrorKind::Request, error.to_string()));
    }
    if !matches!(spec.iv(), IvMode::Plain64 | IvMode::Plain) {
        return unsupported(format!(
            "the engine has no {spec}: it counts tweaks as plain64 does"
        ));
    }
    let has_aes = spec
        .mode()
        .aes_bits(key.len())
        .is_some_and(|bits| facts.has_aes(bits));
    if !has_aes {
        return unsupported(format!(
            "the engine has no {spec} with keys of {} bytes",
            key.len()
        ));
    }
    let bytes = purpose.size.bytes();
    let is_xts = spec.mode() == Mode::AesXts;
    match purpose.model {
        Model::Runs if !facts.takes_runs(spec.mode(), purpose.size) => unsupported(format!(
            "the engine has no runs of {spec} with sectors of {bytes} bytes"
        )),
        Model::Units(_) | Model::Mixed(..) if !facts.has(reg::CIPHER_ECB) => {
            unsupported("the engine has no ECB".into())
        }
        Model::Units(_) if !is_xts || facts.level < 2 || bytes > facts.xts_bytes => unsupported(
            format!("the engine has no {spec} with sectors of {bytes} bytes one by one"),
        ),
        Model::Mixed(..) if !is_xts => unsupported(format!(
            "the CPU has no part in {spec} that goes with an engine's ECB"
        )),
        _ => None,
    }
}

impl Keyed {
    pub(crate) fn new(engine: &Arc<Engine>, purpose: Purpose, key: &[u8]) -> Result<Self, Error> {
        if let Some(error) = obstacle(engine, &purpose, key) {
            return Err(error);
        }
        let Purpose {
            spec,
            size,
            count,
            model,
            on_failure,
        } = purpose;
        let shared = engine.shared();
        // First what can fail without a trace in the device.
        let cpu = match on_failure {
            OnFailure::Fail => None,
            OnFailure::Cpu => Some(
                SecretCipher::keyed(spec, size, count, key, None)
                    .map_err(|e| Error::by(ErrorKind::Memory, "cannot keep the key", e))?,
            ),
        };
        let is_aes256 = spec.mode().aes_bits(key.len()) == Some(256);
        let load = |cipher, key| -> Result<Loading, Error> {
            let number = shared.load_key(cipher, is_aes256, key)?;
            Ok(Loading(Some(Arc::new(Slot::new(shared, number))), shared))
        };
        let (data_key, tweak_key) = key.split_at(key.len() / 2);
        let (slot, tweaks) = match (model, cipher_of(spec.mode())) {
            (Model::Runs, Some(cipher)) => (load(cipher, key)?, TweakMaker::Runs),
            (Model::Units(Tweaks::Cpu) | Model::Mixed(Tweaks::Cpu, _), _) => {
                let tweaks = TweakMaker::Cpu(TweakKey::new(tweak_key)?);
                (load(reg::CIPHER_ECB, data_key)?, tweaks)
            }
            _ => {
                let slot = load(reg::CIPHER_ECB, data_key)?;
                let tweaks = load(reg::CIPHER_ECB, tweak_key)?.keep();
                (slot, TweakMaker::Engine(tweaks))
            }
        };
        let step = match count {
            SectorCount::Units512 => u16::try_from(size.bytes() / 512).unwrap_or(1),
            SectorCount::Large => 1,
        };
        Ok(Self {
            inner: Arc::new(Inner {
                spec,
                size,
                step,
                model,
                slot: slot.keep(),
                tweaks,
                cpu,
                shared: Arc::clone(shared),
                engine: Arc::clone(engine),
            }),
        })
    }

    /// Why the engine is out of service, if it is.
    pub fn failure(&self) -> Option<String> {
        self.inner.engine.failure()
    }

    /// Bytes of the largest request that is made of a run.
    pub(crate) fn largest(&self) -> usize {
        self.inner.part(0, usize::MAX)
    }

    /// Encrypts or decrypts whole sectors in place, the first of which has the tweak `first_tweak`, counted as dm-crypt's
    /// `plain64` counts (of `plain` the lowest 32 bits are taken, as there). The memory comes back with the result: how many of its
    /// bytes the CPU did since the engine did not. After
    /// an error its contents are not to be used: some sectors may be done and others not.
    ///
    /// Nothing is done before the future is polled. One that is dropped leaves its requests to the device, in memory of
    /// the engine's own.
    ///
    /// # Errors
    /// [`ErrorKind::Request`] if that is no run of sectors; [`ErrorKind::Failed`] or [`ErrorKind::Dead`] if the engine did not do it.
    /// With [`OnFailure::Cpu`] the latter two are not seen.
    pub fn crypt<T>(
        &self,
        direction: Direction,
        first_tweak: u128,
        data: T,
    ) -> impl Future<Output = (T, Result<usize, Error>)> + Send + 'static
    where
        T: AsMut<[u8]> + Send + 'static,
    {
        let inner = Arc::clone(&self.inner);
        async move {
            let mut data = data;
            let job = inner.crypt(direction, first_tweak, data.as_mut());
            let result = burning(job).await;
            (data, result)
        }
    }
}

/// Overwrites what each part of a job leaves on the stack: tweaks, and blocks of data.
async fn burning<T>(job: impl Future<Output = T>) -> T {
    let mut job = pin!(job);
    poll_fn(|context| {
        let polled = job.as_mut().poll(context);
        burn_stack();
        polled
    })
    .await
}

/// A slot that is cleared again, unless all else succeeds too.
struct Loading<'a>(Option<Arc<Slot>>, &'a Arc<Shared>);

impl Loading<'_> {
    fn keep(mut self) -> Arc<Slot> {
        self.0.take().expect("it is there until it is kept")
    }
}

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        if let Some(slot) = &self.0 {
            self.1.clear_key(slot.number());
        }
    }
}
