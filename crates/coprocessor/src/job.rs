//! How a run becomes requests of the engine, in each way to share the work.

use std::future::poll_fn;
use std::sync::Arc;

use sector_cipher::{First, IvMode, hazmat};
use xtent_secret::SecretCipher;
use zeroize::Zeroizing;

use crate::keyed::{Inner, TweakMaker};
use crate::registers as reg;
use crate::ring::{Fault, Request, Requests, Ticket};
use crate::slab::{Slab, Slot};
use crate::tweak::{BLOCK, mask};
use crate::{Direction, Error, ErrorKind, Model, RequestSize};

/// Tweaks under [`IvMode::Plain`] have so many bits.
const PLAIN_BITS: u32 = 32;

/// Bytes of the smallest sector, and of the smallest request for data.
const APART: usize = 512;

/// Bytes of the largest sector.
const MOST: usize = 4096;

impl Inner {
    /// Encrypts or decrypts a run in place; gives how many bytes the CPU did since the engine did not.
    pub(crate) async fn crypt(
        &self,
        direction: Direction,
        first: u128,
        data: &mut [u8],
    ) -> Result<usize, Error> {
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
        let (mut at, mut by_cpu) = (0, 0);
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
                    by_cpu += len;
                }
                (done, _) => done?,
            }
            at += len;
        }
        Ok(by_cpu)
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
    pub(crate) fn part(&self, tweak: u128, len: usize) -> usize {
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
                let requests = Requests::new(vec![request]);
                self.change(&slab, data.len(), &requests).await?;
                slab.read(0, data);
            }
            Model::Units(_) => {
                let tweaks = self.encrypted_tweaks(first, data.len(), 1).await?;
                let size = self.size.bytes();
                // Their number is known, so no copy is left behind by a vector that grew.
                let list = tweaks.iter().enumerate().map(|(sector, &tweak)| Request {
                    tweak,
                    ..self.request(reg::OP_XTS, direction, sector * size, size)
                });
                let requests = Requests::new(list.collect());
                let slab = self.shared.slab(data.len()).await?;
                slab.write(0, data);
                self.change(&slab, data.len(), &requests).await?;
                slab.read(0, data);
            }
            Model::Mixed(_, each) => {
                let each = self.ecb_bytes(each);
                let together = (each / self.size.bytes()).max(1);
                let tweaks = self.encrypted_tweaks(first, data.len(), together).await?;
                let requests = (0..data.len()).step_by(each).map(|at| {
                    let len = each.min(data.len() - at);
                    self.request(reg::OP_ECB, direction, at, len)
                });
                let requests = Requests::new(requests.collect());
                let slab = self.shared.slab(data.len()).await?;
                self.masked(data, &tweaks, |at, sector, tweak, buffer| {
                    mask(tweak, sector, buffer);
                    slab.write(at, buffer);
                });
                self.change(&slab, data.len(), &requests).await?;
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
        requests: &Requests,
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
        let requests = (0..sectors * BLOCK).step_by(each).map(|at| {
            let len = each.min(sectors * BLOCK - at);
            self.request(reg::OP_ECB, Direction::Encrypt, at, len)
        });
        let requests = Requests::new(requests.collect());
        self.carry_out(&slab, slot, &requests).await?;
        for (sector, tweak) in tweaks.iter_mut().enumerate() {
            let encrypted = slab.block(sector * BLOCK);
            if *encrypted == *tweak {
                return Err(self.shared.did_nothing());
            }
            *tweak = *encrypted;
        }
        Ok(tweaks)
    }

    /// Has all `len` bytes of the slab encrypted or decrypted, and sees that they were: what the device says is done and
    /// is not would be stored as it was. The last block of each [`APART`] bytes tells, which stays as it was by chance
    /// once in 2^128.
    async fn change(&self, slab: &Arc<Slab>, len: usize, requests: &Requests) -> Result<(), Error> {
        let last_blocks = || (APART - BLOCK..len).step_by(APART);
        let before = last_blocks().map(|at| *slab.block(at));
        let before: Zeroizing<Vec<u128>> = Zeroizing::new(before.collect());
        self.carry_out(slab, &self.slot, requests).await?;
        let is_same = |(at, before): (usize, &u128)| *slab.block(at) == *before;
        match last_blocks().zip(&*before).any(is_same) {
            true => Err(self.shared.did_nothing()),
            false => Ok(()),
        }
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
        // As one run, if its sectors have numbers there; nothing has changed if they have not.
        if let Ok(number) = u64::try_from(first) {
            let number = match self.step {
                1 => First::Index(number),
                _ => First::Units512(number),
            };
            let done = match direction {
                Direction::Encrypt => cpu.try_encrypt(number, data),
                Direction::Decrypt => cpu.try_decrypt(number, data),
            };
            if done.is_ok() {
                cpu.wipe_stack();
                return Ok(());
            }
        }
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

async fn wait_for(ticket: &Ticket) -> Result<(), Fault> {
    poll_fn(|context| ticket.poll(context.waker())).await
}
