//! A key in an engine, and how requests of a volume become requests of the engine.

use std::future::{Future, poll_fn};
use std::sync::Arc;

use sector_cipher::{CipherSpec, IvMode, Mode, SectorCount, SectorSize, hazmat};
use xtent_secret::SecretCipher;
use zeroize::Zeroizing;

use crate::facts::cipher_of;
use crate::registers as reg;
use crate::ring::{Request, Ticket};
use crate::shared::{Shared, Slab, Slot};
use crate::tweak::{BLOCK, TweakKey, mask};
use crate::{Direction, Engine, Error, ErrorKind, Model, OnFailure, RequestSize, Tweaks};

/// Tweaks under [`IvMode::Plain`] have so many bits.
const PLAIN_BITS: u32 = 32;

/// Bytes of the largest sector.
const MOST: usize = 4096;

/// A key in an engine. Its slots are wiped when it and all futures of [`Keyed::crypt`] are dropped.
pub struct Keyed {
    inner: Arc<Inner>,
}

/// Slots of a key, and what the CPU needs for its part.
struct Inner {
    spec: CipherSpec,
    size: SectorSize,
    /// From the tweak of a sector to that of the next.
    step: u16,
    model: Model,
    /// Of the run's or the data key.
    slot: Arc<Slot>,
    tweaks: TweakMaker,
    /// For requests that the engine fails, where the CPU is to carry them out.
    cpu: Option<SecretCipher>,
    shared: Arc<Shared>,
    /// Ends last: while there are keys the engine is attended to.
    _engine: Arc<Engine>,
}

/// Who encrypts tweaks.
enum TweakMaker {
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
                _engine: Arc::clone(engine),
            }),
        })
    }

    /// Encrypts or decrypts whole sectors in place, the first of which has the tweak `first_tweak`, counted as dm-crypt's
    /// `plain64` counts (of `plain` the lowest 32 bits are taken, as there). The memory comes back with the result. After
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
    ) -> impl Future<Output = (T, Result<(), Error>)> + Send + 'static
    where
        T: AsMut<[u8]> + Send + 'static,
    {
        let inner = Arc::clone(&self.inner);
        async move {
            let mut data = data;
            let result = inner.crypt(direction, first_tweak, data.as_mut()).await;
            (data, result)
        }
    }
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

impl Inner {
    async fn crypt(&self, direction: Direction, first: u128, data: &mut [u8]) -> Result<(), Error> {
        let size = self.size.bytes();
        if !data.len().is_multiple_of(size) {
            let message = format!("{} bytes are no whole sectors of {size} bytes", data.len());
            return Err(Error::new(ErrorKind::Request, message));
        }
        let step = u128::from(self.step);
        let last = (data.len() / size) as u128;
        if last
            .saturating_sub(1)
            .checked_mul(step)
            .and_then(|ahead| first.checked_add(ahead))
            .is_none()
        {
            let message = "the tweak of a sector would pass 2^128";
            return Err(Error::new(ErrorKind::Request, message));
        }
        let mut at = 0;
        while at < data.len() {
            // Does not pass the last tweak, which was checked.
            let tweak = self.tweak(first, at / size);
            let len = self.part(tweak, data.len() - at);
            let part = &mut data[at..at + len];
            let done = self.by_engine(direction, tweak, part).await;
            match (done, &self.cpu) {
                (Err(error), Some(cpu))
                    if matches!(error.kind(), ErrorKind::Failed | ErrorKind::Dead) =>
                {
                    if error.kind() == ErrorKind::Failed {
                        tracing::warn!("the CPU does what the engine did not: {error}");
                    }
                    self.by_cpu(cpu, direction, tweak, part)?;
                }
                (done, _) => done?,
            }
            at += len;
        }
        Ok(())
    }

    /// The tweak of a sector, counted from one that has `first`.
    fn tweak(&self, first: u128, sector: usize) -> u128 {
        let tweak = first.wrapping_add(sector as u128 * u128::from(self.step));
        match self.spec.iv() {
            IvMode::Plain => tweak & ((1 << PLAIN_BITS) - 1),
            _ => tweak,
        }
    }

    /// How many of `len` bytes are done together, from a sector with this tweak on.
    fn part(&self, tweak: u128, len: usize) -> usize {
        let size = self.size.bytes();
        let mut most = self.shared.data_bytes / 2;
        if self.model == Model::Runs {
            let limit = usize::try_from(self.shared.facts.request_bytes).unwrap_or(usize::MAX);
            most = most.min(limit);
            // The engine counts on where dm-crypt begins again.
            if self.spec.iv() == IvMode::Plain {
                let sectors = ((1_u128 << PLAIN_BITS) - tweak).div_ceil(self.step.into());
                let sectors = usize::try_from(sectors).unwrap_or(usize::MAX);
                most = most.min(sectors.saturating_mul(size));
            }
        }
        len.min(most / size * size)
    }

    async fn by_engine(
        &self,
        direction: Direction,
        first: u128,
        data: &mut [u8],
    ) -> Result<(), Error> {
        match self.model {
            Model::Runs => {
                let mut request = self.request(reg::OP_RUN, direction, 0, data.len());
                request.step = self.step;
                request.tweak = first;
                let slab = self.shared.slab(data.len()).await?;
                slab.write(0, data);
                self.carry_out(&slab, &self.slot, &[request]).await?;
                slab.read(0, data);
            }
            Model::Units(_) => {
                let tweaks = self.encrypted_tweaks(first, data.len(), 1).await?;
                let size = self.size.bytes();
                let requests: Vec<_> = tweaks
                    .iter()
                    .enumerate()
                    .map(|(sector, &tweak)| Request {
                        tweak,
                        ..self.request(reg::OP_XTS, direction, sector * size, size)
                    })
                    .collect();
                let slab = self.shared.slab(data.len()).await?;
                slab.write(0, data);
                self.carry_out(&slab, &self.slot, &requests).await?;
                slab.read(0, data);
            }
            Model::Mixed(_, each) => {
                let each = self.ecb_bytes(each);
                let together = (each / self.size.bytes()).max(1);
                let tweaks = self.encrypted_tweaks(first, data.len(), together).await?;
                let requests: Vec<_> = (0..data.len())
                    .step_by(each)
                    .map(|at| {
                        let len = each.min(data.len() - at);
                        self.request(reg::OP_ECB, direction, at, len)
                    })
                    .collect();
                let slab = self.shared.slab(data.len()).await?;
                self.masked(data, &tweaks, |at, sector, tweak, buffer| {
                    mask(tweak, sector, buffer);
                    slab.write(at, buffer);
                });
                self.carry_out(&slab, &self.slot, &requests).await?;
                self.masked(data, &tweaks, |at, sector, tweak, buffer| {
                    slab.read(at, buffer);
                    mask(tweak, buffer, sector);
                });
            }
        }
        Ok(())
    }

    /// Bytes of a request where the engine does ECB.
    fn ecb_bytes(&self, each: RequestSize) -> usize {
        let limit = usize::try_from(self.shared.facts.request_bytes).unwrap_or(usize::MAX);
        match each {
            RequestSize::Bytes512 => 512,
            RequestSize::Bytes4096 => 4096,
            RequestSize::Run => limit,
        }
    }

    /// A request for `len` bytes of a slab.
    fn request(&self, op: u8, direction: Direction, at: usize, len: usize) -> Request {
        let unit = match op {
            reg::OP_ECB => BLOCK,
            _ => self.size.bytes(),
        };
        Request {
            op,
            decrypt: direction == Direction::Decrypt,
            log2_unit: u8::try_from(unit.trailing_zeros()).unwrap_or_default(),
            step: 0,
            units: u32::try_from(len / unit).unwrap_or_default(),
            tweak: 0,
            at,
        }
    }

    /// Submits requests and waits for all of them; the first error, if there is one.
    async fn carry_out(
        &self,
        slab: &Arc<Slab>,
        slot: &Arc<Slot>,
        requests: &[Request],
    ) -> Result<(), Error> {
        let tickets = self.shared.submit(slab, slot, requests).await?;
        let mut result = Ok(());
        for ticket in &tickets {
            result = result.and(wait_for(ticket).await);
        }
        result.map_err(|fault| self.shared.error(&fault))
    }

    /// The encrypted tweaks of all sectors in `len` bytes, of which `together` are in one request.
    async fn encrypted_tweaks(
        &self,
        first: u128,
        len: usize,
        together: usize,
    ) -> Result<Zeroizing<Vec<u128>>, Error> {
        let sectors = len / self.size.bytes();
        let tweaks = (0..sectors).map(|sector| self.tweak(first, sector));
        let mut tweaks: Zeroizing<Vec<u128>> = Zeroizing::new(tweaks.collect());
        let slot = match &self.tweaks {
            TweakMaker::Runs => return Ok(tweaks),
            TweakMaker::Cpu(key) => {
                key.encrypt(&mut tweaks);
                return Ok(tweaks);
            }
            TweakMaker::Engine(slot) => slot,
        };
        let slab = self.shared.slab(sectors * BLOCK).await?;
        for (sector, tweak) in tweaks.iter().enumerate() {
            slab.write(sector * BLOCK, &tweak.to_le_bytes());
        }
        let limit = usize::try_from(self.shared.facts.request_bytes).unwrap_or(usize::MAX);
        let each = (together * BLOCK).min(limit);
        let requests: Vec<_> = (0..sectors * BLOCK)
            .step_by(each)
            .map(|at| {
                let len = each.min(sectors * BLOCK - at);
                self.request(reg::OP_ECB, Direction::Encrypt, at, len)
            })
            .collect();
        self.carry_out(&slab, slot, &requests).await?;
        for (sector, tweak) in tweaks.iter_mut().enumerate() {
            let mut block = Zeroizing::new([0; BLOCK]);
            slab.read(sector * BLOCK, &mut *block);
            *tweak = u128::from_le_bytes(*block);
        }
        Ok(tweaks)
    }

    /// Calls `each` with every sector, where it is, its tweak, and a buffer as long as it, which is wiped in the end.
    fn masked(
        &self,
        data: &mut [u8],
        tweaks: &[u128],
        mut each: impl FnMut(usize, &mut [u8], u128, &mut [u8]),
    ) {
        let size = self.size.bytes();
        let mut buffer = Zeroizing::new([0; MOST]);
        let sectors = data.chunks_exact_mut(size).zip(tweaks).enumerate();
        for (number, (sector, &tweak)) in sectors {
            each(number * size, sector, tweak, &mut buffer[..size]);
        }
    }

    fn by_cpu(
        &self,
        cpu: &SecretCipher,
        direction: Direction,
        first: u128,
        data: &mut [u8],
    ) -> Result<(), Error> {
        let crypt = match direction {
            Direction::Encrypt => hazmat::encrypt_unit,
            Direction::Decrypt => hazmat::decrypt_unit,
        };
        for (number, sector) in data.chunks_exact_mut(self.size.bytes()).enumerate() {
            let tweak = self.tweak(first, number).to_le_bytes();
            crypt(cpu, tweak, sector)
                .map_err(|e| Error::by(ErrorKind::Request, "the CPU cannot do it either", e))?;
        }
        cpu.wipe_stack();
        Ok(())
    }
}

async fn wait_for(ticket: &Ticket) -> Result<(), crate::ring::Fault> {
    poll_fn(|context| ticket.poll(context.waker())).await
}
